//! A peer that says anything at all to a `transom_iwarp::Stream`.
#![no_main]

#[path = "../../crates/transom-iwarp/tests/common/fuzz.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::stream(input));
