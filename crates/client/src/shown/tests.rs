use super::*;
use crate::meta::Taken;
use model::{Change, Kind, Name, Node, ReplicaId, Seq, Stamp, Time, View, Whiteout};
use protocol::{EntryState, NodeState};
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
    let said = [("old", FILE), ("new", OTHER)];
    check(&said, vec![rename(FileId::ROOT, Some(UNKNOWN))], &both, &["11", "12"]);
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
