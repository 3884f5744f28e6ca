//! Which file another one takes the place of: what an editor, a compiler or an archiver makes anew
//! under an old name is mostly what it was.
//! Holds: these are guesses, and bounded. A wrong one costs a delta that is not made.
//! From: beyond LBFS, which finds what is alike by its chunks alone.

use chunks::delta::Part;
use model::{Change, FileId, Kind, Name, Stamp, Update};
use std::collections::{BTreeMap, BTreeSet};

/// Files, names and bases that are remembered.
pub(crate) const REMEMBERED_MAX: usize = 4096;

/// The newest entries of a map.
pub(crate) struct Recent<K, V> {
    rows: BTreeMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    last: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { rows: BTreeMap::new(), order: BTreeMap::new(), last: 0 }
    }
}

impl<K: Ord + Clone, V> Recent<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        self.last += 1;
        self.order.insert(self.last, key.clone());
        if let Some((before, _)) = self.rows.insert(key, (self.last, value)) {
            self.order.remove(&before);
        }
        if self.rows.len() > REMEMBERED_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.rows.remove(&oldest);
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key).map(|(_, value)| value)
    }
}

/// What a version was assembled of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// Parts that were there as contents of their own, and the bytes of all parts.
    pub files: u64,
    pub bytes: u64,
    /// Parts that were inside other containers, and the first few of these.
    pub within: u64,
    pub containers: BTreeSet<FileId>,
}

/// Containers that are named.
const CONTAINERS_MAX: usize = 4;

impl Assembly {
    pub fn add(&mut self, parts: &[Part]) {
        for part in parts {
            self.bytes += part.length();
            let container = match part {
                Part::Contents(_) => {
                    self.files += 1;
                    continue;
                }
                Part::Bytes(base) | Part::Plain { stream: base, .. } => base.file,
            };
            self.within += 1;
            if self.containers.len() < CONTAINERS_MAX {
                self.containers.insert(container);
            }
        }
    }
}

/// How the contents of a file last travelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// The version that travelled.
    pub version: Stamp,
    pub sent: bool,
    /// What a delta was against, and its codec.
    pub base: Option<(FileId, Stamp, u8)>,
    /// Bytes of the contents that deltas stood for, and bytes of the deltas.
    pub coded: u64,
    pub coded_bytes: u64,
    /// Bytes of the contents that travelled by themselves, before compression.
    pub plain: u64,
    /// What of it was assembled of what is inside containers.
    pub assembly: Assembly,
    /// Why it was not, as far as it was not.
    pub left: Option<&'static str>,
}

#[derive(Default)]
pub(crate) struct Kin {
    /// Who bore a name last, of those that lost it.
    bearers: Recent<(FileId, Name), FileId>,
    /// The last name that a file lost.
    names: Recent<FileId, (FileId, Name)>,
    /// Whose place a file took.
    places: Recent<FileId, FileId>,
    /// The name that a file was last given.
    homes: Recent<FileId, (FileId, Name)>,
    /// Versions of which the replica above has said that it cannot use them, or that were of no
    /// use here.
    useless: Recent<(FileId, Stamp), ()>,
    transfers: Recent<FileId, Transfer>,
}

impl Kin {
    /// What a change says of who takes whose place.
    pub fn note(&mut self, update: &Update) {
        match &update.change {
            Change::Make { parent, name, file, kind: Kind::File, .. }
            | Change::Link { parent, name, file } => self.gains((*parent, name.clone()), *file),
            Change::Unlink { parent, name, file, .. } => self.loses((*parent, name.clone()), *file),
            Change::Rename {
                from, from_name, to, to_name, file, over, exchange: false, ..
            } => {
                if let Some(over) = over {
                    self.takes_place(*file, *over);
                    self.names.insert(*over, (*to, to_name.clone()));
                } else {
                    self.gains((*to, to_name.clone()), *file);
                }
                self.loses((*from, from_name.clone()), *file);
            }
            _ => {}
        }
    }

    /// The name is another file's now, or nobody's.
    pub fn changes_hands(&mut self, name: (FileId, Name), before: FileId, now: Option<FileId>) {
        match now {
            Some(now) => self.takes_place(now, before),
            None => self.loses(name, before),
        }
    }

    /// A file was removed under this name in an earlier life.
    pub fn loses(&mut self, name: (FileId, Name), file: FileId) {
        self.bearers.insert(name.clone(), file);
        self.names.insert(file, name);
    }

    fn gains(&mut self, name: (FileId, Name), file: FileId) {
        self.homes.insert(file, name.clone());
        let before = self.bearers.get(&name).copied();
        if let Some(before) = before
            && self.places.get(&file).is_none()
        {
            self.takes_place(file, before);
        }
    }

    fn takes_place(&mut self, file: FileId, before: FileId) {
        if file != before {
            self.places.insert(file, before);
        }
    }

    /// The file whose place this one took.
    pub fn before(&self, file: FileId) -> Option<FileId> {
        self.places.get(&file).copied()
    }

    /// The name that a file was last given here.
    pub fn home(&self, file: FileId) -> Option<(FileId, Name)> {
        self.homes.get(&file).cloned()
    }

    /// The last name that a file lost.
    pub fn lost_name(&self, file: FileId) -> Option<(FileId, Name)> {
        self.names.get(&file).cloned()
    }

    pub fn is_useless(&self, file: FileId, version: Stamp) -> bool {
        self.useless.get(&(file, version)).is_some()
    }

    pub fn note_useless(&mut self, file: FileId, version: Stamp) {
        self.useless.insert((file, version), ());
    }

    pub fn transfer(&self, file: FileId) -> Option<&Transfer> {
        self.transfers.get(&file)
    }

    /// What is to be told of the transfer of a version; a new one begins with nothing.
    pub fn transfer_of(&mut self, file: FileId, version: Stamp, sent: bool) -> &mut Transfer {
        let is_this = |transfer: &Transfer| transfer.version == version && transfer.sent == sent;
        if !self.transfers.get(&file).is_some_and(is_this) {
            let (base, coded, coded_bytes, plain) = (None, 0, 0, 0);
            let (assembly, left) = (Assembly::default(), None);
            let fresh = Transfer { version, sent, base, coded, coded_bytes, plain, assembly, left };
            self.transfers.insert(file, fresh);
        }
        self.transfers.get_mut(&file).expect("it is there, or was just put there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ReplicaId, Time};

    const DIRECTORY: FileId = FileId::ROOT;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn update(change: Change) -> Update {
        let stamp = Stamp::new(ReplicaId(1), 1);
        Update { stamp, uid: 0, at: Time { secs: 0, nanos: 0 }, change }
    }

    fn make(text: &str, file: u64) -> Update {
        update(Change::Make {
            parent: DIRECTORY,
            name: name(text),
            file: FileId(file),
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            target: None,
            rdev: None,
            born: None,
        })
    }

    fn unlink(text: &str, file: u64) -> Update {
        update(Change::Unlink {
            parent: DIRECTORY,
            name: name(text),
            file: FileId(file),
            expects: None,
        })
    }

    fn rename(from: &str, to: &str, file: u64, over: Option<u64>) -> Update {
        update(Change::Rename {
            from: DIRECTORY,
            from_name: name(from),
            to: DIRECTORY,
            to_name: name(to),
            file: FileId(file),
            over: over.map(FileId),
            exchange: false,
            whiteout: None,
            expects: None,
        })
    }

    fn check(updates: &[Update], file: u64, before: Option<u64>) {
        let mut kin = Kin::default();
        for update in updates {
            kin.note(update);
        }
        assert_eq!(kin.before(FileId(file)), before.map(FileId));
    }

    #[test]
    fn what_replaces_a_file_by_rename_takes_its_place() {
        check(&[make("new", 8), rename("new", "doc", 8, Some(7))], 8, Some(7));
    }

    #[test]
    fn what_is_made_under_the_name_of_a_removed_file_takes_its_place() {
        check(&[unlink("a.o", 7), make("a.o", 8)], 8, Some(7));
        check(&[unlink("a.o", 7), make("b.o", 8)], 8, None);
    }

    #[test]
    fn what_is_made_where_an_editor_has_put_the_old_file_aside_takes_its_place() {
        check(&[rename("doc", "doc~", 7, None), make("doc", 8)], 8, Some(7));
        check(&[unlink("doc", 7), rename("new", "doc", 8, None)], 8, Some(7));
    }

    #[test]
    fn a_temporary_name_that_is_used_again_leads_to_what_was_saved_through_it() {
        let saved = [make("doc.tmp", 7), rename("doc.tmp", "doc", 7, None)];
        check(&[&saved[..], &[make("doc.tmp", 8)]].concat(), 8, Some(7));
    }

    #[test]
    fn only_the_newest_are_remembered() {
        let mut recent = Recent::default();
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            recent.insert(number, number);
            recent.insert(5, number);
        }
        assert_eq!(recent.rows.len(), REMEMBERED_MAX);
        assert_eq!(recent.order.len(), REMEMBERED_MAX);
        assert_eq!((recent.get(&4), recent.get(&5)), (None, Some(&(REMEMBERED_MAX as u64 + 9))));
    }
}
