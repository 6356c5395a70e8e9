//! See `transom_fuzz::rings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::rings::rings(input));
