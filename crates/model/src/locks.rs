//! Locks on stretches of a file: who holds what, what is in whose way, and who waits for whom.
//! Holds: of one holder, stretches are in order, do not overlap, and neighbours that touch differ;
//! of two holders no stretch is held by both unless both share it.
//! From: fcntl(2), "Advisory record locking"; the kernel's own rules for splitting and merging.

mod deadlock;
mod united;

pub use deadlock::Waits;

use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use united::united;

/// Which locks exclude each other: those of flock(2) do not know of those of fcntl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum LockKind {
    /// fcntl(2), of processes and of open file descriptions.
    #[n(0)]
    Record,
    /// flock(2).
    #[n(1)]
    Whole,
}

/// A stretch of a file that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(array)]
pub struct Lock {
    #[n(0)]
    pub kind: LockKind,
    #[n(1)]
    pub exclusive: bool,
    /// The first byte, and the last one. A lock without an end has the greatest offset there is.
    #[n(2)]
    pub first: u64,
    #[n(3)]
    pub last: u64,
}

impl Lock {
    /// Whether the two overlap and cannot be held by two.
    pub fn excludes(&self, other: &Lock) -> bool {
        self.kind == other.kind && (self.exclusive || other.exclusive) && self.overlaps(other)
    }

    fn overlaps(&self, other: &Lock) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether it comes before a stretch, and ends before that begins.
    fn is_before(&self, stretch: &Lock) -> bool {
        (self.kind, self.last) < (stretch.kind, stretch.first)
    }

    /// What is left of it below and above a stretch.
    fn without(&self, stretch: &Lock) -> [Option<Lock>; 2] {
        let below = (self.first < stretch.first).then(|| Lock { last: stretch.first - 1, ..*self });
        let above = (self.last > stretch.last).then(|| Lock { first: stretch.last + 1, ..*self });
        [below, above]
    }
}

/// What one holder has locked of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    all: Vec<Lock>,
    /// Where in `all` those are that are exclusive.
    alone: Vec<usize>,
}

impl Locks {
    /// Locks that somebody says are held, in any order; where they overlap, the stronger counts.
    /// None: a stretch ends before it begins.
    pub fn from_told(told: &[Lock]) -> Option<Locks> {
        if told.iter().any(|lock| lock.last < lock.first) {
            return None;
        }
        Some(united(told.to_vec()))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.all.iter()
    }

    pub fn to_vec(&self) -> Vec<Lock> {
        self.all.clone()
    }

    /// Locks a stretch, in place of what was held there.
    pub fn put(&mut self, lock: Lock) {
        self.clear(&lock);
        self.all.push(lock);
        self.settle();
    }

    /// Gives up a stretch.
    pub fn take(&mut self, stretch: &Lock) {
        self.clear(stretch);
        self.settle();
    }

    /// Gives up everything of a kind.
    pub fn take_all(&mut self, kind: LockKind) {
        self.all.retain(|lock| lock.kind != kind);
        self.note_alone();
    }

    /// The first of these that cannot be held beside a lock of somebody else's.
    pub fn in_the_way_of(&self, lock: &Lock) -> Option<Lock> {
        // Of those that it can be beside there may be any number before the first that it cannot.
        let first = match lock.exclusive {
            true => self.reaching(lock).first(),
            false => {
                let before = |place: &usize| self.all[*place].is_before(lock);
                let place = self.alone.get(self.alone.partition_point(before));
                place.map(|place| &self.all[*place])
            }
        };
        first.filter(|held| held.excludes(lock)).copied()
    }

    /// Whether one of these cannot be held beside one of somebody else's.
    pub fn exclude_any(&self, others: &Locks) -> bool {
        self.meetings(others).any(|(one, other)| one.excludes(other))
    }

    /// Whether all of a stretch is held, and at least as strongly.
    pub fn cover(&self, lock: &Lock) -> bool {
        let mut next = lock.first;
        for held in self.reaching(lock) {
            if held.kind != lock.kind || held.last < next || (lock.exclusive && !held.exclusive) {
                continue;
            }
            if held.first > next {
                return false;
            }
            if held.last >= lock.last {
                return true;
            }
            next = held.last + 1;
        }
        false
    }

    pub fn cover_all(&self, others: &Locks) -> bool {
        others.iter().all(|lock| self.cover(lock))
    }

    /// What is held by both of two, and only as strongly as by the weaker.
    #[must_use]
    pub fn within(&self, others: &Locks) -> Locks {
        let both = self.meetings(others).map(|(one, other)| Lock {
            kind: one.kind,
            exclusive: one.exclusive && other.exclusive,
            first: one.first.max(other.first),
            last: one.last.min(other.last),
        });
        Locks::settled(both.collect())
    }

    /// Those that end where a stretch begins or later, and all of kinds that come after.
    fn reaching(&self, stretch: &Lock) -> &[Lock] {
        &self.all[self.all.partition_point(|held| held.is_before(stretch))..]
    }

    /// Of two holders, every two stretches that overlap, in order.
    fn meetings<'a>(&'a self, others: &'a Locks) -> impl Iterator<Item = (&'a Lock, &'a Lock)> {
        let (mut ours, mut theirs) = (self.all.as_slice(), others.all.as_slice());
        std::iter::from_fn(move || {
            while let ([one, our_rest @ ..], [other, their_rest @ ..]) = (ours, theirs) {
                // What reaches further may meet the next, too.
                if (one.kind, one.last) < (other.kind, other.last) {
                    ours = our_rest;
                } else {
                    theirs = their_rest;
                }
                if one.kind == other.kind && one.overlaps(other) {
                    return Some((one, other));
                }
            }
            None
        })
    }

    fn clear(&mut self, stretch: &Lock) {
        let held = std::mem::take(&mut self.all);
        for lock in held {
            if lock.kind == stretch.kind && lock.overlaps(stretch) {
                self.all.extend(lock.without(stretch).into_iter().flatten());
            } else {
                self.all.push(lock);
            }
        }
    }

    /// Those that do not overlap, in any order.
    fn settled(all: Vec<Lock>) -> Locks {
        let mut locks = Locks { all, alone: Vec::new() };
        locks.settle();
        locks
    }

    /// Puts them in order, and makes one of neighbours that are alike.
    fn settle(&mut self) {
        self.all.sort_by_key(|lock| (lock.kind, lock.first));
        self.all.dedup_by(|next, before| {
            let touch = before.last.checked_add(1) == Some(next.first);
            let alike = before.kind == next.kind && before.exclusive == next.exclusive;
            if touch && alike {
                before.last = next.last;
            }
            touch && alike
        });
        self.note_alone();
    }

    fn note_alone(&mut self) {
        self.alone.clear();
        let places = self.all.iter().enumerate().filter(|(_, lock)| lock.exclusive);
        self.alone.extend(places.map(|(place, _)| place));
    }
}

/// The locks of one file, by holder.
#[derive(Clone, Debug)]
pub struct LockTable<O>(BTreeMap<O, Locks>);

impl<O> Default for LockTable<O> {
    fn default() -> Self {
        LockTable(BTreeMap::new())
    }
}

impl<O: Ord + Copy> LockTable<O> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stretches, of all holders together.
    pub fn len(&self) -> usize {
        self.0.values().map(Locks::len).sum()
    }

    pub fn holders(&self) -> impl Iterator<Item = (&O, &Locks)> {
        self.0.iter()
    }

    pub fn of(&self, holder: O) -> Option<&Locks> {
        self.0.get(&holder)
    }

    /// Who is in the way of a lock, and by which of its own.
    pub fn in_the_way<'a>(
        &'a self,
        holder: O,
        lock: &'a Lock,
    ) -> impl Iterator<Item = (O, Lock)> + 'a {
        let others = self.0.iter().filter(move |(other, _)| **other != holder);
        others.filter_map(|(other, held)| Some((*other, held.in_the_way_of(lock)?)))
    }

    /// Whether somebody else is in the way of any of these.
    pub fn are_in_the_way(&self, holder: O, locks: &Locks) -> bool {
        let mut others = self.0.iter().filter(|(other, _)| **other != holder);
        others.any(|(_, held)| held.exclude_any(locks))
    }

    /// Locks a stretch, if nobody else is in the way: otherwise nothing changes.
    pub fn lock(&mut self, holder: O, lock: Lock) -> Result<(), (O, Lock)> {
        if let Some(first) = self.in_the_way(holder, &lock).next() {
            return Err(first);
        }
        self.0.entry(holder).or_default().put(lock);
        Ok(())
    }

    /// Gives up a stretch. Says whether anything was held of it.
    pub fn unlock(&mut self, holder: O, stretch: &Lock) -> bool {
        self.change(holder, |locks| locks.take(stretch))
    }

    /// Gives up all that a holder has of a kind.
    pub fn unlock_all(&mut self, holder: O, kind: LockKind) -> bool {
        self.change(holder, |locks| locks.take_all(kind))
    }

    /// Gives up all that a holder has.
    pub fn remove(&mut self, holder: O) -> bool {
        self.0.remove(&holder).is_some()
    }

    /// What a holder has is from now on this, whoever is in the way.
    pub fn set(&mut self, holder: O, locks: Locks) {
        if locks.is_empty() {
            self.0.remove(&holder);
        } else {
            self.0.insert(holder, locks);
        }
    }

    pub fn retain(&mut self, keep: impl Fn(O) -> bool) {
        self.0.retain(|holder, _| keep(*holder));
    }

    /// What all hold together.
    pub fn together(&self) -> Locks {
        united(self.0.values().flat_map(|locks| locks.all.iter().copied()).collect())
    }

    fn change(&mut self, holder: O, change: impl FnOnce(&mut Locks)) -> bool {
        let Some(locks) = self.0.get_mut(&holder) else { return false };
        let before = locks.clone();
        change(locks);
        let changed = *locks != before;
        if locks.is_empty() {
            self.0.remove(&holder);
        }
        changed
    }
}

#[cfg(test)]
mod tests;
