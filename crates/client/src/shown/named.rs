//! What is pending of files that bear other names by now, as the replica above says, than when it was
//! shown. How many names a file has is part of what shows of it: who removes one of two must not take
//! the other along.

use super::Error;
use crate::replay_log::stale_by;
use model::{Change, FileId, Kind};
use store::Read;
use update_log::{UpdateLog, What};
use volume::partial::{Changed, Missing, Tree};

/// Updates of one file that are looked at.
const UPDATES_MAX: usize = 256;

/// Of these files, those of which what is pending is to be shown anew: others have given them a name or taken
/// one away, or, where names are pending, may have. `before` is what was said until now.
pub(super) fn named_otherwise<'a>(
    (before, now): (&dyn Read, &dyn Read),
    log: &UpdateLog,
    learnt: impl IntoIterator<Item = &'a FileId>,
) -> Result<Vec<FileId>, Error> {
    let mut files = Vec::new();
    let (before, now) = (Tree::new(before, 0), Tree::new(now, 0));
    for file in learnt {
        if now.shown_by(*file).map_err(failed)?.is_none() {
            continue;
        }
        let said = now.said(*file).map_err(failed)?;
        let Some(said) = said.filter(|said| said.kind != Kind::Directory) else { continue };
        let Some(last) = before.said(*file).map_err(failed)? else { continue };
        if said.links != last.links || (said != last && is_renamed(log, *file)?) {
            files.push(*file);
        }
    }
    Ok(files)
}

fn is_renamed(log: &UpdateLog, file: FileId) -> Result<bool, Error> {
    let others = log.of_file(file).filter(|(_, what)| *what == What::Else).take(UPDATES_MAX);
    for (number, _) in others {
        let change = log.get(number)?.map(|update| update.change);
        if let Some(Change::Rename { .. } | Change::Link { .. } | Change::Unlink { .. }) = change {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the kernel may show of what is pending of these files, and is to ask for again.
pub(super) fn stale_of(log: &UpdateLog, files: &[FileId]) -> Result<Vec<Changed>, Error> {
    let mut stale = Vec::new();
    for file in files {
        for (number, _) in log.of_file(*file).take(UPDATES_MAX) {
            stale.extend(log.get(number)?.iter().flat_map(stale_by).map(|changed| match changed {
                Changed::Node { file, .. } => Changed::Node { file, contents: false },
                entry @ Changed::Entry(..) => entry,
            }));
        }
    }
    Ok(stale)
}

fn failed(missing: Missing) -> Error {
    Error::Failed(missing.to_string())
}
