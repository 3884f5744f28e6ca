//! Chunks of very large files: of those that a plan has not at hand the index says where they are.
//! Holds: what a file takes in memory does not go by how many chunks it has. Where the index is
//! wrong the file is read once more, when the plan is made again.

use crate::client::{Client, error_of};
use crate::contents::note_pieces;
use crate::plan::{Plan, describe_container_while};
use crate::types::Error;
use crate::votes::Votes;
use chunks::{ChunksError, Described, Growing, Placed, index};
use model::{ChunkName, Update};
use protocol::Upstream;
use store::container::Key;
use store::{Container, Containers, Durability};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Cuts and names a container, of which a part may have been. The index learns of the pieces
    /// that are too many to be kept in memory.
    pub(crate) fn describe_here(
        &self,
        key: Key,
        container: &C::Container,
        growing: Option<Growing>,
    ) -> Result<Described, ChunksError> {
        let (secret, cutter) = self.secret();
        let growing = growing.unwrap_or_else(|| Growing::new(&secret, cutter));
        let (size, most) = (container.length()?, self.inner.settings.plan_chunks_max);
        let goes_on = || !self.gives_way((model::FileId(key.file), key.generation));
        let beyond = |pieces: &[Placed]| self.note_beyond(key, pieces);
        describe_container_while(container, growing, (size, most), goes_on, beyond)
    }

    fn note_beyond(&self, key: Key, pieces: &[Placed]) -> Result<(), ChunksError> {
        let mut write = self.inner.tables.write()?;
        let file = model::FileId(key.file);
        note_pieces(&mut *write, (file, key.generation), pieces, &mut Votes::on(file))?;
        Ok(write.commit(Durability::Later)?)
    }

    /// Has the plans of these stores at hand what is to be sent of them next.
    pub(crate) fn look_up_missing(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
    ) -> Result<(), Error> {
        for update in updates {
            let number = update.stamp.number;
            let loan = {
                let mut core = self.core();
                match core.plans.get(number).is_some_and(Plan::is_part) {
                    true => core.plans.lend(number),
                    false => None,
                }
            };
            let Some(mut loan) = loan else { continue };
            loan.plan.forget_looked_up();
            let done = self.look_up_of(&mut loan.plan, missing);
            self.core().plans.give_back(loan);
            done?;
        }
        Ok(())
    }

    fn look_up_of(&self, plan: &mut Plan, missing: &[ChunkName]) -> Result<(), Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        for name in missing {
            if plan.recipe.contains_key(name) || plan.data.contains_key(name) {
                continue;
            }
            let places = index::find(&*read, name).map_err(error_of)?;
            let here = places
                .iter()
                .find(|place| place.file == plan.file && place.generation == plan.generation);
            if let Some(place) = here {
                plan.look_up(*name, place.offset, place.length);
            }
        }
        Ok(())
    }
}
