//! Open files that go on with a newer version: whoever has got a lock reads what was stored by
//! those who held it before, through descriptors that are open already.
//! Holds: what is being written here stays what it is; of a version that nobody reads any more
//! the kernel keeps no pages.
//! From: NFS, close-to-open and locks.

use super::{Files, HandleState, OpenFile};
use crate::client::{Client, error_of};
use crate::failures::{of_log, of_missing};
use crate::presence::Presence;
use crate::ranks::{self, Rank};
use crate::types::{Error, Handle, Step, Stop};
use model::{FileId, Kind, Stamp};
use protocol::Upstream;
use store::{Container, Containers};
use update_log::What;
use volume::partial::Tree;

/// Open versions that are older than what is known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    pub clean: bool,
    /// The generations of those that were written to.
    pub written: Vec<u32>,
    /// Programs may have written to pages of them that the kernel keeps.
    pub caches: bool,
    /// What is on its way was written upon an older version than is known here.
    pub pending: bool,
    /// The kernel may have pages of one that was gone on from.
    pub pages: bool,
}

/// What handles are tied to from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Renewed {
    version: Stamp,
    generation: u32,
    /// Of what else was gone on with before and after.
    number: u64,
}

impl<K: Container> Files<K> {
    /// Of what programs have open, and who has it open `through` this handle, what is neither this version
    /// nor written upon it, and whether it was written to since it was stored.
    fn behind(
        &self,
        file: FileId,
        (current, on_its_way): (Stamp, bool),
        through: Handle,
    ) -> Behind {
        let mut behind = Behind::default();
        for (&(_, generation), open) in self.open.range((file, 0)..=(file, u32::MAX)) {
            let is_older = !open.beside && open.presence.version != current;
            let through = Some(through);
            if !is_older || open.handles == 0 || !self.have_open((file, generation), through) {
                continue;
            }
            behind.caches |= open.cached_handles > 0 && open.writing_handles > 0;
            match &open.presence.dirty {
                Some(dirty) if dirty.expects == current => {}
                Some(_) => behind.written.push(generation),
                None => behind.clean |= open.can_be_left(on_its_way),
            }
        }
        behind
    }

    /// Whether a program has this version open and can go on with another one: it neither is only
    /// fetched nor read by the kernel itself.
    fn have_open(&self, of: (FileId, u32), through: Option<Handle>) -> bool {
        let goes_on = |state: &HandleState| (state.file, state.generation) == of && state.goes_on();
        self.handles.values().any(goes_on) && self.leaves_nobody(of, through)
    }

    /// From what lies beside only one goes on who asks for it, and nobody else has it open: the kernel
    /// would show each what it has of the other.
    fn leaves_nobody(&self, (file, generation): (FileId, u32), through: Option<Handle>) -> bool {
        let others = |(handle, state): (&u64, &HandleState)| {
            (state.file, state.generation) == (file, generation)
                && !state.fetches
                && through != Some(Handle(*handle))
        };
        let aside = self.get(file, generation).is_some_and(|open| open.aside);
        !aside || !self.handles.iter().any(others)
    }

    /// Whether what the kernel reads by itself through this handle, or through any, is an older
    /// version: it cannot become another one.
    fn holds_on_to_older(&self, file: FileId, current: Stamp, through: Option<Handle>) -> bool {
        let is_older = |state: &HandleState| {
            let open = self.get(file, state.generation);
            state.lent && state.file == file && open.is_some_and(|o| o.presence.version != current)
        };
        match through {
            Some(handle) => self.handles.get(&handle.0).is_some_and(is_older),
            None => self.handles.values().any(is_older),
        }
    }

    /// One of the versions that are open and neither this one nor written to, after another one.
    fn older_after(
        &self,
        file: FileId,
        (current, on_its_way): (Stamp, bool),
        after: Option<u32>,
    ) -> Option<u32> {
        let from = after.map_or(Some(0), |after| after.checked_add(1))?;
        let mut versions = self.open.range((file, from)..=(file, u32::MAX));
        let is_older = |open: &OpenFile<K>| {
            let can_be_left = open.can_be_left(on_its_way);
            open.handles > 0 && !open.beside && can_be_left && open.presence.version != current
        };
        versions.find(|(_, open)| is_older(open)).map(|((_, generation), _)| *generation)
    }

    /// Ties the handles of an older version, that can be left, to another one. Gives back the version if
    /// nobody has it open any more.
    fn renew(&mut self, file: FileId, (older, generation): (u32, u32)) -> Option<Presence> {
        let Files { open, handles, .. } = self;
        let mut moved = Vec::new();
        let mut left = None;
        for state in handles.values_mut() {
            let key = (file, older);
            if (state.file, state.generation) != key || !state.goes_on() {
                continue;
            }
            let Some(before) = open.get_mut(&key) else { continue };
            before.take_off(state);
            if before.handles == 0 {
                left = open.remove(&key).map(|open| open.presence);
            }
            moved.push(*state);
            state.generation = generation;
        }
        if let Some(now) = open.get_mut(&(file, generation)) {
            moved.iter().for_each(|state| now.add(state));
        }
        left
    }
}

impl<K> OpenFile<K> {
    /// It is a version that was stored. What is not here of one that was written upon another is there
    /// when it has been judged, and before that where a store that is `on_its_way` may need it.
    fn can_be_left(&self, on_its_way: bool) -> bool {
        let Presence { version, dirty, ground, .. } = &self.presence;
        let rests = ground.as_ref().is_some_and(|ground| ground.version != *version);
        dirty.is_none() && self.unlinked.is_none() && !(rests && on_its_way)
    }
}

impl HandleState {
    /// Whether it can become one of another version.
    fn goes_on(&self) -> bool {
        !self.fetches && !self.lent
    }
}

impl<K> Files<K> {
    /// What was stored as this version lies beside.
    pub fn lies_aside(&mut self, file: FileId, version: Stamp) {
        let versions = self.open.range_mut((file, 0)..=(file, u32::MAX)).map(|(_, open)| open);
        versions.filter(|open| open.presence.version == version).for_each(|open| open.aside = true);
    }
}

impl<K> Files<K> {
    /// What the kernel has of the file may be anything.
    pub fn forget_shown(&mut self, file: FileId) {
        self.shown.remove(&file);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Programs that have older versions of a file open go on with the one that is current; an
    /// error, if who has it open `through` this handle, or else anybody, cannot. The kernel is to forget
    /// what it has of the older ones then.
    pub(crate) fn go_on_with_current(&self, file: FileId, through: Option<Handle>) -> Step<()> {
        let mut older = None;
        loop {
            let found = self.older_than_known(file, older)?;
            let Some(grip) = found.and_then(|generation| self.grip_of(file, generation)) else {
                return Ok(());
            };
            // Whoever writes to it is done with it, or goes on with the other one.
            let still = ranks::write(Rank::Still, &grip.still);
            if self.still_open(&grip).is_none() {
                continue;
            }
            older = Some(grip.generation);
            let on_its_way = self.is_on_its_way(file);
            let mut files = self.files();
            let Some(node) = self.node_here(file)?.filter(|node| node.kind == Kind::File) else {
                return Ok(());
            };
            let version = node.contents_stamp;
            if files.holds_on_to_older(file, version, through) {
                return Err(Error::OlderLentOut.into());
            }
            let is_older = |open: &OpenFile<_>| {
                open.can_be_left(on_its_way) && open.presence.version != version
            };
            // Where nobody goes on, the current one is not opened: nobody would close it.
            if !files.get(file, grip.generation).is_some_and(is_older)
                || !files.have_open((file, grip.generation), through)
            {
                continue;
            }
            let generation = self.current_generation(&mut files, file, &node)?;
            let left = files.renew(file, (grip.generation, generation));
            let number = files.pages_older.get(&file).map_or(0, |before| before.number + 1);
            files.pages_older.insert(file, Renewed { version, generation, number });
            self.let_go(files);
            drop(still);
            if let Some(presence) = left {
                self.closed(file, &presence);
                self.discard_if_unused(file, &presence, false);
            }
        }
    }

    /// The kernel hands on what was written to pages that it keeps, as in mappings, while what they are of
    /// is open. False: something is in its way.
    pub(crate) fn hand_on_pages(&self, file: FileId) -> bool {
        self.inner.kernel.get().is_none_or(|kernel| kernel.forget_node(file, true))
    }

    /// The kernel forgets what it has of versions that were gone on from. False: something is in its way.
    /// Who writes must not be kept waiting meanwhile: the kernel would wait for him.
    pub(crate) fn forget_older_pages(&self, file: FileId) -> bool {
        let renewed = { self.files().pages_older.get(&file).copied() };
        let Some(renewed) = renewed else { return true };
        let kernel = self.inner.kernel.get();
        let forgotten = kernel.is_none_or(|kernel| kernel.forget_node(file, true));
        let now = self.inner.world.clock.moment();
        let mut files = self.files();
        if kernel.is_some() {
            files.settle_size(file, forgotten, now);
        }
        let Renewed { version, generation, .. } = renewed;
        let is_another =
            |open: &OpenFile<_>| open.presence.generation != generation && open.cached_handles > 0;
        if forgotten && files.pages_older.get(&file) == Some(&renewed) {
            files.pages_older.remove(&file);
        }
        if kernel.is_some() && forgotten && !files.generations(file).any(is_another) {
            files.shown(file, generation, version);
        } else {
            files.shown.remove(&file);
        }
        forgotten
    }

    /// What programs have open of a file, and who has it open `through` this handle, and is older than what
    /// is known of it here.
    pub(crate) fn behind(&self, file: FileId, through: Handle) -> Result<Behind, Error> {
        let core = self.core();
        let files = self.files();
        if files.generations(file).all(|open| open.handles == 0) {
            return Ok(Behind::default());
        }
        let node = match self.node_here(file) {
            Ok(node) => node.filter(|node| node.kind == Kind::File),
            // What is not known here is asked for when it is wanted.
            Err(Stop::Need(_)) => None,
            Err(Stop::Error(error)) => return Err(error),
        };
        let Some(node) = node else { return Ok(Behind::default()) };
        let on_its_way = core.log.pending_store(file).is_some();
        let mut behind = files.behind(file, (node.contents_stamp, on_its_way), through);
        behind.pages = files.pages_older.contains_key(&file);
        let stores = core.log.of_file(file).filter(|(_, what)| *what == What::Stores);
        if let Some((first, _)) = stores.last() {
            // What shows by it is what was written here.
            let expects = core.log.expected_by(first).map_err(of_log)?;
            let read = self.inner.tables.read().map_err(error_of)?;
            let said = Tree::new(&*read, 0).said(file).map_err(of_missing)?;
            behind.pending = said.is_some_and(|said| Some(said.contents_stamp) != expects);
        }
        Ok(behind)
    }

    /// A version that is open, clean, and older than what is known here, after another one.
    fn older_than_known(&self, file: FileId, after: Option<u32>) -> Step<Option<u32>> {
        let on_its_way = self.is_on_its_way(file);
        let files = self.files();
        let node = self.node_here(file)?.filter(|node| node.kind == Kind::File);
        let current = node.map(|node| (node.contents_stamp, on_its_way));
        Ok(current.and_then(|current| files.older_after(file, current, after)))
    }

    fn is_on_its_way(&self, file: FileId) -> bool {
        self.core().log.pending_store(file).is_some()
    }
}
