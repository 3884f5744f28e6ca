//! As what a client opens a file: what it may show then.

use super::actor::Actor;
use crate::machine::SimClient;
use client::Consistency;
use model::FileId;
use protocol::{Mode, ModeChange};
use std::collections::BTreeSet;

/// Before an open.
pub(super) struct Stance {
    pub mode: Mode,
    changes: Vec<ModeChange>,
    /// Of these something is pending. None: that is not known.
    pending: Option<BTreeSet<u64>>,
    /// The saves that connected writers had closed.
    pub closed: Vec<usize>,
}

impl Stance {
    pub fn of(actor: &Actor, client: &SimClient) -> Stance {
        let status = client.status();
        let pending = client.pending_log(None, usize::MAX).ok();
        let files = |log: client::PendingLog| log.files.iter().map(|file| file.file).collect();
        Stance {
            mode: status.mode,
            changes: status.mode_changes,
            pending: pending.map(files),
            closed: actor.board.closed_by_now(),
        }
    }

    /// From then on until now what was cached counted under a callback alone.
    pub fn validated(&self, client: &SimClient) -> bool {
        let status = client.status();
        let validates = matches!(self.mode, Mode::Connected | Mode::Partial);
        validates && status.mode == self.mode && status.mode_changes == self.changes
    }

    /// Nothing of the file's was pending, which may hide what others did, and its policy asks for
    /// what is current.
    pub fn is_strict(&self, client: &SimClient, file: FileId) -> bool {
        let is_pending = self.pending.as_ref().is_none_or(|files| files.contains(&file.0));
        let policy = client.policy_of(file).ok().and_then(|policy| policy.consistency);
        !is_pending && policy == Some(Consistency::Strict)
    }
}
