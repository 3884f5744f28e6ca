//! What becomes of the locks of clients whose leases end: they have them again when they come back,
//! unless somebody else was given meanwhile what excludes them, and may have given it up since.
//! Holds: what is not known counts as given.

use model::{FileId, Locks, ReplicaId};
use protocol::{LockAim, LockOutcome, Locking};
use std::collections::{BTreeMap, BTreeSet};
use world::Moment;

/// Files of which is noted to whom locks were given.
const GIVEN_MAX: usize = 20_000;
/// Files that clients lost, all together.
const DROPPED_MAX: usize = 20_000;
/// And files that were told as lost.
const TOLD_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Away {
    given: BTreeMap<FileId, Given>,
    /// Of what is not noted any more the last was given then.
    forgotten: Option<Moment>,
    /// When it was noticed that a client holds nothing any more of a file of which it held something.
    dropped: BTreeMap<(ReplicaId, FileId), Moment>,
    /// Told as lost, and maybe not heard: the client claims it again then.
    told: BTreeSet<(ReplicaId, FileId)>,
    /// These lost more than is noted.
    lost_more: BTreeSet<ReplicaId>,
    /// These have attached in this life of the origin.
    known: BTreeSet<ReplicaId>,
}

/// To whom locks of a file were given last.
#[derive(Debug, Default)]
struct Given {
    exclusive: Last,
    shared: Last,
}

/// The last two who were given something: one of them is not the one who asks.
#[derive(Debug, Default)]
struct Last([Option<(ReplicaId, Moment)>; 2]);

impl Last {
    fn note(&mut self, who: ReplicaId, now: Moment) {
        if self.0[0].is_some_and(|(last, _)| last != who) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some((who, now));
    }

    fn but(&self, who: ReplicaId) -> Option<Moment> {
        self.0.iter().flatten().find(|(last, _)| *last != who).map(|(_, at)| *at)
    }
}

impl Given {
    fn last(&self) -> Option<Moment> {
        let lasts = [&self.exclusive, &self.shared].map(|last| last.0[0].map(|(_, at)| at));
        lasts.into_iter().flatten().max()
    }
}

impl Away {
    /// A client was given a lock. What it may do without asking counts as `exclusive`.
    pub fn note_given(&mut self, file: FileId, who: ReplicaId, exclusive: bool, now: Moment) {
        let given = self.given.entry(file).or_default();
        let last = if exclusive { &mut given.exclusive } else { &mut given.shared };
        last.note(who, now);
        if self.given.len() > GIVEN_MAX {
            self.forget_older_half();
        }
    }

    /// What came of a question.
    pub fn note_outcome(
        &mut self,
        who: ReplicaId,
        asked: &Locking,
        outcome: LockOutcome,
        now: Moment,
    ) {
        let file = asked.held.file;
        match outcome {
            // What it locks from now on, it does not ask for.
            LockOutcome::GivenWhole => self.note_given(file, who, true, now),
            LockOutcome::Given if asked.aim != LockAim::Look => {
                for wished in &asked.wished {
                    self.note_given(file, who, wished.exclusive, now);
                }
            }
            _ => {}
        }
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<Moment> = self.given.values().filter_map(Given::last).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        self.forgotten = self.forgotten.max(Some(*middle));
        self.given.retain(|_, given| given.last() > Some(*middle));
    }

    /// A client that held something of a file holds it no more: its lease has ended, or it said so.
    pub fn note_dropped(&mut self, file: FileId, who: ReplicaId, now: Moment) {
        if self.dropped.len() >= DROPPED_MAX
            && !self.dropped.contains_key(&(who, file))
            && let Some(((first, _), _)) = self.dropped.first_key_value()
        {
            // It may never come again.
            let first = *first;
            self.lost_more.insert(first);
            self.dropped.retain(|(its, _), _| *its != first);
        }
        // Since it was given to somebody for the first time.
        self.dropped.entry((who, file)).or_insert(now);
    }

    /// Whether somebody else was given what excludes these locks, since the client lost them.
    /// `lasted`: so did its lease when the life of the origin before this one ended.
    pub fn has_missed(&self, who: ReplicaId, file: FileId, locks: &Locks, lasted: bool) -> bool {
        if locks.is_empty() {
            return false;
        }
        if self.told.contains(&(who, file)) {
            return true;
        }
        let exclusive = locks.iter().any(|lock| lock.exclusive);
        let of_file = self.given.get(&file);
        let of_others = of_file.map(|given| {
            let shared = given.shared.but(who).filter(|_| exclusive);
            given.exclusive.but(who).max(shared)
        });
        let last = of_others.flatten().max(self.forgotten);
        if !self.known.contains(&who) {
            return !lasted || last.is_some();
        }
        let dropped = self.dropped.get(&(who, file));
        self.lost_more.contains(&who)
            || dropped.is_some_and(|at| last.is_some_and(|last| last >= *at))
    }

    /// The client has said what it holds of a file. None of what it was told is lost: it has heard.
    pub fn is_settled(&mut self, who: ReplicaId, file: FileId, locks: &Locks, missed: bool) {
        self.dropped.remove(&(who, file));
        if missed {
            self.note_told(who, file);
        } else if locks.is_empty() {
            self.told.remove(&(who, file));
        }
    }

    /// It has said what it holds of all files, and of `lost` is told that it does not.
    pub fn has_come(&mut self, who: ReplicaId, lost: &[FileId]) {
        self.lost_more.remove(&who);
        self.dropped.retain(|(its, _), _| *its != who);
        self.known.insert(who);
        lost.iter().for_each(|file| self.note_told(who, *file));
    }

    fn note_told(&mut self, who: ReplicaId, file: FileId) {
        if self.told.len() >= TOLD_MAX {
            // Its client has long heard, or does not come again.
            self.told.pop_first();
        }
        self.told.insert((who, file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Lock, LockKind};
    use std::time::Duration;

    const A: ReplicaId = ReplicaId(1);
    const B: ReplicaId = ReplicaId(2);
    const C: ReplicaId = ReplicaId(3);
    const FILE: FileId = FileId(7);

    fn locks(exclusive: bool) -> Locks {
        let mut locks = Locks::default();
        locks.put(Lock { kind: LockKind::Record, exclusive, first: 0, last: 9 });
        locks
    }

    fn at(secs: u64) -> Moment {
        world::Clock::simulated(0).moment() + Duration::from_secs(secs)
    }

    fn known() -> Away {
        Away { known: BTreeSet::from([A, B, C]), ..Away::default() }
    }

    #[test]
    fn what_others_were_given_counts_from_when_the_lease_was_found_to_have_ended() {
        let mut away = known();
        let start = at(0);
        let now = |secs| start + Duration::from_secs(secs);
        away.note_given(FILE, B, true, now(1));
        assert!(!away.has_missed(A, FILE, &locks(true), true));
        away.note_dropped(FILE, A, now(2));
        assert!(!away.has_missed(A, FILE, &locks(true), true), "it was given before");
        away.note_given(FILE, A, true, now(3));
        assert!(!away.has_missed(A, FILE, &locks(true), true), "to itself");
        away.note_given(FILE, C, false, now(4));
        away.note_given(FILE, A, false, now(5));
        assert!(away.has_missed(A, FILE, &locks(true), true));
        assert!(!away.has_missed(A, FILE, &locks(false), true), "both shared it");
        assert!(!away.has_missed(A, FILE, &Locks::default(), true));
        away.is_settled(A, FILE, &locks(true), true);
        assert!(away.has_missed(A, FILE, &locks(true), true), "it may not have heard");
        away.is_settled(A, FILE, &Locks::default(), false);
        assert!(!away.has_missed(A, FILE, &locks(true), true));
    }

    #[test]
    fn of_a_client_that_comes_for_the_first_time_in_this_life_all_counts_that_was_given() {
        let mut away = Away::default();
        assert!(!away.has_missed(A, FILE, &locks(true), true));
        assert!(away.has_missed(A, FILE, &locks(true), false), "who had it before is not known");
        away.note_given(FILE, B, true, at(0));
        assert!(away.has_missed(A, FILE, &locks(true), true));
        away.has_come(A, &[FILE]);
        assert!(away.has_missed(A, FILE, &locks(true), true), "it may not have heard");
        away.has_come(A, &[]);
        away.is_settled(A, FILE, &Locks::default(), false);
        assert!(!away.has_missed(A, FILE, &locks(true), true));
    }

    #[test]
    fn what_is_noted_has_a_bound_and_what_is_beyond_it_counts_as_given() {
        let mut away = known();
        let start = at(0);
        let now = |millis| start + Duration::from_millis(millis);
        away.note_dropped(FILE, A, now(0));
        for number in 0..=GIVEN_MAX as u64 {
            away.note_given(FileId(100 + number), B, true, now(1 + number));
        }
        assert!(away.given.len() <= GIVEN_MAX);
        assert!(away.has_missed(A, FILE, &locks(true), true));
        for number in 0..=DROPPED_MAX as u64 {
            away.note_dropped(FileId(100 + number), C, now(GIVEN_MAX as u64 * 2));
        }
        assert!(away.dropped.len() <= DROPPED_MAX);
        assert!(away.has_missed(A, FileId(99), &locks(true), true), "it had to make room");
        away.has_come(A, &[]);
        assert!(!away.has_missed(A, FileId(99), &locks(true), true));
        away.has_come(C, &[]);
        assert!(away.dropped.is_empty());
    }
}
