//! Contents on their way between a tree and the chunks.
//! Holds: what is kept has the size that was stated, or it is an error; what is written out is
//! checked chunk by chunk.

use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::upkeep::Promise;
use crate::volumes::Volume;
use chunks::{Builder, ChunksError, Cut, Cutting, Placed};
use model::{ChunkName, Contents, Piece};
use protocol::Range;
use std::sync::Arc;
use store::StoreError;
use store::tree::TreeFile;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Pieces of a recipe that are looked at together.
const PIECES_MAX: usize = 4096;
/// A piece that is there already takes as long as so many bytes that are written.
const SAME_BYTES: u64 = 512;

/// Keeps the chunks of a file that has so many bytes, which stay as long as the promise. Errors:
/// `SizeChanged`.
pub(super) fn keep(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    file: &TreeFile,
    size: u64,
) -> Result<(Contents, Promise)> {
    let mut keeping = Keeping::new(inner, volume, size);
    keeping.read_on(file, size)?;
    keeping.finish()
}

/// A file of which so much is kept as was read.
pub(super) struct Keeping {
    size: u64,
    offset: u64,
    cutting: Cutting,
    kept: Kept,
}

struct Kept {
    inner: Arc<Inner>,
    volume: Arc<Volume>,
    builder: Builder,
    /// The update that will name these chunks is not committed yet.
    promise: Promise,
    failed: Option<StoreError>,
}

impl Keeping {
    /// Of a file that has so many bytes.
    pub fn new(inner: &Arc<Inner>, volume: &Arc<Volume>, size: u64) -> Keeping {
        let builder = Builder::new(&volume.secret);
        let promise = inner.upkeep.promises.current();
        let (inner, volume) = (inner.clone(), volume.clone());
        let cutting = Cutting::new(volume.cutter, size);
        let kept = Kept { inner, volume, builder, promise, failed: None };
        Keeping { size, offset: 0, cutting, kept }
    }

    /// Reads up to so many bytes more. True: there are no more.
    pub fn read_on(&mut self, file: &TreeFile, bytes_max: u64) -> Result<bool> {
        let mut left = bytes_max;
        while self.offset < self.size {
            if left == 0 {
                return Ok(false);
            }
            let data = file.data_after(self.offset)?.unwrap_or(self.size).min(self.size);
            if data > self.offset {
                self.cutting.push_zeros(data - self.offset);
                self.offset = data;
                continue;
            }
            let wanted = (self.size - self.offset).min(left);
            let wanted = usize::try_from(wanted).map_or(READ_BYTES, |w| w.min(READ_BYTES));
            let bytes = file.read(self.offset, wanted)?;
            if bytes.is_empty() {
                break;
            }
            let kept = &mut self.kept;
            self.cutting.push(&bytes, &mut |cut| kept.take(cut));
            kept.check()?;
            self.offset += bytes.len() as u64;
            left = left.saturating_sub(bytes.len() as u64);
        }
        Ok(true)
    }

    /// What was kept, which stays as long as the promise. Errors: `SizeChanged`.
    pub fn finish(self) -> Result<(Contents, Promise)> {
        let Keeping { cutting, mut kept, .. } = self;
        cutting.finish(&mut |cut| kept.take(cut))?;
        kept.check()?;
        let Kept { inner, volume, builder, promise, .. } = kept;
        let tree = builder.finish();
        for (name, bytes) in &tree.chunks {
            promise.note(volume.id, name);
            inner.blobs.put(&volume.blob(name), bytes).map_err(ChunksError::Store)?;
        }
        Ok((tree.contents, promise))
    }
}

impl Kept {
    fn take(&mut self, cut: Cut<'_>) {
        let piece = match cut {
            Cut::Zeros(length) => Piece::Zeros { length },
            Cut::Chunk(bytes) => {
                let name = self.volume.secret.name(bytes);
                if self.failed.is_none() {
                    self.promise.note(self.volume.id, &name);
                    self.failed = self.inner.blobs.put(&self.volume.blob(&name), bytes).err();
                }
                Piece::Chunk { name, length: bytes.len() as u64 }
            }
        };
        self.builder.push(piece);
    }

    /// Errors: `ChunksError::Store`, which tells it from a file that cannot be read.
    fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |error| Err(ChunksError::Store(error).into()))
    }
}

/// Contents that are written into a file of which so much is as they are.
pub(super) struct Writing {
    pub contents: Contents,
    offset: u64,
    /// What stands in the file from its beginning up to here is as these contents.
    under: Option<(Contents, u64)>,
    /// From here on the file has nothing.
    reach: u64,
}

impl Writing {
    /// Into a file that has nothing.
    pub fn new(contents: &Contents) -> Writing {
        Writing { contents: *contents, offset: 0, under: None, reach: 0 }
    }

    /// Into a file that has other contents. `reach`: and so many bytes.
    pub fn over(under: Contents, reach: u64, contents: &Contents) -> Writing {
        let under = Some((under, reach.min(under.size)));
        Writing { contents: *contents, offset: 0, under, reach }
    }

    /// The file is to have other contents instead: what has been written stands for the same.
    pub fn go_over_to(self, contents: &Contents) -> Writing {
        let reach = self.reach.max(self.offset);
        let under = Some((self.contents, self.offset));
        Writing { contents: *contents, offset: 0, under, reach }
    }

    /// Bytes of the file from where it is at to its end.
    pub fn left(&self) -> u64 {
        self.contents.size.saturating_sub(self.offset)
    }

    /// Writes pieces that are not there, about so many bytes of them. True: all is as it should be.
    pub fn write_on(
        &mut self,
        (inner, volume): (&Inner, &Volume),
        file: &TreeFile,
        bytes_max: u64,
    ) -> Result<bool> {
        let fetch = |name: &ChunkName| inner.sound(volume, name);
        let (size, mut left) = (self.contents.size, bytes_max);
        while self.offset < size {
            if left == 0 {
                return Ok(false);
            }
            let range = Range { offset: self.offset, length: left.min(size - self.offset) };
            let cover = chunks::cover(&volume.secret, &self.contents, range, PIECES_MAX, fetch)?;
            if let Some(name) = cover.missing.first() {
                return Err(ReplicaError::Lost(volume.id, *name));
            }
            let there = self.there((inner, volume), range);
            for placed in &cover.pieces {
                let cost = match placed.piece {
                    _ if stands(&there, placed) => SAME_BYTES,
                    Piece::Zeros { length } => {
                        file.punch(
                            placed.offset,
                            length.min(self.reach.saturating_sub(placed.offset)),
                        )?;
                        SAME_BYTES
                    }
                    Piece::Chunk { name, length } => {
                        let bytes = fetch(&name)?.ok_or(ReplicaError::Lost(volume.id, name))?;
                        if bytes.len() as u64 != length {
                            let what = format!("{name} has {} bytes, not {length}", bytes.len());
                            return Err(ChunksError::BadRecipe(what).into());
                        }
                        file.write(placed.offset, &bytes)?;
                        length
                    }
                };
                left = left.saturating_sub(cost);
                self.offset = placed.end();
            }
            if self.offset <= range.offset {
                let what = format!("nothing stands for what is at {}", range.offset);
                return Err(ChunksError::BadRecipe(what).into());
            }
        }
        file.set_length(size)?;
        Ok(true)
    }

    /// Pieces of a stretch as they stand in the file. Where the recipe that says it cannot be had
    /// any more, none are known.
    fn there(&self, (inner, volume): (&Inner, &Volume), range: Range) -> Vec<Placed> {
        let Some((under, upto)) = &self.under else { return Vec::new() };
        let fetch = |name: &ChunkName| inner.sound(volume, name);
        let cover = chunks::cover(&volume.secret, under, range, PIECES_MAX, fetch);
        let mut pieces = cover.unwrap_or_default().pieces;
        pieces.retain(|placed| placed.end() <= *upto);
        pieces
    }
}

/// Whether a piece is one of those, which are in their order.
fn stands(there: &[Placed], placed: &Placed) -> bool {
    let found = there.binary_search_by_key(&placed.offset, |there| there.offset);
    found.is_ok_and(|at| there[at] == *placed)
}

/// Writes contents into a new file, which keeps their holes.
pub(super) fn write_out(
    inner: &Inner,
    volume: &Volume,
    contents: &Contents,
    file: &TreeFile,
) -> Result<()> {
    Writing::new(contents).write_on((inner, volume), file, u64::MAX).map(|_| ())
}
