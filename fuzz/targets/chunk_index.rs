#![no_main]
//! A row of the chunk index.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_index(bytes));
