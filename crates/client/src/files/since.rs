//! What was written to an open file since it was last stored, so that storing it again takes as
//! long as that and not as long as the file.

use super::OpenFile;
use crate::recipes;
use chunks::{Described, Placed};
use model::Contents;
use std::ops::Range;
use std::sync::Arc;

/// With more stretches all of the file is read.
const STRETCHES_MAX: usize = 4096;
/// With more pieces they are not kept in memory: about 8 MB of them.
const PIECES_MAX: usize = 200_000;

/// A container since it was last stored.
#[derive(Clone)]
pub(crate) struct Since {
    pub before: Before,
    /// What was written, joined where one stretch follows another.
    pub changed: Vec<Range<u64>>,
}

/// How all of a container was cut when it was last stored.
#[derive(Clone)]
pub(crate) enum Before {
    Pieces(Arc<[Placed]>),
    /// As the recipe says, if all of that is kept here when it is wanted.
    Recipe(Contents),
}

impl Since {
    /// It has just been stored. None: it is to be cut whole next time.
    pub fn stored(described: &Described, bytes_min: u64) -> Option<Since> {
        let pieces = &described.pieces[..];
        if pieces.len() > PIECES_MAX || !described.has_all_pieces() {
            return Since::reopened(&described.tree.contents, bytes_min);
        }
        Some(Since { before: Before::Pieces(pieces.into()), changed: Vec::new() })
    }

    /// It is this version, and is about to be written to. None: with less than `bytes_min` bytes it
    /// is to be cut whole, which takes a moment.
    pub fn reopened(contents: &Contents, bytes_min: u64) -> Option<Since> {
        let fits = contents.size >= bytes_min && contents.root.is_some();
        fits.then(|| Since { before: Before::Recipe(*contents), changed: Vec::new() })
    }

    /// Whether it is worth looking up how a container of so many bytes was cut.
    pub fn is_little_of(&self, size: u64) -> bool {
        let written =
            self.changed.iter().map(|range| range.end.min(size).saturating_sub(range.start));
        matches!(self.before, Before::Pieces(_)) || written.sum::<u64>() <= size / 2
    }

    /// It was cut, or made longer, to `size` bytes: what lay behind it does not come back. False:
    /// it is to be cut whole.
    #[must_use]
    pub fn note_length(&mut self, size: u64) -> bool {
        self.note(size..u64::MAX)
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

impl<K> OpenFile<K> {
    /// It is as it was stored since it was opened, and of what is not written to it is known how it was cut:
    /// unless it is small, that is not read when it is stored again.
    pub fn is_cut_in_parts(&self) -> bool {
        let known = matches!(&self.since, Some(Since { before: Before::Pieces(_), .. }));
        known && self.presence.contents.size > recipes::FILE_BYTES_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_joined_and_what_is_too_much_is_said() {
        let secret = chunks::Secret::new([7; 32]);
        let described = chunks::describe_bytes(&secret, protocol::Cutter::Gear, b"");
        let mut since = Since::stored(&described, 0).expect("it is little");
        assert!(since.note(10..20) && since.note(20..30) && since.note(5..11));
        assert_eq!((since.changed.len(), since.changed[0].clone()), (1, 5..30));
        assert!(since.note(100..101));
        assert_eq!(since.changed.len(), 2);
        let fits =
            (0..STRETCHES_MAX as u64).all(|n| since.note(1000 * (n + 1)..1000 * (n + 1) + 1));
        assert!(!fits);
    }

    #[test]
    fn a_large_version_goes_by_its_recipe_and_a_small_one_is_cut_whole() {
        const BYTES_MIN: u64 = 1 << 20;
        let root = Some(model::Root { name: model::ChunkName([1; 24]), depth: 2 });
        let sized = |size| Contents { size, root, holes: None };
        assert!(Since::reopened(&sized(BYTES_MIN - 1), BYTES_MIN).is_none());
        let mut since = Since::reopened(&sized(4 * BYTES_MIN), BYTES_MIN).expect("it is large");
        assert!(since.note(5..9) && since.note_length(2 * BYTES_MIN));
        assert_eq!(since.changed, [5..9, 2 * BYTES_MIN..u64::MAX]);
        assert!(since.is_little_of(3 * BYTES_MIN));
        assert!(!since.is_little_of(5 * BYTES_MIN));
    }
}
