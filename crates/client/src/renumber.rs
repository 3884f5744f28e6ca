//! New stamps and ids for what is pending, when this client was set back to an earlier state.
//! From: DESIGN, "Updates": a restored virtual machine or backup is recognised at attach.

use crate::client::{Client, error_of};
use crate::part::renumber_part;
use crate::types::Error;
use model::{Change, FileId, ReplicaId, Stamp, Update};
use protocol::Upstream;
use std::collections::BTreeMap;
use store::{Containers, Durability};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Gives what is pending new stamps and new ids under the replica id `replica`: the origin
    /// knows the old ones from a future that this client has lost.
    pub(crate) fn renumber(&self, replica: ReplicaId) -> Result<(), Error> {
        let mut core = self.core();
        let core = &mut *core;
        core.plans.clear();
        let mut ids: BTreeMap<FileId, FileId> = BTreeMap::new();
        let mut stamps: BTreeMap<Stamp, Stamp> = BTreeMap::new();
        let mut number = core.log.last_number();
        let mut counter = core.meta.counter;
        for update in core.log.pending() {
            number += 1;
            stamps.insert(update.stamp, Stamp::new(replica, number));
            if let Change::Make { file, .. } = &update.change {
                let id = FileId::new(replica, counter)
                    .map_err(|error| Error::Failed(error.to_string()))?;
                counter += 1;
                ids.insert(*file, id);
            }
        }
        core.meta.counter = counter;
        let moved = self.move_containers(&ids, &stamps)?;
        tracing::debug!(moved, "containers moved to new ids");
        {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            for update in core.log.pending() {
                if let Change::Store { file, .. } = update.change {
                    renumber_part(&mut *write, file, (update.stamp, &stamps)).map_err(error_of)?;
                }
            }
            write.commit(Durability::Now).map_err(error_of)?;
        }
        let forget: Vec<Update> = core.log.pending().cloned().collect();
        core.log
            .renumber(|update| rewrite(update, &ids, &stamps))
            .map_err(|error| Error::Failed(error.to_string()))?;
        self.rebuild(core, &forget)
    }
}

fn rewrite(
    update: &Update,
    ids: &BTreeMap<FileId, FileId>,
    stamps: &BTreeMap<Stamp, Stamp>,
) -> Update {
    let id = |file: &mut FileId| *file = *ids.get(file).unwrap_or(file);
    let stamp = |expects: &mut Stamp| *expects = *stamps.get(expects).unwrap_or(expects);
    let mut update = update.clone();
    stamp(&mut update.stamp);
    match &mut update.change {
        Change::Make { parent, file, .. }
        | Change::Link { parent, file, .. }
        | Change::Unlink { parent, file, .. } => {
            id(parent);
            id(file);
        }
        Change::Rename { from, to, file, over, .. } => {
            id(from);
            id(to);
            id(file);
            if let Some(over) = over {
                id(over);
            }
        }
        Change::Store { file, expects, .. } | Change::SetAttributes { file, expects, .. } => {
            id(file);
            stamp(expects);
        }
        Change::SetXattr { file, .. } | Change::RemoveXattr { file, .. } => id(file),
    }
    update
}
