#![no_main]
//! What a client asks of the replica above it.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::read_back::<protocol::Request>(bytes));
