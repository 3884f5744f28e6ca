//! What is here of a version, compared with what it should be.

use super::pass::{DESCRIBED_BYTES_MAX, WINDOW_BYTES};
use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::fetch::{Target, bad};
use crate::plan::describe_container;
use crate::presence::Presence;
use crate::ranks::{self, Rank};
use crate::recipes;
use crate::types::Error;
use chunks::{ChunksError, Growing, Placed, Secret, cover};
use model::{Contents, FileId, Piece, View};
use protocol::{Class, Range, Upstream};
use store::container::Key;
use store::{Container, Containers, StoreError};
use volume::partial::Tree;

/// Pieces of one window: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;
/// Zeros are read so many at once.
const ZEROS_AT_ONCE: u64 = 1 << 20;

/// A version that is here, as far as it is, and that nobody was changing.
#[derive(Clone)]
pub(super) struct Copy {
    pub file: FileId,
    pub presence: Presence,
    /// How urgent it is that what is wrong is fetched.
    pub class: Class,
}

/// How a window of it stands. Nothing is locked meanwhile: what seems wrong is looked at again.
pub(super) enum Stands {
    Sound,
    /// These pieces are not what they should be.
    Wrong(Vec<Placed>),
    /// What it should be is not known here, and it is not as it would be cut.
    Doubtful(Range),
}

pub(super) struct Look {
    pub copy: Copy,
    pub stands: Stands,
    /// That were read.
    pub bytes: u64,
    /// Where to go on.
    pub until: u64,
    pub is_unknown: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is here of a file's version that the server has, if nobody is changing it.
    pub(super) fn copy_of(
        &self,
        file: FileId,
        class: Class,
    ) -> Result<Option<(Copy, C::Container)>, StoreError> {
        let core = self.core();
        let files = self.files();
        let read = self.inner.tables.read()?;
        let open = files.newest_generation(file).and_then(|newest| files.get(file, newest));
        let (presence, container) = match open {
            Some(open) if open.is_clean() => {
                (Some(open.presence.clone()), Some(open.container.clone()))
            }
            Some(_) => (None, None),
            None => (Presence::load(&*read, file)?, None),
        };
        let Some(presence) = presence else { return Ok(None) };
        let is_server_s = presence.dirty.is_none()
            && presence.ground.is_none()
            && presence.contents.root.is_some()
            && core.log.pending_store(file).is_none();
        // What is not current goes by itself.
        let is_current = matches!(
            Tree::new(&*read, 0).node(file),
            Ok(Some(node)) if node.contents_stamp == presence.version
        );
        if !is_server_s || !is_current || presence.ranges.is_empty() {
            return Ok(None);
        }
        let key = Key { file: file.0, generation: presence.generation };
        let container = match container {
            Some(container) => Some(container),
            None => self.inner.containers.open(key, false)?,
        };
        Ok(container.map(|container| (Copy { file, presence, class }, container)))
    }

    /// Looks at a window of what is here. None: nothing is here that could be looked at.
    pub(super) fn look_at_window(
        &self,
        file: FileId,
        offset: u64,
        class: Class,
    ) -> Result<Option<Look>, Error> {
        if offset == 0 {
            self.forget_left_over(file).map_err(error_of)?;
        }
        let Some((copy, container)) = self.copy_of(file, class).map_err(error_of)? else {
            return Ok(None);
        };
        let contents = copy.presence.contents;
        let window =
            Range { offset, length: WINDOW_BYTES.min(contents.size.saturating_sub(offset)) };
        let end = window.offset + window.length;
        let look = |stands, bytes, until, is_unknown| {
            Ok(Some(Look { copy: copy.clone(), stands, bytes, until, is_unknown }))
        };
        let secret = self.secret().0;
        if recipes::is_kept(&contents) {
            let read = self.inner.tables.read().map_err(error_of)?;
            let found = cover(&secret, &contents, window, PIECES_MAX, |name| {
                let bytes = recipes::find(&*read, file, name)?;
                Ok(bytes.filter(|bytes| secret.check(name, bytes).is_ok()))
            })
            .map_err(bad)?;
            drop(read);
            let is_known = found.missing.is_empty() && found.next.is_none();
            let asks = copy.presence.is_whole() && contents.size > DESCRIBED_BYTES_MAX;
            if is_known || !copy.presence.is_whole() || (offset > 0 && !asks) {
                let until = until_data(&container, &found.pieces, end).map_err(error_of)?;
                let here = |placed: &Placed| clipped(placed, window);
                let pieces: Vec<Placed> = found.pieces.iter().filter_map(here).collect();
                let (wrong, bytes) =
                    wrong_among(&copy.presence, &container, &secret, pieces).map_err(error_of)?;
                let stands = if wrong.is_empty() { Stands::Sound } else { Stands::Wrong(wrong) };
                return look(stands, bytes, until.min(contents.size), !is_known);
            }
            if asks {
                return look(Stands::Doubtful(window), 0, end, false);
            }
        }
        if !copy.presence.is_whole() {
            return look(Stands::Sound, 0, contents.size, true);
        }
        let whole = Range { offset: 0, length: contents.size };
        let is_right = self.is_as_cut(&contents, &container)?;
        let stands = if is_right { Stands::Sound } else { Stands::Doubtful(whole) };
        look(stands, contents.data(), contents.size, false)
    }

    /// Cuts all of it, as whoever stored it did.
    pub(super) fn is_as_cut(
        &self,
        contents: &Contents,
        container: &C::Container,
    ) -> Result<bool, Error> {
        let (secret, cutter) = self.secret();
        let size = contents.size;
        if container.length().map_err(error_of)? < size {
            return Ok(false);
        }
        let growing = Growing::without_features(&secret, cutter);
        let described = describe_container(container, growing, size, 0, |_| Ok(()));
        match described {
            // What cannot be read is not right.
            Err(ChunksError::Store(error)) if error.is_unreadable() => Ok(false),
            described => Ok(described.map_err(of_chunks)?.tree.contents == *contents),
        }
    }

    /// The same of one that seemed not to be, while nobody can change it.
    pub(super) fn is_wrong_as_a_whole(&self, copy: &Copy) -> Result<bool, Error> {
        let _held = self.hold(copy.file, copy.presence.generation)?;
        let Some(grip) = self.grip_of(copy.file, copy.presence.generation) else {
            return Ok(false);
        };
        let _still = ranks::write(Rank::Still, &grip.still);
        Ok(self.has_still(copy, 0, copy.presence.contents.size)
            && !self.is_as_cut(&copy.presence.contents, &grip.container)?)
    }

    /// The pieces of a stretch that are not what the server says they should be.
    pub(super) async fn compare_with_asked(
        &self,
        copy: &Copy,
        stretch: Range,
    ) -> Result<Vec<Placed>, Error> {
        let (mut wrong, mut at) = (Vec::new(), stretch.offset);
        let end = stretch.offset + stretch.length;
        while at < end {
            let window = Range { offset: at, length: WINDOW_BYTES.min(end - at) };
            wrong.extend(self.compare_window_with_asked(copy, window).await?);
            at += window.length;
        }
        // A chunk that lies in two windows was looked at in both.
        wrong.dedup();
        Ok(wrong)
    }

    async fn compare_window_with_asked(
        &self,
        copy: &Copy,
        window: Range,
    ) -> Result<Vec<Placed>, Error> {
        let generation = copy.presence.generation;
        let _held = self.hold(copy.file, generation)?;
        let secret = self.secret().0;
        let target = {
            let files = self.files();
            let open = files.get(copy.file, generation);
            match open.filter(|open| open.presence.version == copy.presence.version) {
                Some(open) => Target::of(copy.file, open, secret),
                // Another version is current by now.
                None => return Ok(Vec::new()),
            }
        };
        let target = Target { class: copy.class, ..target };
        let size = copy.presence.contents.size;
        let (_, pieces) = self.pieces_of_version(&target, size, window).await?;
        let pieces = pieces.iter().filter_map(|placed| clipped(placed, window)).collect();
        let presence = copy.presence.clone();
        let compared = move || wrong_among(&presence, &target.container, &target.secret, pieces);
        let (wrong, _) = self.off_the_runtime(compared).await.map_err(error_of)?;
        Ok(wrong)
    }
}

/// Of a stretch of zeros, what is in the window: it can be as long as the file. A chunk is whole.
pub(super) fn clipped(placed: &Placed, window: Range) -> Option<Placed> {
    let end = window.offset + window.length;
    match placed.piece {
        Piece::Chunk { .. } => Some(*placed),
        Piece::Zeros { .. } => {
            let (from, to) = (placed.offset.max(window.offset), placed.end().min(end));
            let piece = Piece::Zeros { length: to.checked_sub(from)? };
            Some(Placed { offset: from, piece })
        }
    }
}

/// Where to go on behind a window: a hole that goes on behind it need not be looked at.
pub(super) fn until_data<K: Container>(
    container: &K,
    pieces: &[Placed],
    end: u64,
) -> Result<u64, StoreError> {
    let last = pieces.last().filter(|placed| matches!(placed.piece, Piece::Zeros { .. }));
    let Some(to) = last.map(Placed::end).filter(|to| *to > end) else { return Ok(end) };
    let data = container.data(end, to - end)?;
    Ok(data.first().map_or(to, |(from, _)| (*from).max(end)))
}

/// The pieces that are here and are not what they should be, and how many bytes were read.
pub(super) fn wrong_among<K: Container>(
    presence: &Presence,
    container: &K,
    secret: &Secret,
    pieces: Vec<Placed>,
) -> Result<(Vec<Placed>, u64), StoreError> {
    let (mut wrong, mut read) = (Vec::new(), 0);
    for placed in pieces {
        if presence.has(placed.offset, placed.piece.length())
            && !is_right(container, secret, &placed, &mut read)?
        {
            wrong.push(placed);
        }
    }
    Ok((wrong, read))
}

/// What cannot be read is not right.
pub(super) fn is_right<K: Container>(
    container: &K,
    secret: &Secret,
    placed: &Placed,
    read: &mut u64,
) -> Result<bool, StoreError> {
    let outcome = match &placed.piece {
        Piece::Chunk { name, length } => {
            *read += length;
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let bytes = container.read(placed.offset, length);
            bytes.map(|bytes| bytes.len() == length && secret.check(name, &bytes).is_ok())
        }
        Piece::Zeros { length } => are_zeros(container, placed.offset, *length, read),
    };
    match outcome {
        Err(StoreError::Io { .. }) => Ok(false),
        outcome => outcome,
    }
}

fn are_zeros<K: Container>(
    container: &K,
    offset: u64,
    length: u64,
    read: &mut u64,
) -> Result<bool, StoreError> {
    for (from, length) in container.data(offset, length)? {
        let mut at = from;
        while at < from + length {
            let step = ZEROS_AT_ONCE.min(from + length - at);
            let bytes = container.read(at, usize::try_from(step).unwrap_or(usize::MAX))?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
            *read += bytes.len() as u64;
        }
    }
    Ok(true)
}
