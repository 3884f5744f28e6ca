//! The entry point for a fuzzer of the client's own rows: arbitrary bytes in, no panic, and what
//! was accepted is read back as the same.

use crate::damage::Note;
use crate::meta::Meta;
use crate::presence::Presence;

#[doc(hidden)]
pub fn fuzz_rows(bytes: &[u8]) {
    if let Ok(meta) = Meta::decode(bytes) {
        assert_eq!(Meta::decode(&meta.encode()).expect("just encoded"), meta);
    }
    if let Ok(note) = Note::decode(bytes) {
        assert_eq!(Note::decode(&note.encode()).expect("just encoded"), note);
    }
    crate::policies::fuzz(bytes);
    if let Ok(mut here) = Presence::decode(bytes) {
        assert_eq!(Presence::decode(&here.encode()).expect("just encoded"), here);
        let before = here.bytes();
        let _ = here.is_whole();
        here.add(here.used as u64, here.version.number);
        assert!(here.bytes() >= before, "what was here stays here");
        Presence::decode(&here.encode()).expect("what is added keeps the order");
        here.add_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>) {
            fuzz_rows(&bytes);
            fuzz_rows(&[&[1], bytes.as_slice()].concat());
            fuzz_rows(&[&[2], bytes.as_slice()].concat());
            fuzz_rows(&[&[3], bytes.as_slice()].concat());
        }

        #[test]
        fn prop_a_damaged_row_is_read_or_refused(at: prop::sample::Index, value: u8) {
            let stamp = model::Stamp::new(model::ReplicaId(3), 9);
            let contents = model::Contents { size: 100, root: None, holes: None };
            let mut here = Presence::new(2, stamp, contents, 30);
            here.add(0, 10);
            here.add(20, 5);
            let policy = vec![1, 0x83, 0x82, 1, 0x81, 0x19, 1, 0x2c, 0x18, 30, 7];
            let stale = vec![1, 0x84, 5, 9, 3, 0x41, b'a'];
            for mut row in [here.encode(), Meta::default().encode(), policy, stale] {
                let at = at.index(row.len());
                row[at] = value;
                fuzz_rows(&row);
            }
        }
    }
}
