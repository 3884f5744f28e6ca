//! Stores of who holds records of a file with nobody else: what it changed under them is laid over
//! what others have made of the rest of the file meanwhile.
//! Holds: only what was changed under records that its client holds is laid over anything; what does
//! not go together is kept aside, as all other stores; of the merge there is a version of its own, so
//! that every stamp has the contents that its writer gave it.
//! From: fcntl(2), record locks; beyond the papers, whose stores replace whole files.

use super::batch::Batch;
use super::decide::Decision;
use crate::callbacks::Place;
use crate::deltas::bytes_with;
use crate::error::{ReplicaError, Result};
use crate::examine::put_chunks;
use crate::origin::Inner;
use crate::upkeep::Promise;
use crate::volumes::Volume;
use chunks::{ChunksError, Sides, Source, merge};
use model::{
    Change, ChunkName, Contents, Effects, FileId, Kind, LockKind, Locks, ReplicaId, Stamp, Time,
    Update, View, judge,
};
use protocol::{Held, LOCKS_TOLD_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::StoreError;
use volume::whole::{Committer, Whole};

/// Bytes that are compared for the stores of a submit, and for those of a transaction: these keep all
/// others of the volume waiting.
const COMPARED_BYTES_MAX: u64 = 64 << 20;
const COMPARED_IN_TURN: u64 = 16 << 20;
/// So many versions before the one that is found are looked at.
const VERSIONS_BACK_MAX: usize = 64;
/// Bytes that are read at once for a merge.
const READ_BYTES_MAX: u64 = chunks::CHUNK_BYTES_MAX as u64;

/// Of what a client says that it holds with nobody else, what is so: records alone.
pub(super) fn held_alone(
    inner: &Inner,
    volume: &Volume,
    place: &Place,
    said: Vec<Held>,
) -> BTreeMap<FileId, Locks> {
    let mut alone = BTreeMap::new();
    if said.is_empty() {
        return alone;
    }
    let mut holders = volume.holders();
    let now = inner.world.clock.moment();
    if holders.at(place).is_none() || !holders.lasts(place.replica, now) {
        return alone;
    }
    let book = volume.book();
    for Held { file, mut locks } in said {
        locks.truncate(LOCKS_TOLD_MAX);
        locks.retain(|lock| {
            let is_record = lock.kind == LockKind::Record && lock.exclusive;
            is_record && book.has(place.replica, file, lock)
        });
        if let Some(locks) = Locks::from_told(&locks).filter(|locks| !locks.is_empty()) {
            alone.insert(file, locks);
        }
    }
    alone
}

/// What comes of stores that meet something else than they expect, by their stamps.
#[derive(Default)]
pub(super) struct Prepared {
    of: Merges,
    /// Nothing else is taken in the same transaction.
    is_all_there_is: bool,
    /// The chunks of what was merged stay until this is dropped.
    _promise: Option<Promise>,
}

/// What comes of stores, by their stamps.
pub(crate) type Merges = BTreeMap<Stamp, Outcome>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// What is there, as it was looked at.
    found: Stamp,
    /// None: they do not go together.
    merged: Option<Contents>,
}

impl Outcome {
    /// Of one that is not the first: if so much room is left. It may be that others have used it up,
    /// and that it has enough by itself.
    fn counts(&self, room: u64) -> bool {
        self.merged.is_some() || room > 0
    }
}

/// What a store meets.
pub(super) enum Met {
    Conflict,
    Merged(Contents),
    Unprepared,
}

impl Prepared {
    /// It was looked at as it is now, as far as others go.
    pub fn is_all_there_is(&self) -> bool {
        self.is_all_there_is
    }

    pub fn met(prepared: Option<&Prepared>, update: &Update, found: Stamp) -> Met {
        let Some(prepared) = prepared else { return Met::Conflict };
        match prepared.of.get(&update.stamp).filter(|outcome| outcome.found == found) {
            Some(Outcome { merged: Some(merged), .. }) => Met::Merged(*merged),
            Some(_) => Met::Conflict,
            None => Met::Unprepared,
        }
    }
}

/// A store that is taken, and what it is merged to.
#[derive(Debug)]
pub(super) struct Laid {
    pub mine: Effects,
    /// What both do together.
    pub effects: Effects,
    pub contents: Contents,
    /// When the last of both was written.
    pub mtime: Time,
}

impl Laid {
    /// The store as it would be taken by itself, with what it is merged to.
    pub fn of(store: Decision, contents: Contents, mtime: Time) -> Decision {
        let Decision::Take(mine) = store else { return store };
        let mut effects = mine.clone();
        for node in effects.nodes.values_mut().flatten().filter(|node| node.kind == Kind::File) {
            node.contents = contents;
        }
        Decision::Lay(Box::new(Laid { mine, effects, contents, mtime }))
    }
}

/// The update of the origin's own that makes the merge a version, after the store.
pub(super) fn merged(
    committer: &Committer<'_>,
    store: &Update,
    (contents, mtime): (Contents, Time),
) -> Result<(Update, Effects)> {
    let Change::Store { file, .. } = store.change else {
        return Err(ReplicaError::Unprepared);
    };
    let stamp = Stamp::new(ReplicaId::ORIGIN, committer.position().next().0);
    let change = Change::Store { file, expects: store.stamp, contents, mtime };
    let update = Update { stamp, change, ..store.clone() };
    match judge(&update, &committer.view())? {
        Ok(effects) => Ok((update, effects)),
        Err(_) => Err(ReplicaError::Unprepared),
    }
}

/// What comes of the stores of a submit, as it is before its turn: nobody waits for that.
pub(super) fn merges(
    inner: &Inner,
    volume: &Volume,
    (updates, under): (&[Update], &BTreeMap<FileId, Locks>),
) -> Merges {
    let mut merges = Merges::new();
    let mut room = COMPARED_BYTES_MAX;
    for (place, (update, locks)) in stores_under(updates, under).enumerate() {
        // What there is no room for is tried again when it has its turn.
        let merge = merge_of(inner, volume, (update, locks), None, &mut room).ok().flatten();
        merges.extend(merge.filter(|(_, outcome)| place == 0 || outcome.counts(room)));
    }
    merges
}

/// Merges what these batches store with what is there before them, as far as others have stored since
/// that was done. Within the turn, and before their transaction. Errors: what passes, as a lack of room.
pub(super) fn prepare(inner: &Inner, volume: &Volume, batches: &[Batch]) -> Result<Prepared> {
    let is_all_there_is = batches.len() == 1;
    if batches.iter().all(|batch| batch.under.is_empty()) {
        return Ok(Prepared { is_all_there_is, ..Prepared::default() });
    }
    let promise = Some(inner.upkeep.promises.current());
    let mut prepared = Prepared { is_all_there_is, _promise: promise, of: Merges::new() };
    let mut room = COMPARED_IN_TURN;
    let mut files = BTreeSet::new();
    for batch in batches {
        for (place, (update, locks)) in stores_under(&batch.updates, &batch.under).enumerate() {
            // Who comes second to a file meets what is not there yet.
            if !files.insert(update.change.fills()) {
                continue;
            }
            let before = batch.merges.get(&update.stamp);
            let merge = merge_of(inner, volume, (update, locks), before, &mut room)?;
            let had_all = is_all_there_is && place == 0;
            prepared.of.extend(merge.filter(|(_, outcome)| had_all || outcome.counts(room)));
        }
    }
    Ok(prepared)
}

/// The first store of each file of which the writer holds records: what comes after it in the same
/// batch is merged when it is there.
fn stores_under<'a>(
    updates: &'a [Update],
    under: &'a BTreeMap<FileId, Locks>,
) -> impl Iterator<Item = (&'a Update, &'a Locks)> {
    let mut files = BTreeSet::new();
    updates.iter().filter_map(move |update| {
        let Change::Store { file, .. } = update.change else { return None };
        let locks = under.get(&file)?;
        files.insert(file).then_some((update, locks))
    })
}

/// What is no reason to lay a store beside: with room, or fewer files that are open, it is merged.
fn passes(error: &ReplicaError) -> bool {
    error.is_full() || error.is_short_of_descriptors()
}

/// What comes of a store, by its stamp; none, if it meets what it expects, or no file. `before`: what
/// came of it when it was looked at before. Errors: what passes, so that its writer keeps it.
fn merge_of(
    inner: &Inner,
    volume: &Volume,
    (update, locks): (&Update, &Locks),
    before: Option<&Outcome>,
    room: &mut u64,
) -> Result<Option<(Stamp, Outcome)>> {
    let outcome = match outcome(inner, volume, (update, locks), before, room) {
        Err(error) if !passes(&error) => {
            tracing::warn!(volume = volume.name, %error, "what a store meets cannot be read");
            None
        }
        outcome => outcome?,
    };
    Ok(outcome.map(|outcome| (update.stamp, outcome)))
}

fn outcome(
    inner: &Inner,
    volume: &Volume,
    (update, locks): (&Update, &Locks),
    before: Option<&Outcome>,
    room: &mut u64,
) -> Result<Option<Outcome>> {
    let Change::Store { file, expects, contents: mine, .. } = update.change else {
        return Ok(None);
    };
    let (found, base, theirs) = {
        let read = inner.tables.read()?;
        let view = Whole::now(&*read, volume.id);
        let writer = view.writer(update.stamp.replica)?;
        let was_taken = writer.is_some_and(|writer| update.stamp.number <= writer.taken);
        let node = view.node(file)?.filter(|node| node.kind == Kind::File && !was_taken);
        let Some(node) = node.filter(|node| node.contents_stamp != expects) else {
            return Ok(None);
        };
        if let Some(before) = before.filter(|before| before.found == node.contents_stamp) {
            return Ok(Some(*before));
        }
        let of = |stamp| -> Result<Option<Contents>> {
            Ok(view.contents(file, stamp)?.map(|(contents, _)| contents))
        };
        let expects = began_from(&view, file, update.stamp, (expects, node.contents_stamp))?;
        (node.contents_stamp, of(expects)?, of(node.contents_stamp)?)
    };
    let merged = match (base, theirs) {
        (Some(base), Some(theirs)) => {
            let sides = Sides { base, mine, theirs };
            match merged_contents(inner, volume, (&sides, locks), room) {
                Err(error) if !passes(&error) => {
                    tracing::warn!(volume = volume.name, %file, %error, "records are not merged");
                    None
                }
                merged => merged?,
            }
        }
        _ => None,
    };
    Ok(Some(Outcome { found, merged }))
}

/// What a store was written upon. Before what is found there may be one that its writer took back
/// without knowing that it had arrived, and that others have gone on from; this comes instead of it.
fn began_from(
    view: &Whole<'_>,
    file: FileId,
    store: Stamp,
    (expects, found): (Stamp, Stamp),
) -> Result<Stamp> {
    let mut version = found;
    for _ in 0..VERSIONS_BACK_MAX {
        if version == expects {
            break;
        }
        let is_own = version.replica == store.replica && version.number < store.number;
        if is_own && expected_by(view, (file, file), version)? == Some(expects) {
            return Ok(version);
        }
        let Some((_, since)) = view.contents(file, version)? else { break };
        let Some(before) = view.node_before(file, since)? else { break };
        version = before.contents_stamp;
    }
    Ok(expects)
}

/// What a version of a file had been expected to meet that was stored as one of the file that was `meant`:
/// of one that was kept aside what its writer stores may still be meant for the other.
pub(super) fn expected_by(
    view: &Whole<'_>,
    (file, meant): (FileId, FileId),
    version: Stamp,
) -> Result<Option<Stamp>> {
    let Some((_, since)) = view.contents(file, version)? else { return Ok(None) };
    Ok(view.logged(since)?.and_then(|taken| match taken.update.change {
        Change::Store { file, expects, .. } if taken.update.stamp == version && file == meant => {
            Some(expects)
        }
        _ => None,
    }))
}

fn merged_contents(
    inner: &Inner,
    volume: &Volume,
    (sides, locks): (&Sides, &Locks),
    room: &mut u64,
) -> Result<Option<Contents>> {
    let stretch = |lock: &model::Lock| lock.first..lock.last.saturating_add(1);
    let within: Vec<Range<u64>> = locks.iter().map(stretch).collect();
    let named = (&volume.secret, volume.cutter);
    let Some(merged) = merge(named, sides, &within, (&Stored { inner, volume }, room))? else {
        return Ok(None);
    };
    let chunks: Vec<&[u8]> = merged.chunks.iter().map(Vec::as_slice).collect();
    if !chunks.is_empty() {
        let promise = inner.upkeep.promises.current();
        put_chunks(inner, volume, &promise, &chunks).map_err(ReplicaError::Refused)?;
    }
    Ok(Some(merged.contents))
}

/// What is in the store, checked.
struct Stored<'a> {
    inner: &'a Inner,
    volume: &'a Volume,
}

impl Source for Stored<'_> {
    fn recipe(&self, name: &ChunkName) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.sound(self.volume, name)
    }

    fn bytes(
        &self,
        contents: &Contents,
        stretch: Range<u64>,
    ) -> Result<Option<Vec<u8>>, ChunksError> {
        let length = stretch.end - stretch.start;
        let range = protocol::Range { offset: stretch.start, length };
        let fetch = |name: &ChunkName| self.inner.sound(self.volume, name);
        bytes_with(&self.volume.secret, contents, range, READ_BYTES_MAX, fetch)
    }
}
