//! Removals, while what is pending before them has no room above: they are
//! what makes room, and are taken ahead of their turn.
//! Holds: nothing that is pending before them is about what they remove; they keep their numbers,
//! under which the replica above knows them should they come again in their turn.

use crate::client::Client;
use crate::parcel::Parcel;
use crate::replay_log::{Sending, Setback};
use crate::types::Error;
use crate::undo::of_log;
use model::{Change, Update};
use protocol::Upstream;
use replay::Held;
use store::Containers;

/// Pending updates among which removals are looked for.
const LOOKED_AT_MAX: usize = 4096;
/// Removals that are sent before what is pending is looked at again.
const REMOVALS_MAX: usize = 256;

/// The first that removes a name, and may be done before all that is pending before it.
fn next_of(pending: &[Update]) -> Option<&Update> {
    let mut held = Held::default();
    pending.iter().find(|update| {
        let is_next = matches!(update.change, Change::Unlink { .. }) && held.lets(update);
        // There is no room for what a program has made sure of, so that this need not wait for it.
        held.hold(update, None);
        is_next
    })
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Sends the removals, as far as they may be done now. What is not taken is turned away with the
    /// rest.
    pub(crate) async fn send_removals(&self) {
        for _ in 0..REMOVALS_MAX {
            match self.send_removal().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(setback) => {
                    if let Setback::Failed(error) = setback {
                        tracing::debug!(%error, "a removal was not taken ahead of its turn");
                    }
                    return;
                }
            }
        }
    }

    /// False: there is none.
    async fn send_removal(&self) -> Result<bool, Setback> {
        let Some(sending) = self.next_removal()? else { return Ok(false) };
        match self.send_ahead(sending).await?.is_empty() {
            true => Ok(true),
            false => Err(Error::Failed("the server did not judge a removal".into()).into()),
        }
    }

    fn next_removal(&self) -> Result<Option<Sending>, Error> {
        if !self.connection().takes_ahead {
            return Ok(None);
        }
        let mut core = self.core();
        let pending = core.log.pending_from(0, LOOKED_AT_MAX).map_err(of_log)?;
        let Some(update) = next_of(&pending) else { return Ok(None) };
        let strict = core.waiters.is_awaited(update.stamp.number);
        Ok(Some(core.sending_ahead(vec![update.clone()], Parcel::default(), strict)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, FileId, Name, ReplicaId, Stamp, Time};

    fn update(change: Change) -> Update {
        let (stamp, at) = (Stamp::new(ReplicaId(1), 1), Time { secs: 0, nanos: 0 });
        Update { stamp, uid: 0, at, change }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn unlink(parent: u64, text: &str, file: u64) -> Update {
        let (parent, file) = (FileId(parent), FileId(file));
        update(Change::Unlink { parent, name: name(text), file, expects: None })
    }

    fn store(file: u64) -> Update {
        let (expects, contents) = (Stamp::default(), Contents::EMPTY);
        let mtime = Time { secs: 0, nanos: 0 };
        update(Change::Store { file: FileId(file), expects, contents, mtime })
    }

    #[test]
    fn a_removal_goes_before_what_is_about_something_else() {
        let is_free = |removal: &Update, before: &Update| {
            let mut held = Held::default();
            held.hold(before, None);
            held.lets(removal)
        };
        let removal = unlink(1, "x", 5);
        assert!(is_free(&removal, &store(6)));
        assert!(is_free(&removal, &unlink(1, "y", 6)));
        assert!(!is_free(&removal, &store(5)), "it is written to");
        assert!(!is_free(&removal, &store(1)));
        assert!(!is_free(&removal, &unlink(1, "x", 6)), "the name was another's");
        assert!(!is_free(&removal, &unlink(2, "z", 5)), "another name of it");
        assert!(!is_free(&removal, &unlink(5, "z", 6)), "it was in it");
        assert_eq!(next_of(&[store(5)]), None);
        assert_eq!(next_of(&[store(5), removal]), None);
        let (behind, other) = (unlink(1, "x", 5), unlink(1, "y", 6));
        assert_eq!(next_of(&[store(5), behind, other.clone()]), Some(&other));
    }
}
