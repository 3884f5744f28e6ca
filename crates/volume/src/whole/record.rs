//! The envelope of every stored record: format, checksum, CBOR. Laid out in docs/FORMATS.md,
//! "The origin's tables".

use super::error::{Error, Result};
use minicbor::{Decode, Encode};
use model::{Contents, FileId, Name, Node, Seq, Update};

/// The newest format of records, and the only one so far.
const FORMAT: u8 = 1;
/// The format's byte, and the checksum of all that is not the checksum.
const ENVELOPE_BYTES: usize = 5;

/// Where a volume stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct Head {
    #[n(0)]
    pub position: Seq,
    #[n(1)]
    pub files: u64,
    /// The replica id that is given away next.
    #[n(2)]
    pub next_replica: u32,
    /// The counter of the file that the origin makes next.
    #[n(3)]
    pub next_file: u64,
    /// The number of the next snapshot. None: there was none yet.
    #[n(4)]
    pub next_snapshot: Option<u32>,
    /// Before this position not everything is kept, but where a snapshot holds it. None: nothing
    /// was pruned since this is noted.
    #[n(5)]
    pub pruned: Option<Seq>,
    /// Bytes that files have now. None: they were never counted, nor those of each user.
    #[n(6)]
    pub bytes: Option<u64>,
}

/// One version of a node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct NodeRecord {
    #[n(0)]
    pub node: Option<Node>,
    /// Of a node that is gone, the last name that it had.
    #[n(1)]
    pub was: Option<(FileId, Name)>,
}

/// A name as it is now, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct EntryRecord {
    #[n(0)]
    pub file: Option<FileId>,
}

/// Contents that a file has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct ContentsRecord {
    #[n(0)]
    pub contents: Contents,
    #[n(1)]
    pub since: Seq,
}

/// An update with the keys of all that it touched.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct LogRecord {
    #[n(0)]
    pub update: Update,
    #[n(1)]
    pub nodes: Vec<FileId>,
    #[n(2)]
    pub entries: Vec<(FileId, Name)>,
}

/// A record as it is stored.
pub fn encode<T: Encode<()>>(record: &T) -> Vec<u8> {
    sealed(&minicbor::to_vec(record).expect("writing to a Vec does not fail"))
}

/// A body in its envelope.
pub(super) fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = [&[FORMAT, 0, 0, 0, 0], body].concat();
    let sum = checksum(&bytes);
    bytes[1..ENVELOPE_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A stored record; `place` says which, for the error.
pub fn decode<T: for<'b> Decode<'b, ()>>(place: impl Fn() -> String, bytes: &[u8]) -> Result<T> {
    let damaged = |what: &str| Error::Damaged { place: place(), what: what.to_owned() };
    let Some((envelope, body)) = bytes.split_at_checked(ENVELOPE_BYTES) else {
        return Err(damaged("it is too short"));
    };
    if envelope[0] > FORMAT {
        return Err(Error::TooNew { place: place(), found: envelope[0], known: FORMAT });
    }
    if envelope[0] != FORMAT {
        return Err(damaged("it has no known format"));
    }
    if envelope[1..] != checksum(bytes).to_le_bytes() {
        return Err(damaged("its checksum does not fit"));
    }
    let mut decoder = minicbor::Decoder::new(body);
    let record = decoder.decode().map_err(|error| damaged(&error.to_string()))?;
    if decoder.position() != body.len() {
        return Err(damaged("something follows it"));
    }
    Ok(record)
}

fn checksum(bytes: &[u8]) -> u32 {
    let format = crc32c::crc32c(&bytes[..1]);
    crc32c::crc32c_append(format, &bytes[ENVELOPE_BYTES..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use model::{Change, ChunkName, ReplicaId, Root, Stamp, Time, Usage};

    fn head() -> Head {
        Head {
            position: Seq(7),
            files: 3,
            next_replica: 2,
            next_file: 5,
            next_snapshot: None,
            pruned: None,
            bytes: None,
        }
    }

    fn hex<T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + std::fmt::Debug>(
        record: &T,
    ) -> String {
        let bytes = encode(record);
        let read: T = decode(|| "golden".into(), &bytes).unwrap();
        assert_eq!(&read, record);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_layout_of_records_is_pinned() {
        let at = Time { secs: 1, nanos: 2 };
        let name = Name::new(*b"n").unwrap();
        let born = Node::root_directory(3, 4, at);
        let node = Node { born: None, ..born.clone() };
        let root = Root { name: ChunkName([0xab; 24]), depth: 1 };
        let contents = Contents { size: 9, root: Some(root), holes: None };
        let store =
            Change::Store { file: FileId(5), expects: Stamp::default(), contents, mtime: at };
        let update = Update { stamp: Stamp::new(ReplicaId(1), 6), uid: 7, at, change: store };
        let log =
            LogRecord { update, nodes: vec![FileId(5)], entries: vec![(FileId(1), name.clone())] };
        let gone = NodeRecord { node: None, was: Some((FileId(1), name)) };
        let golden = [
            hex(&head()),
            hex(&Head { bytes: Some(9), ..head() }),
            hex(&Usage { bytes: 9, files: 2 }),
            hex(&NodeRecord { node: Some(node), was: None }),
            hex(&NodeRecord { node: Some(born), was: None }),
            hex(&gone),
            hex(&EntryRecord { file: Some(FileId(5)) }),
            hex(&ContentsRecord { contents, since: Seq(8) }),
            hex(&log),
        ];
        expect![[r#"
            01342067d78407030205
            0158316d278707030205f6f609
            0109efe73e820902
            01b0ae4848818c011901ed030402820102820102820102820000820000810001
            01d0fa5e108190011901ed030402820102820102820102820000820000810001f6f6f6820102
            01d8512a2082f68201416e
            019647b5188105
            01da585c14828209825818abababababababababababababababababababababababab0108
            0139c3fdd1838482010607820102820484058200008209825818abababababababababababababababababababababababab018201028105818201416e"#]].assert_eq(&golden.join("\n"));
    }

    #[test]
    fn a_record_is_read_back() {
        let read: Head = decode(|| "head".into(), &encode(&head())).unwrap();
        assert_eq!(read, head());
    }

    #[test]
    fn a_flipped_bit_anywhere_is_damage_and_says_where() {
        let good = encode(&head());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = decode::<Head>(|| "head of volume 4".into(), &bad).unwrap_err();
            assert!(error.to_string().contains("head of volume 4"), "{error}");
        }
    }

    #[test]
    fn a_newer_format_is_not_called_damage() {
        let mut newer = encode(&head());
        newer[0] = FORMAT + 1;
        let error = decode::<Head>(|| "head".into(), &newer).unwrap_err();
        assert!(matches!(error, Error::TooNew { found: 2, known: 1, .. }), "{error}");
    }
}
