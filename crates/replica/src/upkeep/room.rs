//! Makes room on a disk that is full: what came and is in no file, and what nothing needs any more,
//! goes as soon as somebody was refused for want of room.
//! Holds: what a client is still sending stays; whoever counts on anything else that went is told
//! that it is missing, and sends it again.

use super::collect::Collector;
use super::senders::Who;
use super::shortage::Shortage;
use super::{Counted, Freed, Promise};
use crate::error::Result;
use crate::origin::{Inner, Origin};
use protocol::{Refusal, Submitted};
use std::time::Duration;
use tracing::{debug, error, info};

impl Inner {
    /// Something had no room. What a program waited for is not sent any more: it was told.
    pub fn refused_for_room(&self, who: Who, waited_for: Option<bool>) {
        let now = self.world.clock.moment();
        let left = self.upkeep.promises.of_senders(|senders| senders.refused(who, waited_for, now));
        self.upkeep.shortage.left(left);
    }

    /// What a client sends from now on; if not `besides`, nothing else.
    pub fn sends_now(&self, who: Who, promise: &Promise, (waited_for, besides): (bool, bool)) {
        let now = self.world.clock.moment();
        let left = self.upkeep.promises.submitted(who, promise, (waited_for, besides), now);
        self.upkeep.shortage.left(left);
    }

    /// What became of what a client submitted with contents.
    pub fn note_answer(
        &self,
        who: Who,
        waited_for: bool,
        answer: &std::result::Result<Submitted, Refusal>,
    ) {
        match answer {
            Err(Refusal::NoSpace) => self.refused_for_room(who, Some(waited_for)),
            Ok(submitted) if submitted.missing.is_empty() => {
                self.upkeep.promises.of_senders(|senders| senders.stored(who));
            }
            _ => {}
        }
    }

    /// A client that was refused asks how much room there is.
    pub fn hears_of(&self, who: Who) {
        let now = self.world.clock.moment();
        self.upkeep.promises.of_senders(|senders| senders.heard(who, now));
    }

    pub(super) fn let_go_of_the_silent(&self) {
        let now = self.world.clock.moment();
        let left = self.upkeep.promises.of_senders(|senders| senders.forget_silent(now));
        self.upkeep.shortage.left(left);
    }
}

impl Origin {
    pub(super) async fn make_room(&self) {
        let (clock, shortage) = (&self.0.world.clock, &self.0.upkeep.shortage);
        loop {
            match shortage.due_in(clock.moment()) {
                None => shortage.news().await,
                Some(Duration::ZERO) => self.sweep(shortage).await,
                Some(wait) => {
                    clock.within(wait, shortage.news()).await;
                }
            }
        }
    }

    async fn sweep(&self, shortage: &Shortage) {
        let (clock, upkeep) = (&self.0.world.clock, &self.0.upkeep);
        // Others may take long with what nobody else may do beside.
        let alone = {
            let _wanted = Counted::by(&upkeep.wanted);
            upkeep.alone.clone().lock_owned().await
        };
        let began = clock.moment();
        shortage.sweep_begins();
        let swept = self.collect_for_room().await;
        drop(alone);
        let freed_some = match &swept {
            Ok(freed) => freed.deleted.chunks > 0 || freed.bytes_on_disk > 0,
            Err(_) => false,
        };
        shortage.sweep_ended((began, clock.moment()), freed_some);
        match swept {
            Ok(freed) if freed_some => info!(
                chunks_deleted = freed.deleted.chunks,
                bytes_on_disk = freed.bytes_on_disk,
                "something had no room, and what nothing needs was given back"
            ),
            Ok(_) => debug!("something had no room, and there is nothing to give back"),
            Err(error) if error.is_full() => debug!(%error, "there is no room to make some"),
            Err(error) => error!(%error, "no room could be made; the store is whole all the same"),
        }
    }

    /// As fast as it goes: somebody waits for room.
    async fn collect_for_room(&self) -> Result<Freed> {
        self.run_through(Collector::for_room(self.0.clone())).await
    }
}
