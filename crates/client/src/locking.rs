//! Locking: at once where it can be decided here, otherwise by asking the replica above.
//! Holds: who has got a lock from another machine reads what was stored there before it was given
//! up; what was written under a lock has arrived when the lock is given up, and what is claimed waits
//! for nothing; of a file the replica above is asked one thing at a time.

mod behind;
mod companions;
mod ended;
mod lost;
mod patience;
mod questions;
mod stored;
mod telling;

use crate::asking::unexpected;
use crate::client::Client;
use crate::locks::{LockCall, Owner, RELEASED_UNTOLD_WITHIN, RELEASED_WITHIN, Scope, Table, Tried};
use crate::mode;
use crate::ranks::{self, Rank, Ranked};
use crate::types::{Error, Handle, Need};
use ended::LOOK_AT_HOLDERS_EVERY;
use model::{FileId, Lock, LockKind, Locks};
use patience::{ASK_AGAIN_AFTER, LOOK_AGAIN_AFTER, Patience};
use protocol::{Held, LockAim, LockOutcome, Locked, Locking, Notice, Response, States, Upstream};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Containers;

/// What came of asking the replica above.
enum Came {
    Locked,
    InTheWay(Lock),
    NotYet,
    /// It is to be tried again.
    Overtaken,
    /// Nobody is in the way.
    Free,
    /// What is written here cannot be stored before: it is locked all the same.
    AsItIs,
}

/// What an asker wishes for.
#[derive(Clone, Copy)]
struct Wish<'a> {
    call: &'a LockCall,
    aim: LockAim,
    /// Whatever is newer elsewhere.
    as_it_is: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn locks(&self) -> Ranked<'_, Table> {
        ranks::lock(Rank::Locks, &self.inner.locks)
    }

    /// For whoever has the locks: whether they hold among all mounts now.
    fn lock_scope(&self) -> Scope {
        let connection = self.connection();
        if !mode::waits_for_verdicts(connection.mode) || connection.leases_locks == Some(false) {
            return Scope::Here;
        }
        let now = self.inner.world.clock.outer_moment();
        Scope::Leased { lasts: connection.attached && connection.lease_holds(now) }
    }

    pub(crate) fn leases_locks(&self) -> bool {
        self.lock_scope() != Scope::Here
    }

    fn lease_lasts(&self) -> bool {
        self.connection().lease_holds(self.inner.world.clock.outer_moment())
    }

    /// Locks it if that can be decided at once.
    pub fn try_lock(&self, call: &LockCall) -> Result<Tried, Error> {
        self.try_lock_of(call, false)
    }

    fn try_lock_of(&self, call: &LockCall, as_it_is: bool) -> Result<Tried, Error> {
        self.inner.counters.calls.fetch_add(1, Ordering::Relaxed);
        let kernel_writes = {
            let mut files = self.files();
            files.is_not_plain(call.file);
            files.kernel_writes_to(call.file)
        };
        if call.may_share_memory()
            && !self.locks().knows(call.file)
            && self.shares_memory(call.file)
        {
            self.locks().is_for_one(call.file);
        }
        self.begins_anew(call);
        let is_behind = !as_it_is && self.leases_locks() && self.is_behind(call)?;
        let mut locks = self.locks_as_they_count();
        if locks.is_lost(call.handle) {
            return Err(Error::LockLost);
        }
        let scope = self.lock_scope();
        if scope == Scope::Here && !self.lease_lasts() {
            locks.is_leased_no_more(call.file);
        }
        if is_behind && scope != Scope::Here && !locks.are_in_the_way(call) {
            return Ok(Tried::Lacking);
        }
        if kernel_writes && scope != Scope::Here {
            // What is written under it could not be stored before it is given up.
            return Err(Error::OlderLentOut);
        }
        let tried = locks.try_lock(call, scope);
        if let Tried::InTheWay(owners) = &tried {
            drop(locks);
            if self.give_up_of_the_ended(call.file, owners) {
                // All of it may be otherwise by now. There are fewer in the way each time.
                return self.try_lock_of(call, as_it_is);
            }
            locks = self.locks_as_they_count();
        }
        // A weaker lock in place of a stronger one is news for others, and one that is given up.
        if matches!(tried, Tried::Done | Tried::InTheWay(_)) && locks.owes(call.file, scope) {
            self.inner.locks_wanted.notify_one();
        }
        Ok(tried)
    }

    /// Locks it, and `waits` as long as somebody is in the way.
    pub async fn lock(&self, call: &LockCall, waits: bool) -> Result<(), Error> {
        let clock = &self.inner.world.clock;
        let until = clock.moment() + self.inner.settings.answer_within;
        let start = clock.moment();
        let waiting = Waiting::new(self, call.owner);
        let aim = if waits { LockAim::Wait } else { LockAim::Try };
        let mut patience = Patience::of_who(waits);
        // Whoever waits says itself when it has waited long enough: by a signal.
        loop {
            let news = self.locks().news(call.file);
            let changed = news.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            waiting.end();
            match self.try_lock_of(call, patience.takes_it_as_it_is())? {
                // If it is a weaker one in place of a stronger, others are told soon: who is
                // interrupted would not know that it has it.
                Tried::Done => return Ok(()),
                Tried::TooMany => return Err(Error::TooManyLocks),
                Tried::InTheWay(owners)
                    if clock.moment().since(start) < self.released_within(call.file, &owners) =>
                {
                    let _ = clock.within(LOOK_AGAIN_AFTER, changed).await;
                    continue;
                }
                Tried::InTheWay(_) if !waits => {
                    self.tell_of_lock(call.file).await;
                    return Err(Error::Locked);
                }
                Tried::InTheWay(owners) if call.lock.kind == LockKind::Record => {
                    if self.may_end_untold(call.file, &owners) {
                        patience.looks_within(LOOK_AT_HOLDERS_EVERY);
                    }
                    if !self.locks().waits.begin(call.owner, waiting.number, owners) {
                        return Err(Error::Deadlock);
                    }
                }
                // flock(2) knows of no deadlocks.
                Tried::InTheWay(_) => {}
                Tried::Lacking => {
                    let asked = clock.moment();
                    let as_it_is = patience.takes_it_as_it_is();
                    let wish = Some(Wish { call, aim, as_it_is });
                    match self.bounded(asked, Box::pin(self.ask_of_locks(call.file, wish))).await {
                        Ok(Came::Locked) => return Ok(()),
                        Ok(Came::AsItIs) => {
                            patience.take_it_as_it_is(clock.moment());
                            continue;
                        }
                        // With the next question it is told that it is given up.
                        Ok(Came::InTheWay(_)) if self.locks().convert(call) => continue,
                        Ok(Came::InTheWay(_)) if !waits => return Err(Error::Locked),
                        Ok(Came::NotYet | Came::Overtaken) if !waits && clock.moment() >= until => {
                            return Err(Error::Locked);
                        }
                        Ok(Came::Overtaken) if patience.asks_again() => continue,
                        Ok(_) => {}
                        Err(Error::Retry) => self.attached_again(asked).await?,
                        // It is decided here from now on.
                        Err(Error::Unreachable(_)) if !self.leases_locks() => continue,
                        Err(error) => return Err(error),
                    }
                }
            }
            let _ = clock.within(patience.pause(), changed).await;
            patience.tries_anew(clock.moment(), self.inner.settings.answer_within);
        }
    }

    /// How soon what is in the way may be gone: programs take a lock for given up when they have closed
    /// its file. Zero: it is there to stay.
    pub fn released_within(&self, file: FileId, owners: &BTreeSet<Owner>) -> Duration {
        let now = self.inner.world.clock.moment();
        let handles = {
            let locks = self.locks();
            if locks.may_be_released(file, owners, now) {
                return RELEASED_WITHIN;
            }
            locks.handles_of(file, owners)
        };
        // Of what is open to be read alone the kernel tells when it is released, and not before.
        match self.files().are_all_for_reading(&handles) {
            true => RELEASED_UNTOLD_WITHIN,
            false => Duration::ZERO,
        }
    }

    /// What is in the way of a lock, and the process that holds it, if it is one of here.
    pub async fn look_at_lock(&self, call: &LockCall) -> Result<Option<(Lock, u32)>, Error> {
        let until = self.inner.world.clock.moment() + self.inner.settings.answer_within;
        loop {
            let news = self.locks().news(call.file);
            let changed = news.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (found, lacks) = {
                let locks = self.locks();
                locks.look(call, self.lock_scope())
            };
            let owners = found.map(|_| self.locks().owners(call.file)).unwrap_or_default();
            if self.give_up_of_the_ended(call.file, &owners) {
                continue;
            }
            if !lacks {
                return Ok(found);
            }
            let wish = Wish { call, aim: LockAim::Look, as_it_is: true };
            let asked = self.inner.world.clock.moment();
            match self.bounded(asked, Box::pin(self.ask_of_locks(call.file, Some(wish)))).await {
                Ok(Came::InTheWay(lock)) => return Ok(Some((lock, 0))),
                Ok(Came::Free | Came::Locked) => return Ok(None),
                Ok(Came::NotYet | Came::Overtaken | Came::AsItIs) => {}
                Err(Error::Retry) => self.attached_again(asked).await?,
                Err(Error::Unreachable(_)) if !self.leases_locks() => continue,
                Err(error) => return Err(error),
            }
            if self.inner.world.clock.moment() >= until {
                return Err(Error::TimedOut(self.inner.settings.answer_within));
            }
            let _ = self.inner.world.clock.within(ASK_AGAIN_AFTER, changed).await;
        }
    }

    /// Whether a lock leaves others in who could not share what was held before.
    pub fn weakens_lock(&self, call: &LockCall) -> bool {
        self.locks().weakens(call)
    }

    /// Whether others have to be told of what was given up of a file.
    pub fn has_locks_to_tell(&self, file: FileId) -> bool {
        let locks = self.locks();
        locks.owes(file, self.lock_scope())
    }

    /// Tells the replica above, if that is possible now, what was given up of a file: when this is
    /// done, others get it at once.
    pub async fn tell_of_lock(&self, file: FileId) {
        if self.files().is_to_be_stored_unseen(file) && !self.locks().gives_nothing_up(file) {
            // Others get it when what was written under it is stored.
            return;
        }
        let attached = {
            let connection = self.connection();
            connection.attached && connection.leases_locks == Some(true)
        };
        let now = self.inner.world.clock.moment();
        if attached
            && self.has_locks_to_tell(file)
            && let Err(error) = self.bounded(now, Box::pin(self.ask_of_locks(file, None))).await
        {
            // It is told later, or the lease ends.
            tracing::debug!(%error, %file, "of a lock that was given up nothing could be told yet");
        }
    }

    /// Gives up a stretch. Where it cannot be told which kind of lock is meant, both are given up.
    pub fn unlock(&self, call: &LockCall, kinds: &[LockKind]) -> Result<(), Error> {
        let mut locks = self.locks_as_they_count();
        if locks.is_lost(call.handle) {
            return Err(Error::LockLost);
        }
        if locks.leaves_too_many(call, kinds, self.lock_scope()) {
            return Err(Error::TooManyLocks);
        }
        if locks.unlock(call, kinds) {
            self.gave_up(&locks, call.file);
        }
        Ok(())
    }

    /// A process has closed a descriptor of the file.
    pub fn closed_by(&self, file: FileId, handle: Handle, owner: Owner) {
        let now = self.inner.world.clock.moment();
        let mut locks = self.locks();
        locks.one_closed(file, handle, now);
        if locks.closed(file, owner) {
            self.gave_up(&locks, file);
        }
    }

    fn gave_up(&self, locks: &Table, file: FileId) {
        if locks.owes(file, self.lock_scope()) {
            self.inner.locks_wanted.notify_one();
        }
    }

    /// Whether what is in the way of a wish here is stored, and the newest version gone on with. What could
    /// not be in time is not waited for with each question.
    async fn is_ready_for(&self, Wish { call, as_it_is, .. }: Wish<'_>) -> Result<bool, Error> {
        if as_it_is {
            return Ok(true);
        }
        // Boxed, as it is large and seldom.
        if self.leases_locks() && !Box::pin(self.goes_on_with_newest(call)).await? {
            return Ok(false);
        }
        // Meanwhile others may claim what is held already.
        self.stores_have_arrived(call.file).await;
        Ok(true)
    }

    /// Tells the replica above what is held of a file, and wishes for more.
    async fn ask_of_locks(&self, file: FileId, wish: Option<Wish<'_>>) -> Result<Came, Error> {
        let asking = self.locks().asking(file);
        let wanted = wish.filter(|wish| wish.aim != LockAim::Look);
        if let Some(wish) = wanted
            && !self.is_ready_for(wish).await?
        {
            return Ok(Came::AsItIs);
        }
        let one_at_a_time = asking.lock_owned().await;
        if !self.lease_lasts() {
            self.satisfy(Need::Lease).await?;
        }
        // What is only claimed waits for nothing: somebody who comes could get it.
        let gives_up = !self.locks().gives_nothing_up(file);
        if gives_up && wanted.is_none() && self.files().kernel_writes_to(file) {
            return Err(Error::OlderLentOut);
        }
        if gives_up || wanted.is_some_and(|wish| !wish.as_it_is) {
            self.stores_have_arrived(file).await;
        }
        // What is told as held is told in the session in which it was.
        self.attached().await?;
        let session = self.connection().sessions;
        // Whoever asked before may have got it.
        if let Some(wish) = wanted {
            match self.try_lock_of(wish.call, wish.as_it_is)? {
                Tried::Done => return Ok(Came::Locked),
                Tried::Lacking => {}
                Tried::InTheWay(_) | Tried::TooMany => return Ok(Came::Overtaken),
            }
        }
        let (held, lapses) = {
            let mut locks = self.locks_as_they_count();
            if !gives_up && wanted.is_none() && !locks.gives_nothing_up(file) {
                self.inner.locks_wanted.notify_one();
                return Ok(Came::Overtaken);
            }
            let leases = self.leases_locks();
            locks.ask(file, leases)
        };
        let wished = self.wished(wish);
        let locking = Locking {
            held: Held { file, locks: held.to_vec() },
            wished: wished.clone(),
            aim: wish.map_or(LockAim::Try, |wish| wish.aim),
        };
        let asked = self.asking();
        let (answer, _one_at_a_time) =
            self.ask_to_the_end((locking, lapses), session, one_at_a_time).await?;
        let Locked { outcome, states } = match answer? {
            Response::Locked(locked) => locked,
            other => return Err(unexpected("lock", &other)),
        };
        if !states.is_empty() {
            self.take_shown((&states, asked))?;
            self.come_to_newest(file, wish.map(|wish| wish.call.handle)).await?;
        }
        if wanted.is_some_and(|wish| wish.call.may_share_memory()) {
            self.go_on_with_companions(file).await?;
        }
        let given = if wanted.is_some() { wished } else { Vec::new() };
        self.came_of(file, (held, lapses), (&given, wanted), outcome)
    }

    /// Takes in what came of a question in which `held` was told, and `given` wished for.
    fn came_of(
        &self,
        file: FileId,
        (held, lapses): (Locks, u64),
        (given, wanted): (&[Lock], Option<Wish<'_>>),
        outcome: LockOutcome,
    ) -> Result<Came, Error> {
        // Of an error the next try hears.
        let is_behind =
            |wish: Wish<'_>| !wish.as_it_is && self.is_behind(wish.call).unwrap_or(true);
        let is_behind = wanted.is_some_and(is_behind);
        let mut locks = self.locks();
        if locks.lapses() != lapses {
            locks.doubt(file);
            self.inner.locks_wanted.notify_one();
            return Ok(Came::Overtaken);
        }
        let leases = self.leases_locks();
        locks.answered(file, (held, given), outcome, leases);
        if outcome == LockOutcome::Lost {
            // That it was heard is told.
            self.inner.locks_wanted.notify_one();
        }
        let came = match (outcome, wanted) {
            (LockOutcome::Lost, Some(wish)) if locks.is_lost(wish.call.handle) => {
                return Err(Error::LockLost);
            }
            (LockOutcome::Lost, _) => Came::Overtaken,
            (LockOutcome::TooMany, _) => return Err(Error::TooManyLocks),
            (LockOutcome::InTheWay(lock), _) => Came::InTheWay(lock),
            (LockOutcome::NotYet, _) => Came::NotYet,
            (LockOutcome::Given | LockOutcome::GivenWhole, None) => Came::Free,
            (LockOutcome::Given | LockOutcome::GivenWhole, Some(_)) if is_behind => Came::Overtaken,
            (LockOutcome::Given | LockOutcome::GivenWhole, Some(wish)) => {
                match locks.try_lock(wish.call, self.lock_scope()) {
                    Tried::Done => Came::Locked,
                    _ => Came::Overtaken,
                }
            }
        };
        if matches!(came, Came::Overtaken) || matches!(outcome, LockOutcome::GivenWhole) {
            // More may be leased than is held, or of another file more than is of use.
            self.inner.locks_wanted.notify_one();
        }
        Ok(came)
    }

    fn take_shown(&self, shown: (&States, u32)) -> Result<(), Error> {
        let changed = {
            let _pressed = self.pressed();
            let mut core = self.core();
            self.take_in(&mut core, shown, None, false)?
        };
        self.forget(&changed);
        Ok(())
    }

    /// A notice has been taken in.
    pub(crate) fn hear_of_locks(&self, notice: &Notice) {
        if let Some(files) = &notice.locks {
            self.give_up_for_others(files);
            self.locks().told_of(files);
            self.inner.locks_wanted.notify_one();
        }
    }

    /// Whether somebody who comes could get what is held here.
    pub(crate) fn owes_locks(&self) -> bool {
        let locks = self.locks();
        self.leases_locks() && locks.is_unclaimed()
    }
}

/// Somebody waits, until this is dropped.
struct Waiting<'a, U: Upstream, C: Containers> {
    client: &'a Client<U, C>,
    owner: Owner,
    number: u64,
}

impl<'a, U: Upstream, C: Containers> Waiting<'a, U, C> {
    fn new(client: &'a Client<U, C>, owner: Owner) -> Self {
        let number = client.locks().number_of_a_wait();
        Waiting { client, owner, number }
    }

    fn end(&self) {
        self.client.locks().waits.end(self.owner, self.number);
    }
}

impl<U: Upstream, C: Containers> Drop for Waiting<'_, U, C> {
    fn drop(&mut self) {
        self.end();
    }
}
