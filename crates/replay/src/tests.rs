//! A volume in memory, and what programs may do to it, for the tests of the rules.

use model::{
    AttributeChange, Change, Contents, Effects, FileId, Kind, Name, Node, ReplicaId, Stamp, Time,
    Update, View, judge,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// A name in a directory.
type Place = (FileId, Name);

/// All of a volume, in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree {
    pub nodes: BTreeMap<FileId, Node>,
    pub entries: BTreeMap<Place, FileId>,
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
    /// What whoever makes a file go away has seen of it.
    pub(crate) fn seen(&self, file: FileId) -> Option<Stamp> {
        let node = self.nodes.get(&file).filter(|node| node.kind == Kind::File);
        node.map(|node| node.contents_stamp)
    }

    /// Whether an update that makes a file go away finds the contents that it expects, or others of
    /// the same writer's.
    pub(crate) fn finds(&self, update: &Update) -> bool {
        match &update.change {
            Change::Rename { over: Some(file), expects, .. }
            | Change::Unlink { file, expects, .. } => {
                let seen = self.seen(*file);
                let is_own = |seen: Stamp| seen.replica == update.stamp.replica;
                *expects == seen || seen.is_some_and(is_own)
            }
            _ => true,
        }
    }

    /// False: the update meets what it did not expect.
    pub fn take(&mut self, update: &Update) -> bool {
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
    pub fn settled(mut self) -> Tree {
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

pub(crate) fn name(number: u8) -> Name {
    Name::new([b'a' + number]).unwrap()
}

pub(crate) fn stamp(number: u64) -> Stamp {
    Stamp::new(ReplicaId(7), number)
}

pub(crate) fn file(number: u64) -> FileId {
    FileId::new(ReplicaId(7), number).unwrap()
}

pub(crate) fn update(number: u64, change: Change) -> Update {
    let at = Time { secs: i64::try_from(number).unwrap(), nanos: 0 };
    Update { stamp: stamp(number), uid: 0, at, change }
}

pub(crate) fn make(parent: FileId, at: u8, file: FileId, kind: Kind) -> Change {
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
        born: None,
    }
}

pub(crate) fn store(file: FileId, expects: Stamp, size: u64) -> Change {
    let contents = Contents { size, root: None, holes: (size > 0).then_some(size) };
    let contents = if size == 0 { Contents::EMPTY } else { contents };
    Change::Store { file, expects, contents, mtime: Time { secs: 5, nanos: 0 } }
}

pub(crate) fn unlink(parent: FileId, at: u8, file: FileId) -> Change {
    Change::Unlink { parent, name: name(at), file, expects: None }
}

pub(crate) fn rename(
    from: (FileId, u8),
    to: (FileId, u8),
    file: FileId,
    over: Option<FileId>,
) -> Change {
    Change::Rename {
        from: from.0,
        from_name: name(from.1),
        to: to.0,
        to_name: name(to.1),
        file,
        over,
        exchange: false,
        whiteout: None,
        expects: None,
    }
}

pub(crate) fn mode(file: FileId, expects: Stamp, mode: u16) -> Change {
    let set = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Change::SetAttributes { file, expects, set }
}

pub(crate) const ROOT: FileId = FileId::ROOT;

pub(crate) fn log(changes: Vec<Change>) -> Vec<Update> {
    (1..).zip(changes).map(|(number, change)| update(number, change)).collect()
}

/// What a program does next, by numbers that are drawn.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    what: u8,
    a: u8,
    b: u8,
    c: u8,
    d: u8,
}

pub(crate) fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let draw = (0_u8..14, any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(what, a, b, c, d)| Draw { what, a, b, c, d });
    prop::collection::vec(draw, 1..60)
}

pub(crate) fn pick<T: Clone>(list: &[T], by: u8) -> Option<T> {
    list.get(usize::from(by) % list.len().max(1)).cloned()
}

/// The change that a draw stands for in a tree, if there is one; it may not be possible.
pub(crate) fn change(draw: &Draw, tree: &Tree, next: FileId) -> Option<Change> {
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
            born: None,
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
            born: None,
        },
        4 => Change::Link { parent, name: free, file: entry?.1 },
        5..=6 => {
            let ((parent, name), file) = entry?;
            let expects = tree.seen(file);
            Change::Unlink { parent, name, file, expects }
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
                expects: over.and_then(|over| tree.seen(over)),
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
            file: entry.as_ref()?.1,
            name: b"user.x".to_vec().into(),
            value: vec![draw.d].into(),
            expects: Some(node(entry?.1).attributes_stamp),
        },
        _ => Change::RemoveXattr { file: entry?.1, name: b"user.x".to_vec().into(), expects: None },
    })
}

/// Updates, a line each.
pub(crate) fn told(updates: &[Update]) -> String {
    updates.iter().map(|update| format!("{} {:?}\n", update.stamp, update.change)).collect()
}

pub(crate) fn beginning() -> Tree {
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

/// The tree after what was drawn has been done to it, and that.
pub(crate) fn done(base: &Tree, draws: &[Draw]) -> (Tree, Vec<Update>) {
    let (mut tree, mut pending) = (base.clone(), Vec::new());
    for draw in draws {
        let number = pending.len() as u64 + 1;
        let Some(change) = change(draw, &tree, file(number)) else { continue };
        let update = update(number, change);
        if tree.take(&update) {
            pending.push(update);
        }
    }
    (tree, pending)
}
