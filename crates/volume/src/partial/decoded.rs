//! Rows of nodes as they were decoded or encoded lately. While a small file is made its row is asked for
//! some thirty times, and decoding it takes ten times as long as comparing its bytes.
//! Holds: what is given back is what the bytes say, whichever store they are of, and whether or not what
//! put them there was committed.
//! Never: waits for another thread; keeps a row that is large.

use super::rows::{NodeRow, RowError};
use model::FileId;
use std::sync::{Arc, Mutex};

/// One row is kept in each.
const PLACES: usize = 256;
/// Of a row that is kept. Extended attributes and targets of links can make one larger.
const BYTES_MAX: usize = 1024;

struct Kept {
    bytes: Vec<u8>,
    row: Arc<NodeRow>,
}

static KEPT: [Mutex<Option<Kept>>; PLACES] = [const { Mutex::new(None) }; PLACES];

/// The row of a file, of which the store has these bytes.
pub(super) fn row(file: FileId, bytes: Vec<u8>) -> Result<Arc<NodeRow>, RowError> {
    if let Some(row) = kept(file, &bytes) {
        return Ok(row);
    }
    let row = Arc::new(NodeRow::decode(&bytes)?);
    keep(file, bytes, &row);
    Ok(row)
}

/// The same, for whoever is about to put another one in its place.
pub(super) fn row_to_change(file: FileId, bytes: &[u8]) -> Result<NodeRow, RowError> {
    kept(file, bytes).map_or_else(|| NodeRow::decode(bytes), |row| Ok(Arc::unwrap_or_clone(row)))
}

/// What the store is to have of a row that is soon asked for again.
pub(super) fn encode(file: FileId, row: &NodeRow) -> Vec<u8> {
    let bytes = row.encode();
    keep(file, bytes.clone(), &Arc::new(row.clone()));
    bytes
}

fn kept(file: FileId, bytes: &[u8]) -> Option<Arc<NodeRow>> {
    let kept = place_of(file).try_lock().ok()?;
    kept.as_ref().filter(|kept| kept.bytes == bytes).map(|kept| Arc::clone(&kept.row))
}

fn keep(file: FileId, bytes: Vec<u8>, row: &Arc<NodeRow>) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    if let Ok(mut kept) = place_of(file).try_lock() {
        *kept = Some(Kept { bytes, row: Arc::clone(row) });
    }
}

fn place_of(file: FileId) -> &'static Mutex<Option<Kept>> {
    // Those that were made one after the other have numbers that follow each other.
    &KEPT[(file.0 % PLACES as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::super::rows::LocalNode;
    use super::*;
    use model::{Contents, Node, Time};

    fn row_by(number: u64) -> NodeRow {
        let root = Node::root_directory(3, 4, Time { secs: 1, nanos: 2 });
        // Of contents, the holes do not count when two are compared.
        let contents = Contents { size: 9, root: None, holes: Some(number) };
        let local = LocalNode { number, node: Some(Node { contents, ..root }) };
        NodeRow { local: Some(local), ..NodeRow::default() }
    }

    fn shown(row: &NodeRow) -> String {
        format!("{row:?}")
    }

    #[test]
    fn what_is_given_back_is_what_the_bytes_say() {
        // Nobody else here has files with these numbers.
        let (file, at_its_place) = (FileId(0x7777), FileId(0x7777 + PLACES as u64));
        let (one, other) = (row_by(1), row_by(2));
        let bytes = encode(file, &one);
        assert_eq!(bytes, one.encode());
        let first = row(file, bytes.clone()).unwrap();
        assert!(Arc::ptr_eq(&first, &row(file, bytes.clone()).unwrap()), "it is not decoded again");
        assert_eq!(shown(&first), shown(&NodeRow::decode(&bytes).unwrap()));
        assert_eq!(shown(&row_to_change(file, &bytes).unwrap()), shown(&one));

        assert_eq!(shown(&row(file, other.encode()).unwrap()), shown(&other), "another store's");
        assert_eq!(shown(&row(at_its_place, bytes.clone()).unwrap()), shown(&one));
        assert_eq!(shown(&row_to_change(file, &other.encode()).unwrap()), shown(&other));
        let cut = bytes[..bytes.len() - 1].to_vec();
        assert!(row_to_change(file, &cut).is_err());
        assert!(row(file, cut).is_err());
    }

    #[test]
    fn a_large_row_is_not_kept() {
        let mut large = row_by(1);
        let node = large.local.as_mut().and_then(|local| local.node.as_mut()).unwrap();
        node.target = Some(vec![b'x'; BYTES_MAX].into());
        let file = FileId(0x8888);
        let bytes = encode(file, &large);
        assert_eq!(shown(&row(file, bytes.clone()).unwrap()), shown(&large));
        assert!(kept(file, &bytes).is_none());
    }
}
