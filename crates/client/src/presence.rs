//! Which bytes of which version of a file are in its container.
//! Holds: a stretch counts as present only after its bytes are in the container.

use minicbor::{Decode, Encode};
use model::{Contents, FileId, Stamp};
use store::{Read, StoreError, Write};

const PRESENCE: &str = "client-presence";
const FORMAT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Presence {
    #[n(0)]
    pub generation: u32,
    /// The update that stored these contents.
    #[n(1)]
    pub version: Stamp,
    /// The root is none while it has not been fetched.
    #[n(2)]
    pub contents: Contents,
    /// Stretches that are here: (offset, end), in order, apart from each other.
    #[n(3)]
    pub ranges: Vec<(u64, u64)>,
    /// Written to since: whose process it was, and what the next store expects to find.
    #[n(4)]
    pub dirty: Option<Dirty>,
    /// Seconds since 1970 of the last open.
    #[n(5)]
    pub used: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Dirty {
    #[n(0)]
    pub expects: Stamp,
    #[n(1)]
    pub uid: u32,
}

impl Presence {
    pub fn new(generation: u32, version: Stamp, contents: Contents, used: i64) -> Presence {
        Presence { generation, version, contents, ranges: Vec::new(), dirty: None, used }
    }

    /// All bytes are here.
    pub fn is_whole(&self) -> bool {
        self.dirty.is_some() || self.has(0, self.contents.size)
    }

    /// Whether the stretch is here, as far as the file goes.
    pub fn has(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length).min(self.contents.size);
        self.dirty.is_some()
            || offset >= end
            || self.ranges.iter().any(|&(from, to)| from <= offset && end <= to)
    }

    /// The bytes that are here.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(from, to)| to - from).sum()
    }

    /// Notes that the stretch is here now.
    pub fn add(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.contents.size);
        if offset < end {
            self.ranges.push((offset, end));
            self.ranges.sort_unstable();
            let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
            for (from, to) in self.ranges.drain(..) {
                match joined.last_mut() {
                    Some(last) if from <= last.1 => last.1 = last.1.max(to),
                    _ => joined.push((from, to)),
                }
            }
            self.ranges = joined;
        }
    }

    pub fn add_all(&mut self) {
        self.ranges = if self.contents.size == 0 { vec![] } else { vec![(0, self.contents.size)] };
    }

    pub fn load(read: &dyn Read, file: FileId) -> Result<Option<Presence>, StoreError> {
        read.get(PRESENCE, &file.0.to_be_bytes())?.map(|bytes| Presence::decode(&bytes)).transpose()
    }

    pub fn save(&self, write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        write.put(PRESENCE, &file.0.to_be_bytes(), &self.encode())
    }

    pub fn remove(write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        write.delete(PRESENCE, &file.0.to_be_bytes())
    }

    /// Every file with something here, from `after` on, at most `files_max`.
    pub fn page(
        read: &dyn Read,
        after: Option<FileId>,
        files_max: usize,
    ) -> Result<Vec<(FileId, Presence)>, StoreError> {
        let from = after.map_or(0, |file| file.0 + 1).to_be_bytes();
        let rows = read.scan(PRESENCE, &from, &u64::MAX.to_be_bytes(), files_max)?;
        rows.into_iter()
            .map(|(key, value)| {
                let key = key.try_into().map_err(|_| damaged("a key is not an id"))?;
                Ok((FileId(u64::from_be_bytes(key)), Presence::decode(&value)?))
            })
            .collect()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Presence, StoreError> {
        let Some((&FORMAT, rest)) = bytes.split_first() else {
            return Err(damaged("a row has an unknown format"));
        };
        let here: Presence =
            minicbor::decode(rest).map_err(|source| damaged(&source.to_string()))?;
        if !are_apart(&here.ranges) {
            return Err(damaged("the stretches of a row are not in order"));
        }
        Ok(here)
    }
}

/// None is empty, and each ends before the next one begins.
pub(crate) fn are_apart(ranges: &[(u64, u64)]) -> bool {
    ranges.iter().all(|(from, to)| from < to) && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged { place: PRESENCE.into(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sized;
    use model::{CHUNK_NAME_BYTES, ChunkName, ReplicaId, Root};
    use store::Tables;
    use store::memory::MemoryTables;

    fn presence(size: u64) -> Presence {
        Presence::new(0, Stamp::default(), Contents { size, root: None }, 0)
    }

    #[test]
    fn stretches_that_touch_become_one() {
        let mut here = presence(100);
        here.add(0, 10);
        here.add(20, 10);
        assert!(here.has(0, 10) && here.has(22, 5) && !here.has(5, 20));
        here.add(10, 10);
        assert_eq!(here.ranges, vec![(0, 30)]);
    }

    #[test]
    fn what_lies_behind_the_end_is_always_here() {
        let mut here = presence(10);
        assert!(here.has(10, 5) && !here.has(0, 1));
        here.add(0, 99);
        assert!(here.is_whole() && here.has(0, 4096));
        assert!(presence(0).is_whole());
    }

    fn saved(presence: &Presence) -> Option<Vec<u8>> {
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        presence.save(&mut *write, FileId(0x0102)).unwrap();
        write.get(PRESENCE, &[0, 0, 0, 0, 0, 0, 1, 2]).unwrap()
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn golden_rows_still_read() {
        let version = Stamp::new(ReplicaId(3), 9);
        let root = Root { name: ChunkName([0xab; CHUNK_NAME_BYTES]), depth: 1 };
        let contents = Contents { size: 100, root: Some(root) };
        let part = Presence {
            ranges: vec![(0, 10), (20, 100)],
            ..Presence::new(2, version, contents, -1)
        };
        let golden_part = [
            &[1, 0x86, 2, 0x82, 3, 9, 0x82, 0x18, 100, 0x82, 0x58, 24][..],
            &[0xab; 24],
            &[1, 0x82, 0x82, 0, 10, 0x82, 20, 0x18, 100, 0xf6, 0x20],
        ]
        .concat();
        let dirty = Dirty { expects: version, uid: 1000 };
        let written = Presence { dirty: Some(dirty), ..Presence::new(0, version, sized(0), 5) };
        let golden_written = [
            &[1, 0x86, 0, 0x82, 3, 9, 0x81, 0][..],
            &[0x80, 0x82, 0x82, 3, 9, 0x19, 0x03, 0xe8, 5],
        ]
        .concat();
        for (golden, presence) in [(golden_part, part), (golden_written, written)] {
            assert_eq!(Presence::decode(&golden).unwrap(), presence);
            assert_eq!(saved(&presence), Some(golden));
        }
    }

    #[test]
    fn a_row_that_is_not_what_was_written_is_damage() {
        let mut backwards = presence(100);
        backwards.ranges = vec![(20, 30), (0, 10)];
        let mut negative = presence(100);
        negative.ranges = vec![(30, 20)];
        let (backwards, negative) = (backwards.encode(), negative.encode());
        for bytes in [&[][..], &[2, 0x80], &[1, 0xff], &[1, 0x81, 0xf6], &backwards, &negative] {
            let error = Presence::decode(bytes).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{bytes:?}: {error}");
        }
    }
}
