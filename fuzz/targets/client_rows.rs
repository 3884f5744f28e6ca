#![no_main]
//! Rows of what a client knows of itself and of its cache.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| client::fuzz_rows(bytes));
