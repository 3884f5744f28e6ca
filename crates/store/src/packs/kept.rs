//! Packs that are in use: which are open, whether all lie still where they lay, and how one that
//! another program has removed is put there anew.
//! Holds: what is gone of the newest pack is noticed before a record is appended to it, and of any,
//! where a name has gone or come, before a sync returns; what cannot be had makes each sync fail
//! until it is back, or until the index is made anew by the next process.
//! Never: makes anything where the directory no longer lies; looks at packs that are only looked at.

use super::index::PackState;
use super::{Appender, ENDING, Opened, Packs, pack_path};
use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::kept::{self, Identity, identity, is_gone, moved, parent_of, parent_path};
use crate::ordinary;
use crate::table::Durability;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

/// Packs that are kept open for reading, and of the descriptors that there may be one in so many.
const OPEN_MAX: u64 = 256;
const OPEN_ONE_IN: u64 = 4;
/// The newest of them are opened at the start: what is removed can be had from them.
const OPENED_MAX: usize = 64;
/// Packs that are looked at after a sync, in turns.
const LOOKED_AT: usize = 8;

#[derive(Default)]
pub struct OpenFiles {
    files: HashMap<u32, (Arc<File>, u64)>,
    uses: u64,
}

impl OpenFiles {
    fn add(&mut self, pack: u32, file: Arc<File>) {
        self.uses += 1;
        self.files.insert(pack, (file, self.uses));
        self.close_beyond(open_max());
    }

    fn get(&mut self, pack: u32) -> Option<Arc<File>> {
        self.uses += 1;
        let (file, used) = self.files.get_mut(&pack)?;
        *used = self.uses;
        let file = file.clone();
        // It may be fewer than it was.
        self.close_beyond(open_max());
        Some(file)
    }

    /// Those that were used least lately.
    fn close_beyond(&mut self, max: u64) {
        while self.files.len() as u64 > max {
            let used = self.files.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = used.map(|(pack, _)| *pack) else { return };
            self.files.remove(&oldest);
        }
    }
}

fn open_max() -> u64 {
    OPEN_MAX.min(files::descriptors_max() / OPEN_ONE_IN)
}

/// Where packs lie to which records are appended. Who has it has the appender.
pub struct Home {
    lock: File,
    /// The directory in which that of the packs lies.
    parent: Identity,
    seen: Seen,
}

impl Home {
    pub fn of(directory: &Path, lock: File) -> Result<Home> {
        Ok(Home { lock, parent: parent_of(directory)?, seen: Seen::of(directory)? })
    }
}

/// What was seen when all packs were looked at.
struct Seen {
    directory: Identity,
    /// When a name in it last came or went.
    changed: Option<(i64, i64)>,
    /// The last pack that was looked at in turn.
    turn: u32,
}

impl Seen {
    fn of(directory: &Path) -> Result<Seen> {
        let found = std::fs::metadata(directory);
        let found = found.map_err(|source| files::failed(directory, source))?;
        Ok(Seen { directory: identity(&found), changed: None, turn: 0 })
    }

    fn is_of(&self, found: &Metadata) -> bool {
        identity(found) == self.directory && self.changed == Some(changed(found))
    }
}

fn changed(directory: &Metadata) -> (i64, i64) {
    (directory.mtime(), directory.mtime_nsec())
}

/// Where a pack is.
enum Found {
    There,
    /// Nothing is there, or something else.
    Away,
    /// So many bytes of it.
    Short(u64),
}

impl Packs {
    /// None: it was written anew, and is gone.
    pub(super) fn pack_file(&self, pack: u32) -> Result<Option<(Arc<File>, PathBuf)>> {
        let path = pack_path(&self.directory, pack);
        let mut open = locked(&self.open);
        if let Some(file) = open.get(pack) {
            return Ok(Some((file, path)));
        }
        let file = match ordinary::open(&path, File::options().read(true)) {
            Ok(file) => Arc::new(file),
            Err(source) if source.kind() == ErrorKind::NotFound => {
                // Nobody is told that a blob is none, and nothing is forgotten, for that.
                let is_wanted = self.index.state(pack).is_some();
                return if is_wanted { Err(missing(&path)) } else { Ok(None) };
            }
            Err(source) => return Err(files::failed(&path, source)),
        };
        open.add(pack, file.clone());
        Ok(Some((file, path)))
    }

    pub(super) fn keep_open(&self, pack: u32, file: Arc<File>) {
        locked(&self.open).add(pack, file);
    }

    pub(super) fn close(&self, pack: u32) {
        locked(&self.open).files.remove(&pack);
    }

    /// Of what cannot be opened a read says why.
    pub(super) fn open_newest(&self) {
        let appender = locked(&self.appender);
        let packs = self.index.packs();
        let before = packs.keys().rev().filter(|pack| **pack != appender.pack).take(OPENED_MAX);
        for pack in before.collect::<Vec<_>>().into_iter().rev() {
            let path = pack_path(&self.directory, *pack);
            if let Ok(file) = ordinary::open_at_once(&path, File::options().read(true)) {
                self.keep_open(*pack, Arc::new(file));
            }
        }
        if let Some(file) = &appender.file {
            self.keep_open(appender.pack, file.clone());
        }
    }

    /// None: nothing is appended to them, and nothing need be where it was.
    fn home(&self) -> Option<MutexGuard<'_, Home>> {
        match &self.opened {
            Opened::ToWrite(home) => Some(locked(home)),
            Opened::ToLook(_) => None,
        }
    }

    /// Before a record is appended: behind an end that is not ours it would hide what is gone.
    pub(super) fn look_at_newest(&self, appender: &mut Appender) -> Result<()> {
        let Some(mut home) = self.home() else { return Ok(()) };
        self.look_at_end(&mut home, appender)
    }

    /// Before a pack goes.
    pub(super) fn look_at(&self, pack: u32, appender: &mut Appender) -> Result<()> {
        let Some(mut home) = self.home() else { return Ok(()) };
        let state = self.index.state(pack);
        match state.is_none_or(|state| matches!(self.found(pack, state), Found::There)) {
            true => Ok(()),
            false => self.look_at_all(&mut home, appender),
        }
    }

    /// After a sync, before anybody is told of it.
    pub(super) fn look_at_some(&self, appender: &mut Appender) -> Result<()> {
        let Some(mut home) = self.home() else { return Ok(()) };
        let directory = std::fs::symlink_metadata(&self.directory);
        if !directory.is_ok_and(|found| home.seen.is_of(&found)) {
            return self.look_at_all(&mut home, appender);
        }
        self.look_at_end(&mut home, appender)?;
        let some = self.index.next(home.seen.turn, LOOKED_AT);
        home.seen.turn = some.last().map_or(0, |(pack, _)| *pack);
        let some = some.into_iter().filter(|(pack, _)| *pack != appender.pack);
        let mut all_there = true;
        for (pack, state) in some {
            all_there &= matches!(self.found(pack, state), Found::There);
        }
        if all_there { Ok(()) } else { self.look_at_all(&mut home, appender) }
    }

    fn look_at_end(&self, home: &mut Home, appender: &mut Appender) -> Result<()> {
        match find(&appender.path, appender.file.as_deref(), appender.offset) {
            Found::There => Ok(()),
            _ => self.look_at_all(home, appender),
        }
    }

    fn found(&self, pack: u32, state: PackState) -> Found {
        if state.retired {
            return Found::There;
        }
        let open = locked(&self.open).files.get(&pack).map(|(file, _)| file.clone());
        find(&pack_path(&self.directory, pack), open.as_deref(), state.upto)
    }

    /// Puts what is away where it was. Of what cannot be had the first is told, and the others are
    /// there all the same.
    fn look_at_all(&self, home: &mut Home, appender: &mut Appender) -> Result<()> {
        self.look_at_directory(home)?;
        // Before the packs: what comes and goes meanwhile is seen the next time.
        let directory = std::fs::metadata(&self.directory);
        let directory = directory.map_err(|source| files::failed(&self.directory, source))?;
        let (mut put_anew, mut gone) = (0, None);
        for (pack, state) in self.index.packs() {
            let outcome = match pack == appender.pack {
                true => self.mend_newest(appender),
                false => self.mend(pack, state),
            };
            match outcome {
                Ok(is_anew) => put_anew += u64::from(is_anew),
                Err(error) => gone = gone.or(Some(error)),
            }
        }
        if put_anew > 0 {
            tracing::error!(
                directory = %self.directory.display(), packs = put_anew,
                "another program has removed or replaced packs here that are in use; they are \
                 written anew, and nothing of them is lost"
            );
        }
        // What is gone is looked for each time.
        home.seen.changed = gone.is_none().then(|| changed(&directory));
        let Some(error) = gone else { return Ok(()) };
        // The next process says by this what is lost.
        if let Err(error) = self.index.flush(Durability::Now) {
            tracing::warn!(%error, "what was put lately is not in the index");
        }
        Err(error)
    }

    fn mend_newest(&self, appender: &mut Appender) -> Result<bool> {
        let Appender { path, file, offset, .. } = &*appender;
        let file = file.as_deref();
        let found = find(path, file, *offset);
        let Some(anew) = mended(path, found, file, *offset)? else { return Ok(false) };
        let anew = Arc::new(anew);
        appender.file = Some(anew.clone());
        self.keep_open(appender.pack, anew);
        self.group.note(appender.appended);
        Ok(true)
    }

    fn mend(&self, pack: u32, state: PackState) -> Result<bool> {
        let path = pack_path(&self.directory, pack);
        let open = locked(&self.open).files.get(&pack).map(|(file, _)| file.clone());
        let found = self.found(pack, state);
        let Some(anew) = mended(&path, found, open.as_deref(), state.upto)? else {
            return Ok(false);
        };
        self.keep_open(pack, Arc::new(anew));
        Ok(true)
    }

    /// One that was removed is made again. Of one that was moved all is where it is now.
    fn look_at_directory(&self, home: &mut Home) -> Result<()> {
        let is_locked = home.lock.metadata().is_ok_and(|found| found.nlink() > 0);
        let found = std::fs::metadata(&self.directory);
        let is_ours = found.is_ok_and(|found| identity(&found) == home.seen.directory);
        if is_ours && is_locked {
            return Ok(());
        }
        if !is_ours && parent_of(&self.directory).ok() != Some(home.parent) {
            return Err(moved(&self.directory));
        }
        if !is_ours && is_locked {
            return Err(moved_away(&self.directory));
        }
        match std::fs::create_dir(&self.directory) {
            Ok(()) => files::sync_directory(parent_path(&self.directory))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(files::failed(&self.directory, error)),
        }
        home.lock = files::lock_directory(&self.directory)?;
        home.seen = Seen::of(&self.directory)?;
        self.index.follow()
    }
}

/// Takes away what a process that ended while it put packs anew has left of them.
pub fn forget_halves(directory: &Path) -> Result<()> {
    let names = files::names(directory)?;
    let halves = names.iter().filter(|name| kept::is_half(name, ENDING));
    halves.map(|name| directory.join(name)).try_for_each(|half| files::remove(&half))
}

/// What may not be looked at may be there all the same.
fn find(path: &Path, open: Option<&File>, bytes: u64) -> Found {
    let is_open_one = |found: &Metadata| {
        let open = open.and_then(|open| open.metadata().ok());
        open.is_none_or(|open| identity(&open) == identity(found))
    };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && is_open_one(&found) => {
            if found.len() >= bytes {
                Found::There
            } else {
                Found::Short(found.len())
            }
        }
        Ok(_) => Found::Away,
        Err(error) if is_gone(&error) => Found::Away,
        Err(_) => Found::There,
    }
}

/// None: it was there.
fn mended(path: &Path, found: Found, open: Option<&File>, bytes: u64) -> Result<Option<File>> {
    let has = match (found, open) {
        (Found::There, _) => return Ok(None),
        (Found::Short(has), _) => has,
        (Found::Away, None) => return Err(missing(path)),
        (Found::Away, Some(open)) => match files::length(open, path)? {
            has if has >= bytes => return kept::put_anew(open, bytes, path).map(Some),
            has => has,
        },
    };
    let what = format!(
        "another program has cut it short while it was in use, to {has} bytes of {bytes}; start farfs \
         again: it says then what is lost, and takes again what devices have"
    );
    Err(StoreError::Damaged { place: path.display().to_string(), what })
}

fn moved_away(directory: &Path) -> StoreError {
    let what = "another program has moved it while it was in use: move that back to where it was";
    StoreError::Missing { place: directory.display().to_string(), what: what.to_owned() }
}

fn missing(path: &Path) -> StoreError {
    let what = "another program has removed it while it was in use: put it back, or start farfs again, \
                which says then what is lost, and takes again what devices have";
    StoreError::Missing { place: path.display().to_string(), what: what.to_owned() }
}
