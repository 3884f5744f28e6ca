//! Tables in one file of this machine, kept by redb, below the rows that were committed lately,
//! which are in memory and, where a log is kept, in that.
//! Holds: every row carries a checksum of its key and value, so that damage is met as an error
//! and never as a wrong row; a full disk costs the transaction and nothing else.
//! Never: goes back to an older state while the process runs.
//!
//! ```text
//!   write ---> young rows (memory) ---flush, many commits at once---> redb
//!      \---Now, with a log: append, sync---> log ---retired by the flush
//! ```
//!
//! A commit with `Durability::Later` lives in memory until the next with `Durability::Now` (or
//! until the database is closed in order): the death of the process undoes it too.

use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::kept::parent_path;
use crate::table::{Before, Durability, Read, Tables, Write};
use access::{Reading, Writing};
use base::{Base, Flush, Place, close_redb, open_redb};
use beneath::Beneath;
use errors::{guarded, open_error};
use log::Log;
use panics::{Blame, caught};
use room::{Plenty, ROOM_BYTES_MIN};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use young::{Puts, Young};

mod access;
mod again;
mod base;
mod beneath;
mod compact;
mod errors;
#[cfg(test)]
mod failing;
mod kept;
mod key;
mod log;
mod lost_log;
mod panics;
mod room;
mod settings;
mod whose;
mod words;
mod young;

pub use lost_log::{GivenUp, give_up_log};
pub use panics::{Panicked, has_ended};
pub use settings::Settings;
pub use whose::{IsOurs, tables_in};
pub use words::Words;

/// Pages kept in memory unless the caller says otherwise.
pub const CACHE_BYTES: usize = 64 << 20;

/// The next commit after so many young rows, or bytes of them, writes them to redb first. Many
/// at once cost a hundredth of what each by itself does; who commits waits for it for some
/// milliseconds.
const YOUNG_ROWS_MAX: usize = 4096;
const YOUNG_BYTES_MAX: u64 = 512 << 10;

/// A transaction that puts more gives it to redb before it is committed.
const HELD_BYTES_MAX: u64 = 8 << 20;

pub struct Database {
    path: PathBuf,
    beneath: Beneath,
    words: Words,
    blame: Arc<Blame>,
    cache_bytes: usize,
    young_rows_max: usize,
    held_bytes_max: u64,
    unmended: Option<String>,
    log: Option<Log>,
    before: Before,
    /// Held by whoever writes.
    state: Mutex<State>,
    /// redb refuses everything after input or output has failed once, until it is opened again.
    failed: AtomicBool,
    level: RwLock<Arc<Level>>,
}

/// What a reader sees.
#[derive(Default)]
struct Level {
    young: Young,
    /// None after redb was closed to be opened again, and could not be.
    base: Option<Base>,
}

struct State {
    /// None: see `Level`.
    redb: Option<redb::Database>,
    /// Keys and values that redb alone has in memory.
    undurable_bytes: u64,
    /// redb has commits that only memory has.
    undurable: bool,
    /// The log and the young rows are not the same: rows that it lacks, or one that was refused.
    unlogged: bool,
    /// redb says that there is a log, and how much of it it has.
    log_is_noted: bool,
    /// The number of the last flush.
    flushes: u64,
    /// The number of one that failed when it was committed: whether it is there is seen when redb is
    /// opened again.
    doubtful: Option<u64>,
    room: Plenty,
}

impl Database {
    /// Makes it if it is missing. After a crash this checks every page, which takes about a
    /// second for ten million rows.
    pub fn open(path: &Path) -> Result<Database> {
        Database::open_as(path, Settings::default())
    }

    pub fn open_as(path: &Path, settings: Settings<'_>) -> Result<Database> {
        let is_new = settings.over.is_none() && !path.exists();
        let found = Blame::new(path, settings.words.unopened(), settings.mark)
            .during(|| guarded(path, || opened(path, &settings)))
            .map_err(|error| settings.words.advise_opening(error, settings.log))?;
        let Settings { cache_bytes, young_rows_max, held_bytes_max, words, mark, .. } = settings;
        if let (true, Some(parent)) = (is_new, path.parent().filter(|p| !p.as_os_str().is_empty()))
        {
            files::sync_directory(parent)?;
        }
        let state = State {
            redb: Some(found.redb),
            undurable_bytes: 0,
            undurable: false,
            unlogged: false,
            log_is_noted: found.log_is_noted,
            flushes: found.flushes,
            doubtful: None,
            room: Plenty::default(),
        };
        Ok(Database {
            path: path.to_path_buf(),
            beneath: found.beneath,
            blame: Blame::new(path, &words.advice, mark),
            words,
            cache_bytes,
            young_rows_max,
            held_bytes_max,
            unmended: found.unmended,
            log: found.log,
            before: Before::default(),
            state: Mutex::new(state),
            failed: AtomicBool::new(false),
            level: RwLock::new(Arc::new(found.level)),
        })
    }

    /// Reads every page and every row. Ok(false): it was damaged, and could be mended.
    pub fn check(path: &Path) -> Result<bool> {
        let mut redb = open_redb(path, &Beneath::of(path, None)?, CACHE_BYTES)?;
        let sound = guarded(path, || redb.check_integrity().map_err(|e| open_error(path, e)))?;
        let words = Words::default();
        guarded(path, || {
            let base = Base::of(path, &redb)?;
            let place = Place { path, words: &words };
            base.table_names(path)?.iter().try_for_each(|name| base.check_rows(place, name))
        })?;
        close_redb(path, Some(redb));
        Ok(sound)
    }

    /// What opening it would have mended if it were not only read, in words.
    pub fn unmended(&self) -> Option<&str> {
        self.unmended.as_deref()
    }

    fn level(&self) -> Arc<Level> {
        self.level.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes when redb will refuse from now on; a damaged row alone does not make it.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let caught = self.blame.clone().during(|| caught(work));
        if matches!(
            caught,
            None | Some(Err(StoreError::Full(_)
                | StoreError::Io { .. }
                | StoreError::Database { .. }))
        ) {
            self.failed.store(true, Ordering::Release);
        }
        let outcome = caught.unwrap_or_else(|| Err(errors::senseless(&self.path)));
        outcome.map_err(|error| self.words.advise(error))
    }

    fn place(&self) -> Place<'_> {
        Place { path: &self.path, words: &self.words }
    }

    fn commit(&self, state: &mut State, puts: Puts, durability: Durability) -> Result<()> {
        let bytes = bytes_of(&puts);
        self.look()?;
        let in_memory = durability == Durability::Later && !self.has_many();
        if !(in_memory && state.room.goes_on(bytes)) {
            self.find_room(state, bytes)?;
        }
        let many = self.has_many();
        match (durability, &self.log) {
            (Durability::Now, Some(log))
                if state.log_is_noted && !state.unlogged && bytes < log::RECORD_BYTES_MAX =>
            {
                if many {
                    self.flush(state, &Puts::new(), Durability::Now)?;
                }
                self.before.does()?;
                let logged = log.append(&record_of(&puts)).and_then(|()| self.look());
                if let Err(error) = logged {
                    // It may be in the log all the same: redb is told to pass it over, by this
                    // flush or, if that fails, by the next.
                    state.unlogged = true;
                    tracing::warn!(%error, "a commit goes without the log");
                    return self.flush(state, &puts, Durability::Now);
                }
            }
            (Durability::Now, _) => return self.flush(state, &puts, Durability::Now),
            (Durability::Later, _) => {
                if many {
                    self.flush(state, &Puts::new(), self.of_a_flush(Durability::Later))?;
                }
                state.unlogged = true;
            }
        }
        let rows = puts
            .into_iter()
            .flat_map(|(table, rows)| rows.into_iter().map(move |(key, put)| (table, key, put)));
        self.level().young.commit(rows);
        Ok(())
    }

    /// What is young goes to redb with the next commit.
    fn has_many(&self) -> bool {
        let Level { young, .. } = &*self.level();
        young.versions() >= self.young_rows_max || young.bytes() >= YOUNG_BYTES_MAX
    }

    fn commit_held(
        &self,
        state: &mut State,
        held: Flush<'_>,
        puts: &Puts,
        durability: Durability,
    ) -> Result<()> {
        self.look()?;
        self.find_room_held(state, bytes_of(puts), held.held_bytes())?;
        self.end_flush(state, held, puts, self.of_a_flush(durability), Word::Noted)
    }

    /// Where there is a log, or no disk that is waited for, redb's memory alone has nothing, ever.
    fn of_a_flush(&self, wanted: Durability) -> Durability {
        if self.log.is_some() || self.beneath.is_only_read() { Durability::Now } else { wanted }
    }

    /// Writes what is young and these rows to redb, as one commit, and shows it.
    fn flush(&self, state: &mut State, puts: &Puts, durability: Durability) -> Result<()> {
        self.flush_saying(state, puts, durability, Word::Noted)
    }

    fn flush_saying(
        &self,
        state: &mut State,
        puts: &Puts,
        durability: Durability,
        word: Word,
    ) -> Result<()> {
        let flush = self.begin_flush(state, &[])?;
        self.end_flush(state, flush, puts, durability, word)
    }

    /// A transaction of redb with what is young, but in tables that are to be cleared.
    fn begin_flush(&self, state: &mut State, but: &[&str]) -> Result<Flush<'_>> {
        self.open_again(state)?;
        self.look()?;
        let State { redb: Some(redb), .. } = state else { return Err(self.closed()) };
        let level = self.level();
        self.guarded(|| {
            let mut flush = Flush::begin(&self.path, redb)?;
            let view = level.young.at(level.young.last());
            for table in view.tables().filter(|table| !but.contains(&&**table)) {
                flush.put(table, view.all(table))?;
            }
            Ok(flush)
        })
    }

    /// Commits it with these rows, and shows it.
    fn end_flush(
        &self,
        state: &mut State,
        mut flush: Flush<'_>,
        puts: &Puts,
        durability: Durability,
        word: Word,
    ) -> Result<()> {
        if durability == Durability::Now {
            self.before.does()?;
        }
        let State { redb: Some(redb), undurable, flushes, doubtful, .. } = state else {
            return Err(self.closed());
        };
        *flushes += 1;
        let number = log::encode_number(*flushes);
        let log = self.log.as_ref().filter(|_| durability == Durability::Now);
        // The end of one that could not be synced may be gone with the power, and is never asked for.
        let word = if log.is_some_and(Log::is_spoilt) { Word::NotNeeded } else { word };
        let applied = log.map(Log::last);
        let held = flush.held_bytes();
        let written = self.guarded(|| {
            flush.put_all(puts)?;
            let has = applied.map(log::encode_number);
            let has = has.as_ref().map(|row| Some(&row[..]).filter(|_| word == Word::Noted));
            let has = has.map(|row| (log::APPLIED, row));
            let rows =
                has.into_iter().chain([(log::FLUSHED, Some(&number[..])), (log::GIVING_UP, None)]);
            flush.put(log::TABLE, rows)?;
            // Before the commit: if it fails, it may be in redb's memory all the same, or on the disk.
            *undurable |= durability == Durability::Later;
            *doubtful = Some(*flushes);
            flush.commit(durability)?;
            Base::of(&self.path, redb)
        });
        if written.is_err() && state.doubtful.is_some() {
            self.failed.store(true, Ordering::Release);
            // What is seen of it may not be on the disk, and the log does not have it.
            state.unlogged = true;
        }
        let base = written?;
        state.doubtful = None;
        let bytes = self.level().young.bytes() + bytes_of(puts) + held;
        state.undurable = durability == Durability::Later;
        state.undurable_bytes = if state.undurable { state.undurable_bytes + bytes } else { 0 };
        state.unlogged = false;
        state.log_is_noted = log.is_some() && word == Word::Noted;
        let shown = Level { young: Young::default(), base: Some(base) };
        *self.level.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
        if let (Some(log), Some(applied)) = (log, applied)
            && let Err(error) = log.retire(applied)
        {
            // It is passed over as it is; the next flush tries again.
            tracing::warn!(%error, "the log of the tables could not be shortened");
        }
        Ok(())
    }

    fn closed(&self) -> StoreError {
        StoreError::Database {
            place: self.path.display().to_string(),
            what: "it was closed after a failure; try again".to_string(),
        }
    }

    /// The young rows go to redb, and with them the word that the log is needed no more.
    fn close_in_order(&self, state: &mut State) -> Result<()> {
        let has_young = self.level().young.versions() > 0;
        if has_young || state.log_is_noted {
            self.flush_saying(state, &Puts::new(), Durability::Now, Word::NotNeeded)?;
        }
        Ok(())
    }
}

/// What redb is told of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// There is one, and all of it so far is in redb.
    Noted,
    NotNeeded,
}

struct Found {
    redb: redb::Database,
    beneath: Beneath,
    level: Level,
    log: Option<Log>,
    log_is_noted: bool,
    flushes: u64,
    unmended: Option<String>,
}

/// What a start finds: redb's rows, and what the log has beyond them.
fn opened(path: &Path, settings: &Settings<'_>) -> Result<Found> {
    let Settings { log, cache_bytes, words, is_ours, over, .. } = settings;
    let beneath = Beneath::of(path, over.as_ref())?;
    let redb = open_redb(path, &beneath, *cache_bytes)?;
    let place = Place { path, words };
    let (base, applied, flushes) = guarded(path, || {
        let base = Base::of(path, &redb)?;
        whose::check(path, &base, *is_ours)?;
        let applied = log::number(&base, place, log::APPLIED)?;
        let flushes = log::number(&base, place, log::FLUSHED)?.unwrap_or(0);
        Ok((base, applied, flushes))
    })?;
    let young = Young::default();
    let Some(directory) = log else {
        if applied.is_some() {
            return Err(errors::damaged_file(path, "its log is needed, and was not given"));
        }
        let level = Level { young, base: Some(base) };
        let (log, log_is_noted, unmended) = (None, false, None);
        return Ok(Found { redb, beneath, level, log, log_is_noted, flushes, unmended });
    };
    let (log, commits, unmended) = match (over, applied) {
        (None, applied) => {
            let log = Log::open(directory, applied)?;
            let commits = applied.map(|applied| log.commits(applied)).transpose()?;
            (Some(log), commits, None)
        }
        (Some(_), None) => (None, None, None),
        (Some(_), Some(applied)) => {
            let (commits, unmended) = log::look(directory, applied)?;
            (None, Some(commits), unmended)
        }
    };
    for commit in commits.into_iter().flatten() {
        young.commit(commit.iter().map(|(table, key, put)| (&**table, key.clone(), put.clone())));
    }
    let level = Level { young, base: Some(base) };
    let log_is_noted = log.is_some() && applied.is_some();
    Ok(Found { redb, beneath, level, log, log_is_noted, flushes, unmended })
}

impl Drop for Database {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        if !self.failed.load(Ordering::Acquire)
            && !self.beneath.is_only_read()
            && let Err(error) = self.close_in_order(&mut state)
        {
            tracing::warn!(%error, "what was committed lately could not be written down");
        }
        let open = state.redb.take();
        drop(state);
        // Its view of redb's pages goes first.
        *self.level.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        self.blame.clone().during(|| close_redb(&self.path, open));
    }
}

impl Tables for Database {
    fn read(&self) -> Result<Box<dyn Read + '_>> {
        self.usable()?;
        let level = self.level();
        let at = level.young.last();
        Ok(Box::new(Reading { database: self, level, at }))
    }

    fn write(&self) -> Result<Box<dyn Write + '_>> {
        let mut state = locked(&self.state);
        self.open_again(&mut state)?;
        Ok(Box::new(Writing::begin(self, state)))
    }

    /// What commits leave free is not room.
    fn room(&self) -> Result<u64> {
        Ok(files::free_bytes(parent_path(&self.path))?.saturating_sub(ROOM_BYTES_MIN))
    }

    fn taken(&self) -> Result<u64> {
        self.file_bytes()
    }

    fn before(&self) -> Before {
        self.before.clone()
    }

    fn give_back(&self, free_bytes_min: u64) -> Result<u64> {
        self.compact(free_bytes_min)
    }

    fn put_anew(&self) -> u64 {
        self.beneath.put_anew() + self.log.as_ref().map_or(0, Log::put_anew)
    }
}

fn record_of(puts: &Puts) -> Vec<u8> {
    log::encode(puts.iter().flat_map(|(table, rows)| {
        rows.iter().map(|(key, put)| (*table, key.as_slice(), put.as_deref()))
    }))
}

fn bytes_of(puts: &Puts) -> u64 {
    let rows = puts.values().flatten();
    rows.map(|(key, put)| (key.len() + put.as_ref().map_or(0, Vec::len)) as u64).sum()
}
