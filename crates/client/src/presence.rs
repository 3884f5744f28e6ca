//! Which bytes of which version of a file are in its container.
//! Holds: a stretch counts as present only after its bytes are in the container.

mod displaced;

use crate::recipes;
use minicbor::{Decode, Encode};
use model::{Contents, FileId, Stamp, Time};
use store::{Read, StoreError, Write};

const PRESENCE: &str = "client-presence";
const FORMAT: u8 = 1;
/// Of rows with a ground, which format 1 does not know.
const FORMAT_GROUND: u8 = 2;
/// Of rows whose ground is in another file, where format 2 would not look for it.
const FORMAT_OF_ANOTHER: u8 = 3;

/// Of what is nobody's version: the origin numbers no update so.
pub(crate) const NO_VERSION: Stamp = Stamp { replica: model::ReplicaId(0), number: 0 };

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
    /// The version that shows where nothing is here, if that is not this one.
    #[n(6)]
    pub ground: Option<Ground>,
    /// Who stored it wrote and closed it, and neither synced nor locked. Of large files alone.
    #[n(7)]
    pub plain: Option<bool>,
}

/// What a container was written upon before all of it was here, or copied from.
///
/// ```text
///   (none) --written to--> Ground(before) --stored--> Ground(before) --taken--> Ground(itself)
///      ^                        ^                          | written to                |
///      | all is here            +--------------------------+---------------------------+
/// ```
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Ground {
    /// A version that the replica above has.
    #[n(0)]
    pub version: Stamp,
    #[n(1)]
    pub contents: Contents,
    /// Bytes of it, from its beginning, that show at all: the file was cut to so many since.
    #[n(2)]
    pub reach: u64,
    /// Stretches below that which are not as they are there, as far as is known.
    #[n(3)]
    pub written: Vec<(u64, u64)>,
    /// The file of which it is a version, if that is another: it was copied from there.
    #[n(4)]
    pub of: Option<FileId>,
}

impl Ground {
    pub fn new(version: Stamp, contents: Contents) -> Ground {
        Ground { version, contents, reach: contents.size, written: Vec::new(), of: None }
    }

    pub fn is_same(&self, other: &Ground) -> bool {
        (self.version, self.of) == (other.version, other.of)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Dirty {
    #[n(0)]
    pub expects: Stamp,
    #[n(1)]
    pub uid: u32,
    /// Set since it was written to last, by somebody who may have been told so.
    #[n(2)]
    pub mtime: Option<Time>,
}

impl Dirty {
    pub fn new(expects: Stamp, uid: u32) -> Dirty {
        Dirty { expects, uid, mtime: None }
    }
}

impl Presence {
    pub fn new(generation: u32, version: Stamp, contents: Contents, used: i64) -> Presence {
        let (ranges, dirty, ground, plain) = (Vec::new(), None, None, None);
        Presence { generation, version, contents, ranges, dirty, used, ground, plain }
    }

    /// From here on nothing can be lacking.
    pub fn limit(&self) -> u64 {
        match (&self.dirty, &self.ground) {
            (Some(_), None) => 0,
            (Some(_), Some(ground)) => ground.reach,
            (None, _) => self.contents.size,
        }
    }

    /// Its container has no byte of it, nor anything that was written to it: whoever opens it may
    /// have another one as well. One of an empty file is all of that.
    pub fn holds_nothing(&self) -> bool {
        let is_stored = self.dirty.is_none() && self.ground.is_none();
        is_stored && self.ranges.is_empty() && self.contents.size > 0
    }

    /// All bytes are here.
    pub fn is_whole(&self) -> bool {
        self.has(0, self.limit())
    }

    /// Whether the stretch is here, as far as the file goes.
    pub fn has(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length).min(self.limit());
        offset >= end || self.here_until(offset) >= end
    }

    /// Where what is here without a gap from `offset` on ends.
    pub fn here_until(&self, offset: u64) -> u64 {
        if offset >= self.limit() {
            return u64::MAX;
        }
        let at = self.ranges.partition_point(|(_, to)| *to <= offset);
        match self.ranges.get(at) {
            Some(&(from, to)) if from <= offset && to >= self.limit() => u64::MAX,
            Some(&(from, to)) if from <= offset => to,
            _ => offset,
        }
    }

    /// What is not here of a stretch.
    pub fn absent(&self, offset: u64, end: u64) -> Vec<(u64, u64)> {
        let end = end.min(self.limit());
        let mut absent = Vec::new();
        let mut at = offset;
        for &(from, to) in &self.ranges {
            if from >= end {
                break;
            }
            if from > at {
                absent.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            absent.push((at, end));
        }
        absent
    }

    /// What is written to this next is written upon.
    pub fn ground_to_write_upon(&self) -> Ground {
        self.ground.clone().unwrap_or_else(|| Ground::new(self.version, self.contents))
    }

    /// What was written has been stored: behind the end of the ground all is here.
    pub fn stored(&self, version: Stamp, contents: Contents) -> Presence {
        let mut stored = Presence { version, contents, dirty: None, ..self.clone() };
        if let Some(ground) = &self.ground {
            clip(&mut stored.ranges, contents.size);
            join(&mut stored.ranges, ground.reach, contents.size);
        }
        stored
    }

    /// Bytes were written, and what they are is on the disk where it was not here.
    pub fn write(&mut self, from: u64, to: u64) {
        let Some(ground) = &mut self.ground else { return };
        let to = to.min(ground.reach);
        join(&mut ground.written, from, to);
        join(&mut self.ranges, from, to);
    }

    /// This, which is written to and has `size` bytes, once a stretch of it is as it is in
    /// `another`. None: what it lacks already is as it is elsewhere.
    pub fn copied(&self, (from, to): (u64, u64), size: u64, another: &Ground) -> Option<Presence> {
        let mut ground = match &self.ground {
            None => Ground { reach: 0, ..another.clone() },
            Some(ground) if ground.is_same(another) => ground.clone(),
            Some(_) => return None,
        };
        let mut ranges = if self.ground.is_some() { self.ranges.clone() } else { Vec::new() };
        let before = ground.reach;
        ground.reach = before.max(to);
        for stretches in [&mut ranges, &mut ground.written] {
            // What lies behind the ground is here, with zeros up to where the copy begins.
            join(stretches, before, size.max(from));
            clip(stretches, ground.reach);
            cut_out(stretches, from, to);
        }
        Some(Presence { ranges, ground: Some(ground), ..self.clone() })
    }

    /// Nothing was written to it since it was copied, and not all of it is here.
    pub fn is_a_bare_copy(&self) -> bool {
        let is_bare = |ground: &Ground| ground.of.is_some() && ground.written.is_empty();
        self.ground.as_ref().is_some_and(is_bare) && !self.is_whole()
    }

    /// Some updates bear `anew` stamps from here on. Says whether it speaks of one.
    pub fn restamp(&mut self, anew: impl Fn(Stamp) -> Option<Stamp>) -> bool {
        let mut changed = false;
        let expects = self.dirty.as_mut().map(|dirty| &mut dirty.expects);
        for stamp in expects.into_iter().chain([&mut self.version]) {
            if let Some(new) = anew(*stamp) {
                (*stamp, changed) = (new, true);
            }
        }
        changed
    }

    /// It was cut to so many bytes.
    pub fn cut(&mut self, size: u64) {
        let Some(ground) = &mut self.ground else { return };
        ground.reach = ground.reach.min(size);
        clip(&mut ground.written, ground.reach);
        clip(&mut self.ranges, ground.reach);
    }

    /// After a crash, or for want of knowing better, all that is here counts as written.
    pub fn doubt(&mut self) {
        if let Some(ground) = &mut self.ground {
            ground.written.clone_from(&self.ranges);
        }
    }

    /// The bytes that are here.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(from, to)| to - from).sum()
    }

    /// Notes that the stretch is here now.
    pub fn add(&mut self, offset: u64, length: u64) {
        let size = if self.dirty.is_some() { self.limit() } else { self.contents.size };
        let end = offset.saturating_add(length).min(size);
        join(&mut self.ranges, offset, end);
    }

    pub fn add_all(&mut self) {
        self.ranges = if self.contents.size == 0 { vec![] } else { vec![(0, self.contents.size)] };
    }

    pub fn load(read: &dyn Read, file: FileId) -> Result<Option<Presence>, StoreError> {
        read.get(PRESENCE, &file.0.to_be_bytes())?.map(|bytes| Presence::decode(&bytes)).transpose()
    }

    /// The file's row; those beside it stay.
    pub fn remove(write: &mut dyn Write, file: FileId) -> Result<(), StoreError> {
        recipes::retain(write, file, |_| false)?;
        recipes::remove_unsent(write, file)?;
        write.delete(PRESENCE, &file.0.to_be_bytes())
    }

    /// The first file with a row, from `after` on, whatever is in that.
    pub fn next_file(read: &dyn Read, after: Option<FileId>) -> Result<Option<FileId>, StoreError> {
        let from = after.map_or(0, |file| file.0 + 1).to_be_bytes();
        let rows = read.scan(PRESENCE, &from, &u64::MAX.to_be_bytes(), 1)?;
        let Some((key, _)) = rows.into_iter().next() else { return Ok(None) };
        let key = key.try_into().map_err(|_| damaged("a key is not an id"))?;
        Ok(Some(FileId(u64::from_be_bytes(key))))
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
        let mut bytes = vec![self.format()];
        minicbor::encode(self, &mut bytes).expect("a vector takes every byte");
        bytes
    }

    fn format(&self) -> u8 {
        match &self.ground {
            None => FORMAT,
            Some(Ground { of: None, .. }) => FORMAT_GROUND,
            Some(Ground { of: Some(_), .. }) => FORMAT_OF_ANOTHER,
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Presence, StoreError> {
        let Some((format @ &(FORMAT | FORMAT_GROUND | FORMAT_OF_ANOTHER), rest)) =
            bytes.split_first()
        else {
            return Err(damaged("a row has an unknown format"));
        };
        let here: Presence =
            minicbor::decode(rest).map_err(|source| damaged(&source.to_string()))?;
        if *format != here.format() {
            return Err(damaged("a row has another format than it says"));
        }
        let written = here.ground.as_ref().is_none_or(|ground| are_apart(&ground.written));
        if !are_apart(&here.ranges) || !written {
            return Err(damaged("the stretches of a row are not in order"));
        }
        Ok(here)
    }
}

/// Adds a stretch to some that are in order and apart from each other.
fn join(ranges: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    if from >= to {
        return;
    }
    // Those that it touches.
    let first = ranges.partition_point(|(_, end)| *end < from);
    let behind = ranges.partition_point(|(start, _)| *start <= to);
    let start = ranges[first..behind].first().map_or(from, |(start, _)| from.min(*start));
    let end = ranges[first..behind].last().map_or(to, |(_, end)| to.max(*end));
    ranges.splice(first..behind, [(start, end)]);
}

/// What lies behind `end` goes.
fn clip(ranges: &mut Vec<(u64, u64)>, end: u64) {
    ranges.retain(|(from, _)| *from < end);
    if let Some(last) = ranges.last_mut() {
        last.1 = last.1.min(end);
    }
}

/// What lies between the two goes.
fn cut_out(ranges: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    let parts = |&(start, end): &(u64, u64)| [(start, end.min(from)), (start.max(to), end)];
    *ranges = ranges.iter().flat_map(parts).filter(|(start, end)| start < end).collect();
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
        Presence::new(0, Stamp::default(), Contents { size, root: None, holes: None }, 0)
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

    #[test]
    fn what_is_written_upon_parts_is_here_and_the_rest_is_lacking() {
        let mut here = presence(100);
        here.add(0, 10);
        here.ground = Some(Ground::new(here.version, here.contents));
        here.dirty = Some(Dirty::new(here.version, 0));
        assert!(here.has(2, 8) && !here.has(2, 9) && !here.is_whole());
        here.write(50, 60);
        assert_eq!(here.absent(0, u64::MAX), [(10, 50), (60, 100)]);
        assert_eq!((here.here_until(50), here.here_until(60)), (60, 60));
        here.cut(55);
        assert_eq!(here.absent(0, 100), [(10, 50)]);
        assert!(here.has(50, 1000) && here.here_until(52) == u64::MAX);
        here.write(10, 200);
        assert!(here.is_whole());
        let ground = here.ground.clone().expect("it was put there");
        assert_eq!((ground.reach, ground.written), (55, vec![(10, 55)]));
        here.doubt();
        assert_eq!(here.ground.map(|ground| ground.written), Some(vec![(0, 55)]));
    }

    #[test]
    fn what_is_copied_is_lacking_and_all_else_is_here() {
        let dirty = Some(Dirty::new(Stamp::default(), 0));
        let another =
            Ground { of: Some(FileId(9)), ..Ground::new(Stamp::default(), presence(100).contents) };
        // Of 20 bytes that were written, 5 are copied over, and some behind them.
        let written = Presence { dirty, ..presence(0) };
        let here = written.copied((10, 15), 20, &another).expect("it lacks nothing");
        assert_eq!(here.absent(0, 100), [(10, 15)]);
        let mut here = here.copied((50, 60), 20, &another).expect("it is the same");
        assert_eq!(here.absent(0, 100), [(10, 15), (50, 60)]);
        let ground = here.ground.clone().expect("it was put there");
        assert_eq!((ground.reach, &ground.written), (60, &vec![(0, 10), (15, 50)]));
        here.add(50, 1000);
        assert_eq!(here.absent(0, 100), [(10, 15)]);
        let again = here.copied((40, 55), 60, &another).expect("it is the same");
        assert_eq!(again.absent(0, 100), [(10, 15), (40, 55)]);
        let whole = written.copied((0, 100), 0, &another).expect("it lacks nothing");
        let ground = whole.ground.as_ref().map(|ground| (ground.reach, ground.written.len()));
        assert_eq!((whole.absent(0, 200), ground), (vec![(0, 100)], Some((100, 0))));
        let own = Ground::new(Stamp::default(), presence(100).contents);
        assert_eq!(here.copied((0, 1), 60, &own), None);
    }

    #[test]
    fn stretches_are_joined_as_one_by_one_they_would_be() {
        let mut joined = Vec::new();
        let mut bits = [false; 64];
        for step in 0..200_u64 {
            let from = step * 37 % 61;
            let to = from + step % 4;
            join(&mut joined, from, to);
            bits[from as usize..to as usize].fill(true);
            assert!(are_apart(&joined));
            let is_in = |at: u64| joined.iter().any(|(from, to)| (*from..*to).contains(&at));
            assert!((0..64).all(|at| is_in(at) == bits[at as usize]), "{joined:?}");
        }
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
        let contents = Contents { size: 100, root: Some(root), holes: None };
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
        let dirty = Dirty::new(version, 1000);
        let written = Presence { dirty: Some(dirty), ..Presence::new(0, version, sized(0), 5) };
        let golden_written = [
            &[1, 0x86, 0, 0x82, 3, 9, 0x81, 0][..],
            &[0x80, 0x82, 0x82, 3, 9, 0x19, 0x03, 0xe8, 5],
        ]
        .concat();
        let set = Some(Time { secs: 7, nanos: 8 });
        let times_set = Presence { dirty: Some(Dirty { mtime: set, ..dirty }), ..written.clone() };
        let golden_times_set = [
            &[1, 0x86, 0, 0x82, 3, 9, 0x81, 0][..],
            &[0x80, 0x83, 0x82, 3, 9, 0x19, 0x03, 0xe8, 0x82, 7, 8, 5],
        ]
        .concat();
        let ground = Ground { reach: 90, written: vec![(0, 10)], ..Ground::new(version, contents) };
        let upon = Presence { ground: Some(ground), ..part.clone() };
        let golden_upon = [
            &[2, 0x87, 2, 0x82, 3, 9, 0x82, 0x18, 100, 0x82, 0x58, 24][..],
            &[0xab; 24],
            &[1, 0x82, 0x82, 0, 10, 0x82, 20, 0x18, 100, 0xf6, 0x20],
            &[0x84, 0x82, 3, 9, 0x82, 0x18, 100, 0x82, 0x58, 24],
            &[0xab; 24],
            &[1, 0x18, 90, 0x81, 0x82, 0, 10],
        ]
        .concat();
        let mut copied = upon.clone();
        copied.ground.iter_mut().for_each(|ground| ground.of = Some(FileId(6)));
        let mut golden_copied = golden_upon.clone();
        golden_copied[0] = 3;
        let ground_at = golden_copied.len() - 41;
        golden_copied[ground_at] = 0x85;
        golden_copied.push(6);
        let plain = Presence { plain: Some(true), ..written.clone() };
        let golden_plain = [
            &[1, 0x88, 0, 0x82, 3, 9, 0x81, 0][..],
            &[0x80, 0x82, 0x82, 3, 9, 0x19, 0x03, 0xe8, 5, 0xf6, 0xf5],
        ]
        .concat();
        let goldens = [
            (golden_part, part),
            (golden_written, written),
            (golden_times_set, times_set),
            (golden_upon, upon),
            (golden_copied, copied),
            (golden_plain, plain),
        ];
        for (golden, presence) in goldens {
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
