//! Which of the chunks that nothing needs may go, and those that go without coming into the trash.
//! Never: lets go of what is promised.

use super::Collector;
use crate::error::Result;
use crate::upkeep::promises::Standing;
use crate::upkeep::trash::TRASH;
use crate::volumes::parse_blob_name;
use std::collections::BTreeSet;
use store::Listed;

impl Collector {
    /// What would come into the trash only to leave it again does not come there: its row would
    /// take room.
    pub(super) fn skips_the_trash(&self) -> bool {
        self.wish.empty_trash && !self.wish.dry_run
    }

    /// Those of a page that stay: the others go, unless they are promised.
    pub(super) fn without_unneeded(
        &mut self,
        mut blobs: Vec<Listed>,
        is_needed: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Listed>> {
        let (from, to) = match (blobs.first(), blobs.last()) {
            (Some((first, _)), Some((last, _))) => (first.clone(), [last, &[0][..]].concat()),
            _ => return Ok(blobs),
        };
        let in_trash = self.inner.tables.read()?.scan(TRASH, &from, &to, usize::MAX)?;
        let in_trash: BTreeSet<Vec<u8>> = in_trash.into_iter().map(|(name, _)| name).collect();
        let mut gone = BTreeSet::new();
        for (name, bytes) in &blobs {
            let Some((volume, chunk)) = parse_blob_name(name) else { continue };
            if is_needed(name) {
                continue;
            }
            let delete = || self.inner.blobs.let_go(&[name]);
            let promises = &self.inner.upkeep.promises;
            if matches!(promises.unless_promised(volume, &chunk, delete)?, Standing::Free) {
                self.freed.deleted.add(*bytes);
                if !in_trash.contains(name) {
                    self.freed.trashed.add(*bytes);
                }
                gone.insert(name.clone());
            }
        }
        blobs.retain(|(name, _)| !gone.contains(name));
        Ok(blobs)
    }

    /// What would come into the trash would go out again.
    pub(super) fn would_go(&mut self, name: &[u8], bytes: u64) {
        let Some((volume, chunk)) = parse_blob_name(name) else { return };
        let nothing = || Ok::<(), std::convert::Infallible>(());
        let Ok(standing) = self.inner.upkeep.promises.unless_promised(volume, &chunk, nothing);
        if self.is_free(standing, bytes) {
            self.freed.deleted.add(bytes);
        }
    }

    /// Counts what is promised.
    pub(super) fn is_free(&mut self, standing: Standing, bytes: u64) -> bool {
        let left = match standing {
            Standing::Free => return true,
            Standing::PromisedBefore => self.promises.before,
            Standing::PromisedNow => self.promises.now,
        };
        self.freed.promised.add(bytes);
        self.freed.promised_for = self.freed.promised_for.max(left);
        false
    }
}
