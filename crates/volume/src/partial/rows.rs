//! The rows of the partial tree. Layouts stand in docs/FORMATS.md, "The client's tables".

use super::change::Changed;
use minicbor::{Decode, Encode};
use model::{Change, FileId, Name, Node, Seq, Time, Update};

/// A row that is not what was written.
#[derive(Debug, thiserror::Error)]
#[error(
    "the client's table of {table} is damaged ({what}); keep a copy of the state directory, which \
     has what is not sent yet, then mount with another one, into which device.pem and server.toml are \
     copied"
)]
pub struct RowError {
    pub table: &'static str,
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct NodeRow {
    #[n(0)]
    pub up: Option<UpNode>,
    #[n(1)]
    pub local: Option<LocalNode>,
    /// When it was last read here, as far as that shows.
    #[n(2)]
    pub accessed: Option<Accessed>,
    /// What the replica above has said since, and does not show yet.
    #[n(3)]
    pub held: Option<UpNode>,
}

/// A time of access that is this machine's alone. It shows in place of the one that it was noted
/// over, and no more once that has been set anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Accessed {
    #[n(0)]
    pub over: Time,
    #[n(1)]
    pub at: Time,
}

impl Accessed {
    pub fn show(&self, node: &mut Node) {
        if node.atime == self.over {
            node.atime = self.at;
        }
    }
}

impl NodeRow {
    /// What shows, but for the time of access. None: nothing is known, or it is gone.
    pub fn shown(&self) -> Option<&Node> {
        match (&self.local, &self.up) {
            (Some(local), _) => local.node.as_ref(),
            (None, Some(up)) => up.node.as_ref(),
            (None, None) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct UpNode {
    #[n(0)]
    pub seq: Seq,
    #[n(1)]
    pub epoch: u32,
    #[n(2)]
    pub node: Option<Node>,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct LocalNode {
    /// The last pending update that touched it.
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub node: Option<Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct EntryRow {
    #[n(0)]
    pub up: Option<UpEntry>,
    #[n(1)]
    pub local: Option<LocalEntry>,
    /// As of a node.
    #[n(2)]
    pub held: Option<UpEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct UpEntry {
    #[n(0)]
    pub seq: Seq,
    #[n(1)]
    pub epoch: u32,
    #[n(2)]
    pub file: Option<FileId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct LocalEntry {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub file: Option<FileId>,
}

impl EntryRow {
    pub fn shown(&self) -> Option<FileId> {
        match (&self.local, &self.up) {
            (Some(local), _) => local.file,
            (None, Some(up)) => up.file,
            (None, None) => None,
        }
    }
}

/// A directory all of whose entries are known.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct DirectoryRow {
    #[n(0)]
    pub epoch: u32,
}

/// Version of the row format, the first byte of every row.
const FORMAT: u8 = 1;
/// Of most rows, at most.
const ROW_BYTES: usize = 192;

macro_rules! row_codec {
    ($type:ty, $table:literal) => {
        impl $type {
            pub fn decode(bytes: &[u8]) -> Result<$type, RowError> {
                let error = |what: String| RowError { table: $table, what };
                match bytes.split_first() {
                    Some((&FORMAT, rest)) => {
                        minicbor::decode(rest).map_err(|source| error(source.to_string()))
                    }
                    Some((format, _)) => Err(error(format!("a row of format {format}"))),
                    None => Err(error("an empty row".into())),
                }
            }

            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(ROW_BYTES);
                bytes.push(FORMAT);
                minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
                bytes
            }
        }
    };
}

row_codec!(NodeRow, "nodes");
row_codec!(EntryRow, "entries");
row_codec!(DirectoryRow, "directories");

pub(crate) fn node_key(file: FileId) -> [u8; 8] {
    file.0.to_be_bytes()
}

pub(crate) fn entry_key(directory: FileId, name: &Name) -> Vec<u8> {
    [&directory.0.to_be_bytes(), name.as_bytes()].concat()
}

pub(crate) fn entry_name(key: &[u8]) -> Result<Name, RowError> {
    let error = |what: String| RowError { table: "entries", what };
    let bytes = key.get(8..).ok_or_else(|| error("a key without a name".into()))?;
    Name::new(bytes).map_err(|source| error(source.to_string()))
}

pub(crate) fn entry_directory(key: &[u8]) -> Result<FileId, RowError> {
    let error = || RowError { table: "entries", what: "a key without a directory".into() };
    let directory = key.first_chunk::<8>().ok_or_else(error)?;
    Ok(FileId(u64::from_be_bytes(*directory)))
}

/// Behind the keys of all entries: ids are an i64 for the kernel.
pub(crate) const ALL_ENTRIES: &[u8] = &[0xff; 9];

pub(crate) fn entry_range(directory: FileId) -> (Vec<u8>, Vec<u8>) {
    let from = directory.0.to_be_bytes().to_vec();
    // The id is an i64 for the kernel, so one more never overflows.
    (from, directory.0.wrapping_add(1).to_be_bytes().to_vec())
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The nodes and entries that an update touches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched {
    pub nodes: Vec<FileId>,
    pub entries: Vec<(FileId, Name)>,
}

impl Touched {
    pub fn by(update: &Update) -> Touched {
        let entries = match &update.change {
            Change::Make { parent, name, .. }
            | Change::Link { parent, name, .. }
            | Change::Unlink { parent, name, .. } => vec![(*parent, name.clone())],
            Change::Rename { from, from_name, to, to_name, .. } => {
                vec![(*from, from_name.clone()), (*to, to_name.clone())]
            }
            _ => Vec::new(),
        };
        Touched { nodes: update.touches(), entries }
    }

    /// What may show otherwise when these are touched.
    pub fn changed(&self) -> Vec<Changed> {
        let nodes = self.nodes.iter().map(|file| Changed::Node { file: *file, contents: true });
        let entries = self.entries.iter().cloned();
        nodes.chain(entries.map(|(directory, name)| Changed::Entry(directory, name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Stamp;

    fn read(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn node() -> Node {
        let at = Time { secs: 1, nanos: 2 };
        let stamp = Stamp::new(model::ReplicaId(5), 6);
        // As it was before births were kept.
        Node { contents_stamp: stamp, born: None, ..Node::root_directory(3, 4, at) }
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn golden_rows_of_nodes_still_read() {
        let up = UpNode { seq: Seq(7), epoch: 2, node: Some(node()) };
        let gone = UpNode { seq: Seq(8), epoch: 3, node: None };
        let born = Node { born: Some(Time { secs: -5, nanos: 6 }), ..node() };
        let born = UpNode { seq: Seq(7), epoch: 2, node: Some(born) };
        let gone_too = gone.clone();
        let local = LocalNode { number: 9, node: Some(node()) };
        let removed = LocalNode { number: 10, node: None };
        let (over, at) = (Time { secs: 1, nanos: 2 }, Time { secs: 3, nanos: 4 });
        let accessed = Accessed { over, at };
        for (golden, row) in [
            (
                "01818307028c011901ed030402820102820102820102820506820000810001",
                NodeRow { up: Some(up), ..NodeRow::default() },
            ),
            (
                "018183070290011901ed030402820102820102820102820506820000810001f6f6f6822406",
                NodeRow { up: Some(born), ..NodeRow::default() },
            ),
            (
                "018282080382098c011901ed030402820102820102820102820506820000810001",
                NodeRow { up: Some(gone), local: Some(local), ..NodeRow::default() },
            ),
            ("0182f6810a", NodeRow { local: Some(removed), ..NodeRow::default() }),
            ("0183f6f682820102820304", NodeRow { accessed: Some(accessed), ..NodeRow::default() }),
            ("0184f6f6f6820803", NodeRow { held: Some(gone_too), ..NodeRow::default() }),
        ] {
            assert_eq!(hex(&row.encode()), golden);
            assert_eq!(NodeRow::decode(&read(golden)).unwrap(), row);
        }
    }

    #[test]
    fn a_damaged_time_of_birth_is_damage() {
        let good = "018183070290011901ed030402820102820102820102820506820000810001f6f6f6822406";
        assert!(NodeRow::decode(&read(good)).is_ok());
        for born in ["f5", "24", "8124", "8206", "622406", "82f606", "8224", ""] {
            let bad = good.strip_suffix("822406").unwrap().to_owned() + born;
            let error = NodeRow::decode(&read(&bad)).unwrap_err().to_string();
            assert!(error.contains("nodes"), "{born}: {error}");
        }
    }

    #[test]
    fn golden_rows_of_entries_still_read() {
        let up = UpEntry { seq: Seq(7), epoch: 2, file: Some(FileId(5)) };
        let free = UpEntry { seq: Seq(8), epoch: 3, file: None };
        let held = UpEntry { seq: Seq(9), epoch: 2, file: Some(FileId(7)) };
        let local = LocalEntry { number: 9, file: Some(FileId(6)) };
        let removed = LocalEntry { number: 10, file: None };
        for (golden, row) in [
            ("018183070205", EntryRow { up: Some(up), ..EntryRow::default() }),
            ("0182820803820906", EntryRow { up: Some(free), local: Some(local), held: None }),
            ("0182f6810a", EntryRow { local: Some(removed), ..EntryRow::default() }),
            ("018383070205f683090207", EntryRow { up: Some(up), held: Some(held), local: None }),
        ] {
            assert_eq!(hex(&row.encode()), golden);
            assert_eq!(EntryRow::decode(&read(golden)).unwrap(), row);
        }
    }

    #[test]
    fn golden_rows_of_directories_still_read() {
        let row = DirectoryRow { epoch: 300 };
        let golden = "018119012c";
        assert_eq!(hex(&row.encode()), golden);
        assert_eq!(DirectoryRow::decode(&read(golden)).unwrap(), row);
    }

    #[test]
    fn golden_keys_still_find_their_rows() {
        let name = Name::new(*b"name").unwrap();
        assert_eq!(hex(&node_key(FileId(0x0102))), "0000000000000102");
        assert_eq!(hex(&entry_key(FileId(0x0102), &name)), "00000000000001026e616d65");
        assert_eq!(entry_name(&read("00000000000001026e616d65")).unwrap(), name);
    }

    #[test]
    fn what_no_program_of_this_format_wrote_is_damage_and_says_where() {
        for bytes in [&[][..], &[2, 0x80], &[1, 0xff], &[1]] {
            let error = NodeRow::decode(bytes).unwrap_err().to_string();
            assert!(error.contains("nodes"), "{error}");
        }
        assert!(entry_name(&[0; 8]).is_err());
        assert!(entry_name(&[0; 3]).is_err());
    }
}
