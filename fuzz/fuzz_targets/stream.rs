//! See `transom_fuzz::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::stream::stream(input));
