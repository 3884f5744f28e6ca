//! Describing a file of which only parts are here: it is as an older version was, whose recipe
//! chunks are fetched as far as they are needed, but for some stretches that were written.
//! Holds: the description is the same as if all of the file had been here; what is not near a
//! written stretch is neither read nor looked up, and of its recipe whole branches are kept.
//! From: LBFS, "Dividing files into chunks": a change moves no cut but those near it.

use super::again::joined;
use super::{Described, Found};
use crate::cut::{Cut, Cutting};
use crate::error::ChunksError;
use crate::fingerprint::Secret;
use crate::recipe::{Builder, Placed, cover, decode};
use model::{ChunkName, Contents, Piece};
use protocol::{Cutter, Range as Stretch};
use std::ops::Range;

/// Bytes that are cut at once.
const READ_BYTES: usize = 64 << 10;
/// Pieces that are looked up at once.
const PIECES_MAX: usize = 4096;

/// What is here of a file, and of the recipe of the version that it was.
pub trait PartOf<E> {
    /// A recipe chunk of the version that it was.
    fn recipe(&self, name: &ChunkName) -> Option<Vec<u8>>;
    /// Where what is here without a gap from `offset` on ends; `offset` if it is not here.
    fn here_until(&self, offset: u64) -> u64;
    /// As for `describe`, of what is here.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Found, E>;
}

/// Stretches of the version that it was, which are lacking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Of these the recipe is.
    pub recipe: Vec<Range<u64>>,
    /// Of these the bytes are, and perhaps the recipe.
    pub bytes: Vec<Range<u64>>,
}

/// Why a file is not described.
#[derive(Debug)]
pub enum Short<E> {
    Lacks(Lacks),
    Failed(E),
}

impl<E: From<ChunksError>> From<ChunksError> for Short<E> {
    fn from(error: ChunksError) -> Short<E> {
        Short::Failed(error.into())
    }
}

impl<E> Short<E> {
    fn recipe(from: u64, to: u64) -> Short<E> {
        Short::Lacks(Lacks { recipe: one(from, to), bytes: Vec::new() })
    }

    fn bytes(from: u64, to: u64) -> Short<E> {
        Short::Lacks(Lacks { recipe: Vec::new(), bytes: one(from, to) })
    }
}

fn one(from: u64, to: u64) -> Vec<Range<u64>> {
    std::iter::once(from..to).collect()
}

/// Describes a file of `size` bytes that was `old`, and in which `changed` was written since. Of
/// the description there are the pieces that were cut anew, and of the tree the recipe chunks that
/// are not known to be in the old one. Errors: what is lacking; else as `describe`.
pub fn describe_part<E: From<ChunksError>>(
    secret: &Secret,
    cutter: Cutter,
    size: u64,
    old: &Contents,
    changed: &[Range<u64>],
    part: &mut impl PartOf<E>,
) -> Result<Described, Short<E>> {
    let changed = joined(size, old.size, changed);
    if changed.is_empty() {
        let tree = crate::Tree { contents: *old, chunks: Vec::new() };
        return Ok(Described { tree, pieces: Vec::new(), features: Vec::new() });
    }
    if old.size == 0 {
        if part.here_until(0) < size {
            return Err(Short::bytes(0, old.size));
        }
        let described =
            super::describe(secret, cutter, size, |offset, buffer| part.read(offset, buffer));
        return described.map_err(Short::Failed);
    }
    if old.root.is_none() && old.size > 0 {
        return Err(Short::recipe(0, 1));
    }
    let stretches = beginnings(secret, old, size, &changed, part)?;
    let builder = Builder::new(secret);
    let mut work =
        Work { secret, old, size, part, builder, at: 0, fresh: Vec::new(), kept: Vec::new() };
    let mut stretches = stretches.into_iter().peekable();
    while let Some(stretch) = stretches.next() {
        work.keep_upto(stretch.start)?;
        let mut cutting = Cutting::of_rest(cutter, size, size - stretch.start);
        let (mut offset, mut end) = (stretch.start, stretch.end);
        loop {
            offset = work.step(&mut cutting, offset, end)?;
            if offset >= size {
                cutting.finish(&mut |cut| work.take(cut))?;
                return Ok(work.finish());
            }
            // What was cut already is not begun anew for the next stretch.
            while let Some(next) = stretches.next_if(|next| next.start < work.at) {
                end = next.end;
            }
            if work.at >= end && work.is_cut(work.at)? {
                break;
            }
        }
    }
    work.keep_upto(size)?;
    Ok(work.finish())
}

/// Where cutting begins for each written stretch.
fn beginnings<E: From<ChunksError>>(
    secret: &Secret,
    old: &Contents,
    size: u64,
    changed: &[Range<u64>],
    part: &mut impl PartOf<E>,
) -> Result<Vec<Range<u64>>, Short<E>> {
    let mut lacks = Lacks::default();
    let mut found = Vec::new();
    for range in changed {
        let begin = beginning(secret, old, range.start, part);
        let behind = up_to_the_cut(secret, old, size, range.end, part);
        // All of them at once: each may take a round trip.
        for shortage in [begin.as_ref().err(), behind.as_ref().err()].into_iter().flatten() {
            if let Short::Lacks(more) = shortage {
                lacks.recipe.extend_from_slice(&more.recipe);
                lacks.bytes.extend_from_slice(&more.bytes);
            }
        }
        match (begin, behind) {
            (Err(error @ Short::Failed(_)), _) | (_, Err(error @ Short::Failed(_))) => {
                return Err(error);
            }
            (Ok(begin), Ok(())) => found.push(begin..range.end),
            _ => {}
        }
    }
    match lacks == Lacks::default() {
        true => Ok(found),
        false => Err(Short::Lacks(lacks)),
    }
}

/// What lies behind a written stretch has to be here up to the cut that the old version has there.
fn up_to_the_cut<E: From<ChunksError>>(
    secret: &Secret,
    old: &Contents,
    size: u64,
    end: u64,
    part: &mut impl PartOf<E>,
) -> Result<(), Short<E>> {
    if end >= old.size.min(size) {
        return Ok(());
    }
    let cut = old_piece(secret, old, end - 1, part)?.end().min(size);
    match part.here_until(end) < cut {
        true => Err(Short::bytes(end, cut)),
        false => Ok(()),
    }
}

/// The last beginning of a chunk, not after `start`, at which no stretch of zeros goes on: such a
/// stretch is judged as a whole. What lies between is here.
fn beginning<E: From<ChunksError>>(
    secret: &Secret,
    old: &Contents,
    start: u64,
    part: &mut impl PartOf<E>,
) -> Result<u64, Short<E>> {
    let mut at = start.min(old.size.saturating_sub(1));
    let begin = loop {
        let Placed { offset, piece } = old_piece(secret, old, at, part)?;
        if offset == 0 {
            break 0;
        }
        at = offset - 1;
        // Of a stretch of zeros that is broken, what is left may be data of the chunk before.
        if matches!(piece, Piece::Zeros { .. }) {
            continue;
        }
        if offset < start && byte(part, offset, offset..offset + piece.length())? != 0 {
            break offset;
        }
        let before = old_piece(secret, old, at, part)?;
        let is_chunk = matches!(before.piece, Piece::Chunk { .. });
        if is_chunk && byte(part, at, before.offset..offset)? != 0 {
            break offset;
        }
    };
    match part.here_until(begin) < start {
        true => Err(Short::bytes(begin, start)),
        false => Ok(begin),
    }
}

/// The byte at an offset; or else the piece is lacking.
fn byte<E>(part: &mut impl PartOf<E>, offset: u64, piece: Range<u64>) -> Result<u8, Short<E>> {
    if part.here_until(offset) <= offset {
        return Err(Short::bytes(piece.start, piece.end));
    }
    let mut byte = [0];
    match part.read(offset, &mut byte).map_err(Short::Failed)? {
        Found::Bytes(1..) => Ok(byte[0]),
        _ => Ok(0),
    }
}

/// The piece that an offset of the old version was in.
fn old_piece<E: From<ChunksError>>(
    secret: &Secret,
    old: &Contents,
    offset: u64,
    part: &impl PartOf<E>,
) -> Result<Placed, Short<E>> {
    let range = Stretch { offset, length: 1 };
    let found = cover(secret, old, range, PIECES_MAX, |name| Ok(part.recipe(name)))?;
    match found.pieces.first() {
        Some(piece) => Ok(*piece),
        None => Err(Short::recipe(offset, offset + 1)),
    }
}

fn zeros_of(pieces: &[Placed]) -> u64 {
    let zeros = pieces.iter().filter(|placed| matches!(placed.piece, Piece::Zeros { .. }));
    zeros.map(|placed| placed.piece.length()).sum()
}

struct Work<'a, P> {
    secret: &'a Secret,
    old: &'a Contents,
    size: u64,
    part: &'a mut P,
    builder: Builder,
    /// Up to here all is described.
    at: u64,
    fresh: Vec<Placed>,
    /// Stretches of the old version that stay as they are, apart from each other.
    kept: Vec<Range<u64>>,
}

impl<P> Work<'_, P> {
    fn take(&mut self, cut: Cut<'_>) {
        let piece = match cut {
            Cut::Chunk(bytes) => {
                Piece::Chunk { name: self.secret.name(bytes), length: bytes.len() as u64 }
            }
            Cut::Zeros(length) => Piece::Zeros { length },
        };
        self.fresh.push(Placed { offset: self.at, piece });
        self.at += piece.length();
        self.builder.push(piece);
    }

    fn finish<E>(self) -> Described
    where
        P: PartOf<E>,
    {
        let holes = self.holes().filter(|holes| *holes > 0);
        let mut tree = self.builder.finish();
        // The builder has not seen what is below the branches that it kept.
        tree.contents.holes = holes;
        Described { tree, pieces: self.fresh, features: Vec::new() }
    }

    /// Bytes of holes, if it is known how many there were and where.
    fn holes<E>(&self) -> Option<u64>
    where
        P: PartOf<E>,
    {
        let before = self.old.holes?;
        let mut gone = 0;
        let ends = self.kept.iter().map(|kept| kept.end);
        let begins = self.kept.iter().map(|kept| kept.start).chain([self.old.size]);
        for (from, to) in std::iter::once(0).chain(ends).zip(begins).filter(|(from, to)| from < to)
        {
            let range = Stretch { offset: from, length: to - from };
            let found =
                cover(self.secret, self.old, range, PIECES_MAX, |name| Ok(self.part.recipe(name)));
            let found =
                found.ok().filter(|found| found.missing.is_empty() && found.next.is_none())?;
            gone += zeros_of(&found.pieces);
        }
        before.checked_sub(gone)?.checked_add(zeros_of(&self.fresh))
    }

    /// Cuts what lies at `offset`, up to the end of the written stretch or, behind that, up to the
    /// next cut of the old version. Gives back where to go on.
    fn step<E: From<ChunksError>>(
        &mut self,
        cutting: &mut Cutting,
        offset: u64,
        end: u64,
    ) -> Result<u64, Short<E>>
    where
        P: PartOf<E>,
    {
        let upto = match offset {
            _ if offset < end => end,
            _ if offset < self.old.size => {
                old_piece(self.secret, self.old, offset, self.part)?.end()
            }
            _ => self.size,
        };
        let upto = upto.min(self.size);
        let here = self.part.here_until(offset).min(upto);
        if here <= offset {
            return Err(Short::bytes(offset, upto));
        }
        let left = here - offset;
        let mut buffer = vec![0; READ_BYTES.min(usize::try_from(left).unwrap_or(READ_BYTES))];
        let went = match self.part.read(offset, &mut buffer).map_err(Short::Failed)? {
            // It is shorter than it was said to be, which the end of the cutting tells.
            Found::Bytes(0) | Found::Hole(0) => self.size - offset,
            Found::Bytes(found) => {
                let found = found.min(buffer.len());
                cutting.push(&buffer[..found], &mut |cut| self.take(cut));
                found as u64
            }
            Found::Hole(zeros) => {
                let zeros = zeros.min(left);
                cutting.push_zeros(zeros);
                zeros
            }
        };
        Ok(offset + went)
    }

    /// Whether the old version was cut at an offset.
    fn is_cut<E: From<ChunksError>>(&self, offset: u64) -> Result<bool, Short<E>>
    where
        P: PartOf<E>,
    {
        if offset >= self.old.size {
            return Ok(offset == self.old.size);
        }
        Ok(old_piece(self.secret, self.old, offset, self.part)?.offset == offset)
    }

    /// What lies before `to` is as it was; both ends are cuts of the old version.
    fn keep_upto<E: From<ChunksError>>(&mut self, to: u64) -> Result<(), Short<E>>
    where
        P: PartOf<E>,
    {
        let Some(root) = self.old.root.filter(|_| self.at < to) else { return Ok(()) };
        let piece = Piece::Chunk { name: root.name, length: self.old.size };
        self.keep(Placed { offset: 0, piece }, root.depth, to)
    }

    fn keep<E: From<ChunksError>>(
        &mut self,
        node: Placed,
        depth: u8,
        to: u64,
    ) -> Result<(), Short<E>>
    where
        P: PartOf<E>,
    {
        if node.end() <= self.at || node.offset >= to {
            return Ok(());
        }
        let is_whole = self.at <= node.offset && node.end() <= to;
        // The last of its depth may be as short as it is because the file ended there.
        let is_last = node.end() == self.old.size;
        let may_stay = depth == 0 || !is_last || self.size == self.old.size;
        if is_whole && may_stay && self.builder.keep(depth, node.piece) {
            self.at = node.end();
            match self.kept.last_mut() {
                Some(last) if last.end == node.offset => last.end = node.end(),
                _ => self.kept.push(node.offset..node.end()),
            }
            return Ok(());
        }
        let Piece::Chunk { name, .. } = node.piece else { return Ok(()) };
        if depth == 0 {
            return Err(ChunksError::BadRecipe("a chunk that is cut in two".into()).into());
        }
        let Some(bytes) = self.part.recipe(&name) else {
            let at = self.at.max(node.offset);
            return Err(Short::recipe(at, at + 1));
        };
        self.secret.check(&name, &bytes)?;
        let recipe = decode(&bytes)?;
        if recipe.depth != depth || recipe.length() != node.piece.length() {
            return Err(ChunksError::BadRecipe(format!("a depth of {}", recipe.depth)).into());
        }
        let mut offset = node.offset;
        for piece in recipe.pieces {
            self.keep(Placed { offset, piece }, depth - 1, to)?;
            offset += piece.length();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
