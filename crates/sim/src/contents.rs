//! Contents that tell where they come from, and the list of all that were ever stored as a whole.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Every so many versions hold a long stretch of zeros.
const WITH_ZEROS_ONE_IN: u64 = 5;

/// `length` bytes that belong to `version` and to no other: they begin with its number.
pub fn stretch(version: u64, length: usize) -> Vec<u8> {
    let mut bytes = format!("<v{version}>").into_bytes();
    let mut state = version;
    while bytes.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend((state >> 24).to_le_bytes().iter().take(5));
    }
    bytes.truncate(length);
    if version.is_multiple_of(WITH_ZEROS_ONE_IN) {
        let (from, to) = (length / 4, length - length / 4);
        bytes[from..to].fill(0);
    }
    bytes
}

/// A few words about contents, for traces and failures.
pub fn describe(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned();
    format!("{} bytes {head:?}~{:04x}", bytes.len(), name(bytes) & 0xffff)
}

/// Names contents within one run.
pub fn name(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// All contents that some client stored as a whole: nothing else may ever be read.
#[derive(Default)]
pub struct Ledger(BTreeSet<u64>);

impl Ledger {
    pub fn enter(&mut self, bytes: &[u8]) {
        self.0.insert(name(bytes));
    }

    /// Empty contents are every new file's.
    pub fn knows(&self, bytes: &[u8]) -> bool {
        bytes.is_empty() || self.0.contains(&name(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_two_versions_differ_from_the_first_bytes_on() {
        assert_eq!(stretch(12, 100), stretch(12, 100));
        assert_ne!(stretch(12, 100)[..5], stretch(13, 100)[..5]);
        assert_eq!(stretch(7, 0), b"");
    }

    #[test]
    fn a_mixture_of_two_versions_is_not_in_the_ledger() {
        let (old, new) = (stretch(1, 64), stretch(2, 64));
        let mut ledger = Ledger::default();
        ledger.enter(&old);
        ledger.enter(&new);
        let half = [&old[..32], &new[32..]].concat();
        assert!(ledger.knows(&old) && ledger.knows(&new) && !ledger.knows(&half));
    }
}
