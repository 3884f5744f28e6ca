//! Directories that were to be made and were there already: what is pending in them goes on in those that
//! were there.
//! Holds: it shows there with the verdict that says so, and never not at all; what is sent after that says
//! itself where it is done.

use super::PAGE_UPDATES;
use crate::types::Error;
use crate::undo::of_log;
use model::{FileId, Update};
use protocol::Verdict;
use std::collections::BTreeMap;
use store::Write;
use update_log::UpdateLog;
use volume::partial::{self, Touched};

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

    /// Each directory that was to be made, and what it is.
    pub fn pairs(&self) -> impl Iterator<Item = (FileId, FileId)> {
        self.0.iter().map(|(from, to)| (*from, *to))
    }

    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// What is pending and names one of them names the other from here on; it does not show until it is shown
    /// anew.
    pub fn rename(&self, log: &mut UpdateLog, write: &mut dyn Write) -> Result<(), Error> {
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
