//! Files that are written to while only parts of them are here: what they lack is as it is in the
//! version that they are written upon, their ground, and is fetched from there when it is needed.
//! Holds: the log says that a stretch is here only after the disk has it, so no crash shows zeros
//! where there were bytes; after a crash all that is here counts as written; what was written is
//! never given up for want of the rest, nor taken for lost before the replica above has said that
//! it lacks it.
//! From: LBFS, "Read protocol" and "Update protocol"; to do both for parts is beyond it.

mod gaps;
mod get;
mod row;
mod steps;
mod upon;

pub(crate) use row::{PartRow, forget_part, part_anew, redo_part, remove_part};
pub(crate) use upon::Added;

use crate::client::{Client, error_of, failed, log_failed};
use crate::files::{Altered, Grip};
use crate::lost::nowhere;
use crate::mode;
use crate::portions::Portions;
use crate::presence::{Dirty, Presence};
use crate::ranks::{self, Rank};
use crate::types::{Error, Need, Step, Stop};
use crate::undo::of_log;
use gaps::{narrowest, widest};
use model::{ChunkName, FileId};
use protocol::Upstream;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{Container, Containers, Durability};
use update_log::Record;

/// With more stretches the narrowest gaps between them are closed.
pub(crate) const STRETCHES_MAX: usize = 4096;
/// The same where nothing can be fetched. Of more some are left out, and if all of them were written to
/// all of the file is wanted.
const STRETCHES_APART_MAX: usize = 4 * STRETCHES_MAX;
/// Recipe chunks that are kept for one open file, in bytes. Beyond that they are fetched anew.
const SHELF_BYTES_MAX: usize = 64 << 20;

/// Stretches of a ground, (offset, end), that are lacking: of some the recipe, of others the bytes.
pub(crate) struct Wanting {
    pub recipe: Vec<(u64, u64)>,
    pub bytes: Vec<(u64, u64)>,
}

/// Recipe chunks of the ground of an open file.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<Shelved>);

#[derive(Default)]
struct Shelved {
    chunks: BTreeMap<ChunkName, Vec<u8>>,
    bytes: usize,
}

impl Shelf {
    fn get(&self, name: &ChunkName) -> Option<Vec<u8>> {
        self.lock().chunks.get(name).cloned()
    }

    fn put(&self, name: ChunkName, bytes: Vec<u8>) {
        let mut shelved = self.lock();
        if shelved.bytes + bytes.len() > SHELF_BYTES_MAX {
            *shelved = Shelved::default();
        }
        shelved.bytes += bytes.len();
        shelved.chunks.insert(name, bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Shelved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the log is to say of a container that is written to from here on.
pub(crate) fn opened_record(file: FileId, dirty: Dirty, presence: &Presence) -> Record {
    let (Dirty { expects, uid, .. }, generation) = (dirty, presence.generation);
    match &presence.ground {
        None => Record::Opened { file, generation, expects, uid },
        Some(ground) => Record::OpenedPart {
            file,
            generation,
            expects,
            uid,
            version: ground.version,
            contents: ground.contents,
            reach: ground.reach,
            ranges: presence.ranges.clone(),
            of: ground.of,
        },
    }
}

impl Presence {
    /// Of very many stretches that were read the narrowest count as not here: with each change of
    /// what is written upon a ground, all of them are gone through, and the tables and the log say
    /// which they are.
    pub(crate) fn leave_out_narrow(&mut self) {
        if let (Some(ground), true) = (&self.ground, self.ranges.len() >= STRETCHES_APART_MAX) {
            self.ranges = widest(&self.ranges, &ground.written, STRETCHES_APART_MAX / 2);
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether a version of which parts are lacking may be written to as it is. A small one is
    /// fetched whole at once, and one that has been replaced, or has no name any more, while that
    /// is still possible.
    pub(crate) fn may_be_ground(&self, grip: &Grip<C::Container>) -> Step<bool> {
        let small = self.whole_bytes_max();
        if self.files().is_unborn(grip.file) {
            return Ok(false);
        }
        let current = self.node_here(grip.file)?.map(|node| node.contents_stamp);
        let pending = self.core().pending_version(grip.file);
        let files = self.files();
        let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        let presence = &open.presence;
        let is_current = current == Some(presence.version);
        // What is pending can be had from nowhere.
        let can_be_had = presence.ground.is_some() || pending != current;
        Ok(presence.contents.size > small && open.unlinked.is_none() && is_current && can_be_had)
    }

    /// A file of no more bytes is fetched whole.
    pub(crate) fn whole_bytes_max(&self) -> u64 {
        match self.inner.settings.whole_bytes_max {
            Some(bytes_max) => bytes_max,
            None => Portions::of(&self.inner.upstream.quality()).whole,
        }
    }

    pub(crate) fn has_ground(&self, grip: &Grip<C::Container>) -> bool {
        let files = self.files();
        files.get(grip.file, grip.generation).is_some_and(|open| open.presence.ground.is_some())
    }

    /// A container that is written to is written to once more. When all of it is here it needs no
    /// ground any more.
    pub(crate) fn go_on_upon_ground(&self, grip: &Grip<C::Container>) -> Step<()> {
        let (whole, many, owed) = {
            let files = self.files();
            let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            let Some(ground) = &open.presence.ground else { return Ok(()) };
            let many = ground.written.len() >= STRETCHES_MAX
                || open.presence.ranges.len() >= STRETCHES_APART_MAX;
            (open.presence.is_whole(), many, open.owes_cut.then_some(ground.reach))
        };
        if let Some(reach) = owed {
            let (file, generation) = (grip.file, grip.generation);
            self.note_here(grip, &Record::Reach { file, generation, reach })?;
            if let Some(open) = self.files().get_mut(file, generation) {
                open.owes_cut = false;
            }
        }
        match (whole, many) {
            (true, _) => self.leave_ground(grip).map_err(Into::into),
            (false, true) => self.close_gaps(grip),
            (false, false) => Ok(()),
        }
    }

    /// There are so many stretches that some are to become one: what lacks between them is fetched, and
    /// what is here between what was written counts as written.
    fn close_gaps(&self, grip: &Grip<C::Container>) -> Step<()> {
        let may_fetch = {
            let connection = self.connection();
            connection.attached && mode::fetches(connection.mode)
        };
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        let here = &mut open.presence;
        let written = here.ground.as_ref().map_or(&[][..], |ground| &ground.written);
        let closed = narrowest(
            if written.len() >= STRETCHES_MAX { written } else { &here.ranges },
            &here.ranges,
        );
        let is_here = |(from, to): &(u64, u64)| here.absent(*from, *to).is_empty();
        let (closes, lacking): (Vec<_>, Vec<_>) = closed.into_iter().partition(is_here);
        // What came for this call, or was here: it asks for no more.
        if !closes.is_empty() {
            closes.iter().for_each(|(from, to)| here.write(*from, *to));
            return Ok(());
        }
        let bytes: Vec<_> = lacking.iter().flat_map(|(from, to)| here.absent(*from, *to)).collect();
        drop(files);
        if may_fetch {
            let (file, generation, recipe) = (grip.file, grip.generation, Vec::new());
            return Err(Stop::Need(Need::Ground { file, generation, recipe, bytes }));
        }
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        open.presence.leave_out_narrow();
        let fits = open.presence.ranges.len() < STRETCHES_APART_MAX;
        drop(files);
        if fits { Ok(()) } else { self.want_whole(grip) }
    }

    /// All that the container lacks, if anything, counts as zeros from here on.
    fn leave_ground(&self, grip: &Grip<C::Container>) -> Result<(), Error> {
        grip.container.sync().map_err(error_of)?;
        let mut core = self.core();
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        let Some(dirty) = open.presence.dirty else { return Ok(()) };
        let whole = Presence { ground: None, ..open.presence.clone() };
        if open.unlinked.is_none() {
            core.log.note(&opened_record(grip.file, dirty, &whole)).map_err(of_log)?;
            let mut write = self.inner.tables.write().map_err(error_of)?;
            whole.save_in_place(&mut *write, grip.file).map_err(error_of)?;
            write.commit(Durability::Later).map_err(error_of)?;
        }
        core.unsaved = true;
        open.presence = whole;
        open.since = None;
        Ok(())
    }

    /// A container was changed. Of one that rests on a ground, what is here now is noted, after it
    /// has reached the disk.
    pub(crate) fn note_altered(
        &self,
        grip: &Grip<C::Container>,
        container: &C::Container,
        altered: &Altered,
    ) -> Step<()> {
        let record = {
            let mut files = self.files();
            let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            let Some(ground) = &open.presence.ground else { return Ok(()) };
            let (file, generation) = (grip.file, grip.generation);
            match altered {
                Altered::Stretch(stretch) | Altered::Room(stretch) => {
                    let (from, to) = (stretch.start, stretch.end);
                    if open.presence.absent(from, to).is_empty() {
                        open.presence.write(from, to);
                        return Ok(());
                    }
                    Record::Here { file, generation, from, to }
                }
                Altered::Length(size) if *size < ground.reach => {
                    Record::Reach { file, generation, reach: *size }
                }
                Altered::Length(_) | Altered::Nothing => return Ok(()),
            }
        };
        let noted = container.sync().map_err(failed).and_then(|()| self.note_here(grip, &record));
        match (noted, record) {
            (Err(stop), Record::Reach { reach, .. }) => {
                // It is cut, whether or not the log can be told: until the container grows again,
                // its length says so after a crash.
                let mut files = self.files();
                let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
                open.presence.cut(reach);
                open.owes_cut = true;
                match stop {
                    Stop::Error(Error::DiskFull) => Ok(()),
                    stop => Err(stop),
                }
            }
            (noted, _) => noted,
        }
    }

    fn note_here(&self, grip: &Grip<C::Container>, record: &Record) -> Step<()> {
        {
            let mut core = self.core();
            let mut files = self.files();
            let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            if open.unlinked.is_none() {
                core.log.note(record).map_err(log_failed)?;
            }
            core.unsaved = true;
            match *record {
                Record::Here { from, to, .. } => open.presence.write(from, to),
                Record::Reach { reach, .. } => open.presence.cut(reach),
                _ => {}
            }
        }
        match record {
            // What was cut off is not to come back when the file grows again.
            Record::Reach { .. } => self.sync_log().map_err(failed),
            _ => Ok(()),
        }
    }

    /// The ground of what was written is not kept any more: what was written is stored by itself,
    /// with zeros where nothing is here, beside whatever is there now, and that is said. Of what was
    /// copied and not written to, nothing is left.
    pub(crate) fn give_up_ground(&self, need: &Need) -> Result<(), Error> {
        let (Need::Ground { file, generation, .. } | Need::Contents { file, generation, .. }) =
            *need
        else {
            return Ok(());
        };
        let Some(grip) = self.grip_of(file, generation) else { return Ok(()) };
        let _still = ranks::write(Rank::Still, &grip.still);
        let Some(grip) = self.still_open(&grip) else { return Ok(()) };
        let (presence, length) = {
            let files = self.files();
            let Some(open) = files.get(file, generation) else { return Ok(()) };
            (open.presence.clone(), open.container.length().map_err(error_of)?)
        };
        let length = if presence.is_a_bare_copy() { 0 } else { length };
        let (Some(ground), true) = (&presence.ground, presence.dirty.is_some()) else {
            return Ok(());
        };
        tracing::error!(
            %file, version = %ground.version,
            "what was written rests on a version that is not kept any more, and is stored by itself"
        );
        self.note_lost(file, ground.version, length).map_err(error_of)?;
        if length == 0 {
            grip.container.set_length(0).map_err(error_of)?;
        }
        for (from, to) in presence.absent(0, length) {
            grip.container.punch(from, to - from).map_err(error_of)?;
        }
        // Also beside what this device has stored there itself: that has the bytes that are zeros here.
        let replica = self.core().meta.replica;
        if let Some(open) = self.files().get_mut(file, generation)
            && let (Some(dirty), Some(replica)) = (&mut open.presence.dirty, replica)
        {
            dirty.expects = nowhere(replica);
        }
        self.leave_ground(&grip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Ground;
    use model::{Contents, ReplicaId, Stamp};

    #[test]
    fn of_very_many_places_that_were_read_some_are_left_out_and_none_that_was_written_to() {
        let apart = |count: usize| (0..count as u64).map(|n| (n * 100, n * 100 + 10)).collect();
        let contents = Contents { size: 1 << 40, root: None, holes: None };
        let version = Stamp::new(ReplicaId(3), 7);
        let mut here = Presence::new(0, version, contents, 0);
        here.dirty = Some(Dirty::new(version, 0));
        here.ranges = apart(STRETCHES_APART_MAX);
        here.leave_out_narrow();
        assert_eq!(here.ranges.len(), STRETCHES_APART_MAX, "all of it is as it was stored");
        here.ground = Some(Ground::new(version, contents));
        here.write(505, 507);
        here.write(900_000, 900_001);
        here.leave_out_narrow();
        assert_eq!(here.ranges.len(), STRETCHES_APART_MAX / 2);
        assert!(here.has(500, 10) && here.has(900_000, 10));
        here.ranges = apart(STRETCHES_APART_MAX - 1);
        here.leave_out_narrow();
        assert_eq!(here.ranges.len(), STRETCHES_APART_MAX - 1);
    }
}
