//! Answers to the requests that change nothing in the tree.
//! Holds: every state in an answer is as of the position of the reading that gave it, so of two
//! states of one key the one with the higher position is the later; a callback is granted no
//! later than what it is about is shown.

mod attach;
mod contents;
mod gather;
mod lease;
mod list;
mod locking;

pub(crate) use attach::{Asking, attach, leave, renew};
pub(crate) use contents::{Offered, ReadWanted, RecipeWanted, Sent, read, recipe};
pub(crate) use gather::{GatherWanted, gather};
pub(crate) use lease::strike_off;
pub(crate) use list::{Wanted, inspect, list};
pub(crate) use locking::{let_go_of_locks, lock};

use crate::callbacks::{Place, Showing};
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use crate::weight;
use model::{Allowance, FileId, Past, Quota, ReplicaId, Seq, View};
use protocol::{EntryState, NodeState, Refusal, States, Totals};
use volume::whole::{Touched, Whole};

/// Readings that are tried without holding up others; the next one holds them up.
const TRIES_MAX: usize = 3;

/// What the tables take for a small file, about: its node, its name, its version and its update,
/// and the pages around them.
const FILE_TABLES_BYTES: u64 = 4096;

/// The state of nodes and entries, as of the position of the view.
pub(crate) fn states(view: &Whole<'_>, touched: &Touched, at: Seq) -> Result<States> {
    let mut states = States::default();
    for file in &touched.nodes {
        states.nodes.push(NodeState { file: *file, seq: at, node: view.node(*file)? });
    }
    for (directory, name) in &touched.entries {
        states.entries.push(EntryState {
            directory: *directory,
            name: name.clone(),
            seq: at,
            file: view.entry(*directory, name)?,
        });
    }
    Ok(states)
}

/// Those of the states that the keys name, as many as one message holds, and the keys of the rest.
pub(crate) fn pick(showing: &Showing, keys: &Touched) -> (States, Touched) {
    let (mut states, mut rest) = (States::default(), Touched::default());
    let mut bytes = 0;
    for file in &keys.nodes {
        let Some(state) = showing.nodes.get(file) else { continue };
        bytes += weight::of_node_state(state);
        if bytes <= weight::STATES_BYTES_MAX {
            states.nodes.push(state.clone());
        } else {
            rest.nodes.insert(*file);
        }
    }
    for key in &keys.entries {
        let Some(state) = showing.entries.get(key) else { continue };
        bytes += weight::of_entry_state(state);
        if bytes <= weight::STATES_BYTES_MAX {
            states.entries.push(state.clone());
        } else {
            rest.entries.insert(key.clone());
        }
    }
    (states, rest)
}

/// About how many bytes the states take.
fn weigh(states: &States) -> usize {
    let nodes = states.nodes.iter().map(weight::of_node_state);
    let entries = states.entries.iter().map(weight::of_entry_state);
    nodes.chain(entries).sum()
}

/// An answer, and what the asker may cache by it.
pub(crate) struct Shows<T> {
    pub answer: T,
    pub files: Vec<FileId>,
}

/// Reads and grants callbacks on what is shown, so that no change falls between the two.
pub(crate) fn show<T>(
    inner: &Inner,
    volume: &Volume,
    place: &Place,
    read: impl Fn(&Whole<'_>, Seq) -> Result<Result<Shows<T>, Refusal>>,
) -> Result<Result<T, Refusal>> {
    let reading = || -> Result<_> {
        let tables = inner.tables.read()?;
        let view = Whole::now(&*tables, volume.id);
        let at = view.position()?;
        Ok((read(&view, at)?, at))
    };
    for _ in 0..TRIES_MAX {
        let (shows, at) = reading()?;
        let mut holders = volume.holders();
        if !holders.has_published_beyond(at) {
            return Ok(shows.map(|shows| {
                holders.show(place, changing(shows.files), inner.limits.shown_max);
                shows.answer
            }));
        }
    }
    // Nothing is published while this is held.
    let mut holders = volume.holders();
    let (shows, _) = reading()?;
    Ok(shows.map(|shows| {
        holders.show(place, changing(shows.files), inner.limits.shown_max);
        shows.answer
    }))
}

/// Of what a snapshot shows there never is news.
fn changing(mut files: Vec<FileId>) -> Vec<FileId> {
    files.retain(|file| !matches!(file.past(), Some(Past::Of(..))));
    files
}

/// What there is of a volume's quota, and up to which number it counts the asker's own updates.
pub(crate) fn allowance(
    inner: &Inner,
    volume: &Volume,
    quota: Quota,
    replica: ReplicaId,
) -> Result<Allowance> {
    let tables = inner.tables.read()?;
    let view = Whole::now(&*tables, volume.id);
    let users = quota.users().iter().map(|user| view.usage_of(user.uid).map(|used| used.bytes));
    let users: Vec<u64> = users.collect::<std::result::Result<_, _>>()?;
    Ok(Allowance {
        used: view.usage()?.unwrap_or_default(),
        users: (!users.is_empty()).then_some(users),
        upto: view.position()?,
        taken: view.writer(replica)?.map_or(0, |writer| writer.taken),
        quota,
    })
}

/// What `statfs` shows of a volume. Where it has a quota, that is its size. What is free is the least of what the origin may keep and
/// what the disks have, of which every byte may be needed by all volumes and by other programs.
pub(crate) fn measure(inner: &Inner, volume: &Volume) -> Result<Totals> {
    let tables = inner.tables.read()?;
    let view = Whole::now(&*tables, volume.id);
    let quota = volume.quota().unwrap_or_default();
    let used = view.usage()?.unwrap_or_default();
    let files = view.files()?;
    let bytes = inner.blobs.bytes();
    let room = if inner.reserved.is_kept() { inner.tables.room()? } else { 0 };
    let disks = room.min(inner.blobs.room()?).min(volume.door.room().unwrap_or(u64::MAX));
    let (left, files_left) = (
        inner.limits.bytes_max.saturating_sub(bytes).min(disks),
        // Ids bound them too: 40 bits for every replica id.
        model::COUNTER_MAX.saturating_sub(files).min(room / FILE_TABLES_BYTES),
    );
    let within = |max: Option<u64>, used: u64| max.map_or(u64::MAX, |max| max.saturating_sub(used));
    Ok(Totals {
        // Of a volume with a quota what counts against it, of another what the store has.
        bytes: if quota.bytes.is_some() { used.bytes } else { bytes },
        bytes_free: left.min(within(quota.bytes, used.bytes)),
        files,
        files_free: files_left.min(within(quota.files, files)),
    })
}
