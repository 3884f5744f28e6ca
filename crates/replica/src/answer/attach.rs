//! Attaching and renewing: who the client is, what it has missed, and its lease.
//! Holds: a replica id belongs to one device, and to one of two that have a copy each of one state; a client that was set back to an earlier state
//! never makes updates under numbers that were taken; when it is told how far they were taken, no
//! batch of an earlier session can still be.
//! From: DESIGN, "Updates" and "The client".

use super::lease::{note_lease, note_renewal, put_lease};
use super::locking::claim;
use super::{TRIES_MAX, states};
use crate::callbacks::{Arrival, Holders, NoPlace, Place, Shown};
use crate::catalog::{self, DeviceId};
use crate::error::Result;
use crate::origin::Inner;
use crate::take::settle_missed;
use crate::volumes::Volume;
use crate::weight::STATES_BYTES_MAX;
use model::{FileId, ReplicaId, Seq};
use protocol::{Attach, Notice, RUNS_MAX, Refusal, Run, States, Tail};
use store::Durability;
use volume::whole::{self, Committer, Whole, Writer};

/// So many updates of a client that was set back are taken for made before it attached.
const RENUMBERED_MAX: u64 = 1000;

/// A client that has been attached.
#[derive(Debug)]
pub(crate) struct Attached {
    pub place: Place,
    pub taken: u64,
    /// Beyond that, what was taken ahead of its turn.
    pub ahead: Vec<u64>,
    pub tail: Tail,
    /// Files of which locks that were claimed are another's by now.
    pub locks_lost: Vec<FileId>,
    /// The last runs of this origin.
    pub runs: Vec<Run>,
    /// The client was told of more than there is up to here.
    pub in_common: Option<Seq>,
}

/// Who wants to be attached.
pub(crate) struct Asking<'a> {
    pub device: DeviceId,
    pub attach: &'a Attach,
    /// The session that asks lives.
    pub is_there: &'a dyn Fn() -> bool,
}

/// What an origin and a client know of each other before anything is said.
struct Acquaintance {
    runs: Vec<Run>,
    /// The client was told of more than there is up to here.
    in_common: Option<Seq>,
}

/// Whom updates come from.
struct Identity<'a> {
    expected: Expected<'a>,
    writer: Writer,
    /// Numbers of updates beyond the last that was taken in its turn.
    ahead: Vec<u64>,
}

/// A session that is expected until this is dropped.
struct Expected<'a> {
    volume: &'a Volume,
    place: Place,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.volume.holders().expect_no_more(&self.place);
    }
}

/// Gives or confirms a replica id, and begins a session.
pub(crate) fn attach(
    inner: &Inner,
    volume: &Volume,
    asking: &Asking<'_>,
) -> Result<Result<Attached, Refusal>> {
    let Asking { device, attach, .. } = *asking;
    // Whoever has no place cannot remove anything either.
    let known = acquaintance(inner, volume, attach)?;
    let identified = inner.reserved.used(|| identify(inner, volume, asking, known.in_common))?;
    let Identity { expected, writer, ahead } = match identified {
        Ok(identity) => identity,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let replica = expected.place.replica;
    if attach.replica.is_some_and(|asked| asked != replica) {
        // The client keeps its cache, and holds it under the new id from now on.
        inner.reserved.used(|| leave_behind(inner, volume, device, attach))?;
    }
    let is_new = attach.replica.is_none() && attach.seen == Seq::START;
    let begin = |tail: &Tail, upto: Seq, holders: &mut Holders| {
        let now = inner.world.clock.moment();
        let arrival = Arrival {
            place: expected.place.clone(),
            starts_empty: is_new || matches!(tail, Tail::TooFar(_)),
            seen: attach.seen.min(upto),
            upto,
            lease_end: now + inner.limits.lease,
            holders_max: inner.limits.holders_max,
        };
        holders.attach(&arrival, now)
    };
    for attempt in 0..=TRIES_MAX {
        // The last reading holds up whoever publishes, so that nothing is published meanwhile.
        let held = (attempt == TRIES_MAX).then(|| volume.holders());
        let missed = match known.in_common {
            Some(_) => Missed::Unknown,
            None if is_new => Missed::Everything,
            None => Missed::OfAll,
        };
        let (tail, upto) = tail(inner, volume, attach.seen, missed)?;
        let mut holders = held.unwrap_or_else(|| volume.holders());
        if attempt < TRIES_MAX && holders.has_published_beyond(upto) {
            continue;
        }
        match begin(&tail, upto, &mut holders) {
            Ok(()) => {}
            Err(NoPlace::TooMany) => break,
            Err(NoPlace::Overtaken) => return Ok(Err(Refusal::NotAttached)),
        }
        let place = expected.place.clone();
        holders.show(&place, files_in(&tail), inner.limits.shown_max);
        drop(holders);
        // Before others are given what nobody is known to hold.
        let claims = attach.locks.as_deref().unwrap_or_default();
        let locks_lost = claim(volume, (replica, device), claims, inner.world.clock.moment());
        volume.grace.attached(replica);
        let Acquaintance { runs, in_common } = known;
        let taken = writer.taken;
        return Ok(Ok(Attached { place, taken, ahead, tail, locks_lost, runs, in_common }));
    }
    Ok(Err(Refusal::Failed("too many clients hold callbacks; try again in a minute".into())))
}

/// Prolongs the lease, and tells what the client was not told.
pub(crate) fn renew(
    inner: &Inner,
    volume: &Volume,
    place: &Place,
    seen: Seq,
) -> Result<Result<Tail, Refusal>> {
    note_renewal(inner, volume, place)?;
    for attempt in 0..=TRIES_MAX {
        let held = (attempt == TRIES_MAX).then(|| volume.holders());
        let shown = match &held {
            Some(_) => None,
            None => match volume.holders().at(place) {
                Some(holder) => Some(holder.shown.clone()),
                None => return Ok(Err(Refusal::NotAttached)),
            },
        };
        let missed = shown.as_ref().map_or(Missed::OfAll, Missed::Of);
        let (tail, upto) = tail(inner, volume, seen, missed)?;
        let mut holders = held.unwrap_or_else(|| volume.holders());
        if attempt < TRIES_MAX && holders.has_published_beyond(upto) {
            continue;
        }
        let Some(holder) = holders.at(place) else { break };
        if shown.as_ref().is_some_and(|shown| holder.lacks(shown)) {
            continue;
        }
        let now = inner.world.clock.moment();
        if matches!(tail, Tail::TooFar(_)) {
            holder.shown = Shown::nothing();
        }
        holder.renew(seen.min(upto), (&tail, upto), now + inner.limits.lease);
        return Ok(Ok(tail));
    }
    Ok(Err(Refusal::NotAttached))
}

fn acquaintance(inner: &Inner, volume: &Volume, attach: &Attach) -> Result<Acquaintance> {
    if volume.run_is_due() {
        let _turn = volume.turn();
        if volume.run_is_due() {
            inner.begin_run(volume);
            // Once something has been said in it, it is too late.
            volume.note_run(false);
        }
    }
    let read = inner.tables.read()?;
    let in_common = match &attach.heard {
        Some(heard) => Some(whole::in_common(&*read, volume.id, heard)?)
            .filter(|in_common| *in_common < heard.upto),
        None => None,
    };
    Ok(Acquaintance { runs: whole::last_runs(&*read, volume.id, RUNS_MAX)?, in_common })
}

/// The id that the client makes updates with, in a transaction of its own. It ends the session
/// before: batches look in their transactions whether theirs is the newest, so those that this
/// one does not see come after it and change nothing.
fn identify<'a>(
    inner: &Inner,
    volume: &'a Volume,
    &Asking { device, attach, is_there }: &Asking<'_>,
    in_common: Option<Seq>,
) -> Result<Result<Identity<'a>, Refusal>> {
    // What it is told is taken is on the disk.
    let _turn = volume.turn();
    // What waited until its session had ended must not end the one that took its place.
    if !is_there() {
        return Ok(Err(Refusal::NotAttached));
    }
    settle_missed(inner, volume)?;
    let mut write = inner.tables.write()?;
    let mut committer = Committer::begin(&mut *write, volume.id)?;
    let known = match attach.replica {
        Some(replica) => known(&committer.view(), replica, device)?,
        None => None,
    };
    // Of a server that was set back the last life that it knows says nothing.
    let at = in_common.unwrap_or(committer.view().position()?);
    let is_behind = at < attach.seen || in_common.is_some();
    // One that was set back may have given a number anew that was taken.
    let confirmed = known.filter(|(_, writer, ahead)| {
        attach.made >= ahead.last().map_or(writer.taken, |last| (*last).max(writer.taken))
            && (is_behind || !is_a_copy(writer, attach))
    });
    let is_confirmed = confirmed.is_some();
    let (replica, mut writer, ahead) = match confirmed {
        Some(confirmed) => confirmed,
        None if !volume.admits_newcomer(device, inner.world.clock.moment()) => {
            let what = "this device has begun too many clients anew; try again in a minute";
            return Ok(Err(Refusal::Failed(what.into())));
        }
        None => (committer.fresh_replica()?, Writer::new(&device.0), Vec::new()),
    };
    let place = volume.holders().expect(replica);
    let expected = Expected { volume, place };
    let before = writer.clone();
    // Under a new id what is pending gets new numbers, from 1 up; how many is not known.
    let made = if is_confirmed { attach.made } else { attach.made.min(RENUMBERED_MAX) };
    // Nobody has seen what others do in the place of what was lost.
    writer.attached(made, attach.seen.min(at));
    writer.life = attach.life.map(|life| life.now);
    let changed = !is_confirmed || writer != before;
    if changed {
        committer.put_writer(replica, &writer)?;
        committer.finish()?;
        put_lease(inner, volume, &mut *write, replica)?;
        write.commit(Durability::Now)?;
    } else {
        drop(write);
        note_lease(inner, volume, replica)?;
    }
    Ok(Ok(Identity { expected, writer, ahead }))
}

/// Another life than the one that attached last has gone on from where this one was: what either
/// numbers is its own from then on, however much it is.
fn is_a_copy(writer: &Writer, attach: &Attach) -> bool {
    let both = writer.life.zip(attach.life);
    both.is_some_and(|(last, life)| !life.goes_on_from(last))
}

/// A writer that the device is, and what was taken of it ahead of its turn.
fn known(
    view: &Whole<'_>,
    replica: ReplicaId,
    device: DeviceId,
) -> Result<Option<(ReplicaId, Writer, Vec<u64>)>> {
    let Some(writer) = view.writer(replica)? else { return Ok(None) };
    if *writer.device != device.0[..] {
        return Ok(None);
    }
    let ahead = view.taken_ahead(replica, &writer)?;
    Ok(Some((replica, writer, ahead)))
}

/// The id before: nobody holds callbacks under it any more, if it was this client's.
fn leave_behind(inner: &Inner, volume: &Volume, device: DeviceId, attach: &Attach) -> Result<()> {
    let Some(replica) = attach.replica else { return Ok(()) };
    let mut write = inner.tables.write()?;
    let writer = Whole::now(&*write, volume.id).writer(replica)?;
    // What a copy holds under it is the copy's.
    if writer.is_some_and(|it| *it.device == device.0[..] && !is_a_copy(&it, attach)) {
        catalog::remove_lease(&mut *write, volume.id, replica)?;
        write.commit(Durability::Now)?;
        volume.holders().forget(replica);
        volume.grace.attached(replica);
    }
    Ok(())
}

/// What a client may have missed.
#[derive(Clone, Copy)]
enum Missed<'a> {
    /// It has nothing that could have changed.
    Everything,
    /// It was told of what is not so.
    Unknown,
    OfAll,
    Of(&'a Shown),
}

/// What changed after `seen`, as far as the client may have missed it, and the position that it
/// shows.
fn tail(inner: &Inner, volume: &Volume, seen: Seq, missed: Missed<'_>) -> Result<(Tail, Seq)> {
    let tables = inner.tables.read()?;
    let view = Whole::now(&*tables, volume.id);
    let at = view.position()?;
    // A client that has seen more than there is saw a store that has been restored since. One that
    // was first here when nothing was has seen nothing of others, and may have what they changed.
    let is_too_far = match missed {
        Missed::Everything => at > Seq::START,
        Missed::Unknown => true,
        Missed::OfAll | Missed::Of(_) => false,
    };
    if seen > at || is_too_far {
        return Ok((Tail::TooFar(at), at));
    }
    let limits = &inner.limits;
    let wanted = |file: FileId| match missed {
        Missed::Of(shown) => shown.has(file),
        Missed::Everything | Missed::Unknown | Missed::OfAll => true,
    };
    let (keys_max, records_max) = (limits.tail_keys_max, limits.tail_records_max);
    let touched = view.touched_after(seen, keys_max, records_max, wanted)?;
    let Some(touched) = touched else { return Ok((Tail::TooFar(at), at)) };
    let states = states(&view, &touched, at)?;
    if super::weigh(&states) > STATES_BYTES_MAX {
        return Ok((Tail::TooFar(at), at));
    }
    Ok((Tail::Changes(Notice { upto: at, states, ..Notice::default() }), at))
}

/// What a client has cached, if a tail is of any use to it.
fn files_in(tail: &Tail) -> Vec<FileId> {
    let Tail::Changes(Notice { states: States { nodes, entries }, .. }) = tail else {
        return Vec::new();
    };
    let nodes = nodes.iter().map(|state| state.file);
    nodes.chain(entries.iter().map(|state| state.directory)).collect()
}

/// The client has gone: after a restart nobody waits for its lease to end.
pub(crate) fn leave(inner: &Inner, volume: &Volume, replica: ReplicaId) -> Result<()> {
    let mut write = inner.tables.write()?;
    catalog::remove_lease(&mut *write, volume.id, replica)?;
    Ok(write.commit(Durability::Now)?)
}
