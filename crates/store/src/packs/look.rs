//! Packs of which nothing can be written, or must not be: what opening them would mend is read as if it
//! were mended, and stays as it is.

use super::{Opened, PACK_BYTES, Packs, pack_lengths, recover};
use crate::error::{Result, StoreError};
use crate::overlay::Writes;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// What was found when they were opened.
pub struct Looked {
    /// Of the packs, without a torn end.
    pub lengths: BTreeMap<u32, u64>,
    /// What opening them to write would have mended, in words.
    pub unmended: Vec<String>,
}

impl Packs {
    /// Only reads them: nothing can be put or deleted. What damage has taken is not there as long as they
    /// are open. The index is brought up in memory. They are not locked: others must be kept from
    /// them in another way.
    pub fn look(directory: &Path) -> Result<Packs> {
        Packs::look_with_packs(directory, PACK_BYTES)
    }

    pub fn look_with_packs(directory: &Path, pack_bytes: u64) -> Result<Packs> {
        let recovered = recover::recover(directory, Writes::Forgotten)?;
        Ok(Packs::of(directory, pack_bytes, recovered, None))
    }

    /// What opening them would have mended if they were not only read, in words.
    pub fn unmended(&self) -> &[String] {
        self.looked().map_or(&[], |looked| &looked.unmended)
    }

    /// None: records may be appended.
    pub(super) fn looked(&self) -> Option<&Looked> {
        match &self.opened {
            Opened::ToWrite(_) => None,
            Opened::ToLook(looked) => Some(looked),
        }
    }

    /// Of the packs that are used, by number.
    pub(super) fn lengths(&self) -> Result<BTreeMap<u32, u64>> {
        match self.looked() {
            Some(Looked { lengths, .. }) => Ok(lengths.clone()),
            None => pack_lengths(&self.directory),
        }
    }

    pub(super) fn takes_records(&self) -> Result<()> {
        if self.looked().is_some() { Err(self.only_read()) } else { Ok(()) }
    }

    pub(super) fn only_read(&self) -> StoreError {
        StoreError::Io {
            place: self.directory.display().to_string(),
            source: ErrorKind::ReadOnlyFilesystem.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack_path;
    use super::*;
    use crate::blob::Blobs;
    use crate::table::Durability;

    #[test]
    fn a_pack_that_was_to_be_removed_is_passed_over_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Packs::open_with_packs(directory.path(), 1000).unwrap();
        let packs = open();
        (0..50_u8).for_each(|number| packs.put(&[number], &[number; 100]).unwrap());
        let gone: Vec<u8> =
            (0..50).filter(|n| packs.index.get(&[*n]).unwrap().unwrap().pack == 1).collect();
        gone.iter().for_each(|number| packs.let_go(&[&[*number]]).unwrap());
        packs.index.retire_pack(1);
        packs.index.flush(Durability::Now).unwrap();
        drop(packs);
        let path = pack_path(directory.path(), 1);
        let mut bytes = std::fs::read(&path).unwrap();
        // Nobody reads it any more.
        bytes[20..30].fill(0);
        std::fs::write(&path, bytes).unwrap();
        let looked = Packs::look_with_packs(directory.path(), 1000).unwrap();
        let seen = looked.list(&[], 100).unwrap();
        assert_eq!((seen.len() + gone.len(), looked.damage().unwrap()), (50, vec![]));
        drop(looked);
        assert!(path.exists());
        let opened = open();
        assert_eq!(opened.list(&[], 100).unwrap(), seen);
        assert!(!path.exists());
    }
}
