//! Files whose last name has gone while they are open: they are this machine's affair.

use super::{Files, OpenFile};
use crate::client::{Client, Core, failed, log_failed};
use crate::contents::whole;
use crate::mode;
use crate::presence::{Dirty, NO_VERSION, Presence};
use crate::types::{Need, Step, Stop};
use model::{Change, Contents, Effects, FileId, Node, Update};
use protocol::Upstream;
use std::collections::BTreeSet;
use store::{Container, Containers, Durability, StoreError, Write};
use update_log::{Cancel, Record, What};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A name has gone, perhaps the last: who has the file open keeps it. It was removed, or taken by
    /// another file. That it went is logged, so what fails here costs room or bytes until a crash, and
    /// not the call.
    pub(crate) fn after_removal(
        &self,
        (file, node): (FileId, Node),
        (update, effects): &(Update, Effects),
        taken_by: Option<FileId>,
    ) {
        if effects.nodes.get(&file) != Some(&None) {
            return;
        }
        let node = Node { ctime: update.at, ..node };
        if let Err(stop) = self.let_contents_go(file, &node, taken_by) {
            tracing::warn!(%file, %stop, "a file was removed, and some of its contents are kept");
        }
    }

    fn let_contents_go(&self, file: FileId, node: &Node, taken_by: Option<FileId>) -> Step<()> {
        let may_be_undone = mode::waits_for_verdicts(self.connection().mode);
        let _pressed = self.pressed();
        let mut core = self.core();
        match self.node_here(file) {
            // Of one that was made here too, nothing may be left by now but what is open of it.
            Ok(None) | Err(Stop::Need(Need::Node(_))) => {}
            // It has come back meanwhile.
            Ok(Some(_)) => return Ok(()),
            Err(stop) => return Err(stop),
        }
        let mut files = self.files();
        let (open, written) = files.take_name(file, node);
        core.charges.forget_written(file);
        // Contents that nobody will see need not travel, once nobody can undo that the name went: what
        // took it may have been moved or removed elsewhere, if others know it.
        let is_done = taken_by.is_none_or(|by| is_ours_alone(&core, by));
        let goes = !may_be_undone && is_done && is_ours_alone(&core, file);
        if let Some(number) = core.log.pending_store(file).filter(|_| goes) {
            let before = core.log.store_bytes();
            if core.log.cancel(number).map_err(log_failed)? == Cancel::Cancelled {
                core.plans.remove(number);
                self.inner.counters.cancelling.count(1, before - core.log.store_bytes());
            }
        }
        if written {
            // What was written to it is not to come back after a crash.
            core.log.note(&Record::Closed { file }).map_err(log_failed)?;
            let mut write = self.inner.tables.write().map_err(failed)?;
            forget_written(&mut *write, file).map_err(failed)?;
            write.commit(Durability::Later).map_err(failed)?;
        }
        drop(files);
        drop(core);
        if !open {
            let read = self.inner.tables.read().map_err(failed)?;
            let row = Presence::load(&*read, file).map_err(failed)?;
            drop(read);
            if let Some(row) = row {
                self.discard_if_unused(file, &row, true);
            }
        }
        Ok(())
    }

    /// The container of a file without a name is about to be written to: nothing of that is kept. Nor
    /// is it the version that the row says, should the file come back after a crash.
    pub(super) fn note_nameless(
        &self,
        core: &mut Core,
        file: FileId,
        open: &mut OpenFile<C::Container>,
        uid: u32,
    ) -> Step<()> {
        let expects = open.nowhere.map_or(open.presence.version, |before| before.expects);
        let (generation, dirty) = (open.presence.generation, Dirty::new(expects, uid));
        let _pressed = self.pressed();
        let mut write = self.inner.tables.write().map_err(failed)?;
        let row = Presence::load(&*write, file).map_err(failed)?;
        let is_it = |row: &Presence| row.generation == generation && row.dirty.is_none();
        if let Some(row) = row.filter(|row| !open.unborn && is_it(row)) {
            let opened = Record::Opened { file, generation, expects, uid };
            core.log.note(&opened).map_err(log_failed)?;
            core.log.note(&Record::Closed { file }).map_err(log_failed)?;
            core.unsaved = true;
            Presence { dirty: Some(dirty), ..row }.save(&mut *write, file).map_err(failed)?;
            forget_written(&mut *write, file).map_err(failed)?;
            write.commit(Durability::Later).map_err(failed)?;
        }
        open.presence.dirty = Some(dirty);
        Ok(())
    }

    /// Of what is open without a name: what has one again, as its removal was not taken or somebody else has
    /// brought it back. What is written to it is to be stored again. None: any may have.
    pub(crate) fn name_again(&self, core: &mut Core, shown: Option<&BTreeSet<FileId>>) {
        let nameless = self.files().nameless(shown);
        for file in nameless {
            if let Err(stop) = self.name_one_again(core, file) {
                tracing::warn!(%file, %stop, "what is written to a file is not stored before its close");
            }
        }
    }

    fn name_one_again(&self, core: &mut Core, file: FileId) -> Step<()> {
        match self.node_here(file) {
            Ok(Some(_)) => {}
            // Of one that was made here too, nothing may be left by now but what is open of it. One that
            // others know is looked at again when they have told of it.
            Ok(None) | Err(Stop::Need(Need::Node(_))) => return Ok(()),
            Err(stop) => return Err(stop),
        }
        self.files().named_again(file);
        Ok(self.note_written(core, file)?)
    }

    /// Attributes of a file without a name are this machine's affair: of one that is open, or that
    /// the kernel has. Says whether it is one.
    pub(crate) fn change_nameless(&self, uid: u32, file: FileId, change: &Change) -> Step<bool> {
        if self.change_unborn(uid, file, change)? {
            return Ok(true);
        }
        let is_kept = self.files().is_kept_nameless(file) || self.known().gone_here(file).is_some();
        if !is_kept {
            return Ok(false);
        }
        let is_gone = matches!(self.node_here(file), Ok(None));
        let mut files = self.files();
        let mut known = self.known();
        let mut is_one = false;
        if let Some(node) = known.gone_here(file).filter(|_| is_gone) {
            *node = self.changed_alone(uid, file, node, change)?;
            is_one = true;
        }
        for (_, open) in files.open.range_mut((file, 0)..=(file, u32::MAX)).filter(|_| is_gone) {
            let Some(node) = &mut open.unlinked else { continue };
            *node = self.changed_alone(uid, file, node, change)?;
            if let Change::SetAttributes { set, .. } = change {
                open.mtime = set.mtime.or(open.mtime);
            }
            is_one = true;
        }
        Ok(is_one)
    }
}

impl<K: Container> Files<K> {
    /// Somebody has it open, and its last name has gone.
    fn is_kept_nameless(&self, file: FileId) -> bool {
        self.all_generations(file).any(|open| open.unlinked.is_some())
    }

    /// The last name of a file is there again. What was written to it without one is to be stored.
    pub fn named_again(&mut self, file: FileId) {
        let versions = self.open.range_mut((file, 0)..=(file, u32::MAX));
        for (_, open) in versions.filter(|(_, open)| !open.unborn) {
            open.unlinked = None;
            open.presence.dirty = open.presence.dirty.or(open.nowhere);
            open.nowhere = None;
        }
    }

    /// What was written to a file without a name is stored nowhere. The container is no version from
    /// here on: the file may come back as what it held before. Gives what the container is.
    pub fn store_nowhere(
        &mut self,
        file: FileId,
        generation: u32,
        contents: Contents,
    ) -> Option<&Presence> {
        // What the kernel has of it is what it holds.
        self.shown_is_stored(file, generation, NO_VERSION);
        let open = self.open.get_mut(&(file, generation))?;
        open.nowhere = open.nowhere.or(open.presence.dirty);
        open.presence = match &open.presence {
            here if here.ground.is_some() => here.stored(NO_VERSION, contents),
            here => whole(here.generation, (NO_VERSION, contents), here.used),
        };
        open.front = None;
        Some(&open.presence)
    }

    /// Of these, or of all, files that have had a name and are open without one.
    pub fn nameless(&self, of: Option<&BTreeSet<FileId>>) -> Vec<FileId> {
        let nameless = |open: &OpenFile<K>| open.unlinked.is_some() && !open.unborn;
        let is_one = |file: &FileId| {
            let mut versions = self.open.range((*file, 0)..=(*file, u32::MAX));
            versions.any(|(_, open)| nameless(open))
        };
        match of {
            Some(files) => files.iter().copied().filter(is_one).collect(),
            None => {
                let found = self.open.iter().filter(|(_, open)| nameless(open));
                found.map(|((file, _), _)| *file).collect()
            }
        }
    }
}

/// Nobody else can know of it: what made it has not left. Others may have given a file that they know
/// another name meanwhile, by which it outlives the one that went here.
fn is_ours_alone(core: &Core, file: FileId) -> bool {
    let mut updates = core.log.of_file(file);
    updates.any(|(number, what)| what == What::Makes && core.has_not_left(number))
}

/// What was written to the file's container needs no store any more. Nor is it the version that the
/// row names: if somebody brings the file back, that must come from elsewhere. So the row speaks of
/// the next container, of which nothing is here.
pub(crate) fn forget_written(write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
    let next = Presence::next_generation(&*write, file)?;
    Presence::forget_all_displaced(write, file)?;
    if let Some(mut presence) = Presence::load(&*write, file)? {
        let written = presence.dirty.take().is_some();
        if presence.ground.take().is_some() || written {
            presence.ranges.clear();
            presence.generation = next;
        }
        presence.replace(write, file)?;
    }
    Ok(())
}
