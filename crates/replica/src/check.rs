//! Whether an origin's store is whole: every row, every chunk, and everything that one names of
//! the other; and what of it can be mended on the spot.
//! Holds: what is mended follows from what is sound. A chunk that is damaged counts as missing
//! from then on, so that the next client that stores it is asked for it.

use crate::catalog::{self, RowFault};
use crate::error::Result;
use crate::origin::{Inner, Origin};
use crate::volumes::blob_name;
use chunks::{ChunksError, Secret};
use model::{ChunkName, Contents};
use std::collections::BTreeMap;
use store::Durability;
use volume::whole::{self, Fault, Mend, VolumeId};

/// Blobs that are listed at once.
const BLOBS_MAX: usize = 1000;
/// Missing chunks of one version that are counted.
const MISSING_MAX: usize = 1000;
/// Problems that are told of; the rest is counted.
const PROBLEMS_MAX: usize = 10_000;

/// Whether a check changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    No,
    Yes,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: String,
    pub what: String,
    pub mended: bool,
}

/// What was looked at, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub volumes: u64,
    /// Versions of contents, current and old.
    pub versions: u64,
    pub chunks: u64,
    pub problems: Vec<Problem>,
    /// Problems beyond those.
    pub more: u64,
    /// Of all problems those that are still there.
    pub left: u64,
}

impl Checked {
    fn tell(&mut self, place: impl Into<String>, what: impl Into<String>, mended: bool) {
        self.left += u64::from(!mended);
        if self.problems.len() >= PROBLEMS_MAX {
            self.more += 1;
            return;
        }
        self.problems.push(Problem { place: place.into(), what: what.into(), mended });
    }
}

impl Origin {
    /// Goes through the whole store. Nothing is tidied meanwhile. `Repair::Yes` is for a store that
    /// nobody else writes to.
    pub async fn check(&self, repair: Repair) -> Result<Checked> {
        let _alone = self.0.upkeep.alone().await;
        let inner = self.0.clone();
        let work = move || check(&inner, repair);
        match self.0.limits.blocking.run(work).await {
            Ok(checked) => checked,
            Err(_) => Err(crate::ReplicaError::GoingDown),
        }
    }
}

fn check(inner: &Inner, repair: Repair) -> Result<Checked> {
    let mut checked = Checked::default();
    for damage in inner.blobs.damage()? {
        let what = format!(
            "{} bytes from {} are no record of a chunk; what was there counts as missing",
            damage.bytes, damage.offset
        );
        checked.tell(damage.place, what, false);
    }
    let secrets = check_rows(inner, &mut checked)?;
    for volume in secrets.keys() {
        check_tree(inner, *volume, &mut checked, repair)?;
    }
    check_chunks(inner, &secrets, &mut checked, repair)?;
    for (volume, secret) in &secrets {
        check_references(inner, *volume, secret, &mut checked)?;
    }
    Ok(checked)
}

/// The rows that are not of a tree. Gives back the volumes that there are.
fn check_rows(inner: &Inner, checked: &mut Checked) -> Result<BTreeMap<VolumeId, Secret>> {
    let read = inner.tables.read()?;
    let mut volumes = BTreeMap::new();
    for row in catalog::volumes(&*read)? {
        volumes.insert(VolumeId(row.id), Secret::new(row.secret));
    }
    checked.volumes = volumes.len() as u64;
    for RowFault { place, what } in catalog::check_rows(&*read, &volumes.keys().copied().collect())
    {
        checked.tell(place, what, false);
    }
    Ok(volumes)
}

/// What is only repeated elsewhere is mended first, and counts are made after that.
fn check_tree(
    inner: &Inner,
    volume: VolumeId,
    checked: &mut Checked,
    repair: Repair,
) -> Result<()> {
    let faults = faults_of(inner, volume)?;
    if repair == Repair::No {
        faults.into_iter().for_each(|fault| checked.tell(fault.place, fault.what, false));
        return Ok(());
    }
    let repeats = |fault: &Fault| fault.mend.as_ref().is_some_and(Mend::is_of_a_repetition);
    let (repeated, others): (Vec<Fault>, Vec<Fault>) = faults.into_iter().partition(repeats);
    let others = if repeated.is_empty() {
        others
    } else {
        mend(inner, repeated, checked)?;
        faults_of(inner, volume)?
    };
    mend(inner, others, checked)
}

fn faults_of(inner: &Inner, volume: VolumeId) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    whole::check(&*inner.tables.read()?, volume, &mut |fault| faults.push(fault));
    Ok(faults)
}

fn mend(inner: &Inner, faults: Vec<Fault>, checked: &mut Checked) -> Result<()> {
    let mends: Vec<&Mend> = faults.iter().filter_map(|fault| fault.mend.as_ref()).collect();
    carry_out(inner, &mends)?;
    for fault in faults {
        checked.tell(fault.place, fault.what, fault.mend.is_some());
    }
    Ok(())
}

fn carry_out(inner: &Inner, mends: &[&Mend]) -> Result<()> {
    if mends.is_empty() {
        return Ok(());
    }
    let mut write = inner.tables.write()?;
    for mend in mends {
        mend.carry_out(&mut *write)?;
    }
    Ok(write.commit(Durability::Now)?)
}

/// Reads every chunk.
fn check_chunks(
    inner: &Inner,
    volumes: &BTreeMap<VolumeId, Secret>,
    checked: &mut Checked,
    repair: Repair,
) -> Result<()> {
    let mut after = Vec::new();
    loop {
        let listed = inner.blobs.list(&after, BLOBS_MAX)?;
        let Some((last, _)) = listed.last() else { return Ok(()) };
        after = last.clone();
        for (blob, _) in listed {
            checked.chunks += 1;
            let (volume, name) = crate::volumes::parse_blob_name(&blob).unzip();
            let secret = volume.and_then(|volume| volumes.get(&volume));
            let (Some(secret), Some(name)) = (secret, name) else {
                let place = format!("chunk {}", catalog::hex(&blob));
                checked.tell(place, "it is of no volume; farfs gc removes it in time", true);
                continue;
            };
            match inner.blobs.get(&blob)? {
                None => {
                    let what = "its bytes are damaged, and it counts as missing from now on";
                    checked.tell(format!("chunk {name}"), what, false);
                }
                Some(bytes) if secret.check(&name, &bytes).is_err() => {
                    if repair == Repair::Yes {
                        inner.blobs.delete(&blob)?;
                        inner.blobs.sync()?;
                    }
                    let what = "its bytes do not bear its name; --repair drops it";
                    checked.tell(format!("chunk {name}"), what, repair == Repair::Yes);
                }
                Some(_) => {}
            }
        }
    }
}

/// Every version has all its chunks.
fn check_references(
    inner: &Inner,
    volume: VolumeId,
    secret: &Secret,
    checked: &mut Checked,
) -> Result<()> {
    let read = inner.tables.read()?;
    let mut from = None;
    loop {
        // What cannot be read of them has been told of already.
        let Ok((versions, next)) = whole::versions_of_contents(&*read, volume, from) else {
            return Ok(());
        };
        for (file, stamp, contents) in versions {
            checked.versions += 1;
            let Some(what) = fault_in(inner, volume, secret, &contents)? else { continue };
            let path = whole::path_of(&*read, volume, file);
            checked.tell(format!("{path} (file {file} of {volume}, version {stamp})"), what, false);
        }
        from = next;
        if from.is_none() {
            return Ok(());
        }
    }
}

fn fault_in(
    inner: &Inner,
    volume: VolumeId,
    secret: &Secret,
    contents: &Contents,
) -> Result<Option<String>> {
    let fetch = |name: &ChunkName| inner.blobs.get(&blob_name(volume, name));
    let has = |name: &ChunkName| inner.blobs.has(&blob_name(volume, name));
    match chunks::lacking(secret, contents, MISSING_MAX, fetch, has) {
        Ok(missing) if missing.is_empty() => Ok(None),
        Ok(missing) => Ok(Some(format!(
            "{} of its chunks are missing; store the file again from a machine that has it, or \
             restore the server's store from a backup",
            missing.len()
        ))),
        Err(ChunksError::Store(error)) => Err(error.into()),
        Err(error) => Ok(Some(format!("its recipe is wrong: {error}"))),
    }
}
