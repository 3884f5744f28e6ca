//! Where a file is cut into chunks: by what it holds, so that an insertion moves no other cut.
//! Holds: the pieces, joined, are the file; no chunk is empty or larger than the most for
//! where it begins; only the last chunk before the end or before zeros is smaller than the least;
//! the same contents are cut alike, whatever the sizes of the reads and wherever the holes are; a
//! cut depends on nothing that comes after it but zeros, so a file is cut while it grows.
//! Never: holds more than one chunk in memory.
//! From: LBFS, "Dividing files into chunks" and "Pathological cases".

mod gear;
mod rabin;
mod zeros;

use crate::error::{ChunksError, Result};
use gear::Gear;
use protocol::Cutter;
use rabin::Rabin;
pub use zeros::ZEROS_BYTES_MIN;

const KIB: usize = 1 << 10;

/// No chunk of any file is larger.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

// A chunk travels whole, in one message.
const _: () = assert!(CHUNK_BYTES_MAX <= protocol::PAYLOAD_BYTES_MAX);

/// Bytes of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub least: usize,
    /// About what a chunk of random bytes has.
    pub average: usize,
    pub most: usize,
}

/// Sizes of the chunks that begin before so many bytes of a file. LBFS's own first; the recipe of a
/// very large file would be large itself, so what lies further on is cut more coarsely.
const SIZES: [(u64, Sizes); 3] = [
    (256 << 20, Sizes { least: 2 * KIB, average: 8 * KIB, most: 64 * KIB }),
    (4 << 30, Sizes { least: 8 * KIB, average: 32 * KIB, most: 256 * KIB }),
    (u64::MAX, Sizes { least: 32 * KIB, average: 128 * KIB, most: CHUNK_BYTES_MAX }),
];

/// How a chunk is cut that begins at this offset, and from where on it is another way.
fn sizes_from(offset: u64) -> (Sizes, u64) {
    let (upto, sizes) = SIZES.iter().find(|(upto, _)| offset < *upto).unwrap_or(&SIZES[2]);
    (*sizes, *upto)
}

/// How a chunk is cut that begins at this offset.
pub fn sizes(offset: u64) -> Sizes {
    sizes_from(offset).0
}

/// One stretch of the file, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut<'a> {
    Chunk(&'a [u8]),
    /// A stretch of zeros that no chunk stands for, and its length in bytes.
    Zeros(u64),
}

/// One file being cut. It is pushed in order; the sink gets the pieces, in order.
pub struct Cutting {
    cutter: Cutter,
    rule: Rule,
    /// Where the present chunk begins.
    at: u64,
    /// From here on chunks have other sizes.
    sizes_upto: u64,
    /// What came of the chunk that is not complete yet.
    held: Vec<u8>,
    /// Zeros at the end of what came, not yet known to be long enough to stand alone.
    zeros: u64,
    /// None: it grows.
    stated: Option<u64>,
    pushed: u64,
}

enum Rule {
    Gear(Gear),
    Rabin(Box<Rabin>),
}

impl Rule {
    fn new(cutter: Cutter, sizes: Sizes) -> Rule {
        match cutter {
            Cutter::Gear => Rule::Gear(Gear::new(sizes)),
            Cutter::Rabin => Rule::Rabin(Box::new(Rabin::new(sizes))),
        }
    }

    /// Goes on with the present chunk. Returns how many of the bytes still belong to it, if it
    /// ends among them; the next call begins the next chunk.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Rule::Gear(gear) => gear.end(bytes),
            Rule::Rabin(rabin) => rabin.end(bytes),
        }
    }

    fn restart(&mut self) {
        match self {
            Rule::Gear(gear) => gear.restart(),
            Rule::Rabin(rabin) => rabin.restart(),
        }
    }
}

impl Cutting {
    /// `file_bytes`: how many bytes will be pushed.
    pub fn new(cutter: Cutter, file_bytes: u64) -> Cutting {
        Cutting::from(cutter, 0, Some(file_bytes))
    }

    /// Of a file of which nobody knows yet how long it will be.
    pub fn growing(cutter: Cutter) -> Cutting {
        Cutting::from(cutter, 0, None)
    }

    /// For the last `rest` bytes of such a file, from a cut on.
    pub fn of_rest(cutter: Cutter, file_bytes: u64, rest: u64) -> Cutting {
        Cutting::from(cutter, file_bytes - rest, Some(rest))
    }

    fn from(cutter: Cutter, at: u64, stated: Option<u64>) -> Cutting {
        let (sizes, sizes_upto) = sizes_from(at);
        let (rule, held) = (Rule::new(cutter, sizes), Vec::new());
        Cutting { cutter, rule, at, sizes_upto, held, zeros: 0, stated, pushed: 0 }
    }

    /// The next bytes of the file.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut impl FnMut(Cut<'_>)) {
        self.pushed = self.pushed.saturating_add(bytes.len() as u64);
        if self.zeros > 0 {
            let more = zeros::prefix(bytes);
            self.zeros = self.zeros.saturating_add(more as u64);
            bytes = &bytes[more..];
            if bytes.is_empty() {
                return;
            }
            self.settle_zeros(sink);
        }
        while !bytes.is_empty() {
            let stretch = zeros::next_stretch(bytes);
            self.take(&bytes[..stretch.start], sink);
            self.zeros = stretch.len() as u64;
            bytes = &bytes[stretch.end..];
            if !bytes.is_empty() {
                self.settle_zeros(sink);
            }
        }
    }

    /// The next bytes of the file are so many zeros: a hole that need not be read.
    pub fn push_zeros(&mut self, bytes: u64) {
        self.pushed = self.pushed.saturating_add(bytes);
        self.zeros = self.zeros.saturating_add(bytes);
    }

    /// The file ends here. Errors: `SizeChanged`, if it has not the length that was stated; then
    /// the pieces are worth nothing.
    pub fn finish(mut self, sink: &mut impl FnMut(Cut<'_>)) -> Result<()> {
        self.settle_zeros(sink);
        self.end_chunk(sink);
        match self.stated {
            Some(stated) if stated != self.pushed => {
                Err(ChunksError::SizeChanged { stated, found: self.pushed })
            }
            _ => Ok(()),
        }
    }

    /// The stretch of zeros is over: it stands alone, or was data like any other.
    fn settle_zeros(&mut self, sink: &mut impl FnMut(Cut<'_>)) {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros >= ZEROS_BYTES_MIN as u64 {
            self.end_chunk(sink);
            sink(Cut::Zeros(zeros));
            self.go_on(zeros);
        } else {
            self.take(&zeros::SOME[..zeros as usize], sink);
        }
    }

    /// Data: cut by the rule.
    fn take(&mut self, mut bytes: &[u8], sink: &mut impl FnMut(Cut<'_>)) {
        while let Some(rest) = self.rule.end(bytes) {
            let (last, after) = bytes.split_at(rest);
            let length = self.held.len() + rest;
            if self.held.is_empty() {
                sink(Cut::Chunk(last));
            } else {
                self.held.extend_from_slice(last);
                sink(Cut::Chunk(&self.held));
                self.held.clear();
            }
            self.go_on(length as u64);
            bytes = after;
        }
        self.held.extend_from_slice(bytes);
    }

    fn end_chunk(&mut self, sink: &mut impl FnMut(Cut<'_>)) {
        let length = self.held.len() as u64;
        if length > 0 {
            sink(Cut::Chunk(&self.held));
            self.held.clear();
        }
        self.rule.restart();
        self.go_on(length);
    }

    /// A piece of so many bytes is complete: the next may be of other sizes.
    fn go_on(&mut self, length: u64) {
        self.at = self.at.saturating_add(length);
        if self.at >= self.sizes_upto && self.sizes_upto < u64::MAX {
            let (sizes, upto) = sizes_from(self.at);
            (self.rule, self.sizes_upto) = (Rule::new(self.cutter, sizes), upto);
        }
    }
}

#[cfg(test)]
mod tests;
