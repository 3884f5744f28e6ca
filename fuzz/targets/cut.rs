#![no_main]
//! The contents of a file, cut into chunks.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_cut(bytes));
