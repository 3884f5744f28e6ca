//! In which order the rows of an index came, so that it can have a bound.
//! Holds: what is over the bound goes, the oldest first; a row that went otherwise counts until
//! its turn comes. The order is what the tables say, and outlives the process.

use super::index::Index;
use model::{CHUNK_NAME_BYTES, ChunkName};
use store::{Read, StoreError, Write};

const TABLE: &str = "inside-order";

/// Numbers of the rows that an index may have, as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    first: u64,
    next: u64,
}

impl Order {
    pub fn load(index: Index<'_>, tables: &dyn Read) -> Result<Order, StoreError> {
        let (from, to) = bounds(index);
        let number = |key: &[u8]| number_of(index, key);
        let first = tables.scan(TABLE, &from, &to, 1)?.first().and_then(|(key, _)| number(key));
        let last = tables.last(TABLE, &from, &to)?.and_then(|(key, _)| number(&key));
        let next = last.map_or(0, |last| last.saturating_add(1));
        Ok(Order { first: first.unwrap_or(next), next })
    }

    pub fn rows(&self) -> u64 {
        self.next - self.first
    }

    /// A chunk has a row that had none.
    pub fn add(
        &mut self,
        index: Index<'_>,
        tables: &mut dyn Write,
        name: &ChunkName,
    ) -> Result<(), StoreError> {
        tables.put(TABLE, &key(index, self.next), &name.0)?;
        self.next += 1;
        Ok(())
    }

    /// The oldest rows go until there are `rows_max`. Gives how many there were of them yet.
    pub fn make_room(
        &mut self,
        index: Index<'_>,
        tables: &mut dyn Write,
        rows_max: u64,
    ) -> Result<u64, StoreError> {
        let mut gone = 0;
        while self.rows() > rows_max {
            let key = key(index, self.first);
            let name = tables.get(TABLE, &key)?;
            let name = name.and_then(|bytes| <[u8; CHUNK_NAME_BYTES]>::try_from(bytes).ok());
            if let Some(name) = name {
                gone += u64::from(index.remove(tables, &ChunkName(name))?);
            }
            tables.delete(TABLE, &key)?;
            self.first += 1;
        }
        Ok(gone)
    }
}

/// Removes rows of the order, at most `rows_max`. False: none was left.
pub fn clear(
    index: Index<'_>,
    tables: &mut dyn Write,
    rows_max: usize,
) -> Result<bool, StoreError> {
    let (from, to) = bounds(index);
    let rows = tables.scan(TABLE, &from, &to, rows_max)?;
    for (key, _) in &rows {
        tables.delete(TABLE, key)?;
    }
    Ok(!rows.is_empty())
}

fn key(index: Index<'_>, number: u64) -> Vec<u8> {
    [index.0, &number.to_be_bytes()].concat()
}

fn bounds(index: Index<'_>) -> (Vec<u8>, Vec<u8>) {
    (key(index, 0), [index.0, &[0xff; 9]].concat())
}

fn number_of(index: Index<'_>, key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(index.0)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::index::Place;
    use super::*;
    use model::{FileId, ReplicaId, Stamp};
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    const ROWS_MAX: u64 = 10;

    fn name(number: u8) -> ChunkName {
        ChunkName([number; CHUNK_NAME_BYTES])
    }

    fn note(tables: &MemoryTables, index: Index<'_>, numbers: std::ops::Range<u8>) -> u64 {
        let version = Stamp::new(ReplicaId(1), 2);
        let place = Place { file: FileId(9), version, start: 0, packed: 5, offset: 6, length: 7 };
        // As after a start.
        let mut order = Order::load(index, &*tables.read().unwrap()).unwrap();
        let mut write = tables.write().unwrap();
        for number in numbers {
            if index.note(&mut *write, &name(number), place).unwrap() {
                order.add(index, &mut *write, &name(number)).unwrap();
            }
        }
        let gone = order.make_room(index, &mut *write, ROWS_MAX).unwrap();
        write.commit(Durability::Later).unwrap();
        gone
    }

    fn found(tables: &MemoryTables, index: Index<'_>) -> Vec<u8> {
        let read = tables.read().unwrap();
        let is_there = |number: &u8| !index.find(&*read, &name(*number)).unwrap().is_empty();
        (0..100).filter(is_there).collect()
    }

    #[test]
    fn of_more_than_an_index_may_have_the_newest_are_found_after_any_start() {
        let tables = MemoryTables::new();
        let (index, other) = (Index(&[0, 0, 0, 1]), Index(&[0, 0, 0, 2]));
        note(&tables, other, 50..55);
        assert_eq!(note(&tables, index, 0..8), 0);
        assert_eq!(note(&tables, index, 4..13), 3);
        assert_eq!(found(&tables, index), (3..13).collect::<Vec<u8>>());
        assert_eq!(note(&tables, index, 13..40), 27);
        assert_eq!(found(&tables, index), (30..40).collect::<Vec<u8>>());
        assert_eq!(found(&tables, other), (50..55).collect::<Vec<u8>>(), "it has a bound itself");
    }

    #[test]
    fn a_row_that_went_otherwise_counts_until_its_turn_comes() {
        let tables = MemoryTables::new();
        let index = Index(&[0, 0, 0, 1]);
        note(&tables, index, 0..10);
        let mut write = tables.write().unwrap();
        assert!(index.remove(&mut *write, &name(1)).unwrap());
        write.commit(Durability::Later).unwrap();
        assert_eq!(note(&tables, index, 20..22), 1, "one of the two was there");
        assert_eq!(found(&tables, index), [2, 3, 4, 5, 6, 7, 8, 9, 20, 21]);
        let mut write = tables.write().unwrap();
        while clear(index, &mut *write, 3).unwrap() {}
        write.commit(Durability::Later).unwrap();
        assert_eq!(Order::load(index, &*tables.read().unwrap()).unwrap().rows(), 0);
    }
}
