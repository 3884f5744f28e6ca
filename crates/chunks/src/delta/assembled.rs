//! A stretch of a file as what it adds to many things that the receiver has: contents that it has
//! elsewhere, bytes of versions, and what is packed in them; with the plain bytes of runs of deflate
//! blocks in their place, which the receiver packs again, bit for bit.
//! Holds: the parts are the caller's to find, and are not believed; what comes out has the length
//! that was said, in memory and time bounded by constants.
//! From: beyond LBFS, which finds chunks in files as they are.

use super::deflate::{self, Ends};
use super::varint::{self, Numbers};
use super::{bad, prefix};
use crate::error::Result;
use model::{CHUNK_NAME_BYTES, ChunkName, Contents, FileId, ReplicaId, Root, Stamp};
use protocol::{Base, Range};

/// Parts of one delta, and the bytes that they have together, at most.
pub const PARTS_MAX: usize = 4096;
pub const PARTS_BYTES_MAX: u64 = 16 << 20;

/// The inner target has at most so many bytes.
pub(crate) const INNER_BYTES_MAX: usize = 16 << 20;

/// What is made has at most so many bytes, with those that are made for others' sake.
pub(crate) const MADE_BYTES_MAX: usize = 8 << 20;

/// Runs of blocks, and all that is said of them.
pub(crate) const RUNS_MAX: usize = 4096;
const SAID_BYTES_MAX: usize = 4 << 20;

/// How a run ends, and that something stands between its bytes.
const ENDS_MAX: usize = 0x1fff;
const HAS_BETWEEN: usize = 1 << 12;

/// Something that the receiver is believed to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Contents, of whatever file, or one chunk.
    Contents(Contents),
    /// Bytes of a version, as they are.
    Bytes(Base),
    /// Of the deflate stream that these bytes of a version are, this stretch of the plain bytes.
    Plain { stream: Base, stretch: Range },
}

impl Part {
    /// Bytes of it.
    pub fn length(&self) -> u64 {
        match self {
            Part::Contents(contents) => contents.size,
            Part::Bytes(base) => base.stretch.length,
            Part::Plain { stretch, .. } => stretch.length,
        }
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Part::Contents(contents) => {
                let root = contents.root.unwrap_or(Root { name: ChunkName([0; 24]), depth: 0 });
                bytes.push(0);
                bytes.extend(root.name.0);
                bytes.push(root.depth);
                varint::put(bytes, contents.size);
            }
            Part::Bytes(base) => {
                bytes.push(1);
                put_base(bytes, base);
            }
            Part::Plain { stream, stretch } => {
                bytes.push(2);
                put_base(bytes, stream);
                varint::put(bytes, stretch.offset);
                varint::put(bytes, stretch.length);
            }
        }
    }

    fn read(numbers: &mut Numbers<'_>) -> Result<Part> {
        Ok(match numbers.count(2)? {
            0 => {
                let name = numbers.bytes(CHUNK_NAME_BYTES)?;
                let name = ChunkName(std::array::from_fn(|at| name[at]));
                let depth = numbers.count(usize::from(u8::MAX))? as u8;
                let size = numbers.number()?;
                Part::Contents(Contents { size, root: Some(Root { name, depth }), holes: None })
            }
            1 => Part::Bytes(read_base(numbers)?),
            _ => {
                let stream = read_base(numbers)?;
                let stretch = Range { offset: numbers.number()?, length: numbers.number()? };
                Part::Plain { stream, stretch }
            }
        })
    }
}

fn put_base(bytes: &mut Vec<u8>, base: &Base) {
    let Base { file, version, stretch } = base;
    for number in [file.0, version.replica.0.into(), version.number, stretch.offset, stretch.length]
    {
        varint::put(bytes, number);
    }
}

fn read_base(numbers: &mut Numbers<'_>) -> Result<Base> {
    let file = FileId(numbers.number()?);
    let replica = u32::try_from(numbers.number()?).map_err(|_| bad("no replica has such an id"))?;
    let version = Stamp::new(ReplicaId(replica), numbers.number()?);
    let stretch = Range { offset: numbers.number()?, length: numbers.number()? };
    Ok(Base { file, version, stretch })
}

/// Blocks of a stream of the target, whose plain bytes stand in the inner target.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Bytes of the inner target between the run before and this one.
    pub(crate) gap: usize,
    /// Plain bytes, with those before that they may refer to.
    pub(crate) plain: usize,
    pub(crate) dictionary: usize,
    /// Bits of the first byte that are of what is before, and what they are.
    pub(crate) bit: u32,
    pub(crate) bits: u8,
    pub(crate) last: bool,
    /// So many bytes of what they make.
    pub(crate) packed: usize,
    pub(crate) corrections: Vec<u8>,
    /// Bytes that stand in front of some of these, in order.
    pub(crate) between: Vec<(usize, Vec<u8>)>,
}

/// A target to be coded.
pub(crate) struct Given<'a> {
    /// Bytes that are made in front of it.
    pub(crate) skip: usize,
    pub(crate) inner: &'a [u8],
    pub(crate) runs: &'a [Run],
}

/// The delta against these parts; none where it cannot be one.
pub(crate) fn encode(given: &Given<'_>, parts: &[(Part, &[u8])]) -> Option<Vec<u8>> {
    let total: u64 = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let fits = parts.len() <= PARTS_MAX
        && total <= PARTS_BYTES_MAX
        && given.inner.len() <= INNER_BYTES_MAX
        && given.runs.len() <= RUNS_MAX;
    if !fits || parts.iter().any(|(part, bytes)| part.length() != bytes.len() as u64) {
        return None;
    }
    let mut said = Vec::new();
    varint::put(&mut said, given.runs.len() as u64);
    for run in given.runs {
        let between = if run.between.is_empty() { 0 } else { HAS_BETWEEN as u64 };
        let ends =
            between | u64::from(run.bit) | u64::from(run.last) << 3 | u64::from(run.bits) << 4;
        for number in [run.gap as u64, run.plain as u64, run.dictionary as u64, ends] {
            varint::put(&mut said, number);
        }
        varint::put(&mut said, run.packed as u64);
        varint::put(&mut said, run.corrections.len() as u64);
        said.extend(&run.corrections);
        put_between(&mut said, &run.between);
    }
    if said.len() > SAID_BYTES_MAX {
        return None;
    }
    let reference: Vec<u8> = parts.iter().flat_map(|(_, bytes)| *bytes).copied().collect();
    let packed = prefix::encode(&[], &said)?;
    let coded = prefix::encode(&reference, given.inner)?;
    let mut bytes = Vec::with_capacity(coded.len() + packed.len() + 32 * parts.len());
    varint::put(&mut bytes, parts.len() as u64);
    parts.iter().for_each(|(part, _)| part.put(&mut bytes));
    varint::put(&mut bytes, given.skip as u64);
    varint::put(&mut bytes, said.len() as u64);
    varint::put(&mut bytes, packed.len() as u64);
    bytes.extend(packed);
    varint::put(&mut bytes, given.inner.len() as u64);
    bytes.extend(coded);
    Some(bytes)
}

/// What a delta of this codec is made of, in the order in which `decode` wants it.
/// Errors: `BadDelta`, also where it is too much.
pub fn parts_of(bytes: &[u8]) -> Result<Vec<Part>> {
    read_parts(&mut Numbers { rest: bytes })
}

fn read_parts(numbers: &mut Numbers<'_>) -> Result<Vec<Part>> {
    let count = numbers.count(PARTS_MAX)?;
    let mut parts = Vec::with_capacity(count.min(numbers.rest.len()));
    let mut total = 0u64;
    for _ in 0..count {
        let part = Part::read(numbers)?;
        total = total.saturating_add(part.length());
        if total > PARTS_BYTES_MAX {
            return Err(bad(&format!("parts of more than {PARTS_BYTES_MAX} bytes")));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The target of `target_len` bytes; `reference` is the bytes of the parts, one after another.
/// Errors: `BadDelta`.
pub(crate) fn decode(reference: &[u8], bytes: &[u8], target_len: usize) -> Result<Vec<u8>> {
    let mut head = Numbers { rest: bytes };
    let parts = read_parts(&mut head)?;
    if parts.iter().map(Part::length).sum::<u64>() != reference.len() as u64 {
        return Err(bad("parts of other lengths"));
    }
    let skip = head.count(MADE_BYTES_MAX)?;
    let total = skip.checked_add(target_len).filter(|total| *total <= MADE_BYTES_MAX);
    let total = total.ok_or_else(|| bad(&format!("more than {MADE_BYTES_MAX} bytes")))?;
    let said_len = head.count(SAID_BYTES_MAX)?;
    let packed = head.count(bytes.len())?;
    let said = prefix::decode(&[], head.bytes(packed)?, said_len)?;
    let inner_len = head.count(INNER_BYTES_MAX)?;
    let inner = prefix::decode(reference, head.rest, inner_len)?;
    let mut made = make(&inner, &said, total)?;
    if made.len() != total {
        return Err(bad("another number of bytes"));
    }
    made.drain(..skip);
    Ok(made)
}

/// The inner target with its runs packed again.
fn make(inner: &[u8], said: &[u8], total: usize) -> Result<Vec<u8>> {
    let mut inner = Numbers { rest: inner };
    let mut said = Numbers { rest: said };
    let mut made = Vec::with_capacity(total);
    for _ in 0..said.count(RUNS_MAX)? {
        let gap = said.count(inner.rest.len())?;
        made.extend_from_slice(inner.bytes(gap)?);
        let plain_len = said.count(inner.rest.len())?;
        let dictionary = said.count(plain_len)?;
        let ends = said.count(ENDS_MAX)?;
        let room = total.checked_sub(made.len()).ok_or_else(|| bad("too many bytes"))?;
        let packed = said.count(room)?;
        let corrections = said.count(said.rest.len())?;
        let (bit, bits) = ((ends & 7) as u32, (ends >> 4 & 0xff) as u8);
        let has_between = ends & HAS_BETWEEN != 0;
        let ends = Ends { dictionary, bit, bits, last: ends & 8 != 0 };
        let corrections = said.bytes(corrections)?;
        let run = deflate::rebuild_part(&ends, inner.bytes(plain_len)?, corrections, packed)?;
        match has_between {
            true => with_between(&mut made, &run, &mut said)?,
            false => made.extend(run),
        }
    }
    made.extend_from_slice(inner.rest);
    Ok(made)
}

fn put_between(said: &mut Vec<u8>, between: &[(usize, Vec<u8>)]) {
    if between.is_empty() {
        return;
    }
    varint::put(said, between.len() as u64);
    let mut last = 0;
    for (at, bytes) in between {
        varint::put(said, (at - last) as u64);
        varint::put(said, bytes.len() as u64);
        said.extend(bytes);
        last = *at;
    }
}

fn with_between(made: &mut Vec<u8>, run: &[u8], said: &mut Numbers<'_>) -> Result<()> {
    let mut rest = Numbers { rest: run };
    for _ in 0..said.count(run.len())? {
        let distance = said.count(rest.rest.len())?;
        made.extend_from_slice(rest.bytes(distance)?);
        let length = said.count(said.rest.len())?;
        made.extend_from_slice(said.bytes(length)?);
    }
    made.extend_from_slice(rest.rest);
    Ok(())
}
