//! Chunks that the origin has been seen to have.
//! Holds: it is never trusted. The origin says what it lacks; of a row that is missing, a chunk is
//! sent, or asked for, that is there.

use crate::client::{Core, error_of};
use crate::replay_log::MISSING_TOLD_MAX;
use crate::types::Error;
use chunks::{Look, Swept, index, sweep_names};
use model::{ChunkName, Update};
use std::collections::BTreeSet;
use store::{Read, StoreError, Write};

const HOME: &str = "client-home";

pub(crate) fn is_home(read: &dyn Read, name: &ChunkName) -> Result<bool, StoreError> {
    Ok(read.get(HOME, &name.0)?.is_some())
}

pub(crate) fn note_home(write: &mut dyn Write, name: &ChunkName) -> Result<(), StoreError> {
    write.put(HOME, &name.0, &[])
}

pub(crate) fn forget_home(write: &mut dyn Write, name: &ChunkName) -> Result<(), StoreError> {
    write.delete(HOME, &name.0)
}

/// The replica above lacks these chunks of updates that it has not judged, and has the others, as
/// far as it could look.
pub(crate) fn note_lacking(
    core: &mut Core,
    write: &mut dyn Write,
    rest: &[Update],
    missing: &[ChunkName],
) -> Result<(), Error> {
    for name in missing {
        forget_home(write, name).map_err(error_of)?;
        for update in rest {
            core.plans.note_missing(update.stamp.number, name);
        }
    }
    if missing.len() >= MISSING_TOLD_MAX {
        return Ok(());
    }
    let missing: BTreeSet<&ChunkName> = missing.iter().collect();
    for update in rest {
        let Some(plan) = core.plans.get(update.stamp.number) else { continue };
        // What hangs below a recipe chunk that is missing is not known there.
        if plan.recipe.keys().any(|name| missing.contains(name)) {
            continue;
        }
        for name in plan.data.keys().filter(|name| !missing.contains(name)) {
            if !is_home(write, name).map_err(error_of)? {
                note_home(write, name).map_err(error_of)?;
            }
        }
    }
    Ok(())
}

/// Forgets some where there are too many: first those that are not here, so that nobody is likely
/// to store them.
pub(crate) fn sweep(write: &mut dyn Write, look: Look) -> Result<Swept, StoreError> {
    sweep_names(write, HOME, look, |read, name| Ok(!index::find(read, name)?.is_empty()))
}

/// Removes rows, at most `rows_max`. Gives how many.
pub(crate) fn clear(write: &mut dyn Write, rows_max: usize) -> Result<usize, StoreError> {
    chunks::clear_names(write, HOME, rows_max)
}
