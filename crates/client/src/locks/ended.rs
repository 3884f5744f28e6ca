//! Processes that have ended and hold locks all the same. The kernel gives up a process's locks of a
//! file when it closes a descriptor of it, and tells of no close of what was opened to be read while
//! nobody locked it. If a copy of the descriptor lives on elsewhere, nothing tells of the end either.
//! Never: gives up what a process holds that may be alive; whoever shares its descriptors without being
//! a thread of it (`CLONE_FILES`) is not seen.

use super::{Owner, Table};
use model::{FileId, LockKind};
use std::collections::BTreeSet;

/// A process of this machine: its number, and when it began, as numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub number: u32,
    pub began: u64,
}

/// What is known of who asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// Its closes of the file are told, and so is its end.
    Told,
    /// They are not, and it is this process's own lock.
    Seen(Process),
    /// They are not, and whose it is cannot be told, or it outlives who took it: an open file
    /// description has it.
    Unseen,
}

impl Taker {
    /// Of an owner who has locked before: what differs is of two processes, or nobody knows.
    pub(super) fn beside(self, before: Option<Taker>) -> Taker {
        match before {
            Some(before) if before != self => Taker::Unseen,
            _ => self,
        }
    }
}

impl Table {
    /// Of these owners, those who hold something of a file and may have ended untold.
    pub fn to_be_seen(&self, file: FileId, owners: &BTreeSet<Owner>) -> Vec<(Owner, Process)> {
        let Some(of_file) = self.files.get(&file) else { return Vec::new() };
        let seen = |owner: &Owner| match of_file.by.get(owner)?.taker? {
            Taker::Seen(process) => Some((*owner, process)),
            Taker::Told | Taker::Unseen => None,
        };
        owners.iter().filter_map(seen).collect()
    }

    /// All who hold something of a file.
    pub fn owners(&self, file: FileId) -> BTreeSet<Owner> {
        let of_file = self.files.get(&file);
        of_file.map(|of_file| of_file.by.keys().copied().collect()).unwrap_or_default()
    }

    /// A process has ended. Says whether anything was held.
    pub fn ended(&mut self, file: FileId, owner: Owner, process: Process) -> bool {
        let by = self.files.get(&file).and_then(|of_file| of_file.by.get(&owner));
        if by.is_none_or(|by| by.taker != Some(Taker::Seen(process))) {
            return false;
        }
        self.change((file, &[owner]), |held| held.unlock_all(owner, LockKind::Record))
    }

    /// Whether a close of the file matters to whoever may hold records of it.
    pub fn is_recorded(&self, file: FileId) -> bool {
        self.recorded.contains(&file)
    }

    /// Nobody has the file open any more.
    pub fn is_closed(&mut self, file: FileId) {
        self.recorded.remove(&file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{LockCall, Scope, Tried};
    use crate::types::Handle;
    use model::Lock;

    const FILE: FileId = FileId(7);
    const ONE: Process = Process { number: 40, began: 1 };

    fn shared(owner: u64, taker: Taker) -> LockCall {
        LockCall {
            file: FILE,
            handle: Handle(owner),
            owner: Owner(owner),
            lock: Lock { kind: LockKind::Record, exclusive: false, first: 0, last: 9 },
            process: 40,
            taker,
        }
    }

    fn locked(calls: &[LockCall]) -> Table {
        let mut table = Table::default();
        for call in calls {
            assert_eq!(table.try_lock(call, Scope::Here), Tried::Done);
        }
        table
    }

    fn seen(table: &Table) -> Vec<(Owner, Process)> {
        table.to_be_seen(FILE, &table.owners(FILE))
    }

    #[test]
    fn who_has_ended_holds_nothing_and_the_others_hold_what_they_held() {
        let calls = [shared(1, Taker::Seen(ONE)), shared(2, Taker::Told), shared(3, Taker::Unseen)];
        let mut table = locked(&calls);
        assert_eq!(seen(&table), [(Owner(1), ONE)]);
        let another = Process { began: 2, ..ONE };
        assert!(!table.ended(FILE, Owner(1), another), "that is another one");
        assert!(!table.ended(FILE, Owner(2), ONE) && !table.ended(FILE, Owner(3), ONE));
        assert!(table.ended(FILE, Owner(1), ONE));
        assert!(!table.ended(FILE, Owner(1), ONE), "nothing is left");
        assert_eq!(table.owners(FILE), BTreeSet::from([Owner(2), Owner(3)]));
    }

    #[test]
    fn of_whom_one_thing_and_another_is_said_nothing_is_known() {
        let others = [Taker::Told, Taker::Unseen, Taker::Seen(Process { number: 41, ..ONE })];
        for other in others {
            for calls in [[Taker::Seen(ONE), other], [other, Taker::Seen(ONE)]] {
                let table = locked(&calls.map(|taker| shared(1, taker)));
                assert_eq!(seen(&table), [], "{calls:?}");
            }
        }
        let twice = locked(&[shared(1, Taker::Seen(ONE)), shared(1, Taker::Seen(ONE))]);
        assert_eq!(seen(&twice), [(Owner(1), ONE)]);
    }

    #[test]
    fn closes_matter_from_the_first_lock_of_records_until_nobody_has_the_file_open() {
        let mut table = Table::default();
        let call = shared(1, Taker::Told);
        let whole = LockCall { lock: Lock { kind: LockKind::Whole, ..call.lock }, ..call };
        assert_eq!(table.try_lock(&whole, Scope::Here), Tried::Done);
        assert!(!table.is_recorded(FILE), "flock knows of no closes");
        assert_eq!(table.try_lock(&call, Scope::Here), Tried::Done);
        assert!(table.unlock(&call, &[LockKind::Record]));
        assert!(table.is_recorded(FILE));
        table.is_closed(FILE);
        assert!(!table.is_recorded(FILE));
    }
}
