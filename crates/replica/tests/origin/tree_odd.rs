//! Trees that are out of the ordinary: on other file systems than ext4, with paths longer than a call
//! takes, with files that somebody has for himself or that have names outside.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{Ground, Place, last, settles};
use crate::party::{Party, rename_over};
use crate::tree::{Yard, find, tree_of};
use model::{AttributeChange, Change, FileId, Stamp, Time, View};
use protocol::Verdict;
use replica::Limits;
use rustix::fs::CWD;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};
use store::faulty::Failure;
use volume::whole::Whole;

/// More writes than one of the updates here takes.
const WRITES_MAX: u64 = 200;
/// More calls on a tree than what is set here takes.
const CALLS: u64 = 60;
/// After so long what could not be opened has been tried again.
const AGAIN: Duration = Duration::from_millis(200);

fn id(party: &Party, path: &str) -> Option<FileId> {
    find(party, path).map(|(_, file, _)| file)
}

fn attributes_stamp(ground: &Ground, path: &str) -> Stamp {
    let read = ground.party.tables.read().unwrap();
    let volume = ground.party.origin.volumes().unwrap()[0].id;
    let file = id(&ground.party, path).unwrap();
    Whole::now(&*read, volume).node(file).unwrap().unwrap().attributes_stamp
}

async fn rename(ground: &mut Ground, (from, to): (&str, &str)) {
    let (above, file, _) = find(&ground.party, from).unwrap();
    let over = id(&ground.party, to);
    let change = rename_over((above, last(from)), (above, last(to)), file, over);
    let verdict = ground.ada.replay(change).await;
    assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_and_has_a_name_outside_goes_on_after_a_crash() {
    for writes in 0..WRITES_MAX {
        let outside = tempfile::tempdir().unwrap();
        let mut ground = Ground::new(Limits::simulated(), Place::Beside).await;
        fs::write(ground.path("a"), "text").unwrap();
        fs::hard_link(ground.path("a"), outside.path().join("there")).unwrap();
        assert!(settles(&mut ground).await);
        let a = id(&ground.party, "a");
        rename(&mut ground, ("a", "b")).await;
        ground.disk.crash_after(writes);
        let is_done = settles(&mut ground).await;
        ground.disk.kill();
        let mut ground = ground.restarted().await;
        assert!(settles(&mut ground).await);
        let (tree, volume) = (tree_of(ground.folder.path()), ground.party.tree());
        assert_eq!((&tree[..], &volume[..]), ("b: text", "b: text"), "{writes}");
        assert_eq!(id(&ground.party, "b"), a, "{writes}");
        assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{writes}");
        if is_done {
            return;
        }
    }
    panic!("it takes more than {WRITES_MAX} writes");
}

/// On XFS and Btrfs the sync of a directory leaves out what its files got.
#[tokio::test(start_paused = true)]
async fn attributes_are_on_the_disk_before_the_tables_tell_of_them() {
    for name in ["file", "directory"] {
        let mut ground = Ground::new(Limits::simulated(), Place::Apart).await;
        fs::write(ground.path("file"), "text").unwrap();
        fs::create_dir(ground.path("directory")).unwrap();
        assert!(settles(&mut ground).await);
        let file = id(&ground.party, name).unwrap();
        let expects = attributes_stamp(&ground, name);
        let set = AttributeChange { mode: Some(0o700), ..Default::default() };
        let verdict = ground.ada.replay(Change::SetAttributes { file, expects, set }).await;
        assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
        // The change, and the sync of the directory above.
        ground.tree_disk.fail_after(2, Failure::Nothing);
        assert!(ground.keeper.round().is_err(), "{name} is waited for");
        assert!(ground.tree_disk.has_failed());
        assert!(settles(&mut ground).await);
        assert_eq!(fs::metadata(ground.path(name)).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(ground.party.conflicts(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_longer_than_a_call_takes_is_one_like_any_other() {
    let mut yard = Yard::new();
    let name = "n".repeat(250);
    fs::create_dir(yard.path("deep")).unwrap();
    fs::write(yard.path("deep/file"), "text").unwrap();
    // One more above it, again and again: no path of these is long.
    let mut path = "file".to_owned();
    for number in 0..20 {
        let (above, below) = (format!("above{number}"), yard.path("deep"));
        fs::create_dir(yard.path(&above)).unwrap();
        fs::rename(below, yard.path(&above).join(&name)).unwrap();
        fs::rename(yard.path(&above), yard.path("deep")).unwrap();
        path = format!("{name}/{path}");
    }
    yard.settle();
    let path = format!("deep/{path}");
    assert!(path.len() > 4096 && yard.find(&path).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_file_on_which_somebody_has_a_lease_holds_up_nothing() {
    for tree_piece_bytes in [4, 1000] {
        let party = Party::with(Limits { tree_piece_bytes, ..Limits::simulated() });
        let mut yard = Yard::of(party, tempfile::tempdir().unwrap());
        yard.write("a", "leased");
        yard.write("b", "b");
        let held = fs::File::open(yard.path("a")).unwrap();
        if lease(&held, libc::F_WRLCK) != 0 {
            return; // Not every file system has leases.
        }
        yard.keeper.round().unwrap();
        assert!(yard.find("b").is_some() && yard.find("a").is_none());
        assert_eq!(lease(&held, libc::F_UNLCK), 0);
        tokio::time::advance(AGAIN).await;
        assert_eq!(yard.agreed(), "a: leased\nb: b");
    }
}

#[allow(unsafe_code, reason = "no library offers the leases of fcntl(2)")]
fn lease(held: &fs::File, kind: libc::c_int) -> libc::c_int {
    // SAFETY: with these commands fcntl(2) takes numbers alone.
    unsafe {
        libc::fcntl(held.as_raw_fd(), 10, libc::SIGURG);
        libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, kind)
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_to_a_name_meanwhile_does_not_get_what_is_set_there() {
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    for calls in 0..CALLS {
        let mut ground = Ground::new(Limits::simulated(), Place::Beside).await;
        for name in ["hers", "another's"] {
            fs::write(ground.path(name), name).unwrap();
            fs::File::open(ground.path(name)).unwrap().set_modified(long_ago).unwrap();
        }
        assert!(settles(&mut ground).await);
        let expects = attributes_stamp(&ground, "hers");
        let file = id(&ground.party, "hers").unwrap();
        let mtime = Some(Time { secs: 2000, nanos: 0 });
        let set = AttributeChange { mtime, ..Default::default() };
        let verdict = ground.ada.replay(Change::SetAttributes { file, expects, set }).await;
        assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
        let [one, other] = ["hers", "another's"].map(|name| ground.path(name));
        ground.disk.meanwhile(calls, move || {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, &one, CWD, &other, exchange).unwrap();
        });
        assert!(settles(&mut ground).await);
        // If the exchange came at all.
        let is_others = |name: &&str| fs::read(ground.path(name)).unwrap() == b"another's";
        let name = ["hers", "another's"].into_iter().find(is_others).unwrap();
        let modified = fs::metadata(ground.path(name)).unwrap().modified().unwrap();
        assert_eq!(modified, long_ago, "after {calls} calls");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_made_ready_is_nobody_s_who_has_made_the_place_before() {
    let folder = tempfile::tempdir().unwrap();
    let stage = folder.path().join(".farfs-tree");
    fs::create_dir(&stage).unwrap();
    fs::set_permissions(&stage, fs::Permissions::from_mode(0o777)).unwrap();
    let own = fs::metadata(folder.path()).unwrap().uid();
    // It takes root.
    let _ = std::os::unix::fs::chown(&stage, Some(own + 1000), None);
    let mut yard = Yard::over(folder);
    // And where it was taken into use before that was seen to.
    for _ in 0..2 {
        let stage = yard.path(".farfs-tree");
        let now = fs::metadata(&stage).unwrap();
        assert_eq!((now.mode() & 0o7777, now.uid()), (0o700, own));
        fs::set_permissions(&stage, fs::Permissions::from_mode(0o777)).unwrap();
        let _ = std::os::unix::fs::chown(&stage, Some(own + 1000), None);
        yard = yard.killed();
    }
}
