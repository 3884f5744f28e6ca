//! A volume in step with a directory: programs change the one, devices the other.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{cases, paused};
use crate::party::{Device, Party, VOLUME, make_of, rename_over, store_of, unlink_of};
use model::{FileId, Kind, Stamp, View};
use proptest::prelude::*;
use protocol::{Access, Verdict};
use replica::{Keeper, Origin};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use volume::whole::Whole;

/// Rounds after which both sides agree.
const ROUNDS_MAX: usize = 60;
/// What the server is called.
pub const SERVER: &str = "attic";

/// A volume and a directory that are kept in step.
pub struct Yard {
    pub party: Party,
    pub folder: TempDir,
    pub keeper: Keeper,
}

fn keep(origin: &Origin, path: &Path) -> Keeper {
    origin.keep_tree(VOLUME, path, SERVER).unwrap()
}

impl Yard {
    pub fn new() -> Yard {
        Yard::over(tempfile::tempdir().unwrap())
    }

    pub fn over(folder: TempDir) -> Yard {
        Yard::of(Party::new(), folder)
    }

    pub fn of(party: Party, folder: TempDir) -> Yard {
        let keeper = keep(&party.origin, folder.path());
        let mut yard = Yard { party, folder, keeper };
        yard.settle();
        yard
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Until both sides agree.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.keeper.round().unwrap();
            if self.keeper.is_settled() {
                self.keeper.round().unwrap();
                if self.keeper.is_settled() {
                    return;
                }
            }
        }
        panic!("there is always more to do:\n{}\n--\n{}", self.tree(), self.party.tree());
    }

    /// Both sides, which are the same.
    pub fn agreed(&mut self) -> String {
        self.settle();
        let (tree, volume) = (self.tree(), self.party.tree());
        assert_eq!(tree, volume, "tree, and volume");
        tree
    }

    pub fn tree(&self) -> String {
        tree_of(self.folder.path())
    }

    /// The origin's process dies and is started again on the same tree.
    pub fn killed(self) -> Yard {
        let Yard { party, folder, keeper } = self;
        drop(keeper);
        let party = party.killed();
        let keeper = keep(&party.origin, folder.path());
        Yard { party, folder, keeper }
    }

    pub fn find(&self, path: &str) -> Option<(FileId, FileId, Stamp)> {
        find(&self.party, path)
    }

    fn born(&self, path: &str) -> Option<model::Time> {
        let read = self.party.tables.read().unwrap();
        let view = Whole::now(&*read, self.party.origin.volumes().unwrap()[0].id);
        view.node(self.find(path)?.1).unwrap()?.born
    }
}

/// A file of the volume by its path, with the directory that it is in and the stamp of its contents.
pub fn find(party: &Party, path: &str) -> Option<(FileId, FileId, Stamp)> {
    let read = party.tables.read().unwrap();
    let view = Whole::now(&*read, party.origin.volumes().unwrap()[0].id);
    let (mut above, mut file) = (FileId::ROOT, FileId::ROOT);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        above = file;
        file = view.entry(above, &crate::party::name(name)).unwrap()?;
    }
    let node = view.node(file).unwrap()?;
    Some((above, file, node.contents_stamp))
}

/// What is below a directory, a line for each name.
pub fn tree_of(folder: &Path) -> String {
    let mut lines = Vec::new();
    walk(folder, "", &mut lines);
    lines.join("\n")
}

fn walk(folder: &Path, path: &str, lines: &mut Vec<String>) {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in names.iter().filter(|name| *name != ".farfs-tree") {
        let there = folder.join(name);
        let kind = there.symlink_metadata().unwrap().file_type();
        let path = format!("{path}{name}");
        if kind.is_dir() {
            lines.push(format!("{path}/"));
            walk(&there, &format!("{path}/"), lines);
        } else if kind.is_symlink() {
            lines.push(format!("{path} (Symlink)"));
        } else {
            lines.push(format!("{path}: {}", fs::read_to_string(&there).unwrap()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_directory_is_taken_in() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("a/b/c"), "sea").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    symlink("a/b", folder.path().join("link")).unwrap();
    let mut yard = Yard::over(folder);
    let there = ["a", "a/b", "a/b/c", "empty", "link"].map(|name| {
        let made = yard.path(name).symlink_metadata().unwrap().created().ok()?;
        Some(made.duration_since(std::time::UNIX_EPOCH).unwrap())
    });
    assert_eq!(yard.agreed(), "a/\na/b/\na/b/c: sea\nempty: \nlink (Symlink)");
    let taken_in = ["a", "a/b", "a/b/c", "empty", "link"].map(|name| {
        let born = yard.born(name)?;
        Some(std::time::Duration::new(born.secs.cast_unsigned(), born.nanos))
    });
    // Where the file system of the tree does not say it, they were made when they were taken in.
    if there[0].is_some() {
        assert_eq!(taken_in, there);
    }
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_volume_is_put_into_an_empty_directory() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    ada.write_new(docs, "a.txt", "one").await;
    let folder = tempfile::tempdir().unwrap();
    let keeper = keep(&party.origin, folder.path());
    let mut yard = Yard { party, folder, keeper };
    assert_eq!(yard.agreed(), "docs/\ndocs/a.txt: one");
}

#[tokio::test(start_paused = true)]
async fn two_that_were_never_together_are_not_mixed() {
    let party = Party::new();
    party.join("ada").await.write_new(FileId::ROOT, "a", "one").await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b"), "two").unwrap();
    let error = party.origin.keep_tree(VOLUME, folder.path(), SERVER).err().unwrap();
    assert!(error.to_string().contains("never together"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_programs_do_is_done_in_the_volume() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    fs::create_dir(yard.path("d")).unwrap();
    yard.write("d/b", "two");
    assert_eq!(yard.agreed(), "a: one\nd/\nd/b: two");
    let (_, file, _) = yard.find("a").unwrap();
    yard.write("a", "one more");
    fs::rename(yard.path("a"), yard.path("d/a")).unwrap();
    fs::rename(yard.path("d"), yard.path("e")).unwrap();
    fs::hard_link(yard.path("e/b"), yard.path("same")).unwrap();
    assert_eq!(yard.agreed(), "e/\ne/a: one more\ne/b: two\nsame: two");
    assert_eq!(yard.find("e/a").unwrap().1, file, "it stays the same file");
    assert_eq!(yard.find("e/b").unwrap().1, yard.find("same").unwrap().1);
    fs::remove_dir_all(yard.path("e")).unwrap();
    assert_eq!(yard.agreed(), "same: two");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_saved_by_a_rename_stays_the_same_file() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.agreed();
    let (_, file, _) = yard.find("a").unwrap();
    yard.write("a.new", "two");
    fs::rename(yard.path("a.new"), yard.path("a")).unwrap();
    assert_eq!(yard.agreed(), "a: two");
    assert_eq!(yard.find("a").unwrap().1, file);
    fs::rename(yard.path("a"), yard.path("a~")).unwrap();
    yard.write("a", "three");
    assert_eq!(yard.agreed(), "a: three\na~: two");
    assert_eq!(yard.find("a~").unwrap().1, file);
}

#[tokio::test(start_paused = true)]
async fn names_that_change_places_do_so_in_the_volume() {
    let mut yard = Yard::new();
    for name in ["a", "b", "c"] {
        yard.write(name, name);
    }
    yard.agreed();
    for (from, to) in [("a", "x"), ("b", "a"), ("c", "b"), ("x", "c")] {
        fs::rename(yard.path(from), yard.path(to)).unwrap();
    }
    assert_eq!(yard.agreed(), "a: b\nb: c\nc: a");
}

#[tokio::test(start_paused = true)]
async fn what_a_device_does_is_done_in_the_tree() {
    let mut yard = Yard::new();
    let mut ada = yard.party.join("ada").await;
    let (a, stamp) = ada.write_new(FileId::ROOT, "a", "one").await;
    let d = ada.make_directory(FileId::ROOT, "d").await;
    let (b, _) = ada.write_new(d, "b", "two").await;
    assert_eq!(yard.agreed(), "a: one\nd/\nd/b: two");
    let store = ada.storing(a, stamp, "one more").await;
    ada.replay(store).await;
    let over = rename_over((FileId::ROOT, "a"), (d, "b"), a, Some(b));
    assert!(matches!(ada.replay(over).await, Verdict::Taken(_)));
    assert_eq!(yard.agreed(), "d/\nd/b: one more");
    ada.replay(unlink_of(d, "b", a)).await;
    ada.replay(unlink_of(FileId::ROOT, "d", d)).await;
    assert_eq!(yard.agreed(), "");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_a_device_made_is_watched() {
    let mut yard = Yard::new();
    let mut ada = yard.party.join("ada").await;
    ada.make_directory(FileId::ROOT, "d").await;
    assert_eq!(yard.agreed(), "d/");
    yard.write("d/a", "one");
    assert_eq!(yard.agreed(), "d/\nd/a: one");
}

#[tokio::test(start_paused = true)]
async fn attributes_are_carried_over_both_ways() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.agreed();
    fs::set_permissions(yard.path("a"), fs::Permissions::from_mode(0o604)).unwrap();
    yard.settle();
    let ada = yard.party.join("ada").await;
    let (_, file, _) = yard.find("a").unwrap();
    let node = ada.node(file).await.unwrap();
    assert_eq!(node.mode, 0o604);
    let seen = fs::metadata(yard.path("a")).unwrap();
    assert_eq!((node.mtime.secs, i64::from(node.mtime.nanos)), (seen.mtime(), seen.mtime_nsec()));
    let mut ada = ada;
    let set = model::AttributeChange { mode: Some(0o640), ..Default::default() };
    let expects = node.attributes_stamp;
    ada.replay(model::Change::SetAttributes { file, expects, set }).await;
    yard.settle();
    assert_eq!(fs::metadata(yard.path("a")).unwrap().mode() & 0o7777, 0o640);
}

#[tokio::test(start_paused = true)]
async fn of_two_changes_of_one_file_both_are_kept() {
    let mut yard = Yard::new();
    yard.write("a.txt", "one");
    yard.agreed();
    let mut ada = yard.party.join("ada").await;
    let (_, file, stamp) = yard.find("a.txt").unwrap();
    let store = ada.storing(file, stamp, "hers").await;
    ada.replay(store).await;
    yard.write("a.txt", "the server's");
    let agreed = yard.agreed();
    assert!(agreed.contains("a.txt: hers"), "{agreed}");
    let aside = agreed.lines().find(|line| line.contains("conflict of attic"));
    assert!(aside.is_some_and(|line| line.ends_with(".txt: the server's")), "{agreed}");
    assert_eq!(yard.party.conflicts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_that_make_one_name_both_are_kept() {
    let mut yard = Yard::new();
    let mut ada = yard.party.join("ada").await;
    ada.write_new(FileId::ROOT, "a", "hers").await;
    yard.write("a", "the server's");
    let agreed = yard.agreed();
    assert!(agreed.contains("a: hers") && agreed.contains(": the server's"), "{agreed}");
}

#[tokio::test(start_paused = true)]
async fn the_same_on_both_sides_is_no_conflict() {
    let mut yard = Yard::new();
    let mut ada = yard.party.join("ada").await;
    let d = ada.make_directory(FileId::ROOT, "d").await;
    ada.write_new(d, "a", "same").await;
    fs::create_dir(yard.path("d")).unwrap();
    yard.write("d/a", "same");
    assert_eq!(yard.agreed(), "d/\nd/a: same");
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_one_removes_and_the_other_changes_stays() {
    let mut yard = Yard::new();
    for name in ["a", "b"] {
        yard.write(name, "one");
    }
    yard.agreed();
    let mut ada = yard.party.join("ada").await;
    let (_, a, stamp) = yard.find("a").unwrap();
    let store = ada.storing(a, stamp, "hers").await;
    ada.replay(store).await;
    fs::remove_file(yard.path("a")).unwrap();
    let (_, b, _) = yard.find("b").unwrap();
    ada.replay(unlink_of(FileId::ROOT, "b", b)).await;
    yard.write("b", "the server's");
    assert_eq!(yard.agreed(), "a: hers\nb: the server's");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_one_removes_and_the_other_fills_keeps_what_came() {
    let mut yard = Yard::new();
    fs::create_dir(yard.path("d")).unwrap();
    yard.agreed();
    let mut ada = yard.party.join("ada").await;
    let (_, d, _) = yard.find("d").unwrap();
    ada.replay(unlink_of(FileId::ROOT, "d", d)).await;
    yard.write("d/new", "the server's");
    let agreed = yard.agreed();
    assert!(agreed.contains(": the server's"), "{agreed}");
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_the_server_was_down_is_found() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.write("b", "two");
    yard.agreed();
    let (_, b, _) = yard.find("b").unwrap();
    let mut yard = yard.killed();
    yard.write("a", "changed");
    fs::rename(yard.path("b"), yard.path("c")).unwrap();
    yard.write("d", "new");
    let mut again = {
        yard = yard.killed();
        yard
    };
    assert_eq!(again.agreed(), "a: changed\nc: two\nd: new");
    assert_eq!(again.find("c").unwrap().1, b);
}

#[tokio::test(start_paused = true)]
async fn an_empty_directory_in_the_place_of_the_tree_is_not_taken_for_it() {
    let parent = tempfile::tempdir().unwrap();
    let (path, away) = (parent.path().join("t"), parent.path().join("away"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "one").unwrap();
    let party = Party::new();
    let mut keeper = keep(&party.origin, &path);
    for _ in 0..5 {
        keeper.round().unwrap();
    }
    assert_eq!(party.tree(), "a: one");
    fs::rename(&path, &away).unwrap();
    keeper.round().unwrap();
    fs::create_dir(&path).unwrap();
    keeper.round().unwrap();
    assert_eq!(party.tree(), "a: one");
    drop(keeper);
    let error = party.origin.keep_tree(VOLUME, &path, SERVER).err().unwrap();
    assert!(error.to_string().contains("is its disk mounted?"), "{error}");
    let mut keeper = keep(&party.origin, &away);
    fs::write(away.join("a"), "two").unwrap();
    for _ in 0..5 {
        keeper.round().unwrap();
    }
    assert_eq!(party.tree(), "a: two", "it was moved, and is the same");
}

/// What either side does next.
#[derive(Clone, Debug)]
enum Act {
    Write(usize, usize),
    Save(usize, usize),
    Rename(usize, usize),
    Remove(usize),
    MakeDirectory(usize),
    Link(usize, usize),
}

#[derive(Clone, Debug)]
enum Move {
    Here(Act),
    There(Act),
    Round,
    Kill,
}

const PATHS: [&str; 9] = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/a", "e/d"];

fn act() -> impl Strategy<Value = Act> {
    let at = 0..PATHS.len();
    prop_oneof![
        4 => (at.clone(), 0..1000usize).prop_map(|(at, text)| Act::Write(at, text)),
        2 => (at.clone(), 0..1000usize).prop_map(|(at, text)| Act::Save(at, text)),
        3 => (at.clone(), at.clone()).prop_map(|(from, to)| Act::Rename(from, to)),
        2 => at.clone().prop_map(Act::Remove),
        2 => at.clone().prop_map(Act::MakeDirectory),
        1 => (at.clone(), at).prop_map(|(from, to)| Act::Link(from, to)),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => act().prop_map(Move::Here),
        4 => act().prop_map(Move::There),
        3 => Just(Move::Round),
        1 => Just(Move::Kill),
    ];
    prop::collection::vec(one, 1..25)
}

/// By a program of the server. What cannot be done is not done.
fn here(yard: &Yard, act: &Act) {
    let path = |at: &usize| yard.path(PATHS[*at]);
    let _ = match act {
        Act::Write(at, text) => fs::write(path(at), format!("here {text}")),
        Act::Save(at, text) => fs::write(yard.path("tmp"), format!("saved {text}"))
            .and_then(|()| fs::rename(yard.path("tmp"), path(at)))
            .or_else(|_| fs::remove_file(yard.path("tmp"))),
        Act::Rename(from, to) => fs::rename(path(from), path(to)),
        Act::Remove(at) => fs::remove_file(path(at)).or_else(|_| fs::remove_dir_all(path(at))),
        Act::MakeDirectory(at) => fs::create_dir(path(at)),
        Act::Link(from, to) => fs::hard_link(path(from), path(to)),
    };
}

/// By a device, as far as the volume allows it.
async fn there(yard: &Yard, ada: &mut Device, act: &Act) {
    let split = |at: &usize| PATHS[*at].rsplit_once('/').unwrap_or(("", PATHS[*at]));
    let parent = |at: &usize| yard.find(split(at).0).map(|(_, file, _)| file);
    match act {
        Act::Write(at, text) | Act::Save(at, text) => {
            let text = format!("there {text}");
            match (yard.find(PATHS[*at]), parent(at)) {
                (Some((_, file, stamp)), _) => {
                    let store = ada.storing(file, stamp, &text).await;
                    ada.replay(store).await;
                }
                (None, Some(parent)) => {
                    let (file, make) = ada.making(parent, split(at).1, Kind::File);
                    if matches!(ada.replay(make).await, Verdict::Taken(_)) {
                        let store = ada.storing(file, ada.stamp(), &text).await;
                        ada.replay(store).await;
                    }
                }
                (None, None) => {}
            }
        }
        Act::Rename(from, to) => {
            let (Some((above, file, _)), Some(to_above)) = (yard.find(PATHS[*from]), parent(to))
            else {
                return;
            };
            let over = yard.find(PATHS[*to]).map(|(_, file, _)| file);
            let (from, to) = ((above, split(from).1), (to_above, split(to).1));
            ada.replay(rename_over(from, to, file, over)).await;
        }
        Act::Remove(at) => {
            if let Some((above, file, _)) = yard.find(PATHS[*at]) {
                ada.replay(unlink_of(above, split(at).1, file)).await;
            }
        }
        Act::MakeDirectory(at) => {
            if let Some(parent) = parent(at) {
                let file = ada.fresh_file();
                ada.replay(make_of(parent, split(at).1, file, Kind::Directory)).await;
            }
        }
        Act::Link(from, to) => {
            if let (Some((_, file, _)), Some(parent)) = (yard.find(PATHS[*from]), parent(to)) {
                let name = crate::party::name(split(to).1);
                ada.replay(model::Change::Link { parent, name, file }).await;
            }
        }
    }
}

async fn both_agree_in_the_end(moves: Vec<Move>) {
    let mut yard = Yard::new();
    let mut ada = yard.party.join_as("ada", Access::ReadWrite).await;
    for one in &moves {
        match one {
            Move::Here(act) => here(&yard, act),
            Move::There(act) => there(&yard, &mut ada, act).await,
            Move::Round => {
                yard.keeper.round().unwrap();
            }
            Move::Kill => {
                yard = yard.killed();
                ada = yard.party.rejoin(&ada).await;
            }
        }
    }
    yard.agreed();
    let conflicts = yard.party.conflicts();
    let mut yard = yard.killed();
    yard.agreed();
    assert_eq!(yard.party.conflicts(), conflicts, "a restart finds nothing new");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn prop_whatever_both_sides_do_they_agree_in_the_end(moves in moves()) {
        paused(both_agree_in_the_end(moves));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stamp_of_contents_is_the_tree_s_own() {
    let mut yard = Yard::new();
    yard.write("a", "one");
    yard.agreed();
    let (_, file, stamp) = yard.find("a").unwrap();
    assert_eq!(stamp.replica, file.replica());
    let mut ada = yard.party.join("ada").await;
    let stale = store_of(file, Stamp::default(), ada.describe(b"").tree.contents);
    assert!(matches!(ada.replay(stale).await, Verdict::KeptAside { .. }));
}
