//! A volume that was removed goes away, a bounded number of rows at a time.

use super::error::Result;
use super::{VolumeId, table};
use store::Write;

/// Removes rows of the volume, at most `rows_max`. False: nothing was left.
pub fn purge(write: &mut dyn Write, volume: VolumeId, rows_max: usize) -> Result<bool> {
    let (from, to) = volume.range();
    for name in table::ALL {
        let rows = write.scan(name, &from, &to, rows_max)?;
        if rows.is_empty() {
            continue;
        }
        for (key, _) in rows {
            write.delete(name, &key)?;
        }
        return Ok(true);
    }
    Ok(false)
}
