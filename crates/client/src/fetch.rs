//! Fetching contents: from other files of the cache where they are there already, over the link
//! where they are not.
//! Holds: bytes are checked against the version's recipe before they reach the container, and
//! nothing is written to a container that somebody has begun to change.
//! From: LBFS, "Read protocol".

use crate::base::Source;
use crate::client::{Client, error_of};
use crate::plan::note_home;
use crate::portions::{Portions, REQUESTS_MAX, requests};
use crate::session::unexpected;
use crate::types::Error;
use chunks::index::{self, Place};
use chunks::{ChunksError, Placed, Secret, cover, describe_bytes, unpack};
use model::{ChunkName, Contents, FileId, Piece, Stamp};
use protocol::{Fetched, PAYLOAD_BYTES_MAX, Range, Request, Response, Upstream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use store::container::Key;
use store::{Container, Containers, Durability};

/// Pieces of one window: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;

/// What to fetch, the size of the file, and the stretch.
type Wanted<K> = (Target<K>, u64, Range);

/// Stretches to ask for, and whether a delta will do.
type Wish = (Vec<Range>, bool);

/// One version, while it is being fetched.
pub(crate) struct Target<K> {
    pub file: FileId,
    pub generation: u32,
    pub version: Stamp,
    pub container: K,
    pub still: std::sync::Arc<std::sync::RwLock<()>>,
    pub secret: Secret,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) async fn fetch(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        self.join_ahead(file).await;
        // A call without a handle, such as truncate(2), does not keep the file open while it waits.
        let _held = self.hold(file, generation)?;
        let fetching = {
            let files = self.files();
            match files.get(file, generation) {
                Some(open) => open.fetching.clone(),
                // Another version is current by now: the call looks again.
                None => return Ok(()),
            }
        };
        let _alone = fetching.lock().await;
        let Some((target, size, range)) = self.target(file, generation, offset, length)? else {
            return Ok(());
        };
        self.inner.counters.misses.fetch_add(1, Ordering::Relaxed);
        self.note_miss(file);
        let source = self.source_for_fetch(file, target.version)?;
        let fetched = self.ask_recipe(&target, size, range, source.as_ref()).await?;
        self.note_arrival(file);
        let Some(delta) = &fetched.delta else {
            return self.take(&target, fetched, range, source).await;
        };
        let undone = match &source {
            Some(source) => self.undo_delta(source, delta)?,
            None => None,
        };
        match undone {
            Some(chunks) => {
                self.note_coded(file, target.version, false, delta);
                self.take_all(&target, &fetched, chunks)
            }
            None => {
                let fetched = self.ask_recipe(&target, size, range, None).await?;
                self.take(&target, fetched, range, None).await
            }
        }
    }

    async fn ask_recipe(
        &self,
        target: &Target<C::Container>,
        size: u64,
        range: Range,
        source: Option<&Source<C::Container>>,
    ) -> Result<Fetched, Error> {
        let whole = Range { offset: 0, length: size };
        let eager_bytes = Portions::of(&self.inner.upstream.quality()).eager;
        let source = source.filter(|_| size <= eager_bytes);
        let request = Request::Recipe {
            file: target.file,
            version: Some(target.version),
            range,
            eager_bytes,
            base: source.and_then(|source| source.base(size, whole)),
        };
        match self.ask_for(eager_bytes.min(size), request).await? {
            Response::Recipe(fetched) => {
                if fetched.version != target.version || fetched.contents.size != size {
                    return Err(Error::Stale);
                }
                Ok(fetched)
            }
            other => Err(unexpected("recipe", &other)),
        }
    }

    /// What to fetch, widened to what is worth a round trip. None: it is here already.
    fn target(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Result<Option<Wanted<C::Container>>, Error> {
        let secret = self.secret().0;
        let portions = Portions::of(&self.inner.upstream.quality());
        let mut files = self.files();
        let open = files.get_mut(file, generation).ok_or(Error::BadHandle)?;
        if open.presence.has(offset, length) {
            return Ok(None);
        }
        let size = open.presence.contents.size;
        let range = if size <= portions.whole {
            Range { offset: 0, length: size }
        } else {
            let goes_on = open.read_to == offset;
            let window = if goes_on { open.window * 2 } else { portions.window_least };
            open.window = window.clamp(portions.window_least, portions.window_most);
            Range { offset, length: length.max(open.window).min(size - offset) }
        };
        let target = Target {
            file,
            generation,
            version: open.presence.version,
            container: open.container.clone(),
            still: open.still.clone(),
            secret,
        };
        Ok(Some((target, size, range)))
    }

    async fn take(
        &self,
        target: &Target<C::Container>,
        fetched: Fetched,
        range: Range,
        source: Option<Source<C::Container>>,
    ) -> Result<(), Error> {
        let contents = fetched.contents;
        if let Some(payload) = &fetched.bytes {
            let chunks = unpack(payload, PAYLOAD_BYTES_MAX).map_err(bad)?;
            let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            self.note_plain(target.file, target.version, false, bytes);
            return self.take_all(target, &fetched, chunks);
        }
        let pieces = pieces_of(target, &fetched, range)?;
        let missing = self.take_from_cache(target, &pieces)?;
        let source = match source {
            None if !missing.is_empty() => self.source_alike(target.file, &pieces)?,
            source => source,
        };
        let most = Portions::of(&self.inner.upstream.quality()).request;
        let mut waiting: VecDeque<Wish> =
            requests(&pieces, &missing, most).into_iter().map(|ranges| (ranges, true)).collect();
        let mut under_way = tokio::task::JoinSet::new();
        let mut left = pieces;
        loop {
            while under_way.len() < REQUESTS_MAX {
                let Some((ranges, as_delta)) = waiting.pop_front() else { break };
                let source = source.as_ref().filter(|_| as_delta);
                let base = source.and_then(|source| source.base(contents.size, span(&ranges)));
                let client = self.clone();
                let (file, version) = (target.file, target.version);
                under_way.spawn(async move {
                    let bytes = ranges.iter().map(|range| range.length).sum();
                    let request = Request::Read { file, version, ranges: ranges.clone(), base };
                    (client.ask_for(bytes, request).await, ranges)
                });
            }
            match under_way.join_next().await {
                None => break,
                Some(Ok((Ok(Response::Bytes(payload)), _))) => {
                    let chunks = unpack(&payload, PAYLOAD_BYTES_MAX).map_err(bad)?;
                    let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
                    self.note_plain(target.file, target.version, false, bytes);
                    left = self.take_some(target, contents, left, chunks)?;
                }
                Some(Ok((Ok(Response::Delta(delta)), ranges))) => {
                    let undone = match &source {
                        Some(source) => self.undo_delta(source, &delta)?,
                        None => return Err(unexpected("read", &Response::Delta(delta))),
                    };
                    match undone {
                        Some(chunks) => {
                            self.note_coded(target.file, target.version, false, &delta);
                            left = self.take_some(target, contents, left, chunks)?;
                        }
                        None => waiting.push_back((ranges, false)),
                    }
                }
                Some(Ok((Ok(other), _))) => return Err(unexpected("read", &other)),
                Some(Ok((Err(error), _))) => return Err(error),
                Some(Err(error)) => return Err(Error::Failed(error.to_string())),
            }
        }
        self.note_present(target, contents, &left)
    }

    /// Takes in what one answer brought, so that it is here whatever becomes of the others. Gives
    /// back the other pieces.
    fn take_some(
        &self,
        target: &Target<C::Container>,
        contents: Contents,
        pieces: Vec<Placed>,
        chunks: Vec<Vec<u8>>,
    ) -> Result<Vec<Placed>, Error> {
        let names: BTreeSet<ChunkName> =
            chunks.iter().map(|bytes| target.secret.name(bytes)).collect();
        self.take_chunks(target, &pieces, chunks)?;
        let came = |placed: &Placed| match placed.piece {
            Piece::Chunk { name, .. } => names.contains(&name),
            Piece::Zeros { .. } => false,
        };
        let (here, left): (Vec<Placed>, Vec<Placed>) = pieces.into_iter().partition(came);
        self.note_present(target, contents, &here)?;
        Ok(left)
    }

    /// All chunks of the contents came. With a recipe, there are zeros besides.
    fn take_all(
        &self,
        target: &Target<C::Container>,
        fetched: &Fetched,
        chunks: Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        if fetched.recipe.is_empty() {
            return self.take_whole(target, fetched.contents, &chunks.concat());
        }
        let whole = Range { offset: 0, length: fetched.contents.size };
        let pieces = pieces_of(target, fetched, whole)?;
        self.take_chunks(target, &pieces, chunks)?;
        self.note_present(target, fetched.contents, &pieces)
    }

    /// All the contents came with one answer.
    pub(crate) fn take_whole(
        &self,
        target: &Target<C::Container>,
        contents: Contents,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let cutter = self.secret().1;
        let described = describe_bytes(&target.secret, cutter, bytes);
        if described.tree.contents != contents {
            return Err(Error::Failed(format!(
                "the contents of {} that the server sent are not those of version {}",
                target.file, target.version
            )));
        }
        self.fill(target, &[(0, bytes)])?;
        self.ahead().held.keep(target.file, target.version, bytes);
        let mut write = self.inner.tables.write().map_err(error_of)?;
        crate::contents::note_places(&mut *write, target.file, target.generation, &described)
            .map_err(error_of)?;
        for (name, _) in &described.tree.chunks {
            note_home(&mut *write, name).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)?;
        self.note_present(target, contents, &described.pieces)
    }

    /// Fills in what is in the cache already, by any name. Gives back what is not.
    fn take_from_cache(
        &self,
        target: &Target<C::Container>,
        pieces: &[Placed],
    ) -> Result<BTreeSet<ChunkName>, Error> {
        let mut missing = BTreeSet::new();
        let mut wrong: Vec<(ChunkName, Place)> = Vec::new();
        let mut containers = BTreeMap::new();
        for placed in pieces {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            let places = {
                let read = self.inner.tables.read().map_err(error_of)?;
                index::find(&*read, &name).map_err(error_of)?
            };
            let mut bytes = None;
            for (key, place) in self.where_now(&places) {
                let container = match containers.entry(key) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        entry.insert(self.inner.containers.open(key, false).map_err(error_of)?)
                    }
                };
                let Some(container) = container else {
                    wrong.push((name, place));
                    continue;
                };
                let found =
                    container.read(place.offset, place.length as usize).map_err(error_of)?;
                if found.len() as u64 == length && target.secret.check(&name, &found).is_ok() {
                    bytes = Some(found);
                    break;
                }
                wrong.push((name, place));
            }
            match bytes {
                Some(bytes) => self.fill(target, &[(placed.offset, &bytes)])?,
                None => {
                    missing.insert(name);
                }
            }
        }
        if !wrong.is_empty() {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            for (name, place) in &wrong {
                index::forget(&mut *write, name, place).map_err(error_of)?;
            }
            write.commit(Durability::Later).map_err(error_of)?;
        }
        Ok(missing)
    }

    fn take_chunks(
        &self,
        target: &Target<C::Container>,
        pieces: &[Placed],
        chunks: Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        let by_name: BTreeMap<ChunkName, Vec<u8>> =
            chunks.into_iter().map(|bytes| (target.secret.name(&bytes), bytes)).collect();
        let mut filling: Vec<(u64, &[u8])> = Vec::new();
        let mut places = Vec::new();
        for placed in pieces {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            // A recipe may lie about a length: the chunk would not fit where it says.
            let fits = |bytes: &&Vec<u8>| bytes.len() as u64 == length;
            let Some(bytes) = by_name.get(&name).filter(fits) else { continue };
            filling.push((placed.offset, bytes));
            let place = Place {
                file: target.file,
                generation: target.generation,
                offset: placed.offset,
                length: u32::try_from(length).expect("no chunk is longer than 1 MiB"),
            };
            places.push((name, place));
        }
        self.fill(target, &filling)?;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for (name, place) in places {
            index::note(&mut *write, &name, place).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)
    }

    /// Writes checked bytes, unless somebody has begun to change the file.
    fn fill(&self, target: &Target<C::Container>, stretches: &[(u64, &[u8])]) -> Result<(), Error> {
        let _still = target.still.write().unwrap_or_else(PoisonError::into_inner);
        let overtaken = self
            .files()
            .get(target.file, target.generation)
            .is_none_or(|open| open.presence.dirty.is_some());
        if overtaken {
            return Ok(());
        }
        for (offset, bytes) in stretches {
            target.container.write(*offset, bytes).map_err(error_of)?;
        }
        self.contents_written(Key { file: target.file.0, generation: target.generation });
        Ok(())
    }

    /// The pieces are in the container now: checked piece by piece, so that what is missing
    /// from an answer is not taken for present.
    fn note_present(
        &self,
        target: &Target<C::Container>,
        contents: Contents,
        pieces: &[Placed],
    ) -> Result<(), Error> {
        for placed in pieces {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let bytes = target.container.read(placed.offset, length).map_err(error_of)?;
            if target.secret.check(&name, &bytes).is_err() {
                if self.is_overtaken(target) {
                    return Ok(());
                }
                return Err(Error::Failed(format!(
                    "the server did not send all that was asked of {}",
                    target.file
                )));
            }
        }
        let older = {
            let mut files = self.files();
            let Some(open) = files.get_mut(target.file, target.generation) else { return Ok(()) };
            if open.presence.dirty.is_some() {
                return Ok(());
            }
            open.presence.contents = contents;
            for placed in pieces {
                open.presence.add(placed.offset, placed.piece.length());
            }
            let mut write = self.inner.tables.write().map_err(error_of)?;
            open.presence.save(&mut *write, target.file).map_err(error_of)?;
            for placed in pieces {
                if let Piece::Chunk { name, .. } = placed.piece {
                    note_home(&mut *write, &name).map_err(error_of)?;
                }
            }
            write.commit(Durability::Later).map_err(error_of)?;
            self.inner.fetched.store(true, Ordering::Release);
            open.presence.is_whole().then(|| target.generation.checked_sub(1)).flatten()
        };
        // The version before is not needed as a source any more.
        if let Some(older) = older
            && self.files().get(target.file, older).is_none()
        {
            let key = Key { file: target.file.0, generation: older };
            self.inner.containers.remove(key).map_err(error_of)?;
        }
        Ok(())
    }

    fn is_overtaken(&self, target: &Target<C::Container>) -> bool {
        self.files()
            .get(target.file, target.generation)
            .is_none_or(|open| open.presence.dirty.is_some())
    }
}

/// From the first to the last byte of some stretches.
fn span(ranges: &[Range]) -> Range {
    let from = ranges.iter().map(|range| range.offset).min().unwrap_or(0);
    let to = ranges.iter().map(|range| range.offset + range.length).max().unwrap_or(from);
    Range { offset: from, length: to - from }
}

/// The pieces that cover the range, from the recipe chunks that came.
fn pieces_of<K>(target: &Target<K>, fetched: &Fetched, range: Range) -> Result<Vec<Placed>, Error> {
    let recipe: BTreeMap<ChunkName, &[u8]> =
        fetched.recipe.iter().map(|bytes| (target.secret.name(bytes), bytes.as_slice())).collect();
    let found = cover(&target.secret, &fetched.contents, range, PIECES_MAX, |name| {
        Ok(recipe.get(name).map(|bytes| bytes.to_vec()))
    })
    .map_err(bad)?;
    if !found.missing.is_empty() || found.next.is_some() {
        return Err(Error::Failed(format!(
            "the recipe of {} that the server sent is not whole",
            target.file
        )));
    }
    Ok(found.pieces)
}

fn bad(error: ChunksError) -> Error {
    match error {
        ChunksError::Store(error) => error_of(error),
        error => {
            tracing::warn!(%error, "contents that arrived were not what they should be");
            Error::Failed(error.to_string())
        }
    }
}
