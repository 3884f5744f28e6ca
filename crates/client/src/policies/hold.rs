//! Of what the replica above says, what is not to show yet.
//! Holds: what is held is noted in the transaction that holds it; who has just got a verdict, or a
//! lock, is shown all that was said.

use super::{Counts, STALE, STALE_MAX, Stale, encode, suffices};
use crate::client::{Client, Core, error_of};
use crate::epoch::Told;
use crate::failures::of_missing;
use crate::known::Going;
use crate::needs::files_of;
use crate::pins::lacks;
use crate::presence::Presence;
use crate::types::Error;
use model::{FileId, Name, Node, Update, View};
use protocol::{Listing, Mode, NodeState, States, Submitted, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Containers, Read, Write};
use volume::partial::{Changed, Hold, Tree, let_go, take_states, take_states_but};

/// The next mount takes what is cached for so much older than it is, at most.
const NOTED_EVERY_SECS: i64 = 300;

/// What the replica above says of files and names.
pub(crate) struct Said<'a> {
    nodes: Vec<&'a NodeState>,
    entries: Vec<(FileId, &'a Name, Option<FileId>)>,
}

impl<'a> Said<'a> {
    pub fn states(states: &'a States) -> Said<'a> {
        let entries = states.entries.iter();
        Said {
            nodes: states.nodes.iter().collect(),
            entries: entries.map(|state| (state.directory, &state.name, state.file)).collect(),
        }
    }

    pub fn listing(listing: &'a Listing) -> Said<'a> {
        let entries = listing.directories.iter().flat_map(|listed| {
            listed.entries.iter().map(|(name, file)| (listed.directory, name, Some(*file)))
        });
        Said { nodes: listing.nodes.iter().collect(), entries: entries.collect() }
    }
}

/// What becomes of what is said.
#[derive(Default)]
pub(crate) struct Taking {
    pub hold: Hold,
    stale: BTreeMap<FileId, Stale>,
    /// These were not current, and are now.
    fresh: BTreeMap<FileId, Option<(FileId, Name)>>,
}

impl Taking {
    /// The files that show otherwise by it.
    pub fn changed(&self) -> impl Iterator<Item = Changed> + '_ {
        let node = |file: &FileId| Changed::Node { file: *file, contents: true };
        let names = self.fresh.values().flatten().cloned();
        let names = names.map(|(directory, name)| Changed::Entry(directory, name));
        self.fresh.keys().map(node).chain(names)
    }
}

/// A version that shows, and what may take its place.
struct Shown {
    node: Node,
    entry: Option<(FileId, Name)>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// When all that is cached was last known to be current.
    pub(crate) fn known_current(&self) -> Option<i64> {
        let clock = &self.inner.world.clock;
        let (now, time) = (clock.outer_moment(), clock.time().secs);
        let connection = self.connection();
        let ended = connection.lease_until.map(|until| now.since(until));
        known_current(ended, connection.current, time)
    }

    /// Notes that now and then, for the next mount.
    pub(crate) fn note_current(&self) {
        let Some(current) = self.known_current() else { return };
        let mut core = self.core();
        let is_due =
            |noted: i64| noted > current || current.saturating_sub(noted) >= NOTED_EVERY_SECS;
        core.unsaved |= core.meta.current.is_none_or(is_due);
    }

    /// Decides what of this is to show. `holds`: some of it need not.
    pub(crate) fn taking(
        &self,
        read: &dyn Read,
        said: &Said<'_>,
        holds: bool,
    ) -> Result<Taking, Error> {
        let (may_hold, before) = {
            let policies = self.policies();
            let room = policies.stale.len() < STALE_MAX;
            (holds && room && policies.may_hold(), policies.stale.clone())
        };
        if !may_hold && before.is_empty() {
            return Ok(Taking::default());
        }
        let mut taking = Taking::default();
        if may_hold {
            self.hold_some(read, said, &before, &mut taking)?;
        }
        let nodes: BTreeSet<FileId> = said.nodes.iter().map(|state| state.file).collect();
        let entries: BTreeSet<(FileId, &Name)> =
            said.entries.iter().map(|(directory, name, _)| (*directory, *name)).collect();
        let is_said = |entry: &(FileId, Name)| entries.contains(&(entry.0, &entry.1));
        for (file, stale) in before {
            let entry = stale.entry();
            let node_shows = nodes.contains(&file) && !taking.hold.nodes.contains(&file);
            let held = |entry: &(FileId, Name)| taking.hold.entries.contains(entry);
            let entry_shows = entry.as_ref().is_some_and(|entry| is_said(entry) && !held(entry));
            if node_shows || entry_shows {
                taking.stale.remove(&file);
                taking.hold.nodes.remove(&file);
                entry.as_ref().map(|entry| taking.hold.entries.remove(entry));
                taking.fresh.insert(file, entry);
            }
        }
        Ok(taking)
    }

    fn hold_some(
        &self,
        read: &dyn Read,
        said: &Said<'_>,
        before: &BTreeMap<FileId, Stale>,
        taking: &mut Taking,
    ) -> Result<(), Error> {
        let shown = replaced(&Tree::new(read, 0), said, before).map_err(of_missing)?;
        if shown.is_empty() {
            return Ok(());
        }
        let counts = self.what_counts(read, &shown.keys().copied().collect())?;
        let mode = self.connection().mode;
        let (current, now) = (self.known_current(), self.inner.world.clock.time().secs);
        let learnt_now = Tree::new(read, self.inner.epoch.load(Ordering::Acquire));
        for (file, Shown { node, entry }) in shown {
            let earlier = before.get(&file);
            // What was learnt in an earlier epoch may have changed at any time since.
            let current = current.filter(|_| learnt_now.node(file).is_ok());
            let stale = Stale {
                current: earlier.map_or(current, |earlier| earlier.current),
                told: now,
                directory: entry.as_ref().map(|(directory, _)| *directory),
                name: entry.as_ref().map(|(_, name)| name.clone()),
            };
            let counts = counts.get(&file).copied().unwrap_or_default();
            if !self.suffices_now(read, (file, &node), &stale, (counts, mode))? {
                continue;
            }
            taking.hold.nodes.insert(file);
            taking.hold.entries.extend(entry);
            taking.stale.insert(file, stale);
        }
        Ok(())
    }

    /// Whether a version that is not current is good enough now.
    pub(super) fn suffices_now(
        &self,
        read: &dyn Read,
        (file, node): (FileId, &Node),
        stale: &Stale,
        (counts, mode): (Counts, Mode),
    ) -> Result<bool, Error> {
        let row = Presence::load(read, file).map_err(error_of)?;
        let written = |row: &Presence| row.dirty.is_some() || row.ground.is_some();
        let whole = lacks(node, row.as_ref()) == 0 && !row.as_ref().is_some_and(written);
        let age = stale.age(self.inner.world.clock.time().secs);
        Ok(suffices(counts.consistency, mode, age, whole))
    }

    /// Notes what is held, with what is taken in.
    pub(crate) fn note_taking(&self, write: &mut dyn Write, taking: &Taking) -> Result<(), Error> {
        for (file, entry) in &taking.fresh {
            let_go(write, *file, entry.as_ref()).map_err(of_missing)?;
            write.delete(STALE, &file.0.to_be_bytes()).map_err(error_of)?;
        }
        for (file, stale) in &taking.stale {
            write.put(STALE, &file.0.to_be_bytes(), &encode(stale)).map_err(error_of)?;
        }
        Ok(())
    }

    /// What those take away that are current again.
    pub(crate) fn going_fresh(&self, after: &dyn Read, taking: &Taking) -> Result<Going, Error> {
        self.going_of(after, taking.fresh.keys().copied().collect())
    }

    /// The same with what verdicts take away.
    pub(crate) fn going_said(
        &self,
        after: &dyn Read,
        submitted: &Submitted,
        turned_down: &[Update],
        taking: &Taking,
    ) -> Result<Going, Error> {
        let mut going = self.going_by(after, &submitted.states, turned_down)?;
        going.extend(self.going_fresh(after, taking)?);
        Ok(going)
    }

    /// What was noted is on its way to the disk.
    pub(crate) fn taking_noted(&self, taking: Taking) {
        if taking.stale.is_empty() && taking.fresh.is_empty() {
            return;
        }
        let mut policies = self.policies();
        for (file, stale) in taking.stale {
            tracing::debug!(%file, "it changed elsewhere, and shows as it was");
            policies.stale.insert(file, stale);
        }
        for file in taking.fresh.keys() {
            policies.stale.remove(file);
            policies.wanted.remove(file);
        }
        self.inner.keeping.choosing.is_stale.store(!policies.stale.is_empty(), Ordering::Release);
        drop(policies);
        self.inner.keeping.choosing.look();
    }

    /// These show as the replica above says that they are.
    pub(crate) fn show_current(&self, files: &[FileId]) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(());
        }
        let changed = {
            let _pressed = self.pressed();
            let mut core = self.core();
            let mut taking = Taking::default();
            {
                let policies = self.policies();
                let stale = |file: &FileId| Some((*file, policies.stale.get(file)?.entry()));
                taking.fresh = files.iter().filter_map(stale).collect();
            }
            self.expect(&self.held_states(&taking)?)?;
            let mut write = self.inner.tables.write().map_err(error_of)?;
            self.note_taking(&mut *write, &taking)?;
            let mut changed: Vec<Changed> = taking.changed().collect();
            let going = self.going_fresh(&*write, &taking)?;
            let learnt: Vec<FileId> = taking
                .fresh
                .iter()
                .flat_map(|(file, entry)| {
                    [Some(*file), entry.as_ref().map(|(directory, _)| *directory)]
                })
                .flatten()
                .collect();
            let learnt = learnt.into_iter();
            changed.extend(self.commit_learnt(&mut core, write, learnt, (None, None), going)?);
            self.taking_noted(taking);
            core.unsaved = true;
            changed
        };
        self.forget(&changed);
        Ok(())
    }

    /// What has been said and does not show, for the kernel to be ready for it.
    fn held_states(&self, taking: &Taking) -> Result<Vec<NodeState>, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let mut states = Vec::new();
        for file in taking.fresh.keys() {
            if let Some(held) = tree.held(*file).map_err(of_missing)? {
                states.push(NodeState { file: *file, seq: held.seq, node: held.node });
            }
        }
        Ok(states)
    }

    /// Takes in what the replica above says of what was done here: all of it shows.
    pub(crate) fn take_said(
        &self,
        core: &Core,
        write: &mut dyn Write,
        states: &States,
    ) -> Result<(Vec<Changed>, Taking), Error> {
        let taking = self.taking(&*write, &Said::states(states), false)?;
        let epoch = Told::Unasked.epoch(core, states);
        let changed = take_states(write, states, epoch).map_err(of_missing)?;
        self.note_taking(write, &taking)?;
        Ok((changed, taking))
    }

    /// Takes in what the replica above says, all of which is known to be current in an epoch.
    pub(crate) fn take_in(
        &self,
        core: &mut Core,
        (states, epoch): (&States, u32),
        taken: Option<crate::meta::Taken>,
        holds: bool,
    ) -> Result<Vec<Changed>, Error> {
        let taking = {
            let read = self.inner.tables.read().map_err(error_of)?;
            self.taking(&*read, &Said::states(states), holds)?
        };
        self.expect(states.nodes.iter().filter(|state| !taking.hold.nodes.contains(&state.file)))?;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let mut changed =
            take_states_but(&mut *write, states, epoch, &taking.hold).map_err(of_missing)?;
        self.note_taking(&mut *write, &taking)?;
        changed.extend(taking.changed());
        let mut going = self.going_by(&*write, states, [])?;
        going.extend(self.going_fresh(&*write, &taking)?);
        let learnt = files_of(states);
        changed.extend(self.commit_learnt(core, write, learnt, (taken, None), going)?);
        self.taking_noted(taking);
        Ok(changed)
    }
}

/// `ended`: how long ago the last lease did. `noted`: what was noted before there was one.
fn known_current(ended: Option<Duration>, noted: Option<i64>, time: i64) -> Option<i64> {
    match ended {
        Some(ended) => i64::try_from(ended.as_secs()).ok().map(|ago| time.saturating_sub(ago)),
        // A clock that was set back tells nothing.
        None => noted.filter(|noted| *noted <= time),
    }
}

/// The files that show and of which something else is said, or of whose name it is.
fn replaced(
    tree: &Tree<'_>,
    said: &Said<'_>,
    before: &BTreeMap<FileId, Stale>,
) -> Result<BTreeMap<FileId, Shown>, volume::partial::Missing> {
    let mut shown: BTreeMap<FileId, Shown> = BTreeMap::new();
    for (directory, name, now) in &said.entries {
        let Some(now) = now else { continue };
        let Some(file) = tree.settled_entry(*directory, name)? else { continue };
        if file == *now {
            continue;
        }
        // It shows by the name that is held for it: that one would be held for ever.
        let held = before.get(&file).and_then(Stale::entry);
        if held.is_some_and(|(at, held)| (at, &held) != (*directory, *name)) {
            continue;
        }
        if let Some(node) = tree.settled_file(file)? {
            let entry = Some((*directory, (*name).clone()));
            shown.insert(file, Shown { node, entry });
        }
    }
    for state in &said.nodes {
        let Some(node) = tree.settled_file(state.file)? else { continue };
        let entry = before.get(&state.file).and_then(Stale::entry);
        let version = state.node.as_ref().map(|node| node.contents_stamp);
        let other = match version {
            Some(version) => version != node.contents_stamp,
            // Its name went on to another file; what is removed is gone.
            None => entry.is_some(),
        };
        if other {
            shown.entry(state.file).or_insert(Shown { node, entry });
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cached_was_current_by_the_last_lease_or_as_was_noted_and_never_in_time_to_come() {
        let ago = |secs| Some(Duration::from_secs(secs));
        for (ended, noted, expected) in [
            (ago(0), None, Some(1000)),
            (ago(30), Some(999), Some(970)),
            (None, Some(400), Some(400)),
            (None, Some(1000), Some(1000)),
            (None, Some(1001), None),
            (None, None, None),
        ] {
            assert_eq!(known_current(ended, noted, 1000), expected, "{ended:?}, {noted:?}");
        }
    }
}
