//! The record of conflicts.
//! From: DESIGN, "Conflicts": recorded with both stamps and their common base.

use crate::error::Result;
use minicbor::{Decode, Encode};
use model::{Change, FileId, Name, Seq, Stamp, Time};
pub use protocol::past::Clash;
use protocol::past::Setting;
use std::collections::BTreeSet;
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

pub(crate) const CONFLICTS: &str = "origin-conflicts";
/// Those that have been seen to, by number.
pub(crate) const SETTLED: &str = "origin-conflicts-settled";
/// How many are listed.
pub(crate) const LISTED: &str = "origin-conflicts-listed";

/// Conflicts that have been seen to and are remembered.
const SETTLED_MAX: usize = 1000;

/// Conflicts that are read at once.
const ROWS_MAX: usize = 1000;

/// One conflict, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Conflict {
    #[n(0)]
    pub clash: Clash,
    /// The update that came second.
    #[n(1)]
    pub update: Stamp,
    /// What it found: the stamp of the contents that came first.
    #[n(2)]
    pub found: Option<Stamp>,
    /// What both began from: the stamp of the contents that it expected.
    #[n(3)]
    pub base: Option<Stamp>,
    /// The file that it was about.
    #[n(4)]
    pub file: FileId,
    /// The name that it was about.
    #[n(5)]
    pub directory: FileId,
    #[n(6)]
    pub name: Name,
    /// Where what came second is now, if it is anywhere else.
    #[n(7)]
    pub aside: Option<(FileId, FileId, Name)>,
    /// The device that came second, by the name it gives itself.
    #[n(8)]
    pub device: String,
    /// When the origin met it.
    #[n(9)]
    pub at: Time,
    /// None: the update was not done.
    #[n(10)]
    pub seq: Option<Seq>,
    /// Of attributes, what each of the two set.
    #[n(11)]
    pub settings: Option<Vec<Setting>>,
    #[n(12)]
    pub claim: Option<Claimed>,
    /// The file that had the contents of `base`, where that was another one: both took its name.
    #[n(13)]
    pub base_file: Option<FileId>,
}

impl Conflict {
    /// What both began from: a file, and the stamp of its contents.
    pub fn began_from(&self) -> Option<(FileId, Stamp)> {
        self.base.map(|base| (self.base_file.unwrap_or(self.file), base))
    }
}

/// Whoever saves by rename began from what the name meant: that file, and the contents that he saw.
pub(super) fn began_from(change: &Change) -> Option<(FileId, Stamp)> {
    match change {
        Change::Rename { over: Some(over), expects: Some(expects), exchange: false, .. } => {
            Some((*over, *expects))
        }
        _ => None,
    }
}

/// Somebody is about to see to it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Claimed {
    #[n(0)]
    pub token: u64,
    #[n(1)]
    pub device: String,
    #[n(2)]
    pub until: Time,
    /// The volume's position then.
    #[n(3)]
    pub before: Seq,
}

/// A conflict that has been seen to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Settled {
    #[n(0)]
    pub conflict: Conflict,
    /// The position before anything was done about it.
    #[n(1)]
    pub before: Seq,
    #[n(2)]
    pub at: Time,
    #[n(3)]
    pub device: Option<String>,
    /// The contents that bore the name when it was seen to.
    #[n(4)]
    pub left: Option<Stamp>,
}

pub(super) fn record(write: &mut dyn Write, volume: VolumeId, conflict: &Conflict) -> Result<()> {
    // One that was seen to keeps its number, by which it may be listed anew.
    let last = last_number(write, volume, CONFLICTS)?.max(last_number(write, volume, SETTLED)?);
    put(write, volume, last + 1, conflict)?;
    count(write, volume, 1)
}

pub(crate) fn put(
    write: &mut dyn Write,
    volume: VolumeId,
    number: u64,
    conflict: &Conflict,
) -> Result<()> {
    Ok(write.put(CONFLICTS, &key(volume, number), &encode(conflict))?)
}

fn key(volume: VolumeId, number: u64) -> Vec<u8> {
    [&volume.range().0[..], &number.to_be_bytes()].concat()
}

fn last_number(read: &dyn Read, volume: VolumeId, table: &'static str) -> Result<u64> {
    let (from, to) = volume.range();
    let last = read.last(table, &from, &to)?;
    Ok(last.and_then(|(key, _)| key.last_chunk().map(|n| u64::from_be_bytes(*n))).unwrap_or(0))
}

/// How many conflicts of a volume are listed.
pub(crate) fn listed(read: &dyn Read, volume: VolumeId) -> Result<u64> {
    let place = || format!("the number of conflicts of {volume}");
    match read.get(LISTED, &volume.range().0)? {
        Some(bytes) => Ok(decode(place, &bytes)?),
        // Of a store of before they were counted.
        None => {
            let (mut from, to) = volume.range();
            let mut counted = 0;
            loop {
                let rows = read.scan(CONFLICTS, &from, &to, ROWS_MAX)?;
                let Some((last, _)) = rows.last() else { return Ok(counted) };
                from = [last, &[0][..]].concat();
                counted += rows.len() as u64;
            }
        }
    }
}

/// After the row was written, or removed.
fn count(write: &mut dyn Write, volume: VolumeId, by: i64) -> Result<()> {
    let key = volume.range().0;
    let now = match write.get(LISTED, &key)? {
        Some(_) => listed(write, volume)?.saturating_add_signed(by),
        None => listed(write, volume)?,
    };
    Ok(write.put(LISTED, &key, &encode(&now))?)
}

/// Conflicts of a volume, oldest first, at most `rows_max`.
pub(crate) fn conflicts(
    read: &dyn Read,
    volume: VolumeId,
    rows_max: usize,
) -> Result<Vec<Conflict>> {
    let (from, to) = volume.range();
    let rows = read.scan(CONFLICTS, &from, &to, rows_max)?;
    rows.iter().map(|(_, value)| Ok(decode(|| format!("a conflict of {volume}"), value)?)).collect()
}

/// Conflicts of a volume with their numbers, those after a number, oldest first.
pub(crate) fn conflicts_after(
    read: &dyn Read,
    volume: VolumeId,
    after: u64,
    rows_max: usize,
) -> Result<Vec<(u64, Conflict)>> {
    rows_after(read, volume, CONFLICTS, after, rows_max)
}

fn rows_after<T: for<'b> Decode<'b, ()>>(
    read: &dyn Read,
    volume: VolumeId,
    table: &'static str,
    after: u64,
    rows_max: usize,
) -> Result<Vec<(u64, T)>> {
    let from = key(volume, after.saturating_add(1));
    let rows = read.scan(table, &from, &volume.range().1, rows_max)?;
    rows.iter()
        .map(|(key, value)| {
            let number = key.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            Ok((number, decode(|| format!("a conflict of {volume}"), value)?))
        })
        .collect()
}

pub(crate) fn conflict_of(
    read: &dyn Read,
    volume: VolumeId,
    number: u64,
) -> Result<Option<Conflict>> {
    crate::row::get(read, CONFLICTS, &key(volume, number))
}

/// The conflict is listed no more, and remembered.
pub(crate) fn settle(
    write: &mut dyn Write,
    volume: VolumeId,
    number: u64,
    settled: &Settled,
) -> Result<()> {
    write.delete(CONFLICTS, &key(volume, number))?;
    count(write, volume, -1)?;
    write.put(SETTLED, &key(volume, number), &encode(settled))?;
    let (from, to) = volume.range();
    let rows = write.scan(SETTLED, &from, &to, SETTLED_MAX + 1)?;
    if let (true, Some((oldest, _))) = (rows.len() > SETTLED_MAX, rows.first()) {
        write.delete(SETTLED, oldest)?;
    }
    Ok(())
}

pub(crate) fn settled_of(
    read: &dyn Read,
    volume: VolumeId,
    number: u64,
) -> Result<Option<Settled>> {
    crate::row::get(read, SETTLED, &key(volume, number))
}

/// Those that have been seen to, with numbers after one.
pub(crate) fn settled_after(
    read: &dyn Read,
    volume: VolumeId,
    after: u64,
    rows_max: usize,
) -> Result<Vec<(u64, Settled)>> {
    rows_after(read, volume, SETTLED, after, rows_max)
}

/// A conflict that had been seen to is listed anew.
pub(crate) fn reopen(
    write: &mut dyn Write,
    volume: VolumeId,
    number: u64,
    conflict: &Conflict,
) -> Result<()> {
    write.delete(SETTLED, &key(volume, number))?;
    put(write, volume, number, conflict)?;
    count(write, volume, 1)
}

/// Contents that conflicts are about: the base and both sides stay as long as the conflict does.
pub(crate) fn contents_of_conflicts(
    read: &dyn Read,
    volume: VolumeId,
) -> Result<BTreeSet<(FileId, Stamp)>> {
    let (mut from, to) = volume.range();
    let mut contents = BTreeSet::new();
    loop {
        let rows = read.scan(CONFLICTS, &from, &to, ROWS_MAX)?;
        let Some((last, _)) = rows.last() else { return Ok(contents) };
        from = [last, &[0][..]].concat();
        for (_, value) in &rows {
            let conflict: Conflict = decode(|| format!("a conflict of {volume}"), value)?;
            if matches!(conflict.clash, Clash::Overrun | Clash::Attributes) {
                // No contents were kept beside any.
                continue;
            }
            contents.extend(conflict.began_from());
            let stamps = [Some(conflict.update), conflict.found, conflict.base];
            let files = [Some(conflict.file), conflict.aside.map(|(file, _, _)| file)];
            for file in files.into_iter().flatten() {
                contents.extend(stamps.into_iter().flatten().map(|stamp| (file, stamp)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    const VOLUME: VolumeId = VolumeId(3);

    /// As it was written before attributes, claims and counts were known.
    #[derive(Encode)]
    #[cbor(array)]
    struct Older {
        #[n(0)]
        clash: Clash,
        #[n(1)]
        update: Stamp,
        #[n(2)]
        found: Option<Stamp>,
        #[n(3)]
        base: Option<Stamp>,
        #[n(4)]
        file: FileId,
        #[n(5)]
        directory: FileId,
        #[n(6)]
        name: Name,
        #[n(7)]
        aside: Option<(FileId, FileId, Name)>,
        #[n(8)]
        device: String,
        #[n(9)]
        at: Time,
        #[n(10)]
        seq: Option<Seq>,
    }

    fn older(number: u64) -> Older {
        Older {
            clash: Clash::Contents,
            update: Stamp::new(ReplicaId(2), number),
            found: None,
            base: None,
            file: FileId(5),
            directory: FileId::ROOT,
            name: Name::new("n").unwrap(),
            aside: None,
            device: "ada".into(),
            at: Time::default(),
            seq: Some(Seq(number)),
        }
    }

    #[test]
    fn conflicts_of_an_earlier_version_are_read_and_counted() {
        let tables = MemoryTables::new();
        let mut write = tables.write().unwrap();
        for number in 1..=3 {
            write.put(CONFLICTS, &key(VOLUME, number), &encode(&older(number))).unwrap();
        }
        write.commit(Durability::Now).unwrap();
        let mut write = tables.write().unwrap();
        assert_eq!(listed(&*write, VOLUME).unwrap(), 3);
        let (number, first) = conflicts_after(&*write, VOLUME, 0, 10).unwrap().remove(0);
        assert_eq!(
            (number, first.seq, &first.settings, &first.claim),
            (1, Some(Seq(1)), &None, &None)
        );
        record(&mut *write, VOLUME, &first).unwrap();
        assert_eq!(listed(&*write, VOLUME).unwrap(), 4);
        let settled = Settled {
            conflict: first,
            before: Seq(1),
            at: Time::default(),
            device: None,
            left: None,
        };
        settle(&mut *write, VOLUME, 4, &settled).unwrap();
        assert_eq!(
            (listed(&*write, VOLUME).unwrap(), conflicts(&*write, VOLUME, 9).unwrap().len()),
            (3, 3)
        );
        record(&mut *write, VOLUME, &settled.conflict).unwrap();
        assert!(conflict_of(&*write, VOLUME, 5).unwrap().is_some(), "4 may be had back");
        reopen(&mut *write, VOLUME, 4, &settled.conflict).unwrap();
        assert_eq!(listed(&*write, VOLUME).unwrap(), 5);
    }
}
