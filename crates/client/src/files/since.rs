//! What was written to an open file since it was last stored, so that storing it again takes as
//! long as that and not as long as the file.

use chunks::{Described, Placed};
use std::ops::Range;
use std::sync::Arc;

/// With more stretches all of the file is read.
const STRETCHES_MAX: usize = 4096;
/// With more pieces they are not kept in memory: about 8 MB of them.
const PIECES_MAX: usize = 200_000;

/// A container since it was last stored.
#[derive(Clone)]
pub(crate) struct Since {
    /// All of it, as it was cut then.
    pub pieces: Arc<[Placed]>,
    /// What was written, joined where one stretch follows another.
    pub changed: Vec<Range<u64>>,
}

impl Since {
    /// It has just been stored. None: too much to be kept.
    pub fn stored(described: &Described) -> Option<Since> {
        let pieces = &described.pieces[..];
        let fits = pieces.len() <= PIECES_MAX && described.has_all_pieces();
        fits.then(|| Since { pieces: pieces.into(), changed: Vec::new() })
    }

    /// Bytes were written. False: it is not known any more what was.
    #[must_use]
    pub fn note(&mut self, range: Range<u64>) -> bool {
        let last = self.changed.last_mut();
        let joins = |last: &Range<u64>| range.start <= last.end && range.end >= last.start;
        match last.filter(|last| joins(last)) {
            Some(last) => *last = last.start.min(range.start)..last.end.max(range.end),
            None => self.changed.push(range),
        }
        self.changed.len() <= STRETCHES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_joined_and_what_is_too_much_is_said() {
        let secret = chunks::Secret::new([7; 32]);
        let described = chunks::describe_bytes(&secret, protocol::Cutter::Gear, b"");
        let mut since = Since::stored(&described).expect("it is little");
        assert!(since.note(10..20) && since.note(20..30) && since.note(5..11));
        assert_eq!((since.changed.len(), since.changed[0].clone()), (1, 5..30));
        assert!(since.note(100..101));
        assert_eq!(since.changed.len(), 2);
        let fits =
            (0..STRETCHES_MAX as u64).all(|n| since.note(1000 * (n + 1)..1000 * (n + 1) + 1));
        assert!(!fits);
    }
}
