//! Which files have most of the same as new contents: by the chunks that both have, as far as the index
//! knows, and by what both look like.
//! Never: says that the replica above has them too, which may lack one such as the temporary file that
//! this one is a copy of.

use crate::client::Client;
use chunks::index::{self, Place};
use chunks::sketch::FEATURES;
use chunks::{Described, Placed};
use model::{ChunkName, FileId, Piece};
use protocol::Upstream;
use std::collections::BTreeMap;
use store::Containers;

/// Of the chunks of new contents, so many count.
const CHUNKS_MAX: usize = 4096;
/// Files that have most of the same, of which the first that both sides have is taken.
const ALIKE_MAX: usize = 8;

/// Bytes that other files have of the contents of one.
pub(crate) struct Votes {
    file: FileId,
    bytes: BTreeMap<FileId, u64>,
    chunks: usize,
}

impl Votes {
    pub fn on(file: FileId) -> Votes {
        Votes { file, bytes: BTreeMap::new(), chunks: 0 }
    }

    /// A chunk of so many bytes was seen in these places.
    pub fn of_chunk(&mut self, places: &[Place], bytes: u64) {
        self.chunks += 1;
        if self.chunks <= CHUNKS_MAX {
            self.count(places, bytes);
        }
    }

    /// Contents of so many bytes look in one way as what is in these places.
    pub fn of_feature(&mut self, places: &[Place], size: u64) {
        // Each feature in common speaks for its part.
        self.count(places, size / FEATURES as u64);
    }

    fn count(&mut self, places: &[Place], bytes: u64) {
        let mut files: Vec<FileId> = places.iter().map(|place| place.file).collect();
        files.dedup();
        for other in files.into_iter().filter(|other| *other != self.file) {
            *self.bytes.entry(other).or_default() += bytes;
        }
    }

    /// The files that have most, a few, the best first.
    pub fn best(&self) -> Vec<FileId> {
        let mut votes: Vec<(u64, FileId)> =
            self.bytes.iter().map(|(file, bytes)| (*bytes, *file)).collect();
        votes.sort_unstable_by(|one, other| other.cmp(one));
        votes.iter().take(ALIKE_MAX).map(|(_, file)| *file).collect()
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// On contents of which the index need not know yet.
    pub(crate) fn votes_on(&self, described: &Described, file: FileId) -> Votes {
        let size = described.tree.contents.size;
        self.votes(&described.pieces, (&described.features, size), file)
    }

    /// What cannot be read says nothing.
    pub(crate) fn votes(
        &self,
        pieces: &[Placed],
        (features, size): (&[ChunkName], u64),
        file: FileId,
    ) -> Votes {
        let mut votes = Votes::on(file);
        let Ok(read) = self.inner.tables.read() else { return votes };
        let places = |name: &ChunkName| index::find(&*read, name).unwrap_or_default();
        for placed in pieces.iter().take(CHUNKS_MAX) {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            votes.of_chunk(&places(&name), length);
        }
        features.iter().for_each(|feature| votes.of_feature(&places(feature), size));
        votes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(files: &[u64]) -> Vec<Place> {
        let place = |file: &u64| Place { file: FileId(*file), generation: 0, offset: 0, length: 9 };
        files.iter().map(place).collect()
    }

    #[test]
    fn who_has_most_comes_first_and_the_file_itself_does_not_count() {
        let mut votes = Votes::on(FileId(1));
        votes.of_chunk(&places(&[1, 2]), 100);
        votes.of_chunk(&places(&[3, 3]), 150);
        votes.of_feature(&places(&[2]), 80 * FEATURES as u64);
        assert_eq!(votes.best(), [FileId(2), FileId(3)]);
    }

    #[test]
    fn a_few_are_named_and_so_many_chunks_count() {
        let mut votes = Votes::on(FileId(1));
        (0..CHUNKS_MAX).for_each(|_| votes.of_chunk(&places(&[2]), 1));
        votes.of_chunk(&places(&[3]), 1 << 20);
        assert_eq!(votes.best(), [FileId(2)]);
        (4..40).for_each(|other| votes.of_feature(&places(&[other]), FEATURES as u64));
        assert_eq!(votes.best().len(), ALIKE_MAX);
    }
}
