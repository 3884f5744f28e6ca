use super::super::{Gone, show_pending};
use super::*;
use crate::effects::BeforeBirth;
use crate::effects::effects_here;
use crate::meta::Taken;
use model::{AttributeChange, Node, ReplicaId, Seq, Stamp, Time};
use proptest::prelude::*;
use protocol::{EntryState, Listed, Listing, NodeState, States};
use std::sync::Arc;
use store::memory::{MemoryJournal, MemoryTables};
use store::{Durability, Tables};

const HERE: ReplicaId = ReplicaId(1);
const ELSEWHERE: ReplicaId = ReplicaId(2);
const EPOCH: u32 = 1;
/// A second directory, beside the root.
const FOLDER: FileId = FileId(10);
const NAMES: [&str; 4] = ["a", "b", "c", "folder"];

fn named(name: usize) -> Name {
    Name::new(NAMES[name]).unwrap()
}

fn place((folder, name): (bool, usize)) -> (FileId, Name) {
    (if folder { FOLDER } else { FileId::ROOT }, named(name))
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Make,
    MakeDirectory,
    Store,
    SetMode(u16),
    Unlink,
    Move(bool, usize),
    Link(bool, usize),
}

type Doing = (Does, (bool, usize));

/// A client with what is pending, and what there is above.
struct Volume {
    here: MemoryTables,
    above: MemoryTables,
    log: UpdateLog,
    seq: u64,
    ids: u64,
}

impl Volume {
    /// A root and a directory in it, with a file each.
    fn new() -> Volume {
        let journal = Arc::new(MemoryJournal::default());
        let (log, _) = UpdateLog::open(journal, 0, 0, 2).unwrap();
        let (here, above) = (MemoryTables::default(), MemoryTables::default());
        let mut volume = Volume { here, above, log, seq: 1, ids: 0 };
        let directory =
            |parent| Node { parent: Some(parent), ..Node::root_directory(0, 0, Time::default()) };
        let file = Node { kind: Kind::File, links: 1, parent: None, ..directory(FileId::ROOT) };
        let nodes = [
            (FileId::ROOT, directory(FileId::ROOT)),
            (FOLDER, directory(FileId::ROOT)),
            (FileId(11), file.clone()),
            (FileId(12), file),
        ];
        let state = |(file, node)| NodeState { file, seq: Seq(1), node: Some(node) };
        let listed = |directory, entries| Listed { directory, entries, complete: true };
        let entries = vec![(named(0), FileId(11)), (named(3), FOLDER)];
        let listing = Listing {
            as_of: Seq(1),
            nodes: nodes.map(state).to_vec(),
            directories: vec![
                listed(FileId::ROOT, entries),
                listed(FOLDER, vec![(named(1), FileId(12))]),
            ],
        };
        for tables in [&volume.here, &volume.above] {
            let mut write = tables.write().unwrap();
            partial::take_listing(&mut *write, &listing, None, EPOCH).unwrap();
            write.commit(Durability::Later).unwrap();
        }
        volume.ids = 20;
        volume
    }

    fn change_of(&self, tables: &MemoryTables, doing: Doing) -> Option<Change> {
        change(&Tree::new(&*tables.read().unwrap(), 0), doing, self.ids + 1)
    }

    fn update(replica: ReplicaId, number: u64, change: Change) -> Update {
        let at = Time { secs: number as i64, nanos: 0 };
        Update { stamp: Stamp::new(replica, number), uid: 0, at, change }
    }

    /// A program here changes something, if that can be done.
    fn change_here(&mut self, doing: Doing) {
        let Some(change) = self.change_of(&self.here, doing) else { return };
        self.ids += 1;
        let update = Self::update(HERE, self.log.next_number(), change);
        let mut write = self.here.write().unwrap();
        let effects = effects_here(&update, &Tree::new(&*write as &dyn Read, 0));
        let Ok(Ok(effects)) = effects else { return };
        if effects.nodes.is_empty() {
            return;
        }
        partial::apply_local(&mut *write, update.stamp.number, &effects, EPOCH).unwrap();
        write.commit(Durability::Later).unwrap();
        self.log.append(update).unwrap();
    }

    /// Does it above, and says what came of it.
    fn judge_above(&mut self, update: &Update) -> Option<States> {
        let mut write = self.above.write().unwrap();
        let effects = {
            let tree = Tree::new(&*write as &dyn Read, 0);
            model::judge(update, &BeforeBirth { tree: &tree, unborn: update.makes() }).ok()?.ok()?
        };
        self.seq += 1;
        let seq = Seq(self.seq);
        let node = |(file, node)| NodeState { file, seq, node };
        let entry = |((directory, name), file)| EntryState { directory, name, seq, file };
        let states = States {
            nodes: effects.nodes.into_iter().map(node).collect(),
            entries: effects.entries.into_iter().map(entry).collect(),
        };
        partial::take_states(&mut *write, &states, EPOCH).unwrap();
        write.commit(Durability::Later).unwrap();
        Some(states)
    }

    /// How it is above with what an update touched.
    fn states_above(&self, update: &Update) -> States {
        let read = self.above.read().unwrap();
        let (tree, seq) = (Tree::new(&*read, 0), Seq(self.seq));
        let Touched { nodes, entries } = Touched::by(update);
        let node = |file| NodeState { file, seq, node: tree.node(file).ok().flatten() };
        let entry = |(directory, name): (FileId, Name)| EntryState {
            file: tree.entry(directory, &name).ok().flatten(),
            directory,
            name,
            seq,
        };
        States {
            nodes: nodes.into_iter().map(node).collect(),
            entries: entries.into_iter().map(entry).collect(),
        }
    }

    /// Somebody else changes something, and this client is told.
    fn change_elsewhere(&mut self, doing: Doing) {
        let Some(change) = self.change_of(&self.above, doing) else { return };
        self.ids += 1;
        let number = self.ids;
        let states = self.judge_above(&Self::update(ELSEWHERE, number, change));
        let mut write = self.here.write().unwrap();
        partial::take_states(&mut *write, &states.unwrap_or_default(), EPOCH).unwrap();
        write.commit(Durability::Later).unwrap();
    }

    /// Whether every pending update shows, or what was done over it later.
    fn all_show(&self) -> bool {
        let read = self.here.read().unwrap();
        let tree = Tree::new(&*read, 0);
        let mut all = true;
        let each = |update: &Update| {
            let Touched { nodes, entries } = Touched::by(update);
            let nodes = nodes.into_iter().map(|file| tree.shown_by(file).unwrap());
            let entries =
                entries.iter().map(|(at, name)| tree.entry_shown_by(*at, name).unwrap().0);
            all &= nodes.chain(entries).all(|by| by.is_some_and(|by| by >= update.stamp.number));
            Ok::<_, Error>(())
        };
        self.log.each_from(0, each).unwrap();
        all
    }

    fn show_resting(&self, gone: &[Update]) -> bool {
        let mut write = self.here.write().unwrap();
        let Some(resting) = Resting::on(&*write, &self.log, gone).unwrap() else { return false };
        let shows = resting.show(&mut *write, &Taken::default(), EPOCH).unwrap().is_some();
        if shows {
            write.commit(Durability::Later).unwrap();
        }
        shows
    }

    fn show_all(&self, gone: &[Update]) {
        let mut write = self.here.write().unwrap();
        show_pending(&mut *write, &self.log, (&Taken::default(), EPOCH), &Gone::Updates(gone))
            .unwrap();
        write.commit(Durability::Later).unwrap();
    }

    /// All files and names that there may be.
    fn all(&self) -> (Vec<FileId>, Vec<(FileId, Name)>) {
        let places = [false, true].into_iter().flat_map(|folder| (0..4).map(move |n| (folder, n)));
        ((10..=self.ids).map(FileId).collect(), places.map(place).collect())
    }

    /// Judges the first updates. Gives those that were turned down.
    fn settle(&mut self, updates_max: usize) -> Vec<Update> {
        let mut gone = Vec::new();
        for update in self.log.batch(updates_max).unwrap().updates {
            let states = self.judge_above(&update);
            if states.is_none() {
                gone.push(update.clone());
            }
            let states = states.unwrap_or_else(|| self.states_above(&update));
            assert!(self.log.retire(&update));
            let mut here = self.here.write().unwrap();
            partial::take_states(&mut *here, &states, EPOCH).unwrap();
            let touched = Touched::by(&update);
            partial::forget_local(&mut *here, update.stamp.number, &touched).unwrap();
            here.commit(Durability::Later).unwrap();
        }
        gone
    }
}

/// What would do this now; a file that it makes has this id.
fn change(tree: &Tree<'_>, (does, at): Doing, id: u64) -> Option<Change> {
    let (parent, name) = place(at);
    let found = tree.entry(parent, &name).ok().flatten();
    let node = |file| tree.node(file).ok().flatten();
    let make = |kind| Change::Make {
        parent,
        name: name.clone(),
        file: FileId(id),
        kind,
        mode: 0o600,
        uid: 0,
        gid: 0,
        target: None,
        rdev: None,
        born: None,
    };
    Some(match does {
        Does::Make => make(Kind::File),
        Does::MakeDirectory => make(Kind::Directory),
        Does::Store => {
            let (file, mtime) = (found?, Time::default());
            let contents = model::Contents::EMPTY;
            Change::Store { file, expects: node(file)?.contents_stamp, contents, mtime }
        }
        Does::SetMode(mode) => {
            let set = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
            let file = found?;
            Change::SetAttributes { file, expects: node(file)?.attributes_stamp, set }
        }
        Does::Unlink => Change::Unlink { parent, name: name.clone(), file: found?, expects: None },
        Does::Move(folder, to) => {
            let (to, to_name) = place((folder, to));
            let over = tree.entry(to, &to_name).ok().flatten();
            let (from, from_name, file) = (parent, name.clone(), found?);
            Change::Rename {
                from,
                from_name,
                to,
                to_name,
                file,
                over,
                exchange: false,
                whiteout: None,
                expects: None,
            }
        }
        Does::Link(folder, to) => {
            let (parent, name) = place((folder, to));
            Change::Link { parent, name, file: found? }
        }
    })
}

/// What shows of files, and of names.
type Shown = (Vec<Option<Node>>, Vec<Option<FileId>>);

fn shown(read: &dyn Read, files: &[FileId], entries: &[(FileId, Name)]) -> Shown {
    let tree = Tree::new(read, 0);
    (
        files.iter().map(|file| tree.node(*file).ok().flatten()).collect(),
        entries.iter().map(|(at, name)| tree.entry(*at, name).ok().flatten()).collect(),
    )
}

/// Compares showing what rests on what was turned down with showing all anew. False: all had to
/// be shown.
fn check(volume: &Volume, gone: &[Update]) -> bool {
    let (all_files, all_entries) = volume.all();
    let (found, before) = {
        let read = volume.here.read().unwrap();
        let found = Resting::on(&*read, &volume.log, gone).unwrap();
        (found, shown(&*read, &all_files, &all_entries))
    };
    let Some(resting) = found else { return false };
    let files: Vec<FileId> = resting.files().collect();
    let entries: Vec<_> = resting.entries.iter().cloned().collect();
    let mut write = volume.here.write().unwrap();
    if resting.show(&mut *write, &Taken::default(), EPOCH).unwrap().is_none() {
        return false;
    }
    let ours = shown(&*write, &files, &entries);
    let after = shown(&*write, &all_files, &all_entries);
    drop(write);
    let mut write = volume.here.write().unwrap();
    show_pending(&mut *write, &volume.log, (&Taken::default(), EPOCH), &Gone::Updates(gone))
        .unwrap();
    assert_eq!(ours, shown(&*write, &files, &entries), "of {files:?} {entries:?} without {gone:?}");
    for (at, file) in all_files.iter().enumerate().filter(|(_, file)| !files.contains(file)) {
        let is_file = |node: &Option<Node>| node.as_ref().is_none_or(|n| n.kind == Kind::File);
        // Of a directory the times may be earlier ones.
        if is_file(&before.0[at]) {
            assert_eq!(before.0[at], after.0[at], "{file} was left alone");
        }
    }
    for (at, entry) in all_entries.iter().enumerate().filter(|(_, entry)| !entries.contains(entry))
    {
        assert_eq!(before.1[at], after.1[at], "{entry:?} was left alone");
    }
    true
}

fn some_doing() -> impl Strategy<Value = Doing> {
    let does = prop_oneof![
        4 => Just(Does::Make),
        1 => Just(Does::MakeDirectory),
        4 => Just(Does::Store),
        3 => (0..0o777_u16).prop_map(Does::SetMode),
        2 => Just(Does::Unlink),
        3 => (any::<bool>(), 0..3_usize).prop_map(|(folder, name)| Does::Move(folder, name)),
        1 => (any::<bool>(), 0..3_usize).prop_map(|(folder, name)| Does::Link(folder, name)),
    ];
    (does, (any::<bool>(), 0..3_usize))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn prop_it_shows_as_if_all_were_shown_anew(
        here in prop::collection::vec(some_doing(), 1..16),
        elsewhere in prop::collection::vec(some_doing(), 1..6),
        batch in 1..5_usize,
    ) {
        let mut volume = Volume::new();
        here.into_iter().for_each(|doing| volume.change_here(doing));
        elsewhere.into_iter().for_each(|doing| volume.change_elsewhere(doing));
        while volume.log.pending_len() > 0 {
            // What does not show is not found by what it would do.
            let all_show = volume.all_show();
            let gone = volume.settle(batch);
            if all_show && !gone.is_empty() {
                check(&volume, &gone);
            }
            volume.show_all(&gone);
        }
    }

    #[test]
    fn prop_when_all_is_judged_it_is_here_as_it_is_above(
        here in prop::collection::vec(some_doing(), 1..16),
        elsewhere in prop::collection::vec(some_doing(), 1..6),
        batch in 1..5_usize,
    ) {
        let mut volume = Volume::new();
        here.into_iter().for_each(|doing| volume.change_here(doing));
        elsewhere.into_iter().for_each(|doing| volume.change_elsewhere(doing));
        while volume.log.pending_len() > 0 {
            let gone = volume.settle(batch);
            if !gone.is_empty() && !volume.show_resting(&gone) {
                volume.show_all(&gone);
            }
        }
        let (files, entries) = volume.all();
        let (here, above) = (volume.here.read().unwrap(), volume.above.read().unwrap());
        prop_assert_eq!(shown(&*here, &files, &entries), shown(&*above, &files, &entries));
    }
}

/// Whether a few need be shown anew when the first update of these is turned down.
fn is_narrow(elsewhere: &[Doing], here: &[Doing]) -> bool {
    let mut volume = Volume::new();
    here.iter().for_each(|doing| volume.change_here(*doing));
    assert_eq!(volume.log.pending_len(), here.len());
    elsewhere.iter().for_each(|doing| volume.change_elsewhere(*doing));
    let gone = volume.settle(1);
    assert_eq!(gone.len(), 1, "it meets what somebody else did");
    check(&volume, &gone)
}

#[test]
fn of_the_usual_conflicts_a_few_are_shown_anew() {
    const A: (bool, usize) = (false, 0);
    const B: (bool, usize) = (false, 1);
    // Both have stored it.
    let stores = [(Does::Store, A), (Does::SetMode(7), A), (Does::Store, A), (Does::Make, B)];
    assert!(is_narrow(&[(Does::Store, A)], &stores));
    // An editor keeps what was there beside.
    let saves = [
        (Does::Store, A),
        (Does::Move(false, 1), A),
        (Does::Make, A),
        (Does::Store, A),
        (Does::Unlink, B),
    ];
    assert!(is_narrow(&[(Does::Store, A)], &saves));
    // Both have unpacked the same archive.
    let unpacks = [(Does::Make, B), (Does::Store, B), (Does::SetMode(7), B)];
    assert!(is_narrow(&[(Does::Make, B)], &unpacks));
    let attributes = [(Does::SetMode(7), A), (Does::SetMode(8), A), (Does::Make, B)];
    assert!(is_narrow(&[(Does::SetMode(1), A)], &attributes));
}

#[test]
fn what_rests_on_a_directory_is_looked_for_in_all() {
    let makes = [(Does::MakeDirectory, (false, 1)), (Does::Make, (true, 2))];
    assert!(!is_narrow(&[(Does::MakeDirectory, (false, 1))], &makes));
}

#[test]
fn what_fails_for_another_reason_has_all_shown_anew() {
    // The place from which it is moved is not there any more, but for what comes before.
    let moves =
        [(Does::Store, (true, 1)), (Does::Move(false, 1), (true, 1)), (Does::Unlink, (false, 3))];
    assert!(!is_narrow(&[(Does::Store, (true, 1))], &moves));
}

#[test]
fn what_had_a_name_in_between_is_looked_at_too() {
    const A: (bool, usize) = (false, 0);
    const B: (bool, usize) = (true, 1);
    let elsewhere = [(Does::Unlink, A), (Does::Unlink, B)];
    // The second is moved away, though what it was to replace has gone, and so does not stand in the way.
    let here = [(Does::Unlink, B), (Does::Make, B), (Does::Move(false, 0), B), (Does::Make, B)];
    assert!(is_narrow(&elsewhere, &here));
}
