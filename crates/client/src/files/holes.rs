//! Where the data and the holes of an open file are.
//! Holds: data is never taken for a hole: of what is not in the cache, the recipe tells.

use super::{Grip, OpenFile};
use crate::asking::unexpected;
use crate::client::{Client, failed};
use crate::failures::of_chunks;
use crate::presence::Ground;
use crate::types::{Error, Handle, Need, Step, Stop};
use chunks::{Placed, cover};
use model::{ChunkName, FileId, Piece};
use protocol::{Class, Range, Request, Response, Upstream};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use store::{Container, Containers};

/// So much of a recipe is asked for at once; a hole that begins there is told to its end.
const ASKED_BYTES: u64 = 64 << 20;
/// Pieces of that: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;
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
        let left = {
            let files = self.files();
            let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            let other = |ground: &Ground| ground.version != open.presence.version;
            let written = open.presence.dirty.is_some();
            if open.presence.ground.as_ref().is_some_and(|ground| written || other(ground)) {
                // The recipe of what it was does not tell what was written since.
                drop(files);
                self.want_whole(&grip)?;
            } else if !open.presence.is_whole() {
                return sought(open, &grip, (offset, size), hole);
            }
            grip.left.load(Ordering::Acquire)
        };
        let data = grip.container.data(offset, size - offset).map_err(failed)?;
        if grip.left.load(Ordering::Acquire) != left {
            // What has left the cache meanwhile looks like a hole: the recipe tells.
            return Err(Stop::Need(need(&grip, offset)));
        }
        if !hole {
            return Ok(data.first().map(|(start, _)| (*start).max(offset)));
        }
        let mut at = offset;
        for (start, length) in data {
            if start > at {
                break;
            }
            at = at.max(start + length);
        }
        Ok(Some(at.min(size)))
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
    use model::CHUNK_NAME_BYTES;

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
    fn pieces_count_up_to_the_first_gap() {
        let mut some = pieces(10, &[(10, true), (10, false)]);
        some.extend(pieces(40, &[(10, true)]));
        assert_eq!(without_gap(some.clone(), 15).len(), 2);
        assert_eq!(without_gap(some.clone(), 10).len(), 2);
        assert_eq!(without_gap(some, 5).len(), 0, "what is asked for is not among them");
    }
}
