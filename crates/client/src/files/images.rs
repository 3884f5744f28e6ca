//! What lay under the bytes that were written over since a version was stored: with it the
//! container still gives the version, as a base for the delta of the next one.
//! Holds: bounded in memory; what is not known any more is given up as a whole. A base is a guess,
//! so a wrong image costs a delta of which nothing comes.
//! From: before-images of database logs (Gray and Reuter, 1993).

use model::Stamp;
use std::collections::BTreeMap;

/// With more bytes under what was written, or more stretches, they are not kept.
const BYTES_MAX: usize = 2 << 20;
const STRETCHES_MAX: usize = 4096;

/// The bytes of a version that are not in its container any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub version: Stamp,
    pub size: u64,
    /// By offset, apart from each other.
    old: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Images {
    pub fn new(version: Stamp, size: u64) -> Images {
        Images { version, size, old: BTreeMap::new(), bytes: 0 }
    }

    /// The parts of a stretch whose old bytes are still in the container.
    pub fn lacking(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let (mut at, to) = (from, to.min(self.size));
        let mut lacking = Vec::new();
        for (start, end) in self.within(from, to) {
            if start > at {
                lacking.push((at, start));
            }
            at = at.max(end);
        }
        if at < to {
            lacking.push((at, to));
        }
        lacking
    }

    /// Old bytes that are about to be written over. False: they are too many.
    #[must_use]
    pub fn note(&mut self, offset: u64, bytes: &[u8]) -> bool {
        for (from, to) in self.lacking(offset, offset + bytes.len() as u64) {
            let old = &bytes[(from - offset) as usize..(to - offset) as usize];
            self.bytes += old.len();
            self.old.insert(from, old.to_vec());
        }
        self.bytes <= BYTES_MAX && self.old.len() <= STRETCHES_MAX
    }

    /// Makes of what the container has at `offset` what it had.
    pub fn restore(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for (from, to) in self.within(offset, end) {
            let (first, last) = (from.max(offset), to.min(end));
            let Some(old) = self.old.get(&from) else { continue };
            bytes[(first - offset) as usize..(last - offset) as usize]
                .copy_from_slice(&old[(first - from) as usize..(last - from) as usize]);
        }
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stretches that touch this one, (offset, end), in order.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.old.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let ends = self.old.range(first..to.max(first));
        let ends = ends.map(|(start, old)| (*start, start + old.len() as u64));
        ends.filter(move |(_, end)| *end > from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;
    use proptest::prelude::*;

    fn images(size: usize) -> Images {
        Images::new(Stamp::new(ReplicaId(1), 1), size as u64)
    }

    proptest! {
        #[test]
        fn prop_what_was_written_over_comes_back(
            old in proptest::collection::vec(any::<u8>(), 1..200),
            writes in proptest::collection::vec((0..220usize, 0..40usize, any::<u8>()), 0..30),
            (from, length) in (0..200usize, 0..60usize),
        ) {
            let mut images = images(old.len());
            let mut now = old.clone();
            for (offset, length, byte) in writes {
                let end = offset + length;
                let known = end.min(now.len()).max(offset.min(now.len()));
                let start = offset.min(known);
                prop_assert!(images.note(start as u64, &now[start..known]));
                now.resize(now.len().max(end), 0);
                now[offset..end].fill(byte);
            }
            let from = from.min(old.len());
            let to = (from + length).min(old.len());
            let mut found = now[from..to].to_vec();
            images.restore(from as u64, &mut found);
            prop_assert_eq!(&found[..], &old[from..to]);
            prop_assert!(images.bytes() <= old.len());
        }
    }

    #[test]
    fn what_is_too_much_is_said() {
        let mut images = images(BYTES_MAX + 2);
        assert!(images.note(0, &vec![0; BYTES_MAX]));
        assert!(images.note(0, &vec![1; BYTES_MAX]), "known already");
        assert!(!images.note(BYTES_MAX as u64 + 1, &[0]));
    }
}
