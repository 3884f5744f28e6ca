//! Removals, while what is pending before them has no room above: they are
//! what makes room, and are taken ahead of their turn.
//! Holds: nothing that is pending before them is about what they remove; they keep their numbers,
//! under which the replica above knows them should they come again in their turn.

use crate::client::Client;
use crate::parcel::Parcel;
use crate::replay_log::{Sending, Setback};
use crate::types::Error;
use crate::undo::of_log;
use model::{Change, FileId, Name, Update};
use protocol::Upstream;
use store::Containers;

/// Pending updates among which removals are looked for.
const LOOKED_AT_MAX: usize = 4096;
/// Removals that are sent before what is pending is looked at again.
const REMOVALS_MAX: usize = 256;

/// A name that goes.
struct Removal<'a> {
    parent: FileId,
    name: &'a Name,
    file: FileId,
}

impl<'a> Removal<'a> {
    fn of(update: &'a Update) -> Option<Removal<'a>> {
        match &update.change {
            Change::Unlink { parent, name, file } => {
                Some(Removal { parent: *parent, name, file: *file })
            }
            _ => None,
        }
    }

    /// Whether it may be done before that, and both be as they would have been.
    fn is_free_of(&self, before: &Update) -> bool {
        let is_ours = |file: &FileId| *file == self.file || *file == self.parent;
        let meets = |parent: &FileId, name: &Name| {
            *parent == self.file || (*parent == self.parent && name == self.name)
        };
        match &before.change {
            Change::Make { parent, name, file, .. }
            | Change::Link { parent, name, file, .. }
            | Change::Unlink { parent, name, file } => !is_ours(file) && !meets(parent, name),
            Change::Rename { from, from_name, to, to_name, file, over, .. } => {
                let files = [Some(file), over.as_ref()];
                !files.into_iter().flatten().any(is_ours)
                    && !meets(from, from_name)
                    && !meets(to, to_name)
            }
            Change::Store { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetXattr { file, .. }
            | Change::RemoveXattr { file, .. } => !is_ours(file),
        }
    }
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
        let is_next = |at: usize| {
            let update = &pending[at];
            let is_free = |removal: Removal<'_>| {
                pending[..at].iter().all(|before| removal.is_free_of(before))
            };
            Removal::of(update).is_some_and(is_free)
        };
        let Some(at) = (0..pending.len()).find(|at| is_next(*at)) else { return Ok(None) };
        let updates = vec![pending[at].clone()];
        let number = updates[0].stamp.number;
        let strict = core.waiters.is_awaited(number);
        core.sent_ahead(&updates);
        Ok(Some(Sending {
            updates,
            eager: Parcel::default(),
            strict,
            settled: core.meta.settled,
            sync_first: true,
            seek: None,
            withheld: Vec::new(),
            ahead: true,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, ReplicaId, Stamp, Time};

    fn update(change: Change) -> Update {
        let (stamp, at) = (Stamp::new(ReplicaId(1), 1), Time { secs: 0, nanos: 0 });
        Update { stamp, uid: 0, at, change }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn unlink(parent: u64, text: &str, file: u64) -> Update {
        let (parent, file) = (FileId(parent), FileId(file));
        update(Change::Unlink { parent, name: name(text), file })
    }

    fn store(file: u64) -> Update {
        let (expects, contents) = (Stamp::default(), Contents::EMPTY);
        let mtime = Time { secs: 0, nanos: 0 };
        update(Change::Store { file: FileId(file), expects, contents, mtime })
    }

    #[test]
    fn a_removal_goes_before_what_is_about_something_else() {
        let is_free =
            |removal: &Update, before: &Update| Removal::of(removal).unwrap().is_free_of(before);
        let removal = unlink(1, "x", 5);
        assert!(is_free(&removal, &store(6)));
        assert!(is_free(&removal, &unlink(1, "y", 6)));
        assert!(!is_free(&removal, &store(5)), "it is written to");
        assert!(!is_free(&removal, &store(1)));
        assert!(!is_free(&removal, &unlink(1, "x", 6)), "the name was another's");
        assert!(!is_free(&removal, &unlink(2, "z", 5)), "another name of it");
        assert!(!is_free(&removal, &unlink(5, "z", 6)), "it was in it");
        assert!(Removal::of(&store(5)).is_none());
    }
}
