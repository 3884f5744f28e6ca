//! Chunks of which somebody was told, or saw for himself, that they are here: an update that
//! counts on it is on its way.
//! Holds: a name is noted before one looks whether its chunk is there, and a chunk is deleted
//! under the same lock; so either the deletion sees the note, or the look sees the deletion.

use super::senders::{Senders, Sending, Submitted, Who};
use crate::volumes::locked;
use model::ChunkName;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::whole::VolumeId;
use world::{Clock, Moment};

/// Names that are noted one by one; beyond, every chunk counts as noted.
const NOTED_MAX: usize = 4_000_000;

/// Notes of some time, and of the time before.
#[derive(Default)]
pub(crate) struct Promises(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    now: Promise,
    before: Promise,
    since: Option<Moment>,
    senders: Senders,
}

/// What was noted since it began. It is kept at least as long as somebody has a clone of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise {
    names: Arc<Mutex<HashSet<u64>>>,
    /// What is noted here is noted as what a client is sending, too.
    sending: Option<Sending>,
}

impl Promises {
    pub fn current(&self) -> Promise {
        locked(&self.0).now.clone()
    }

    /// For what a client sends besides what it has sent already.
    pub fn sending(&self, who: Who, now: Moment) -> Promise {
        let mut notes = locked(&self.0);
        Promise { sending: Some(notes.senders.of(who, now)), ..notes.now.clone() }
    }

    /// For what a client submits. It is among what it sends with `submitted`.
    pub fn submitting(&self) -> Promise {
        let notes = locked(&self.0);
        Promise { sending: Some(notes.senders.fresh()), ..notes.now.clone() }
    }

    /// Gives the bytes that came for something that is not sent any more. `besides`: there is more
    /// that the client is about to store.
    #[must_use]
    pub fn submitted(
        &self,
        who: Who,
        promise: &Promise,
        (waited_for, besides): (bool, bool),
        now: Moment,
    ) -> u64 {
        let Some(sending) = promise.sending.clone() else { return 0 };
        let submitted = Submitted { sending, waited_for, besides };
        locked(&self.0).senders.submitted(who, submitted, now)
    }

    /// What is done to what clients are sending.
    pub(super) fn of_senders<T>(&self, what: impl FnOnce(&mut Senders) -> T) -> T {
        what(&mut locked(&self.0).senders)
    }

    /// Before chunks are looked for that may go: what was noted longer ago than `lasts` and is in
    /// nobody's hands counts no longer.
    pub fn turn_over(&self, clock: &Clock, lasts: Duration) {
        let mut notes = locked(&self.0);
        let now = clock.moment();
        let is_due = notes.since.is_none_or(|since| now.since(since) >= lasts);
        if is_due && Arc::strong_count(&notes.before.names) == 1 {
            notes.before = std::mem::take(&mut notes.now);
            notes.since = Some(now);
        }
    }

    /// What was noted counts no longer, but for what is in somebody's hands: an update that is about
    /// to be taken. Whoever else counts on a chunk is told that it is missing, and sends it again.
    pub fn forget(&self, clock: &Clock) {
        self.of_senders(Senders::forget_all);
        self.forget_but_senders(clock);
    }

    /// The same, and what clients are sending stays.
    pub fn forget_but_senders(&self, clock: &Clock) {
        // What was noted until now, and with the next turn what was noted before.
        for _ in 0..2 {
            self.turn_over(clock, Duration::ZERO);
        }
    }

    /// Does `delete` unless the chunk is promised.
    pub fn unless_promised<E>(
        &self,
        volume: VolumeId,
        chunk: &ChunkName,
        delete: impl FnOnce() -> Result<(), E>,
    ) -> Result<Standing, E> {
        let notes = locked(&self.0);
        let mark = fingerprint(volume, chunk);
        // Held while it is deleted: whoever still has the notes of before may add to them, too.
        let (now, before) = (locked(&notes.now.names), locked(&notes.before.names));
        if is_in(&now, mark) {
            return Ok(Standing::PromisedNow);
        }
        if is_in(&before, mark) || notes.senders.count_on(mark) {
            return Ok(Standing::PromisedBefore);
        }
        delete()?;
        Ok(Standing::Free)
    }

    /// How long promises of each kind count from now on at most, but for those in somebody's hands:
    /// with a `turn_over` when each is due and at most `lag` after.
    pub fn count_for(&self, clock: &Clock, (lasts, lag): (Duration, Duration)) -> Left {
        let now = clock.moment();
        let gone = locked(&self.0).since.map_or(lasts, |since| now.since(since));
        let before = lasts.saturating_sub(gone);
        Left { before, now: before + lag + lasts }
    }
}

/// Whether a chunk may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Free,
    /// It was noted before the notes were last turned over, or a client is sending it.
    PromisedBefore,
    PromisedNow,
}

/// How long promises still count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub before: Duration,
    pub now: Duration,
}

impl Promise {
    /// The chunk is about to be looked for, or stored.
    pub fn note(&self, volume: VolumeId, chunk: &ChunkName) {
        let mark = fingerprint(volume, chunk);
        if let Some(sending) = &self.sending {
            sending.note(mark);
        }
        let mut names = locked(&self.names);
        if names.len() < NOTED_MAX {
            names.insert(mark);
        }
    }

    /// The chunk was not here before, and came from whoever sends.
    pub fn came(&self, volume: VolumeId, chunk: &ChunkName, bytes: u64) {
        if let Some(sending) = &self.sending {
            sending.add(fingerprint(volume, chunk), bytes);
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
        let standing = promises.unless_promised(VOLUME, chunk, || Ok::<(), Infallible>(()));
        standing.unwrap() == Standing::Free
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

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_counts_only_for_whoever_holds_it() {
        let clock = Clock::simulated(0);
        let promises = Promises::default();
        let (told, held) = (ChunkName([1; 24]), ChunkName([2; 24]));
        promises.current().note(VOLUME, &told);
        promises.forget(&clock);
        assert!(goes(&promises, &told));
        let hand = promises.current();
        hand.note(VOLUME, &held);
        promises.forget(&clock);
        promises.forget(&clock);
        assert!(!goes(&promises, &held));
        drop(hand);
        promises.forget(&clock);
        assert!(goes(&promises, &held));
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_is_over_when_it_is_said_to_be() {
        let clock = Clock::simulated(0);
        let promises = Promises::default();
        let (lag, chunk) = (LASTS / 4, ChunkName([1; 24]));
        let left = || promises.count_for(&clock, (LASTS, lag));
        let standing =
            || promises.unless_promised(VOLUME, &chunk, || Ok::<(), Infallible>(())).unwrap();
        promises.turn_over(&clock, LASTS);
        clock.sleep(LASTS / 2).await;
        promises.current().note(VOLUME, &chunk);
        assert_eq!(standing(), Standing::PromisedNow);
        let end = left().now;
        assert_eq!(end, LASTS / 2 + lag + LASTS);
        clock.sleep(LASTS / 2 + lag).await;
        promises.turn_over(&clock, LASTS);
        assert_eq!((standing(), left().before), (Standing::PromisedBefore, LASTS));
        clock.sleep(LASTS).await;
        promises.turn_over(&clock, LASTS);
        assert_eq!(standing(), Standing::Free);
    }
}
