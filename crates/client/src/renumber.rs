//! New stamps and ids for what is pending, when this client was set back to an earlier state.
//! From: DESIGN, "Updates": a restored virtual machine or backup is recognised at attach.

use crate::client::{Client, Core, error_of};
use crate::part::renumber_part;
use crate::presence::Presence;
use crate::shown::Gone;
use crate::types::Error;
use model::{Change, FileId, ReplicaId, Stamp, Update};
use protocol::Upstream;
use store::container::Key;
use store::{Container, Containers, Durability, StoreError};

/// Files that are looked at in one reading.
const PAGE_FILES: usize = 1024;

/// What bears another name from here on, in order: files, and updates by their numbers.
pub(crate) struct Anew {
    replica: ReplicaId,
    ids: Vec<(FileId, FileId)>,
    numbers: Vec<(Stamp, u64)>,
}

impl Anew {
    pub fn id(&self, file: FileId) -> Option<FileId> {
        let found = self.ids.binary_search_by_key(&file, |(old, _)| *old).ok()?;
        self.ids.get(found).map(|(_, new)| *new)
    }

    pub fn stamp(&self, stamp: Stamp) -> Option<Stamp> {
        let found = self.numbers.binary_search_by_key(&stamp, |(old, _)| *old).ok()?;
        self.numbers.get(found).map(|(_, number)| Stamp::new(self.replica, *number))
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Gives what is pending new stamps and new ids under the replica id `replica`: the origin
    /// knows the old ones from a future that this client has lost.
    pub(crate) fn renumber(&self, core: &mut Core, replica: ReplicaId) -> Result<(), Error> {
        core.plans.clear();
        core.waiters.rename_all();
        self.inner.settled.notify_waiters();
        (core.meta.ahead, core.meta.passed) = (None, None);
        let mut anew = Anew { replica, ids: Vec::new(), numbers: Vec::new() };
        let mut number = core.log.last_number();
        let mut counter = core.meta.counter;
        core.log.each_from(0, |update| {
            number += 1;
            anew.numbers.push((update.stamp, number));
            if let Some(file) = update.makes() {
                let id = FileId::new(replica, counter)
                    .map_err(|error| Error::Failed(error.to_string()))?;
                counter += 1;
                anew.ids.push((file, id));
            }
            Ok::<_, Error>(())
        })?;
        anew.ids.sort_unstable();
        anew.numbers.sort_unstable();
        core.meta.counter = counter;
        let moved = self.move_containers(&anew)?;
        self.renumber_pins(&anew)?;
        self.renumber_policies(&anew)?;
        tracing::debug!(moved, "containers moved to new ids");
        {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            core.log.each_from(0, |update| match (&update.change, anew.stamp(update.stamp)) {
                (Change::Store { file, .. }, Some(to)) => {
                    renumber_part(&mut *write, *file, (update.stamp, to)).map_err(error_of)
                }
                _ => Ok(()),
            })?;
            write.commit(Durability::Now).map_err(error_of)?;
        }
        core.log
            .renumber(|update| rewrite(update, &anew))
            .map_err(|error| Error::Failed(error.to_string()))?;
        self.rebuild_without(core, &Gone::Files(&anew.ids))
    }

    /// Gives the containers of files that were made here new ids.
    fn move_containers(&self, anew: &Anew) -> Result<usize, Error> {
        let mut moved = 0;
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
                if id.is_some() {
                    Presence::remove(&mut *write, file).map_err(error_of)?;
                    Presence::forget_all_displaced(&mut *write, file).map_err(error_of)?;
                }
                let is_ours = |row: &Presence| anew.stamp(row.version).is_some();
                if id.is_none() && !rows.iter().any(is_ours) {
                    continue;
                }
                for mut row in rows {
                    row.version = anew.stamp(row.version).unwrap_or(row.version);
                    if let Some(id) = id {
                        self.copy_container(file, id, row.generation).map_err(error_of)?;
                        moved += 1;
                    }
                    row.save(&mut *write, id.unwrap_or(file)).map_err(error_of)?;
                }
            }
        }
        write.commit(Durability::Now).map_err(error_of)?;
        Ok(moved)
    }

    fn copy_container(&self, from: FileId, to: FileId, generation: u32) -> Result<(), StoreError> {
        const STEP_BYTES: usize = 1 << 20;
        let source = Key { file: from.0, generation };
        let Some(old) = self.inner.containers.open(source, false)? else { return Ok(()) };
        let Some(new) = self.inner.containers.open(Key { file: to.0, generation }, true)? else {
            return Ok(());
        };
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
        new.sync()?;
        self.inner.containers.remove(source)
    }
}

fn rewrite(update: &Update, anew: &Anew) -> Update {
    let id = |file: &mut FileId| *file = anew.id(*file).unwrap_or(*file);
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
