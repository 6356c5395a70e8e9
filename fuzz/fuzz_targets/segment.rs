//! See `transom_fuzz::segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::segment::segment(input));
