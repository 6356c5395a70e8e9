//! See `transom_fuzz::upgrade`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::upgrade::upgrade(input));
