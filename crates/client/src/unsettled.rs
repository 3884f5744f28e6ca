//! What the replica above has taken of this client's updates, and the client does not know yet
//! how: the answers were lost, or a crash has undone what they said.
//! Holds: once an update counts as taken, everything that it touched was said anew after it was
//! taken, so that what is known here contains it and it is never shown over that a second time.
//! From: DESIGN, "Updates": each exactly once.

use crate::asking::unexpected;
use crate::client::Client;
use crate::meta::Taken;
use crate::types::Error;
use crate::undo::of_log;
use model::{FileId, Name};
use protocol::{Attached, Class, NodeState, Request, Response, States, Upstream};
use std::collections::BTreeSet;
use store::Containers;
use update_log::{LogError, UpdateLog};
use volume::partial::Touched;

/// Keys of one question: with the most that a node can weigh, an answer still fits a message.
const KEYS_MAX: usize = 48;
/// Updates that are read at once.
const PAGE_UPDATES: usize = 256;

type Keys = (Vec<FileId>, Vec<(FileId, Name)>);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What of the updates is taken by now. What is listed and not pending here is done with.
    pub(crate) fn taken_as_of(&self, attached: &Attached) -> Taken {
        let core = self.core();
        let ahead = attached.ahead.iter().flatten().copied();
        let mut ahead: Vec<u64> = match core.meta.replica == Some(attached.replica) {
            true => ahead.filter(|number| core.log.is_pending(*number)).collect(),
            // Under another id nothing has been taken.
            false => Vec::new(),
        };
        ahead.sort_unstable();
        Taken { upto: Some(attached.taken), ahead }
    }

    /// What the replica above says of everything that pending updates touched which it has taken.
    /// The tail of an attach does not name all of that: what was seen before a crash may lie
    /// before it, and a tail that would be too long names nothing.
    pub(crate) async fn said_of_taken(&self, attached: &Attached) -> Result<States, Error> {
        let (nodes, entries) = {
            let core = self.core();
            // Under another id nothing has been taken.
            if core.meta.replica != Some(attached.replica) {
                return Ok(States::default());
            }
            let ahead = attached.ahead.as_deref().unwrap_or_default();
            touched_by(&core.log, attached.taken, ahead).map_err(of_log)?
        };
        let mut said = States::default();
        for nodes in nodes.chunks(KEYS_MAX) {
            self.add_said(nodes.to_vec(), Vec::new(), &mut said).await?;
        }
        for entries in entries.chunks(KEYS_MAX) {
            self.add_said(Vec::new(), entries.to_vec(), &mut said).await?;
        }
        Ok(said)
    }

    /// What the replica above says of files.
    pub(crate) async fn said_of(
        &self,
        files: impl Iterator<Item = FileId>,
    ) -> Result<Vec<NodeState>, Error> {
        let files: Vec<FileId> = files.collect();
        let mut said = States::default();
        for nodes in files.chunks(KEYS_MAX) {
            self.add_said(nodes.to_vec(), Vec::new(), &mut said).await?;
        }
        Ok(said.nodes)
    }

    async fn add_said(
        &self,
        nodes: Vec<FileId>,
        entries: Vec<(FileId, Name)>,
        said: &mut States,
    ) -> Result<(), Error> {
        let request = Request::Inspect { nodes, entries };
        match self.inner.upstream.ask(Class::Interactive, request).await {
            Ok(Response::Inspected(states)) => {
                said.nodes.extend(states.nodes);
                said.entries.extend(states.entries);
                Ok(())
            }
            Ok(Response::Refused(refusal)) => Err(self.refused_session(&refusal)),
            Ok(other) => Err(unexpected("inspect", &other)),
            Err(error) => Err(Error::Unreachable(error.to_string())),
        }
    }
}

/// What pending updates up to this one touched, and those beyond it.
fn touched_by(log: &UpdateLog, upto: u64, ahead: &[u64]) -> Result<Keys, LogError> {
    let (mut nodes, mut entries) = (BTreeSet::new(), BTreeSet::new());
    let mut from = 0;
    while log.numbers_from(from).next().is_some_and(|number| number <= upto) {
        let page = log.pending_from(from, PAGE_UPDATES)?;
        let Some(last) = page.last() else { break };
        from = last.stamp.number + 1;
        for update in page.iter().filter(|update| update.stamp.number <= upto) {
            let touched = Touched::by(update);
            nodes.extend(touched.nodes);
            entries.extend(touched.entries);
        }
    }
    for number in ahead {
        if let Some(update) = log.get(*number)? {
            let touched = Touched::by(&update);
            nodes.extend(touched.nodes);
            entries.extend(touched.entries);
        }
    }
    Ok((nodes.into_iter().collect(), entries.into_iter().collect()))
}
