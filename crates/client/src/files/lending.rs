//! Containers that the kernel is lent, to read, map and write them itself: passthrough.
//! Holds: of a file one container is lent at a time, by one inode of the kernel's, and while it is,
//! whatever is opened by that inode goes with it; what cannot is opened by another one; nothing of
//! it leaves the cache; what was lent to readers alone is changed by the daemon alone.
//! From: the kernel's `fs/fuse/iomode.c`, by which each inode has one mode at a time.
//!
//! ```text
//!            ,--opened for reading--------------------> lent to readers --.
//!   nothing -                                                              last close--> nothing
//!            '--opened to write, by who may (unseen.rs)--> lent to all ---'
//! ```

use super::unseen::takes_unseen;
use super::{Files, HandleState};
use crate::client::Client;
use crate::mode;
use crate::numbers::Place;
use crate::types::{Handle, Lent, OpenFlags};
use model::{FileId, Node, Stamp};
use protocol::Upstream;
use std::sync::Arc;
use store::{Container, Containers};
use world::Moment;

/// Of a smaller file the kernel's own cache is quicker: to lend it takes two calls more.
const LENT_BYTES_MIN: u64 = 1 << 20;
/// Of what somebody may write to: while it is lent, who comes to write costs more.
pub(super) const READ_BYTES_MIN: u64 = 16 << 20;
/// Containers that are lent at once, each of which the kernel keeps open.
const LENT_MAX: usize = 1024;
/// The bits by which somebody but root may write to a file.
const MAY_WRITE: u16 = 0o222;

/// A container that is lent, and through how many handles.
pub(super) struct LentOut<K> {
    pub(super) generation: u32,
    /// By which of the kernel's inodes.
    number: u64,
    container: K,
    lent: Arc<dyn Lent>,
    handles: u32,
    /// Of the handles, those through which the kernel writes by itself.
    pub(super) writers: u32,
    /// It was lent to be written to as well.
    to_all: bool,
}

/// What may be lent, for all that the file itself does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lends {
    /// To who opens it to write: what he writes is not seen.
    pub(super) to_writers: bool,
    /// To who reads it, though others may come who write.
    pub(super) to_readers: bool,
    /// Whoever gets a lock goes on with the newest version through what he has open. Where it is not
    /// so, versions that are open beside each other may each have an inode of its own.
    pub(super) shares_locks: bool,
}

/// What decides on how a file is read that the kernel opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    flags: OpenFlags,
    /// The kernel reads the very container already, by the same inode.
    is_lent: bool,
    /// And writes to it.
    is_lent_to_all: bool,
    lends: Lends,
    /// By what the file itself tells, whoever opens it to write may have it lent.
    is_plain: bool,
    /// And who reads it, if it is large enough: nobody is known to share it by `fsync` or locks.
    is_unshared: bool,
    /// Through some handle of the file the kernel fills its cache, or may have to go around it.
    is_cached: bool,
    /// Nobody has written to it, all of it is here, and nobody has it open for writing.
    is_at_rest: bool,
    /// Nobody may write to it.
    is_unwritable: bool,
    /// Who runs it gets what a write takes away: what the kernel writes nobody here sees.
    gives_privileges: bool,
    size: u64,
}

/// How a file is read that the kernel opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the daemon.
    Daemon,
    /// By the kernel, which has been or is lent the container.
    Lent,
    /// What is read and written by the daemon, beside those who read the container.
    Beside,
    /// Not at all: a mapping could be written to, and nobody here would know.
    Another,
}

pub(super) fn way(asked: &Asked) -> Way {
    let OpenFlags { read, write, truncate, .. } = asked.flags;
    if asked.is_lent_to_all {
        // Who only writes cannot map it, and the daemon can see what he writes.
        let is_seen = write && !read && !asked.lends.to_writers;
        return if is_seen { Way::Beside } else { Way::Lent };
    }
    if asked.is_lent {
        // By another inode it could be; this is what the kernel has at hand.
        return match (read, write) {
            (true, true) => Way::Another,
            (_, true) => Way::Beside,
            (_, false) => Way::Lent,
        };
    }
    let is_free = asked.is_at_rest && !asked.is_cached;
    let fits = match write {
        false if asked.is_unwritable => read && asked.size >= LENT_BYTES_MIN,
        false => {
            read && asked.lends.to_readers && asked.is_unshared && asked.size >= READ_BYTES_MIN
        }
        // What is cut to nothing is sent while it is written.
        true => asked.lends.to_writers && asked.is_plain && !asked.gives_privileges && !truncate,
    };
    if is_free && fits { Way::Lent } else { Way::Daemon }
}

impl<K: Container> Files<K> {
    pub(super) fn asked(
        &self,
        (file, generation): (FileId, u32),
        node: &Node,
        (flags, place, lends): (OpenFlags, Place, Lends),
        direct: bool,
    ) -> Option<Asked> {
        let open = self.get(file, generation)?;
        let is_cached = direct || self.generations(file).any(|open| open.cached_handles > 0);
        let is_at_rest = open.is_clean() && open.presence.is_whole() && !open.is_for_writing();
        let size = open.presence.contents.size;
        let out = self.lent.get(&file);
        let lent = out.filter(|out| out.generation == generation && out.number == place.number);
        let is_kept_free = (out.is_some() && lent.is_none()) || (place.is_fresh && !flags.write);
        Some(Asked {
            flags,
            is_lent: lent.is_some(),
            is_lent_to_all: lent.is_some_and(|out| out.to_all),
            lends,
            is_plain: self.is_plain(file, &open.presence) && takes_unseen(&open.container, size),
            is_unshared: open.is_unshared(),
            is_cached: is_cached || is_kept_free || self.lent.len() >= LENT_MAX,
            is_at_rest,
            is_unwritable: file.is_past() || node.mode & MAY_WRITE == 0,
            gives_privileges: node.gives_privileges(),
            size,
        })
    }

    /// Whether the kernel reads this container.
    pub fn is_lent(&self, file: FileId, generation: u32) -> bool {
        self.lent.get(&file).is_some_and(|out| out.generation == generation)
    }

    /// A container bears another number from now on.
    pub(super) fn is_lent_as(&mut self, file: FileId, (generation, now): (u32, u32)) {
        let lent = self.lent.get_mut(&file).filter(|out| out.generation == generation);
        lent.into_iter().for_each(|out| out.generation = now);
    }

    /// Whether the kernel reads a container of the file, by whatever inode.
    pub(super) fn is_out(&self, file: FileId) -> bool {
        self.lent.contains_key(&file)
    }

    /// Whether it is lent by this number.
    pub(super) fn is_lent_by(&self, file: FileId, number: u64) -> bool {
        self.lent.get(&file).is_some_and(|out| out.number == number)
    }

    /// Whether it is lent to readers by this number, so that nobody can open it to write by that.
    pub(super) fn is_in_the_way(&self, file: FileId, number: u64) -> bool {
        self.lent.get(&file).is_some_and(|out| out.number == number && !out.to_all)
    }

    /// Whether somebody has it open, or mapped, by this number.
    pub(crate) fn is_open_by(&self, file: FileId, number: u64) -> bool {
        let has_it =
            |state: &HandleState| state.file == file && state.number == number && !state.fetches;
        self.is_lent_by(file, number) || self.handles.values().any(has_it)
    }

    /// Whether the kernel reads, by this number, a container of the file that is not that of the
    /// `current` version.
    pub(super) fn is_lent_as_another(&self, file: FileId, current: Stamp, number: u64) -> bool {
        let lent = self.lent.get(&file).filter(|out| out.number == number);
        lent.is_some_and(|out| self.shared(file, current) != Some(out.generation))
    }

    /// Whether this version must not be read by way of the cache that the kernel has for an inode.
    /// Pages of another version that is open too must not mix with its own, nor must they be cut to
    /// its size; and what is written elsewhere is older in that cache.
    fn is_beside(&self, file: FileId, generation: u32, place: Place) -> bool {
        let elsewhere = self.lent.get(&file).filter(|out| out.number != place.number);
        let is_written_elsewhere =
            elsewhere.is_some_and(|out| out.to_all && out.generation == generation);
        let is_alone = self.generations(file).all(|open| open.presence.generation == generation);
        let has_others = || {
            !is_alone
                && self.handles_by(file, place.number).any(|state| state.generation != generation)
        };
        !place.is_current()
            || is_written_elsewhere
            || has_others()
            || self.is_cached_elsewhere(file, generation, place)
    }

    /// Whether a version that is opened must be read past the cache that the kernel has for an inode.
    pub(super) fn is_past_cache(
        &self,
        (file, generation): (FileId, u32),
        version: Stamp,
        place: Place,
        now: Moment,
    ) -> bool {
        let beside = self.is_beside(file, generation, place);
        // Who joins others has their size.
        let is_past = beside || place.joins.is_none() && self.size_is_in_doubt(file, version, now);
        if is_past {
            tracing::debug!(%file, %version, beside, ?place, "opened past the cache of the kernel");
        }
        is_past
    }

    /// Whether the kernel fills its cache with this version by another number.
    fn is_cached_elsewhere(&self, file: FileId, generation: u32, place: Place) -> bool {
        let is_cached = self.get(file, generation).is_some_and(|open| open.cached_handles > 0);
        let is_it = |state: &HandleState| {
            (state.file, state.generation) == (file, generation)
                && state.number != place.number
                && !state.direct
        };
        is_cached && place.is_one_of_several && self.handles.values().any(is_it)
    }

    /// The number by which a handle was opened, if what is written through it is not seen where the
    /// kernel has the file cached: by the `current` number, or by another one.
    pub(crate) fn astray(&self, handle: Handle, current: u64) -> Option<u64> {
        let state = self.handles.get(&handle.0)?;
        let is_cached = |other: &HandleState| {
            (other.file, other.generation) == (state.file, state.generation)
                && other.number != state.number
                && !other.direct
        };
        let is_astray = state.number != current || self.handles.values().any(is_cached);
        is_astray.then_some(state.number)
    }

    /// Files that are lent to readers while others, by another inode, may write to mappings.
    pub(super) fn mapped_beside_lent(&self) -> Vec<FileId> {
        let read = self.lent.iter().filter(|(_, out)| !out.to_all);
        let is_mapped = |file: &FileId| {
            let states = self.handles.values().filter(|state| state.file == *file);
            states.into_iter().any(|state| !state.lent && state.flags.read && state.flags.write)
        };
        read.map(|(file, _)| *file).filter(is_mapped).collect()
    }

    /// How many the kernel reads.
    pub fn lent_len(&self) -> usize {
        self.lent.len()
    }

    /// Whether the kernel writes by itself through this handle.
    pub(super) fn writes_unseen(&self, handle: Handle) -> bool {
        self.handles.get(&handle.0).is_some_and(|state| state.unseen)
    }

    /// Through a handle the kernel writes by itself no more. Says whether it did.
    pub(super) fn writes_no_more(&mut self, handle: Handle) -> bool {
        let Some(state) = self.handles.get_mut(&handle.0) else { return false };
        let did = std::mem::take(&mut state.unseen);
        if did && let Some(out) = self.lent.get_mut(&state.file) {
            out.writers -= 1;
        }
        did
    }

    /// A handle is closed that went with what is lent.
    pub(super) fn lent_handle_closed(&mut self, file: FileId) {
        let Some(out) = self.lent.get_mut(&file) else { return };
        out.handles -= 1;
    }

    /// Takes back what nobody has open or mapped any more. Says whether something of the file, or of
    /// any, is still out without a handle: mapped, or just being closed by the kernel.
    pub(super) fn take_back(&mut self, file: Option<FileId>) -> bool {
        let mut left = false;
        let Files { lent, shown, .. } = self;
        lent.retain(|id, out| {
            if out.handles > 0 || file.is_some_and(|file| file != *id) {
                return true;
            }
            if !out.container.is_alone().unwrap_or(true) {
                left = true;
                return true;
            }
            // What the kernel has in its cache is older than what was written beside.
            shown.remove(id);
            false
        });
        left
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What may be lent to who opens a file so. Where calls wait for verdicts, others write, and
    /// whoever has got a lock reads what they wrote through what he has open.
    pub(super) fn lends(&self, file: FileId, flags: OpenFlags) -> Lends {
        if self.inner.kernel.get().is_none() {
            return Lends::default();
        }
        let shares_locks = mode::waits_for_verdicts(self.connection().mode);
        Lends {
            to_writers: flags.write && self.may_write_unseen(file, flags.read),
            to_readers: !flags.write && !shares_locks,
            shares_locks,
        }
    }

    /// One handle more that goes with what is lent. None: the kernel takes none.
    pub(super) fn lend(
        &self,
        files: &mut Files<C::Container>,
        (file, generation): (FileId, u32),
        (number, writes): (u64, bool),
    ) -> Option<Arc<dyn Lent>> {
        let writers = u32::from(writes);
        if let Some(out) = files.lent.get_mut(&file) {
            out.handles += 1;
            out.writers += writers;
            return Some(Arc::clone(&out.lent));
        }
        let open = files.get(file, generation)?;
        let kernel = self.inner.kernel.get()?;
        // Else it could not be told when nobody has it mapped any more.
        let container = open.container.clone();
        if !container.is_alone().unwrap_or(false) {
            return None;
        }
        let lent = kernel.lend(container.descriptor()?)?;
        let out = LentOut {
            generation,
            number,
            lent: Arc::clone(&lent),
            handles: 1,
            writers,
            to_all: writes,
            container,
        };
        files.lent.insert(file, out);
        self.inner.kernel.closing.wanted.notify_one();
        Some(lent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READS: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };

    fn asked() -> Asked {
        Asked {
            flags: READS,
            is_lent: false,
            is_lent_to_all: false,
            lends: Lends::default(),
            is_plain: false,
            is_unshared: true,
            is_cached: false,
            is_at_rest: true,
            is_unwritable: true,
            gives_privileges: false,
            size: LENT_BYTES_MIN,
        }
    }

    #[test]
    fn what_is_here_and_at_rest_and_nobody_may_write_is_lent_to_who_reads() {
        assert_eq!(way(&asked()), Way::Lent);
        for other in [
            Asked { is_cached: true, ..asked() },
            Asked { is_at_rest: false, ..asked() },
            Asked { is_unwritable: false, ..asked() },
            Asked { size: LENT_BYTES_MIN - 1, ..asked() },
            Asked { flags: OpenFlags { write: true, ..READS }, ..asked() },
            Asked { flags: OpenFlags { read: false, write: true, ..READS }, ..asked() },
        ] {
            assert_eq!(way(&other), Way::Daemon, "{other:?}");
        }
    }

    #[test]
    fn what_somebody_may_write_to_is_lent_to_who_reads_if_it_is_large_and_nobody_shares_it() {
        let lends = Lends { to_readers: true, ..Lends::default() };
        let large = Asked { is_unwritable: false, lends, size: READ_BYTES_MIN, ..asked() };
        assert_eq!(way(&large), Way::Lent);
        for other in [
            Asked { size: READ_BYTES_MIN - 1, ..large },
            Asked { is_unshared: false, ..large },
            Asked { lends: Lends::default(), ..large },
            Asked { is_cached: true, ..large },
            Asked { is_at_rest: false, ..large },
        ] {
            assert_eq!(way(&other), Way::Daemon, "{other:?}");
        }
    }

    #[test]
    fn what_is_lent_is_lent_to_all_who_read_and_nobody_can_map_it_to_write() {
        // It may have been cut, or written to beside, and may be written to by others since.
        let lent =
            Asked { is_lent: true, is_at_rest: false, is_unwritable: false, size: 0, ..asked() };
        assert_eq!(way(&lent), Way::Lent);
        let writes = OpenFlags { read: false, write: true, ..READS };
        let both = OpenFlags { write: true, ..READS };
        assert_eq!(way(&Asked { flags: writes, ..lent }), Way::Beside);
        assert_eq!(way(&Asked { flags: both, ..lent }), Way::Another);
    }

    #[test]
    fn what_may_be_written_unseen_is_lent_to_who_writes_and_from_then_on_to_all() {
        let writes = OpenFlags { read: false, write: true, ..READS };
        let both = OpenFlags { write: true, ..READS };
        let lends = Lends { to_writers: true, ..Lends::default() };
        let free = Asked { is_unwritable: false, lends, is_plain: true, ..asked() };
        for flags in [writes, both] {
            assert_eq!(way(&Asked { flags, ..free }), Way::Lent);
            let truncated = OpenFlags { truncate: true, ..flags };
            for other in [
                Asked { flags: truncated, ..free },
                Asked { flags, is_cached: true, ..free },
                Asked { flags, is_at_rest: false, ..free },
                Asked { flags, lends: Lends::default(), ..free },
                Asked { flags, is_plain: false, ..free },
                Asked { flags, gives_privileges: true, ..free },
            ] {
                assert_eq!(way(&other), Way::Daemon, "{other:?}");
            }
        }
        let lent = Asked {
            is_lent: true,
            is_lent_to_all: true,
            is_at_rest: false,
            is_plain: false,
            ..free
        };
        for flags in [READS, writes, both, OpenFlags { truncate: true, ..writes }] {
            assert_eq!(way(&Asked { flags, ..lent }), Way::Lent, "{flags:?}");
            // Where it may not be any more, the kernel has all the same what can be mapped.
            let seen = Asked { flags, lends: Lends::default(), ..lent };
            let way_then = if flags.read { Way::Lent } else { Way::Beside };
            assert_eq!(way(&seen), way_then, "{flags:?}");
        }
    }
}
