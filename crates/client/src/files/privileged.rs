//! Setuid, setgid and capabilities that another device gives to a file while the kernel writes to
//! it by itself: a write would have taken them, and nobody here sees one.
//! Holds: of what gives privileges nothing is lent to who writes, and who writes so already keeps
//! programs here from giving any (`EBUSY`); what another device gives goes with the first change of
//! the container that is found afterwards, and at the latest before what was written is stored.
//! From: `file_remove_privs` in the kernel's `fs/inode.c`.

use super::Files;
use super::closed::Place;
use super::lending::LentOut;
use crate::client::{Client, failed, stop};
use crate::presence::Presence;
use crate::types::{Error, Step};
use model::{AttributeChange, CAPABILITY, Change, FileId, Node, SET_IDS, Stamp, View};
use protocol::Upstream;
use store::{Container, Containers};

/// When a container had last changed. None: it cannot be told.
type ChangedAt = Option<(i64, u32)>;

/// Of a container that the kernel writes to: by whom, and how it was when privileges were found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    /// By somebody who is not root: what root writes takes nothing.
    by_user: bool,
    found_as_of: Option<ChangedAt>,
}

impl Watched {
    pub fn is_written_by(&mut self, uid: u32) {
        self.by_user |= uid != 0;
    }

    /// Whether the privileges of a file are to go, by when its container has changed now. What is
    /// stored was written, though it may not be known whether before or after they were given.
    fn are_to_go(&mut self, gives: bool, changed: ChangedAt, is_stored: bool) -> bool {
        if !gives || !self.by_user {
            self.found_as_of = None;
            return false;
        }
        let found = *self.found_as_of.get_or_insert(changed);
        let is_written = found != changed || changed.is_none();
        is_written || is_stored
    }
}

impl<K: Container> Files<K> {
    /// Whether the kernel may write to a version of the file by itself, or has written what is not
    /// stored yet.
    fn is_written_unseen(&self, file: FileId) -> bool {
        self.all_generations(file).any(|open| open.unseen.is_some())
    }

    /// All that the kernel may write to, or has written.
    pub(super) fn places_of_unseen(&self) -> Vec<Place> {
        let of = |(file, out): (&FileId, &LentOut<K>)| (*file, out.generation);
        let is_it =
            |place: &Place| self.get(place.0, place.1).is_some_and(|open| open.unseen.is_some());
        self.lent.iter().map(of).filter(is_it).collect()
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Errors: `WrittenUnseen` where a program writes to it, and what is given now would stay.
    pub(crate) fn is_written_where_it_is_seen(&self, file: FileId) -> Step<()> {
        self.settle_closed(None);
        match self.files().is_written_unseen(file) {
            true => Err(Error::WrittenUnseen.into()),
            false => Ok(()),
        }
    }

    /// Looks at all that the kernel writes to. What cannot be changed now is looked at again.
    pub(super) fn watch_privileges(&self) {
        let places = self.files().places_of_unseen();
        for place in places {
            if let Err(stop) = self.take_privileges(place, false) {
                tracing::debug!(file = %place.0, %stop, "privileges are taken a little later");
            }
        }
    }

    /// Takes the privileges from what was written, if it has any: of what `is_stored`, in any case.
    pub(crate) fn take_privileges(&self, (file, generation): Place, is_stored: bool) -> Step<()> {
        let Some(node) = self.node_here(file)? else { return Ok(()) };
        let are_to_go = {
            let mut files = self.files();
            let Some(open) = files.get_mut(file, generation) else { return Ok(()) };
            let Some(unseen) = &mut open.unseen else { return Ok(()) };
            let gives = node.gives_privileges() && is_written_upon(&open.presence, &node);
            let changed = open.container.changed_at().map_err(failed)?;
            unseen.privileges.are_to_go(gives, changed, is_stored)
        };
        if !are_to_go {
            return Ok(());
        }
        for change in changes(file, &node) {
            self.change_unattended((file, node.uid), &change)?;
        }
        tracing::info!(
            %file,
            "setuid, setgid or capabilities that another device has set are taken from it: it was \
             written to"
        );
        self.forget_what_is_cached(file, false);
        self.after_change()
    }

    /// Whether a file has a capability, as far as it is known here, which needs no lease.
    pub fn has_capability(&self, file: FileId) -> Step<bool> {
        Ok(self.node_here(file)?.is_some_and(|node| node.has_capability()))
    }

    /// Changes attributes as they are shown now, whether or not what is cached counts: the replica
    /// above looks at what it expects to find.
    fn change_unattended(&self, (file, uid): (FileId, u32), change: &Change) -> Step<()> {
        let everything = 0;
        let mut core = self.core();
        let done = self.change_under(
            &mut core,
            everything,
            uid,
            |tree, _| {
                let node = tree.node(file).map_err(stop)?;
                let mut change = change.clone();
                let shown = node.map(|node| node.attributes_stamp);
                match &mut change {
                    Change::SetAttributes { expects, .. } => *expects = shown.unwrap_or_default(),
                    Change::RemoveXattr { expects, .. } => *expects = shown,
                    _ => {}
                }
                Ok(change)
            },
            |_, _| Ok(()),
        )?;
        if let Some(number) = done.wait {
            core.waiters.leave_unattended(number);
        }
        Ok(())
    }
}

/// Whether a container is what shows of the file, or what is written upon that: where a pending store
/// was overtaken, what was before it shows again, unless it has been taken all the same. Of another
/// version, which somebody has stored since, nothing is written.
fn is_written_upon(presence: &Presence, node: &Node) -> bool {
    let expects = presence.dirty.map(|dirty| dirty.expects);
    node.contents_stamp == presence.version || Some(node.contents_stamp) == expects
}

/// What takes its privileges from a file.
fn changes(file: FileId, node: &Node) -> Vec<Change> {
    let mut changes = Vec::new();
    if node.mode & SET_IDS != 0 {
        let set =
            AttributeChange { mode: Some(node.mode & !SET_IDS), ..AttributeChange::default() };
        changes.push(Change::SetAttributes { file, expects: Stamp::default(), set });
    }
    if node.has_capability() {
        let name = CAPABILITY.to_vec().into();
        changes.push(Change::RemoveXattr { file, name, expects: None });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Dirty;
    use model::{Contents, Kind, ReplicaId, Time};

    const FOUND: ChangedAt = Some((7, 1));
    const LATER: ChangedAt = Some((7, 2));

    fn watched(uid: u32) -> Watched {
        let mut watched = Watched::default();
        watched.is_written_by(uid);
        watched
    }

    #[test]
    fn privileges_go_with_the_first_change_after_they_were_found() {
        let mut watched = watched(7);
        let looks = [(false, FOUND), (true, FOUND), (true, FOUND), (true, LATER)];
        let found = looks.map(|(gives, changed)| watched.are_to_go(gives, changed, false));
        assert_eq!(found, [false, false, false, true]);
        // Once they are gone, and given anew, it is as the first time.
        assert!(!watched.are_to_go(false, LATER, false));
        assert!(!watched.are_to_go(true, LATER, false));
    }

    #[test]
    fn what_is_stored_keeps_none_and_what_cannot_be_told_counts_as_written() {
        assert!(watched(7).are_to_go(true, FOUND, true));
        assert!(watched(7).are_to_go(true, None, false));
        assert!(!watched(7).are_to_go(false, None, true));
    }

    #[test]
    fn what_root_alone_writes_takes_nothing() {
        let mut watched = watched(0);
        assert!(!watched.are_to_go(true, FOUND, false));
        assert!(!watched.are_to_go(true, LATER, true));
        watched.is_written_by(7);
        assert!(watched.are_to_go(true, LATER, true));
    }

    #[test]
    fn what_is_written_upon_a_pending_store_is_known_by_what_was_before_it() {
        let [before, ours, theirs] = [1, 2, 3].map(|number| Stamp::new(ReplicaId(7), number));
        let node =
            |stamp| Node { contents_stamp: stamp, ..Node::root_directory(7, 7, Time::default()) };
        let mut presence = Presence::new(0, ours, Contents::default(), 0);
        let shows = |presence: &Presence| {
            [before, ours, theirs].map(|stamp| is_written_upon(presence, &node(stamp)))
        };
        assert_eq!(shows(&presence), [false, true, false]);
        presence.dirty = Some(Dirty::new(before, 7));
        assert_eq!(shows(&presence), [true, true, false]);
    }

    #[test]
    fn both_bits_and_capabilities_are_what_goes() {
        let file = FileId::ROOT;
        let mut node = Node { kind: Kind::File, ..Node::root_directory(7, 7, Time::default()) };
        assert_eq!(changes(file, &node), []);
        node.mode = 0o6755;
        let xattrs = [(CAPABILITY.to_vec().into(), vec![1].into())];
        node.xattrs = Some(xattrs.into_iter().collect());
        assert!(node.gives_privileges());
        let changes = changes(file, &node);
        let [Change::SetAttributes { set, .. }, Change::RemoveXattr { name, .. }] = &changes[..]
        else {
            panic!("{changes:?}")
        };
        assert_eq!((set.mode, name.as_slice()), (Some(0o755), CAPABILITY));
    }
}
