#![no_main]
//! Records and keys of an origin's tables.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| volume::whole::fuzz_records(bytes));
