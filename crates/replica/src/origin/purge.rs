//! Volumes that were removed go away, a bounded piece at a time, and after an interruption the
//! rest of them.

use crate::catalog::{self, RemovedRow};
use crate::error::Result;
use crate::origin::Inner;
use crate::take::purge_redirects;
use crate::tree::purge_tree;
use crate::upkeep::{DEAD_PERCENT_WHOLLY, forget_trash};
use crate::wanted::purge_wanted;
use crate::within::purge_within;
use store::{Blobs, Durability, StoreError, Tables};
use tracing::{info, warn};
use volume::whole::{VolumeId, purge};

/// Rows in one transaction.
const ROWS_MAX: usize = 2000;

impl Inner {
    /// What was removed goes, as far as there is room for that.
    pub(crate) fn purge_where_there_is_room(&self) -> Result<()> {
        match self.reserved.used(|| purge_removed(&*self.tables, &*self.blobs)) {
            Err(error) if error.is_full() => {
                warn!(%error, "a removed volume has no name any more, and goes when there is room");
                Ok(())
            }
            purged => purged,
        }
    }
}

fn purge_removed(tables: &dyn Tables, blobs: &dyn Blobs) -> Result<()> {
    let removed = catalog::removed(&*tables.read()?)?;
    for row in removed {
        purge_volume(tables, blobs, &row)?;
        info!(volume = row.id, "a removed volume is gone");
    }
    Ok(())
}

/// What is dead needs hardly any room to be given back, and makes some. False: there was nothing.
fn give_back(blobs: &dyn Blobs) -> Result<bool> {
    let mut freed = false;
    while blobs.reclaim(DEAD_PERCENT_WHOLLY)?.is_some_and(|bytes| bytes > 0) {
        freed = true;
    }
    Ok(freed)
}

/// Chunks first: once the rows are gone, nothing remembers that there was something to remove.
fn purge_volume(tables: &dyn Tables, blobs: &dyn Blobs, row: &RemovedRow) -> Result<()> {
    let volume = VolumeId(row.id);
    let (from, to) = volume.range();
    loop {
        // The last name before the volume's own.
        let names = blobs.list(&from, ROWS_MAX)?;
        let own: Vec<_> = names.iter().filter(|(name, _)| *name < to).collect();
        if own.is_empty() {
            break;
        }
        // Should one be there again some day, it is found to be of no volume.
        let own: Vec<&[u8]> = own.into_iter().map(|(name, _)| name.as_slice()).collect();
        if let Err(error) = blobs.let_go(&own) {
            if !matches!(error, StoreError::Full(_)) || !give_back(blobs)? {
                return Err(error.into());
            }
            blobs.let_go(&own)?;
        }
    }
    loop {
        let mut write = tables.write()?;
        let rows_left = purge(&mut *write, volume, ROWS_MAX)?;
        let others_left = purge_redirects(&mut *write, volume, ROWS_MAX)?;
        let trash_left = forget_trash(&mut *write, volume, ROWS_MAX)?;
        let tree_left = purge_tree(&mut *write, volume, ROWS_MAX)?;
        let wanted_left = purge_wanted(&mut *write, volume, ROWS_MAX)?;
        let within_left = purge_within(&mut *write, volume, ROWS_MAX)?;
        let left = [rows_left, others_left, trash_left, tree_left, wanted_left, within_left];
        if !left.contains(&true) {
            catalog::forget_removed(&mut *write, volume)?;
            write.commit(Durability::Now)?;
            return Ok(());
        }
        write.commit(Durability::Later)?;
    }
}
