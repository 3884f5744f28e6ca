//! What the disk knows of leases, for whoever opens the store after this life of the origin.
//! Holds: a client that counts on a lease has a row by which a later life waits for it; a row
//! that cannot be written because the disk is full does not keep anybody from reading. Whose lease
//! has ended soon has no row, so that a later life waits for nobody who is not there.

use crate::callbacks::Place;
use crate::catalog::{self, LeaseRow};
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{ReplicaId, Time};
use store::{Durability, Write};
use tracing::debug;

/// A lease is written down for so much longer, so that renewals seldom write.
const AHEAD_SECS: u64 = 60 * 60;

/// A lease begins now: notes it where what is written does not reach so far. On a full disk it
/// begins all the same, as long as a later life would wait for it by the row that there is.
pub(super) fn note_lease(inner: &Inner, volume: &Volume, replica: ReplicaId) -> Result<()> {
    let end = end_of_lease(inner);
    let written = catalog::lease(&*inner.tables.read()?, volume.id, replica)?;
    if written.as_ref().is_some_and(|row| row.until >= end) {
        return Ok(());
    }
    match write_lease(inner, volume, replica) {
        Err(error) if error.is_full() && written.is_some() => {
            debug!(volume = volume.name, %replica, "a lease goes on unwritten: the disk is full");
            Ok(())
        }
        outcome => outcome,
    }
}

fn write_lease(inner: &Inner, volume: &Volume, replica: ReplicaId) -> Result<()> {
    let mut write = inner.tables.write()?;
    put_lease(inner, volume, &mut *write, replica)?;
    Ok(write.commit(Durability::Now)?)
}

/// Prolongs what is written of the lease of a session, if need be.
pub(super) fn note_renewal(inner: &Inner, volume: &Volume, place: &Place) -> Result<()> {
    let until = inner.world.clock.moment() + inner.limits.lease;
    if !volume.holders().promise_lease(place, until) {
        return inner.reserved.used(|| note_lease(inner, volume, place.replica));
    }
    // A transaction comes after the one in which it was struck off; a reading might not.
    inner.reserved.used(|| write_lease(inner, volume, place.replica))?;
    volume.holders().lease_is_written(place);
    Ok(())
}

/// Removes what is written of leases that have ended.
pub(crate) fn strike_off(inner: &Inner, volume: &Volume) -> Result<()> {
    let now = inner.world.clock.moment();
    let unknown_ended = volume.grace.is_over(now);
    let written = catalog::leases(&*inner.tables.read()?, volume.id)?;
    let is_over = |replica| volume.holders().may_be_struck_off(replica, unknown_ended, now);
    if !written.iter().any(|row| is_over(row.replica)) {
        return Ok(());
    }
    let mut write = inner.tables.write()?;
    let written = catalog::leases(&*write, volume.id)?;
    let now = inner.world.clock.moment();
    // Within the transaction: who attaches comes before it and is known, or after it and is written.
    let written = written.into_iter().map(|row| row.replica);
    for replica in volume.holders().strike_off(written, unknown_ended, now) {
        catalog::remove_lease(&mut *write, volume.id, replica)?;
    }
    Ok(write.commit(Durability::Now)?)
}

/// Writes down that the client may hold callbacks from now on.
pub(super) fn put_lease(
    inner: &Inner,
    volume: &Volume,
    write: &mut dyn Write,
    replica: ReplicaId,
) -> Result<()> {
    let until = catalog::later(end_of_lease(inner), AHEAD_SECS);
    catalog::put_lease(write, volume.id, &LeaseRow { replica, until })
}

/// When a lease ends that begins now, to the second above.
fn end_of_lease(inner: &Inner) -> Time {
    catalog::later(inner.world.clock.time(), inner.limits.lease.as_secs() + 1)
}
