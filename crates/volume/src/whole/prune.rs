//! Versions that nobody needs any more go, a bounded number of rows at a time.
//! Holds: what was current at a position that is held can be read as it was then, and so can
//! everything from the floor on; a walk that is interrupted anywhere leaves a tree that reads the
//! same, and the next one finds the rest.
//! Never: removes what is current, or decides how long anything is held.
//! From: DESIGN, "Updates": what nobody needs is pruned.

use super::error::{Error, Result};
use super::record::{ContentsRecord, EntryRecord, Head, NodeRecord, decode, encode};
use super::{VolumeId, Whole, keys, table};
use model::{Contents, FileId, Node, Seq, Stamp};
use std::collections::BTreeSet;
use store::{Read, Row, Write};

/// What somebody may still ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Names and attributes are held as they were at this position and at every later one.
    pub floor: Seq,
    /// The same of contents. Not below `floor`: whose contents they are is read from the nodes.
    pub contents_floor: Seq,
    /// Updates after this position stay in the log.
    pub log_floor: Seq,
    /// Single positions before the floors at which everything is held.
    pub pins: BTreeSet<Seq>,
    /// Contents that are held by their stamp, whenever they were current, and the attributes of their
    /// file at that time.
    pub contents: BTreeSet<(FileId, Stamp)>,
}

impl Holds {
    /// The same where nothing is old enough to go.
    #[must_use]
    pub fn of_all_versions(self) -> Holds {
        Holds { floor: Seq::START, contents_floor: Seq::START, log_floor: Seq::START, ..self }
    }
}

/// One version of a node or a name: since when, and whether there is nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub since: Seq,
    pub gone: bool,
    /// It has contents that are held.
    pub is_held: bool,
}

/// Which versions of one key are needed: those that were current at a held position or have held
/// contents, and of these not the absence that nothing comes before, which reads the same without its row. `next` is the
/// version after the last of these, `follows` says that one before the first stays.
pub fn needed(versions: &[Version], next: Option<Seq>, follows: bool, holds: &Holds) -> Vec<bool> {
    let mut follows = follows;
    let mut needed = Vec::with_capacity(versions.len());
    for (index, version) in versions.iter().enumerate() {
        let until = versions.get(index + 1).map(|after| after.since).or(next);
        let current = until.is_none_or(|until| {
            until > holds.floor || holds.pins.range(version.since..until).next().is_some()
        }) || version.is_held;
        // An absence after the floor is what tells that there was something at the floor.
        let says = !version.gone || follows || version.since > holds.floor;
        needed.push(current && says);
        follows |= current && says;
    }
    needed
}

/// Where a walk goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneAt {
    stage: usize,
    from: Vec<u8>,
}

/// The tables in the order in which they are walked: contents are judged by the nodes.
const STAGES: [&str; 4] = [table::CONTENTS, table::NODES, table::ENTRIES, table::LOG];

/// Looks at up to `rows_max` rows (2 at least) and removes those that nobody needs. Returns how
/// many went, and where to go on; none when all has been looked at.
pub fn prune(
    write: &mut dyn Write,
    volume: VolumeId,
    at: Option<PruneAt>,
    holds: &Holds,
    rows_max: usize,
) -> Result<(u64, Option<PruneAt>)> {
    let rows_max = rows_max.max(2);
    let (first, end) = volume.range();
    let at = at.unwrap_or(PruneAt { stage: 0, from: first.clone() });
    let Some(name) = STAGES.get(at.stage).copied() else { return Ok((0, None)) };
    let rows = write.scan(name, &at.from, &end, rows_max)?;
    // Of the last row it is not known what comes after it: the next turn begins with it.
    let open = (rows.len() == rows_max).then(|| rows[rows_max - 1].0.clone());
    let mut removed = 0;
    for key in unneeded(write, volume, name, &rows, open.is_some(), holds)? {
        write.delete(name, &key)?;
        removed += 1;
    }
    if removed > 0 {
        note_floor(write, volume, holds.floor.max(holds.contents_floor))?;
    }
    let next = match open {
        Some(from) => Some(PruneAt { stage: at.stage, from }),
        None if at.stage + 1 < STAGES.len() => Some(PruneAt { stage: at.stage + 1, from: first }),
        None => None,
    };
    Ok((removed, next))
}

/// From now on not everything before the floor is kept.
fn note_floor(write: &mut dyn Write, volume: VolumeId, floor: Seq) -> Result<()> {
    let head = Whole::now(&*write, volume).head()?;
    if head.pruned.is_none_or(|pruned| pruned < floor) {
        let head = Head { pruned: Some(floor), ..head };
        write.put(table::HEAD, &keys::volume(volume), &encode(&head))?;
    }
    Ok(())
}

/// Contents that are needed, of up to `rows_max` rows, and where to go on; none when all has been
/// looked at.
pub fn contents_page(
    read: &dyn Read,
    volume: VolumeId,
    from: Option<Vec<u8>>,
    holds: &Holds,
    rows_max: usize,
) -> Result<(Vec<Contents>, Option<Vec<u8>>)> {
    let (first, end) = volume.range();
    let rows = read.scan(table::CONTENTS, &from.unwrap_or(first), &end, rows_max)?;
    let next =
        (rows.len() == rows_max).then(|| rows.last().map(|(key, _)| [key, &[0][..]].concat()));
    let unneeded = contents_unneeded(read, volume, &rows, holds)?;
    let unneeded: BTreeSet<Vec<u8>> = unneeded.into_iter().collect();
    let needed = rows.iter().filter(|(key, _)| !unneeded.contains(key));
    let contents = needed.map(|(_, value)| {
        let record: ContentsRecord = decode(|| format!("contents of {volume}"), value)?;
        Ok(record.contents)
    });
    Ok((contents.collect::<Result<_>>()?, next.flatten()))
}

fn unneeded(
    read: &dyn Read,
    volume: VolumeId,
    name: &str,
    rows: &[Row],
    open: bool,
    holds: &Holds,
) -> Result<Vec<Vec<u8>>> {
    let closed = if open { &rows[..rows.len() - 1] } else { rows };
    match name {
        table::CONTENTS => contents_unneeded(read, volume, closed, holds),
        table::LOG => closed
            .iter()
            .filter_map(|(key, _)| match seq_of(volume, key) {
                Ok(seq) => (seq <= holds.log_floor).then(|| Ok(key.clone())),
                Err(error) => Some(Err(error)),
            })
            .collect(),
        _ => versions_unneeded(read, volume, name == table::NODES, rows, closed.len(), holds),
    }
}

/// Rows of one key lie together, in the order of positions.
fn versions_unneeded(
    read: &dyn Read,
    volume: VolumeId,
    nodes: bool,
    rows: &[Row],
    closed: usize,
    holds: &Holds,
) -> Result<Vec<Vec<u8>>> {
    let mut unneeded = Vec::new();
    let mut begin = 0;
    while begin < closed {
        let of = without_seq(&rows[begin].0);
        let end = (begin..closed).find(|at| without_seq(&rows[*at].0) != of).unwrap_or(closed);
        let next = rows.get(end).filter(|(key, _)| without_seq(key) == of);
        let next = next.map(|(key, _)| seq_of(volume, key)).transpose()?;
        let versions = rows[begin..end]
            .iter()
            .map(|(key, value)| version(volume, nodes, (key, value), holds))
            .collect::<Result<Vec<_>>>()?;
        let name = if nodes { table::NODES } else { table::ENTRIES };
        // Only a walk that began in the midst of a key's versions has some before it.
        let follows = begin == 0 && read.last(name, of, &rows[0].0)?.is_some();
        let needed = needed(&versions, next, follows, holds);
        let group = rows[begin..end].iter().zip(needed);
        unneeded.extend(group.filter(|(_, needed)| !needed).map(|((key, _), _)| key.clone()));
        begin = end;
    }
    Ok(unneeded)
}

fn version(
    volume: VolumeId,
    nodes: bool,
    (key, value): (&[u8], &[u8]),
    holds: &Holds,
) -> Result<Version> {
    let place = || format!("a version of {volume} that may be old");
    let (gone, is_held) = if nodes {
        let file = keys::file_in(key).ok_or_else(|| bad_key(place()))?;
        let node = decode::<NodeRecord>(place, value)?.node;
        let is_held = |node: &Node| holds.contents.contains(&(file, node.contents_stamp));
        (node.is_none(), node.as_ref().is_some_and(is_held))
    } else {
        (decode::<EntryRecord>(place, value)?.file.is_none(), false)
    };
    Ok(Version { since: seq_of(volume, key)?, gone, is_held })
}

fn contents_unneeded(
    read: &dyn Read,
    volume: VolumeId,
    rows: &[Row],
    holds: &Holds,
) -> Result<Vec<Vec<u8>>> {
    let mut unneeded = Vec::new();
    for (key, value) in rows {
        let place = || format!("contents of {volume} that may be old");
        let (file, stamp) = keys::file_and_stamp(key).ok_or_else(|| bad_key(place()))?;
        let ContentsRecord { since, .. } = decode(place, value)?;
        if since > holds.contents_floor || holds.contents.contains(&(file, stamp)) {
            continue;
        }
        // What was replaced is not current again; what was removed may be.
        let pins = holds.pins.range(since..holds.contents_floor).copied();
        let mut then = None;
        for seq in pins.chain([holds.contents_floor]) {
            then = Whole::as_of(read, volume, seq).node_version(file)?.and_then(|then| then.node);
            if then.is_some() {
                break;
            }
        }
        let then = match then {
            None => first_after(read, volume, file, holds.contents_floor)?,
            then => then,
        };
        if then.is_none_or(|node| node.contents_stamp != stamp) {
            unneeded.push(key.clone());
        }
    }
    Ok(unneeded)
}

/// How a file that was removed at a position came back, if it did.
fn first_after(read: &dyn Read, volume: VolumeId, file: FileId, seq: Seq) -> Result<Option<Node>> {
    let mut from = keys::file_at(volume, file, seq.next());
    let to = keys::after_file(volume, file);
    loop {
        let Some((key, value)) = read.scan(table::NODES, &from, &to, 1)?.into_iter().next() else {
            return Ok(None);
        };
        let place = || format!("a version of node {file} of {volume}");
        if let Some(node) = decode::<NodeRecord>(place, &value)?.node {
            return Ok(Some(node));
        }
        from = [&key[..], &[0]].concat();
    }
}

fn without_seq(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(8)]
}

fn seq_of(volume: VolumeId, key: &[u8]) -> Result<Seq> {
    let place = || format!("a version of {volume} that may be old");
    keys::last_number(key).map(Seq).ok_or_else(|| bad_key(place()))
}

fn bad_key(place: String) -> Error {
    Error::Damaged { place, what: "its key is not one that is written".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a key is at a position: none if nothing is known of it, which reads as gone.
    fn at(versions: &[Version], seq: Seq) -> Option<Seq> {
        let last = versions.iter().rev().find(|version| version.since <= seq)?;
        (!last.gone).then_some(last.since)
    }

    proptest! {
        #[test]
        fn prop_what_is_held_reads_the_same_and_nothing_else_stays(
            kinds in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.2)), 1..12),
            floor in 0u64..30,
            pins in prop::collection::btree_set(0u64..30, 0..4),
        ) {
            let versions: Vec<Version> = kinds
                .iter()
                .enumerate()
                .map(|(i, (gone, held))| {
                    let since = Seq(2 * i as u64 + 1);
                    Version { since, gone: *gone, is_held: *held && !*gone }
                })
                .collect();
            let pins: BTreeSet<Seq> =
                pins.into_iter().filter(|pin| *pin < floor).map(Seq).collect();
            let holds = Holds { floor: Seq(floor), pins, ..Holds::default() };
            let needed = needed(&versions, None, false, &holds);
            let kept: Vec<Version> = versions
                .iter()
                .zip(&needed)
                .filter(|(_, needed)| **needed)
                .map(|(version, _)| *version)
                .collect();
            let held = || holds.pins.iter().copied().chain((floor..40).map(Seq));
            for seq in held() {
                prop_assert_eq!(at(&kept, seq), at(&versions, seq));
            }
            prop_assert!(versions.iter().zip(&needed).all(|(it, needed)| *needed || !it.is_held));
            // Every other version that is there and stays is current at a held position.
            for version in kept.iter().filter(|version| !version.gone && !version.is_held) {
                prop_assert!(held().any(|seq| at(&versions, seq) == Some(version.since)));
            }
        }
    }

    #[test]
    fn a_name_that_is_long_gone_leaves_nothing() {
        let version = |since, gone| Version { since: Seq(since), gone, is_held: false };
        let versions = [version(1, false), version(5, true)];
        let holds = |floor| Holds { floor: Seq(floor), ..Holds::default() };
        assert_eq!(needed(&versions, None, false, &holds(4)), [true, true]);
        assert_eq!(needed(&versions, None, false, &holds(5)), [false, false]);
        let pinned = Holds { pins: [Seq(2)].into(), ..holds(9) };
        assert_eq!(needed(&versions, None, false, &pinned), [true, true]);
    }
}
