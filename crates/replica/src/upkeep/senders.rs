//! What each client is sending: chunks of which it was told, or that it sent, for something that it
//! is about to store.
//! Holds: they stay on a full disk too, where what was only promised does not, for as long as the
//! client is heard of. It ends when they are stored; when a program was told that there is no room;
//! when the client sends something else instead; or `PATIENCE` after it was heard of last.
//! Never: is what keeps a chunk that is about to be named by a version: who takes an update has it
//! in hand. A chunk that is not kept here is missing then, and sent again.

use crate::volumes::locked;
use model::ReplicaId;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use volume::whole::VolumeId;
use world::Moment;

/// A client whose updates have no room asks for some once a minute.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Chunks of all clients together; one beyond is not kept on a full disk.
const CHUNKS_MAX: usize = 4_000_000;

pub(crate) type Who = (VolumeId, ReplicaId);

#[derive(Default)]
pub(super) struct Senders {
    of: BTreeMap<Who, Sender>,
    chunks: Arc<AtomicUsize>,
}

struct Sender {
    sending: Sending,
    heard: Moment,
    /// A program waits for what it sent last, as far as is known, and is told if there is no room.
    waited_for: bool,
}

/// Fingerprints of chunks, and how many bytes of each came from this client.
#[derive(Clone, Debug)]
pub(super) struct Sending(Arc<Chunks>);

#[derive(Debug)]
struct Chunks {
    bytes: Mutex<HashMap<u64, u64>>,
    all: Arc<AtomicUsize>,
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.all.fetch_sub(locked(&self.bytes).len(), Ordering::AcqRel);
    }
}

impl Sending {
    pub fn note(&self, mark: u64) {
        self.add(mark, 0);
    }

    /// So many bytes of it were not here before.
    pub fn add(&self, mark: u64, bytes: u64) {
        let mut chunks = locked(&self.0.bytes);
        if let Some(known) = chunks.get_mut(&mark) {
            *known = bytes.max(*known);
        } else if self.0.all.load(Ordering::Acquire) < CHUNKS_MAX {
            self.0.all.fetch_add(1, Ordering::AcqRel);
            chunks.insert(mark, bytes);
        }
    }

    fn has(&self, mark: u64) -> bool {
        locked(&self.0.bytes).contains_key(&mark)
    }

    /// Bytes that came for what the other one does not count on.
    fn bytes_without(&self, other: &Sending) -> u64 {
        let left = locked(&self.0.bytes);
        let other = locked(&other.0.bytes);
        left.iter().filter(|(mark, _)| !other.contains_key(mark)).map(|(_, bytes)| bytes).sum()
    }

    fn bytes(&self) -> u64 {
        locked(&self.0.bytes).values().sum()
    }

    fn add_all(&self, other: &Sending) {
        let others: Vec<(u64, u64)> =
            locked(&other.0.bytes).iter().map(|(mark, bytes)| (*mark, *bytes)).collect();
        others.into_iter().for_each(|(mark, bytes)| self.add(mark, bytes));
    }

    /// What came of those that are here, too, came for this one.
    fn inherit(&self, before: &Sending) {
        let before = locked(&before.0.bytes);
        for (mark, bytes) in locked(&self.0.bytes).iter_mut() {
            *bytes = before.get(mark).copied().unwrap_or(0).max(*bytes);
        }
    }
}

/// Something that a client submits, with what it counts on.
pub(super) struct Submitted {
    pub sending: Sending,
    pub waited_for: bool,
    /// It does not stand for all that the client is about to store.
    pub besides: bool,
}

impl Senders {
    /// One that nobody sends yet.
    pub fn fresh(&self) -> Sending {
        Sending(Arc::new(Chunks { bytes: Mutex::default(), all: self.chunks.clone() }))
    }

    /// What the client is sending, to which its chunks are added.
    pub fn of(&mut self, who: Who, now: Moment) -> Sending {
        let fresh = self.fresh();
        let new = || Sender { sending: fresh, heard: now, waited_for: true };
        let sender = self.of.entry(who).or_insert_with(new);
        sender.heard = now;
        sender.sending.clone()
    }

    /// Gives the bytes that came for something that is not sent any more.
    #[must_use]
    pub fn submitted(&mut self, who: Who, submitted: Submitted, now: Moment) -> u64 {
        let Submitted { sending, mut waited_for, besides } = submitted;
        let mut left = 0;
        if let Some(before) = self.of.remove(&who) {
            match besides {
                true => {
                    sending.add_all(&before.sending);
                    waited_for = before.waited_for;
                }
                false => {
                    sending.inherit(&before.sending);
                    left = before.sending.bytes_without(&sending);
                }
            }
        }
        self.of.insert(who, Sender { sending, heard: now, waited_for });
        left
    }

    /// All that the client was sending is stored.
    pub fn stored(&mut self, who: Who) {
        self.of.remove(&who);
    }

    /// There was no room. A program that waits is told so, and the client sends no more of it. Gives
    /// the bytes that came.
    #[must_use]
    pub fn refused(&mut self, who: Who, waited_for: Option<bool>, now: Moment) -> u64 {
        let Some(sender) = self.of.get_mut(&who) else { return 0 };
        if !waited_for.unwrap_or(sender.waited_for) {
            sender.heard = now;
            return 0;
        }
        self.of.remove(&who).map_or(0, |sender| sender.sending.bytes())
    }

    pub fn heard(&mut self, who: Who, now: Moment) {
        if let Some(sender) = self.of.get_mut(&who) {
            sender.heard = now;
        }
    }

    /// Gives the bytes that came from clients of which nothing was heard for long.
    #[must_use]
    pub fn forget_silent(&mut self, now: Moment) -> u64 {
        let mut left = 0;
        self.of.retain(|_, sender| {
            let is_heard = now.since(sender.heard) < PATIENCE;
            left += if is_heard { 0 } else { sender.sending.bytes() };
            is_heard
        });
        left
    }

    pub fn forget_all(&mut self) {
        self.of.clear();
    }

    pub fn count_on(&self, mark: u64) -> bool {
        self.of.values().any(|sender| sender.sending.has(mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    const ADA: Who = (VolumeId(1), ReplicaId(7));
    const BOB: Who = (VolumeId(1), ReplicaId(8));

    fn submitted(senders: &Senders, marks: &[u64], waited_for: bool) -> Submitted {
        let sending = senders.fresh();
        marks.iter().for_each(|mark| sending.note(*mark));
        Submitted { sending, waited_for, besides: false }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_program_was_told_has_no_room_counts_no_more_and_what_is_pending_does() {
        let now = Clock::simulated(0).moment();
        let mut senders = Senders::default();
        for (who, mark, waited_for) in [(ADA, 1, true), (BOB, 2, false)] {
            let submit = submitted(&senders, &[mark], waited_for);
            assert_eq!(senders.submitted(who, submit, now), 0);
            senders.of(who, now).add(mark, 10);
        }
        assert!(senders.count_on(1) && senders.count_on(2));
        assert_eq!(senders.refused(ADA, None, now), 10);
        assert_eq!(senders.refused(BOB, None, now), 0);
        assert!(!senders.count_on(1) && senders.count_on(2));
        assert_eq!(senders.refused(BOB, Some(true), now), 10, "a program waits for it by now");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_submitted_instead_lets_go_of_what_came_for_something_else() {
        let now = Clock::simulated(0).moment();
        let mut senders = Senders::default();
        let sending = senders.of(ADA, now);
        [(1, 10), (2, 20)].into_iter().for_each(|(mark, bytes)| sending.add(mark, bytes));
        let next = submitted(&senders, &[2, 3], false);
        assert_eq!(senders.submitted(ADA, next, now), 10);
        assert!(!senders.count_on(1) && senders.count_on(2) && senders.count_on(3));
        let besides = Submitted { besides: true, ..submitted(&senders, &[4], false) };
        assert_eq!(senders.submitted(ADA, besides, now), 0);
        assert_eq!(senders.refused(ADA, None, now), 0, "what waits its turn is pending");
        assert!(senders.count_on(2) && senders.count_on(4));
        let last = submitted(&senders, &[], false);
        assert_eq!(senders.submitted(ADA, last, now), 20, "it is known that they came");
        senders.stored(ADA);
        drop(sending);
        assert_eq!(senders.chunks.load(Ordering::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_heard_of_keeps_what_it_sends_and_who_is_silent_does_not() {
        let clock = Clock::simulated(0);
        let mut senders = Senders::default();
        senders.of(ADA, clock.moment()).add(1, 10);
        senders.of(BOB, clock.moment()).add(2, 20);
        clock.sleep(PATIENCE / 2).await;
        senders.heard(BOB, clock.moment());
        clock.sleep(PATIENCE / 2).await;
        assert_eq!(senders.forget_silent(clock.moment()), 10);
        assert!(!senders.count_on(1) && senders.count_on(2));
    }
}
