//! libFuzzer's entry to `ringside_fuzz::review`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_fuzz::review::run(input));
