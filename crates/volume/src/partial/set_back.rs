//! A replica above that has been set back to an earlier state, as from a backup: it has fewer
//! changes than it has told of. What it told of those counts for nothing, and what it says from now
//! on must not be passed over as old.

use super::rows::{self, EntryRow, NodeRow};
use super::{ENTRIES, Missing, NODES, SCAN_ROWS_MAX};
use model::{FileId, Kind, Seq};
use store::{Read, Write};

/// One row: the highest position that was told of, 8 bytes, big endian.
const TOLD: &str = "partial-told";
const KEY: &[u8] = b"told";

/// The highest position that the replica above has told of.
pub fn told(read: &dyn Read) -> Result<Seq, Missing> {
    let row = read.get(TOLD, KEY)?;
    let bytes = row.as_deref().map(<[u8; 8]>::try_from);
    // A row that is not what was written is as good as none: it is about a server that was set
    // back, which is found out another time.
    Ok(bytes.and_then(Result::ok).map_or(Seq::START, |bytes| Seq(u64::from_be_bytes(bytes))))
}

/// It tells of this position.
pub(super) fn note_told(write: &mut dyn Write, at: Seq) -> Result<(), Missing> {
    if at > told(write)? {
        write.put(TOLD, KEY, &at.0.to_be_bytes())?;
    }
    Ok(())
}

/// Calls `each` with the files of which it told something beyond `at`.
pub fn files_beyond(read: &dyn Read, at: Seq, mut each: impl FnMut(FileId)) -> Result<(), Missing> {
    each_node(read, |key, value| {
        let row = NodeRow::decode(value)?;
        let beyond = row.up.filter(|up| up.seq > at).and_then(|up| up.node);
        if beyond.is_some_and(|node| node.kind == Kind::File) {
            each(rows::entry_directory(key)?);
        }
        Ok(())
    })
}

/// Of all that it told nothing is newer than what it says from now on. What counts is for the epoch
/// to say, which must be a new one.
pub fn set_back(write: &mut dyn Write, at: Seq) -> Result<(), Missing> {
    renew(write, NODES, |value| {
        let mut row = NodeRow::decode(value)?;
        let said = row.up.iter_mut().chain(&mut row.held).map(|said| &mut said.seq);
        Ok(to_the_start(said).then(|| row.encode()))
    })?;
    renew(write, ENTRIES, |value| {
        let mut row = EntryRow::decode(value)?;
        let said = row.up.iter_mut().chain(&mut row.held).map(|said| &mut said.seq);
        Ok(to_the_start(said).then(|| row.encode()))
    })?;
    Ok(write.put(TOLD, KEY, &at.0.to_be_bytes())?)
}

/// False: they are there already.
fn to_the_start<'a>(said: impl Iterator<Item = &'a mut Seq>) -> bool {
    said.map(|seq| std::mem::replace(seq, Seq::START)).max() > Some(Seq::START)
}

/// Puts rows anew, where there is something anew.
fn renew(
    write: &mut dyn Write,
    table: &'static str,
    anew: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, Missing>,
) -> Result<(), Missing> {
    let mut from = Vec::new();
    loop {
        let page = write.scan(table, &from, rows::ALL_ENTRIES, SCAN_ROWS_MAX)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = rows::after(last);
        for (key, value) in &page {
            if let Some(value) = anew(value)? {
                write.put(table, key, &value)?;
            }
        }
    }
}

fn each_node(
    read: &dyn Read,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Missing>,
) -> Result<(), Missing> {
    let mut from = Vec::new();
    loop {
        let page = read.scan(NODES, &from, rows::ALL_ENTRIES, SCAN_ROWS_MAX)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = rows::after(last);
        page.iter().try_for_each(|(key, value)| each(key, value))?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Hold, Tree, let_go, take_states, take_states_but};
    use super::*;
    use crate::partial::tests::node;
    use model::{Name, Node, View};
    use protocol::{EntryState, NodeState, States};
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    fn within<T>(tables: &MemoryTables, work: impl FnOnce(&mut dyn Write) -> T) -> T {
        let mut write = tables.write().expect("memory does not fail");
        let outcome = work(&mut *write);
        write.commit(Durability::Later).expect("memory does not fail");
        outcome
    }

    fn says(tables: &MemoryTables, file: u64, seq: u64, mode: u16, epoch: u32) {
        let node = NodeState { file: FileId(file), seq: Seq(seq), node: Some(node(mode)) };
        let states = States { nodes: vec![node], entries: vec![] };
        within(tables, |write| take_states(write, &states, epoch)).expect("it is taken in");
    }

    fn mode(tables: &MemoryTables, file: u64, epoch: u32) -> Option<u16> {
        let read = tables.read().expect("memory does not fail");
        let node = Tree::new(&*read, epoch).node(FileId(file)).ok()?;
        node.map(|node| node.mode)
    }

    #[test]
    fn what_is_said_after_a_second_set_back_takes_the_place_of_what_was_held_after_the_first() {
        let tables = MemoryTables::default();
        says(&tables, 7, 20, 0o600, 1);
        let version = |number| Node {
            contents_stamp: model::Stamp::new(model::ReplicaId(5), number),
            ..node(0o644)
        };
        let states = |seq, number| States {
            nodes: vec![NodeState { file: FileId(7), seq: Seq(seq), node: Some(version(number)) }],
            entries: vec![EntryState {
                directory: FileId::ROOT,
                name: Name::new("name").expect("a name"),
                seq: Seq(seq),
                file: Some(FileId(number)),
            }],
        };
        let take = |states: &States, hold: &Hold| {
            within(&tables, |write| take_states_but(write, states, 1, hold)).expect("it is taken")
        };
        take(&states(21, 7), &Hold::default());
        within(&tables, |write| set_back(write, Seq(12))).expect("it is set back");
        let entry = (FileId::ROOT, Name::new("name").expect("a name"));
        let hold = Hold { nodes: [FileId(7)].into(), entries: [entry.clone()].into() };
        assert_eq!(take(&states(15, 8), &hold), [], "it is held");
        within(&tables, |write| set_back(write, Seq(12))).expect("it is set back");
        take(&states(13, 9), &hold);
        within(&tables, |write| let_go(write, FileId(7), Some(&entry))).expect("it is let go");
        let read = tables.read().expect("memory does not fail");
        let tree = Tree::new(&*read, 0);
        assert_eq!(tree.node(FileId(7)).expect("it is known"), Some(version(9)));
        assert_eq!(tree.entry(entry.0, &entry.1).expect("it is known"), Some(FileId(9)));
    }

    #[test]
    fn what_is_said_after_a_set_back_takes_the_place_of_what_was_newer() {
        let tables = MemoryTables::default();
        says(&tables, 7, 20, 0o600, 1);
        says(&tables, 8, 10, 0o600, 1);
        let beyond = |at| {
            let (read, mut found) = (tables.read().expect("memory does not fail"), Vec::new());
            files_beyond(&*read, Seq(at), |file| found.push(file)).expect("it is read");
            (told(&*read).expect("it is read"), found)
        };
        assert_eq!(beyond(12), (Seq(20), vec![FileId(7)]));
        assert_eq!(beyond(20), (Seq(20), vec![]));
        says(&tables, 7, 12, 0o400, 2);
        assert_eq!(mode(&tables, 7, 2), None, "it is older, and passed over");
        within(&tables, |write| set_back(write, Seq(12))).expect("it is set back");
        assert_eq!(beyond(12), (Seq(12), vec![]));
        assert_eq!(mode(&tables, 7, 2), None, "it counts when it is said anew");
        says(&tables, 7, 5, 0o400, 2);
        assert_eq!(mode(&tables, 7, 2), Some(0o400));
    }
}
