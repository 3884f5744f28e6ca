//! The names of many chunks at once: leaves of BLAKE3's tree from different chunks side by side in
//! one vector, which a chunk of the usual size does not fill by itself.
//! Holds: what comes out is `blake3::keyed_hash` of every chunk.

use blake3::platform::{Platform, le_bytes_from_words_32, words_from_le_bytes_32};
use blake3::{BLOCK_LEN, CHUNK_LEN, IncrementCounter, OUT_LEN};
use std::cmp::Reverse;

// Flags of BLAKE3.
const LEAF_START: u8 = 1;
const LEAF_END: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;
const KEYED: u8 = 16;

/// A chunk of so many bytes fills the vectors by itself.
const TOGETHER_BYTES_MAX: usize = 32 * CHUNK_LEN;
/// Fewer inputs are hashed one by one: a vector takes as long, however few it holds.
const TOGETHER_MIN: usize = 3;
/// As many inputs as the widest vectors hold.
const LANES_MAX: usize = 16;

pub(super) type Hash = [u8; OUT_LEN];

/// The keyed hashes of these chunks, in their order.
pub(super) fn hashes(key: &[u8; 32], chunks: &[&[u8]]) -> Vec<Hash> {
    let mut done = vec![[0; OUT_LEN]; chunks.len()];
    let mut trees = Vec::new();
    for (place, bytes) in chunks.iter().enumerate() {
        if bytes.len() > CHUNK_LEN && bytes.len() < TOGETHER_BYTES_MAX {
            trees.push(Tree { place, bytes, hashes: Vec::with_capacity(LANES_MAX) });
        } else {
            done[place] = *blake3::keyed_hash(key, bytes).as_bytes();
        }
    }
    if trees.len() < TOGETHER_MIN {
        for Tree { place, bytes, .. } in trees {
            done[place] = *blake3::keyed_hash(key, bytes).as_bytes();
        }
        return done;
    }
    // Whoever has a leaf of some number is in front of those who have none.
    trees.sort_by_key(|tree| Reverse(tree.bytes.len()));
    let side = Side { platform: Platform::detect(), key: words_from_le_bytes_32(key) };
    side.hash_leaves(&mut trees);
    side.hash_parents(&mut trees);
    for tree in trees {
        done[tree.place] = tree.hashes[0];
    }
    done
}

/// A chunk of two leaves or more, on its way to one hash.
struct Tree<'c> {
    /// Its place among the chunks.
    place: usize,
    bytes: &'c [u8],
    /// Of the leaves; then of the parents, level by level.
    hashes: Vec<Hash>,
}

impl<'c> Tree<'c> {
    fn whole_leaves(&self) -> &'c [[u8; CHUNK_LEN]] {
        self.bytes.as_chunks().0
    }

    fn leaf(&self, number: usize) -> &'c [u8; CHUNK_LEN] {
        &self.whole_leaves()[number]
    }
}

/// What hashes inputs side by side.
struct Side {
    platform: Platform,
    key: [u32; 8],
}

impl Side {
    fn hash_leaves(&self, trees: &mut [Tree<'_>]) {
        for number in 0..TOGETHER_BYTES_MAX / CHUNK_LEN {
            let have = trees.partition_point(|tree| tree.whole_leaves().len() > number);
            if have == 0 {
                break;
            }
            let counter = number as u64;
            let lanes = Lanes { counter, flags: KEYED, start: LEAF_START, end: LEAF_END };
            for some in trees[..have].chunks_mut(LANES_MAX) {
                let leaves = some.iter().map(|tree| tree.leaf(number));
                let hashes = self.hash(leaves, &lanes);
                some.iter_mut().zip(hashes).for_each(|(tree, hash)| tree.hashes.push(hash));
            }
        }
        for tree in trees {
            let rest = tree.bytes.as_chunks::<CHUNK_LEN>().1;
            if !rest.is_empty() {
                tree.hashes.push(self.hash_last_leaf(rest, tree.hashes.len() as u64));
            }
        }
    }

    /// A leaf that is not full.
    fn hash_last_leaf(&self, bytes: &[u8], number: u64) -> Hash {
        let mut hash = self.key;
        let blocks = bytes.len().div_ceil(BLOCK_LEN);
        for (at, some) in bytes.chunks(BLOCK_LEN).enumerate() {
            let mut block = [0; BLOCK_LEN];
            block[..some.len()].copy_from_slice(some);
            let start = if at == 0 { LEAF_START } else { 0 };
            let end = if at + 1 == blocks { LEAF_END } else { 0 };
            let flags = KEYED | start | end;
            self.platform.compress_in_place(&mut hash, &block, some.len() as u8, number, flags);
        }
        le_bytes_from_words_32(&hash)
    }

    /// Until each tree has one hash.
    fn hash_parents(&self, trees: &mut [Tree<'_>]) {
        // Each level halves them.
        while trees.iter().any(|tree| tree.hashes.len() > 1) {
            let mut above = self.hash_pairs(trees, KEYED | PARENT, |tree| tree.hashes.len() > 2);
            let mut roots =
                self.hash_pairs(trees, KEYED | PARENT | ROOT, |tree| tree.hashes.len() == 2);
            for tree in trees.iter_mut().filter(|tree| tree.hashes.len() > 1) {
                // The last goes up as it is if it has no neighbour.
                let (pairs, odd) = tree.hashes.as_chunks::<2>();
                let (pairs, odd) = (pairs.len(), odd.first().copied());
                let from = if tree.hashes.len() == 2 { &mut roots } else { &mut above };
                tree.hashes.clear();
                tree.hashes.extend(from.take(pairs).chain(odd));
            }
        }
    }

    /// The parents of all pairs of these trees.
    fn hash_pairs(
        &self,
        trees: &[Tree<'_>],
        flags: u8,
        of: impl Fn(&Tree<'_>) -> bool,
    ) -> std::vec::IntoIter<Hash> {
        let pairs = trees.iter().filter(|tree| of(tree)).flat_map(|tree| tree.hashes.as_chunks().0);
        let blocks: Vec<[u8; BLOCK_LEN]> = pairs.map(join).collect();
        let lanes = Lanes { counter: 0, flags, start: 0, end: 0 };
        let mut hashes = Vec::with_capacity(blocks.len());
        for some in blocks.chunks(LANES_MAX) {
            hashes.extend_from_slice(&self.hash(some.iter(), &lanes)[..some.len()]);
        }
        hashes.into_iter()
    }

    /// Of at most as many inputs as there are lanes: their hashes come first.
    fn hash<'i, const N: usize>(
        &self,
        inputs: impl ExactSizeIterator<Item = &'i [u8; N]>,
        lanes: &Lanes,
    ) -> [Hash; LANES_MAX] {
        let count = inputs.len();
        let mut side: [&[u8; N]; LANES_MAX] = [&[0; N]; LANES_MAX];
        side.iter_mut().zip(inputs).for_each(|(place, input)| *place = input);
        let width = self.platform.simd_degree();
        // What is hashed for nothing takes no time: one by one, a few would take longer.
        let rounded = count % width >= TOGETHER_MIN;
        let filled = if rounded { count.next_multiple_of(width) } else { count };
        let mut out = [[0; OUT_LEN]; LANES_MAX];
        self.platform.hash_many(
            &side[..filled.min(LANES_MAX)],
            &self.key,
            lanes.counter,
            IncrementCounter::No,
            lanes.flags,
            lanes.start,
            lanes.end,
            out.as_flattened_mut(),
        );
        out
    }
}

/// What is the same for all inputs that are hashed side by side.
struct Lanes {
    counter: u64,
    flags: u8,
    start: u8,
    end: u8,
}

fn join([left, right]: &[Hash; 2]) -> [u8; BLOCK_LEN] {
    let mut block = [0; BLOCK_LEN];
    block[..OUT_LEN].copy_from_slice(left);
    block[OUT_LEN..].copy_from_slice(right);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(lengths: &[usize]) {
        let most = lengths.iter().max().map_or(0, |most| *most);
        let mut bytes = vec![0; most + lengths.len()];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        // No two have the same bytes.
        let chunks: Vec<&[u8]> =
            lengths.iter().enumerate().map(|(at, length)| &bytes[at..at + length]).collect();
        let key = [9; 32];
        let expected: Vec<Hash> =
            chunks.iter().map(|chunk| *blake3::keyed_hash(&key, chunk).as_bytes()).collect();
        assert_eq!(hashes(&key, &chunks), expected, "{lengths:?}");
    }

    #[test]
    fn as_many_of_every_length_are_named_as_by_themselves() {
        let lengths = [
            0, 1, 63, 64, 65, 1023, 1024, 1025, 1088, 2047, 2048, 2049, 3072, 4096, 5000, 7168,
            16_384, 31_744, 32_767, 32_768, 65_536, 100_000,
        ];
        for length in lengths {
            for count in [1, 2, 3, 4, 15, 16, 17, 19, 33] {
                check(&vec![length; count]);
            }
        }
        check(&lengths);
        check(&[]);
    }

    proptest! {
        #[test]
        fn prop_many_are_named_as_each_by_itself(lengths in prop::collection::vec(0..40_000usize, 0..50)) {
            check(&lengths);
        }
    }
}
