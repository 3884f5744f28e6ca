//! How the contents of a pending store are to be sent: which chunks it has, and where they are.
//! Holds: a chunk is hashed again before it is sent, so a container that was changed since can
//! cost time and never sends what is not the version.
//! From: LBFS, "Update protocol".

mod kept;
mod ways;

pub(crate) use kept::Plans;

use crate::client::Client;
use crate::early::Work;
use crate::files::Images;
use crate::unreadable::readable;
use chunks::delta::Codec;
use chunks::{ChunksError, Described, Found, Growing, Placed, Secret, describe_again, describe_on};
use model::{ChunkName, FileId, Piece};
use protocol::{BASE_BYTES_MAX, Cutter, Delta, Upstream};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use store::container::Key;
use store::{Container, Containers, StoreError};

/// Chunks that begin within so many bytes have one base.
const NEAR_BYTES: u64 = BASE_BYTES_MAX / 2;
/// Stretches of one file, apart from each other, of which each is sent against its own base.
const GROUPS_MAX: usize = 16;
/// Bytes that are read from a container at once.
const READ_BYTES_MAX: usize = 256 << 10;
/// Bytes that are searched at once for the end of a hole.
const HOLE_STEP_BYTES: u64 = 64 << 20;

/// The chunks of one version.
pub(crate) struct Plan {
    pub file: FileId,
    pub generation: u32,
    pub recipe: BTreeMap<ChunkName, Vec<u8>>,
    /// Offset and length in the container. Of a very large file the first chunks, and what was
    /// looked up.
    pub data: BTreeMap<ChunkName, (u64, u32)>,
    /// Of such a file the size.
    part_of: Option<u64>,
    looked_up: Vec<ChunkName>,
    /// Files that are likely to have much of the same, the likeliest first.
    pub kin: Vec<FileId>,
    /// Chunks that were last to be sent together, and the delta for them, if there is a good one.
    pub coded: Option<(Vec<ChunkName>, Option<Delta>)>,
    /// What lay under what was written over in the container since the version before.
    pub images: Option<Arc<Images>>,
    /// What was sent of it before it was closed.
    pub early: Option<Arc<Work>>,
    /// Much of it was, and the rest may go without being asked for.
    pub sends_on: bool,
    /// Chunks that were sent, and arrived.
    arrived: BTreeMap<ChunkName, Arrived>,
}

/// ```text
///   (nothing) --arrived--> There --said to be missing--> Lost --arrived--> Again
///                                                          ^ said to be missing |
///                                                          +--------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    There,
    /// It was sent in a way of which nothing came: it goes by itself from then on.
    Lost,
    Again,
}

impl Plan {
    /// `chunks_max`: so many chunks of data are at hand.
    pub fn new(
        file: FileId,
        generation: u32,
        described: &Described,
        kin: Vec<FileId>,
        chunks_max: usize,
    ) -> Plan {
        let recipe = described.tree.chunks.iter().cloned().collect();
        let has_all = described.has_all_pieces() && described.pieces.len() <= chunks_max;
        let part_of = (!has_all).then_some(described.tree.contents.size);
        let data = described
            .pieces
            .iter()
            .take(chunks_max)
            .filter_map(|placed| match placed.piece {
                Piece::Chunk { name, length } => {
                    let length = u32::try_from(length).expect("no chunk is longer than 1 MiB");
                    Some((name, (placed.offset, length)))
                }
                Piece::Zeros { .. } => None,
            })
            .collect();
        Plan { recipe, data, kin, part_of, ..Plan::empty(file, generation) }
    }

    pub fn empty(file: FileId, generation: u32) -> Plan {
        let (recipe, data, arrived) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (coded, images, early, sends_on) = (None, None, None, false);
        Plan {
            file,
            generation,
            recipe,
            data,
            part_of: None,
            looked_up: Vec::new(),
            kin: Vec::new(),
            coded,
            images,
            early,
            sends_on,
            arrived,
        }
    }

    /// Whether there are chunks of data that are not at hand.
    pub fn is_part(&self) -> bool {
        self.part_of.is_some()
    }

    /// A chunk that was not at hand is here.
    pub fn look_up(&mut self, name: ChunkName, offset: u64, length: u32) {
        self.data.insert(name, (offset, length));
        self.looked_up.push(name);
    }

    /// What was looked up makes room for what comes next.
    pub fn forget_looked_up(&mut self) {
        for name in std::mem::take(&mut self.looked_up) {
            self.data.remove(&name);
            self.arrived.remove(&name);
        }
    }

    /// Every chunk's name, recipe chunks first.
    pub fn names(&self) -> impl Iterator<Item = &ChunkName> {
        self.recipe.keys().chain(self.data.keys())
    }

    /// Data chunks, in their order in the file.
    pub fn data_in_order(&self) -> Vec<ChunkName> {
        let mut names: Vec<ChunkName> = self.data.keys().copied().collect();
        names.sort_unstable_by_key(|name| self.data.get(name).map(|(offset, _)| *offset));
        names
    }

    /// Whether a chunk lies near another one, so that one base is good for both.
    pub fn is_near(&self, first: &ChunkName, name: &ChunkName) -> bool {
        match (self.data.get(first), self.data.get(name)) {
            (Some((from, _)), Some((offset, _))) => from.abs_diff(*offset) < NEAR_BYTES,
            _ => false,
        }
    }

    /// Chunks in their order in the file, by where they lie near each other; together if there
    /// would be too many groups.
    pub fn groups<'a>(&self, names: &'a [ChunkName]) -> Vec<&'a [ChunkName]> {
        let (mut groups, mut rest) = (Vec::new(), names);
        while let Some(first) = rest.first() {
            let near = rest.iter().take_while(|name| self.is_near(first, name)).count();
            let (group, behind) = rest.split_at(near.max(1));
            groups.push(group);
            rest = behind;
        }
        if groups.len() > GROUPS_MAX { vec![names] } else { groups }
    }

    pub fn data_bytes(&self) -> u64 {
        self.data.values().map(|(_, length)| u64::from(*length)).sum()
    }

    pub fn bytes_of(&self, names: &[ChunkName]) -> u64 {
        names.iter().filter_map(|name| self.length(name)).sum()
    }

    /// Up to where its last chunk goes: of a container the size.
    pub fn size(&self) -> u64 {
        let ends = self.data.values().map(|(offset, length)| offset + u64::from(*length));
        self.part_of.or(ends.max()).unwrap_or(0)
    }

    /// Data chunks that begin in a stretch, in order, with where each begins and its length.
    pub fn chunks_in(&self, range: &Range<u64>) -> Vec<(ChunkName, u64, u32)> {
        let all = self.data.iter().map(|(name, (offset, length))| (*name, *offset, *length));
        let mut chunks: Vec<_> = all.filter(|(_, offset, _)| range.contains(offset)).collect();
        chunks.sort_unstable_by_key(|(_, offset, _)| *offset);
        chunks
    }

    /// Whether a delta stands for all data chunks.
    pub fn is_whole(&self, delta: &Delta) -> bool {
        !self.is_part() && delta.lengths.len() == self.data.len()
    }

    /// What a delta stands for that was made for these chunks.
    pub fn covered(&self, names: &[ChunkName], delta: &Delta) -> Vec<ChunkName> {
        if delta.codec == Codec::Assembled.number() {
            let protocol::Range { offset, length } = delta.base.stretch;
            let within = self.chunks_in(&(offset..offset.saturating_add(length)));
            return within.into_iter().map(|(name, ..)| name).collect();
        }
        match delta.lengths.len() > names.len() {
            true => self.data_in_order(),
            false => names.iter().take(delta.lengths.len()).copied().collect(),
        }
    }

    /// The replica above has received a chunk, by itself or in a delta that it could use. Says
    /// whether that is new.
    pub fn note_arrived(&mut self, name: &ChunkName) -> bool {
        if !self.recipe.contains_key(name) && !self.data.contains_key(name) {
            return false;
        }
        let before = self.arrived.get(name).copied();
        let now = match before {
            None | Some(Arrived::There) => Arrived::There,
            Some(Arrived::Lost | Arrived::Again) => Arrived::Again,
        };
        self.arrived.insert(*name, now);
        before.is_none()
    }

    /// The replica above says that it lacks a chunk.
    pub fn note_missing(&mut self, name: &ChunkName) {
        if let Some(arrived) = self.arrived.get_mut(name) {
            *arrived = Arrived::Lost;
        }
    }

    /// Whether the replica above has received a chunk and has not said since that it lacks it.
    pub fn is_there(&self, name: &ChunkName) -> bool {
        matches!(self.arrived.get(name), Some(Arrived::There | Arrived::Again))
    }

    /// Whether one of these chunks did not come out of what was sent for it: another delta of the
    /// same might never end.
    pub fn is_left_alone(&self, names: &[ChunkName]) -> bool {
        let lost = |name| matches!(self.arrived.get(name), Some(Arrived::Lost | Arrived::Again));
        names.iter().any(lost)
    }

    /// What it takes in memory, about, apart from a delta that it was given: only those on their
    /// way have one.
    fn bytes(&self) -> usize {
        let recipe: usize = self.recipe.values().map(Vec::len).sum();
        let images = self.images.as_ref().map_or(0, |images| images.bytes());
        PLAN_BYTES + images + recipe + CHUNK_BYTES * (self.recipe.len() + self.data.len())
    }

    pub fn length(&self, name: &ChunkName) -> Option<u64> {
        let recipe = self.recipe.get(name).map(|bytes| bytes.len() as u64);
        recipe.or_else(|| self.data.get(name).map(|(_, length)| u64::from(*length)))
    }
}

/// Chunks of data of one file that a plan has at hand, unless settings say otherwise.
pub const PLAN_CHUNKS_MAX: usize = 1 << 18;
/// What a plan takes by itself, with nodes of its maps that have one row each, and what each chunk
/// of it takes in full ones.
const PLAN_BYTES: usize = 1536;
const CHUNK_BYTES: usize = 64;

/// Cuts and names what a container holds, up to its `size`, where a part of it may have been.
/// Holes are not read. Pieces beyond the first `pieces_max` go to `beyond`.
pub(crate) fn describe_container(
    container: &impl Container,
    growing: Growing,
    size: u64,
    pieces_max: usize,
    beyond: impl FnMut(&[Placed]) -> Result<(), ChunksError>,
) -> Result<Described, ChunksError> {
    describe_container_while(container, growing, (size, pieces_max), || true, beyond)
}

/// The same as long as `goes_on` says so, which is asked before each read.
pub(crate) fn describe_container_while(
    container: &impl Container,
    growing: Growing,
    (size, pieces_max): (u64, usize),
    goes_on: impl Fn() -> bool,
    beyond: impl FnMut(&[Placed]) -> Result<(), ChunksError>,
) -> Result<Described, ChunksError> {
    // What is known of data and holes ahead, up to `seen`: in a file there may be very many.
    let (mut seen, mut data) = (growing.pushed(), VecDeque::new());
    // The hole may be one of terabytes.
    let mut step = HOLE_STEP_BYTES;
    let read = |offset: u64, buffer: &mut [u8]| {
        if !goes_on() {
            return Err(ChunksError::SizeChanged { stated: size, found: size });
        }
        while data.pop_front_if(|(start, length)| *start + *length <= offset).is_some() {}
        if data.is_empty() {
            let from = seen.max(offset);
            seen = from.saturating_add(step).min(size);
            data = container.data(from, seen - from)?.into();
            step = if data.is_empty() { step.saturating_mul(2) } else { HOLE_STEP_BYTES };
        }
        let Some((start, length)) = data.front() else { return Ok(Found::Hole(seen - offset)) };
        if *start > offset {
            return Ok(Found::Hole(start - offset));
        }
        let left = usize::try_from(start + length - offset).unwrap_or(usize::MAX);
        let bytes = container.read(offset, buffer.len().min(left).min(READ_BYTES_MAX))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok::<_, ChunksError>(Found::Bytes(bytes.len()))
    };
    describe_on(growing, size, pieces_max, read, beyond)
}

/// The same of a container that was as `before` says, of what was written since.
pub(crate) fn describe_container_again(
    container: &impl Container,
    secret: &Secret,
    cutter: Cutter,
    before: &[Placed],
    changed: &[Range<u64>],
) -> Result<(Described, Vec<Placed>), ChunksError> {
    let size = container.length()?;
    // How far a hole goes is looked for in steps, which grow: a file can be one of terabytes.
    let mut step = HOLE_STEP_BYTES;
    describe_again(secret, cutter, size, before, changed, |offset, buffer| {
        let ahead = step.min(size - offset);
        let found = container.data(offset, ahead)?;
        step = if found.is_empty() { step.saturating_mul(2) } else { HOLE_STEP_BYTES };
        let (start, length) = match found.first() {
            None => return Ok(Found::Hole(ahead)),
            Some((start, _)) if *start > offset => return Ok(Found::Hole(start - offset)),
            Some(stretch) => *stretch,
        };
        let left = usize::try_from(start + length - offset).unwrap_or(usize::MAX);
        let bytes = container.read(offset, buffer.len().min(left))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok::<_, ChunksError>(Found::Bytes(bytes.len()))
    })
}

/// A container that was opened for a chunk, and may have the next one too.
pub(crate) type Opened<K> = Option<(Key, K)>;

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn secret(&self) -> (Secret, Cutter) {
        let core = self.core();
        (Secret::new(core.meta.secret), core.meta.cutter)
    }

    /// The bytes of a chunk of a version, if the container still has them.
    pub(crate) fn chunk_of(
        &self,
        plan: &Plan,
        secret: &Secret,
        name: &ChunkName,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.chunk_in(plan, secret, name, &mut None)
    }

    /// The same of one chunk after another: the container stays open for the next.
    pub(crate) fn chunk_in(
        &self,
        plan: &Plan,
        secret: &Secret,
        name: &ChunkName,
        opened: &mut Opened<C::Container>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(bytes) = plan.recipe.get(name) {
            return Ok(Some(bytes.clone()));
        }
        let Some((offset, length)) = plan.data.get(name) else { return Ok(None) };
        let key = Key { file: plan.file.0, generation: plan.generation };
        if opened.as_ref().is_none_or(|(open, _)| *open != key) {
            let container = readable(self.inner.containers.open(key, false))?.flatten();
            *opened = container.map(|container| (key, container));
        }
        let Some((_, container)) = opened else { return Ok(None) };
        // Where it cannot be read, the replica above may have it.
        let bytes = readable(container.read(*offset, *length as usize))?;
        Ok(bytes.filter(|bytes| secret.check(name, bytes).is_ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::memory::MemoryContainers;

    fn plan(bytes: &[u8]) -> Plan {
        let described = chunks::describe_bytes(&Secret::new([7; 32]), Cutter::Gear, bytes);
        Plan::new(FileId(5), 1, &described, Vec::new(), usize::MAX)
    }

    #[test]
    fn a_chunk_that_is_missing_though_it_arrived_is_left_alone_for_good() {
        let mut plan = plan(b"one small file");
        let names = plan.data_in_order();
        let name = names[0];
        plan.note_missing(&name);
        assert!(!plan.is_there(&name) && !plan.is_left_alone(&names), "it was never sent");
        assert!(plan.note_arrived(&name), "a step");
        assert!(!plan.note_arrived(&name), "the same again is none");
        assert!(plan.is_there(&name) && !plan.is_left_alone(&names));
        plan.note_missing(&name);
        assert!(!plan.is_there(&name) && plan.is_left_alone(&names));
        assert!(!plan.note_arrived(&name), "who waits would wait without end");
        assert!(plan.is_there(&name) && plan.is_left_alone(&names));
    }

    #[test]
    fn what_is_cut_can_be_given_up_at_any_read() {
        let key = Key { file: 7, generation: 1 };
        let container = MemoryContainers::default().open(key, true).unwrap().unwrap();
        container.write(0, &vec![7; 4 << 20]).unwrap();
        let cut = |reads: usize| {
            let left = std::cell::Cell::new(reads);
            let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
            let growing = Growing::new(&Secret::new([7; 32]), Cutter::Gear);
            describe_container_while(&container, growing, (4 << 20, 0), goes_on, |_| Ok(()))
        };
        assert!(matches!(cut(0), Err(ChunksError::SizeChanged { .. })));
        assert!(matches!(cut(2), Err(ChunksError::SizeChanged { .. })));
        assert_eq!(cut(usize::MAX).unwrap().tree.contents.size, 4 << 20);
    }

    /// A disk may take files of any size.
    #[test]
    fn a_hole_of_any_size_that_a_file_has_got_is_described_in_few_steps() {
        let key = Key { file: 7, generation: 1 };
        let container = MemoryContainers::default().open(key, true).unwrap().unwrap();
        container.write(0, &vec![7; 1 << 20]).unwrap();
        let secret = Secret::new([7; 32]);
        let growing = Growing::new(&secret, Cutter::Gear);
        let before =
            describe_container_while(&container, growing, (1 << 20, 0), || true, |_| Ok(()));
        container.set_length(1 << 62).unwrap();
        let (before, changed) = (before.unwrap().pieces, 1 << 20..1 << 62);
        let again =
            describe_container_again(&container, &secret, Cutter::Gear, &before, &[changed]);
        let (described, _) = again.unwrap();
        assert_eq!(described.tree.contents.size, 1 << 62);
        assert!(described.pieces.len() < 100, "{}", described.pieces.len());
    }

    #[test]
    fn what_is_no_chunk_of_the_version_does_not_arrive() {
        let (mut plan, other) = (plan(b"one"), plan(b"other"));
        assert!(!plan.note_arrived(&other.data_in_order()[0]));
    }

    #[test]
    fn of_a_very_large_file_so_many_chunks_are_at_hand_and_what_was_looked_up() {
        let mut bytes = vec![0; 300_000];
        world::World::simulated(0, 1).entropy.fill(&mut bytes);
        let described = chunks::describe_bytes(&Secret::new([7; 32]), Cutter::Gear, &bytes);
        let of = |most| Plan::new(FileId(5), 1, &described, Vec::new(), most);
        let (whole, mut part) = (of(1000), of(5));
        assert!(!whole.is_part() && whole.data.len() == described.pieces.len());
        assert!(part.is_part() && part.data.len() == 5);
        assert!(part.bytes() < whole.bytes() && part.size() == whole.size());
        let first = part.data_in_order();
        for name in whole.data_in_order().iter().rev().take(7) {
            let (offset, length) = whole.data[name];
            part.look_up(*name, offset, length);
            part.note_arrived(name);
        }
        assert_eq!(part.data.len(), 5 + 7);
        part.forget_looked_up();
        assert_eq!((part.data_in_order(), part.arrived.len()), (first, 0));
    }
}
