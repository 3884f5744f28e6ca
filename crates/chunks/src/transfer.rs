//! Which chunks travel, and when: decisions only.
//! Holds: nothing that the receiver is known to have is sent, nothing twice; every batch fits in
//! one message.
//! From: LBFS, "Update protocol" and "Read protocol"; sending before the answer is beyond it.

use crate::describe::Described;
use crate::payload::PAYLOAD_CHUNKS_MAX;
use crate::recipe::Placed;
use model::{CHUNK_NAME_BYTES, ChunkName, Piece};
use protocol::{PAYLOAD_BYTES_MAX, Range};
use std::collections::HashSet;
use std::time::Duration;

/// What a chunk costs in the receiver's answer that it is missing, in bytes.
const ASK_BYTES: u64 = CHUNK_NAME_BYTES as u64 + 2;

/// Chunks in one batch, at most.
pub const BATCH_MAX: usize = 4096;

const _: () = assert!(BATCH_MAX <= PAYLOAD_CHUNKS_MAX);

/// The link to the receiver, as it was last measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub round_trip: Duration,
    /// Bytes a second.
    pub rate: u64,
}

impl Link {
    /// Bytes that the link would carry while one waits for an answer.
    fn idle_bytes(&self) -> u64 {
        let bytes = u128::from(self.rate).saturating_mul(self.round_trip.as_micros()) / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// What to send of a new version before its update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorePlan {
    /// Chunks to send without being asked, in batches that fit in a message: recipe chunks first.
    pub eager: Vec<Vec<ChunkName>>,
    /// Data chunks are left that the receiver may have: it must say which it lacks.
    pub ask: bool,
}

/// Recipe chunks that the receiver is not known to have always go along: nothing can be said
/// about the data without them. Data chunks go along if sending them all takes no longer than
/// asking which are needed. `link` is none as long as nothing is known of it.
pub fn plan_store(
    described: &Described,
    known_at_receiver: impl Fn(&ChunkName) -> bool,
    link: Option<Link>,
) -> StorePlan {
    let mut seen = HashSet::new();
    let mut fresh = |name: &ChunkName| !known_at_receiver(name) && seen.insert(*name);
    let recipe = described.tree.chunks.iter().map(|(name, bytes)| (*name, bytes.len() as u64));
    let mut eager: Vec<(ChunkName, u64)> = recipe.filter(|(name, _)| fresh(name)).collect();
    let data: Vec<(ChunkName, u64)> = described
        .pieces
        .iter()
        .filter_map(|placed| chunk_of(&placed.piece))
        .filter(|(name, _)| fresh(name))
        .collect();

    let data_bytes: u64 = data.iter().map(|(_, length)| length).sum();
    let idle_bytes = link.map_or(0, |link| link.idle_bytes());
    let asking = idle_bytes.saturating_add(ASK_BYTES * data.len() as u64);
    let ask = data_bytes > asking;
    if !ask {
        eager.extend(data);
    }
    StorePlan { eager: batches(eager), ask }
}

/// Splits chunks, given with their lengths, into batches that each fit in a message, in order.
pub fn batches(chunks: impl IntoIterator<Item = (ChunkName, u64)>) -> Vec<Vec<ChunkName>> {
    let mut batches: Vec<Vec<ChunkName>> = Vec::new();
    let mut room = Room::default();
    for (name, length) in chunks {
        match batches.last_mut() {
            Some(batch) if room.take(length) => batch.push(name),
            _ => {
                room = Room::after(length);
                batches.push(vec![name]);
            }
        }
    }
    batches
}

/// What to ask for of these pieces of a file, in batches whose answers each fit in a message.
/// Neighbours are asked for as one range; a chunk that comes up twice is asked for once.
pub fn plan_fetch(pieces: &[Placed], have: impl Fn(&ChunkName) -> bool) -> Vec<Vec<Range>> {
    let mut seen = HashSet::new();
    let mut batches: Vec<Vec<Range>> = Vec::new();
    let mut room = Room::default();
    for placed in pieces {
        let Some((name, length)) = chunk_of(&placed.piece) else { continue };
        if have(&name) || !seen.insert(name) {
            continue;
        }
        let alone = Range { offset: placed.offset, length };
        match batches.last_mut() {
            Some(batch) if room.take(length) => match batch.last_mut() {
                Some(before) if before.offset + before.length == alone.offset => {
                    before.length += length;
                }
                _ => batch.push(alone),
            },
            _ => {
                room = Room::after(length);
                batches.push(vec![alone]);
            }
        }
    }
    batches
}

/// What still fits in a batch.
#[derive(Default)]
struct Room {
    bytes: u64,
    chunks: usize,
}

impl Room {
    /// In a new batch that holds one chunk.
    fn after(length: u64) -> Room {
        Room { bytes: (PAYLOAD_BYTES_MAX as u64).saturating_sub(length), chunks: BATCH_MAX - 1 }
    }

    /// Whether another chunk fits; then it has its place.
    fn take(&mut self, length: u64) -> bool {
        let fits = length <= self.bytes && self.chunks > 0;
        if fits {
            self.bytes -= length;
            self.chunks -= 1;
        }
        fits
    }
}

fn chunk_of(piece: &Piece) -> Option<(ChunkName, u64)> {
    match piece {
        Piece::Chunk { name, length } => Some((*name, *length)),
        Piece::Zeros { .. } => None,
    }
}

#[cfg(test)]
mod tests;
