//! Where a file is cut into chunks: by what it holds, so that an insertion moves no other cut.
//! Holds: the pieces, joined, are the file; no chunk is empty or larger than the most for the
//! file's size; only the last chunk before the end or before zeros is smaller than the least;
//! the same contents are cut alike, whatever the sizes of the reads and wherever the holes are.
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

/// Sizes for files of up to so many bytes. LBFS's own first; the recipe of a very large file
/// would be large itself, so those are cut more coarsely.
const SIZES: [(u64, Sizes); 3] = [
    (256 << 20, Sizes { least: 2 * KIB, average: 8 * KIB, most: 64 * KIB }),
    (4 << 30, Sizes { least: 8 * KIB, average: 32 * KIB, most: 256 * KIB }),
    (u64::MAX, Sizes { least: 32 * KIB, average: 128 * KIB, most: CHUNK_BYTES_MAX }),
];

/// How a file of so many bytes is cut.
pub fn sizes(file_bytes: u64) -> Sizes {
    let fitting = SIZES.iter().find(|(upto, _)| file_bytes <= *upto);
    fitting.expect("the last row takes every size").1
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
    rule: Rule,
    /// What came of the chunk that is not complete yet.
    held: Vec<u8>,
    /// Zeros at the end of what came, not yet known to be long enough to stand alone.
    zeros: u64,
    stated: u64,
    pushed: u64,
}

enum Rule {
    Gear(Gear),
    Rabin(Box<Rabin>),
}

impl Rule {
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
    /// `file_bytes`: how many bytes will be pushed; the sizes of chunks depend on it.
    pub fn new(cutter: Cutter, file_bytes: u64) -> Cutting {
        let sizes = sizes(file_bytes);
        let rule = match cutter {
            Cutter::Gear => Rule::Gear(Gear::new(sizes)),
            Cutter::Rabin => Rule::Rabin(Box::new(Rabin::new(sizes))),
        };
        Cutting { rule, held: Vec::new(), zeros: 0, stated: file_bytes, pushed: 0 }
    }

    /// For the last `rest` bytes of such a file, from a cut on.
    pub fn of_rest(cutter: Cutter, file_bytes: u64, rest: u64) -> Cutting {
        Cutting { stated: rest, ..Cutting::new(cutter, file_bytes) }
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
        if self.pushed != self.stated {
            return Err(ChunksError::SizeChanged { stated: self.stated, found: self.pushed });
        }
        Ok(())
    }

    /// The stretch of zeros is over: it stands alone, or was data like any other.
    fn settle_zeros(&mut self, sink: &mut impl FnMut(Cut<'_>)) {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros >= ZEROS_BYTES_MIN as u64 {
            self.end_chunk(sink);
            sink(Cut::Zeros(zeros));
        } else {
            self.take(&zeros::SOME[..zeros as usize], sink);
        }
    }

    /// Data: cut by the rule.
    fn take(&mut self, mut bytes: &[u8], sink: &mut impl FnMut(Cut<'_>)) {
        while let Some(rest) = self.rule.end(bytes) {
            let (last, after) = bytes.split_at(rest);
            if self.held.is_empty() {
                sink(Cut::Chunk(last));
            } else {
                self.held.extend_from_slice(last);
                sink(Cut::Chunk(&self.held));
                self.held.clear();
            }
            bytes = after;
        }
        self.held.extend_from_slice(bytes);
    }

    fn end_chunk(&mut self, sink: &mut impl FnMut(Cut<'_>)) {
        if !self.held.is_empty() {
            sink(Cut::Chunk(&self.held));
            self.held.clear();
        }
        self.rule.restart();
    }
}

#[cfg(test)]
mod tests;
