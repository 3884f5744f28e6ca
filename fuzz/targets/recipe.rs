#![no_main]
//! A recipe chunk.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_recipe(bytes));
