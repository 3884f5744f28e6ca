//! What is inside the containers that are here: where a chunk was seen in one, and its bytes.
//! Holds: a place is never believed. Its bytes are hashed before they count, and a place that is
//! wrong is forgotten; how much is unpacked for a question is bounded by who asks it.
//! From: LBFS's index, one level down.

mod gather;

use gather::clear_rows;
pub(crate) use gather::{INSIDE, Noticed};

use crate::error::Result;
use crate::examine::put_chunks;
use crate::origin::Inner;
use crate::parts::Version;
use crate::volumes::Volume;
use chunks::CHUNK_BYTES_MAX;
use chunks::inside::index::{Index, Place};
use chunks::inside::plain_of;
use model::{ChunkName, Contents, FileId, Stamp};
use protocol::Refusal;
use std::collections::BTreeMap;
use store::{Durability, Read, Write};
use volume::whole::{VolumeId, Whole};

/// What a look inside containers may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes of chunks that are found, at most.
    pub found: u64,
    /// Plain bytes that are unpacked for them, at most.
    pub unpacked: u64,
    /// The same for each byte that is found in one stream; no bound, if none is said.
    pub for_each: Option<u64>,
}

/// What is kept at once of what was found for a submit, and unpacked for it.
const SOUGHT: Budget = Budget { found: 16 << 20, unpacked: 512 << 20, for_each: None };

/// File, version, where the stream begins, and how many bytes it has; 0 where it is not packed.
type Stream = (FileId, Stamp, u64, u64);

/// The contents of the versions that were asked about.
#[derive(Default)]
struct Versions(BTreeMap<(FileId, Stamp), Option<Contents>>);

impl Versions {
    fn contents(
        &mut self,
        read: &dyn Read,
        volume: VolumeId,
        of: (FileId, Stamp),
    ) -> Result<Option<Contents>> {
        if let Some(known) = self.0.get(&of) {
            return Ok(*known);
        }
        let found = Whole::now(read, volume).contents(of.0, of.1)?.map(|(contents, _)| contents);
        self.0.insert(of, found);
        Ok(found)
    }
}

/// The index of a volume. The first bytes are those of its number.
fn with_index<T>(volume: VolumeId, work: impl FnOnce(Index<'_>) -> T) -> T {
    work(Index(&volume.0.to_be_bytes()))
}

/// Which of these chunks are said to be inside containers that are here.
pub(crate) fn said_within(
    read: &dyn Read,
    volume: &Volume,
    names: &[ChunkName],
) -> Result<Vec<bool>> {
    let mut versions = Versions::default();
    let said = |name| Ok(place_of(read, volume.id, &mut versions, name)?.is_some());
    names.iter().map(said).collect()
}

/// The first place of a chunk in a version that is here.
fn place_of(
    read: &dyn Read,
    volume: VolumeId,
    versions: &mut Versions,
    name: &ChunkName,
) -> Result<Option<Place>> {
    for place in with_index(volume, |index| index.find(read, name))? {
        let Some(contents) = versions.contents(read, volume, (place.file, place.version))? else {
            continue;
        };
        let length = if place.packed > 0 { place.packed } else { place.plain_end() };
        let fits = place.start.checked_add(length).is_some_and(|end| end <= contents.size);
        if fits && (1..=CHUNK_BYTES_MAX).contains(&(place.length as usize)) {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// Those of these chunks that are inside containers that are here.
pub(crate) fn chunks_within(
    inner: &Inner,
    volume: &Volume,
    names: &[ChunkName],
    budget: Budget,
) -> Result<BTreeMap<ChunkName, Vec<u8>>> {
    let (mut versions, mut streams) = (Versions::default(), BTreeMap::<Stream, Vec<_>>::new());
    {
        let read = inner.tables.read()?;
        for name in names {
            let Some(place) = place_of(&*read, volume.id, &mut versions, name)? else { continue };
            let stream = (place.file, place.version, place.start, place.packed);
            streams.entry(stream).or_default().push((*name, place));
        }
    }
    let (mut found, mut wrong) = (BTreeMap::new(), Vec::new());
    let (mut room, mut unpacked) = (budget.found, budget.unpacked);
    for ((file, version, ..), mut hits) in streams {
        let contents = versions.0.get(&(file, version)).copied().flatten();
        let Some(contents) = contents else { continue };
        hits.sort_unstable_by_key(|(_, place)| place.offset);
        let fitting = hits.iter().take_while(|(_, place)| {
            let fits = u64::from(place.length) <= room;
            room -= if fits { u64::from(place.length) } else { 0 };
            fits
        });
        let count = fitting.count();
        hits.truncate(count);
        if hits.is_empty() || !pays(&hits, budget.for_each) {
            continue;
        }
        let container = Version { inner, volume, contents };
        let chunks = read_chunks(&container, &hits, &mut unpacked)?;
        let mut chunks = chunks.into_iter().flatten();
        for (name, _) in hits {
            match chunks.next() {
                Some(bytes) if volume.secret.check(&name, &bytes).is_ok() => {
                    found.insert(name, bytes);
                }
                // What was too much to unpack may be right.
                _ if unpacked == 0 => {}
                _ => wrong.push((name, (file, version))),
            }
        }
    }
    forget(inner, volume, &wrong)?;
    Ok(found)
}

/// Keeps those of these chunks by themselves that are inside containers here, as many as are looked
/// for at once. False: none is.
pub(crate) fn take_from_within(
    inner: &Inner,
    volume: &Volume,
    names: &[ChunkName],
    for_each: u32,
) -> Result<bool, Refusal> {
    if names.is_empty() {
        return Ok(false);
    }
    let _turn = inner.turns.large();
    let budget = Budget { for_each: Some(for_each.into()), ..SOUGHT };
    let found = chunks_within(inner, volume, names, budget)
        .map_err(|error| inner.refuse(&error, volume, "look for chunks inside containers"))?;
    let chunks: Vec<&[u8]> = found.values().map(Vec::as_slice).collect();
    if !chunks.is_empty() {
        put_chunks(inner, volume, &inner.upkeep.promises.current(), &chunks)?;
    }
    Ok(!chunks.is_empty())
}

/// Whether so much of a stream is wanted that it may be gone through up to there.
fn pays(hits: &[(ChunkName, Place)], for_each: Option<u64>) -> bool {
    let Some(for_each) = for_each else { return true };
    let wanted: u64 = hits.iter().map(|(_, place)| u64::from(place.length)).sum();
    let upto = hits.iter().map(|(_, place)| place.plain_end()).max().unwrap_or(0);
    hits.first().is_some_and(|(_, place)| place.packed == 0)
        || upto <= wanted.saturating_mul(for_each)
}

/// The bytes at these places of one stream; none if it is no such stream any more, or too long.
fn read_chunks(
    version: &Version<'_>,
    hits: &[(ChunkName, Place)],
    unpacked: &mut u64,
) -> Result<Option<Vec<Vec<u8>>>> {
    let Some((_, first)) = hits.first() else { return Ok(None) };
    let mut read = |from: u64, length: usize| version.read(from, length);
    if first.packed > 0 {
        let ranges: Vec<_> =
            hits.iter().map(|(_, place)| place.offset..place.plain_end()).collect();
        let stream = first.start..first.start + first.packed;
        return Ok(plain_of(stream, &ranges, unpacked, &mut read)?);
    }
    let each =
        hits.iter().map(|(_, place)| read(place.start + place.offset, place.length as usize));
    Ok(Some(each.collect::<chunks::Result<Vec<_>>>()?))
}

fn forget(inner: &Inner, volume: &Volume, wrong: &[(ChunkName, (FileId, Stamp))]) -> Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    let mut write = inner.tables.write()?;
    for (name, of) in wrong {
        with_index(volume.id, |index| index.forget(&mut *write, name, *of))?;
    }
    Ok(write.commit(Durability::Later)?)
}

/// Removes rows of a volume that is to go, at most `rows_max`. False: none was left.
pub(crate) fn purge_within(
    write: &mut dyn Write,
    volume: VolumeId,
    rows_max: usize,
) -> Result<bool> {
    write.delete(INSIDE, &volume.0.to_be_bytes())?;
    clear_rows(write, volume, rows_max)
}
