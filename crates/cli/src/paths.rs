//! What a path leads to that was said to a command, by way of symbolic links in mounts too.
//! Holds: nothing in a mount is looked at before its process has answered, and nothing in one whose process has
//! died; a path of what is gone stays what was said.

use crate::mounts::{self, Entry, Place};
use crate::questions;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Whether a link in a mount is followed that comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Followed,
    AsNamed,
}

/// What a program reads that opens it.
pub fn opened(path: &Path) -> Result<PathBuf> {
    led_to(path, Last::Followed)
}

/// What has the name that was said.
pub fn named(path: &Path) -> Result<PathBuf> {
    led_to(path, Last::AsNamed)
}

fn led_to(path: &Path, last: Last) -> Result<PathBuf> {
    let path = std::path::absolute(path).context("there is no current directory")?;
    let mut answered = Vec::new();
    let found = mounts::resolve(&path, |path, comes_last| {
        match Place::of(path) {
            // What is mounted there is no link, and is not asked for itself.
            _ if mounts::farfs_mountpoints().iter().any(|mountpoint| mountpoint == path) => {
                return Ok(None);
            }
            Place::Live(_) if comes_last && last == Last::AsNamed => return Ok(None),
            Place::Live(mount) => answers(mount, &mut answered)?,
            Place::Unlisted(_) => return Ok(None),
            Place::Outside => {}
        }
        // What cannot be read is told by whoever looks at it.
        Ok(std::fs::read_link(path).ok())
    });
    mounts::absolute(&found?)
}

/// A process that does not answer would hold up whoever looks at a path.
fn answers(mount: Entry, answered: &mut Vec<Entry>) -> Result<()> {
    if !answered.contains(&mount) {
        questions::status(&mount)?;
        answered.push(mount);
    }
    Ok(())
}
