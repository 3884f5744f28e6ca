//! Whether the contents that updates name are all here.
//! Holds: a recipe is walked and checked before an update that names it is taken; a chunk gets
//! its name here, from its bytes; a chunk that counts as here stays until the update is taken.
//! From: LBFS, CONDWRITE and HASHNOTFOUND.

use crate::error::Result;
use crate::origin::Inner;
use crate::upkeep::Promise;
use crate::volumes::Volume;
use chunks::{ChunksError, Unpacked};
use model::{Change, ChunkName, Contents, ReplicaId, Update};
use protocol::{PAYLOAD_BYTES_MAX, Payload, Refusal};
use std::collections::{BTreeSet, HashSet};
use volume::whole::Whole;

/// Missing chunks that are named in one answer.
const MISSING_MAX: usize = 20_000;

/// What was found of a batch.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// So many updates, from the first, have all their contents here.
    pub whole: usize,
    pub missing: Vec<ChunkName>,
    /// Numbers of stores whose recipes make no sense.
    pub bad: BTreeSet<u64>,
}

/// Looks for the contents of every update that is not taken yet.
pub(crate) fn examine(
    inner: &Inner,
    volume: &Volume,
    promise: &Promise,
    replica: ReplicaId,
    updates: &[Update],
) -> Result<Examined> {
    let read = inner.tables.read()?;
    let writer = Whole::now(&*read, volume.id).writer(replica)?;
    let taken = writer.map_or(0, |writer| writer.taken);
    let mut examined = Examined { whole: updates.len(), ..Examined::default() };
    let mut named = HashSet::new();
    for (index, update) in updates.iter().enumerate() {
        let Change::Store { contents, .. } = &update.change else { continue };
        if update.stamp.number <= taken {
            continue;
        }
        let room = MISSING_MAX - examined.missing.len();
        if room == 0 {
            break;
        }
        match lacking(inner, volume, promise, contents, room)? {
            None => {
                examined.bad.insert(update.stamp.number);
            }
            Some(names) if names.is_empty() => {}
            Some(names) => {
                examined.whole = examined.whole.min(index);
                examined.missing.extend(names.into_iter().filter(|name| named.insert(*name)));
            }
        }
    }
    Ok(examined)
}

/// None: the recipe makes no sense.
fn lacking(
    inner: &Inner,
    volume: &Volume,
    promise: &Promise,
    contents: &Contents,
    names_max: usize,
) -> Result<Option<Vec<ChunkName>>> {
    let fetch = |name: &ChunkName| {
        promise.note(volume.id, name);
        inner.sound(volume, name)
    };
    let has = |name: &ChunkName| {
        promise.note(volume.id, name);
        inner.blobs.has(&volume.blob(name))
    };
    let looked = chunks::lacking(&volume.secret, contents, names_max, fetch, has);
    let honest = |names: &Vec<ChunkName>| -> chunks::Result<bool> {
        if !names.is_empty() {
            return Ok(true);
        }
        let fetch = |name: &ChunkName| inner.sound(volume, name);
        let counted = chunks::counts_holes(&volume.secret, contents, fetch)?;
        Ok(counted.unwrap_or(true))
    };
    match looked.and_then(|names| Ok(honest(&names)?.then_some(names))) {
        Ok(names) => Ok(names),
        Err(ChunksError::BadRecipe(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Keeps the chunks of a payload. Says how many of them were here before.
pub(crate) fn put_payload(
    inner: &Inner,
    volume: &Volume,
    promise: &Promise,
    payload: &Payload,
) -> Result<u32, Refusal> {
    let unpacked = Unpacked::of(payload, PAYLOAD_BYTES_MAX)
        .map_err(|error| Refusal::Malformed(error.to_string()))?;
    put_chunks(inner, volume, promise, &unpacked.chunks())
}

/// Keeps chunks, under the names that their bytes give them, which are promised. Says how many of
/// them were here before.
pub(crate) fn put_chunks(
    inner: &Inner,
    volume: &Volume,
    promise: &Promise,
    chunks: &[&[u8]],
) -> Result<u32, Refusal> {
    let more: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    if inner.blobs.bytes().saturating_add(more) > inner.limits.bytes_max {
        inner.upkeep.shortage.refused(inner.world.clock.moment());
        return Err(Refusal::NoSpace);
    }
    let refuse = |error: crate::ReplicaError| inner.refuse(&error, volume, "keep chunks");
    if more > 0 {
        inner.has_room_for_more().map_err(refuse)?;
    }
    let refuse = |error: store::StoreError| refuse(error.into());
    let names: Vec<ChunkName> = chunks.iter().map(|chunk| volume.secret.name(chunk)).collect();
    names.iter().for_each(|name| promise.note(volume.id, name));
    let blob_names: Vec<_> = names.iter().map(|name| volume.blob(name)).collect();
    let is_known: Vec<bool> = blob_names
        .iter()
        .map(|name| inner.blobs.has(name))
        .collect::<store::Result<_>>()
        .map_err(refuse)?;
    let blobs: Vec<(&[u8], &[u8])> =
        blob_names.iter().zip(chunks).map(|(name, chunk)| (&name[..], *chunk)).collect();
    inner.blobs.put_all(&blobs).map_err(refuse)?;
    for ((name, chunk), is_known) in names.iter().zip(chunks).zip(&is_known) {
        if !is_known {
            promise.came(volume.id, name, chunk.len() as u64);
        }
    }
    inner.note_written();
    if let Err(error) = inner.came_back(volume, &names) {
        tracing::warn!(volume = volume.name, %error, "what is back is still noted as missing");
    }
    Ok(is_known.iter().map(|known| u32::from(*known)).sum())
}
