//! By which numbers the kernel knows files: by the file's own, until that one cannot be opened as
//! it has to be, and by another from then on. Programs see the file's own in any case.
//! Holds: a file has one number by which it is found, the current one; what the kernel still has
//! under an older one is the same file; a number is never used for two files.
//! From: the kernel's `fs/fuse/iomode.c`, which lets an inode of it be read in one way at a time, and
//! `fs/namei.c`, which looks a path up anew when opening what it led to says ESTALE.

use fuse::{FileAttr, INodeNo};
use model::{FileId, REPLICA_MAX};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// No file has one of these: this replica is never given to anybody.
const FIRST: u64 = (REPLICA_MAX as u64) << 40;

#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether a file has ever had another number.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given: u64,
    others: HashMap<u64, Other>,
    /// Of a file, the numbers that are not its own, the current one last.
    of_file: HashMap<FileId, Vec<u64>>,
}

/// A number that is not the file's own.
#[derive(Debug)]
struct Other {
    file: FileId,
    /// How often the kernel has been told of it and not forgotten it.
    lookups: u64,
}

impl Numbers {
    fn any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that the kernel knows by this number.
    pub(crate) fn file(&self, number: INodeNo) -> FileId {
        let own = FileId(number.0);
        if !self.any() || number.0 < FIRST || own.is_past() {
            return own;
        }
        self.state().others.get(&number.0).map_or(own, |other| other.file)
    }

    /// Whether the file is found by this number.
    pub(crate) fn is_current(&self, number: INodeNo, file: FileId) -> bool {
        !self.any() || self.state().current(file) == number.0
    }

    /// From now on the file is found by a number that is new, unless it is found by another one
    /// than this already.
    pub(crate) fn renew(&self, number: INodeNo, file: FileId) {
        let mut state = self.state();
        if state.current(file) != number.0 {
            return;
        }
        let new = FIRST + state.given;
        state.given += 1;
        state.others.insert(new, Other { file, lookups: 0 });
        state.of_file.entry(file).or_default().push(new);
        self.0.any.store(true, Ordering::Release);
    }

    /// Before the kernel is told what bears a name: attributes with the number to find it by.
    pub(crate) fn found(&self, attributes: FileAttr) -> FileAttr {
        if !self.any() {
            return attributes;
        }
        let mut state = self.state();
        let number = state.current(FileId(attributes.ino.0));
        if let Some(other) = state.others.get_mut(&number) {
            other.lookups += 1;
        }
        FileAttr { number: INodeNo(number), ..attributes }
    }

    /// The kernel has a number so many times less. Gives back the file.
    pub(crate) fn forgotten(&self, number: INodeNo, times: u64) -> FileId {
        let file = self.file(number);
        if self.any() {
            self.state().forgotten(number.0, times);
        }
        file
    }

    /// All numbers by which the kernel may have a file.
    pub(crate) fn all(&self, file: FileId) -> Vec<INodeNo> {
        let mut all = vec![INodeNo(file.0)];
        if self.any() {
            let state = self.state();
            all.extend(state.of_file.get(&file).into_iter().flatten().map(|other| INodeNo(*other)));
        }
        all
    }

    /// Whether it may have it by more than one: what it is told of the one it does not know of the
    /// other.
    pub(crate) fn has_several(&self, file: FileId) -> bool {
        self.any() && self.state().of_file.contains_key(&file)
    }
}

impl State {
    fn current(&self, file: FileId) -> u64 {
        let last = self.of_file.get(&file).and_then(|others| others.last());
        last.copied().unwrap_or(file.0)
    }

    fn forgotten(&mut self, number: u64, times: u64) {
        let Some(other) = self.others.get_mut(&number) else { return };
        other.lookups = other.lookups.saturating_sub(times);
        if other.lookups > 0 {
            return;
        }
        let file = other.file;
        self.others.remove(&number);
        if let Entry::Occupied(mut others) = self.of_file.entry(file) {
            others.get_mut().retain(|other| *other != number);
            // It is found by its own again. If that is still in the way, it gets another.
            if others.get().is_empty() {
                others.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::bare;
    use model::Kind;

    const FILE: FileId = FileId(77);
    const OWN: INodeNo = INodeNo(77);

    fn found(numbers: &Numbers) -> INodeNo {
        let attributes = numbers.found(bare(FILE, Kind::File));
        assert_eq!(attributes.ino, OWN, "what programs see stays");
        attributes.number
    }

    #[test]
    fn a_file_is_found_by_its_own_number_until_it_gets_another() {
        let numbers = Numbers::default();
        assert_eq!((found(&numbers), numbers.has_several(FILE)), (OWN, false));
        numbers.renew(OWN, FILE);
        let other = found(&numbers);
        assert!(other != OWN && numbers.has_several(FILE));
        assert_eq!((numbers.file(OWN), numbers.file(other)), (FILE, FILE));
        assert!(numbers.is_current(other, FILE) && !numbers.is_current(OWN, FILE));
        // Of two that find it in the way at once, one gives it another.
        numbers.renew(OWN, FILE);
        assert_eq!((found(&numbers), numbers.all(FILE)), (other, vec![OWN, other]));
        assert_eq!(numbers.file(INodeNo(78)), FileId(78));
    }

    #[test]
    fn what_the_kernel_has_forgotten_is_forgotten_here() {
        let numbers = Numbers::default();
        numbers.renew(OWN, FILE);
        let first = found(&numbers);
        assert_eq!(found(&numbers), first);
        numbers.renew(first, FILE);
        let second = found(&numbers);
        assert_eq!(numbers.forgotten(first, 1), FILE);
        assert_eq!(numbers.all(FILE), [OWN, first, second]);
        numbers.forgotten(first, 1);
        assert_eq!((numbers.all(FILE), found(&numbers)), (vec![OWN, second], second));
        numbers.forgotten(second, 2);
        assert!(!numbers.has_several(FILE) && numbers.is_current(OWN, FILE));
        numbers.renew(OWN, FILE);
        let third = found(&numbers);
        assert!(![OWN, first, second].contains(&third));
    }

    #[test]
    fn numbers_of_snapshots_are_their_own() {
        let numbers = Numbers::default();
        numbers.renew(OWN, FILE);
        assert_eq!(numbers.file(INodeNo(u64::MAX)), FileId(u64::MAX));
    }
}
