//! Making a version of what was written upon a ground: cut anew around what was written, and for
//! the rest as the ground is.

use super::{PartRow, Shelf};
use crate::client::{Client, error_of, failed, log_failed};
use crate::failures::of_chunks;
use crate::files::Grip;
use crate::plan::Plan;
use crate::presence::{Ground, Presence};
use crate::replay_log::Setback;
use crate::types::{Error, Need, Step, Stop};
use chunks::{ChunksError, Described, Found, PartOf, Secret, Short, describe_part};
use model::{CHUNK_NAME_BYTES, Change, ChunkName, FileId, Piece, Update};
use protocol::{Class, Range as Stretch, Request, Upstream};
use std::ops::Range;
use store::container::Key;
use store::journal::RECORD_BYTES_MAX;
use store::{Container, Containers, StoreError};

/// Bytes of the record that says what one version adds to its ground. With more all of the file is
/// fetched.
const PART_BYTES_MAX: usize = RECORD_BYTES_MAX - (1 << 20);
/// One chunk in it, at most: its place, its length and its name.
const PIECE_BYTES_MAX: usize = 1 + 9 + 5 + 2 + CHUNK_NAME_BYTES;
/// What goes before each recipe chunk in it.
const HEAD_BYTES: usize = 5;
/// Bytes that are searched at once for the end of a hole.
const HOLE_STEP_BYTES: u64 = 64 << 20;

/// What is here of what a store adds to its ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    There,
    /// The container holds something else.
    Altered,
    /// There is no container: it left when the store had been taken, or the disk has lost it.
    Gone,
}

/// A container, as far as it is the file.
struct Here<'a, K> {
    container: &'a K,
    presence: &'a Presence,
    shelf: &'a Shelf,
    /// Asked before each read.
    goes_on: &'a dyn Fn() -> bool,
}

impl<K: Container> PartOf<ChunksError> for Here<'_, K> {
    fn recipe(&self, name: &ChunkName) -> Option<Vec<u8>> {
        self.shelf.get(name)
    }

    fn here_until(&self, offset: u64) -> u64 {
        self.presence.here_until(offset)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Found, ChunksError> {
        let size = self.container.length()?;
        if !(self.goes_on)() {
            return Err(ChunksError::SizeChanged { stated: size, found: size });
        }
        let upto = self.presence.here_until(offset).min(size);
        let step = HOLE_STEP_BYTES.min(upto.saturating_sub(offset));
        let (start, length) = match self.container.data(offset, step)?.first() {
            None => return Ok(Found::Hole(step)),
            Some((start, _)) if *start > offset => return Ok(Found::Hole(start - offset)),
            Some(stretch) => *stretch,
        };
        let left = usize::try_from(start + length - offset).unwrap_or(usize::MAX);
        let bytes = self.container.read(offset, buffer.len().min(left))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(Found::Bytes(bytes.len()))
    }
}

/// What is not as it is in the ground.
fn changed(ground: &Ground, size: u64) -> Vec<Range<u64>> {
    let mut changed: Vec<Range<u64>> = ground.written.iter().map(|(from, to)| *from..*to).collect();
    if ground.reach < ground.contents.size {
        changed.push(ground.reach..size.max(ground.reach));
    }
    changed
}

/// The bytes of the record that says what was cut anew, at most.
fn part_bytes(described: &Described) -> usize {
    let recipe = described.tree.chunks.iter().map(|(_, bytes)| HEAD_BYTES + bytes.len());
    recipe.sum::<usize>() + described.pieces.len() * PIECE_BYTES_MAX
}

fn pairs(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Describes what was written upon a ground, if not all of it is here. Nobody writes to it.
    pub(crate) fn describe_upon(
        &self,
        grip: &Grip<C::Container>,
    ) -> Step<Option<(Presence, Described)>> {
        let (presence, shelf) = {
            let files = self.files();
            let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            (open.presence.clone(), open.shelf.clone())
        };
        let Some(ground) = presence.ground.as_ref().filter(|_| !presence.is_whole()) else {
            return Ok(None);
        };
        let (secret, cutter) = self.secret();
        let size = grip.container.length().map_err(failed)?;
        let changed = changed(ground, size);
        let goes_on = || !self.gives_way((grip.file, grip.generation));
        let (container, goes_on) = (&grip.container, &goes_on);
        let mut here = Here { container, presence: &presence, shelf: &shelf, goes_on };
        let described = describe_part(&secret, cutter, size, &ground.contents, &changed, &mut here);
        let described = match described {
            Ok(described) => described,
            Err(Short::Lacks(lacks)) => {
                return Err(Stop::Need(Need::Ground {
                    file: grip.file,
                    generation: grip.generation,
                    recipe: pairs(&lacks.recipe),
                    bytes: pairs(&lacks.bytes),
                }));
            }
            Err(Short::Failed(error)) => return Err(of_chunks(error).into()),
        };
        if part_bytes(&described) > PART_BYTES_MAX {
            self.want_whole(grip)?;
        }
        for (name, bytes) in &described.tree.chunks {
            shelf.put(*name, bytes.clone());
        }
        Ok(Some((presence, described)))
    }

    /// What a store adds to its ground is in the log before the store.
    pub(crate) fn note_part(
        &self,
        core: &mut crate::client::Core,
        grip: &Grip<C::Container>,
        described: &Described,
    ) -> Step<PartRow> {
        let pieces = described.pieces.iter().filter_map(|placed| match placed.piece {
            Piece::Chunk { name, length } => Some((placed.offset, length, name)),
            Piece::Zeros { .. } => None,
        });
        let recipe = described.tree.chunks.iter().map(|(_, bytes)| bytes.clone().into());
        let row = PartRow {
            generation: grip.generation,
            number: core.log.next_number(),
            contents: described.tree.contents,
            pieces: pieces.collect(),
            recipe: recipe.collect(),
        };
        core.log.note(&row.record(grip.file)).map_err(log_failed)?;
        Ok(row)
    }

    /// The plan of a pending store that rests on a ground, if what it adds to that is here. None:
    /// it rests on none.
    pub(crate) fn plan_of_part(&self, update: &Update) -> Result<Option<Option<Plan>>, Error> {
        let Change::Store { file, contents, .. } = &update.change else { return Ok(None) };
        let read = self.inner.tables.read().map_err(error_of)?;
        let row = PartRow::load(&*read, *file, update.stamp.number, contents).map_err(error_of)?;
        drop(read);
        let Some(row) = row else { return Ok(None) };
        let secret = self.secret().0;
        if self.added(*file, &row, &secret).map_err(error_of)? != Added::There {
            return Ok(Some(None));
        }
        let recipe = row.recipe.iter().map(|bytes| (secret.name(bytes), bytes.to_vec()));
        let data = row.pieces.iter().filter_map(|(offset, length, name)| {
            Some((*name, (*offset, u32::try_from(*length).ok()?)))
        });
        let mut plan = Plan::empty(*file, row.generation);
        (plan.recipe, plan.data) = (recipe.collect(), data.collect());
        Ok(Some(Some(plan)))
    }

    /// What is here of what a store is said to add to its ground.
    pub(crate) fn added(
        &self,
        file: FileId,
        row: &PartRow,
        secret: &Secret,
    ) -> Result<Added, StoreError> {
        let key = Key { file: file.0, generation: row.generation };
        let Some(container) = self.inner.containers.open(key, false)? else {
            return Ok(Added::Gone);
        };
        if container.length()? < row.contents.size {
            return Ok(Added::Altered);
        }
        for (offset, length, name) in &row.pieces {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let bytes = container.read(*offset, length)?;
            self.inner.settings.headway.step();
            if secret.check(name, &bytes).is_err() {
                return Ok(Added::Altered);
            }
        }
        Ok(Added::There)
    }

    /// The replica above lacks chunks for a store that rests on a ground, and they are nowhere
    /// here. False: no store that rests on one is among these, or it is to be given up: what it
    /// adds to its ground is not here any more, or the ground is kept nowhere.
    pub(crate) async fn ground_is_lacking(&self, updates: &[Update]) -> Result<bool, Setback> {
        let Some(update) = updates.iter().find(|one| matches!(one.change, Change::Store { .. }))
        else {
            return Ok(false);
        };
        let Change::Store { file, contents, .. } = update.change else { return Ok(false) };
        let (part, row) = {
            let read = self.inner.tables.read().map_err(error_of)?;
            let part = PartRow::load(&*read, file, update.stamp.number, &contents);
            (part.map_err(error_of)?, Presence::load(&*read, file).map_err(error_of)?)
        };
        let Some(part) = part else { return Ok(false) };
        if self.added(file, &part, &self.secret().0).map_err(error_of)? != Added::There {
            return Ok(false);
        }
        let ground = row.filter(|row| row.version == update.stamp).and_then(|row| row.ground);
        let Some(ground) = ground else { return Ok(false) };
        let range = Stretch { offset: 0, length: 1 };
        let (of, version) = (ground.of.unwrap_or(file), Some(ground.version));
        let request = Request::Recipe { file: of, version, range, eager_bytes: 0, base: None };
        match self.ask(Class::Replay, request).await {
            // It was pruned: what was written is stored by itself.
            Err(Error::Stale) => Ok(self.forget_ground_of(update, file).map_err(error_of)?),
            _ => Err(Setback::Failed(Error::Failed(format!(
                "the server lacks contents of version {} of {of}, which changes here rest on",
                ground.version
            )))),
        }
    }

    /// The store is to be given up as one whose contents are not here.
    fn forget_ground_of(&self, update: &Update, file: FileId) -> Result<bool, StoreError> {
        let mut write = self.inner.tables.write()?;
        super::forget_part(&mut *write, file, update.stamp.number)?;
        write.commit(store::Durability::Later)?;
        self.core().plans.remove(update.stamp.number);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sized;
    use crate::presence::NO_VERSION;
    use chunks::{Placed, Tree};
    use model::Contents;
    use store::memory::MemoryContainers;

    /// So many chunks, and for every hundred of them a recipe chunk.
    fn described(count: usize) -> Described {
        let name = ChunkName([0xff; CHUNK_NAME_BYTES]);
        let piece = Piece::Chunk { name, length: 1 << 20 };
        let pieces = vec![Placed { offset: u64::MAX / 2, piece }; count];
        let chunks = vec![(name, vec![0xff; 100 * 32]); count / 100];
        let tree = Tree { contents: Contents::EMPTY, chunks };
        Described { tree, pieces, features: Vec::new() }
    }

    #[test]
    fn what_is_cut_of_a_part_can_be_given_up_at_any_read() {
        const LENGTH: u64 = 4 << 20;
        let key = Key { file: 7, generation: 1 };
        let container = MemoryContainers::default().open(key, true).unwrap().unwrap();
        container.write(0, &vec![7; LENGTH as usize]).unwrap();
        let mut presence = Presence::new(1, NO_VERSION, sized(2 * LENGTH), 0);
        presence.add(0, LENGTH);
        let shelf = Shelf::default();
        let cut = |reads: usize| {
            let left = std::cell::Cell::new(reads);
            let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
            let (container, goes_on) = (&container, &goes_on as &dyn Fn() -> bool);
            let mut here = Here { container, presence: &presence, shelf: &shelf, goes_on };
            let (mut buffer, mut at) = (vec![0; 1 << 20], 0);
            while at < LENGTH {
                match here.read(at, &mut buffer) {
                    Ok(Found::Bytes(length)) => at += length as u64,
                    Ok(Found::Hole(length)) => at += length,
                    Err(error) => return Err(of_chunks(error)),
                }
            }
            Ok(())
        };
        assert!(matches!(cut(0), Err(Error::Changing)));
        assert!(matches!(cut(2), Err(Error::Changing)));
        assert!(cut(usize::MAX).is_ok());
    }

    #[test]
    fn what_a_version_adds_fits_into_its_record_however_many_chunks_it_is() {
        let some = described(10_000);
        let pieces =
            some.pieces.iter().map(|placed| (placed.offset, 1 << 20, some.tree.chunks[0].0));
        let recipe = some.tree.chunks.iter().map(|(_, bytes)| bytes.clone().into());
        let row = PartRow {
            generation: u32::MAX,
            number: u64::MAX,
            contents: some.tree.contents,
            pieces: pieces.collect(),
            recipe: recipe.collect(),
        };
        let bytes = row.record(FileId(u64::MAX)).encode().len();
        assert!(bytes <= part_bytes(&some) + 1024, "{bytes}");
        assert!(bytes > part_bytes(&some) - 20_000, "{bytes}");
        assert!(part_bytes(&described(1 << 19)) < PART_BYTES_MAX);
        assert!(part_bytes(&described(1 << 20)) > PART_BYTES_MAX);
    }
}
