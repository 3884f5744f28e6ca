//! Directories of a tree that the server may not open: what is in them stays as it was seen last,
//! and all else goes on.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::last;
use crate::party::{Device, Party, VOLUME, unlink_of};
use crate::tree::{SERVER, Yard};
use protocol::Verdict;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use store::faulty::Disk;

/// Longer than the server waits before it tries again what it was not told of.
const WHILE: Duration = Duration::from_secs(61);
/// Rounds in which all is done that can be.
const ROUNDS: usize = 20;

/// A tree whose server is not root.
struct House {
    yard: Yard,
    disk: Disk,
}

impl House {
    /// With `d/a`, `d/e/b` and `f`.
    fn new() -> House {
        let (party, disk) = (Party::new(), Disk::new(1));
        let folder = tempfile::tempdir().unwrap();
        let tree = disk.tree(folder.path()).unwrap();
        let keeper = party.origin.keep_opened(VOLUME, tree, SERVER).unwrap();
        let mut house = House { yard: Yard { party, folder, keeper }, disk };
        fs::create_dir_all(house.yard.path("d/e")).unwrap();
        for (name, text) in [("d/a", "one"), ("d/e/b", "two"), ("f", "three")] {
            house.yard.write(name, text);
        }
        assert_eq!(house.yard.agreed(), "d/\nd/a: one\nd/e/\nd/e/b: two\nf: three");
        house
    }

    /// The next that the server is told of is that its owner has closed or opened it.
    fn bar(&self, name: &str, is_barred: bool) {
        let path = self.yard.path(name);
        let mode = if is_barred { 0o700 } else { 0o755 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self.disk.bar(if is_barred { std::slice::from_ref(&path) } else { &[] });
    }

    fn rounds(&mut self) {
        for _ in 0..ROUNDS {
            self.yard.keeper.round().unwrap();
        }
    }

    fn barred(&self) -> Vec<String> {
        self.yard.party.origin.trees().unwrap()[0].state.clone().unwrap().barred
    }

    fn restarted(self) -> House {
        let House { yard: Yard { party, folder, keeper }, disk } = self;
        drop(keeper);
        let party = party.killed();
        let tree = disk.tree(folder.path()).unwrap();
        let keeper = party.origin.keep_opened(VOLUME, tree, SERVER).unwrap();
        House { yard: Yard { party, folder, keeper }, disk }
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_opened_stays_as_it_was_and_all_else_goes_on() {
    let mut house = House::new();
    house.bar("d", true);
    house.yard.write("d/a", "one more");
    fs::remove_file(house.yard.path("d/e/b")).unwrap();
    house.yard.write("g", "four");
    house.rounds();
    let as_it_was = "d/\nd/a: one\nd/e/\nd/e/b: two\nf: three\ng: four";
    assert_eq!(house.yard.party.tree(), as_it_was);
    assert_eq!(house.barred(), ["d"]);
    // Nor is it taken for removed by one who looks at everything.
    let mut house = house.restarted();
    house.rounds();
    assert_eq!(house.yard.party.tree(), as_it_was);
    assert_eq!(house.barred(), ["d"]);
    house.bar("d", false);
    assert_eq!(house.yard.agreed(), "d/\nd/a: one more\nd/e/\nf: three\ng: four");
    assert_eq!(house.barred(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_open_again_without_a_word_is_found_in_time() {
    let mut house = House::new();
    fs::create_dir_all(house.yard.path("h/i")).unwrap();
    house.yard.write("h/i/c", "five");
    house.disk.bar(&[house.yard.path("h")]);
    house.rounds();
    assert!(house.yard.party.tree().ends_with("\nf: three\nh/"), "{}", house.yard.party.tree());
    house.disk.bar(&[]);
    house.rounds();
    assert_eq!(house.barred(), ["h"]);
    tokio::time::advance(WHILE).await;
    assert!(house.yard.agreed().ends_with("\nh/\nh/i/\nh/i/c: five"));
}

#[tokio::test(start_paused = true)]
async fn what_comes_out_of_it_is_the_same_file_and_loses_its_old_name_when_that_can_be_seen() {
    let mut house = House::new();
    let (_, file, _) = house.yard.find("d/a").unwrap();
    house.bar("d", true);
    fs::rename(house.yard.path("d/a"), house.yard.path("a")).unwrap();
    fs::rename(house.yard.path("d/e"), house.yard.path("e")).unwrap();
    house.rounds();
    let meanwhile = "a: one\nd/\nd/a: one\ne/\ne/b: two\nf: three";
    assert_eq!(house.yard.party.tree(), meanwhile, "a directory is in one place only");
    house.bar("d", false);
    assert_eq!(house.yard.agreed(), "a: one\nd/\ne/\ne/b: two\nf: three");
    assert_eq!(house.yard.find("a").unwrap().1, file);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_removed_or_moved_is_removed_or_moved() {
    let mut house = House::new();
    house.bar("d", true);
    house.rounds();
    fs::rename(house.yard.path("d"), house.yard.path("moved")).unwrap();
    house.disk.bar(&[house.yard.path("moved")]);
    house.rounds();
    assert_eq!(house.yard.party.tree(), "f: three\nmoved/\nmoved/a: one\nmoved/e/\nmoved/e/b: two");
    tokio::time::advance(WHILE).await;
    house.rounds();
    assert_eq!(house.barred(), ["moved"]);
    fs::remove_dir_all(house.yard.path("moved")).unwrap();
    house.rounds();
    tokio::time::advance(WHILE).await;
    house.rounds();
    assert_eq!(house.yard.party.tree(), "f: three");
    assert_eq!(house.barred(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_devices_do_in_it_waits_and_holds_up_nothing() {
    let mut house = House::new();
    let mut ada = house.yard.party.join("ada").await;
    house.bar("d", true);
    house.rounds();
    let (_, file, stamp) = house.yard.find("d/a").unwrap();
    let store = ada.storing(file, stamp, "hers").await;
    ada.replay(store).await;
    ada.write_new(model::FileId::ROOT, "g", "four").await;
    house.rounds();
    assert_eq!(fs::read_to_string(house.yard.path("d/a")).unwrap(), "one");
    assert_eq!(fs::read_to_string(house.yard.path("g")).unwrap(), "four");
    let state = house.yard.party.origin.trees().unwrap()[0].state.clone().unwrap();
    assert!(state.waiting > 0 && !state.away && !state.read_only && !state.full, "{state:?}");
    assert!(state.hindered[0].contains("/d: "), "{state:?}");
    house.bar("d", false);
    assert_eq!(house.yard.agreed(), "d/\nd/a: hers\nd/e/\nd/e/b: two\nf: three\ng: four");
    assert_eq!(
        house.yard.party.origin.trees().unwrap()[0].state.clone().unwrap().hindered,
        [""; 0]
    );
}

/// By a device. Of a directory, when nothing is in it any more.
async fn remove(house: &House, ada: &mut Device, path: &str) {
    let (above, file, _) = house.yard.find(path).unwrap();
    let verdict = ada.replay(unlink_of(above, last(path), file)).await;
    assert!(matches!(verdict, Verdict::Taken(_)), "{path}: {verdict:?}");
}

/// As often as the server would look, until what does not get on is tried now and then.
async fn long(house: &mut House) -> Duration {
    let mut pause = Duration::ZERO;
    for _ in 0..ROUNDS {
        pause = house.yard.keeper.round().unwrap();
        tokio::time::advance(pause).await;
    }
    pause
}

#[tokio::test(start_paused = true)]
async fn what_devices_removed_and_cannot_go_is_named_with_the_reason_and_holds_up_nothing() {
    let mut house = House::new();
    let mut ada = house.yard.party.join("ada").await;
    house.bar("d/e", true);
    house.rounds();
    for path in ["d/e/b", "d/e", "d/a", "d"] {
        remove(&house, &mut ada, path).await;
    }
    assert!(long(&mut house).await > Duration::from_secs(2), "it is not tried all the while");
    assert_eq!(house.yard.party.tree(), "f: three");
    let state = house.yard.party.origin.trees().unwrap()[0].state.clone().unwrap();
    assert!(state.waiting > 0 && state.hindered[0].contains("/d/e: "), "{state:?}");
    ada.write_new(model::FileId::ROOT, "g", "four").await;
    house.yard.keeper.round().unwrap();
    assert_eq!(fs::read_to_string(house.yard.path("g")).unwrap(), "four");
    house.bar("d/e", false);
    assert_eq!(house.yard.agreed(), "f: three\ng: four");
    let state = house.yard.party.origin.trees().unwrap()[0].state.clone().unwrap();
    assert_eq!((state.waiting, state.hindered), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_directory_with_something_in_it_that_nobody_knows_is_back_when_a_device_removes_it() {
    let mut house = House::new();
    let mut ada = house.yard.party.join("ada").await;
    fs::create_dir(house.yard.path("h")).unwrap();
    house.yard.write("h/c", "five");
    house.disk.bar(&[house.yard.path("h")]);
    house.rounds();
    remove(&house, &mut ada, "h").await;
    long(&mut house).await;
    assert!(house.yard.party.tree().ends_with("\nf: three\nh/"), "{}", house.yard.party.tree());
    house.disk.bar(&[]);
    tokio::time::advance(WHILE).await;
    assert!(house.yard.agreed().ends_with("\nf: three\nh/\nh/c: five"));
}
