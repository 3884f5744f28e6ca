//! What the replica above has said and is not to show yet: a client may go on with the version of a
//! file that it has, though there is a newer one.
//! Holds: until it is let go, a file shows as it was, attributes and contents of one version, and so
//! does the name that has come to mean another file; nothing that is said later is lost by that, nor
//! shown in part.
//! From: partially connected operation, section 4 ("selective consistency").

use super::change::{
    Changed, entry_row, keep_root, node_row, put_entry, put_node, versions_differ,
};
use super::rows::{self, NodeRow, UpEntry, UpNode};
use super::{Missing, Tree};
use model::{FileId, Kind, Name, Node, Seq};
use protocol::NodeState;
use std::collections::BTreeSet;
use store::Write;

/// Of what is being taken in, what is not to show yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hold {
    /// Files that go on as they were.
    pub nodes: BTreeSet<FileId>,
    /// Names that go on meaning the file that they meant.
    pub entries: BTreeSet<(FileId, Name)>,
}

/// What is not shown yet of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub seq: Seq,
    /// None: it is gone.
    pub node: Option<Node>,
}

impl Tree<'_> {
    /// What the replica above has said of a file since, and does not show.
    pub fn held(&self, file: FileId) -> Result<Option<Held>, Missing> {
        let row = self.row(file)?;
        Ok(row.held.as_ref().map(|held| Held { seq: held.seq, node: held.node.clone() }))
    }

    /// The ordinary file that shows as the replica above said it was, with nothing pending over it.
    pub fn settled_file(&self, file: FileId) -> Result<Option<Node>, Missing> {
        let row = self.row(file)?;
        let up = row.up.as_ref().filter(|_| row.local.is_none());
        let node = up.and_then(|up| up.node.as_ref());
        Ok(node.filter(|node| node.kind == Kind::File).cloned())
    }

    /// The file that a name means as the replica above said, with nothing pending over it.
    pub fn settled_entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Missing> {
        let row = self.entry_row(directory, name)?;
        Ok(row.up.filter(|_| row.local.is_none()).and_then(|up| up.file))
    }

    /// The file that the replica above says a name means by now, where that does not show.
    pub fn held_entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Missing> {
        Ok(self.entry_row(directory, name)?.held.and_then(|held| held.file))
    }
}

/// What was said last of a file, whether or not it shows, is older than this.
pub(super) fn is_news(row: &NodeRow, seq: Seq) -> bool {
    let last = row.held.as_ref().or(row.up.as_ref());
    last.is_none_or(|last| last.seq <= seq)
}

/// Keeps what is said of a file from showing. False: it has to show, as nothing else would.
pub(super) fn hold_node(row: &mut NodeRow, state: &NodeState, epoch: u32) -> bool {
    let Some(up) = row.up.as_mut().filter(|up| up.node.is_some() && row.local.is_none()) else {
        return false;
    };
    if !versions_differ(up.node.as_ref(), state.node.as_ref()) {
        return false;
    }
    // It was said just now that there is a newer one: what shows is known not to be it.
    up.epoch = epoch;
    row.held = Some(UpNode { seq: state.seq, epoch, node: state.node.clone() });
    true
}

/// What was held of a file, and of the name that led to it, shows from now on. Gives back what
/// changed by it.
pub fn let_go(
    write: &mut dyn Write,
    file: FileId,
    entry: Option<&(FileId, Name)>,
) -> Result<Vec<Changed>, Missing> {
    let mut changed = Vec::new();
    let mut row = node_row(write, file)?;
    if let Some(mut held) = row.held.take() {
        let before = row.up.take().and_then(|up| up.node);
        keep_root(before.as_ref(), held.node.as_mut());
        if held.node.is_none() {
            write.delete(super::DIRECTORIES, &rows::node_key(file))?;
        }
        if before != held.node {
            let contents = versions_differ(before.as_ref(), held.node.as_ref());
            changed.push(Changed::Node { file, contents });
        }
        row.up = Some(held);
        put_node(write, file, &row)?;
    }
    if let Some((directory, name)) = entry {
        let key = rows::entry_key(*directory, name);
        let mut row = entry_row(write, &key)?;
        if let Some(held) = row.held.take() {
            row.up = Some(held);
            put_entry(write, &key, &row)?;
            changed.push(Changed::Entry(*directory, name.clone()));
        }
    }
    Ok(changed)
}

/// Keeps what is said of a name from showing. False: it has to show.
pub(super) fn hold_entry(
    write: &mut dyn Write,
    key: &[u8],
    said: UpEntry,
) -> Result<bool, Missing> {
    let mut row = entry_row(write, key)?;
    let Some(up) = row.up.as_mut().filter(|up| up.file.is_some() && row.local.is_none()) else {
        return Ok(false);
    };
    if up.file == said.file {
        return Ok(false);
    }
    let last = row.held.map_or(up.seq, |held| held.seq);
    if last <= said.seq {
        up.epoch = said.epoch;
        row.held = Some(said);
        put_entry(write, key, &row)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial::{take_listing_but, take_states, take_states_but};
    use model::{ReplicaId, Stamp, Time, View};
    use protocol::{EntryState, Listed, Listing, States};
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    const FILE: FileId = FileId(7);
    const OTHER: FileId = FileId(8);

    fn node(version: u64) -> Node {
        let contents_stamp = Stamp::new(ReplicaId(5), version);
        let mode = u16::try_from(version).unwrap();
        let root = Node::root_directory(0, 0, Time::default());
        Node { kind: Kind::File, links: 1, contents_stamp, mode, ..root }
    }

    fn name() -> Name {
        Name::new("name").unwrap()
    }

    fn states(seq: u64, nodes: &[(FileId, Option<u64>)], entry: Option<FileId>) -> States {
        let nodes = nodes.iter().map(|(file, version)| NodeState {
            file: *file,
            seq: Seq(seq),
            node: version.map(node),
        });
        let directory = FileId::ROOT;
        let entries = entry.map(|file| EntryState {
            directory,
            name: name(),
            seq: Seq(seq),
            file: Some(file),
        });
        States { nodes: nodes.collect(), entries: entries.into_iter().collect() }
    }

    fn within<T>(tables: &MemoryTables, act: impl FnOnce(&mut dyn Write) -> T) -> T {
        let mut write = tables.write().unwrap();
        let value = act(&mut *write);
        write.commit(Durability::Later).unwrap();
        value
    }

    fn hold() -> Hold {
        Hold { nodes: [FILE].into(), entries: [(FileId::ROOT, name())].into() }
    }

    /// The version of the file that shows, and which file its name means.
    fn shown(tables: &MemoryTables, epoch: u32) -> (Option<u64>, Option<FileId>) {
        let read = tables.read().unwrap();
        let tree = Tree::new(&*read, epoch);
        let node = tree.node(FILE).unwrap();
        (node.map(|node| node.contents_stamp.number), tree.entry(FileId::ROOT, &name()).unwrap())
    }

    fn with_file() -> MemoryTables {
        let tables = MemoryTables::default();
        let first = states(1, &[(FILE, Some(1))], Some(FILE));
        within(&tables, |write| take_states(write, &first, 1).unwrap());
        tables
    }

    #[test]
    fn what_is_held_shows_when_it_is_let_go_and_the_last_that_was_said() {
        let tables = with_file();
        for (seq, version) in [(3, 3), (2, 2)] {
            let newer = states(seq, &[(FILE, Some(version))], None);
            let changed = within(&tables, |w| take_states_but(w, &newer, 2, &hold()).unwrap());
            assert_eq!(changed, []);
            assert_eq!(shown(&tables, 0), (Some(1), Some(FILE)));
        }
        let read = tables.read().unwrap();
        assert!(Tree::new(&*read, 2).node(FILE).is_ok(), "it was told of in this epoch");
        drop(read);
        let changed = within(&tables, |write| let_go(write, FILE, None).unwrap());
        assert_eq!(changed, [Changed::Node { file: FILE, contents: true }]);
        assert_eq!(shown(&tables, 0), (Some(3), Some(FILE)));
        assert_eq!(within(&tables, |write| let_go(write, FILE, None).unwrap()), []);
    }

    #[test]
    fn a_name_goes_on_meaning_the_file_whose_place_was_taken() {
        let tables = with_file();
        let newer = states(2, &[(FILE, None), (OTHER, Some(2))], Some(OTHER));
        within(&tables, |write| take_states_but(write, &newer, 1, &hold()).unwrap());
        assert_eq!(shown(&tables, 1), (Some(1), Some(FILE)));
        let listed =
            Listed { directory: FileId::ROOT, entries: vec![(name(), OTHER)], complete: true };
        let listing = Listing { as_of: Seq(5), directories: vec![listed], nodes: Vec::new() };
        within(&tables, |write| take_listing_but(write, &listing, None, 1, &hold()).unwrap());
        assert_eq!(shown(&tables, 1), (Some(1), Some(FILE)));
        let entry = (FileId::ROOT, name());
        let changed = within(&tables, |write| let_go(write, FILE, Some(&entry)).unwrap());
        assert_eq!(changed.len(), 2);
        assert_eq!(shown(&tables, 1), (None, Some(OTHER)));
    }

    #[test]
    fn a_listing_from_before_what_is_held_takes_no_name_away_and_a_later_one_does() {
        let tables = with_file();
        let newer = states(5, &[(FILE, None), (OTHER, Some(2))], Some(OTHER));
        within(&tables, |write| take_states_but(write, &newer, 1, &hold()).unwrap());
        // It was removed, before the other came by its name.
        let listed = Listed { directory: FileId::ROOT, entries: vec![], complete: true };
        let listing =
            |seq| Listing { as_of: Seq(seq), directories: vec![listed.clone()], nodes: vec![] };
        let take = |seq| {
            within(&tables, |write| {
                take_listing_but(write, &listing(seq), None, 1, &Hold::default()).unwrap()
            })
        };
        assert_eq!(take(3), []);
        assert_eq!(shown(&tables, 1), (Some(1), Some(FILE)));
        let entry = (FileId::ROOT, name());
        assert_eq!(take(6), [Changed::Entry(entry.0, entry.1.clone())]);
        assert_eq!(shown(&tables, 1), (Some(1), None));
        within(&tables, |write| let_go(write, FILE, Some(&entry)).unwrap());
        assert_eq!(shown(&tables, 1), (None, None));
        let tables = with_file();
        within(&tables, |write| take_states_but(write, &newer, 1, &hold()).unwrap());
        within(&tables, |write| take_listing_but(write, &listing(3), None, 1, &hold()).unwrap());
        within(&tables, |write| let_go(write, FILE, Some(&entry)).unwrap());
        assert_eq!(shown(&tables, 1), (None, Some(OTHER)), "what was said last");
    }

    #[test]
    fn what_is_taken_in_without_being_held_takes_the_place_of_what_was() {
        let tables = with_file();
        let newer = states(2, &[(FILE, Some(2))], Some(OTHER));
        within(&tables, |write| take_states_but(write, &newer, 1, &hold()).unwrap());
        let newest = states(3, &[(FILE, Some(3))], Some(OTHER));
        let changed = within(&tables, |write| take_states(write, &newest, 1).unwrap());
        assert_eq!(changed.len(), 2);
        assert_eq!(shown(&tables, 1), (Some(3), Some(OTHER)));
        assert_eq!(Tree::new(&*tables.read().unwrap(), 1).held(FILE).unwrap(), None);
    }

    #[test]
    fn what_shows_nothing_before_is_not_held_nor_are_attributes_alone() {
        let tables = MemoryTables::default();
        let first = states(1, &[(FILE, Some(1))], Some(FILE));
        within(&tables, |write| take_states_but(write, &first, 1, &hold()).unwrap());
        assert_eq!(shown(&tables, 1), (Some(1), Some(FILE)));
        let mut other = states(2, &[(FILE, Some(1))], None);
        other.nodes[0].node.as_mut().unwrap().mode = 0o600;
        within(&tables, |write| take_states_but(write, &other, 1, &hold()).unwrap());
        let mode = Tree::new(&*tables.read().unwrap(), 1).node(FILE).unwrap().unwrap().mode;
        assert_eq!(mode, 0o600);
    }
}
