#![no_main]
//! What the replica above answers.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::read_back::<protocol::Response>(bytes));
