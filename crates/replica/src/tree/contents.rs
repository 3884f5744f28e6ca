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
use store::StoreError;
use store::tree::TreeFile;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Pieces of a recipe that are looked at together.
const PIECES_MAX: usize = 4096;

/// Keeps the chunks of a file that has so many bytes. Errors: `SizeChanged`.
pub(super) fn keep(inner: &Inner, volume: &Volume, file: &TreeFile, size: u64) -> Result<Contents> {
    let builder = Builder::new(&volume.secret);
    let promise = inner.upkeep.promises.current();
    let mut keeping = Keeping { inner, volume, builder, promise, failed: None };
    let mut cutting = Cutting::new(volume.cutter, size);
    let mut offset = 0;
    while offset < size && keeping.failed.is_none() {
        let data = file.data_after(offset)?.unwrap_or(size).min(size);
        if data > offset {
            cutting.push_zeros(data - offset);
            offset = data;
            continue;
        }
        let left = usize::try_from(size - offset).unwrap_or(READ_BYTES);
        let bytes = file.read(offset, READ_BYTES.min(left))?;
        if bytes.is_empty() {
            break;
        }
        cutting.push(&bytes, &mut |cut| keeping.take(cut));
        offset += bytes.len() as u64;
    }
    cutting.finish(&mut |cut| keeping.take(cut))?;
    if let Some(error) = keeping.failed {
        return Err(error.into());
    }
    let tree = keeping.builder.finish();
    for (name, bytes) in &tree.chunks {
        keeping.promise.note(volume.id, name);
        inner.blobs.put(&volume.blob(name), bytes)?;
    }
    Ok(tree.contents)
}

struct Keeping<'a> {
    inner: &'a Inner,
    volume: &'a Volume,
    builder: Builder<'a>,
    /// The update that will name these chunks is not committed yet.
    promise: Promise,
    failed: Option<StoreError>,
}

impl Keeping<'_> {
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
