//! What can be read of containers, whatever else stands in their place or in that of directories.

use super::super::fan::is_fan;
use super::super::places::Places;
use super::{DirectoryContainers, Key};
use crate::error::{Result, StoreError};
use crate::files;
use crate::kept::parent_of;
use std::path::Path;
use std::time::SystemTime;

impl DirectoryContainers {
    /// Whatever is there: to read what can be read of it.
    pub fn look(directory: &Path) -> Result<DirectoryContainers> {
        let (directory, home) = (directory.to_path_buf(), parent_of(directory)?);
        let opened = SystemTime::now();
        Ok(DirectoryContainers { directory, home, places: Places::default(), opened })
    }

    pub(super) fn readable(&self) -> (Vec<Key>, Vec<StoreError>) {
        let (mut keys, mut unreadable) = (Vec::new(), Vec::new());
        match files::names(&self.directory) {
            Ok(names) => {
                for fan in names.into_iter().filter(|name| is_fan(name)) {
                    let fan = self.directory.join(fan);
                    match files::is_directory(&fan).and_then(|_| self.keys_in(&fan)) {
                        Ok(found) => keys.extend(found),
                        Err(error) => unreadable.push(error),
                    }
                }
            }
            Err(error) => unreadable.push(error),
        }
        (keys, unreadable)
    }
}
