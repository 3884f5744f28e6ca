//! One change to a volume, as it stands in the log: names and expectations, never contents.
//! From: DESIGN, "Updates"; partially connected operation, section 4.

use crate::{Contents, FileId, Kind, Name, Stamp, Time};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Update {
    #[n(0)]
    pub stamp: Stamp,
    /// The user, by number, whose process made the change.
    #[n(1)]
    pub uid: u32,
    #[n(2)]
    pub at: Time,
    #[n(3)]
    pub change: Change,
}

/// What changes. Each names what it expects to find; what it does not find is a `Problem`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Change {
    /// A new file of any kind. Expects the name absent and the id unused.
    #[n(0)]
    Make {
        #[n(0)]
        parent: FileId,
        #[n(1)]
        name: Name,
        #[n(2)]
        file: FileId,
        #[n(3)]
        kind: Kind,
        #[n(4)]
        mode: u16,
        #[n(5)]
        uid: u32,
        #[n(6)]
        gid: u32,
        #[n(7)]
        target: Option<ByteVec>,
        #[n(8)]
        rdev: Option<u64>,
        /// When the file came to be, if that was not with the update: it was made elsewhere, or
        /// had no name. None: with the update.
        #[n(9)]
        born: Option<Time>,
    },
    /// One more name for a file. Expects the name absent.
    #[n(1)]
    Link {
        #[n(0)]
        parent: FileId,
        #[n(1)]
        name: Name,
        #[n(2)]
        file: FileId,
    },
    /// A name goes away, and with the last name the file; of a directory, an empty one.
    /// Expects the name to be this file.
    #[n(2)]
    Unlink {
        #[n(0)]
        parent: FileId,
        #[n(1)]
        name: Name,
        #[n(2)]
        file: FileId,
        /// The stamp of the contents that its writer saw: what others stored since does not go
        /// with the last name. None: nobody knows.
        #[n(3)]
        expects: Option<Stamp>,
    },
    /// Expects the old name to be `file` and the new one to be `over`, or absent.
    #[n(3)]
    Rename {
        #[n(0)]
        from: FileId,
        #[n(1)]
        from_name: Name,
        #[n(2)]
        to: FileId,
        #[n(3)]
        to_name: Name,
        #[n(4)]
        file: FileId,
        #[n(5)]
        over: Option<FileId>,
        /// The two change places, and neither goes away.
        #[n(6)]
        exchange: bool,
        /// What the old name is from then on: a device that stands for "nothing here".
        #[n(7)]
        whiteout: Option<Whiteout>,
        /// Of `over`, as in `Unlink`.
        #[n(8)]
        expects: Option<Stamp>,
    },
    /// New contents as a whole. Expects the contents that bear the stamp `expects`.
    #[n(4)]
    Store {
        #[n(0)]
        file: FileId,
        #[n(1)]
        expects: Stamp,
        #[n(2)]
        contents: Contents,
        #[n(3)]
        mtime: Time,
    },
    /// Expects the attributes that bear the stamp `expects`.
    #[n(5)]
    SetAttributes {
        #[n(0)]
        file: FileId,
        #[n(1)]
        expects: Stamp,
        #[n(2)]
        set: AttributeChange,
    },
    /// The last one wins, as among processes of one machine.
    #[n(6)]
    SetXattr {
        #[n(0)]
        file: FileId,
        #[n(1)]
        name: ByteVec,
        #[n(2)]
        value: ByteVec,
        /// The stamp of the attributes that its writer saw: what others set since and this sets
        /// otherwise is told of. None: nobody knows.
        #[n(3)]
        expects: Option<Stamp>,
    },
    #[n(7)]
    RemoveXattr {
        #[n(0)]
        file: FileId,
        #[n(1)]
        name: ByteVec,
        /// As in `SetXattr`.
        #[n(2)]
        expects: Option<Stamp>,
    },
}

/// A character device 0/0 without permissions, by which a layer over another file system says that
/// a name of that one is gone. From: Linux, renameat2(2), RENAME_WHITEOUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Whiteout {
    /// Expected to be unused.
    #[n(0)]
    pub file: FileId,
    #[n(1)]
    pub uid: u32,
    #[n(2)]
    pub gid: u32,
}

/// The attributes that an update sets; none stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct AttributeChange {
    #[n(0)]
    pub mode: Option<u16>,
    #[n(1)]
    pub uid: Option<u32>,
    #[n(2)]
    pub gid: Option<u32>,
    #[n(3)]
    pub atime: Option<Time>,
    #[n(4)]
    pub mtime: Option<Time>,
}

impl Change {
    /// The file whose contents or attributes the change is about, if it is about nothing else.
    pub fn fills(&self) -> Option<FileId> {
        match self {
            Change::Store { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetXattr { file, .. }
            | Change::RemoveXattr { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// Bytes of the contents that it stores. Holes are none.
    pub fn data(&self) -> u64 {
        match self {
            Change::Store { contents, .. } => contents.data(),
            _ => 0,
        }
    }

    /// The files that it names. The id of what it makes is its own.
    pub fn named_mut(&mut self) -> Vec<&mut FileId> {
        match self {
            Change::Make { parent, .. } => vec![parent],
            Change::Link { parent, file, .. } | Change::Unlink { parent, file, .. } => {
                vec![parent, file]
            }
            Change::Rename { from, to, file, over, .. } => {
                let mut files = vec![from, to, file];
                files.extend(over.as_mut());
                files
            }
            Change::Store { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetXattr { file, .. }
            | Change::RemoveXattr { file, .. } => vec![file],
        }
    }
}

impl Update {
    /// The file that comes to be by the update.
    pub fn makes(&self) -> Option<FileId> {
        match &self.change {
            Change::Make { file, .. } => Some(*file),
            Change::Rename { whiteout, .. } => whiteout.map(|whiteout| whiteout.file),
            _ => None,
        }
    }

    /// The file that loses a name for good by the update, perhaps its last.
    pub fn removes(&self) -> Option<FileId> {
        match &self.change {
            Change::Unlink { file, .. } => Some(*file),
            Change::Rename { over, exchange: false, .. } => *over,
            _ => None,
        }
    }

    /// The files whose entries or attributes the update may touch.
    pub fn touches(&self) -> Vec<FileId> {
        match &self.change {
            Change::Make { parent, file, .. }
            | Change::Link { parent, file, .. }
            | Change::Unlink { parent, file, .. } => vec![*parent, *file],
            Change::Rename { from, to, file, over, whiteout, .. } => {
                let mut files = vec![*from, *to, *file];
                files.extend(over);
                files.extend(whiteout.map(|whiteout| whiteout.file));
                files
            }
            Change::Store { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetXattr { file, .. }
            | Change::RemoveXattr { file, .. } => vec![*file],
        }
    }
}

/// Where those updates begin that make the file which the one at `at` stores or sets, and come right
/// before it; `at` if none do. What is made and filled in one go is seen whole or not at all.
pub fn birth_of(updates: &[Update], at: usize) -> usize {
    let Some(file) = updates.get(at).and_then(|update| update.change.fills()) else { return at };
    for (index, update) in updates.iter().enumerate().take(at).rev() {
        match &update.change {
            Change::Make { file: made, .. } if *made == file => return index,
            change if change.fills() == Some(file) => {}
            _ => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReplicaId;

    fn update(change: Change) -> Update {
        let stamp = Stamp::new(ReplicaId(1), 1);
        Update { stamp, uid: 0, at: Time { secs: 0, nanos: 0 }, change }
    }

    fn make(file: u64) -> Update {
        let name = Name::new("name").unwrap();
        update(Change::Make {
            parent: FileId::ROOT,
            name,
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

    fn store(file: u64) -> Update {
        let (expects, mtime) = (Stamp::default(), Time { secs: 0, nanos: 0 });
        update(Change::Store { file: FileId(file), expects, contents: Contents::EMPTY, mtime })
    }

    fn set(file: u64) -> Update {
        update(Change::RemoveXattr {
            file: FileId(file),
            name: ByteVec::from(vec![1]),
            expects: None,
        })
    }

    #[test]
    fn what_makes_a_file_right_before_it_is_stored_belongs_to_that() {
        let updates = [make(7), make(8), set(8), store(8), store(8), make(9), set(8), store(9)];
        let begins: Vec<usize> = (0..=8).map(|at| birth_of(&updates, at)).collect();
        assert_eq!(begins, [0, 1, 1, 1, 1, 5, 6, 7, 8]);
    }
}
