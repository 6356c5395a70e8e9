//! See `transom_fuzz::handover`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| transom_fuzz::handover::handover(input));
