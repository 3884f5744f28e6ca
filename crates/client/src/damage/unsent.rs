//! Contents that are pending and that the cache does not hold any more: somebody has removed their
//! containers or cut them short, or the disk has lost them. Whoever meets that says so, before they are to
//! be sent.
//! Holds: nothing is said of what may be here by another name, or above; what is said is looked at again
//! whenever it is shown, and shown only as long as it is so.
//! Never: reads contents, or changes what is pending.

use super::path_of;
use crate::client::{Client, Core};
use crate::part::PartRow;
use crate::presence::Presence;
use crate::renumber::Anew;
use crate::trash::GENERATION_MIN;
use crate::unreadable::readable;
use model::{Change, Contents, FileId, Stamp, View};
use protocol::Upstream;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::container::Key;
use store::{Container, Containers, Read, StoreError};
use volume::partial::Tree;

/// Files that are looked at before others have their turn.
const PAGE_FILES: usize = 256;
/// Of more files it is not remembered that something is lost: the log has said so.
const TOLD_MAX: usize = 100;

/// What the cache has of a pending store, which is less than was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub version: Stamp,
    /// Bytes up to which it is there. None at all: it is gone.
    pub there: u64,
    /// The replica above has said since the start what it has taken, and this is not among it.
    pub is_certain: bool,
}

impl Lacking {
    pub fn is_gone(&self) -> bool {
        self.there == 0
    }
}

/// What was found to be lost since the start.
#[derive(Default)]
pub(crate) struct Unkept(Mutex<BTreeMap<FileId, (Stamp, protocol::Damage)>>);

impl Unkept {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileId, (Stamp, protocol::Damage)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether that is new.
    fn note(&self, file: FileId, version: Stamp, damage: protocol::Damage) -> bool {
        let mut noted = self.lock();
        let is_known = noted.get(&file).is_some_and(|(before, _)| *before == version);
        if !is_known && (noted.len() < TOLD_MAX || noted.contains_key(&file)) {
            noted.insert(file, (version, damage));
        }
        !is_known
    }

    fn forget(&self, file: FileId, version: Stamp) {
        let mut noted = self.lock();
        if noted.get(&file).is_some_and(|(before, _)| *before == version) {
            noted.remove(&file);
        }
    }

    /// Somebody has been told of all that is lost, or of that of one file.
    pub(super) fn told(&self, file: Option<FileId>) {
        for (lost, (_, damage)) in self.lock().iter_mut() {
            damage.told |= file.is_none_or(|file| file == *lost);
        }
    }
}

/// How much of what a store has left is in a container of this length, where that is not all. None: it may
/// be all, or is not known.
fn there_of(
    row: &Presence,
    is_part: bool,
    contents: &Contents,
    length: Option<u64>,
) -> Option<u64> {
    if row.dirty.is_some() || row.ground.is_some() != is_part || contents.data() == 0 {
        return None;
    }
    match length {
        // Whoever opened it has found nothing there, and begun another one.
        Some(_) if !is_part && !row.is_whole() => Some(0),
        Some(length) => (length < contents.size).then_some(length),
        None => Some(0),
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What the cache lacks of the last pending store of a file. None: nothing, or that is not known.
    pub(crate) fn unsent_lacking(&self, file: FileId) -> Result<Option<Lacking>, StoreError> {
        let is_certain = self.connection().sessions > 0;
        // Nothing bears another name, nor is sent or written to, meanwhile.
        let core = self.core();
        let read = self.inner.tables.read()?;
        let Some((version, contents)) = pending_of(&core, file) else { return Ok(None) };
        // Of what has been removed since nothing is missed, and what is being renamed has two names.
        let is_removed = matches!(Tree::new(&*read, 0).node(file), Ok(None));
        if self.is_written_to(file) || is_removed || Anew::is_unfinished(&*read)? {
            return Ok(None);
        }
        let row = Presence::load(&*read, file)?.filter(|row| row.version == version);
        let Some(row) = row else { return Ok(None) };
        let part = PartRow::load(&*read, file, version.number, &contents)?;
        let key = Key { file: file.0, generation: row.generation };
        // One that cannot be opened is there.
        let Some(length) = self.length_of(key)? else { return Ok(None) };
        let Some(there) = there_of(&row, part.is_some(), &contents, length) else {
            return Ok(None);
        };
        if self.is_elsewhere(&*read, key, version, contents.size)? {
            return Ok(None);
        }
        Ok(Some(Lacking { version, there, is_certain }))
    }

    /// A program is writing to the newest version that is open.
    pub(crate) fn is_written_to(&self, file: FileId) -> bool {
        let files = self.files();
        let newest = files.newest_generation(file).and_then(|newest| files.get(file, newest));
        newest.is_some_and(|open| open.presence.dirty.is_some())
    }

    /// None: it cannot be opened.
    fn length_of(&self, key: Key) -> Result<Option<Option<u64>>, StoreError> {
        let opened = readable(self.inner.containers.open(key, false))?;
        opened.map(|container| container.map(|one| one.length()).transpose()).transpose()
    }

    /// Another container of the file is long enough to be what was stored, and is not another version's.
    fn is_elsewhere(
        &self,
        read: &dyn Read,
        own: Key,
        version: Stamp,
        size: u64,
    ) -> Result<bool, StoreError> {
        let displaced = Presence::displaced(read, FileId(own.file))?;
        for key in self.inner.containers.list_of(own.file)? {
            let files = self.files();
            let mut rows = displaced.iter().filter(|row| row.generation == key.generation);
            let is_anothers = key == own
                || key.generation >= GENERATION_MIN
                || rows.any(|row| row.version != version)
                || files
                    .get(FileId(key.file), key.generation)
                    .is_some_and(|open| open.presence.version != version);
            drop(files);
            let length = if is_anothers { Some(Some(0)) } else { self.length_of(key)? };
            if length.is_none_or(|length| length.is_some_and(|length| length >= size)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says so, if something that is pending is not here any more, nor known to be above.
    pub(crate) fn note_if_lost(&self, file: FileId) {
        match self.unsent_lacking(file) {
            Ok(Some(lacking)) if lacking.is_certain => self.note_lacking(file, lacking),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, %file, "whether what is pending is still here is not known");
            }
        }
    }

    fn note_lacking(&self, file: FileId, lacking: Lacking) {
        let (number, clock) = (lacking.version, &self.inner.world.clock);
        let path = {
            let core = self.core();
            let read = self.inner.tables.read().ok();
            read.and_then(|read| path_of(&Tree::new(&*read, 0), &core.log, file))
        };
        let damage = protocol::Damage {
            file: file.0,
            path,
            version: number.to_string(),
            at_secs: clock.time().secs,
            stored_bytes: (!lacking.is_gone()).then_some(lacking.there),
            zeros: 0,
            unsent: true,
            told: false,
        };
        if self.inner.mended.unkept.note(file, number, damage.clone()) {
            tracing::error!(%file, %damage, "what was written and not sent is lost");
        }
    }

    /// What is lost of what is pending, of all that was found to be.
    pub(super) fn still_lost(&self) -> Vec<protocol::Damage> {
        let mut shown = Vec::new();
        let noted = self.inner.mended.unkept.lock().clone();
        for (file, (version, damage)) in noted {
            match self.unsent_lacking(file) {
                Ok(Some(lacking)) if lacking.version == version => shown.push(damage),
                // What became of it says who sends it; or it has been put back, written anew or removed.
                Ok(_) => self.inner.mended.unkept.forget(file, version),
                Err(_) => shown.push(damage),
            }
        }
        shown
    }

    /// Looks whether all that is pending is still here.
    pub(crate) fn look_for_lost(&self) {
        let mut after = None;
        loop {
            let page: Vec<FileId> = self.core().log.stored_after(after).take(PAGE_FILES).collect();
            let Some(last) = page.last() else { return };
            after = Some(*last);
            page.into_iter().for_each(|file| self.note_if_lost(file));
        }
    }
}

/// The last pending store of a file, unless the replica above has it, or may have.
fn pending_of(core: &Core, file: FileId) -> Option<(Stamp, Contents)> {
    let number = core.log.pending_store(file)?;
    if core.meta.is_taken(number) || core.may_be_ahead(number) {
        return None;
    }
    let update = core.log.get(number).ok().flatten()?;
    match update.change {
        Change::Store { contents, .. } => Some((update.stamp, contents)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::{Dirty, Ground};
    use model::ReplicaId;

    const VERSION: Stamp = Stamp { replica: ReplicaId(3), number: 7 };

    #[test]
    fn what_was_stored_and_is_not_there_as_long_as_it_was_is_lacking() {
        let contents = Contents { size: 100, root: None, holes: None };
        let mut row = Presence::new(0, VERSION, contents, 0);
        let there = |row: &Presence, is_part, length| there_of(row, is_part, &contents, length);
        assert_eq!(there(&row, false, Some(100)), Some(0), "another one was begun in its place");
        row.add_all();
        assert_eq!(there(&row, false, None), Some(0));
        assert_eq!(there(&row, false, Some(99)), Some(99));
        assert_eq!(there(&row, false, Some(100)), None);
        assert_eq!(there(&row, false, Some(200)), None);
        assert_eq!(there(&row, true, None), None, "it rests on nothing");
        let holes = Contents { holes: Some(100), ..contents };
        assert_eq!(there_of(&row, false, &holes, None), None, "there was nothing in it");
        let ground = Some(Ground::new(VERSION, contents));
        let part = Presence { ranges: vec![(0, 10)], ground, ..row.clone() };
        assert_eq!(there(&part, true, Some(100)), None);
        assert_eq!(there(&part, true, Some(50)), Some(50));
        assert_eq!(there(&part, true, None), Some(0));
        assert_eq!(there(&part, false, None), None, "what was written to it is not known");
        row.dirty = Some(Dirty::new(VERSION, 0));
        assert_eq!(there(&row, false, None), None, "it is written to");
    }

    #[test]
    fn what_is_lost_is_new_once_and_is_told_of_once() {
        let damage = |file: u64| protocol::Damage {
            file,
            path: None,
            version: VERSION.to_string(),
            at_secs: 0,
            stored_bytes: None,
            zeros: 0,
            unsent: true,
            told: false,
        };
        let unkept = Unkept::default();
        let later = Stamp { number: 8, ..VERSION };
        assert!(unkept.note(FileId(5), VERSION, damage(5)));
        assert!(!unkept.note(FileId(5), VERSION, damage(5)));
        unkept.told(Some(FileId(6)));
        assert!(!unkept.lock()[&FileId(5)].1.told);
        unkept.told(None);
        assert!(unkept.lock()[&FileId(5)].1.told);
        assert!(unkept.note(FileId(5), later, damage(5)), "it was stored anew");
        unkept.forget(FileId(5), VERSION);
        assert_eq!(unkept.lock().len(), 1);
        unkept.forget(FileId(5), later);
        for file in 0..2 * TOLD_MAX as u64 {
            assert!(unkept.note(FileId(file), later, damage(file)));
        }
        assert_eq!(unkept.lock().len(), TOLD_MAX);
    }
}
