//! A stretch of a container with the plain bytes of its streams in their place, and where in these
//! the contents are that others may have.
//! Holds: what it says makes exactly the stretch again; it takes memory for the stretch alone,
//! however long the streams are that it cuts through.

use super::picture::FRAME_BYTES;
use super::{Inside, Reader, Stream, chunks_of};
use crate::against::check_of;
use crate::delta::{
    self, Block, Checkpoint, Given, INNER_BYTES_MAX, MADE_BYTES_MAX, Part, RUNS_MAX, Run,
    StreamPart, WINDOW_BYTES, take_part_apart, walk,
};
use crate::error::Result;
use crate::fingerprint::Secret;
use model::{Contents, Root};
use protocol::{Base, Delta};
use std::ops::{ControlFlow, Range};

/// Contents that stand in a segment as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// A whole member, or one chunk of it.
    pub contents: Contents,
    /// Where, in the segment's bytes; of a chunk that reaches beyond them, the part that stands
    /// there.
    pub at: Range<usize>,
    /// Whether it is all of a member; its chunks follow.
    pub is_member: bool,
}

impl Held {
    /// Whether all of it stands in the segment.
    pub fn is_whole(&self) -> bool {
        self.at.len() as u64 == self.contents.size
    }
}

/// A stretch of a container, unpacked.
pub struct Segment {
    skip: usize,
    length: usize,
    inner: Vec<u8>,
    runs: Vec<Run>,
    /// In order; each whole member in front of its chunks.
    pub held: Vec<Held>,
    /// Members that it has something of.
    pub members: usize,
}

impl Segment {
    /// The bytes in which `held` stands.
    pub fn bytes(&self) -> &[u8] {
        &self.inner
    }

    /// How many streams of it are unpacked.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Bytes that stand as they are, in front of any stream and behind any: for contents that are
    /// no container.
    pub fn of_bytes(bytes: Vec<u8>) -> Segment {
        let length = bytes.len();
        let (runs, held) = (Vec::new(), Vec::new());
        Segment { skip: 0, length, inner: bytes, runs, held, members: 0 }
    }

    /// The delta for a receiver that has these parts, each with its bytes. The chunks have the
    /// lengths that are given, one after the other, and `base` is what the delta is called by if
    /// nothing comes of it. None where it cannot be one.
    pub fn assemble(
        &self,
        secret: &Secret,
        base: Base,
        (target, lengths): (&[u8], Vec<u32>),
        parts: &[(Part, &[u8])],
    ) -> Option<Delta> {
        debug_assert_eq!(target.len(), self.length, "the segment is of these bytes");
        let given = Given { skip: self.skip, inner: &self.inner, runs: &self.runs };
        let bytes = delta::assemble(&given, parts)?;
        let codec = delta::Codec::Assembled.number();
        Some(Delta { base, lengths, codec, bytes: bytes.into(), check: check_of(secret, target) })
    }
}

impl Inside {
    /// The segment of a stretch of the region. None where it would be too large.
    /// Errors: those of `read`.
    pub fn segment(&self, range: &Range<u64>, read: &mut Reader<'_>) -> Result<Option<Segment>> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if length > MADE_BYTES_MAX / 2 {
            return Ok(None);
        }
        let mut making = Making { at: range.start, gap: 0, hint: None, segment: Segment::empty() };
        making.segment.length = length;
        for stream in &self.streams {
            let (from, to) = (range.start.max(stream.start), range.end.min(stream.end()));
            if from >= to {
                continue;
            }
            making.as_it_is(from, read)?;
            if !stream.deflated {
                making.stored(stream, to, read)?;
            } else if making.segment.runs.len() < RUNS_MAX {
                making.run(stream, to, read)?;
            }
        }
        making.as_it_is(range.end, read)?;
        let segment = making.segment;
        Ok((segment.inner.len() <= INNER_BYTES_MAX).then_some(segment))
    }
}

impl Segment {
    fn empty() -> Segment {
        Segment::of_bytes(Vec::new())
    }

    /// What stands here of a stream's members, whose plain bytes from `from` on are in the last
    /// bytes of the segment.
    fn note_held(&mut self, stream: &Stream, from: u64, length: usize) {
        let begins = self.inner.len() - length;
        let within = |offset: u64, length: u64| {
            let start = usize::try_from(offset.checked_sub(from)?).ok()? + begins;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            (end <= self.inner.len()).then_some(start..end)
        };
        let to = from + length as u64;
        for member in &stream.members {
            let end = member.offset + member.contents.size;
            if member.offset >= to || end <= from {
                continue;
            }
            self.members += 1;
            if let Some(at) = within(member.offset, member.contents.size)
                && member.contents.root.is_some()
            {
                let contents = Contents { holes: None, ..member.contents };
                self.held.push(Held { contents, at, is_member: true });
            }
            for (offset, name, length) in chunks_of(member) {
                let (first, last) = (member.offset + offset, member.offset + offset + length);
                let (start, end) = (first.max(from), last.min(to));
                if start < end
                    && let Some(at) = within(start, end - start)
                {
                    let root = Some(Root { name, depth: 0 });
                    let contents = Contents { size: length, root, holes: None };
                    self.held.push(Held { contents, at, is_member: false });
                }
            }
        }
    }
}

struct Making {
    /// Up to where the file has been gone through.
    at: u64,
    /// Bytes of the segment since the last run.
    gap: usize,
    /// In what manner the last stream was packed.
    hint: Option<u8>,
    segment: Segment,
}

/// Blocks of a stream that were gone through.
#[derive(Default)]
struct Blocks {
    /// The first of them: where it begins.
    bit: u64,
    offset: u64,
    dictionary: Vec<u8>,
    plain: Vec<u8>,
    count: usize,
    end: u64,
    too_large: bool,
}

impl Making {
    /// The file as it is, up to here.
    fn as_it_is(&mut self, to: u64, read: &mut Reader<'_>) -> Result<()> {
        if self.at < to {
            let some = read(self.at, (to - self.at) as usize)?;
            self.gap += some.len();
            self.segment.inner.extend(some);
            self.at = to;
        }
        Ok(())
    }

    fn stored(&mut self, stream: &Stream, to: u64, read: &mut Reader<'_>) -> Result<()> {
        let from = self.at;
        self.as_it_is(to, read)?;
        self.segment.note_held(stream, from - stream.start, (to - from) as usize);
        Ok(())
    }

    /// The blocks of a stream that have the bytes from where one is up to `to`. Where they cannot
    /// be made again they are left as they are.
    fn run(&mut self, stream: &Stream, to: u64, read: &mut Reader<'_>) -> Result<()> {
        let frames = &stream.frames;
        let (from, to) = (self.at - stream.start, frames.before(to - stream.start));
        let room = INNER_BYTES_MAX.saturating_sub(self.segment.inner.len());
        let bits = (frames.before(from) * 8, to * 8);
        if bits.0 >= bits.1 {
            return Ok(());
        }
        let Some(blocks) = blocks(stream, bits, room, read)? else { return Ok(()) };
        let first = blocks.bit / 8;
        // A run that would begin within a frame is left as it is.
        let Some(skip) = from.checked_sub(frames.place(first)) else { return Ok(()) };
        let skip = skip as usize;
        // In front of the first run nothing has been taken yet, or it begins with its stream.
        if skip > 0 && (self.segment.skip > 0 || !self.segment.inner.is_empty()) {
            return Ok(());
        }
        let end = frames.end(to);
        if skip + (end - from) as usize > MADE_BYTES_MAX / 2 {
            return Ok(());
        }
        let packed_len = (blocks.end.div_ceil(8) - first) as usize;
        let packed = frames.read(stream.start, stream.start + first, packed_len, read)?;
        let bit = (blocks.bit % 8) as u32;
        let dictionary = blocks.dictionary.len();
        let plain = [blocks.dictionary, blocks.plain].concat();
        let part = StreamPart {
            packed: &packed,
            bit,
            plain: &plain,
            dictionary,
            blocks: Some(blocks.count),
        };
        let Some((corrections, last)) = take_part_apart(&part, &mut self.hint) else {
            return Ok(());
        };
        let mut between = Vec::new();
        for at in frames.within(first, to) {
            let begins = stream.start + frames.place(*at) - FRAME_BYTES;
            between.push(((at - first) as usize, read(begins, FRAME_BYTES as usize)?));
        }
        self.segment.skip += skip;
        self.segment.runs.push(Run {
            gap: std::mem::take(&mut self.gap),
            plain: plain.len(),
            dictionary,
            bit,
            bits: packed.first().map_or(0, |byte| byte & ((1 << bit) - 1)),
            last,
            packed: (to - first) as usize,
            corrections,
            between,
        });
        self.segment.inner.extend_from_slice(&plain);
        self.segment.note_held(stream, blocks.offset - dictionary as u64, plain.len());
        self.at = stream.start + end;
        Ok(())
    }
}

/// The blocks of a stream that have these bits; none where it is no stream any more, or where they
/// unpack to too many bytes.
fn blocks(
    stream: &Stream,
    (from, to): (u64, u64),
    room: usize,
    read: &mut Reader<'_>,
) -> Result<Option<Blocks>> {
    let begin: Checkpoint = stream.checkpoint(from / 8);
    let mut found = Blocks::default();
    let within = (stream.start, stream.packed);
    let mut read =
        |from: u64, length: usize| stream.frames.read(stream.start, from, length, &mut *read);
    let end = walk(&mut read, within, &begin, &mut |block: &Block<'_>| {
        if block.bits.end <= from {
            return ControlFlow::Continue(());
        }
        if found.count == 0 {
            let window = block.window;
            (found.bit, found.offset) = (block.bits.start, block.offset);
            found.dictionary = window[window.len().saturating_sub(WINDOW_BYTES)..].to_vec();
        }
        found.count += 1;
        found.plain.extend_from_slice(block.plain);
        found.end = block.bits.end;
        found.too_large = found.dictionary.len() + found.plain.len() > room;
        match found.end >= to || found.too_large {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    let whole = end.is_some() && !found.too_large && found.count > 0 && found.end >= to;
    Ok(whole.then_some(found))
}
