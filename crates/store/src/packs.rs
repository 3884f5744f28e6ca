//! Blobs in packs: files to which records are only ever appended, with an index beside them.
//! Holds: what `sync` promised is there; a blob whose bytes are not what was put is not there;
//! the packs alone say what there is, and the index can be thrown away at any time.
//! Never: overwrites a record; removes a pack, or cuts off its end, before everything alive in it
//! is safe elsewhere; puts a blob into the room that tidying up needs.

use crate::blob::{Blobs, Damage, Listed};
use crate::blocks;
use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::group_sync::GroupSync;
use crate::ordinary;
use crate::overlay::Writes;
use crate::table::Durability;
use index::{Index, Place};
use kept::{Home, OpenFiles};
use look::Looked;
use record::{BLOB_BYTES_MAX, HEADER_BYTES, Head, Kind, NAME_BYTES_MAX, Spot};
use recover::Recovered;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

mod compact;
mod damage;
mod index;
mod kept;
mod look;
mod lost;
mod record;
mod recover;
mod room;

/// A pack that has reached this gets no further records.
pub const PACK_BYTES: u64 = 64 << 20;

/// So much is not left for the next pack's beginning to sync, which holds up all who write.
const UNSYNCED_MOST: u64 = 16 << 20;

/// Blobs that are written at once.
const TOGETHER_MAX: usize = 512;

/// How often `get` looks again because compaction moved the blob meanwhile.
const TRIES_MAX: usize = 8;

const ENDING: &str = ".pack";

pub struct Packs {
    directory: PathBuf,
    pack_bytes: u64,
    /// Of a pack that is written anew, what is copied before its end is cut off.
    piece_bytes_max: u64,
    index: Index,
    appender: Mutex<Appender>,
    open: Mutex<OpenFiles>,
    group: GroupSync,
    /// Of all packs, dead records and all.
    total_bytes: AtomicU64,
    /// One compaction at a time.
    compacting: Mutex<()>,
    opened: Opened,
}

struct Appender {
    pack: u32,
    path: PathBuf,
    /// None: nothing is ever appended.
    file: Option<Arc<File>>,
    offset: u64,
    /// Records appended since the packs were opened.
    appended: u64,
    /// Bytes appended since the last sync began.
    unsynced: u64,
}

/// How they are open.
enum Opened {
    /// Records may be appended.
    ToWrite(Mutex<Home>),
    ToLook(Looked),
}

impl Packs {
    /// Makes the directory if it is missing. The index is made again if it is lost, which reads
    /// the head of every record.
    pub fn open(directory: &Path) -> Result<Packs> {
        Packs::open_with_packs(directory, PACK_BYTES)
    }

    /// Whether something was stored there, seen from the packs alone.
    pub fn has_records(directory: &Path) -> Result<bool> {
        match pack_lengths(directory) {
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => Ok(false),
            lengths => Ok(lengths?.values().any(|length| *length > HEADER_BYTES as u64)),
        }
    }

    /// The index goes, and is made again when the packs are next opened. What was lost is not
    /// told of any more.
    pub fn forget_index(directory: &Path) -> Result<()> {
        let _lock = files::lock_directory(directory)?;
        lost::forget(directory)?;
        index::remove(directory)
    }

    /// What packs that are gone or cut short have taken with them, in words, if there are any that
    /// the index knew of. Told until the index is forgotten.
    pub fn lost(&self) -> Result<Option<String>> {
        match self.index.lost() {
            Some(lost) => Ok(Some(lost.to_owned())),
            None => lost::noted(&self.directory),
        }
    }

    pub fn open_with_packs(directory: &Path, pack_bytes: u64) -> Result<Packs> {
        files::make_directory(directory)?;
        let lock = files::lock_directory(directory)?;
        let recovered = recover::recover(directory, Writes::Kept)?;
        let home = Home::of(directory, lock)?;
        let packs = Packs::of(directory, pack_bytes, recovered, Some(home));
        packs.open_newest();
        Ok(packs)
    }

    /// None: they are only looked at.
    fn of(directory: &Path, pack_bytes: u64, found: Recovered, home: Option<Home>) -> Packs {
        let Recovered { index, appender, total_bytes, lengths, unmended } = found;
        let opened = match home {
            Some(home) => Opened::ToWrite(Mutex::new(home)),
            None => Opened::ToLook(Looked { lengths, unmended }),
        };
        Packs {
            directory: directory.to_path_buf(),
            pack_bytes,
            piece_bytes_max: pack_bytes,
            index,
            appender: Mutex::new(appender),
            open: Mutex::default(),
            group: GroupSync::new(directory, 0),
            total_bytes: AtomicU64::new(total_bytes),
            compacting: Mutex::new(()),
            opened,
        }
    }

    /// Writes the record and has the index know it. The caller has checked name and bytes.
    fn append(
        &self,
        appender: &mut Appender,
        kind: Kind,
        name: &[u8],
        bytes: &[u8],
    ) -> Result<Place> {
        self.make_room(appender)?;
        let spot = Spot { pack: appender.pack, offset: appender.offset };
        let head = record::encode_head(spot, kind, name, bytes);
        self.write(appender, &[&head, bytes], 1)?;
        self.index.indexed(spot.pack, appender.offset);
        if kind == Kind::Deletion {
            self.index.died(spot.pack, head.len() as u64);
        }
        Ok(Place { pack: spot.pack, offset: spot.offset, length: bytes.len() as u32 })
    }

    /// Writes as many of these blobs, of which none is there, as this pack takes, at once. Gives
    /// back how many they were.
    fn append_blobs(&self, appender: &mut Appender, blobs: &[(&[u8], &[u8])]) -> Result<usize> {
        self.make_room(appender)?;
        let (mut heads, mut places) = (Vec::new(), Vec::new());
        let mut spot = Spot { pack: appender.pack, offset: appender.offset };
        for (name, bytes) in blobs.iter().take(TOGETHER_MAX) {
            if spot.offset >= self.pack_bytes {
                break;
            }
            heads.push(record::encode_head(spot, Kind::Blob, name, bytes));
            let length = u32::try_from(bytes.len()).expect("put refuses blobs beyond the bound");
            places.push(Place { pack: spot.pack, offset: spot.offset, length });
            spot.offset += record::record_bytes(name.len(), length);
        }
        let records = heads.iter().zip(blobs).flat_map(|(head, (_, bytes))| [&head[..], bytes]);
        self.write(appender, &records.collect::<Vec<_>>(), places.len() as u64)?;
        for ((name, _), place) in blobs.iter().zip(&places) {
            self.index.put(name, *place, None);
        }
        self.index.indexed(spot.pack, appender.offset);
        Ok(places.len())
    }

    /// Before a record is written, so that a refusal leaves nothing.
    fn make_room(&self, appender: &mut Appender) -> Result<()> {
        if appender.offset >= self.pack_bytes {
            self.begin_pack(appender)
        } else if self.index.is_gathered_full() {
            self.index.flush(Durability::Later)
        } else {
            Ok(())
        }
    }

    fn write(&self, appender: &mut Appender, parts: &[&[u8]], records: u64) -> Result<()> {
        let file = appender.file.as_ref().ok_or_else(|| self.only_read())?;
        files::append_all_at(file, &appender.path, appender.offset, parts)?;
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        appender.offset += bytes;
        appender.appended += records;
        appender.unsynced += bytes;
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The old pack is synced before, so only the newest can be torn.
    fn begin_pack(&self, appender: &mut Appender) -> Result<()> {
        self.flush_index(appender)?;
        let pack = appender.pack.checked_add(1).ok_or_else(|| {
            files::damaged(&appender.path, 0, "no pack can come after it; take it out of the way")
        })?;
        let path = pack_path(&self.directory, pack);
        let file = make_pack(&path)?;
        self.index.indexed(pack, HEADER_BYTES as u64);
        self.total_bytes.fetch_add(HEADER_BYTES as u64, Ordering::Relaxed);
        let file = Arc::new(file);
        self.keep_open(pack, file.clone());
        *appender = Appender {
            pack,
            path,
            file: Some(file),
            offset: HEADER_BYTES as u64,
            appended: appender.appended,
            unsynced: 0,
        };
        Ok(())
    }

    /// What the index says on the disk of the newest pack is there after a power cut.
    fn flush_index(&self, appender: &Appender) -> Result<()> {
        let file = appender.file.as_ref().ok_or_else(|| self.only_read())?;
        if let Err(source) = file.sync_data() {
            self.group.note_failure();
            return Err(files::failed(&appender.path, source));
        }
        self.group.note(appender.appended);
        self.index.flush(Durability::Now)
    }

    fn sync_newest(&self) -> Result<()> {
        let wanted = locked(&self.appender).appended;
        self.group.upto(wanted, || {
            let (file, path, appended) = {
                let mut appender = locked(&self.appender);
                appender.unsynced = 0;
                (appender.file.clone(), appender.path.clone(), appender.appended)
            };
            if let Some(file) = file {
                file.sync_data().map_err(|source| files::failed(&path, source))?;
            }
            Ok(appended)
        })
    }

    fn delete_at(&self, appender: &mut Appender, name: &[u8]) -> Result<()> {
        if let Some(place) = self.index.get(name)? {
            self.append(appender, Kind::Deletion, name, &[])?;
            self.index.remove(name, place);
        }
        Ok(())
    }

    /// None: the bytes are not there as they were put.
    fn read_place(&self, name: &[u8], place: Place) -> Result<Option<Vec<u8>>> {
        let Some((file, path)) = self.pack_file(place.pack)? else { return Ok(None) };
        if place.length as usize > BLOB_BYTES_MAX {
            return Ok(None);
        }
        let spot = Spot { pack: place.pack, offset: place.offset };
        let length = record::record_bytes(name.len(), place.length) as usize;
        let mut bytes = blocks::read_what_is_there(&file, &path, place.offset, length)?;
        let Some(head) = record::parse(spot, &bytes) else { return Ok(None) };
        if head.kind != Kind::Blob || head.name != name {
            return Ok(None);
        }
        bytes.drain(..record::RECORD_HEADER_BYTES + name.len());
        Ok(head.is_of(&bytes).then_some(bytes))
    }

    /// Damage: the record stays where it is, but nobody finds it, and it can be put again.
    fn forget(&self, name: &[u8], place: Place) -> Result<()> {
        let _appender = locked(&self.appender);
        if self.index.get(name)? == Some(place) {
            let path = pack_path(&self.directory, place.pack);
            if self.looked().is_none() {
                tracing::warn!(path = %path.display(), offset = place.offset, "damaged blob dropped");
            }
            self.index.remove(name, place);
        }
        Ok(())
    }

    fn check_name(&self, name: &[u8]) -> Result<()> {
        if (1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Ok(());
        }
        Err(self.refused(format!("a blob's name of {} bytes is not 1 to 64", name.len())))
    }

    fn refused(&self, what: String) -> StoreError {
        StoreError::Io {
            place: self.directory.display().to_string(),
            source: std::io::Error::new(ErrorKind::InvalidInput, what),
        }
    }
}

impl Blobs for Packs {
    fn put(&self, name: &[u8], bytes: &[u8]) -> Result<()> {
        self.put_all(&[(name, bytes)])
    }

    fn put_all(&self, blobs: &[(&[u8], &[u8])]) -> Result<()> {
        for (name, bytes) in blobs {
            self.check_name(name)?;
            if bytes.len() > BLOB_BYTES_MAX {
                return Err(self.refused(format!(
                    "a blob of {} bytes is beyond {BLOB_BYTES_MAX}",
                    bytes.len()
                )));
            }
        }
        self.takes_records()?;
        let mut appender = locked(&self.appender);
        self.look_at_newest(&mut appender)?;
        let (mut fresh, mut names) = (Vec::with_capacity(blobs.len()), HashSet::new());
        for (name, bytes) in blobs {
            if self.index.get(name)?.is_none() && names.insert(*name) {
                fresh.push((*name, *bytes));
            }
        }
        self.leave_room(fresh.iter().map(|(_, bytes)| bytes.len() as u64).sum())?;
        let mut rest = &fresh[..];
        while !rest.is_empty() {
            // A pack takes one at least: where it is full, another begins.
            let written = self.append_blobs(&mut appender, rest)?;
            rest = &rest[written..];
        }
        let much = appender.unsynced >= UNSYNCED_MOST;
        drop(appender);
        if much { self.sync() } else { Ok(()) }
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_name(name)?;
        for _ in 0..TRIES_MAX {
            let Some(place) = self.index.get(name)? else { return Ok(None) };
            if let Some(bytes) = self.read_place(name, place)? {
                return Ok(Some(bytes));
            }
            // Unless compaction has moved it meanwhile, this drops it, and the next look ends.
            self.forget(name, place)?;
        }
        Ok(None)
    }

    fn has(&self, name: &[u8]) -> Result<bool> {
        self.check_name(name)?;
        Ok(self.index.get(name)?.is_some())
    }

    fn delete(&self, name: &[u8]) -> Result<()> {
        self.check_name(name)?;
        self.takes_records()?;
        let mut appender = locked(&self.appender);
        self.look_at_newest(&mut appender)?;
        self.delete_at(&mut appender, name)
    }

    /// The index alone forgets them: where it is lost, they are there again until they are let go
    /// of once more.
    fn let_go(&self, names: &[&[u8]]) -> Result<()> {
        let _appender = locked(&self.appender);
        for name in names {
            self.check_name(name)?;
            if let Some(place) = self.index.get(name)? {
                self.index.remove(name, place);
            }
            if self.index.is_gathered_full() {
                self.index.flush(Durability::Later)?;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.sync_newest()?;
        self.look_at_some(&mut locked(&self.appender))
    }

    fn list(&self, after: &[u8], names_max: usize) -> Result<Vec<Listed>> {
        self.index.list(after, names_max)
    }

    fn reclaim(&self, dead_percent: u8) -> Result<Option<u64>> {
        self.takes_records()?;
        self.compact_one(dead_percent)
    }

    fn damage(&self) -> Result<Vec<Damage>> {
        Ok(self.damaged()?.into_iter().flat_map(|(_, found)| found).collect())
    }

    fn renew_damaged(&self) -> Result<()> {
        self.takes_records()?;
        for (pack, _) in self.damaged()? {
            self.compact_damaged(pack)?;
        }
        Ok(())
    }

    fn room(&self) -> Result<u64> {
        self.room_for_blobs()
    }

    fn bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed).saturating_sub(self.index.dead_bytes())
    }
}

impl Drop for Packs {
    /// Spares the next start the walk through the newest pack.
    fn drop(&mut self) {
        if self.looked().is_some() {
            return;
        }
        if let Err(error) = self.sync().and_then(|()| self.index.flush(Durability::Now)) {
            tracing::debug!(%error, "the index was not written at the end");
        }
    }
}

fn pack_path(directory: &Path, pack: u32) -> PathBuf {
    directory.join(format!("{pack:08x}{ENDING}"))
}

/// An empty pack, found again after a power cut.
fn make_pack(path: &Path) -> Result<File> {
    let file = files::open(path, true)?;
    file.set_len(0).map_err(|source| files::failed(path, source))?;
    files::append_at(&file, path, 0, &record::header())?;
    file.sync_data().map_err(|source| files::failed(path, source))?;
    if let Some(directory) = path.parent() {
        files::sync_directory(directory)?;
    }
    Ok(file)
}

fn place_of(spot: Spot, head: &Head) -> Place {
    Place { pack: spot.pack, offset: spot.offset, length: head.length }
}

/// Lengths of the packs that are there, by number.
fn pack_lengths(directory: &Path) -> Result<BTreeMap<u32, u64>> {
    let mut lengths = BTreeMap::new();
    for (number, path) in files::numbered(directory, ENDING)? {
        if let Ok(pack) = u32::try_from(number) {
            let metadata =
                ordinary::metadata(&path).map_err(|source| files::failed(&path, source))?;
            lengths.insert(pack, metadata.len());
        }
    }
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_left_for_the_beginning_of_the_next_pack_to_sync() {
        let directory = tempfile::tempdir().unwrap();
        let packs = Packs::open(directory.path()).unwrap();
        let blob = vec![7; 1 << 20];
        for number in 0..UNSYNCED_MOST / blob.len() as u64 {
            assert_eq!(packs.group.synced(), 0, "a sync is made for many writes");
            packs.put(&number.to_be_bytes(), &blob).unwrap();
        }
        assert!(packs.group.synced() > 0);
        assert!(locked(&packs.appender).unsynced < UNSYNCED_MOST);
    }
}
