//! Chunks of a pending store as a delta that is assembled of many parts: of what a container holds
//! everything that the replica above has, as files of their own or in other containers.
//! Holds: what is not found goes along as one stream; bytes that are not what their names say are
//! not sent; a part that is not there costs a delta of which nothing comes.
//! From: beyond LBFS, which finds chunks in files as they are.

use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::home::is_home;
use crate::inside::{INDEX, Within, is_seen, reader};
use crate::parcel::coded_bytes;
use crate::plan::Plan;
use crate::types::Error;
use crate::worth;
use chunks::Secret;
use chunks::delta::{Effort, PARTS_BYTES_MAX, PARTS_MAX, Part};
use chunks::inside::index::Place;
use chunks::inside::{Held, Inside, Left, Member, Segment, chunks_of};
use model::{ChunkName, Contents, FileId, Root, Stamp, Update};
use protocol::{Base, Delta, PAYLOAD_BYTES_MAX, Upstream};
use std::collections::BTreeSet;
use std::ops::Range;
use store::container::Key;
use store::{Container, Containers, Read};

/// A stretch for one delta has at most so many bytes.
const STRETCH_BYTES_MAX: u64 = 2 * PAYLOAD_BYTES_MAX as u64;

/// Chunks between those that are missing go along if they are no more than this.
const BETWEEN_BYTES_MAX: u64 = 64 << 10;

/// What is unpacked is about so many times as long.
const PLAIN_TIMES: u64 = 4;

/// One byte in so many must be found somewhere, or taking apart is not worth it.
const FOUND_ONE_IN: u64 = 16;

/// A delta with more than one byte for so many of the chunks is none.
const SMALL_NUMERATOR: u64 = 7;
const SMALL_DENOMINATOR: u64 = 8;

/// Nothing better is looked for than a delta of one byte for so many.
const ENOUGH_ONE_IN: u64 = 16;

/// Whether a delta has at most one byte for so many that it stands for.
fn is_small(delta: &Delta, one_in: u64) -> bool {
    (delta.bytes.len() as u64).saturating_mul(one_in) <= coded_bytes(delta)
}

/// Whether the first takes less for what it stands for.
fn is_better(one: &Delta, other: &Delta) -> bool {
    let takes = |of: &Delta, for_each: &Delta| {
        u128::from(of.bytes.len() as u64) * u128::from(coded_bytes(for_each))
    };
    takes(one, other) <= takes(other, one)
}

/// A part, and its bytes.
type Found = (Part, Vec<u8>);

/// Where a stretch is, and what it is made of.
struct Stretch {
    range: Range<u64>,
    lengths: Vec<u32>,
    /// Where the chunks begin that it is made for, and their bytes. Those between them are there.
    wanted: BTreeSet<u64>,
    wanted_bytes: u64,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Chunks of a pending store as a delta; none where they are better sent by themselves. It may
    /// stand for others than these, as `covered` tells.
    pub(crate) fn delta_for(
        &self,
        update: &Update,
        plan: &Plan,
        names: &[ChunkName],
    ) -> Result<Option<Delta>, Error> {
        if plan.is_left_alone(names) {
            return Ok(None);
        }
        let usual = self.delta_of_version(update, plan, names)?;
        if usual.as_ref().is_some_and(|delta| is_small(delta, ENOUGH_ONE_IN)) {
            return Ok(usual);
        }
        let assembled = self.assembled_for(update, plan, names)?;
        Ok(match (usual, assembled) {
            (Some(usual), Some(assembled)) if is_better(&usual, &assembled) => Some(usual),
            (usual, assembled) => assembled.or(usual),
        })
    }

    /// Whether a processor unpacks faster than the link takes for so many bytes.
    pub(crate) fn is_worth_unpacking(&self, bytes: u64) -> bool {
        let rate = self.inner.upstream.quality().rate_up;
        let both = bytes.saturating_mul(PLAIN_TIMES);
        worth::effort(rate, bytes, both) == Some(Effort::Usual)
    }

    /// The first of these chunks, with what lies between them, as an assembled delta; none where
    /// they are better sent in another way.
    pub(crate) fn assembled_for(
        &self,
        update: &Update,
        plan: &Plan,
        names: &[ChunkName],
    ) -> Result<Option<Delta>, Error> {
        let own = (plan.file, update.stamp);
        let can = self.connection().assembles && !self.kin().is_useless(own.0, own.1);
        if !can || plan.is_part() || plan.is_left_alone(names) || plan.images.is_some() {
            return Ok(None);
        }
        let Some(stretch) = stretch_of(plan, names) else { return Ok(None) };
        let bytes = stretch.range.end - stretch.range.start;
        if !self.is_worth_unpacking(bytes) {
            self.note_left(own, "the link is so quick that sending it takes less time");
            return Ok(None);
        }
        let key = Key { file: plan.file.0, generation: plan.generation };
        let container = self.inner.containers.open(key, false).map_err(error_of)?;
        let Some(container) = container else { return Ok(None) };
        let target = container.read(stretch.range.start, bytes as usize).map_err(error_of)?;
        let secret = self.secret().0;
        if !is_whole(&secret, plan, &stretch, &target) {
            return Ok(None);
        }
        if !self.is_packed(plan)? {
            return self.assembled_of_bytes(own, &secret, plan, (stretch, target));
        }
        if let Some(source) = self.source_for_store(update, plan)? {
            self.note_inside(&source, stretch.range.start)?;
        }
        let looked = self.look_inside_plan(update, plan, (plan.size(), stretch.range.start))?;
        let inside = match looked.as_deref() {
            Some(Ok(inside)) => inside,
            Some(Err(left)) => {
                self.note_left(own, why(*left));
                return Ok(None);
            }
            None => return Ok(None),
        };
        if !self.has_enough(inside, own, &stretch.range)? {
            self.note_left(own, "too little of what it holds is at the origin");
            return Ok(None);
        }
        let segment = inside.segment(&stretch.range, &mut reader(&container));
        let segment = segment.map_err(of_chunks)?;
        let Some(segment) = segment else {
            self.note_left(own, "it unpacks to too many bytes");
            return Ok(None);
        };
        if segment.runs() == 0 && segment.held.is_empty() {
            self.note_left(own, "what it was packed with is not known here");
        }
        self.assemble(own, &secret, &segment, (stretch, target))
    }

    /// The same of contents that are no container, of which chunks are inside others.
    fn assembled_of_bytes(
        &self,
        own: (FileId, Stamp),
        secret: &Secret,
        plan: &Plan,
        (stretch, target): (Stretch, Vec<u8>),
    ) -> Result<Option<Delta>, Error> {
        let (mut held, mut found) = (Vec::new(), 0);
        let read = self.inner.tables.read().map_err(error_of)?;
        for (name, offset, length) in plan.chunks_in(&stretch.range) {
            let start = (offset - stretch.range.start) as usize;
            let root = Some(Root { name, depth: 0 });
            let contents = Contents { size: u64::from(length), root, holes: None };
            let at = start..start + length as usize;
            if stretch.wanted.contains(&offset) && is_seen(&*read, &name, own).map_err(error_of)? {
                found += u64::from(length);
            }
            held.push(Held { contents, at, is_member: false });
        }
        drop(read);
        if found < stretch.wanted_bytes / FOUND_ONE_IN || found == 0 {
            return Ok(None);
        }
        let mut segment = Segment::of_bytes(target.clone());
        segment.held = held;
        self.assemble(own, secret, &segment, (stretch, target))
    }

    fn assemble(
        &self,
        own: (FileId, Stamp),
        secret: &Secret,
        segment: &Segment,
        (stretch, target): (Stretch, Vec<u8>),
    ) -> Result<Option<Delta>, Error> {
        let found = self.parts_of(own, secret, segment)?;
        let parts: Vec<(Part, &[u8])> =
            found.iter().map(|(part, bytes)| (*part, bytes.as_slice())).collect();
        let range = protocol::Range {
            offset: stretch.range.start,
            length: stretch.range.end - stretch.range.start,
        };
        let base = Base { file: own.0, version: own.1, stretch: range };
        let delta = segment.assemble(secret, base, (&target, stretch.lengths), &parts);
        let most = stretch.wanted_bytes / SMALL_DENOMINATOR * SMALL_NUMERATOR;
        let small = |delta: &Delta| delta.bytes.len() as u64 <= most;
        Ok(delta.filter(small))
    }

    /// Whether enough of what is near is above, as far as is known, to look closer.
    fn has_enough(
        &self,
        inside: &Inside,
        own: (FileId, Stamp),
        range: &Range<u64>,
    ) -> Result<bool, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let (mut found, mut all) = (0u64, 0u64);
        for member in inside.members_near(range) {
            all = all.saturating_add(member.contents.size);
            found = found.saturating_add(self.found_of(&*read, own, member)?);
        }
        Ok(found > 0 && found >= all / FOUND_ONE_IN)
    }

    /// Bytes of a member that are above.
    fn found_of(
        &self,
        read: &dyn Read,
        own: (FileId, Stamp),
        member: &Member,
    ) -> Result<u64, Error> {
        if let Some(root) = member.contents.root
            && is_home(read, &root.name).map_err(error_of)?
        {
            return Ok(member.contents.size);
        }
        let mut found = 0;
        for (_, name, length) in chunks_of(member) {
            found += if is_seen(read, &name, own).map_err(error_of)? { length } else { 0 };
        }
        Ok(found)
    }

    /// What of a segment the replica above has, in the segment's order.
    fn parts_of(
        &self,
        own: (FileId, Stamp),
        secret: &Secret,
        segment: &Segment,
    ) -> Result<Vec<Found>, Error> {
        let (mut parts, mut hits) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        let (mut done, mut room) = (0, PARTS_BYTES_MAX);
        {
            let read = self.inner.tables.read().map_err(error_of)?;
            for held in &segment.held {
                let Some(root) = held.contents.root.filter(|_| held.at.start >= done) else {
                    continue;
                };
                if is_home(&*read, &root.name).map_err(error_of)? {
                    done = held.at.end;
                    let fits = held.contents.size <= room && parts.len() < PARTS_MAX / 2;
                    let bytes = match held.is_whole() {
                        true => Some(segment.bytes()[held.at.clone()].to_vec()),
                        // The rest of it may be here elsewhere.
                        false => self.chunk_here(secret, &root.name)?,
                    };
                    let bytes = bytes.filter(|bytes| bytes.len() as u64 == held.contents.size);
                    if let Some(bytes) = bytes
                        && fits
                        && seen.insert(root.name)
                    {
                        room -= held.contents.size;
                        parts.push((Part::Contents(held.contents), bytes));
                    }
                } else if !held.is_member {
                    let places = INDEX.find(&*read, &root.name).map_err(error_of)?;
                    let others = places.into_iter().filter(|p| (p.file, p.version) != own);
                    hits.extend(others.map(|place| (root.name, place)));
                    done = held.at.end;
                }
            }
        }
        self.add_parts_within(secret, hits, (&mut parts, room))?;
        Ok(parts)
    }

    /// Parts of containers in which chunks were seen, as far as they are right.
    fn add_parts_within(
        &self,
        secret: &Secret,
        hits: Vec<(ChunkName, Place)>,
        (parts, mut room): (&mut Vec<Found>, u64),
    ) -> Result<(), Error> {
        for Within { hits, ranges, bytes } in self.read_within(secret, hits, true)? {
            for (range, bytes) in ranges.into_iter().zip(bytes) {
                let length = range.end - range.start;
                if length <= room && parts.len() < PARTS_MAX {
                    room -= length;
                    parts.push((part_of(&hits[0].1, &range), bytes));
                }
            }
        }
        Ok(())
    }

    /// For `explain`: why a version was not taken apart.
    fn note_left(&self, (file, version): (FileId, Stamp), why: &'static str) {
        self.kin().transfer_of(file, version, true).left = Some(why);
    }
}

fn why(left: Left) -> &'static str {
    match left {
        Left::Unknown => "it is no container of a kind that is known, or nothing in it is packed",
        Left::TooLarge => "it is one stream of too many bytes",
        Left::Damaged => "it makes no sense: it is damaged, cut off, or encrypted",
    }
}

fn part_of(place: &Place, range: &Range<u64>) -> Part {
    let (offset, length) = (range.start, range.end - range.start);
    match place.stream() {
        Some(stream) => Part::Plain { stream, stretch: protocol::Range { offset, length } },
        None => {
            let stretch = protocol::Range { offset: place.start + offset, length };
            Part::Bytes(Base { file: place.file, version: place.version, stretch })
        }
    }
}

/// The stretch of the file that begins with the first of these chunks, whole chunks one after
/// another, as far as one delta goes.
fn stretch_of(plan: &Plan, names: &[ChunkName]) -> Option<Stretch> {
    let wanted: BTreeSet<u64> =
        names.iter().filter_map(|name| plan.data.get(name)).map(|(offset, _)| *offset).collect();
    let start = *wanted.first()?;
    let most = start.saturating_add(STRETCH_BYTES_MAX);
    let (mut end, mut last, mut lengths, mut lengths_at_last) = (start, start, Vec::new(), 0);
    let mut wanted_bytes = 0;
    for (_, offset, length) in plan.chunks_in(&(start..most)) {
        let far = offset.saturating_sub(last) > BETWEEN_BYTES_MAX;
        if offset != end || far || offset + u64::from(length) > most {
            break;
        }
        end = offset + u64::from(length);
        lengths.push(length);
        if wanted.contains(&offset) {
            (last, lengths_at_last) = (end, lengths.len());
            wanted_bytes += u64::from(length);
        }
    }
    lengths.truncate(lengths_at_last);
    let range = start..last;
    (last > start).then_some(Stretch { range, lengths, wanted, wanted_bytes })
}

/// Whether the bytes are those that the plan is about: somebody may have written to the container.
fn is_whole(secret: &Secret, plan: &Plan, stretch: &Stretch, target: &[u8]) -> bool {
    plan.chunks_in(&stretch.range).iter().all(|(name, offset, length)| {
        let start = (offset - stretch.range.start) as usize;
        let chunk = target.get(start..start + *length as usize);
        chunk.is_some_and(|chunk| secret.check(name, chunk).is_ok())
    })
}
