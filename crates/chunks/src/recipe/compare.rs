//! Where two contents may differ, from their recipes alone.
//! Holds: what is outside of the stretches that are given is the same in both; a branch that both
//! have at the same offset is not fetched.

use super::DEPTH_MAX;
use super::walk::{Placed, checked, root};
use crate::error::{ChunksError, Result};
use crate::fingerprint::Secret;
use model::{ChunkName, Contents, Piece};
use std::ops::Range;
use store::StoreError;

/// The stretches in which two contents may differ, in order and apart from each other; of the longer
/// one, what is beyond the end of the other is one of them. None: a recipe chunk is not at hand, or
/// it takes more than `fetches_max` of them. Errors: `BadRecipe`, `WrongBytes`, and what `fetch` gives.
pub fn differing(
    secret: &Secret,
    (one, other): (&Contents, &Contents),
    fetches_max: usize,
    fetch: impl FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<Option<Vec<Range<u64>>>> {
    let mut compare = Compare { secret, fetch, fetches: fetches_max, found: Vec::new() };
    let (mut one, mut other) = (Side::new(one)?, Side::new(other)?);
    loop {
        let step = match (one.next(), other.next()) {
            (None, None) => break,
            (Some((left, _)), None) => Step::Rest(left.offset, one.size),
            (None, Some((left, _))) => Step::Rest(left.offset, other.size),
            (Some(left), Some(right)) => step(left, right),
        };
        let open = match step {
            Step::Rest(from, to) => {
                compare.note(from..to);
                break;
            }
            Step::Same => {
                one.open.pop();
                other.open.pop();
                continue;
            }
            Step::Past { stretch, first } => {
                stretch.into_iter().for_each(|stretch| compare.note(stretch));
                if first.is_le() {
                    one.open.pop();
                }
                if first.is_ge() {
                    other.open.pop();
                }
                continue;
            }
            Step::Open(which) => which,
        };
        let is_opened =
            (!open.0 || compare.open(&mut one)?) && (!open.1 || compare.open(&mut other)?);
        if !is_opened {
            return Ok(None);
        }
    }
    Ok(Some(compare.found))
}

/// What hangs at an offset, and how deep it is.
type Node = (Placed, u8);

/// What is to be done about what comes next in both.
enum Step {
    /// Nothing comes in one of them.
    Rest(u64, u64),
    Same,
    /// Both are data; `first` ends first.
    Past {
        stretch: Option<Range<u64>>,
        first: std::cmp::Ordering,
    },
    /// Of one, or of both, it is looked at what hangs below.
    Open((bool, bool)),
}

fn step((left, left_depth): Node, (right, right_depth): Node) -> Step {
    if (left, left_depth) == (right, right_depth) {
        return Step::Same;
    }
    if left_depth.max(right_depth) > 0 {
        return Step::Open((left_depth >= right_depth, right_depth >= left_depth));
    }
    let both_are_zeros =
        matches!((left.piece, right.piece), (Piece::Zeros { .. }, Piece::Zeros { .. }));
    let stretch = left.offset.max(right.offset)..left.end().min(right.end());
    Step::Past {
        stretch: (!both_are_zeros).then_some(stretch),
        first: left.end().cmp(&right.end()),
    }
}

/// What is left of one of the two, the next last.
struct Side {
    open: Vec<Node>,
    size: u64,
}

impl Side {
    fn new(contents: &Contents) -> Result<Side> {
        let root = root(contents)?.map(|(piece, depth)| (Placed { offset: 0, piece }, depth));
        Ok(Side { open: root.into_iter().collect(), size: contents.size })
    }

    fn next(&self) -> Option<Node> {
        self.open.last().copied()
    }
}

struct Compare<'a, F> {
    secret: &'a Secret,
    fetch: F,
    /// So many recipe chunks may still be fetched.
    fetches: usize,
    found: Vec<Range<u64>>,
}

impl<F: FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>> Compare<'_, F> {
    fn note(&mut self, stretch: Range<u64>) {
        match self.found.last_mut().filter(|last| last.end >= stretch.start) {
            Some(last) => last.end = last.end.max(stretch.end),
            None => self.found.push(stretch),
        }
    }

    /// Puts what hangs below what comes next in its place. False: it cannot be had.
    fn open(&mut self, side: &mut Side) -> Result<bool> {
        let Some((placed, depth)) = side.open.pop() else { return Ok(true) };
        let Piece::Chunk { name, length } = placed.piece else {
            return Err(ChunksError::BadRecipe(format!("zeros of depth {depth}, of {DEPTH_MAX}")));
        };
        if self.fetches == 0 {
            return Ok(false);
        }
        self.fetches -= 1;
        let Some(bytes) = (self.fetch)(&name)? else { return Ok(false) };
        let recipe = checked(self.secret, &name, length, depth, &bytes)?;
        let mut end = placed.end();
        for piece in recipe.pieces.into_iter().rev() {
            end -= piece.length();
            // Zeros hang above the chunks of their depth, and are what they are.
            let is_zeros = matches!(piece, Piece::Zeros { .. });
            side.open.push((Placed { offset: end, piece }, if is_zeros { 0 } else { depth - 1 }));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{describe_bytes, recipe::Tree};
    use proptest::prelude::*;
    use protocol::Cutter;
    use std::collections::BTreeMap;

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    fn tree(bytes: &[u8]) -> Tree {
        describe_bytes(&secret(), Cutter::Gear, bytes).tree
    }

    fn compared(one: &Tree, other: &Tree, fetches_max: usize) -> (Option<Vec<Range<u64>>>, usize) {
        let chunks: BTreeMap<ChunkName, Vec<u8>> =
            one.chunks.iter().chain(&other.chunks).cloned().collect();
        let mut fetched = 0;
        let found = differing(&secret(), (&one.contents, &other.contents), fetches_max, |name| {
            fetched += 1;
            Ok(chunks.get(name).cloned())
        });
        (found.expect("these are recipes"), fetched)
    }

    #[test]
    fn of_what_is_the_same_nothing_is_fetched_and_of_what_is_not_a_branch() {
        let mut bytes = noise(1, 12 << 20);
        let before = tree(&bytes);
        assert_eq!(compared(&before, &before, 0), (Some(Vec::new()), 0));
        bytes[5 << 20] ^= 1;
        let after = tree(&bytes);
        let (found, fetched) = compared(&before, &after, 1000);
        let [range] = &found.expect("all is at hand")[..] else { panic!("one stretch differs") };
        assert!(range.contains(&(5 << 20)) && range.end - range.start < 400_000, "{range:?}");
        assert!(fetched < before.chunks.len(), "{fetched} of {}", before.chunks.len());
        assert_eq!(compared(&before, &after, 1).0, None);
    }

    #[test]
    fn what_is_beyond_the_end_of_one_differs() {
        let bytes = noise(2, 3_000_000);
        for length in [0, 1, 40_000, 2_999_999] {
            let (short, long) = (tree(&bytes[..length]), tree(&bytes));
            for (one, other) in [(&short, &long), (&long, &short)] {
                let found = compared(one, other, 1000).0.expect("all is at hand");
                assert_eq!(found.last().map(|range| range.end), Some(3_000_000));
                assert!(found[0].start <= length as u64, "{found:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn prop_outside_of_the_stretches_all_is_the_same(
            seed in 0..4u64,
            length in 0..3_000_000usize,
            holes in prop::collection::vec((0..3_000_000usize, 0..400_000usize), 0..3),
            writes in prop::collection::vec((0..3_000_000usize, 0..9_000usize), 0..4),
            cut in prop::option::of(0..3_000_000usize),
        ) {
            let mut one = noise(seed, length);
            for (at, zeros) in holes {
                let (from, to) = (at.min(length), (at + zeros).min(length));
                one[from..to].fill(0);
            }
            let mut other = one.clone();
            for (at, written) in writes {
                let at = at.min(other.len());
                if other.len() < at + written {
                    other.resize(at + written, 0);
                }
                other[at..at + written].copy_from_slice(&noise(99, written));
            }
            if let Some(cut) = cut {
                other.truncate(cut);
            }
            let found = compared(&tree(&one), &tree(&other), usize::MAX).0.expect("all is at hand");
            prop_assert!(found.windows(2).all(|two| two[0].end < two[1].start));
            let longer = one.len().max(other.len());
            let mut at = 0;
            let end = std::iter::once(longer as u64..longer as u64);
            for range in found.iter().cloned().chain(end) {
                let (from, to) = (at, range.start as usize);
                prop_assert!(to <= one.len().min(other.len()) || from >= to);
                prop_assert!(from >= to || one[from..to] == other[from..to]);
                at = range.end as usize;
            }
        }
    }
}
