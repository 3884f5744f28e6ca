//! Whether a client has a volume for itself.
//! Holds: a client was told so only while nobody else was coming or held a lease; before anybody
//! else is attached, has its lease renewed, or changes anything, it has acknowledged that it is
//! alone no more, unless it is late.
//! From: the leases of whole files of Gray and Cheriton (1989), here of a whole volume.

use super::{Holders, Place};
use crate::callbacks::level::Watcher;
use crate::volumes::Volume;
use model::ReplicaId;
use world::Moment;

/// A client that is about to use the volume, until this is dropped.
pub(crate) struct Coming<'a> {
    volume: &'a Volume,
}

impl<'a> Coming<'a> {
    /// `as_before`: the id that the client had. Gives whoever has to hear of it first.
    pub fn begin(volume: &'a Volume, as_before: Option<ReplicaId>) -> (Coming<'a>, Vec<Company>) {
        let told = volume.holders().somebody_comes(as_before);
        (Coming { volume }, told)
    }

    /// A client that is attached and asks for something. None: its lease holds, so that everybody
    /// counts with it.
    pub fn stirs(
        volume: &'a Volume,
        replica: ReplicaId,
        now: Moment,
    ) -> Option<(Coming<'a>, Vec<Company>)> {
        let mut holders = volume.holders();
        let holder = holders.by_replica.get(&replica);
        if holder.is_some_and(|holder| holder.lease_end > now) {
            return None;
        }
        let told = holders.somebody_comes(Some(replica));
        drop(holders);
        Some((Coming { volume }, told))
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut holders = self.volume.holders();
        holders.coming = holders.coming.saturating_sub(1);
    }
}

/// One who was alone, and is told that it is not any more.
#[derive(Debug)]
pub(crate) struct Company {
    replica: ReplicaId,
    alone: Watcher<bool>,
}

impl Company {
    /// Ready when it has acknowledged that, or goes by nothing it was told.
    pub async fn noticed(&self) {
        self.alone.until(|alone| !alone).await;
    }
}

impl Holders {
    fn somebody_comes(&mut self, as_before: Option<ReplicaId>) -> Vec<Company> {
        self.coming += 1;
        let mut told = Vec::new();
        for (replica, holder) in &mut self.by_replica {
            if as_before != Some(*replica) && holder.alone.is(|alone| *alone) {
                told.push(Company { replica: *replica, alone: holder.alone.watch() });
                holder.tell_alone(false);
            }
        }
        told
    }

    /// Tells the only client that there is that it has the volume for itself.
    pub fn look_for_one_alone(&mut self, now: Moment) {
        if self.coming > 0 || !self.expected.is_empty() {
            return;
        }
        // Whose lease is over asks for another one before it goes by anything it was shown.
        let mut there = self.by_replica.values_mut().filter(|holder| holder.lease_end > now);
        if let (Some(only), None) = (there.next(), there.next())
            && only.session.is_some()
            // Who has kept others waiting is not to keep them waiting for this.
            && only.is_waited_for(now)
        {
            only.tell_alone(true);
        }
    }

    /// They did not acknowledge in time: nobody else waits for that.
    pub fn wait_no_more(&mut self, told: &[Company]) {
        for one in told {
            if let Some(holder) = self.by_replica.get_mut(&one.replica) {
                holder.not_alone();
            }
        }
    }

    /// The client knows that it is not alone.
    pub fn acknowledge_company(&mut self, place: &Place) {
        if let Some(holder) = self.at(place) {
            holder.not_alone();
        }
    }
}
