//! libFuzzer's entry to `ringside_fuzz::proxy::frames_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_fuzz::proxy::frames_json::run(input));
