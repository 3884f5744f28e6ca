#![no_main]
//! Chunks in a message.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_payload(bytes));
