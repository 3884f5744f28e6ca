//! Locks: what a client asks of them, claims when it attaches, and leaves behind.
//! Holds: who gets a lock is shown the file as it is after that, so that it sees what whoever held
//! it before had stored when it gave it back.

use super::{inspect, show};
use crate::callbacks::{Holders, Place};
use crate::catalog::DeviceId;
use crate::error::Result;
use crate::locks::{Around, News, Nonsense};
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{FileId, ReplicaId};
use protocol::{Held, LockAim, LockOutcome, Locked, Locking, Refusal, States};
use world::Moment;

/// Answers what a client asks of the locks of a file.
pub(crate) fn lock(
    inner: &Inner,
    volume: &Volume,
    (place, device): (&Place, DeviceId),
    asked: &Locking,
) -> Result<Result<Locked, Refusal>> {
    let decided = {
        let mut holders = volume.holders();
        if holders.at(place).is_none() {
            return Ok(Err(Refusal::NotAttached));
        }
        let now = inner.world.clock.moment();
        let lasts = |who| holders.lasts(who, now);
        let in_grace = !volume.grace.is_over(now);
        let around = Around { now, device, lasts: &lasts, in_grace };
        let decided = volume.book().ask(place.replica, asked, &around);
        decided.map(|(outcome, news)| {
            tell(&mut holders, news);
            outcome
        })
    };
    let outcome = match decided {
        Ok(outcome) => outcome,
        Err(Nonsense) => {
            return Ok(Err(Refusal::Malformed("a lock that ends before it begins".into())));
        }
    };
    let given = matches!(outcome, LockOutcome::Given | LockOutcome::GivenWhole);
    if !given || asked.wished.is_empty() || asked.aim == LockAim::Look {
        return Ok(Ok(Locked { outcome, states: States::default() }));
    }
    let file = asked.held.file;
    let states = show(inner, volume, place, |view, at| inspect(view, at, &[file], &[]))?;
    Ok(states.map(|states| Locked { outcome, states }))
}

/// A client attaches: of what it claims, the files are given of which it cannot hold it.
pub(super) fn claim(
    volume: &Volume,
    (replica, device): (ReplicaId, DeviceId),
    claims: &[Held],
    now: Moment,
) -> Vec<FileId> {
    let mut holders = volume.holders();
    let lasts = |who| holders.lasts(who, now);
    let in_grace = !volume.grace.is_over(now);
    let around = Around { now, device, lasts: &lasts, in_grace };
    let lasted = volume.grace.lasted(replica);
    let (lost, news) = volume.book().attach(replica, claims, lasted, &around);
    tell(&mut holders, news);
    lost
}

/// A client has gone: whoever waits for its locks can have them.
pub(crate) fn let_go_of_locks(volume: &Volume, replica: ReplicaId, now: Moment) {
    let mut holders = volume.holders();
    let news = volume.book().leave(replica, now);
    tell(&mut holders, news);
}

fn tell(holders: &mut Holders, news: News) {
    for (replica, file) in news {
        holders.tell_of_locks(replica, file);
    }
}
