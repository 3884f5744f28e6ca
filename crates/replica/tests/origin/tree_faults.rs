//! A volume and its directory while the machine crashes, the disk is full, or events get lost.
//! What either side stored is there in the end, or was replaced or removed by who had seen it.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{Ground, Place, Stories, cases, last, paused};
use crate::party::{make_of, rename_over, unlink_of};
use crate::tree::{find, tree_of};
use model::{FileId, Kind};
use proptest::prelude::*;
use protocol::Verdict;
use replica::Limits;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use store::faulty::Failure;

/// Rounds after which both sides agree.
const ROUNDS_MAX: usize = 80;
/// Time that passes from one to the next.
const ROUND: Duration = Duration::from_millis(50);
/// More writes than a scenario makes.
const WRITES_MAX: u64 = 2000;
/// Events that the kernel keeps for one who does not read them, and some.
const EVENTS: usize = 20_000;

/// On it programs and devices are at work.
struct Plot {
    ground: Ground,
    stories: Stories,
}

impl Deref for Plot {
    type Target = Ground;
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl DerefMut for Plot {
    fn deref_mut(&mut self) -> &mut Ground {
        &mut self.ground
    }
}

impl Plot {
    async fn new(place: Place) -> Plot {
        Plot::with(place, Limits::simulated()).await
    }

    /// Where every file is large, and is read and written a piece at a time.
    async fn of_large_files(place: Place) -> Plot {
        Plot::with(place, Limits { tree_piece_bytes: 4, ..Limits::simulated() }).await
    }

    async fn with(place: Place, limits: Limits) -> Plot {
        let ground = Ground::new(limits, place).await;
        let mut plot = Plot { ground, stories: Stories::default() };
        assert!(plot.settle().await);
        plot
    }

    /// Until both sides agree. False: the machine crashed before.
    async fn settle(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            if self.keeper.round().is_err() {
                assert!(self.disk.has_crashed(), "nothing else went wrong");
                return false;
            }
            if self.keeper.is_settled() && self.keeper.round().is_ok() && self.keeper.is_settled() {
                return true;
            }
            // What was written to while it was read is read again after a while.
            tokio::time::advance(ROUND).await;
        }
        if self.disk.has_crashed() {
            return false;
        }
        panic!("there is always more to do:\n{}\n--\n{}", self.tree(), self.party.tree());
    }

    async fn restarted(self) -> Plot {
        Plot { ground: self.ground.restarted().await, ..self }
    }

    fn tree(&self) -> String {
        tree_of(self.folder.path())
    }

    /// Both sides are the same, and nothing got lost.
    async fn agree(&mut self) {
        assert!(self.settle().await);
        let (tree, volume) = (self.tree(), self.party.tree());
        assert_eq!(tree, volume, "tree, and volume");
        let staged = fs::read_dir(self.path(".farfs-tree")).unwrap().count();
        assert_eq!(staged, 1, "nothing is left in the stage but its mark");
        self.stories.all_there(&tree);
    }

    /// What programs of the server have before them at a path and below it.
    fn before_programs(&self, at: &Path) -> Vec<String> {
        if at.is_dir() {
            let entries = fs::read_dir(at).into_iter().flatten().flatten();
            return entries.flat_map(|entry| self.before_programs(&entry.path())).collect();
        }
        fs::read_to_string(at).into_iter().collect()
    }

    /// By a program of the server. What cannot be done is not done.
    fn here(&mut self, act: &Act) {
        let ground = &self.ground;
        let path = |at: &usize| ground.path(PATHS[*at]);
        let replaced = match act {
            Act::Store(at) | Act::Save(at) | Act::Remove(at) | Act::Rename(_, at) => {
                self.before_programs(&path(at))
            }
            Act::MakeDirectory(_) => Vec::new(),
        };
        let text = self.stories.next("here");
        let temporary = self.path("tmp");
        let done = match act {
            Act::Store(at) => fs::write(path(at), &text),
            Act::Save(at) => fs::write(&temporary, &text)
                .and_then(|()| fs::rename(&temporary, path(at)))
                .or_else(|error| fs::remove_file(&temporary).and(Err(error))),
            Act::Rename(from, to) => fs::rename(path(from), path(to)),
            Act::Remove(at) => fs::remove_file(path(at)).or_else(|_| fs::remove_dir_all(path(at))),
            Act::MakeDirectory(at) => fs::create_dir(path(at)),
        };
        if done.is_err() {
            return;
        }
        if matches!(act, Act::Store(_) | Act::Save(_)) {
            self.stories.stored.insert(text);
        }
        if !matches!(act, Act::Rename(from, to) if from == to) {
            self.stories.excused.extend(replaced);
        }
    }

    /// What the volume has at a path.
    fn before_devices(&self, at: &str) -> Option<String> {
        let line = self.party.tree();
        let of = |line: &str| Some(line.strip_prefix(at)?.strip_prefix(": ")?.to_owned());
        line.lines().find_map(of)
    }

    /// By a device.
    async fn there(&mut self, act: &Act) {
        let text = self.stories.next("there");
        match act {
            Act::Store(at) | Act::Save(at) => self.store(PATHS[*at], text).await,
            Act::Rename(from, to) => {
                let (from, to) = (PATHS[*from], PATHS[*to]);
                let (Some((above, file, _)), Some(to_above)) =
                    (find(&self.party, from), self.parent(to))
                else {
                    return;
                };
                let over = find(&self.party, to).map(|(_, file, _)| file);
                let replaced = self.before_devices(to).filter(|_| over != Some(file));
                let names = ((above, last(from)), (to_above, last(to)));
                let rename = rename_over(names.0, names.1, file, over);
                if matches!(self.ada.replay(rename).await, Verdict::Taken(_)) {
                    self.stories.excused.extend(replaced);
                }
            }
            Act::Remove(at) => {
                let Some((above, file, _)) = find(&self.party, PATHS[*at]) else { return };
                let removed = self.before_devices(PATHS[*at]);
                let unlink = unlink_of(above, last(PATHS[*at]), file);
                if matches!(self.ada.replay(unlink).await, Verdict::Taken(_)) {
                    self.stories.excused.extend(removed);
                }
            }
            Act::MakeDirectory(at) => {
                let Some(parent) = self.parent(PATHS[*at]) else { return };
                let file = self.ada.fresh_file();
                self.ada.replay(make_of(parent, last(PATHS[*at]), file, Kind::Directory)).await;
            }
        }
    }

    async fn store(&mut self, at: &str, text: String) {
        let replaced = self.before_devices(at);
        let (file, stamp) = match (find(&self.party, at), self.parent(at)) {
            (Some((_, file, stamp)), _) if replaced.is_some() => (file, stamp),
            (None, Some(parent)) => {
                let (file, make) = self.ada.making(parent, last(at), Kind::File);
                if !matches!(self.ada.replay(make).await, Verdict::Taken(_)) {
                    return;
                }
                (file, self.ada.stamp())
            }
            _ => return,
        };
        let store = self.ada.storing(file, stamp, &text).await;
        if matches!(self.ada.replay(store).await, Verdict::Taken(_) | Verdict::KeptAside { .. }) {
            self.stories.stored.insert(text);
            self.stories.excused.extend(replaced);
        }
    }

    /// The directory that a path is in.
    fn parent(&self, at: &str) -> Option<FileId> {
        match at.rsplit_once('/') {
            None => Some(FileId::ROOT),
            Some((above, _)) => {
                let line = format!("{above}/");
                let is_directory = self.party.tree().lines().any(|found| found == line);
                find(&self.party, above).filter(|_| is_directory).map(|(_, file, _)| file)
            }
        }
    }
}

const PATHS: [&str; 8] = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/a"];

#[derive(Clone, Debug)]
enum Act {
    Store(usize),
    Save(usize),
    Rename(usize, usize),
    Remove(usize),
    MakeDirectory(usize),
}

/// Of every kind, on both sides, and some of the same names on both.
async fn much(plot: &mut Plot) {
    for act in [Act::MakeDirectory(3), Act::Store(4), Act::Save(0), Act::Store(1)] {
        plot.here(&act);
    }
    assert!(plot.settle().await);
    plot.there(&Act::Store(0)).await;
    plot.here(&Act::Save(0));
    plot.there(&Act::Store(4)).await;
    plot.there(&Act::Store(5)).await;
    plot.there(&Act::Rename(1, 2)).await;
    plot.there(&Act::MakeDirectory(6)).await;
    plot.here(&Act::MakeDirectory(6));
    plot.here(&Act::Store(7));
    plot.here(&Act::Rename(3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_loses_nothing_of_what_either_side_did() {
    for writes in 0..WRITES_MAX {
        let mut plot = Plot::new(Place::Beside).await;
        much(&mut plot).await;
        plot.disk.crash_after(writes);
        if plot.settle().await {
            assert!(writes > 20, "{writes}");
            return;
        }
        let mut plot = plot.restarted().await;
        plot.agree().await;
    }
    panic!("the scenario makes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_loses_nothing_of_what_either_side_did() {
    for (failure, large) in [(Failure::Nothing, false), (Failure::All, true)] {
        fails_at_every_write(failure, large).await;
    }
}

async fn fails_at_every_write(failure: Failure, large: bool) {
    for writes in 0..WRITES_MAX {
        let mut plot = match large {
            true => Plot::of_large_files(Place::Beside).await,
            false => Plot::new(Place::Beside).await,
        };
        much(&mut plot).await;
        plot.disk.fail_after(writes, failure);
        for _ in 0..ROUNDS_MAX {
            let done = plot.keeper.round();
            assert!(done.is_ok() || plot.disk.has_failed(), "nothing else went wrong");
            if plot.disk.has_failed() || plot.keeper.is_settled() {
                break;
            }
            tokio::time::advance(ROUND).await;
        }
        if !plot.disk.has_failed() {
            assert!(writes > 20, "{writes}");
            return;
        }
        plot.here(&Act::Save(1));
        plot.there(&Act::Store(7)).await;
        plot.agree().await;
    }
    panic!("the scenario makes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_large_files_are_under_way_loses_nothing() {
    // Each second write, for there are many.
    for writes in (0..WRITES_MAX).step_by(2) {
        let mut plot = Plot::of_large_files(Place::Beside).await;
        much(&mut plot).await;
        plot.disk.crash_after(writes);
        if plot.settle().await {
            assert!(writes > 20, "{writes}");
            return;
        }
        let mut plot = plot.restarted().await;
        plot.agree().await;
    }
    panic!("the scenario makes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_the_disk_of_the_tree_is_full_loses_nothing() {
    for room in [0, 20, 200] {
        for writes in 0..WRITES_MAX {
            let mut plot = Plot::new(Place::Apart).await;
            much(&mut plot).await;
            plot.tree_disk.fill_after(room);
            plot.disk.crash_after(writes);
            for _ in 0..5 {
                let _ = plot.keeper.round();
            }
            if !plot.disk.has_crashed() {
                assert!(writes > 5, "{writes} with {room}");
                break;
            }
            let mut plot = plot.restarted().await;
            for _ in 0..3 {
                let _ = plot.keeper.round();
            }
            plot.tree_disk.make_room();
            plot.agree().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_device_stores_into_a_file_of_several_names_leaves_one_file() {
    for writes in 0..WRITES_MAX {
        let mut plot = Plot::new(Place::Beside).await;
        plot.here(&Act::Store(1));
        for name in ["a", "c"] {
            fs::hard_link(plot.path("b"), plot.path(name)).unwrap();
        }
        assert!(plot.settle().await);
        plot.there(&Act::Store(1)).await;
        plot.disk.crash_after(writes);
        let is_done = plot.settle().await;
        if !is_done {
            plot = plot.restarted().await;
        }
        plot.agree().await;
        assert_eq!(plot.tree(), "a: there 2\nb: there 2\nc: there 2", "{writes}");
        let numbers = ["a", "b", "c"].map(|name| fs::metadata(plot.path(name)).unwrap().ino());
        assert_eq!(numbers, [numbers[0]; 3], "{writes}: the tree");
        let files = ["a", "b", "c"].map(|name| find(&plot.party, name).unwrap().1);
        assert_eq!(files, [files[0]; 3], "{writes}: the volume");
        assert_eq!(plot.party.conflicts(), Vec::<String>::new(), "{writes}");
        if is_done {
            assert!(writes > 8, "{writes}");
            return;
        }
    }
    panic!("the scenario makes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn what_programs_do_before_the_server_is_up_again_is_done_to_what_it_had_put_there() {
    for act in [Act::Rename(0, 1), Act::Store(0), Act::Save(0), Act::Remove(0)] {
        for writes in 0..WRITES_MAX {
            let mut plot = Plot::new(Place::Beside).await;
            plot.here(&Act::Store(0));
            assert!(plot.settle().await);
            plot.there(&Act::Store(0)).await;
            plot.disk.crash_after(writes);
            if plot.settle().await {
                assert!(writes > 5, "{act:?}: {writes}");
                break;
            }
            plot.here(&act);
            let mut plot = plot.restarted().await;
            plot.agree().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_from_one_name_to_another_goes_on_after_a_crash() {
    for writes in 0..WRITES_MAX {
        let mut plot = Plot::new(Place::Beside).await;
        // The device comes first: what the program made is to bear another name.
        plot.there(&Act::Store(3)).await;
        plot.here(&Act::Store(3));
        plot.here(&Act::Save(0));
        plot.disk.crash_after(writes);
        let settled = plot.settle().await;
        plot.disk.kill();
        let mut plot = plot.restarted().await;
        plot.agree().await;
        if settled {
            assert!(writes > 15, "{writes}");
            return;
        }
    }
    panic!("the scenario makes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_of_the_tree_holds_up_what_devices_did_and_loses_nothing() {
    let mut waited = 0;
    for room in [0, 1, 7, 20, 60, 200] {
        let mut plot = Plot::new(Place::Apart).await;
        much(&mut plot).await;
        plot.tree_disk.fill_after(room);
        for _ in 0..20 {
            // What changes in the tree goes on being taken in.
            let _ = plot.keeper.round();
        }
        waited += usize::from(!plot.keeper.is_settled());
        plot.here(&Act::Store(0));
        plot.there(&Act::Store(4)).await;
        let _ = plot.keeper.round();
        plot.tree_disk.make_room();
        plot.agree().await;
    }
    assert!(waited > 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_of_the_server_holds_up_what_programs_did_and_loses_nothing() {
    for room in [0, 50, 300, 2000] {
        let mut plot = Plot::new(Place::Apart).await;
        much(&mut plot).await;
        plot.disk.fill_after(room);
        for _ in 0..20 {
            let _ = plot.keeper.round();
        }
        plot.here(&Act::Store(0));
        let _ = plot.keeper.round();
        plot.disk.make_room();
        plot.agree().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_event_tells_of_because_there_were_too_many_is_found() {
    let mut plot = Plot::new(Place::Apart).await;
    plot.here(&Act::Store(0));
    plot.agree().await;
    for number in 0..EVENTS / 2 {
        let path = plot.path(if number % 2 == 0 { "one" } else { "two" });
        fs::File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
    }
    // The queue of the kernel is full by now.
    plot.here(&Act::Store(0));
    plot.here(&Act::Save(1));
    plot.agree().await;
    assert!(plot.party.tree().contains("a: here"), "{}", plot.party.tree());
}

#[derive(Clone, Debug)]
enum Move {
    Here(Act),
    There(Act),
    Round,
    /// The machine dies after so many writes of the rounds that follow.
    Crash(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let at = 0..PATHS.len();
    prop_oneof![
        4 => at.clone().prop_map(Act::Store),
        2 => at.clone().prop_map(Act::Save),
        3 => (at.clone(), at.clone()).prop_map(|(from, to)| Act::Rename(from, to)),
        2 => at.clone().prop_map(Act::Remove),
        2 => at.prop_map(Act::MakeDirectory),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        5 => act().prop_map(Move::Here),
        5 => act().prop_map(Move::There),
        2 => Just(Move::Round),
        2 => (0..60u64).prop_map(Move::Crash),
    ];
    prop::collection::vec(one, 1..30)
}

async fn play(moves: Vec<Move>, large: bool) {
    let mut plot = match large {
        true => Plot::of_large_files(Place::Beside).await,
        false => Plot::new(Place::Beside).await,
    };
    for one in &moves {
        match one {
            Move::Here(act) => plot.here(act),
            Move::There(act) => plot.there(act).await,
            Move::Round => drop(plot.keeper.round().unwrap()),
            Move::Crash(writes) => {
                plot.disk.crash_after(*writes);
                if plot.settle().await {
                    plot.disk.kill();
                }
                plot = plot.restarted().await;
            }
        }
    }
    plot.agree().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn prop_whatever_both_sides_do_and_whenever_it_crashes_nothing_is_lost(
        moves in moves(),
        large in any::<bool>(),
    ) {
        paused(play(moves, large));
    }
}
