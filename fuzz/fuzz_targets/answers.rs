//! See `transom_fuzz::answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::answers::answers(input));
