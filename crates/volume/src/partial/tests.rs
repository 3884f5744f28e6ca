use super::*;
use model::{Effects, Kind, Seq, Stamp, Time};
use proptest::prelude::*;
use protocol::{EntryState, Listed, Listing, NodeState, States};
use store::memory::MemoryTables;
use store::{Durability, Tables, Write};

fn named(name: &str) -> Name {
    Name::new(name).expect("a good name")
}

pub(super) fn node(mode: u16) -> Node {
    Node { mode, kind: Kind::File, links: 1, ..Node::root_directory(0, 0, Time::default()) }
}

fn node_state(file: u64, seq: u64, mode: Option<u16>) -> NodeState {
    NodeState { file: FileId(file), seq: Seq(seq), node: mode.map(node) }
}

fn entry_state(name: &str, seq: u64, file: Option<u64>) -> EntryState {
    EntryState { directory: FileId::ROOT, name: named(name), seq: Seq(seq), file: file.map(FileId) }
}

fn write<T>(tables: &MemoryTables, change: impl FnOnce(&mut dyn Write) -> T) -> T {
    let mut write = tables.write().expect("memory does not fail");
    let value = change(&mut *write);
    write.commit(Durability::Later).expect("memory does not fail");
    value
}

fn read<T>(tables: &MemoryTables, epoch: u32, look: impl FnOnce(Tree<'_>) -> T) -> T {
    let read = tables.read().expect("memory does not fail");
    look(Tree::new(&*read, epoch))
}

fn shown_mode(tables: &MemoryTables, file: u64) -> Option<u16> {
    read(tables, 1, |tree| tree.node(FileId(file)).expect("known").map(|node| node.mode))
}

fn shown_entries(tables: &MemoryTables) -> Vec<(String, u64)> {
    let entries = read(tables, 1, |tree| tree.entries(FileId::ROOT).expect("complete"));
    entries.into_iter().map(|(name, file)| (name.to_string(), file.0)).collect()
}

fn say(tables: &MemoryTables, states: States) -> Vec<Changed> {
    write(tables, |write| take_states(write, &states, 1).expect("memory does not fail"))
}

fn list(tables: &MemoryTables, as_of: u64, after: Option<&str>, names: &[&str], complete: bool) {
    let entries = names.iter().zip(10..).map(|(name, file)| (named(name), FileId(file))).collect();
    let listing = Listing {
        as_of: Seq(as_of),
        directories: vec![Listed { directory: FileId::ROOT, entries, complete }],
        nodes: vec![],
    };
    let after = after.map(named);
    write(tables, |write| take_listing(write, &listing, after.as_ref(), 1))
        .expect("memory does not fail");
}

#[test]
fn a_stretch_reads_so_many_rows_after_a_name_whether_they_show_or_not() {
    let tables = MemoryTables::default();
    list(&tables, 5, None, &["a", "b", "c", "d"], true);
    pend_entry(&tables, 1, "b", None);
    let stretch = |after: Option<&str>, rows_max| {
        let after = after.map(named);
        let found = read(&tables, 1, |tree| tree.stretch(FileId::ROOT, after.as_ref(), rows_max));
        let found = found.expect("memory does not fail");
        let names: Vec<String> = found.entries.iter().map(|(name, _)| name.to_string()).collect();
        (names.concat(), found.rows, found.more)
    };
    assert_eq!(stretch(None, 9), ("acd".into(), 4, false));
    assert_eq!(stretch(Some("a"), 2), ("c".into(), 2, true), "one is removed here");
    assert_eq!(stretch(Some("bb"), 9), ("cd".into(), 2, false), "of a name that is not there");
    assert_eq!(stretch(Some("d"), 9), (String::new(), 0, false));
}

fn pend_entry(tables: &MemoryTables, number: u64, name: &str, file: Option<u64>) {
    let mut effects = Effects::default();
    effects.entries.insert((FileId::ROOT, named(name)), file.map(FileId));
    write(tables, |write| apply_local(write, number, &effects, 1)).expect("memory does not fail");
}

#[test]
fn what_is_not_known_is_missing_and_not_absent() {
    let tables = MemoryTables::default();
    read(&tables, 1, |tree| {
        assert!(matches!(tree.node(FileId(7)), Err(Missing::Node(FileId(7)))));
        assert!(matches!(tree.entry(FileId::ROOT, &named("a")), Err(Missing::Entry(..))));
        assert!(matches!(tree.is_empty(FileId::ROOT), Err(Missing::Directory(_))));
    });
    list(&tables, 5, None, &[], true);
    read(&tables, 1, |tree| {
        assert_eq!(tree.entry(FileId::ROOT, &named("a")).expect("complete"), None);
        assert!(tree.is_empty(FileId::ROOT).expect("complete"));
    });
}

#[test]
fn what_was_said_later_stays_whatever_comes_in_between() {
    let tables = MemoryTables::default();
    let nodes = |seq, mode| States { nodes: vec![node_state(7, seq, Some(mode))], entries: vec![] };
    say(&tables, nodes(9, 0o600));
    assert_eq!(say(&tables, nodes(4, 0o644)), vec![]);
    assert_eq!(shown_mode(&tables, 7), Some(0o600));
    let changed = Changed::Node { file: FileId(7), contents: false };
    assert_eq!(say(&tables, nodes(10, 0o640)), vec![changed]);
}

#[test]
fn what_is_said_late_or_of_a_store_of_this_replica_shows_no_other_contents() {
    let tables = MemoryTables::default();
    let version = |number| Stamp::new(model::ReplicaId(3), number);
    let stored = |number| Node { contents_stamp: version(number), ..node(0o600) };
    let state =
        |seq, number| NodeState { file: FileId(7), seq: Seq(seq), node: Some(stored(number)) };
    let other = |seq, number| {
        read(&tables, 1, |tree| tree.may_show_other_contents(&state(seq, number)).expect("known"))
    };
    assert!(!other(1, 1), "nothing of it is known");
    say(&tables, States { nodes: vec![state(9, 1)], entries: vec![] });
    assert!(other(9, 2) && other(10, 2));
    assert!(!other(10, 1), "the same");
    assert!(!other(8, 2), "it was said before what is known");
    let mut effects = Effects::default();
    effects.nodes.insert(FileId(7), Some(stored(5)));
    write(&tables, |write| apply_local(write, 5, &effects, 1)).expect("memory does not fail");
    assert!(!other(10, 5), "it is shown already");
    assert!(!other(10, 4), "it is of this replica too, and another store has been made upon it");
    assert!(other(10, 6));
    let theirs = Node { contents_stamp: Stamp::new(model::ReplicaId(4), 2), ..node(0o600) };
    let theirs = NodeState { file: FileId(7), seq: Seq(10), node: Some(theirs) };
    assert!(read(&tables, 1, |tree| tree.may_show_other_contents(&theirs).expect("known")));
}

#[test]
fn what_is_pending_hides_what_is_said_until_it_is_retired() {
    let tables = MemoryTables::default();
    list(&tables, 1, None, &["a"], true);
    pend_entry(&tables, 3, "a", None);
    pend_entry(&tables, 4, "b", Some(20));
    let others = States { nodes: vec![], entries: vec![entry_state("a", 2, Some(30))] };
    say(&tables, others);
    assert_eq!(shown_entries(&tables), vec![("b".into(), 20)]);
    let touched = |name| Touched { nodes: vec![], entries: vec![(FileId::ROOT, named(name))] };
    write(&tables, |write| forget_local(write, 3, &touched("a"))).expect("memory does not fail");
    write(&tables, |write| forget_local(write, 3, &touched("b"))).expect("memory does not fail");
    assert_eq!(shown_entries(&tables), vec![("a".into(), 30), ("b".into(), 20)]);
}

#[test]
fn a_listing_takes_away_names_that_are_gone_and_spares_newer_ones() {
    let tables = MemoryTables::default();
    list(&tables, 1, None, &["a", "b", "c"], true);
    let newer = States { nodes: vec![], entries: vec![entry_state("n", 9, Some(40))] };
    say(&tables, newer);
    list(&tables, 5, None, &["b"], true);
    assert_eq!(shown_entries(&tables), vec![("b".into(), 10), ("n".into(), 40)]);
}

#[test]
fn a_page_of_a_listing_speaks_only_for_the_names_it_covers() {
    let tables = MemoryTables::default();
    list(&tables, 1, None, &["a", "b", "c", "d"], true);
    list(&tables, 5, None, &["b"], false);
    assert_eq!(shown_entries(&tables).len(), 3, "a is gone, c and d were not spoken of");
    list(&tables, 5, Some("b"), &["d"], true);
    assert_eq!(shown_entries(&tables), vec![("b".into(), 10), ("d".into(), 10)]);
}

#[test]
fn in_a_new_epoch_what_was_said_before_does_not_count() {
    let tables = MemoryTables::default();
    list(&tables, 1, None, &["a"], true);
    read(&tables, 2, |tree| {
        assert!(matches!(tree.entry(FileId::ROOT, &named("a")), Err(Missing::Entry(..))));
        assert!(matches!(tree.entries(FileId::ROOT), Err(Missing::Directory(_))));
    });
    assert_eq!(read(&tables, 0, |tree| tree.entries(FileId::ROOT).expect("all").len()), 1);
}

#[test]
fn a_directory_that_was_made_here_is_known_in_every_epoch_until_it_leaves() {
    let tables = MemoryTables::default();
    let made = FileId(7);
    let directory = Node { links: 2, kind: Kind::Directory, ..node(0o755) };
    let nodes = [(made, Some(directory.clone()))].into();
    let effects = Effects { nodes, ..Effects::default() };
    write(&tables, |write| apply_local(write, 1, &effects, 1)).expect("memory does not fail");
    let known = |epoch| read(&tables, epoch, |tree| tree.is_complete(made).expect("readable"));
    assert!(known(1) && known(2));

    let nodes = vec![NodeState { file: made, seq: Seq(3), node: Some(directory) }];
    say(&tables, States { nodes, entries: vec![] });
    assert!(known(1) && !known(2), "others may have made something in it meanwhile");
}

#[test]
fn a_store_that_was_taken_back_lets_the_file_expect_what_it_expected() {
    let tables = MemoryTables::default();
    say(&tables, States { nodes: vec![node_state(7, 1, Some(0o644))], entries: vec![] });
    let before = Stamp::default();
    let stored = Node { contents_stamp: Stamp::new(model::ReplicaId(2), 5), ..node(0o644) };
    let mut effects = Effects::default();
    effects.nodes.insert(FileId(7), Some(stored));
    write(&tables, |write| apply_local(write, 5, &effects, 1)).expect("memory does not fail");
    write(&tables, |write| patch_cancelled_store(write, FileId(7), (before, None), Some(6)))
        .expect("memory does not fail");
    let stamp = |tables: &MemoryTables| {
        read(tables, 1, |tree| tree.node(FileId(7)).expect("known").map(|n| n.contents_stamp))
    };
    assert_eq!(stamp(&tables), Some(before));
    let other = Stamp::new(model::ReplicaId(2), 6);
    let shows = Some((other, model::Contents::EMPTY, model::Time::default()));
    write(&tables, |write| patch_cancelled_store(write, FileId(7), (before, shows), Some(6)))
        .expect("memory does not fail");
    assert_eq!(stamp(&tables), Some(other), "the other one shows");
    write(&tables, |write| patch_cancelled_store(write, FileId(7), (before, None), None))
        .expect("memory does not fail");
    assert_eq!(stamp(&tables), Some(before));
}

proptest! {
    /// Whatever the order and however often, what was said last is what shows.
    #[test]
    fn prop_states_may_come_in_any_order(
        said in proptest::collection::vec((0u64..4, 1u64..50, proptest::option::of(0u16..8)), 1..40),
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 1..120),
    ) {
        // One value for each sequence number: that is what an origin gives.
        let mut by_seq = std::collections::BTreeMap::new();
        for (file, seq, mode) in said {
            by_seq.insert(seq, (file, mode));
        }
        let all: Vec<_> = by_seq.iter().collect();
        let tables = MemoryTables::default();
        let shuffled = order.iter().map(|index| all[index.index(all.len())]);
        for (seq, (file, mode)) in shuffled.chain(all.iter().copied()) {
            let nodes = vec![node_state(*file + 10, *seq, *mode)];
            say(&tables, States { nodes, entries: vec![] });
        }
        for file in 0..4 {
            let last = by_seq.values().rev().find(|(of, _)| *of == file);
            if let Some((_, mode)) = last {
                prop_assert_eq!(shown_mode(&tables, file + 10), *mode);
            }
        }
    }
}

#[test]
fn what_is_gone_shows_no_more_and_what_is_pending_does() {
    let tables = MemoryTables::default();
    list(&tables, 5, None, &["a", "b"], true);
    say(&tables, States { nodes: vec![node_state(7, 5, Some(0o600))], entries: vec![] });
    pend_entry(&tables, 1, "a", None);
    pend_entry(&tables, 2, "c", Some(30));
    let mut effects = Effects::default();
    effects.nodes.insert(FileId(7), Some(node(0o644)));
    write(&tables, |write| apply_local(write, 2, &effects, 1)).expect("memory does not fail");
    assert_eq!(shown_mode(&tables, 7), Some(0o644));
    let gone = write(&tables, |write| forget_gone(write, |number| number == 1));
    let gone = gone.expect("memory does not fail");
    assert_eq!(gone.nodes, [FileId(7)]);
    assert_eq!(gone.entries, [(FileId::ROOT, named("c"))]);
    assert_eq!(shown_mode(&tables, 7), Some(0o600));
    assert_eq!(shown_entries(&tables), [("b".to_owned(), 11)]);
}

fn atime(secs: i64) -> Time {
    Time { secs, nanos: 0 }
}

fn shown_atime(tables: &MemoryTables, file: u64) -> Option<i64> {
    read(tables, 1, |tree| {
        // What a tree has read before does not show in the other one.
        let before = tree.node(FileId(file)).expect("known");
        let node = tree.with_accesses().node(FileId(file)).expect("known");
        assert_eq!(before.is_some(), node.is_some());
        node.map(|node| node.atime.secs)
    })
}

fn read_at(tables: &MemoryTables, seen: i64, at: i64) {
    write(tables, |write| {
        note_accessed(write, FileId(5), atime(seen), atime(at)).expect("memory does not fail");
    });
}

#[test]
fn a_time_of_access_that_was_noted_shows_until_another_is_set_and_to_who_asks_for_it() {
    let tables = MemoryTables::default();
    let said = |seq, secs| {
        let node = Node { atime: atime(secs), ..node(0o600) };
        let state = NodeState { file: FileId(5), seq: Seq(seq), node: Some(node) };
        say(&tables, States { nodes: vec![state], entries: vec![] })
    };
    read_at(&tables, 0, 9);
    assert_eq!(said(1, 1), [], "nothing is known of the file yet");
    assert_eq!(shown_atime(&tables, 5), Some(1), "what is not known cannot be noted");
    read_at(&tables, 1, 10);
    read_at(&tables, 10, 20);
    read_at(&tables, 10, 30);
    assert_eq!(shown_atime(&tables, 5), Some(20), "the last rests on what does not show any more");
    let bare = read(&tables, 1, |tree| tree.node(FileId(5)).expect("known"));
    assert_eq!(bare.map(|node| node.atime), Some(atime(1)), "what an update finds");
    assert_eq!(said(2, 1), [], "nothing has changed for the kernel");
    assert_eq!(shown_atime(&tables, 5), Some(20));
    said(3, 2);
    said(4, 1);
    assert_eq!(shown_atime(&tables, 5), Some(1), "it was set meanwhile");
    read_at(&tables, 1, 40);
    let forget = |write: &mut dyn Write| forget_accessed(write, FileId(5)).expect("no failure");
    assert!(write(&tables, forget) && !write(&tables, forget));
    assert_eq!(shown_atime(&tables, 5), Some(1));
}

#[test]
fn what_is_pending_keeps_the_time_of_access_that_was_noted() {
    let tables = MemoryTables::default();
    say(&tables, States { nodes: vec![node_state(5, 1, Some(0o600))], entries: vec![] });
    read_at(&tables, 0, 10);
    let effects = Effects { nodes: [(FileId(5), Some(node(0o640)))].into(), ..Effects::default() };
    write(&tables, |write| apply_local(write, 1, &effects, 1).expect("memory does not fail"));
    assert_eq!((shown_mode(&tables, 5), shown_atime(&tables, 5)), (Some(0o640), Some(10)));
    let touched = Touched { nodes: vec![FileId(5)], entries: vec![] };
    write(&tables, |write| forget_local(write, 1, &touched).expect("memory does not fail"));
    assert_eq!((shown_mode(&tables, 5), shown_atime(&tables, 5)), (Some(0o600), Some(10)));
}
