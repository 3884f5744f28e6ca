//! What the replica above is told, and what it answers.
//! Holds: where locks hold here alone, nobody loses a lock by what others have; what was leased is
//! claimed in a new session, and nothing else.

use super::split::TOLD_MAX;
use super::{Leased, OfFile, Table};
use model::{FileId, Lock, LockKind, Locks};
use protocol::{Held, LOCKS_CLAIMED_MAX, LockOutcome};

/// So many questions may be without an answer that says what it takes for held, and it is still known
/// what that may be.
const MAY_BE_TOLD_MAX: usize = 8;

impl OfFile {
    /// What it is told is held here. `leases`: locks are leased now.
    fn to_tell(&self, leases: bool) -> Locks {
        if self.unheard {
            // What is held by now is told after that.
            return Locks::default();
        }
        // What was locked here alone is not for others to know where locks hold here alone.
        if leases { self.together() } else { self.held_as_told() }
    }

    /// What it takes for held here, or took before it was asked what it has not answered, as far as it
    /// is held: all that was leased, and nothing that was locked here alone.
    fn held_as_told(&self) -> Locks {
        let together = self.together();
        if matches!(self.leased, Leased::Whole) {
            return together;
        }
        let told = self.told.as_ref().unwrap_or(&self.told_before);
        let held = told.within(&together);
        // Of two that are cut up in different ways. As it was told it can be told again.
        if held.len() > TOLD_MAX { told.clone() } else { held }
    }

    /// Whether it is known what it takes for held, or what of, and all of that is.
    fn gives_nothing_up(&self) -> bool {
        if self.unheard || matches!(self.leased, Leased::Whole) {
            return false;
        }
        let told = match &self.told {
            Some(told) => std::slice::from_ref(told),
            None => self.may_be_told.as_deref().unwrap_or(&[]),
        };
        let together = self.together();
        !told.is_empty() && told.iter().all(|told| together.cover_all(told))
    }

    /// What it takes for held, or one of what it may, so that none of it is known any more.
    fn take_told(&mut self) -> Option<Vec<Locks>> {
        self.told.take().map(|told| vec![told]).or_else(|| self.may_be_told.take())
    }

    /// It is about to be told that `held` is, and may take it for that, or go on as it did.
    fn is_being_told(&mut self, held: &Locks) {
        // With this an earlier recall is answered; one that comes before the answer stays.
        self.recalled = false;
        let before = match self.leased {
            // All that this gives up has been waited for.
            Leased::Whole => Some(Vec::new()),
            Leased::These(_) => self.take_told(),
        };
        self.may_be_told = before.filter(|before| before.len() < MAY_BE_TOLD_MAX);
        if let Some(told) = self.may_be_told.as_mut().filter(|told| !told.contains(held)) {
            told.push(held.clone());
        }
    }

    /// It is not known any more what it takes for held. What is locked from now on is no part of it.
    pub(super) fn doubt(&mut self) {
        self.told_before = self.held_as_told();
        self.may_be_told = self.take_told();
        self.leased = Leased::These(Locks::default());
    }

    /// Others have, or have had, what is held. It goes on among the processes here.
    fn overtake(&mut self) {
        self.overtaken = !self.held.is_empty();
        self.forget_lost();
    }

    /// Nothing is leased, and that it was lost is still to be said to have been heard.
    pub(super) fn forget_lost(&mut self) {
        self.leased = Leased::These(Locks::default());
        (self.told, self.told_before, self.unheard) = (None, Locks::default(), true);
        self.may_be_told = None;
    }
}

impl Table {
    /// Whether all is held that the replica above may take for held, so that what it is told claims more
    /// or nothing.
    pub fn gives_nothing_up(&self, file: FileId) -> bool {
        self.files.get(&file).is_none_or(OfFile::gives_nothing_up)
    }

    /// The replica above is about to be asked: what the question says is held. Until the answer
    /// nothing beyond it is given.
    pub fn begin(&mut self, file: FileId, leases: bool) -> Locks {
        let of_file = self.files.entry(file).or_insert_with(OfFile::new);
        let held = of_file.to_tell(leases);
        // What is claimed for the first time may never arrive.
        let before = if of_file.unheard { Locks::default() } else { of_file.held_as_told() };
        of_file.is_being_told(&held);
        of_file.leased = match &of_file.leased {
            Leased::Whole => Leased::These(held.clone()),
            Leased::These(leased) => Leased::These(leased.within(&held)),
        };
        of_file.told_before = before;
        held
    }

    /// The same, with what `lapses` has to be when the answer comes.
    pub fn ask(&mut self, file: FileId, leases: bool) -> (Locks, u64) {
        (self.begin(file, leases), self.lapses)
    }

    /// The records of a file that are held here with nobody else, whoever holds them.
    pub fn records_alone(&self, file: FileId) -> Vec<Lock> {
        let together = self.files.get(&file).map(OfFile::together).unwrap_or_default();
        let is_alone = |lock: &&Lock| lock.exclusive && lock.kind == LockKind::Record;
        together.iter().filter(is_alone).copied().collect()
    }

    pub fn lapses(&self) -> u64 {
        self.lapses
    }

    /// It has answered the question in which `held` was told and `wished` wished for.
    pub fn answered(
        &mut self,
        file: FileId,
        (held, wished): (Locks, &[Lock]),
        outcome: LockOutcome,
        leases: bool,
    ) {
        let of_file = self.files.entry(file).or_insert_with(OfFile::new);
        let leased = |locks: &Locks| Leased::These(locks.clone());
        match outcome {
            LockOutcome::GivenWhole => {
                (of_file.leased, of_file.told) = (Leased::Whole, None);
                (of_file.told_before, of_file.may_be_told) = (Locks::default(), None);
                of_file.unheard = false;
                self.bound_idle(file);
            }
            LockOutcome::Given => {
                let mut both = held;
                wished.iter().for_each(|lock| both.put(*lock));
                (of_file.leased, of_file.told) = (leased(&both), Some(both));
                of_file.unheard = false;
            }
            LockOutcome::InTheWay(_) => {
                (of_file.leased, of_file.told) = (leased(&held), Some(held));
                of_file.unheard = false;
            }
            // Of what is held here it may have taken no note.
            LockOutcome::NotYet => {
                of_file.told = (held.is_empty() && !of_file.unheard).then_some(held);
            }
            LockOutcome::Lost => self.is_lost_to_others(file, leases),
            LockOutcome::TooMany if wished.is_empty() && !held.is_empty() => {
                self.is_lost_to_others(file, leases);
            }
            LockOutcome::TooMany => {}
        }
    }

    fn is_lost_to_others(&mut self, file: FileId, leases: bool) {
        if leases {
            return self.lose(file);
        }
        if let Some(of_file) = self.files.get_mut(&file) {
            of_file.overtake();
            self.any_overtaken |= of_file.overtaken;
        }
    }

    /// What is held and was leased, to be claimed in a new session. What others have had is not, and
    /// what was locked here alone is asked for when locks are leased: another client may have the file
    /// to itself and hold nothing of it.
    pub fn claims(&self, files_max: usize) -> Vec<Held> {
        let counts =
            |of_file: &OfFile| !of_file.held.is_empty() && !of_file.overtaken && !of_file.unheard;
        let held = self.files.iter().filter(|(_, of_file)| counts(of_file));
        let held = held.map(|(file, of_file)| (*file, of_file.held_as_told()));
        let claims = held.filter(|(_, locks)| !locks.is_empty());
        let claims = claims.map(|(file, locks)| Held { file, locks: locks.to_vec() });
        // What is beyond it is told later, one file after the other.
        claims_that_fit(claims, LOCKS_CLAIMED_MAX).take(files_max).collect()
    }

    /// A new session has begun, and all of the claims but `lost` were granted. Where locks are not
    /// leased now, what was lost goes on among the processes here until they are.
    pub fn attached(&mut self, claims: &[Held], lost: &[FileId]) {
        self.lapsed();
        for file in lost {
            let of_file = self.files.entry(*file).or_insert_with(OfFile::new);
            of_file.overtake();
            self.any_overtaken |= of_file.overtaken;
        }
        for claim in claims.iter().filter(|claim| !lost.contains(&claim.file)) {
            let (Some(of_file), Some(locks)) =
                (self.files.get_mut(&claim.file), Locks::from_told(&claim.locks))
            else {
                continue;
            };
            of_file.leased = Leased::These(locks.within(&of_file.together()));
            of_file.told = Some(locks);
        }
        for of_file in self.files.values_mut().filter(|of_file| !of_file.unheard) {
            of_file.told.get_or_insert_default();
        }
    }

    /// The lease has ended, and something is about to be locked here alone: that was never leased,
    /// whatever was.
    pub fn is_leased_no_more(&mut self, file: FileId) {
        let was_leased = |it: &OfFile| {
            let told = it.told.as_ref().is_some_and(|told| !told.is_empty());
            told || matches!(it.leased, Leased::Whole)
        };
        if let Some(of_file) = self.files.get_mut(&file).filter(|it| was_leased(it)) {
            of_file.doubt();
        }
    }

    /// The lease has ended: nothing is leased, and it is not known what is believed above.
    pub fn lapsed(&mut self) {
        self.lapses += 1;
        for of_file in self.files.values_mut() {
            of_file.doubt();
            of_file.recalled = false;
            of_file.news.notify_waiters();
        }
    }
}

fn claims_that_fit(
    claims: impl Iterator<Item = Held>,
    stretches_max: usize,
) -> impl Iterator<Item = Held> {
    let mut left = stretches_max;
    claims.filter(move |claim| {
        let fits = claim.locks.len() <= left;
        left -= if fits { claim.locks.len() } else { 0 };
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::LockKind;

    #[test]
    fn what_is_claimed_of_many_files_has_room_in_a_message() {
        let lock = Lock { kind: LockKind::Record, exclusive: true, first: 0, last: 0 };
        let claim = |(number, locks)| Held { file: FileId(number), locks: vec![lock; locks] };
        let claims = [(1, 400), (2, 500), (3, 700), (4, 99), (5, 2)].map(claim);
        let files = claims_that_fit(claims.into_iter(), 1000).map(|claim| claim.file.0);
        assert_eq!(files.collect::<Vec<_>>(), [1, 2, 4]);
    }
}
