//! libFuzzer's entry to `ringside_fuzz::inject`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_fuzz::inject::run(input));
