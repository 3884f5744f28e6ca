//! Versions that are fetched before they show, beside the one that does.
//! Holds: nobody opens such a version before it shows; when it does, whoever opens the file next
//! gets it with all that is here of it by then.

use super::{Files, HandleState, Held, OpenFile};
use crate::client::{Client, error_of, failed};
use crate::presence::Presence;
use crate::types::{Error, Step, Stop};
use model::{FileId, Node, Stamp};
use protocol::Upstream;
use store::Containers;

impl<K> Files<K> {
    /// The last that is open, whether or not it shows.
    pub(super) fn last_generation(&self, file: FileId) -> Option<u32> {
        let versions = self.open.range((file, 0)..=(file, u32::MAX));
        versions.map(|((_, generation), _)| *generation).next_back()
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Begins to fetch a version that does not show yet. None: somebody is writing to the file, or
    /// it is fetched already.
    pub(crate) fn begin_beside(
        &self,
        file: FileId,
        node: &Node,
    ) -> Result<Option<Held<'_, U, C>>, Error> {
        let mut files = self.files();
        let busy = |open: &OpenFile<C::Container>| open.beside || !open.is_clean();
        if files.all_generations(file).any(busy) {
            return Ok(None);
        }
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Presence::load(&*read, file).map_err(error_of)?
        };
        let last = row.map(|row| row.generation).max(files.last_generation(file));
        let generation = self.free_generation(file, last).map_err(error_of)?;
        let (container, presence) = match self.new_container(file, generation, node) {
            Ok(made) => made,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Need(_)) => return Ok(None),
        };
        let open = OpenFile { beside: true, ..OpenFile::new(container, presence) };
        files.open.insert((file, generation), open);
        let handle = files.add_handle(HandleState::of_fetch(file, generation));
        Ok(Some(Held { client: self, handle }))
    }

    /// The version shows from now on: what was fetched of it is what is here.
    pub(super) fn take_beside(
        &self,
        files: &mut Files<C::Container>,
        file: FileId,
        version: Stamp,
    ) -> Step<Option<u32>> {
        let fits = |open: &OpenFile<C::Container>| open.beside && open.presence.version == version;
        let mut versions = files.open.range((file, 0)..=(file, u32::MAX));
        let Some((&(_, generation), open)) = versions.find(|(_, open)| fits(open)) else {
            return Ok(None);
        };
        let presence = open.presence.clone();
        let row =
            Presence::load(&*self.inner.tables.read().map_err(failed)?, file).map_err(failed)?;
        self.save(&presence, file).map_err(failed)?;
        if let Some(open) = files.open.get_mut(&(file, generation)) {
            open.beside = false;
        }
        files.left = row.filter(|row| row.version != version).map(|row| (file, row));
        Ok(Some(generation))
    }
}
