//! A file's contents as a recipe: cut, named and built into a tree in one pass.

mod again;
mod part;

use crate::cut::{Cut, Cutting};
use crate::error::ChunksError;
use crate::fingerprint::Secret;
use crate::recipe::{Builder, Placed, Tree};
use crate::sketch::{self, Looking};
use model::{ChunkName, Piece};
use protocol::Cutter;

pub use again::describe_again;
pub use part::{Lacks, PartOf, Short, describe_part};

/// A file, cut and named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub tree: Tree,
    /// All of the file, in order.
    pub pieces: Vec<Placed>,
    /// By these a file that is like it can be found; none of a large one, which is like another if
    /// they share chunks.
    pub features: Vec<ChunkName>,
}

/// What the reader finds at an offset of the file.
pub enum Found {
    /// So many bytes were put at the beginning of the buffer. None at all: the file ends here.
    Bytes(usize),
    /// So many zeros, which need not be read.
    Hole(u64),
}

/// Larger files have no features.
const FEATURES_BYTES_MAX: u64 = 1 << 20;

/// Bytes that are asked for at once.
const READ_BYTES: usize = 256 << 10;

/// Describes a file of `size` bytes, which `read` reads: offset and buffer in, what is found there
/// out. Errors: `SizeChanged`, and what `read` gives.
pub fn describe<E: From<ChunksError>>(
    secret: &Secret,
    cutter: Cutter,
    size: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
) -> Result<Described, E> {
    let mut naming = Naming::new(secret);
    let mut looking = (size <= FEATURES_BYTES_MAX).then(Looking::default);
    let mut cutting = Cutting::new(cutter, size);
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(size).unwrap_or(READ_BYTES))];
    let mut offset = 0;
    while offset < size {
        let wanted = buffer.len().min(usize::try_from(size - offset).unwrap_or(buffer.len()));
        match read(offset, &mut buffer[..wanted])? {
            Found::Bytes(0) | Found::Hole(0) => break,
            Found::Bytes(found) => {
                let found = found.min(wanted);
                cutting.push(&buffer[..found], &mut |cut| naming.take(cut));
                if let Some(looking) = &mut looking {
                    looking.push(&buffer[..found]);
                }
                offset += found as u64;
            }
            Found::Hole(zeros) => {
                let zeros = zeros.min(size - offset);
                cutting.push_zeros(zeros);
                if let Some(looking) = &mut looking {
                    looking.push_zeros(zeros);
                }
                offset += zeros;
            }
        }
    }
    cutting.finish(&mut |cut| naming.take(cut))?;
    let features = looking.map(|looking| looking.finish(secret)).unwrap_or_default();
    Ok(naming.finish(features))
}

/// Describes contents that are in memory.
pub fn describe_bytes(secret: &Secret, cutter: Cutter, bytes: &[u8]) -> Described {
    let mut naming = Naming::new(secret);
    let mut cutting = Cutting::new(cutter, bytes.len() as u64);
    cutting.push(bytes, &mut |cut| naming.take(cut));
    cutting.finish(&mut |cut| naming.take(cut)).expect("the size is that of the bytes pushed");
    let features = match bytes.len() as u64 {
        0..=FEATURES_BYTES_MAX => sketch::features(secret, bytes),
        _ => Vec::new(),
    };
    naming.finish(features)
}

struct Naming<'s> {
    secret: &'s Secret,
    builder: Builder,
    pieces: Vec<Placed>,
    offset: u64,
}

impl<'s> Naming<'s> {
    fn new(secret: &'s Secret) -> Naming<'s> {
        Naming { secret, builder: Builder::new(secret), pieces: Vec::new(), offset: 0 }
    }

    fn take(&mut self, cut: Cut<'_>) {
        let piece = match cut {
            Cut::Chunk(bytes) => {
                Piece::Chunk { name: self.secret.name(bytes), length: bytes.len() as u64 }
            }
            Cut::Zeros(length) => Piece::Zeros { length },
        };
        self.keep(piece);
    }

    /// A piece that is as it was.
    fn keep(&mut self, piece: Piece) {
        self.builder.push(piece);
        self.pieces.push(Placed { offset: self.offset, piece });
        self.offset += piece.length();
    }

    fn finish(self, features: Vec<ChunkName>) -> Described {
        Described { tree: self.builder.finish(), pieces: self.pieces, features }
    }
}
