//! The entry point for a fuzzer of a client's rows: arbitrary bytes in, no panic, and what was
//! accepted is read back as the same.

use super::rows::{DirectoryRow, EntryRow, NodeRow, entry_key, entry_name};
use model::FileId;

#[doc(hidden)]
pub fn fuzz_rows(bytes: &[u8]) {
    if let Ok(row) = NodeRow::decode(bytes) {
        assert_eq!(NodeRow::decode(&row.encode()).expect("just encoded"), row);
    }
    if let Ok(row) = EntryRow::decode(bytes) {
        let _ = row.shown();
        assert_eq!(EntryRow::decode(&row.encode()).expect("just encoded"), row);
    }
    if let Ok(row) = DirectoryRow::decode(bytes) {
        assert_eq!(DirectoryRow::decode(&row.encode()).expect("just encoded"), row);
    }
    if let Ok(name) = entry_name(bytes) {
        let key = entry_key(FileId(u64::MAX), &name);
        assert_eq!(key[8..], bytes[8..], "a key ends with the name's bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial::rows::LocalNode;
    use model::{Node, Time};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>) {
            fuzz_rows(&bytes);
            fuzz_rows(&[&[1], bytes.as_slice()].concat());
        }

        #[test]
        fn prop_a_damaged_row_is_read_or_refused(at: prop::sample::Index, bit in 0_u8..8) {
            let node = Node::root_directory(3, 4, Time { secs: 1, nanos: 2 });
            let local = LocalNode { number: 9, node: Some(node) };
            let mut bytes = NodeRow { local: Some(local), ..NodeRow::default() }.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            fuzz_rows(&bytes);
        }
    }
}
