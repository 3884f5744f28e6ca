//! The classes of traffic.

/// Traffic classes, drawn by lottery 8 : 3 : 1, prefetch with what is left.
/// From: partially connected operation, 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Names, attributes, an update that somebody waits for.
    Interactive,
    /// Contents that somebody waits for.
    Demand,
    /// Updates that nobody waits for.
    Replay,
    /// What may be wanted later.
    Prefetch,
}

impl Class {
    pub const ALL: [Class; 4] = [Class::Interactive, Class::Demand, Class::Replay, Class::Prefetch];
}
