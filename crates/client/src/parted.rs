//! What programs have open of files that come to bear other ids while they have it open, since a copy
//! of the state here is in use: the ids that they had may be the copy's.
//! Holds: what was written until then is stored; nothing goes by an id any more that was given up.

use crate::client::{Client, Core};
use crate::types::Caller;
use model::{Change, FileId, Name, ReplicaId};
use protocol::Upstream;
use std::collections::BTreeSet;
use std::sync::MutexGuard;
use store::Containers;

const CALLER: Caller = Caller { uid: 0, gid: 0 };
/// Programs may open again what has just been let go of, so often.
const TRIES_MAX: usize = 8;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before what is pending is renumbered: nothing of what it makes is open, and the kernel looks its
    /// names up anew. While this is had, nothing more is made.
    pub(crate) fn with_nothing_open_of_what_is_renamed(&self) -> MutexGuard<'_, Core> {
        for _ in 0..TRIES_MAX {
            let (made, names, before) = made_by(&self.core());
            self.let_go_of(&made, before);
            self.look_up_anew(&made, &names);
            let core = self.core();
            let (made, ..) = made_by(&core);
            if self.files().handles_of(&made, before).is_empty() {
                // What could not be stored is stored under the new ids.
                self.files().shut(&made, before);
                return core;
            }
        }
        let core = self.core();
        let (made, _, before) = made_by(&core);
        self.files().shut(&made, before);
        core
    }

    fn let_go_of(&self, made: &BTreeSet<FileId>, before: Option<ReplicaId>) {
        let open = self.files().handles_of(made, before);
        for handle in &open {
            if let Err(error) = self.store_written(CALLER, *handle) {
                tracing::warn!(%error, "what was written to a file that bears another id now is not stored");
            }
            self.release(*handle);
        }
        if !open.is_empty() {
            tracing::warn!(
                open = open.len(),
                "files that were made here, and are open, bear other ids now: open them again"
            );
        }
    }

    fn look_up_anew(&self, made: &BTreeSet<FileId>, names: &[(FileId, Name)]) {
        made.iter().for_each(|file| self.numbers().is_anothers(*file));
        if let Some(kernel) = self.inner.kernel.get() {
            names.iter().for_each(|(directory, name)| kernel.forget_name(*directory, name));
        }
    }
}

/// The files that pending updates make, their names, and the id under which they do.
fn made_by(core: &Core) -> (BTreeSet<FileId>, Vec<(FileId, Name)>, Option<ReplicaId>) {
    let (mut made, mut names) = (BTreeSet::new(), Vec::new());
    let outcome = core.log.each_from(0, |update| {
        made.extend(update.makes());
        if let Change::Make { parent, name, .. } = &update.change {
            names.push((*parent, name.clone()));
        }
        Ok::<_, update_log::LogError>(())
    });
    if let Err(error) = outcome {
        // Renumbering meets it, too, and says so.
        tracing::debug!(%error, "what is pending could not be read");
    }
    (made, names, core.meta.replica)
}
