//! What a client says of itself.

use super::{Heard, Held};
use minicbor::{Decode, Encode};
use model::{FileId, ReplicaId, Seq};

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Attach {
    /// The id that this client was given before.
    #[n(0)]
    pub replica: Option<ReplicaId>,
    /// The number of the last update that this client has made.
    #[n(1)]
    pub made: u64,
    /// The position up to which this client has seen what others did.
    #[n(2)]
    pub seen: Seq,
    /// Locks that processes here hold, of each file all: they go on if nobody else has them. None:
    /// there are none, or the client leaves locks to its kernel.
    #[n(3)]
    pub locks: Option<Vec<Held>>,
    /// By which a copy of this client's state is told from it. None: it cannot be written down
    /// before it is used, as it must be.
    #[n(4)]
    pub life: Option<Life>,
    /// By which a replica that was set back is told from one that was not. None: this client was never
    /// told of runs.
    #[n(5)]
    pub heard: Option<Heard>,
}

/// A client draws a number each time that it begins, so that of two that began with copies of one
/// state the second to attach comes with a life before that is not the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Life {
    #[n(0)]
    pub now: u64,
    /// The last by which it was attached. None: it never was.
    #[n(1)]
    pub before: Option<u64>,
}

impl Life {
    /// Whether it goes on with what the life `last` had.
    pub fn goes_on_from(self, last: u64) -> bool {
        // What began without numbers does not say.
        self.now == last || self.before.is_none_or(|before| before == last)
    }
}

/// Files of a `Patience`, at most.
pub const PATIENCE_FILES_MAX: usize = 1_000;

/// A client can do for a while with what these files, and all that is below these directories, were:
/// others need not wait until it has been told. It says so for a session, and each time takes the
/// place of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Patience {
    /// At most `PATIENCE_FILES_MAX`.
    #[n(0)]
    pub below: Vec<FileId>,
    /// Not of these, nor of what is below them: the nearest above a file counts. As many.
    #[n(1)]
    pub but: Vec<FileId>,
}

impl Patience {
    /// Whether all of some files may be told of without waiting. `lines`: each file, and the
    /// directories that it is in, upwards.
    pub fn covers(&self, lines: &[Vec<FileId>]) -> bool {
        let nearest = |line: &Vec<FileId>| {
            let said = line.iter().find(|at| self.below.contains(at) || self.but.contains(at));
            said.is_some_and(|at| !self.but.contains(at))
        };
        !lines.is_empty() && lines.iter().all(nearest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_above_a_file_says_whether_it_is_waited_for() {
        let files = |numbers: &[u64]| numbers.iter().copied().map(FileId).collect::<Vec<_>>();
        let patience = Patience { below: files(&[2, 5]), but: files(&[3]) };
        let covers = |lines: &[&[u64]]| {
            let lines: Vec<Vec<FileId>> = lines.iter().map(|line| files(line)).collect();
            patience.covers(&lines)
        };
        assert!(covers(&[&[9, 2, 1]]) && covers(&[&[2, 1], &[9, 5, 3, 2, 1]]));
        assert!(!covers(&[&[9, 3, 2, 1]]) && !covers(&[&[3, 2, 1]]) && !covers(&[&[9, 1]]));
        assert!(!covers(&[&[9, 2, 1], &[8, 1]]), "one of them is waited for");
        assert!(!covers(&[]), "nobody knows where it is");
        assert!(!Patience::default().covers(&[files(&[1])]));
    }

    #[test]
    fn golden_bytes_of_patience_still_read() {
        let patience = Patience { below: vec![FileId(2)], but: vec![FileId(3), FileId(4)] };
        let golden = [0x82, 0x81, 2, 0x82, 3, 4];
        assert_eq!(minicbor::to_vec(&patience).unwrap(), golden);
        assert_eq!(minicbor::decode::<Patience>(&golden).unwrap(), patience);
    }
}
