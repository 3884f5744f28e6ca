//! The mode of a client, as `replay` decides it: looking at the link, and doing what a change takes.
//! Holds: a change is logged with the figures that made it, and the last of them are shown.

use crate::client::Client;
use crate::connection::Connection;
use protocol::{HOUSE, LinkEstimate, Mode, ModeChange, Upstream};
use replay::{LinkView, Why};
use std::collections::VecDeque;
use std::time::Duration;
use store::Containers;
use world::Moment;

pub(crate) use replay::{WantedMode, fetches, replays, validates, waits_for_verdicts};

/// Changes that are shown.
const CHANGES_MAX: usize = 16;

/// Why the mode is what it is, and what the link is taken to be.
pub(crate) struct Choice {
    /// Times are counted from here.
    began: Moment,
    judged: replay::Judged,
    why: Why,
    changes: VecDeque<ModeChange>,
}

impl Choice {
    pub fn new(now: Moment, wanted: WantedMode) -> Choice {
        let why = match wanted {
            WantedMode::Auto => Why::Unmeasured,
            WantedMode::Fixed(_) => Why::Wished,
        };
        Choice { began: now, judged: replay::Judged::default(), why, changes: VecDeque::new() }
    }

    /// There is a new session, maybe over another link.
    pub fn begin_session(&mut self) {
        self.judged.begin_session();
    }

    pub fn estimate(&self, now: Moment) -> LinkEstimate {
        let figures = self.judged.figures(now.since(self.began));
        LinkEstimate {
            round_trip_ms: figures.delay.map(|delay| delay.as_secs_f64() * 1000.0),
            rate_up: figures.rate,
            loss: figures.loss,
        }
    }

    pub fn why(&self) -> String {
        self.why.to_string()
    }

    pub fn changes(&self) -> Vec<ModeChange> {
        self.changes.iter().cloned().collect()
    }

    fn note(&mut self, change: ModeChange) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

impl Connection {
    /// The mode to go over to, and why, if it is another one.
    fn next_mode(&mut self, now: Moment) -> Option<(Mode, Why)> {
        let at = now.since(self.choice.began);
        let link = LinkView {
            down_for: self.down_for(now),
            refused: self.refusal().is_some(),
            attaching: self.attaching,
            grade: self.choice.judged.grade(),
            figures: self.choice.judged.figures(at),
            // Who is alone learns only here that there is no room: at the call, where it waits.
            alone: self.alone && !self.full,
            held_back: self.holds_back(),
        };
        let (mode, why) = replay::choose(self.wanted, &link, (self.mode, self.choice.why));
        self.choice.why = why;
        (mode != self.mode).then_some((mode, why))
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Looks at the link and changes the mode if it has to be changed.
    pub(crate) fn choose_mode(&self) {
        let now = self.inner.world.clock.moment();
        let quality = self.inner.upstream.quality();
        let mut connection = self.connection();
        if connection.up && quality.connected {
            if let Some(trip) = quality.round_trip_min {
                connection.near = trip <= HOUSE;
            }
            let at = now.since(connection.choice.began);
            connection.choice.judged.look(&quality, at);
        }
        let Some((mode, why)) = connection.next_mode(now) else { return };
        let from = std::mem::replace(&mut connection.mode, mode);
        let estimate = connection.choice.estimate(now);
        tracing::info!(
            from = ?from, to = ?mode, %why,
            round_trip_ms = estimate.round_trip_ms,
            rate_up = estimate.rate_up,
            loss = estimate.loss,
            "mode changed"
        );
        let at_secs = self.inner.world.clock.time().secs;
        connection.choice.note(ModeChange { at_secs, from, to: mode, why: why.to_string() });
        drop(connection);
        self.patience_changed();
        self.inner.checkpoint_wanted.notify_one();
        // How far updates may leave unsynced goes by the mode.
        self.core().unsaved = true;
        self.acknowledge_company();
        self.inner.keeping.choosing.look();
        self.inner.session_changed.notify_waiters();
        self.inner.settled.notify_waiters();
        self.inner.replay_wanted.notify_one();
        self.inner.locks_wanted.notify_one();
    }

    /// Of the link, as last measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.inner.upstream.quality().round_trip
    }

    /// What the user wants from now on.
    pub fn set_mode(&self, wanted: WantedMode) {
        self.connection().wanted = wanted;
        self.choose_mode();
        self.attach_soon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    #[test]
    fn the_last_changes_are_kept_and_no_more() {
        let mut choice = Choice::new(Clock::real().moment(), WantedMode::Auto);
        for at_secs in 0..40 {
            let (from, to) = (Mode::Partial, Mode::Connected);
            choice.note(ModeChange { at_secs, from, to, why: "as set".into() });
        }
        let at: Vec<i64> = choice.changes().iter().map(|change| change.at_secs).collect();
        assert_eq!(at, (24..40).collect::<Vec<_>>());
    }
}
