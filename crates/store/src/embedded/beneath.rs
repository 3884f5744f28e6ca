//! What lies beneath redb: its file, which is kept where it was, or one that is only read, with what
//! redb writes above it.
//! Never: puts anything where a file lies that is only read, or looks whether it still lies there.

use super::Database;
use super::kept::Kept;
use crate::error::Result;
use crate::files::{self, locked};
use crate::overlay::Overlay;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Beneath {
    File(Arc<Kept>),
    Overlay(Arc<Overlay>),
}

impl Beneath {
    /// The file is made if it is missing, and stays open as long as somebody has this. `over`: where
    /// everything is written instead.
    pub fn of(path: &Path, over: Option<&Arc<Overlay>>) -> Result<Beneath> {
        match over {
            Some(over) => Ok(Beneath::Overlay(over.clone())),
            None => Kept::open(path).map(|kept| Beneath::File(Arc::new(kept))),
        }
    }

    pub fn is_only_read(&self) -> bool {
        matches!(self, Beneath::Overlay(_))
    }

    /// Whether the file is where it was; if not, it is put there anew.
    pub fn look(&self) -> Result<()> {
        match self {
            Beneath::File(kept) => kept.look(),
            Beneath::Overlay(_) => Ok(()),
        }
    }

    /// Takes the name of the file away, unless it is only read.
    pub fn unname(&self, path: &Path) -> Result<()> {
        match self {
            Beneath::File(kept) => kept.unname(),
            Beneath::Overlay(_) => Err(files::failed(path, ErrorKind::ReadOnlyFilesystem.into())),
        }
    }

    /// The directory of the file was made anew, by us.
    pub fn follow(&self) -> Result<()> {
        match self {
            Beneath::File(kept) => kept.follow(),
            Beneath::Overlay(_) => Ok(()),
        }
    }

    /// How often the file was put there anew.
    pub fn put_anew(&self) -> u64 {
        match self {
            Beneath::File(kept) => kept.put_anew(),
            Beneath::Overlay(_) => 0,
        }
    }

    /// Of the file at `path`.
    pub fn metadata(&self, path: &Path) -> Result<Metadata> {
        match self {
            Beneath::File(kept) => kept.metadata(),
            Beneath::Overlay(_) => {
                std::fs::metadata(path).map_err(|source| files::failed(path, source))
            }
        }
    }
}

impl Database {
    /// Before a commit begins, and before anybody is told of one that is in the log.
    pub(super) fn look(&self) -> Result<()> {
        self.beneath.look().map_err(|error| self.words.advise(error))
    }

    /// Takes the name of its file away: what is in it goes with who has it open.
    pub fn unname(&self) -> Result<()> {
        let _state = locked(&self.state);
        self.beneath.unname(&self.path)
    }

    /// The directory in which its file lies is another one, made by us.
    pub(crate) fn follow(&self) -> Result<()> {
        self.beneath.follow()
    }
}
