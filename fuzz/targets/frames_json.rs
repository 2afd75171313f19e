//! JSON events, one a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringside_proxy::frames::Frames;

fuzz_target!(|input: &[u8]| ringside_fuzz::frames(input, Frames::json));
