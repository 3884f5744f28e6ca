//! New stamps and ids for what is pending, when this client was set back to an earlier state.
//! Holds: whatever fails in between, or is cut off by a crash, what is pending keeps its contents: what bears
//! the old names goes when the log has the new ones, and who begins anew goes on from what was written down.
//! From: DESIGN, "Updates": a restored virtual machine or backup is recognised at attach.

mod anew;

pub(crate) use anew::Anew;

use crate::client::{Client, Core, error_of};
use crate::part::{part_anew, remove_part};
use crate::presence::Presence;
use crate::recipes::rename_unsent;
use crate::shown::Gone;
use crate::types::Error;
use model::{Change, FileId, ReplicaId, Stamp, Update, View};
use protocol::Upstream;
use std::collections::BTreeSet;
use store::container::Key;
use store::{Container, Containers, Durability, StoreError};
use update_log::LogError;
use volume::partial::Tree;

/// Of files that bear other ids now.
#[derive(Default)]
struct Renamed {
    /// Containers that bear the old ids.
    moved: Vec<Key>,
    /// And the new ones.
    made: Vec<Key>,
    /// What is being written to, by its new id.
    written: Vec<(FileId, Presence)>,
}

/// Files that are looked at in one reading.
const PAGE_FILES: usize = 1024;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Gives what is pending new stamps and new ids under the replica id `replica`: the origin
    /// knows the old ones from a future that this client has lost.
    pub(crate) fn renumber(&self, core: &mut Core, replica: ReplicaId) -> Result<(), Error> {
        core.plans.clear();
        core.waiters.rename_all();
        self.inner.settled.notify_waiters();
        (core.meta.ahead, core.meta.passed) = (None, None);
        self.save_late_now(core).map_err(error_of)?;
        let anew = self.names_anew(core, replica)?;
        let Renamed { moved, written, .. } = self.copy_containers(&anew)?;
        self.renumber_pins(&anew)?;
        self.renumber_policies(&anew)?;
        tracing::debug!(moved = moved.len(), "containers copied to new ids");
        self.renumber_parts(core, &anew)?;
        core.log
            .renumber(|update| rewrite(update, &anew))
            .map_err(|error| Error::Failed(error.to_string()))?;
        self.files().restamp(|stamp| anew.stamp(stamp));
        let given_up: Vec<FileId> = anew.given_up().collect();
        self.rebuild_without(core, &Gone::Files(&given_up))?;
        self.forget_old(&anew, moved)?;
        self.reopen_renamed(written);
        Ok(())
    }

    /// What was being written to when it got another id, and could not be stored before, is left over.
    fn reopen_renamed(&self, written: Vec<(FileId, Presence)>) {
        for (file, presence) in written {
            if let Err(error) = self.reopen_if_there(file, presence) {
                // The next start opens it.
                tracing::warn!(%file, %error, "what was written is kept and not stored yet");
            }
        }
    }

    fn reopen_if_there(&self, file: FileId, presence: Presence) -> Result<(), StoreError> {
        let read = self.inner.tables.read()?;
        let is_gone = matches!(Tree::new(&*read, 0).node(file), Ok(None));
        drop(read);
        if !is_gone {
            self.open_again(file, presence, false)?;
        }
        Ok(())
    }

    /// What bears which name from here on, on the disk before anything does.
    fn names_anew(&self, core: &mut Core, replica: ReplicaId) -> Result<Anew, Error> {
        let earlier =
            Anew::load(&*self.inner.tables.read().map_err(error_of)?).map_err(error_of)?;
        keep_one_of_each(core, &earlier).map_err(|error| Error::Failed(error.to_string()))?;
        let mut anew = earlier.next(replica, core.log.last_number(), core.meta.counter);
        core.log.each_from(0, |update| {
            anew.add(update).map_err(|error| Error::Failed(error.to_string()))
        })?;
        core.meta.counter = anew.counter();
        let anew = anew.after(&earlier);
        let mut write = self.inner.tables.write().map_err(error_of)?;
        anew.save(&mut *write).map_err(error_of)?;
        write.commit(Durability::Now).map_err(error_of)?;
        Ok(anew)
    }

    /// In the log as well: what that says of them is done once more after a crash.
    fn renumber_parts(&self, core: &mut Core, anew: &Anew) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let mut parts = Vec::new();
        core.log.each_from(0, |update| {
            if let (Change::Store { file, .. }, Some(to)) =
                (&update.change, anew.stamp(update.stamp))
            {
                // A crash may have come before the log bore what an earlier try has named.
                let bore =
                    |number| anew.numbers().any(|(bore, now)| now == to && bore.number == number);
                let part = part_anew(&*write, *file, bore, to.number).map_err(error_of)?;
                let named = (*file, anew.named(*file));
                rename_unsent(&mut *write, named, bore, to.number).map_err(error_of)?;
                parts.extend(part.map(|part| (anew.named(*file), part)));
            }
            Ok::<(), Error>(())
        })?;
        for (file, part) in parts {
            let noted = core.log.note(&part.record(file));
            noted.map_err(|error| Error::Failed(error.to_string()))?;
            part.save(&mut *write, file).map_err(error_of)?;
        }
        write.commit(Durability::Now).map_err(error_of)
    }

    /// Gives the containers of files that were made here new ids, too.
    fn copy_containers(&self, anew: &Anew) -> Result<Renamed, Error> {
        let mut renamed = Renamed::default();
        if let Err(error) = self.copy_rows(anew, &mut renamed) {
            // It may be for want of room.
            renamed.made.into_iter().for_each(|key| self.remove_prepared(Some(key)));
            return Err(error);
        }
        Ok(renamed)
    }

    fn copy_rows(&self, anew: &Anew, renamed: &mut Renamed) -> Result<(), Error> {
        let mut after = None;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        loop {
            let page = Presence::page(&*write, after, PAGE_FILES).map_err(error_of)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (file, presence) in page {
                let mut rows = Presence::displaced(&*write, file).map_err(error_of)?;
                // The file's row is saved last.
                rows.push(presence);
                let id = anew.id(file);
                let mut changed = false;
                for row in &mut rows {
                    changed |= row.restamp(|stamp| anew.stamp(stamp));
                }
                if id.is_none() && !changed {
                    continue;
                }
                for row in rows {
                    if let Some(id) = id {
                        let from = Key { file: file.0, generation: row.generation };
                        let to = Key { file: id.0, ..from };
                        renamed.made.push(to);
                        self.copy_container(from, to).map_err(error_of)?;
                        renamed.moved.push(from);
                    }
                    row.save(&mut *write, id.unwrap_or(file)).map_err(error_of)?;
                    if let (Some(id), true) = (id, row.dirty.is_some()) {
                        renamed.written.push((id, row));
                    }
                }
            }
        }
        write.commit(Durability::Now).map_err(error_of)
    }

    /// Where the bytes cannot be shared it is one container by two names, until the old one goes: a copy
    /// would take as long as its bytes, and as much room. What somebody else has open may be written to
    /// by the old name later, and is copied.
    fn copy_container(&self, from: Key, to: Key) -> Result<(), StoreError> {
        const STEP_BYTES: usize = 1 << 20;
        let containers = &self.inner.containers;
        let Some(old) = containers.open(from, false)? else { return Ok(()) };
        let made = containers.copy(from, to, 0)?
            || old.is_alone().unwrap_or(false) && containers.link(from, to)?;
        if made {
            return containers.open(to, false)?.map_or(Ok(()), |new| new.sync());
        }
        // What bears the name may be the old one, from an earlier try.
        containers.remove(to)?;
        let Some(new) = containers.open(to, true)? else { return Ok(()) };
        let length = old.length()?;
        new.set_length(length)?;
        for (start, length) in old.data(0, length)? {
            let mut offset = start;
            while offset < start + length {
                let step = STEP_BYTES.min((start + length - offset) as usize);
                let bytes = old.read(offset, step)?;
                if bytes.is_empty() {
                    break;
                }
                new.write(offset, &bytes)?;
                offset += bytes.len() as u64;
            }
        }
        new.sync()
    }

    /// The log has the new names: what bears the old ones goes.
    fn forget_old(&self, anew: &Anew, mut moved: Vec<Key>) -> Result<(), Error> {
        for file in anew.given_up_before() {
            let there = self.inner.containers.list_of(file.0).map_err(error_of)?;
            moved.extend(there.into_iter().chain([Key { file: file.0, generation: 0 }]));
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for key in &moved {
            let file = FileId(key.file);
            Presence::remove(&mut *write, file).map_err(error_of)?;
            Presence::forget_all_displaced(&mut *write, file).map_err(error_of)?;
            remove_part(&mut *write, file).map_err(error_of)?;
        }
        Anew::forget(&mut *write).map_err(error_of)?;
        write.commit(Durability::Now).map_err(error_of)?;
        moved.into_iter().try_for_each(|key| self.inner.containers.remove(key)).map_err(error_of)
    }
}

/// What an earlier try has left under both names: the old ones are there still, but for those that were
/// overtaken or cancelled since; or all of them have gone in one step, when all of the new ones were there.
fn keep_one_of_each(core: &mut Core, earlier: &Anew) -> Result<(), LogError> {
    let (mut olds, mut news) = (false, BTreeSet::new());
    for (old, new) in earlier.numbers() {
        let is_there = |stamp: Stamp| -> Result<bool, LogError> {
            Ok(core.log.get(stamp.number)?.is_some_and(|update| update.stamp == stamp))
        };
        olds |= is_there(old)?;
        if is_there(new)? {
            news.insert(new.number);
        }
    }
    let too_much = if olds { news } else { BTreeSet::new() };
    // None of them has left: they are of an id that nobody has attached with.
    too_much.into_iter().try_for_each(|number| core.log.overtake(number))
}

fn rewrite(update: &Update, anew: &Anew) -> Update {
    let id = |file: &mut FileId| *file = anew.named(*file);
    let stamp = |expects: &mut Stamp| *expects = anew.stamp(*expects).unwrap_or(*expects);
    let mut update = update.clone();
    stamp(&mut update.stamp);
    match &mut update.change {
        Change::Make { parent, file, .. } | Change::Link { parent, file, .. } => {
            id(parent);
            id(file);
        }
        Change::Unlink { parent, file, expects, .. } => {
            id(parent);
            id(file);
            expects.iter_mut().for_each(stamp);
        }
        Change::Rename { from, to, file, over, whiteout, expects, .. } => {
            expects.iter_mut().for_each(stamp);
            id(from);
            id(to);
            id(file);
            if let Some(over) = over {
                id(over);
            }
            if let Some(whiteout) = whiteout {
                id(&mut whiteout.file);
            }
        }
        Change::Store { file, expects, .. } | Change::SetAttributes { file, expects, .. } => {
            id(file);
            stamp(expects);
        }
        Change::SetXattr { file, expects, .. } | Change::RemoveXattr { file, expects, .. } => {
            id(file);
            expects.iter_mut().for_each(stamp);
        }
    }
    update
}
