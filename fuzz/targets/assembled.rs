#![no_main]
//! Deltas that are assembled, and containers that are looked into.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_assembled(bytes));
