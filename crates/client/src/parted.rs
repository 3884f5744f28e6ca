//! What programs have open of files that come to bear other ids while they have it open, since a copy
//! of the state here is in use: the ids that they had may be the copy's.
//! Holds: what was written until then is stored; nothing goes by an id any more that was given up.

use crate::client::Client;
use crate::types::Caller;
use model::{Change, FileId, Name};
use protocol::Upstream;
use std::collections::BTreeSet;
use store::Containers;

const CALLER: Caller = Caller { uid: 0, gid: 0 };

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before what is pending is renumbered: of what it makes nothing stays open, and the kernel looks
    /// its names up anew.
    pub(crate) fn let_go_of_what_is_renamed(&self) {
        let mut made = BTreeSet::new();
        let mut names: Vec<(FileId, Name)> = Vec::new();
        let outcome = self.core().log.each_from(0, |update| {
            made.extend(update.makes());
            if let Change::Make { parent, name, .. } = &update.change {
                names.push((*parent, name.clone()));
            }
            Ok::<_, update_log::LogError>(())
        });
        if let Err(error) = outcome {
            // Renumbering meets it, too, and says so.
            tracing::debug!(%error, "what is pending could not be read");
            return;
        }
        let open = self.files().handles_of(&made);
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
        for file in &made {
            self.numbers().is_anothers(*file);
        }
        let Some(kernel) = self.inner.kernel.get() else { return };
        for (directory, name) in &names {
            kernel.forget_name(*directory, name);
        }
    }
}
