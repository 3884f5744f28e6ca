//! How many clients each device may begin anew, each under an id of its own.
//! Holds: ids are never given twice, and what is known of who had them is kept for good, so a device can
//! use up no more of either, and of the places of those who hold callbacks, than at this rate.

use crate::catalog::DeviceId;
use std::collections::BTreeMap;
use std::time::Duration;
use world::Moment;

/// Copies of a device's state that begin at once, each of which is a client.
const AT_ONCE_MAX: u32 = 128;
/// Beyond, one in so long: of 16.7 million ids one device uses up no more in 15 years.
const ONE_EVERY: Duration = Duration::from_secs(30);

/// Until when what each device has begun lately counts against it.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(BTreeMap<DeviceId, Moment>);

impl Newcomers {
    /// Counts one, if there may be another now.
    pub fn admit(&mut self, device: DeviceId, now: Moment) -> bool {
        self.0.retain(|_, until| *until > now);
        let until = self.0.get(&device).copied().unwrap_or(now);
        let fits = until.since(now) <= ONE_EVERY * (AT_ONCE_MAX - 1);
        if fits {
            self.0.insert(device, until + ONE_EVERY);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Clock;

    #[tokio::test(start_paused = true)]
    async fn one_device_begins_many_at_once_and_then_one_at_a_time() {
        let clock = Clock::simulated(0);
        let mut newcomers = Newcomers::default();
        let (ada, bob) = (DeviceId([1; 32]), DeviceId([2; 32]));
        for begun in 0..AT_ONCE_MAX {
            assert!(newcomers.admit(ada, clock.moment()), "{begun}");
        }
        assert!(!newcomers.admit(ada, clock.moment()));
        assert!(newcomers.admit(bob, clock.moment()), "others are not held up");
        clock.sleep(ONE_EVERY).await;
        assert!(newcomers.admit(ada, clock.moment()));
        assert!(!newcomers.admit(ada, clock.moment()));
        clock.sleep(ONE_EVERY * AT_ONCE_MAX).await;
        assert!(newcomers.admit(ada, clock.moment()));
        assert_eq!(newcomers.0.len(), 1, "nothing is kept of who has begun none for long");
    }
}
