//! Making, listing and removing snapshots.
//! Holds: who asks again after a lost answer is told of the one that was made.

use super::{Told, commit};
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use model::snapshot_name;
use protocol::past::{Found, NotFound, SnapshotInfo};
use volume::whole::{Made, SNAPSHOTS_MAX, Snapshot, Touched, mark_time, snapshots};

pub(super) fn list(inner: &Inner, volume: &Volume) -> Result<Found> {
    let read = inner.tables.read()?;
    Ok(Found::Snapshots(snapshots(&*read, volume.id)?.into_iter().map(info).collect()))
}

pub(super) fn make(
    inner: &Inner,
    volume: &Volume,
    name: &str,
    (device, uid): (Option<String>, u32),
    token: u64,
) -> Result<(Found, Option<Told>)> {
    let checked = match snapshot_name(name) {
        Ok(name) => name,
        Err(why) => return Ok((Found::Not(NotFound::bad_name(name, why)), None)),
    };
    let at = inner.world.clock.time();
    commit(inner, volume, |committer| {
        let not = |not| Ok((Found::Not(not), Touched::default()));
        let there = snapshots(committer.read(), volume.id)?;
        if let Some(same) = there.iter().find(|snapshot| snapshot.name == checked) {
            return match same.token == token && same.device == device {
                true => Ok((Found::Snapshot(info(same.clone())), Touched::default())),
                false => not(NotFound::Exists(name.to_owned())),
            };
        }
        if there.len() >= inner.limits.snapshots_max.min(SNAPSHOTS_MAX) {
            return not(NotFound::TooMany(there.len() as u64));
        }
        let (snapshot, made) = committer.add_snapshot(checked, at, (device, uid), token)?;
        if !inner.clock_leapt() {
            mark_time(committer.write(), volume.id, at)?;
        }
        Ok((Found::Snapshot(info(snapshot)), touched(made)))
    })
}

pub(super) fn forget(inner: &Inner, volume: &Volume, name: &str) -> Result<(Found, Option<Told>)> {
    let at = inner.world.clock.time();
    commit(inner, volume, |committer| {
        let named = |snapshot: &Snapshot| snapshot.name.as_bytes() == name.as_bytes();
        let found = snapshots(committer.read(), volume.id)?.into_iter().find(named);
        let Some(snapshot) = found else {
            return Ok((Found::Not(NotFound::NoSnapshot(name.to_owned())), Touched::default()));
        };
        let made = committer.remove_snapshot(&snapshot, at)?;
        Ok((Found::Snapshot(info(snapshot)), touched(made)))
    })
}

fn touched(made: Made) -> Touched {
    Touched { nodes: made.nodes.into_iter().collect(), entries: made.entries.into_iter().collect() }
}

fn info(snapshot: Snapshot) -> SnapshotInfo {
    let Snapshot { number, name, position, at, device, uid, .. } = snapshot;
    SnapshotInfo { number, name, position, at, device, uid }
}
