//! Who makes versions of a container, or goes on from it, has it to himself.
//! Holds: what has been closed and opened again since somebody got hold of it has a lock of its own, and
//! maybe another container: whoever works by the earlier lock finds out, and leaves it alone.

use super::Grip;
use crate::client::Client;
use crate::types::{Error, Step, Stop};
use model::FileId;
use protocol::Upstream;
use std::sync::Arc;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is open, for who has no handle of it: it may be closed at any time.
    pub(crate) fn grip_of(&self, file: FileId, generation: u32) -> Option<Grip<C::Container>> {
        let files = self.files();
        let open = files.get(file, generation)?;
        Some(Grip {
            file,
            generation,
            container: open.container.clone(),
            still: open.still.clone(),
            opening: open.opening.clone(),
            left: open.left.clone(),
        })
    }

    /// The same as it is by now, for who has its lock. None: it was closed since he got hold of it. It was
    /// stored then, and whoever has opened it again goes by another lock, and stores it himself.
    pub(crate) fn still_open(&self, grip: &Grip<C::Container>) -> Option<Grip<C::Container>> {
        let now = self.grip_of(grip.file, grip.generation)?;
        Arc::ptr_eq(&now.still, &grip.still).then_some(now)
    }

    /// What storing it comes to for who does not mind that it was closed meanwhile.
    pub(crate) fn unless_closed<T>(
        &self,
        grip: &Grip<C::Container>,
        outcome: Step<Option<T>>,
    ) -> Step<Option<T>> {
        match outcome {
            Err(Stop::Error(Error::BadHandle)) if self.still_open(grip).is_none() => Ok(None),
            outcome => outcome,
        }
    }
}
