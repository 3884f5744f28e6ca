//! Earlier states: finding snapshots, and asking the replica above for what it keeps.
//! Holds: nothing that a snapshot shows is changed; where snapshots are found nothing is made.

use crate::asking::unexpected;
use crate::client::Client;
use crate::types::{Error, Step};
use model::{Change, FileId, Name, Update, View, control_name};
use protocol::past::{Found, Past, SnapshotInfo};
use protocol::{Class, Objection, Request, Response, Upstream};
use std::time::Duration;
use store::Containers;
use volume::partial::{Missing, Tree};

/// How often something is asked again of which the link was lost before the answer came.
const TRIES_MAX: usize = 4;
/// A tree of many files is much work for the replica above.
const RESTORED_WITHIN: Duration = Duration::from_secs(9 * 60);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What the replica above says of earlier states, or does about them.
    pub async fn look_back(&self, past: Past) -> Result<Found, Error> {
        let mut leaves = None;
        if let Past::Forget { name, .. } = &past {
            leaves = self
                .snapshots()
                .await?
                .into_iter()
                .find(|one| one.name.as_bytes() == name.as_bytes());
        }
        for _ in 0..TRIES_MAX {
            match self.look_back_once(&past).await {
                Err(Error::Retry) => {}
                outcome => return outcome,
            }
            // Its number is never given again: one that took the name since is another.
            if let Some(left) = &leaves
                && !self.snapshots().await?.iter().any(|one| one.number == left.number)
            {
                return Ok(Found::Snapshot(left.clone()));
            }
        }
        Err(Error::Retry)
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        for _ in 0..TRIES_MAX {
            match self.look_back_once(&Past::Snapshots).await {
                Ok(Found::Snapshots(all)) => return Ok(all),
                Ok(other) => return Err(unexpected("looking back", &Response::Past(other))),
                Err(Error::Retry) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Retry)
    }

    async fn look_back_once(&self, past: &Past) -> Result<Found, Error> {
        self.attached().await?;
        if !self.connection().looks_back {
            return Err(Error::NotSupported(
                "the server is an older one, which knows no snapshots",
            ));
        }
        let request = Request::Past(past.clone());
        let asked = match past {
            Past::Restore(_) => self.ask_within(Class::Interactive, request, RESTORED_WITHIN).await,
            _ => self.ask(Class::Interactive, request).await,
        };
        match asked? {
            Response::Past(found) => {
                self.note_told(past, &found)?;
                Ok(found)
            }
            other => Err(unexpected("looking back", &other)),
        }
    }

    /// The name by which snapshots are found is not taken away, nor is anything put in its place;
    /// unless the volume has a file of that name, which an older program has made.
    pub(crate) fn may_move(&self, directory: FileId, name: &Name) -> Step<()> {
        match leads_back(directory, name)
            && self.view(|tree| tree.entry(directory, name))?.is_none()
        {
            true => Err(Objection::ReadOnly.into()),
            false => Ok(()),
        }
    }
}

/// Whether this is the name by which snapshots are found.
fn leads_back(directory: FileId, name: &Name) -> bool {
    directory == FileId::ROOT && *name == control_name()
}

/// What a name leads to, the one by which snapshots are found too, which no listing shows.
pub(crate) fn entry_or_past(
    tree: &Tree<'_>,
    directory: FileId,
    name: &Name,
) -> Result<Option<FileId>, Missing> {
    let control = leads_back(directory, name).then_some(FileId::CONTROL);
    Ok(tree.entry(directory, name)?.or(control))
}

/// What is against an update, whatever it finds: it touches what a snapshot shows, or makes what
/// would hide the snapshots.
pub(crate) fn objection(update: &Update, tree: &Tree<'_>) -> Result<Option<Objection>, Missing> {
    if update.touches().into_iter().any(FileId::is_past) {
        return Ok(Some(Objection::ReadOnly));
    }
    let (Change::Make { parent: to, name, .. }
    | Change::Link { parent: to, name, .. }
    | Change::Rename { to, to_name: name, .. }) = &update.change
    else {
        return Ok(None);
    };
    let hides = leads_back(*to, name) && tree.entry(*to, name)?.is_none();
    Ok(hides.then_some(Objection::Exists))
}
