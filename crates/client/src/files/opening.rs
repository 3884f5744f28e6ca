//! Opening and closing: which container a version has, and when it is let go.
//! Holds: a reader that has a version open keeps it; who opens later gets the version that is
//! current then.
//! From: AFS and LBFS, close-to-open.

use super::lending::{Lends, Way, way};
use super::{Files, Grip, HandleState, OpenFile, Since};
use crate::client::{Client, failed};
use crate::known::Remover;
use crate::numbers::{Inode, Place};
use crate::presence::Presence;
use crate::ranks::Ranked;
use crate::room::taken;
use crate::types::{Caller, Done, Error, Found, Handle, OpenFlags, Opened, Step, Stop};
use chunks::Described;
use model::{FileId, Kind, Node};
use protocol::{Objection, Upstream};
use store::container::Key;
use store::{Container, Containers, Durability, Result as StoreResult, StoreError};

/// Which of two containers was used later is told by no less.
const USED_GRAIN_SECS: i64 = 30;

/// Who gets a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opener {
    Kernel {
        inode: Inode,
        lends: Lends,
    },
    /// A call of the kernel's that needs one while it lasts.
    Us,
}

impl Opener {
    /// Whatever the version is. The kernel appends where it knew the end to be before whoever appends
    /// got the lock.
    fn is_past_cache(self, flags: OpenFlags) -> bool {
        match self {
            Opener::Us => true,
            Opener::Kernel { lends, .. } => flags.append && lends.shares_locks,
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Opens an ordinary file as its current version.
    pub fn open_file(&self, caller: Caller, file: FileId, flags: OpenFlags) -> Step<Done<Opened>> {
        self.open_as(caller, file, flags, Inode::of(file))
    }

    /// As `open_file`, by the inode by which the kernel has found it. `Error::LentOut`: by another
    /// one it can be opened, for which the path has to be looked up once more.
    pub fn open_as(
        &self,
        caller: Caller,
        file: FileId,
        flags: OpenFlags,
        inode: Inode,
    ) -> Step<Done<Opened>> {
        self.look_before(file)?;
        self.asks_first(file, flags)?;
        self.has_place_for(file)?;
        self.settle_closed_one(file, flags.write.then_some(inode));
        let lends = self.lends(file, flags);
        let opened = self.with_room(|| {
            self.open_here(caller, file, flags, Opener::Kernel { inode, lends })
                .map_err(|stop| self.or_out_of_reach(file, flags, stop))
        });
        match &opened {
            // From here on they may change by another number.
            Err(Stop::Error(Error::LentOut)) => self.forget_what_is_cached(file, false),
            // The program hears of it, and whatever the thread opens next is another matter.
            Err(Stop::Error(_)) => {
                self.numbers().has_come(file, inode.thread, false, self.inner.world.clock.moment());
            }
            Ok(_) | Err(Stop::Need(_)) => {}
        }
        opened
    }

    /// As `open_file`, for a handle that the kernel does not get.
    pub(super) fn open_for_us(&self, caller: Caller, file: FileId) -> Step<Opened> {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let opened = self.with_room(|| self.open_here(caller, file, flags, Opener::Us))?;
        Ok(opened.value)
    }

    fn open_here(
        &self,
        caller: Caller,
        file: FileId,
        flags: OpenFlags,
        opener: Opener,
    ) -> Step<Done<Opened>> {
        if file.is_past() && (flags.write || flags.truncate) {
            return Err(Objection::ReadOnly.into());
        }
        if flags.truncate && !flags.write {
            // Linux cuts it all the same, and some programs clear files so.
            let wait = self.truncate(caller, file, None, 0)?;
            let cut = OpenFlags { truncate: false, ..flags };
            let Done { value, wait: later } = self.open_here(caller, file, cut, opener)?;
            return Ok(Done { value, wait: later.or(wait) });
        }
        // Read under the lock: beside an older one, what was stored and closed since would look
        // like somebody else's version.
        let mut files = self.files();
        let there = self.node_or_unborn(&files, file)?;
        let gone_here =
            there.is_none() && self.known().gone(file).is_some_and(|gone| gone.by == Remover::Here);
        let node = match there {
            Some(node) => node,
            // Its last name went after the kernel had found it, or it is opened again through
            // /proc/PID/fd.
            None => self.found(&mut files, file, None)?.node,
        };
        match node.kind {
            Kind::File => {}
            Kind::Directory => return Err(Objection::IsADirectory.into()),
            _ => return Err(Error::NotSupported("opening what is not a file").into()),
        }
        let opened = self.open_version(&mut files, (file, &node), flags, opener)?;
        if gone_here {
            files.take_name(file, &node);
        }
        self.let_go(files);
        if let Err(stop) = self.begin_to_lend(opened.handle, caller.uid) {
            self.release(opened.handle);
            return match opener {
                // The daemon says when it is written what is in the way.
                Opener::Kernel { inode, lends } if lends.to_writers => {
                    let lends = Lends { to_writers: false, ..lends };
                    self.open_here(caller, file, flags, Opener::Kernel { inode, lends })
                }
                _ => Err(stop),
            };
        }
        if flags.truncate
            && let Err(stop) = self.resize(opened.handle, 0, caller.uid, true)
        {
            self.release(opened.handle);
            return Err(stop);
        }
        Ok(Done { value: opened, wait: None })
    }

    /// Of a file that was made just now, with this container.
    pub(crate) fn open_new(
        &self,
        found: &Found,
        flags: OpenFlags,
        prepared: Option<(Key, C::Container)>,
    ) -> Step<Opened> {
        let shares_locks = self.lends(found.file, flags).shares_locks;
        let (inode, lends) = (Inode::of(found.file), Lends { shares_locks, ..Lends::default() });
        let mut files = self.files();
        let opener = Opener::Kernel { inode, lends };
        files.prepared = prepared;
        let opened = self.open_version(&mut files, (found.file, &found.node), flags, opener);
        files.prepared = None;
        let opened = opened?;
        self.let_go(files);
        Ok(opened)
    }

    fn open_version(
        &self,
        files: &mut Files<C::Container>,
        (file, node): (FileId, &Node),
        flags: OpenFlags,
        opener: Opener,
    ) -> Step<Opened> {
        let version = node.contents_stamp;
        let place = match opener {
            Opener::Kernel { inode, lends } => {
                self.come(files, (file, version), flags, (inode, lends))?
            }
            Opener::Us => Place::of_nobody(),
        };
        let (generation, version) = match place.joins {
            Some(joined) => (joined, files.get(file, joined).map_or(version, OpenFile::version)),
            None => (self.current_generation(files, file, node)?, version),
        };
        let now = self.inner.world.clock.moment();
        let direct = opener.is_past_cache(flags)
            || files.is_past_cache((file, generation), version, place, now);
        let asked = match opener {
            Opener::Kernel { lends, .. } => {
                files.asked((file, generation), node, (flags, place, lends), direct)
            }
            Opener::Us => None,
        };
        let (direct, unseen, lent) = match asked.map_or(Way::Daemon, |asked| way(&asked)) {
            Way::Daemon => (direct, false, None),
            Way::Another => return Err(Error::LentToReaders.into()),
            Way::Lent => {
                let lent = self.lend(files, (file, generation), (place.number, flags.write));
                (direct && lent.is_none(), flags.write, lent)
            }
            Way::Beside => {
                (true, false, self.lend(files, (file, generation), (place.number, false)))
            }
        };
        let unseen = unseen && lent.is_some();
        if let Some(open) = files.get_mut(file, generation).filter(|_| unseen && flags.read) {
            open.is_mappable = true;
        }
        let cached = !direct && lent.is_none();
        // The tree may show another one: what was stored and is written over was taken back.
        let version = files.get(file, generation).map_or(version, OpenFile::version);
        let keep_cache = cached && files.is_shown(file, generation, version);
        if cached {
            files.shown(file, generation, version);
        }
        let is_recorded = self.locks().is_recorded(file);
        let handle = files.add_handle(HandleState {
            flags,
            tells: is_recorded,
            direct: !cached,
            lent: lent.is_some(),
            unseen,
            writes_around: flags.write && !cached && !unseen,
            counts_as_writing: flags.write,
            fetches: false,
            number: place.number,
            ..HandleState::of_fetch(file, generation)
        });
        if let Opener::Kernel { inode, .. } = opener {
            let took = place.is_fresh && (flags.write || place.is_retry);
            self.numbers().has_come(file, inode.thread, took, now);
        }
        Ok(Opened { handle, keep_cache, direct, lent, is_recorded })
    }

    /// Lets others at the open files, and keeps what opening one of them left behind.
    pub(super) fn let_go(&self, mut files: Ranked<'_, Files<C::Container>>) {
        let left = files.left.take();
        drop(files);
        if let Some((file, presence)) = left {
            self.leave_behind(file, &presence);
        }
    }

    /// A version that another one has taken the place of: it may serve to fetch that.
    fn leave_behind(&self, file: FileId, presence: &Presence) {
        let core = self.core();
        let mut files = self.files();
        if files.get(file, presence.generation).is_some() {
            return;
        }
        if core.log.pending_store(file).is_some() {
            return files.outlives(file, presence);
        }
        if let Err(error) = self.set_aside(&core, &files, file, presence) {
            tracing::debug!(%error, %file, "a version that was replaced could not be kept");
        }
    }

    /// The generation of the version that is current, open already or opened for this.
    pub(super) fn current_generation(
        &self,
        files: &mut Files<C::Container>,
        file: FileId,
        node: &Node,
    ) -> Step<u32> {
        match files.shared(file, node.contents_stamp) {
            Some(generation) => Ok(generation),
            None => match self.take_beside(files, file, node.contents_stamp)? {
                Some(generation) => Ok(generation),
                None => self.open_container(files, file, node),
            },
        }
    }

    /// Keeps a file open while its contents are fetched, as `generation` if that is still there.
    pub(crate) fn hold(&self, file: FileId, generation: u32) -> Result<Held<'_, U, C>, Error> {
        let mut files = self.files();
        let generation = if files.get(file, generation).is_some() {
            generation
        } else {
            let node = self.node_here(file)?;
            let node = node.ok_or(Error::Objection(Objection::NoEntry))?;
            self.current_generation(&mut files, file, &node)?
        };
        let handle = files.add_handle(HandleState::of_fetch(file, generation));
        self.let_go(files);
        Ok(Held { client: self, handle })
    }

    /// Finds or makes the container for a version that nobody has open.
    fn open_container(
        &self,
        files: &mut Files<C::Container>,
        file: FileId,
        node: &Node,
    ) -> Step<u32> {
        let used = self.inner.world.clock.time().secs;
        let row =
            Presence::load(&*self.inner.tables.read().map_err(failed)?, file).map_err(failed)?;
        let newest = files.newest(file).map(|(generation, _)| generation);
        let mut found = None;
        if let Some(row) = &row {
            let current = row.version == node.contents_stamp || row.dirty.is_some();
            if current && newest.is_none_or(|newest| newest < row.generation) {
                let key = Key { file: file.0, generation: row.generation };
                let container = self.container_there(files, key).map_err(failed)?;
                found = match container {
                    Some(container)
                        if row.dirty.is_some()
                            || has_length(&container, row.contents.size).map_err(failed)? =>
                    {
                        Some((container, row.clone()))
                    }
                    // It went with the last close. A call without a handle waits for contents of
                    // the container that it has seen, and finds it again.
                    None if row.holds_nothing() && files.get(file, row.generation).is_none() => {
                        let made = self.fresh_container(key, row.contents.size);
                        Some((made.map_err(failed)?, row.clone()))
                    }
                    _ => None,
                };
            } else if row.version == node.contents_stamp
                && row.dirty.is_none()
                && files.get(file, row.generation).is_none()
            {
                found = self.moved_up(files, file, row)?;
            }
        }
        let open = match found {
            Some((container, mut presence)) => {
                self.note_used(&mut presence, file, used)?;
                let mut open = OpenFile::new(container, presence);
                open.look_for_room(file);
                open
            }
            None => {
                let last = row.as_ref().map(|row| row.generation).max(files.last_generation(file));
                let generation = self.free_generation(file, last).map_err(failed)?;
                let (container, presence) = self.new_container(file, generation, node)?;
                self.save(&presence, file).map_err(failed)?;
                let replaced = row.filter(|row| row.version != node.contents_stamp);
                files.left = replaced.map(|row| (file, row));
                OpenFile::new(container, presence)
            }
        };
        let generation = open.presence.generation;
        files.open.insert((file, generation), open);
        Ok(generation)
    }

    /// For the order in which containers are given up. What is here can be opened on a full disk.
    fn note_used(&self, presence: &mut Presence, file: FileId, used: i64) -> Step<()> {
        if (0..USED_GRAIN_SECS).contains(&used.saturating_sub(presence.used)) {
            return Ok(());
        }
        presence.used = used;
        match self.save(presence, file) {
            Err(StoreError::Full(_)) => Ok(()),
            outcome => outcome.map_err(failed),
        }
    }

    pub(super) fn save(&self, presence: &Presence, file: FileId) -> StoreResult<()> {
        let mut write = self.inner.tables.write()?;
        presence.save(&mut *write, file)?;
        write.commit(Durability::Later)
    }

    pub(super) fn new_container(
        &self,
        file: FileId,
        generation: u32,
        node: &Node,
    ) -> Step<(C::Container, Presence)> {
        let key = Key { file: file.0, generation };
        let container = self.fresh_container(key, node.contents.size).map_err(failed)?;
        let used = self.inner.world.clock.time().secs;
        let presence = Presence::new(generation, node.contents_stamp, node.contents, used);
        Ok((container, presence))
    }

    pub(super) fn fresh_container(&self, key: Key, size: u64) -> StoreResult<C::Container> {
        let container = self.inner.containers.open(key, true)?.ok_or_else(|| {
            let what = "no container could be made for it".into();
            StoreError::Damaged { place: format!("file {}", FileId(key.file)), what }
        })?;
        if container.length()? > 0 {
            // Whatever an earlier life left there is not this version.
            container.set_length(0)?;
        }
        if size > 0 {
            container.set_length(size)?;
        }
        Ok(container)
    }

    /// The contents have been stored as `version`: the open file is that version now.
    pub(crate) fn became(
        &self,
        grip: &Grip<C::Container>,
        presence: &Presence,
        described: &Described,
    ) {
        let mut files = self.files();
        let unseen =
            files.get(grip.file, grip.generation).is_some_and(|open| open.unseen.is_some());
        if unseen {
            // The pages that the kernel has are those of an older version.
            files.shown.remove(&grip.file);
        } else {
            let is_shown = files.shown_is_stored(grip.file, grip.generation, presence.version);
            if !is_shown && self.numbers().has_several(grip.file) {
                // It was written by another number than that by which it is found.
                files.forget_size(grip.file, true, self.inner.world.clock.moment());
            }
        }
        if let Some(open) = files.get_mut(grip.file, grip.generation) {
            (open.unseen, open.is_mappable) = (None, false);
            // From here on it counts among what may leave.
            self.room_taken(taken(&open.container).unwrap_or(presence.contents.size));
            let before = std::mem::replace(&mut open.presence, presence.clone()).version;
            open.layout = super::holes::Layout::default();
            (open.written, open.reopened) = (false, false);
            open.only_cut = false;
            open.turned_down = false;
            open.images = None;
            open.front = None;
            open.since = match &presence.ground {
                Some(_) => None,
                None => Since::stored(described, self.inner.settings.again_bytes_min),
            };
            files.size_goes_on(grip.file, before, presence.version);
        }
    }
}

/// Whether a container has the length that it should have. What was appended to it before the
/// power went, and is not in the log, is cut off; one that is shorter has been tampered with.
pub(crate) fn has_length(container: &impl Container, length: u64) -> StoreResult<bool> {
    let found = container.length()?;
    if found > length {
        container.set_length(length)?;
    }
    Ok(found >= length)
}

/// A file that stays open until this is dropped.
pub(crate) struct Held<'a, U: Upstream, C: Containers> {
    pub(super) client: &'a Client<U, C>,
    pub(super) handle: Handle,
}

impl<U: Upstream, C: Containers> Held<'_, U, C> {
    /// Of the version that is held.
    pub fn generation(&self) -> Option<u32> {
        self.client.files().handles.get(&self.handle.0).map(|state| state.generation)
    }
}

impl<U: Upstream, C: Containers> Drop for Held<'_, U, C> {
    fn drop(&mut self) {
        self.client.release(self.handle);
    }
}
