//! Volumes that were removed go away, a bounded piece at a time, and after an interruption the
//! rest of them.

use crate::catalog::{self, RemovedRow};
use crate::error::Result;
use crate::take::purge_redirects;
use crate::volumes::blob_name;
use model::{ChunkName, Contents, Piece};
use store::{Blobs, Durability, Tables};
use tracing::info;
use volume::whole::{VolumeId, kept_contents, purge};

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

/// Chunks first: once the rows that name them are gone, nothing does.
fn purge_volume(tables: &dyn Tables, blobs: &dyn Blobs, row: &RemovedRow) -> Result<()> {
    let volume = VolumeId(row.id);
    loop {
        let contents = kept_contents(&*tables.read()?, volume, ROWS_MAX)?;
        for contents in &contents {
            delete_chunks(blobs, volume, contents)?;
        }
        let mut write = tables.write()?;
        let contents_left = purge(&mut *write, volume, ROWS_MAX)?;
        let others_left = purge_redirects(&mut *write, volume, ROWS_MAX)?;
        if !contents_left && !others_left {
            catalog::forget_removed(&mut *write, volume)?;
            write.commit(Durability::Now)?;
            return Ok(());
        }
        write.commit(Durability::Later)?;
    }
}

/// Children before parents, so that an interrupted walk finds the rest again. What is not there
/// went with other contents that shared it.
fn delete_chunks(blobs: &dyn Blobs, volume: VolumeId, contents: &Contents) -> Result<()> {
    let Some(root) = contents.root else { return Ok(()) };
    let mut open: Vec<(ChunkName, u8)> = vec![(root.name, root.depth)];
    let mut found = Vec::new();
    while let Some((name, depth)) = open.pop() {
        let blob = blob_name(volume, &name);
        if depth == 0 {
            found.push(blob);
            continue;
        }
        let Some(bytes) = blobs.get(&blob)? else { continue };
        found.push(blob);
        // A damaged recipe names nothing that could be found by it.
        let Ok(recipe) = chunks::decode(&bytes) else { continue };
        let below = recipe.pieces.iter().filter_map(|piece| match piece {
            Piece::Chunk { name, .. } => Some((*name, depth - 1)),
            Piece::Zeros { .. } => None,
        });
        open.extend(below);
    }
    for blob in found.iter().rev() {
        blobs.delete(blob)?;
    }
    Ok(())
}
