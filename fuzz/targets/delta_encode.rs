#![no_main]
//! A base and a target, of which a delta is made and decoded.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_delta_encode(bytes));
