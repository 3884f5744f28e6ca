#![no_main]
//! A delta of any codec, with its base.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_delta(bytes));
