//! The bounds of sessions, with their names.

use std::time::Duration;

/// Waits that a test may want shorter. What is not here is a constant beside its use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A peer that is owed an answer by the other side and hears nothing at all for so long, or
    /// for `SILENCE_ROUND_TRIPS` round trips if that is longer, gives the link up.
    pub silence: Duration,
    /// The wait before the first attempt to connect again; it doubles from there.
    pub retry_first: Duration,
    /// The longest wait between two attempts.
    pub retry_most: Duration,
    /// The longest that a handshake and the hello may take.
    pub handshake: Duration,
    /// Sessions that a listener carries at once.
    pub sessions_max: usize,
    /// Of one device, which is one mount, or a few of them where its state was copied.
    pub sessions_of_device_max: usize,
    /// Callers that a listener greets at once.
    pub handshakes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            silence: Duration::from_secs(6),
            retry_first: Duration::from_millis(200),
            retry_most: Duration::from_secs(15),
            handshake: Duration::from_secs(60),
            sessions_max: 4096,
            sessions_of_device_max: 64,
            handshakes_max: 256,
        }
    }
}

/// Requests of one session that are under way at once.
pub(crate) const REQUESTS_MAX: usize = 64;

/// How many of them may be of each class, in the order of `Class::ALL`: whoever waits for names
/// always finds a free one.
pub(crate) const REQUESTS_BY_CLASS_MAX: [usize; 4] = [REQUESTS_MAX, 24, 8, 8];

/// Bytes of messages of one session that are being put together at once.
pub(crate) const ASSEMBLY_BYTES_MAX: usize = 64 << 20;

/// Notices of one session that are on their way at once. The one below keeps room for so many.
pub(crate) const NOTICES_SENT_MAX: usize = 32;

/// Notices of one session that wait. A client that is further behind has to attach anew.
pub(crate) const NOTICES_WAITING_MAX: usize = 4096;

/// A session that nothing has been heard of for so long is forgotten. Its lease ended long ago.
pub(crate) const SESSION_SILENCE_MAX: Duration = Duration::from_secs(3 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_nobody_waits_for_leave_room_for_the_others() {
        let rest: usize = REQUESTS_BY_CLASS_MAX[1..].iter().sum();
        assert!(rest < REQUESTS_MAX);
    }
}
