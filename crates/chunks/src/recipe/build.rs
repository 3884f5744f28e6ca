//! Builds the tree of recipe chunks from the pieces of a file, the lowest first.
//! Holds: where a recipe chunk ends depends on its own entries alone.

use super::code::encode;
use super::{DEPTH_MAX, ENTRIES_AVERAGE, ENTRIES_MAX, ENTRIES_MIN, FILE_BYTES_MAX};
use crate::fingerprint::Secret;
use model::{ChunkName, Contents, Piece, Root};
use std::collections::HashSet;

/// The recipe of one version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub contents: Contents,
    /// The recipe chunks, encoded, each once: the root first, and each after one that names it.
    pub chunks: Vec<(ChunkName, Vec<u8>)>,
}

/// The tree of these pieces, which are one file, in order.
pub fn build(secret: &Secret, pieces: impl IntoIterator<Item = Piece>) -> Tree {
    let mut builder = Builder::new(secret);
    pieces.into_iter().for_each(|piece| builder.push(piece));
    builder.finish()
}

pub struct Builder {
    secret: Secret,
    size: u64,
    holes: u64,
    /// Entries of the recipe chunks that are not complete yet, by depth - 1.
    open: Vec<Vec<Piece>>,
    /// Children before parents.
    chunks: Vec<(ChunkName, Vec<u8>)>,
    names: HashSet<ChunkName>,
}

impl Builder {
    pub fn new(secret: &Secret) -> Builder {
        let (chunks, names) = (Vec::new(), HashSet::new());
        Builder { secret: secret.clone(), size: 0, holes: 0, open: Vec::new(), chunks, names }
    }

    /// The next piece of the file. Empty ones add nothing.
    pub fn push(&mut self, piece: Piece) {
        if piece.length() == 0 {
            return;
        }
        self.size = self.size.saturating_add(piece.length());
        if let Piece::Zeros { length } = piece {
            self.holes += length;
        }
        assert!(self.size <= FILE_BYTES_MAX, "a file has at most i64::MAX bytes");
        self.add(0, piece);
    }

    /// The next piece is a whole recipe chunk of this depth, or a chunk at depth 0, that another
    /// tree has. It must be the last of its depth in both trees, or in neither. False: it is not
    /// where one can begin here, and what hangs below it has to be pushed instead.
    pub fn keep(&mut self, depth: u8, piece: Piece) -> bool {
        let level = usize::from(depth);
        if self.open.iter().take(level).any(|entries| !entries.is_empty()) {
            return false;
        }
        self.size = self.size.saturating_add(piece.length());
        assert!(self.size <= FILE_BYTES_MAX, "a file has at most i64::MAX bytes");
        while self.open.len() < level {
            self.open.push(Vec::new());
        }
        self.add(level, piece);
        true
    }

    pub fn finish(mut self) -> Tree {
        let mut level = 0;
        let root = loop {
            let Some(entries) = self.open.get(level) else { break None };
            match entries[..] {
                // One chunk with nothing beside it needs no recipe chunk above it.
                [Piece::Chunk { name, .. }] if level + 1 == self.open.len() => {
                    break Some(Root { name, depth: level as u8 });
                }
                [] => {}
                _ => self.close(level),
            }
            level += 1;
        };
        self.chunks.reverse();
        let holes = (self.holes > 0).then_some(self.holes);
        Tree { contents: Contents { size: self.size, root, holes }, chunks: self.chunks }
    }

    fn add(&mut self, level: usize, piece: Piece) {
        if level == self.open.len() {
            assert!(level <= usize::from(DEPTH_MAX), "ENTRIES_MIN bounds the depth");
            self.open.push(Vec::new());
        }
        self.open[level].push(piece);
        if ends(&self.open[level]) {
            self.close(level);
        }
    }

    /// Makes a recipe chunk of the open entries, and an entry of it one level up.
    fn close(&mut self, level: usize) {
        let entries = std::mem::take(&mut self.open[level]);
        let length = entries.iter().map(Piece::length).sum();
        let bytes = encode(level as u8 + 1, &entries);
        let name = self.secret.name(&bytes);
        if self.names.insert(name) {
            self.chunks.push((name, bytes));
        }
        self.add(level + 1, Piece::Chunk { name, length });
    }
}

/// Whether a recipe chunk with these entries is complete: by the name of the last, which is as
/// good as random.
fn ends(entries: &[Piece]) -> bool {
    if entries.len() < ENTRIES_MIN {
        return false;
    }
    let few = u64::MAX / (ENTRIES_AVERAGE - ENTRIES_MIN) as u64;
    let by_name = match entries.last() {
        Some(Piece::Chunk { name, .. }) => {
            let first = name.0.first_chunk().expect("a name has 24 bytes");
            u64::from_be_bytes(*first) <= few
        }
        Some(Piece::Zeros { .. }) | None => false,
    };
    by_name || entries.len() == ENTRIES_MAX
}
