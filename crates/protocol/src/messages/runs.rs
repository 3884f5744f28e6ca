//! Which runs of the replica above a client was told by, and so what the two have in common.

use minicbor::{Decode, Encode};
use model::Seq;

/// Runs that are said of a replica, at most: the last ones.
pub const RUNS_MAX: usize = 32;

/// A replica draws a number each time that it is started, before it says anything. Of two that began
/// with copies of one state, neither has what the other said in its run. It covers the positions from
/// `from` to the `from` of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Run {
    /// Where the replica stood when it was started.
    #[n(0)]
    pub from: Seq,
    #[n(1)]
    pub drawn: u64,
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Heard {
    /// The highest position.
    #[n(0)]
    pub upto: Seq,
    /// As the replica above said when this client last attached, oldest first: the last one covers
    /// that position.
    #[n(1)]
    pub runs: Vec<Run>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_what_was_heard_still_read() {
        let run = Run { from: Seq(2), drawn: 7 };
        let heard = Heard { upto: Seq(9), runs: vec![run] };
        let golden = [0x82, 9, 0x81, 0x82, 2, 7];
        assert_eq!(minicbor::to_vec(&heard).unwrap(), golden);
        assert_eq!(minicbor::decode::<Heard>(&golden).unwrap(), heard);
    }
}
