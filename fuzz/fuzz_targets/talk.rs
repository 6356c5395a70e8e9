//! See `transom_fuzz::talk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::talk::talk(input));
