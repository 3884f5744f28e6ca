//! What programs did in a tree, in words for whoever reads the server's log.

use super::keeper::Keeper;
use super::rows;
use crate::error::Result;
use model::{Change, FileId, Name};

impl Keeper {
    /// What a change of the tree is, and where.
    pub(super) fn told(&self, change: &Change) -> Result<String> {
        let of_file = |what: &str, file: FileId| -> Result<String> {
            Ok(format!("{what} of {}", self.told_file(file)?))
        };
        match change {
            Change::Make { parent, name, .. } | Change::Link { parent, name, .. } => {
                Ok(format!("the new {}", self.told_name(*parent, name)?))
            }
            Change::Unlink { parent, name, .. } => {
                Ok(format!("the removal of {}", self.told_name(*parent, name)?))
            }
            Change::Rename { from, from_name, to, to_name, .. } => {
                let (from, to) = (self.told_name(*from, from_name)?, self.told_name(*to, to_name)?);
                Ok(format!("the move of {from} to {to}"))
            }
            Change::Store { file, .. } => of_file("the contents", *file),
            Change::SetAttributes { file, .. } => of_file("the owner, mode or times", *file),
            Change::SetXattr { file, .. } | Change::RemoveXattr { file, .. } => {
                of_file("an extended attribute", *file)
            }
        }
    }

    fn told_name(&self, directory: FileId, name: &Name) -> Result<String> {
        let inner = self.inner.clone();
        let path = rows::path(&*inner.tables.read()?, self.volume.id, directory)?;
        Ok(match path {
            Some(path) => {
                let path = [&path[..], name.as_bytes()].join(&b'/');
                let path = String::from_utf8_lossy(&path).into_owned();
                self.tree.path().join(path.trim_start_matches('/')).display().to_string()
            }
            None => format!("{name} (in a directory that is gone)"),
        })
    }

    fn told_file(&self, file: FileId) -> Result<String> {
        if file == FileId::ROOT {
            return Ok(self.tree.path().display().to_string());
        }
        let inner = self.inner.clone();
        let known = rows::known(&*inner.tables.read()?, self.volume.id, file)?;
        match known.and_then(|known| known.names.into_iter().next()) {
            Some((directory, name)) => self.told_name(directory, &name),
            None => Ok(format!("a file that has no name any more ({file})")),
        }
    }
}
