//! What contents look like, in a few bytes: by comparing two sketches one sees how much two files
//! have in common, without either at hand. So a client finds, for a file with a new name, the most
//! similar one that the receiver has.
//! Holds: the same contents have the same sketch, however they were read. A sketch is a hint: a
//! base that was chosen badly costs bytes, and nothing else.
//! From: Broder, "On the resemblance and containment of documents", one permutation.

use gearhash::Hasher;

/// Smallest fingerprints kept, each of its own share of all fingerprints.
const LEAST: usize = 14;

/// Bytes of a sketch that is written down.
pub const SKETCH_BYTES: usize = 8 + 4 * LEAST;

/// One window of 64 bytes in 32 is looked at: where these bits of its hash are zeros.
const LOOKED_AT: u64 = 0xf800_0000_0000_0000;

/// Spreads the bits of a hash; any odd number without a pattern would do.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Stands for "there was none".
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// Of all the bytes, for contents too small to have anything else.
    whole: u64,
    least: [u32; LEAST],
}

impl Sketch {
    pub fn of(contents: &[u8]) -> Sketch {
        let mut sketching = Sketching::default();
        sketching.push(contents);
        sketching.finish()
    }

    pub fn to_bytes(&self) -> [u8; SKETCH_BYTES] {
        let mut bytes = [0; SKETCH_BYTES];
        bytes[..8].copy_from_slice(&self.whole.to_be_bytes());
        for (place, least) in bytes[8..].as_chunks_mut().0.iter_mut().zip(self.least) {
            *place = least.to_be_bytes();
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; SKETCH_BYTES]) -> Sketch {
        let mut sketch = Sketch { whole: 0, least: [NONE; LEAST] };
        if let Some(whole) = bytes.first_chunk() {
            sketch.whole = u64::from_be_bytes(*whole);
        }
        for (least, place) in sketch.least.iter_mut().zip(bytes[8..].as_chunks().0) {
            *least = u32::from_be_bytes(*place);
        }
        sketch
    }
}

/// How much of all that two contents have is in both, from 0 to 1: an estimate.
pub fn similarity(one: &Sketch, other: &Sketch) -> f64 {
    if one.whole == other.whole {
        return 1.0;
    }
    let pairs = || one.least.iter().zip(&other.least).filter(|(a, b)| (**a, **b) != (NONE, NONE));
    let same = pairs().filter(|(a, b)| a == b).count();
    same as f64 / pairs().count().max(1) as f64
}

/// Sketches contents that come bit by bit.
pub struct Sketching {
    whole: blake3::Hasher,
    windows: Hasher<'static>,
    least: [u32; LEAST],
}

impl Default for Sketching {
    fn default() -> Sketching {
        Sketching { whole: blake3::Hasher::new(), windows: Hasher::default(), least: [NONE; LEAST] }
    }
}

impl Sketching {
    pub fn push(&mut self, some: &[u8]) {
        self.whole.update(some);
        let mut rest = some;
        while let Some(end) = self.windows.next_match(rest, LOOKED_AT) {
            let spread = self.windows.get_hash().wrapping_mul(SPREAD);
            let (share, value) =
                ((spread >> 32) as usize % LEAST, spread as u32 ^ (spread >> 40) as u32);
            self.least[share] = self.least[share].min(value);
            rest = &rest[end..];
        }
    }

    pub fn finish(self) -> Sketch {
        let hash = self.whole.finalize();
        let whole = hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        Sketch { whole, least: self.least }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(seed: u32, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn the_layout_is_pinned() {
        let sketch = Sketch::of(&noise(1, 5000));
        let bytes = sketch.to_bytes();
        assert_eq!(Sketch::from_bytes(&bytes), sketch);
        let hash = blake3::hash(&noise(1, 5000));
        assert_eq!(bytes[..8], hash.as_bytes()[..8]);
        assert_eq!(blake3::hash(&bytes).to_hex()[..16], *GOLDEN);
    }

    const GOLDEN: &str = "90564596b6e98d83";

    #[test]
    fn small_contents_are_told_apart() {
        let (one, other) = (Sketch::of(b"one"), Sketch::of(b"other"));
        assert_eq!(similarity(&one, &one), 1.0);
        assert_eq!(similarity(&one, &other), 0.0);
        assert_eq!(similarity(&one, &Sketch::of(b"")), 0.0);
    }

    #[test]
    fn one_of_many_that_is_alike_is_found() {
        let sketches: Vec<Sketch> = (0..50).map(|n| Sketch::of(&noise(n, 30_000))).collect();
        let mut edited = noise(17, 30_000);
        edited.splice(12_000..13_000, noise(99, 2000));
        let edited = Sketch::of(&edited);
        let best = (0..50).max_by(|a, b| {
            similarity(&sketches[*a], &edited).total_cmp(&similarity(&sketches[*b], &edited))
        });
        assert_eq!(best, Some(17));
    }

    proptest! {
        #[test]
        fn prop_the_same_contents_are_the_same(seed: u32, length in 0..20_000usize, some in 1..999usize) {
            let bytes = noise(seed, length);
            let mut sketching = Sketching::default();
            bytes.chunks(some).for_each(|some| sketching.push(some));
            let sketch = sketching.finish();
            prop_assert_eq!(sketch, Sketch::of(&bytes));
            prop_assert_eq!(similarity(&sketch, &Sketch::of(&bytes)), 1.0);
        }

        #[test]
        fn prop_edited_contents_are_alike(seed: u32, at in 0..60_000usize, length in 0..300usize) {
            let bytes = noise(seed, 60_000);
            let mut edited = bytes.clone();
            edited.splice(at..at, noise(seed ^ 1, length));
            let alike = similarity(&Sketch::of(&bytes), &Sketch::of(&edited));
            prop_assert!(alike > 0.7, "{alike}");
        }

        #[test]
        fn prop_others_are_not(seed: u32) {
            let (one, other) = (noise(seed, 60_000), noise(seed ^ 1, 60_000));
            let alike = similarity(&Sketch::of(&one), &Sketch::of(&other));
            prop_assert!(alike < 0.2, "{alike}");
        }
    }
}
