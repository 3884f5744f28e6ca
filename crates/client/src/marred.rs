//! The client's tables and log, and what of them was found to be damaged while they were in use.
//! Holds: what a transaction says is what the tables below say; of damage the first few places stay
//! known until the process ends.

use crate::client::Stores;
use crate::ranks::{self, Held, Rank};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use store::journal::Position;
use store::{Before, Durability, Journal, Read, Row, StoreError, Tables, Write};

/// Places that are told of. More of them say no more.
const PLACES_MAX: usize = 16;
/// Rows of each table that are looked at when the volume is mounted.
const LOOKED_AT_MAX: usize = 10_000;
/// What programs see is in these.
const SHOWN: [&str; 5] = [
    "partial-nodes",
    "partial-entries",
    "partial-directories",
    "client-presence",
    "client-displaced",
];
const INDEX: &str = "chunk-index";
const LAST: [u8; 300] = [0xff; 300];

type Result<T> = std::result::Result<T, StoreError>;

/// The damage that was met, in words.
#[derive(Default)]
pub(crate) struct Marred {
    places: Mutex<BTreeSet<String>>,
    /// Why the tables cannot be used now: their disk is gone, or takes nothing any more.
    trouble: Mutex<Option<String>>,
    /// The same of the log.
    log_trouble: Mutex<Option<String>>,
}

impl Marred {
    pub fn places(&self) -> Vec<String> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub fn trouble(&self) -> Option<String> {
        let noted = |trouble: &Mutex<Option<String>>| {
            trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        noted(&self.trouble).or_else(|| noted(&self.log_trouble))
    }

    fn note_trouble(&self, trouble: Option<&StoreError>) {
        note(&self.trouble, trouble);
    }

    /// The same of one table. What an index says may be wrong, and is mended as it is met.
    fn see_of<T>(&self, table: &str, outcome: Result<T>) -> Result<T> {
        if table == INDEX { outcome } else { self.see(outcome) }
    }

    fn see<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(
            error @ (StoreError::Io { .. }
            | StoreError::Database { .. }
            | StoreError::Missing { .. }),
        ) = &outcome
        {
            self.note_trouble(Some(error));
        }
        self.see_damage(outcome)
    }

    fn see_log<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error @ (StoreError::Io { .. } | StoreError::Missing { .. })) = &outcome {
            note(&self.log_trouble, Some(error));
        }
        self.see_damage(outcome)
    }

    fn see_damage<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error @ StoreError::Damaged { .. }) = &outcome {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let place = error.to_string();
            if places.len() < PLACES_MAX && !places.contains(&place) {
                tracing::error!(%error, "what the state directory holds is damaged");
                places.insert(place);
            }
        }
        outcome
    }
}

fn note(noted: &Mutex<Option<String>>, trouble: Option<&StoreError>) {
    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.is_some() || trouble.is_some() {
        *noted = trouble.map(ToString::to_string);
    }
}

/// Stores of whose tables and log damage is noted.
pub(crate) fn watched<C>(stores: Stores<C>) -> (Stores<C>, Arc<Marred>) {
    let marred = Arc::new(Marred::default());
    let tables = Arc::new(Watched::new(stores.tables, marred.clone()));
    let journal = Arc::new(WatchedLog { journal: stores.journal, marred: marred.clone() });
    (Stores { tables, journal, ..stores }, marred)
}

/// A log of which damage is noted.
struct WatchedLog {
    journal: Arc<dyn Journal>,
    marred: Arc<Marred>,
}

impl Journal for WatchedLog {
    fn append(&self, record: &[u8]) -> Result<Position> {
        self.marred.see_log(self.journal.append(record))
    }

    fn next(&self) -> Position {
        self.journal.next()
    }

    fn sync(&self) -> Result<()> {
        self.marred.see_log(self.journal.sync())?;
        note(&self.marred.log_trouble, None);
        Ok(())
    }

    fn read(&self, from: Position, bytes_max: usize) -> Result<Vec<(Position, Vec<u8>)>> {
        self.marred.see_log(self.journal.read(from, bytes_max))
    }

    fn retire(&self, upto: Position) -> Result<()> {
        self.marred.see_log(self.journal.retire(upto))
    }

    fn put_anew(&self) -> u64 {
        self.journal.put_anew()
    }
}

/// Tables of which damage is noted.
pub(crate) struct Watched {
    tables: Arc<dyn Tables>,
    marred: Arc<Marred>,
}

impl Watched {
    pub fn new(tables: Arc<dyn Tables>, marred: Arc<Marred>) -> Watched {
        Watched { tables, marred }
    }
}

/// Reads the first rows of what programs see, so that damage of them is known.
pub(crate) fn look_through(tables: &dyn Tables) {
    let Ok(read) = tables.read() else { return };
    for table in SHOWN {
        // It has been noted, and whoever needs the row is told again.
        let _ = read.scan(table, &[], &LAST, LOOKED_AT_MAX);
    }
}

/// Reads all rows of all that programs see, in pages: of what is damaged the first place is met.
pub(crate) fn look_at_all(tables: &dyn Tables) {
    for table in SHOWN {
        let mut from = Vec::new();
        // A transaction for each page: none of them stays open for long.
        while let Ok(rows) =
            tables.read().and_then(|read| read.scan(table, &from, &LAST, LOOKED_AT_MAX))
            && let Some((last, _)) = rows.last()
        {
            from = [&last[..], &[0]].concat();
        }
    }
}

impl Tables for Watched {
    fn read(&self) -> Result<Box<dyn Read + '_>> {
        let read = self.marred.see(self.tables.read())?;
        Ok(Box::new(Reading { read, marred: &self.marred }))
    }

    fn write(&self) -> Result<Box<dyn Write + '_>> {
        let held = ranks::take(Rank::Tables);
        let write = self.marred.see(self.tables.write())?;
        Ok(Box::new(Writing { write, marred: &self.marred, _held: held }))
    }

    fn room(&self) -> Result<u64> {
        self.tables.room()
    }

    fn taken(&self) -> Result<u64> {
        self.tables.taken()
    }

    fn give_back(&self, free_bytes_min: u64) -> Result<u64> {
        let _held = ranks::take(Rank::Tables);
        self.marred.see(self.tables.give_back(free_bytes_min))
    }

    fn before(&self) -> Before {
        self.tables.before()
    }

    fn put_anew(&self) -> u64 {
        self.tables.put_anew()
    }
}

struct Reading<'a> {
    read: Box<dyn Read + 'a>,
    marred: &'a Marred,
}

impl Read for Reading<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.marred.see_of(table, self.read.get(table, key))
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.marred.see_of(table, self.read.scan(table, from, to, rows_max))
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.marred.see_of(table, self.read.last(table, from, to))
    }
}

struct Writing<'a> {
    write: Box<dyn Write + 'a>,
    marred: &'a Marred,
    _held: Held,
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.marred.see_of(table, self.write.get(table, key))
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        self.marred.see_of(table, self.write.scan(table, from, to, rows_max))
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        self.marred.see_of(table, self.write.last(table, from, to))
    }
}

impl Write for Writing<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        self.marred.see(self.write.put(table, key, value))
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.marred.see(self.write.delete(table, key))
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        let Writing { write, marred, _held } = *self;
        let committed = marred.see(write.commit(durability));
        if committed.is_ok() {
            marred.note_trouble(None);
        }
        committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use store::embedded::Database;

    #[test]
    fn a_disk_that_fails_is_told_of_until_something_is_written_again() {
        let disk = store::faulty::Disk::new(1);
        let marred = Arc::new(Marred::default());
        let tables = Watched::new(Arc::new(disk.tables("client")), marred.clone());
        let write = || {
            let mut write = tables.write()?;
            write.put(SHOWN[0], b"one", b"value")?;
            write.commit(Durability::Now)
        };
        write().unwrap();
        assert_eq!(marred.trouble(), None);
        disk.fail_after(0, store::faulty::Failure::Nothing);
        write().unwrap_err();
        assert!(marred.trouble().is_some_and(|trouble| !trouble.is_empty()));
        write().unwrap();
        assert_eq!(marred.trouble(), None);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "another program takes the log away")]
    fn a_log_that_is_gone_is_told_of_until_it_is_back() {
        let above = tempfile::tempdir().unwrap();
        let (state, away) = (above.path().join("state"), above.path().join("away"));
        std::fs::create_dir(&state).unwrap();
        let marred = Arc::new(Marred::default());
        let journal = Arc::new(store::journal::FileJournal::open(&state.join("log")).unwrap());
        let log = WatchedLog { journal, marred: marred.clone() };
        log.append(b"one").unwrap();
        std::fs::rename(&state, &away).unwrap();
        log.sync().unwrap_err();
        assert!(marred.trouble().is_some_and(|trouble| trouble.contains("move that back")));
        std::fs::rename(&away, &state).unwrap();
        log.sync().unwrap();
        assert_eq!((marred.trouble(), log.put_anew()), (None, 0));
        std::fs::remove_dir_all(state.join("log")).unwrap();
        log.sync().unwrap();
        assert_eq!((marred.trouble(), log.put_anew()), (None, 1));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "another program takes the tables away")]
    fn tables_that_are_gone_are_told_of_until_they_are_back() {
        let above = tempfile::tempdir().unwrap();
        let (state, away) = (above.path().join("state"), above.path().join("away"));
        std::fs::create_dir(&state).unwrap();
        let path = state.join("tables.redb");
        let marred = Arc::new(Marred::default());
        let tables = Watched::new(Arc::new(Database::open(&path).unwrap()), marred.clone());
        let write = || {
            let mut write = tables.write()?;
            write.put(SHOWN[0], b"one", b"value")?;
            write.commit(Durability::Now)
        };
        write().unwrap();
        std::fs::rename(&state, &away).unwrap();
        write().unwrap_err();
        assert!(marred.trouble().is_some_and(|trouble| trouble.contains("move that back")));
        std::fs::rename(&away, &state).unwrap();
        write().unwrap();
        assert_eq!((marred.trouble(), tables.put_anew()), (None, 0));
        std::fs::remove_file(&path).unwrap();
        write().unwrap();
        assert_eq!((marred.trouble(), tables.put_anew()), (None, 1));
        // What was cut off is damage, with the place and what it is.
        std::fs::File::create(&path).unwrap();
        write().unwrap_err();
        assert!(marred.places()[0].contains("while it was in use"), "{:?}", marred.places());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the disk is what damages the row")]
    fn a_damaged_row_is_known_with_its_place_once_it_was_met() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tables.redb");
        let value = b"a value that is found in the file";
        {
            let database = Database::open(&path).unwrap();
            let mut write = database.write().unwrap();
            write.put(SHOWN[0], b"one", value).unwrap();
            write.put(SHOWN[0], b"two", b"another").unwrap();
            write.commit(Durability::Now).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        for at in 0..bytes.len() - value.len() {
            if bytes[at..].starts_with(value) {
                file.write_all_at(b"A", at as u64).unwrap();
            }
        }
        let marred = Arc::new(Marred::default());
        let database = Arc::new(Database::open(&path).unwrap());
        let tables = Watched::new(database.clone(), marred.clone());
        assert!(tables.read().unwrap().get(SHOWN[0], b"two").unwrap().is_some());
        assert_eq!(marred.places(), Vec::<String>::new());
        look_through(&tables);
        look_through(&tables);
        let places = marred.places();
        assert_eq!(places.len(), 1, "{places:?}");
        for part in ["tables.redb", "partial-nodes", "6f6e65"] {
            assert!(places[0].contains(part), "{places:?}");
        }
        let checked = Arc::new(Marred::default());
        look_at_all(&Watched::new(database, checked.clone()));
        assert_eq!(checked.places(), places);
    }
}
