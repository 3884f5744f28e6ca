//! Which containers the versions of a file have: the newer a version came here, the higher its number.
//! Holds: no version gets a container that is there: it may be what is pending, though no row says so.

use super::Files;
use crate::client::{Client, failed};
use crate::presence::Presence;
use crate::types::Step;
use model::FileId;
use protocol::{Objection, Upstream};
use store::container::Key;
use store::{Container, Containers, Result as StoreResult};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The next number after `last` that no container of the file bears.
    pub(super) fn free_generation(&self, file: FileId, last: Option<u32>) -> StoreResult<u32> {
        let mut generation = last.map_or(0, |last| last.wrapping_add(1));
        while self.inner.containers.open(Key { file: file.0, generation }, false)?.is_some() {
            generation = generation.wrapping_add(1);
        }
        Ok(generation)
    }

    /// The version that is current has a lower number than one that somebody has open: it was stored through
    /// what was opened before that had come. Nobody has it open any more, and it gets a higher one. None: not
    /// all of it is here.
    pub(super) fn moved_up(
        &self,
        files: &mut Files<C::Container>,
        file: FileId,
        row: &Presence,
    ) -> Step<Option<(C::Container, Presence)>> {
        if row.ground.is_some() {
            // What it rests on goes by its number, and who opens it waits until it was sent.
            return Err(Objection::Changed.into());
        }
        let key = |generation| Key { file: file.0, generation };
        let there = self.inner.containers.open(key(row.generation), false).map_err(failed)?;
        let Some(container) = there.filter(|_| row.is_whole()) else { return Ok(None) };
        if container.length().map_err(failed)? < row.contents.size {
            return Ok(None);
        }
        // By its new number nobody would sync it.
        container.sync().map_err(failed)?;
        let last = Some(row.generation).max(files.last_generation(file));
        let generation = self.free_generation(file, last).map_err(failed)?;
        let (from, to) = (key(row.generation), key(generation));
        if !self.inner.containers.rename(from, to).map_err(failed)? {
            return Ok(None);
        }
        let moved = Presence { generation, ..row.clone() };
        if let Err(error) = self.save(&moved, file) {
            self.inner.containers.rename(to, from).map_err(failed)?;
            return Err(failed(error));
        }
        files.is_lent_as(file, (row.generation, generation));
        let container = self.inner.containers.open(to, false).map_err(failed)?;
        Ok(container.map(|container| (container, moved)))
    }
}
