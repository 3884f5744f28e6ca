//! Storing what was written and not stored, and nobody will close any more: after a kill, or a close
//! that failed.
//! Holds: it is cut beside everything else. A file may be so large that it takes minutes, in which a
//! mount comes up, leases are renewed and notices are acknowledged. Until it is stored it shows as
//! it was written, and counts as pending. Who opens it to write meanwhile waits for none of that.

use crate::client::Client;
use crate::types::{Error, Need, Stop};
use model::FileId;
use protocol::Upstream;
use std::collections::BTreeMap;
use std::time::Duration;
use store::Containers;
use world::Moment;

/// How often it is looked for.
const LOOKED_FOR_EVERY: Duration = Duration::from_secs(5);
/// What could not be stored is not cut again before so long, and twice as long each time.
const PAUSE_LEAST: Duration = Duration::from_secs(5);
const PAUSE_MOST: Duration = Duration::from_secs(600);
/// At an unmount it is given so long in any case.
const PATIENCE_LEAST: Duration = Duration::from_secs(5);

type Key = (FileId, u32);

#[derive(Clone, Copy)]
struct Pause {
    until: Moment,
    length: Duration,
    /// Until there is a session, at most.
    lacks: bool,
}

/// When those are tried again that could not be stored, and after which pause.
#[derive(Default)]
struct Pauses(BTreeMap<Key, Pause>);

impl Pauses {
    fn is_over(&self, key: Key, now: Moment) -> bool {
        self.0.get(&key).is_none_or(|pause| pause.until <= now)
    }

    fn failed(&mut self, key: Key, now: Moment) {
        self.begin(key, now, false);
    }

    /// Something lacks that cannot be had without a session: what lacks is found late, and would be with
    /// each try.
    fn lacks(&mut self, key: Key, now: Moment) {
        self.begin(key, now, true);
    }

    fn begin(&mut self, key: Key, now: Moment, lacks: bool) {
        let twice = |pause: &Pause| (pause.length * 2).min(PAUSE_MOST);
        let length = self.0.get(&key).map_or(PAUSE_LEAST, twice);
        self.0.insert(key, Pause { until: now + length, length, lacks });
    }

    fn session_is_there(&mut self) {
        self.0.retain(|_, pause| !pause.lacks);
    }
}

/// What is lacking to store it, and what could not be stored.
#[derive(Default)]
struct Left {
    lacking: Vec<(Key, Need)>,
    failed: Vec<Key>,
}

/// Nothing else can be had either.
fn is_cut_off(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_) | Error::TimedOut(_) | Error::Retry)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Stores what is left over, at once and whenever there may be more of it.
    pub(crate) async fn run_left_over(&self) {
        let mut pauses = Pauses::default();
        while !self.is_stopping() {
            // With a session it is known whether it had been stored before.
            let session = self.inner.session_changed.notified();
            tokio::pin!(session);
            session.as_mut().enable();
            self.get_what_left_over_lacks(&mut pauses).await;
            tokio::select! {
                biased;
                () = self.until_stopping() => break,
                () = session => {}
                () = self.inner.world.clock.sleep(LOOKED_FOR_EVERY) => {}
            }
        }
    }

    /// A crash may have undone what was known of a file that was being written to.
    async fn get_what_left_over_lacks(&self, pauses: &mut Pauses) {
        let lacking = self.store_left_over_but(pauses).await;
        if lacking.is_empty() || !self.connection().attached {
            return;
        }
        for (key, need) in lacking {
            let had = match self.satisfy(need.clone()).await {
                Err(Error::Stale) => self.give_up_ground(&need),
                had => had,
            };
            match had {
                Ok(()) => {}
                Err(error) if is_cut_off(&error) => {
                    tracing::debug!(%error, "what was written cannot be stored yet");
                    return;
                }
                // Those behind it do not wait for it.
                Err(error) => {
                    tracing::warn!(file = %key.0, %error, "what was written is kept and not stored yet");
                    pauses.failed(key, self.inner.world.clock.moment());
                }
            }
        }
        self.store_left_over_but(pauses).await;
    }

    async fn store_left_over_but(&self, pauses: &mut Pauses) -> Vec<(Key, Need)> {
        let now = self.inner.world.clock.moment();
        if self.connection().attached {
            pauses.session_is_there();
        }
        let mut keys = self.files().left_over_surely();
        pauses.0.retain(|key, _| keys.contains(key));
        keys.retain(|key| pauses.is_over(*key, now));
        let Left { lacking, failed } = self.store_aside(keys).await;
        let now = self.inner.world.clock.moment();
        failed.into_iter().for_each(|key| pauses.failed(key, now));
        if !self.connection().attached {
            lacking.iter().for_each(|(key, _)| pauses.lacks(*key, now));
        }
        lacking
    }

    /// Stores all that is left over where it holds up nobody, for so long at most.
    pub(crate) async fn store_left_over_within(&self, patience: Duration) {
        let keys = self.files().left_over_surely();
        let patience = patience.max(PATIENCE_LEAST);
        let stored = self.inner.world.clock.within(patience, self.store_aside(keys)).await;
        if stored.is_none() {
            self.files().cut_no_more();
        }
    }

    async fn store_aside(&self, keys: Vec<Key>) -> Left {
        if keys.is_empty() {
            return Left::default();
        }
        let client = self.clone();
        let stored = self.off_the_runtime(move || Ok(client.store_left_over(keys))).await;
        // It says itself what it could not store.
        stored.unwrap_or_default()
    }

    /// Stores what nobody has open any more and could not be stored when it was closed. Who writes to it
    /// meanwhile has it to himself, and stores it when he closes it.
    fn store_left_over(&self, keys: Vec<Key>) -> Left {
        let mut left = Left::default();
        for (file, generation) in keys {
            let key = (file, generation);
            let Some(grip) = self.grip_of(file, generation) else { continue };
            if !self.files().is_stored_unattended(key, true) {
                continue;
            }
            let outcome = self.store_unattended(&grip);
            let gave_way = self.gives_way(key);
            self.files().is_stored_unattended(key, false);
            match outcome {
                Ok(()) => self.files().close_left_over(file, generation),
                Err(Stop::Need(need)) => left.lacking.push((key, need)),
                Err(Stop::Error(Error::Changing)) if gave_way => {}
                Err(Stop::Error(error)) => {
                    tracing::warn!(%file, %error, "what was written is kept and not stored yet");
                    left.failed.push(key);
                }
            }
        }
        left
    }

    /// Whether the cutting of a version is to be given up.
    pub(crate) fn gives_way(&self, key: Key) -> bool {
        self.files().gives_way(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    #[test]
    fn what_cannot_be_stored_is_tried_more_and_more_seldom() {
        let now = World::simulated(0, 1).clock.moment();
        let (key, mut pauses) = ((FileId(7), 1), Pauses::default());
        assert!(pauses.is_over(key, now));
        for secs in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
            pauses.failed(key, now);
            let after = |secs| now + Duration::from_secs(secs);
            assert!(!pauses.is_over(key, after(secs - 1)), "{secs}");
            assert!(pauses.is_over(key, after(secs)) && pauses.is_over((FileId(8), 1), now));
        }
    }

    #[test]
    fn what_lacks_something_waits_until_it_can_be_had_and_what_failed_does_not_go_by_that() {
        let now = World::simulated(0, 1).clock.moment();
        let (lacks, failed, mut pauses) = ((FileId(7), 1), (FileId(8), 1), Pauses::default());
        pauses.lacks(lacks, now);
        pauses.lacks(lacks, now + PAUSE_LEAST);
        pauses.failed(failed, now);
        assert!(!pauses.is_over(lacks, now + PAUSE_LEAST * 2), "it is cut whole with each try");
        pauses.session_is_there();
        assert!(pauses.is_over(lacks, now) && !pauses.is_over(failed, now));
    }
}
