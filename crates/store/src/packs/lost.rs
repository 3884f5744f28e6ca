//! Packs that are gone or cut short, by what the index knew of them: for whoever starts the next
//! process, and until a check has been told to repair.
//! Holds: what is lost is on the disk before the index that knew of it goes.

use super::index::Place;
use super::{pack_path, record};
use crate::error::Result;
use crate::files;
use crate::ordinary;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Says in words what is lost.
const FILE: &str = "lost";

/// Packs that are named.
const NAMED_MAX: usize = 8;

/// Of the file that says it; a longer one is none of ours.
const BYTES_MAX: usize = 4096;

/// Counts what the index says is where nothing is.
pub struct Lost<'a> {
    /// Lengths of the packs that there are.
    packs: &'a BTreeMap<u32, u64>,
    short: BTreeSet<u32>,
    blobs: u64,
    bytes: u64,
}

impl Lost<'_> {
    pub fn of(packs: &BTreeMap<u32, u64>) -> Lost<'_> {
        Lost { packs, short: BTreeSet::new(), blobs: 0, bytes: 0 }
    }

    pub fn count(&mut self, name: &[u8], place: Place) {
        let record = record::record_bytes(name.len(), place.length);
        let end = place.offset.saturating_add(record);
        if self.packs.get(&place.pack).is_none_or(|length| *length < end) {
            self.short.insert(place.pack);
            self.blobs += 1;
            self.bytes = self.bytes.saturating_add(u64::from(place.length));
        }
    }

    pub fn is_nothing(&self) -> bool {
        self.blobs == 0
    }

    pub fn note(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        ordinary::write(&path, self.to_string().as_bytes())
            .and_then(|file| file.sync_all())
            .map_err(|source| files::failed(&path, source))?;
        files::sync_directory(directory)
    }
}

impl fmt::Display for Lost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chunks of {} bytes were in packs that are gone or", self.blobs, self.bytes)?;
        write!(f, " cut short:")?;
        for pack in self.short.iter().take(NAMED_MAX) {
            write!(f, " {}", pack_path(Path::new(""), *pack).display())?;
        }
        match self.short.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// What was noted, here or by an earlier process.
pub fn noted(directory: &Path) -> Result<Option<String>> {
    let path = directory.join(FILE);
    let file = match ordinary::open(&path, File::options().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|source| files::failed(&path, source))?,
    };
    let bytes = files::read_at(&file, &path, 0, BYTES_MAX)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

pub fn forget(directory: &Path) -> Result<()> {
    files::remove(&directory.join(FILE))
}
