//! Whether an origin's store is whole: every row, every chunk, and everything that one names of
//! the other; and what of it can be mended on the spot.
//! Holds: what is mended follows from what is sound. A chunk that is damaged counts as missing
//! from then on, so that it is noted and clients are asked for it, unless nothing can be written.

use crate::catalog::{self, RowFault};
use crate::error::Result;
use crate::origin::{Inner, Origin};
use crate::volumes::{Volume, locked};
use crate::wanted::{Lacking, Look};
use chunks::{ChunksError, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Damage, Durability, Writes};
use volume::whole::{self, Fault, Mend, VolumeId};

/// Blobs that are listed at once.
const BLOBS_MAX: usize = 1000;
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
    pub state: State,
}

/// What has become of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Left,
    Mended,
    /// Nothing has to be done.
    Harmless,
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
    /// Chunks that are missing and that devices are asked for.
    pub wanted: u64,
    /// Why that may not be known after the next start.
    pub unnoted: Option<String>,
}

impl Checked {
    fn tell(&mut self, place: impl Into<String>, what: impl Into<String>, state: State) {
        self.left += u64::from(state == State::Left);
        if self.problems.len() >= PROBLEMS_MAX {
            self.more += 1;
            return;
        }
        self.problems.push(Problem { place: place.into(), what: what.into(), state });
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
    let damage = inner.blobs.damage()?;
    let volumes = check_rows(inner, &mut checked)?;
    if repair == Repair::Yes {
        renew_tables(inner, &mut checked)?;
    }
    for volume in volumes.secrets.keys() {
        check_tree(inner, *volume, &mut checked, repair)?;
    }
    check_chunks(inner, &volumes, &mut checked, repair)?;
    let mut lacking = 0;
    for volume in volumes.secrets.keys() {
        let Some(volume) = locked(&inner.volumes).get(volume).cloned() else { continue };
        lacking += check_references(inner, &volume, &mut checked)?;
        inner.settle_wanted(&volume)?;
        checked.wanted += volume.wanted.len() as u64;
    }
    if checked.wanted > 0 {
        // Whoever repairs a store stops here: what was noted must be there for the next process.
        let noted = inner.tables.write().and_then(|write| write.commit(Durability::Now));
        // A disk that takes nothing is no reason to keep what was found.
        checked.unnoted = noted.err().map(|error| error.to_string());
    }
    mend_damage(inner, damage, lacking, &mut checked, repair)?;
    Ok(checked)
}

/// A stretch of the disk that holds nothing does no harm itself where every version has what it
/// needs, but the next may lie beside it.
fn mend_damage(
    inner: &Inner,
    damage: Vec<Damage>,
    lacking: u64,
    checked: &mut Checked,
    repair: Repair,
) -> Result<()> {
    if repair == Repair::Yes && !damage.is_empty() {
        inner.blobs.renew_damaged()?;
    }
    let harm = match lacking {
        0 => "nothing that was there is missing",
        _ => "what was there counts as missing",
    };
    let (state, done) = match repair {
        Repair::Yes => (State::Mended, "the rest of the file was written anew"),
        Repair::No => (State::Left, "--repair writes the rest of the file anew"),
    };
    for Damage { place, offset, bytes } in damage {
        let what = format!("{bytes} bytes from {offset} are no record of a chunk; {harm}; {done}");
        checked.tell(place, what, state);
    }
    Ok(())
}

struct Volumes {
    secrets: BTreeMap<VolumeId, Secret>,
    /// Removed, and not gone yet: where nothing can be written they stay so.
    going: BTreeSet<VolumeId>,
}

/// The rows that are not of a tree. Gives back the volumes that there are.
fn check_rows(inner: &Inner, checked: &mut Checked) -> Result<Volumes> {
    let read = inner.tables.read()?;
    let mut secrets = BTreeMap::new();
    for row in catalog::volumes(&*read)? {
        secrets.insert(VolumeId(row.id), Secret::new(row.secret));
    }
    checked.volumes = secrets.len() as u64;
    // One that does not read is told of with the other rows.
    let going = catalog::removed(&*read).unwrap_or_default();
    let going: BTreeSet<VolumeId> = going.iter().map(|row| VolumeId(row.id)).collect();
    let known = secrets.keys().chain(&going).copied().collect();
    for RowFault { place, what } in catalog::check_rows(&*read, &known) {
        checked.tell(place, what, State::Left);
    }
    Ok(Volumes { secrets, going })
}

/// A table that cannot be read and only repeats others is made anew, all of it.
fn renew_tables(inner: &Inner, checked: &mut Checked) -> Result<()> {
    let unreadable = whole::unreadable(&*inner.tables.read()?);
    if unreadable.is_empty() {
        return Ok(());
    }
    let renew = || -> Result<()> {
        let mut write = inner.tables.write()?;
        whole::renew(&mut *write, &unreadable)?;
        Ok(write.commit(Durability::Now)?)
    };
    let (what, state) = match renew() {
        Ok(()) => {
            ("not all of its rows can be read; it was made anew of others".into(), State::Mended)
        }
        Err(error) => (format!("it cannot be made anew of others: {error}"), State::Left),
    };
    unreadable.iter().for_each(|name| checked.tell(format!("table {name}"), what.clone(), state));
    Ok(())
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
        faults.into_iter().for_each(|fault| checked.tell(fault.place, fault.what, State::Left));
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
        let state = if fault.mend.is_some() { State::Mended } else { State::Left };
        checked.tell(fault.place, fault.what, state);
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
    volumes: &Volumes,
    checked: &mut Checked,
    repair: Repair,
) -> Result<()> {
    let Volumes { secrets, going } = volumes;
    let mut after = Vec::new();
    loop {
        let listed = inner.blobs.list(&after, BLOBS_MAX)?;
        let Some((last, _)) = listed.last() else { return Ok(()) };
        after = last.clone();
        for (blob, _) in listed {
            checked.chunks += 1;
            let (volume, name) = crate::volumes::parse_blob_name(&blob).unzip();
            if volume.is_some_and(|volume| going.contains(&volume)) {
                continue;
            }
            let secret = volume.and_then(|volume| secrets.get(&volume));
            let (Some(secret), Some(name)) = (secret, name) else {
                let place = format!("chunk {}", catalog::hex(&blob));
                let what = "it is of no volume; farfs gc removes it in time";
                checked.tell(place, what, State::Harmless);
                continue;
            };
            match inner.blobs.get(&blob)? {
                None => {
                    let what = match inner.writes {
                        Writes::Kept => {
                            "its bytes are damaged, and it counts as missing from now on"
                        }
                        Writes::Forgotten => "its bytes are damaged",
                    };
                    checked.tell(format!("chunk {name}"), what, State::Left);
                }
                Some(bytes) if secret.check(&name, &bytes).is_err() => {
                    let (what, state) = match repair {
                        Repair::No => ("--repair drops it", State::Left),
                        Repair::Yes => {
                            inner.blobs.delete(&blob)?;
                            inner.blobs.sync()?;
                            ("it was dropped", State::Mended)
                        }
                    };
                    let what = format!("its bytes do not bear its name; {what}");
                    checked.tell(format!("chunk {name}"), what, state);
                }
                Some(_) => {}
            }
        }
    }
}

/// Every version has all its chunks; what is missing is noted, so that devices are asked for it.
/// Gives back how many chunks the versions lack.
fn check_references(inner: &Inner, volume: &Arc<Volume>, checked: &mut Checked) -> Result<u64> {
    let (id, mut lacking, mut from) = (volume.id, 0, None);
    loop {
        let read = inner.tables.read()?;
        // What cannot be read of them has been told of already.
        let Ok((versions, next)) = whole::versions_of_contents(&*read, id, from) else {
            return Ok(lacking);
        };
        for (file, stamp, contents) in versions {
            checked.versions += 1;
            let what = match Lacking::of(inner, (id, &volume.secret), &contents, Look::Index) {
                Ok(lacks) if lacks.is_nothing() => continue,
                Ok(lacks) => {
                    lacking += lacks.len() as u64;
                    inner.want(volume, (file, stamp), &lacks);
                    let missing = match lacks.len() {
                        1 => "1 of its chunks is missing; if no device gives it back".to_owned(),
                        many => {
                            format!(
                                "{many} of its chunks are missing; if no device gives them back"
                            )
                        }
                    };
                    format!(
                        "{missing}, store the file again from a machine that has it, or restore \
                         the server's store from a backup"
                    )
                }
                Err(ChunksError::Store(error)) => return Err(error.into()),
                Err(error) => format!("its recipe is wrong: {error}"),
            };
            let path = whole::path_of(&*read, id, file);
            checked.tell(
                format!("{path} (file {file} of volume {}, version {stamp})", volume.name),
                what,
                State::Left,
            );
        }
        from = next;
        if from.is_none() {
            return Ok(lacking);
        }
    }
}
