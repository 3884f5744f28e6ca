//! Versions of the protocol: what both sides speak is agreed upon before anything else is said.

use minicbor::{Decode, Encode};

/// A version of the protocol.
pub type Version = u16;
/// The oldest version that this program speaks.
pub const VERSION_MIN: Version = 1;
/// The newest version that this program speaks.
pub const VERSION_MAX: Version = 1;

/// The versions that one side speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Versions {
    #[n(0)]
    pub min: Version,
    #[n(1)]
    pub max: Version,
}

impl Versions {
    pub const OURS: Versions = Versions { min: VERSION_MIN, max: VERSION_MAX };

    /// The newest version that both sides speak.
    pub fn agree(self, theirs: Versions) -> Option<Version> {
        let version = self.max.min(theirs.max);
        (version >= self.min.max(theirs.min)).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken_or_none() {
        let old = Versions { min: 1, max: 3 };
        assert_eq!(old.agree(Versions { min: 2, max: 9 }), Some(3));
        assert_eq!(Versions { min: 2, max: 9 }.agree(old), Some(3));
        assert_eq!(old.agree(Versions { min: 4, max: 9 }), None);
    }
}
