//! The server's process dies over what a device did, and programs of the server go on before it is
//! up again: what it had half done is its own work, and what they did is theirs.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{Ground, Place, last, settles};
use crate::party::{Party, VOLUME, rename_over};
use crate::tree::{SERVER, find, tree_of};
use model::FileId;
use protocol::{Cutter, Verdict};
use replica::Limits;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::faulty::Failure;
use store::{Durability, Tables};

/// More writes than one of the updates here takes.
const WRITES_MAX: u64 = 200;
/// How often one looks for what a keeper does that runs, and between two looks.
const LOOKS_MAX: usize = 2000;
const LOOK: Duration = Duration::from_millis(5);

async fn ground(place: Place) -> Ground {
    let mut ground = Ground::new(Limits::simulated(), place).await;
    assert!(settles(&mut ground).await);
    ground
}

async fn restarted(ground: Ground) -> Ground {
    let mut ground = ground.restarted().await;
    assert!(settles(&mut ground).await);
    assert_eq!(tree_of(ground.folder.path()), ground.party.tree(), "tree, and volume");
    ground
}

fn id(party: &Party, path: &str) -> Option<FileId> {
    find(party, path).map(|(_, file, _)| file)
}

fn is_underway(ground: &Ground) -> bool {
    let read = ground.party.tables.read().unwrap();
    let volume = ground.party.origin.volumes().unwrap()[0].id;
    read.get("tree-underway", &volume.0.to_be_bytes()).unwrap().is_some()
}

/// Something was put into the tree and could not be written down.
fn has_undone(ground: &Ground) -> bool {
    let read = ground.party.tables.read().unwrap();
    !read.scan("tree-undone", &[], &[0xff], 1).unwrap().is_empty()
}

async fn store(ground: &mut Ground, path: &str, text: &str) {
    let (_, file, stamp) = find(&ground.party, path).unwrap();
    let change = ground.ada.storing(file, stamp, text).await;
    assert!(matches!(ground.ada.replay(change).await, Verdict::Taken(_)));
}

/// By a device, from one name to another of the same directory.
async fn rename(ground: &mut Ground, (from, to): (&str, &str)) {
    let (above, file, _) = find(&ground.party, from).unwrap();
    let over = id(&ground.party, to);
    let change = rename_over((above, last(from)), (above, last(to)), file, over);
    let verdict = ground.ada.replay(change).await;
    assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_a_program_moves_meanwhile_is_the_same_with_all_that_is_in_it() {
    for writes in 0..WRITES_MAX {
        let mut ground = ground(Place::Beside).await;
        fs::create_dir(ground.path("d")).unwrap();
        for name in ["d/a", "d/b"] {
            fs::write(ground.path(name), name).unwrap();
        }
        assert!(settles(&mut ground).await);
        let [d, a, b] = ["d", "d/a", "d/b"].map(|path| id(&ground.party, path));
        rename(&mut ground, ("d/a", "d/c")).await;
        ground.disk.crash_after(writes);
        let is_done = settles(&mut ground).await;
        ground.disk.kill();
        fs::rename(ground.path("d"), ground.path("x")).unwrap();
        let ground = restarted(ground).await;
        assert_eq!(["x", "x/c", "x/b"].map(|path| id(&ground.party, path)), [d, a, b], "{writes}");
        assert_eq!(ground.party.tree(), "x/\nx/b: d/b\nx/c: d/a", "{writes}");
        assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{writes}");
        if is_done {
            return;
        }
    }
    panic!("it takes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn it_is_so_without_a_crash_while_something_waits_to_be_put_out() {
    let mut ground = ground(Place::Beside).await;
    fs::create_dir(ground.path("d")).unwrap();
    for name in ["d/a", "d/b"] {
        fs::write(ground.path(name), name).unwrap();
    }
    assert!(settles(&mut ground).await);
    let before = ["d", "d/a", "d/b"].map(|path| id(&ground.party, path));
    store(&mut ground, "d/b", "there 1").await;
    assert!(settles(&mut ground).await);
    assert!(is_underway(&ground), "for a while");
    store(&mut ground, "d/a", "there 2").await;
    ground.disk.kill();
    fs::rename(ground.path("d"), ground.path("x")).unwrap();
    let ground = restarted(ground).await;
    assert_eq!(["x", "x/a", "x/b"].map(|path| id(&ground.party, path)), before);
    assert_eq!(ground.party.tree(), "x/\nx/a: there 2\nx/b: there 1");
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_on_the_way_may_be_a_program_s_by_then() {
    for writes in 0..WRITES_MAX {
        let mut ground = ground(Place::Beside).await;
        fs::write(ground.path("b"), "old b").unwrap();
        fs::write(ground.path("fresh"), "new b").unwrap();
        assert!(settles(&mut ground).await);
        rename(&mut ground, ("fresh", "b")).await;
        ground.disk.crash_after(writes);
        let is_done = settles(&mut ground).await;
        ground.disk.kill();
        let is_free = !ground.path("fresh").exists();
        if is_free {
            fs::write(ground.path("fresh"), "a program's").unwrap();
        }
        let ground = restarted(ground).await;
        let wanted = if is_free { "b: new b\nfresh: a program's" } else { "b: new b" };
        assert_eq!(ground.party.tree(), wanted, "{writes}");
        assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{writes}");
        if is_done {
            return;
        }
    }
    panic!("it takes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_renames_as_a_device_did_may_make_the_old_name_anew() {
    let mut ground = ground(Place::Beside).await;
    fs::write(ground.path("a"), "old a").unwrap();
    fs::write(ground.path("b"), "old b").unwrap();
    assert!(settles(&mut ground).await);
    rename(&mut ground, ("a", "b")).await;
    fs::rename(ground.path("a"), ground.path("b")).unwrap();
    fs::write(ground.path("a"), "new a").unwrap();
    assert!(settles(&mut ground).await);
    assert_eq!(ground.party.tree(), "a: new a\nb: old a");
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn that_a_removal_met_a_move_is_told_also_of_a_file_of_several_names() {
    for is_linked in [false, true] {
        let mut ground = ground(Place::Beside).await;
        fs::write(ground.path("a"), "text").unwrap();
        if is_linked {
            fs::hard_link(ground.path("a"), ground.path("b")).unwrap();
        }
        assert!(settles(&mut ground).await);
        rename(&mut ground, ("a", "c")).await;
        fs::remove_file(ground.path("a")).unwrap();
        assert!(settles(&mut ground).await);
        assert!(ground.party.tree().ends_with("c: text"), "{}", ground.party.tree());
        assert_eq!(ground.party.conflicts(), ["NotDone a by attic"], "{is_linked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_does_not_keep_a_tree_from_being_kept() {
    let mut ground = ground(Place::Apart).await;
    fs::write(ground.path("a"), "a").unwrap();
    ground.ada.write_new(FileId::ROOT, "z", "z").await;
    assert!(settles(&mut ground).await);
    assert!(is_underway(&ground));
    rename(&mut ground, ("a", "b")).await;
    ground.disk.fill_after(0);
    assert!(ground.keeper.round().is_err(), "nothing can be written down");
    let tree = ground.tree_disk.tree(ground.folder.path()).unwrap();
    ground.keeper = ground.party.origin.keep_opened(VOLUME, tree, SERVER).unwrap();
    ground.disk.make_room();
    assert!(settles(&mut ground).await);
    assert_eq!(tree_of(ground.folder.path()), "b: a\nz: z");
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_a_program_does_to_what_could_not_be_written_down_is_done_to_that_file() {
    let mut ground = ground(Place::Apart).await;
    for name in ["a", "c"] {
        fs::write(ground.path(name), name).unwrap();
    }
    ground.ada.write_new(FileId::ROOT, "z", "z").await;
    assert!(settles(&mut ground).await);
    let [a, c] = ["a", "c"].map(|path| id(&ground.party, path));
    rename(&mut ground, ("a", "b")).await;
    rename(&mut ground, ("c", "d")).await;
    ground.disk.fill_after(0);
    assert!(ground.keeper.round().is_err(), "nothing can be written down");
    assert_eq!(tree_of(ground.folder.path()), "b: a\nd: c\nz: z");
    fs::write(ground.path("b"), "a program's").unwrap();
    fs::rename(ground.path("d"), ground.path("c")).unwrap();
    ground.disk.make_room();
    // By then a device has moved them on, too.
    rename(&mut ground, ("b", "e")).await;
    assert!(settles(&mut ground).await);
    assert_eq!(tree_of(ground.folder.path()), "c: c\ne: a program's\nz: z");
    assert_eq!(ground.party.tree(), "c: c\ne: a program's\nz: z");
    assert_eq!(["e", "c"].map(|path| id(&ground.party, path)), [a, c]);
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_the_tree_has_lost_again_since_a_failure_is_put_there_anew() {
    let mut lost = 0;
    for writes in 0..WRITES_MAX {
        let mut ground = ground(Place::Beside).await;
        fs::write(ground.path("a"), "text").unwrap();
        assert!(settles(&mut ground).await);
        let before = id(&ground.party, "a");
        rename(&mut ground, ("a", "b")).await;
        ground.disk.fail_after(writes, Failure::Nothing);
        let failed = ground.keeper.round().is_err();
        let is_done = !ground.disk.has_failed();
        if failed && has_undone(&ground) {
            fs::rename(ground.path("b"), ground.path("a")).unwrap();
            lost += 1;
        }
        let ground = restarted(ground).await;
        assert_eq!(ground.party.tree(), "b: text", "{writes}");
        assert_eq!(id(&ground.party, "b"), before, "{writes}");
        assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{writes}");
        if is_done {
            assert!(lost > 1, "{lost}");
            return;
        }
    }
    panic!("it takes more than {WRITES_MAX} writes");
}

/// A file whose name in the tree a device has changed, and its id.
async fn renamed(place: Place) -> (Ground, Option<FileId>) {
    let mut ground = ground(place).await;
    fs::write(ground.path("a"), "text").unwrap();
    assert!(settles(&mut ground).await);
    let before = id(&ground.party, "a");
    rename(&mut ground, ("a", "b")).await;
    (ground, before)
}

/// It can be changed again, and has lost what was not on its disk.
async fn comes_back_without_it(mut ground: Ground, before: Option<FileId>, restarts: bool) {
    fs::rename(ground.path("b"), ground.path("a")).unwrap();
    ground.tree_disk.set_read_only(false);
    ground = if restarts { restarted(ground).await } else { ground };
    assert!(settles(&mut ground).await);
    assert_eq!(tree_of(ground.folder.path()), "b: text");
    assert_eq!((ground.party.tree().as_str(), id(&ground.party, "b")), ("b: text", before));
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
    assert!(!has_undone(&ground));
}

#[tokio::test(start_paused = true)]
async fn a_sync_of_what_has_become_read_only_says_nothing() {
    let mut failures = 0;
    for (writes, restarts) in (0..WRITES_MAX).flat_map(|writes| [(writes, false), (writes, true)]) {
        let (mut ground, before) = renamed(Place::Apart).await;
        ground.tree_disk.fail_after(writes, Failure::Nothing);
        let failed = ground.keeper.round().is_err();
        if !ground.tree_disk.has_failed() {
            assert!(failures > 1, "{failures}");
            return;
        }
        if !failed || !has_undone(&ground) {
            continue;
        }
        failures += 1;
        ground.tree_disk.set_read_only(true);
        for _ in 0..3 {
            let error = ground.keeper.round().unwrap_err().to_string();
            assert!(error.contains("read-only"), "{error}");
            assert!(has_undone(&ground), "it is not known to be on the disk");
            let state = ground.party.origin.trees().unwrap().remove(0).state.unwrap();
            assert!(state.read_only && state.trouble == Some(error), "{state:?}");
        }
        comes_back_without_it(ground, before, restarts).await;
    }
    panic!("it takes more than {WRITES_MAX} writes");
}

#[tokio::test(start_paused = true)]
async fn nor_does_that_of_what_becomes_read_only_meanwhile() {
    let mut undone = 0;
    for (calls, restarts) in (0..WRITES_MAX).flat_map(|calls| [(calls, false), (calls, true)]) {
        let (mut ground, before) = renamed(Place::Apart).await;
        let disk = ground.tree_disk.clone();
        let turned = Arc::new(AtomicBool::new(false));
        let turns = turned.clone();
        ground.tree_disk.meanwhile(calls, move || {
            disk.set_read_only(true);
            turns.store(true, Ordering::SeqCst);
        });
        let _ = ground.keeper.round();
        if !turned.load(Ordering::SeqCst) {
            assert!(undone > 1, "{undone}");
            return;
        }
        if has_undone(&ground) && ground.path("b").exists() {
            undone += 1;
            comes_back_without_it(ground, before, restarts).await;
            continue;
        }
        ground.tree_disk.set_read_only(false);
        assert!(settles(&mut ground).await, "{calls}");
        assert_eq!(tree_of(ground.folder.path()), "b: text", "{calls}");
        assert_eq!(id(&ground.party, "b"), before, "{calls}");
    }
    panic!("it takes more than {WRITES_MAX} calls");
}

/// Just before the call on the tree that follows these, it becomes read-only.
fn becomes_read_only(ground: &Ground, calls: u64) {
    let disk = ground.tree_disk.clone();
    ground.tree_disk.meanwhile(calls, move || disk.set_read_only(true));
}

/// After how many calls that is over what is in the tree by then.
async fn calls_before_undone() -> u64 {
    for calls in 0..WRITES_MAX {
        let (mut ground, _) = renamed(Place::Apart).await;
        becomes_read_only(&ground, calls);
        if ground.keeper.round().is_err() && has_undone(&ground) && ground.path("b").exists() {
            return calls;
        }
    }
    panic!("none is");
}

/// Until it is so, for as long as a slow machine may take.
fn comes_true(is_so: impl Fn() -> bool) -> bool {
    (0..LOOKS_MAX).any(|_| {
        std::thread::sleep(LOOK);
        is_so()
    })
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_runs_tries_it_again_until_the_tree_can_be_changed() {
    let (mut ground, before) = renamed(Place::Apart).await;
    becomes_read_only(&ground, calls_before_undone().await);
    let spare = tempfile::tempdir().unwrap();
    let other = ground.party.origin.create_volume("z", 0, 0, Cutter::Gear);
    let other = ground.party.origin.keep_tree(&other.unwrap().name, spare.path(), SERVER).unwrap();
    let keeper = std::mem::replace(&mut ground.keeper, other);
    let (stopper, clock) = (keeper.stopper(), tokio::runtime::Handle::current());
    let stops = stopper.clone();
    let thread = std::thread::spawn(move || {
        let _clock = clock.enter();
        keeper.run(&stops);
    });
    assert!(comes_true(|| has_undone(&ground)));
    let state = |ground: &Ground| {
        let mut trees = ground.party.origin.trees().unwrap().into_iter();
        trees.find(|tree| tree.volume == VOLUME).unwrap().state.unwrap()
    };
    // Each change wakes it.
    for name in ["c", "d"] {
        ground.ada.write_new(FileId::ROOT, name, name).await;
        let is_said = || state(&ground).trouble.is_some_and(|why| why.contains("is read-only"));
        assert!(comes_true(is_said), "{:?}", state(&ground));
        assert!(has_undone(&ground) && !ground.path(name).exists());
    }
    ground.tree_disk.set_read_only(false);
    ground.ada.write_new(FileId::ROOT, "e", "e").await;
    assert!(comes_true(|| tree_of(ground.folder.path()) == ground.party.tree()));
    assert!(!has_undone(&ground));
    let is_well = || {
        let state = state(&ground);
        state.trouble.is_none() && !state.read_only && state.waiting == 0
    };
    assert!(comes_true(is_well), "{:?}", state(&ground));
    stopper.stop();
    thread.join().unwrap();
    assert_eq!(ground.party.tree(), "b: text\nc: c\nd: d\ne: e");
    assert_eq!(id(&ground.party, "b"), before);
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn in_a_tree_that_is_read_only_what_devices_did_waits_and_all_else_goes_on() {
    let (mut ground, before) = renamed(Place::Apart).await;
    ground.tree_disk.set_read_only(true);
    for _ in 0..3 {
        ground.keeper.round().unwrap();
    }
    assert!(!has_undone(&ground));
    // Another who shares the file system has it otherwise.
    fs::write(ground.path("c"), "c").unwrap();
    for _ in 0..20 {
        ground.keeper.round().unwrap();
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert_eq!(ground.party.tree(), "b: text\nc: c");
    ground.tree_disk.set_read_only(false);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(settles(&mut ground).await);
    assert_eq!(tree_of(ground.folder.path()), "b: text\nc: c");
    assert_eq!(id(&ground.party, "b"), before);
}

#[tokio::test(start_paused = true)]
async fn the_tree_is_not_changed_before_that_is_written_down() {
    let mut ground = ground(Place::Apart).await;
    fs::write(ground.path("a"), "a").unwrap();
    assert!(settles(&mut ground).await);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(settles(&mut ground).await);
    assert!(!is_underway(&ground), "nothing was done for a while");
    rename(&mut ground, ("a", "c")).await;
    ground.disk.fill_after(0);
    assert!(ground.keeper.round().is_err(), "it cannot be");
    assert!(ground.path("a").exists());
    ground.disk.make_room();
    assert!(settles(&mut ground).await);
    assert!(ground.path("c").exists() && is_underway(&ground));
}

#[tokio::test(start_paused = true)]
async fn what_a_program_moves_into_a_directory_that_took_a_name_stays_the_same_file() {
    let mut ground = ground(Place::Beside).await;
    fs::create_dir(ground.path("d")).unwrap();
    fs::write(ground.path("e"), "e").unwrap();
    assert!(settles(&mut ground).await);
    let before = ["d", "e"].map(|path| id(&ground.party, path));
    fs::rename(ground.path("d"), ground.path("a")).unwrap();
    fs::create_dir(ground.path("d")).unwrap();
    fs::rename(ground.path("e"), ground.path("d/e")).unwrap();
    assert!(settles(&mut ground).await);
    assert_eq!(ground.party.tree(), "a/\nd/\nd/e: e");
    assert_eq!(["a", "d/e"].map(|path| id(&ground.party, path)), before);
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
}

/// The file keeps its name in the tables, though the one that took its old name was put as it should be.
#[tokio::test(start_paused = true)]
async fn what_a_program_does_to_a_file_before_it_could_be_written_down_is_done_to_it_after_a_death()
{
    let (mut writes, mut failed) = (0, true);
    while failed {
        let mut ground = ground(Place::Apart).await;
        ground.ada.write_new(FileId::ROOT, "log", "first").await;
        assert!(settles(&mut ground).await);
        let first = id(&ground.party, "log");
        rename(&mut ground, ("log", "log.1")).await;
        ground.ada.write_new(FileId::ROOT, "log", "second").await;
        ground.disk.fail_after(writes, Failure::Nothing);
        failed = ground.keeper.round().is_err();
        ground.disk.kill();
        let rotated = ground.path("log.1");
        if rotated.exists() {
            fs::set_permissions(&rotated, Permissions::from_mode(0o600)).unwrap();
        }
        let is_private = |ground: &Ground| {
            let mode = fs::metadata(ground.path("log.1")).unwrap().permissions().mode();
            mode & 0o777 == 0o600
        };
        let was_there = rotated.exists();
        let mut ground = ground.restarted().await;
        assert!(settles(&mut ground).await, "{writes}");
        assert_eq!(tree_of(ground.folder.path()), "log: second\nlog.1: first", "{writes}");
        assert_eq!(ground.party.tree(), "log: second\nlog.1: first", "{writes}");
        assert_eq!(id(&ground.party, "log.1"), first, "{writes}");
        assert_eq!(is_private(&ground), was_there, "{writes}: what the program did");
        assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{writes}");
        writes += 1;
    }
    assert!(writes > 3, "some of it failed: {writes}");
}

/// It is a hint: without it what is in the tree is judged as it is seen.
#[tokio::test(start_paused = true)]
async fn a_damaged_row_of_what_could_not_be_written_down_keeps_nobody_from_starting() {
    let ground = ground(Place::Apart).await;
    let tables = ground.disk.tables("t");
    let mut write = tables.write().unwrap();
    let key = [&1u32.to_be_bytes()[..], &7u64.to_be_bytes()].concat();
    write.put("tree-undone", &key, &[0xff]).unwrap();
    write.commit(Durability::Now).unwrap();
    let mut ground = ground.restarted().await;
    fs::write(ground.path("a"), "goes on").unwrap();
    assert!(settles(&mut ground).await);
    assert_eq!(ground.party.tree(), "a: goes on");
    assert!(!has_undone(&ground), "it is not told of again");
}
