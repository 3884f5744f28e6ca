//! What was missed, as it is told.

use super::Miss;
use crate::client::{Client, error_of};
use crate::pending::paths_of;
use crate::pins::{lacks, lasts};
use crate::presence::Presence;
use crate::types::Error;
use model::{FileId, View};
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use store::Containers;
use volume::partial::Tree;

/// What the user wants of what was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settling {
    Forget,
    /// It is fetched in the background as soon as there is a link.
    Fetch,
    /// Whoever opens it next waits however long it takes, until this client ends.
    Allow,
}

/// A file that was missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MissShown {
    pub file: u64,
    /// From the root of the volume. None: it has no name, or none that is known here.
    pub path: Option<String>,
    pub size: u64,
    /// What is not here of it now. It may have come since.
    pub lacking_bytes: u64,
    /// How long that takes at the measured rate. None: nothing is known of the link.
    pub lasts_secs: Option<u64>,
    /// Since it was missed last, and how often it was.
    pub age_secs: u64,
    pub times: u64,
    /// Who wanted it last, as the kernel names the process.
    pub program: Option<String>,
    /// It would have taken so many seconds, more than its policy allows. None: there was no link.
    pub asks_secs: Option<u64>,
    /// The user wants it, and it is fetched when there is a link.
    pub coming: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What was missed, the last first.
    pub fn misses_report(&self) -> Result<Vec<MissShown>, Error> {
        let mut files: Vec<(FileId, Miss)> =
            self.misses().files.iter().map(|(file, miss)| (*file, miss.clone())).collect();
        files.sort_by_key(|(file, miss)| (std::cmp::Reverse(miss.last), *file));
        let now = self.inner.world.clock.time().secs;
        let link = self.link_remembered();
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let named: Vec<FileId> = files.iter().map(|(file, _)| *file).collect();
        let mut paths = paths_of(&tree, &named)?;
        let mut shown = Vec::new();
        for (file, miss) in files {
            let Ok(Some(node)) = tree.node(file) else { continue };
            let row = Presence::load(&*read, file).map_err(error_of)?;
            let lacking_bytes = lacks(&node, row.as_ref());
            shown.push(MissShown {
                file: file.0,
                path: paths.remove(&file),
                size: node.contents.size,
                lacking_bytes,
                lasts_secs: lasts(lacking_bytes, link.likely_down(), link.round_trip),
                age_secs: u64::try_from(now.saturating_sub(miss.last)).unwrap_or(0),
                times: miss.times,
                program: miss.program,
                asks_secs: miss.asks,
                coming: miss.coming,
            });
        }
        Ok(shown)
    }
}
