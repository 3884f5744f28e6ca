//! What the disk knows of leases, for whoever opens the store after this life of the origin.
//! Holds: a client that counts on a lease has a row by which a later life waits for it; a row
//! that cannot be written because the disk is full does not keep anybody from reading.

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
        Err(error) if error.is_full() && written.is_some_and(|row| row.may_hold_at(end)) => {
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
