//! The whole tree against a naive one: maps that are copied at every update.
#![allow(clippy::unwrap_used, reason = "a history that cannot be written is a failed test")]

use model::{
    AttributeChange, Change, Contents, Effects, FileId, Kind, Name, Node, ReplicaId, Seq,
    SnapshotId, Stamp, Time, Update, Usage, View, judge, snapshots_name,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use store::memory::MemoryTables;
use store::{Durability, Tables};
use volume::whole::{
    Committer, Holds, Snapshot, Touched, VolumeId, Whole, Writer, check, create, prune, purge,
    snapshot_positions, snapshots,
};

const VOLUME: VolumeId = VolumeId(7);
const NEIGHBOURS: [VolumeId; 2] = [VolumeId(6), VolumeId(8)];
const NAMES: [&str; 4] = ["a", "ab", "b", "\u{1}"];
/// Files that an update may be about, whether or not they are there.
const FILES: u64 = 8;

/// The tree as it was at one position.
#[derive(Clone, Default)]
struct Naive {
    nodes: BTreeMap<FileId, Node>,
    entries: BTreeMap<(FileId, Name), FileId>,
}

impl Naive {
    fn new() -> Naive {
        let mut naive = Naive::default();
        naive.nodes.insert(FileId::ROOT, Node::root_directory(1, 2, Time::default()));
        naive
    }

    fn apply(&mut self, effects: &Effects) {
        for (file, node) in &effects.nodes {
            match node {
                Some(node) => self.nodes.insert(*file, node.clone()),
                None => self.nodes.remove(file),
            };
        }
        for (key, file) in &effects.entries {
            match file {
                Some(file) => self.entries.insert(key.clone(), *file),
                None => self.entries.remove(key),
            };
        }
    }

    fn listed(&self, directory: FileId) -> Vec<(Name, FileId)> {
        let own = self.entries.iter().filter(|((within, _), _)| *within == directory);
        own.map(|((_, name), file)| (name.clone(), *file)).collect()
    }
}

impl View for Naive {
    type Error = Infallible;

    fn node(&self, file: FileId) -> Result<Option<Node>, Infallible> {
        Ok(self.nodes.get(&file).cloned())
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Infallible> {
        Ok(self.entries.get(&(directory, name.clone())).copied())
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Infallible> {
        Ok(self.listed(directory).is_empty())
    }
}

/// An update in terms of small numbers.
#[derive(Clone, Debug)]
enum Step {
    Make { parent: u64, name: usize, file: u64, directory: bool },
    Link { parent: u64, name: usize, file: u64 },
    Unlink { parent: u64, name: usize },
    Rename { from: u64, from_name: usize, to: u64, to_name: usize, exchange: bool },
    Store { file: u64, size: u64 },
    Mode { file: u64, mode: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let (file, name) = (0..FILES, 0..NAMES.len());
    // Much is in the root, so that there is something to be done.
    let parent = prop_oneof![2 => Just(0), 1 => file.clone()];
    prop_oneof![
        3 => (parent.clone(), name.clone(), file.clone(), any::<bool>()).prop_map(
            |(parent, name, file, directory)| Step::Make { parent, name, file, directory }
        ),
        2 => (parent.clone(), name.clone(), file.clone())
            .prop_map(|(parent, name, file)| Step::Link { parent, name, file }),
        2 => (parent.clone(), name.clone()).prop_map(|(parent, name)| Step::Unlink { parent, name }),
        3 => (parent.clone(), name.clone(), parent, name, prop::bool::weighted(0.2)).prop_map(
            |(from, from_name, to, to_name, exchange)| {
                Step::Rename { from, from_name, to, to_name, exchange }
            }
        ),
        2 => (file.clone(), 1..9u64).prop_map(|(file, size)| Step::Store { file, size }),
        1 => (file, 0..0o7777u16).prop_map(|(file, mode)| Step::Mode { file, mode }),
    ]
}

fn id(file: u64) -> FileId {
    if file == 0 { FileId::ROOT } else { FileId::new(ReplicaId(1), file).unwrap() }
}

fn name(index: usize) -> Name {
    Name::new(NAMES[index]).unwrap()
}

/// The update that a client would make of the step, knowing what there is.
fn update(step: &Step, number: u64, now: &Naive) -> Update {
    let entry = |directory, name| now.entries.get(&(directory, name)).copied();
    let anything = id(FILES);
    let time = Time { secs: i64::try_from(number).unwrap(), nanos: 0 };
    let change = match *step {
        Step::Make { parent, name: n, file, directory } => Change::Make {
            parent: id(parent),
            name: name(n),
            file: id(file),
            kind: if directory { Kind::Directory } else { Kind::File },
            mode: 0o644,
            uid: 1,
            gid: 2,
            target: None,
            rdev: None,
            born: None,
        },
        Step::Link { parent, name: n, file } => {
            Change::Link { parent: id(parent), name: name(n), file: id(file) }
        }
        Step::Unlink { parent, name: n } => Change::Unlink {
            parent: id(parent),
            name: name(n),
            file: entry(id(parent), name(n)).unwrap_or(anything),
            expects: None,
        },
        Step::Rename { from, from_name, to, to_name, exchange } => Change::Rename {
            from: id(from),
            from_name: name(from_name),
            to: id(to),
            to_name: name(to_name),
            file: entry(id(from), name(from_name)).unwrap_or(anything),
            over: entry(id(to), name(to_name)),
            exchange,
            whiteout: None,
            expects: None,
        },
        Step::Store { file, size } => Change::Store {
            file: id(file),
            expects: now.nodes.get(&id(file)).map(|n| n.contents_stamp).unwrap_or_default(),
            contents: Contents { size, root: None, holes: Some(size / 3) },
            mtime: time,
        },
        Step::Mode { file, mode } => Change::SetAttributes {
            file: id(file),
            expects: now.nodes.get(&id(file)).map(|n| n.attributes_stamp).unwrap_or_default(),
            set: AttributeChange {
                mode: Some(mode),
                uid: Some(u32::from(mode % 3)),
                ..AttributeChange::default()
            },
        },
    };
    Update { stamp: Stamp::new(ReplicaId(1), number), uid: 1, at: time, change }
}

/// What the tables say is what the maps say, at one position.
fn assert_same(view: &Whole<'_>, naive: &Naive) {
    for file in (0..FILES).map(id) {
        assert_eq!(view.node(file).unwrap(), naive.node(file).unwrap(), "{file}");
        let listed = naive.listed(file);
        let page = view.entries(file, None, 100).unwrap();
        assert_eq!((&page.entries, page.complete), (&listed, true), "entries of {file}");
        assert_eq!(view.is_empty(file).unwrap(), listed.is_empty());
        for name in (0..NAMES.len()).map(name) {
            let entry = naive.entry(file, &name).unwrap();
            assert_eq!(view.entry(file, &name).unwrap(), entry);
            assert_eq!(view.entry_version(file, &name).unwrap().file, entry);
        }
        // A page stops where it is told to, and the next goes on there.
        if let Some((first, _)) = listed.first() {
            let page = view.entries(file, None, 1).unwrap();
            assert_eq!((page.entries.len(), page.complete), (1, listed.len() == 1));
            assert_eq!(view.entries(file, Some(first), 100).unwrap().entries, listed[1..]);
        }
    }
}

/// What is kept about the present alone.
fn assert_present(view: &Whole<'_>, naive: &Naive) {
    assert_eq!(view.files().unwrap(), naive.nodes.len() as u64);
    let mut usage = Usage::default();
    for uid in 0..3 {
        let own = naive.nodes.values().filter(|node| node.uid == uid);
        let data = |node: &Node| node.contents.size - node.contents.holes.unwrap_or(0);
        let of = Usage { files: own.clone().count() as u64, bytes: own.map(data).sum() };
        assert_eq!(view.usage_of(uid).unwrap(), of, "usage of {uid}");
        (usage.files, usage.bytes) = (usage.files + of.files, usage.bytes + of.bytes);
    }
    assert_eq!(view.usage().unwrap(), Some(usage));
    for file in (0..FILES).map(id) {
        let names: BTreeSet<_> = view.names(file, 100).unwrap().into_iter().collect();
        let bears = naive.entries.iter().filter(|(_, named)| **named == file);
        assert_eq!(names, bears.map(|(key, _)| key.clone()).collect(), "names of {file}");
    }
}

fn volume_with_neighbours() -> MemoryTables {
    let tables = MemoryTables::new();
    let mut write = tables.write().unwrap();
    for volume in [VOLUME, NEIGHBOURS[0], NEIGHBOURS[1]] {
        create(&mut *write, volume, Node::root_directory(1, 2, Time::default())).unwrap();
    }
    write.commit(Durability::Now).unwrap();
    tables
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn prop_what_was_current_at_any_position_can_be_read(
        steps in prop::collection::vec(step(), 1..60),
        batch in 1..6usize,
    ) {
        let tables = volume_with_neighbours();
        let mut naive = Naive::new();
        let mut history = vec![naive.clone()];
        let mut touched = Touched::default();
        let mut number = 0;
        for steps in steps.chunks(batch) {
            let mut write = tables.write().unwrap();
            let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
            for step in steps {
                number += 1;
                let update = update(step, number, &naive);
                let judged = judge(&update, &committer.view()).unwrap();
                prop_assert_eq!(&judged, &judge(&update, &naive).unwrap());
                let Ok(effects) = judged else { continue };
                let made = committer.apply(&update, &effects).unwrap();
                naive.apply(&effects);
                history.push(naive.clone());
                prop_assert_eq!(made.seq, Seq(history.len() as u64 - 1));
                touched.nodes.extend(made.nodes);
                touched.entries.extend(made.entries);
            }
            committer.finish().unwrap();
            write.commit(Durability::Now).unwrap();
        }
        let read = tables.read().unwrap();
        let now = Whole::now(&*read, VOLUME);
        prop_assert_eq!(now.position().unwrap(), Seq(history.len() as u64 - 1));
        assert_same(&now, &naive);
        assert_present(&now, &naive);
        for (seq, naive) in history.iter().enumerate() {
            assert_same(&Whole::as_of(&*read, VOLUME, Seq(seq as u64)), naive);
        }
        let all = now.touched_after(Seq::START, 1000, 1000, |_| true).unwrap().unwrap();
        prop_assert_eq!(all, touched);
        for volume in NEIGHBOURS {
            let neighbour = Whole::now(&*read, volume);
            prop_assert_eq!(neighbour.files().unwrap(), 1, "another volume is left alone");
            prop_assert!(neighbour.is_empty(FileId::ROOT).unwrap());
        }
    }
}

/// Plays the steps; gives back the tree as it was at every position.
fn play(tables: &MemoryTables, steps: &[Step]) -> Vec<Naive> {
    let mut history = vec![Naive::new()];
    let mut write = tables.write().unwrap();
    let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
    for (number, step) in (1..).zip(steps) {
        let mut naive = history.last().unwrap().clone();
        let update = update(step, number, &naive);
        let judged = judge(&update, &naive).unwrap();
        let Some(effects) = judged.ok().or_else(|| back(&update, &history)) else { continue };
        committer.apply(&update, &effects).unwrap();
        naive.apply(&effects);
        history.push(naive);
    }
    committer.finish().unwrap();
    write.commit(Durability::Now).unwrap();
    history
}

/// A file that was removed comes back, as it was, by a name that somebody gives it who has not heard
/// of that.
fn back(update: &Update, history: &[Naive]) -> Option<Effects> {
    let Change::Link { parent, name, file } = &update.change else { return None };
    let now = history.last().unwrap();
    let is_directory = |node: &Node| node.kind == Kind::Directory;
    let given =
        if now.nodes.get(parent).is_some_and(is_directory) { *parent } else { FileId::ROOT };
    let may = !now.nodes.contains_key(file) && !now.entries.contains_key(&(given, name.clone()));
    let was = history.iter().rev().find_map(|then| then.nodes.get(file));
    let node = was.filter(|node| may && node.kind == Kind::File)?;
    let mut effects = Effects::default();
    effects.nodes.insert(*file, Some(Node { links: 1, ctime: update.at, ..node.clone() }));
    effects.entries.insert((given, name.clone()), Some(*file));
    Some(effects)
}

fn prune_all(tables: &MemoryTables, holds: &Holds, rows_max: usize) -> u64 {
    let (mut at, mut removed) = (None, 0);
    loop {
        let mut write = tables.write().unwrap();
        let (some, next) = prune(&mut *write, VOLUME, at, holds, rows_max).unwrap();
        // As whoever tidies up: what changes nothing is not written.
        match some {
            0 => drop(write),
            _ => write.commit(Durability::Later).unwrap(),
        }
        removed += some;
        at = next;
        if at.is_none() {
            break;
        }
    }
    let floor = holds.floor.max(holds.contents_floor);
    let before = Seq(floor.0.saturating_sub(1));
    if removed > 0 && before < floor && !holds.pins.contains(&before) {
        let read = tables.read().unwrap();
        assert_eq!(Whole::now(&*read, VOLUME).is_kept(before).unwrap(), Some(false));
    }
    removed
}

/// Whether the contents of every file of the tree can be found.
fn has_contents(view: &Whole<'_>, naive: &Naive) -> bool {
    naive.nodes.iter().filter(|(_, node)| node.kind == Kind::File).all(|(file, node)| {
        let found = view.contents(*file, node.contents_stamp).unwrap();
        found.is_some_and(|(contents, _)| contents == node.contents)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn prop_after_pruning_everything_that_is_held_reads_as_before(
        steps in prop::collection::vec(step(), 1..80),
        floors in (0u64..60, 0u64..20, 0u64..80),
        pins in prop::collection::btree_set(0u64..60, 0..3),
        rows_max in 1usize..12,
    ) {
        let tables = volume_with_neighbours();
        let history = play(&tables, &steps);
        let last = history.len() as u64 - 1;
        let floor = floors.0.min(last);
        let contents_floor = (floor + floors.1).min(last);
        let pins: BTreeSet<Seq> = pins.into_iter().filter(|pin| *pin < floor).map(Seq).collect();
        let holds = Holds {
            floor: Seq(floor),
            contents_floor: Seq(contents_floor),
            log_floor: Seq(floors.2.min(last)),
            pins,
            contents: BTreeSet::new(),
        };
        prune_all(&tables, &holds, rows_max);
        {
            let read = tables.read().unwrap();
            let now = Whole::now(&*read, VOLUME);
            assert_same(&now, &history[last as usize]);
            assert_present(&now, &history[last as usize]);
            for seq in (floor..=last).chain(holds.pins.iter().map(|pin| pin.0)) {
                assert_same(&Whole::as_of(&*read, VOLUME, Seq(seq)), &history[seq as usize]);
            }
            for seq in (contents_floor..=last).chain(holds.pins.iter().map(|pin| pin.0)) {
                prop_assert!(has_contents(&now, &history[seq as usize]), "as of {}", seq);
            }
            let needed: BTreeSet<_> = (contents_floor..=last)
                .chain(holds.pins.iter().map(|pin| pin.0))
                .flat_map(|seq| &history[seq as usize].nodes)
                .filter(|(_, node)| node.kind == Kind::File)
                .map(|(file, node)| (*file, node.contents_stamp))
                .collect();
            let (from, to) = VOLUME.range();
            let left = read.scan("whole-contents", &from, &to, 10_000).unwrap().len();
            prop_assert_eq!(left, needed.len(), "no other contents stay");
            for seq in 0..last {
                let tail = now.touched_after(Seq(seq), 1000, 1000, |_| true).unwrap();
                prop_assert_eq!(tail.is_some(), seq >= holds.log_floor.0, "from {}", seq);
            }
        }
        prop_assert_eq!(prune_all(&tables, &holds, rows_max), 0, "one walk finds all");
        // Without history a tree has one row for each thing that it has.
        let now = Seq(last);
        let holds =
            Holds { floor: now, contents_floor: now, log_floor: now, ..Holds::default() };
        prune_all(&tables, &holds, rows_max);
        let read = tables.read().unwrap();
        let naive = &history[last as usize];
        let files = naive.nodes.values().filter(|node| node.kind == Kind::File).count();
        let (from, to) = VOLUME.range();
        let rows = |table| read.scan(table, &from, &to, 10_000).unwrap().len();
        prop_assert_eq!(rows("whole-nodes"), naive.nodes.len());
        prop_assert_eq!(rows("whole-entries"), naive.entries.len());
        prop_assert_eq!(rows("whole-contents"), files);
        prop_assert_eq!(rows("whole-log"), 0);
        for volume in NEIGHBOURS {
            prop_assert_eq!(Whole::now(&*read, volume).files().unwrap(), 1);
        }
    }
}

/// Plays the steps and makes a snapshot before those whose turn it is.
fn play_with_snapshots(
    tables: &MemoryTables,
    steps: &[Step],
    turns: &BTreeSet<usize>,
) -> (Naive, Vec<(Snapshot, Naive)>) {
    let (mut naive, mut taken) = (Naive::new(), Vec::new());
    for (turn, step) in steps.iter().enumerate() {
        let mut write = tables.write().unwrap();
        let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
        if turns.contains(&turn) {
            let name = Name::new(format!("s{turn}")).unwrap();
            let (snapshot, made) =
                committer.add_snapshot(name, Time::default(), (None, 0), turn as u64).unwrap();
            assert_eq!(made.seq, snapshot.position.next());
            taken.push((snapshot, naive.clone()));
        }
        let update = update(step, turn as u64 + 1, &naive);
        if let Ok(effects) = judge(&update, &naive).unwrap() {
            committer.apply(&update, &effects).unwrap();
            naive.apply(&effects);
        }
        committer.finish().unwrap();
        write.commit(Durability::Now).unwrap();
    }
    (naive, taken)
}

/// What the snapshot shows through the numbers of its own is what there was.
fn assert_shows(view: &Whole<'_>, number: SnapshotId, then: &Naive) {
    let past = |file: FileId| file.in_snapshot(number).unwrap();
    for file in (0..FILES).map(id) {
        let mut node = then.node(file).unwrap();
        if let Some(node) = &mut node {
            node.parent = match file {
                FileId::ROOT => Some(FileId::SNAPSHOTS),
                _ => node.parent.map(past),
            };
        }
        assert_eq!(view.node(past(file)).unwrap(), node, "{file}");
        let listed = then.listed(file).into_iter().map(|(name, file)| (name, past(file)));
        let listed: Vec<_> = listed.collect();
        let page = view.entries(past(file), None, 100).unwrap();
        assert_eq!((&page.entries, page.complete), (&listed, true), "entries of {file}");
        for (name, named) in listed {
            assert_eq!(view.entry(past(file), &name).unwrap(), Some(named));
        }
        if let Some(node) = then.node(file).unwrap().filter(|node| node.kind == Kind::File) {
            let found = view.contents(past(file), node.contents_stamp).unwrap();
            assert_eq!(found.map(|(contents, _)| contents), Some(node.contents));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn prop_a_snapshot_shows_the_state_at_its_position_whatever_comes_after(
        steps in prop::collection::vec(step(), 1..60),
        turns in prop::collection::btree_set(0usize..60, 0..5),
        gone in any::<u8>(),
        rows_max in 1usize..12,
    ) {
        let tables = volume_with_neighbours();
        let (naive, mut taken) = play_with_snapshots(&tables, &steps, &turns);
        for (number, (snapshot, _)) in taken.iter().enumerate() {
            if gone & (1 << number) != 0 {
                let mut write = tables.write().unwrap();
                let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
                committer.remove_snapshot(snapshot, Time::default()).unwrap();
                committer.finish().unwrap();
                write.commit(Durability::Now).unwrap();
            }
        }
        let all = taken.clone();
        let mut number = 0;
        taken.retain(|_| {
            number += 1;
            gone & (1 << (number - 1)) == 0
        });
        for pruned in [false, true] {
            if pruned {
                let read = tables.read().unwrap();
                let last = Whole::now(&*read, VOLUME).position().unwrap();
                let pins = snapshot_positions(&*read, VOLUME).unwrap();
                drop(read);
                let floors = Holds { floor: last, contents_floor: last, ..Holds::default() };
                prune_all(&tables, &Holds { log_floor: last, pins, ..floors }, rows_max);
            }
            let read = tables.read().unwrap();
            let now = Whole::now(&*read, VOLUME);
            assert_same(&now, &naive);
            assert_present(&now, &naive);
            let names = now.entries(FileId::SNAPSHOTS, None, 100).unwrap().entries;
            prop_assert_eq!(names.len(), taken.len());
            prop_assert_eq!(snapshots(&*read, VOLUME).unwrap().len(), taken.len());
            for (snapshot, then) in &taken {
                assert_shows(&now, snapshot.number, then);
            }
            for (snapshot, _) in &all {
                let root = FileId::ROOT.in_snapshot(snapshot.number).unwrap();
                let is_left = taken.iter().any(|(left, _)| left == snapshot);
                prop_assert_eq!(now.node(root).unwrap().is_some(), is_left);
                prop_assert_eq!(names.contains(&(snapshot.name.clone(), root)), is_left);
            }
            let mut faults = Vec::new();
            check(&*read, VOLUME, &mut |fault| faults.push(fault));
            prop_assert_eq!(faults, vec![]);
        }
    }
}

#[test]
fn snapshots_are_found_in_a_directory_that_no_listing_shows() {
    let tables = volume_with_neighbours();
    let turns = BTreeSet::from([0]);
    let make = [Step::Make { parent: 0, name: 0, file: 1, directory: true }];
    let (_, taken) = play_with_snapshots(&tables, &make, &turns);
    let read = tables.read().unwrap();
    let view = Whole::now(&*read, VOLUME);
    let listed = view.entries(FileId::ROOT, None, 9).unwrap().entries;
    assert_eq!(listed, [(name(0), id(1))]);
    let within = view.entries(FileId::CONTROL, None, 9).unwrap().entries;
    assert_eq!(within, [(snapshots_name(), FileId::SNAPSHOTS)]);
    assert_eq!(view.node(FileId::CONTROL).unwrap().unwrap().parent, Some(FileId::ROOT));
    let directory = view.node(FileId::SNAPSHOTS).unwrap().unwrap();
    assert_eq!((directory.links, directory.mode), (3, 0o555));
    let (snapshot, _) = &taken[0];
    assert_eq!(view.snapshot_named(&snapshot.name).unwrap().as_ref(), Some(snapshot));
    let touched = view.touched_after(Seq::START, 9, 9, |file| file == FileId::SNAPSHOTS).unwrap();
    let entry = (FileId::SNAPSHOTS, snapshot.name.clone());
    assert_eq!(touched.unwrap().entries, [entry].into());
}

#[test]
fn contents_that_are_held_by_their_stamp_stay() {
    let tables = volume_with_neighbours();
    let (file, stored) = short_life(&tables);
    let all = Seq(3);
    let holds = Holds {
        floor: all,
        contents_floor: all,
        log_floor: all,
        contents: [(file, stored)].into(),
        ..Holds::default()
    };
    prune_all(&tables, &holds, 2);
    let read = tables.read().unwrap();
    let view = Whole::now(&*read, VOLUME);
    assert_eq!(view.contents(file, stored).unwrap().unwrap().0.size, 5);
    assert_eq!(view.contents(file, Stamp::new(ReplicaId(1), 1)).unwrap(), None);
    // Whose they were is known, and that the file is gone.
    assert_eq!(view.node(file).unwrap(), None);
    let gone = view.node_version(file).unwrap().unwrap();
    let before = view.node_before(file, gone.seq).unwrap().unwrap();
    assert_eq!(before.contents_stamp, stored);
    prune_all(&tables, &Holds { contents: BTreeSet::new(), ..holds }, 2);
    let read = tables.read().unwrap();
    assert_eq!(Whole::now(&*read, VOLUME).node_version(file).unwrap(), None);
}

/// Makes a file, stores its contents and removes it.
fn short_life(tables: &MemoryTables) -> (FileId, Stamp) {
    let steps = [
        Step::Make { parent: 0, name: 0, file: 1, directory: false },
        Step::Store { file: 1, size: 5 },
        Step::Unlink { parent: 0, name: 0 },
    ];
    let mut naive = Naive::new();
    let mut write = tables.write().unwrap();
    let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
    for (index, step) in steps.iter().enumerate() {
        let update = update(step, index as u64 + 1, &naive);
        let effects = judge(&update, &naive).unwrap().unwrap();
        committer.apply(&update, &effects).unwrap();
        naive.apply(&effects);
    }
    committer.finish().unwrap();
    write.commit(Durability::Now).unwrap();
    (id(1), Stamp::new(ReplicaId(1), 2))
}

#[test]
fn a_file_that_is_gone_leaves_its_last_name_and_its_contents() {
    let tables = volume_with_neighbours();
    let (file, stored) = short_life(&tables);
    let read = tables.read().unwrap();
    let view = Whole::now(&*read, VOLUME);
    let gone = view.node_version(file).unwrap().unwrap();
    assert_eq!((gone.seq, gone.node), (Seq(3), None));
    assert_eq!(gone.was, Some((FileId::ROOT, name(0))));
    assert_eq!(view.node_before(file, gone.seq).unwrap().unwrap().contents.size, 5);
    let (contents, since) = view.contents(file, stored).unwrap().unwrap();
    assert_eq!((contents.size, since), (5, Seq(2)));
    assert_eq!(view.contents(file, Stamp::new(ReplicaId(1), 9)).unwrap(), None);
}

#[test]
fn a_tail_that_is_too_long_is_none() {
    let tables = volume_with_neighbours();
    short_life(&tables);
    let read = tables.read().unwrap();
    let view = Whole::now(&*read, VOLUME);
    let after = |seq, keys, records| {
        view.touched_after(Seq(seq), keys, records, |_| true).unwrap().map(|t| t.len())
    };
    assert_eq!(after(0, 3, 3), Some(3));
    assert_eq!(after(0, 2, 3), None);
    assert_eq!(after(0, 3, 2), None);
    assert_eq!(after(1, 3, 2), Some(3));
    assert_eq!(after(3, 0, 0), Some(0));
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing() {
    let tables = volume_with_neighbours();
    {
        let mut write = tables.write().unwrap();
        let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
        committer.fresh_replica().unwrap();
        committer.put_writer(ReplicaId(1), &Writer::new(b"device")).unwrap();
        committer.finish().unwrap();
    }
    let mut write = tables.write().unwrap();
    let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
    assert_eq!(committer.view().writer(ReplicaId(1)).unwrap(), None);
    assert_eq!(committer.fresh_replica().unwrap(), ReplicaId(1));
    assert_eq!(committer.fresh_file().unwrap(), FileId(2), "after the root");
}

#[test]
fn a_purged_volume_is_gone_and_its_neighbours_are_not() {
    let tables = volume_with_neighbours();
    short_life(&tables);
    let mut rounds = 0;
    loop {
        let mut write = tables.write().unwrap();
        let more = purge(&mut *write, VOLUME, 2).unwrap();
        write.commit(Durability::Now).unwrap();
        if !more {
            break;
        }
        rounds += 1;
    }
    assert!(rounds > 3, "a few rows at a time");
    let read = tables.read().unwrap();
    assert!(Whole::now(&*read, VOLUME).position().is_err());
    for volume in NEIGHBOURS {
        assert_eq!(Whole::now(&*read, volume).files().unwrap(), 1);
    }
}

#[test]
fn a_damaged_row_is_reported_with_its_place() {
    let tables = volume_with_neighbours();
    let mut write = tables.write().unwrap();
    let (from, to) = VOLUME.range();
    let (key, mut value) = write.scan("whole-nodes", &from, &to, 1).unwrap().remove(0);
    let last = value.len() - 1;
    value[last] ^= 1;
    write.put("whole-nodes", &key, &value).unwrap();
    write.commit(Durability::Now).unwrap();
    let read = tables.read().unwrap();
    let error = Whole::now(&*read, VOLUME).node(FileId::ROOT).unwrap_err().to_string();
    assert!(error.contains("node 0.1 of volume 7") && error.contains("checksum"), "{error}");
}
