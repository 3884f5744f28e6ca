//! Which files come next, where a program goes from file to file.
//! Holds: a plan looks at a bounded number of entries, whatever the tree is like; of a directory
//! that has more, at those next to where the program is.

use crate::names::{self, cookie};
use model::{FileId, Kind, Name, Node, View};
use std::collections::VecDeque;
use std::sync::Arc;
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
/// Entries that are read for it: of a directory that has no more than are looked at, all.
const READ_MAX: usize = 4 * LOOKED_MAX;
/// Of a directory that has more: those that are looked at for one plan, and over how many of them
/// a program goes from one file to the next, if it is on a walk.
const NEXT_MAX: usize = 1024;
const STEPS_MAX: usize = 256;
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

type Entry = (Name, FileId);

/// What a plan goes by.
pub(crate) struct Known<'a> {
    pub tree: &'a Tree<'a>,
    /// The name in a directory by which a file was seen.
    pub name: &'a dyn Fn(FileId, FileId) -> Option<Name>,
    /// The order in which a directory was read lately.
    pub order: &'a dyn Fn(FileId) -> Option<Arc<names::Order>>,
}

/// The order in which the step from one file to the other is the shortest.
pub(crate) fn order_of(entries: &[Entry], before: FileId, file: FileId, so_far: Order) -> Order {
    let entry = |wanted: FileId| entries.iter().find(|(_, file)| *file == wanted);
    let (Some(before), Some(file)) = (entry(before), entry(file)) else { return so_far };
    let steps = |order: Order| match order {
        Order::Listed => {
            let cookies = entries.iter().map(|(name, _)| cookie(name));
            between(cookies, cookie(&before.0), cookie(&file.0))
        }
        Order::Names => between(entries.iter().map(|(name, _)| name), &before.0, &file.0),
        Order::Ids => between(entries.iter().map(|(_, file)| *file), before.1, file.1),
    };
    shortest(so_far, |order| Some((steps(order)?, order))).unwrap_or(so_far)
}

/// How many of these come before `to`, and not before `from`.
fn between<K: Ord>(keys: impl Iterator<Item = K>, from: K, to: K) -> Option<usize> {
    (from <= to).then(|| keys.filter(|key| from <= *key && *key < to).count())
}

/// Of orders in which steps are as short, the one that was taken so far.
fn shortest(so_far: Order, steps: impl Fn(Order) -> Option<(usize, Order)>) -> Option<Order> {
    let all = [so_far, Order::Listed, Order::Names, Order::Ids];
    all.into_iter().filter_map(steps).min_by_key(|(steps, _)| *steps).map(|(_, order)| order)
}

/// The same in a directory that is not read for it. None: in no order it is a short step.
fn order_in_large(
    known: &Known<'_>,
    directory: FileId,
    (before, file): (FileId, FileId),
    so_far: Order,
) -> Result<Option<Order>, Missing> {
    let named = (known.name)(directory, before).zip((known.name)(directory, file));
    let listed = (known.order)(directory);
    let by_name = match &named {
        Some((before, file)) if before < file => {
            let next = known.tree.stretch(directory, Some(before), STEPS_MAX)?;
            next.entries.iter().position(|(name, _)| name == file).map(|at| at + 1)
        }
        _ => None,
    };
    let steps = |order: Order| match order {
        Order::Listed => {
            let (before, file) = named.as_ref()?;
            listed.as_ref()?.steps(cookie(before), cookie(file))
        }
        Order::Names => by_name,
        Order::Ids => listed.as_ref()?.steps_by_id(before, file),
    };
    let few = |order| Some((steps(order).filter(|steps| *steps <= STEPS_MAX)?, order));
    Ok(shortest(so_far, few))
}

/// What comes after a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub files: VecDeque<FileId>,
    /// Nothing comes after these.
    pub all: bool,
    pub order: Order,
}

/// The files that a walk comes to after this one and that `wanted` wants, in the order of the walk.
/// What is not known of the tree is left out. None: it is no walk.
pub(crate) fn after(
    known: &Known<'_>,
    (directory, file): (FileId, FileId),
    walk: &Walk,
    so_far: Order,
    wanted: &dyn Fn(FileId, &Node) -> bool,
) -> Result<Option<Plan>, Missing> {
    let plan = Plan { all: true, order: so_far, ..Plan::default() };
    let (left, unread) = (LOOKED_MAX, READ_MAX);
    let mut planning = Planning { known, wanted, deep: walk.deep, left, unread, plan };
    let (mut directory, mut from) = (directory, file);
    let mut contents = planning.contents(directory)?;
    if let Some(before) = walk.before {
        planning.plan.order = match &contents {
            Contents::All(entries) => order_of(entries, before, file, so_far),
            Contents::Unknown => so_far,
            Contents::Large => match order_in_large(known, directory, (before, file), so_far)? {
                Some(order) => order,
                None => return Ok(None),
            },
        };
    }
    for _ in 0..=LEVELS_MAX {
        planning.rest_of((directory, contents), Some(from), 0)?;
        if directory == walk.top || !walk.deep {
            break;
        }
        let above = known.tree.node(directory)?.and_then(|node| node.parent);
        let Some(parent) = above else { break };
        (directory, from) = (parent, directory);
        contents = planning.contents(directory)?;
    }
    Ok(Some(planning.plan))
}

/// What is in a directory.
enum Contents {
    /// What is not listed is not known to be there.
    Unknown,
    /// In the order of names.
    All(Vec<Entry>),
    Large,
}

struct Planning<'a> {
    known: &'a Known<'a>,
    wanted: &'a dyn Fn(FileId, &Node) -> bool,
    deep: bool,
    left: usize,
    unread: usize,
    plan: Plan,
}

impl Planning<'_> {
    fn contents(&mut self, directory: FileId) -> Result<Contents, Missing> {
        if !self.known.tree.is_complete(directory)? {
            return Ok(Contents::Unknown);
        }
        if (self.known.order)(directory).is_some_and(|order| order.len() > LOOKED_MAX) {
            return Ok(Contents::Large);
        }
        let rows_max = LOOKED_MAX.min(self.unread);
        let read = self.known.tree.stretch(directory, None, rows_max + 1)?;
        self.unread = self.unread.saturating_sub(read.rows);
        Ok(if read.more { Contents::Large } else { Contents::All(read.entries) })
    }

    /// What comes in a directory after an entry. Calls itself at most `DEPTH_MAX` deep.
    fn rest_of(
        &mut self,
        (directory, contents): (FileId, Contents),
        after: Option<FileId>,
        depth: usize,
    ) -> Result<(), Missing> {
        let (files, ends) = match contents {
            Contents::Unknown => return Ok(()),
            Contents::All(entries) => (rest_of_all(entries, self.plan.order, after), true),
            Contents::Large => self.next_of_large(directory, after)?,
        };
        for file in files {
            if self.left == 0 || self.plan.files.len() == PLAN_MAX {
                self.plan.all = false;
                return Ok(());
            }
            self.left -= 1;
            let Ok(Some(node)) = self.known.tree.node(file) else { continue };
            match node.kind {
                Kind::File if (self.wanted)(file, &node) => self.plan.files.push_back(file),
                Kind::Directory if self.deep && depth < DEPTH_MAX => {
                    let contents = self.contents(file)?;
                    self.rest_of((file, contents), None, depth + 1)?;
                }
                _ => {}
            }
        }
        if !ends {
            // The walk is in here for long before it comes to anything else.
            (self.left, self.plan.all) = (0, false);
        }
        Ok(())
    }

    /// What comes next in a directory that has too much to look at all of it, and whether that is
    /// the rest.
    fn next_of_large(
        &mut self,
        directory: FileId,
        after: Option<FileId>,
    ) -> Result<(Vec<FileId>, bool), Missing> {
        let name = after.and_then(|after| (self.known.name)(directory, after));
        let nameless = after.is_some() && name.is_none();
        let order = (self.known.order)(directory);
        let files: Vec<FileId> = match (self.plan.order, order) {
            (Order::Ids, Some(order)) => {
                order.files_after_id(after.unwrap_or(FileId(0))).take(NEXT_MAX).collect()
            }
            (Order::Listed, Some(order)) if !nameless => {
                order.files_after(name.as_ref().map_or(0, cookie)).take(NEXT_MAX).collect()
            }
            (Order::Names, _) if !nameless => {
                let rows_max = NEXT_MAX.min(self.unread);
                let next = self.known.tree.stretch(directory, name.as_ref(), rows_max)?;
                self.unread -= next.rows;
                let files = next.entries.into_iter().map(|(_, file)| file).collect();
                return Ok((files, !next.more));
            }
            _ => return Ok((Vec::new(), false)),
        };
        let ends = files.len() < NEXT_MAX;
        Ok((files, ends))
    }
}

/// What comes after an entry, in a directory of which all is known.
fn rest_of_all(mut entries: Vec<Entry>, order: Order, after: Option<FileId>) -> Vec<FileId> {
    match order {
        Order::Listed => entries.sort_by_cached_key(|(name, _)| cookie(name)),
        Order::Names => {}
        Order::Ids => entries.sort_by_key(|(_, file)| *file),
    }
    let here = after.and_then(|after| entries.iter().position(|(_, file)| *file == after));
    entries.into_iter().map(|(_, file)| file).skip(here.map_or(0, |here| here + 1)).collect()
}
