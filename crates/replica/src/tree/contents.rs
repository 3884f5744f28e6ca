//! Contents on their way between a tree and the chunks.
//! Holds: what is kept has the size that was stated, or it is an error; what is written out is
//! checked chunk by chunk.

use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::upkeep::Promise;
use crate::volumes::Volume;
use chunks::{Builder, ChunksError, Cut, Cutting};
use model::{ChunkName, Contents, Piece};
use protocol::Range;
use std::sync::Arc;
use store::StoreError;
use store::tree::TreeFile;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Pieces of a recipe that are looked at together.
const PIECES_MAX: usize = 4096;

/// Keeps the chunks of a file that has so many bytes. Errors: `SizeChanged`.
pub(super) fn keep(
    inner: &Arc<Inner>,
    volume: &Arc<Volume>,
    file: &TreeFile,
    size: u64,
) -> Result<Contents> {
    let mut keeping = Keeping::new(inner, volume, size);
    keeping.read_on(file, size)?;
    Ok(keeping.finish()?.0)
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
            inner.blobs.put(&volume.blob(name), bytes)?;
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

    fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Writes contents into a new file, which keeps their holes.
pub(super) fn write_out(
    inner: &Inner,
    volume: &Volume,
    contents: &Contents,
    file: &TreeFile,
) -> Result<()> {
    let fetch = |name: &ChunkName| inner.sound(volume, name);
    let mut offset = 0;
    while offset < contents.size {
        let range = Range { offset, length: contents.size - offset };
        let cover = chunks::cover(&volume.secret, contents, range, PIECES_MAX, fetch)?;
        if let Some(name) = cover.missing.first() {
            return Err(ReplicaError::Lost(volume.id, *name));
        }
        for placed in &cover.pieces {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            let bytes = fetch(&name)?.ok_or(ReplicaError::Lost(volume.id, name))?;
            if bytes.len() as u64 != length {
                let what = format!("{name} has {} bytes, not {length}", bytes.len());
                return Err(ChunksError::BadRecipe(what).into());
            }
            file.write(placed.offset, &bytes)?;
        }
        match cover.next {
            Some(next) if next > offset => offset = next,
            _ => break,
        }
    }
    file.set_length(contents.size)?;
    Ok(())
}
