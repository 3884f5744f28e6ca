//! What files count for, kept with each transaction: of the volume in its head, of each user in a
//! row.
//! Holds: it is exact: what `check` counts anew is what is written.

use super::check::{Fault, Mend};
use super::error::Result;
use super::record::{Head, NodeRecord, decode, encode};
use super::{VolumeId, Whole, keys, table};
use model::{Growth, Growths, Node, Usage};
use std::collections::BTreeMap;
use store::{Read, Write};

/// Rows that are read at once.
const ROWS_MAX: usize = 1000;

impl Whole<'_> {
    /// What all files count for now; none where it was never counted.
    pub fn usage(&self) -> Result<Option<Usage>> {
        let head = self.head()?;
        Ok(head.bytes.map(|bytes| Usage { bytes, files: head.files }))
    }

    /// What the files of one user count for now.
    pub fn usage_of(&self, uid: u32) -> Result<Usage> {
        let place = || format!("usage of user {uid} in {}", self.volume);
        match self.read.get(table::USAGE, &keys::usage(self.volume, uid))? {
            Some(bytes) => decode(place, &bytes),
            None => Ok(Usage::default()),
        }
    }
}

/// Whether what files count for is known: it is not of a volume of before that was kept.
pub fn is_counted(read: &dyn Read, volume: VolumeId) -> Result<bool> {
    Ok(Whole::now(read, volume).head()?.bytes.is_some())
}

/// Counts what there is, once; from then on each transaction keeps it.
pub fn count_usage(write: &mut dyn Write, volume: VolumeId) -> Result<()> {
    let mut tally = Tally::default();
    each_node(&*write, volume, |node| tally.add(node))?;
    let head = Whole::now(&*write, volume).head()?;
    let head = Head { bytes: Some(tally.total().bytes), ..head };
    write.put(table::HEAD, &keys::volume(volume), &encode(&head))?;
    // A program from before usage was kept may have left rows that are not so any more.
    let (from, end) = volume.range();
    loop {
        let rows = write.scan(table::USAGE, &from, &end, ROWS_MAX)?;
        if rows.is_empty() {
            break;
        }
        for (key, _) in rows {
            write.delete(table::USAGE, &key)?;
        }
    }
    for (uid, usage) in &tally.users {
        put(write, volume, *uid, *usage)?;
    }
    Ok(())
}

/// Every node that there is now.
fn each_node(read: &dyn Read, volume: VolumeId, mut each: impl FnMut(&Node)) -> Result<()> {
    let (mut from, end) = volume.range();
    let mut last: Option<(Vec<u8>, NodeRecord)> = None;
    loop {
        let rows = read.scan(table::NODES, &from, &end, ROWS_MAX)?;
        for (key, value) in &rows {
            let record: NodeRecord = decode(|| format!("a node of {volume}"), value)?;
            if let Some((before, NodeRecord { node: Some(node), .. })) = &last
                && keys::file_in(before) != keys::file_in(key)
            {
                each(node);
            }
            last = Some((key.clone(), record));
        }
        let Some((key, _)) = rows.last() else { break };
        from = [key, &[0][..]].concat();
    }
    if let Some((_, NodeRecord { node: Some(node), .. })) = &last {
        each(node);
    }
    Ok(())
}

pub(super) fn put(write: &mut dyn Write, volume: VolumeId, uid: u32, usage: Usage) -> Result<()> {
    let key = keys::usage(volume, uid);
    match usage == Usage::default() {
        true => write.delete(table::USAGE, &key)?,
        false => write.put(table::USAGE, &key, &encode(&usage))?,
    }
    Ok(())
}

/// What did not add up, because a row was damaged, is for `check` to tell, and holds up nobody.
pub(super) fn grown(usage: Usage, growth: Growth) -> Usage {
    let add = |now: u64, by: i128| clamped(i128::from(now) + by);
    Usage { bytes: add(usage.bytes, growth.bytes), files: add(usage.files, growth.files) }
}

pub(super) fn clamped(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}

/// What files count for, counted anew.
#[derive(Debug, Default)]
pub(super) struct Tally {
    users: BTreeMap<u32, Usage>,
}

impl Tally {
    pub fn add(&mut self, node: &Node) {
        let used = self.users.entry(node.uid).or_default();
        *used = grown(*used, Growths::between(None, Some(node)).of(node.uid));
    }

    pub fn total(&self) -> Usage {
        let all =
            |of: fn(&Usage) -> u64| clamped(self.users.values().map(|u| i128::from(of(u))).sum());
        Usage { bytes: all(|usage| usage.bytes), files: all(|usage| usage.files) }
    }

    /// What is written otherwise.
    pub fn faults(&self, read: &dyn Read, volume: VolumeId, head: &Head) -> Result<Vec<Fault>> {
        let mut faults = Vec::new();
        faults.extend(self.head_fault(volume, head));
        if head.bytes.is_none() {
            return Ok(faults);
        }
        let mut rows = BTreeMap::new();
        let (mut from, end) = volume.range();
        loop {
            let page = read.scan(table::USAGE, &from, &end, ROWS_MAX)?;
            let Some((last, _)) = page.last() else { break };
            from = [last, &[0][..]].concat();
            for (key, value) in page {
                // A row that does not read says nothing, and is made anew.
                let usage = decode::<Usage>(String::new, &value).ok();
                rows.insert(key, usage);
            }
        }
        let counted = self.users.iter().map(|(uid, usage)| (keys::usage(volume, *uid), *usage));
        let counted: BTreeMap<Vec<u8>, Usage> = counted.collect();
        let all: std::collections::BTreeSet<_> = rows.keys().chain(counted.keys()).collect();
        for key in all {
            let (there, now) = (rows.get(key), counted.get(key));
            if there.copied().flatten() == now.copied() && there.is_some() == now.is_some() {
                continue;
            }
            let who = keys::user_in(key).map_or("nobody".into(), |uid| format!("user {uid}"));
            let Usage { files, bytes } = now.copied().unwrap_or_default();
            faults.push(Fault {
                place: format!("usage of {who} in {volume}"),
                what: format!("it is not what the files are: {files} files, {bytes} bytes"),
                mend: Some(Mend::new(table::USAGE, key.clone(), now.map(encode))),
            });
        }
        Ok(faults)
    }

    fn head_fault(&self, volume: VolumeId, head: &Head) -> Option<Fault> {
        let total = self.total();
        let told = Usage { files: head.files, bytes: head.bytes.unwrap_or(total.bytes) };
        let fixed = Head { files: total.files, bytes: head.bytes.map(|_| total.bytes), ..*head };
        let what = format!(
            "it says that there are {} files of {} bytes, and there are {} of {}",
            told.files, told.bytes, total.files, total.bytes
        );
        let mend = Mend::new(table::HEAD, keys::volume(volume), Some(encode(&fixed)));
        let place = format!("head of {volume}");
        (told != total).then_some(Fault { place, what, mend: Some(mend) })
    }
}
