//! Files of a tree that have several names, some of them outside of it.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::tree::Yard;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// More files than are committed together.
const FILES: usize = 210;
/// All files of a small tree are looked at once in this time.
const ROUND: Duration = Duration::from_secs(5);

impl Yard {
    /// Whether names are one file, with so many links, on both sides.
    #[track_caller]
    fn are_one(&self, names: &[&str]) {
        let (here, there): (Vec<_>, Vec<_>) = names
            .iter()
            .map(|name| {
                let seen = fs::metadata(self.path(name)).unwrap();
                ((seen.ino(), seen.nlink()), self.find(name).unwrap().1)
            })
            .unzip();
        assert_eq!(here, vec![(here[0].0, names.len() as u64); names.len()], "{names:?}, the tree");
        assert_eq!(there, vec![there[0]; names.len()], "{names:?}, the volume");
    }

    fn link(&self, from: &str, to: &str) {
        fs::hard_link(self.path(from), self.path(to)).unwrap();
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = fs::File::options().append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn names_of_one_file_that_are_found_at_once_stay_one_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    for number in 0..FILES {
        let path = |name| folder.path().join(format!("{name}{number}"));
        fs::write(path("a"), format!("{number}")).unwrap();
        fs::hard_link(path("a"), path("b")).unwrap();
        fs::hard_link(path("a"), folder.path().join(format!("d/c{number}"))).unwrap();
    }
    let mut yard = Yard::over(folder);
    yard.agreed();
    for number in 0..FILES {
        let names = ["a", "b", "d/c"].map(|name| format!("{name}{number}"));
        yard.are_one(&names.each_ref().map(String::as_str));
    }
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_written_through_one_name_is_seen_under_all_and_they_stay_one_file() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.link("a", "b");
    assert_eq!(yard.agreed(), "a: one\nb: one");
    yard.are_one(&["a", "b"]);
    yard.append("b", ", two");
    assert_eq!(yard.agreed(), "a: one, two\nb: one, two");
    let mut ada = yard.party.join("ada").await;
    let (_, file, stamp) = yard.find("a").unwrap();
    let store = ada.storing(file, stamp, "hers").await;
    ada.replay(store).await;
    assert_eq!(yard.agreed(), "a: hers\nb: hers");
    yard.are_one(&["a", "b"]);
    yard.append("a", ", and the server's");
    assert_eq!(yard.agreed(), "a: hers, and the server's\nb: hers, and the server's");
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn links_that_were_made_and_changed_while_the_server_was_down_are_found() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.link("a", "b");
    yard.write("x", "ex");
    yard.agreed();
    let yard = yard.killed();
    yard.append("b", ", two");
    yard.link("x", "w");
    yard.link("x", "y");
    yard.write("m", "new");
    yard.link("m", "n");
    let mut yard = yard.killed();
    let all = "a: one, two\nb: one, two\nm: new\nn: new\nw: ex\nx: ex\ny: ex";
    assert_eq!(yard.agreed(), all);
    for names in [&["a", "b"][..], &["w", "x", "y"], &["m", "n"]] {
        yard.are_one(names);
    }
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_comes_to_lead_to_another_file_is_one_of_that() {
    let mut yard = Yard::new();
    for name in ["a", "b", "c", "d"] {
        yard.write(name, name);
    }
    yard.agreed();
    // `ln -f a b`.
    fs::remove_file(yard.path("b")).unwrap();
    yard.link("a", "b");
    assert_eq!(yard.agreed(), "a: a\nb: a\nc: c\nd: d");
    yard.are_one(&["a", "b"]);
    // What bore the name is elsewhere now.
    fs::rename(yard.path("c"), yard.path("e")).unwrap();
    yard.link("d", "c");
    assert_eq!(yard.agreed(), "a: a\nb: a\nc: d\nd: d\ne: c");
    yard.are_one(&["c", "d"]);
    yard.are_one(&["e"]);
    // Saved by a rename, and the link made anew.
    yard.write("new", "saved");
    fs::rename(yard.path("new"), yard.path("a")).unwrap();
    fs::remove_file(yard.path("b")).unwrap();
    yard.link("a", "b");
    assert_eq!(yard.agreed(), "a: saved\nb: saved\nc: d\nd: d\ne: c");
    yard.are_one(&["a", "b"]);
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_written_under_a_name_outside_of_the_tree_is_seen() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.agreed();
    let outside = tempfile::tempdir().unwrap();
    let there = outside.path().join("there");
    fs::hard_link(yard.path("a"), &there).unwrap();
    fs::write(&there, "one, two").unwrap();
    yard.settle();
    assert_eq!(yard.party.tree(), "a: one", "of which no event tells");
    yard.party.world.clock.sleep(ROUND).await;
    assert_eq!(yard.agreed(), "a: one, two");
    // From now on it is watched under whatever name.
    fs::write(&there, "one, two, three").unwrap();
    assert_eq!(yard.agreed(), "a: one, two, three");
}

#[tokio::test(start_paused = true)]
async fn a_name_outside_of_the_tree_keeps_what_it_had_when_a_device_stores() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    let outside = tempfile::tempdir().unwrap();
    let there = outside.path().join("there");
    fs::hard_link(yard.path("a"), &there).unwrap();
    yard.agreed();
    let mut ada = yard.party.join("ada").await;
    let (_, file, stamp) = yard.find("a").unwrap();
    let store = ada.storing(file, stamp, "hers").await;
    ada.replay(store).await;
    assert_eq!(yard.agreed(), "a: hers");
    assert_eq!(fs::read_to_string(&there).unwrap(), "one");
    fs::write(&there, "another's").unwrap();
    yard.party.world.clock.sleep(ROUND).await;
    assert_eq!(yard.agreed(), "a: hers", "they are two files now");
}
