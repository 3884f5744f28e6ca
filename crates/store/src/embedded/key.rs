//! Keys of young rows.

use smallvec::SmallVec;

/// So long a key lies where it is compared, and not elsewhere in memory.
const BYTES: usize = 24;

/// Ordered as its bytes are. Most keys begin with the number of a file, and searching compares some
/// sixteen of them: as numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The first bytes, with zeros behind them if there are fewer.
    head: u64,
    bytes: SmallVec<[u8; BYTES]>,
}

impl Key {
    pub fn of(bytes: &[u8]) -> Key {
        Key { head: head_of(bytes), bytes: SmallVec::from_slice(bytes) }
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Key {
        Key { head: head_of(&bytes), bytes: SmallVec::from_vec(bytes) }
    }
}

fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; size_of::<u64>()];
    head[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Such as differ late, or only in their length.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let short = proptest::collection::vec(prop::sample::select(vec![0, 1, 0xff]), 0..12);
        let long = proptest::collection::vec(any::<u8>(), 0..40);
        (short, long).prop_map(|(short, long)| [short, long].concat())
    }

    proptest! {
        #[test]
        fn keys_are_ordered_as_their_bytes(one in bytes(), other in bytes(), cut in 0_usize..12) {
            let shorter = one[..cut.min(one.len())].to_vec();
            for (one, other) in [(&one, &other), (&one, &shorter), (&other, &shorter)] {
                let keys = (Key::of(one), Key::from(other.clone()));
                prop_assert_eq!(keys.0.cmp(&keys.1), one.cmp(other));
                prop_assert_eq!(keys.0 == keys.1, one == other);
                prop_assert_eq!(keys.0.as_slice(), one.as_slice());
            }
        }
    }
}
