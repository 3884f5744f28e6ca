//! What contents look like, in a few names: contents that have most in common share one. Noted in
//! the chunk index beside the chunks, they lead to a file that is like another one under a new
//! name, where not one chunk is the same.
//! A compressed container looks like what it holds: packed, the same words are other bytes.
//! Holds: the same contents have the same features, however they were read. A feature is a hint: a
//! base that was chosen badly costs bytes, and nothing else.
//! From: Broder, "On the resemblance and containment of documents", one permutation; pairs of
//! least fingerprints as in his "Identifying and filtering near-duplicate documents".

use crate::delta::{is_packed, plain_of};
use crate::fingerprint::Secret;
use gearhash::Hasher;
use model::ChunkName;

/// Features of one file. With three quarters of all windows in common, two files share one or more
/// nineteen times in twenty; with a tenth, once in twenty-five times.
pub const FEATURES: usize = 4;

/// Smallest fingerprints, each of its own share of all fingerprints. Two make a feature.
const LEAST: usize = 2 * FEATURES;

/// One window of 64 bytes in 32 is looked at: where these bits of its hash are zeros.
const LOOKED_AT: u64 = 0xf800_0000_0000_0000;

/// Spreads the bits of a hash; any odd number without a pattern would do.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the names of features are made of begins so.
const PREFIX: &[u8] = b"alike";

/// Contents being looked at, bit by bit.
struct Sketching {
    windows: Hasher<'static>,
    least: [Option<u32>; LEAST],
}

impl Default for Sketching {
    fn default() -> Sketching {
        Sketching { windows: Hasher::default(), least: [None; LEAST] }
    }
}

impl Sketching {
    fn push(&mut self, some: &[u8]) {
        let mut rest = some;
        while let Some(end) = self.windows.next_match(rest, LOOKED_AT) {
            let spread = self.windows.get_hash().wrapping_mul(SPREAD);
            let (share, value) =
                ((spread >> 32) as usize % LEAST, spread as u32 ^ (spread >> 40) as u32);
            let least = &mut self.least[share];
            *least = Some(least.map_or(value, |least| least.min(value)));
            rest = &rest[end..];
        }
    }

    /// At most `FEATURES` names, fewer of contents that are too small to have all.
    fn finish(self, secret: &Secret) -> Vec<ChunkName> {
        let pairs = self.least.as_chunks::<2>().0.iter().zip(0u8..);
        let name = |(pair, place): (&[Option<u32>; 2], u8)| {
            let [Some(one), Some(other)] = *pair else { return None };
            let numbers = [one.to_be_bytes(), other.to_be_bytes()].concat();
            Some(secret.name(&[PREFIX, &[place], &numbers].concat()))
        };
        pairs.filter_map(name).collect()
    }
}

/// What is unpacked of a container to be looked at, at most.
const PLAIN_BYTES_MAX: usize = 8 << 20;

/// A file being looked at, from its beginning.
#[derive(Default)]
pub struct Looking {
    sketching: Sketching,
    has_begun: bool,
    /// All of it so far, if it begins as a compressed container does.
    packed: Option<Vec<u8>>,
}

impl Looking {
    pub fn push(&mut self, some: &[u8]) {
        if !std::mem::replace(&mut self.has_begun, true) && is_packed(some) {
            self.packed = Some(Vec::new());
        }
        match &mut self.packed {
            Some(packed) => packed.extend_from_slice(some),
            None => self.sketching.push(some),
        }
    }

    pub fn push_zeros(&mut self, zeros: u64) {
        self.has_begun = true;
        if let Some(packed) = &mut self.packed {
            packed.extend(std::iter::repeat_n(0, usize::try_from(zeros).unwrap_or(usize::MAX)));
        }
    }

    pub fn finish(self, secret: &Secret) -> Vec<ChunkName> {
        let Looking { mut sketching, packed, .. } = self;
        if let Some(packed) = packed {
            sketching.push(plain_of(&packed, PLAIN_BYTES_MAX).as_ref().unwrap_or(&packed));
        }
        sketching.finish(secret)
    }
}

/// The features of contents that are in memory.
pub fn features(secret: &Secret, contents: &[u8]) -> Vec<ChunkName> {
    let mut looking = Looking::default();
    looking.push(contents);
    looking.finish(secret)
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

    fn of(contents: &[u8]) -> Vec<ChunkName> {
        features(&Secret::new([7; 32]), contents)
    }

    fn shared(one: &[u8], other: &[u8]) -> usize {
        let others = of(other);
        of(one).iter().filter(|feature| others.contains(feature)).count()
    }

    #[test]
    fn the_layout_is_pinned() {
        let names: Vec<String> = of(&noise(1, 5000)).iter().map(ToString::to_string).collect();
        assert_eq!(names.join(" "), GOLDEN);
    }

    const GOLDEN: &str = "c57cf48746abc90a 7d510df0ddd173af 80274229d80093fe 7874ea2215a7b5cc";

    #[test]
    fn what_is_packed_looks_like_what_it_holds() {
        let text: String =
            (0..20_000).map(|line| format!("{} is what line {line} says\n", line * line)).collect();
        let packed = |level| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        for level in [1, 9] {
            assert_eq!(of(&packed(level)), of(text.as_bytes()));
        }
        // What only begins so looks like itself, in how many parts it may come.
        let torn = &packed(6)[..packed(6).len() / 2];
        let false_start = [&packed(6)[..10], &noise(1, 50_000)].concat();
        for file in [torn, &false_start] {
            let mut looking = Looking::default();
            file.chunks(1000).for_each(|some| looking.push(some));
            assert_eq!(looking.finish(&Secret::new([7; 32])), of(file));
            assert_ne!(of(file), []);
        }
    }

    #[test]
    fn what_is_too_small_has_no_features() {
        assert_eq!(of(b"one"), []);
        assert_eq!(of(b""), []);
    }

    #[test]
    fn a_small_text_and_its_next_version_share_one() {
        let mut old = String::new();
        for line in 0..60 {
            old += &format!("{line}: the quick brown fox meets {} lazy dogs\n", line * line);
        }
        let new = old.replace("31: the quick", "31: the slow");
        assert!(old.len() < 4096 && old != new);
        assert!(shared(old.as_bytes(), new.as_bytes()) > 0);
    }

    #[test]
    fn of_many_the_one_that_is_alike_shares_one() {
        let mut edited = noise(17, 30_000);
        edited.splice(12_000..13_000, noise(99, 2000));
        let alike: Vec<u32> = (0..50).filter(|n| shared(&noise(*n, 30_000), &edited) > 0).collect();
        assert_eq!(alike, [17]);
    }

    proptest! {
        #[test]
        fn prop_the_same_contents_have_the_same(seed: u32, length in 0..20_000usize, some in 1..999usize) {
            let bytes = noise(seed, length);
            let mut sketching = Sketching::default();
            bytes.chunks(some).for_each(|some| sketching.push(some));
            prop_assert_eq!(sketching.finish(&Secret::new([7; 32])), of(&bytes));
        }

        #[test]
        fn prop_edited_contents_share_one(seed: u32, at in 0..60_000usize, length in 0..100usize) {
            let bytes = noise(seed, 60_000);
            let mut edited = bytes.clone();
            edited.splice(at..at, noise(seed ^ 1, length));
            prop_assert!(shared(&bytes, &edited) > 0);
        }

        #[test]
        fn prop_others_share_none(seed: u32) {
            prop_assert_eq!(shared(&noise(seed, 60_000), &noise(seed ^ 1, 60_000)), 0);
        }
    }
}
