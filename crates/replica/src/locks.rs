//! Locks of files, leased to clients: what the processes of each hold, all together.
//!
//! ```text
//!   nobody --asks, and nobody else has or wants any--> the whole file is one client's
//!     ^                                                     |  another asks: it is told,
//!     |                                                     v  and tells what it holds
//!     +---the last gives back---- stretches, by client <----+
//! ```
//!
//! Holds: of two clients whose leases last none holds what the other one excludes; nobody decides
//! by itself about a file of which another one holds, or waits for, anything; who waited first
//! comes first, for a while; nobody whose lease had ended holds again what somebody else has
//! held meanwhile; no device takes up the room of all others, however many clients it has.
//! Never: waits, or believes anything of a client whose lease has ended.
//! From: Gray and Cheriton (1989), leases; NFSv4, delegations and byte-range locks.

mod away;
mod shares;

use crate::catalog::DeviceId;
use away::{Away, Claimed};
use model::{FileId, Lock, LockTable, Locks, ReplicaId};
use protocol::{
    FILES_CLAIMED_MAX, Held, LOCKS_TOLD_MAX, LOCKS_WISHED_MAX, LockAim, LockOutcome, Locking,
};
use shares::{Client, Parts, Share, Shares};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::Moment;

/// Files of a volume of which anything is held or waited for.
const FILES_MAX: usize = 100_000;
/// Clients that wait for locks of one file and are told of it.
const WAITING_MAX: usize = 256;
/// Who waits asks again more often than this, and else waits no more.
const WAITS_WITHIN: Duration = Duration::from_secs(5);
/// So long nobody else gets what one who waited was told is free.
const TURN: Duration = Duration::from_secs(1);
/// How often it is looked for files of clients that are gone, where there is no room for another.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The locks of a volume.
#[derive(Debug, Default)]
pub(crate) struct Book {
    files: BTreeMap<FileId, OfFile>,
    shares: Shares,
    away: Away,
    swept: Option<Moment>,
}

#[derive(Debug, Default)]
struct OfFile {
    /// Not of who has the whole file.
    held: LockTable<ReplicaId>,
    whole: Option<ReplicaId>,
    /// Who came first is first.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    who: ReplicaId,
    wished: Vec<Lock>,
    /// What it has said that it holds, and was not taken note of: nobody gets it when it is its turn.
    claimed: Vec<Lock>,
    asked: Moment,
    /// It was told that nobody is in the way any more, and nobody else may be until then.
    turn: Option<Moment>,
}

/// What an asker finds beside the locks.
pub(crate) struct Around<'a> {
    pub now: Moment,
    /// Whose the client is that asks.
    pub device: DeviceId,
    /// Whether a client's lease lasts.
    pub lasts: &'a dyn Fn(ReplicaId) -> bool,
    /// Somebody may hold locks that were given in an earlier life of this origin.
    pub in_grace: bool,
}

/// Clients that have to be told of a file.
pub(crate) type News = Vec<(ReplicaId, FileId)>;

/// A request that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

impl Book {
    /// Takes what a client holds of a file, and gives it what it wishes for if nobody is in the
    /// way.
    pub fn ask(
        &mut self,
        who: ReplicaId,
        asked: &Locking,
        around: &Around<'_>,
    ) -> Result<(LockOutcome, News), Nonsense> {
        let (held, wished) = (&asked.held.locks, &asked.wished);
        // As it came: to put a long list in order takes a while, and all others wait.
        if wished.len() > LOCKS_WISHED_MAX || held.len() + wished.len() > LOCKS_TOLD_MAX {
            return Ok((LockOutcome::TooMany, News::new()));
        }
        let (Some(held), Some(_)) = (Locks::from_told(held), Locks::from_told(wished)) else {
            return Err(Nonsense);
        };
        let (file, client) = (asked.held.file, (who, around.device));
        let stretches = held.len() + wished.len();
        let mut swept = News::new();
        if !self.has_room(client, file, stretches) {
            swept = self.sweep(around);
            if !self.has_room(client, file, stretches) {
                return Ok((LockOutcome::TooMany, swept));
            }
        }
        let before = self.files.get(&file).map(OfFile::parts).unwrap_or_default();
        let of_file = self.files.entry(file).or_default();
        let others_before = of_file.turns_of_others(who, &asked.wished, around.now);
        let mut told = of_file.forget_gone(file, around, &mut self.away);
        let outcome = if !(around.lasts)(who) {
            // It renews its lease first.
            LockOutcome::NotYet
        } else {
            // What it is known to hold, nobody was given since.
            let missed = !of_file.has_any(who) && self.away.has_missed(who, file, &held, true);
            self.away.is_settled(who, file, &held, missed);
            let (outcome, waits) = match missed {
                true => {
                    of_file.leave(who);
                    (LockOutcome::Lost, false)
                }
                false => of_file.ask(who, held, asked, around, &mut told),
            };
            self.away.note_outcome(who, asked, outcome, around.now);
            match waits {
                true => of_file.wait(who, asked, around.now),
                false => of_file.waits_no_more(who, &asked.wished),
            }
            outcome
        };
        told.extend(of_file.give_turns(around.now));
        self.shares.change(&before, &of_file.parts(), around.device);
        // Who asks has its answer, but it may be another of its wishes whose turn has come.
        let others = of_file.turns_of_others(who, &asked.wished, around.now);
        let but = (others <= others_before).then_some(who);
        if of_file.is_empty() {
            self.files.remove(&file);
        }
        swept.extend(news(told, file, but));
        Ok((outcome, swept))
    }

    /// Whether a client may hold so many stretches of a file.
    fn has_room(&self, client: Client, file: FileId, stretches: usize) -> bool {
        let of_file = self.files.get(&file);
        let had = of_file.and_then(|of_file| of_file.part_of(client.0));
        let is_full = of_file.is_none() && self.files.len() >= FILES_MAX;
        // What is given up needs no room.
        !is_full && (stretches == 0 || self.shares.have_room(client, had, stretches))
    }

    /// Where there is no room for what is asked: forgets clients whose lease has ended, of all files.
    fn sweep(&mut self, around: &Around<'_>) -> News {
        let due = self.swept.is_none_or(|at| around.now.since(at) >= SWEEP_EVERY);
        let mut all = News::new();
        let makes_room = self.files.len() >= FILES_MAX
            || self.shares.clients_of(around.device).any(|who| !(around.lasts)(who));
        if !due || !makes_room {
            return all;
        }
        self.swept = Some(around.now);
        for (file, of_file) in &mut self.files {
            let before = of_file.parts();
            let told = of_file.forget_gone(*file, around, &mut self.away);
            self.shares.change(&before, &of_file.parts(), around.device);
            all.extend(told.into_iter().map(|who| (who, *file)));
        }
        self.files.retain(|_, of_file| !of_file.is_empty());
        all
    }

    /// The same where there is no room for all that a client claims.
    fn sweep_for(&mut self, client: Client, claims: &[Held], around: &Around<'_>) -> News {
        let room = self.shares.room_of(client);
        let stretches: usize = claims.iter().map(|claim| claim.locks.len()).sum();
        match claims.len() <= room.files && stretches <= room.stretches {
            true => News::new(),
            false => self.sweep(around),
        }
    }

    /// A client has come, again or for the first time: what it held before counts no more, and of
    /// what it claims the files are given of which it cannot hold it. `lasted`: so did its lease when
    /// the life of the origin before this one ended.
    pub fn attach(
        &mut self,
        who: ReplicaId,
        claims: &[Held],
        lasted: bool,
        around: &Around<'_>,
    ) -> (Vec<FileId>, News) {
        let (mut lost, mut claimed) = (Vec::new(), BTreeMap::new());
        let client = (who, around.device);
        let mut all = self.sweep_for(client, claims, around);
        let mut room = self.shares.room_of(client);
        for (number, claim) in claims.iter().enumerate() {
            let fits = number < FILES_CLAIMED_MAX
                && claimed.len() < room.files
                && claim.locks.len() <= LOCKS_TOLD_MAX.min(room.stretches)
                && (self.files.len() < FILES_MAX || self.files.contains_key(&claim.file));
            let locks = if fits { Locks::from_told(&claim.locks) } else { None };
            let Some(locks) = locks else {
                lost.push(claim.file);
                continue;
            };
            let of_file = self.files.entry(claim.file).or_default();
            let before = of_file.parts();
            // It may not be told of this: its waiters are, below.
            of_file.forget_gone(claim.file, around, &mut self.away);
            self.shares.change(&before, &of_file.parts(), around.device);
            let others = of_file.whole.is_some_and(|other| other != who)
                || of_file.held.are_in_the_way(who, &locks);
            if others || self.away.has_missed(who, claim.file, &locks, lasted) {
                lost.push(claim.file);
            } else {
                for lock in locks.iter() {
                    self.away.note_given(claim.file, who, lock, around.now);
                }
                // In order they may be more.
                room.stretches = room.stretches.saturating_sub(locks.len());
                claimed.insert(claim.file, locks);
            }
        }
        let said = Claimed::of(claims);
        self.away.has_come(who, &said, &lost, lasted);
        let mut share = Share::default();
        for (file, of_file) in &mut self.files {
            if said.leaves_open(*file) && of_file.has_any(who) {
                self.away.note_dropped(*file, who, around.now);
            }
            of_file.leave(who);
            if let Some(locks) = claimed.remove(file).filter(|locks| !locks.is_empty()) {
                share.files += 1;
                share.stretches += locks.len();
                of_file.held.set(who, locks);
            }
            all.extend(news(of_file.give_turns(around.now), *file, Some(who)));
        }
        self.shares.set(client, share);
        self.files.retain(|_, of_file| !of_file.is_empty());
        (lost, all)
    }

    /// Whether a client holds a stretch, or may hold it without asking.
    pub fn has(&self, who: ReplicaId, file: FileId, lock: &Lock) -> bool {
        let covers = |held: &Locks| held.cover(lock);
        self.files.get(&file).is_some_and(|of_file| {
            of_file.whole == Some(who) || of_file.held.of(who).is_some_and(covers)
        })
    }

    /// A client has gone, or has another id.
    pub fn leave(&mut self, who: ReplicaId, now: Moment) -> News {
        let mut all = News::new();
        for (file, of_file) in &mut self.files {
            if of_file.has_any(who) {
                self.away.note_dropped(*file, who, now);
            }
            if of_file.leave(who) {
                all.extend(news(of_file.give_turns(now), *file, Some(who)));
            }
        }
        self.shares.take_all(who);
        self.files.retain(|_, of_file| !of_file.is_empty());
        all
    }
}

fn news(told: Vec<ReplicaId>, file: FileId, but: Option<ReplicaId>) -> News {
    told.into_iter().filter(|who| Some(*who) != but).map(|who| (who, file)).collect()
}

impl OfFile {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.whole.is_none() && self.waiting.is_empty()
    }

    /// What each client has of it.
    fn parts(&self) -> Parts {
        let held = self.held.holders().map(|(who, held)| (*who, held.len()));
        let mut parts: Parts = held.collect();
        for who in self.waiting.iter().map(|waiting| waiting.who).chain(self.whole) {
            parts.entry(who).or_default();
        }
        parts
    }

    /// How many stretches a client holds of it. None: it does not wait for any either.
    fn part_of(&self, who: ReplicaId) -> Option<usize> {
        let waits = || self.waiting.iter().any(|waiting| waiting.who == who);
        match self.held.of(who) {
            Some(held) => Some(held.len()),
            None => (self.whole == Some(who) || waits()).then_some(0),
        }
    }

    /// What comes of a request, and whether who asked waits.
    fn ask(
        &mut self,
        who: ReplicaId,
        held: Locks,
        asked: &Locking,
        around: &Around<'_>,
        told: &mut Vec<ReplicaId>,
    ) -> (LockOutcome, bool) {
        let wished = &asked.wished;
        if let Some(owner) = self.whole.filter(|owner| *owner != who) {
            // What it holds is not known. Told once more in case it has not heard.
            told.push(owner);
            return (LockOutcome::NotYet, true);
        }
        if self.held.are_in_the_way(who, &held) {
            self.leave(who);
            return (LockOutcome::Lost, false);
        }
        self.whole = None;
        self.held.set(who, held.clone());
        // Those who waited come before who gives a lock back and wants it again in one breath.
        told.extend(self.give_turns(around.now));
        if around.in_grace && !wished.is_empty() {
            return (LockOutcome::NotYet, true);
        }
        if let Some(lock) = self.is_in_the_way(who, wished) {
            return (LockOutcome::InTheWay(lock), asked.aim == LockAim::Wait);
        }
        if asked.aim == LockAim::Look {
            return (LockOutcome::Given, false);
        }
        if self.is_anothers_turn(who, wished, around.now) {
            return (LockOutcome::NotYet, true);
        }
        (self.give(who, held, wished, around), false)
    }

    fn give(
        &mut self,
        who: ReplicaId,
        mut held: Locks,
        wished: &[Lock],
        around: &Around<'_>,
    ) -> LockOutcome {
        // Of two wishes for one stretch the stronger counts, and either counts above what is held.
        for exclusive in [false, true] {
            wished.iter().filter(|w| w.exclusive == exclusive).for_each(|w| held.put(*w));
        }
        let holds = !held.is_empty();
        self.held.set(who, held);
        let alone = self.held.holders().all(|(holder, _)| *holder == who);
        let waits = self.waiting.iter().any(|waiting| waiting.who != who);
        if holds && alone && !waits && !around.in_grace {
            self.held.remove(who);
            self.whole = Some(who);
            return LockOutcome::GivenWhole;
        }
        LockOutcome::Given
    }

    /// The first lock of another client that one of these cannot be beside.
    fn is_in_the_way(&self, who: ReplicaId, locks: &[Lock]) -> Option<Lock> {
        locks.iter().find_map(|lock| Some(self.held.in_the_way(who, lock).next()?.1))
    }

    fn is_anothers_turn(&self, who: ReplicaId, wished: &[Lock], now: Moment) -> bool {
        let mut others =
            self.waiting.iter().filter(|other| other.who != who && other.has_turn(now));
        others.any(|other| exclude(&other.wished, wished) || exclude(&other.claimed, wished))
    }

    /// Who waits for the same already keeps its place. Several processes of a client may wait.
    fn wait(&mut self, who: ReplicaId, asked: &Locking, now: Moment) {
        let is_new = !asked.held.locks.is_empty() && self.held.of(who).is_none();
        // It is there for a moment alone: of very many it is not worth looking at each.
        let is_noted = is_new && asked.held.locks.len() <= LOCKS_WISHED_MAX;
        let claimed = if is_noted { asked.held.locks.clone() } else { Vec::new() };
        let wished = asked.wished.clone();
        let waiting = Waiting { who, wished, claimed, asked: now, turn: None };
        let same = |other: &Waiting| other.who == who && other.wished == waiting.wished;
        let own = self.waiting.iter().filter(|other| other.who == who).count();
        match self.waiting.iter().position(same) {
            Some(place) => self.waiting[place] = waiting,
            None if self.waiting.len() < WAITING_MAX && own < LOCKS_WISHED_MAX => {
                self.waiting.push_back(waiting);
            }
            // It asks again by itself.
            None => {}
        }
    }

    /// It has got what it wished for, or does not wait for it. With all of the file it has everything.
    fn waits_no_more(&mut self, who: ReplicaId, wished: &[Lock]) {
        let has_all = self.whole == Some(who);
        self.waiting.retain(|other| other.who != who || !has_all && other.wished != wished);
    }

    /// How many other wishes of a client have their turn.
    fn turns_of_others(&self, who: ReplicaId, but: &[Lock], now: Moment) -> usize {
        let own = self.waiting.iter().filter(|waiting| waiting.who == who);
        own.filter(|waiting| waiting.wished != but && waiting.has_turn(now)).count()
    }

    /// Forgets clients whose lease has ended, and those who do not wait any more.
    fn forget_gone(
        &mut self,
        file: FileId,
        around: &Around<'_>,
        away: &mut Away,
    ) -> Vec<ReplicaId> {
        let holders = self.held.holders().map(|(who, _)| *who).chain(self.whole);
        for who in holders.filter(|who| !(around.lasts)(*who)) {
            away.note_dropped(file, who, around.now);
        }
        self.held.retain(around.lasts);
        self.whole = self.whole.filter(|who| (around.lasts)(*who));
        let now = around.now;
        self.waiting.retain(|waiting| {
            let over = waiting.turn.is_some_and(|until| until <= now);
            !over && now.since(waiting.asked) < WAITS_WITHIN && (around.lasts)(waiting.who)
        });
        self.give_turns(now)
    }

    fn has_any(&self, who: ReplicaId) -> bool {
        self.whole == Some(who) || self.held.of(who).is_some()
    }

    /// Says whether anything of it was the client's.
    fn leave(&mut self, who: ReplicaId) -> bool {
        let waiting = self.waiting.len();
        self.waiting.retain(|waiting| waiting.who != who);
        let owner = self.whole == Some(who);
        self.whole = self.whole.filter(|owner| *owner != who);
        self.held.remove(who) || owner || self.waiting.len() < waiting
    }

    /// Those who waited and whom nobody is in the way of any more: they are to be told, and come
    /// before others for a while.
    fn give_turns(&mut self, now: Moment) -> Vec<ReplicaId> {
        let mut told = Vec::new();
        if self.whole.is_some() {
            return told;
        }
        let mut turns: Vec<Lock> = Vec::new();
        for waiting in &self.waiting {
            if waiting.has_turn(now) {
                turns.extend(waiting.wished.iter().chain(&waiting.claimed));
            }
        }
        for waiting in &mut self.waiting {
            if waiting.turn.is_some() {
                continue;
            }
            let mut wished = waiting.wished.iter();
            let held = wished.any(|lock| self.held.in_the_way(waiting.who, lock).next().is_some());
            if !held && !exclude(&turns, &waiting.wished) {
                waiting.turn = Some(now + TURN);
                turns.extend(waiting.wished.iter().chain(&waiting.claimed));
                told.push(waiting.who);
            }
        }
        told.dedup();
        told
    }
}

impl Waiting {
    fn has_turn(&self, now: Moment) -> bool {
        self.turn.is_some_and(|until| until > now)
    }
}

fn exclude(some: &[Lock], others: &[Lock]) -> bool {
    some.iter().any(|one| others.iter().any(|other| one.excludes(other)))
}

#[cfg(test)]
mod tests;
