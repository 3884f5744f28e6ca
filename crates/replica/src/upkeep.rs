//! What an origin does to its store besides serving it: old versions are pruned, chunks that
//! nothing names go into the trash and from there away, and their space is given back.
//! Holds: a chunk goes only if no version names it and nobody was told lately that it is here;
//! what is interrupted anywhere leaves a store that says the same, and the next cycle goes on.
//! From: LBFS, "Implementation": its trash, and what is removed in the background.
//!
//! ```text
//!   clear ──→ prune ──→ mark ──→ want ──→ sweep ──→ empty ──→ repack
//!   packs     versions  chunks   recipes  trash     trash     packs
//! ```

mod collect;
mod mark;
mod pace;
mod promises;
mod room;
mod senders;
mod shortage;
mod trash;

pub(crate) use collect::DEAD_PERCENT_WHOLLY;
pub use collect::{Amount, Freed, Wish};
pub(crate) use promises::{Promise, Promises};
pub(crate) use trash::{TRASH, TrashRow, forget_trash};

use crate::error::Result;
use crate::origin::{Inner, Origin};
use collect::Collector;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::{debug, error, info, warn};

/// After each piece of work in the background so many times its length pass without any.
const REST: u32 = 4;
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_secs(2);
/// Promises are looked at so often between two marks of the time.
const TURNS: u32 = 4;
/// How often in the time of a lease one looks for those that have ended.
const LEASE_LOOKS: u32 = 5;
/// How long a piece waits for a moment without requests, and how often it looks.
const QUIET_WITHIN: Duration = Duration::from_millis(500);
const QUIET_LOOK: Duration = Duration::from_millis(20);

/// What the upkeep of an origin shares with those who serve.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub promises: Promises,
    pub shortage: shortage::Shortage,
    pub pace: pace::Pace,
    /// Requests under way.
    pub busy: AtomicUsize,
    /// One cycle at a time.
    alone: Arc<tokio::sync::Mutex<()>>,
    /// Cycles that somebody waits for: one in the background makes way.
    wanted: AtomicUsize,
}

impl Upkeep {
    /// No cycle is under way, and none begins, while this is held.
    pub async fn alone(&self) -> tokio::sync::OwnedMutexGuard<()> {
        let _wanted = Counted::by(&self.wanted);
        self.alone.clone().lock_owned().await
    }
}

/// Counts while it lives.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub fn by(counter: &'a AtomicUsize) -> Counted<'a> {
        counter.fetch_add(1, Ordering::AcqRel);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Origin {
    /// One cycle from beginning to end, as fast as it goes, while others are served.
    pub async fn collect(&self, wish: Wish) -> Result<Freed> {
        let upkeep = &self.0.upkeep;
        let _wanted = Counted::by(&upkeep.wanted);
        let _alone = upkeep.alone.clone().lock_owned().await;
        self.run_through(Collector::new(self.0.clone(), wish)).await
    }

    async fn run_through(&self, mut collector: Collector) -> Result<Freed> {
        loop {
            let (back, more) = turn(&self.0, collector).await?;
            collector = back;
            if !more {
                return Ok(collector.freed());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Works in the background, for as long as it is polled, in small pieces that make way for
    /// requests: tidies the store now and then, and looks into containers that were stored. And makes
    /// room where somebody was refused for want of it, which makes no way.
    pub async fn keep_up(&self) {
        tokio::join!(self.tidy(), self.make_room(), self.look_inside(), self.look_around());
    }

    /// What is written of leases that have ended goes, so that nobody is waited for in vain after a
    /// restart. What a commit that failed has left is looked for, if it could not be seen then.
    async fn look_around(&self) {
        let inner = &self.0;
        loop {
            inner.world.clock.sleep(inner.limits.lease / LEASE_LOOKS).await;
            let work = inner.clone();
            let look = move || {
                work.each_volume(crate::take::look_again)?;
                work.each_volume(crate::answer::strike_off)
            };
            if let Ok(Err(error)) = inner.limits.blocking.run(look).await {
                // The next look finds them again.
                debug!(%error, "leases that have ended are still written down");
            }
        }
    }

    async fn tidy(&self) {
        let inner = &self.0;
        let every = inner.limits.mark_every;
        let mut since_cycle = inner.limits.collect_every.saturating_sub(inner.limits.collect_first);
        loop {
            for _ in 0..TURNS {
                inner.world.clock.sleep(every / TURNS).await;
                // A cycle under way goes by what was promised when it began.
                if let Ok(_alone) = inner.upkeep.alone.clone().try_lock_owned() {
                    inner.upkeep.promises.turn_over(&inner.world.clock, inner.limits.promise);
                }
            }
            since_cycle = since_cycle.saturating_add(every);
            let for_marks = inner.clone();
            let marked = inner.limits.blocking.run(move || for_marks.mark_times()).await;
            if let Ok(Err(error)) = marked {
                error!(%error, "the time could not be written down");
            }
            if since_cycle < inner.limits.collect_every {
                continue;
            }
            match self.collect_gently().await {
                Ok(Some(freed)) => {
                    since_cycle = Duration::ZERO;
                    if freed.clock_leapt > Duration::ZERO {
                        let seconds = freed.clock_leapt.as_secs();
                        warn!(
                            seconds,
                            "the clock was set forward, so no old version is pruned yet"
                        );
                    }
                    if freed.clock_behind > 0 {
                        let volumes = freed.clock_behind;
                        warn!(
                            volumes,
                            "the clock is behind an earlier time, so nothing grows older"
                        );
                    }
                    info!(
                        versions_pruned = freed.versions,
                        chunks_into_trash = freed.trashed.chunks,
                        chunks_deleted = freed.deleted.chunks,
                        bytes_on_disk = freed.bytes_on_disk,
                        bytes_in_trash = freed.trash.bytes,
                        "the store was tidied"
                    );
                }
                Ok(None) => debug!("tidying the store made way"),
                Err(error) => {
                    since_cycle = Duration::ZERO;
                    error!(%error, "the store could not be tidied; it is whole all the same");
                }
            }
        }
    }

    /// None: somebody else does it, or wants to.
    async fn collect_gently(&self) -> Result<Option<Freed>> {
        let upkeep = &self.0.upkeep;
        let Ok(_alone) = upkeep.alone.clone().try_lock_owned() else { return Ok(None) };
        let mut collector = Collector::new(self.0.clone(), Wish::default());
        let clock = &self.0.world.clock;
        loop {
            self.until_quiet().await;
            let begun = clock.moment();
            let (back, more) = turn(&self.0, collector).await?;
            collector = back;
            if !more {
                return Ok(Some(collector.freed()));
            }
            if upkeep.wanted.load(Ordering::Acquire) > 0 {
                return Ok(None);
            }
            let took = clock.moment().since(begun);
            clock.sleep(took.saturating_mul(REST).clamp(REST_MIN, REST_MAX)).await;
        }
    }

    pub(crate) async fn until_quiet(&self) {
        let mut waited = Duration::ZERO;
        while self.0.upkeep.busy.load(Ordering::Acquire) > 0 && waited < QUIET_WITHIN {
            self.0.world.clock.sleep(QUIET_LOOK).await;
            waited += QUIET_LOOK;
        }
    }
}

async fn turn(inner: &Arc<Inner>, mut collector: Collector) -> Result<(Collector, bool)> {
    let work = move || {
        let more = collector.turn();
        (collector, more)
    };
    match inner.limits.blocking.run(work).await {
        Ok((collector, more)) => Ok((collector, more?)),
        Err(_) => Err(crate::ReplicaError::GoingDown),
    }
}
