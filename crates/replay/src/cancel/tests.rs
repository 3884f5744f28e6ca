//! The rules one by one, and against the model: what is left comes to the same.

use super::*;
use crate::tests::*;
use model::Time;
use proptest::prelude::*;

fn left(pending: &[Update]) -> Vec<Update> {
    left_of(pending, |_| true)
}

fn left_of(pending: &[Update], may: impl Fn(u64) -> bool) -> Vec<Update> {
    let Moot { cancelled, rewritten } = moot(pending, may);
    let mut rewritten: BTreeMap<u64, Update> =
        rewritten.into_iter().map(|update| (update.stamp.number, update)).collect();
    let is_left = |update: &&Update| !cancelled.contains(&update.stamp.number);
    let left: Vec<Update> = pending
        .iter()
        .filter(is_left)
        .map(|update| rewritten.remove(&update.stamp.number).unwrap_or_else(|| update.clone()))
        .collect();
    assert!(rewritten.is_empty(), "{rewritten:?}");
    left
}

#[test]
fn of_a_file_that_was_made_and_removed_here_nothing_is_left() {
    let (f, d) = (file(1), file(2));
    let pending = log(vec![
        make(ROOT, 0, d, Kind::Directory),
        make(d, 1, f, Kind::File),
        store(f, stamp(2), 10),
        mode(f, stamp(2), 0o600),
        rename((d, 1), (d, 2), f, None),
        Change::Link { parent: ROOT, name: name(5), file: f },
        unlink(ROOT, 5, f),
        unlink(d, 2, f),
        unlink(ROOT, 0, d),
    ]);
    assert_eq!(left(&pending), []);
    // Up to the last name all of it is needed.
    assert_eq!(left(&pending[..7]).len(), 7);
    // What is on its way stays, and so does what it is about.
    assert_eq!(left_of(&pending, |number| number != 3).len(), 9);
}

#[test]
fn of_saves_by_rename_the_last_is_left_and_what_it_replaces() {
    let (old, first, second) = (FileId(99), file(1), file(2));
    let saved = |file, at: u64, over| {
        vec![
            make(ROOT, 9, file, Kind::File),
            store(file, stamp(at), 10),
            rename((ROOT, 9), (ROOT, 0), file, Some(over)),
        ]
    };
    let pending = log([saved(first, 1, old), saved(second, 4, first)].concat());
    let kept = left(&pending);
    assert_eq!(kept[..2], pending[3..5]);
    assert_eq!(kept[2].change, rename((ROOT, 9), (ROOT, 0), second, Some(old)));
    assert_eq!((kept.len(), kept[2].stamp), (3, stamp(6)));
    // And then it goes.
    let gone = [pending, vec![update(7, unlink(ROOT, 0, second))]].concat();
    assert_eq!(left(&gone), [update(7, unlink(ROOT, 0, old))]);
}

#[test]
fn what_is_replaced_by_what_others_may_move_is_kept() {
    let (known, f, moved) = (FileId(99), file(1), file(2));
    let replaced = |by| {
        vec![
            make(ROOT, 0, f, Kind::File),
            store(f, stamp(1), 10),
            rename((ROOT, 1), (ROOT, 0), by, Some(f)),
        ]
    };
    let pending = log(replaced(known));
    assert_eq!(left(&pending), pending);
    // What was made here is nobody else's before that has left.
    let pending = log([vec![make(ROOT, 1, moved, Kind::File)], replaced(moved)].concat());
    assert_eq!(left(&pending).len(), 2);
    assert_eq!(left_of(&pending, |number| number != 1), pending);
}

#[test]
fn what_was_made_in_a_directory_and_moved_out_of_it_keeps_the_directory() {
    let (f, d) = (file(1), file(2));
    let pending = log(vec![
        make(ROOT, 0, d, Kind::Directory),
        make(d, 1, f, Kind::File),
        rename((d, 1), (ROOT, 2), f, None),
        unlink(ROOT, 0, d),
    ]);
    assert_eq!(left(&pending), pending);
}

#[test]
fn a_file_that_left_the_name_that_it_had_taken_is_kept() {
    let (f, other, old) = (file(1), file(2), FileId(99));
    let pending = log(vec![
        make(ROOT, 9, f, Kind::File),
        rename((ROOT, 9), (ROOT, 0), f, Some(old)),
        rename((ROOT, 0), (ROOT, 1), f, None),
        make(ROOT, 0, other, Kind::File),
        rename((ROOT, 0), (ROOT, 2), other, None),
        rename((ROOT, 1), (ROOT, 0), f, None),
        unlink(ROOT, 0, f),
    ]);
    assert_eq!(left(&pending), pending);
}

#[test]
fn a_file_of_which_one_name_is_replaced_and_another_removed_is_kept() {
    let (f, other) = (file(1), FileId(99));
    let pending = log(vec![
        make(ROOT, 0, f, Kind::File),
        Change::Link { parent: ROOT, name: name(1), file: f },
        rename((ROOT, 2), (ROOT, 0), other, Some(f)),
        unlink(ROOT, 1, f),
    ]);
    assert_eq!(left(&pending), pending);
}

#[test]
fn attributes_and_renames_that_follow_each_other_are_one() {
    let f = FileId(99);
    let pending = log(vec![mode(f, stamp(50), 0o600), mode(f, stamp(1), 0o644)]);
    assert_eq!(left(&pending), [update(2, mode(f, stamp(50), 0o644))]);
    let moves = log(vec![
        rename((ROOT, 0), (ROOT, 1), f, None),
        rename((ROOT, 1), (ROOT, 2), f, Some(FileId(98))),
    ]);
    let one = rename((ROOT, 0), (ROOT, 2), f, Some(FileId(98)));
    assert_eq!(left(&moves), [update(2, one)]);
    let back =
        log(vec![rename((ROOT, 0), (ROOT, 1), f, None), rename((ROOT, 1), (ROOT, 0), f, None)]);
    assert_eq!(left(&back), []);
    // The name that it left is another's by now.
    let taken = log(vec![
        rename((ROOT, 0), (ROOT, 1), f, None),
        make(ROOT, 0, file(1), Kind::File),
        rename((ROOT, 1), (ROOT, 2), f, None),
    ]);
    assert_eq!(left(&taken), taken);
}

#[test]
fn attributes_of_a_directory_that_was_used_between_them_are_set_twice() {
    let (d, f, other) = (file(1), file(2), FileId(98));
    let times = |file, expects, secs| {
        let mtime = Some(Time { secs, nanos: 0 });
        let set = AttributeChange { mtime, ..AttributeChange::default() };
        Change::SetAttributes { file, expects, set }
    };
    let pending = log(vec![
        make(ROOT, 0, d, Kind::Directory),
        mode(d, stamp(1), 0o700),
        make(d, 0, f, Kind::File),
        store(f, stamp(3), 10),
        mode(d, stamp(2), 0o755),
    ]);
    assert_eq!(left(&pending), pending);
    let pending = log(vec![
        times(d, stamp(50), 9),
        make(d, 0, f, Kind::File),
        mode(d, stamp(1), 0o755),
        // What was stored may lie in it.
        store(other, stamp(51), 10),
        times(d, stamp(3), 8),
    ]);
    assert_eq!(left(&pending), pending);
    let pending = log(vec![
        times(d, stamp(50), 9),
        store(other, stamp(51), 10),
        times(d, stamp(1), 8),
        mode(d, stamp(3), 0o755),
    ]);
    assert_eq!(left(&pending).len(), 2);
}

#[test]
fn a_directory_that_was_filled_where_it_had_been_moved_to_is_moved_there() {
    let (d, private, f) = (FileId(99), FileId(98), file(1));
    let pending = log(vec![
        rename((ROOT, 0), (private, 0), d, None),
        make(d, 0, f, Kind::File),
        store(f, stamp(2), 10),
        rename((private, 0), (private, 1), d, None),
    ]);
    assert_eq!(left(&pending), pending);
}

/// Before each update that is left every directory lets in whom it did, and lies where it did, but for
/// the one that it is about.
fn lets_in_whom_it_did(base: &Tree, pending: &[Update], kept: &[Update]) -> Result<(), String> {
    let (mut tree, mut after) = (base.clone(), base.clone());
    let mut kept = kept.iter().peekable();
    for update in pending {
        if let Some(kept) = kept.next_if(|kept| kept.stamp == update.stamp) {
            let about = match &kept.change {
                Change::SetAttributes { file, .. } | Change::Rename { file, .. } => Some(*file),
                _ => None,
            };
            for (file, node) in after.nodes.iter().filter(|(_, node)| node.kind == Kind::Directory)
            {
                let before = tree.nodes.get(file).map_or(node.mode, |before| before.mode);
                if before != node.mode && about != Some(*file) {
                    return Err(format!("{file} has mode {:o} at {kept:?}", node.mode));
                }
                let places = |tree: &Tree| {
                    let of_it = tree.entries.iter().filter(|(_, entry)| *entry == file);
                    of_it.map(|(place, _)| place.clone()).collect::<Vec<_>>()
                };
                // One that was empty may go later than it did.
                let moved = tree.nodes.contains_key(file) && places(&after) != places(&tree);
                if moved && about != Some(*file) {
                    return Err(format!("{file} is at {:?} at {kept:?}", places(&after)));
                }
            }
            after.take(kept);
        }
        tree.take(update);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn prop_what_is_left_comes_to_the_same_and_finds_what_it_expects(
        draws in draws(),
        on_their_way in prop::collection::btree_set(1_u64..60, 0..4),
    ) {
        let base = beginning();
        let (tree, pending) = done(&base, &draws);
        let kept = left_of(&pending, |number| !on_their_way.contains(&number));
        let mut after = base.clone();
        for update in &kept {
            prop_assert!(after.finds(update), "{}\nof {}\nfor {}", told(std::slice::from_ref(update)), told(&kept), told(&pending));
            prop_assert!(after.take(update), "{}\nof {}\nfor {}", told(std::slice::from_ref(update)), told(&kept), told(&pending));
        }
        prop_assert_eq!(after.settled(), tree.settled(), "{}\nfor {}", told(&kept), told(&pending));
        for update in pending.iter().filter(|update| on_their_way.contains(&update.stamp.number)) {
            prop_assert!(kept.contains(update), "{update:?}");
        }
        let lets_in = lets_in_whom_it_did(&base, &pending, &kept);
        prop_assert_eq!(lets_in, Ok(()), "{}\nfor {}", told(&kept), told(&pending));
        // Nothing more is found in what is left but what came to stand side by side by that.
        let again = left_of(&kept, |number| !on_their_way.contains(&number));
        prop_assert!(again.len() <= kept.len());
    }
}
