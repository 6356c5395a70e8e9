//! See `transom_fuzz::descriptors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::descriptors::descriptors(input));
