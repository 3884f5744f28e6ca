//! Where each blob is. A cache of what the packs say: lost, it is made again from them.
//! Holds: `upto` of a pack never runs ahead of the rows that describe it; rows that are not those
//! which were written, one by one and all together, are not gone by: another index is made.

use super::lost::Lost;
use super::record::{self, HEADER_BYTES};
use crate::blob::Listed;
use crate::embedded::{self, Database, IsOurs, Settings, Words};
use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::ordinary;
use crate::overlay::{Overlay, Writes};
use crate::table::{Durability, Tables};
use fingerprints::{Fingerprints, fingerprint};
use rows::{encode_place, encode_state, mark, parse_place, parse_state, parse_u32};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

mod fingerprints;
mod rows;

const FILE: &str = "index.redb";

/// Its presence says that the index was found damaged while it was in use.
const DAMAGED_FILE: &str = "index-damaged";

/// Nothing is lost with it.
const ADVICE: &str = "it is made again from the packs when farfs is started next";

const BLOBS: &str = "blobs";
const PACKS: &str = "packs";
/// How the names of tables begin that a server or a mount keeps.
const ANOTHERS: [&str; 5] = ["origin-", "whole-", "client-", "partial-", "tree-"];

const DOES_NOT_FIT: &str = "it does not fit the packs";
const DOES_NOT_ADD_UP: &str = "rows of the index are missing, too many, or lead elsewhere";

/// Changes gathered in memory before they go into the table.
const GATHERED_MAX: usize = 1024;

/// Rows read at a time when the index is loaded.
const LOAD_ROWS: usize = 4096;

/// Pages kept in memory. Names come in no order, so that more of them would be of little use.
const CACHE_BYTES: usize = 32 << 20;

/// No name is beyond this.
const BEYOND: [u8; record::NAME_BYTES_MAX + 1] = [0xff; record::NAME_BYTES_MAX + 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub pack: u32,
    pub offset: u64,
    pub length: u32,
}

/// What the index knows of a pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackState {
    /// Records before this offset are indexed.
    pub upto: u64,
    /// Bytes of records that nobody needs.
    pub dead: u64,
    /// Everything alive has been copied elsewhere; the file may go.
    pub retired: bool,
    /// Everything alive beyond `upto` has been copied elsewhere; the file may end there. Never of
    /// the newest, to which records are added.
    pub cut: bool,
    /// Over all rows that lead into the pack: `mark` of each, exclusive or. A row that is lost, is
    /// too many or leads elsewhere makes another.
    pub marks: u64,
}

pub struct Index {
    directory: PathBuf,
    database: Database,
    writes: Writes,
    /// Why another is used instead of what is in the file, which stays.
    unfit: Option<String>,
    /// What was lost with packs, where that was not written down.
    lost: Option<String>,
    /// When it was loaded.
    adds_up: bool,
    /// There was none when it was brought up.
    has_no_room: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    fingerprints: Fingerprints,
    /// None: deleted.
    gathered: HashMap<Vec<u8>, Option<Place>>,
    packs: BTreeMap<u32, PackState>,
    removed_packs: Vec<u32>,
}

/// What the rows say of one pack, counted when the index is loaded.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    alive: u64,
    marks: u64,
}

/// Whether an index that cannot be opened is at fault itself, and not who else has it or what this process lacks.
fn is_of_the_file(error: &StoreError) -> bool {
    !matches!(error, StoreError::Busy(_)) && !error.is_short_of_descriptors()
}

impl Index {
    /// Opens it. If it is damaged or does not fit the packs (number and length), an empty one
    /// takes its place; who opens it walks the packs from each one's `upto`.
    pub fn open(directory: &Path, packs: &BTreeMap<u32, u64>, writes: Writes) -> Result<Index> {
        let path = directory.join(FILE);
        let marker = directory.join(DAMAGED_FILE);
        let (is_kept, mut lost) = (writes == Writes::Kept, None);
        if is_kept && marker.exists() {
            remove(directory)?;
            files::remove(&marker)?;
        }
        let opened = match marker.exists() {
            true => Err(files::damaged(&path, 0, "it was found to be so while in use")),
            false => writes.above(&path).and_then(|over| load(directory, &path, over)),
        };
        let why = match opened {
            Ok(index) if index.adds_up && index.fits(packs) => return Ok(index),
            Ok(index) if index.fits(packs) => DOES_NOT_ADD_UP.to_string(),
            Ok(index) => {
                lost = index.note_lost(packs)?;
                DOES_NOT_FIT.to_string()
            }
            Err(error) if !is_of_the_file(&error) => return Err(error),
            // One that cannot be opened for want of room is in the way of one that fits.
            Err(error) => error.to_string(),
        };
        let unfit = if is_kept {
            tracing::warn!(path = %path.display(), why, "the index is made again from the packs");
            remove(directory)?;
            None
        } else {
            let shown = path.display();
            Some(format!("{shown}: the index of the packs cannot be gone by ({why})"))
        };
        Ok(Index { unfit, lost, ..load(directory, &path, writes.above_nothing())? })
    }

    /// What it says is in packs that are gone or too short cannot be made again from them. Gives it
    /// back in words where it is not written down.
    fn note_lost(&self, packs: &BTreeMap<u32, u64>) -> Result<Option<String>> {
        let mut lost = Lost::of(packs);
        each_row(&self.database, |name, place| lost.count(name, place))?;
        match self.writes {
            _ if lost.is_nothing() => Ok(None),
            Writes::Kept => lost.note(&self.directory).map(|()| None),
            Writes::Forgotten => Ok(Some(lost.to_string())),
        }
    }

    /// What opening it would mend if it were not only read, in words.
    pub fn unmended(&self) -> Option<&str> {
        self.unfit.as_deref()
    }

    /// What was lost with packs, in words, where that was not written down.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    fn fits(&self, packs: &BTreeMap<u32, u64>) -> bool {
        let inner = locked(&self.inner);
        let newest_indexed = inner.packs.keys().next_back();
        inner.packs.iter().all(|(number, state)| {
            state.retired || packs.get(number).is_some_and(|length| state.upto <= *length)
        }) && packs.keys().all(|number| {
            // A pack from before the newest that was indexed should be known.
            inner.packs.contains_key(number) || newest_indexed.is_none_or(|newest| number > newest)
        })
    }

    pub fn get(&self, name: &[u8]) -> Result<Option<Place>> {
        {
            let inner = locked(&self.inner);
            if !inner.fingerprints.has(fingerprint(name)) {
                return Ok(None);
            }
            if let Some(place) = inner.gathered.get(name) {
                return Ok(*place);
            }
        }
        let found = self.in_table(name);
        // It may have been gathered, and its row be older, while the table was read.
        match locked(&self.inner).gathered.get(name) {
            Some(place) => Ok(*place),
            None => found,
        }
    }

    /// Names after `after` in their order, at most `names_max`, with the bytes of each blob.
    pub fn list(&self, after: &[u8], names_max: usize) -> Result<Vec<Listed>> {
        // First, so that what goes into the table meanwhile is seen there.
        let gathered: BTreeMap<Vec<u8>, Option<Place>> = {
            let inner = locked(&self.inner);
            let gathered = inner.gathered.iter().filter(|(name, _)| name.as_slice() > after);
            gathered.map(|(name, place)| (name.clone(), *place)).collect()
        };
        // Some of these may have been deleted since they were written.
        let rows_max = names_max.saturating_add(gathered.len());
        let from = [after, &[0]].concat();
        let rows = self.database.read().and_then(|r| r.scan(BLOBS, &from, &BEYOND, rows_max));
        if let Err(StoreError::Damaged { .. }) = &rows {
            self.mark_damaged();
        }
        let rows = rows?;
        let is_all = rows.len() < rows_max;
        let last = rows.last().map(|(name, _)| name.clone());
        let mut listed: BTreeMap<Vec<u8>, Option<Place>> =
            rows.into_iter().map(|(name, row)| (name, parse_place(&row))).collect();
        let within = |name: &Vec<u8>| is_all || last.as_ref().is_some_and(|last| name <= last);
        listed.extend(gathered.into_iter().filter(|(name, _)| within(name)));
        let alive = listed.into_iter().filter_map(|(name, place)| Some((name, place?)));
        Ok(alive.take(names_max).map(|(name, place)| (name, u64::from(place.length))).collect())
    }

    fn in_table(&self, name: &[u8]) -> Result<Option<Place>> {
        let row = self.database.read().and_then(|read| read.get(BLOBS, name));
        if let Err(StoreError::Damaged { .. }) = &row {
            self.mark_damaged();
        }
        Ok(row?.as_deref().and_then(parse_place))
    }

    fn mark_damaged(&self) {
        if self.writes == Writes::Forgotten {
            return;
        }
        if let Err(error) = ordinary::write(&self.directory.join(DAMAGED_FILE), &[]) {
            tracing::warn!(%error, "the index is damaged and could not be marked so");
        }
    }

    pub fn packs(&self) -> BTreeMap<u32, PackState> {
        locked(&self.inner).packs.clone()
    }

    /// None: nobody knows of it, or what is alive in it is elsewhere by now.
    pub fn state(&self, pack: u32) -> Option<PackState> {
        locked(&self.inner).packs.get(&pack).copied().filter(|state| !state.retired)
    }

    /// So many packs that come next behind this one, or the first ones, with what each has.
    pub fn next(&self, behind: u32, packs_max: usize) -> Vec<(u32, PackState)> {
        let inner = locked(&self.inner);
        let next =
            inner.packs.range(behind.saturating_add(1)..).chain(inner.packs.range(..=behind));
        next.take(packs_max).map(|(pack, state)| (*pack, *state)).collect()
    }

    /// The directory was made anew.
    pub fn follow(&self) -> Result<()> {
        self.database.follow()
    }

    /// The blob is at `place`, and was at `before`.
    pub fn put(&self, name: &[u8], place: Place, before: Option<Place>) {
        let mut inner = locked(&self.inner);
        inner.marked(name, place);
        match before {
            Some(before) => inner.lost(name, before),
            None => inner.fingerprints.add(fingerprint(name)),
        }
        inner.gathered.insert(name.to_vec(), Some(place));
    }

    /// The blob is gone from `before`.
    pub fn remove(&self, name: &[u8], before: Place) {
        let mut inner = locked(&self.inner);
        inner.lost(name, before);
        inner.fingerprints.take(fingerprint(name));
        inner.gathered.insert(name.to_vec(), None);
    }

    /// Bytes of the pack that hold nothing alive.
    pub fn died(&self, pack: u32, bytes: u64) {
        locked(&self.inner).died(pack, bytes);
    }

    /// The pack is indexed up to here.
    pub fn indexed(&self, pack: u32, upto: u64) {
        locked(&self.inner).packs.entry(pack).or_default().upto = upto;
    }

    pub fn retire_pack(&self, pack: u32) {
        locked(&self.inner).packs.entry(pack).or_default().retired = true;
    }

    /// What comes after `upto` is copied elsewhere or dead, and goes.
    pub fn cut_pack(&self, pack: u32, upto: u64) {
        let mut inner = locked(&self.inner);
        let state = inner.packs.entry(pack).or_default();
        state.dead = state.dead.saturating_sub(state.upto.saturating_sub(upto));
        (state.upto, state.cut) = (upto, true);
    }

    pub fn forget_pack(&self, pack: u32) {
        let mut inner = locked(&self.inner);
        inner.packs.remove(&pack);
        inner.removed_packs.push(pack);
    }

    /// Bytes in all packs that hold nothing alive.
    pub fn dead_bytes(&self) -> u64 {
        locked(&self.inner).packs.values().fold(0, |sum, state| sum.saturating_add(state.dead))
    }

    pub fn is_gathered_full(&self) -> bool {
        locked(&self.inner).gathered.len() >= GATHERED_MAX
    }

    /// The same as `flush` while the index is brought up, where nobody is promised anything:
    /// without room they stay gathered, and that is not tried for every record.
    pub fn flush_if_room(&self) -> Result<()> {
        if self.has_no_room.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.flush(Durability::Later) {
            Err(StoreError::Full(_)) => {
                self.has_no_room.store(true, Ordering::Relaxed);
                Ok(())
            }
            flushed => flushed,
        }
    }

    /// Gathered changes go into the table. Only whoever holds the appender may call it, so that
    /// rows and `upto` agree.
    pub fn flush(&self, durability: Durability) -> Result<()> {
        let flushed = self.write_gathered(durability);
        if let Err(StoreError::Damaged { .. }) = &flushed {
            self.mark_damaged();
        }
        flushed
    }

    fn write_gathered(&self, durability: Durability) -> Result<()> {
        let (gathered, packs, removed) = {
            let mut inner = locked(&self.inner);
            let removed = std::mem::take(&mut inner.removed_packs);
            (inner.gathered.clone(), inner.packs.clone(), removed)
        };
        let mut write = self.database.write()?;
        // In order, so that rows of one page come one after another.
        let mut rows: Vec<_> = gathered.iter().collect();
        rows.sort_unstable_by_key(|(name, _)| *name);
        for (name, place) in rows {
            match place {
                Some(place) => write.put(BLOBS, name, &encode_place(*place))?,
                None => write.delete(BLOBS, name)?,
            }
        }
        for pack in removed {
            write.delete(PACKS, &pack.to_be_bytes())?;
        }
        for (pack, state) in packs {
            write.put(PACKS, &pack.to_be_bytes(), &encode_state(state))?;
        }
        write.commit(durability)?;
        // A reader that misses the gathered change from now on finds the row.
        let mut inner = locked(&self.inner);
        inner.gathered.retain(|name, place| gathered.get(name) != Some(place));
        Ok(())
    }
}

impl Inner {
    fn died(&mut self, pack: u32, bytes: u64) {
        let state = self.packs.entry(pack).or_default();
        // The row may say anything; that there is more dead than can be only brings compaction on.
        state.dead = state.dead.saturating_add(bytes);
    }

    /// A row leads here, or no longer does.
    fn marked(&mut self, name: &[u8], place: Place) {
        self.packs.entry(place.pack).or_default().marks ^= mark(name, place);
    }

    fn lost(&mut self, name: &[u8], place: Place) {
        self.marked(name, place);
        self.died(place.pack, record_bytes(name, place));
    }

    /// Whether the rows are those that were written: every record of a pack is alive or dead, and
    /// what is alive is where it was.
    fn adds_up(&self, counted: &BTreeMap<u32, Counted>) -> bool {
        counted.keys().all(|pack| self.packs.contains_key(pack))
            && self.packs.iter().all(|(pack, state)| {
                let Counted { alive, marks } = counted.get(pack).copied().unwrap_or_default();
                let records = state.upto.saturating_sub(HEADER_BYTES as u64);
                alive.checked_add(state.dead) == Some(records)
                    && marks == state.marks
                    && !(state.retired && alive > 0)
            })
    }
}

/// Nothing is lost with an index. What else has come into its place, as a server's tables that were
/// moved there, may be all that there is of it, and is put aside; so is what ends the process that looks.
pub fn remove(directory: &Path) -> Result<()> {
    let [path, marker] = [FILE, DAMAGED_FILE].map(|name| directory.join(name));
    let is_there = ordinary::metadata(&path).is_ok();
    let may_be_anothers = || {
        embedded::has_ended(&marker)
            || embedded::tables_in(&path, Some(&marker)).is_ok_and(|tables| !is_index(&tables))
    };
    match is_there && may_be_anothers() {
        true => ordinary::put_aside(&path).map_err(|source| files::failed(&path, source)),
        false => files::remove(&path),
    }
}

/// What else a later version keeps in an index is no sign of another database.
fn is_index(tables: &BTreeSet<String>) -> bool {
    let is_anothers = |table: &String| ANOTHERS.iter().any(|begin| table.starts_with(begin));
    !tables.iter().any(is_anothers)
}

fn load(directory: &Path, path: &Path, over: Option<Arc<Overlay>>) -> Result<Index> {
    let words = Words { advice: ADVICE.to_string(), ..Words::default() };
    let writes = if over.is_some() { Writes::Forgotten } else { Writes::Kept };
    let (cache_bytes, is_ours) = (CACHE_BYTES, Some(is_index as IsOurs));
    let marker = directory.join(DAMAGED_FILE);
    let settings = Settings {
        cache_bytes,
        words,
        mark: Some(&*marker).filter(|_| writes == Writes::Kept),
        is_ours,
        over,
        ..Settings::default()
    };
    let database = Database::open_as(path, settings)?;
    let mut inner = Inner::default();
    let read = database.read()?;
    for (key, value) in read.scan(PACKS, &[], &BEYOND, usize::MAX)? {
        let (Some(pack), Some(state)) = (parse_u32(&key), parse_state(&value)) else {
            return Err(wrong_row(path));
        };
        inner.packs.insert(pack, state);
    }
    drop(read);
    let mut counted: BTreeMap<u32, Counted> = BTreeMap::new();
    let whole = each_row(&database, |name, place| {
        inner.fingerprints.add(fingerprint(name));
        let of_pack = counted.entry(place.pack).or_default();
        of_pack.alive = of_pack.alive.saturating_add(record_bytes(name, place));
        of_pack.marks ^= mark(name, place);
    })?;
    if !whole {
        return Err(wrong_row(path));
    }
    let adds_up = inner.adds_up(&counted);
    let (has_no_room, inner) = (AtomicBool::new(false), Mutex::new(inner));
    let (directory, unfit, lost) = (directory.to_path_buf(), None, None);
    Ok(Index { directory, database, writes, unfit, lost, adds_up, has_no_room, inner })
}

/// Whether all rows could be read for places; it ends with the first that could not.
fn each_row(database: &Database, mut each: impl FnMut(&[u8], Place)) -> Result<bool> {
    let read = database.read()?;
    let mut from = Vec::new();
    loop {
        let rows = read.scan(BLOBS, &from, &BEYOND, LOAD_ROWS)?;
        for (name, place) in &rows {
            let Some(place) = parse_place(place) else { return Ok(false) };
            each(name, place);
        }
        let Some((last, _)) = rows.into_iter().next_back() else { return Ok(true) };
        from = last;
        from.push(0);
    }
}

fn wrong_row(path: &Path) -> StoreError {
    files::damaged(path, 0, "a row of the index has the wrong length")
}

fn record_bytes(name: &[u8], place: Place) -> u64 {
    record::record_bytes(name.len(), place.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_not_made_again_because_this_process_may_open_no_more() {
        let cannot =
            |errno| files::failed(Path::new(FILE), std::io::Error::from_raw_os_error(errno));
        assert!(!is_of_the_file(&cannot(libc::EMFILE)) && !is_of_the_file(&cannot(libc::ENFILE)));
        assert!(!is_of_the_file(&StoreError::Busy(FILE.into())));
        assert!(is_of_the_file(&cannot(libc::EIO)) && is_of_the_file(&cannot(libc::ENOSPC)));
    }
}
