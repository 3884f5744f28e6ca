//! Tables of hints, by name, that are swept some rows at a time.
//! Holds: names are evenly spread, so that a stretch of them tells how many there are; what goes
//! over a bound is a hint, and costs a question when it is missed.
//! From: LBFS, "Implementation details", of which the bound is beyond it.

use model::{CHUNK_NAME_BYTES, ChunkName};
use store::{Read, StoreError, Write};

/// A stretch is cut to its share of a bound only where it is over that by one part in so many:
/// chance makes some denser than others.
const OVER_ONE_IN: usize = 8;

/// What is looked at: at most `rows_max` rows beginning with `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub from: Option<ChunkName>,
    pub rows_max: usize,
    /// Rows that the whole table may have. None: as many as there are.
    pub most: Option<u64>,
}

/// What was swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Where to go on; none when all has been looked at.
    pub next: Option<ChunkName>,
    /// Rows that were looked at, and those that are left of them.
    pub seen: usize,
    pub left: usize,
    /// Something was put or deleted.
    pub changed: bool,
}

/// What a row is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    Nothing,
    /// With this value. It stays as long as there is room.
    Shorter(Vec<u8>),
    All,
    /// It goes before the others where there are too many.
    Little,
}

/// Sweeps a table whose rows are names and say no more. Those that are not worth much go first.
pub fn sweep_names(
    tables: &mut dyn Write,
    table: &'static str,
    look: Look,
    is_worth_much: impl Fn(&dyn Read, &ChunkName) -> Result<bool, StoreError>,
) -> Result<Swept, StoreError> {
    sweep(tables, (table, &[]), look, |tables, name, _| {
        // What is no name was written by nobody.
        let Ok(name) = name.try_into() else { return Ok(Worth::Nothing) };
        Ok(if is_worth_much(tables, &ChunkName(name))? { Worth::All } else { Worth::Little })
    })
}

/// Removes rows of such a table, at most `rows_max`. Gives how many.
pub fn clear_names(
    tables: &mut dyn Write,
    table: &'static str,
    rows_max: usize,
) -> Result<usize, StoreError> {
    clear(tables, (table, &[]), rows_max)
}

/// Sweeps rows whose keys are names behind `prefix`.
pub(crate) fn sweep(
    tables: &mut dyn Write,
    (table, prefix): (&'static str, &[u8]),
    look: Look,
    mut worth: impl FnMut(&dyn Read, &[u8], &[u8]) -> Result<Worth, StoreError>,
) -> Result<Swept, StoreError> {
    let from = look.from.map_or([0; CHUNK_NAME_BYTES], |name| name.0);
    let first = [prefix, &from].concat();
    // Longer than every name, so it comes after all of them.
    let beyond = [prefix, &[0xff; CHUNK_NAME_BYTES + 1]].concat();
    let rows_max = look.rows_max.max(1);
    let rows = tables.scan(table, &first, &beyond, rows_max)?;
    let complete = rows.len() < rows_max;
    let name_of = |key: &[u8]| key.strip_prefix(prefix).and_then(|name| name.try_into().ok());
    let last: Option<[u8; CHUNK_NAME_BYTES]> = rows.last().and_then(|(key, _)| name_of(key));
    let next = last.filter(|_| !complete).and_then(successor);
    let share = share_of(look.from.as_ref(), next.as_ref());
    let (mut kept, mut little, mut shorter) = (Vec::new(), Vec::new(), false);
    for (key, value) in &rows {
        match worth(tables, key.get(prefix.len()..).unwrap_or(&[]), value)? {
            Worth::Nothing => tables.delete(table, key)?,
            Worth::Shorter(value) => {
                tables.put(table, key, &value)?;
                shorter = true;
                kept.push(key);
            }
            Worth::All => kept.push(key),
            Worth::Little => little.push(key),
        }
    }
    let there = kept.len() + little.len();
    let over = look.most.map_or(0, |most| over(there, most, share));
    for key in little.iter().chain(&kept).take(over) {
        tables.delete(table, key)?;
    }
    let left = there - over;
    Ok(Swept { next, seen: rows.len(), left, changed: shorter || left < rows.len() })
}

/// Removes rows, at most `rows_max`. Gives how many.
pub(crate) fn clear(
    tables: &mut dyn Write,
    (table, prefix): (&'static str, &[u8]),
    rows_max: usize,
) -> Result<usize, StoreError> {
    let beyond = [prefix, &[0xff; CHUNK_NAME_BYTES + 1]].concat();
    let rows = tables.scan(table, prefix, &beyond, rows_max)?;
    for (key, _) in &rows {
        tables.delete(table, key)?;
    }
    Ok(rows.len())
}

/// Of rows in a stretch, which is a `share` of all names, how many are too many.
fn over(rows: usize, most: u64, share: f64) -> usize {
    // A cast of a float saturates.
    let may = (most as f64 * share).ceil() as usize;
    let over = rows.saturating_sub(may);
    if over > may / OVER_ONE_IN { over } else { 0 }
}

/// Which share of all names lies between these. None: the first of all, and beyond the last.
fn share_of(from: Option<&ChunkName>, to: Option<&ChunkName>) -> f64 {
    let place = |name: &ChunkName| {
        let first: [u8; 8] = std::array::from_fn(|at| name.0[at]);
        u64::from_be_bytes(first) as f64 / u64::MAX as f64
    };
    (to.map_or(1.0, place) - from.map_or(0.0, place)).max(0.0)
}

/// The next name, if there is one.
fn successor(mut name: [u8; CHUNK_NAME_BYTES]) -> Option<ChunkName> {
    for byte in name.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(ChunkName(name));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Tables;
    use store::memory::MemoryTables;

    const TABLE: (&str, &[u8]) = ("hints", b"of");

    fn name(first: u16) -> ChunkName {
        let mut name = [7; CHUNK_NAME_BYTES];
        name[..2].copy_from_slice(&first.to_be_bytes());
        ChunkName(name)
    }

    fn all(tables: &dyn Read) -> Vec<u16> {
        let rows = tables.scan("hints", &[], &[0xff; 64], usize::MAX).unwrap();
        let first = |key: &[u8]| u16::from_be_bytes([key[2], key[3]]);
        rows.iter().filter(|(key, _)| key.starts_with(b"of")).map(|(key, _)| first(key)).collect()
    }

    /// Goes all the way around.
    fn sweep_all(tables: &mut dyn Write, most: Option<u64>, little: impl Fn(u16) -> bool) {
        let mut from = None;
        loop {
            let look = Look { from, rows_max: 64, most };
            let swept = sweep(tables, TABLE, look, |_, name, _| {
                let first = u16::from_be_bytes([name[0], name[1]]);
                Ok(if little(first) { Worth::Little } else { Worth::All })
            });
            let swept = swept.unwrap();
            assert!(swept.left <= swept.seen && swept.seen <= 64);
            from = swept.next;
            if from.is_none() {
                return;
            }
        }
    }

    #[test]
    fn a_table_is_cut_to_its_bound_and_what_is_worth_little_goes_first() {
        let tables = MemoryTables::new();
        let mut write = tables.write().unwrap();
        for at in 0..4096u16 {
            write.put("hints", &[b"of", &name(at * 16).0[..]].concat(), &[]).unwrap();
        }
        write.put("hints", b"another", b"stays").unwrap();
        sweep_all(&mut *write, None, |_| true);
        assert_eq!(all(&*write).len(), 4096, "there is no bound");
        sweep_all(&mut *write, Some(4000), |_| true);
        assert_eq!(all(&*write).len(), 4096, "it is not far beyond");
        sweep_all(&mut *write, Some(2048), |first| first % 32 == 0);
        let left = all(&*write);
        assert!((2048..2200).contains(&left.len()), "{} are left", left.len());
        let little = left.iter().filter(|first| *first % 32 == 0).count();
        assert!(little < 100, "{little} are worth little");
        sweep_all(&mut *write, Some(512), |_| false);
        assert!((512..700).contains(&all(&*write).len()));
        while clear(&mut *write, TABLE, 100).unwrap() > 0 {}
        assert_eq!(all(&*write), [0u16; 0]);
        assert!(write.get("hints", b"another").unwrap().is_some());
    }

    #[test]
    fn a_stretch_may_have_its_share() {
        assert_eq!(over(100, 1000, 0.1), 0);
        assert_eq!(over(112, 1000, 0.1), 0, "by chance");
        assert_eq!(over(113, 1000, 0.1), 13);
        assert_eq!(over(7, 0, 1.0), 7);
        assert_eq!(over(7, u64::MAX, 1.0), 0);
        let half = share_of(None, Some(&name(0x8000)));
        assert!((half - 0.5).abs() < 0.001, "{half}");
        assert!((share_of(None, None) - 1.0).abs() < 0.001);
        assert!((share_of(Some(&name(0xc000)), None) - 0.25).abs() < 0.001);
    }
}
