//! What programs have open of files that come to bear other ids while they have it open, since a copy
//! of the state here is in use: the ids that they had may be the copy's.
//! Holds: what was written until then is stored, or goes on being left over by the new id; nothing goes by an
//! id any more that was given up.

use crate::client::{Client, Core, error_of};
use crate::ranks::Ranked;
use crate::types::{Caller, Error, Handle};
use model::{Change, FileId, Name};
use protocol::Upstream;
use std::collections::BTreeSet;
use store::{Containers, Durability};

const CALLER: Caller = Caller { uid: 0, gid: 0 };
/// Programs may open again what has just been let go of, so often.
const TRIES_MAX: usize = 8;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before what is pending is renumbered: nothing of what it makes is open, and the kernel looks its
    /// names up anew. While this is had, nothing more is made.
    /// Errors: it is as it was.
    pub(crate) fn with_nothing_open_of_what_is_renamed(&self) -> Result<Ranked<'_, Core>, Error> {
        let mut tries = 0;
        loop {
            let core = self.core();
            let (made, names) = made_by(&core);
            let open = self.files().handles_of(&made, core.meta.replica);
            if open.is_empty() || tries == TRIES_MAX {
                // What could not be stored is stored under the new ids.
                self.save_grounded()?;
                self.files().shut(&made, core.meta.replica);
                self.look_up_anew(&made, &names);
                return Ok(core);
            }
            drop(core);
            self.let_go_of(&open);
            tries += 1;
        }
    }

    fn let_go_of(&self, open: &[Handle]) {
        tracing::warn!(
            open = open.len(),
            "files that were made here, and are open, bear other ids now: open them again"
        );
        for handle in open {
            if let Err(error) = self.store_written(CALLER, *handle) {
                tracing::warn!(%error, "what was written to a file that bears another id now is not stored");
            }
            self.release(*handle);
        }
    }

    /// It is opened again by what the rows say, and of these the log tells more.
    fn save_grounded(&self) -> Result<(), Error> {
        let files = self.files();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for (file, presence) in files.grounded() {
            presence.save_in_place(&mut *write, file).map_err(error_of)?;
        }
        drop(files);
        write.commit(Durability::Later).map_err(error_of)
    }

    fn look_up_anew(&self, made: &BTreeSet<FileId>, names: &[(FileId, Name)]) {
        made.iter().for_each(|file| self.numbers().is_anothers(*file));
        if let Some(kernel) = self.inner.kernel.get() {
            names.iter().for_each(|(directory, name)| kernel.forget_name(*directory, name));
        }
    }
}

/// The files that pending updates make, and their names.
fn made_by(core: &Core) -> (BTreeSet<FileId>, Vec<(FileId, Name)>) {
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
    (made, names)
}
