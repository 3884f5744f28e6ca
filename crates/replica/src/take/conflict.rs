//! The record of conflicts.
//! From: DESIGN, "Conflicts": recorded with both stamps and their common base.

use crate::error::Result;
use minicbor::{Decode, Encode};
use model::{FileId, Name, Seq, Stamp, Time};
pub use protocol::past::Clash;
use protocol::past::Setting;
use std::collections::BTreeSet;
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

pub(crate) const CONFLICTS: &str = "origin-conflicts";

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

/// Conflicts of a volume with their numbers, those after a number, oldest first.
pub(crate) fn conflicts_after(
    read: &dyn Read,
    volume: VolumeId,
    after: u64,
    rows_max: usize,
) -> Result<Vec<(u64, Conflict)>> {
    let (from, to) = volume.range();
    let from = [&from[..], &after.saturating_add(1).to_be_bytes()].concat();
    let rows = read.scan(CONFLICTS, &from, &to, rows_max)?;
    rows.iter()
        .map(|(key, value)| {
            let number = key.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            Ok((number, decode(|| format!("a conflict of {volume}"), value)?))
        })
        .collect()
}

/// The conflict is listed no more. False: there was none of this number.
pub(crate) fn settle(write: &mut dyn Write, volume: VolumeId, number: u64) -> Result<bool> {
    let key = [&volume.range().0[..], &number.to_be_bytes()].concat();
    if write.get(CONFLICTS, &key)?.is_none() {
        return Ok(false);
    }
    write.delete(CONFLICTS, &key)?;
    Ok(true)
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
            let stamps = [Some(conflict.update), conflict.found, conflict.base];
            let files = [Some(conflict.file), conflict.aside.map(|(file, _, _)| file)];
            for file in files.into_iter().flatten() {
                contents.extend(stamps.into_iter().flatten().map(|stamp| (file, stamp)));
            }
        }
    }
}
