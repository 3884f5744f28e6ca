//! A record of the log, in a versioned envelope. Layout: docs/FORMATS.md, "Log records".

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{ChunkName, Contents, FileId, Stamp, Update};

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Record {
    #[n(0)]
    Update(#[n(0)] Update),
    /// From here on the container of the file may be written to, and is not what was stored.
    #[n(1)]
    Opened {
        #[n(0)]
        file: FileId,
        #[n(1)]
        generation: u32,
        /// The contents that the next store will expect to find.
        #[n(2)]
        expects: Stamp,
        /// Whose process it was.
        #[n(3)]
        uid: u32,
    },
    /// The update of this number never leaves.
    #[n(2)]
    Cancelled {
        #[n(0)]
        number: u64,
    },
    /// What was written to the container needs no store any more.
    #[n(3)]
    Closed {
        #[n(0)]
        file: FileId,
    },
    /// As `Opened`, of a container that does not hold all of the file: what it lacks is as it is
    /// in another version.
    #[n(4)]
    OpenedPart {
        #[n(0)]
        file: FileId,
        #[n(1)]
        generation: u32,
        #[n(2)]
        expects: Stamp,
        #[n(3)]
        uid: u32,
        /// The version that shows where nothing is here.
        #[n(4)]
        version: Stamp,
        #[n(5)]
        contents: Contents,
        /// Bytes of that version, from its beginning, that show at all.
        #[n(6)]
        reach: u64,
        /// Stretches that are here: (offset, end).
        #[n(7)]
        ranges: Vec<(u64, u64)>,
        /// The file of which that is a version, if it is another.
        #[n(8)]
        of: Option<FileId>,
    },
    /// Of such a container a stretch is here now, which is on the disk.
    #[n(5)]
    Here {
        #[n(0)]
        file: FileId,
        #[n(1)]
        generation: u32,
        #[n(2)]
        from: u64,
        #[n(3)]
        to: u64,
    },
    /// Of the other version no more than this shows any more.
    #[n(6)]
    Reach {
        #[n(0)]
        file: FileId,
        #[n(1)]
        generation: u32,
        #[n(2)]
        reach: u64,
    },
    /// What the store that follows adds to the version that its contents rest on.
    #[n(7)]
    Part {
        #[n(0)]
        file: FileId,
        #[n(1)]
        generation: u32,
        /// Of the update that follows.
        #[n(2)]
        number: u64,
        #[n(3)]
        contents: Contents,
        /// Chunks that were cut anew: offset, length and name.
        #[n(4)]
        pieces: Vec<(u64, u64, ChunkName)>,
        /// Recipe chunks that were made anew.
        #[n(5)]
        recipe: Vec<ByteVec>,
    },
    /// The updates of these numbers never leave, and these updates do in the place of those that
    /// bear the same stamps: all of it at once.
    #[n(8)]
    Moot {
        #[n(0)]
        cancelled: Vec<u64>,
        #[n(1)]
        rewritten: Vec<Update>,
    },
    /// A program has made sure of what the store of this number stores: whatever is logged behind
    /// this counts on it.
    #[n(9)]
    Sure {
        #[n(0)]
        number: u64,
    },
}

/// Version of the record format, the first byte of every record.
const FORMAT: u8 = 1;
/// Of records of what lacks what is in another file, which format 1 would look for in its own.
const FORMAT_OF_ANOTHER: u8 = 2;
/// Of most records, at most.
const RECORD_BYTES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("a record of format {0}, which this farfs does not know: a newer one wrote it")]
    Format(u8),
    #[error("an empty record")]
    Empty,
    #[error("a record of a kind that this farfs does not know: a newer farfs may have written it")]
    Unknown,
    #[error("a record that does not decode: {0}")]
    Malformed(minicbor::decode::Error),
}

impl From<minicbor::decode::Error> for RecordError {
    fn from(source: minicbor::decode::Error) -> RecordError {
        match source.is_unknown_variant() {
            true => RecordError::Unknown,
            false => RecordError::Malformed(source),
        }
    }
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.push(match self {
            Record::OpenedPart { of: Some(_), .. } => FORMAT_OF_ANOTHER,
            _ => FORMAT,
        });
        minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        match bytes.split_first() {
            Some((&(FORMAT | FORMAT_OF_ANOTHER), rest)) => Ok(minicbor::decode(rest)?),
            Some((&format, _)) => Err(RecordError::Format(format)),
            None => Err(RecordError::Empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        AttributeChange, Change, ChunkName, Contents, Kind, Name, ReplicaId, Root, Time, Whiteout,
    };
    use proptest::prelude::*;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let update = Update {
            stamp: Stamp::new(ReplicaId(3), 9),
            uid: 1000,
            at: Time { secs: -1, nanos: 5 },
            change: Change::RemoveXattr {
                file: FileId(7),
                name: b"user.x".to_vec().into(),
                expects: None,
            },
        };
        for record in [
            Record::Update(update),
            Record::Cancelled { number: 4 },
            Record::Closed { file: FileId(1) },
            Record::Opened { file: FileId(2), generation: 1, expects: Stamp::default(), uid: 0 },
            opened_part(),
            opened_upon_another(),
            part(),
            moot(),
        ] {
            assert_eq!(Record::decode(&record.encode()).expect("just encoded"), record);
        }
    }

    fn contents() -> Contents {
        Contents {
            size: 100,
            root: Some(Root { name: ChunkName([0xab; 24]), depth: 1 }),
            holes: None,
        }
    }

    fn opened_part() -> Record {
        Record::OpenedPart {
            file: FileId(5),
            generation: 2,
            expects: Stamp::new(ReplicaId(3), 9),
            uid: 1000,
            version: Stamp::new(ReplicaId(3), 8),
            contents: contents(),
            reach: 90,
            ranges: vec![(0, 10), (20, 30)],
            of: None,
        }
    }

    fn opened_upon_another() -> Record {
        match opened_part() {
            Record::OpenedPart {
                file,
                generation,
                expects,
                uid,
                version,
                contents,
                reach,
                ranges,
                ..
            } => Record::OpenedPart {
                file,
                generation,
                expects,
                uid,
                version,
                contents,
                reach,
                ranges,
                of: Some(FileId(6)),
            },
            other => other,
        }
    }

    fn part() -> Record {
        Record::Part {
            file: FileId(5),
            generation: 2,
            number: 9,
            contents: contents(),
            pieces: vec![(0, 10, ChunkName([0xcd; 24]))],
            recipe: vec![vec![1, 2].into()],
        }
    }

    fn moot() -> Record {
        let name = Name::new(*b"a").expect("a name");
        let change = Change::Unlink { parent: FileId::ROOT, name, file: FileId(5), expects: None };
        let at = Time { secs: 1, nanos: 2 };
        let update = Update { stamp: Stamp::new(ReplicaId(3), 10), uid: 1000, at, change };
        Record::Moot { cancelled: vec![4, 300], rewritten: vec![update] }
    }

    fn read(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn check(golden: &str, record: &Record) {
        let hex: String = record.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{record:?}");
        assert_eq!(&Record::decode(&read(golden)).expect("golden"), record);
    }

    /// The bytes of a record never change their meaning.
    #[test]
    fn golden_records_of_what_is_noted_still_read() {
        let expects = Stamp::new(ReplicaId(3), 9);
        check(
            "0182018405028203091903e8",
            &Record::Opened { file: FileId(5), generation: 2, expects, uid: 1000 },
        );
        check("0182028104", &Record::Cancelled { number: 4 });
        check("0182038105", &Record::Closed { file: FileId(5) });
        check("0182098104", &Record::Sure { number: 4 });
        let name = |byte: &str| byte.repeat(24);
        let contents = format!("821864825818{}01", name("ab"));
        check(
            &format!("01820488050282030 91903e8820308{contents}185a82 82000a82 14181e")
                .replace(' ', ""),
            &opened_part(),
        );
        check(
            &format!("02820489050282030 91903e8820308{contents}185a82 82000a82 14181e06")
                .replace(' ', ""),
            &opened_upon_another(),
        );
        let (file, generation) = (FileId(5), 2);
        check("018205840502000a", &Record::Here { file, generation, from: 0, to: 10 });
        check("0182068305020a", &Record::Reach { file, generation, reach: 10 });
        check(&format!("01820786050209{contents}8183000a5818{}81420102", name("cd")), &part());
        check("01820882820419012c818482030a1903e882010282028301416105", &moot());
    }

    #[test]
    fn golden_records_of_every_change_still_read() {
        let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
        let (file, parent) = (FileId(5), FileId::ROOT);
        let at = Time { secs: 1, nanos: 2 };
        let expects = Stamp::new(ReplicaId(3), 9);
        let root = Root { name: ChunkName([0xab; 24]), depth: 1 };
        let contents = Contents { size: 100, root: Some(root), holes: None };
        let link = Change::Make {
            parent,
            name: name("a"),
            file,
            kind: Kind::Symlink,
            mode: 0o777,
            uid: 6,
            gid: 7,
            target: Some(b"b".to_vec().into()),
            rdev: None,
            born: None,
        };
        let device = Change::Make {
            parent,
            name: name("a"),
            file,
            kind: Kind::CharDevice,
            mode: 0o600,
            uid: 0,
            gid: 0,
            target: None,
            rdev: Some(259),
            born: None,
        };
        let born = Change::Make {
            parent,
            name: name("a"),
            file,
            kind: Kind::File,
            mode: 0o600,
            uid: 0,
            gid: 0,
            target: None,
            rdev: None,
            born: Some(at),
        };
        let rename = Change::Rename {
            from: parent,
            from_name: name("a"),
            to: FileId(8),
            to_name: name("b"),
            file,
            over: Some(FileId(9)),
            exchange: true,
            whiteout: None,
            expects: None,
        };
        let whiteout = Change::Rename {
            from: parent,
            from_name: name("a"),
            to: FileId(8),
            to_name: name("b"),
            file,
            over: None,
            exchange: false,
            whiteout: Some(Whiteout { file: FileId(10), uid: 6, gid: 7 }),
            expects: None,
        };
        let set = AttributeChange { mode: Some(0o644), mtime: Some(at), ..Default::default() };
        let xattr = || b"user.x".to_vec().into();
        for (golden, change) in [
            ("018200818482030a1903e882010282008801416105021901ff06074162", link),
            ("018200818482030a1903e882010282008901416105051901800000f6190103", device),
            ("018200818482030a1903e882010282008a01416105001901800000f6f6820102", born),
            (
                "018200818482030a1903e882010282018301416105",
                Change::Link { parent, name: name("a"), file },
            ),
            (
                "018200818482030a1903e882010282028301416105",
                Change::Unlink { parent, name: name("a"), file, expects: None },
            ),
            ("018200818482030a1903e88201028203870141610841620509f5", rename),
            ("018200818482030a1903e882010282038801416108416205f6f4830a0607", whiteout),
            (
                "018200818482030a1903e882010282048405820309821864825818abababababababababababababababababababababababab01820102",
                Change::Store { file, expects, contents, mtime: at },
            ),
            (
                "018200818482030a1903e882010282058305820309851901a4f6f6f6820102",
                Change::SetAttributes { file, expects, set },
            ),
            (
                "018200818482030a1903e88201028206830546757365722e7841ff",
                Change::SetXattr { file, name: xattr(), value: vec![0xff].into(), expects: None },
            ),
            (
                "018200818482030a1903e88201028207820546757365722e78",
                Change::RemoveXattr { file, name: xattr(), expects: None },
            ),
            (
                "018200818482030a1903e88201028206840546757365722e7841ff820309",
                Change::SetXattr {
                    file,
                    name: xattr(),
                    value: vec![0xff].into(),
                    expects: Some(expects),
                },
            ),
            (
                "018200818482030a1903e88201028207830546757365722e78820309",
                Change::RemoveXattr { file, name: xattr(), expects: Some(expects) },
            ),
        ] {
            let stamp = Stamp::new(ReplicaId(3), 10);
            check(golden, &Record::Update(Update { stamp, uid: 1000, at, change }));
        }
    }

    #[test]
    fn what_a_newer_program_wrote_is_not_guessed_at() {
        assert!(matches!(Record::decode(&[9, 1]), Err(RecordError::Format(9))));
        assert!(matches!(Record::decode(&[]), Err(RecordError::Empty)));
        assert!(matches!(Record::decode(&[1, 0xff, 0]), Err(RecordError::Malformed(_))));
        // A kind that is not known, and a change that is not.
        let kind = Record::decode(&read("018218638100"));
        assert!(matches!(kind, Err(RecordError::Unknown)), "{kind:?}");
        let change = Record::decode(&read("01820081848203090082010282186380"));
        assert!(matches!(change, Err(RecordError::Unknown)), "{change:?}");
    }

    /// Reads or refuses the bytes; what was read can be written and is then read as the same.
    fn read_back(bytes: &[u8]) {
        if let Ok(record) = Record::decode(bytes) {
            assert_eq!(Record::decode(&record.encode()).expect("just encoded"), record);
        }
    }

    proptest! {
        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>, variant in 0_u8..10) {
            read_back(&bytes);
            read_back(&[&[FORMAT, 0x82, variant], bytes.as_slice()].concat());
        }

        #[test]
        fn prop_a_damaged_record_is_read_or_refused(at: prop::sample::Index, value: u8) {
            let name = Name::new(*b"notes").expect("a name");
            let change = Change::Unlink { parent: FileId::ROOT, name, file: FileId(7), expects: None };
            let at_time = Time { secs: 1, nanos: 2 };
            let stamp = Stamp::new(ReplicaId(3), 9);
            let update = Update { stamp, uid: 1000, at: at_time, change };
            let mut bytes = Record::Update(update).encode();
            let at = at.index(bytes.len());
            bytes[at] = value;
            read_back(&bytes);
        }
    }
}
