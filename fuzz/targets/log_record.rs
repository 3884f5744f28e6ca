#![no_main]
//! A record of the update log.

use update_log::Record;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()).expect("just encoded"), record);
    }
});
