//! Earlier states of a volume: snapshots, the versions of a file, and bringing one back.
//! Holds: what changes something is committed before it is answered, and told as any update is.
//! From: DESIGN, "Updates": the origin can answer as of any position that is still needed.

mod snapshots;

use crate::answer::states;
use crate::callbacks::{Showing, Touch, Wait};
use crate::error::Result;
use crate::origin::{Inner, Origin};
use crate::volumes::{Volume, locked};
use model::{ReplicaId, Seq};
use protocol::Refusal;
use protocol::past::{Found, NotFound, Past};
use std::sync::Arc;
use store::Durability;
use volume::whole::{Committer, Touched, VolumeId};

/// Whom an answer waits for, and what they are told up to.
pub(crate) type Told = (Vec<Wait>, Seq);

/// Whether it is more than looking.
pub(crate) fn changes(past: &Past) -> bool {
    match past {
        Past::Snapshots | Past::History { .. } => false,
        Past::Snapshot { .. } | Past::Forget { .. } | Past::Restore(_) => true,
    }
}

/// `device`: the name of the one that asks; none at the origin itself.
pub(crate) async fn answer(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    past: Past,
    device: Option<String>,
) -> Result<(Found, Option<Told>), Refusal> {
    let (for_inner, for_volume) = (inner.clone(), volume.clone());
    let work = move || {
        let answered = answer_at_once(&for_inner, &for_volume, past, device);
        answered.map_err(|error| error.refuse(&for_volume.name, "look back"))
    };
    inner.limits.blocking.run(work).await?
}

fn answer_at_once(
    inner: &Inner,
    volume: &Volume,
    past: Past,
    device: Option<String>,
) -> Result<(Found, Option<Told>)> {
    match past {
        Past::Snapshots => Ok((snapshots::list(inner, volume)?, None)),
        Past::Snapshot { name, uid, token } => {
            snapshots::make(inner, volume, &name, (device, uid), token)
        }
        Past::Forget { name, .. } => snapshots::forget(inner, volume, &name),
        Past::History { .. } | Past::Restore(_) => Ok((Found::Not(NotFound::TooEarly), None)),
    }
}

impl Origin {
    /// The same for whoever is at the origin itself.
    pub async fn look_back(&self, volume: &str, past: Past) -> Result<Found> {
        let row = {
            let read = self.0.tables.read()?;
            self.0.row(&*read, volume)?
        };
        let volume = locked(&self.0.volumes).get(&VolumeId(row.id)).cloned();
        let volume = volume.ok_or_else(|| crate::ReplicaError::NoVolume(row.name))?;
        let inner = self.0.clone();
        let work = move || answer_at_once(&inner, &volume, past, None);
        match self.0.limits.blocking.run(work).await {
            Ok(answered) => Ok(answered?.0),
            Err(_) => Err(crate::ReplicaError::GoingDown),
        }
    }
}

/// A transaction of the origin's own, told to everybody when it is on the disk. `work` says what it
/// has touched, or why nothing is to be done.
fn commit(
    inner: &Inner,
    volume: &Volume,
    work: impl FnOnce(&mut Committer<'_>) -> Result<(Found, Touched)>,
) -> Result<(Found, Option<Told>)> {
    let _turn = volume.turn();
    let mut write = inner.tables.write()?;
    let mut committer = Committer::begin(&mut *write, volume.id)?;
    let (found, touched) = work(&mut committer)?;
    if touched.is_empty() {
        return Ok((found, None));
    }
    let showing = Showing::of(states(&committer.view(), &touched, committer.position())?);
    let upto = committer.finish()?;
    write.commit(Durability::Now)?;
    let touch = Touch { by: ReplicaId::ORIGIN, strict: true, keys: &touched };
    let now = inner.world.clock.moment();
    let waits = volume.holders().publish(&[touch], &showing, upto, now);
    volume.door.wake();
    Ok((found, Some((waits.into_iter().flatten().collect(), upto))))
}
