//! Chunks of which somebody was told, or saw for himself, that they are here: an update that
//! counts on it is on its way.
//! Holds: a name is noted before one looks whether its chunk is there, and a chunk is deleted
//! under the same lock; so either the deletion sees the note, or the look sees the deletion.

use crate::volumes::locked;
use model::ChunkName;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::whole::VolumeId;
use world::Clock;

/// Names that are noted one by one; beyond, every chunk counts as noted.
const NOTED_MAX: usize = 4_000_000;

/// Notes of some time, and of the time before.
#[derive(Default)]
pub(crate) struct Promises(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    now: Promise,
    before: Promise,
    since: Option<world::Moment>,
}

/// What was noted since it began. It is kept at least as long as somebody has a clone of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise(Arc<Mutex<HashSet<u64>>>);

impl Promises {
    pub fn current(&self) -> Promise {
        locked(&self.0).now.clone()
    }

    /// Before chunks are looked for that may go: what was noted longer ago than `lasts` and is in
    /// nobody's hands counts no longer.
    pub fn turn_over(&self, clock: &Clock, lasts: Duration) {
        let mut notes = locked(&self.0);
        let now = clock.moment();
        let is_due = notes.since.is_none_or(|since| now.since(since) >= lasts);
        if is_due && Arc::strong_count(&notes.before.0) == 1 {
            notes.before = std::mem::take(&mut notes.now);
            notes.since = Some(now);
        }
    }

    /// Does `delete` unless the chunk is promised; false: it is.
    pub fn unless_promised<E>(
        &self,
        volume: VolumeId,
        chunk: &ChunkName,
        delete: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        let notes = locked(&self.0);
        let mark = fingerprint(volume, chunk);
        if is_in(&locked(&notes.before.0), mark) {
            return Ok(false);
        }
        let now = locked(&notes.now.0);
        if is_in(&now, mark) {
            return Ok(false);
        }
        delete()?;
        drop(now);
        Ok(true)
    }
}

impl Promise {
    /// The chunk is about to be looked for, or stored.
    pub fn note(&self, volume: VolumeId, chunk: &ChunkName) {
        let mut names = locked(&self.0);
        if names.len() < NOTED_MAX {
            names.insert(fingerprint(volume, chunk));
        }
    }
}

fn is_in(names: &HashSet<u64>, mark: u64) -> bool {
    names.len() >= NOTED_MAX || names.contains(&mark)
}

/// Names are hashes already. Two of one fingerprint only keep a chunk longer.
fn fingerprint(volume: VolumeId, chunk: &ChunkName) -> u64 {
    let head = u64::from_be_bytes(std::array::from_fn(|at| chunk.0[at]));
    head ^ (u64::from(volume.0) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const VOLUME: VolumeId = VolumeId(1);
    const LASTS: Duration = Duration::from_secs(60);

    fn goes(promises: &Promises, chunk: &ChunkName) -> bool {
        promises.unless_promised(VOLUME, chunk, || Ok::<(), Infallible>(())).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_lasts_its_time_and_as_long_as_somebody_holds_it() {
        let clock = Clock::simulated(0);
        let promises = Promises::default();
        let (seen, other) = (ChunkName([1; 24]), ChunkName([2; 24]));
        let held = promises.current();
        held.note(VOLUME, &seen);
        assert!(!goes(&promises, &seen) && goes(&promises, &other));
        promises.turn_over(&clock, LASTS);
        promises.turn_over(&clock, LASTS);
        assert!(!goes(&promises, &seen), "its time is not over");
        clock.sleep(LASTS).await;
        promises.turn_over(&clock, LASTS);
        assert!(!goes(&promises, &seen), "somebody holds it");
        drop(held);
        promises.turn_over(&clock, LASTS);
        assert!(goes(&promises, &seen));
    }
}
