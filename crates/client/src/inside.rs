//! What is inside the containers that are here, and asking for what of it is above.
//! Holds: what is remembered of containers is bounded; a place in the index is hashed before it is
//! used, and forgotten when it is wrong.
//! From: beyond LBFS, which finds chunks in files as they are.

use crate::base::Source;
use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::home::{is_home, note_home};
use crate::plan::Plan;
use crate::ranks::{self, Rank, Ranked};
use crate::types::Error;
use chunks::inside::index::{self, Index, Place};
use chunks::inside::{self, Looked, Outcome, Reader, chunks_of, region_of};
use chunks::{ChunksError, Secret};
use model::{ChunkName, FileId, Stamp, Update};
use protocol::{Class, FIND_NAMES_MAX, Request, Response, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use store::container::Key;
use store::{Container, Containers, Durability, Read, StoreError};

/// Places in one stream that lie no farther apart are one part: what stood between them is like
/// what stands there now.
const JOIN_BYTES: u64 = 64 << 10;

/// Plain bytes that are unpacked for parts of one delta, at most.
pub(crate) const UNPACKED_BYTES_MAX: u64 = 512 << 20;

/// It is asked what is there where that takes at most one part in so many of what it may save.
const ASK_ONE_IN: u64 = 4;
/// What a name takes in a question, about.
const NAME_BYTES: u64 = 26;

/// Names that are considered for one question, about: those of one region at least.
const CONSIDERED_MAX: usize = 1 << 16;
/// Rows of the index in one transaction.
const ROWS_MAX: usize = 2000;

/// A client has one index.
pub(crate) const INDEX: Index<'static> = Index(&[]);

/// By file, version, and where the region begins.
pub(crate) type Seen = Mutex<Looked<(FileId, Stamp, u64)>>;

/// Stretches of one stream of a container here, and chunks that are in them.
pub(crate) struct Within {
    pub hits: Vec<(ChunkName, Place)>,
    /// Of the plain bytes.
    pub ranges: Vec<Range<u64>>,
    pub bytes: Vec<Vec<u8>>,
}

/// Reads a container for `chunks`.
pub(crate) fn reader<K: Container>(
    container: &K,
) -> impl FnMut(u64, usize) -> chunks::Result<Vec<u8>> + '_ {
    |offset, length| Ok(container.read(offset, length)?)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    fn looked(&self) -> Ranked<'_, Looked<(FileId, Stamp, u64)>> {
        ranks::lock(Rank::Looked, &self.inner.looked)
    }

    /// What is inside a version at an offset of its container, and notes where it was seen.
    pub(crate) fn look_inside(
        &self,
        (file, version): (FileId, Stamp),
        (size, offset): (u64, u64),
        read: &mut Reader<'_>,
    ) -> Result<Outcome, Error> {
        let region = region_of(size, offset);
        let which = (file, version, region.start);
        if let Some(found) = self.looked().find(&which) {
            return Ok(found);
        }
        let (secret, cutter) = self.secret();
        let looked = inside::look(&secret, cutter, (size, region), read);
        let looked = looked.map_err(of_chunks)?;
        if let Ok(inside) = &looked {
            let mut places = index::places((file, version), inside).peekable();
            while places.peek().is_some() {
                let mut write = self.inner.tables.write().map_err(error_of)?;
                for (name, place) in places.by_ref().take(ROWS_MAX) {
                    INDEX.note(&mut *write, &name, place).map_err(error_of)?;
                }
                write.commit(Durability::Later).map_err(error_of)?;
            }
        }
        let outcome = Arc::new(looked);
        self.looked().keep(which, outcome.clone());
        Ok(outcome)
    }

    /// What is inside a pending store at an offset.
    pub(crate) fn look_inside_plan(
        &self,
        update: &Update,
        plan: &Plan,
        (size, offset): (u64, u64),
    ) -> Result<Option<Outcome>, Error> {
        let key = Key { file: plan.file.0, generation: plan.generation };
        let container = self.inner.containers.open(key, false).map_err(error_of)?;
        let Some(container) = container else { return Ok(None) };
        let version = (plan.file, update.stamp);
        self.look_inside(version, (size, offset), &mut reader(&container)).map(Some)
    }

    /// What is inside a source is noted, so that it is found.
    pub(crate) fn note_inside(
        &self,
        source: &Source<C::Container>,
        offset: u64,
    ) -> Result<(), Error> {
        if source.is_packed()? {
            let mut read = |offset, length| source.read_some(offset, length);
            let which = (source.file, source.version);
            self.look_inside(which, (source.size, offset), &mut read)?;
        }
        Ok(())
    }

    /// Reads what was seen inside containers, as far as it is right; `settled`: only what the
    /// replica above has too. What is not right is forgotten.
    pub(crate) fn read_within(
        &self,
        secret: &Secret,
        hits: Vec<(ChunkName, Place)>,
        settled: bool,
    ) -> Result<Vec<Within>, Error> {
        let mut got = BTreeSet::new();
        let mut unpacked = UNPACKED_BYTES_MAX;
        let mut streams: BTreeMap<Stream, Vec<(ChunkName, Place)>> = BTreeMap::new();
        for (name, place) in hits {
            if got.insert(name) {
                streams.entry(stream_of(&place)).or_default().push((name, place));
            }
        }
        let mut within = Vec::new();
        for (stream, mut hits) in streams {
            hits.sort_unstable_by_key(|(_, place)| place.offset);
            let ranges = joined(&hits);
            // What is pending is right, and may be of use later.
            if unpacked == 0 || (settled && !self.is_settled(stream.1)) {
                continue;
            }
            let source = self.version_here(stream.0, stream.1, settled)?;
            let found = match source {
                Some(source) => read_ranges(&source, &hits[0].1, &ranges, &mut unpacked),
                None => Ok(None),
            };
            let found = match found {
                // What the disk has lost of it is not right.
                Err(ChunksError::Store(error)) if error.is_unreadable() => None,
                found => found.map_err(of_chunks)?,
            };
            match found.filter(|found| is_right(secret, &hits, &ranges, found)) {
                Some(bytes) => within.push(Within { hits, ranges, bytes }),
                // It was too much to look.
                None if unpacked == 0 => {}
                None => self.forget_inside(&hits)?,
            }
        }
        Ok(within)
    }

    fn forget_inside(&self, hits: &[(ChunkName, Place)]) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for (name, place) in hits {
            INDEX.forget(&mut *write, name, (place.file, place.version)).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)
    }

    /// Of missing stretches of containers it is asked which of what is inside is above: what they
    /// hold may be there as files of which nothing is known here.
    pub(crate) async fn ask_what_is_above(
        &self,
        updates: &Arc<[Update]>,
        missing: &Arc<[ChunkName]>,
    ) -> Result<(), Error> {
        if !self.connection().assembles {
            return Ok(());
        }
        let (client, of, lacking) = (self.clone(), updates.clone(), missing.clone());
        let names = self.off_the_runtime(move || Ok(client.unknown_inside(&of, &lacking))).await;
        let names = names.map_err(error_of)??;
        if names.is_empty() {
            return Ok(());
        }
        let request = Request::Find { names: names.clone() };
        let bits = match self.inner.upstream.ask(Class::Replay, request).await {
            Ok(Response::Found(bits)) => bits,
            // Whoever does not say has nothing of it.
            _ => return Ok(()),
        };
        let there = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for (at, name) in names.iter().enumerate().filter(|(at, _)| there(*at)) {
            tracing::trace!(at, %name, "this is above");
            note_home(&mut *write, name).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)?;
        // What was said to be worth no delta may be worth one now.
        let mut core = self.core();
        for update in updates.iter() {
            if let Some(plan) = core.plans.get_mut(update.stamp.number) {
                plan.coded = None;
            }
        }
        Ok(())
    }

    /// Names of what is inside the missing stretches, as far as it is worth to ask for them.
    fn unknown_inside(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
    ) -> Result<Vec<ChunkName>, Error> {
        let mut names = Vec::new();
        let mut known = BTreeSet::new();
        for update in updates {
            let number = update.stamp.number;
            let Some(loan) = self.core().plans.lend(number) else { continue };
            let found = self.unknown_of_plan(update, &loan.plan, missing, &mut known);
            self.core().plans.give_back(loan);
            names.extend(found?);
            if names.len() >= FIND_NAMES_MAX || known.len() >= CONSIDERED_MAX {
                break;
            }
        }
        names.truncate(FIND_NAMES_MAX);
        Ok(names)
    }

    fn unknown_of_plan(
        &self,
        update: &Update,
        plan: &Plan,
        missing: &[ChunkName],
        known: &mut BTreeSet<ChunkName>,
    ) -> Result<Vec<ChunkName>, Error> {
        let lacking: Vec<ChunkName> =
            missing.iter().filter(|name| plan.data.contains_key(*name)).copied().collect();
        let bytes = plan.bytes_of(&lacking);
        let size = plan.size();
        if plan.is_part() || !self.is_worth_unpacking(bytes) || !self.is_packed(plan)? {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for stretch in stretches(plan, &lacking) {
            let looked = self.look_inside_plan(update, plan, (size, stretch.start))?;
            let Some(Ok(inside)) = looked.as_deref() else { continue };
            let read = self.inner.tables.read().map_err(error_of)?;
            for member in inside.members_near(&stretch) {
                let root = member.contents.root.filter(|root| root.depth > 0);
                let all = root.map(|root| root.name).into_iter();
                for name in all.chain(chunks_of(member).map(|(_, name, _)| name)) {
                    let own = (plan.file, update.stamp);
                    if known.insert(name) && !is_seen(&*read, &name, own).map_err(error_of)? {
                        names.push(name);
                    }
                }
            }
            if names.len() >= FIND_NAMES_MAX || known.len() >= CONSIDERED_MAX {
                break;
            }
        }
        let asking = names.len() as u64 * NAME_BYTES;
        let quality = self.inner.upstream.quality();
        let idle = quality.rate_up.zip(quality.round_trip).map_or(0, |(rate, trip)| {
            u64::try_from(u128::from(rate) * trip.as_millis() / 1000).unwrap_or(u64::MAX)
        });
        let cheap = asking.saturating_add(idle).saturating_mul(ASK_ONE_IN) <= bytes;
        Ok(if cheap { names } else { Vec::new() })
    }
}

/// File, version, where the stream begins, and how many bytes it has.
type Stream = (FileId, Stamp, u64, u64);

fn stream_of(place: &Place) -> Stream {
    (place.file, place.version, place.start, place.packed)
}

fn length_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

/// Places in one stream, in order, as stretches of it.
fn joined(hits: &[(ChunkName, Place)]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (_, place) in hits {
        let end = place.offset.saturating_add(u64::from(place.length));
        match ranges.last_mut() {
            Some(last) if place.offset <= last.end.saturating_add(JOIN_BYTES) => {
                last.end = last.end.max(end);
            }
            _ => ranges.push(place.offset..end),
        }
    }
    ranges
}

/// Whether all chunks are where they were said to be.
fn is_right(
    secret: &Secret,
    hits: &[(ChunkName, Place)],
    ranges: &[Range<u64>],
    found: &[Vec<u8>],
) -> bool {
    hits.iter().all(|(name, place)| {
        let within = ranges.iter().zip(found).find(|(range, _)| range.contains(&place.offset));
        within.is_some_and(|(range, bytes)| {
            let start = (place.offset - range.start) as usize;
            let chunk = bytes.get(start..start + place.length as usize);
            chunk.is_some_and(|chunk| secret.check(name, chunk).is_ok())
        })
    })
}

/// Stretches of the plain bytes of the stream in which a place is.
fn read_ranges<K: Container>(
    source: &Source<K>,
    place: &Place,
    ranges: &[Range<u64>],
    room: &mut u64,
) -> chunks::Result<Option<Vec<Vec<u8>>>> {
    let mut read = |offset, length| source.read_some(offset, length);
    let start = place.start;
    if place.packed > 0 {
        return inside::plain_of(start..start + place.packed, ranges, room, &mut read);
    }
    let each = ranges.iter().map(|range| read(start + range.start, length_of(range)));
    each.collect::<chunks::Result<Vec<_>>>().map(Some)
}

/// Whether a chunk is known to be above, or was seen inside another version.
pub(crate) fn is_seen(
    read: &dyn Read,
    name: &ChunkName,
    own: (FileId, Stamp),
) -> Result<bool, StoreError> {
    let another = |place: &Place| (place.file, place.version) != own;
    Ok(is_home(read, name)? || INDEX.find(read, name)?.iter().any(another))
}

/// Where these chunks of a plan are, near ones together.
fn stretches(plan: &Plan, names: &[ChunkName]) -> Vec<Range<u64>> {
    const APART: u64 = 64 << 10;
    let mut places: Vec<(u64, u32)> =
        names.iter().filter_map(|name| plan.data.get(name).copied()).collect();
    places.sort_unstable();
    let mut stretches: Vec<Range<u64>> = Vec::new();
    for (offset, length) in places {
        let end = offset + u64::from(length);
        let region = inside::REGION_BYTES;
        match stretches.last_mut() {
            Some(last) if offset <= last.end + APART && last.start / region == offset / region => {
                last.end = end;
            }
            _ => stretches.push(offset..end),
        }
    }
    stretches
}
