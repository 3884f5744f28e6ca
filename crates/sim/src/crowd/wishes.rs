//! What users ask of their own machine while they work: pins, policies, refreshes, pauses and delays, of
//! files of the shared part. None of it may change what becomes of the volume.

use super::actor::{Actor, Crashed};
use crate::machine::SimClient;
use crate::operation::{Operation, Outcome};
use client::{Consistency, Error};
use model::FileId;
use std::time::Duration;

/// Seconds for which a cached version is good enough.
const BOUND_SECS_MAX: u64 = 40;
/// Seconds for which an update stays at most.
const STAYS_SECS_MAX: u64 = 20;

impl Actor {
    /// One wish, of something that is found in the shared part.
    pub(super) async fn wish(&mut self) -> Result<(), String> {
        let client = self.client()?;
        let path = self.workload.path();
        let mut programs = std::mem::take(&mut self.shared);
        let stat = Operation::Stat { path };
        let looked = self.unless_crashed(&stat, programs.perform(&client, &stat)).await?;
        self.shared = programs;
        match looked {
            Err(Crashed) => self.recover(None).await,
            Ok(Outcome::Shown(shown)) => self.wish_of(&client, FileId(shown.file)),
            Ok(_) => Ok(()),
        }
    }

    fn wish_of(&self, client: &SimClient, file: FileId) -> Result<(), String> {
        let chance = &self.chance;
        let recursive = chance.below(2) == 0;
        let (what, outcome) = match chance.below(10) {
            0..2 => ("pins", client.pin(file, None, chance.below(3) as u32, recursive)),
            2 => ("unpins", client.unpin(file).map(drop)),
            3 => {
                let secs = chance.below(BOUND_SECS_MAX) as u32;
                ("bounds", client.set_consistency(file, None, Some(Consistency::Bounded(secs))))
            }
            4 => ("keeps", client.set_consistency(file, None, Some(Consistency::Manual))),
            5 => ("lets go of", client.set_consistency(file, None, None)),
            6 => ("refreshes", client.refresh(file, recursive).map(drop)),
            7 => ("pauses over", client.pause(true)),
            8 => {
                client.set_replay_delay(Some(Duration::from_secs(chance.below(STAYS_SECS_MAX))));
                ("waits over", Ok(()))
            }
            _ => ("goes on with", client.pause(false)),
        };
        self.room.trace.note(&self.machine.name, format_args!("{what} {file}: {outcome:?}"));
        self.room.tally.count(|tally| tally.wishes += 1);
        match outcome {
            Err(error) if self.is_amiss(&error) => {
                Err(format!("{} {what} {file}: {error}", self.machine.name))
            }
            _ => Ok(()),
        }
    }

    /// What a machine with room on its disk that goes on running does not say.
    fn is_amiss(&self, error: &Error) -> bool {
        matches!(error, Error::Failed(_)) && !self.machine.has_crashed()
    }

    /// At the end everybody wants what is current, and sends what there is.
    pub(super) fn wishes_no_more(&self) -> Result<(), String> {
        let failed = |error: Error| format!("{}: {error}", self.machine.name);
        let client = self.client()?;
        client.pause(false).map_err(failed)?;
        client.set_replay_delay(None);
        for policy in client.policy_report().map_err(failed)?.policies {
            client.set_consistency(FileId(policy.file), None, None).map_err(failed)?;
        }
        Ok(())
    }
}
