//! A file of redb's of which a chosen write or sync fails, and what comes of that.

use super::kept::Backend;
use redb::StorageBackend;
use std::cell::Cell;
use std::io::{Error, Result};

thread_local! {
    /// Of this thread's: calls that succeed before one fails.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    static SYNCS: Cell<u64> = const { Cell::new(0) };
}

/// After so many calls of this thread one fails. Gives what was left of those before.
pub fn set(left: Option<u64>) -> Option<u64> {
    LEFT.replace(left)
}

#[derive(Debug)]
pub struct Failing(Backend);

impl Failing {
    pub fn new(file: Backend) -> Failing {
        Failing(file)
    }
}

fn fails() -> Result<()> {
    match LEFT.get() {
        Some(0) => {
            LEFT.set(None);
            Err(Error::from_raw_os_error(5))
        }
        left => {
            LEFT.set(left.map(|left| left - 1));
            Ok(())
        }
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        fails()?;
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<()> {
        SYNCS.set(SYNCS.get() + 1);
        fails()?;
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        fails()?;
        self.0.write(offset, data)
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Database, Settings};
    use super::*;
    use crate::table::{Durability, Tables};
    use std::path::Path;
    use tempfile::{TempDir, tempdir};

    /// More calls than a commit makes.
    const CALLS_MAX: u64 = 200;

    /// How a commit comes to go to redb together with young rows.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Way {
        /// There is no log.
        Unlogged,
        /// The log lacks what was committed for later.
        Behind,
        /// It is too long to be held in memory.
        Held,
    }

    /// Longer than this a transaction is held.
    const HELD_BYTES_MAX: u64 = 24;

    const BEFORE: [Option<&[u8]>; 3] = [Some(b"old"), Some(b"old"), None];
    const AFTER: [Option<&[u8]>; 3] = [Some(b"changed by now"), None, Some(b"changed by now")];

    fn opened(directory: &Path, way: Way) -> Database {
        let log = directory.join("log");
        let settings = Settings {
            log: Some(log.as_path()).filter(|_| way != Way::Unlogged),
            held_bytes_max: if way == Way::Held { HELD_BYTES_MAX } else { 1 << 20 },
            ..Settings::default()
        };
        Database::open_as(&directory.join("tables"), settings).unwrap()
    }

    fn put(tables: &Database, key: &[u8], durability: Durability) -> crate::Result<()> {
        let mut write = tables.write()?;
        write.put("rows", key, b"old")?;
        write.commit(durability)
    }

    /// Rows of which redb has none, as yet.
    fn with_young_rows(directory: &Path, way: Way) -> Database {
        let tables = opened(directory, way);
        // This one goes to redb, and notes the log if there is one.
        put(&tables, b"first", Durability::Now).unwrap();
        let durability = if way == Way::Held { Durability::Now } else { Durability::Later };
        for key in [b"same", b"gone"] {
            put(&tables, key, durability).unwrap();
        }
        assert_eq!(tables.level().young.versions(), 2);
        tables
    }

    fn change(tables: &Database) -> crate::Result<()> {
        let mut write = tables.write()?;
        write.put("rows", b"same", b"changed by now")?;
        write.delete("rows", b"gone")?;
        write.put("rows", b"new", b"changed by now")?;
        write.commit(Durability::Now)
    }

    fn seen(tables: &Database) -> Vec<Option<Vec<u8>>> {
        let read = tables.read().unwrap();
        ["same", "gone", "new"].map(|key| read.get("rows", key.as_bytes()).unwrap()).to_vec()
    }

    fn copied(from: &Path) -> TempDir {
        let to = tempdir().unwrap();
        for name in ["", "log"] {
            let Ok(entries) = std::fs::read_dir(from.join(name)) else { continue };
            std::fs::create_dir_all(to.path().join(name)).unwrap();
            for file in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
                std::fs::copy(&file, to.path().join(name).join(file.file_name().unwrap())).unwrap();
            }
        }
        to
    }

    #[test]
    fn of_a_commit_that_failed_all_is_there_or_nothing_whatever_is_young() {
        for way in [Way::Unlogged, Way::Behind, Way::Held] {
            let mut left = [0, 0];
            let tried = (0..CALLS_MAX).take_while(|calls| {
                let directory = tempdir().unwrap();
                let tables = with_young_rows(directory.path(), way);
                LEFT.set(Some(*calls));
                let failed = change(&tables).is_err();
                LEFT.set(None);
                let rows = seen(&tables);
                let is_there = rows == AFTER.map(|row| row.map(<[u8]>::to_vec));
                let is_not = rows == BEFORE.map(|row| row.map(<[u8]>::to_vec));
                assert!(is_there || (failed && is_not), "{way:?} {calls}: {rows:?}");
                left[usize::from(is_there)] += u64::from(failed);
                // What was seen is on the disk with the next one that is.
                let syncs = SYNCS.get();
                put(&tables, b"next", Durability::Now).unwrap();
                assert!(!failed || SYNCS.get() > syncs, "{way:?} {calls}");
                assert_eq!(seen(&tables), rows);
                let killed = opened(copied(directory.path()).path(), way);
                assert_eq!(seen(&killed), rows, "{way:?} {calls}");
                assert!(killed.read().unwrap().get("rows", b"next").unwrap().is_some());
                failed
            });
            let tried = tried.count() as u64;
            assert!(tried < CALLS_MAX && left.iter().all(|count| *count > 0), "{way:?}: {left:?}");
        }
    }

    #[test]
    fn a_log_that_could_not_be_synced_is_not_asked_for_at_the_next_start() {
        let directory = tempdir().unwrap();
        let tables = opened(directory.path(), Way::Behind);
        put(&tables, b"noted", Durability::Now).unwrap();
        put(&tables, b"logged", Durability::Now).unwrap();
        tables.log.as_ref().unwrap().fail_syncs();
        for key in [b"same", b"next"] {
            put(&tables, key, Durability::Now).unwrap();
        }
        let left = copied(directory.path());
        // The power was cut: what was not synced is half there.
        let entries = std::fs::read_dir(left.path().join("log")).unwrap();
        let segments = entries.map(|entry| entry.unwrap().path());
        let segment = segments.filter(|path| path.extension().is_some_and(|e| e == "journal"));
        let file = std::fs::File::options().write(true).open(segment.max().unwrap()).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        for _ in 0..2 {
            let again = opened(left.path(), Way::Behind);
            let rows = again.read().unwrap().scan("rows", &[], &[0xff], 9).unwrap();
            assert_eq!(rows.len(), 4);
            put(&again, b"logged", Durability::Now).unwrap();
            put(&again, b"logged", Durability::Now).unwrap();
        }
    }

    #[test]
    fn after_a_failure_what_lies_there_instead_is_not_opened() {
        let harms: [fn(&Path); 3] = [
            |path| std::fs::remove_file(path).unwrap(),
            |path| {
                let empty = path.with_extension("empty");
                std::fs::write(&empty, []).unwrap();
                std::fs::rename(empty, path).unwrap();
            },
            |path| std::fs::rename(path, path.with_extension("away")).unwrap(),
        ];
        for way in [Way::Unlogged, Way::Behind, Way::Held] {
            for harm in harms {
                let directory = tempdir().unwrap();
                let tables = with_young_rows(directory.path(), way);
                LEFT.set(Some(0));
                change(&tables).unwrap_err();
                LEFT.set(None);
                harm(&directory.path().join("tables"));
                let rows = seen(&tables);
                assert_eq!(rows, BEFORE.map(|row| row.map(<[u8]>::to_vec)), "{way:?}");
                put(&tables, b"next", Durability::Now).unwrap();
                assert_eq!((seen(&tables), tables.put_anew()), (rows.clone(), 1), "{way:?}");
                let killed = opened(copied(directory.path()).path(), way);
                assert_eq!(seen(&killed), rows, "{way:?}");
            }
        }
    }

    #[test]
    fn after_a_failure_an_emptied_file_is_not_begun_anew() {
        let directory = tempdir().unwrap();
        let tables = with_young_rows(directory.path(), Way::Unlogged);
        LEFT.set(Some(0));
        change(&tables).unwrap_err();
        LEFT.set(None);
        std::fs::File::create(directory.path().join("tables")).unwrap();
        for _ in 0..2 {
            assert!(tables.read().is_err());
            put(&tables, b"next", Durability::Now).unwrap_err();
        }
        drop(tables);
        assert_eq!(directory.path().join("tables").metadata().unwrap().len(), 0);
    }
}
