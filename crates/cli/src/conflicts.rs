//! Seeing to conflicts, through a mount: by ordinary changes, and then the word that it is done.
//! Holds: nothing goes before what takes its place is at the server; what is replaced or removed
//! stays among the versions; who is told that somebody else has seen to it has changed nothing but
//! what is among the versions.
//! From: DESIGN, "Conflicts".

use crate::commands::wait;
use crate::exit::{Exit, OrExit, fail};
use crate::mounts::{self, Entry};
use crate::owner::Owner;
use crate::past::{self, Asked};
use crate::units;
use anyhow::{Context, Result};
use model::Name;
use protocol::past::{CONFLICTS_TOLD_MAX, Clash, ConflictInfo, Found, Past, Restore, Then};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long what was changed may take to the server before a conflict counts as seen to.
const SENT_WITHIN: Duration = Duration::from_secs(60);
/// Contents that are compared by lines.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Names that are tried for a file that is there for a moment.
const TRIES_MAX: u32 = 100;

/// The only mount, or the one that a path is in.
pub fn mount(path: Option<&Path>) -> Result<Entry> {
    let path = path.map(mounts::absolute).transpose()?;
    mounts::meant(path.as_deref())
}

/// All conflicts, the oldest first.
pub fn all(asked: &Asked) -> Result<Vec<ConflictInfo>> {
    let mut all: Vec<ConflictInfo> = Vec::new();
    loop {
        let after = all.last().map_or(0, |last| last.number);
        let ask = Past::Conflicts { after, conflicts_max: CONFLICTS_TOLD_MAX };
        match asked.ask(&ask)? {
            Found::Conflicts(told) => {
                let goes_on = told.more && !told.conflicts.is_empty();
                all.extend(told.conflicts);
                if !goes_on {
                    return Ok(all);
                }
            }
            Found::Not(why) => return Err(past::not(&why)),
            _ => return Err(past::unexpected()),
        }
    }
}

fn what(clash: Clash) -> &'static str {
    match clash {
        Clash::Contents => "stored contents over newer ones: both are kept",
        Clash::Removed => "stored into a file that had been removed: it is back",
        Clash::Name => "used a name that was taken: both are kept",
        Clash::Directory => "made something in a directory that was gone: it is kept",
        Clash::Merged => "made a directory that was there: they are one",
        Clash::Replaced => "removed or replaced what had been changed: it stays",
        Clash::Overrun => "wrote while others used up the quota: it is kept",
        Clash::Cycle => "moved a directory into itself: it stays where it was",
    }
}

fn path_of(names: &[Name]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

/// For people, in one line.
pub fn line(conflict: &ConflictInfo) -> String {
    let ConflictInfo { number, clash, device, at, .. } = conflict;
    let path = conflict.path.as_deref().map_or("(its directory is gone)".into(), path_of);
    let at = units::show_time(*at);
    let aside = conflict.aside.as_deref().map(|names| format!("; see {:?}", path_of(names)));
    format!("{number}  {at}  {path:?}  {device} {}{}", what(*clash), aside.unwrap_or_default())
}

/// For programs.
#[derive(Serialize)]
pub struct Listed {
    number: u64,
    kind: String,
    path: Option<String>,
    aside: Option<String>,
    device: String,
    at_secs: i64,
    update: String,
    met: Option<String>,
    base: Option<String>,
    base_version: Option<String>,
}

impl Listed {
    pub fn of(conflict: &ConflictInfo) -> Listed {
        Listed {
            number: conflict.number,
            kind: format!("{:?}", conflict.clash).to_lowercase(),
            path: conflict.path.as_deref().map(path_of),
            aside: conflict.aside.as_deref().map(path_of),
            device: conflict.device.clone(),
            at_secs: conflict.at.secs,
            update: conflict.update.to_string(),
            met: conflict.found.map(|stamp| stamp.to_string()),
            base: conflict.base.map(|stamp| stamp.to_string()),
            base_version: conflict.base_since.map(|seq| format!("v{}", seq.0)),
        }
    }
}

/// A mount in which conflicts are seen to.
pub struct Place {
    mount: Entry,
    asked: Asked,
}

impl Place {
    pub fn of(path: Option<&Path>) -> Result<Place> {
        let asked = Asked::Mount(mount(path)?);
        Ok(Place { mount: mount(path)?, asked })
    }

    pub fn find(&self, number: u64) -> Result<ConflictInfo> {
        let after = number.saturating_sub(1);
        match self.asked.ask(&Past::Conflicts { after, conflicts_max: 1 })? {
            Found::Conflicts(told) => {
                let found = told.conflicts.into_iter().find(|one| one.number == number);
                found.ok_or_else(|| past::not(&protocol::past::NotFound::NoConflict(number)))
            }
            Found::Not(why) => Err(past::not(&why)),
            _ => Err(past::unexpected()),
        }
    }

    /// Once all that was changed here is at the server, the conflict is listed no more.
    pub fn settle(&self, conflict: &ConflictInfo) -> Result<()> {
        wait::until_sent(&self.mount, SENT_WITHIN)?;
        match self.asked.ask(&Past::Settle { number: conflict.number })? {
            Found::Settled(_) => Ok(()),
            Found::Not(why) => Err(past::not(&why)),
            _ => Err(past::unexpected()),
        }
    }

    fn path(&self, names: &[Name]) -> PathBuf {
        let names = names.iter().map(|name| OsStr::from_bytes(name.as_bytes()));
        names.fold(self.mount.mountpoint.clone(), |path, name| path.join(name))
    }

    /// What has the name, and what lies beside it; both are there.
    fn sides(&self, conflict: &ConflictInfo) -> Result<(PathBuf, PathBuf)> {
        let (theirs, mine) = self.sides_or_free(conflict)?;
        if fs::symlink_metadata(&theirs).is_err() {
            let (path, number) = (theirs.display(), conflict.number);
            return Err(fail(
                Exit::NotFound,
                format!(
                    "conflict {number}: {path} is not there any more; `farfs conflicts keep-mine \
                     {number}` gives its name to the version beside"
                ),
            ));
        }
        Ok((theirs, mine))
    }

    /// The name, whether or not anything has it, and what lies beside it.
    fn sides_or_free(&self, conflict: &ConflictInfo) -> Result<(PathBuf, PathBuf)> {
        let gone = |what: &str| {
            fail(
                Exit::NotFound,
                format!(
                    "conflict {}: {what}; `farfs conflicts keep-both {}` takes it off the list",
                    conflict.number, conflict.number
                ),
            )
        };
        let theirs = conflict.path.as_deref().map(|names| self.path(names));
        let theirs = theirs.ok_or_else(|| gone("the directory of the name is gone"))?;
        let mine = conflict.aside.as_deref().map(|names| self.path(names));
        let mine = mine.ok_or_else(|| gone("nothing lies beside the name, or not any more"))?;
        if fs::symlink_metadata(&mine).is_err() {
            return Err(gone(&format!("{} is not there any more", mine.display())));
        }
        Ok((theirs, mine))
    }

    /// What both began from, as a file beside for a moment.
    fn base(&self, conflict: &ConflictInfo, theirs: &Path) -> Result<Vec<u8>> {
        let none = || {
            fail(
                Exit::NotFound,
                format!("conflict {}: what both began from is not kept", conflict.number),
            )
        };
        let (since, path) = conflict.base_since.zip(conflict.path.clone()).ok_or_else(none)?;
        let beside = free_name(theirs, &format!("base of conflict {}", conflict.number))?;
        let owner = Owner::caller();
        let restore = Restore {
            path,
            then: Then::Version(since),
            to: Some(self.asked.names(&beside)?),
            uid: owner.uid,
            gid: owner.gid,
        };
        match self.asked.ask(&Past::Restore(restore))? {
            Found::Restored(_) => {}
            Found::Not(why) => return Err(past::not(&why)),
            _ => return Err(past::unexpected()),
        }
        let read = fs::read(&beside).with_context(|| format!("cannot read {}", beside.display()));
        let removed = fs::remove_file(&beside);
        let base = read?;
        removed.with_context(|| format!("cannot remove {}", beside.display()))?;
        Ok(base)
    }
}

/// A path beside another at which nothing is.
fn free_name(path: &Path, words: &str) -> Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name: String = name.chars().take(60).collect();
    let beside = |attempt: u32| path.with_file_name(format!(".{name} ({words}, {attempt})"));
    let free = (1..=TRIES_MAX).map(beside).find(|path| fs::symlink_metadata(path).is_err());
    free.ok_or_else(|| fail(Exit::Failure, format!("{}: no free name beside it", path.display())))
}

fn text(path: &Path) -> Result<String> {
    let meta = fs::symlink_metadata(path).or_exit(Exit::NotFound, path.display().to_string())?;
    if !meta.is_file() {
        return Err(fail(Exit::Failure, format!("{} is no file", path.display())));
    }
    if meta.len() > TEXT_BYTES_MAX {
        let most = units::show_size(TEXT_BYTES_MAX);
        return Err(fail(
            Exit::Failure,
            format!("{} is larger than what is compared by lines, {most}", path.display()),
        ));
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    as_text(bytes, &path.display().to_string())
}

fn as_text(bytes: Vec<u8>, what: &str) -> Result<String> {
    let binary = || {
        fail(
            Exit::Failure,
            format!(
                "{what} is no text: look at both with their own program, or give one that merges \
                 them with `farfs conflicts merge --tool`"
            ),
        )
    };
    if bytes.contains(&0) {
        return Err(binary());
    }
    String::from_utf8(bytes).map_err(|_| binary())
}

/// Both sides, and what can be done.
pub fn shown(place: &Place, conflict: &ConflictInfo) -> String {
    let mut told = format!("{}\n", line(conflict));
    let side = |names: Option<&[Name]>| match names {
        None => "not there any more".to_owned(),
        Some(names) => {
            let path = place.path(names);
            match fs::symlink_metadata(&path) {
                Ok(meta) => format!("{}, {}", path.display(), units::show_size(meta.len())),
                Err(_) => format!("{}, not there any more", path.display()),
            }
        }
    };
    let base = match (conflict.base_since, conflict.path.as_deref()) {
        (Some(since), Some(path)) => format!("{}@v{}", place.path(path).display(), since.0),
        _ => "none, or not kept".into(),
    };
    let number = conflict.number;
    let theirs = side(conflict.path.as_deref());
    let mine = side(conflict.aside.as_deref());
    told.push_str(&format!(
        "  theirs  {theirs}\n  mine    {mine} (of {})\n  base    {base}\n  to see to it: farfs \
         conflicts diff {number}, merge {number}, keep-mine {number}, keep-theirs {number}, \
         keep-both {number}\n",
        conflict.device
    ));
    told
}

/// From what has the name to what lies beside it.
pub fn difference(place: &Place, conflict: &ConflictInfo) -> Result<String> {
    let (theirs, mine) = place.sides(conflict)?;
    let (from, to) = (text(&theirs)?, text(&mine)?);
    let shown = |path: &Path| path.display().to_string();
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(shown(&theirs)).set_modified_filename(shown(&mine));
    Ok(options.create_patch(&from, &to).to_string())
}

pub fn keep_theirs(place: &Place, conflict: &ConflictInfo) -> Result<()> {
    let (_, mine) = place.sides(conflict)?;
    if fs::symlink_metadata(&mine)?.is_dir() {
        return Err(fail(
            Exit::Failure,
            format!("{} is a directory: move or remove what is in it first", mine.display()),
        ));
    }
    fs::remove_file(&mine).with_context(|| format!("cannot remove {}", mine.display()))?;
    place.settle(conflict)
}

/// `force`: also if what has the name was changed since the conflict.
pub fn keep_mine(place: &Place, conflict: &ConflictInfo, force: bool) -> Result<()> {
    let (theirs, mine) = place.sides_or_free(conflict)?;
    if let (false, Some(found), Some(now)) = (force, conflict.found, version_of(&theirs))
        && found.to_string() != now
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
    fs::rename(&mine, &theirs)
        .with_context(|| format!("cannot rename {} to {}", mine.display(), theirs.display()))?;
    place.settle(conflict)
}

/// The version of the contents that a file has, as the mount says it.
fn version_of(path: &Path) -> Option<String> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, "user.farfs.version", &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(value.get(..length)?).into_owned())
}

/// The merged contents take the name, and what lies beside it goes.
pub fn merge(
    place: &Place,
    conflict: &ConflictInfo,
    tool: Option<&str>,
    markers: bool,
) -> Result<()> {
    let (theirs, mine) = place.sides(conflict)?;
    let before = fs::read(&theirs).with_context(|| format!("cannot read {}", theirs.display()))?;
    let base = place.base(conflict, &theirs)?;
    let merged = match tool {
        Some(tool) => by_tool(tool, &base, &theirs, &mine)?,
        None => {
            let base = as_text(base, "what both began from")?;
            by_lines(&base, &text(&mine)?, &text(&theirs)?, markers, conflict.number)?.into_bytes()
        }
    };
    if fs::read(&theirs).ok().as_ref() != Some(&before) {
        return Err(fail(
            Exit::Failure,
            format!("{} was changed while it was merged: merge it again", theirs.display()),
        ));
    }
    // The same file: with its owner, its attributes and its other names.
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&theirs)
        .and_then(|mut file| file.write_all(&merged).and_then(|()| file.sync_all()))
        .with_context(|| format!("cannot write {}", theirs.display()))?;
    fs::remove_file(&mine).with_context(|| format!("cannot remove {}", mine.display()))?;
    place.settle(conflict)
}

fn by_lines(base: &str, mine: &str, theirs: &str, markers: bool, number: u64) -> Result<String> {
    match diffy::merge(base, mine, theirs) {
        Ok(merged) => Ok(merged),
        Err(marked) if markers => Ok(marked),
        Err(_) => Err(fail(
            Exit::Failure,
            format!(
                "conflict {number}: both changed the same lines. Nothing was done; `farfs conflicts \
                 diff {number}` shows them, `merge {number} --markers` writes both between marks, \
                 and `merge {number} --tool` runs a program that merges"
            ),
        )),
    }
}

/// Runs a program, without a shell, on copies.
fn by_tool(tool: &str, base: &[u8], theirs: &Path, mine: &Path) -> Result<Vec<u8>> {
    let directory = std::env::temp_dir().join(format!("farfs-merge-{}", std::process::id()));
    // What is copied there may be nobody else's to read.
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let merged = || -> Result<Vec<u8>> {
        let file = |name: &str| directory.join(name);
        fs::write(file("base"), base)?;
        fs::copy(theirs, file("theirs"))?;
        fs::copy(mine, file("mine"))?;
        let mut words = tool.split_whitespace().map(|word| {
            ["base", "mine", "theirs", "out"].iter().fold(word.to_owned(), |word, name| {
                word.replace(&format!("%{name}"), &file(name).display().to_string())
            })
        });
        let program = words.next().ok_or_else(|| fail(Exit::Usage, "--tool names no program"))?;
        let status = Command::new(&program)
            .args(words)
            .status()
            .or_exit(Exit::Usage, format!("cannot run {program}"))?;
        if !status.success() {
            return Err(fail(
                Exit::Failure,
                format!("{program} ended with {status}: nothing was done"),
            ));
        }
        let out = fs::read(file("out"));
        out.or_exit(Exit::Failure, format!("{program} has not written %out: nothing was done"))
    }();
    // What is left of it is in nobody's way.
    let _ = fs::remove_dir_all(&directory);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_told_in_one_line() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let stamp = |number| model::Stamp::new(model::ReplicaId(3), number);
        let conflict = ConflictInfo {
            number: 4,
            clash: Clash::Contents,
            path: Some(vec![name("docs"), name("notes")]),
            aside: Some(vec![name("docs"), name("notes (conflict)")]),
            device: "laptop".into(),
            at: model::Time { secs: 951_782_399, nanos: 0 },
            update: stamp(7),
            found: Some(stamp(6)),
            base: None,
            base_since: None,
        };
        let expected = "4  2000-02-28 23:59:59 UTC  \"docs/notes\"  laptop stored contents over \
                        newer ones: both are kept; see \"docs/notes (conflict)\"";
        assert_eq!(line(&conflict), expected);
        let gone = ConflictInfo { path: None, aside: None, ..conflict };
        assert!(line(&gone).contains("its directory is gone"), "{}", line(&gone));
    }

    #[test]
    fn lines_that_one_side_changed_are_merged_and_those_of_both_are_not() {
        let (base, mine, theirs) = ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n");
        assert_eq!(by_lines(base, mine, theirs, false, 1).unwrap(), "A\nb\nC\n");
        let error = by_lines(base, "x\nb\nc\n", "y\nb\nc\n", false, 7).unwrap_err();
        assert!(error.to_string().contains("merge 7 --markers"), "{error}");
        let marked = by_lines(base, "x\nb\nc\n", "y\nb\nc\n", true, 7).unwrap();
        assert!(marked.contains("x\n") && marked.contains("y\n"), "{marked}");
    }

    #[test]
    fn a_tool_merges_copies_and_one_that_fails_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (mine, theirs) = (directory.path().join("m"), directory.path().join("t"));
        fs::write(&mine, "mine").unwrap();
        fs::write(&theirs, "theirs").unwrap();
        let merged = by_tool("cp %mine %out", b"base", &theirs, &mine).unwrap();
        assert_eq!(merged, b"mine");
        assert_eq!(by_tool("cp %base %out", b"base", &theirs, &mine).unwrap(), b"base");
        for wrong in ["false", "true", "", "/does/not/exist %out"] {
            assert!(by_tool(wrong, b"base", &theirs, &mine).is_err(), "{wrong}");
        }
    }
}
