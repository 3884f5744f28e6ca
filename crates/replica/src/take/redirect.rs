//! Where later updates of a writer lead whose earlier one was kept aside or merged.
//! Holds: an update that expects what was kept aside finds it; all others are left as they are.

use super::conflict::{CONFLICTS, LISTED, SETTLED};
use crate::error::Result;
use crate::row::get;
use model::{Change, FileId, Name, Stamp, Update, View};
use store::{Read, Write};
use volume::whole::{Committer, VolumeId, Whole, encode};

/// The stamp of contents that were kept aside, to the file that has them.
pub(crate) const CONTENTS: &str = "origin-aside-contents";
/// A file and the name that it was to bear, to the name that it bears instead.
pub(crate) const NAMES: &str = "origin-aside-names";
/// A directory that was to be made, to the one that was there.
pub(crate) const MERGED: &str = "origin-merged";

/// Directories merged into one another, one after the other.
const MERGES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Contents { stamp: Stamp, to: FileId },
    Name { file: FileId, directory: FileId, name: Name, to: (FileId, Name) },
    Merged { directory: FileId, to: FileId },
}

/// Which kinds of redirection a volume has at all. Most have none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Redirects {
    contents: bool,
    names: bool,
    merged: bool,
}

/// An update as it is to be judged.
pub(super) struct Redirected {
    pub update: Update,
    /// It stores into a file that was kept aside.
    pub aside: Option<FileId>,
}

impl Redirects {
    pub fn of(read: &dyn Read, volume: VolumeId) -> Result<Redirects> {
        let (from, to) = volume.range();
        let has = |table| -> Result<bool> { Ok(!read.scan(table, &from, &to, 1)?.is_empty()) };
        Ok(Redirects { contents: has(CONTENTS)?, names: has(NAMES)?, merged: has(MERGED)? })
    }

    /// Something was added within the transaction.
    pub fn all() -> Redirects {
        Redirects { contents: true, names: true, merged: true }
    }

    /// The update with what it names replaced by what that has become.
    pub fn follow(self, read: &dyn Read, view: &Whole<'_>, update: &Update) -> Result<Redirected> {
        let mut redirected = Redirected { update: update.clone(), aside: None };
        let volume = view.volume();
        if self.merged {
            for file in redirected.update.change.named_mut() {
                *file = merged(read, volume, *file)?;
            }
        }
        if self.contents
            && let Change::Store { file, expects, .. } = &mut redirected.update.change
            && let Some(to) = get(read, CONTENTS, &contents_key(volume, *expects))?
        {
            *file = to;
            redirected.aside = Some(to);
        }
        if self.names {
            follow_names(read, view, &mut redirected.update.change)?;
        }
        Ok(redirected)
    }
}

impl Redirect {
    pub fn put(&self, committer: &mut Committer<'_>) -> Result<()> {
        let volume = committer.volume();
        let write = committer.write();
        match self {
            Redirect::Contents { stamp, to } => {
                write.put(CONTENTS, &contents_key(volume, *stamp), &encode(to))?;
            }
            Redirect::Name { file, directory, name, to } => {
                write.put(NAMES, &name_key(volume, *file, *directory, name), &encode(to))?;
            }
            Redirect::Merged { directory, to } => {
                write.put(MERGED, &file_key(volume, *directory), &encode(to))?;
            }
        }
        Ok(())
    }
}

/// Nobody expects this stamp any more, because the same writer has stored again.
pub(super) fn forget_contents(committer: &mut Committer<'_>, stamp: Stamp) -> Result<()> {
    let key = contents_key(committer.volume(), stamp);
    Ok(committer.write().delete(CONTENTS, &key)?)
}

/// Removes rows of a volume that is to go, at most `rows_max` of each kind. False: none was left.
pub(crate) fn purge_redirects(
    write: &mut dyn Write,
    volume: VolumeId,
    rows_max: usize,
) -> Result<bool> {
    let (from, to) = volume.range();
    let mut found = false;
    for table in [CONTENTS, NAMES, MERGED, CONFLICTS, SETTLED, LISTED] {
        for (key, _) in write.scan(table, &from, &to, rows_max)? {
            write.delete(table, &key)?;
            found = true;
        }
    }
    Ok(found)
}

fn follow_names(read: &dyn Read, view: &Whole<'_>, change: &mut Change) -> Result<()> {
    match change {
        Change::Unlink { parent, name, file, .. } => follow_name(read, view, parent, name, *file),
        Change::Rename { from, from_name, to, to_name, file, over, .. } => {
            follow_name(read, view, from, from_name, *file)?;
            match over {
                Some(over) => follow_name(read, view, to, to_name, *over),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Only a file that does not bear the name that is given, and does bear the other.
fn follow_name(
    read: &dyn Read,
    view: &Whole<'_>,
    directory: &mut FileId,
    name: &mut Name,
    file: FileId,
) -> Result<()> {
    if view.entry(*directory, name)? == Some(file) {
        return Ok(());
    }
    let key = name_key(view.volume(), file, *directory, name);
    let Some(to): Option<(FileId, Name)> = get(read, NAMES, &key)? else { return Ok(()) };
    if view.entry(to.0, &to.1)? == Some(file) {
        (*directory, *name) = to;
    }
    Ok(())
}

fn merged(read: &dyn Read, volume: VolumeId, mut file: FileId) -> Result<FileId> {
    for _ in 0..MERGES_MAX {
        match get(read, MERGED, &file_key(volume, file))? {
            Some(to) => file = to,
            None => break,
        }
    }
    Ok(file)
}

fn file_key(volume: VolumeId, file: FileId) -> Vec<u8> {
    [&volume.0.to_be_bytes()[..], &file.0.to_be_bytes()].concat()
}

fn contents_key(volume: VolumeId, stamp: Stamp) -> Vec<u8> {
    let (replica, number) = (stamp.replica.0.to_be_bytes(), stamp.number.to_be_bytes());
    [&volume.0.to_be_bytes()[..], &replica, &number].concat()
}

fn name_key(volume: VolumeId, file: FileId, directory: FileId, name: &Name) -> Vec<u8> {
    let mut key = file_key(volume, file);
    key.extend(directory.0.to_be_bytes());
    key.extend(name.as_bytes());
    key
}
