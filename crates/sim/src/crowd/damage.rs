//! Damage to a client's indexes: rows that lead to the wrong place, or to none.
//! Holds: what is put into a row could stand in one; what is not trusted and wrong must cost time
//! and nothing else.

use store::faulty::Disk;
use store::{Durability, Read, Row, StoreError, Tables, Write};
use world::Entropy;

/// Chunks, and features of files, to places in cached files.
const INDEX: &str = "chunk-index";
/// Chunks that the origin was seen to have.
const HOME: &str = "client-home";
/// Old versions that are kept as bases.
const TRASH: &str = "client-trash";
/// Rows that are looked at, of each table.
const ROWS_MAX: usize = 2000;
/// A place in a row of the index: file, generation, offset, length.
const PLACE_BYTES: u64 = 24;

/// Damages some rows of every index, in one transaction. A machine that has crashed or has no room
/// keeps what it has.
pub(super) fn indexes(disk: &Disk, chance: &Entropy) {
    let damaged = damage_all(&disk.tables("client"), chance);
    assert!(
        matches!(damaged, Ok(()) | Err(StoreError::Crashed | StoreError::Full(_))),
        "tables in memory fail in no other way: {damaged:?}"
    );
}

fn damage_all(tables: &impl Tables, chance: &Entropy) -> Result<(), StoreError> {
    let mut write = tables.write()?;
    let index = rows(&*write, INDEX)?;
    for (key, value) in &index {
        if chance.below(4) == 0 {
            damage_place(&mut *write, key, value, &index, chance)?;
        }
    }
    for (key, _) in rows(&*write, HOME)? {
        if chance.below(8) == 0 {
            write.delete(HOME, &key)?;
        }
    }
    for (key, _) in &index {
        // The origin may have it or not.
        if chance.below(4) == 0 {
            write.put(HOME, key, &[])?;
        }
    }
    for (key, value) in rows(&*write, TRASH)? {
        if chance.below(8) == 0 {
            write.put(TRASH, &key, &value[..chance.below(value.len() as u64) as usize])?;
        }
    }
    write.commit(Durability::Later)
}

fn rows(read: &(impl Read + ?Sized), table: &'static str) -> Result<Vec<Row>, StoreError> {
    read.scan(table, &[], &[0xff; 64], ROWS_MAX)
}

/// Every way in which a row can be wrong.
fn damage_place(
    write: &mut dyn Write,
    key: &[u8],
    value: &[u8],
    all: &[Row],
    chance: &Entropy,
) -> Result<(), StoreError> {
    let another = &all[chance.below(all.len() as u64) as usize];
    match chance.below(7) {
        0 => write.delete(INDEX, key),
        // Cut short.
        1 => write.put(INDEX, key, &value[..chance.below(value.len() as u64 + 1) as usize]),
        // Longer than a row is.
        2 => write.put(INDEX, key, &value.repeat(3)),
        // The place of another chunk, or of a feature of another file.
        3 => write.put(INDEX, key, &another.1),
        // One field is another: a file that is not there, another generation, a stretch elsewhere.
        4 | 5 => {
            let mut wrong = value.to_vec();
            let at = chance.below(PLACE_BYTES.min(wrong.len() as u64).max(1)) as usize;
            if let Some(byte) = wrong.get_mut(at) {
                *byte = byte.wrapping_add(1 + chance.below(255) as u8);
            }
            write.put(INDEX, key, &wrong)
        }
        // Under a name that is nobody's.
        _ => {
            let mut name = key.to_vec();
            name.reverse();
            write.put(INDEX, &name, value)
        }
    }
}
