//! Earlier states of a volume: snapshots, the versions of a file, and bringing one back.
//! Holds: what changes something is committed before it is answered, and told as any update is.
//! From: DESIGN, "Updates": the origin can answer as of any position that is still needed.

mod conflicts;
mod history;
mod restore;
mod rights;
mod since;
mod snapshots;

use crate::answer::states;
use crate::callbacks::{Showing, Touch, Wait};
use crate::error::Result;
use crate::origin::{Inner, Origin};
use crate::take::{ended, settle_missed, tell_missed};
use crate::volumes::{Volume, locked};
use model::{ReplicaId, Seq};
use protocol::Refusal;
use protocol::past::{By, Found, Past, Restore};
use std::sync::Arc;
use store::Durability;
use volume::whole::{Committer, Touched, VolumeId};

/// For the log.
const DOING: &str = "look back";

/// Whom an answer waits for, and what they are told up to.
pub(crate) type Told = (Vec<Wait>, Seq);

/// Whether it is more than looking.
pub(crate) fn changes(past: &Past) -> bool {
    match past {
        Past::Snapshots
        | Past::History { .. }
        | Past::Conflicts { .. }
        | Past::Settled { .. }
        | Past::Base { .. } => false,
        Past::Snapshot { .. }
        | Past::Forget { .. }
        | Past::Restore(_)
        | Past::Settle { .. }
        | Past::Claim(_)
        | Past::Reopen { .. } => true,
    }
}

/// `device`: the name of the one that asks; none at the origin itself.
pub(crate) async fn answer(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    past: Past,
    device: Option<String>,
) -> Result<(Found, Option<Told>), Refusal> {
    if let Past::Restore(asked) = past {
        return restore(inner, volume, asked).await;
    }
    let (for_inner, for_volume) = (inner.clone(), volume.clone());
    let work = move || {
        let answered = answer_at_once(&for_inner, &for_volume, &past, device);
        answered.map_err(|error| for_inner.refuse(&error, &for_volume, DOING))
    };
    inner.limits.blocking.run(work).await?
}

fn answer_at_once(
    inner: &Inner,
    volume: &Volume,
    past: &Past,
    device: Option<String>,
) -> Result<(Found, Option<Told>)> {
    match past {
        Past::Snapshots => Ok((snapshots::list(inner, volume)?, None)),
        Past::Snapshot { name, uid, token } => {
            snapshots::make(inner, volume, name, (device, *uid), *token)
        }
        Past::Forget { name, .. } => snapshots::forget(inner, volume, name),
        Past::History { path, before, versions_max, by } => {
            let by = by.as_ref();
            Ok((history::history(inner, volume, (path, by), *before, *versions_max)?, None))
        }
        Past::Conflicts { after, conflicts_max, by } => {
            Ok((conflicts::list(inner, volume, *after, *conflicts_max, by.as_ref())?, None))
        }
        Past::Settle { number, token, by } => {
            let asked = (*number, by.as_ref());
            Ok((conflicts::settle(inner, volume, asked, *token, device)?, None))
        }
        Past::Claim(claim) => Ok((conflicts::claim(inner, volume, claim, device)?, None)),
        Past::Settled { after, conflicts_max, by } => {
            Ok((conflicts::settled(inner, volume, *after, *conflicts_max, by.as_ref())?, None))
        }
        Past::Reopen { number, by } => {
            Ok((conflicts::reopen(inner, volume, *number, by.as_ref())?, None))
        }
        Past::Base { number, offset, uid, gid, groups } => {
            let by = By { uid: *uid, gid: *gid, groups: groups.clone() };
            Ok((conflicts::base(inner, volume, *number, *offset, &by)?, None))
        }
        Past::Restore(_) => unreachable!("it is answered a piece at a time, by `restore`"),
    }
}

/// Nothing is tidied meanwhile: what the later pieces go by is still there.
async fn restore(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    asked: Restore,
) -> Result<(Found, Option<Told>), Refusal> {
    let _alone = inner.upkeep.alone().await;
    let (for_inner, for_volume) = (inner.clone(), volume.clone());
    let begin = move || {
        let begun = restore::begin(&for_inner, &for_volume, &asked);
        begun.map_err(|error| for_inner.refuse(&error, &for_volume, DOING))
    };
    let mut restoring = match inner.limits.blocking.run(begin).await?? {
        Ok(restoring) => restoring,
        Err(why) => return Ok((Found::Not(why), None)),
    };
    let mut waits: Option<Told> = None;
    loop {
        let (for_inner, for_volume) = (inner.clone(), volume.clone());
        let turn = move || {
            let turned = restoring.turn(&for_inner, &for_volume);
            (restoring, turned.map_err(|error| for_inner.refuse(&error, &for_volume, DOING)))
        };
        let (back, turned) = inner.limits.blocking.run(turn).await?;
        restoring = back;
        let (more, told) = turned?;
        // Whoever has taken in the last notice has taken in those before.
        waits = told.or(waits);
        match more {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => return Ok((Found::Restored(restoring.done()), waits)),
            Err(why) => return Ok((Found::Not(why), waits)),
        }
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
        let volume = volume.ok_or(crate::ReplicaError::NoVolume(row.name))?;
        let answered = answer(&self.0, &volume, past, None).await;
        answered.map(|(found, _)| found).map_err(crate::ReplicaError::Refused)
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
    let done = commit_now(inner, volume, work);
    ended(inner, volume, done)
}

fn commit_now(
    inner: &Inner,
    volume: &Volume,
    work: impl FnOnce(&mut Committer<'_>) -> Result<(Found, Touched)>,
) -> Result<(Found, Option<Told>)> {
    let mut write = inner.tables.write()?;
    let mut committer = Committer::begin(&mut *write, volume.id)?;
    tell_missed(inner, volume, (&committer.view(), committer.position()));
    let (found, touched) = work(&mut committer)?;
    if touched.is_empty() {
        drop(write);
        settle_missed(inner, volume)?;
        let again = matches!(found, Found::Snapshot(_));
        let told = again.then(|| told_before(inner, volume));
        return Ok((found, told));
    }
    let showing = Showing::of(states(&committer.view(), &touched, committer.position())?);
    let upto = committer.finish()?;
    write.commit(Durability::Now)?;
    volume.unsettled.over();
    let touch = Touch { by: ReplicaId::ORIGIN, strict: true, keys: &touched, lines: &[] };
    let now = inner.world.clock.moment();
    let waits = volume.holders().publish(&[touch], &showing, upto, now);
    volume.door.wake();
    Ok((found, Some((waits.into_iter().flatten().collect(), upto))))
}

/// Of what was committed before: whoever was answered in vain then has waited for nobody.
fn told_before(inner: &Inner, volume: &Volume) -> Told {
    let now = inner.world.clock.moment();
    let mut holders = volume.holders();
    let upto = holders.published();
    (holders.latecomers(ReplicaId::ORIGIN, upto, now), upto)
}
