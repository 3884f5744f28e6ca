//! From the tree into the volume: what each look leads to.
//! Holds: what both sides have the same already makes no update; a file is taken in as it was
//! at one moment, unless it is written to without end.

use super::commit::{Agree, At, Step};
use super::contents;
use super::dirt::{Since, rest};
use super::keeper::Keeper;
use super::rows::{self, Known, kind, time};
use super::scan::Look;
use crate::error::{ReplicaError, Result};
use crate::upkeep::Promise;
use chunks::ChunksError;
use minicbor::bytes::ByteVec;
use model::{
    ACL_ACCESS, ACL_DEFAULT, Acl, AttributeChange, Change, Contents, FileId, Kind, Name, Node,
    REPLICA_MAX, ReplicaId, Seq, Stamp, Time, View,
};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;
use store::StoreError;
use store::tree::{Directory, Stat, has_xattrs_like};
use tracing::warn;
use volume::whole::Whole;

/// After so long a file that cannot be read at one moment is taken in as it comes.
pub(super) const UNSTEADY_AFTER: Duration = Duration::from_secs(12);
/// What was written into a mapping is on the disk after so long, if it is not asked for.
const MAPPED_SECS: i64 = 120;
/// How soon a file is looked at again that changed while it was read.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// Stands for the stamp of the update before, which makes the file.
pub(super) const OF_MAKE: Stamp = Stamp { replica: ReplicaId(REPLICA_MAX), number: u64::MAX };

/// What a file holds, and how it looked then.
pub(super) struct Held {
    pub stat: Stat,
    pub contents: Contents,
    /// It did not change while it was read.
    pub steady: bool,
    /// What it holds stays as long as this. None: there is nothing that could go.
    pub promise: Option<Promise>,
}

impl Held {
    pub(super) fn known(&self, xattrs: Xattrs) -> Known {
        let seen = Known::seen(&self.stat);
        let ctime = seen.ctime.filter(|_| self.steady);
        Known { contents: self.contents, ctime, xattrs, ..seen }
    }
}

pub(super) type Xattrs = Option<BTreeMap<ByteVec, ByteVec>>;

impl Keeper {
    /// Commits the steps, if there are any.
    pub(super) fn flush(&mut self, steps: &mut Vec<Step>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let seen = self.position()?;
        self.commit(std::mem::take(steps), seen)
    }

    pub(super) fn position(&self) -> Result<Seq> {
        let read = self.inner.tables.read()?;
        Ok(Whole::now(&*read, self.volume.id).position()?)
    }

    /// A file that the tree did not have.
    pub(super) fn fresh(
        &mut self,
        opened: &Directory,
        look: &Look,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let Some(stat) = look.stat else { return Ok(()) };
        if self.recovers && self.there(&look.at)?.is_none_or(|(_, _, free)| !free) {
            return Ok(());
        }
        let name = look.at.1.as_bytes();
        let Some(held) = self.hold(opened, &look.at, stat, look.since)? else { return Ok(()) };
        let xattrs = own_xattrs(opened, name, &held.stat)?.flatten();
        let target = match held.stat.sort {
            store::tree::Sort::Symlink => match opened.read_link(name) {
                Ok(target) => Some(ByteVec::from(target)),
                Err(error) => {
                    self.skip(&error);
                    return Ok(());
                }
            },
            _ => None,
        };
        let there = self.there(&look.at)?;
        if let Some((file, node, free)) = there
            && free
            && is_same(&node, &held, target.as_ref())
        {
            let mut known = held.known(xattrs);
            known.contents_stamp = node.contents_stamp;
            let at = look.at.clone();
            steps.push(Step::agree(Agree::Is { at, file, known: Box::new(known) }));
            // It may have other attributes there, and nothing in the log will tell.
            self.behind.nodes.insert(file);
            return Ok(());
        }
        if self.recovers {
            return Ok(());
        }
        self.files_made += 1;
        let file = FileId::new(self.row.replica, self.files_made)
            .map_err(|_| volume::whole::Error::NoneLeft("file ids"))?;
        made(look, file, &held, target, xattrs.clone(), steps);
        if self.has_xattrs && opened.default_list()?.is_some() {
            undo_handed_down(file, &held, xattrs.as_ref(), steps);
        }
        Ok(())
    }

    /// What the volume has under a name, and whether the tree has that nowhere.
    fn there(&self, at: &At) -> Result<Option<(FileId, Node, bool)>> {
        let read = self.inner.tables.read()?;
        let view = Whole::now(&*read, self.volume.id);
        let Some(file) = view.entry(at.0, &at.1)? else { return Ok(None) };
        let Some(node) = view.node(file)? else { return Ok(None) };
        let free = rows::known(&*read, self.volume.id, file)?.is_none();
        Ok(Some((file, node, free)))
    }

    /// The same file, which is not as it was.
    pub(super) fn changed(
        &mut self,
        opened: &Directory,
        look: &Look,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (Some(stat), Some((file, known))) = (look.stat, look.known.clone()) else {
            return Ok(());
        };
        let Some(held) = self.hold(opened, &look.at, stat, look.since)? else { return Ok(()) };
        let xattrs = self.xattrs_now(opened, &look.at.1, &known, &held.stat)?;
        self.differs(look, file, &known, &held, xattrs, steps)
    }

    /// Those that a tree has as they are there, and the others as they are known.
    pub(super) fn xattrs_now(
        &self,
        opened: &Directory,
        name: &Name,
        known: &Known,
        stat: &Stat,
    ) -> Result<Xattrs> {
        if !self.has_xattrs {
            return Ok(known.xattrs.clone());
        }
        let Some(own) = own_xattrs(opened, name.as_bytes(), stat)? else {
            return Ok(known.xattrs.clone());
        };
        let mut now = own.unwrap_or_default();
        let others = known.xattrs.iter().flatten().filter(|(name, _)| !has_xattrs_like(name));
        now.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        Ok((!now.is_empty()).then_some(now))
    }

    /// Updates for all in which a file differs from what is known of it. It may be another file
    /// that came in its place.
    pub(super) fn differs(
        &mut self,
        look: &Look,
        file: FileId,
        known: &Known,
        held: &Held,
        xattrs: Xattrs,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let read = self.inner.tables.read()?;
        let node = Whole::now(&*read, self.volume.id).node(file)?;
        drop(read);
        let mut now = Known {
            contents_stamp: known.contents_stamp,
            attributes_stamp: known.attributes_stamp,
            ..held.known(xattrs.clone())
        };
        let uid = held.stat.uid;
        let expects = node.as_ref().map_or(known.attributes_stamp, |node| node.attributes_stamp);
        let set = attributes(known, &now, held.contents != known.contents);
        for (name, value) in xattr_changes(known.xattrs.as_ref(), xattrs.as_ref()) {
            let change = match value {
                Some(value) => Change::SetXattr { file, name, value, expects: Some(expects) },
                None => Change::RemoveXattr { file, name, expects: Some(expects) },
            };
            steps.push(Step::new(change, uid, Agree::Nothing));
        }
        if set != AttributeChange::default() {
            now.attributes_stamp = Stamp::default();
            let change = Change::SetAttributes { file, expects, set };
            steps.push(Step::new(change, uid, Agree::Nothing));
        }
        let at = look.at.clone();
        let is_other = known.ino != now.ino || known.born != now.born;
        let unchanged = now == Known { names: Vec::new(), ..known.clone() };
        if held.contents != known.contents && now.kind == Kind::File {
            let same = node.as_ref().is_some_and(|node| node.contents == held.contents);
            let change = Change::Store {
                file,
                expects: known.contents_stamp,
                contents: held.contents,
                mtime: now.mtime,
            };
            if let (true, Some(node)) = (same, node) {
                now.contents_stamp = node.contents_stamp;
                now.attributes_stamp = Stamp::default();
                steps.push(Step::agree(Agree::Is { at, file, known: Box::new(now) }));
                self.behind.nodes.insert(file);
            } else {
                let step = Step::new(change, uid, Agree::Is { at, file, known: Box::new(now) });
                steps.push(Step { _promise: held.promise.clone(), ..step });
            }
        } else if is_other || !unchanged {
            steps.push(Step::agree(Agree::Is { at, file, known: Box::new(now) }));
        }
        Ok(())
    }

    /// Keeps what a file holds. None: it has to be left alone for now, or cannot be read.
    pub(super) fn hold(
        &mut self,
        opened: &Directory,
        at: &At,
        stat: Stat,
        since: Since,
    ) -> Result<Option<Held>> {
        if stat.sort != store::tree::Sort::File {
            let (contents, steady) = (Contents::EMPTY, true);
            return Ok(Some(Held { stat, contents, steady, promise: None }));
        }
        if self.is_large(&stat) {
            return self.hold_large(opened, at, stat, since);
        }
        let clock = self.inner.world.clock.clone();
        let Some(noted_for) = self.rests(at, &stat, since) else { return Ok(None) };
        let kept = || -> Result<(Stat, (Contents, Promise), Stat)> {
            let file = opened.open(at.1.as_bytes())?;
            if is_mapped(&stat, since, clock.time()) {
                file.settle()?;
            }
            let before = file.stat()?;
            let kept = contents::keep(&self.inner, &self.volume, &file, before.size)?;
            Ok((before, kept, file.stat()?))
        };
        match kept() {
            Ok((before, (contents, promise), after)) => {
                let steady = before == after && before == stat;
                if !steady && noted_for < UNSTEADY_AFTER {
                    self.dirt.wait(at.0, at.1.clone(), since, clock.moment() + AGAIN);
                    return Ok(None);
                }
                if !steady {
                    // It will be looked at again when this has been taken in.
                    self.dirt.note(at.0, at.1.clone(), false, clock.moment());
                }
                Ok(Some(Held { stat: before, contents, steady, promise: Some(promise) }))
            }
            Err(ReplicaError::Chunks(ChunksError::SizeChanged { .. })) => {
                self.dirt.wait(at.0, at.1.clone(), since, clock.moment() + AGAIN);
                Ok(None)
            }
            Err(ReplicaError::Store(error)) if is_leased(&error) => {
                self.dirt.wait(at.0, at.1.clone(), since, clock.moment() + AGAIN);
                Ok(None)
            }
            Err(ReplicaError::Store(error)) if is_of_the_file(&error) => {
                self.skip(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// For how long it is known that the file has changed. None: it is to be left alone for now.
    pub(super) fn rests(&mut self, at: &At, stat: &Stat, since: Since) -> Option<Duration> {
        let clock = &self.inner.world.clock;
        let now = clock.moment();
        let noted_for = now.since(since.at);
        match rest(time(stat.ctime), clock.time(), since.whole, noted_for) {
            Some(left) => {
                self.dirt.wait(at.0, at.1.clone(), since, now + left);
                None
            }
            None => Some(noted_for),
        }
    }

    /// A file that cannot be read stays out of the volume until it changes.
    pub(super) fn skip(&self, error: &StoreError) {
        if error.kind() == Some(ErrorKind::NotFound) {
            return;
        }
        warn!(volume = self.volume.name, %error, "a file of the tree is left out");
    }

    /// The root's own attributes.
    pub(super) fn root_changed(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.root_noted) {
            return Ok(());
        }
        let Some(opened) = self.tree.directory(b"")? else { return Ok(()) };
        let stat = opened.own_stat()?;
        let read = self.inner.tables.read()?;
        let known = rows::known(&*read, self.volume.id, FileId::ROOT)?;
        let node = Whole::now(&*read, self.volume.id).node(FileId::ROOT)?;
        drop(read);
        let (Some(known), Some(node)) = (known, node) else { return Ok(()) };
        if self.recovers {
            return self.half_dressed_root(&known, &node, &stat);
        }
        let now = known.looks(&stat);
        let set = attributes(&known, &now, false);
        if set == AttributeChange::default() {
            return Ok(());
        }
        let now = Known { attributes_stamp: Stamp::default(), ..now };
        let (file, expects) = (FileId::ROOT, node.attributes_stamp);
        let change = Change::SetAttributes { file, expects, set };
        let agree = Agree::Looks { file, known: Box::new(now) };
        let mut steps = vec![Step::new(change, stat.uid, agree)];
        self.flush(&mut steps)
    }
}

/// Whether a program may write to a mapping of the file, for all that is known.
pub(super) fn is_mapped(stat: &Stat, since: Since, now: Time) -> bool {
    !since.whole && now.secs.saturating_sub(stat.ctime.0) < MAPPED_SECS
}

/// The updates that make a file.
fn made(
    look: &Look,
    file: FileId,
    held: &Held,
    target: Option<ByteVec>,
    xattrs: Xattrs,
    steps: &mut Vec<Step>,
) {
    let (stat, at) = (&held.stat, look.at.clone());
    let kind = kind(stat.sort);
    let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    let make = Change::Make {
        parent: at.0,
        name: at.1.clone(),
        file,
        kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        target,
        rdev: is_device.then_some(stat.rdev),
        born: stat.born.map(time),
    };
    let known = held.known(xattrs.clone());
    let agree = Agree::Is { at, file, known: Box::new(known.clone()) };
    if kind == Kind::File {
        steps.push(Step::new(make, stat.uid, Agree::Nothing));
        let expects = OF_MAKE;
        let store = Change::Store { file, expects, contents: held.contents, mtime: known.mtime };
        let step = Step::new(store, stat.uid, agree);
        steps.push(Step { _promise: held.promise.clone(), ..step });
    } else {
        steps.push(Step::new(make, stat.uid, agree));
    }
    for (name, value) in xattrs.into_iter().flatten() {
        let change = Change::SetXattr { file, name, value, expects: None };
        steps.push(Step::new(change, stat.uid, Agree::Nothing));
    }
}

/// What a directory hands down goes to what is made in it; what was moved there does not have it.
fn undo_handed_down(
    file: FileId,
    held: &Held,
    xattrs: Option<&BTreeMap<ByteVec, ByteVec>>,
    steps: &mut Vec<Step>,
) {
    let has = |name: &[u8]| xattrs.into_iter().flatten().any(|(has, _)| has.as_slice() == name);
    let kind = kind(held.stat.sort);
    if matches!(kind, Kind::File | Kind::Directory) && !has(ACL_ACCESS) {
        let value = Acl::of_mode(held.stat.mode).to_bytes().into();
        let change =
            Change::SetXattr { file, name: ACL_ACCESS.to_vec().into(), value, expects: None };
        steps.push(Step::new(change, held.stat.uid, Agree::Nothing));
    }
    if kind == Kind::Directory && !has(ACL_DEFAULT) {
        let change = Change::RemoveXattr { file, name: ACL_DEFAULT.to_vec().into(), expects: None };
        steps.push(Step::new(change, held.stat.uid, Agree::Nothing));
    }
}

/// Whether the volume has the same, so that nothing need be said.
fn is_same(node: &Node, held: &Held, target: Option<&ByteVec>) -> bool {
    node.kind == kind(held.stat.sort)
        && node.contents == held.contents
        && node.target.as_ref() == target
}

fn attributes(known: &Known, now: &Known, stores: bool) -> AttributeChange {
    let has_mode = now.kind != Kind::Symlink;
    let has_time = now.kind == Kind::File && !stores;
    AttributeChange {
        mode: (has_mode && now.mode != known.mode).then_some(now.mode),
        uid: (now.uid != known.uid).then_some(now.uid),
        gid: (now.gid != known.gid).then_some(now.gid),
        atime: None,
        mtime: (has_time && now.mtime != known.mtime).then_some(now.mtime),
    }
}

/// Each that is another value now, or none.
pub(super) fn xattr_changes(
    before: Option<&BTreeMap<ByteVec, ByteVec>>,
    now: Option<&BTreeMap<ByteVec, ByteVec>>,
) -> Vec<(ByteVec, Option<ByteVec>)> {
    let gone = before
        .into_iter()
        .flatten()
        .filter(|(name, _)| now.is_none_or(|now| !now.contains_key(*name)));
    let set = now
        .into_iter()
        .flatten()
        .filter(|(name, value)| before.and_then(|before| before.get(*name)) != Some(*value));
    let gone = gone.map(|(name, _)| (name.clone(), None));
    gone.chain(set.map(|(name, value)| (name.clone(), Some(value.clone())))).collect()
}

/// Those of the tree. None: the server may not read them, or cannot.
pub(super) fn own_xattrs(opened: &Directory, name: &[u8], stat: &Stat) -> Result<Option<Xattrs>> {
    if !matches!(stat.sort, store::tree::Sort::File | store::tree::Sort::Directory) {
        return Ok(Some(None));
    }
    let found = match opened.xattrs(name) {
        Ok(found) => found,
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(Some(None)),
        Err(error) if error.kind() == Some(ErrorKind::PermissionDenied) => return Ok(None),
        // More names than a call gives.
        Err(error) if error.kind() == Some(ErrorKind::ArgumentListTooLong) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let own: BTreeMap<ByteVec, ByteVec> =
        found.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Ok(Some((!own.is_empty()).then_some(own)))
}

/// Whether those of the tree are the known ones.
pub(super) fn has_xattrs_of(known: &Known, own: Option<&BTreeMap<ByteVec, ByteVec>>) -> bool {
    let known = known.xattrs.iter().flatten().filter(|(name, _)| has_xattrs_like(name));
    known.eq(own.into_iter().flatten())
}

/// Somebody has a lease on the file, and has been asked to give it up. Linux takes it from him after
/// 45 s.
pub(super) fn is_leased(error: &StoreError) -> bool {
    error.kind() == Some(ErrorKind::WouldBlock)
}

/// An error that concerns one file, not the disk.
pub(super) fn is_of_the_file(error: &StoreError) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::PermissionDenied];
    match error {
        StoreError::Io { source, .. } => {
            kinds.contains(&source.kind()) || source.raw_os_error().is_some_and(is_odd)
        }
        _ => false,
    }
}

/// EIO, ENXIO and ELOOP: a file that cannot be opened or read.
fn is_odd(errno: i32) -> bool {
    matches!(errno, 5 | 6 | 40)
}
