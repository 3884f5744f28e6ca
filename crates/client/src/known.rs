//! The files that the kernel has, and how those of them were that are gone since.
//! Holds: what the kernel was told of and has not forgotten can be opened, read and asked about,
//! though its last name is gone, as on a local disk; of what it has forgotten nothing stays here.
//! From: the kernel's `fs/namei.c`, which lets nothing be looked up in a directory once it has removed that.
//! While this is locked names are not looked up, nor does it show that one has gone.

use crate::client::{Client, error_of};
use crate::failures::of_missing;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::types::Error;
use model::{Contents, Effects, FileId, Kind, Node, Stamp, Time, Update, View};
use protocol::{States, Upstream};
use std::collections::BTreeMap;
use store::{Containers, Read, StoreError};
use volume::partial::{Missing, Touched, Tree};

/// A row for each file that the kernel has in its own memory, and no more.
#[derive(Default)]
pub(crate) struct Known {
    /// How often the kernel was told of a file and has not forgotten it.
    told: BTreeMap<FileId, u64>,
    gone: BTreeMap<FileId, Gone>,
}

/// A file that the kernel has and that is not in the volume any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gone {
    /// As it was when the last name went.
    pub node: Node,
    pub by: Remover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remover {
    /// A program of this machine: what is written to the file goes nowhere.
    Here,
    /// Somebody else: what is written to the file brings it back.
    Elsewhere,
}

impl Known {
    pub fn tell(&mut self, file: FileId) {
        *self.told.entry(file).or_default() += 1;
    }

    /// The kernel has forgotten that it was told so often. Says whether it has forgotten the file by
    /// this, and whether that is gone.
    fn forget(&mut self, file: FileId, times: u64) -> (bool, bool) {
        let Some(told) = self.told.get_mut(&file) else { return (false, false) };
        *told = told.saturating_sub(times);
        if *told > 0 {
            return (false, false);
        }
        self.told.remove(&file);
        (true, self.gone.remove(&file).is_some())
    }

    fn goes(&mut self, file: FileId, node: Node, by: Remover) {
        if self.told.contains_key(&file) {
            self.gone.insert(file, Gone { node: Node { links: 0, ..node }, by });
        }
    }

    /// The kernel has a file that never had a name.
    pub fn tell_unborn(&mut self, file: FileId, node: Node) {
        self.tell(file);
        self.set_unborn(file, node);
    }

    pub fn set_unborn(&mut self, file: FileId, node: Node) {
        self.gone.remove(&file);
        self.goes(file, node, Remover::Here);
    }

    /// It has a name now.
    pub fn is_born(&mut self, file: FileId) {
        self.gone.remove(&file);
    }

    /// A directory that went while the kernel had it, and shows again: in what the kernel has by its number
    /// nothing can be any more.
    pub fn comes_back(&mut self, file: FileId) -> bool {
        let is_dead = self.gone.get(&file).is_some_and(|gone| gone.node.kind == Kind::Directory);
        if is_dead {
            self.gone.remove(&file);
        }
        is_dead
    }

    /// How often it was told of a file and has not forgotten it.
    pub fn times_told(&self, file: FileId) -> u64 {
        self.told.get(&file).copied().unwrap_or(0)
    }

    /// All that the kernel has.
    pub fn told(&self) -> impl Iterator<Item = FileId> {
        self.told.keys().copied()
    }

    /// How a file was, for whom the volume has none.
    pub fn gone(&self, file: FileId) -> Option<&Gone> {
        self.gone.get(&file)
    }

    /// How a file is that was removed here: what has no name is changed here alone.
    pub fn gone_here(&mut self, file: FileId) -> Option<&mut Node> {
        let gone = self.gone.get_mut(&file).filter(|gone| gone.by == Remover::Here)?;
        Some(&mut gone.node)
    }

    /// What was written to a file that is gone.
    pub fn written(&mut self, file: FileId, version: Stamp, contents: Contents, mtime: Time) {
        if let Some(gone) = self.gone.get_mut(&file) {
            gone.node.contents_stamp = version;
            gone.node.contents = contents;
            gone.node.mtime = mtime;
        }
    }
}

/// Files that a transaction takes out of the volume, as they were before it.
#[derive(Debug, Default)]
pub(crate) struct Going(Vec<(FileId, Node)>);

impl Going {
    /// Of these files, those that the tree had and has no more after what was written.
    pub fn between(
        before: &dyn Read,
        after: &dyn Read,
        files: impl IntoIterator<Item = FileId>,
    ) -> Result<Going, Error> {
        let (before, after) = (Tree::new(before, 0), Tree::new(after, 0));
        let mut going = Vec::new();
        for file in files {
            if shown(&after, file)?.is_none()
                && let Some(node) = shown(&before, file)?
            {
                going.push((file, node));
            }
        }
        Ok(Going(going))
    }
}

impl Going {
    pub fn extend(&mut self, more: Going) {
        self.0.extend(more.0);
    }

    fn changed(mut self, at: Time) -> Going {
        self.0.iter_mut().for_each(|(_, node)| node.ctime = at);
        self
    }
}

fn shown(tree: &Tree<'_>, file: FileId) -> Result<Option<Node>, Error> {
    match tree.node(file) {
        Ok(node) => Ok(node),
        Err(missing) if missing.file().is_some() => Ok(None),
        Err(missing) => Err(of_missing(missing)),
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn known(&self) -> Ranked<'_, Known> {
        ranks::lock(Rank::Known, &self.inner.known)
    }

    /// Until what this gives is dropped, nobody looks up a file. The caller commits meanwhile that
    /// these are gone: whoever was told of one before finds how it was, and nobody is told after.
    pub(crate) fn going(&self, going: Going, by: Remover) -> Option<Ranked<'_, Known>> {
        if going.0.is_empty() {
            return None;
        }
        let mut known = self.known();
        for (file, node) in going.0 {
            known.goes(file, node, by);
        }
        Some(known)
    }

    /// What an update that is done here takes away: it was changed last when it went.
    pub(crate) fn going_here(
        &self,
        after: &dyn Read,
        effects: &Effects,
        at: Time,
    ) -> Result<Going, Error> {
        let gone = effects.nodes.iter().filter(|(_, node)| node.is_none()).map(|(file, _)| *file);
        Ok(self.going_of(after, gone.collect())?.changed(at))
    }

    /// What a transaction takes away of the files that the replica above says are gone, and of
    /// those that updates touched which it did not take.
    pub(crate) fn going_by<'a>(
        &self,
        after: &dyn Read,
        states: &States,
        turned_down: impl IntoIterator<Item = &'a Update>,
    ) -> Result<Going, Error> {
        let said = states.nodes.iter().filter(|state| state.node.is_none()).map(|state| state.file);
        let touched = turned_down.into_iter().flat_map(|update| Touched::by(update).nodes);
        self.going_of(after, said.chain(touched).collect())
    }

    pub(crate) fn going_of(&self, after: &dyn Read, files: Vec<FileId>) -> Result<Going, Error> {
        if files.is_empty() {
            return Ok(Going::default());
        }
        let before = self.inner.tables.read().map_err(error_of)?;
        Going::between(&*before, after, files)
    }

    /// The kernel is told of a file that was made or linked just now, and has it until it has
    /// forgotten it as often.
    pub fn tell(&self, file: FileId) {
        self.known().tell(file);
    }

    /// The kernel forgets that it was told of a file so often.
    pub fn forgotten(&self, file: FileId, times: u64) {
        let is_gone = {
            let mut known = self.known();
            let (is_forgotten, is_gone) = known.forget(file, times);
            if is_forgotten {
                self.numbers().let_go(file);
            } else {
                self.numbers().left(file, known.times_told(file));
            }
            is_gone
        };
        if !is_gone {
            return;
        }
        self.forget_unborn(file);
        self.discard_removed(file);
    }

    /// What a file that was removed held goes, if nobody can open it any more, and nothing of it is pending.
    pub(crate) fn discard_removed(&self, file: FileId) {
        if let Err(error) = self.discard_if_removed(file) {
            tracing::warn!(%error, %file, "a container that is not needed could not be removed");
        }
    }

    fn discard_if_removed(&self, file: FileId) -> Result<(), StoreError> {
        let row = {
            let read = self.inner.tables.read()?;
            // It may have been brought back meanwhile.
            if !matches!(Tree::new(&*read, 0).node(file), Ok(None) | Err(Missing::Node(_))) {
                return Ok(());
            }
            Presence::load(&*read, file)?
        };
        if let Some(row) = row {
            self.discard_if_unused(file, &row, true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Tables;
    use store::memory::MemoryTables;
    use volume::partial::apply_local;

    const FILE: FileId = FileId(7);

    fn node(size: u64) -> Node {
        let mut node = Node::root_directory(1, 2, Time { secs: 3, nanos: 4 });
        node.contents.size = size;
        node
    }

    #[test]
    fn what_goes_stays_known_until_it_is_forgotten_as_often_as_it_was_told() {
        let mut known = Known::default();
        known.goes(FILE, node(1), Remover::Here);
        assert_eq!(known.gone(FILE), None, "the kernel does not have it");
        known.tell(FILE);
        known.tell(FILE);
        known.goes(FILE, node(2), Remover::Elsewhere);
        let gone = known.gone(FILE).unwrap();
        assert_eq!((gone.node.contents.size, gone.node.links), (2, 0));
        assert_eq!(known.forget(FILE, 1), (false, false));
        assert!(known.gone(FILE).is_some());
        assert_eq!(known.forget(FILE, 1), (true, true));
        assert!(known.told.is_empty() && known.gone.is_empty());
        assert_eq!(known.forget(FILE, 1), (false, false), "nothing is left to forget");
    }

    #[test]
    fn only_what_has_no_name_by_a_removal_here_is_changed_here_alone() {
        let mut known = Known::default();
        known.tell(FILE);
        known.goes(FILE, node(1), Remover::Elsewhere);
        assert_eq!(known.gone_here(FILE), None);
        known.goes(FILE, node(1), Remover::Here);
        known.gone_here(FILE).unwrap().mode = 0o600;
        assert_eq!(known.gone(FILE).unwrap().node.mode, 0o600);
    }

    #[test]
    fn what_a_transaction_takes_away_is_found_as_it_was_before() {
        let tables = MemoryTables::default();
        let show = |number, shown: &[(u64, Option<Node>)]| {
            let mut write = tables.write().unwrap();
            let nodes = shown.iter().map(|(file, node)| (FileId(*file), node.clone())).collect();
            let effects = Effects { nodes, ..Effects::default() };
            apply_local(&mut *write, number, &effects, 1).unwrap();
            write
        };
        let write = show(1, &[(7, Some(node(1))), (8, Some(node(2)))]);
        write.commit(store::Durability::Later).unwrap();
        let write = show(2, &[(7, None), (8, Some(node(3))), (9, None)]);
        let before = tables.read().unwrap();
        let asked = [7, 8, 9, 10].map(FileId);
        let going = Going::between(&*before, &*write as &dyn Read, asked).unwrap();
        assert_eq!(going.0, [(FILE, node(1))]);
    }
}
