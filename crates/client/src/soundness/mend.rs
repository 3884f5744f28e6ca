//! What is not as the server has it is written anew, in its place.
//! Holds: of one file chunks are in memory for one portion at a time; each is written by itself, where
//! something else is than it should be, so that a crash leaves some of them right and none worse.

use super::NO_LINK;
use super::compare::{Copy, is_right};
use crate::client::{Client, error_of};
use crate::fetch::bad;
use crate::portions::{Portions, requests};
use crate::ranks::{self, Rank};
use crate::types::Error;
use chunks::{Placed, Secret, unpack};
use model::{ChunkName, FileId, Piece, Stamp};
use protocol::{Class, PAYLOAD_BYTES_MAX, Request, Response, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use store::{Container, Containers, StoreError};

/// What became of some pieces that seemed to be wrong.
#[derive(Default)]
pub(super) struct Mended {
    /// They were wrong, and are right now.
    pub bytes: u64,
    /// They are wrong still, and why.
    pub left: Option<(u64, String)>,
}

impl Mended {
    fn leave(&mut self, bytes: u64, why: impl Into<String>) {
        let (so_far, _) = self.left.take().unwrap_or_default();
        self.left = Some((so_far + bytes, why.into()));
    }
}

pub(super) type Chunks = BTreeMap<ChunkName, Vec<u8>>;

/// The bytes of chunks that are in memory at once, or one chunk.
const PORTION_BYTES: u64 = 4 << 20;

/// The same pieces, in portions. Zeros take no memory.
pub(super) fn portions(mut pieces: &[Placed]) -> impl Iterator<Item = &[Placed]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |placed: &&Placed| {
            bytes += match placed.piece {
                Piece::Chunk { length, .. } => length,
                Piece::Zeros { .. } => 0,
            };
            bytes <= PORTION_BYTES
        };
        let count = pieces.iter().take_while(fits).count().max(1).min(pieces.len());
        let (portion, behind) = pieces.split_at(count);
        pieces = behind;
        (!portion.is_empty()).then_some(portion)
    })
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Writes pieces anew that are wrong, while nobody can change the file.
    pub(super) async fn mend(&self, copy: &Copy, pieces: Vec<Placed>) -> Mended {
        let mut mended = Mended::default();
        let Ok(_held) = self.hold(copy.file, copy.presence.generation) else { return mended };
        let bytes = |pieces: &[Placed]| pieces.iter().map(|placed| placed.piece.length()).sum();
        let all = bytes(&pieces);
        let wrong = match self.confirmed(copy, pieces).await {
            Ok(wrong) => wrong,
            Err(error) => {
                mended.leave(all, error.to_string());
                return mended;
            }
        };
        for portion in portions(&wrong) {
            self.mend_portion(copy, portion, &mut mended).await;
        }
        if mended.bytes > 0 {
            self.show_anew(copy);
        }
        mended
    }

    async fn mend_portion(&self, copy: &Copy, wrong: &[Placed], mended: &mut Mended) {
        let (found, lacking) = self.right_chunks(copy, wrong).await;
        for &placed in wrong {
            let right = match &placed.piece {
                Piece::Zeros { .. } => Some(None),
                Piece::Chunk { name, .. } => found.get(name).cloned().map(Some),
            };
            let length = placed.piece.length();
            match right {
                None => mended.leave(length, lacking.clone().unwrap_or_default()),
                Some(right) => match self.write_anew(copy, placed, right).await {
                    Ok(true) => mended.bytes += length,
                    // It is another version by now, or right.
                    Ok(false) => {}
                    // Of its first or last block the rest, which is another's, cannot be read.
                    Err(Error::Unreadable(_)) => match self.fetch_anew(copy, &placed).await {
                        Ok(()) => mended.bytes += length,
                        Err(error) => mended.leave(length, error.to_string()),
                    },
                    Err(error) => mended.leave(length, error.to_string()),
                },
            }
        }
    }

    /// The pieces that are wrong also when nobody can be changing them.
    pub(super) async fn confirmed(
        &self,
        copy: &Copy,
        pieces: Vec<Placed>,
    ) -> Result<Vec<Placed>, Error> {
        let (client, copy, secret) = (self.clone(), copy.clone(), self.secret().0);
        let confirm = move || {
            let mut wrong = Vec::new();
            for placed in pieces {
                if client.stands_wrong(&copy, &secret, &placed)? {
                    wrong.push(placed);
                }
            }
            Ok(wrong)
        };
        self.off_the_runtime(confirm).await.map_err(error_of)
    }

    fn stands_wrong(
        &self,
        copy: &Copy,
        secret: &Secret,
        placed: &Placed,
    ) -> Result<bool, StoreError> {
        let Some(grip) = self.grip_of(copy.file, copy.presence.generation) else {
            return Ok(false);
        };
        // Who writes, fills, or lets stretches go waits from here on.
        let _still = ranks::write(Rank::Still, &grip.still);
        let Some(grip) = self.still_open(&grip) else { return Ok(false) };
        Ok(self.has_still(copy, placed.offset, placed.piece.length())
            && !is_right(&grip.container, secret, placed, &mut 0)?)
    }

    /// Nobody has changed it, or begun to, and the stretch has not left.
    pub(super) fn has_still(&self, copy: &Copy, offset: u64, length: u64) -> bool {
        let files = self.files();
        let open = files.get(copy.file, copy.presence.generation);
        open.is_some_and(|open| {
            open.is_clean()
                && open.presence.version == copy.presence.version
                && open.presence.has(offset, length)
        })
    }

    /// The chunks as they should be: from elsewhere in the cache, or over the link. And why some are
    /// not to be had.
    async fn right_chunks(&self, copy: &Copy, wrong: &[Placed]) -> (Chunks, Option<String>) {
        let secret = self.secret().0;
        let (mut found, lacking) = self.chunks_elsewhere(&secret, wrong);
        if lacking.is_empty() {
            return (found, None);
        }
        if !self.connection().attached {
            return (found, Some(NO_LINK.into()));
        }
        let of = (copy.file, copy.presence.version, copy.class);
        let why = match self.ask_chunks(of, wrong, &lacking, &secret).await {
            Ok(came) => {
                found.extend(came);
                "the server did not send it".into()
            }
            Err(error) => error.to_string(),
        };
        (found, Some(why))
    }

    /// Those that other containers here have, and the names of the others.
    pub(super) fn chunks_elsewhere(
        &self,
        secret: &Secret,
        wrong: &[Placed],
    ) -> (Chunks, BTreeSet<ChunkName>) {
        let (mut found, mut lacking) = (Chunks::new(), BTreeSet::new());
        for placed in wrong {
            let Piece::Chunk { name, .. } = placed.piece else { continue };
            match self.chunk_here(secret, &name) {
                Ok(Some(bytes)) => {
                    found.insert(name, bytes);
                }
                // What cannot be read here may be had there.
                Ok(None) | Err(_) => {
                    lacking.insert(name);
                }
            }
        }
        (found, lacking)
    }

    /// Of a version that the replica above has, the chunks that are lacking among these pieces.
    pub(super) async fn ask_chunks(
        &self,
        (file, version, class): (FileId, Stamp, Class),
        wrong: &[Placed],
        lacking: &BTreeSet<ChunkName>,
        secret: &Secret,
    ) -> Result<Chunks, Error> {
        let mut came = Chunks::new();
        let most = Portions::of(&self.inner.upstream.quality()).request;
        for ranges in requests(wrong, lacking, most) {
            let bytes = ranges.iter().map(|range| range.length).sum();
            let (base, packed, inside) = (None, None, None);
            let request = Request::Read { file, version, ranges, base, packed, inside };
            match self.ask_for(class, bytes, request).await? {
                Response::Bytes(payload) => {
                    for chunk in unpack(&payload, PAYLOAD_BYTES_MAX).map_err(bad)? {
                        came.insert(secret.name(&chunk), chunk);
                    }
                }
                other => return Err(crate::asking::unexpected("read", &other)),
            }
        }
        Ok(came)
    }

    /// Puts a piece where it belongs. False: it is right by now, or has left, or is another's.
    pub(super) async fn write_anew(
        &self,
        copy: &Copy,
        placed: Placed,
        right: Option<Vec<u8>>,
    ) -> Result<bool, Error> {
        let (client, copy, secret) = (self.clone(), copy.clone(), self.secret().0);
        let write = move || {
            let Some(grip) = client.grip_of(copy.file, copy.presence.generation) else {
                return Ok(false);
            };
            let _still = ranks::write(Rank::Still, &grip.still);
            let Some(grip) = client.still_open(&grip) else { return Ok(false) };
            if !client.has_still(&copy, placed.offset, placed.piece.length())
                || is_right(&grip.container, &secret, &placed, &mut 0)?
            {
                return Ok(false);
            }
            match right {
                Some(bytes) => grip.container.write(placed.offset, &bytes)?,
                None => grip.container.punch(placed.offset, placed.piece.length())?,
            }
            grip.container.sync()?;
            Ok(true)
        };
        self.off_the_runtime(write).await.map_err(error_of)
    }

    /// It leaves, with what cannot be read beside it, and is fetched.
    async fn fetch_anew(&self, copy: &Copy, placed: &Placed) -> Result<(), Error> {
        let (generation, length) = (copy.presence.generation, placed.piece.length());
        self.let_unreadable_go((copy.file, generation), (placed.offset, length)).await?;
        self.fetch(copy.file, generation, placed.offset, length).await
    }

    /// What the kernel has of the file it asks for again.
    pub(super) fn show_anew(&self, copy: &Copy) {
        let Some(kernel) = self.inner.kernel.get() else { return };
        if !kernel.forget_node(copy.file, true) {
            // Whoever opens it next does not go by what the kernel has.
            self.files().forget_shown(copy.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::CHUNK_NAME_BYTES;

    #[test]
    fn a_portion_fits_or_is_one_chunk_and_none_is_left_out() {
        let chunk = |offset, length| {
            let piece = Piece::Chunk { name: ChunkName([7; CHUNK_NAME_BYTES]), length };
            Placed { offset, piece }
        };
        let half = PORTION_BYTES / 2;
        let zeros = Placed { offset: 2, piece: Piece::Zeros { length: 100 * PORTION_BYTES } };
        let large = chunk(4, PORTION_BYTES + 1);
        let pieces =
            [chunk(0, half), chunk(1, half), zeros, chunk(3, 1), large, chunk(5, half), zeros];
        let found: Vec<&[Placed]> = portions(&pieces).collect();
        assert_eq!(found, [&pieces[..3], &pieces[3..4], &pieces[4..5], &pieces[5..]]);
        assert_eq!(portions(&[]).count(), 0);
    }
}
