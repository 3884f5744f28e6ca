//! A volume that was removed goes away, a bounded number of rows at a time.

use super::error::Result;
use super::record::{ContentsRecord, decode};
use super::{VolumeId, table};
use model::Contents;
use store::{Read, Write};

/// Contents that a volume keeps, from the first in the order of keys, at most `rows_max`.
/// What `purge` takes away next is what this names.
pub fn kept_contents(read: &dyn Read, volume: VolumeId, rows_max: usize) -> Result<Vec<Contents>> {
    let (from, to) = volume.range();
    let rows = read.scan(table::CONTENTS, &from, &to, rows_max)?;
    rows.iter()
        .map(|(_, value)| {
            let record: ContentsRecord = decode(|| format!("contents of {volume}"), value)?;
            Ok(record.contents)
        })
        .collect()
}

/// Removes rows of the volume, at most `rows_max`, contents last. False: nothing was left.
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
