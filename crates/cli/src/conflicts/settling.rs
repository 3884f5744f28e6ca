//! Keeping one side, both, or both as one.
//! Holds: what is removed is not what has the name, under whatever name it lies beside.

use super::attributes::{self, Side};
use super::ways::{Way, one_side};
use super::{
    LOOK_EVERY, Merging, Place, SEEN_WITHIN, TEXT_BYTES_MAX, is_one, not_there, path_of, storing,
    version_of, version_there,
};
use crate::exit::{Exit, fail};
use anyhow::{Context, Result};
use model::Stamp;
use protocol::past::{Clash, ConflictInfo};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

const COMPARED_AT_ONCE: usize = 1 << 20;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Nothing was left to do, and why, for people.
    WasDone(String),
}

/// Nothing was left to do: it is listed no more.
fn was_done(place: &Place, conflict: &ConflictInfo, why: String) -> Result<Outcome> {
    place.settled_by(conflict, None, || Ok(()))?;
    Ok(Outcome::WasDone(why))
}

/// `force`: of attributes, also if they were set otherwise since.
pub fn keep_theirs(place: &Place, conflict: &ConflictInfo, force: bool) -> Result<Outcome> {
    if let Some(why) = place.is_done(conflict, Way::KeepTheirs)? {
        return was_done(place, conflict, why);
    }
    if conflict.settings.is_some() {
        return attributes::keep(place, conflict, Side::Theirs, force);
    }
    if let Some(one) = one_side(conflict) {
        return keep_of_one(place, conflict, one == Side::Theirs, force);
    }
    if conflict.aside.is_none() {
        // It was not done, or is as the other one had it: that stays.
        return place.settled_by(conflict, None, || Ok(()));
    }
    let (theirs, mine) = place.sides(conflict)?;
    place.settled_by(conflict, None, || {
        are_two(conflict, &theirs, &mine)?;
        match fs::symlink_metadata(&mine)?.is_dir() {
            true => remove_empty(&mine),
            false => remove(&mine),
        }
    })
}

/// `force`: also if what has the name was changed since the conflict.
pub fn keep_mine(place: &Place, conflict: &ConflictInfo, force: bool) -> Result<Outcome> {
    if let Some(why) = place.is_done(conflict, Way::KeepMine)? {
        return was_done(place, conflict, why);
    }
    if conflict.settings.is_some() {
        return attributes::keep(place, conflict, Side::Mine, force);
    }
    if let Some(one) = one_side(conflict) {
        return keep_of_one(place, conflict, one == Side::Mine, force);
    }
    let (theirs, mine) = place.sides_or_free(conflict)?;
    let seen = version_there(&theirs, conflict);
    if let (false, Some(found), Some(now)) = (force, conflict.found, seen)
        && found != now
    {
        let (path, number) = (theirs.display(), conflict.number);
        return Err(fail(
            Exit::Failure,
            format!(
                "{path} was changed since: `farfs conflicts merge {number}` puts both together, \
                 `keep-mine {number} --force` replaces what is there now"
            ),
        ));
    }
    place.settled_by(conflict, seen, || {
        fs::rename(&mine, &theirs)
            .with_context(|| format!("cannot rename {} to {}", mine.display(), theirs.display()))
    })
}

/// The contents stay, or the removal is done after all; `force`: also if they were changed since.
fn keep_of_one(
    place: &Place,
    conflict: &ConflictInfo,
    stays: bool,
    force: bool,
) -> Result<Outcome> {
    if stays {
        return place.settled_by(conflict, None, || Ok(()));
    }
    let path = place.bearer(conflict)?;
    let seen = version_there(&path, conflict);
    // Brought back by a name that it was given, it has the contents that it had.
    let stored = (conflict.clash == Clash::Removed).then_some(conflict.update);
    let was_so = |now| conflict.found == Some(now) || stored == Some(now);
    if !force && seen.is_some_and(|now| !was_so(now)) {
        let path = path.display();
        let what = format!("{path} was changed since: --force removes what is there now");
        return Err(fail(Exit::Failure, what));
    }
    // What the server has may not show here yet.
    let until = Instant::now() + SEEN_WITHIN;
    let is_gone = || {
        let looked = fs::symlink_metadata(&path);
        looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    while conflict.now.is_some() && is_gone() && Instant::now() < until {
        thread::sleep(LOOK_EVERY);
    }
    place.settled_by(conflict, seen, || match is_gone() {
        true if conflict.now.is_none() => Ok(()),
        true => Err(not_there(
            conflict,
            "its name does not show here, and the server has it: ask again",
        )),
        false => remove(&path),
    })
}

pub fn keep_both(place: &Place, conflict: &ConflictInfo) -> Result<Outcome> {
    place.settled_by(conflict, None, || Ok(()))
}

/// Why there is nothing to merge in a conflict, or nothing to merge it upon. None: it may be tried.
pub fn not_merged(place: &Place, conflict: &ConflictInfo, merging: &Merging) -> Option<String> {
    let path = conflict.path.as_deref().map(path_of).unwrap_or_default();
    let why = place.is_done(conflict, merging.way(conflict, &path)).err()?;
    alike(place, conflict).is_none().then(|| why.to_string())
}

/// The merged contents take the name, and what lies beside it goes.
pub fn merge(place: &Place, conflict: &ConflictInfo, merging: &Merging) -> Result<Outcome> {
    let number = conflict.number;
    let path = conflict.path.as_deref().map(path_of).unwrap_or_default();
    let by_program = merging.program(&path).is_some();
    match place.is_done(conflict, merging.way(conflict, &path)) {
        Ok(Some(why)) => return was_done(place, conflict, why),
        Ok(None) if by_program => {}
        tried => match (alike(place, conflict), tried) {
            (Some(alike), _) => return one_of(place, conflict, &alike),
            (None, Err(why)) => return Err(why),
            (None, Ok(_)) => {}
        },
    }
    let (theirs, mine) = place.sides(conflict)?;
    let before = (Looks::of(&theirs)?, Looks::of(&mine)?);
    let work = merging.merged(place, conflict, &path, (&theirs, &mine))?;
    place.settled_by(conflict, before.0.version, || {
        are_two(conflict, &theirs, &mine)?;
        if (Looks::of(&theirs)?, Looks::of(&mine)?) != before {
            let what =
                format!("conflict {number}: a side was changed while it was merged; merge again");
            return Err(fail(Exit::Failure, what));
        }
        storing::store(place, conflict, &work, &theirs, before.0.version)?;
        // On its way to the server it may have been long.
        if Looks::of(&mine)? != before.1 {
            let (theirs, mine) = (theirs.display(), mine.display());
            let what = format!(
                "conflict {number}: {mine} was changed while both sides, as one, were stored at \
                 {theirs}: it is there still, and the conflict is listed; merge again"
            );
            return Err(fail(Exit::Failure, what));
        }
        remove(&mine)
    })
}

/// Two files that say the same.
struct Alike {
    theirs: PathBuf,
    mine: PathBuf,
    looks: (Looks, Looks),
    files: (Besides, Besides),
}

/// What a file is besides its contents and its times.
#[derive(PartialEq, Eq)]
struct Besides {
    bytes: u64,
    mode: u32,
    owner: (u32, u32),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Besides {
    fn of(path: &Path) -> Result<Besides> {
        let meta = fs::symlink_metadata(path).with_context(|| cannot("look at", path))?;
        let xattrs = opened(path).and_then(|file| storing::xattrs(&file, true));
        let xattrs = xattrs.with_context(|| cannot("look at", path))?;
        let owner = (meta.uid(), meta.gid());
        Ok(Besides { bytes: meta.len(), mode: meta.mode(), owner, xattrs })
    }
}

/// Where both sides are files with the same bytes, mode, owner and attributes, there is nothing to choose. What
/// differs in anything else, or is too large to be fetched to be compared, is not read. None, too: it cannot be
/// looked at.
fn alike(place: &Place, conflict: &ConflictInfo) -> Option<Alike> {
    if !place.are_two_files(conflict).ok()? {
        return None;
    }
    let (theirs, mine) = place.sides(conflict).ok()?;
    let looks = (Looks::of(&theirs).ok()?, Looks::of(&mine).ok()?);
    let files = (Besides::of(&theirs).ok()?, Besides::of(&mine).ok()?);
    let are_alike = files.0 == files.1
        && files.0.bytes <= TEXT_BYTES_MAX
        && have_same_bytes(&theirs, &mine).unwrap_or(false);
    are_alike.then_some(Alike { theirs, mine, looks, files })
}

/// What has come to the name since may be a link, or a pipe.
fn opened(path: &Path) -> io::Result<fs::File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    fs::File::options().read(true).custom_flags(flags).open(path)
}

fn have_same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let read = |path| opened(path).map(|file| BufReader::with_capacity(COMPARED_AT_ONCE, file));
    let (mut first, mut second) = (read(one)?, read(other)?);
    loop {
        let (some, more) = (first.fill_buf()?, second.fill_buf()?);
        let both = some.len().min(more.len());
        if both == 0 || some[..both] != more[..both] {
            return Ok(some.is_empty() && more.is_empty());
        }
        first.consume(both);
        second.consume(both);
    }
}

/// The one with the name stays, and the other goes.
fn one_of(place: &Place, conflict: &ConflictInfo, alike: &Alike) -> Result<Outcome> {
    let Alike { theirs, mine, looks, files } = alike;
    place.settled_by(conflict, looks.0.version, || {
        are_two(conflict, theirs, mine)?;
        if (Looks::of(theirs)?, Looks::of(mine)?) != *looks
            || (Besides::of(theirs)?, Besides::of(mine)?) != *files
        {
            let number = conflict.number;
            let what =
                format!("conflict {number}: a side was changed while it was read; merge again");
            return Err(fail(Exit::Failure, what));
        }
        remove(mine)
    })
}

/// By what it is told that contents were changed, whoever has not closed the file yet.
#[derive(PartialEq, Eq)]
struct Looks {
    version: Option<Stamp>,
    bytes: u64,
    changed: (i64, i64),
}

impl Looks {
    fn of(path: &Path) -> Result<Looks> {
        let meta = fs::symlink_metadata(path).with_context(|| cannot("look at", path))?;
        let changed = (meta.mtime(), meta.mtime_nsec());
        Ok(Looks { version: version_of(path), bytes: meta.len(), changed })
    }
}

/// An error if both names lead to one file, of which somebody has made the one or the other since.
fn are_two(conflict: &ConflictInfo, theirs: &Path, mine: &Path) -> Result<()> {
    let looked = |path: &Path| fs::symlink_metadata(path).with_context(|| cannot("look at", path));
    if !is_one(&looked(theirs)?, &looked(mine)?) {
        return Ok(());
    }
    let (number, theirs, mine) = (conflict.number, theirs.display(), mine.display());
    let what = format!(
        "conflict {number}: {theirs} and {mine} are one file by now: nothing was done; `farfs \
         conflicts show {number}` says what can be done"
    );
    Err(fail(Exit::Failure, what))
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

fn remove_empty(path: &Path) -> Result<()> {
    let what = || format!("cannot remove {}: move or remove what is in it first", path.display());
    fs::remove_dir(path).with_context(what)
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).with_context(|| cannot("remove", path))
}
