//! When a disk that is short of room is swept of what nothing needs.
//! Holds: soon after somebody was refused; and where that freed nothing, later each time, unless
//! something has come in vain since, which is swept at once.

use crate::volumes::locked;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use world::Moment;

/// So long after a refusal what was under way with it has come, too.
const SETTLES: Duration = Duration::from_secs(2);
/// Between two sweeps, and after many that freed nothing.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// After a sweep so many times its length pass without one.
const REST: u32 = 4;
/// So much that came in vain is worth a sweep.
const LEFT_BYTES_MIN: u64 = 1 << 20;

#[derive(Default)]
pub(crate) struct Shortage {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Since the last sweep began.
    refused_at: Option<Moment>,
    /// Bytes that came since then for what was not stored.
    left_bytes: u64,
    /// Sweeps in succession that freed nothing.
    in_vain: u32,
    last: Option<Sweep>,
}

#[derive(Clone, Copy, Debug)]
struct Sweep {
    ended: Moment,
    took: Duration,
}

/// How long until the next sweep. None: there is no reason for one.
fn due_in(state: &State, now: Moment) -> Option<Duration> {
    let has_come_in_vain = state.left_bytes >= LEFT_BYTES_MIN;
    let settled = match state.refused_at {
        Some(refused_at) => SETTLES.saturating_sub(now.since(refused_at)),
        // Whoever was refused before the last sweep, which freed nothing, has no room yet.
        None if has_come_in_vain && state.in_vain > 0 => Duration::ZERO,
        None => return None,
    };
    let Some(Sweep { ended, took }) = state.last else { return Some(settled) };
    let in_vain = if has_come_in_vain { 0 } else { state.in_vain };
    let longer = 1u32.checked_shl(in_vain).unwrap_or(u32::MAX);
    let pause = PAUSE.saturating_mul(longer).min(PAUSE_MAX).max(took.saturating_mul(REST));
    Some(pause.saturating_sub(now.since(ended)).max(settled))
}

impl Shortage {
    /// Something had no room.
    pub fn refused(&self, now: Moment) {
        locked(&self.state).refused_at.get_or_insert(now);
        self.news.notify_one();
    }

    /// So many bytes came for what is not stored.
    pub fn left(&self, bytes: u64) {
        if bytes > 0 {
            let mut state = locked(&self.state);
            state.left_bytes = state.left_bytes.saturating_add(bytes);
            drop(state);
            self.news.notify_one();
        }
    }

    pub fn due_in(&self, now: Moment) -> Option<Duration> {
        due_in(&locked(&self.state), now)
    }

    /// Until something may have changed of when it is due.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    pub fn sweep_begins(&self) {
        let mut state = locked(&self.state);
        (state.refused_at, state.left_bytes) = (None, 0);
    }

    pub fn sweep_ended(&self, (began, ended): (Moment, Moment), freed_some: bool) {
        let mut state = locked(&self.state);
        state.in_vain = if freed_some { 0 } else { state.in_vain.saturating_add(1) };
        state.last = Some(Sweep { ended, took: ended.since(began) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    #[tokio::test(start_paused = true)]
    async fn a_sweep_comes_soon_after_a_refusal_and_seldom_where_it_frees_nothing() {
        let clock = Clock::simulated(0);
        let shortage = Shortage::default();
        let due = || shortage.due_in(clock.moment()).map(|due| due.as_secs());
        let swept = |freed_some| {
            shortage.sweep_begins();
            shortage.sweep_ended((clock.moment(), clock.moment()), freed_some);
        };
        assert_eq!(due(), None);
        shortage.left(LEFT_BYTES_MIN);
        assert_eq!(due(), None, "nobody lacks room");
        shortage.refused(clock.moment());
        assert_eq!(due(), Some(2));
        swept(true);
        assert_eq!(due(), None, "nobody was refused since");
        let mut pauses = Vec::new();
        for _ in 0..11 {
            shortage.refused(clock.moment());
            pauses.push(due().unwrap());
            swept(false);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
        shortage.refused(clock.moment());
        shortage.left(LEFT_BYTES_MIN - 1);
        assert_eq!(due(), Some(3600));
        shortage.left(1);
        assert_eq!(due(), Some(10), "that can be given back");
        swept(false);
        assert_eq!(due(), None);
        shortage.left(LEFT_BYTES_MIN);
        assert_eq!(
            due(),
            Some(10),
            "it may be what the one who was refused before has no room for"
        );
        swept(true);
        shortage.left(LEFT_BYTES_MIN);
        assert_eq!(due(), None, "there is room");
        shortage.refused(clock.moment());
        assert_eq!(due(), Some(10));
        clock.sleep(HOUR).await;
        assert_eq!(due(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_done_less_often() {
        let clock = Clock::simulated(0);
        let shortage = Shortage::default();
        let began = clock.moment();
        shortage.sweep_begins();
        clock.sleep(HOUR).await;
        shortage.sweep_ended((began, clock.moment()), true);
        shortage.refused(clock.moment());
        assert_eq!(shortage.due_in(clock.moment()), Some(REST * HOUR));
    }
}
