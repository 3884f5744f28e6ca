//! Where the data and the holes of an open file are.
//! Holds: data is never taken for a hole: of what is not in the cache, the recipe tells; and of what is
//! written to, what is not in the cache counts as data.

use super::{Grip, OpenFile};
use crate::asking::unexpected;
use crate::client::{Client, failed};
use crate::failures::of_chunks;
use crate::presence::{Ground, Presence};
use crate::types::{Error, Handle, Need, Step, Stop};
use chunks::{Placed, cover};
use model::{ChunkName, FileId, Piece};
use protocol::{Class, Range, Request, Response, Upstream};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use store::{Container, Containers, Result as StoreResult};

/// So much of a recipe is asked for at once; a hole that begins there is told to its end.
const ASKED_BYTES: u64 = 64 << 20;
/// Pieces of that: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;
/// So much of a container is looked at first, and twice as much each time that it is all data or all
/// hole: who goes through a file of many holes is not to look at all of it with each call.
const STEP_BYTES_MIN: u64 = 1 << 20;
/// Stretches that are remembered of a file.
const STRETCHES_MAX: usize = 1 << 16;

/// What the recipe has told of a version: stretches of data and of zeros, (end, is it data) by
/// offset, each as long as it goes.
#[derive(Default)]
pub(crate) struct Layout(BTreeMap<u64, (u64, bool)>);

/// What is sought, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    At(u64),
    /// There is none before the end.
    End,
    /// Nothing is known from here on.
    Unknown(u64),
}

impl Layout {
    /// The first byte of data, or the first of zeros, at or behind an offset within the file.
    fn seek(&self, offset: u64, size: u64, data: bool) -> Sought {
        let mut at = offset;
        while at < size {
            let before = self.0.range(..=at).next_back();
            match before.map(|(_, stretch)| *stretch).filter(|(end, _)| at < *end) {
                Some((_, is_data)) if is_data == data => return Sought::At(at),
                Some((end, _)) => at = end,
                None => return Sought::Unknown(at),
            }
        }
        Sought::End
    }

    /// Pieces in order, each where the one before ends.
    fn learn(&mut self, pieces: &[Placed]) {
        for placed in pieces {
            let is_data = matches!(placed.piece, Piece::Chunk { .. });
            let before = self.0.range_mut(..placed.offset).next_back();
            match before {
                Some((_, (end, kind))) if *end >= placed.offset && *kind == is_data => {
                    *end = placed.end().max(*end);
                }
                _ => {
                    self.0.insert(placed.offset, (placed.end(), is_data));
                }
            }
        }
        if self.0.len() > STRETCHES_MAX {
            self.0.clear();
        }
    }
}

/// The pieces from the one at `offset` on that follow each other without a gap.
fn without_gap(pieces: Vec<Placed>, offset: u64) -> Vec<Placed> {
    let mut next = None;
    let follows = |placed: &Placed| {
        let fits = next.map_or(placed.offset <= offset, |next| placed.offset == next);
        next = Some(placed.end());
        fits
    };
    pieces.into_iter().take_while(follows).collect()
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// SEEK_DATA or SEEK_HOLE from `offset`; none if there is no such place (ENXIO).
    pub fn seek(&self, handle: Handle, offset: u64, hole: bool) -> Step<Option<u64>> {
        let (grip, _) = self.files().grip(handle)?;
        let size = grip.container.length().map_err(failed)?;
        if offset >= size {
            return Ok(None);
        }
        let mut upon = None;
        let left = {
            let files = self.files();
            let Some(open) = files.get(grip.file, grip.generation) else {
                // It goes on with another version.
                drop(files);
                return self.seek(handle, offset, hole);
            };
            let other = |ground: &Ground| ground.version != open.presence.version;
            let written = open.presence.dirty.is_some();
            if open.presence.ground.as_ref().is_some_and(|ground| written || other(ground)) {
                // The recipe of what it was does not tell what was written since.
                upon = Some(open.presence.clone());
            } else if !open.presence.is_whole() {
                return sought(open, &grip, (offset, size), hole);
            }
            grip.left.load(Ordering::Acquire)
        };
        let look = |offset, length| grip.container.data(offset, length);
        let found = first(look, upon.as_ref(), (offset, size), hole).map_err(failed)?;
        if grip.left.load(Ordering::Acquire) != left {
            // What has left the cache meanwhile looks like a hole: the recipe tells.
            return Err(Stop::Need(need(&grip, offset)));
        }
        Ok(found)
    }

    /// Learns from the recipe where the holes of a version are, from an offset on.
    pub(crate) async fn learn_holes(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
    ) -> Result<(), Error> {
        let (version, size) = {
            let files = self.files();
            let Some(open) = files.get(file, generation) else { return Ok(()) };
            (open.presence.version, open.presence.contents.size)
        };
        if offset >= size {
            return Ok(());
        }
        let range = Range { offset, length: ASKED_BYTES.min(size - offset) };
        let request =
            Request::Recipe { file, version: Some(version), range, eager_bytes: 0, base: None };
        let fetched = match self.ask(Class::Interactive, request).await? {
            Response::Recipe(fetched) => fetched,
            other => return Err(unexpected("recipe", &other)),
        };
        if fetched.version != version || fetched.contents.size != size {
            return Err(Error::Stale);
        }
        let secret = self.secret().0;
        let recipe: BTreeMap<ChunkName, Vec<u8>> =
            fetched.recipe.iter().map(|bytes| (secret.name(bytes), bytes.to_vec())).collect();
        let fetch = |name: &ChunkName| Ok(recipe.get(name).cloned());
        let found =
            cover(&secret, &fetched.contents, range, PIECES_MAX, fetch).map_err(of_chunks)?;
        let pieces = without_gap(found.pieces, offset);
        if pieces.is_empty() {
            return Err(Error::Failed(format!(
                "the recipe of {file} that the server sent is not whole"
            )));
        }
        if let Some(open) = self.files().get_mut(file, generation)
            && open.presence.version == version
        {
            open.layout.learn(&pieces);
        }
        Ok(())
    }
}

/// The first byte of data, or of a hole, from `offset` on; `look` gives the stretches of data within one,
/// as (offset, length). Of what is written `upon` a version that is
/// not all here, the rest is data.
fn first(
    look: impl Fn(u64, u64) -> StoreResult<Vec<(u64, u64)>>,
    upon: Option<&Presence>,
    (offset, size): (u64, u64),
    hole: bool,
) -> StoreResult<Option<u64>> {
    let (mut at, mut step) = (offset, STEP_BYTES_MIN);
    while at < size {
        let end = at.saturating_add(step).min(size);
        let mut data = look(at, end - at)?;
        let absent = upon.map_or_else(Vec::new, |upon| upon.absent(at, end));
        data.extend(absent.iter().map(|(from, to)| (*from, to - from)));
        data.sort_unstable();
        let place = match (hole, data.first()) {
            (true, _) => end_of_data(at, &data),
            (false, Some((start, _))) => at.max(*start),
            (false, None) => end,
        };
        if place < end {
            return Ok(Some(place));
        }
        (at, step) = (place, step.saturating_mul(2));
    }
    Ok(hole.then_some(size))
}

/// Where the data that is at `at` ends.
fn end_of_data(at: u64, data: &[(u64, u64)]) -> u64 {
    let mut end = at;
    for (start, length) in data {
        if *start > end {
            break;
        }
        end = end.max(start + length);
    }
    end
}

/// What the recipe tells of a version that is not all here.
fn sought<K>(
    open: &OpenFile<K>,
    grip: &Grip<K>,
    (offset, size): (u64, u64),
    hole: bool,
) -> Step<Option<u64>> {
    if open.presence.contents.holes.is_none() {
        return Ok(Some(if hole { size } else { offset }));
    }
    match open.layout.seek(offset, size, !hole) {
        Sought::At(at) => Ok(Some(at)),
        // The end of every file is a hole.
        Sought::End => Ok(hole.then_some(size)),
        Sought::Unknown(at) => Err(Stop::Need(need(grip, at))),
    }
}

fn need<K>(grip: &Grip<K>, offset: u64) -> Need {
    Need::Holes { file: grip.file, generation: grip.generation, offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Dirty;
    use model::{CHUNK_NAME_BYTES, Contents, ReplicaId, Stamp};
    use std::cell::Cell;

    fn pieces(from: u64, lengths: &[(u64, bool)]) -> Vec<Placed> {
        let mut offset = from;
        let placed = lengths.iter().map(|&(length, is_data)| {
            let name = ChunkName([1; CHUNK_NAME_BYTES]);
            let piece = match is_data {
                true => Piece::Chunk { name, length },
                false => Piece::Zeros { length },
            };
            offset += length;
            Placed { offset: offset - length, piece }
        });
        placed.collect()
    }

    #[test]
    fn data_and_holes_are_found_as_far_as_the_recipe_is_known() {
        let mut layout = Layout::default();
        assert_eq!(layout.seek(5, 100, true), Sought::Unknown(5));
        layout.learn(&pieces(0, &[(10, true), (10, true), (30, false), (10, true)]));
        assert_eq!(layout.seek(5, 100, true), Sought::At(5));
        assert_eq!(layout.seek(5, 100, false), Sought::At(20));
        assert_eq!(layout.seek(25, 100, true), Sought::At(50));
        assert_eq!(layout.seek(50, 100, false), Sought::Unknown(60));
        layout.learn(&pieces(60, &[(40, true)]));
        assert_eq!(layout.seek(50, 100, false), Sought::End);
        assert_eq!(layout.seek(20, 50, true), Sought::End);
        assert_eq!(layout.0.len(), 3, "what follows is one stretch");
        // The same once more, from another place on.
        layout.learn(&pieces(10, &[(10, true), (30, false)]));
        assert_eq!(layout.seek(0, 100, false), Sought::At(20));
        assert_eq!(layout.seek(30, 100, true), Sought::At(50));
    }

    #[test]
    fn no_more_is_looked_at_than_twice_what_lies_before_what_is_sought() {
        const MIB: u64 = 1 << 20;
        let data = [(0, MIB / 2), (100 * MIB, 10), (101 * MIB, 400 * MIB)];
        let size = 1000 * MIB;
        let found = |offset, hole| {
            let looked = Cell::new(0);
            let look = |from: u64, length: u64| {
                looked.set(looked.get() + length);
                let clipped = data.map(|(at, long)| (at.max(from), (at + long).min(from + length)));
                Ok(clipped.into_iter().filter(|(a, b)| a < b).map(|(a, b)| (a, b - a)).collect())
            };
            (first(look, None, (offset, size), hole).unwrap(), looked.get())
        };
        assert_eq!(found(7, false), (Some(7), MIB));
        assert_eq!(found(7, true), (Some(MIB / 2), MIB));
        let (data, looked) = found(MIB, false);
        assert!(data == Some(100 * MIB) && looked < 200 * MIB, "{looked}");
        let (hole, looked) = found(102 * MIB, true);
        assert!(hole == Some(501 * MIB) && looked < 1000 * MIB, "{looked}");
        assert_eq!(found(600 * MIB, false).0, None);
        assert_eq!(found(600 * MIB, true).0, Some(600 * MIB));
        let to_its_end = |at, length| Ok(vec![(at, length)]);
        assert_eq!(first(to_its_end, None, (5, size), true).unwrap(), Some(size));
    }

    #[test]
    fn what_is_not_here_of_what_is_written_to_counts_as_data() {
        let contents = Contents { size: 100, root: None, holes: None };
        let version = Stamp::new(ReplicaId(3), 7);
        let mut here = Presence::new(0, version, contents, 0);
        here.dirty = Some(Dirty::new(version, 0));
        here.ground = Some(Ground::new(version, contents));
        here.add(20, 30);
        let look = |from: u64, length: u64| {
            let written = from.max(30)..(from + length).min(40);
            let is_there = !written.is_empty();
            Ok(is_there.then(|| (written.start, written.end - written.start)).into_iter().collect())
        };
        let found = |offset, hole| first(look, Some(&here), (offset, 120), hole).unwrap();
        assert_eq!([found(0, false), found(0, true)], [Some(0), Some(20)]);
        assert_eq!([found(20, false), found(30, true)], [Some(30), Some(40)]);
        assert_eq!([found(40, false), found(60, true)], [Some(50), Some(100)]);
        assert_eq!([found(100, false), found(100, true)], [None, Some(100)]);
    }

    #[test]
    fn pieces_count_up_to_the_first_gap() {
        let mut some = pieces(10, &[(10, true), (10, false)]);
        some.extend(pieces(40, &[(10, true)]));
        assert_eq!(without_gap(some.clone(), 15).len(), 2);
        assert_eq!(without_gap(some.clone(), 10).len(), 2);
        assert_eq!(without_gap(some, 5).len(), 0, "what is asked for is not among them");
    }
}
