//! Cancels what is pending and no longer matters, before it leaves.
//! Holds: what has left, or is waited for, is not touched; what shows stays the same, but for times
//! of directories; log and tables agree after a crash at any moment.
//! From: partially connected operation, 5.2.

mod gone;

use crate::client::{Client, Core, error_of};
use crate::mode;
use crate::part::forget_part;
use crate::recipes::forget_unsent;
use crate::types::Error;
use model::{Change, FileId, Name, Update};
use protocol::Upstream;
use replay::Moot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Containers, Durability};
use update_log::LogError;
use volume::partial::{self, Changed, Touched};

/// Updates that are looked through at once, the first ones: what stands beyond is looked at when
/// it is among them.
const LOOKED_AT_MAX: usize = 1 << 18;
/// Nobody waits for all of them to be read.
const PAGE_UPDATES: usize = 1024;

/// What was cancelled since the mount.
#[derive(Default)]
pub(crate) struct Cancelling {
    /// The last update that has been looked at.
    looked: AtomicU64,
    pub updates: AtomicU64,
    /// Of contents.
    pub bytes: AtomicU64,
}

impl Cancelling {
    pub fn count(&self, updates: u64, bytes: u64) {
        self.updates.fetch_add(updates, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A store goes that the next one of the same file takes the place of. Whoever waits for it
    /// all the same learns that it went.
    pub(crate) fn overtake(&self, core: &mut Core, number: u64) -> Result<(), LogError> {
        let before = core.log.store_bytes();
        let was_first = core.log.first_number() == Some(number);
        core.log.overtake(number)?;
        core.waiters.note_overtaken(number);
        if was_first {
            self.inner.full.ask();
        }
        self.inner.settled.notify_waiters();
        self.inner.counters.cancelling.count(1, before - core.log.store_bytes());
        Ok(())
    }

    /// Looks through the log if enough of it is new.
    pub(crate) fn cancel_if_due(&self) {
        if mode::waits_for_verdicts(self.connection().mode) {
            // All of it is waited for.
            return;
        }
        let (last, pending) = {
            let core = self.core();
            (core.log.last_number(), core.log.pending_len())
        };
        let looked = self.inner.counters.cancelling.looked.load(Ordering::Relaxed);
        if !replay::is_to_be_looked_through(last.saturating_sub(looked), pending) {
            return;
        }
        self.inner.counters.cancelling.looked.store(last, Ordering::Relaxed);
        if let Err(error) = self.cancel_moot() {
            tracing::warn!(%error, "what is pending could not be looked through");
        }
    }

    /// The disk here is full: what was removed before it was sent goes from it, however little is new since
    /// the log was last looked through. Says whether some did.
    pub(crate) fn removed_gives_way(&self) -> Result<bool, Error> {
        if mode::waits_for_verdicts(self.connection().mode) {
            return Ok(false);
        }
        let last = self.core().log.last_number();
        if self.inner.counters.cancelling.looked.swap(last, Ordering::Relaxed) == last {
            return Ok(false);
        }
        self.cancel_moot()
    }

    /// Says whether something was cancelled.
    fn cancel_moot(&self) -> Result<bool, Error> {
        let pending = self.first_of_log()?;
        let moot = {
            let core = self.core();
            let may: BTreeSet<u64> = pending
                .iter()
                .map(|update| update.stamp.number)
                .filter(|number| core.may_cancel(*number))
                .collect();
            drop(core);
            // Calls go on meanwhile: what they add rests on the same as before.
            replay::moot(&pending, |number| may.contains(&number))
        };
        if moot.is_empty() {
            return Ok(false);
        }
        let _pressed = self.pressed();
        let changed = {
            let mut core = self.core();
            let core = &mut *core;
            let rewritten = moot.rewritten.iter().map(|update| update.stamp.number);
            let numbers: BTreeSet<u64> = moot.cancelled.iter().copied().chain(rewritten).collect();
            if core.behind || !numbers.iter().all(|number| core.may_cancel(*number)) {
                return Ok(false);
            }
            self.cancel_these(core, &pending, &moot, &numbers)?
        };
        self.forget(&changed);
        let went = |update: &&Update| moot.cancelled.binary_search(&update.stamp.number).is_ok();
        let emptied: BTreeSet<FileId> =
            pending.iter().filter(went).filter_map(|update| update.change.fills()).collect();
        emptied.into_iter().for_each(|file| self.discard_removed(file));
        self.inner.settled.notify_waiters();
        Ok(true)
    }

    /// What is pending, the first of it.
    fn first_of_log(&self) -> Result<Vec<Update>, Error> {
        let room = self.core().log.pending_len().min(LOOKED_AT_MAX);
        let (mut pending, mut from) = (Vec::with_capacity(room), 0);
        while pending.len() < LOOKED_AT_MAX {
            let page = self.core().log.pending_from(from, PAGE_UPDATES)?;
            let Some(last) = page.last() else { break };
            from = last.stamp.number + 1;
            pending.extend(page);
        }
        Ok(pending)
    }

    /// The log first, in one record; then the tables, where what shows stays and is another update's
    /// now, or what the replica above said shows again. Gives back what the kernel is to forget.
    fn cancel_these(
        &self,
        core: &mut Core,
        pending: &[Update],
        moot: &Moot,
        numbers: &BTreeSet<u64>,
    ) -> Result<Vec<Changed>, Error> {
        let before = core.log.amend(&moot.cancelled, moot.rewritten.clone())?;
        core.unsaved = true;
        // Some may have been judged since they were read.
        let last = Last::of(pending, moot, |number| core.log.is_pending(number));
        let outcome = || -> Result<BTreeSet<FileId>, Error> {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let mut shown_anew = BTreeSet::new();
            for update in &before {
                let touched = Touched::by(update);
                shown_anew.extend(
                    partial::show_by_others(
                        &mut *write,
                        &touched,
                        numbers,
                        &last.nodes,
                        &last.entries,
                    )
                    .map_err(|error| Error::Failed(error.to_string()))?,
                );
                let number = update.stamp.number;
                if let (Change::Store { file, .. }, false) =
                    (&update.change, core.log.is_pending(number))
                {
                    forget_part(&mut *write, *file, number).map_err(error_of)?;
                    forget_unsent(&mut *write, *file, number).map_err(error_of)?;
                }
            }
            write.commit(Durability::Later).map_err(error_of)?;
            Ok(shown_anew)
        }();
        core.note_behind(&outcome);
        let shown_anew = outcome?;
        let mut bytes = 0;
        for update in before.iter().filter(|update| !core.log.is_pending(update.stamp.number)) {
            core.plans.remove(update.stamp.number);
            if let Change::Store { contents, .. } = &update.change {
                bytes += contents.size;
            }
        }
        self.recharge(core, before.iter().flat_map(Update::touches));
        let cancelled = moot.cancelled.len() as u64;
        self.inner.counters.cancelling.count(cancelled, bytes);
        tracing::debug!(cancelled, bytes, "what no longer matters is not sent");
        let forget = |file| Changed::Node { file, contents: false };
        Ok(shown_anew.into_iter().map(forget).collect())
    }
}

impl Core {
    /// Nor had it before a restart.
    pub(crate) fn has_not_left(&self, number: u64) -> bool {
        self.log.is_pending(number)
            && !self.log.is_submitted(number)
            && number > self.unsure
            && !self.meta.is_taken(number)
    }

    /// It has not left, nobody waits for it, and it shows.
    fn may_cancel(&self, number: u64) -> bool {
        self.may_rewrite(number) && !self.waiters.concern(number)
    }

    /// It has not left, and it shows.
    fn may_rewrite(&self, number: u64) -> bool {
        self.has_not_left(number)
            && number > self.judged
            && self.meta.lost.is_none()
            && self.hidden.is_none()
    }

    /// The replica above had no room for these, in their turn: who hears that knows that the first was
    /// not taken, and so none of the others.
    pub(crate) fn returned_for_room(&mut self, updates: &[Update]) {
        let numbers = updates.iter().map(|update| update.stamp.number);
        let numbers: Vec<u64> = numbers.filter(|number| !self.may_be_ahead(*number)).collect();
        self.log.returned(&numbers);
    }
}

/// Which update that is left touches what last.
#[derive(Default)]
struct Last {
    nodes: BTreeMap<FileId, u64>,
    entries: BTreeMap<(FileId, Name), u64>,
}

impl Last {
    fn of(pending: &[Update], moot: &Moot, is_pending: impl Fn(u64) -> bool) -> Last {
        let mut last = Last::default();
        let mut rewritten = moot.rewritten.iter().peekable();
        for update in pending.iter().filter(|update| is_pending(update.stamp.number)) {
            let number = update.stamp.number;
            let update = match rewritten.next_if(|other| other.stamp.number == number) {
                Some(rewritten) => rewritten,
                None if moot.cancelled.binary_search(&number).is_ok() => continue,
                None => update,
            };
            let touched = Touched::by(update);
            last.nodes.extend(touched.nodes.into_iter().map(|file| (file, number)));
            last.entries.extend(touched.entries.into_iter().map(|entry| (entry, number)));
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Kind, ReplicaId, Stamp, Time};

    fn make(number: u64, name: &str) -> Update {
        let (replica, at) = (ReplicaId(3), Time { secs: 1, nanos: 0 });
        let change = Change::Make {
            parent: FileId::ROOT,
            name: Name::new(name).expect("a name"),
            file: FileId::new(replica, number).expect("a file"),
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            target: None,
            rdev: None,
            born: None,
        };
        Update { stamp: Stamp::new(replica, number), uid: 0, at, change }
    }

    #[test]
    fn what_was_judged_since_it_was_read_is_not_what_shows_now() {
        let pending = [make(5, "a"), make(6, "b"), make(7, "c")];
        let moot = Moot { cancelled: vec![7], ..Moot::default() };
        let last = |judged: &[u64]| {
            let last = Last::of(&pending, &moot, |number| !judged.contains(&number));
            last.nodes.get(&FileId::ROOT).copied()
        };
        assert_eq!(last(&[]), Some(6));
        assert_eq!(last(&[5, 6]), None, "what the replica above says shows again");
    }
}
