#![no_main]
//! Rows of the partial tree that a client has of its volume.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| volume::partial::fuzz_rows(bytes));
