//! A three-way merge of contents by stretches: what was changed within them is laid over what others
//! have made of the rest meanwhile.
//! Holds: who changed anything outside of the stretches, or met a change of others within them, gets
//! nothing merged; every byte of what is merged is that of one of the two.
//! From: fcntl(2), record locks, where a file is stored as a whole.

use crate::describe::{Described, Found, PartOf, Short, describe_part};
use crate::error::{ChunksError, Result};
use crate::fingerprint::Secret;
use crate::recipe::{FILE_BYTES_MAX, cover, differing};
use model::{ChunkName, Contents, Piece};
use protocol::Cutter;
use std::cell::Cell;
use std::ops::Range;
use store::StoreError;

/// Bytes that are read at once, and count as read: where data ends sooner, zeros of which nothing says
/// that they are some lie behind it.
const READ_BYTES: u64 = 64 << 10;
/// Recipe chunks that may be looked at for it.
const RECIPES_MAX: usize = 4096;
/// What was changed within one stretch counts as one change, if no more lies between: where to cut is
/// looked for at each by itself.
const GAP: u64 = 16 << 10;
/// Whatever is read counts as so much at least, and a recipe chunk as this: each has to be fetched.
const READ_COST: u64 = 2 << 10;
const RECIPE_COST: u64 = 256;

/// Contents that are at hand.
pub trait Source {
    /// A recipe chunk; none if it is not at hand.
    fn recipe(&self, name: &ChunkName) -> Result<Option<Vec<u8>>, StoreError>;
    /// The bytes of a stretch that lies within the contents; none if they are not at hand.
    fn bytes(&self, contents: &Contents, stretch: Range<u64>) -> Result<Option<Vec<u8>>>;
}

/// The three that are merged.
#[derive(Clone, Copy, Debug)]
pub struct Sides {
    /// What both began from.
    pub base: Contents,
    /// What is to be laid over.
    pub mine: Contents,
    /// What others have made of it.
    pub theirs: Contents,
}

/// What came of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    pub contents: Contents,
    /// The chunks, recipe and data, that may be new.
    pub chunks: Vec<Vec<u8>>,
}

/// What is theirs with all that is mine within these stretches, which are in order and do not touch;
/// one that reaches to the greatest offset has no end. None: mine differs from the base outside of
/// them, or theirs does within; or there is more to compare than is compared, or not all is at hand.
/// `room`: bytes that may be compared and cut anew; what was is taken off. Zeros that no chunk stands
/// for need none.
/// Errors: `BadRecipe`, `WrongBytes`, and what `source` gives.
pub fn merge(
    named: (&Secret, Cutter),
    sides: &Sides,
    within: &[Range<u64>],
    (source, room): (&impl Source, &mut u64),
) -> Result<Option<Merged>> {
    let hand = Hand { secret: named.0, source, room: Cell::new(Some(*room)) };
    let merged = merge_at(&hand, named, sides, within);
    *room = hand.room.get().unwrap_or(0);
    merged
}

fn merge_at(
    hand: &Hand<'_, impl Source>,
    (secret, cutter): (&Secret, Cutter),
    sides: &Sides,
    within: &[Range<u64>],
) -> Result<Option<Merged>> {
    let Sides { base, mine, theirs } = sides;
    let Some(size) = size_of(sides, within) else { return Ok(None) };
    let work = Work { hand, within };
    let Some(changed) = work.changed(base, mine)? else { return Ok(None) };
    if !work.are_same_within(base, theirs)? || changed.iter().any(|run| run.end > size) {
        return Ok(None);
    }
    let mut laid = Laid { sides, changed: &changed, hand, lost: false };
    let described = match describe_part(secret, cutter, size, theirs, &changed, &mut laid) {
        Ok(described) => described,
        Err(Short::Lacks(_)) => return Ok(None),
        Err(Short::Failed(_)) if laid.lost => return Ok(None),
        Err(Short::Failed(error)) => return Err(error),
    };
    // Of what could not be looked at any more it would not be known that it is zeros.
    if hand.room.get().is_none() {
        return Ok(None);
    }
    Ok(laid
        .chunks_of(&described)?
        .map(|chunks| Merged { contents: described.tree.contents, chunks }))
}

/// How long the merged contents are; none where it cannot be told. What was only added to keeps what
/// others have added.
fn size_of(Sides { base, mine, theirs }: &Sides, within: &[Range<u64>]) -> Option<u64> {
    // What others have cut off, zeros included, they have changed.
    let gone = theirs.size..base.size;
    let is_within = |own: &Range<u64>| own.start.max(gone.start) < own.end.min(gone.end);
    if within.iter().any(is_within) {
        return None;
    }
    match mine.size.cmp(&base.size) {
        std::cmp::Ordering::Equal => Some(theirs.size),
        std::cmp::Ordering::Greater => Some(mine.size.max(theirs.size)),
        // Whoever cuts has to have all that is cut off.
        std::cmp::Ordering::Less => {
            let last = within.last()?;
            let all_is_own = last.start <= mine.size && last.end >= FILE_BYTES_MAX;
            // And of what others have added, zeros included.
            (all_is_own && theirs.size == base.size).then_some(mine.size)
        }
    }
}

/// What is at hand, and how much of it may still be looked at.
struct Hand<'a, S> {
    secret: &'a Secret,
    source: &'a S,
    /// Bytes that may still be compared or cut anew. None: there was too much.
    room: Cell<Option<u64>>,
}

impl<S: Source> Hand<'_, S> {
    /// False: there is too much.
    fn takes(&self, cost: u64) -> bool {
        let left = self.room.get().and_then(|room| room.checked_sub(cost));
        self.room.set(left);
        left.is_some()
    }

    /// A recipe chunk; none if it is not at hand, or there is too much.
    fn recipe(&self, name: &ChunkName) -> Result<Option<Vec<u8>>, StoreError> {
        match self.takes(RECIPE_COST) {
            true => self.source.recipe(name),
            false => Ok(None),
        }
    }

    /// Where zeros that no chunk stands for end, or the offset if there are none. Beyond the end of
    /// the contents they have no end.
    fn zeros_until(&self, contents: &Contents, offset: u64) -> Result<u64> {
        if offset >= contents.size {
            return Ok(u64::MAX);
        }
        let byte = protocol::Range { offset, length: 1 };
        let found = cover(self.secret, contents, byte, 1, |name| self.recipe(name))?;
        Ok(match found.pieces.first() {
            Some(placed) if matches!(placed.piece, Piece::Zeros { .. }) => placed.end(),
            _ => offset,
        })
    }

    /// The bytes of a stretch, with zeros beyond the end.
    fn padded(&self, contents: &Contents, stretch: Range<u64>) -> Result<Option<Vec<u8>>> {
        let length = (stretch.end - stretch.start) as usize;
        let inside = stretch.start..stretch.end.min(contents.size);
        let mut bytes = match inside.is_empty() {
            true => Vec::with_capacity(length),
            false => match self.source.bytes(contents, inside)? {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
        };
        bytes.resize(length, 0);
        Ok(Some(bytes))
    }
}

struct Work<'a, S> {
    hand: &'a Hand<'a, S>,
    within: &'a [Range<u64>],
}

impl<S: Source> Work<'_, S> {
    fn differing(&self, one: &Contents, other: &Contents) -> Result<Option<Vec<Range<u64>>>> {
        differing(self.hand.secret, (one, other), RECIPES_MAX, |name| self.hand.recipe(name))
    }

    /// Where mine is not what the base is, roughly: within the stretches all the rest is the same in
    /// theirs. None: also outside of them.
    fn changed(&self, base: &Contents, mine: &Contents) -> Result<Option<Vec<Range<u64>>>> {
        let Some(differing) = self.differing(base, mine)? else { return Ok(None) };
        let mut changed = Changed { within: self.within, runs: Vec::new(), last: 0 };
        // Of what was cut off nothing is laid over.
        let upto = mine.size;
        for stretch in differing.into_iter().filter(|stretch| stretch.start < upto) {
            let all_within =
                self.compare(base, mine, stretch.start..stretch.end.min(upto), |at| {
                    changed.note(at)
                })?;
            if !all_within {
                return Ok(None);
            }
        }
        Ok(Some(changed.runs))
    }

    /// Whether others have changed nothing within the stretches.
    fn are_same_within(&self, base: &Contents, theirs: &Contents) -> Result<bool> {
        let Some(differing) = self.differing(base, theirs)? else { return Ok(false) };
        for stretch in differing {
            let first = self.within.partition_point(|own| own.end <= stretch.start);
            for own in self.within[first..].iter().take_while(|own| own.start < stretch.end) {
                let both = own.start.max(stretch.start)..own.end.min(stretch.end);
                if !self.compare(base, theirs, both, |_| false)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Tells of every byte of a stretch that differs; beyond its end each is zeros. False: it was told
    /// to end, or there is too much, or it is not at hand.
    fn compare(
        &self,
        one: &Contents,
        other: &Contents,
        stretch: Range<u64>,
        mut differs: impl FnMut(u64) -> bool,
    ) -> Result<bool> {
        let mut from = stretch.start;
        while from < stretch.end {
            let zeros = self.zeros_of_both(one, other, from)?;
            if zeros > from {
                from = zeros;
                continue;
            }
            let to = stretch.end.min(from + READ_BYTES);
            if !self.hand.takes((to - from).max(READ_COST)) {
                return Ok(false);
            }
            let (Some(left), Some(right)) =
                (self.hand.padded(one, from..to)?, self.hand.padded(other, from..to)?)
            else {
                return Ok(false);
            };
            if left != right {
                let mut bytes = (from..).zip(left.iter().zip(&right));
                if !bytes.all(|(at, (left, right))| left == right || differs(at)) {
                    return Ok(false);
                }
            }
            from = to;
        }
        Ok(true)
    }

    /// Where zeros end that both have, and that need not be read.
    fn zeros_of_both(&self, one: &Contents, other: &Contents, from: u64) -> Result<u64> {
        match self.hand.zeros_until(one, from)? {
            upto if upto > from => Ok(upto.min(self.hand.zeros_until(other, from)?)),
            _ => Ok(from),
        }
    }
}

/// What was changed within stretches, as it is found, from the beginning to the end.
struct Changed<'a> {
    within: &'a [Range<u64>],
    runs: Vec<Range<u64>>,
    /// The stretch of the last run.
    last: usize,
}

impl Changed<'_> {
    /// False: it is outside of the stretches.
    fn note(&mut self, at: u64) -> bool {
        let before = self.last;
        self.last += self.within[before..].iter().take_while(|own| own.end <= at).count();
        if self.within.get(self.last).is_none_or(|own| at < own.start) {
            return false;
        }
        match self.runs.last_mut() {
            Some(run) if self.last == before && at - run.end < GAP => run.end = at + 1,
            _ => self.runs.push(at..at + 1),
        }
        true
    }
}

/// What is theirs with what was changed laid over it.
struct Laid<'a, S> {
    sides: &'a Sides,
    changed: &'a [Range<u64>],
    hand: &'a Hand<'a, S>,
    /// Something was not at hand, or there is too much.
    lost: bool,
}

impl<S: Source> Laid<'_, S> {
    fn bytes(&self, stretch: Range<u64>) -> Result<Option<Vec<u8>>> {
        let Some(mut bytes) = self.hand.padded(&self.sides.theirs, stretch.clone())? else {
            return Ok(None);
        };
        let first = self.changed.partition_point(|run| run.end <= stretch.start);
        let behind = self.changed.partition_point(|run| run.start < stretch.end);
        let runs = self.changed.get(first..behind).unwrap_or_default();
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(Some(bytes)) };
        // All at once: there may be many.
        let from = first.start.max(stretch.start);
        let to = last.end.min(stretch.end);
        let Some(mine) = self.hand.padded(&self.sides.mine, from..to)? else { return Ok(None) };
        for run in runs {
            let (start, end) = (run.start.max(stretch.start), run.end.min(stretch.end));
            let place = (start - stretch.start) as usize..(end - stretch.start) as usize;
            bytes[place].copy_from_slice(&mine[(start - from) as usize..(end - from) as usize]);
        }
        Ok(Some(bytes))
    }

    /// Where zeros of theirs end over which nothing is laid, or the offset if there are none.
    fn zeros_until(&self, offset: u64) -> Result<u64> {
        let first = self.changed.partition_point(|run| run.end <= offset);
        let upto = self.changed.get(first).map_or(u64::MAX, |run| run.start.max(offset));
        match upto > offset {
            true => Ok(upto.min(self.hand.zeros_until(&self.sides.theirs, offset)?)),
            false => Ok(offset),
        }
    }

    fn chunks_of(&self, described: &Described) -> Result<Option<Vec<Vec<u8>>>> {
        let mut chunks: Vec<Vec<u8>> = Vec::new();
        for placed in &described.pieces {
            if let Piece::Chunk { .. } = placed.piece {
                let Some(bytes) = self.bytes(placed.offset..placed.end())? else { return Ok(None) };
                chunks.push(bytes);
            }
        }
        chunks.extend(described.tree.chunks.iter().map(|(_, bytes)| bytes.clone()));
        Ok(Some(chunks))
    }
}

impl<S: Source> PartOf<ChunksError> for Laid<'_, S> {
    fn recipe(&self, name: &ChunkName) -> Option<Vec<u8>> {
        self.hand.recipe(name).ok().flatten()
    }

    fn here_until(&self, _offset: u64) -> u64 {
        u64::MAX
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Found> {
        let zeros = self.zeros_until(offset)?;
        let length = if zeros > offset { 0 } else { READ_BYTES.min(buffer.len() as u64) };
        if !self.hand.takes(length.max(READ_COST)) {
            self.lost = true;
            return Ok(Found::Bytes(0));
        }
        if zeros > offset {
            return Ok(Found::Hole(zeros - offset));
        }
        match self.bytes(offset..offset.saturating_add(length))? {
            Some(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(Found::Bytes(bytes.len()))
            }
            None => {
                self.lost = true;
                Ok(Found::Bytes(0))
            }
        }
    }
}

#[cfg(test)]
mod tests;
