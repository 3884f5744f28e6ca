//! The gear rule: a chunk ends where the gear hash of its last 64 bytes is small.
//! From: DESIGN, "Contents".

use super::Sizes;
use gearhash::DEFAULT_TABLE;

/// A byte's part in the hash is shifted out after so many more.
const WINDOW: usize = 64;

pub(super) struct Gear {
    sizes: Sizes,
    /// A chunk may end where the hash is at most this.
    hash_max: u64,
    /// Bytes of the present chunk so far.
    length: usize,
    hash: u64,
}

impl Gear {
    pub(super) fn new(sizes: Sizes) -> Gear {
        // No chunk ends in its first `least` bytes, so the ends must come that much more often
        // afterwards for the average to be right.
        let hash_max = u64::MAX / (sizes.average - sizes.least) as u64;
        Gear { sizes, hash_max, length: 0, hash: 0 }
    }

    pub(super) fn restart(&mut self) {
        self.length = 0;
        self.hash = 0;
    }

    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let Sizes { least, most, .. } = self.sizes;
        // What is no longer in the window when the first end is allowed has no part in any.
        let blind = bytes.len().min((least - WINDOW).saturating_sub(self.length));
        let warm = bytes.len().min((least - 1).saturating_sub(self.length));
        let stop = bytes.len().min(most - self.length);

        let hash = bytes[blind..warm].iter().fold(self.hash, add);
        match search(hash, &bytes[warm..stop], self.hash_max) {
            Searched::Found(length) => {
                self.restart();
                return Some(warm + length);
            }
            Searched::Hash(hash) => self.hash = hash,
        }
        self.length += stop;
        if self.length == most {
            self.restart();
            return Some(stop);
        }
        None
    }
}

/// The hash of what has this hash, followed by `byte`.
fn add(hash: u64, byte: &u8) -> u64 {
    (hash << 1).wrapping_add(DEFAULT_TABLE[usize::from(*byte)])
}

enum Searched {
    /// So many bytes on, the hash is small enough.
    Found(usize),
    /// It was nowhere, and this is the last.
    Hash(u64),
}

/// How many bytes a step of the search takes.
const STEP: usize = 8;

fn search(mut hash: u64, bytes: &[u8], hash_max: u64) -> Searched {
    // Written out in steps of a known size the loop costs nothing but the hash and its test, which
    // is twice as fast as to search with vectors.
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for (number, step) in steps.iter().enumerate() {
        for (at, byte) in step.iter().enumerate() {
            hash = add(hash, byte);
            if hash <= hash_max {
                return Searched::Found(number * STEP + at + 1);
            }
        }
    }
    for (at, byte) in rest.iter().enumerate() {
        hash = add(hash, byte);
        if hash <= hash_max {
            return Searched::Found(steps.len() * STEP + at + 1);
        }
    }
    Searched::Hash(hash)
}
