//! The rules one by one, and against the model: what is left comes to the same.

use super::*;
use model::{AttributeChange, Contents, Effects, Node, ReplicaId, Stamp, Time, View, judge};
use proptest::prelude::*;
use std::convert::Infallible;

/// All of a volume, in memory.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tree {
    nodes: BTreeMap<FileId, Node>,
    entries: BTreeMap<Place, FileId>,
}

impl View for Tree {
    type Error = Infallible;

    fn node(&self, file: FileId) -> Result<Option<Node>, Infallible> {
        Ok(self.nodes.get(&file).cloned())
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Infallible> {
        Ok(self.entries.get(&(directory, name.clone())).copied())
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Infallible> {
        Ok(!self.entries.keys().any(|(at, _)| *at == directory))
    }
}

impl Tree {
    /// False: the update meets what it did not expect.
    fn take(&mut self, update: &Update) -> bool {
        let Ok(Ok(Effects { nodes, entries })) = judge(update, self) else { return false };
        for (file, node) in nodes {
            match node {
                Some(node) => self.nodes.insert(file, node),
                None => self.nodes.remove(&file),
            };
        }
        for (place, file) in entries {
            match file {
                Some(file) => self.entries.insert(place, file),
                None => self.entries.remove(&place),
            };
        }
        true
    }

    /// Without what a rule may change: times of directories, and by which update attributes were
    /// set.
    fn settled(mut self) -> Tree {
        for node in self.nodes.values_mut() {
            if node.kind == Kind::Directory {
                let none = Time::default();
                (node.mtime, node.ctime, node.atime) = (none, none, none);
            }
            node.ctime = Time::default();
        }
        self
    }
}

fn name(number: u8) -> Name {
    Name::new([b'a' + number]).unwrap()
}

fn stamp(number: u64) -> Stamp {
    Stamp::new(ReplicaId(7), number)
}

fn file(number: u64) -> FileId {
    FileId::new(ReplicaId(7), number).unwrap()
}

fn update(number: u64, change: Change) -> Update {
    let at = Time { secs: i64::try_from(number).unwrap(), nanos: 0 };
    Update { stamp: stamp(number), uid: 0, at, change }
}

fn make(parent: FileId, at: u8, file: FileId, kind: Kind) -> Change {
    let target = (kind == Kind::Symlink).then(|| b"x".to_vec().into());
    Change::Make {
        parent,
        name: name(at),
        file,
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        target,
        rdev: None,
    }
}

fn store(file: FileId, expects: Stamp, size: u64) -> Change {
    let contents = Contents { size, root: None, holes: (size > 0).then_some(size) };
    let contents = if size == 0 { Contents::EMPTY } else { contents };
    Change::Store { file, expects, contents, mtime: Time { secs: 5, nanos: 0 } }
}

fn unlink(parent: FileId, at: u8, file: FileId) -> Change {
    Change::Unlink { parent, name: name(at), file }
}

fn rename(from: (FileId, u8), to: (FileId, u8), file: FileId, over: Option<FileId>) -> Change {
    Change::Rename {
        from: from.0,
        from_name: name(from.1),
        to: to.0,
        to_name: name(to.1),
        file,
        over,
        exchange: false,
        whiteout: None,
    }
}

fn mode(file: FileId, expects: Stamp, mode: u16) -> Change {
    let set = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Change::SetAttributes { file, expects, set }
}

const ROOT: FileId = FileId::ROOT;

fn log(changes: Vec<Change>) -> Vec<Update> {
    (1..).zip(changes).map(|(number, change)| update(number, change)).collect()
}

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

/// What a program does next, by numbers that are drawn.
#[derive(Clone, Debug)]
struct Draw {
    what: u8,
    a: u8,
    b: u8,
    c: u8,
    d: u8,
}

fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let draw = (0_u8..14, any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(what, a, b, c, d)| Draw { what, a, b, c, d });
    prop::collection::vec(draw, 1..60)
}

fn pick<T: Clone>(list: &[T], by: u8) -> Option<T> {
    list.get(usize::from(by) % list.len().max(1)).cloned()
}

/// The change that a draw stands for in a tree, if there is one; it may not be possible.
fn change(draw: &Draw, tree: &Tree, next: FileId) -> Option<Change> {
    let mut directories: Vec<FileId> = tree
        .nodes
        .iter()
        .filter(|(_, node)| node.kind == Kind::Directory)
        .map(|(file, _)| *file)
        .collect();
    directories.truncate(4);
    let entries: Vec<(Place, FileId)> =
        tree.entries.iter().map(|(place, file)| (place.clone(), *file)).collect();
    let parent = pick(&directories, draw.a)?;
    let entry = pick(&entries, draw.b);
    let (free, node) = (name(draw.c % 4), |file: FileId| &tree.nodes[&file]);
    Some(match draw.what {
        0..=2 => Change::Make {
            parent,
            name: free,
            file: next,
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            target: None,
            rdev: None,
        },
        3 => Change::Make {
            parent,
            name: free,
            file: next,
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            target: None,
            rdev: None,
        },
        4 => Change::Link { parent, name: free, file: entry?.1 },
        5..=6 => {
            let ((parent, name), file) = entry?;
            Change::Unlink { parent, name, file }
        }
        7..=9 => {
            let ((from, from_name), file) = entry?;
            let over = tree.entries.get(&(parent, free.clone())).copied();
            let exchange = draw.what == 9 && draw.d.is_multiple_of(8) && over.is_some();
            Change::Rename {
                from,
                from_name,
                to: parent,
                to_name: free,
                file,
                over,
                exchange,
                whiteout: None,
            }
        }
        10 => {
            let file = entry?.1;
            if node(file).kind != Kind::File {
                return None;
            }
            store(file, node(file).contents_stamp, u64::from(draw.d))
        }
        11 => {
            let file = entry?.1;
            mode(file, node(file).attributes_stamp, 0o600 + u16::from(draw.d % 64))
        }
        12 => Change::SetXattr {
            file: entry?.1,
            name: b"user.x".to_vec().into(),
            value: vec![draw.d].into(),
        },
        _ => Change::RemoveXattr { file: entry?.1, name: b"user.x".to_vec().into() },
    })
}

/// Updates, a line each.
fn told(updates: &[Update]) -> String {
    updates.iter().map(|update| format!("{} {:?}\n", update.stamp, update.change)).collect()
}

fn beginning() -> Tree {
    let mut tree = Tree::default();
    let root = Node::root_directory(0, 0, Time::default());
    tree.nodes.insert(ROOT, root);
    let changes = [
        make(ROOT, 0, FileId(50), Kind::File),
        make(ROOT, 1, FileId(51), Kind::Directory),
        make(FileId(51), 0, FileId(52), Kind::File),
        make(FileId(51), 1, FileId(53), Kind::File),
    ];
    for (number, change) in (1..).zip(changes) {
        let stamp = Stamp::new(ReplicaId(1), number);
        let at = Time::default();
        assert!(tree.take(&Update { stamp, uid: 0, at, change }));
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn prop_what_is_left_comes_to_the_same_and_finds_what_it_expects(
        draws in draws(),
        on_their_way in prop::collection::btree_set(1_u64..60, 0..4),
    ) {
        let base = beginning();
        let (mut tree, mut pending) = (base.clone(), Vec::new());
        for draw in &draws {
            let number = pending.len() as u64 + 1;
            let Some(change) = change(draw, &tree, file(number)) else { continue };
            let update = update(number, change);
            if tree.take(&update) {
                pending.push(update);
            }
        }
        let kept = left_of(&pending, |number| !on_their_way.contains(&number));
        let mut after = base;
        for update in &kept {
            prop_assert!(after.take(update), "{}\nof {}\nfor {}", told(std::slice::from_ref(update)), told(&kept), told(&pending));
        }
        prop_assert_eq!(after.settled(), tree.settled(), "{}\nfor {}", told(&kept), told(&pending));
        for update in pending.iter().filter(|update| on_their_way.contains(&update.stamp.number)) {
            prop_assert!(kept.contains(update), "{update:?}");
        }
        // Nothing more is found in what is left but what came to stand side by side by that.
        let again = left_of(&kept, |number| !on_their_way.contains(&number));
        prop_assert!(again.len() <= kept.len());
    }
}
