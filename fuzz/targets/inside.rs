#![no_main]
//! Containers that are looked into, and the places at which chunks were seen in them.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chunks::fuzz_inside(bytes));
