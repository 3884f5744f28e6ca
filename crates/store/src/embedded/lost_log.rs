//! How tables go on without a log that is needed and is damaged or gone: with what redb has, and the
//! commits that the log has before its first damage. The two are one state that there was.
//! Holds: nothing is given up of a log that is whole, or not needed, or of a newer farfs; what there
//! is of it stays beside, under another name; whatever ends in between, the next call goes on.
//!
//! ```text
//!   log damaged ---redb notes a number---> noted ---the log is renamed by it---> aside
//!   aside ---redb takes the commits, and the word that no log is needed---> given up
//! ```

use super::base::{Base, Flush, Place, close_redb, open_redb};
use super::beneath::Beneath;
use super::errors::guarded;
use super::log::{self, Left};
use super::panics::Blame;
use super::young::Put;
use super::{CACHE_BYTES, Settings, whose};
use crate::error::{Result, StoreError};
use crate::files;
use crate::journal::Position;
use crate::kept::parent_path;
use crate::table::Durability;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A log that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// What was wrong with it.
    pub why: String,
    /// Where what there is of it lies now. None: there was nothing.
    pub aside: Option<PathBuf>,
    /// Commits that the tables have by it.
    pub kept: u64,
    /// Commits that are lost, as far as can be seen: so many at least. None: nothing says so.
    pub lost: Option<u64>,
}

/// From now on the tables are as they were at the last commit before what is damaged of the log. None:
/// it is whole, or not needed, and nothing was done. Nobody else has the tables or the log open.
pub fn give_up_log(path: &Path, settings: &Settings<'_>) -> Result<Option<GivenUp>> {
    let Settings { log, words, .. } = settings;
    let Some(directory) = *log else { return Ok(None) };
    let given_up = || {
        let redb = open_redb(path, &Beneath::of(path, None)?, CACHE_BYTES)?;
        let given_up = guarded(path, || give_up(path, &redb, directory, settings));
        close_redb(path, Some(redb));
        given_up
    };
    let given_up = Blame::new(path, words.unopened(), None).during(given_up);
    given_up.map_err(|error| words.advise_opening(error, *log))
}

fn give_up(
    path: &Path,
    redb: &redb::Database,
    directory: &Path,
    settings: &Settings<'_>,
) -> Result<Option<GivenUp>> {
    let base = Base::of(path, redb)?;
    whose::check(path, &base, settings.is_ours)?;
    let number = |key| log::number(&base, Place { path, words: &settings.words }, key);
    let Some(applied) = number(log::APPLIED)? else { return Ok(None) };
    let (noted, flushes) = (number(log::GIVING_UP)?, number(log::FLUSHED)?.unwrap_or(0));
    drop(base);
    let there = What::find(directory, noted);
    let why = what_is_wrong(there.place(directory), applied)?;
    let why = match (why, &there) {
        (Some(why), _) => why,
        // What the disk could not read then it can read now.
        (None, What::Aside(_)) => missing(directory),
        (None, _) => return Ok(None),
    };
    let left = match &there {
        What::Nothing => Left::default(),
        What::InPlace | What::Aside(_) => log::before_damage(there.place(directory), applied)?,
    };
    // Before the log is renamed it is known that redb can take them.
    drop(taken(path, redb, &left, flushes)?);
    let aside = match there {
        What::Nothing => None,
        What::Aside(aside) => Some(aside),
        What::InPlace => Some(put_aside(path, redb, directory, noted)?),
    };
    taken(path, redb, &left, flushes)?.commit(Durability::Now)?;
    let kept = left.commits.len() as u64;
    let lost = left.known.and_then(|known| known.checked_sub(applied + kept));
    Ok(Some(GivenUp { why, aside, kept, lost }))
}

/// What there is of the log.
enum What {
    InPlace,
    /// Since the last call, which went no further.
    Aside(PathBuf),
    Nothing,
}

impl What {
    fn find(directory: &Path, noted: Option<u64>) -> What {
        let aside = noted.map(|number| aside_of(directory, number)).filter(|path| is_taken(path));
        match aside {
            _ if is_taken(directory) => What::InPlace,
            Some(aside) => What::Aside(aside),
            None => What::Nothing,
        }
    }

    fn place<'a>(&'a self, directory: &'a Path) -> &'a Path {
        match self {
            What::Aside(aside) => aside,
            What::InPlace | What::Nothing => directory,
        }
    }
}

/// None: nothing.
fn what_is_wrong(directory: &Path, applied: Position) -> Result<Option<String>> {
    match log::look(directory, applied) {
        Ok(_) => Ok(None),
        Err(StoreError::Missing { .. }) => Ok(Some(missing(directory))),
        Err(error @ StoreError::Damaged { .. }) => Ok(Some(error.to_string())),
        Err(error) if error.is_unreadable() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

fn missing(directory: &Path) -> String {
    format!("{} is missing", directory.display())
}

/// A transaction of redb with the commits that are left, after which no log is needed.
fn taken<'a>(
    path: &'a Path,
    redb: &redb::Database,
    left: &Left,
    flushes: u64,
) -> Result<Flush<'a>> {
    let mut tables: BTreeMap<&str, BTreeMap<&[u8], &Put>> = BTreeMap::new();
    for (table, key, put) in left.commits.iter().flatten() {
        tables.entry(table).or_default().insert(key, put);
    }
    let mut flush = Flush::begin(path, redb)?;
    for (table, rows) in tables {
        flush.put(table, rows.into_iter().map(|(key, put)| (key, put.as_deref())))?;
    }
    let flushed = log::encode_number(flushes + 1);
    let said = [(log::APPLIED, None), (log::FLUSHED, Some(&flushed[..])), (log::GIVING_UP, None)];
    flush.put(log::TABLE, said.into_iter())?;
    Ok(flush)
}

/// Under a number that redb has noted: a log that was given up another time is never taken for it.
fn put_aside(
    path: &Path,
    redb: &redb::Database,
    directory: &Path,
    noted: Option<u64>,
) -> Result<PathBuf> {
    let places = noted.into_iter().chain(1..).map(|number| (number, aside_of(directory, number)));
    let free = { places }.find(|(_, aside)| !is_taken(aside));
    let (number, aside) = free.expect("a directory has fewer files than there are numbers");
    if noted != Some(number) {
        let mut flush = Flush::begin(path, redb)?;
        let number = log::encode_number(number);
        flush.put(log::TABLE, [(log::GIVING_UP, Some(&number[..]))].into_iter())?;
        flush.commit(Durability::Now)?;
    }
    std::fs::rename(directory, &aside).map_err(|error| files::failed(directory, error))?;
    files::sync_directory(parent_path(directory))?;
    Ok(aside)
}

fn aside_of(directory: &Path, number: u64) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(format!(".given-up-{number}"));
    PathBuf::from(name)
}

/// Whatever it is.
fn is_taken(path: &Path) -> bool {
    !std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "copies the store's files, as a kill leaves them")]
mod tests {
    use super::super::Database;
    use super::super::failing;
    use super::*;
    use crate::table::Tables;
    use tempfile::{TempDir, tempdir};

    /// More calls than it makes.
    const CALLS_MAX: u64 = 200;
    const SEGMENT: &str = "tables.log/0000000000000001.journal";

    fn settings(log: &Path) -> Settings<'_> {
        Settings { log: Some(log), ..Settings::default() }
    }

    fn open(directory: &Path) -> Result<Database> {
        Database::open_as(&directory.join("tables"), settings(&directory.join("tables.log")))
    }

    fn given_up(directory: &Path) -> Result<Option<GivenUp>> {
        give_up_log(&directory.join("tables"), &settings(&directory.join("tables.log")))
    }

    fn copied(from: &Path) -> TempDir {
        let to = tempdir().unwrap();
        std::fs::create_dir(to.path().join("tables.log")).unwrap();
        for name in ["tables", SEGMENT, "tables.log/synced"] {
            std::fs::copy(from.join(name), to.path().join(name)).unwrap();
        }
        to
    }

    fn put(tables: &Database, number: u8) {
        let mut write = tables.write().unwrap();
        write.put("rows", &[number], &[number; 50]).unwrap();
        write.commit(Durability::Now).unwrap();
    }

    fn rows(directory: &Path) -> Vec<u8> {
        let tables = open(directory).unwrap();
        let rows = tables.read().unwrap().scan("rows", &[], &[0xff; 9], 99).unwrap();
        rows.into_iter().map(|(key, _)| key[0]).collect()
    }

    /// The sixth of its ten commits is damaged.
    fn damaged() -> TempDir {
        let directory = tempdir().unwrap();
        let tables = open(directory.path()).unwrap();
        (0..10).for_each(|number| put(&tables, number));
        let copy = copied(directory.path());
        let path = copy.path().join(SEGMENT);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(50).position(|row| row == [5; 50]).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
        copy
    }

    #[test]
    fn whatever_fails_of_it_the_next_call_goes_on() {
        let original = damaged();
        let mut stages = [0; 3];
        for calls in 0..CALLS_MAX {
            let place = copied(original.path());
            let aside = place.path().join("tables.log.given-up-1");
            failing::set(Some(calls));
            let first = given_up(place.path());
            let was_failing = failing::set(None).is_none();
            if let Ok(done) = &first {
                let done = done.as_ref().expect("it is damaged");
                assert_eq!((done.kept, done.lost), (4, Some(5)), "{done:?}");
                stages[2] += 1;
            } else {
                let is_aside = aside.exists();
                stages[usize::from(is_aside)] += 1;
                assert!(
                    is_aside != place.path().join("tables.log").exists(),
                    "after {calls} calls"
                );
                // A commit that failed may be there all the same.
                if let Some(done) = given_up(place.path()).unwrap() {
                    assert_eq!((done.kept, done.lost), (4, Some(5)), "after {calls} calls");
                    assert_eq!(done.aside.as_deref(), Some(&*aside), "after {calls} calls");
                }
            }
            assert!(aside.join("0000000000000001.journal").exists(), "after {calls} calls");
            assert_eq!(given_up(place.path()).unwrap(), None, "after {calls} calls");
            assert_eq!(rows(place.path()), [0, 1, 2, 3, 4], "after {calls} calls");
            if !was_failing {
                assert!(stages.iter().all(|count| *count > 0), "{stages:?}");
                return;
            }
        }
        panic!("it makes more than {CALLS_MAX} calls");
    }

    #[test]
    fn a_log_that_was_put_back_in_between_counts_and_one_that_was_put_aside_before_does_not() {
        let place = damaged();
        let log = place.path().join("tables.log");
        {
            let redb = open_redb(
                &place.path().join("tables"),
                &Beneath::of(&place.path().join("tables"), None).unwrap(),
                CACHE_BYTES,
            );
            put_aside(&place.path().join("tables"), &redb.unwrap(), &log, None).unwrap();
        }
        let aside = aside_of(&log, 1);
        let segment = Path::new("0000000000000001.journal");
        // It is there whole again: nothing is given up, and what is aside is of no use from then on.
        std::fs::create_dir(&log).unwrap();
        let mut bytes = std::fs::read(aside.join(segment)).unwrap();
        let at = bytes.windows(49).position(|row| row == [5; 49]).unwrap();
        bytes[at - 1] ^= 1;
        std::fs::write(log.join(segment), bytes).unwrap();
        assert_eq!(given_up(place.path()).unwrap(), None);
        assert_eq!(rows(place.path()).len(), 10);
        {
            let tables = open(place.path()).unwrap();
            put(&tables, 10);
        }
        let tables = open(place.path()).unwrap();
        put(&tables, 11);
        put(&tables, 12);
        std::fs::copy(place.path().join("tables"), place.path().join("copy")).unwrap();
        drop(tables);
        std::fs::rename(place.path().join("copy"), place.path().join("tables")).unwrap();
        std::fs::remove_dir_all(&log).unwrap();
        let given_up = given_up(place.path()).unwrap().expect("it is gone");
        assert_eq!((given_up.aside, given_up.kept), (None, 0));
        assert_eq!(rows(place.path()), (0..12).collect::<Vec<_>>());
        assert!(aside.join(segment).exists());
    }
}
