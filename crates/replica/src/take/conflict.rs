//! The record of conflicts.
//! From: DESIGN, "Conflicts": recorded with both stamps and their common base.

use crate::error::Result;
use minicbor::{Decode, Encode};
use model::{FileId, Name, Seq, Stamp, Time};
use std::collections::BTreeSet;
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

pub(crate) const CONFLICTS: &str = "origin-conflicts";

/// Conflicts that are read at once.
const ROWS_MAX: usize = 1000;

/// What met what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Clash {
    /// Two stored new contents of one file: the second are a file of their own now.
    #[n(0)]
    Contents,
    /// Contents were stored into a file that somebody removed: it is back.
    #[n(1)]
    Removed,
    /// Two things were to bear one name: the second bears another.
    #[n(2)]
    Name,
    /// Something was made in a directory that is gone: it is in the nearest that is left.
    #[n(3)]
    Directory,
    /// Two made one directory: it is one.
    #[n(4)]
    Merged,
    /// A file was to be replaced or removed that somebody had changed meanwhile: it stays.
    #[n(5)]
    Replaced,
    /// A directory would have come to lie in itself: it stays where it is.
    #[n(6)]
    Cycle,
    /// It was accepted while others used up a quota: it is there, beyond that.
    #[n(7)]
    Overrun,
}

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
}

pub(super) fn record(write: &mut dyn Write, volume: VolumeId, conflict: &Conflict) -> Result<()> {
    let (from, to) = volume.range();
    let last = write.last(CONFLICTS, &from, &to)?;
    let last = last.and_then(|(key, _)| key.last_chunk().map(|n| u64::from_be_bytes(*n)));
    let number = last.map_or(1, |last| last + 1);
    let key = [&from[..], &number.to_be_bytes()].concat();
    Ok(write.put(CONFLICTS, &key, &encode(conflict))?)
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
            if conflict.clash == Clash::Overrun {
                // Nothing was kept beside anything.
                continue;
            }
            let stamps = [Some(conflict.update), conflict.found, conflict.base];
            let files = [Some(conflict.file), conflict.aside.map(|(file, _, _)| file)];
            for file in files.into_iter().flatten() {
                contents.extend(stamps.into_iter().flatten().map(|stamp| (file, stamp)));
            }
        }
    }
}
