//! Directories that were to be made and were there already: what is pending in them goes on in those that
//! were there.
//! Holds: it shows there with the verdict that says so, and never not at all; what is sent after that says
//! itself where it is done.

use super::PAGE_UPDATES;
use crate::client::{Client, Core, stop};
use crate::types::{Error, Step};
use crate::undo::of_log;
use model::{Change, FileId, Update};
use protocol::{Upstream, Verdict};
use std::collections::BTreeMap;
use store::{Containers, Write};
use update_log::UpdateLog;
use volume::partial::{self, Changed, Touched, Tree};

/// Directories that were to be made, each with the one that it is.
pub(crate) struct Merged(BTreeMap<FileId, FileId>);

impl Merged {
    pub fn by(judged: &[(&Update, &Verdict)]) -> Merged {
        let merged = |(update, verdict): &(&Update, &Verdict)| match verdict {
            Verdict::KeptAside { merged, .. } => Some((update.makes()?, (*merged)?)),
            _ => None,
        };
        Merged(judged.iter().filter_map(merged).collect())
    }

    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// What is pending and names one of them names the other from here on; it does not show until it is shown
    /// anew.
    pub(super) fn rename(&self, log: &mut UpdateLog, write: &mut dyn Write) -> Result<(), Error> {
        let mut from = 0;
        while !self.is_none() {
            let page = log.pending_from(from, PAGE_UPDATES).map_err(of_log)?;
            let Some(last) = page.last() else { break };
            from = last.stamp.number + 1;
            let renamed: Vec<Update> =
                page.into_iter().filter_map(|update| self.renamed(update)).collect();
            if renamed.is_empty() {
                continue;
            }
            for before in log.amend(&[], renamed).map_err(of_log)? {
                partial::forget_local(write, u64::MAX, &Touched::by(&before))
                    .map_err(|error| Error::Failed(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// None: it names none of them.
    fn renamed(&self, mut update: Update) -> Option<Update> {
        let mut is_renamed = false;
        for file in update.change.named_mut() {
            if let Some(to) = self.0.get(file) {
                *file = *to;
                is_renamed = true;
            }
        }
        is_renamed.then_some(update)
    }
}

/// A change that names what is there by now: who has come to a directory that was one with another meanwhile means
/// that one.
pub(crate) fn named_now(tree: &Tree<'_>, mut change: Change) -> Step<Change> {
    for file in change.named_mut() {
        *file = tree.now(*file).map_err(stop)?;
    }
    Ok(change)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before that is committed: who has come to one of them goes on in the other, and so does what is
    /// pending.
    pub(crate) fn go_on_in(
        &self,
        merged: &Merged,
        core: &mut Core,
        write: &mut dyn Write,
    ) -> Result<(), Error> {
        for (from, to) in &merged.0 {
            tracing::debug!(%from, %to, "a directory that was made here was there already");
            self.numbers().merge(*from, *to);
        }
        merged.rename(&mut core.log, write)
    }

    /// Shows what is pending without what was turned down. `is_merged`: it shows so with the commit.
    pub(crate) fn shown_without(
        &self,
        core: &mut Core,
        turned_down: &[Update],
        is_merged: bool,
    ) -> Result<(), Error> {
        if !is_merged {
            return self.rebuild(core, turned_down);
        }
        core.hidden.ask_again();
        self.note_hides(core);
        Self::recount(core);
        Ok(())
    }

    /// What the kernel may show that is not so any more. `is_merged`: two directories are one.
    pub(crate) fn forget_after_verdicts(&self, stale: &[Changed], is_merged: bool) {
        self.forget(stale);
        if is_merged {
            // Only with what was told with the verdicts does what is pending show in the one that it goes on in.
            self.inner.checkpoint_wanted.notify_one();
        }
        if let Some(kernel) = self.inner.kernel.get().filter(|_| is_merged) {
            // What was in neither of them may be in the one.
            kernel.forget_absent();
        }
    }
}
