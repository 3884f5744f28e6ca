//! One cycle over the store, a bounded piece at a time.
//! Holds: before the first chunk is deleted, everything that says it is not needed is on the disk;
//! a deletion happens only in the cycle that found the chunk unneeded.
//! Never: deletes what is promised. On a full disk, where the trash is to be empty: needs more room
//! than a few commits and a piece of a pack.

mod unneeded;

use super::mark::{Marking, Marks};
use super::pace::is_too_far;
use super::promises::Left;
use super::trash::{self, Due, TRASH, TrashRow};
use crate::catalog::{self, VolumeRow};
use crate::error::Result;
use crate::origin::Inner;
use crate::take::contents_of_conflicts;
use crate::volumes::{locked, parse_blob_name};
use model::Seq;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{Durability, Read};
use volume::whole::{
    Holds, PruneAt, VolumeId, Whole, forget_times, is_before_last_mark, mark_time, position_at,
    prune, snapshot_positions,
};

/// Rows in one transaction, and chunks that are looked at in one turn.
const ROWS_MAX: usize = 1000;
/// A repack that frees less has nothing left to do.
const REPACK_BYTES_MIN: u64 = 64 << 10;
/// Packs of which less is dead are left as they are, in the background and on demand.
const DEAD_PERCENT_BACKGROUND: u8 = 40;
const DEAD_PERCENT_WANTED: u8 = 10;
pub(crate) const DEAD_PERCENT_WHOLLY: u8 = 100;
/// After every name of a blob.
const BEYOND: [u8; 65] = [0xff; 65];

/// What a cycle is to do beyond what is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Change nothing: only say what would be done.
    pub dry_run: bool,
    /// Everything in the trash goes, but for what was promised.
    pub empty_trash: bool,
    /// Packs are written anew where little of them is dead.
    pub thorough: bool,
    /// What somebody was told lately to be here, or has sent, counts no more than anything else:
    /// who needs it sends it again.
    pub forget_sent: bool,
}

/// What a cycle did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Rows of versions and of the log.
    pub versions: u64,
    /// Changes of which the versions that they replaced are not old enough to go, or not known to
    /// be.
    pub young: u64,
    /// By so much the clock was set forward since the last cycle, so that nothing is known to be old
    /// in this one. Zero: by nothing that matters.
    pub clock_leapt: Duration,
    /// Volumes of which something happened at a time that is still to come by the clock: until then
    /// nothing grows older.
    pub clock_behind: u64,
    /// Chunks that came into the trash, those that were needed again, and those that went away.
    pub trashed: Amount,
    pub taken_back: Amount,
    pub deleted: Amount,
    /// What is in the trash now.
    pub trash: Amount,
    /// Chunks that would have gone, but somebody was told lately that they are here, or has sent
    /// them; and how long that counts at most, unless somebody still counts on them then.
    pub promised: Amount,
    pub promised_for: Duration,
    /// Bytes that the disk got back.
    pub bytes_on_disk: u64,
    /// Volumes of which a recipe is damaged, so that nothing of them was put away.
    pub unsure: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub chunks: u64,
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.chunks += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn take(&mut self, bytes: u64) {
        self.chunks = self.chunks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

pub(super) struct Collector {
    inner: Arc<Inner>,
    wish: Wish,
    stage: Stage,
    holds: Vec<(VolumeId, Holds)>,
    /// Bytes in the trash by the time at which they came.
    bytes_at: BTreeMap<i64, u64>,
    promises: Left,
    freed: Freed,
    /// What is forgotten of what was promised is not what clients are sending.
    heeds_senders: bool,
}

enum Stage {
    Clear,
    Begin,
    Prune { next: usize, at: Option<PruneAt> },
    Mark(Box<Marking>),
    Want { look: Vec<(VolumeId, Option<Vec<u8>>)>, marks: Marks, unsure: BTreeSet<VolumeId> },
    Sweep { marks: Marks, unsure: BTreeSet<VolumeId>, after: Vec<u8> },
    Empty { due: Due, gone_then: u64, after: Vec<u8>, unsure: BTreeSet<VolumeId> },
    Repack,
    Done,
}

impl Collector {
    pub fn new(inner: Arc<Inner>, wish: Wish) -> Collector {
        Collector {
            promises: inner.promises_left(),
            inner,
            wish,
            stage: Stage::Clear,
            holds: Vec::new(),
            bytes_at: BTreeMap::new(),
            freed: Freed::default(),
            heeds_senders: false,
        }
    }

    /// All goes that nothing needs and that no client is sending: the disk is full.
    pub fn for_room(inner: Arc<Inner>) -> Collector {
        let wish = Wish { dry_run: false, empty_trash: true, thorough: true, forget_sent: true };
        Collector { heeds_senders: true, ..Collector::new(inner, wish) }
    }

    pub fn freed(&self) -> Freed {
        self.freed
    }

    /// A piece of work. True: there is more to do.
    pub fn turn(&mut self) -> Result<bool> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Clear => self.clear()?,
            Stage::Begin => self.begin()?,
            Stage::Prune { next, at } => self.prune(next, at)?,
            Stage::Mark(marking) => self.mark(marking)?,
            Stage::Want { look, marks, unsure } => self.want(look, marks, unsure)?,
            Stage::Sweep { marks, unsure, after } => self.sweep(marks, unsure, &after)?,
            Stage::Empty { due, gone_then, after, unsure } => {
                self.empty(due, gone_then, &after, unsure)?
            }
            Stage::Repack => self.repack()?,
            Stage::Done => Stage::Done,
        };
        Ok(!matches!(self.stage, Stage::Done))
    }

    /// What was deleted before, if nothing lies between, needs hardly any room to be given back, and
    /// makes some.
    fn clear(&mut self) -> Result<Stage> {
        if self.wish.dry_run {
            return Ok(Stage::Begin);
        }
        self.inner.purge_where_there_is_room()?;
        if !self.wish.thorough {
            return Ok(Stage::Begin);
        }
        let freed = self.inner.blobs.reclaim(DEAD_PERCENT_WHOLLY)?.unwrap_or(0);
        self.freed.bytes_on_disk += freed;
        Ok(if freed < REPACK_BYTES_MIN { Stage::Begin } else { Stage::Clear })
    }

    fn begin(&mut self) -> Result<Stage> {
        let inner = &self.inner;
        // What was promised before the marking begins must still count when chunks are deleted.
        inner.upkeep.promises.turn_over(&inner.world.clock, inner.limits.promise);
        inner.let_go_of_the_silent();
        match self.wish.forget_sent && !self.wish.dry_run {
            true if self.heeds_senders => {
                inner.upkeep.promises.forget_but_senders(&inner.world.clock);
            }
            true => inner.upkeep.promises.forget(&inner.world.clock),
            false => {}
        }
        self.promises = inner.promises_left();
        if !self.wish.dry_run {
            inner.mark_times()?;
        }
        let clock = &inner.world.clock;
        let (leap, now) = (inner.upkeep.pace.leap(clock), clock.time());
        let read = inner.tables.read()?;
        for row in catalog::volumes(&*read)? {
            let volume = VolumeId(row.id);
            let mut holds = inner.holds(&*read, &row)?;
            if is_too_far(leap, inner.kept_by_age(&row)) {
                self.freed.clock_leapt = leap;
                holds = holds.of_all_versions();
            }
            // What goes now is in no trash: by its age nothing does, as a clock may be wrong.
            if self.heeds_senders {
                let none_is_kept = inner.versions_kept(&row).is_zero();
                let contents_floor = if none_is_kept { holds.contents_floor } else { Seq::START };
                holds = Holds { contents_floor, ..holds.of_all_versions() };
            }
            self.freed.clock_behind += u64::from(is_before_last_mark(&*read, volume, now)?);
            let position = Whole::now(&*read, volume).position()?;
            self.freed.young += position.0.saturating_sub(holds.contents_floor.0);
            self.holds.push((volume, holds));
        }
        // A leap stays one until it has been told of, and a day has passed.
        if !self.wish.dry_run && !self.heeds_senders {
            inner.upkeep.pace.begin(clock);
        }
        Ok(Stage::Prune { next: 0, at: None })
    }

    fn prune(&mut self, next: usize, at: Option<PruneAt>) -> Result<Stage> {
        let Some((volume, holds)) = self.holds.get(next) else {
            let salt = self.inner.secret();
            let marks = Marks::new(self.inner.chunks_about()?, salt);
            return Ok(Stage::Mark(Box::new(Marking::new(self.holds.clone(), marks))));
        };
        let mut write = self.inner.tables.write()?;
        if catalog::is_there(&*write, *volume)? {
            let (removed, at) = prune(&mut *write, *volume, at, holds, ROWS_MAX)?;
            self.freed.versions += removed;
            if removed > 0 && !self.wish.dry_run {
                write.commit(Durability::Later)?;
            }
            if at.is_some() {
                return Ok(Stage::Prune { next, at });
            }
        }
        Ok(Stage::Prune { next: next + 1, at: None })
    }

    fn mark(&mut self, mut marking: Box<Marking>) -> Result<Stage> {
        if marking.turn(&self.inner)? {
            return Ok(Stage::Mark(marking));
        }
        let Marking { marks, unsure, .. } = *marking;
        self.freed.unsure = unsure.len() as u64;
        let look = match self.wish.dry_run {
            true => Vec::new(),
            false => unsure.iter().map(|volume| (*volume, None)).collect(),
        };
        Ok(Stage::Want { look, marks, unsure })
    }

    /// Finds out which files lack the recipe chunks that could not be read, a page at a time.
    fn want(
        &mut self,
        mut look: Vec<(VolumeId, Option<Vec<u8>>)>,
        marks: Marks,
        unsure: BTreeSet<VolumeId>,
    ) -> Result<Stage> {
        let Some((id, from)) = look.pop() else {
            if self.skips_the_trash() {
                // All is on the disk that speaks against what goes from now on.
                self.inner.tables.write()?.commit(Durability::Now)?;
            }
            return Ok(Stage::Sweep { marks, unsure, after: Vec::new() });
        };
        let volume = locked(&self.inner.volumes).get(&id).cloned();
        if let Some(volume) = volume
            && let Some(next) = self.inner.want_page(&volume, from)?
        {
            look.push((id, Some(next)));
        }
        Ok(Stage::Want { look, marks, unsure })
    }

    /// Compares chunks and trash, both in the order of names.
    fn sweep(&mut self, marks: Marks, unsure: BTreeSet<VolumeId>, after: &[u8]) -> Result<Stage> {
        let blobs = self.inner.blobs.list(after, ROWS_MAX)?;
        let last = blobs.last().map(|(name, _)| name.clone());
        let is_last = blobs.len() < ROWS_MAX;
        let upto = match &last {
            Some(last) if !is_last => [last, &[0][..]].concat(),
            _ => BEYOND.to_vec(),
        };
        let (now, inner) = (self.inner.world.clock.time().secs, self.inner.clone());
        let is_needed = |name: &[u8]| {
            let volume = parse_blob_name(name).map(|(volume, _)| volume);
            marks.has(name) || volume.is_none_or(|volume| unsure.contains(&volume))
        };
        let blobs = match self.skips_the_trash() {
            true => self.without_unneeded(blobs, is_needed)?,
            false => blobs,
        };
        let mut write = inner.tables.write()?;
        let mut known: BTreeMap<_, _> =
            trash::rows(&*write, after, &upto, usize::MAX)?.into_iter().collect();
        let mut changed = false;
        for (name, bytes) in blobs {
            let row = match (known.remove(&name), is_needed(&name)) {
                (None, true) => continue,
                (Some(row), true) => {
                    write.delete(TRASH, &name)?;
                    self.freed.taken_back.add(row.bytes);
                    changed = true;
                    continue;
                }
                (Some(row), false) => row,
                (None, false) => {
                    let row = TrashRow { since: now, bytes };
                    trash::put(&mut *write, &name, row)?;
                    self.freed.trashed.add(bytes);
                    if self.wish.dry_run && self.wish.empty_trash {
                        self.would_go(&name, bytes);
                    }
                    changed = true;
                    row
                }
            };
            self.freed.trash.add(row.bytes);
            let bytes_then = self.bytes_at.entry(row.since).or_default();
            *bytes_then = bytes_then.saturating_add(row.bytes);
        }
        // They went just now, or a crash came between their deletion and that of their rows.
        for name in known.keys() {
            write.delete(TRASH, name)?;
            changed = true;
        }
        if !self.wish.dry_run && (changed || is_last) {
            // With the last, all is on the disk that speaks against the chunks that go.
            write.commit(if is_last { Durability::Now } else { Durability::Later })?;
        } else {
            drop(write);
        }
        Ok(match last {
            Some(last) if !is_last => Stage::Sweep { marks, unsure, after: last },
            _ => Stage::Empty { due: self.due(), gone_then: 0, after: Vec::new(), unsure },
        })
    }

    fn due(&self) -> Due {
        if self.wish.empty_trash {
            return Due::EVERYTHING;
        }
        let limits = &self.inner.limits;
        let share = self.inner.blobs.bytes() / 100 * limits.trash_percent;
        let kept = i64::try_from(limits.trash_kept.as_secs()).unwrap_or(i64::MAX);
        let youngest = self.inner.world.clock.time().secs.saturating_sub(kept);
        trash::due(&self.bytes_at, share.max(limits.trash_bytes_min), youngest)
    }

    fn empty(
        &mut self,
        due: Due,
        mut gone_then: u64,
        after: &[u8],
        unsure: BTreeSet<VolumeId>,
    ) -> Result<Stage> {
        let inner = self.inner.clone();
        // Nobody else writes rows of the trash.
        let rows = trash::rows(&*inner.tables.read()?, after, &BEYOND, ROWS_MAX)?;
        let last = rows.last().map(|(name, _)| name.clone());
        let mut gone = Vec::new();
        for (name, row) in rows {
            let Some((volume, chunk)) = parse_blob_name(&name) else { continue };
            if unsure.contains(&volume) || !due.takes(&row, gone_then) {
                continue;
            }
            let delete = || match self.wish.dry_run {
                true => Ok(()),
                false => inner.blobs.let_go(&[&name]),
            };
            let standing = inner.upkeep.promises.unless_promised(volume, &chunk, delete)?;
            if !self.is_free(standing, row.bytes) {
                continue;
            }
            if row.since == due.before {
                gone_then = gone_then.saturating_add(row.bytes);
            }
            self.freed.deleted.add(row.bytes);
            self.freed.trash.take(row.bytes);
            gone.push(name);
        }
        if !gone.is_empty() && !self.wish.dry_run {
            let mut write = inner.tables.write()?;
            for name in &gone {
                write.delete(TRASH, name)?;
            }
            write.commit(Durability::Later)?;
        }
        Ok(match last {
            Some(after) => Stage::Empty { due, gone_then, after, unsure },
            None => Stage::Repack,
        })
    }

    fn repack(&mut self) -> Result<Stage> {
        if self.wish.dry_run {
            return Ok(Stage::Done);
        }
        let percent =
            if self.wish.thorough { DEAD_PERCENT_WANTED } else { DEAD_PERCENT_BACKGROUND };
        let freed = self.inner.blobs.reclaim(percent)?.unwrap_or(0);
        self.freed.bytes_on_disk += freed;
        Ok(if freed < REPACK_BYTES_MIN { Stage::Done } else { Stage::Repack })
    }
}

impl Inner {
    /// How long what was promised counts.
    fn promises_left(&self) -> Left {
        let lag = self.limits.mark_every / super::TURNS;
        self.upkeep.promises.count_for(&self.world.clock, (self.limits.promise, lag))
    }

    /// Writes down where every volume stands.
    pub(super) fn mark_times(&self) -> Result<()> {
        let now = self.world.clock.time();
        let leap = self.upkeep.pace.leap(&self.world.clock);
        let mut write = self.tables.write()?;
        let mut changed = false;
        for row in catalog::volumes(&*write)? {
            let volume = VolumeId(row.id);
            if is_too_far(leap, self.kept_by_age(&row))
                || is_before_last_mark(&*write, volume, now)?
            {
                continue;
            }
            changed |= mark_time(&mut *write, volume, now)?;
            let kept = self.versions_kept(&row).max(self.limits.names_kept);
            forget_times(&mut *write, volume, before(now.secs, kept))?;
        }
        if changed {
            write.commit(Durability::Now)?;
        }
        Ok(())
    }

    /// What somebody may still ask for.
    pub fn holds(&self, read: &dyn Read, row: &VolumeRow) -> Result<Holds> {
        let volume = VolumeId(row.id);
        let now = self.world.clock.time().secs;
        let position = Whole::now(read, volume).position()?;
        let floor = |kept: Duration| match kept.is_zero() {
            true => Ok(position),
            false => position_at(read, volume, before(now, kept)),
        };
        let versions_kept = self.versions_kept(row);
        let contents_floor = floor(versions_kept)?;
        let floor = floor(versions_kept.max(self.limits.names_kept))?.min(contents_floor);
        // Whoever comes back reads on from where it stopped, if that is not too far away.
        let log = position.0.saturating_sub(self.limits.tail_records_max);
        Ok(Holds {
            floor,
            contents_floor,
            log_floor: contents_floor.min(Seq(log)),
            pins: snapshot_positions(read, volume)?,
            contents: contents_of_conflicts(read, volume)?,
        })
    }

    /// Whether the clock was set so far ahead since the last cycle that it counts for no mark.
    pub fn clock_leapt(&self) -> bool {
        is_too_far(self.upkeep.pace.leap(&self.world.clock), self.limits.versions_kept)
    }

    /// The time for which something of a volume is kept by its age, the shortest that there is.
    fn kept_by_age(&self, row: &VolumeRow) -> Duration {
        let kept = self.versions_kept(row);
        if kept.is_zero() { self.limits.names_kept } else { kept }
    }

    fn secret(&self) -> [u8; 32] {
        let mut secret = [0; 32];
        self.world.entropy.fill(&mut secret);
        secret
    }

    /// At least as many chunks as there are, unless they are tiny.
    fn chunks_about(&self) -> Result<u64> {
        let sample = self.blobs.list(&[], ROWS_MAX)?;
        let bytes: u64 = sample.iter().map(|(_, bytes)| *bytes).sum();
        if sample.len() < ROWS_MAX {
            return Ok(sample.len() as u64);
        }
        // Names are hashes, so the first are like the others.
        let average = (bytes / sample.len() as u64).max(1);
        Ok((self.blobs.bytes() / average).max(sample.len() as u64))
    }
}

fn before(now: i64, kept: Duration) -> i64 {
    now.saturating_sub_unsigned(kept.as_secs())
}
