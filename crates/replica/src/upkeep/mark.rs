//! Which chunks are named by contents that a volume keeps, found by walking all their recipes.
//! Holds: a chunk that is named is marked; one that is not may be too, now and then, and is found
//! the next time. Where a recipe cannot be read, it says that it does not know.

use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::blob_name;
use model::{ChunkName, Contents, Piece};
use std::collections::{BTreeSet, HashSet};
use volume::whole::{Holds, VolumeId, contents_page};

/// Rows of contents that are read in one turn, and chunks that are marked.
const ROWS_MAX: usize = 500;
const CHUNKS_MAX: usize = 4000;
/// Recipe chunks that are remembered, so that what many versions share is walked once.
const WALKED_MAX: usize = 1_000_000;

/// Bits for each chunk of the store, and how many of them a chunk sets: about one chunk of two
/// thousand is taken for marked that is not.
const BITS_PER_CHUNK: u64 = 16;
const BITS_MIN: u64 = 1 << 16;
const PROBES: u64 = 8;

/// A set of names that takes two bytes a name and is never wrong about what is in it.
pub(super) struct Marks {
    bits: Vec<u64>,
    salt: [u8; 32],
}

impl Marks {
    pub fn new(chunks: u64, salt: [u8; 32]) -> Marks {
        let bits = chunks.saturating_mul(BITS_PER_CHUNK).max(BITS_MIN);
        let words = usize::try_from(bits.div_ceil(64)).unwrap_or(usize::MAX / 64);
        Marks { bits: vec![0; words], salt }
    }

    fn probes(&self, name: &[u8]) -> impl Iterator<Item = (usize, u64)> + use<> {
        let hash = blake3::keyed_hash(&self.salt, name);
        let long =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| hash.as_bytes()[at + byte]));
        let (first, step) = (long(0), long(8) | 1);
        let bits = self.bits.len() as u64 * 64;
        (0..PROBES).map(move |n| {
            let bit = first.wrapping_add(step.wrapping_mul(n)) % bits;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub fn insert(&mut self, name: &[u8]) {
        for (word, bit) in self.probes(name) {
            self.bits[word] |= bit;
        }
    }

    pub fn has(&self, name: &[u8]) -> bool {
        self.probes(name).all(|(word, bit)| self.bits[word] & bit != 0)
    }
}

/// A walk over all contents of some volumes.
pub(super) struct Marking {
    pub marks: Marks,
    /// Of these not everything is known.
    pub unsure: BTreeSet<VolumeId>,
    /// With what each keeps, the next one last.
    volumes: Vec<(VolumeId, Holds)>,
    from: Option<Vec<u8>>,
    open: Vec<(ChunkName, u8)>,
    walked: HashSet<ChunkName>,
}

impl Marking {
    pub fn new(volumes: Vec<(VolumeId, Holds)>, marks: Marks) -> Marking {
        Marking {
            marks,
            unsure: BTreeSet::new(),
            volumes,
            from: None,
            open: Vec::new(),
            walked: HashSet::new(),
        }
    }

    /// True: there is more to do.
    pub fn turn(&mut self, inner: &Inner) -> Result<bool> {
        let Some((volume, holds)) = self.volumes.last() else { return Ok(false) };
        let volume = *volume;
        if self.open.is_empty() {
            let read = inner.tables.read()?;
            let (contents, next) =
                contents_page(&*read, volume, self.from.take(), holds, ROWS_MAX)?;
            self.open.extend(contents.iter().filter_map(root));
            self.from = next;
        }
        for _ in 0..CHUNKS_MAX {
            let Some((name, depth)) = self.open.pop() else { break };
            self.visit(inner, volume, name, depth)?;
        }
        if self.open.is_empty() && self.from.is_none() {
            self.volumes.pop();
            self.walked.clear();
        }
        Ok(true)
    }

    fn visit(&mut self, inner: &Inner, volume: VolumeId, name: ChunkName, depth: u8) -> Result<()> {
        let blob = blob_name(volume, &name);
        self.marks.insert(&blob);
        // What lies below a recipe chunk follows from its name, at whatever depth it is used.
        if depth == 0 || self.walked.contains(&name) {
            return Ok(());
        }
        let recipe = inner.blobs.get(&blob)?.and_then(|bytes| chunks::decode(&bytes).ok());
        let Some(recipe) = recipe else {
            self.unsure.insert(volume);
            return Ok(());
        };
        if self.walked.len() < WALKED_MAX {
            self.walked.insert(name);
        }
        let below = recipe.depth.saturating_sub(1);
        self.open.extend(recipe.pieces.iter().filter_map(|piece| match piece {
            Piece::Chunk { name, .. } => Some((*name, below)),
            Piece::Zeros { .. } => None,
        }));
        Ok(())
    }
}

fn root(contents: &Contents) -> Option<(ChunkName, u8)> {
    contents.root.map(|root| (root.name, root.depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_and_little_else() {
        let mut marks = Marks::new(10_000, [7; 32]);
        let name = |number: u32| [&[0; 24], &number.to_be_bytes()[..]].concat();
        (0..10_000).for_each(|number| marks.insert(&name(number)));
        assert!((0..10_000).all(|number| marks.has(&name(number))));
        let wrong = (10_000..110_000).filter(|number| marks.has(&name(*number))).count();
        assert!(wrong < 200, "{wrong} of 100,000");
    }
}
