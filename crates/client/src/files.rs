//! Open files: containers, handles, reading and writing.
//! Holds: a reader that has a version open keeps it; who opens later gets the version that is
//! current then; a container is noted in the log as opened before the first byte of it changes.
//! From: AFS and LBFS (close-to-open); DESIGN, "The client".

mod allocate;
mod beside;
mod birth;
mod bytes;
mod closed;
mod closing;
mod coming;
mod copy;
mod counted;
mod counts;
mod first;
mod front;
mod generations;
mod growing;
mod holes;
mod images;
mod left;
mod lending;
mod nameless;
mod opening;
mod plain;
mod prepared;
mod privileged;
mod renewed;
mod since;
mod sizes;
mod still;
mod twice;
mod unborn;
mod unseen;

pub(crate) use closed::Closing;
pub(crate) use front::{Altered, Front};
pub use growing::Growing;
pub(crate) use images::Images;
pub(crate) use nameless::forget_written;
pub(crate) use opening::{Held, has_length};
pub(crate) use since::{Before, Since};
use sizes::SizeTold;
pub(crate) use unseen::Unseen;

use crate::onward::Coming;
use crate::part::Shelf;
use crate::presence::{Dirty, Presence};
use crate::room::Touched;
use crate::types::{Error, Handle, OpenFlags};
use counted::HandleState;
use model::{Contents, FileId, Node, Stamp, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::ThreadId;
use store::container::Key;
use store::{Container, Result as StoreResult};
use world::Moment;

/// Versions that are remembered whose pages the kernel may have. Of others it gives up the pages
/// when they are opened next.
const SHOWN_MAX: usize = 100_000;
/// The largest file, as the kernel has it.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

pub(crate) struct Files<K> {
    open: BTreeMap<(FileId, u32), OpenFile<K>>,
    handles: BTreeMap<u64, HandleState>,
    last_handle: u64,
    /// The version whose pages the kernel may have cached, and of no other.
    shown: BTreeMap<FileId, Shown>,
    /// Files that were gone on with, of which the kernel may have pages of older versions.
    pages_older: BTreeMap<FileId, renewed::Renewed>,
    /// Files of which the kernel may go by the size of an older version.
    size_told: BTreeMap<FileId, SizeTold>,
    /// Containers that the kernel reads itself.
    lent: BTreeMap<FileId, lending::LentOut<K>>,
    /// Large files that were written through the kernel's own cache, and closed.
    twice: BTreeSet<FileId>,
    plain: plain::Plain,
    /// A version in whose place another one has just been opened.
    left: Option<(FileId, Presence)>,
    /// Older versions that nobody has open any more, of files of which something was pending then.
    outlived: BTreeMap<FileId, Vec<Presence>>,
    /// What was made for a file that is about to be opened.
    prepared: Option<(Key, K)>,
    /// What nobody waits for is not cut any more: it is kept as it is.
    cuts_no_more: bool,
}

impl<K> Default for Files<K> {
    fn default() -> Self {
        Files {
            open: BTreeMap::new(),
            handles: BTreeMap::new(),
            last_handle: 0,
            shown: BTreeMap::new(),
            pages_older: BTreeMap::new(),
            size_told: BTreeMap::new(),
            lent: BTreeMap::new(),
            twice: BTreeSet::new(),
            plain: plain::Plain::default(),
            left: None,
            outlived: BTreeMap::new(),
            prepared: None,
            cuts_no_more: false,
        }
    }
}

/// A version whose pages the kernel may have cached, by the current number of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    generation: u32,
    version: Stamp,
}

/// One version of a file that somebody has open.
pub(crate) struct OpenFile<K> {
    pub container: K,
    pub presence: Presence,
    pub handles: u32,
    /// Of the handles, those through which the kernel fills its cache, and those that may write around it.
    cached_handles: u32,
    around_handles: u32,
    held_back: Option<growing::HeldBack>,
    /// Of the handles, those that may write.
    writing_handles: u32,
    /// The time of the last write, or what was set since.
    pub mtime: Option<Time>,
    /// The time of the last write, whatever was set since.
    pub changed: Option<Time>,
    /// The node as it was when the last name went.
    pub unlinked: Option<Node>,
    /// What was written to it since is stored nowhere; if it gets a name again, that is made up for.
    pub nowhere: Option<Dirty>,
    /// It never had a name: nothing but this machine's memory and its container knows of it.
    pub unborn: bool,
    /// What gave it its name, or was to.
    birth: Option<birth::Birth>,
    /// What was stored of it lies beside: whatever others lock, its programs go on with it.
    pub aside: bool,
    /// Written to since the last store.
    pub written: bool,
    /// The kernel may have written to it by itself since the last store.
    pub unseen: Option<Unseen>,
    /// Somebody could map it so that he writes to it, since then.
    pub is_mappable: bool,
    /// Nobody who had it open synced it, or locked a part of it.
    is_plain: bool,
    /// Cut to nothing since the last store, and nothing else: a shell's redirection, which closes
    /// a copy of the descriptor before the first byte is written.
    pub only_cut: bool,
    /// Whoever wrote was told that it could not be stored, and has not written since.
    pub turned_down: bool,
    /// So many bytes of what it was before are all as they were; what was written lies behind them,
    /// and of that alone the log need not be on the disk.
    added_to: Option<u64>,
    /// It was cut, and the log could not be told. It is told before the container grows again.
    pub owes_cut: bool,
    /// A pending store was taken back when this was first written to: what it had stored is not
    /// there any more.
    pub overtook: bool,
    /// It was being written to when this machine stopped, and has not been stored since it started.
    reopened: bool,
    /// The thread that stores it with nobody waiting for it, and gives way to whoever writes to it.
    unattended: Option<ThreadId>,
    /// It was being written to when this machine stopped, and may have been stored since.
    pub doubtful: bool,
    /// The version as which it was mended for who waits to write to it.
    pub mended_as: Option<Stamp>,
    /// When all of it was last found to be as it was stored.
    pub compared: Option<Moment>,
    /// How the container was cut when it was last stored, and what was written since.
    pub since: Option<Since>,
    /// How it has been cut so far, if it is being written from its beginning.
    pub front: Option<Front>,
    /// Of the recipe of the version that it is written upon, what has been fetched.
    pub shelf: Arc<Shelf>,
    /// What lay under what was written since the version that the next store is sent against.
    pub images: Option<Images>,
    /// Writers share it; who makes a version of the container has it alone.
    pub still: Arc<RwLock<()>>,
    /// The first writer has it until the log knows that the container changes.
    pub opening: Arc<Mutex<()>>,
    /// The end of the last read, to see that a reader goes on.
    pub read_to: u64,
    /// Bytes that are fetched at once for a reader who goes on.
    pub window: u64,
    /// The last window was for a reader who went on.
    pub goes_on: bool,
    /// One fetch of a version at a time, but for those of `coming`, which are apart from each other.
    pub fetching: Arc<tokio::sync::RwLock<()>>,
    /// What is fetched for a reader who goes on before he asks for it.
    pub coming: Coming,
    /// Where its holes are, as far as that was asked for.
    pub layout: holes::Layout,
    /// When its stretches were used.
    pub touched: Touched,
    /// How often some have left.
    pub left: Arc<AtomicU64>,
    /// Up to here room was set aside at most, since it was opened or cut.
    room_to: u64,
    /// A version that does not show yet: it is fetched beside the one that does, and nobody else
    /// knows of it.
    pub beside: bool,
}

impl<K> OpenFile<K> {
    pub fn new(container: K, presence: Presence) -> OpenFile<K> {
        OpenFile {
            container,
            presence,
            handles: 0,
            cached_handles: 0,
            around_handles: 0,
            held_back: None,
            writing_handles: 0,
            mtime: None,
            changed: None,
            unlinked: None,
            nowhere: None,
            unborn: false,
            birth: None,
            written: false,
            unseen: None,
            aside: false,
            is_mappable: false,
            is_plain: true,
            only_cut: false,
            turned_down: false,
            added_to: None,
            owes_cut: false,
            overtook: false,
            reopened: false,
            unattended: None,
            doubtful: false,
            mended_as: None,
            compared: None,
            since: None,
            front: None,
            images: None,
            shelf: Arc::default(),
            still: Arc::default(),
            opening: Arc::default(),
            read_to: 0,
            window: 0,
            goes_on: false,
            fetching: Arc::default(),
            coming: Coming::default(),
            layout: holes::Layout::default(),
            touched: Touched::default(),
            left: Arc::default(),
            room_to: 0,
            beside: false,
        }
    }

    pub fn version(&self) -> Stamp {
        self.presence.version
    }
    /// Somebody has just written to it.
    pub fn note_changed(&mut self, now: Time) {
        self.mtime = Some(now);
        self.changed = Some(now);
    }

    /// It is a version that was stored, and nobody has begun to write to it; nor is it one that
    /// was written upon another of which parts were here.
    pub fn is_clean(&self) -> bool {
        let written = self.presence.dirty.is_some() || self.presence.ground.is_some();
        !written && self.unlinked.is_none()
    }

    /// Nobody has it open, and nobody is owed that it is stored.
    pub fn is_given_up(&self) -> bool {
        self.handles == 0 && self.turned_down && self.presence.dirty.is_some()
    }
}

/// What a call needs of an open file, without the lock.
pub(crate) struct Grip<K> {
    pub file: FileId,
    pub generation: u32,
    pub container: K,
    pub still: Arc<RwLock<()>>,
    pub opening: Arc<Mutex<()>>,
    pub left: Arc<AtomicU64>,
}

impl<K> Grip<K> {
    pub fn key(&self) -> Key {
        Key { file: self.file.0, generation: self.generation }
    }
}

impl<K: Container> Files<K> {
    /// A node as it is seen here: with the size and time of what is being written, and still
    /// there though its last name has gone, while it is open, or as it was when it was `gone`.
    pub fn show(
        &self,
        file: FileId,
        node: Option<Node>,
        gone: Option<&Node>,
    ) -> StoreResult<Option<Node>> {
        let unlinked = || self.generations(file).find_map(|open| open.unlinked.as_ref());
        let mut node = node.or_else(|| unlinked().or(gone).cloned());
        // Whoever opens it gets the newest, whatever is written to older ones through what was opened
        // before.
        let newest = self.newest(file).map(|(_, open)| open);
        let shared = newest.filter(|o| o.presence.dirty.is_some() || o.unlinked.is_some());
        if let (Some(open), Some(node)) = (shared, &mut node) {
            let sizes = open.container.sizes()?;
            node.contents.size = open.length_told_of(sizes.length);
            if open.presence.dirty.is_some() {
                // What is not here is not a hole.
                let size = node.contents.size;
                let absent = open.presence.absent(0, size);
                let absent: u64 = absent.iter().map(|(from, to)| to - from).sum();
                let holes = size.saturating_sub(sizes.allocated + absent);
                node.contents.holes = (holes > 0).then_some(holes);
            }
            let (mtime, changed) = open.times()?;
            node.mtime = mtime.unwrap_or(node.mtime);
            node.ctime = changed.map_or(node.ctime, |changed| node.ctime.max(changed));
        }
        Ok(node)
    }

    /// The last name of a file has gone: who has it open keeps it. Says whether anybody has, and
    /// whether it is written to.
    pub fn take_name(&mut self, file: FileId, node: &Node) -> (bool, bool) {
        let (mut open, mut written) = (false, false);
        for (_, version) in self.open.range_mut((file, 0)..=(file, u32::MAX)) {
            version.unlinked = Some(Node { links: 0, ..node.clone() });
            open = true;
            match version.presence.dirty {
                Some(_) => written = true,
                // The time of its last write may have been set since, here or elsewhere.
                None => version.mtime = None,
            }
        }
        (open, written)
    }

    pub fn set_mtime(&mut self, file: FileId, mtime: Time) {
        for ((_, _), open) in self.open.range_mut((file, 0)..=(file, u32::MAX)) {
            open.time_was_set(mtime);
        }
    }

    pub fn generations(&self, file: FileId) -> impl Iterator<Item = &OpenFile<K>> {
        self.all_generations(file).filter(|open| !open.beside)
    }

    /// With those that do not show yet.
    fn all_generations(&self, file: FileId) -> impl Iterator<Item = &OpenFile<K>> {
        self.open.range((file, 0)..=(file, u32::MAX)).map(|(_, open)| open)
    }

    pub fn get(&self, file: FileId, generation: u32) -> Option<&OpenFile<K>> {
        self.open.get(&(file, generation))
    }

    pub fn get_mut(&mut self, file: FileId, generation: u32) -> Option<&mut OpenFile<K>> {
        self.open.get_mut(&(file, generation))
    }

    pub fn is_open(&self, file: FileId) -> bool {
        self.all_generations(file).next().is_some()
    }

    /// Versions that were stored and that nobody writes to.
    pub fn clean(&self) -> impl Iterator<Item = (FileId, &OpenFile<K>)> {
        let clean = self.open.iter().filter(|(_, open)| open.is_clean());
        clean.map(|((file, _), open)| (*file, open))
    }

    /// Files that have been written to and not been stored.
    pub fn written(&self) -> usize {
        self.open.values().filter(|open| open.presence.dirty.is_some()).count()
    }

    /// The version that an update stored, if somebody has it open.
    pub fn holder_of(&mut self, file: FileId, version: Stamp) -> Option<&mut OpenFile<K>> {
        self.open
            .range_mut((file, 0)..=(file, u32::MAX))
            .map(|(_, open)| open)
            .find(|open| open.handles > 0 && open.presence.version == version)
    }

    /// A version is not there any more.
    pub fn close_version(&mut self, file: FileId, generation: u32) {
        if self.open.get(&(file, generation)).is_some_and(|open| open.handles == 0) {
            self.open.remove(&(file, generation));
        }
    }

    /// Those that are written to upon another version, and are not all here.
    pub fn grounded(&self) -> impl Iterator<Item = (FileId, &Presence)> {
        let written = self
            .open
            .iter()
            .filter(|(_, open)| open.presence.dirty.is_some() && open.presence.ground.is_some());
        let named = written.filter(|(_, open)| open.unlinked.is_none());
        named.map(|((file, _), open)| (*file, &open.presence))
    }

    /// The kernel fills its cache with this version.
    pub fn shown(&mut self, file: FileId, generation: u32, version: Stamp) {
        self.shown.insert(file, Shown { generation, version });
        if self.shown.len() > SHOWN_MAX {
            let other = self.shown.keys().find(|other| **other != file).copied();
            other.map(|other| self.shown.remove(&other));
        }
    }

    /// Whether the kernel's cache is this version. What is written to here, it would read as before.
    fn is_shown(&self, file: FileId, generation: u32, version: Stamp) -> bool {
        let Some(shown) = self.shown.get(&file) else { return false };
        let is_dirty = |open: &OpenFile<K>| open.presence.dirty.is_some();
        shown.generation == generation
            && (shown.version == version || self.get(file, generation).is_some_and(is_dirty))
    }

    /// The version whose pages the kernel may have.
    fn shown_version(&self, file: FileId) -> Option<Stamp> {
        self.shown.get(&file).map(|shown| shown.version)
    }

    /// What was written to a container is stored as this version: if the pages that the kernel has
    /// are those of this container, they are those of the version. Says whether it is so.
    fn shown_is_stored(&mut self, file: FileId, generation: u32, version: Stamp) -> bool {
        let shown = self.shown.get_mut(&file).filter(|shown| shown.generation == generation);
        shown.map(|shown| shown.version = version).is_some()
    }

    pub fn newest_generation(&self, file: FileId) -> Option<u32> {
        self.newest(file).map(|(generation, _)| generation)
    }

    fn newest(&self, file: FileId) -> Option<(u32, &OpenFile<K>)> {
        self.open
            .range((file, 0)..=(file, u32::MAX))
            .rfind(|(_, open)| !open.beside)
            .map(|((_, generation), open)| (*generation, open))
    }

    /// The generation that is open and that whoever opens the file next shares, where `current`
    /// is the version that the tree shows.
    pub fn shared(&self, file: FileId, current: Stamp) -> Option<u32> {
        let (generation, open) = self.newest(file)?;
        let here_alone = open.presence.dirty.is_some() || open.unlinked.is_some();
        if here_alone || open.presence.version == current {
            return Some(generation);
        }
        // What was opened before the newest had come may have been stored since.
        let is_it = |open: &OpenFile<K>| {
            !open.beside && open.presence.dirty.is_none() && open.presence.version == current
        };
        let mut versions = self.open.range((file, 0)..=(file, generation));
        versions.find(|(_, open)| is_it(open)).map(|((_, generation), _)| *generation)
    }

    pub fn grip(&self, handle: Handle) -> Result<(Grip<K>, OpenFlags), Error> {
        let state = self.handles.get(&handle.0).ok_or(Error::BadHandle)?;
        let open = self.open.get(&(state.file, state.generation)).ok_or(Error::BadHandle)?;
        let grip = Grip {
            file: state.file,
            generation: state.generation,
            container: open.container.clone(),
            still: open.still.clone(),
            opening: open.opening.clone(),
            left: open.left.clone(),
        };
        Ok((grip, state.flags))
    }

    fn add_handle(&mut self, state: HandleState) -> Handle {
        self.last_handle += 1;
        self.handles.insert(self.last_handle, state);
        if let Some(open) = self.open.get_mut(&(state.file, state.generation)) {
            open.add(&state);
        }
        Handle(self.last_handle)
    }
}

/// Contents of a size whose recipe is not known.
pub(crate) fn sized(size: u64) -> Contents {
    Contents { size, root: None, holes: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;
    use store::memory::MemoryContainers;

    fn version(number: u64) -> Stamp {
        Stamp::new(ReplicaId(3), number)
    }

    #[test]
    fn of_very_many_files_some_are_forgotten_and_never_the_last() {
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        for file in 0..=SHOWN_MAX as u64 {
            files.shown(FileId(file), 0, version(1));
        }
        assert_eq!(files.shown.len(), SHOWN_MAX);
        files.shown(FileId(0), 0, version(2));
        assert_eq!(files.shown_version(FileId(0)), Some(version(2)));
        assert_eq!(files.shown.len(), SHOWN_MAX);
    }

    #[test]
    fn what_is_stored_of_a_container_whose_pages_the_kernel_does_not_have_does_not_show_there() {
        let mut files = Files::<<MemoryContainers as store::Containers>::Container>::default();
        let file = FileId(7);
        files.shown_is_stored(file, 0, version(1));
        assert_eq!(files.shown_version(file), None);
        files.shown(file, 0, version(1));
        files.shown_is_stored(file, 1, version(2));
        assert_eq!(files.shown_version(file), Some(version(1)), "it was written past its cache");
        files.shown_is_stored(file, 0, version(3));
        assert_eq!(files.shown_version(file), Some(version(3)));
    }
}
