//! How long a message takes over a line.

use super::{LineId, Network};
use protocol::Service;
use std::time::Duration;

/// A packet that is lost so often in a row is the line's end, not its quality.
const LOSSES_MAX: u32 = 4;
/// What it takes beside the round trip to see that a packet was lost.
const LOSS_NOTICED: Duration = Duration::from_millis(50);
/// What the link adds to a message.
const OVERHEAD_BYTES: u64 = 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Up,
    Down,
}

impl<S: Service> Network<S> {
    /// Puts a message of `bytes` on the line and says after how long it arrives.
    pub(super) fn travel(&self, line: LineId, direction: Direction, bytes: usize) -> Duration {
        let now = self.inner.world.clock.moment();
        let entropy = &self.inner.world.entropy;
        let mut state = self.state();
        let line = &mut state.lines[line];
        let conditions = line.conditions;
        let bytes = bytes as u64 + OVERHEAD_BYTES;
        let busy = &mut line.busy[direction as usize];
        if *busy < now {
            *busy = now;
        }
        if let Some(rate) = conditions.bytes_a_second {
            *busy = *busy + Duration::from_micros(bytes * 1_000_000 / rate.max(1));
        }
        let mut takes = busy.since(now) + conditions.delay;
        let jitter = u64::try_from(conditions.jitter.as_millis()).unwrap_or(u64::MAX);
        takes += Duration::from_millis(entropy.below(jitter.saturating_add(1)));
        for _ in 0..LOSSES_MAX {
            if entropy.below(1000) >= conditions.lost_in_thousand {
                break;
            }
            takes += conditions.delay * 2 + LOSS_NOTICED;
        }
        match direction {
            Direction::Up => line.traffic.wire_sent += bytes,
            Direction::Down => line.traffic.wire_received += bytes,
        }
        takes
    }
}
