//! What both sides are together becomes the contents of what has the name: whole or not at all, where who
//! merges may make another file what it is.
//! Holds: whatever fails or is killed, nobody is shown a part of it: it comes to the server under a name of
//! its own, and the server makes it the newest version of the file, as it restores one; so the
//! file keeps its number, owner, attributes and other names. Of what somebody stored in just that
//! moment it is said.
//!
//! It does not hold for who is neither root nor the file's owner, or may make no file beside it: he
//! writes in place. What fails is put back; killed amid that, the file begins as what was merged
//! and ends as it was, and on close that is stored as its newest version.

use super::work::Work;
use super::{Place, SENT_WITHIN, path_of, version_of};
use crate::commands::wait;
use crate::exit::{Exit, OrExit, fail};
use crate::owner::Owner;
use crate::{past, questions};
use anyhow::{Context, Result};
use model::{ACL_ACCESS, Name, Seq, Stamp};
use protocol::past::{
    Changed, ConflictInfo, Found, Past, Restore, Restored, STAGED, Then, Version,
};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Versions of the file that are looked at for somebody else's.
const VERSIONS_MAX: u32 = 20;
/// How long this machine may take to see what the server has made.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long what was put together may take to the server.
const STAGED_WITHIN: Duration = Duration::from_secs(60 * 60);
const PART_BYTES: u64 = 256 << 10;
const MODE_BITS: u32 = 0o7777;
const XATTR_BYTES_MAX: usize = 64 << 10;
/// Attributes that are made up when they are read.
const MADE_UP: &[u8] = b"user.farfs.";
const OF_USERS: &[u8] = b"user.";

/// `seen`: the version of `theirs` that both were put together from.
pub(super) fn store(
    place: &Place,
    conflict: &ConflictInfo,
    work: &Work,
    theirs: &Path,
    seen: Option<Stamp>,
) -> Result<()> {
    let number = conflict.number;
    let merged = work.merged();
    let cannot = || format!("cannot write {}: nothing was done", theirs.display());
    let path = conflict.path.as_deref().unwrap_or_default();
    let staged = staged(path, number)?;
    let at = place.path(&staged);
    if are_alike(&merged, theirs).with_context(cannot)? {
        return Ok(());
    }
    match stage(&merged, theirs, &at) {
        // Whoever may write to it, and not give another file what it has.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return over(work, theirs);
        }
        staged => staged.with_context(cannot)?,
    }
    let stored = || -> Result<(Restored, Seq)> {
        let (then, before) = sent(place, number, (&staged, path), seen).with_context(cannot)?;
        Ok((make_newest(place, (&staged, path), then, cannot)?, before))
    }();
    let removed = remove_if_there(&at);
    let (stored, before) = stored?;
    removed?;
    are_no_others(place, conflict, path, before)?;
    if stored.changed > 0 {
        // What is done next here goes by what is there now.
        let until = Instant::now() + SEEN_WITHIN;
        while version_of(theirs) == seen && Instant::now() < until {
            let _ = fs::symlink_metadata(theirs);
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// What a merge of this conflict that was killed has left is gone, however the conflict is seen to now.
pub(super) fn tidy(place: &Place, conflict: &ConflictInfo) -> Result<()> {
    let Some(path) = conflict.path.as_deref().filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let at = place.path(&staged(path, conflict.number)?);
    if !fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    match fs::remove_file(&at) {
        // Another user's, in whose directory only he may remove it: he is not to hold up the rest.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot remove {}", at.display())),
    }
}

/// Where it comes to the server, beside the file.
fn staged(path: &[Name], number: u64) -> Result<Vec<Name>> {
    let name = Name::new(format!("{STAGED}{number}").as_bytes())?;
    let above = path.split_last().map_or(&[][..], |(_, above)| above);
    Ok(above.iter().cloned().chain([name]).collect())
}

/// A file with the merged contents and all else as `theirs` has it: all of it, or none.
fn stage(merged: &Path, theirs: &Path, at: &Path) -> io::Result<()> {
    let like = File::open(theirs)?;
    let (meta, caller) = (like.metadata()?, Owner::caller().uid);
    if caller != 0 && caller != meta.uid() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let directory = at.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let nameless = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(nameless);
    io::copy(&mut File::open(merged)?, &mut file)?;
    dress(&file, (&like, &meta), caller == 0)?;
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, from, CWD, at, AtFlags::SYMLINK_FOLLOW)?)
}

/// Owners first, who take bits of the mode with them; then lists, which set the mode; the mode last.
fn dress(file: &File, (like, meta): (&File, &Metadata), by_root: bool) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
        let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    let (wanted, found) = (xattrs(like, by_root)?, xattrs(file, by_root)?);
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        rustix::fs::fremovexattr(file, OsStr::from_bytes(name))?;
    }
    for (name, value) in wanted.iter().filter(|(name, value)| found.get(*name) != Some(value)) {
        rustix::fs::fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty())?;
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode() & MODE_BITS))?)
}

/// Extended attributes that a user may set; root all. Without what the mount says of a file.
pub(super) fn xattrs(file: &File, by_root: bool) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = rustix::fs::flistxattr(file, &mut names[..])?;
    let is_meant = |name: &&[u8]| {
        let may_set = by_root || name.starts_with(OF_USERS) || *name == ACL_ACCESS;
        may_set && !name.is_empty() && !name.starts_with(MADE_UP)
    };
    let mut xattrs = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(is_meant) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        match rustix::fs::fgetxattr(file, OsStr::from_bytes(name), &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                xattrs.insert(name.to_vec(), value);
            }
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(xattrs)
}

/// What was staged is at the server: the version that it is there, and that of the file, which nobody has
/// changed since it was looked at.
fn sent(
    place: &Place,
    number: u64,
    (staged, path): (&[Name], &[Name]),
    seen: Option<Stamp>,
) -> Result<(Seq, Seq)> {
    send(place, number, seen)?;
    let newest = |path: &[Name]| -> Result<Seq> {
        let newest = versions(place, path, 1)?.pop();
        newest.map(|version| version.since).ok_or_else(past::unexpected)
    };
    let (then, before) = (newest(staged)?, newest(path)?);
    place.claim(number, true, seen)?;
    Ok((then, before))
}

/// The server makes what was staged the newest version of the file. `cannot`: what is said if it does not.
fn make_newest(
    place: &Place,
    (staged, path): (&[Name], &[Name]),
    then: Seq,
    cannot: impl FnOnce() -> String,
) -> Result<Restored> {
    let Owner { uid, gid } = Owner::caller();
    let shown = path_of(path);
    let (path, then, to) = (staged.to_vec(), Then::Version(then), Some(path.to_vec()));
    let groups = Owner::groups_of_caller();
    let restore = Restore { path, then, to, uid, gid, groups, over_others: None };
    let found = place.asked.ask(&Past::Restore(restore));
    let unknown = || {
        format!("whether {shown} was written is not known: do the same again when there is a link")
    };
    match found.with_context(unknown)? {
        Found::Restored(done) => Ok(done),
        Found::Not(why) => Err(past::not(&why)).with_context(cannot),
        _ => Err(past::unexpected()),
    }
}

/// As long as there is a link nobody else gets the conflict meanwhile.
fn send(place: &Place, number: u64, seen: Option<Stamp>) -> Result<()> {
    let until = Instant::now() + STAGED_WITHIN;
    loop {
        let Err(error) = wait::until_sent(&place.mount, SENT_WITHIN) else { return Ok(()) };
        let is_held_back = questions::status(&place.mount)?.pending.held_back.is_some();
        if is_held_back || Instant::now() >= until {
            return Err(error);
        }
        place.claim(number, true, seen)?;
    }
}

fn versions(place: &Place, path: &[Name], versions_max: u32) -> Result<Vec<Version>> {
    let (path, by) = (path.to_vec(), place.asked.by());
    match place.asked.ask(&Past::History { path, before: None, versions_max, by })? {
        Found::History(history) => Ok(history.versions),
        Found::Not(why) => Err(past::not(&why)),
        _ => Err(past::unexpected()),
    }
}

/// How often something was stored by a name after a position, or put in the place of what was there.
fn stored_since(place: &Place, path: &[Name], before: Seq) -> Result<usize> {
    let is_stored = |version: &&Version| {
        let of_it = |change: &Changed| matches!(change, Changed::Contents | Changed::Replaced);
        version.since > before && version.changes.iter().any(of_it)
    };
    Ok(versions(place, path, VERSIONS_MAX)?.iter().filter(is_stored).count())
}

/// An error if somebody else has stored something between the last look and the storing.
fn are_no_others(place: &Place, conflict: &ConflictInfo, path: &[Name], before: Seq) -> Result<()> {
    if stored_since(place, path, before)? <= 1 {
        return Ok(());
    }
    let (number, path) = (conflict.number, path_of(path));
    let what = format!(
        "conflict {number}: somebody else stored {path} just when both sides, as one, were stored there: \
         that is among its versions (`farfs history`), what lies beside is there still, and the \
         conflict is listed"
    );
    Err(fail(Exit::Failure, what))
}

/// In place, by who may write to the file and no more: nothing is cut before all is written, and what
/// cannot be written is put back. Killed, it leaves a mix of both.
fn over(work: &Work, theirs: &Path) -> Result<()> {
    let shown = theirs.display();
    let was = work.file("was");
    fs::copy(theirs, &was).with_context(|| format!("cannot read {shown}: nothing was done"))?;
    let opened = fs::OpenOptions::new().write(true).open(theirs);
    let mut file = opened.with_context(|| format!("cannot write {shown}: nothing was done"))?;
    let Err(error) = fill(&mut file, &work.merged()) else { return Ok(()) };
    let now = match fill(&mut file, &was) {
        Ok(()) => "it is as it was, and nothing else was done",
        Err(_) => "what it had is among its versions (`farfs history`, `farfs restore`)",
    };
    Err(error).or_exit(Exit::Failure, format!("cannot write {shown}: {now}"))
}

fn fill(file: &mut File, from: &Path) -> io::Result<()> {
    file.rewind()?;
    let bytes = io::copy(&mut File::open(from)?, file)?;
    file.set_len(bytes)?;
    file.sync_all()
}

fn are_alike(one: &Path, other: &Path) -> io::Result<bool> {
    if fs::metadata(one)?.len() != fs::metadata(other)?.len() {
        return Ok(false);
    }
    let part = |file: &mut File| -> io::Result<Vec<u8>> {
        let mut part = Vec::new();
        file.take(PART_BYTES).read_to_end(&mut part)?;
        Ok(part)
    };
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    loop {
        let parts = (part(&mut one)?, part(&mut other)?);
        if parts.0 != parts.1 || parts.0.is_empty() {
            return Ok(parts.0 == parts.1);
        }
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_written_over_is_whole_and_keeps_its_number_and_what_cannot_be_is_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = directory.path().join("theirs");
        let number = || fs::metadata(&theirs).unwrap().ino();
        fs::write(&theirs, "a longer text").unwrap();
        let before = number();
        let work = Work::of(&theirs).unwrap();
        fs::create_dir(work.merged()).unwrap();
        let error = over(&work, &theirs).unwrap_err();
        assert!(error.to_string().contains("it is as it was"), "{error}");
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "a longer text");
        fs::remove_dir(work.merged()).unwrap();
        fs::write(work.merged(), "short").unwrap();
        over(&work, &theirs).unwrap();
        assert_eq!((fs::read_to_string(&theirs).unwrap(), number()), ("short".into(), before));
    }

    #[test]
    fn what_is_staged_has_all_that_the_file_has_but_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (merged, theirs, at) = (path("merged"), path("theirs"), path("at"));
        fs::write(&merged, "both").unwrap();
        fs::write(&theirs, "one").unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o640)).unwrap();
        let (tag, none) = ("user.tag", XattrFlags::empty());
        rustix::fs::setxattr(&theirs, tag, b"green", none).unwrap();
        stage(&merged, &theirs, &at).unwrap();
        assert_eq!(fs::read_to_string(&at).unwrap(), "both");
        let looks = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            let xattrs = xattrs(&File::open(path).unwrap(), false).unwrap();
            (meta.mode(), meta.uid(), meta.gid(), xattrs)
        };
        assert_eq!(looks(&at), looks(&theirs));
        assert_eq!(looks(&at).3.len(), 1);
    }

    #[test]
    fn contents_are_alike_to_the_last_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let long = vec![7; 2 * PART_BYTES as usize + 1];
        let changed = [&long[..2 * PART_BYTES as usize], &[8]].concat();
        for (one, other, expected) in [
            (&long, &long, true),
            (&long, &changed, false),
            (&long, &Vec::new(), false),
            (&Vec::new(), &Vec::new(), true),
        ] {
            fs::write(path("one"), one).unwrap();
            fs::write(path("other"), other).unwrap();
            assert_eq!(are_alike(&path("one"), &path("other")).unwrap(), expected);
        }
    }
}
