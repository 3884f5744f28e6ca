//! Programs and devices that rename directories into one another, move what was just made, and
//! change files meanwhile, also in the midst of what the keeper of the tree does.
//! In the end both sides are the same in all that is carried over, and nothing is lost.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{Ground, Place, Stories, cases, last, paused};
use crate::party::{mode_of, rename_over, unlink_of};
use crate::tree::find;
use model::{Change, FileId, Kind, Node, View};
use proptest::prelude::*;
use protocol::Verdict;
use replica::Limits;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::whole::Whole;

/// Rounds after which both sides agree, and the time that passes with each.
const ROUNDS_MAX: usize = 120;
const ROUND: Duration = Duration::from_millis(200);
const PATHS: [&str; 20] = [
    "a", "b", "d", "e", "f", "d/a", "d/b", "d/e", "d/f", "e/a", "e/b", "e/d", "e/d/a", "d/e/a",
    "d/e/b", "f/a", "f/d", "f/d/a", "d/p/x", "e/q/x",
];
const MODES: [u32; 3] = [0o600, 0o644, 0o755];

/// What one does next, by the places of its paths among `PATHS`.
#[derive(Clone, Debug)]
enum Act {
    Store(usize),
    Save(usize),
    Rename(usize, usize),
    /// By three renames.
    Swap(usize, usize),
    Remove(usize),
    MakeDirectory(usize),
    /// A directory of directories of files, which is moved at once.
    Plant(usize, Option<usize>),
    Mode(usize, usize),
    Xattr(usize, bool),
    Time(usize),
    Symlink(usize),
    Link(usize, usize),
}

#[derive(Clone, Debug)]
enum Move {
    Here(Act),
    There(Act),
    /// By a program, after so many of the keeper's next calls.
    Meanwhile(u64, Act),
    Round,
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let at = 0..PATHS.len();
    let two = (at.clone(), at.clone());
    prop_oneof![
        4 => at.clone().prop_map(Act::Store),
        2 => at.clone().prop_map(Act::Save),
        5 => two.clone().prop_map(|(from, to)| Act::Rename(from, to)),
        2 => two.prop_map(|(one, other)| Act::Swap(one, other)),
        2 => at.clone().prop_map(Act::Remove),
        3 => at.clone().prop_map(Act::MakeDirectory),
        2 => (at.clone(), prop::option::of(at.clone())).prop_map(|(at, to)| Act::Plant(at, to)),
        1 => (at.clone(), 0..MODES.len()).prop_map(|(at, mode)| Act::Mode(at, mode)),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, is_set)| Act::Xattr(at, is_set)),
        1 => at.clone().prop_map(Act::Time),
        1 => at.clone().prop_map(Act::Symlink),
        2 => (at.clone(), at).prop_map(|(from, to)| Act::Link(from, to)),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => act().prop_map(Move::Here),
        4 => act().prop_map(Move::There),
        5 => (0..40u64, act()).prop_map(|(calls, act)| Move::Meanwhile(calls, act)),
        3 => Just(Move::Round),
        1 => Just(Move::Restart),
    ];
    prop::collection::vec(one, 1..30)
}

/// The programs of the server, and the directory that they use.
#[derive(Clone)]
struct Programs {
    root: PathBuf,
    stories: Arc<Mutex<Stories>>,
}

impl Programs {
    fn path(&self, at: usize) -> PathBuf {
        self.root.join(PATHS[at])
    }

    /// What is to be seen at a path and below it.
    fn before(&self, at: &Path) -> Vec<String> {
        match at.symlink_metadata() {
            Ok(found) if found.is_dir() => {
                let entries = fs::read_dir(at).into_iter().flatten().flatten();
                entries.flat_map(|entry| self.before(&entry.path())).collect()
            }
            Ok(found) if found.is_file() => fs::read_to_string(at).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// What cannot be done is not done.
    fn act(&self, act: &Act) {
        let mut stories = self.stories.lock().unwrap();
        let text = stories.next("here");
        let done = match act {
            Act::Store(at) => self.store(&self.path(*at), &text, &mut stories),
            Act::Save(at) => {
                let temporary = self.root.join(format!("tmp{}", stories.told));
                fs::write(&temporary, &text).unwrap();
                stories.stored.insert(text.clone());
                let saved = self.rename(&temporary, &self.path(*at), &mut stories);
                saved.or_else(|error| {
                    stories.excused.insert(text);
                    fs::remove_file(&temporary).and(Err(error))
                })
            }
            Act::Rename(from, to) => self.rename(&self.path(*from), &self.path(*to), &mut stories),
            Act::Swap(one, other) => {
                let between = self.root.join(format!("swap{}", stories.told));
                let (one, other) = (self.path(*one), self.path(*other));
                self.rename(&one, &between, &mut stories)
                    .and_then(|()| self.rename(&other, &one, &mut stories))
                    .and_then(|()| self.rename(&between, &other, &mut stories))
            }
            Act::Remove(at) => {
                let at = self.path(*at);
                stories.excused.extend(self.before(&at));
                fs::remove_file(&at).or_else(|_| fs::remove_dir_all(&at))
            }
            Act::MakeDirectory(at) => fs::create_dir(self.path(*at)),
            Act::Plant(at, to) => {
                let at = self.path(*at);
                let planted = self.plant(&at, &mut stories);
                planted.and_then(|()| match to {
                    Some(to) => self.rename(&at, &self.path(*to), &mut stories),
                    None => Ok(()),
                })
            }
            Act::Mode(at, mode) => {
                fs::set_permissions(self.path(*at), fs::Permissions::from_mode(MODES[*mode]))
            }
            Act::Xattr(at, is_set) => self.xattr(*at, is_set.then_some(text.as_bytes())),
            Act::Time(at) => fs::File::open(self.path(*at)).and_then(|file| {
                let past = Duration::from_secs(1_000_000 + stories.told as u64);
                file.set_modified(std::time::UNIX_EPOCH + past)
            }),
            Act::Symlink(at) => std::os::unix::fs::symlink(&text, self.path(*at)),
            Act::Link(from, to) => fs::hard_link(self.path(*from), self.path(*to)),
        };
        // What cannot be done is not done.
        drop(done);
    }

    fn store(&self, at: &Path, text: &str, stories: &mut Stories) -> std::io::Result<()> {
        let before = self.before(at);
        fs::write(at, text)?;
        stories.excused.extend(before);
        stories.stored.insert(text.to_owned());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path, stories: &mut Stories) -> std::io::Result<()> {
        let is_same = |found: fs::Metadata, with: fs::Metadata| found.ino() == with.ino();
        let same = to.symlink_metadata().and_then(|to| Ok(is_same(to, from.symlink_metadata()?)));
        let before = self.before(to);
        fs::rename(from, to)?;
        if !same.unwrap_or(false) {
            stories.excused.extend(before);
        }
        Ok(())
    }

    fn plant(&self, at: &Path, stories: &mut Stories) -> std::io::Result<()> {
        fs::create_dir(at)?;
        for directory in ["p", "q"] {
            fs::create_dir(at.join(directory))?;
            for name in ["x", "y"] {
                let text = stories.next("planted");
                self.store(&at.join(directory).join(name), &text, stories)?;
            }
        }
        Ok(())
    }

    fn xattr(&self, at: usize, value: Option<&[u8]>) -> std::io::Result<()> {
        let tree = store::tree::Tree::open(&self.root).unwrap();
        let root = tree.directory(b"").unwrap().unwrap();
        // Over no link, as it is of files and directories.
        if !self.path(at).symlink_metadata()?.is_symlink() {
            // A path on which there is a link cannot be gone.
            let _ = root.set_xattr(PATHS[at].as_bytes(), b"user.k", value);
        }
        Ok(())
    }
}

/// On it programs and devices are at work at once.
struct Storm {
    ground: Ground,
    programs: Programs,
}

impl Deref for Storm {
    type Target = Ground;
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl DerefMut for Storm {
    fn deref_mut(&mut self) -> &mut Ground {
        &mut self.ground
    }
}

impl Storm {
    async fn new() -> Storm {
        Storm::with(Limits::simulated()).await
    }

    async fn with(limits: Limits) -> Storm {
        let ground = Ground::new(limits, Place::Beside).await;
        let root = ground.folder.path().to_path_buf();
        let mut storm = Storm { ground, programs: Programs { root, stories: Arc::default() } };
        storm.settle().await;
        storm
    }

    /// Until the keeper has no more to do. No look at everything becomes due meanwhile.
    async fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.keeper.round().unwrap();
            if self.keeper.is_settled() {
                self.keeper.round().unwrap();
                if self.keeper.is_settled() {
                    return;
                }
            }
            tokio::time::advance(ROUND).await;
        }
        panic!("there is always more to do:\n{}\n--\n{}", self.tree(), self.volume());
    }

    async fn restarted(self) -> Storm {
        Storm { ground: self.ground.restarted().await, ..self }
    }

    /// Both sides are the same, nothing got lost, and who looks at everything finds no more.
    async fn agree(mut self) {
        self.settle().await;
        let (tree, volume) = (self.tree(), self.volume());
        assert_eq!(tree, volume, "tree, and volume");
        self.programs.stories.lock().unwrap().all_there(&tree);
        let position = self.party.origin.volumes().unwrap()[0].position;
        let mut again = self.restarted().await;
        again.settle().await;
        assert_eq!((again.tree(), again.volume()), (tree.clone(), tree), "after another look");
        assert_eq!(again.party.origin.volumes().unwrap()[0].position, position, "nothing is new");
    }

    fn tree(&self) -> String {
        let mut lines = Vec::new();
        let mut first = BTreeMap::new();
        let tree = store::tree::Tree::open(self.folder.path()).unwrap();
        see(&tree, self.folder.path(), "", &mut first, &mut lines);
        lines.join("\n")
    }

    fn volume(&self) -> String {
        let read = self.party.tables.read().unwrap();
        let view = Whole::now(&*read, self.party.origin.volumes().unwrap()[0].id);
        let mut lines = Vec::new();
        self.show(&view, FileId::ROOT, "", &mut BTreeMap::new(), &mut lines);
        lines.join("\n")
    }

    fn show(
        &self,
        view: &Whole<'_>,
        directory: FileId,
        above: &str,
        first: &mut BTreeMap<FileId, String>,
        lines: &mut Vec<String>,
    ) {
        for (name, file) in view.entries(directory, None, 1000).unwrap().entries {
            let node = view.node(file).unwrap().unwrap();
            let path = format!("{above}{name}");
            let xattr = own_xattr(&node);
            let xattr = xattr.map(|value| String::from_utf8_lossy(value).into_owned());
            let (mode, owner) = (node.mode, (node.uid, node.gid));
            match node.kind {
                Kind::Directory => {
                    lines.push(format!("{path}/ {mode:o} {owner:?} {xattr:?}"));
                    self.show(view, file, &format!("{path}/"), first, lines);
                }
                Kind::File => {
                    let time = (node.mtime.secs, node.mtime.nanos);
                    let first = first.entry(file).or_insert_with(|| path.clone());
                    let text = self.party.text(&node);
                    let looks = format!("{mode:o} {owner:?} {time:?} {xattr:?}");
                    lines.push(format!("{path} = {first} {looks}: {text}"));
                }
                Kind::Symlink => {
                    let target = String::from_utf8_lossy(node.target.as_ref().unwrap());
                    lines.push(format!("{path} -> {target} {owner:?}"));
                }
                kind => lines.push(format!("{path} {kind:?}")),
            }
        }
    }

    /// What the volume has at a path.
    fn before(&self, at: &str) -> Option<String> {
        let (_, file, _) = find(&self.party, at)?;
        let read = self.party.tables.read().unwrap();
        let view = Whole::now(&*read, self.party.origin.volumes().unwrap()[0].id);
        let node = view.node(file).unwrap()?;
        (node.kind == Kind::File).then(|| self.party.text(&node))
    }

    fn kind(&self, file: FileId) -> Option<Kind> {
        let read = self.party.tables.read().unwrap();
        let view = Whole::now(&*read, self.party.origin.volumes().unwrap()[0].id);
        Some(view.node(file).unwrap()?.kind)
    }

    /// The directory that a path is in.
    fn parent(&self, at: &str) -> Option<FileId> {
        let above = at.rsplit_once('/').map_or("", |(above, _)| above);
        let (_, file, _) = find(&self.party, above)?;
        (self.kind(file)? == Kind::Directory).then_some(file)
    }

    fn excuse(&self, text: Option<String>) {
        self.programs.stories.lock().unwrap().excused.extend(text);
    }

    /// By a device.
    async fn there(&mut self, act: &Act) {
        match act {
            Act::Store(at) | Act::Save(at) => self.store(PATHS[*at]).await,
            Act::Rename(from, to) => self.rename(PATHS[*from], PATHS[*to]).await,
            Act::Swap(one, other) => {
                let (one, other) = (PATHS[*one], PATHS[*other]);
                self.rename(one, "swap").await;
                self.rename(other, one).await;
                self.rename("swap", other).await;
            }
            Act::Remove(at) => {
                let Some((above, file, _)) = find(&self.party, PATHS[*at]) else { return };
                let removed = self.before(PATHS[*at]);
                let unlink = unlink_of(above, last(PATHS[*at]), file);
                if matches!(self.ada.replay(unlink).await, Verdict::Taken(_)) {
                    self.excuse(removed);
                }
            }
            Act::MakeDirectory(at) => self.make(PATHS[*at], Kind::Directory).await,
            Act::Plant(at, to) => {
                let at = PATHS[*at];
                self.make(at, Kind::Directory).await;
                self.make(&format!("{at}/p"), Kind::Directory).await;
                self.store(&format!("{at}/p/x")).await;
                if let Some(to) = to {
                    self.rename(at, PATHS[*to]).await;
                }
            }
            Act::Mode(at, mode) => {
                let Some((_, file, _)) = find(&self.party, PATHS[*at]) else { return };
                let Some(node) = self.ada.node(file).await else { return };
                let mode = u16::try_from(MODES[*mode]).unwrap();
                if node.kind != Kind::Symlink {
                    self.ada.replay(mode_of(file, node.attributes_stamp, mode)).await;
                }
            }
            Act::Xattr(at, is_set) => {
                let Some((_, file, _)) = find(&self.party, PATHS[*at]) else { return };
                let Some(node) = self.ada.node(file).await else { return };
                let name = b"user.k".to_vec().into();
                let change = match is_set {
                    true => Change::SetXattr {
                        file,
                        name,
                        value: b"there".to_vec().into(),
                        expects: None,
                    },
                    false => Change::RemoveXattr { file, name, expects: None },
                };
                let has_some = own_xattr(&node).is_some();
                if node.kind != Kind::Symlink && (*is_set || has_some) {
                    self.ada.replay(change).await;
                }
            }
            Act::Time(_) => {}
            Act::Symlink(at) => self.make(PATHS[*at], Kind::Symlink).await,
            Act::Link(from, to) => {
                let Some((_, file, _)) = find(&self.party, PATHS[*from]) else { return };
                let Some(parent) = self.parent(PATHS[*to]) else { return };
                let name = crate::party::name(last(PATHS[*to]));
                self.ada.replay(Change::Link { parent, name, file }).await;
            }
        }
    }

    async fn make(&mut self, at: &str, kind: Kind) {
        let Some(parent) = self.parent(at) else { return };
        let (_, mut make) = self.ada.making(parent, last(at), kind);
        if let Change::Make { target, .. } = &mut make {
            *target = (kind == Kind::Symlink).then(|| b"there".to_vec().into());
        }
        self.ada.replay(make).await;
    }

    async fn rename(&mut self, from: &str, to: &str) {
        let Some((above, file, _)) = find(&self.party, from) else { return };
        let Some(to_above) = self.parent(to) else { return };
        let over = find(&self.party, to).map(|(_, file, _)| file);
        let replaced = self.before(to).filter(|_| over != Some(file));
        let rename = rename_over((above, last(from)), (to_above, last(to)), file, over);
        if matches!(self.ada.replay(rename).await, Verdict::Taken(_)) {
            self.excuse(replaced);
        }
    }

    async fn store(&mut self, at: &str) {
        let text = self.programs.stories.lock().unwrap().next("there");
        let replaced = self.before(at);
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
            self.programs.stories.lock().unwrap().stored.insert(text);
            self.excuse(replaced);
        }
    }
}

fn own_xattr(node: &Node) -> Option<&[u8]> {
    let mut all = node.xattrs.iter().flatten();
    all.find_map(|(name, value)| (name[..] == b"user.k"[..]).then_some(&value[..]))
}

/// What is below a directory, in the words of `Storm::show`.
fn see(
    tree: &store::tree::Tree,
    root: &Path,
    above: &str,
    first: &mut BTreeMap<u64, String>,
    lines: &mut Vec<String>,
) {
    let directory = tree.directory(above.trim_end_matches('/').as_bytes()).unwrap().unwrap();
    for name in directory.names().unwrap() {
        if name == b".farfs-tree" {
            continue;
        }
        let path = format!("{above}{}", String::from_utf8_lossy(&name));
        let there = root.join(above).join(OsStr::from_bytes(&name));
        let found = there.symlink_metadata().unwrap();
        let (mode, owner) = (found.mode() & 0o7777, (found.uid(), found.gid()));
        let xattr = || {
            let mut all = directory.xattrs(&name).unwrap();
            all.remove(&b"user.k"[..]).map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        if found.is_dir() {
            lines.push(format!("{path}/ {mode:o} {owner:?} {:?}", xattr()));
            see(tree, root, &format!("{path}/"), first, lines);
        } else if found.is_symlink() {
            let target = fs::read_link(&there).unwrap();
            lines.push(format!("{path} -> {} {owner:?}", target.display()));
        } else {
            let time = (found.mtime(), found.mtime_nsec());
            let first = first.entry(found.ino()).or_insert_with(|| path.clone());
            let looks = format!("{mode:o} {owner:?} {time:?} {:?}", xattr());
            let text = fs::read_to_string(&there).unwrap();
            lines.push(format!("{path} = {first} {looks}: {text}"));
        }
    }
}

async fn play(moves: Vec<Move>, tree_piece_bytes: u64) {
    let mut storm = Storm::with(Limits { tree_piece_bytes, ..Limits::simulated() }).await;
    for one in moves {
        match one {
            Move::Here(act) => storm.programs.act(&act),
            Move::There(act) => storm.there(&act).await,
            Move::Meanwhile(calls, act) => {
                let programs = storm.programs.clone();
                storm.disk.meanwhile(calls, move || programs.act(&act));
            }
            Move::Round => {
                storm.keeper.round().unwrap();
                tokio::time::advance(ROUND).await;
            }
            Move::Restart => storm = storm.restarted().await,
        }
    }
    storm.agree().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn prop_whatever_both_sides_do_and_however_it_falls_together_they_agree(
        moves in moves(),
        // Files are read at once, or those of more than so few bytes a piece at a time.
        tree_piece_bytes in prop_oneof![Just(1 << 20), 3..8u64],
    ) {
        paused(play(moves, tree_piece_bytes));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_just_made_and_is_moved_at_once_is_taken_in_whole() {
    for calls in 0..30 {
        let storm = Storm::new().await;
        storm.programs.act(&Act::Plant(2, None));
        let programs = storm.programs.clone();
        storm.disk.meanwhile(calls, move || programs.act(&Act::Rename(2, 3)));
        storm.agree().await;
    }
}

#[tokio::test(start_paused = true)]
async fn directories_that_are_just_made_and_change_places_are_taken_in_whole() {
    for calls in 0..30 {
        let storm = Storm::new().await;
        for (at, below) in [("d", "p"), ("e", "q")] {
            fs::create_dir_all(storm.path(at).join(below)).unwrap();
            fs::write(storm.path(at).join(below).join("x"), at).unwrap();
        }
        let programs = storm.programs.clone();
        storm.disk.meanwhile(calls, move || programs.act(&Act::Swap(2, 3)));
        storm.agree().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_together_with_a_name_is_carried_over() {
    let others = [Act::Mode(0, 0), Act::Xattr(0, true), Act::Time(0)];
    for other in others {
        for name in [Act::Rename(0, 1), Act::Link(0, 1)] {
            for acts in [[&other, &name], [&name, &other]] {
                let mut storm = Storm::new().await;
                storm.programs.act(&Act::Store(0));
                storm.settle().await;
                acts.into_iter().for_each(|act| storm.programs.act(act));
                storm.agree().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_directory_on_both_sides_gets_the_same_attributes() {
    for calls in 0..30 {
        let mut storm = Storm::new().await;
        storm.there(&Act::Plant(1, None)).await;
        let storm = storm.restarted().await;
        let programs = storm.programs.clone();
        storm.disk.meanwhile(calls, move || programs.act(&Act::MakeDirectory(1)));
        storm.agree().await;
    }
}

#[tokio::test(start_paused = true)]
async fn extended_attributes_of_directories_are_carried_over() {
    let mut storm = Storm::new().await;
    storm.programs.act(&Act::MakeDirectory(2));
    storm.settle().await;
    storm.programs.act(&Act::Xattr(2, true));
    storm.settle().await;
    assert!(storm.volume().contains("Some("), "{}", storm.volume());
    storm.agree().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_program_writes_while_a_device_s_attributes_are_set_is_taken_in() {
    for (act, step) in [(Act::Store(0), 1), (Act::Save(0), 4), (Act::Mode(0, 2), 4)] {
        for calls in (0..40).step_by(step) {
            let act = act.clone();
            let mut storm = Storm::new().await;
            storm.programs.act(&Act::Store(0));
            storm.settle().await;
            storm.there(&Act::Mode(0, 0)).await;
            let programs = storm.programs.clone();
            storm.disk.meanwhile(calls, move || programs.act(&act));
            storm.agree().await;
        }
    }
}

/// Forgets what is written down of a file that has one name, as damage would.
fn forget(storm: &Storm, path: &str) {
    let (above, file, _) = find(&storm.party, path).unwrap();
    let inode = fs::symlink_metadata(storm.path(path)).unwrap().ino();
    let volume = storm.party.origin.volumes().unwrap()[0].id;
    let key = |number: u64| [&volume.0.to_be_bytes()[..], &number.to_be_bytes()].concat();
    let mut write = storm.party.tables.write().unwrap();
    let name = [&key(above.0)[..], last(path).as_bytes()].concat();
    for (table, key) in
        [("tree-names", name), ("tree-known", key(file.0)), ("tree-numbers", key(inode))]
    {
        assert!(write.get(table, &key).unwrap().is_some(), "{table}");
        write.delete(table, &key).unwrap();
    }
    write.commit(store::Durability::Now).unwrap();
}

#[tokio::test(start_paused = true)]
async fn in_doubt_everything_is_looked_at_within_a_minute() {
    let mut storm = Storm::new().await;
    for act in [Act::Store(0), Act::MakeDirectory(2)] {
        storm.programs.act(&act);
    }
    storm.settle().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    storm.settle().await;
    forget(&storm, "a");
    storm.there(&Act::Remove(0)).await;
    storm.settle().await;
    assert!(storm.tree().contains("here"), "nothing tells of it");
    assert!(storm.volume().is_empty() || !storm.volume().contains("here"));
    storm.programs.act(&Act::Rename(2, 3));
    storm.settle().await;
    let mut passed = Duration::ZERO;
    for _ in 0..ROUNDS_MAX {
        if storm.tree().contains("here") == storm.volume().contains("here") {
            break;
        }
        assert!(passed <= Duration::from_secs(60), "{passed:?}");
        let pause = storm.keeper.round().unwrap();
        passed += pause;
        tokio::time::advance(pause).await;
    }
    storm.agree().await;
}
