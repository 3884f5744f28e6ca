//! A replica above whose disk is full: when what is pending is sent again, and how much at once.
//! Holds: what was turned down for want of room is not sent again before the replica above says
//! that it has room for it, or a long while has passed; and then no more of it at once than twice
//! what was taken last, so that what is sent in vain is bounded by what is kept.

use crate::client::{Client, error_of};
use crate::ranks::{self, Rank, Ranked};
use crate::replay_log::{PAUSE, SHORT_PAUSE, Setback};
use crate::types::Error;
use model::{Change, Update};
use protocol::{Class, Objection, PAYLOAD_BYTES_MAX, Request, Response, Submit, Upstream};
use std::sync::Mutex;
use std::time::Duration;
use store::Containers;
use tokio::sync::Notify;
use world::Moment;

/// The longest pause between two questions how much room there is.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(60);
/// What is said of the room need not be true, and less may be needed than the contents have
/// bytes: so long after they were turned down they are tried all the same.
const TRIES_EVERY: Duration = Duration::from_secs(10 * 60);
/// The first message after contents were turned down; it is one chunk at least.
const FIRST_BYTES: u64 = 4 << 10;

#[derive(Default)]
pub(crate) struct Full {
    state: Mutex<State>,
    /// Somebody waits for what is pending, or there is another session.
    asked: Notify,
}

#[derive(Default)]
struct State {
    /// When contents, or an update, were turned down last. None: there is room.
    refused_at: Option<Moment>,
    /// How long to wait after the next time that there is none.
    pause: Option<Duration>,
    /// What one message may have, until there has been room for a long one.
    bytes_max: Option<u64>,
    /// The replica above may keep what it has of what was turned down, as long as nothing else is
    /// sent in its turn.
    is_kept_for: bool,
    /// The last update that there was when pending stores of removed files were looked for.
    looked: u64,
}

impl Full {
    fn state(&self) -> Ranked<'_, State> {
        ranks::lock(Rank::Full, &self.state)
    }

    /// What was sent was turned down for want of room.
    fn refused(&self, now: Moment) {
        let mut state = self.state();
        state.refused_at = Some(now);
        state.bytes_max = Some(FIRST_BYTES);
        state.is_kept_for = true;
    }

    /// What was turned down is not sent any more: what comes next is tried at once.
    pub fn gave_up(&self) {
        self.state().refused_at = None;
    }

    /// Whether there are updates that were not there when removed files were looked for last.
    pub fn has_news(&self, last: u64) -> bool {
        last > self.state().looked
    }

    pub fn looked(&self, last: u64) {
        self.state().looked = last;
    }

    /// What was sent was taken.
    pub fn over(&self) {
        let mut state = self.state();
        (state.refused_at, state.pause) = (None, None);
        state.is_kept_for = false;
    }

    /// A message with contents was kept.
    pub fn kept(&self) {
        let mut state = self.state();
        state.bytes_max = state.bytes_max.and_then(next_bytes);
    }

    /// So much a message with contents may have, and one at a time is sent. None: no matter.
    pub fn bytes_max(&self) -> Option<u64> {
        self.state().bytes_max
    }

    /// How long to wait now.
    fn next_pause(&self) -> Duration {
        let mut state = self.state();
        let pause = state.pause.unwrap_or(PAUSE);
        state.pause = Some(longer(pause));
        pause
    }

    /// What is removed may be what has no room.
    pub fn see(&self, update: &Update) {
        let over = matches!(update.change, Change::Rename { over: Some(_), .. });
        if over || matches!(update.change, Change::Unlink { .. }) {
            self.ask();
        }
    }

    /// Something may have changed: it is looked again soon, if it is waited for.
    pub fn ask(&self) {
        let mut state = self.state();
        if state.refused_at.is_some() {
            state.pause = None;
            drop(state);
            self.asked.notify_one();
        }
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Objection(Objection::NoSpace))
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// What the next message may have, after one of so many bytes was kept. None: as much as any.
fn next_bytes(kept: u64) -> Option<u64> {
    let next = kept * 2;
    (next < PAYLOAD_BYTES_MAX as u64).then_some(next)
}

/// Whether to send what needs so many bytes, `since` it was turned down last.
fn is_worth_trying(needed: u64, free: u64, since: Duration) -> bool {
    free >= needed || since >= TRIES_EVERY
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The user waits for what is pending.
    pub fn hurry(&self) {
        self.inner.full.ask();
        self.attach_soon();
        {
            let mut core = self.core();
            core.hurried = core.log.last_number();
        }
        self.inner.replay_wanted.notify_one();
    }

    /// Sends what is pending first, unless that was turned down and there is no room for it yet.
    pub(crate) async fn replay_where_room(&self) -> Result<(), Setback> {
        if !self.may_find_room().await {
            return Err(Error::Objection(Objection::NoSpace).into());
        }
        let outcome = self.replay_batch().await;
        if matches!(&outcome, Err(Setback::Failed(error)) if is_full(error)) {
            self.inner.full.refused(self.inner.world.clock.moment());
        }
        outcome
    }

    /// What is pending was not taken, and is sent again after a while. Whoever waits for it is told.
    pub(crate) async fn be_set_back(&self, error: &Error) {
        if matches!(error, Error::Changing) {
            return self.inner.world.clock.sleep(SHORT_PAUSE).await;
        }
        let why = error.to_string();
        let before = self.core().setback.replace(why.clone());
        if before.is_none_or(|before| before != why) {
            tracing::warn!(%error, "what is pending could not be sent, and stays pending");
        }
        match error {
            Error::Unreadable(_) => self.see_to_unreadable().await,
            _ => self.inner.unreadable.over(),
        }
        let full = is_full(error);
        self.note_full(full);
        if full {
            if self.give_up_removed().await {
                // The next thing is tried at once.
                return;
            }
            self.send_removals().await;
        }
        let rest = self.turn_away(error);
        match full {
            true => self.until_asked().await,
            false => self.inner.world.clock.sleep(rest).await,
        }
    }

    /// Nothing is pending any more. If something was turned down before, the replica above need not
    /// keep what it has of it.
    pub(crate) async fn nothing_is_sent(&self) -> Result<(), Setback> {
        let is_kept_for = self.inner.full.state().is_kept_for;
        if !is_kept_for || self.core().log.pending_len() > 0 {
            return Ok(());
        }
        let submit = Submit {
            settled: self.core().meta.settled,
            strict: false,
            updates: Vec::new(),
            payload: None,
            deltas: None,
            seek: None,
            ahead: None,
            under: None,
        };
        match self.inner.upstream.ask(Class::Replay, Request::Submit(submit)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Setback::Link),
        }
    }

    /// Whether what is pending first may find room. It is asked only of contents that were turned
    /// down: any other update is no longer than the question.
    async fn may_find_room(&self) -> bool {
        let refused_at = self.inner.full.state().refused_at;
        let Some(refused_at) = refused_at else { return true };
        let client = self.clone();
        let needed =
            self.off_the_runtime(move || Ok(client.bytes_to_come())).await.map_err(error_of);
        let Ok(Some(needed)) = needed else { return true };
        let since = self.inner.world.clock.moment().since(refused_at);
        match self.inner.upstream.ask(Class::Replay, Request::Measure).await {
            Ok(Response::Measured(totals)) => is_worth_trying(needed, totals.bytes_free, since),
            // What it is comes out when the updates are sent.
            _ => true,
        }
    }

    /// Bytes that the replica above is not known to have of the store that is pending first. None:
    /// it is another update, or all is there.
    fn bytes_to_come(&self) -> Option<u64> {
        let first = {
            let core = self.core();
            let first = core.log.first_number()?;
            core.log.get(first).ok()??
        };
        self.bytes_lacking(&first).filter(|bytes| *bytes > 0)
    }

    fn bytes_lacking(&self, update: &Update) -> Option<u64> {
        if !matches!(update.change, Change::Store { .. }) {
            return None;
        }
        let names = self.lacking_of(update).ok()?;
        let core = self.core();
        let plan = core.plans.get(update.stamp.number)?;
        Some(plan.bytes_of(&names))
    }

    /// Waits a while, longer each time, or until somebody asks.
    async fn until_asked(&self) {
        let rest = self.inner.full.next_pause();
        self.inner.world.clock.sleep(PAUSE).await;
        let more = rest.saturating_sub(PAUSE);
        if more.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = self.inner.full.asked.notified() => {}
            () = self.until_stopping() => {}
            () = self.inner.world.clock.sleep(more) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Moment {
        world::Clock::simulated(0).moment()
    }

    #[test]
    fn pauses_grow_to_a_minute_and_begin_anew_when_somebody_asks() {
        let full = Full::default();
        full.refused(now());
        let pauses = || (0..8).map(|_| full.next_pause().as_secs()).collect::<Vec<_>>();
        assert_eq!(pauses(), [2, 4, 8, 16, 32, 60, 60, 60]);
        full.ask();
        assert_eq!(pauses()[..2], [2, 4]);
        full.over();
        assert_eq!(pauses()[..2], [2, 4]);
    }

    #[test]
    fn no_message_is_longer_than_twice_what_was_kept_before_it() {
        let full = Full::default();
        assert_eq!(full.bytes_max(), None);
        full.refused(now());
        let mut kept = Vec::new();
        while let Some(bytes) = full.bytes_max() {
            kept.push(bytes);
            full.kept();
        }
        assert_eq!((kept[0], kept[1]), (FIRST_BYTES, 2 * FIRST_BYTES));
        assert!(kept.last().unwrap() * 2 >= PAYLOAD_BYTES_MAX as u64 && kept.len() < 12);
    }

    #[test]
    fn contents_go_where_there_is_room_for_them_or_after_a_long_while() {
        let (soon, late) = (Duration::from_secs(60), TRIES_EVERY);
        assert!(is_worth_trying(10, 10, soon) && is_worth_trying(10, 0, late));
        assert!(!is_worth_trying(10, 9, soon) && !is_worth_trying(u64::MAX, 1 << 40, soon));
    }
}
