//! Reading a tree of recipe chunks, whoever made it.
//! Holds: every recipe chunk is checked against its name, its depth and the length that its
//! parent gives it; the work is bounded by what was asked for and by what was fetched.

use super::code::{Recipe, decode};
use super::{DEPTH_MAX, FILE_BYTES_MAX};
use crate::cut::CHUNK_BYTES_MAX;
use crate::error::{ChunksError, Result};
use crate::fingerprint::Secret;
use model::{ChunkName, Contents, Piece};
use protocol::Range;
use std::collections::HashSet;
use store::StoreError;

/// A piece of data or zeros, and where it begins in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub offset: u64,
    pub piece: Piece,
}

impl Placed {
    pub fn end(&self) -> u64 {
        self.offset + self.piece.length()
    }
}

/// What a stretch of a file consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Whole pieces, in order; the first and last may reach beyond the range.
    pub pieces: Vec<Placed>,
    /// Recipe chunks that could not be had; what they cover is not among the pieces.
    pub missing: Vec<ChunkName>,
    /// Where to go on, if there was more than `pieces_max` allows.
    pub next: Option<u64>,
}

/// The pieces that cover a range of a file. `fetch` gives the bytes of a recipe chunk, or none if
/// they are not at hand; it is asked for parents before children, and may be asked again for one
/// that comes up twice. `pieces_max` bounds pieces and missing ones together.
/// Errors: `BadRecipe`, `WrongBytes`, and what `fetch` gives.
pub fn cover(
    secret: &Secret,
    contents: &Contents,
    range: Range,
    pieces_max: usize,
    fetch: impl FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<Cover> {
    let to = range.offset.saturating_add(range.length).min(contents.size);
    let Some((root, depth)) = root(contents)? else { return Ok(Cover::default()) };
    let mut walk =
        Walk { secret, from: range.offset, to, pieces_max, fetch, cover: Cover::default() };
    if range.offset < to {
        walk.visit(Placed { offset: 0, piece: root }, depth)?;
    }
    Ok(walk.cover)
}

/// The chunks, recipe and data, that are needed for the whole file and are not there: at most
/// `names_max`, each once. If the list is empty and `names_max` is not 0, all are there; but how
/// long a data chunk is, whoever reads it must compare with the recipe.
/// Looks at every recipe chunk once, however often it comes up.
/// Errors: `BadRecipe`, `WrongBytes`, and what `fetch` and `has` give.
pub fn lacking(
    secret: &Secret,
    contents: &Contents,
    names_max: usize,
    mut fetch: impl FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>,
    mut has: impl FnMut(&ChunkName) -> Result<bool, StoreError>,
) -> Result<Vec<ChunkName>> {
    let mut lacking = Vec::new();
    let Some((root, depth)) = root(contents)? else { return Ok(lacking) };
    let (mut seen, mut named) = (HashSet::new(), HashSet::new());
    let mut open = vec![(root, depth)];
    while let Some((piece, depth)) = open.pop() {
        // The length belongs to what was seen: the same name with another length is a lie.
        let Piece::Chunk { name, length } = piece else { continue };
        if !seen.insert((name, length, depth)) {
            continue;
        }
        if lacking.len() == names_max {
            break;
        }
        if depth == 0 {
            if !named.contains(&name) && !has(&name)? {
                named.insert(name);
                lacking.push(name);
            }
            continue;
        }
        match fetch(&name)? {
            None if named.insert(name) => lacking.push(name),
            None => {}
            Some(bytes) => {
                let recipe = checked(secret, &name, length, depth, &bytes)?;
                open.extend(recipe.pieces.into_iter().rev().map(|piece| (piece, depth - 1)));
            }
        }
    }
    Ok(lacking)
}

/// The piece that stands for the whole file, and its depth. None for an empty file.
pub(super) fn root(contents: &Contents) -> Result<Option<(Piece, u8)>> {
    let size = contents.size;
    if size > FILE_BYTES_MAX {
        return Err(ChunksError::BadRecipe(format!("a file of {size} bytes")));
    }
    if let Some(holes) = contents.holes.filter(|holes| *holes > size) {
        return Err(ChunksError::BadRecipe(format!("{holes} bytes of holes in {size}")));
    }
    match contents.root {
        None if size == 0 => Ok(None),
        None => Err(ChunksError::BadRecipe(format!("{size} bytes without a root"))),
        Some(_) if size == 0 => Err(ChunksError::BadRecipe("an empty file with a root".into())),
        Some(root) if root.depth > DEPTH_MAX => {
            Err(ChunksError::BadRecipe(format!("a depth of {}", root.depth)))
        }
        Some(root) if root.depth == 0 && size > CHUNK_BYTES_MAX as u64 => {
            Err(ChunksError::BadRecipe(format!("one chunk of {size} bytes")))
        }
        Some(root) => Ok(Some((Piece::Chunk { name: root.name, length: size }, root.depth))),
    }
}

/// A recipe chunk that is what its parent says.
pub(super) fn checked(
    secret: &Secret,
    name: &ChunkName,
    length: u64,
    depth: u8,
    bytes: &[u8],
) -> Result<Recipe> {
    secret.check(name, bytes)?;
    let recipe = decode(bytes)?;
    if recipe.depth != depth {
        return Err(ChunksError::BadRecipe(format!(
            "{name} is of depth {}, and {depth} was expected",
            recipe.depth
        )));
    }
    if recipe.length() != length {
        return Err(ChunksError::BadRecipe(format!(
            "{name} covers {} bytes, and {length} were expected",
            recipe.length()
        )));
    }
    Ok(recipe)
}

struct Walk<'a, F> {
    secret: &'a Secret,
    from: u64,
    to: u64,
    pieces_max: usize,
    fetch: F,
    cover: Cover,
}

impl<F: FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>> Walk<'_, F> {
    /// Calls itself at most `DEPTH_MAX` deep.
    fn visit(&mut self, at: Placed, depth: u8) -> Result<()> {
        if at.end() <= self.from || at.offset >= self.to || self.cover.next.is_some() {
            return Ok(());
        }
        if self.cover.pieces.len() + self.cover.missing.len() >= self.pieces_max {
            self.cover.next = Some(at.offset.max(self.from));
            return Ok(());
        }
        let (name, length) = match at.piece {
            Piece::Chunk { name, length } if depth > 0 => (name, length),
            Piece::Chunk { .. } | Piece::Zeros { .. } => {
                self.cover.pieces.push(at);
                return Ok(());
            }
        };
        let Some(bytes) = (self.fetch)(&name)? else {
            self.cover.missing.push(name);
            return Ok(());
        };
        let recipe = checked(self.secret, &name, length, depth, &bytes)?;
        let mut offset = at.offset;
        for piece in recipe.pieces {
            self.visit(Placed { offset, piece }, depth - 1)?;
            offset += piece.length();
        }
        Ok(())
    }
}
