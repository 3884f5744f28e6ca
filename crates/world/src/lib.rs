//! Time and chance, real or simulated: the only place that they come from.
//! Holds: under the simulator both follow from the seed alone.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is where time and chance come from"
)]

mod clock;
mod entropy;

pub use clock::{Clock, Moment, OuterMoment};
pub use entropy::Entropy;

/// Time and chance for one participant.
#[derive(Clone, Debug)]
pub struct World {
    pub clock: Clock,
    pub entropy: Entropy,
}

impl World {
    /// The machine's clock and its source of chance.
    pub fn real() -> World {
        World { clock: Clock::real(), entropy: Entropy::real() }
    }

    /// A clock that starts at `epoch_secs` and follows the runtime's, which the simulator
    /// pauses; and chance that follows from the seed.
    pub fn simulated(epoch_secs: i64, seed: u64) -> World {
        World { clock: Clock::simulated(epoch_secs), entropy: Entropy::seeded(seed) }
    }
}
