#![no_main]
//! A deflate stream that is taken apart, and plain bytes of which one is made.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_deflate(bytes));
