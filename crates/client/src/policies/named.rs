//! Which policy counts for a file: what is said of the directories that it is in.
//! Holds: a name that is remembered is looked at before it is believed; of a file of several names
//! one counts, unless a policy names the file itself.

use super::{Counts, Policies, nearest};
use crate::client::Client;
use crate::failures::of_missing;
use crate::types::Error;
use model::{FileId, Name, View};
use protocol::Upstream;
use std::collections::{BTreeMap, BTreeSet};
use store::{Containers, Read};
use volume::partial::Tree;

/// Files of which a name is remembered.
const NAMED_MAX: usize = 50_000;
/// Directories above a file that are looked at.
const DEPTH_MAX: usize = 4_096;

#[derive(Default)]
pub(super) struct Named(BTreeMap<FileId, (FileId, Name)>);

impl Named {
    pub fn note(&mut self, file: FileId, directory: FileId, name: &Name) {
        self.0.insert(file, (directory, name.clone()));
        if self.0.len() > NAMED_MAX {
            let other = self.0.keys().find(|other| **other != file).copied();
            other.map(|other| self.0.remove(&other));
        }
    }
}

impl Policies {
    fn is_quiet(&self) -> bool {
        self.policies.is_empty()
    }

    /// What counts for a file in a directory.
    fn counts(&self, tree: &Tree<'_>, file: FileId, directory: Option<FileId>) -> Counts {
        let above = self::upwards(tree, directory).filter_map(|above| self.policies.get(&above));
        nearest(self.policies.get(&file).into_iter().chain(above))
    }
}

/// A directory, and those that it is in, up to the root.
fn upwards<'a>(tree: &'a Tree<'_>, directory: Option<FileId>) -> impl Iterator<Item = FileId> + 'a {
    let above = |directory: &FileId| {
        let node = tree.node(*directory).ok().flatten();
        node.and_then(|node| node.parent).filter(|parent| parent != directory)
    };
    std::iter::successors(directory, above).take(DEPTH_MAX)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A name was looked up.
    pub(crate) fn note_named(&self, directory: FileId, name: &Name, file: FileId) {
        self.ahead().note_place(directory, name, file);
        if self.inner.keeping.choosing.is_any() {
            self.policies().named.note(file, directory, name);
        }
    }

    /// What counts for these files, whether or not what is known of them counts.
    pub(crate) fn what_counts(
        &self,
        read: &dyn Read,
        files: &BTreeSet<FileId>,
    ) -> Result<BTreeMap<FileId, Counts>, Error> {
        let tree = Tree::new(read, 0);
        if self.policies().is_quiet() {
            return Ok(files.iter().map(|file| (*file, Counts::default())).collect());
        }
        let places = self.places_of(&tree, files)?;
        let policies = self.policies();
        let counts = |file: &FileId| policies.counts(&tree, *file, places.get(file).copied());
        Ok(files.iter().map(|file| (*file, counts(file))).collect())
    }

    /// A directory that each of these is in, as far as it is known.
    pub(super) fn places_of(
        &self,
        tree: &Tree<'_>,
        files: &BTreeSet<FileId>,
    ) -> Result<BTreeMap<FileId, FileId>, Error> {
        let mut places: BTreeMap<FileId, FileId> = BTreeMap::new();
        let mut sought = BTreeSet::new();
        for file in files {
            let noted = self.policies().named.0.get(file).cloned();
            let is_so = |(directory, name): &(FileId, Name)| matches!(tree.entry(*directory, name), Ok(Some(found)) if found == *file);
            let parent = tree.node(*file).ok().flatten().and_then(|node| node.parent);
            let noted = noted.filter(is_so).map(|(directory, _)| directory);
            match parent.filter(|parent| parent != file).or(noted) {
                Some(directory) => drop(places.insert(*file, directory)),
                None => drop(sought.insert(*file)),
            }
        }
        if !sought.is_empty() {
            for (file, (directory, name)) in tree.names_of(&sought).map_err(of_missing)? {
                self.policies().named.note(file, directory, &name);
                places.insert(file, directory);
            }
        }
        Ok(places)
    }

    /// Whether a directory is `top`, or below it.
    pub(super) fn is_below(&self, tree: &Tree<'_>, directory: Option<FileId>, top: FileId) -> bool {
        let mut upwards = upwards(tree, directory);
        upwards.any(|directory| directory == top)
    }

    pub(crate) fn counts_for(&self, read: &dyn Read, file: FileId) -> Result<Counts, Error> {
        let counts = self.what_counts(read, &BTreeSet::from([file]))?;
        Ok(counts.get(&file).copied().unwrap_or_default())
    }
}
