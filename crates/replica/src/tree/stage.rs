//! Files are made ready beside the tree before they are put where they belong.
//! Holds: what is ready is on the disk, and written down, before a name leads to it; what a
//! crash leaves is recognised: `tmp-` is half, `new-` is ready or was just replaced, `park-` is
//! on its way from one name to another.

use super::commit::At;
use super::contents::write_out;
use super::keeper::Keeper;
use super::rows::{self, Known, STAGE_NAME, Staged, sort};
use super::undone::is_kept;
use crate::error::{ReplicaError, Result};
use crate::take::kept_name;
use model::{ACL_ACCESS, FileId, Kind, Name, Node, View};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use store::tree::{Directory, Handle, How, Stat, TreeFile};
use store::{Durability, Read, StoreError};
use tracing::{info, warn};
use volume::whole::Whole;

/// Names that are tried for what is kept aside.
const TRIES_MAX: u32 = 1000;

/// A file that is ready, by its name in the stage.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub name: Name,
    pub known: Known,
    /// Newer versions come faster than they are written: this one is put out though it is older.
    pub overtaken: bool,
}

impl Ready {
    pub fn stands_for(&self, node: &Node) -> bool {
        self.overtaken || self.known.contents_stamp == node.contents_stamp
    }
}

pub(super) fn stage_name(prefix: &str, number: u64) -> Name {
    Name::new(format!("{prefix}{number:x}")).expect("letters and digits, and not many")
}

impl Keeper {
    pub(super) fn stage(&self) -> Result<Directory> {
        let stage = self.tree.directory(STAGE_NAME)?;
        let path = || self.tree.path().display().to_string();
        stage.ok_or_else(|| ReplicaError::BadTree(path(), "its .farfs-tree is gone".into()))
    }

    /// Makes ready those of the files whose present contents the tree does not have. Large ones wait
    /// until they are written.
    pub(super) fn make_ready(&mut self, files: &[FileId]) -> Result<BTreeMap<FileId, Ready>> {
        let mut ready = BTreeMap::new();
        let wanted = self.not_there(files)?;
        if wanted.is_empty() {
            return Ok(ready);
        }
        let stage = self.stage()?;
        let (mut made, mut outs) = (Vec::new(), Vec::new());
        for (file, node) in wanted {
            let name = stage_name("tmp-", file.0);
            if self.is_large_node(&node) {
                match self.take_written(&stage, file, &node) {
                    Some(Ok(known)) => {
                        let overtaken = known.contents_stamp != node.contents_stamp;
                        ready.insert(file, Ready { name, known, overtaken });
                    }
                    Some(Err(error)) => self.not_ready(&stage, &name, file, &error),
                    None => {}
                }
                continue;
            }
            let written = self.write_ready(&stage, &name, &node);
            let of = (file, node.contents_stamp);
            match self.inner.wanting(&self.volume, of, &node.contents, written) {
                Ok((known, out)) => {
                    made.push((file, Ready { name, known, overtaken: false }));
                    outs.push(out);
                }
                Err(error) => self.not_ready(&stage, &name, file, &error),
            }
        }
        for ((file, made), synced) in made.into_iter().zip(TreeFile::sync_each(&outs)) {
            match synced {
                Ok(()) => {
                    ready.insert(file, made);
                }
                Err(error) => self.not_ready(&stage, &made.name, file, &error.into()),
            }
        }
        let inner = self.inner.clone();
        let mut write = inner.tables.write()?;
        for (file, ready) in &ready {
            let staged = Staged { file: *file, known: ready.known.clone() };
            rows::put_staged(&mut *write, self.volume.id, &staged)?;
        }
        stage.sync()?;
        if !ready.is_empty() {
            is_kept(&self.tree)?;
        }
        write.commit(Durability::Now)?;
        for (file, ready) in &mut ready {
            let name = stage_name("new-", file.0);
            self.make_way(&*inner.tables.read()?, &stage, &name)?;
            stage.rename_from(name.as_bytes(), &stage, ready.name.as_bytes(), How::Replace)?;
            ready.name = name;
        }
        Ok(ready)
    }

    /// Those of the files whose present contents the tree does not have.
    fn not_there(&self, files: &[FileId]) -> Result<Vec<(FileId, Node)>> {
        let read = self.inner.tables.read()?;
        let view = Whole::now(&*read, self.volume.id);
        let mut wanted = Vec::new();
        for file in files {
            let Some(node) = view.node(*file)?.filter(|node| node.kind == Kind::File) else {
                continue;
            };
            let known = rows::known(&*read, self.volume.id, *file)?;
            if known.is_none_or(|known| known.contents_stamp != node.contents_stamp) {
                wanted.push((*file, node));
            }
        }
        Ok(wanted)
    }

    fn not_ready(&mut self, stage: &Directory, name: &Name, file: FileId, error: &ReplicaError) {
        self.say_failure(error);
        let _ = stage.unlink(name.as_bytes());
        self.littered = true;
        self.behind.nodes.insert(file);
    }

    /// Written, and not safe from a power cut yet.
    fn write_ready(
        &mut self,
        stage: &Directory,
        name: &Name,
        node: &Node,
    ) -> Result<(Known, TreeFile)> {
        if stage.stat(name.as_bytes())?.is_some() {
            stage.unlink(name.as_bytes())?;
        }
        let file = stage.create(name.as_bytes())?;
        write_out(&self.inner, &self.volume, &node.contents, &file)?;
        Ok((self.dress_ready(stage, name, node)?, file))
    }

    /// What has all its contents gets the rest.
    pub(super) fn dress_ready(
        &mut self,
        stage: &Directory,
        name: &Name,
        node: &Node,
    ) -> Result<Known> {
        let mut known = self.dress(stage, name, node, None)?;
        known.contents = node.contents;
        known.contents_stamp = node.contents_stamp;
        Ok(known)
    }

    /// Gives a file in a directory the attributes of a node, as far as this server may. `before`:
    /// how it was known, if programs can reach it; what they do meanwhile is left to be seen.
    pub(super) fn dress(
        &mut self,
        there: &Directory,
        name: &Name,
        node: &Node,
        before: Option<&Known>,
    ) -> Result<Known> {
        let bytes = name.as_bytes();
        // Who may rename in the directory must not get them set on something else.
        let file = there.handle(bytes)?;
        let now = file.stat()?;
        if before.is_some_and(|before| !before.is(&now)) {
            return Err(self.vanished(name));
        }
        let mut owner = (now.uid, now.gid);
        if owner != (node.uid, node.gid) {
            let done = file.set_owner(node.uid, node.gid);
            if self.can_be_set("owner", done)? {
                owner = (node.uid, node.gid);
            }
        }
        let (mut xattrs, mut is_listed) = (None, true);
        if matches!(node.kind, Kind::File | Kind::Directory) {
            is_listed = self.dress_xattrs((there, &file), bytes, node, &now)?;
            xattrs = super::intake::own_xattrs(there, bytes, &now)?.flatten();
        }
        // Changing the owner takes the set-user-id bits away, so the mode comes after it.
        let mode = if is_listed { node.mode } else { mode_without_list(node) };
        let now = self.stat_known(there, name, before)?;
        if node.kind != Kind::Symlink && now.mode != mode {
            file.set_mode(mode)?;
        }
        let mode = if node.kind == Kind::Symlink { now.mode } else { mode };
        let stat = self.stat_known(there, name, before)?;
        let was_written = before.is_some_and(|before| !before.holds_the_same(&stat));
        let mtime = (node.mtime.secs, node.mtime.nanos);
        let is_timed = node.kind == Kind::File && !was_written && stat.mtime != mtime;
        if is_timed {
            file.set_mtime(mtime)?;
        }
        let stat = self.stat_known(there, name, before)?;
        let is_written = before.is_some_and(|before| {
            let has_time = is_timed || before.mtime == rows::time(stat.mtime);
            before.kind == Kind::File && (before.size != stat.size || !has_time)
        });
        let attributes_stamp = node.attributes_stamp;
        let (uid, gid) = owner;
        let mut known = Known { mode, uid, gid, attributes_stamp, xattrs, ..Known::seen(&stat) };
        if let Some(before) = before
            && (is_written || is_timed)
        {
            // Its times do not tell what was written to it meanwhile.
            known.ctime = None;
            if is_written {
                (known.size, known.mtime) = (before.size, before.mtime);
            }
        }
        Ok(known)
    }

    /// False: the tree does not take the list that says who may do what.
    fn dress_xattrs(
        &mut self,
        (there, file): (&Directory, &Handle),
        name: &[u8],
        node: &Node,
        now: &Stat,
    ) -> Result<bool> {
        let before = super::intake::own_xattrs(there, name, now)?.flatten();
        let mut is_listed = true;
        for (key, value) in super::intake::xattr_changes(before.as_ref(), node.xattrs.as_ref()) {
            let value = value.as_ref().map(|value| &value[..]);
            if !self.can_be_set("extended attributes", file.set_xattr(&key, value))? {
                is_listed &= key.as_slice() != ACL_ACCESS || value.is_none();
            }
        }
        Ok(is_listed)
    }

    /// Errors: nothing bears the name, or another file than the one that is known.
    fn stat_known(
        &self,
        there: &Directory,
        name: &Name,
        known: Option<&Known>,
    ) -> Result<store::tree::Stat> {
        let stat = there.stat(name.as_bytes())?;
        let stat = stat.filter(|stat| known.is_none_or(|known| known.is(stat)));
        stat.ok_or_else(|| self.vanished(name))
    }

    fn vanished(&self, name: &Name) -> ReplicaError {
        let path = self.tree.path().display().to_string();
        ReplicaError::BadTree(path, format!("{name} went away while it was worked on"))
    }

    /// False: this server may not, or the tree does not take it, which is said once. Errors: its disk
    /// fails, or cannot be written to now.
    pub(super) fn can_be_set(
        &mut self,
        what: &'static str,
        done: store::Result<()>,
    ) -> Result<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(error) if is_of_the_disk(&error) => Err(error.into()),
            Err(error) => {
                self.say_once(what, &error);
                Ok(false)
            }
        }
    }

    pub(super) fn say_once(&mut self, what: &'static str, error: &dyn std::fmt::Display) {
        if self.said.insert(what) {
            warn!(
                volume = self.volume.name,
                what, %error, "not everything can be set in the tree; this is said once"
            );
        }
    }

    /// Makes what is no ordinary file ready. None: this server cannot.
    pub(super) fn make_other(&mut self, file: FileId, node: &Node) -> Result<Option<Ready>> {
        let stage = self.stage()?;
        let name = stage_name("tmp-", file.0);
        let bytes = name.as_bytes();
        match stage.stat(bytes)? {
            Some(stat) if stat.sort == store::tree::Sort::Directory => {
                stage.remove_directory(bytes)?;
            }
            Some(_) => stage.unlink(bytes)?,
            None => {}
        }
        let made = match (node.kind, &node.target) {
            (Kind::File, _) => return Ok(None),
            (Kind::Directory, _) => stage.make_directory(bytes, 0o700),
            (Kind::Symlink, target) => {
                stage.make_symlink(bytes, target.as_ref().map_or(b"?", |target| &target[..]))
            }
            (kind, _) => stage.make_special(bytes, sort(kind), 0o600, node.rdev.unwrap_or(0)),
        };
        if !self.can_be_set("a special file", made)? {
            return Ok(None);
        }
        let mut known = self.dress(&stage, &name, node, None)?;
        known.contents_stamp = node.contents_stamp;
        Ok(Some(Ready { name, known, overtaken: false }))
    }

    /// What lies in the stage and was changed by a program of the server is put beside `at`, under
    /// a name that says so, and is taken in from there.
    pub(super) fn rescue(&mut self, read: &dyn Read, staged: &Name, at: &At) -> Result<()> {
        let stage = self.stage()?;
        let there = match self.directory_in(read, at.0)? {
            Some(there) => there,
            None => return self.rescue_into_root(&stage, staged, &at.1),
        };
        let kept = self.keep_in(&there, &stage, staged, &at.1)?;
        let now = self.inner.world.clock.moment();
        self.dirt.note(at.0, kept, true, now);
        Ok(())
    }

    pub(super) fn rescue_into_root(
        &mut self,
        stage: &Directory,
        staged: &Name,
        name: &Name,
    ) -> Result<()> {
        let Some(root) = self.tree.directory(b"")? else { return Ok(()) };
        let kept = self.keep_in(&root, stage, staged, name)?;
        let now = self.inner.world.clock.moment();
        self.dirt.note(FileId::ROOT, kept, true, now);
        Ok(())
    }

    fn keep_in(
        &self,
        there: &Directory,
        stage: &Directory,
        staged: &Name,
        name: &Name,
    ) -> Result<Name> {
        let at = self.inner.world.clock.time();
        let mut attempt = 0;
        loop {
            let kept = kept_name(name, &self.name, at, attempt);
            match there.rename_from(kept.as_bytes(), stage, staged.as_bytes(), How::New) {
                Ok(()) => {
                    info!(volume = self.volume.name, %kept, "a change on the server is kept aside");
                    return Ok(kept);
                }
                Err(error)
                    if error.kind() == Some(ErrorKind::AlreadyExists) && attempt < TRIES_MAX =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// EIO and EROFS.
fn is_of_the_disk(error: &StoreError) -> bool {
    match error {
        StoreError::Io { source, .. } => matches!(source.raw_os_error(), Some(5 | 30)),
        error => matches!(error, StoreError::Crashed),
    }
}

/// Without the list the bits of the group would give it what all on the list may at most.
pub(super) fn mode_without_list(node: &Node) -> u16 {
    node.acl(ACL_ACCESS).map_or(node.mode, |list| node.mode & list.mode_alone())
}
