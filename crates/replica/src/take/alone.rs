//! Takes the updates of a writer that is no client: what programs changed in a tree.
//! Holds: what the tree and the volume agree on is written in the transaction of the updates.

use super::batch::{Batch, take};
use super::group::{publish, show};
use super::missed::{ended, tell_missed};
use super::records::Prepared;
use super::redirect::Redirects;
use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{Change, Seq};
use protocol::Verdict;
use store::Durability;
use volume::whole::Committer;

/// `seen`: what the writer knew of when it made the updates. `agree` writes what belongs to them,
/// with the verdicts; it is called when the updates are in the view.
pub(crate) fn take_alone(
    inner: &Inner,
    volume: &Volume,
    batch: &Batch,
    seen: Seq,
    agree: impl FnOnce(&mut Committer<'_>, &[Verdict]) -> Result<()>,
) -> Result<Vec<Verdict>> {
    let _turn = volume.turn();
    let taken = take_now(inner, volume, batch, seen, agree);
    ended(inner, volume, taken)
}

fn take_now(
    inner: &Inner,
    volume: &Volume,
    batch: &Batch,
    seen: Seq,
    agree: impl FnOnce(&mut Committer<'_>, &[Verdict]) -> Result<()>,
) -> Result<Vec<Verdict>> {
    if batch.updates.iter().any(|update| matches!(update.change, Change::Store { .. })) {
        inner.blobs.sync()?;
    }
    let now = inner.world.clock.time();
    let replica = batch.by.place.replica;
    let mut write = inner.tables.write()?;
    let mut committer = Committer::begin(&mut *write, volume.id)?;
    tell_missed(inner, volume, (&committer.view(), committer.position()));
    let writer = committer.view().writer(replica)?;
    let mut writer = writer.ok_or_else(|| ReplicaError::NoVolume(volume.name.clone()))?;
    if let Some(last) = batch.updates.last() {
        writer.attached(last.stamp.number, seen);
        committer.put_writer(replica, &writer)?;
    }
    let redirects = Redirects::of(committer.read(), volume.id)?;
    // It is in the tree already, so no quota is asked.
    let prepared = Prepared::default();
    let taken = take(&mut committer, (batch, &prepared), redirects, now, None)?
        .map_err(|_| ReplicaError::NoVolume(volume.name.clone()))?;
    let verdicts = taken.verdicts.clone();
    agree(&mut committer, &verdicts)?;
    let outcomes = vec![Ok(taken)];
    let showing = show((&committer.view(), committer.position()), &outcomes)?;
    let upto = committer.finish()?;
    write.commit(Durability::Now)?;
    volume.unsettled.over();
    let batches = (std::slice::from_ref(batch), &[Vec::new()][..]);
    publish(inner, volume, batches, outcomes, &showing, upto);
    Ok(verdicts)
}
