//! When a log is looked through, and when what is pending may leave.
//! From: partially connected operation, 5.2.

use model::Time;
use std::time::Duration;

/// A log of so many updates is looked through whenever something has come to it.
const SHORT: usize = 512;
/// A longer one when so much of it is new: what is looked at in all stays within some times what
/// was ever pending.
const NEW_ONE_IN: usize = 4;

/// Whether a log is to be looked through for what is moot: of `pending` updates `new` have come since
/// the last time.
pub fn is_to_be_looked_through(new: u64, pending: usize) -> bool {
    if pending < 2 || new == 0 {
        return false;
    }
    pending <= SHORT || new >= (pending / NEW_ONE_IN) as u64
}

/// How long an update made at `made` still stays, if each stays for `delay`. Zero: it may leave.
/// So it may where it was made in time to come: a clock was set back, perhaps by years, and until it
/// shows that time again nobody knows how old the update is.
pub fn stays_for(made: Time, now: Time, delay: Duration) -> Duration {
    let nanos = |time: Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    // More than 64 bits hold is older than any delay.
    let age = |nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    match nanos(now) - nanos(made) {
        ..0 => Duration::ZERO,
        since => delay.saturating_sub(age(since)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_log_is_not_looked_through_for_each_update() {
        assert!(!is_to_be_looked_through(0, 100));
        assert!(!is_to_be_looked_through(1, 1), "nothing stands beside it");
        assert!(is_to_be_looked_through(1, 100));
        assert!(!is_to_be_looked_through(1, 100_000));
        assert!(is_to_be_looked_through(25_000, 100_000));
    }

    #[test]
    fn an_update_stays_until_it_is_old_enough() {
        let time = |secs| Time { secs, nanos: 0 };
        let delay = Duration::from_secs(30);
        assert_eq!(stays_for(time(100), time(110), delay), Duration::from_secs(20));
        assert_eq!(stays_for(time(100), time(130), delay), Duration::ZERO);
        assert_eq!(stays_for(time(100), time(100), Duration::ZERO), Duration::ZERO);
        // Until 9_000 it would be asked again and again.
        assert_eq!(stays_for(time(9_000), time(100), delay), Duration::ZERO);
        assert_eq!(stays_for(time(0), time(i64::MAX), delay), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn prop_nothing_stays_longer_than_the_delay(
            made in any::<i64>(),
            now in any::<i64>(),
            delay in 0_u64..1_000_000,
        ) {
            let time = |secs| Time { secs, nanos: 0 };
            let delay = Duration::from_secs(delay);
            prop_assert!(stays_for(time(made), time(now), delay) <= delay);
        }

        #[test]
        fn prop_what_is_looked_at_stays_within_bounds(new in 1_u64..100_000, pending in 2_usize..100_000) {
            if is_to_be_looked_through(new, pending) && pending > SHORT {
                prop_assert!(new as usize * (NEW_ONE_IN + 1) >= pending);
            }
        }
    }
}
