//! Which files come next, where a program goes from file to file.
//! Holds: a plan looks at a bounded number of entries, whatever the tree is like.

use crate::names::cookie;
use model::{FileId, Kind, Name, Node, View};
use std::collections::VecDeque;
use std::time::Duration;
use volume::partial::{Missing, Tree};
use world::Moment;

/// Files that follow each other within this belong together.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Steps that are remembered: programs may walk in several places at once.
const TRAIL_MAX: usize = 8;
/// Two directories are near each other if a directory so few steps above both holds them.
const LEVELS_MAX: usize = 4;
/// Files of one plan, and entries that are looked at for it.
const PLAN_MAX: usize = 512;
const LOOKED_MAX: usize = 8192;
/// Directories below each other that a plan goes into.
const DEPTH_MAX: usize = 64;

/// The order in which a program takes the entries of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// As they are listed.
    #[default]
    Listed,
    /// Sorted by name.
    Names,
    /// Sorted by inode, as programs do that copy trees.
    Ids,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    file: FileId,
    directory: FileId,
    at: Moment,
}

/// Where programs went lately, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Trail(VecDeque<Step>);

/// A walk that has been recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The file that was opened before, if in the same directory.
    pub before: Option<FileId>,
    /// It goes through all of this directory; if that is the file's own, not into others.
    pub top: FileId,
    pub deep: bool,
}

impl Trail {
    /// A file was looked at. Gives the walk that it belongs to, if it is part of one.
    pub fn step(
        &mut self,
        file: FileId,
        directory: FileId,
        at: Moment,
        tree: &Tree<'_>,
    ) -> Option<Walk> {
        let mut walk = None;
        let near = self.0.iter().rev().filter(|step| at.since(step.at) < PAUSE_MAX);
        for step in near.filter(|step| step.file != file) {
            if step.directory == directory {
                let before = Some(step.file);
                let deep = self.is_deep(directory, at, tree);
                let top = deep.unwrap_or(directory);
                walk = Some(Walk { before, top, deep: deep.is_some() });
                break;
            }
            if let Some(top) = common(tree, step.directory, directory) {
                walk = Some(Walk { before: None, top, deep: true });
                break;
            }
        }
        self.0.retain(|step| step.file != file);
        self.0.push_back(Step { file, directory, at });
        if self.0.len() > TRAIL_MAX {
            self.0.pop_front();
        }
        walk
    }

    /// Whoever fetches slowly is no less on a walk: time spent waiting does not count.
    pub fn arrived(&mut self, file: FileId, at: Moment) {
        for step in self.0.iter_mut().filter(|step| step.file == file) {
            step.at = at;
        }
    }

    /// The walk has come from another directory: how far up.
    fn is_deep(&self, directory: FileId, at: Moment, tree: &Tree<'_>) -> Option<FileId> {
        let others = self.0.iter().rev().filter(|step| step.directory != directory);
        let mut near = others.filter(|step| at.since(step.at) < PAUSE_MAX);
        near.find_map(|step| common(tree, step.directory, directory))
    }
}

/// The directory that holds both, if it is near.
fn common(tree: &Tree<'_>, one: FileId, other: FileId) -> Option<FileId> {
    let (above_one, above_other) = (above(tree, one), above(tree, other));
    above_one.into_iter().find(|directory| above_other.contains(directory))
}

/// A directory and those above it.
fn above(tree: &Tree<'_>, directory: FileId) -> Vec<FileId> {
    let mut found = vec![directory];
    for _ in 0..LEVELS_MAX {
        let last = *found.last().expect("it begins with one");
        match tree.node(last) {
            Ok(Some(Node { parent: Some(parent), .. })) if parent != last => found.push(parent),
            _ => break,
        }
    }
    found
}

/// The order in which the step from one file to the other is the shortest.
pub(crate) fn order_of(
    entries: &[(Name, FileId)],
    before: FileId,
    file: FileId,
    so_far: Order,
) -> Order {
    let place = |order: Order, wanted: FileId| {
        let entry = entries.iter().find(|(_, file)| *file == wanted)?;
        let key = key_of(order, entry);
        Some(entries.iter().filter(|entry| key_of(order, entry) < key).count())
    };
    let steps = |order: Order| {
        let (from, to) = (place(order, before)?, place(order, file)?);
        to.checked_sub(from)
    };
    let all = [so_far, Order::Listed, Order::Names, Order::Ids];
    let shortest = all.into_iter().filter_map(|order| Some((steps(order)?, order)));
    shortest.min_by_key(|(steps, _)| *steps).map_or(so_far, |(_, order)| order)
}

/// Sorts numbers before names: only one of the two is used.
fn key_of(order: Order, entry: &(Name, FileId)) -> (u64, Option<Name>) {
    match order {
        Order::Listed => (cookie(&entry.0), None),
        Order::Names => (0, Some(entry.0.clone())),
        Order::Ids => (entry.1.0, None),
    }
}

/// What comes after a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub files: VecDeque<FileId>,
    /// Nothing comes after these.
    pub all: bool,
}

/// The files that a walk comes to after this one and that `wanted` wants, in the order of the walk.
/// What is not known of the tree is left out.
pub(crate) fn after(
    tree: &Tree<'_>,
    (directory, file): (FileId, FileId),
    walk: &Walk,
    order: Order,
    wanted: &dyn Fn(FileId, &Node) -> bool,
) -> Result<Plan, Missing> {
    let plan = Plan { all: true, ..Plan::default() };
    let mut planning = Planning { tree, order, wanted, deep: walk.deep, left: LOOKED_MAX, plan };
    let (mut directory, mut from) = (directory, file);
    for _ in 0..=LEVELS_MAX {
        planning.rest_of(directory, Some(from), 0)?;
        if directory == walk.top || !walk.deep {
            break;
        }
        let Some(parent) = tree.node(directory)?.and_then(|node| node.parent) else { break };
        (directory, from) = (parent, directory);
    }
    Ok(planning.plan)
}

struct Planning<'a> {
    tree: &'a Tree<'a>,
    order: Order,
    wanted: &'a dyn Fn(FileId, &Node) -> bool,
    deep: bool,
    left: usize,
    plan: Plan,
}

impl Planning<'_> {
    /// What comes in a directory after an entry. Calls itself at most `DEPTH_MAX` deep.
    fn rest_of(
        &mut self,
        directory: FileId,
        after: Option<FileId>,
        depth: usize,
    ) -> Result<(), Missing> {
        // What is not listed is not known to be there.
        if depth > DEPTH_MAX || !self.tree.is_complete(directory)? {
            return Ok(());
        }
        let mut entries = self.tree.entries(directory)?;
        let order = self.order;
        entries.sort_by_cached_key(|entry| key_of(order, entry));
        let here = after.and_then(|after| entries.iter().position(|(_, file)| *file == after));
        for (_, file) in &entries[here.map_or(0, |here| here + 1)..] {
            if self.left == 0 || self.plan.files.len() == PLAN_MAX {
                self.plan.all = false;
                return Ok(());
            }
            self.left -= 1;
            let Ok(Some(node)) = self.tree.node(*file) else { continue };
            match node.kind {
                Kind::File if (self.wanted)(*file, &node) => self.plan.files.push_back(*file),
                Kind::Directory if self.deep => self.rest_of(*file, None, depth + 1)?,
                _ => {}
            }
        }
        Ok(())
    }
}
