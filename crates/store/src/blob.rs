//! Blobs by name: written once, whole, never changed.

use crate::error::Result;

/// Names are 1 to 64 bytes. A name stands for its bytes: who puts one again may put nothing.
pub trait Blobs: Send + Sync + 'static {
    fn put(&self, name: &[u8], bytes: &[u8]) -> Result<()>;

    /// Puts all of these: name and bytes of each. What fails leaves some of them out.
    fn put_all(&self, blobs: &[(&[u8], &[u8])]) -> Result<()> {
        blobs.iter().try_for_each(|(name, bytes)| self.put(name, bytes))
    }

    /// None if it is not there. What was damaged on disk is not there either: it is logged, and
    /// can be put again.
    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// May be wrong after damage that `get` has not met yet.
    fn has(&self, name: &[u8]) -> Result<bool>;

    fn delete(&self, name: &[u8]) -> Result<()>;

    /// The same, where little is lost if some of these are there again some day, as after a crash:
    /// that needs hardly any room.
    fn let_go(&self, names: &[&[u8]]) -> Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }

    /// All that was put before is safe from a power cut when this returns.
    fn sync(&self) -> Result<()>;

    /// Bytes that all blobs take, about.
    fn bytes(&self) -> u64;

    /// Bytes that may still be put, about. `u64::MAX` where nothing bounds them. What tidying up
    /// needs is not among them.
    fn room(&self) -> Result<u64>;

    /// Names that come after `after` in the order of bytes, each with the bytes of its blob, at
    /// most `names_max`. What is put or deleted meanwhile may be among them or not.
    fn list(&self, after: &[u8], names_max: usize) -> Result<Vec<Listed>>;

    /// Gives space of deleted blobs back to the disk: one bounded piece of work where at least
    /// `dead_percent` of what is looked at is dead. Returns the bytes that came free; none where
    /// nothing is worth it. May be interrupted anywhere.
    fn reclaim(&self, dead_percent: u8) -> Result<Option<u64>>;

    /// Stretches of the disk that should hold blobs and hold nothing that reads as one. Goes
    /// through all there is.
    fn damage(&self) -> Result<Vec<Damage>>;

    /// Writes everything alive in what is damaged anew, elsewhere: `damage` does not tell of it any
    /// more. What the damage has taken with it is gone. May be interrupted anywhere.
    fn renew_damaged(&self) -> Result<()>;
}

/// A blob's name, and the bytes of the blob.
pub type Listed = (Vec<u8>, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Which file.
    pub place: String,
    pub offset: u64,
    pub bytes: u64,
}
