//! The names of chunks: BLAKE3 keyed with the volume's secret, cut to 192 bits.
//! Holds: a name means nothing without the secret, and two chunks of a volume never share one.
//! From: LBFS, "Avoiding redundant data transfers"; DESIGN, "Contents".

use crate::error::{ChunksError, Result};
use model::{CHUNK_NAME_BYTES, ChunkName};
use std::fmt;

/// The key under which a volume's chunks are named.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn new(key: [u8; 32]) -> Secret {
        Secret(key)
    }

    /// The name of the chunk that consists of these bytes.
    pub fn name(&self, bytes: &[u8]) -> ChunkName {
        let hash = blake3::keyed_hash(&self.0, bytes);
        let mut name = [0; CHUNK_NAME_BYTES];
        name.copy_from_slice(&hash.as_bytes()[..CHUNK_NAME_BYTES]);
        ChunkName(name)
    }

    /// Errors: `WrongBytes`, if the bytes are not those of the chunk.
    pub fn check(&self, name: &ChunkName, bytes: &[u8]) -> Result<()> {
        if self.name(bytes) == *name { Ok(()) } else { Err(ChunksError::WrongBytes(*name)) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_pinned_by_the_format() {
        let name = Secret::new([7; 32]).name(b"hello");
        let whole = blake3::keyed_hash(&[7; 32], b"hello");
        assert_eq!(name.0, whole.as_bytes()[..24]);
        assert_eq!(name.to_string(), GOLDEN);
    }

    const GOLDEN: &str = "54ab3b148d829172";

    #[test]
    fn another_secret_gives_another_name() {
        assert_ne!(Secret::new([1; 32]).name(b"x"), Secret::new([2; 32]).name(b"x"));
    }

    #[test]
    fn bytes_that_are_not_the_chunk_are_refused() {
        let secret = Secret::new([1; 32]);
        let name = secret.name(b"right");
        assert!(secret.check(&name, b"right").is_ok());
        assert!(
            matches!(secret.check(&name, b"wrong"), Err(ChunksError::WrongBytes(n)) if n == name)
        );
    }

    #[test]
    fn a_secret_does_not_show_in_logs() {
        assert!(!format!("{:?}", Secret::new([0x5a; 32])).contains("5a"));
    }
}
