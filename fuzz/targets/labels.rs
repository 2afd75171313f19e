//! libFuzzer's entry to `ringside_fuzz::proxy::labels`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_fuzz::proxy::labels::run(input));
