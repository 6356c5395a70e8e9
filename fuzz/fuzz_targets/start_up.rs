//! See `transom_fuzz::start_up`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::start_up::start_up(input));
