//! The gear rule: a chunk ends where the gear hash of its last 64 bytes is small.
//! From: DESIGN, "Contents".

use super::Sizes;
use gearhash::Hasher;

/// A byte's part in the hash is shifted out after so many more.
const WINDOW: usize = 64;

pub(super) struct Gear {
    sizes: Sizes,
    /// Zero bits that every hash up to `hash_max` has; what the fast search looks for.
    mask: u64,
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
        let mask = !(u64::MAX >> hash_max.leading_zeros());
        Gear { sizes, mask, hash_max, length: 0, hash: 0 }
    }

    pub(super) fn restart(&mut self) {
        self.length = 0;
        self.hash = 0;
    }

    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let Sizes { least, most, .. } = self.sizes;
        // What is no longer in the window when the first end is allowed has no part in any.
        let mut at = bytes.len().min((least - WINDOW).saturating_sub(self.length));
        let warm = bytes.len().min((least - 1).saturating_sub(self.length));
        let stop = bytes.len().min(most - self.length);

        let mut hasher = Hasher::default();
        hasher.set_hash(self.hash);
        hasher.update(&bytes[at..warm]);
        at = warm;
        while let Some(step) = hasher.next_match(&bytes[at..stop], self.mask) {
            at += step;
            if hasher.get_hash() <= self.hash_max {
                self.restart();
                return Some(at);
            }
        }
        self.hash = hasher.get_hash();
        self.length += stop;
        if self.length == most {
            self.restart();
            return Some(stop);
        }
        None
    }
}
