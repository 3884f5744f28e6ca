//! Which names there may be in an index, without a look into its table.
//! Holds: a name that is there has its fingerprint here.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The fingerprints of all names: a name whose fingerprint is missing is missing too. There are as
/// many as chunks, so each takes as little as can be.
#[derive(Default)]
pub struct Fingerprints {
    some: HashSet<u64>,
    /// Of those that more than one name has, how many more.
    more: HashMap<u64, u32>,
}

impl Fingerprints {
    pub fn has(&self, mark: u64) -> bool {
        self.some.contains(&mark)
    }

    pub fn add(&mut self, mark: u64) {
        if !self.some.insert(mark) {
            *self.more.entry(mark).or_default() += 1;
        }
    }

    pub fn take(&mut self, mark: u64) {
        match self.more.get_mut(&mark) {
            Some(1) => drop(self.more.remove(&mark)),
            Some(more) => *more -= 1,
            None => drop(self.some.remove(&mark)),
        }
    }
}

pub fn fingerprint(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_there_as_long_as_a_name_has_it() {
        let mut fingerprints = Fingerprints::default();
        (0..3).for_each(|_| fingerprints.add(7));
        fingerprints.add(8);
        for _ in 0..2 {
            fingerprints.take(7);
            assert!(fingerprints.has(7));
        }
        fingerprints.take(7);
        fingerprints.take(9);
        assert!(!fingerprints.has(7) && fingerprints.has(8));
        assert!(fingerprints.more.is_empty());
    }
}
