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
use model::{Change, ChunkName, Contents, FileId, Piece, Update};
use protocol::{Class, Range as Stretch, Request, Upstream};
use std::ops::Range;
use store::container::Key;
use store::{Container, Containers, Read, StoreError};

/// Chunks that are cut anew for one version. With more all of the file is fetched.
const PIECES_MAX: usize = 1 << 16;
/// Bytes that are searched at once for the end of a hole.
const HOLE_STEP_BYTES: u64 = 64 << 20;

/// A container, as far as it is the file.
struct Here<'a, K> {
    container: &'a K,
    presence: &'a Presence,
    shelf: &'a Shelf,
}

impl<K: Container> PartOf<ChunksError> for Here<'_, K> {
    fn recipe(&self, name: &ChunkName) -> Option<Vec<u8>> {
        self.shelf.get(name)
    }

    fn here_until(&self, offset: u64) -> u64 {
        self.presence.here_until(offset)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Found, ChunksError> {
        let upto = self.presence.here_until(offset).min(self.container.length()?);
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
        let mut here = Here { container: &grip.container, presence: &presence, shelf: &shelf };
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
        if described.pieces.len() > PIECES_MAX {
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

    /// The plan of a pending store that rests on a ground; none if it does not.
    pub(crate) fn plan_of_part(&self, update: &Update) -> Result<Option<Plan>, Error> {
        let Change::Store { file, contents, .. } = &update.change else { return Ok(None) };
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            PartRow::load(&*read, *file, update.stamp.number, contents).map_err(error_of)?
        };
        let secret = self.secret().0;
        Ok(row.map(|row| {
            let recipe = row.recipe.iter().map(|bytes| (secret.name(bytes), bytes.to_vec()));
            let data = row.pieces.iter().filter_map(|(offset, length, name)| {
                Some((*name, (*offset, u32::try_from(*length).ok()?)))
            });
            let mut plan = Plan::empty(*file, row.generation);
            (plan.recipe, plan.data) = (recipe.collect(), data.collect());
            plan
        }))
    }

    /// After a crash: whether the container still holds what a store is said to add to its ground.
    /// None: the store rests on none.
    pub(crate) fn holds_part(
        &self,
        read: &dyn Read,
        (file, number, contents): (FileId, u64, &Contents),
        secret: &Secret,
    ) -> Result<Option<bool>, StoreError> {
        let Some(row) = PartRow::load(read, file, number, contents)? else { return Ok(None) };
        let key = Key { file: file.0, generation: row.generation };
        let Some(container) = self.inner.containers.open(key, false)? else {
            return Ok(Some(false));
        };
        if container.length()? < contents.size {
            return Ok(Some(false));
        }
        for (offset, length, name) in &row.pieces {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let bytes = container.read(*offset, length)?;
            if secret.check(name, &bytes).is_err() {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    /// The replica above lacks chunks for a store that rests on a ground, and they are nowhere
    /// here. False: no store that rests on one is among these.
    pub(crate) async fn ground_is_lacking(&self, updates: &[Update]) -> Result<bool, Setback> {
        let Some(update) = updates.iter().find(|one| matches!(one.change, Change::Store { .. }))
        else {
            return Ok(false);
        };
        let Change::Store { file, contents, .. } = update.change else { return Ok(false) };
        let ground = {
            let read = self.inner.tables.read().map_err(error_of)?;
            let part = PartRow::load(&*read, file, update.stamp.number, &contents);
            let row = Presence::load(&*read, file).map_err(error_of)?;
            match part.map_err(error_of)? {
                Some(_) => row.filter(|row| row.version == update.stamp).and_then(|row| row.ground),
                None => return Ok(false),
            }
        };
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
