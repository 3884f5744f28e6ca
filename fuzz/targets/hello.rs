#![no_main]
//! A frame on the first stream of a session.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| link::fuzz_hello(bytes));
