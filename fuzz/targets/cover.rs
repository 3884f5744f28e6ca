#![no_main]
//! A walk through a tree of recipe chunks.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_cover(bytes));
