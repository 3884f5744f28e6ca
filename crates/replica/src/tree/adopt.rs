//! How a volume and a tree come together, and find each other again.
//! Holds: a tree that was never together with the volume is taken in only if one of the two is
//! empty; one that was is recognised by its mark, wherever it is.

use super::barred::Barred;
use super::commit::device;
use super::doubt::Doubt;
use super::keeper::{Behind, Keeper, MARK_NAME, TreeInfo, mark_of};
use super::patrol::Patrol;
use super::rows::{self, Known, STAGE_NAME, TreeRow};
use super::undone::Undone;
use crate::catalog::{self, hex};
use crate::error::{ReplicaError, Result};
use crate::origin::Origin;
use crate::volumes::{Volume, locked};
use model::{FileId, Seq, Stamp, View};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use store::tree::{Directory, How, Tree, Watch};
use store::{Durability, StoreError};
use tracing::{info, warn};
use volume::whole::{Committer, VolumeId, Whole, Writer};

/// Chance in a mark.
const MARK_BYTES: usize = 16;
/// What is made ready is nobody else's affair.
const STAGE_MODE: u16 = 0o700;
/// Begins the name of a file that tells whose the files are that this process makes; a crash leaves it to be cleared.
const OWN_NAME: &[u8] = b"tmp-own-";

impl Origin {
    /// The volumes that are kept in step with a tree, where it was last, and how it is.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        let read = self.0.tables.read()?;
        let mut trees = Vec::new();
        for row in catalog::volumes(&*read)? {
            if let Some(tree) = rows::tree(&*read, VolumeId(row.id))? {
                let path = std::ffi::OsString::from_vec(tree.path.to_vec());
                let volume = locked(&self.0.volumes).get(&VolumeId(row.id)).cloned();
                let state = volume.and_then(|volume| volume.door.state());
                trees.push(TreeInfo { volume: row.name, path: PathBuf::from(path), state });
            }
        }
        Ok(trees)
    }

    /// Begins to keep a volume in step with the directory at `path`. `name` is what the server is
    /// called where a change of its own programs is kept aside.
    pub fn keep_tree(&self, volume: &str, path: &Path, name: &str) -> Result<Keeper> {
        self.keep_opened(volume, Tree::open(path)?, name)
    }

    /// The same with a directory that is open.
    pub fn keep_opened(&self, volume: &str, tree: Tree, name: &str) -> Result<Keeper> {
        let inner = self.0.clone();
        let row = catalog::volume(&*inner.tables.read()?, volume)?;
        let row = row.ok_or_else(|| ReplicaError::NoVolume(volume.to_owned()))?;
        let found = locked(&inner.volumes).get(&VolumeId(row.id)).cloned();
        let volume = found.ok_or_else(|| ReplicaError::NoVolume(volume.to_owned()))?;
        let before = rows::tree(&*inner.tables.read()?, volume.id)?;
        let (row, is_new) = match before {
            Some(row) => (self.found_again(&volume, &tree, row)?, false),
            None => (self.together(&volume, &tree)?, true),
        };
        let watch = Watch::new()?;
        let now = inner.world.clock.moment();
        info!(volume = volume.name, path = %tree.path().display(), is_new, "a tree is kept in step");
        let files_made = row.files;
        let has_xattrs = keeps_xattrs(&tree);
        let mut keeper = Keeper {
            inner,
            volume,
            tree,
            watch,
            row,
            name: name.to_owned(),
            watched: BTreeMap::new(),
            listed: BTreeSet::new(),
            dirt: Default::default(),
            large: Default::default(),
            outgoing: Default::default(),
            patrol: Patrol::after(now),
            barred: Barred::none(now),
            doubt: Doubt::none(now),
            behind: Behind::default(),
            underway: None,
            undone: None,
            littered: false,
            recovers: false,
            in_transit: BTreeSet::new(),
            upto: Seq::START,
            files_made,
            root_noted: true,
            unwatched: false,
            has_xattrs,
            said: BTreeSet::new(),
            away: false,
            looked_at_all: now,
            stuck: 0,
            stirred: false,
            unemptied: BTreeMap::new(),
            hindered: Vec::new(),
            tried: now,
            full: false,
            read_only: false,
            new: true,
        };
        keeper.upto = keeper.position()?;
        keeper.dirt.everything = true;
        keeper.undone = Undone::found(&*keeper.inner.tables.read()?, keeper.volume.id)?;
        keeper.redo_or_say();
        keeper.clear_stage()?;
        keeper.recover_or_say();
        Ok(keeper)
    }

    fn found_again(&self, volume: &Volume, tree: &Tree, row: TreeRow) -> Result<TreeRow> {
        let was = String::from_utf8_lossy(&row.path).into_owned();
        if mark_of(tree)?.as_deref() != Some(&row.mark[..]) {
            let name = &volume.name;
            return Err(bad(
                tree,
                format!(
                    "it is not the one that volume {name} was kept in step with, which was {was}; \
                     is its disk mounted?"
                ),
            ));
        }
        if let Some(stage) = tree.directory(STAGE_NAME)?.filter(|_| !tree.is_read_only()) {
            match take_over(tree, &stage, &self.chance()) {
                // The disk may be full: it is looked at again at the next start.
                Err(ReplicaError::Store(error)) => {
                    warn!(volume = volume.name, %error, "whose .farfs-tree is could not be looked at");
                }
                taken_over => taken_over?,
            }
        }
        let path = tree.path().as_os_str().as_bytes();
        if path == &row.path[..] {
            return Ok(row);
        }
        info!(volume = volume.name, was, "the tree has moved");
        let row = TreeRow { path: path.to_vec().into(), ..row };
        let mut write = self.0.tables.write()?;
        rows::put_tree(&mut *write, volume.id, &row)?;
        write.commit(Durability::Now)?;
        Ok(row)
    }

    /// The first time.
    fn together(&self, volume: &Volume, tree: &Tree) -> Result<TreeRow> {
        let Some(root) = tree.directory(b"")? else { return Err(bad(tree, "it is gone".into())) };
        let is_bare = |name: &Vec<u8>| name == STAGE_NAME;
        let mark = mark_of(tree)?;
        if mark.is_some() && !self.is_left_over(&root)? {
            let what = "it is kept in step with another volume or server; if that is no more, \
                        remove .farfs-tree from it";
            return Err(bad(tree, what.into()));
        }
        let tree_is_empty = root.names()?.iter().all(is_bare);
        let read = self.0.tables.read()?;
        let view = Whole::now(&*read, volume.id);
        let volume_is_empty = view.is_empty(FileId::ROOT)?;
        let node = view.node(FileId::ROOT)?;
        drop(read);
        if !tree_is_empty && !volume_is_empty {
            let name = &volume.name;
            let what = format!(
                "there are files in it and in volume {name}, which were never together; begin \
                 with an empty directory or an empty volume"
            );
            return Err(bad(tree, what));
        }
        let mark = self.mark(tree, &root)?;
        let mut known = Known::seen(&root.own_stat()?);
        if let Some(node) = node.filter(|_| volume_is_empty) {
            // So the tree's own differ, and are taken in.
            (known.mode, known.uid, known.gid) = (node.mode, node.uid, node.gid);
            known.attributes_stamp = node.attributes_stamp;
        } else {
            known.attributes_stamp = Stamp::default();
        }
        let mut write = self.0.tables.write()?;
        let mut committer = Committer::begin(&mut *write, volume.id)?;
        let replica = committer.fresh_replica()?;
        committer.put_writer(replica, &Writer::new(&device(&mark).0))?;
        committer.finish()?;
        let path = tree.path().as_os_str().as_bytes().to_vec().into();
        let row = TreeRow { path, mark: mark.into(), replica, made: 0, files: 0 };
        rows::put_tree(&mut *write, volume.id, &row)?;
        rows::put_known(&mut *write, volume.id, FileId::ROOT, &known)?;
        write.commit(Durability::Now)?;
        Ok(row)
    }

    /// Whether a mark is all that an interrupted beginning has left.
    fn is_left_over(&self, root: &Directory) -> Result<bool> {
        Ok(root.names()?.len() == 1)
    }

    fn chance(&self) -> [u8; MARK_BYTES] {
        let mut chance = [0; MARK_BYTES];
        self.0.world.entropy.fill(&mut chance);
        chance
    }

    /// Makes the directory where files are made ready, with a mark in it.
    fn mark(&self, tree: &Tree, root: &Directory) -> Result<Vec<u8>> {
        if root.stat(STAGE_NAME)?.is_none() {
            root.make_directory(STAGE_NAME, STAGE_MODE)?;
        }
        let Some(stage) = tree.directory(STAGE_NAME)? else {
            return Err(bad(tree, "its .farfs-tree is no directory".into()));
        };
        if !can_exchange(&stage)? {
            return Err(bad(tree, "its file system cannot exchange two files".into()));
        }
        let mark = hex(&self.chance()).into_bytes();
        // Until it is the server's alone somebody could take a mark out of it, and put it into his own.
        take_over(tree, &stage, &self.chance())?;
        clear(&stage, MARK_NAME)?;
        let file = stage.create(MARK_NAME)?;
        file.write(0, &mark)?;
        file.sync()?;
        stage.sync()?;
        root.sync()?;
        Ok(mark)
    }
}

/// Whoever has made the place where files are made ready must not reach what is made ready in it.
fn take_over(tree: &Tree, stage: &Directory, chance: &[u8]) -> Result<()> {
    // Nobody can have made it before.
    let name = [OWN_NAME, hex(chance).as_bytes()].concat();
    let own = stage.create(&name)?.stat();
    stage.unlink(&name)?;
    let own = own?;
    let now = stage.own_stat()?;
    if (now.uid, now.gid, now.mode) == (own.uid, own.gid, STAGE_MODE) {
        return Ok(());
    }
    stage.set_own(own.uid, own.gid, STAGE_MODE).map_err(|error| {
        bad(tree, format!("its .farfs-tree is another user's ({error}); remove it"))
    })
}

fn keeps_xattrs(tree: &Tree) -> bool {
    let stage = tree.directory(STAGE_NAME).ok().flatten();
    let has = |stage: &Directory| {
        stage.xattrs(MARK_NAME).is_ok_and(|found| found.contains_key(&b"user.farfs"[..]))
    };
    // One that is read-only may have it from before.
    stage.is_some_and(|stage| {
        stage.set_xattr(MARK_NAME, b"user.farfs", Some(b"tree")).is_ok() || has(&stage)
    })
}

fn can_exchange(stage: &Directory) -> Result<bool> {
    let (one, other) = (&b"one"[..], &b"other"[..]);
    clear(stage, one)?;
    clear(stage, other)?;
    stage.create(one)?;
    stage.create(other)?;
    let can = stage.rename_from(one, stage, other, How::Exchange).is_ok();
    clear(stage, one)?;
    clear(stage, other)?;
    Ok(can)
}

fn clear(stage: &Directory, name: &[u8]) -> Result<(), StoreError> {
    match stage.stat(name)? {
        Some(_) => stage.unlink(name),
        None => Ok(()),
    }
}

fn bad(tree: &Tree, what: String) -> ReplicaError {
    ReplicaError::BadTree(tree.path().display().to_string(), what)
}
