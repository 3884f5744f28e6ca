//! Who this client is: of two that begin with copies of one state, each comes to be one of its own.
//! Holds: what is attached by is on the disk before, so that a start after a crash goes on from it.

use crate::client::Client;
use crate::meta::Meta;
use crate::types::Error;
use minicbor::{Decode, Encode};
use protocol::{Attached, Life, Upstream};
use store::{Containers, Read, StoreError};
use world::{Entropy, World};

/// A number of its own for each time that this client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Drawn {
    #[n(0)]
    pub life: Life,
    /// The client was attached by it.
    #[n(1)]
    pub used: bool,
}

impl Drawn {
    /// One that was never answered for may have arrived all the same, and is used again.
    pub fn next(last: Option<Drawn>, entropy: &Entropy) -> Drawn {
        match last {
            Some(unused @ Drawn { used: false, .. }) => unused,
            last => {
                let mut bytes = [0; 8];
                entropy.fill(&mut bytes);
                let before = last.map(|last| last.life.now);
                Drawn { life: Life { now: u64::from_le_bytes(bytes), before }, used: false }
            }
        }
    }
}

/// What is kept of a client, with a life of its own.
pub(crate) fn begun(read: &dyn Read, world: &World) -> Result<Meta, StoreError> {
    let kept = Meta::load(read)?;
    Ok(Meta { life: Some(Drawn::next(kept.life, &world.entropy)), ..kept })
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What tells this client from a copy of its state is on the disk before it is used. None: there
    /// is no room for it.
    pub(crate) fn life_to_attach_by(&self) -> Option<Life> {
        let drawn = self.core().meta.life?;
        if !drawn.used
            && !self.connection().life_kept
            && let Err(error) = self.checkpoint_with_room()
        {
            tracing::warn!(%error, "of a copy of this state it could not be told apart");
            return None;
        }
        self.connection().life_kept = true;
        Some(drawn.life)
    }

    /// `life`: by which it was asked for.
    pub(crate) fn take_identity(
        &self,
        attached: &Attached,
        life: Option<Life>,
    ) -> Result<(), Error> {
        let mut core = self.core();
        let before = core.meta.replica;
        let is_another = before.is_some_and(|before| before != attached.replica);
        if is_another {
            drop(core);
            core = self.with_nothing_open_of_what_is_renamed()?;
        }
        core.meta.replica = Some(attached.replica);
        core.meta.secret = attached.secret;
        core.meta.cutter = attached.cutter;
        core.meta.access = attached.access;
        if is_another {
            tracing::warn!(
                replica = %attached.replica,
                pending = core.log.pending_len(),
                "this client was set back, or a copy of it is in use: what is pending is renumbered"
            );
            // If that fails, it is tried again with the next session.
            self.renumber(&mut core, attached.replica)
                .inspect_err(|_| core.meta.replica = before)?;
        }
        if let Some(drawn) = core.meta.life.as_mut().filter(|drawn| Some(drawn.life) == life) {
            drawn.used = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_that_was_used_is_gone_on_from_and_one_that_was_not_is_used_again() {
        let entropy = world::World::simulated(0, 1).entropy;
        let first = Drawn::next(None, &entropy);
        assert_eq!(first.life.before, None);
        assert_eq!(Drawn::next(Some(first), &entropy), first);
        let second = Drawn::next(Some(Drawn { used: true, ..first }), &entropy);
        assert_eq!(second.life.before, Some(first.life.now));
        assert!(!second.used && second.life.now != first.life.now);
        // Its answer may be lost, or a start comes before that is written down.
        assert!(second.life.goes_on_from(first.life.now));
        assert!(second.life.goes_on_from(second.life.now));
        let copy = Drawn::next(Some(Drawn { used: true, ..first }), &entropy);
        assert!(!copy.life.goes_on_from(second.life.now), "of the same state");
    }
}
