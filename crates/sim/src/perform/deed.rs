//! What programs did, as their client knew it in the very moment: what it was about, and which
//! version of that.

use crate::machine::SimClient;
use client::Found;
use model::{FileId, Kind, Name, Stamp};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A directory, and a name in it.
pub type Place = (FileId, Name);

/// A change of names or attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    Remove(Known),
    /// `over`: what bore the new name; where both change places, it gets the old one.
    Move {
        file: FileId,
        from: Place,
        to: Place,
        over: Option<Known>,
        exchange: bool,
    },
    Link {
        file: FileId,
    },
    Set {
        before: Known,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
    },
}

/// A file as a client knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub file: FileId,
    pub kind: Kind,
    pub contents: Stamp,
    pub links: u32,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
}

impl Known {
    pub(super) fn of(client: &SimClient, file: FileId) -> Option<Known> {
        client.attributes(file).ok().map(known)
    }
}

fn known(found: Found) -> Known {
    let node = found.node;
    Known {
        file: found.file,
        kind: node.kind,
        contents: node.contents_stamp,
        links: node.links,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
    }
}

pub(super) fn known_at(client: &SimClient, (parent, name): &Place) -> Option<Known> {
    client.lookup(*parent, name).ok().flatten().map(known)
}

pub(super) fn contents_of(client: &SimClient, file: FileId) -> Option<Stamp> {
    Known::of(client, file).map(|known| known.contents)
}

/// What is noted of the last operation, also of one that did not come to its end.
#[derive(Default)]
pub(super) struct Noted(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    deed: Option<Deed>,
    fetched: Option<FileId>,
    stored: Option<Stamp>,
}

impl Noted {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self) {
        *self.notes() = Notes::default();
    }

    /// Just before it is done, or tried once more.
    pub fn does(&self, deed: impl FnOnce() -> Option<Deed>) {
        let deed = deed();
        self.notes().deed = deed;
    }

    pub fn fetches(&self, file: FileId) {
        self.notes().fetched = Some(file);
    }

    /// Just after what was written has become a version.
    pub fn stored(&self, client: &SimClient, file: FileId) {
        let stamp = contents_of(client, file);
        self.notes().stored = stamp;
    }
}

impl super::Programs {
    /// What the last operation did to names or attributes, or was about to do.
    pub fn deed(&self) -> Option<Deed> {
        self.noted.notes().deed.take()
    }

    /// The file that the last operation fetched.
    pub fn fetched(&self) -> Option<FileId> {
        self.noted.notes().fetched
    }

    /// The contents that the file had when the last operation had closed or synced it.
    pub fn stored(&self) -> Option<Stamp> {
        self.noted.notes().stored
    }
}
