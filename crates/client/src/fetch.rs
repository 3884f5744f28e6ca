//! Fetching contents: from other files of the cache where they are there already, over the link
//! where they are not.
//! Holds: bytes are checked against the version's recipe before they reach the container, and
//! nothing is written to a container that somebody has begun to change.
//! From: LBFS, "Read protocol".

mod difference;
mod fill;
mod inside;
mod now;
mod twin;

pub(crate) use now::STEP_BYTES;
pub(crate) use twin::{is_here, now_of};

use crate::asking::unexpected;
use crate::base::Source;
use crate::client::{Client, error_of};
use crate::files::OpenFile;
use crate::portions::{Portions, REQUESTS_MAX, requests};
use crate::types::Error;
use crate::worth;
use chunks::delta::Effort;
use chunks::{ChunksError, Placed, Secret, cover, describe_bytes, unpack};
use inside::{is_assembled, is_most};
use model::{ChunkName, Contents, FileId, Piece, Stamp};
use protocol::{
    Base, CODED_BYTES_MAX, Class, Fetched, KnownInside, PAYLOAD_BYTES_MAX, Range, Request,
    Response, Upstream,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Container, Containers};

/// Pieces of one window: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;

/// Stretches to ask for, and whether a delta will do.
type Wish = (Vec<Range>, bool);

/// What is said when stretches of a version are asked for.
struct Asked {
    file: FileId,
    version: Stamp,
    class: Class,
    base: Option<Base>,
    packed: bool,
    inside: Option<KnownInside>,
}

/// What a reader waits for.
#[derive(Clone, Copy)]
struct Waits {
    range: Range,
    /// All of the version may come, as it is a container and so is what is here of it.
    packed: bool,
    /// The version is a container.
    container: bool,
}

impl Waits {
    fn for_stretch(range: Range) -> Waits {
        Waits { range, packed: false, container: false }
    }
}

/// One version, while it is being fetched.
pub(crate) struct Target<K> {
    pub file: FileId,
    pub generation: u32,
    pub version: Stamp,
    pub container: K,
    pub still: std::sync::Arc<std::sync::RwLock<()>>,
    pub secret: Secret,
    /// How urgent it is.
    pub class: Class,
}

impl<K: Container> Target<K> {
    pub fn of(file: FileId, open: &OpenFile<K>, secret: Secret) -> Target<K> {
        Target {
            file,
            generation: open.presence.generation,
            version: open.presence.version,
            container: open.container.clone(),
            still: open.still.clone(),
            secret,
            class: Class::Demand,
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Fetches what is lacking of a stretch.
    pub(crate) async fn fetch_range(
        &self,
        target: &Target<C::Container>,
        size: u64,
        range: Range,
    ) -> Result<(), Error> {
        let file = target.file;
        let source = self.source_for_fetch(file, target.version)?;
        // Of a compressed container all may come for less than a part.
        let packed = match &source {
            Some(source) if size <= CODED_BYTES_MAX as u64 => source.is_packed()?,
            _ => false,
        };
        if size > Portions::of(&self.inner.upstream.quality()).eager
            && !packed
            && self.knows_recipe(target)?
        {
            let (contents, pieces) = self.pieces_by_difference(target, size, range).await?;
            self.note_arrival(file);
            let waits = Waits::for_stretch(range);
            return self.take_pieces(target, contents, pieces, waits, source).await;
        }
        let wide = if packed { whole(size) } else { range };
        let fetched = self.ask_recipe(target, size, wide, source.as_ref()).await?;
        self.note_arrival(file);
        let Some(delta) = &fetched.delta else {
            let waits = Waits { packed, ..Waits::for_stretch(range) };
            return self.take(target, fetched, waits, source).await;
        };
        let undone = match &source {
            Some(source) => self.undo_delta(source, delta)?,
            None => None,
        };
        match undone {
            Some(chunks) => {
                self.note_coded(file, target.version, false, delta);
                self.take_all(target, &fetched, chunks)
            }
            None => {
                let fetched = self.ask_recipe(target, size, range, None).await?;
                self.take(target, fetched, Waits::for_stretch(range), None).await
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
        let whole = whole(size);
        let eager_bytes = Portions::of(&self.inner.upstream.quality()).eager;
        let source = source.filter(|_| size <= eager_bytes);
        let request = Request::Recipe {
            file: target.file,
            version: Some(target.version),
            range,
            eager_bytes,
            base: source.and_then(|source| source.base(size, whole)),
        };
        match self.ask_for(target.class, eager_bytes.min(size), request).await? {
            Response::Recipe(fetched) => {
                if fetched.version != target.version || fetched.contents.size != size {
                    return Err(Error::Stale);
                }
                Ok(fetched)
            }
            other => Err(unexpected("recipe", &other)),
        }
    }

    async fn take(
        &self,
        target: &Target<C::Container>,
        fetched: Fetched,
        waits: Waits,
        source: Option<Source<C::Container>>,
    ) -> Result<(), Error> {
        let contents = fetched.contents;
        if let Some(payload) = &fetched.bytes {
            let chunks = unpack(payload, PAYLOAD_BYTES_MAX).map_err(bad)?;
            let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
            self.note_plain(target.file, target.version, false, bytes);
            return self.take_all(target, &fetched, chunks);
        }
        let wide = if waits.packed { whole(contents.size) } else { waits.range };
        let pieces = pieces_of(target, &fetched, wide)?;
        self.keep_recipe(target, &fetched)?;
        let waits = Waits { container: fetched.packed == Some(true), ..waits };
        self.take_pieces(target, contents, pieces, waits, source).await
    }

    /// Takes pieces from the cache, and the others from the replica above.
    async fn take_pieces(
        &self,
        target: &Target<C::Container>,
        contents: Contents,
        pieces: Vec<Placed>,
        waits: Waits,
        source: Option<Source<C::Container>>,
    ) -> Result<(), Error> {
        let Waits { range, mut packed, container } = waits;
        let missing = self.take_from_cache(target, &pieces)?;
        let inside = match container && !packed {
            true => self.known_inside(target, &pieces, &missing).await?,
            false => None,
        };
        let source = self.offered((target.file, contents.size), source, &pieces, &missing)?;
        let most = self.request_bytes(inside.as_ref());
        let mut waiting: VecDeque<Wish> =
            requests(&pieces, &missing, most).into_iter().map(|ranges| (ranges, true)).collect();
        let mut under_way = tokio::task::JoinSet::new();
        let mut left = pieces;
        loop {
            // The first answer may bring all of a compressed container.
            while under_way.len() < if packed { 1 } else { REQUESTS_MAX } {
                let Some((ranges, as_delta)) = waiting.pop_front() else { break };
                let base = source.as_ref().filter(|_| as_delta).and_then(|source| {
                    let wanted = if packed { whole(contents.size) } else { span(&ranges) };
                    source.base(contents.size, wanted)
                });
                let inside = inside.clone().filter(|_| as_delta);
                let (file, version) = (target.file, target.version);
                let asked = Asked { file, version, class: target.class, base, packed, inside };
                under_way.spawn(self.clone().ask_ranges(asked, ranges));
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
                        _ if is_assembled(&delta) => self.undo_assembled(target, &delta)?,
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
            if std::mem::take(&mut packed) {
                // It may have brought all. If not, the reader does not wait for the rest of it.
                left.retain(|placed| placed.offset < range.offset + range.length);
                left.retain(|placed| range.offset < placed.end());
                waiting.retain(|(ranges, _)| lacks_some(&left, ranges));
            }
        }
        self.note_present(target, contents, &left)
    }

    /// What one request may ask for.
    fn request_bytes(&self, inside: Option<&KnownInside>) -> u64 {
        match inside {
            // What comes is a small part of what is asked for.
            Some(known) if is_most(known) => PAYLOAD_BYTES_MAX as u64,
            _ => Portions::of(&self.inner.upstream.quality()).request,
        }
    }

    async fn ask_ranges(
        self,
        asked: Asked,
        ranges: Vec<Range>,
    ) -> (Result<Response, Error>, Vec<Range>) {
        let Asked { file, version, class, base, packed, inside } = asked;
        let bytes = ranges.iter().map(|range| range.length).sum();
        let packed = (packed && base.is_some()).then_some(true);
        let request = Request::Read { file, version, ranges: ranges.clone(), base, packed, inside };
        (self.ask_for(class, bytes, request).await, ranges)
    }

    /// What to offer as a base for what is missing: the source, or what is like the pieces, if the
    /// link would take longer without a delta than making one takes.
    fn offered(
        &self,
        (file, size): (FileId, u64),
        source: Option<Source<C::Container>>,
        pieces: &[Placed],
        missing: &BTreeSet<ChunkName>,
    ) -> Result<Option<Source<C::Container>>, Error> {
        let source = match source {
            None if !missing.is_empty() => self.source_alike(file, pieces)?,
            source => source,
        };
        let is_missing = |placed: &&Placed| match placed.piece {
            Piece::Chunk { name, .. } => missing.contains(&name),
            Piece::Zeros { .. } => false,
        };
        let missing = || pieces.iter().filter(is_missing);
        let bytes: u64 = missing().map(|placed| placed.piece.length()).sum();
        let from = missing().map(|placed| placed.offset).min().unwrap_or(0);
        let to = missing().map(Placed::end).max().unwrap_or(from);
        let rate = self.inner.upstream.quality().likely_down();
        Ok(source.filter(|source| {
            let base = source.base(size, Range { offset: from, length: to - from });
            let both = bytes.saturating_add(base.map_or(0, |base| base.stretch.length));
            worth::effort(rate, bytes, both) == Some(Effort::Usual)
        }))
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
        let here = self.take_chunks(target, contents, &pieces, &chunks)?;
        Ok(without(pieces, &here))
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
        let whole = whole(fetched.contents.size);
        let pieces = pieces_of(target, fetched, whole)?;
        let here = self.take_chunks(target, fetched.contents, &pieces, &chunks)?;
        self.note_present(target, fetched.contents, &without(pieces, &here))
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
        self.ahead().held.keep(target.file, target.version, bytes);
        self.take_described(target, bytes, &described)
    }
}

/// What is left of pieces, in order, without some of them, in the same order.
fn without(mut pieces: Vec<Placed>, some: &[Placed]) -> Vec<Placed> {
    let mut next = some.iter().peekable();
    pieces.retain(|placed| next.next_if(|other| other.offset == placed.offset).is_none());
    pieces
}

fn whole(size: u64) -> Range {
    Range { offset: 0, length: size }
}

/// Whether chunks of these stretches are among what is left.
fn lacks_some(left: &[Placed], ranges: &[Range]) -> bool {
    let within = |placed: &Placed, range: &Range| {
        (range.offset..range.offset + range.length).contains(&placed.offset)
    };
    let chunks = left.iter().filter(|placed| matches!(placed.piece, Piece::Chunk { .. }));
    chunks.into_iter().any(|placed| ranges.iter().any(|range| within(placed, range)))
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

pub(crate) fn bad(error: ChunksError) -> Error {
    match error {
        ChunksError::Store(error) => error_of(error),
        error => {
            tracing::warn!(%error, "contents that arrived were not what they should be");
            Error::Failed(error.to_string())
        }
    }
}
