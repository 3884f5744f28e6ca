#![no_main]
//! Chunks against a base, made and undone.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_against(bytes));
