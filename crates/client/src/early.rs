//! Large files are sent while a program writes them, where the link is fast: by the time they are
//! closed most of them is at the replica above, as chunks that nothing names yet.
//! Holds: what is sent is chunks and nothing else, so a crash, a cut link, or a file that is removed
//! again costs what was sent; where that would take the link longer than a moment, nothing is sent.
//! From: LBFS, "Update protocol": TMPWRITE of chunks before COMMITTMP; the trash keeps them.

mod send;

use crate::portions::carried;
use crate::ranks::{self, Rank, Ranked};
use chunks::{Growing, Secret};
use model::{ChunkName, FileId};
use protocol::{Cutter, HOUSE, LinkQuality, PAYLOAD_BYTES_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use world::Moment;

/// Smaller files are sent when they are closed: that takes a fast link no time.
const FILE_BYTES_MIN: u64 = 4 << 20;
const MESSAGE_BYTES: u64 = PAYLOAD_BYTES_MAX as u64;
/// What may have been sent for nothing takes the link so long.
const LOSS_FOR: Duration = Duration::from_secs(1);
/// From so many bytes a second on, a link brings what a program writes about as it is written. What
/// is slower is not given more of a file than it carries in `LOSS_FOR`.
const FAST_RATE: u64 = 32 << 20;
/// Before so many bytes have gone over a link, what it was seen to carry is what there was to send.
const TELLING_BYTES: u64 = 8 << 20;
/// Of one file, before it is closed. The disk of the replica above has to have room for it.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// If one in so many chunks of a message was there before, the rest of the file is asked about.
const KNOWN_ONE_IN: u64 = 4;
/// Half of what was sent for nothing is forgotten in this time.
const LOSS_HALVES_IN: Duration = Duration::from_secs(300);

/// So many bytes of a file are cut at once. A file is sent if it has `least`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    pub least: u64,
    pub step: u64,
}

impl Steps {
    /// `bytes_min`: what the settings say.
    pub fn of(bytes_min: Option<u64>) -> Steps {
        let least = bytes_min.unwrap_or(FILE_BYTES_MIN).max(1);
        Steps { least, step: least.min(PAYLOAD_BYTES_MAX as u64) }
    }
}

/// How many bytes of a file may be sent before it is closed, over a link as it was measured, where
/// `lost` bytes were lately sent for nothing.
pub(crate) fn most_early(link: &LinkQuality, lost: u64) -> u64 {
    let measured = carried(link.rate_up.unwrap_or(0), LOSS_FOR);
    // Little may have gone over a link within a house: it is measured with one message.
    let is_near = link.round_trip_min.is_some_and(|trip| trip <= HOUSE);
    let moment = measured.max(if is_near { MESSAGE_BYTES } else { 0 });
    // A message goes out whole.
    if moment < MESSAGE_BYTES || lost >= moment {
        return 0;
    }
    match link.rate_up {
        Some(rate) if rate >= FAST_RATE => FILE_BYTES_MAX,
        _ => moment,
    }
}

/// Whether a link brings what a program writes about as it is written. One within a house is taken
/// to, until so much has gone over it that its rate says something of the link.
pub(crate) fn is_fast(link: &LinkQuality) -> bool {
    let at_least = |rate: u64| rate >= FAST_RATE;
    let is_near = link.round_trip_min.is_some_and(|trip| trip <= HOUSE);
    let is_new = link.counts.wire_bytes < TELLING_BYTES;
    let carries = link.rate_up.is_some_and(at_least) || (is_near && is_new);
    carries && link.limit_up.is_none_or(at_least)
}

/// The work on one file, which may go on for a moment after it was closed.
pub(crate) struct Work {
    pub secret: Secret,
    /// None: the file was stored, or has to be cut anew.
    growing: Mutex<Option<Growing>>,
    sent: Mutex<Sent>,
    landed: Notify,
    losses: Arc<Losses>,
}

#[derive(Default)]
struct Sent {
    /// Chunks that have arrived, and their lengths.
    arrived: BTreeMap<ChunkName, u32>,
    /// Chunks that were cut to be sent, and are not known to have arrived.
    on_the_way: BTreeSet<ChunkName>,
    /// Messages with these.
    under_way: usize,
    bytes: u64,
    /// No more of this file before it is closed.
    stopped: bool,
    /// Bytes of what was sent that the file has.
    used: u64,
}

impl Sent {
    /// These have arrived, and so many of them need not have been sent. Where many were there the
    /// rest of the file may be, too, and it is better to ask.
    fn land(&mut self, names: Vec<(ChunkName, u32)>, known: u32) {
        self.stopped |= u64::from(known) * KNOWN_ONE_IN >= names.len() as u64;
        self.arrived.extend(names);
    }

    /// Whether a chunk is to be sent, which it is not twice.
    fn takes(&mut self, name: &ChunkName) -> bool {
        !self.arrived.contains_key(name) && self.on_the_way.insert(*name)
    }
}

impl Work {
    pub fn new(secret: &Secret, cutter: Cutter, losses: Arc<Losses>) -> Work {
        let growing = Mutex::new(Some(Growing::new(secret, cutter)));
        let (sent, landed) = (Mutex::default(), Notify::new());
        Work { secret: secret.clone(), growing, sent, landed, losses }
    }

    #[cfg(test)]
    pub fn idle() -> Work {
        Work::new(&Secret::new([0; 32]), Cutter::Gear, Arc::default())
    }

    fn sent(&self) -> Ranked<'_, Sent> {
        ranks::lock(Rank::Sent, &self.sent)
    }

    fn growing(&self) -> Ranked<'_, Option<Growing>> {
        ranks::lock(Rank::Growing, &self.growing)
    }

    /// What was cut so far, for whoever stores the file; waits for a step that is being taken.
    pub fn close(&self) -> Option<Growing> {
        self.growing().take()
    }

    /// Whether anything of it has left, or is about to.
    pub fn has_sent(&self) -> bool {
        let sent = self.sent();
        sent.bytes > 0 || sent.under_way > 0
    }

    /// Some of it was new above, and nothing speaks against sending more.
    pub fn goes_well(&self) -> bool {
        let sent = self.sent();
        !sent.stopped && !sent.arrived.is_empty()
    }

    /// Whether a chunk has arrived, or is on its way.
    pub fn has_seen_off(&self, name: &ChunkName) -> bool {
        let sent = self.sent();
        sent.arrived.contains_key(name) || sent.on_the_way.contains(name)
    }

    /// Until something of it has arrived, or nothing is under way.
    pub async fn shows(&self) {
        self.until(|sent| sent.under_way == 0 || !sent.arrived.is_empty()).await;
    }

    /// Until nothing is under way.
    pub async fn has_landed(&self) {
        self.until(|sent| sent.under_way == 0).await;
    }

    async fn until(&self, fits: impl Fn(&Sent) -> bool) {
        loop {
            let landed = self.landed.notified();
            tokio::pin!(landed);
            landed.as_mut().enable();
            if fits(&self.sent()) {
                return;
            }
            landed.await;
        }
    }

    /// What has arrived, once nothing is under way.
    pub fn arrived(&self) -> Option<Vec<ChunkName>> {
        let sent = self.sent();
        (sent.under_way == 0).then(|| sent.arrived.keys().copied().collect())
    }

    /// The file was stored, and has chunks for which `has` says so.
    pub fn used(&self, has: impl Fn(&ChunkName) -> bool) {
        let mut sent = self.sent();
        let used = sent.arrived.iter().filter(|(name, _)| has(name));
        sent.used = used.map(|(_, length)| u64::from(*length)).sum();
    }
}

impl Drop for Work {
    /// Nobody needs it any more: what the file does not have was sent for nothing.
    fn drop(&mut self) {
        let (bytes, used) = {
            let sent = self.sent();
            (sent.bytes, sent.used)
        };
        self.losses.0.fetch_add(bytes.saturating_sub(used), Ordering::Relaxed);
    }
}

/// Bytes that were sent for nothing.
#[derive(Debug, Default)]
pub(crate) struct Losses(AtomicU64);

/// Files whose turn it is to be cut and sent.
#[derive(Default)]
pub(crate) struct Early {
    queue: VecDeque<(FileId, u32)>,
    pub losses: Arc<Losses>,
    halved_at: Option<Moment>,
}

impl Early {
    pub fn push(&mut self, file: FileId, generation: u32) {
        self.queue.push_back((file, generation));
    }

    /// What was lost lately.
    fn lost(&mut self, now: Moment) -> u64 {
        let since = *self.halved_at.get_or_insert(now);
        let lost = self.losses.0.load(Ordering::Relaxed);
        if now.since(since) < LOSS_HALVES_IN {
            return lost;
        }
        self.halved_at = Some(now);
        self.losses.0.fetch_sub(lost - lost / 2, Ordering::Relaxed);
        lost / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocol::LinkCounts;
    use world::World;

    fn most(rate_up: Option<u64>, lost: u64) -> u64 {
        at(rate_up, Duration::from_millis(20), lost)
    }

    fn at(rate_up: Option<u64>, trip: Duration, lost: u64) -> u64 {
        let round_trip_min = Some(trip);
        most_early(&LinkQuality { rate_up, round_trip_min, ..LinkQuality::default() }, lost)
    }

    #[test]
    fn a_near_link_over_which_little_went_is_measured_with_a_message() {
        let near = |lost| at(Some(400_000), HOUSE, lost);
        assert_eq!((near(0), near(MESSAGE_BYTES)), (MESSAGE_BYTES, 0));
        assert_eq!(at(Some(400_000), HOUSE * 2, 0), 0);
        assert_eq!(at(None, HOUSE, 0), MESSAGE_BYTES);
    }

    #[test]
    fn over_a_slow_or_unknown_link_nothing_is_sent_before_the_close() {
        for rate in [None, Some(0), Some(1_200), Some(43_500), Some(1_000_000)] {
            assert_eq!(most(rate, 0), 0, "{rate:?}");
        }
    }

    #[test]
    fn a_link_within_a_house_is_fast_until_it_was_measured_and_another_when_it_was() {
        let link = |rate_up, trip_ms, wire_bytes| LinkQuality {
            rate_up,
            round_trip_min: Some(Duration::from_millis(trip_ms)),
            counts: LinkCounts { wire_bytes, ..LinkCounts::default() },
            ..LinkQuality::default()
        };
        assert!(is_fast(&link(None, 1, 0)) && is_fast(&link(Some(600_000), 1, 20_000)));
        assert!(!is_fast(&link(Some(600_000), 1, TELLING_BYTES)));
        assert!(!is_fast(&link(None, 20, 0)) && is_fast(&link(Some(FAST_RATE), 20, 0)));
        let limited = LinkQuality { limit_up: Some(1 << 20), ..link(None, 1, 0) };
        assert!(!is_fast(&limited));
    }

    #[test]
    fn a_fast_link_is_given_what_is_written() {
        assert_eq!(most(Some(118_000_000), 0), FILE_BYTES_MAX);
        assert_eq!(most(Some(118_000_000), 100_000_000), FILE_BYTES_MAX);
    }

    #[test]
    fn whose_files_are_removed_again_stops_being_given_them() {
        assert_eq!(most(Some(118_000_000), 118_000_000), 0);
    }

    proptest! {
        /// Unless it is fast, no link works for longer than a moment for what may be for nothing.
        #[test]
        fn prop_what_may_be_lost_takes_a_moment(rate in 0..FAST_RATE, lost in 0..FAST_RATE) {
            let most = most(Some(rate), lost);
            prop_assert!(most <= carried(rate, LOSS_FOR));
            prop_assert!(lost < carried(rate, LOSS_FOR) || most == 0);
        }
    }

    #[test]
    fn what_was_lost_is_forgotten_in_time() {
        let now = World::simulated(0, 1).clock.moment();
        let mut early = Early::default();
        early.losses.0.store(1000, Ordering::Relaxed);
        assert_eq!(early.lost(now), 1000);
        assert_eq!(early.lost(now + LOSS_HALVES_IN / 2), 1000);
        assert_eq!(early.lost(now + LOSS_HALVES_IN), 500);
        assert_eq!(early.lost(now + LOSS_HALVES_IN), 500);
    }

    #[test]
    fn what_no_file_has_in_the_end_was_lost() {
        let losses = Arc::<Losses>::default();
        let work = Work::new(&Secret::new([0; 32]), Cutter::Gear, losses.clone());
        let (one, other) = (ChunkName([1; 24]), ChunkName([2; 24]));
        {
            let mut sent = work.sent();
            sent.arrived = BTreeMap::from([(one, 10), (other, 20)]);
            sent.bytes = 35;
        }
        work.used(|name| *name == other);
        drop(work);
        assert_eq!(losses.0.load(Ordering::Relaxed), 15);
    }

    #[test]
    fn of_a_file_that_is_there_by_another_name_no_more_is_sent() {
        let names = |from: u8| (from..from + 8).map(|n| (ChunkName([n; 24]), 10)).collect();
        let mut sent = Sent::default();
        sent.land(names(0), 1);
        assert!(!sent.stopped && sent.arrived.len() == 8);
        sent.land(names(8), 2);
        assert!(sent.stopped && sent.arrived.len() == 16);
    }

    #[test]
    fn small_files_are_not_cut_before_they_are_closed() {
        let usual = Steps::of(None);
        assert!(usual.least >= 4 << 20 && usual.step <= PAYLOAD_BYTES_MAX as u64);
        assert_eq!(Steps::of(Some(0)), Steps { least: 1, step: 1 });
    }
}
