//! Chunks on their way to the replica above: by themselves, and as deltas.
//! Holds: no more deltas, and no more contents in them, than one message may have.

use chunks::{Squeeze, pack_for};
use model::ChunkName;
use protocol::{CODED_BYTES_MAX, DELTAS_MAX, Delta, Payload};
use std::collections::BTreeSet;

/// Chunks on their way.
#[derive(Default)]
pub(crate) struct Parcel {
    /// As they are.
    pub chunks: Vec<Vec<u8>>,
    /// Against what the replica above has.
    pub deltas: Vec<Delta>,
    /// Bytes of contents that the deltas stand for.
    pub coded: u64,
    /// Of which update each chunk is, and its name; the same of each delta, with all its chunks.
    pub chunks_of: Vec<(u64, ChunkName)>,
    pub coded_of: Vec<(u64, Vec<ChunkName>)>,
}

impl Parcel {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.deltas.is_empty()
    }

    /// Whether chunks of so many bytes may be in one more delta.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.has_room_for_all(1, bytes)
    }

    /// Whether so many more deltas may be in it, for chunks of so many bytes together.
    pub fn has_room_for_all(&self, deltas: usize, bytes: u64) -> bool {
        self.deltas.len() + deltas <= DELTAS_MAX && self.coded + bytes <= CODED_BYTES_MAX as u64
    }

    pub fn add(&mut self, number: u64, names: Vec<ChunkName>, delta: Delta) {
        self.coded += coded_bytes(&delta);
        self.deltas.push(delta);
        self.coded_of.push((number, names));
    }

    pub fn add_chunk(&mut self, number: u64, name: ChunkName, bytes: Vec<u8>) {
        self.chunks.push(bytes);
        self.chunks_of.push((number, name));
    }

    /// Takes out these of the chunks that are by themselves.
    pub fn leave_out(&mut self, names: &BTreeSet<ChunkName>) {
        let chunks = std::mem::take(&mut self.chunks).into_iter();
        let both = std::mem::take(&mut self.chunks_of).into_iter().zip(chunks);
        let left = both.filter(|((_, name), _)| !names.contains(name));
        (self.chunks_of, self.chunks) = left.unzip();
    }

    pub fn deltas(&self) -> Option<Vec<Delta>> {
        (!self.deltas.is_empty()).then(|| self.deltas.clone())
    }
}

/// Bytes of contents that a delta stands for.
pub(crate) fn coded_bytes(delta: &Delta) -> u64 {
    delta.lengths.iter().map(|length| u64::from(*length)).sum()
}

/// As they are sent over a link of that rate. None: there are none.
pub(crate) fn pack_all(chunks: &[Vec<u8>], rate: Option<u64>) -> Option<Payload> {
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    (!chunks.is_empty()).then(|| pack_for(&chunks, Squeeze::for_rate(rate)))
}
