//! Volumes that were removed go away, a bounded piece at a time, and after an interruption the
//! rest of them.

use crate::catalog::{self, RemovedRow};
use crate::error::Result;
use crate::take::purge_redirects;
use crate::tree::purge_tree;
use crate::upkeep::forget_trash;
use crate::wanted::purge_wanted;
use crate::within::purge_within;
use store::{Blobs, Durability, StoreError, Tables};
use tracing::info;
use volume::whole::{VolumeId, purge};

/// Rows in one transaction.
const ROWS_MAX: usize = 2000;

pub(super) fn purge_removed(tables: &dyn Tables, blobs: &dyn Blobs) -> Result<()> {
    let removed = catalog::removed(&*tables.read()?)?;
    for row in removed {
        purge_volume(tables, blobs, &row)?;
        info!(volume = row.id, "a removed volume is gone");
    }
    Ok(())
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
        for (name, _) in own {
            match blobs.delete(name) {
                // Should it be there again some day, it is found to be of no volume.
                Err(StoreError::Full(_)) => blobs.let_go(&[name])?,
                deleted => deleted?,
            }
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
