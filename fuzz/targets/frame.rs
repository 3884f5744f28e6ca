#![no_main]
//! A frame of a session after its hello.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| link::fuzz_frame(bytes));
