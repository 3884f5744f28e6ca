//! Closing: when what was written is stored, and a container let go.
//! Holds: what was written is kept until it is stored; what nobody has open and is not current
//! goes.
//! From: AFS and LBFS, close-to-open.

use super::{Files, Grip, HandleState};
use crate::client::Client;
use crate::presence::Presence;
use crate::types::{Handle, Stop};
use model::{FileId, ReplicaId, Stamp};
use protocol::Upstream;
use std::collections::BTreeSet;
use store::container::Key;
use store::{Container, Containers, Durability, Result as StoreResult};

/// Files of which older versions are remembered that are in nobody's way.
const OUTLIVED_MAX: usize = 4096;

/// What the close of a handle does to what was written.
enum Last<K> {
    /// Others will store it, or nothing was written.
    Nothing,
    StoredNow(Grip<K>),
    /// Beside the calls, and before the next change.
    StoredSoon,
}

impl<K: Container> Files<K> {
    /// Through which some files are open, or such as have no name yet of this replica.
    pub(crate) fn handles_of(
        &self,
        files: &BTreeSet<FileId>,
        replica: Option<ReplicaId>,
    ) -> Vec<Handle> {
        let is_one = |state: &HandleState| self.is_one_of(state.file, files, replica);
        let theirs = self.handles.iter().filter(|(_, state)| is_one(state));
        theirs.map(|(handle, _)| Handle(*handle)).collect()
    }

    /// Its container may be what is pending: when that has been judged, it is looked at again. Of more files
    /// it is at the next start.
    pub(super) fn outlives(&mut self, file: FileId, presence: &Presence) {
        if self.outlived.len() < OUTLIVED_MAX || self.outlived.contains_key(&file) {
            self.outlived.entry(file).or_default().push(presence.clone());
        }
    }

    /// Whatever is open of them leads nowhere.
    pub(crate) fn shut(&mut self, files: &BTreeSet<FileId>, replica: Option<ReplicaId>) {
        for handle in self.handles_of(files, replica) {
            self.handles.remove(&handle.0);
        }
        let open: Vec<_> = self.open.keys().copied().collect();
        for key in open {
            if self.is_one_of(key.0, files, replica) {
                self.open.remove(&key);
            }
        }
    }

    /// Who has others open goes on from what is pending by the stamps that it bears now.
    pub(crate) fn restamp(&mut self, anew: impl Fn(Stamp) -> Option<Stamp>) {
        for open in self.open.values_mut() {
            open.presence.restamp(&anew);
        }
    }

    fn is_one_of(
        &self,
        file: FileId,
        files: &BTreeSet<FileId>,
        replica: Option<ReplicaId>,
    ) -> bool {
        let is_unborn = || Some(file.replica()) == replica && self.is_unborn(file);
        files.contains(&file) || is_unborn()
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The last close of a handle. What could not be stored before is stored now.
    pub fn release(&self, handle: Handle) {
        let last = self.last_close(handle);
        if let Last::StoredNow(grip) = &last
            // Pages that were mapped may have been written after the last flush.
            && let Err(stop) = self.store_unattended(grip)
        {
            match stop {
                // It is fetched, and then all of it stored.
                Stop::Need(need) => tracing::debug!(file = %grip.file, ?need, "stored later"),
                Stop::Error(error) => {
                    tracing::warn!(file = %grip.file, %error, "what was written is not stored yet");
                }
            }
        }
        let mut files = self.files();
        let Some(state) = files.handles.remove(&handle.0) else { return };
        let key = (state.file, state.generation);
        if state.flags.write {
            files.closed_by_writer(state.file, state.generation);
        }
        if state.lent {
            files.lent_handle_closed(state.file);
        }
        let Some(open) = files.open.get_mut(&key) else { return };
        open.take_off(&state);
        let only_writes = state.flags.write && !state.flags.read;
        let is_twice = only_writes && !state.direct && open.is_cached_twice();
        let unborn = open.unborn;
        // What has no name but the kernel's lasts until the kernel forgets it.
        let kept = unborn && self.known().gone(state.file).is_some();
        let closed = open.handles == 0 && open.presence.dirty.is_none() && !kept;
        let gone = open.unlinked.is_some();
        if let (true, Some(node)) = (closed, &open.unlinked) {
            let Presence { version, contents, .. } = open.presence;
            self.known().written(state.file, version, contents, open.mtime.unwrap_or(node.mtime));
        }
        let given_up = open.is_given_up();
        let left = closed.then(|| open.presence.clone());
        if closed && let Some(open) = files.open.remove(&key) {
            open.give_room_back();
        }
        if is_twice {
            files.twice.insert(state.file);
        }
        let settles = files.size_may_settle(state.file, self.numbers().current(state.file));
        drop(files);
        self.let_go_of_locks(state.file, handle);
        if let Last::StoredSoon = last {
            self.store_soon(state.file, state.generation);
        }
        self.is_released(handle, state.lent || is_twice);
        if let (Some(presence), true) = (&left, unborn) {
            self.remove_unborn(state.file, presence.generation);
        } else if let Some(presence) = &left {
            self.closed(state.file, presence);
            self.discard_if_unused(state.file, presence, gone);
        }
        if given_up {
            self.give_up_written(state.file, state.generation);
        }
        if let (true, Some(kernel)) = (settles, self.inner.kernel.get()) {
            let carried_out = kernel.forget_node(state.file, false);
            let now = self.inner.world.clock.moment();
            self.files().settle_size(state.file, carried_out, now);
        }
    }

    /// What the close of a handle does to what was written.
    fn last_close(&self, handle: Handle) -> Last<C::Container> {
        let mut files = self.files();
        let Ok((grip, flags)) = files.grip(handle) else { return Last::Nothing };
        let was_unseen = files.writes_no_more(handle);
        if was_unseen && let Some(state) = files.handles.get_mut(&handle.0) {
            // Of two that are closed at once, one is the last.
            state.counts_as_writing = false;
        }
        let Some(open) = files.get_mut(grip.file, grip.generation) else { return Last::Nothing };
        open.writing_handles -= u32::from(was_unseen);
        // The kernel releases late. Who writes by then is not to have half of it stored, and
        // will store it all.
        let others = open.writing_handles - u32::from(flags.write && !was_unseen);
        // Who gets what is locked through the handle is to see that the contents were cut.
        let left = others > 0 && !(open.only_cut && self.gives_up_alone(grip.file, handle));
        match open.unlinked {
            _ if !flags.write || left => Last::Nothing,
            // To cut all of it takes a while, and whoever closed it has gone on.
            None if open.unseen.is_some() => Last::StoredSoon,
            None if open.turned_down => Last::Nothing,
            _ => Last::StoredNow(grip),
        }
    }

    /// Lets go of a version that nobody has open and that is not the current one, or whose file is
    /// gone: what it was may serve as a base for a while. So does the container of one of which
    /// nothing has come go.
    pub(crate) fn discard_if_unused(&self, file: FileId, presence: &Presence, gone: bool) {
        if let Err(error) = self.discard(file, presence, gone) {
            tracing::warn!(%error, %file, "a container that is not needed could not be removed");
        }
    }

    /// Something of the file was judged: what older versions of it left behind may go.
    pub(crate) fn discard_outlived(&self, file: FileId) {
        let outlived = self.files().outlived.remove(&file);
        for presence in outlived.into_iter().flatten() {
            self.discard_if_unused(file, &presence, false);
        }
    }

    fn discard(&self, file: FileId, presence: &Presence, gone: bool) -> StoreResult<()> {
        let core = self.core();
        let mut files = self.files();
        if files.get(file, presence.generation).is_some() {
            return Ok(());
        }
        let row = Presence::load(&*self.inner.tables.read()?, file)?;
        if core.log.pending_store(file).is_some() {
            if row.is_some_and(|row| row.generation != presence.generation) {
                files.outlives(file, presence);
            }
            return Ok(());
        }
        // Until the kernel forgets it, it can be opened once more.
        let gone = gone && !files.is_open(file) && self.known().gone(file).is_none();
        let remove = |presence: &Presence| -> StoreResult<()> {
            if !self.set_aside(&core, &files, file, presence)? {
                let key = Key { file: file.0, generation: presence.generation };
                self.inner.containers.remove(key)?;
            }
            Ok(())
        };
        let current = row.as_ref().map(|row| row.generation);
        if gone && let Some(row) = &row {
            remove(row)?;
            let mut write = self.inner.tables.write()?;
            Presence::remove(&mut *write, file)?;
            Presence::forget_all_displaced(&mut *write, file)?;
            write.commit(Durability::Later)?;
        }
        if current != Some(presence.generation) {
            remove(presence)?;
        } else if row.is_some_and(|row| row.holds_nothing())
            && presence.holds_nothing()
            && !files.is_lent(file, presence.generation)
        {
            // It would take an inode for good, and neither the user nor the cache's size would see
            // it. The row stays, for the generation that it counts.
            let key = Key { file: file.0, generation: presence.generation };
            self.inner.containers.remove(key)?;
        }
        Ok(())
    }
}
