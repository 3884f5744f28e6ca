//! Attaching to the replica above: who this client is, what it was told, and what it missed.
//! Holds: nothing of an attach is taken in before it is sure that the replica above is the one that it was;
//! what is named with the volume's secret and the replica id is named after these are on the disk.
//! From: AFS callbacks; DESIGN, "The client".

use crate::asking::unexpected;
use crate::client::Client;
use crate::meta::Taken;
use crate::types::Error;
use model::Seq;
use protocol::{
    Attach, Attached, Class, FILES_CLAIMED_MAX, Life, Patience, Refusal, Request, Response, Run,
    States, Unreachable, Upstream,
};
use store::Containers;
use world::OuterMoment;

/// What is said with an attach besides what has changed: which updates are part of what is said, of what they
/// touched, and the runs of which the last one covers it.
pub(super) struct Beginning {
    pub taken: Taken,
    pub said: States,
    pub runs: Option<Vec<Run>>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(super) async fn attach(&self) -> Result<(), Error> {
        let sent = self.inner.world.clock.outer_moment();
        let claims = self.locks().claims(FILES_CLAIMED_MAX);
        let overtaken = self.connection().overtaken;
        let (life, heard) = (self.life_to_attach_by(), self.heard()?);
        let request = {
            let core = self.core();
            Attach {
                replica: core.meta.replica.filter(|_| !overtaken),
                made: core.log.last_number(),
                seen: core.meta.seen,
                locks: (!claims.is_empty()).then(|| claims.clone()),
                life,
                heard,
            }
        };
        let answer = self.inner.upstream.ask(Class::Interactive, Request::Attach(request)).await;
        match answer {
            Ok(Response::Attached(attached)) => {
                self.is_as_it_was(&attached).await?;
                self.ask_of_lost(&attached).await?;
                let said = self.said_of_taken(&attached).await?;
                self.locks().attached(&claims, attached.locks_lost.as_deref().unwrap_or_default());
                self.take_attached(attached, said, sent, life)
            }
            Ok(Response::Refused(Refusal::NoVolume)) => {
                let text = Refusal::NoVolume.to_string();
                self.connection().trouble = Some(Unreachable::TurnedAway(text.clone()));
                Err(Error::Unreachable(text))
            }
            Ok(Response::Refused(refusal)) => Err(self.refused_session(&refusal)),
            Ok(other) => Err(unexpected("attach", &other)),
            Err(error) => Err(Error::Unreachable(error.to_string())),
        }
    }

    /// `said`: of what the updates touched that were taken and are pending.
    fn take_attached(
        &self,
        attached: Attached,
        said: States,
        sent: OuterMoment,
        life: Option<Life>,
    ) -> Result<(), Error> {
        let taken = self.taken_as_of(&attached);
        self.take_identity(&attached, life)?;
        {
            let mut core = self.core();
            // What was submitted and not taken is waiting again.
            core.log.returned_after(attached.taken);
            core.log.submitted(&taken.ahead);
            core.ahead.clear();
            core.unsure = 0;
            core.unsaved = true;
            self.ask_again_for_hidden(&mut core);
        }
        let beginning = Beginning { taken, said, runs: attached.runs };
        self.take_tail(attached.tail, Some(beginning))?;
        {
            let mut core = self.core();
            Self::recount(&mut core);
            // Of a server that was set back the position is a lower one.
            core.meta.allowance =
                core.meta.allowance.take().filter(|_| attached.allowance.is_some());
            if let Some(known) = &mut core.meta.allowance {
                known.upto = Seq::START;
            }
            self.take_allowance(&mut core, attached.allowance);
        }
        // The secret and the replica id must survive before anything is named with them.
        if !self.connection().volume_known {
            self.checkpoint_with_room()?;
        }
        {
            let mut connection = self.connection();
            connection.attached = true;
            connection.gathers = attached.gathers == Some(true);
            connection.assembles = attached.assembles == Some(true);
            connection.conflicts_listed = attached.conflicts;
            connection.looks_back = attached.looks_back == Some(true);
            connection.takes_ahead = attached.takes_ahead == Some(true);
            connection.takes_any_ahead = attached.takes_any_ahead == Some(true);
            connection.tells = attached.tells == Some(true);
            connection.heeds = attached.heeds == Some(true);
            (connection.patience, connection.owes_patience) = (Patience::default(), false);
            connection.leases_locks = Some(attached.locks_lost.is_some());
            connection.sessions += 1;
            (connection.tail_due, connection.overtaken) = (false, false);
            connection.volume_known = true;
            connection.down_since = None;
            connection.trouble = None;
            connection.begin_lease(attached.lease_secs, sent);
        }
        self.asked_for(attached.wanted, true);
        self.inner.mended.look();
        self.checkpoint_with_room()
    }
}
