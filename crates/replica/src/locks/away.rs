//! What becomes of the locks of clients whose leases end: they have them again when they come back,
//! unless somebody else was given meanwhile what excludes them, and may have given it up since.
//! Holds: what is not known counts as given.

use model::{FileId, Lock, Locks, ReplicaId};
use protocol::{
    FILES_CLAIMED_MAX, Held, LOCKS_CLAIMED_MAX, LOCKS_TOLD_MAX, LockAim, LockOutcome, Locking,
};
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
    /// These have attached in this life of the origin, with all that they hold, or are in `lost_more`.
    known: BTreeSet<ReplicaId>,
}

/// To whom locks of a file were given last.
#[derive(Debug, Default)]
struct Given {
    exclusive: Last,
    shared: Last,
}

/// First and last byte.
type Span = (u64, u64);

/// What a client may lock without asking.
const ALL: Span = (0, u64::MAX);

/// The last two who were given something, so that one of them is not the one who asks, and all others
/// together. A span may have bytes between that nobody was given.
#[derive(Debug, Default)]
struct Last {
    two: [Option<(ReplicaId, Moment, Span)>; 2],
    others: Option<(Moment, Span)>,
}

impl Last {
    fn note(&mut self, who: ReplicaId, now: Moment, span: Span) {
        let [first, second] = self.two;
        let before = [first, second].into_iter().flatten().find(|(its, ..)| *its == who);
        let span = before.map_or(span, |(_, _, before)| around(before, span));
        if first.is_none_or(|(its, ..)| its == who) {
            self.two[0] = Some((who, now, span));
            return;
        }
        if let Some((_, at, its)) = second.filter(|(its, ..)| *its != who) {
            let span = self.others.map_or(its, |(_, others)| around(others, its));
            self.others = Some((self.others.map_or(at, |(then, _)| then.max(at)), span));
        }
        self.two = [Some((who, now, span)), first];
    }

    /// When somebody else was given something of this stretch last.
    fn but(&self, who: ReplicaId, stretch: Span) -> Option<Moment> {
        let two = self.two.iter().flatten().filter(|(its, ..)| *its != who);
        let known = two.map(|(_, at, span)| (*at, *span)).chain(self.others);
        known.filter(|(_, span)| do_meet(*span, stretch)).map(|(at, _)| at).max()
    }
}

/// The least that has both.
fn around(one: Span, other: Span) -> Span {
    (one.0.min(other.0), one.1.max(other.1))
}

fn do_meet(one: Span, other: Span) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

fn span(lock: &Lock) -> Span {
    (lock.first, lock.last)
}

/// What a client claims when it comes.
#[derive(Debug)]
pub(super) struct Claimed {
    files: BTreeSet<FileId>,
    /// It holds nothing else: it has not claimed so much that it may have had to leave something out.
    is_all: bool,
}

impl Claimed {
    pub fn of(claims: &[Held]) -> Claimed {
        let stretches: usize = claims.iter().map(|claim| claim.locks.len()).sum();
        let room = LOCKS_CLAIMED_MAX.saturating_sub(stretches);
        Claimed {
            files: claims.iter().map(|claim| claim.file).collect(),
            is_all: claims.len() < FILES_CLAIMED_MAX && room >= LOCKS_TOLD_MAX,
        }
    }

    /// Whether it may hold something of a file of which it has not said so yet.
    pub fn leaves_open(&self, file: FileId) -> bool {
        !self.is_all && !self.files.contains(&file)
    }
}

impl Given {
    fn last(&self) -> Option<Moment> {
        let lasts = [&self.exclusive, &self.shared].map(|last| last.two[0].map(|(_, at, _)| at));
        lasts.into_iter().flatten().max()
    }
}

impl Away {
    /// A client was given a lock.
    pub fn note_given(&mut self, file: FileId, who: ReplicaId, lock: &Lock, now: Moment) {
        self.note(file, who, (lock.exclusive, span(lock)), now);
    }

    /// What it may do without asking counts as `exclusive`.
    fn note(&mut self, file: FileId, who: ReplicaId, (exclusive, span): (bool, Span), now: Moment) {
        let given = self.given.entry(file).or_default();
        let last = if exclusive { &mut given.exclusive } else { &mut given.shared };
        last.note(who, now, span);
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
            LockOutcome::GivenWhole => self.note(file, who, (true, ALL), now),
            LockOutcome::Given if asked.aim != LockAim::Look => {
                for wished in &asked.wished {
                    self.note_given(file, who, wished, now);
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
        let of_others = |lock: &Lock| {
            let given = self.given.get(&file)?;
            let shared = given.shared.but(who, span(lock)).filter(|_| lock.exclusive);
            given.exclusive.but(who, span(lock)).max(shared)
        };
        let last = locks.iter().filter_map(of_others).max().max(self.forgotten);
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

    /// It has said what it holds: of all files that are `claimed`, and where those are all that there
    /// are, nothing of others. Of `lost` it is told that it does not.
    /// `lasted`: as in `has_missed`.
    pub fn has_come(&mut self, who: ReplicaId, claimed: &Claimed, lost: &[FileId], lasted: bool) {
        self.dropped.retain(|(its, file), _| *its != who || claimed.leaves_open(*file));
        if claimed.is_all {
            self.lost_more.remove(&who);
            self.known.insert(who);
        } else if !lasted && self.known.insert(who) {
            self.lost_more.insert(who);
        }
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
    use model::LockKind;
    use std::time::Duration;

    const A: ReplicaId = ReplicaId(1);
    const B: ReplicaId = ReplicaId(2);
    const C: ReplicaId = ReplicaId(3);
    const FILE: FileId = FileId(7);

    fn stretch(exclusive: bool, first: u64, last: u64) -> Lock {
        Lock { kind: LockKind::Record, exclusive, first, last }
    }

    fn one(exclusive: bool) -> Lock {
        stretch(exclusive, 0, 9)
    }

    fn these(locks: &[Lock]) -> Locks {
        let mut all = Locks::default();
        locks.iter().for_each(|lock| all.put(*lock));
        all
    }

    fn locks(exclusive: bool) -> Locks {
        these(&[one(exclusive)])
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
        away.note_given(FILE, B, &one(true), now(1));
        assert!(!away.has_missed(A, FILE, &locks(true), true));
        away.note_dropped(FILE, A, now(2));
        assert!(!away.has_missed(A, FILE, &locks(true), true), "it was given before");
        away.note_given(FILE, A, &one(true), now(3));
        assert!(!away.has_missed(A, FILE, &locks(true), true), "to itself");
        away.note_given(FILE, C, &one(false), now(4));
        away.note_given(FILE, A, &one(false), now(5));
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
        away.note_given(FILE, B, &one(true), at(0));
        assert!(away.has_missed(A, FILE, &locks(true), true));
        away.has_come(A, &Claimed::of(&[]), &[FILE], true);
        assert!(away.has_missed(A, FILE, &locks(true), true), "it may not have heard");
        away.has_come(A, &Claimed::of(&[]), &[], true);
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
            away.note_given(FileId(100 + number), B, &one(true), now(1 + number));
        }
        assert!(away.given.len() <= GIVEN_MAX);
        assert!(away.has_missed(A, FILE, &locks(true), true));
        for number in 0..=DROPPED_MAX as u64 {
            away.note_dropped(FileId(100 + number), C, now(GIVEN_MAX as u64 * 2));
        }
        assert!(away.dropped.len() <= DROPPED_MAX);
        assert!(away.has_missed(A, FileId(99), &locks(true), true), "it had to make room");
        let claim = |number| Held { file: FileId(number), locks: vec![one(true)] };
        let some: Vec<Held> = (1000..1000 + FILES_CLAIMED_MAX as u64).map(claim).collect();
        away.has_come(A, &Claimed::of(&some), &[], true);
        assert!(away.has_missed(A, FileId(99), &locks(true), true), "it may hold this, too");
        away.has_come(A, &Claimed::of(&some[1..]), &[], true);
        assert!(!away.has_missed(A, FileId(99), &locks(true), true));
        away.has_come(C, &Claimed::of(&[]), &[], true);
        // Nor is it known who had it in an earlier life of the origin.
        for (who, lasted) in [(ReplicaId(4), true), (ReplicaId(5), false)] {
            away.forgotten = None;
            away.has_come(who, &Claimed::of(&some), &[], lasted);
            assert_eq!(away.has_missed(who, FileId(98), &locks(true), true), !lasted);
            away.note_given(FileId(98), B, &one(true), now(1));
            assert!(away.has_missed(who, FileId(98), &locks(true), true));
            away.given.clear();
        }
        assert!(away.dropped.is_empty());
    }

    #[test]
    fn who_had_another_stretch_of_the_file_loses_nothing_by_what_others_were_given() {
        let mut away = Away::default();
        away.note_given(FILE, B, &stretch(true, 20, 29), at(0));
        assert!(!away.has_missed(A, FILE, &locks(true), true));
        let both = these(&[one(true), stretch(false, 29, 40)]);
        assert!(away.has_missed(A, FILE, &both, true));
        away.note_given(FILE, C, &stretch(true, 40, 49), at(1));
        assert!(!away.has_missed(A, FILE, &locks(true), true));
        assert!(away.has_missed(A, FILE, &these(&[stretch(true, 45, 45)]), true));
    }

    #[test]
    fn what_was_given_counts_however_many_were_given_something_else_since() {
        let mut away = Away::default();
        away.note_given(FILE, ReplicaId(9), &one(true), at(0));
        for (number, who) in [B, C, ReplicaId(4), B].into_iter().enumerate() {
            let first = 100 + 10 * number as u64;
            away.note_given(FILE, who, &stretch(true, first, first + 9), at(1 + number as u64));
        }
        assert!(away.has_missed(A, FILE, &locks(true), true));
        assert!(!away.has_missed(A, FILE, &these(&[stretch(true, 200, 209)]), true));
    }
}
