//! A server's data that is to be checked and may lie where nothing can be written: on a disk that the
//! kernel has made read-only because of its errors, in a snapshot, in a backup.
//! Never: changes anything there.

use super::{Asker, Data, LostKey, exists, identity, origin, words};
use crate::exit;
use crate::lock::try_look;
use crate::reserve::Reserve;
use anyhow::Result;
use std::path::Path;
use store::Writes;
use store::embedded::Words;

/// What is to be said of data to which nothing can be written.
#[derive(Clone, Debug, Default)]
pub struct Unwritable {
    pub why: String,
    /// What opening them would have mended, a line each.
    pub unmended: Vec<String>,
}

impl Data {
    /// To check it. None: another process has it.
    pub fn open_to_check(directory: &Path) -> Result<Option<Data>> {
        exists(directory)?;
        let words = words(directory, Asker::Check);
        match Data::open_there(directory, LostKey::Refused, words.clone()) {
            Err(error) if exit::may_not(&error) => look(directory, words, exit::words(&error)),
            opened => opened,
        }
    }
}

/// The same, where nothing can be written; `why` not.
fn look(directory: &Path, words: Words, why: String) -> Result<Option<Data>> {
    let Some(lock) = try_look(directory)? else { return Ok(None) };
    let identity = identity(directory, LostKey::Refused)?;
    let (origin, unmended) = origin(directory, words, Writes::Forgotten)?;
    let reserve = Reserve::of(directory);
    let unwritable = Some(Unwritable { why, unmended });
    let directory = directory.into();
    Ok(Some(Data { directory, identity, origin, reserve, unwritable, _lock: lock }))
}
