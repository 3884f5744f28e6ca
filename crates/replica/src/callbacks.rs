//! Callbacks: who was shown what, and who has to be told of a change.
//! Holds: what a client may have cached and believes under a lease is known here, or the client
//! is told of everything; notices to one client come in the order of positions, and none has a
//! position beyond what that client was told; a client that is late once holds up nobody again
//! until it attaches anew; of two sessions of one client the one that was expected later counts.
//! Never: waits, or reads a store; `deliver` and the submitting session do the waiting.
//! From: AFS callbacks; DESIGN, "The client": a callback is a strict promise.

mod alone;
mod deliver;
mod grace;
mod holder;
mod level;

pub(crate) use alone::{Coming, Company};
pub(crate) use deliver::{Teller, deliver};
pub(crate) use grace::Grace;
pub(crate) use holder::{Holder, Next, Shown};
pub(crate) use level::Watcher;

use model::{FileId, Name, ReplicaId, Seq};
use protocol::{EntryState, NodeState, States};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use volume::whole::Touched;
use world::Moment;

/// A notice is sent that only moves the position after so many updates that were not the
/// client's concern, so that its next tail is short.
const POSITION_LAG_MAX: u64 = 1000;

/// The clients of one volume.
#[derive(Debug)]
pub(crate) struct Holders {
    by_replica: BTreeMap<ReplicaId, Holder>,
    /// Everybody concerned was told, or has it pending, up to here.
    published: Seq,
    next_session: u64,
    /// The last session that was expected of clients that are being attached.
    expected: BTreeMap<ReplicaId, u64>,
    /// Clients that are about to attach, whoever they are.
    coming: usize,
}

/// How a client comes to hold callbacks.
pub(crate) struct Arrival {
    pub place: Place,
    /// Nothing is cached at the client, or nothing that it believes without asking.
    pub starts_empty: bool,
    pub seen: Seq,
    /// How far the tail goes that the client gets.
    pub upto: Seq,
    pub lease_end: Moment,
    pub holders_max: usize,
}

/// One session's place among the holders.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub replica: ReplicaId,
    pub session: u64,
}

/// What one writer's updates touched, and whether somebody waits for them to be told.
pub(crate) struct Touch<'a> {
    pub by: ReplicaId,
    pub strict: bool,
    pub keys: &'a Touched,
    /// Where that is, each with the directories above it; empty if nobody has asked for that.
    pub lines: &'a [Vec<FileId>],
}

/// A holder whose acknowledgement a strict writer waits for.
#[derive(Debug)]
pub(crate) struct Wait {
    pub replica: ReplicaId,
    /// Of the client's, the one whose lease it is.
    session: u64,
    pub acknowledged: Watcher<Seq>,
    /// Its lease ends then.
    pub until: Moment,
}

/// Why a session that was expected does not begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Too many clients hold callbacks.
    TooMany,
    /// The client attaches over another session by now.
    Overtaken,
}

/// States by key, all as of one position.
#[derive(Debug, Default)]
pub(crate) struct Showing {
    pub nodes: BTreeMap<FileId, NodeState>,
    pub entries: BTreeMap<(FileId, Name), EntryState>,
}

impl Showing {
    pub fn of(states: States) -> Showing {
        let nodes = states.nodes.into_iter().map(|state| (state.file, state));
        let entries =
            states.entries.into_iter().map(|state| ((state.directory, state.name.clone()), state));
        Showing { nodes: nodes.collect(), entries: entries.collect() }
    }
}

impl Holders {
    pub fn new(position: Seq) -> Holders {
        Holders {
            by_replica: BTreeMap::new(),
            published: position,
            next_session: 1,
            expected: BTreeMap::new(),
            coming: 0,
        }
    }

    /// A client is about to attach: from now on no session that it had before counts.
    pub fn expect(&mut self, replica: ReplicaId) -> Place {
        let session = self.next_session;
        self.next_session += 1;
        self.expected.insert(replica, session);
        if let Some(holder) = self.by_replica.get_mut(&replica) {
            holder.end();
            holder.newest = session;
        }
        Place { replica, session }
    }

    /// The session is not waited for any more, whether or not it began.
    pub fn expect_no_more(&mut self, place: &Place) {
        if self.expected.get(&place.replica) == Some(&place.session) {
            self.expected.remove(&place.replica);
        }
    }

    /// A client that was expected attaches.
    pub fn attach(&mut self, arrival: &Arrival, now: Moment) -> Result<(), NoPlace> {
        let Place { replica, session } = arrival.place;
        if self.expected.get(&replica) != Some(&session) {
            return Err(NoPlace::Overtaken);
        }
        if !self.by_replica.contains_key(&replica) {
            self.make_room(arrival.holders_max, now)?;
        }
        let fresh = || {
            let shown = if arrival.starts_empty { Shown::nothing() } else { Shown::Everything };
            Holder::new(shown, arrival.lease_end)
        };
        let holder = self.by_replica.entry(replica).or_insert_with(fresh);
        if arrival.starts_empty {
            holder.shown = Shown::nothing();
        }
        // The lease before may end later than this one only if the clock went back.
        holder.lease_end = holder.lease_end.max(arrival.lease_end);
        holder.begin(session, arrival.seen, arrival.upto);
        Ok(())
    }

    /// No session of the client was expected after this one, though it may be over.
    pub fn is_newest(&self, place: &Place) -> bool {
        let holder = self.by_replica.get(&place.replica);
        holder.is_some_and(|holder| holder.newest == place.session)
    }

    /// A client that has another id from now on.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.by_replica.remove(&replica);
    }

    /// The holder of a session that is not over.
    pub fn at(&mut self, place: &Place) -> Option<&mut Holder> {
        self.by_replica
            .get_mut(&place.replica)
            .filter(|holder| holder.session == Some(place.session))
    }

    /// The session is over; what the client has cached stays, for as long as the lease lasts.
    pub fn leave(&mut self, place: &Place) {
        if let Some(holder) = self.at(place) {
            holder.end();
        }
    }

    /// The client believes nothing that it has cached any more: who waits for it need not, and
    /// when it comes again it is told of everything.
    pub fn give_up(&mut self, place: &Place) {
        if let Some(holder) = self.at(place) {
            holder.end();
            self.by_replica.remove(&place.replica);
        }
    }

    /// Everybody concerned was told, or has it pending, up to here.
    pub fn published(&self) -> Seq {
        self.published
    }

    /// There is more that is new up to here than can be told: it comes with each one's next tail.
    pub fn fall_behind(&mut self, upto: Seq) {
        self.by_replica.values_mut().for_each(Holder::fall_behind);
        self.published = self.published.max(upto);
    }

    /// Nobody can have missed the publication of what a reading shows, if it is this far.
    pub fn has_published_beyond(&self, position: Seq) -> bool {
        self.published > position
    }

    /// Whether a client may still believe what it was told.
    pub fn lasts(&self, replica: ReplicaId, now: Moment) -> bool {
        self.by_replica.get(&replica).is_some_and(|holder| holder.lease_end > now)
    }

    /// A session's lease is about to be prolonged. True: what is written of it is struck off, or is
    /// about to be, and has to be written anew.
    pub fn promise_lease(&mut self, place: &Place, until: Moment) -> bool {
        let Some(holder) = self.at(place) else { return false };
        holder.promised_until = holder.promised_until.max(until);
        holder.struck
    }

    pub fn lease_is_written(&mut self, place: &Place) {
        if let Some(holder) = self.at(place) {
            holder.struck = false;
        }
    }

    /// Of these clients, those whose leases have ended; from now on what is written of them counts
    /// as struck off. `unknown_ended`: so have the leases of those that did not attach in this life.
    pub fn strike_off(
        &mut self,
        written: impl IntoIterator<Item = ReplicaId>,
        unknown_ended: bool,
        now: Moment,
    ) -> Vec<ReplicaId> {
        let mut ended = Vec::new();
        for replica in written {
            if !self.may_be_struck_off(replica, unknown_ended, now) {
                continue;
            }
            if let Some(holder) = self.by_replica.get_mut(&replica) {
                holder.struck = true;
            }
            ended.push(replica);
        }
        ended
    }

    /// Whether no lease of this client holds, and none is on its way.
    pub fn may_be_struck_off(&self, replica: ReplicaId, unknown_ended: bool, now: Moment) -> bool {
        if self.expected.contains_key(&replica) {
            return false;
        }
        self.by_replica.get(&replica).map_or(unknown_ended, |holder| holder.has_no_lease(now))
    }

    /// There is news of the locks of a file. Who has no session asks when it comes again.
    pub fn tell_of_locks(&mut self, replica: ReplicaId, file: FileId) {
        if let Some(holder) = self.by_replica.get_mut(&replica) {
            holder.tell_of_locks(file);
        }
    }

    /// Grants callbacks. A session that is over gets none.
    pub fn show(
        &mut self,
        place: &Place,
        files: impl IntoIterator<Item = FileId>,
        shown_max: usize,
    ) {
        if let Some(holder) = self.at(place) {
            holder.shown.add(files, shown_max);
        }
    }

    /// Somebody need not be told of some files before others go on.
    pub fn is_any_patient(&self) -> bool {
        self.by_replica.values().any(|holder| !holder.patience.below.is_empty())
    }

    /// Something was committed: notes it for everybody whose concern it is, and tells for every
    /// touch whom its writer waits for.
    pub fn publish(
        &mut self,
        touches: &[Touch<'_>],
        showing: &Showing,
        upto: Seq,
        now: Moment,
    ) -> Vec<Vec<Wait>> {
        let mut waits: Vec<Vec<Wait>> = touches.iter().map(|_| Vec::new()).collect();
        for (replica, holder) in &mut self.by_replica {
            for (touch, waits) in touches.iter().zip(&mut waits) {
                if touch.by == *replica || !holder.note(touch.keys, showing) {
                    continue;
                }
                let hurries = touch.strict && holder.is_waited_for(now);
                if hurries && !holder.patience.covers(touch.lines) {
                    waits.push(holder.wait(*replica));
                }
            }
            holder.note_position(upto, POSITION_LAG_MAX);
        }
        self.published = self.published.max(upto);
        waits
    }

    /// Clients that have attached and are not known to have taken in their tails up to here: until
    /// then they may go by a lease that an earlier life of the origin gave them.
    pub fn latecomers(&mut self, by: ReplicaId, upto: Seq, now: Moment) -> Vec<Wait> {
        let mut waits = Vec::new();
        for (replica, holder) in &mut self.by_replica {
            let has_taken_it_in = holder.acknowledged.is(|seen| *seen >= upto);
            if *replica == by || has_taken_it_in || !holder.is_waited_for(now) {
                continue;
            }
            let wait = holder.wait(*replica);
            // It says so with the next notice that it takes in.
            holder.note_position(upto, 0);
            waits.push(wait);
        }
        waits
    }

    /// Clients that may go by what was so before all that is published, and the position up to which
    /// they are to say that they have taken it in.
    pub fn untold(&mut self, by: ReplicaId, now: Moment) -> (Vec<Wait>, Seq) {
        let upto = self.published;
        let mut waits = Vec::new();
        for (replica, holder) in &mut self.by_replica {
            let is_told = holder.acknowledged.is(|seen| *seen >= upto);
            if *replica == by || is_told || holder.lease_end <= now {
                continue;
            }
            let wait = holder.wait(*replica);
            holder.note_position(upto, 0);
            waits.push(wait);
        }
        (waits, upto)
    }

    /// What does not fit into an answer comes with a notice.
    pub fn note(&mut self, place: &Place, keys: &Touched, showing: &Showing) {
        if let Some(holder) = self.at(place) {
            holder.note(keys, showing);
        }
    }

    /// What is to be sent to a session next.
    pub fn next(&mut self, place: &Place) -> Next {
        let published = self.published;
        match self.at(place) {
            Some(holder) => holder.next(published),
            None => Next::Over,
        }
    }

    /// The client has taken in a notice.
    pub fn acknowledge(&mut self, place: &Place, upto: Seq) {
        if let Some(holder) = self.at(place) {
            holder.has_heard(upto);
        }
    }

    /// The lease of a holder that was waited for ended before it acknowledged.
    pub fn mark_late(&mut self, wait: &Wait, now: Moment) {
        if let Some(holder) = self.by_replica.get_mut(&wait.replica) {
            holder.mark_late(wait, now);
        }
    }

    /// A holder that is away and whose lease is over believes nothing; what it was shown can be
    /// forgotten, at the cost of telling it everything when it comes back.
    fn make_room(&mut self, holders_max: usize, now: Moment) -> Result<(), NoPlace> {
        if self.by_replica.len() < holders_max {
            return Ok(());
        }
        let over = |holder: &Holder| holder.session.is_none() && holder.lease_end <= now;
        let first = self.by_replica.iter().find(|(_, holder)| over(holder));
        let replica = *first.ok_or(NoPlace::TooMany)?.0;
        self.by_replica.remove(&replica);
        Ok(())
    }
}

/// What wakes the task that delivers to a session.
pub(crate) type Wake = Arc<Notify>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use world::World;

    #[test]
    fn a_session_does_not_begin_once_another_is_expected() {
        let now = World::simulated(0, 1).clock.moment();
        let arrival = |place: &Place| Arrival {
            place: place.clone(),
            starts_empty: true,
            seen: Seq::START,
            upto: Seq::START,
            lease_end: now + Duration::from_secs(60),
            holders_max: 9,
        };
        let mut holders = Holders::new(Seq::START);
        let (first, second) = (holders.expect(ReplicaId(1)), holders.expect(ReplicaId(1)));
        assert_eq!(holders.attach(&arrival(&first), now), Err(NoPlace::Overtaken));
        holders.expect_no_more(&first);
        assert_eq!(holders.attach(&arrival(&second), now), Ok(()));
        holders.expect_no_more(&second);
        assert!(holders.at(&second).is_some() && holders.is_newest(&second));
        assert!(!holders.is_newest(&first));
        holders.leave(&second);
        assert!(holders.is_newest(&second), "it is over, and no other has followed");
        let third = holders.expect(ReplicaId(1));
        assert!(!holders.is_newest(&second), "before the next one begins");
        holders.expect_no_more(&third);
        assert!(holders.expected.is_empty());
    }
}
