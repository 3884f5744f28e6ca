//! The container of a file that is about to be made, and opened with that.
//! Holds: there is no file without one, and none stays of a file that was not made.

use super::Files;
use crate::client::Client;
use crate::presence::Presence;
use model::{Change, Contents, Update};
use protocol::Upstream;
use store::container::Key;
use store::{Container, Containers, Result as StoreResult, Write};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The container of a file that is about to be made, and noted as its version.
    pub(crate) fn prepare_container(
        &self,
        write: &mut dyn Write,
        made: &Update,
    ) -> StoreResult<(Key, C::Container)> {
        let Change::Make { file, .. } = made.change else {
            unreachable!("only what makes a file has it prepared")
        };
        let row = Presence::load(&*write, file)?;
        let generation = row.map_or(0, |row| row.generation.wrapping_add(1));
        let key = Key { file: file.0, generation };
        let container = self.fresh_container(key, 0)?;
        let used = self.inner.world.clock.time().secs;
        let presence = Presence::new(generation, made.stamp, Contents::EMPTY, used);
        presence.save(write, file)?;
        Ok((key, container))
    }

    /// The file was not made after all.
    pub(crate) fn remove_prepared(&self, container: Option<Key>) {
        let Some(key) = container else { return };
        if let Err(error) = self.inner.containers.remove(key) {
            tracing::debug!(%error, "a container that is not needed could not be removed");
        }
    }

    /// One that is there, as it was prepared if it was for this.
    pub(super) fn container_there(
        &self,
        files: &mut Files<C::Container>,
        key: Key,
    ) -> StoreResult<Option<C::Container>> {
        match files.prepared.take().filter(|(prepared, _)| *prepared == key) {
            // Unless somebody was faster, and has let go of it again.
            Some((_, container)) if container.is_kept()? => Ok(Some(container)),
            _ => self.inner.containers.open(key, false),
        }
    }
}
