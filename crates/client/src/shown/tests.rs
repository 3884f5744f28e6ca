use super::*;
use crate::meta::Taken;
use model::{Change, Kind, Name, Node, ReplicaId, Seq, Stamp, Time, View, Whiteout};
use protocol::{EntryState, NodeState, Verdict};
use std::sync::Arc;
use store::Tables;
use store::memory::{MemoryJournal, MemoryTables};

const EPOCH: u32 = 1;
const FILE: FileId = FileId(11);
const OTHER: FileId = FileId(12);
const UNKNOWN: FileId = FileId(10);

fn named(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn rename(to: FileId, over: Option<FileId>) -> Change {
    Change::Rename {
        from: FileId::ROOT,
        from_name: named("old"),
        to,
        to_name: named("new"),
        file: FILE,
        over,
        exchange: false,
        whiteout: None,
        expects: None,
    }
}

fn unlink(name: &str, file: FileId) -> Change {
    Change::Unlink { parent: FileId::ROOT, name: named(name), file, expects: None }
}

/// What names in the root show, with "?" for what is not known, once these changes are pending. The
/// root is known there, and `said` of the names in it, but not that there is nothing else.
fn check(said: &[(&str, FileId)], pending: Vec<Change>, names: &[&str], shown: &[&str]) {
    let tables = MemoryTables::default();
    let root = Node::root_directory(0, 0, Time::default());
    let file = Node { kind: Kind::File, links: 1, parent: None, ..root.clone() };
    let seq = Seq(1);
    let nodes = [(FileId::ROOT, root), (FILE, file)];
    let nodes = nodes.map(|(file, node)| NodeState { file, seq, node: Some(node) }).to_vec();
    let entry = |(name, file): &(&str, FileId)| {
        let (directory, name) = (FileId::ROOT, named(name));
        EntryState { directory, name, seq, file: Some(*file) }
    };
    let states = States { nodes, entries: said.iter().map(entry).collect() };
    let (mut log, _) = UpdateLog::open(Arc::new(MemoryJournal::default()), 0, 0, 2).unwrap();
    for change in pending {
        let stamp = Stamp::new(ReplicaId(1), log.next_number());
        log.append(Update { stamp, uid: 0, at: Time::default(), change }).unwrap();
    }
    let mut write = tables.write().unwrap();
    partial::take_states(&mut *write, &states, EPOCH).unwrap();
    let as_of = (&Taken::default(), EPOCH);
    // Showing it again comes to the same.
    for _ in 0..2 {
        show_pending(&mut *write, &log, as_of, &Gone::Updates(&[])).unwrap();
        let tree = Tree::new(&*write as &dyn Read, 0);
        let entry = |name: &&str| match tree.entry(FileId::ROOT, &named(name)) {
            Ok(Some(file)) => file.0.to_string(),
            Ok(None) => "-".to_owned(),
            Err(_) => "?".to_owned(),
        };
        assert_eq!(names.iter().map(entry).collect::<Vec<_>>(), shown);
    }
}

#[test]
fn a_name_that_was_moved_away_does_not_show_though_it_is_not_known_what_was_at_the_other() {
    check(&[("old", FILE)], vec![rename(FileId::ROOT, None)], &["old", "new"], &["-", "11"]);
}

#[test]
fn a_name_that_was_moved_where_nothing_is_known_does_not_show() {
    check(&[("old", FILE)], vec![rename(UNKNOWN, None)], &["old", "new"], &["-", "?"]);
}

#[test]
fn a_name_that_was_moved_over_what_is_not_known_shows_what_was_moved() {
    let said = [("old", FILE), ("new", OTHER)];
    check(&said, vec![rename(FileId::ROOT, Some(OTHER))], &["old", "new"], &["-", "11"]);
}

#[test]
fn a_name_of_a_file_that_is_not_known_does_not_show_once_it_was_removed() {
    check(&[("other", OTHER)], vec![unlink("other", OTHER)], &["other"], &["-"]);
    let pending = vec![rename(FileId::ROOT, None), unlink("new", FILE)];
    check(&[("old", FILE)], pending, &["old", "new"], &["-", "-"]);
}

#[test]
fn a_name_that_is_another_files_by_now_goes_on_showing_that() {
    let both = ["old", "new"];
    check(&[("new", OTHER)], vec![rename(FileId::ROOT, None)], &both, &["?", "12"]);
    check(&[("old", OTHER)], vec![rename(UNKNOWN, None)], &both, &["12", "?"]);
}

#[test]
fn what_was_moved_over_a_file_shows_there_though_another_has_that_name_by_now_or_none() {
    let (both, moved) = (["old", "new"], || vec![rename(FileId::ROOT, Some(UNKNOWN))]);
    check(&[("old", FILE), ("new", OTHER)], moved(), &both, &["-", "11"]);
    let again = vec![rename(FileId::ROOT, Some(UNKNOWN)), unlink("new", FILE)];
    check(&[("old", FILE), ("new", OTHER)], again, &both, &["-", "-"]);
}

#[test]
fn what_stands_for_a_name_that_was_moved_away_shows_there() {
    let left = |exchange: bool| {
        let mut change = rename(FileId::ROOT, exchange.then_some(OTHER));
        if let Change::Rename { exchange: exchanges, whiteout, .. } = &mut change {
            let stands = Whiteout { file: FileId(13), uid: 0, gid: 0 };
            (*exchanges, *whiteout) = (exchange, (!exchange).then_some(stands));
        }
        vec![change]
    };
    check(&[("old", FILE)], left(false), &["old", "new"], &["13", "11"]);
    check(&[("old", FILE)], left(true), &["old", "new"], &["12", "11"]);
}

fn update(log: &UpdateLog, change: Change) -> Update {
    let stamp = Stamp::new(ReplicaId(1), log.next_number());
    Update { stamp, uid: 0, at: Time::default(), change }
}

fn make(parent: FileId, name: &str, file: FileId, kind: Kind) -> Change {
    let name = named(name);
    let (target, rdev, born) = (None, None, None);
    Change::Make { parent, name, file, kind, mode: 0o755, uid: 0, gid: 0, target, rdev, born }
}

const MINE: FileId = FileId(20);
const THEIRS: FileId = FileId(21);

/// The root, with a directory of somebody else's in it, all of whose names are not known.
fn said() -> States {
    let root = Node::root_directory(0, 0, Time::default());
    let seq = Seq(1);
    let nodes = [FileId::ROOT, THEIRS]
        .map(|file| NodeState { file, seq, node: Some(root.clone()) })
        .into_iter()
        .chain([NodeState { file: MINE, seq, node: None }]);
    let (directory, name) = (FileId::ROOT, named("d"));
    let entry = EntryState { directory, name, seq, file: Some(THEIRS) };
    States { nodes: nodes.collect(), entries: vec![entry] }
}

#[test]
fn what_was_made_here_shows_though_the_name_was_taken_meanwhile() {
    check(&[("d", OTHER)], vec![make(FileId::ROOT, "d", MINE, Kind::Directory)], &["d"], &["20"]);
}

#[test]
fn what_is_pending_in_a_directory_that_was_there_goes_on_in_that() {
    let tables = MemoryTables::default();
    let (mut log, _) = UpdateLog::open(Arc::new(MemoryJournal::default()), 0, 0, 2).unwrap();
    let directory = update(&log, make(FileId::ROOT, "d", MINE, Kind::Directory));
    log.append(directory.clone()).unwrap();
    log.append(update(&log, make(MINE, "f", FILE, Kind::File))).unwrap();
    let mut write = tables.write().unwrap();
    let states = said();
    let as_of = (&Taken::default(), EPOCH);
    let shown = |write: &dyn Read, directory: FileId| {
        Tree::new(write, 0).entry(directory, &named("f")).unwrap_or_default()
    };
    let root = NodeState { file: FileId::ROOT, seq: Seq(1), node: states.nodes[0].node.clone() };
    let before = States { nodes: vec![root], entries: Vec::new() };
    partial::take_states(&mut *write, &before, EPOCH).unwrap();
    show_pending(&mut *write, &log, as_of, &Gone::Updates(&[])).unwrap();
    assert_eq!(shown(&*write, MINE), Some(FILE));
    // The replica above says that it was there.
    let (name, merged) = (named("d"), Some(THEIRS));
    let verdict = Verdict::KeptAside { seq: Seq(1), directory: FileId::ROOT, name, merged };
    log.retire(&directory);
    partial::take_states(&mut *write, &states, EPOCH).unwrap();
    let gone = Gone::Updates(std::slice::from_ref(&directory));
    // Without going on there it does not show, and it is known that it does not.
    let unshown = show_pending(&mut *write, &log, as_of, &gone).unwrap();
    assert!(unshown.needs.is_empty() && unshown.files == BTreeSet::from([FILE]));
    Merged::by(&[(&directory, &verdict)]).rename(&mut log, &mut *write).unwrap();
    let unshown = show_pending(&mut *write, &log, as_of, &gone).unwrap();
    assert!(unshown.needs.is_empty() && unshown.files.is_empty());
    assert_eq!(shown(&*write, THEIRS), Some(FILE));
    assert_eq!(shown(&*write, MINE), None);
    // Who has come to the one means the other.
    let merged = [(MINE, THEIRS)].into();
    let tree = Tree::new(&*write as &dyn Read, 0).with_merged(Some(&merged));
    assert_eq!(tree.entry(MINE, &named("f")).unwrap(), Some(FILE));
    let named_there = named_now(&tree, make(MINE, "g", OTHER, Kind::File)).ok().unwrap();
    assert_eq!(named_there, make(THEIRS, "g", OTHER, Kind::File));
}
