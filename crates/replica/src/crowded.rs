//! A full disk is said in the log once, and once more that there is room again, however often
//! devices try.

use crate::error::ReplicaError;
use crate::origin::Inner;
use crate::volumes::{Volume, locked};
use protocol::Refusal;
use std::sync::Mutex;
use std::time::Duration;
use tracing::{debug, info, warn};
use world::Moment;

/// With so much free there is room again.
const ROOM_BYTES: u64 = 8 << 20;
/// What bounds a disk need not show in what is free, as a user's quota there does not.
const SAID_EVERY: Duration = Duration::from_secs(60 * 60);

#[derive(Default)]
pub(crate) struct Crowded(Mutex<State>);

#[derive(Default)]
struct State {
    full: bool,
    said_at: Option<Moment>,
}

impl State {
    /// The disk was full just now. Whether to say so.
    fn is_news(&mut self, now: Moment) -> bool {
        let was_full = std::mem::replace(&mut self.full, true);
        let lately = self.said_at.is_some_and(|said_at| now.since(said_at) < SAID_EVERY);
        let is_news = !was_full && !lately;
        if is_news {
            self.said_at = Some(now);
        }
        is_news
    }

    /// Something was written. Whether to say that there is room, of which there is so much.
    fn is_over(&mut self, free: u64) -> bool {
        self.full && free >= ROOM_BYTES && {
            self.full = false;
            true
        }
    }
}

impl Inner {
    /// What the asker is told of an error, which goes to the log unless it was said there.
    pub fn refuse(&self, error: &ReplicaError, volume: &Volume, doing: &'static str) -> Refusal {
        if error.is_damage() && !self.damage.is_news(&error.to_string()) {
            debug!(volume = volume.name, doing, %error, "a request meets damage that was told of");
            return ReplicaError::store_failed();
        }
        if !error.is_full() {
            return error.refuse(&volume.name, doing);
        }
        self.upkeep.shortage.refused(self.world.clock.moment());
        let volume = &volume.name;
        match locked(&self.crowded.0).is_news(self.world.clock.moment()) {
            true => warn!(
                volume, doing, %error,
                "the disk is full: what has no room stays with the devices that wrote it, until \
                 there is some; what nothing needs is given back by itself now, and old versions \
                 with `farfs volume set --retention` and `farfs gc --empty-trash`"
            ),
            false => debug!(volume, doing, %error, "the disk is still full"),
        }
        Refusal::NoSpace
    }

    /// Something was written that is not there to make room.
    pub fn note_written(&self) {
        let mut state = locked(&self.crowded.0);
        if state.full && state.is_over(self.blobs.room().unwrap_or(0)) {
            info!("the disk has room again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_disk_is_said_once_and_once_more_when_it_is_over() {
        let clock = world::Clock::simulated(0);
        let mut state = State::default();
        assert!(!state.is_over(u64::MAX), "it was not full");
        assert!(state.is_news(clock.moment()));
        for _ in 0..3 {
            assert!(!state.is_news(clock.moment()) && !state.is_over(ROOM_BYTES - 1));
            clock.sleep(SAID_EVERY).await;
        }
        assert!(state.is_over(ROOM_BYTES) && !state.is_over(ROOM_BYTES));
        assert!(state.is_news(clock.moment()));
        assert!(state.is_over(ROOM_BYTES));
        assert!(!state.is_news(clock.moment()), "that was said just now");
    }
}
