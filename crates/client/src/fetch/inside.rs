//! Fetching what is, or is inside, a compressed container: what of it is here already, in files or in
//! other containers, is not asked for.
//! Holds: every chunk that is taken from here is hashed first; what was assembled of them is checked
//! as any delta is.
//! From: beyond LBFS, which finds chunks in files as they are.

use super::{Target, bad, span};
use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::inside::{INDEX, Within};
use crate::types::Error;
use crate::worth;
use chunks::delta::{Codec, Effort, Part, parts_of};
use chunks::{Placed, unpack_assembled};
use model::{CHUNK_NAME_BYTES, ChunkName, Piece};
use protocol::{CODED_BYTES_MAX, Delta, KnownInside, Range, Request, Response, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use store::Containers;

/// For fewer bytes nobody asks what is inside.
const ASKED_BYTES_MIN: u64 = 32 << 10;
/// It is asked about a stretch of so many bytes at once.
const STRETCH_BYTES_MAX: u64 = 8 << 20;
/// What is unpacked is about so many times as long.
const PLAIN_TIMES: u64 = 4;

pub(super) fn is_assembled(delta: &Delta) -> bool {
    delta.codec == Codec::Assembled.number()
}

/// Whether so much of it is here that next to nothing has to come.
pub(super) fn is_most(known: &KnownInside) -> bool {
    let here: u32 = known.bits.iter().map(|byte| byte.count_ones()).sum();
    here as usize >= known.bits.len() * 7
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is here of what is inside the missing pieces of a container, if it is worth to ask what
    /// that is.
    pub(super) async fn known_inside(
        &self,
        target: &Target<C::Container>,
        pieces: &[Placed],
        missing: &BTreeSet<ChunkName>,
    ) -> Result<Option<KnownInside>, Error> {
        let is_missing = |placed: &&Placed| match placed.piece {
            Piece::Chunk { name, .. } => missing.contains(&name),
            Piece::Zeros { .. } => false,
        };
        let lacking: Vec<Range> = pieces
            .iter()
            .filter(is_missing)
            .map(|placed| Range { offset: placed.offset, length: placed.piece.length() })
            .collect();
        let bytes: u64 = lacking.iter().map(|range| range.length).sum();
        let rate = self.inner.upstream.quality().likely_down();
        let pays = worth::effort(rate, bytes, bytes.saturating_mul(PLAIN_TIMES));
        if !self.connection().assembles || bytes < ASKED_BYTES_MIN || pays != Some(Effort::Usual) {
            return Ok(None);
        }
        let mut stretch = span(&lacking);
        stretch.length = stretch.length.min(STRETCH_BYTES_MAX);
        let (file, version) = (target.file, target.version);
        let request = Request::Inside { file, version, stretch };
        let names = match self.ask_for(target.class, bytes / PLAIN_TIMES, request).await? {
            Response::Inside(names) => names,
            other => return Err(unexpected("inside", &other)),
        };
        let names = names.as_chunks::<CHUNK_NAME_BYTES>().0;
        let mut bits = vec![0u8; names.len().div_ceil(8)];
        let read = self.inner.tables.read().map_err(error_of)?;
        for (at, name) in names.iter().map(|name| ChunkName(*name)).enumerate() {
            let here = !chunks::index::find(&*read, &name).map_err(error_of)?.is_empty()
                || !INDEX.find(&*read, &name).map_err(error_of)?.is_empty();
            bits[at / 8] |= u8::from(here) << (at % 8);
        }
        let any = bits.iter().any(|byte| *byte != 0);
        Ok(any.then(|| KnownInside { stretch, bits: bits.into() }))
    }

    /// The chunks of a delta that was assembled of what is here. None: nothing comes of it.
    pub(super) fn undo_assembled(
        &self,
        target: &Target<C::Container>,
        delta: &Delta,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Ok(parts) = parts_of(&delta.bytes) else { return Ok(None) };
        let mut names = Vec::with_capacity(parts.len());
        for part in &parts {
            match part {
                Part::Contents(contents) => match contents.root {
                    Some(root) if root.depth == 0 => names.push((root.name, contents.size)),
                    _ => return Ok(None),
                },
                Part::Bytes(_) | Part::Plain { .. } => return Ok(None),
            }
        }
        let mut found = BTreeMap::new();
        for (name, _) in &names {
            if let Some(bytes) = self.chunk_here(&target.secret, name)? {
                found.insert(*name, bytes);
            }
        }
        let wanted: Vec<ChunkName> =
            names.iter().map(|(name, _)| *name).filter(|name| !found.contains_key(name)).collect();
        found.extend(self.chunks_within(&target.secret, &wanted)?);
        let mut reference = Vec::new();
        for (name, size) in names {
            match found.get(&name).filter(|bytes| bytes.len() as u64 == size) {
                Some(bytes) => reference.extend_from_slice(bytes),
                None => return Ok(None),
            }
        }
        unpack_assembled(&target.secret, delta, &reference, CODED_BYTES_MAX).map_err(bad)
    }

    /// Chunks that are inside containers here, as far as the index knows.
    pub(super) fn chunks_within(
        &self,
        secret: &chunks::Secret,
        names: &[ChunkName],
    ) -> Result<BTreeMap<ChunkName, Vec<u8>>, Error> {
        let mut hits = Vec::new();
        {
            let read = self.inner.tables.read().map_err(error_of)?;
            for name in names {
                let places = INDEX.find(&*read, name).map_err(error_of)?;
                hits.extend(places.first().map(|place| (*name, *place)));
            }
        }
        let mut found = BTreeMap::new();
        for Within { hits, ranges, bytes } in self.read_within(secret, hits, false)? {
            for (name, place) in hits {
                let within = ranges.iter().zip(&bytes).find(|(r, _)| r.contains(&place.offset));
                let Some((range, bytes)) = within else { continue };
                let start = (place.offset - range.start) as usize;
                if let Some(chunk) = bytes.get(start..start + place.length as usize) {
                    found.insert(name, chunk.to_vec());
                }
            }
        }
        Ok(found)
    }
}
