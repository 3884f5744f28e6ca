//! Tells of what was committed and not told of: by a commit that said that it failed, and is there all
//! the same.
//! Holds: before a transaction adds to a volume, everybody concerned was told of all that is in it, or
//! is behind and knows no later position; what is not there is told to nobody. That such a commit is
//! there says nothing of the disk: only one that succeeds after it does.
//!
//! ```text
//!   commit --fails--> looked at --nothing is there--> as before
//!               ^       |   '--it is there--> an empty one --succeeds--> told, as before
//!               |       |                          '--fails--> told, unsynced --another succeeds--> as before
//!               |  cannot be read
//!               |       v
//!               '----- unseen --another succeeds--> told, as before
//! ```

use crate::answer::states;
use crate::callbacks::{Showing, Touch};
use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{ReplicaId, Seq};
use std::sync::atomic::{AtomicBool, Ordering};
use store::Durability;
use tracing::{debug, warn};
use volume::whole::{Error, Touched, Whole};

/// What is not known of commits that failed.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Whether they are there: it could not be looked at.
    unseen: AtomicBool,
    /// One is there, and may not be on the disk.
    unsynced: AtomicBool,
}

impl Unsettled {
    pub fn is_any(&self) -> bool {
        self.unseen.load(Ordering::Acquire) || self.unsynced.load(Ordering::Acquire)
    }

    /// A commit has succeeded, in the same turn in which what is there was told of.
    pub fn over(&self) {
        self.unseen.store(false, Ordering::Release);
        self.unsynced.store(false, Ordering::Release);
    }
}

/// What became of a transaction, in its turn: if it failed, what is there of it is told of.
pub(crate) fn ended<T>(inner: &Inner, volume: &Volume, done: Result<T>) -> Result<T> {
    done.inspect_err(|_| look(inner, volume))
}

/// Within a turn: makes sure that what is there is on the disk, with a commit that brings nothing. What
/// is answered without one of its own goes by it.
pub(crate) fn settle(inner: &Inner, volume: &Volume) -> Result<()> {
    if !volume.unsettled.is_any() {
        return Ok(());
    }
    let write = inner.tables.write()?;
    let view = Whole::now(&*write, volume.id);
    let position = view.position()?;
    tell_missed(inner, volume, (&view, position));
    write.commit(Durability::Now)?;
    volume.unsettled.over();
    Ok(())
}

/// What could not be seen when a commit failed is looked at once more.
pub(crate) fn look_again(inner: &Inner, volume: &Volume) -> Result<()> {
    if volume.unsettled.unseen.load(Ordering::Acquire) {
        let _turn = volume.turn();
        look(inner, volume);
    }
    Ok(())
}

fn look(inner: &Inner, volume: &Volume) {
    let seen = match seen(inner, volume) {
        // It was removed with a batch on its way: there is nothing, and nobody to be told.
        Err(ReplicaError::Tree(Error::NoVolume)) => Ok(()),
        seen => seen,
    };
    let was_unseen = volume.unsettled.unseen.swap(seen.is_err(), Ordering::AcqRel);
    if let Some(error) = seen.err().filter(|_| !was_unseen) {
        let volume = &volume.name;
        warn!(volume, %error, "whether a commit that failed is there cannot be seen yet");
    }
}

fn seen(inner: &Inner, volume: &Volume) -> Result<()> {
    let there = Whole::now(&*inner.tables.read()?, volume.id).position()?;
    let is_news = there > volume.holders().published();
    // What others are told of is on the disk, if it can be; if not, they are told all the same, as
    // they would be shown it.
    let synced = is_news && commit_nothing(inner, volume).is_ok();
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let position = view.position()?;
    tell_missed(inner, volume, (&view, position));
    if synced {
        volume.unsettled.over();
    }
    Ok(())
}

fn commit_nothing(inner: &Inner, volume: &Volume) -> Result<()> {
    let committed = inner.tables.write().and_then(|write| write.commit(Durability::Now));
    Ok(committed.inspect_err(|error| {
        let volume = &volume.name;
        debug!(volume, %error, "a commit that failed is there, and may not be on the disk");
    })?)
}

/// Within a turn: tells of what the view has, up to its position, and nobody was told of.
pub(crate) fn tell_missed(inner: &Inner, volume: &Volume, (view, position): (&Whole<'_>, Seq)) {
    let published = volume.holders().published();
    if position <= published {
        return;
    }
    volume.unsettled.unsynced.store(true, Ordering::Release);
    let now = inner.world.clock.moment();
    match missed(inner, (view, position), published) {
        Ok(Some((keys, showing))) => {
            // Its writers, too: they were told that it failed.
            let touch = Touch { by: ReplicaId::ORIGIN, strict: false, keys: &keys, lines: &[] };
            volume.holders().publish(&[touch], &showing, position, now);
        }
        Ok(None) => volume.holders().fall_behind(position),
        Err(error) => {
            warn!(volume = volume.name, %error, "what a failed commit has changed cannot be read");
            volume.holders().fall_behind(position);
        }
    }
    inner.noticed.stored();
    volume.door.wake();
    let updates = position.0 - published.0;
    warn!(volume = volume.name, updates, "a commit that failed is there all the same, and told of");
}

/// None: it is too much, and comes with the next tail of each.
fn missed(
    inner: &Inner,
    (view, position): (&Whole<'_>, Seq),
    after: Seq,
) -> Result<Option<(Touched, Showing)>> {
    let (keys_max, records_max) = (inner.limits.tail_keys_max, inner.limits.tail_records_max);
    let Some(keys) = view.touched_after(after, keys_max, records_max, |_| true)? else {
        return Ok(None);
    };
    let showing = Showing::of(states(view, &keys, position)?);
    Ok(Some((keys, showing)))
}
