//! Blobs by name: written once, whole, never changed.

use crate::error::Result;

/// Names are 1 to 64 bytes. A name stands for its bytes: who puts one again may put nothing.
pub trait Blobs: Send + Sync + 'static {
    fn put(&self, name: &[u8], bytes: &[u8]) -> Result<()>;

    /// None if it is not there. What was damaged on disk is not there either: it is logged, and
    /// can be put again.
    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// May be wrong after damage that `get` has not met yet.
    fn has(&self, name: &[u8]) -> Result<bool>;

    fn delete(&self, name: &[u8]) -> Result<()>;

    /// All that was put before is safe from a power cut when this returns.
    fn sync(&self) -> Result<()>;

    /// Bytes that all blobs take, about.
    fn bytes(&self) -> u64;
}
