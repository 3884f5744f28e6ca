//! What was written and not stored, and nobody has open: left over from a close that failed, or
//! from before this machine stopped.

use super::{Files, HandleState, OpenFile};
use crate::part::opened_record;
use crate::presence::Presence;
use crate::types::Handle;
use model::FileId;
use std::thread;
use store::Container;
use update_log::{LogError, Record, UpdateLog};

impl<K> OpenFile<K> {
    /// Somebody who has it open may write to it.
    pub fn is_for_writing(&self) -> bool {
        self.writing_handles > 0
    }
}

impl<K: Container> Files<K> {
    /// Versions that nobody will close who wrote to them, and that are not stored yet.
    pub fn left_over(&self) -> Vec<(FileId, u32)> {
        let waits = |open: &OpenFile<K>| {
            // What the kernel wrote by itself stays lent to those who read it.
            let is_from_before = open.reopened && !open.is_for_writing();
            let is_closed = open.handles == 0 || open.is_closed_unseen() || is_from_before;
            is_closed
                && open.presence.dirty.is_some()
                && !open.turned_down
                && !open.may_be_written()
        };
        self.open.iter().filter(|(_, open)| waits(open)).map(|(key, _)| *key).collect()
    }

    /// Those of them that are to be stored in any case.
    pub fn left_over_surely(&self) -> Vec<(FileId, u32)> {
        let mut left = self.left_over();
        left.retain(|key| self.open.get(key).is_some_and(|open| !open.doubtful));
        left
    }

    /// Whether the kernel may write to the file by itself, or has, and it is not stored yet.
    pub fn is_to_be_stored_unseen(&self, file: FileId) -> bool {
        let unseen = |open: &OpenFile<K>| open.unseen.is_some() && open.unlinked.is_none();
        self.all_generations(file).any(unseen)
    }

    /// What is written to and has a name, of this file or of all.
    pub fn being_written(
        &self,
        of: Option<FileId>,
    ) -> impl Iterator<Item = ((FileId, u32), &OpenFile<K>)> {
        let (from, to) = of.map_or((FileId(0), FileId(u64::MAX)), |file| (file, file));
        let open = self.open.range((from, 0)..=(to, u32::MAX)).map(|(key, open)| (*key, open));
        open.filter(|(_, open)| open.presence.dirty.is_some() && open.unlinked.is_none())
    }

    /// It is stored from now on with nobody waiting for it, or that has come to an end. False: somebody
    /// will close it who writes to it.
    pub fn is_stored_unattended(&mut self, key: (FileId, u32), is_so: bool) -> bool {
        let Some(open) = self.open.get_mut(&key) else { return false };
        let begins = is_so && !open.is_for_writing();
        open.unattended = begins.then(|| thread::current().id());
        begins
    }

    /// Whether this thread stores it with nobody waiting for it, and is to give that up: somebody writes to it
    /// by now, or there is no more time. Who stores it as soon as it does so is another one, and goes on.
    pub fn gives_way(&self, key: (FileId, u32)) -> bool {
        let gives_way = |open: &OpenFile<K>| open.is_for_writing() || self.cuts_no_more;
        self.open
            .get(&key)
            .is_some_and(|open| open.unattended == Some(thread::current().id()) && gives_way(open))
    }

    /// This machine stops.
    pub fn cut_no_more(&mut self) {
        self.cuts_no_more = true;
    }

    /// What was left over has been stored: nobody has it open.
    pub fn close_left_over(&mut self, file: FileId, generation: u32) {
        let idle = |open: &OpenFile<K>| open.handles == 0 && open.presence.dirty.is_none();
        if self.open.get(&(file, generation)).is_some_and(idle)
            && let Some(open) = self.open.remove(&(file, generation))
        {
            open.give_room_back();
        }
    }

    /// A version that was being written to when the client died; `doubtful` if it may have been
    /// stored since. Who has opened it before goes on with it, and it is left over after him.
    pub fn reopen(&mut self, file: FileId, container: K, presence: Presence, doubtful: bool) {
        let generation = presence.generation;
        if self.open.contains_key(&(file, generation)) {
            return;
        }
        let mut open = OpenFile { doubtful, reopened: true, ..OpenFile::new(container, presence) };
        open.look_for_room(file);
        self.open.insert((file, generation), open);
    }

    /// Through none of these anything can be written.
    pub fn are_all_for_reading(&self, handles: &[Handle]) -> bool {
        let reads =
            |handle: &Handle| self.handles.get(&handle.0).is_none_or(|state| !state.flags.write);
        handles.iter().all(reads)
    }

    /// Whether the kernel tells of each close of it.
    pub fn tells_of_closes(&self, handle: Handle) -> bool {
        self.handles.get(&handle.0).is_some_and(|state| state.flags.write || state.tells)
    }

    /// Files of which it is to be asked whether they have been stored.
    pub fn doubtful(&self) -> Vec<FileId> {
        self.open.iter().filter(|(_, open)| open.doubtful).map(|((file, _), _)| *file).collect()
    }

    pub fn doubt_no_more(&mut self) {
        self.open.values_mut().for_each(|open| open.doubtful = false);
    }

    /// The versions of a doubtful file that were written to.
    pub fn doubtful_generations(&self, file: FileId) -> Vec<u32> {
        let is_it = |open: &&OpenFile<K>| open.doubtful && open.presence.dirty.is_some();
        self.generations(file).filter(is_it).map(|open| open.presence.generation).collect()
    }

    /// Somebody has the file open, or has written to it since this machine started.
    pub fn is_in_use(&self, file: FileId) -> bool {
        self.generations(file).any(|open| open.handles > 0 || open.written)
    }

    /// Somebody has it open who has written what is not stored yet, and will close it.
    /// Whether a program may have written to a mapping of it of which nothing is known here yet.
    pub fn may_be_mapped(&self, file: FileId) -> bool {
        let both = |state: &HandleState| state.flags.read && state.flags.write && !state.direct;
        let written = |open: &OpenFile<K>| open.is_for_writing() && open.cached_handles > 0;
        self.generations(file).any(written)
            && self.handles.values().any(|state| state.file == file && both(state))
    }

    pub fn is_being_written(&self, file: FileId) -> bool {
        let is_it = |open: &OpenFile<K>| open.is_for_writing() && open.presence.dirty.is_some();
        self.generations(file).any(is_it)
    }

    /// Says in the log that one version of a file is written to no more. The log says so of the file:
    /// of others that are written to it says anew that they are.
    pub fn note_closed(
        &self,
        log: &mut UpdateLog,
        file: FileId,
        generation: Option<u32>,
    ) -> Result<(), LogError> {
        log.note(&Record::Closed { file })?;
        self.note_others(log, file, generation)
    }

    /// The log says of those that are written to, besides one version, that they are.
    pub fn note_others(
        &self,
        log: &mut UpdateLog,
        file: FileId,
        but: Option<u32>,
    ) -> Result<(), LogError> {
        let others = self.generations(file).filter(|open| Some(open.presence.generation) != but);
        for open in others.filter(|open| open.unlinked.is_none()) {
            if let Some(dirty) = open.presence.dirty {
                log.note(&opened_record(file, dirty, &open.presence))?;
            }
        }
        Ok(())
    }

    /// All of it that is written to.
    pub fn written_versions(&mut self, file: FileId) -> impl Iterator<Item = &mut OpenFile<K>> {
        let versions = self.open.range_mut((file, 0)..=(file, u32::MAX)).map(|(_, open)| open);
        versions.filter(|open| open.presence.dirty.is_some())
    }

    pub fn written_version(&mut self, file: FileId) -> Option<&mut OpenFile<K>> {
        self.written_versions(file).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, ReplicaId, Stamp};
    use store::Containers as _;
    use store::container::Key;
    use store::memory::MemoryContainers;

    #[test]
    fn what_nobody_waits_for_gives_way_to_who_writes_and_is_not_begun_while_somebody_does() {
        let key = Key { file: 7, generation: 1 };
        let container = MemoryContainers::default().open(key, true).unwrap().unwrap();
        let mut files = Files::default();
        let version = Stamp::new(ReplicaId(3), 1);
        let presence = Presence::new(1, version, Contents::default(), 0);
        files.reopen(FileId(7), container, presence, false);
        let key = (FileId(7), 1);
        assert!(files.is_stored_unattended(key, true) && !files.gives_way(key));
        files.open.get_mut(&key).unwrap().writing_handles = 1;
        assert!(files.gives_way(key));
        assert!(!files.is_stored_unattended(key, true) && !files.gives_way(key));
        files.open.get_mut(&key).unwrap().writing_handles = 0;
        assert!(files.is_stored_unattended(key, true) && !files.gives_way(key));
        files.cut_no_more();
        assert!(files.gives_way(key), "there is no more time");
        let another = thread::scope(|scope| scope.spawn(|| files.gives_way(key)).join().unwrap());
        assert!(!another, "somebody waits for that");
    }
}
