//! Contents that were written here and that the cache does not hold any more as they were written:
//! the disk has lost bits of them, or somebody has changed the state directory.
//! Holds: what is there of them is stored as it is, in place of what was; nothing that was damaged
//! is passed over in silence; what is said is on the disk before anything is done about it.
//! From: partially connected operation, 5.2 ("Effective crash recovery is critical").

mod unsent;

pub(crate) use unsent::{Lacking, Unkept};

use crate::client::{Client, Core, error_of};
use crate::lost::nowhere;
use crate::part::{PartRow, opened_record};
use crate::presence::{Dirty, Presence};
use crate::replay_log::stale_by;
use crate::trash::GENERATION_MIN;
use crate::types::{Error, Stop};
use crate::undo::of_log;
use crate::unreadable::readable;
use minicbor::{Decode, Encode};
use model::{Change, FileId, Name, Stamp, Time, Update, View};
use protocol::Upstream;
use std::collections::VecDeque;
use store::container::Key;
use store::{Container, Containers, Durability, Read, StoreError, Write};
use update_log::{Record, UpdateLog};
use volume::partial::{Missing, Tree};

const DAMAGE: &str = "client-damage";
const FORMAT: u8 = 1;
/// The oldest are forgotten beyond so many.
const NOTES_MAX: usize = 100;
/// Directories above each other that a path is made of.
const DEPTH_MAX: usize = 256;

/// What is remembered of contents that were damaged.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Note {
    #[n(0)]
    pub file: FileId,
    /// The update that stored them.
    #[n(1)]
    pub version: Stamp,
    #[n(2)]
    pub path: Option<String>,
    /// Seconds since 1970.
    #[n(3)]
    pub at: i64,
    /// Bytes that were there, and are stored. None: nothing was.
    #[n(4)]
    pub stored: Option<u64>,
    #[n(5)]
    pub told: bool,
    /// Of these bytes, those that the disk could not read: zeros are stored for them.
    #[n(6)]
    pub zeros: Option<u64>,
}

impl Note {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Note, StoreError> {
        let damaged = |what: String| StoreError::Damaged { place: DAMAGE.into(), what };
        match bytes.split_first() {
            Some((&FORMAT, rest)) => minicbor::decode(rest).map_err(|e| damaged(e.to_string())),
            _ => Err(damaged("a row has an unknown format".into())),
        }
    }

    fn shown(&self) -> protocol::Damage {
        protocol::Damage {
            file: self.file.0,
            path: self.path.clone(),
            version: self.version.to_string(),
            at_secs: self.at,
            stored_bytes: self.stored,
            zeros: self.zeros.unwrap_or(0),
            unsent: false,
            told: self.told,
        }
    }

    /// Adds it to what is remembered. What was damaged once is noted once.
    fn save(&self, write: &mut dyn Write) -> Result<(), StoreError> {
        let mut notes: VecDeque<(u64, Note)> = notes(&*write)?.into();
        if notes.iter().any(|(_, note)| note.version == self.version && note.file == self.file) {
            return Ok(());
        }
        let number = notes.back().map_or(1, |(last, _)| last + 1);
        while notes.len() >= NOTES_MAX
            && let Some((oldest, _)) = notes.pop_front()
        {
            write.delete(DAMAGE, &oldest.to_be_bytes())?;
        }
        write.put(DAMAGE, &number.to_be_bytes(), &self.encode())
    }
}

/// All that is remembered, by number, the oldest first.
fn notes(read: &dyn Read) -> Result<Vec<(u64, Note)>, StoreError> {
    let rows = read.scan(DAMAGE, &[], &[0xff; 9], NOTES_MAX)?;
    rows.into_iter()
        .map(|(key, value)| {
            let what = || "a key is not a number".into();
            let key = <[u8; 8]>::try_from(&key[..])
                .map_err(|_| StoreError::Damaged { place: DAMAGE.into(), what: what() })?;
            Ok((u64::from_be_bytes(key), Note::decode(&value)?))
        })
        .collect()
}

/// The container with what is there of a pending store, and the row that is to speak of it.
struct Rest<K> {
    container: K,
    presence: Presence,
    bytes: u64,
    /// It is to be stored with zeros for what lay in its ground.
    lacks: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is remembered of damage, for people and programs.
    pub(crate) fn damage(&self) -> Vec<protocol::Damage> {
        let lost = self.still_lost();
        let notes = self.inner.tables.read().and_then(|read| notes(&*read));
        match notes {
            Ok(notes) => notes.iter().map(|(_, note)| note.shown()).chain(lost).collect(),
            Err(error) => {
                tracing::error!(%error, "what is known of damage could not be read");
                lost
            }
        }
    }

    /// Somebody has been told of all damage, or of that of one file.
    pub fn damage_told(&self, file: Option<FileId>) -> Result<(), Error> {
        self.inner.mended.unkept.told(file);
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for (number, note) in notes(&*write).map_err(error_of)? {
            if !note.told && file.is_none_or(|file| file == note.file) {
                let told = Note { told: true, ..note }.encode();
                write.put(DAMAGE, &number.to_be_bytes(), &told).map_err(error_of)?;
            }
        }
        write.commit(Durability::Later).map_err(error_of)?;
        self.core().unsaved = true;
        Ok(())
    }

    /// A pending store whose contents are nowhere here as they were written, and not above either.
    /// It is given up, so that the rest need not wait for it, and what is there is stored; with so
    /// many zeros for what could not be read.
    pub(crate) fn give_up_store(&self, update: &Update, zeros: Option<u64>) -> Result<(), Error> {
        let Change::Store { file, expects, mtime, .. } = update.change else { return Ok(()) };
        let rest = {
            let mut core = self.core();
            let number = update.stamp.number;
            if core.plans.has(number) || !core.log.is_pending(number) {
                return Ok(());
            }
            // Of what has been removed or stored anew since, nothing is missed.
            let is_shown = !matches!(self.node_as_shown(file), Ok(None))
                && core.log.pending_store(file) == Some(number);
            let rest = match is_shown {
                // None, too, where what leads to it is lost.
                true => readable(self.rest_of(update, file)).map_err(error_of)?.flatten(),
                false => None,
            };
            if is_shown {
                let bytes = rest.as_ref().map(|rest| rest.bytes);
                self.note_damage(&mut core, update, file, (bytes, zeros)).map_err(error_of)?;
            }
            match &rest {
                Some(rest) => {
                    // What has the bytes that are zeros here is not replaced by it.
                    let nothing = nowhere(update.stamp.replica);
                    let expects = if rest.lacks { nothing } else { expects };
                    self.take_as_written(&mut core, update, rest, (file, expects, mtime))?;
                }
                None => {
                    core.log.overtake(number).map_err(of_log)?;
                    core.unsaved = true;
                    self.rebuild(&mut core, std::slice::from_ref(update))?;
                }
            }
            rest
        };
        if let Some(rest) = rest {
            self.store_rest(file, rest.presence.generation)?;
        }
        self.forget(&stale_by(update));
        self.inner.settled.notify_waiters();
        Ok(())
    }

    /// What was written here is stored without what it rests on, which is kept nowhere any more.
    pub(crate) fn note_lost(
        &self,
        file: FileId,
        version: Stamp,
        stored: u64,
    ) -> Result<(), StoreError> {
        let mut core = self.core();
        let mut write = self.inner.tables.write()?;
        let stored = (Some(stored), None);
        self.new_note(&*write, &core.log, (file, version), stored).save(&mut *write)?;
        write.commit(Durability::Later)?;
        core.unsaved = true;
        Ok(())
    }

    fn node_as_shown(&self, file: FileId) -> Result<Option<model::Node>, Missing> {
        Tree::new(&*self.inner.tables.read()?, 0).node(file)
    }

    /// What the cache has of a store: the container that the row speaks of, or one that an opening
    /// has found to be too short, and left for an empty one.
    fn rest_of(
        &self,
        update: &Update,
        file: FileId,
    ) -> Result<Option<Rest<C::Container>>, StoreError> {
        let Change::Store { contents, .. } = update.change else { return Ok(None) };
        let (row, part) = {
            let read = self.inner.tables.read()?;
            let part = PartRow::load(&*read, file, update.stamp.number, &contents)?;
            (Presence::load(&*read, file)?, part)
        };
        let displaced = Presence::displaced(&*self.inner.tables.read()?, file)?;
        let is_anothers = |key: &Key| {
            let generation = key.generation;
            displaced.iter().any(|row| row.generation == generation)
                || self.files().get(file, generation).is_some()
        };
        let newest = self.files().newest_generation(file);
        let used = row.as_ref().map_or(update.at.secs, |row| row.used);
        let is_it = |row: &&Presence| {
            row.version == update.stamp && (row.is_whole() || row.ground.is_some())
        };
        // Of what was copied and not written to, nothing was here.
        if row.as_ref().filter(is_it).is_some_and(|row| row.is_a_bare_copy()) {
            return Ok(None);
        }
        let current = row.as_ref().filter(is_it).map(|row| row.generation);
        let there = self.inner.containers.list_of(file.0)?.into_iter();
        let others = there.filter(|key| {
            key.generation < GENERATION_MIN
                && Some(key.generation) != row.as_ref().map(|row| row.generation)
                && Some(key.generation) != newest
                && !is_anothers(key)
        });
        let other = others.map(|key| key.generation).max();
        let key = |generation| Key { file: file.0, generation };
        let above = row.as_ref().map(|row| row.generation).max(newest);
        let generation = match (current, other, above) {
            (Some(current), _, _) => current,
            // Whoever opens it next takes the newest one.
            (None, Some(other), Some(above)) => {
                let fresh = above.max(other).saturating_add(1).min(GENERATION_MIN - 1);
                if !self.inner.containers.rename(key(other), key(fresh))? {
                    return Ok(None);
                }
                fresh
            }
            (None, Some(other), None) => other,
            (None, None, _) => return Ok(None),
        };
        let Some(container) = self.inner.containers.open(key(generation), false)? else {
            return Ok(None);
        };
        let bytes = container.length()?;
        let mut presence = Presence::new(generation, update.stamp, contents, used);
        let row = row.filter(|_| current.is_some());
        let lacks = part.is_none() && row.as_ref().is_some_and(|row| !row.is_whole());
        let row = row.filter(|_| part.is_some());
        if let Some(ground) = row.as_ref().and_then(|row| row.ground.clone()) {
            // What is not here is still as it is there.
            presence.ranges = row.map_or(Vec::new(), |row| row.ranges);
            presence.ground = Some(ground);
            presence.cut(bytes);
            presence.doubt();
        }
        Ok(Some(Rest { container, presence, bytes, lacks }))
    }

    /// A pending store is to meet whatever the replica above has: it is taken back, and what the
    /// container holds is stored anew, expecting `expects`.
    pub(crate) fn set_apart(&self, update: &Update, expects: Stamp) -> Result<(), Error> {
        let Change::Store { file, mtime, .. } = update.change else { return Ok(()) };
        let mut core = self.core();
        let number = update.stamp.number;
        let is_last = core.log.pending_store(file) == Some(number);
        if !is_last || matches!(self.node_as_shown(file), Ok(None)) {
            return Ok(());
        }
        if let Some(rest) = self.rest_of(update, file).map_err(error_of)? {
            self.take_as_written(&mut core, update, &rest, (file, expects, mtime))?;
            core.plans.remove(number);
        }
        Ok(())
    }

    /// The container counts as written to and not stored since; the store is taken back.
    fn take_as_written(
        &self,
        core: &mut Core,
        update: &Update,
        rest: &Rest<C::Container>,
        (file, expects, mtime): (FileId, Stamp, Time),
    ) -> Result<(), Error> {
        let (generation, dirty) = (rest.presence.generation, Dirty::new(expects, update.uid));
        let mut files = self.files();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let number = update.stamp.number;
        // Before anything is taken back all that this comes to is ready, but for the commit.
        core.show_without(&mut *write, file, (number, expects))
            .map_err(|missing| Error::Failed(missing.to_string()))?;
        let mut presence = rest.presence.clone();
        presence.dirty = Some(dirty);
        presence.save(&mut *write, file).map_err(error_of)?;
        // Noted before the store is taken back: between the two, a crash loses neither.
        core.log.note(&opened_record(file, dirty, &rest.presence)).map_err(of_log)?;
        core.log.overtake(number).map_err(of_log)?;
        // Until the tables know of it.
        let was_behind = std::mem::replace(&mut core.behind, true);
        core.unsaved = true;
        match files.get_mut(file, generation) {
            Some(open) => open.presence = presence,
            None => files.reopen(file, rest.container.clone(), presence, false),
        }
        if let Some(open) = files.get_mut(file, generation) {
            open.mtime = Some(mtime);
            // How it was cut is not what it holds.
            (open.since, open.front, open.images) = (None, None, None);
        }
        write.commit(Durability::Later).map_err(error_of)?;
        core.behind = was_behind;
        let key = Key { file: file.0, generation };
        self.charge_again(core, key, expects, &rest.presence.contents);
        Ok(())
    }

    fn store_rest(&self, file: FileId, generation: u32) -> Result<(), Error> {
        let Some(grip) = self.grip_of(file, generation) else { return Ok(()) };
        match self.store_unattended(&grip) {
            Ok(()) => self.files().close_left_over(file, generation),
            // It is written and not stored: upkeep, or the last close, tries again.
            Err(Stop::Need(need)) => tracing::debug!(?need, %file, "the rest cannot be stored yet"),
            Err(Stop::Error(error)) => return Err(error),
        }
        Ok(())
    }

    /// Says that contents are damaged, for good, before anything is done about it.
    fn note_damage(
        &self,
        core: &mut Core,
        update: &Update,
        file: FileId,
        stored: (Option<u64>, Option<u64>),
    ) -> Result<(), StoreError> {
        let mut write = self.inner.tables.write()?;
        self.new_note(&*write, &core.log, (file, update.stamp), stored).save(&mut *write)?;
        // Nobody can write to the tables now, so this is all that they speak of.
        self.sync_log()?;
        write.commit(Durability::Now)?;
        core.unsaved = true;
        Ok(())
    }

    fn new_note(
        &self,
        read: &dyn Read,
        log: &UpdateLog,
        (file, version): (FileId, Stamp),
        (stored, zeros): (Option<u64>, Option<u64>),
    ) -> Note {
        let path = path_of(&Tree::new(read, 0), log, file);
        let at = self.inner.world.clock.time().secs;
        let note = Note { file, version, path, at, stored, told: false, zeros };
        tracing::error!(%file, damage = %note.shown(), "the disk has not kept what was written");
        note
    }

    /// Of stores that a recovery found torn, notes those whose container nobody was writing to.
    pub(crate) fn note_torn(
        &self,
        write: &mut dyn Write,
        log: &UpdateLog,
        torn: &Torn,
    ) -> Result<(), StoreError> {
        for (file, version) in torn.damaged.iter().copied() {
            // Of what has been removed since, nothing is missed.
            if matches!(Tree::new(&*write, 0).node(file), Ok(None)) {
                continue;
            }
            let row = Presence::load(&*write, file)?;
            let generation = row.map_or(0, |row| row.generation);
            let container = self.inner.containers.open(Key { file: file.0, generation }, false)?;
            let stored = container.map(|container| container.length()).transpose()?;
            self.new_note(&*write, log, (file, version), (stored, None)).save(write)?;
        }
        Ok(())
    }

    /// Sentences on the damage of a file.
    pub(crate) fn explain_damage(&self, file: FileId) -> impl Iterator<Item = String> {
        let damage = self.damage().into_iter().filter(move |damage| damage.file == file.0);
        damage.map(|damage| format!("Damaged: {damage}."))
    }
}

/// Stores whose contents a recovery has not found.
#[derive(Debug, Default)]
pub(crate) struct Torn {
    pub numbers: Vec<u64>,
    /// Of them, those after which the log has not said that the file is written to once more.
    damaged: Vec<(FileId, Stamp)>,
}

impl Torn {
    /// The next record of the log, in its order; a store is torn or is not.
    pub fn note(&mut self, record: &Record, is_torn: bool) {
        match record {
            Record::Update(Update { stamp, change: Change::Store { file, .. }, .. }) if is_torn => {
                self.numbers.push(stamp.number);
                self.damaged.push((*file, *stamp));
            }
            Record::Opened { file, .. }
            | Record::OpenedPart { file, .. }
            | Record::Closed { file } => {
                self.damaged.retain(|(stored, _)| stored != file);
            }
            _ => {}
        }
    }

    /// Numbers of those whose container nobody was writing to.
    pub fn last(&self) -> impl Iterator<Item = u64> {
        self.damaged.iter().map(|(_, version)| version.number)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Where a file is, or else its id.
    pub(crate) fn name_for_people(&self, file: FileId) -> String {
        let core = self.core();
        let read = self.inner.tables.read().ok();
        let path = read.and_then(|read| path_of(&Tree::new(&*read, 0), &core.log, file));
        path.unwrap_or_else(|| format!("file {file}"))
    }
}

/// Where a file is, from the root of the volume, as far as that is known here.
fn path_of(tree: &Tree<'_>, log: &UpdateLog, file: FileId) -> Option<String> {
    let mut path = Vec::new();
    let mut at = file;
    for _ in 0..DEPTH_MAX {
        // What is pending may not show yet.
        let (directory, name) = tree.name_of(at).ok().flatten().or_else(|| named_in(log, at))?;
        path.push(name.to_string());
        at = directory;
        if at == FileId::ROOT {
            path.reverse();
            return Some(path.join("/"));
        }
    }
    None
}

/// The name that a pending update gave to a file last.
fn named_in(log: &UpdateLog, wanted: FileId) -> Option<(FileId, Name)> {
    let updates = log.of_file(wanted).map(|(number, _)| log.get(number).ok().flatten());
    updates.flatten().find_map(|update| match update.change {
        Change::Make { parent, name, file, .. } | Change::Link { parent, name, file }
            if file == wanted =>
        {
            Some((parent, name))
        }
        Change::Rename { to, to_name, file, .. } if file == wanted => Some((to, to_name)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, ReplicaId};
    use store::Tables;
    use store::memory::MemoryTables;

    const FILE: FileId = FileId(7);

    fn version(number: u64) -> Stamp {
        Stamp::new(ReplicaId(3), number)
    }

    fn note(number: u64) -> Note {
        let path = Some("a/b".into());
        let (stored, zeros) = (Some(9), None);
        Note { file: FILE, version: version(number), path, at: 50, stored, told: false, zeros }
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn a_golden_row_still_reads() {
        let golden = [&[1, 0x86, 7, 0x82, 3, 9, 0x63][..], b"a/b", &[0x18, 50, 9, 0xf4]].concat();
        assert_eq!(note(9).encode(), golden);
        assert_eq!(Note::decode(&golden).unwrap(), note(9));
        let with_zeros = Note { zeros: Some(8), ..note(9) };
        let golden = [&[1, 0x87], &golden[2..], &[8]].concat();
        assert_eq!((Note::decode(&golden).unwrap(), with_zeros.encode()), (with_zeros, golden));
        for bytes in [&[][..], &[2, 0x80], &[1, 0xff], &[1, 0x81, 0xf6]] {
            assert!(Note::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_newest_notes_stay_and_each_damage_is_noted_once() {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        for number in (0..NOTES_MAX as u64 + 3).flat_map(|number| [number, number]) {
            note(number).save(&mut *write).unwrap();
        }
        let notes = notes(&*write).unwrap();
        assert_eq!(notes.len(), NOTES_MAX);
        let first = notes.first().map(|(_, note)| note.version.number);
        let last = notes.last().map(|(_, note)| note.version.number);
        assert_eq!((first, last), (Some(3), Some(NOTES_MAX as u64 + 2)));
    }

    fn stored(number: u64) -> Record {
        let contents = Contents { size: 5, root: None, holes: None };
        let at = Time { secs: 1, nanos: 0 };
        let change = Change::Store { file: FILE, expects: version(1), contents, mtime: at };
        Record::Update(Update { stamp: version(number), uid: 0, at, change })
    }

    #[test]
    fn what_was_written_to_once_more_after_a_store_is_not_damaged() {
        let opened = Record::Opened { file: FILE, generation: 0, expects: version(1), uid: 0 };
        let check = |records: &[Record]| {
            let mut torn = Torn::default();
            let is_torn = |record: &Record| matches!(record, Record::Update(update) if update.stamp.number == 9);
            records.iter().for_each(|record| torn.note(record, is_torn(record)));
            torn.damaged
        };
        assert_eq!(check(&[opened.clone(), stored(9)]), [(FILE, version(9))]);
        assert_eq!(check(&[opened.clone(), stored(8)]), []);
        assert_eq!(check(&[opened.clone(), stored(9), opened]), []);
    }
}
