//! The entry point for a fuzzer of an origin's records and keys: arbitrary bytes in, no panic, and
//! what was accepted is read back as the same.

use super::record::{
    ContentsRecord, EntryRecord, Head, LogRecord, NodeRecord, decode, encode, sealed,
};
use super::{Snapshot, Writer, keys};
use minicbor::{Decode, Encode};
use model::Usage;
use protocol::Verdict;
use std::fmt::Debug;

/// The bytes as a stored record, as the body of one whose checksum fits, and as a key.
#[doc(hidden)]
pub fn fuzz_records(bytes: &[u8]) {
    for record in [bytes, &sealed(bytes)] {
        read_back::<Head>(record);
        read_back::<NodeRecord>(record);
        read_back::<EntryRecord>(record);
        read_back::<ContentsRecord>(record);
        read_back::<LogRecord>(record);
        read_back::<Writer>(record);
        read_back::<Snapshot>(record);
        read_back::<Verdict>(record);
        read_back::<Usage>(record);
    }
    let _ = keys::last_number(bytes);
    let _ = keys::name_in_entry(bytes);
    let _ = keys::name_in_name_of(bytes);
    let _ = keys::file_and_stamp(bytes);
    let _ = keys::user_in(bytes);
}

fn read_back<T: Debug + PartialEq + Encode<()> + for<'b> Decode<'b, ()>>(bytes: &[u8]) {
    if let Ok(record) = decode::<T>(String::new, bytes) {
        let again: T = decode(String::new, &encode(&record)).expect("just encoded");
        assert_eq!(again, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>) {
            fuzz_records(&bytes);
        }

        #[test]
        fn prop_a_damaged_record_is_read_or_refused(at: prop::sample::Index, bit in 0_u8..8) {
            let node = model::Node::root_directory(3, 4, model::Time { secs: 1, nanos: 2 });
            let mut body = minicbor::to_vec(NodeRecord { node: Some(node), was: None }).unwrap();
            let at = at.index(body.len());
            body[at] ^= 1_u8 << bit;
            fuzz_records(&body);
        }
    }
}
