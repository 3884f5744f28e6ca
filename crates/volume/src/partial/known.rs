//! Rows of nodes as they were decoded or encoded lately. While a small file is made its row is asked for
//! some thirty times, and decoding it takes ten times as long as comparing its bytes.
//! Holds: what is given back is what the bytes say, whichever store they are of.
//! Never: waits for another thread; keeps a row that is large.

use super::rows::{NodeRow, RowError};
use model::FileId;
use std::sync::{Arc, Mutex};

/// One row is kept in each.
const PLACES: usize = 256;
/// Of a row that is kept. Extended attributes can make one larger.
const BYTES_MAX: usize = 1024;

struct Known {
    bytes: Vec<u8>,
    row: Arc<NodeRow>,
}

static KNOWN: [Mutex<Option<Known>>; PLACES] = [const { Mutex::new(None) }; PLACES];

/// The row of a file, of which the store has these bytes.
pub(super) fn decoded(file: FileId, bytes: Vec<u8>) -> Result<Arc<NodeRow>, RowError> {
    let place = place_of(file);
    if let Ok(known) = place.try_lock()
        && let Some(known) = known.as_ref().filter(|known| known.bytes == bytes)
    {
        return Ok(Arc::clone(&known.row));
    }
    let row = Arc::new(NodeRow::decode(&bytes)?);
    keep(place, bytes, &row);
    Ok(row)
}

/// What the store is to have of a row that is soon asked for again.
pub(super) fn encoded(file: FileId, row: &NodeRow) -> Vec<u8> {
    let bytes = row.encode();
    if bytes.len() <= BYTES_MAX {
        keep(place_of(file), bytes.clone(), &Arc::new(row.clone()));
    }
    bytes
}

fn place_of(file: FileId) -> &'static Mutex<Option<Known>> {
    // Those that were made one after the other have numbers that follow each other.
    &KNOWN[(file.0 % PLACES as u64) as usize]
}

fn keep(place: &Mutex<Option<Known>>, bytes: Vec<u8>, row: &Arc<NodeRow>) {
    if bytes.len() > BYTES_MAX {
        return;
    }
    if let Ok(mut known) = place.try_lock() {
        *known = Some(Known { bytes, row: Arc::clone(row) });
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::LocalNode;
    use super::*;
    use model::{Node, Time};

    fn row(number: u64) -> NodeRow {
        let node = Node::root_directory(3, 4, Time { secs: 1, nanos: 2 });
        let local = LocalNode { number, node: Some(node) };
        NodeRow { local: Some(local), ..NodeRow::default() }
    }

    #[test]
    fn what_is_given_back_is_what_the_bytes_say() {
        let file = FileId(7);
        let (one, other) = (row(1), row(2));
        let bytes = encoded(file, &one);
        assert_eq!(bytes, one.encode());
        assert_eq!(*decoded(file, bytes.clone()).unwrap(), one);
        // Another store's row of the same file, or of one that has the same place.
        assert_eq!(*decoded(file, other.encode()).unwrap(), other);
        assert_eq!(*decoded(FileId(7 + PLACES as u64), bytes.clone()).unwrap(), one);
        assert_eq!(*decoded(file, other.encode()).unwrap(), other);
        assert!(decoded(file, bytes[..bytes.len() - 1].to_vec()).is_err());
    }

    #[test]
    fn a_large_row_is_not_kept() {
        let mut large = row(1);
        let node = large.local.as_mut().and_then(|local| local.node.as_mut()).unwrap();
        node.target = Some(vec![b'x'; BYTES_MAX].into());
        let file = FileId(8);
        let bytes = encoded(file, &large);
        assert_eq!(*decoded(file, bytes.clone()).unwrap(), large);
        let known = place_of(file).lock().unwrap();
        assert!(known.as_ref().is_none_or(|known| known.bytes != bytes));
    }
}
