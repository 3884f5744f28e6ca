//! What compressed containers hold, as if each member were a file of its own: so it bears the very
//! names that the same file has elsewhere, down to the root of its recipe.
//! Holds: whatever the bytes are, memory and time are bounded by constants; a container is read
//! piece by piece, however large it is. What is found is a hint: who uses it hashes.
//! Never: opens a container within a container.
//! From: beyond LBFS, which finds chunks in files as they are.

pub mod index;
mod looked;
pub mod order;
mod picture;
mod places;
mod segment;
mod tar;

use crate::cut::{Cut, Cutting};
use crate::delta::{Checkpoint, walk};
use crate::describe::Naming;
use crate::error::Result;
use crate::fingerprint::Secret;
use crate::recipe::Placed;
use model::{ChunkName, Contents, Piece};
use picture::Frames;
use places::{Method, Spot};
use protocol::Cutter;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use tar::Members;

pub use looked::{Looked, Outcome};
pub use segment::{Held, Segment};

/// Reads so many bytes of a file from an offset on, fewer at its end.
pub type Reader<'a> = dyn FnMut(u64, usize) -> Result<Vec<u8>> + 'a;

/// Streams of more packed bytes are left as they are: who wants the end of one has to unpack all
/// that is before.
pub const STREAM_BYTES_MAX: u64 = 64 << 20;

/// What is looked at of a larger container at once.
pub const REGION_BYTES: u64 = 32 << 20;

/// Plain bytes of all that is looked at together, at most.
const PLAIN_BYTES_MAX: u64 = 1 << 30;

/// One can begin to read a stream anew after so many packed bytes.
const CHECKPOINT_BYTES: u64 = 1 << 20;

/// Names of one container, at most.
const NAMES_MAX: usize = 1 << 17;

/// Bytes that are read for one look, for each of the region and besides: streams are read once,
/// and once more where they were said to be another way.
const READ_TIMES_MAX: u64 = 4;
const READ_MORE: u64 = 64 << 20;

/// Why nothing, or not all, of a container was unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It is no container of a kind that is known here, or has nothing that is packed.
    Unknown,
    /// It is a stream of too many bytes, or unpacks to too many.
    TooLarge,
    /// It makes no sense: it is cut off, or damaged.
    Damaged,
}

/// A member: contents within the plain bytes of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it begins in the plain bytes.
    pub offset: u64,
    /// What a file of the same bytes has.
    pub contents: Contents,
    /// From the member's beginning.
    pub pieces: Vec<Placed>,
}

/// Packed bytes within a container, or stored ones, which are as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub start: u64,
    pub packed: u64,
    pub plain: u64,
    pub members: Vec<Member>,
    deflated: bool,
    checkpoints: Vec<Checkpoint>,
    frames: Frames,
}

impl Stream {
    pub fn end(&self) -> u64 {
        self.start + self.frames.end(self.packed)
    }

    /// Whether its plain bytes are other bytes than its own.
    pub fn is_deflated(&self) -> bool {
        self.deflated
    }

    /// The last checkpoint at or before a byte of the stream.
    fn checkpoint(&self, byte: u64) -> Checkpoint {
        let found = self.checkpoints.iter().rev().find(|point| point.bit <= byte * 8);
        found.cloned().unwrap_or_default()
    }

    /// Plain bytes that stretches of the packed ones can be about: rather too many.
    fn about(&self, packed: &Range<u64>) -> Range<u64> {
        if !self.deflated {
            return packed.start - self.start..packed.end - self.start;
        }
        let from = self.checkpoint(self.frames.before(packed.start - self.start)).plain;
        let end = self.frames.before(packed.end - self.start) * 8;
        let behind = self.checkpoints.iter().find(|point| point.bit >= end);
        from..behind.map_or(self.plain, |point| point.plain)
    }
}

/// What is inside a container, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Of the container, that was looked at.
    pub region: Range<u64>,
    pub streams: Vec<Stream>,
    /// Members that are encrypted.
    pub encrypted: usize,
    /// Streams that were not unpacked, as they are damaged, packed in another way or too large.
    pub odd: usize,
}

impl Inside {
    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        let pieces: usize =
            self.streams.iter().flat_map(|s| &s.members).map(|m| 1 + m.pieces.len()).sum();
        let windows: usize =
            self.streams.iter().flat_map(|s| &s.checkpoints).map(|point| point.window.len()).sum();
        let frames: usize = self.streams.iter().map(|stream| stream.frames.bytes()).sum();
        windows + frames + pieces * size_of::<Placed>() + self.streams.len() * size_of::<Stream>()
    }

    /// Members of which a stretch of the container may have something.
    pub fn members_near(&self, range: &Range<u64>) -> Vec<&Member> {
        let mut members = Vec::new();
        for stream in &self.streams {
            let (from, to) = (range.start.max(stream.start), range.end.min(stream.end()));
            if from < to {
                let about = stream.about(&(from..to));
                let near = |member: &&Member| {
                    let end = member.offset + member.contents.size;
                    member.offset < about.end && about.start < end
                };
                members.extend(stream.members.iter().filter(near));
            }
        }
        members
    }

    /// Names of chunks of which a stretch of the container may have something, each once, in an
    /// order that follows from what is inside: as many as `names_max`.
    pub fn names_near(&self, range: &Range<u64>, names_max: usize) -> Vec<ChunkName> {
        let mut seen = HashSet::new();
        let members = self.members_near(range).into_iter();
        let names = members.flat_map(chunks_of).map(|(_, name, _)| name);
        names.filter(|name| seen.insert(*name)).take(names_max).collect()
    }

    pub fn members(&self) -> usize {
        self.streams.iter().map(|stream| stream.members.len()).sum()
    }
}

/// The part of a container of `size` bytes that is looked at together with what is at `offset`.
pub fn region_of(size: u64, offset: u64) -> Range<u64> {
    if size <= STREAM_BYTES_MAX {
        return 0..size;
    }
    let start = offset / REGION_BYTES * REGION_BYTES;
    start..start.saturating_add(REGION_BYTES).min(size)
}

/// Looks at a region of a container of `size` bytes.
/// Errors: those of `read`.
pub fn look(
    secret: &Secret,
    cutter: Cutter,
    (size, region): (u64, Range<u64>),
    read: &mut Reader<'_>,
) -> Result<std::result::Result<Inside, Left>> {
    let found = match places::spots(size, &region, read)? {
        Ok(found) => found,
        Err(left) => return Ok(Err(left)),
    };
    // Many members that are said to be in one place, and are no streams, would be read each time.
    let mut unread = (region.end - region.start) * READ_TIMES_MAX + READ_MORE;
    let read: &mut Reader<'_> = &mut |offset, length| match unread.checked_sub(length as u64) {
        Some(left) => {
            unread = left;
            read(offset, length)
        }
        None => Ok(Vec::new()),
    };
    let mut tried = HashSet::new();
    let mut inside =
        Inside { region, streams: Vec::new(), encrypted: found.encrypted, odd: found.odd };
    let mut looking = Looking { secret, cutter, room: PLAIN_BYTES_MAX, names: NAMES_MAX };
    let mut waiting = found.spots;
    waiting.reverse();
    while let Some(spot) = waiting.pop() {
        let end = inside.streams.last().map_or(0, Stream::end);
        if spot.start < end || !tried.insert(spot.start) {
            continue;
        }
        let Some(stream) = looking.stream(size, &spot, read)? else {
            inside.odd += 1;
            if looking.is_spent() {
                break;
            }
            continue;
        };
        if spot.method == Method::Gzip {
            waiting.extend(places::gzip_behind(size, stream.end(), read)?);
        }
        inside.streams.push(stream);
    }
    if !inside.streams.is_empty() {
        return Ok(Ok(inside));
    }
    Ok(Err(match () {
        () if looking.is_spent() => Left::TooLarge,
        () if inside.odd > 0 => Left::Damaged,
        () => Left::Unknown,
    }))
}

/// Stretches of the plain bytes of the deflate stream that these bytes of a file are, in the order
/// of where they begin. None where there is no such stream, or not all of them, and where more than
/// `room` bytes would have to be unpacked; it is less by as many as were.
/// Errors: those of `read`.
pub fn plain_of(
    stream: Range<u64>,
    wanted: &[Range<u64>],
    room: &mut u64,
    read: &mut Reader<'_>,
) -> Result<Option<Vec<Vec<u8>>>> {
    let mut found: Vec<Vec<u8>> = wanted.iter().map(|_| Vec::new()).collect();
    let end = wanted.iter().map(|range| range.end).max().unwrap_or(0);
    let length = stream.end.saturating_sub(stream.start).min(STREAM_BYTES_MAX);
    let frames = picture::frames_of(&stream, read)?;
    let most = frames.before(length) * 8;
    let mut spent = false;
    let mut read = |from: u64, length: usize| frames.read(stream.start, from, length, &mut *read);
    walk(&mut read, (stream.start, length), &Checkpoint::default(), &mut |block| {
        let (from, to) = (block.offset, block.offset + block.plain.len() as u64);
        spent = block.bits.end > most || *room < block.plain.len() as u64;
        *room = room.saturating_sub(block.plain.len() as u64);
        if spent {
            return ControlFlow::Break(());
        }
        for (range, found) in wanted.iter().zip(&mut found) {
            let (first, last) = (range.start.max(from), range.end.min(to));
            if first < last {
                found.extend_from_slice(
                    &block.plain[(first - from) as usize..(last - from) as usize],
                );
            }
        }
        if to >= end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let whole =
        |(range, found): (&Range<u64>, &Vec<u8>)| range.end - range.start == found.len() as u64;
    Ok((!spent && wanted.iter().zip(&found).all(whole)).then_some(found))
}

/// What may still be looked at.
struct Looking<'s> {
    secret: &'s Secret,
    cutter: Cutter,
    room: u64,
    names: usize,
}

impl Looking<'_> {
    fn is_spent(&self) -> bool {
        self.room == 0 || self.names == 0
    }

    /// None where there is no such stream.
    fn stream(&mut self, size: u64, spot: &Spot, read: &mut Reader<'_>) -> Result<Option<Stream>> {
        let mut members = Members::new(self.secret, self.cutter, spot);
        let stream = match spot.method {
            Method::Stored => self.stored(spot, read, &mut members)?,
            _ => self.deflated(size, spot, read, &mut members)?,
        };
        let Some(mut stream) = stream else { return Ok(None) };
        stream.members = members.finish();
        let names: usize = stream.members.iter().map(|member| 1 + member.pieces.len()).sum();
        if names > self.names {
            self.names = 0;
            return Ok(None);
        }
        self.names -= names;
        Ok(Some(stream))
    }

    fn stored(
        &mut self,
        spot: &Spot,
        read: &mut Reader<'_>,
        members: &mut Members<'_>,
    ) -> Result<Option<Stream>> {
        const STEP: u64 = 256 << 10;
        let Some(packed) = spot.packed else { return Ok(None) };
        let mut done = 0;
        while done < packed {
            let some = read(spot.start + done, STEP.min(packed - done) as usize)?;
            if some.is_empty() || some.len() as u64 > self.room {
                return Ok(None);
            }
            done += some.len() as u64;
            self.room -= some.len() as u64;
            members.push(&some);
        }
        Ok(Some(Stream {
            start: spot.start,
            packed,
            plain: packed,
            members: Vec::new(),
            deflated: false,
            checkpoints: Vec::new(),
            frames: Frames::default(),
        }))
    }

    fn deflated(
        &mut self,
        size: u64,
        spot: &Spot,
        read: &mut Reader<'_>,
        members: &mut Members<'_>,
    ) -> Result<Option<Stream>> {
        let start = spot.start;
        let most = spot.packed.unwrap_or(size - start);
        if spot.packed.is_some_and(|packed| packed > STREAM_BYTES_MAX) {
            return Ok(None);
        }
        let (mut plain, mut last, mut broken) = (0, 0, false);
        let mut checkpoints: Vec<Checkpoint> = Vec::new();
        let within = (start, most.min(STREAM_BYTES_MAX + 1));
        let mut read = |from: u64, length: usize| spot.frames.read(start, from, length, &mut *read);
        let end = walk(&mut read, within, &Checkpoint::default(), &mut |block| {
            if block.bits.start >= last + CHECKPOINT_BYTES * 8 {
                last = block.bits.start;
                let window = block.window.to_vec();
                checkpoints.push(Checkpoint { bit: last, plain: block.offset, window });
            }
            plain += block.plain.len() as u64;
            let over = block.bits.end > most.min(STREAM_BYTES_MAX) * 8;
            let room = self.room.checked_sub(block.plain.len() as u64);
            self.room = room.unwrap_or(0);
            members.push(block.plain);
            if members.names() > self.names {
                self.names = 0;
            }
            broken = over || self.is_spent();
            if broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let Some(end) = end.filter(|end| !broken && end / 8 <= most) else { return Ok(None) };
        let packed = end / 8;
        let whole = spot.packed.is_none_or(|said| said == packed)
            && spot.plain.is_none_or(|said| said == plain);
        let (members, mut frames) = (Vec::new(), spot.frames.clone());
        frames.cut_to(packed);
        let stream = Stream { start, packed, plain, members, deflated: true, checkpoints, frames };
        Ok(whole.then_some(stream))
    }
}

/// Contents that are named while they go by.
struct Describing {
    offset: u64,
    cutting: Cutting,
    naming: Naming,
    names: usize,
}

impl Describing {
    /// Of `size` bytes, or of whatever comes.
    fn new(secret: &Secret, cutter: Cutter, offset: u64, size: Option<u64>) -> Describing {
        let cutting = match size {
            Some(size) => Cutting::new(cutter, size),
            None => Cutting::growing(cutter),
        };
        Describing { offset, cutting, naming: Naming::new(secret), names: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let Describing { cutting, naming, names, .. } = self;
        cutting.push(bytes, &mut |cut: Cut<'_>| {
            *names += 1;
            naming.take(cut);
        });
    }

    /// None, if it was not as long as was said.
    fn finish(self) -> Option<Member> {
        let Describing { offset, cutting, mut naming, .. } = self;
        cutting.finish(&mut |cut| naming.take(cut)).ok()?;
        let described = naming.finish(Vec::new());
        let (contents, pieces) = (described.tree.contents, described.pieces);
        Some(Member { offset, contents, pieces })
    }
}

/// The chunks of a member, with where each begins in it.
pub fn chunks_of(member: &Member) -> impl Iterator<Item = (u64, ChunkName, u64)> + '_ {
    member.pieces.iter().filter_map(|placed| match placed.piece {
        Piece::Chunk { name, length } => Some((placed.offset, name, length)),
        Piece::Zeros { .. } => None,
    })
}

#[cfg(test)]
mod tests;
