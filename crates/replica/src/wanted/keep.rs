//! Noting what is missing, asking for it, and taking it back: where the stores are touched.

use super::{Lacking, Look, Round, WantedRow, by_version, delete_row, put_row};
use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{ChunkName, Contents, FileId, Stamp};
use protocol::{Payload, Refusal, WANTED_CHUNKS_MAX, Wanted};
use std::collections::BTreeSet;
use store::{Durability, Writes};
use tracing::{error, info, warn};
use volume::whole::{self, Whole};

/// Contents up to so many bytes are read whole when one chunk of them is found missing, so that
/// all that is missing is asked for at once.
const READ_WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Looks for what can be asked for: each takes one answer's worth out of what has settled itself.
const TRIES_MAX: usize = 64;

impl Inner {
    /// What was to be read of a version. Where that failed because chunks are missing, they are
    /// wanted from now on, with whatever else the version lacks.
    pub fn wanting<T>(
        &self,
        volume: &Volume,
        (file, version): (FileId, Stamp),
        contents: &Contents,
        outcome: Result<T>,
    ) -> Result<T> {
        if let Err(ReplicaError::Lost(..)) = &outcome {
            let look = match contents.size <= READ_WHOLE_BYTES_MAX {
                true => Look::Bytes,
                false => Look::Index,
            };
            self.want_of(volume, (file, version), contents, look);
        }
        outcome
    }

    /// Notes what a version lacks. What cannot be noted is found again by whoever misses it.
    fn want_of(&self, volume: &Volume, of: (FileId, Stamp), contents: &Contents, look: Look) {
        match Lacking::of(self, (volume.id, &volume.secret), contents, look) {
            Ok(lacking) => {
                self.want(volume, of, &lacking);
            }
            Err(error) => {
                error!(volume = volume.name, file = %of.0, %error, "a version cannot be looked through");
            }
        }
    }

    /// Notes these chunks of a version, and says so in the log once, where a server can ask for them
    /// later. Gives back how many were not noted before.
    pub fn want(
        &self,
        volume: &Volume,
        (file, version): (FileId, Stamp),
        lacking: &Lacking,
    ) -> usize {
        let since = self.world.clock.time().secs;
        let row = |is_recipe| WantedRow { since, file, version, is_recipe };
        let data = lacking.data.iter().map(|name| (*name, row(false)));
        let recipe = lacking.recipe.iter().map(|name| (*name, row(true)));
        let fresh = volume.wanted.note(data.chain(recipe));
        if fresh.is_empty() || self.writes == Writes::Forgotten {
            return fresh.len();
        }
        let noted = self.tables.read().map_err(ReplicaError::from).and_then(|read| {
            let path = whole::path_of(&*read, volume.id, file);
            error!(
                volume = volume.name, path, %version, chunks = fresh.len(),
                "contents are damaged or missing: devices are asked for them when they next renew \
                 or attach; `farfs check` says what is left"
            );
            let mut write = self.tables.write()?;
            for (chunk, row) in &fresh {
                put_row(&mut *write, volume.id, chunk, row)?;
            }
            Ok(write.commit(Durability::Later)?)
        });
        if let Err(error) = noted {
            warn!(volume = volume.name, %error, "what is missing could not be written down");
        }
        fresh.len()
    }

    /// Notes what some versions of a volume lack, beginning with a row. Gives back where to go on.
    pub fn want_page(&self, volume: &Volume, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let (versions, next) = {
            let read = self.tables.read()?;
            whole::versions_of_contents(&*read, volume.id, from)?
        };
        for (file, version, contents) in versions {
            self.want_of(volume, (file, version), &contents, Look::Index);
        }
        Ok(next)
    }

    /// What one session is asked for next; none where nothing is missing.
    pub fn ask(&self, volume: &Volume, round: &mut Round) -> Result<Option<Wanted>> {
        let mut asked = Vec::new();
        for _ in 0..TRIES_MAX {
            let room = WANTED_CHUNKS_MAX - asked.len();
            if room == 0 || volume.wanted.len() == 0 {
                break;
            }
            let next = volume.wanted.next(round, room);
            if next.is_empty() {
                break;
            }
            asked.extend(self.still_missing(volume, next)?);
        }
        let missing = volume.wanted.len() as u64;
        Ok((missing > 0).then(|| Wanted { missing, versions: by_version(asked) }))
    }

    /// Forgets what has come in another way, and what no version names any more.
    pub fn settle_wanted(&self, volume: &Volume) -> Result<()> {
        let rows = volume.wanted.chunks().into_iter();
        let rows = rows.filter_map(|chunk| Some((chunk, volume.wanted.row(&chunk)?))).collect();
        self.still_missing(volume, rows).map(drop)
    }

    fn still_missing(
        &self,
        volume: &Volume,
        rows: Vec<(ChunkName, WantedRow)>,
    ) -> Result<Vec<(ChunkName, WantedRow)>> {
        let (mut missing, mut settled) = (Vec::new(), Vec::new());
        {
            let read = self.tables.read()?;
            let view = Whole::now(&*read, volume.id);
            for (chunk, row) in rows {
                let is_here = self.blobs.has(&volume.blob(&chunk))?;
                if is_here || view.contents(row.file, row.version)?.is_none() {
                    settled.push(chunk);
                } else {
                    missing.push((chunk, row));
                }
            }
        }
        self.forget_wanted(volume, &settled)?;
        Ok(missing)
    }

    fn forget_wanted(&self, volume: &Volume, chunks: &[ChunkName]) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        // What came is on the disk before it is forgotten that it was missing.
        self.blobs.sync()?;
        let mut write = self.tables.write()?;
        for chunk in chunks {
            delete_row(&mut *write, volume.id, chunk)?;
        }
        write.commit(Durability::Later)?;
        volume.wanted.forget(chunks);
        Ok(())
    }

    /// These chunks have been stored, and some may have been missing.
    pub fn came_back(&self, volume: &Volume, chunks: &[ChunkName]) -> Result<()> {
        let back: Vec<(ChunkName, WantedRow)> =
            chunks.iter().filter_map(|chunk| Some((*chunk, volume.wanted.row(chunk)?))).collect();
        if back.is_empty() {
            return Ok(());
        }
        let names: Vec<ChunkName> = back.iter().map(|(chunk, _)| *chunk).collect();
        self.forget_wanted(volume, &names)?;
        // Of what hangs below a recipe chunk nothing was known, and of a version that lacks very
        // much not all was noted.
        let of = |row: &WantedRow| (row.file, row.version);
        let above = back.iter().filter(|(_, row)| row.is_recipe).map(|(_, row)| of(row));
        let mut again: BTreeSet<(FileId, Stamp)> = above.collect();
        again.extend(volume.wanted.without_rows(back.iter().map(|(_, row)| of(row))));
        for (file, version) in again {
            let contents = {
                let read = self.tables.read()?;
                Whole::now(&*read, volume.id).contents(file, version)?
            };
            if let Some((contents, _)) = contents {
                self.want_of(volume, (file, version), &contents, Look::Index);
            }
        }
        let left = volume.wanted.len();
        info!(
            volume = volume.name,
            chunks = names.len(),
            left,
            "chunks that were missing are back"
        );
        Ok(())
    }

    /// Keeps chunks of a device that may only read: those that are missing. Those that are here
    /// are passed over; with any other, nothing is kept.
    pub fn put_wanted(&self, volume: &Volume, payload: &Payload) -> Result<(), Refusal> {
        let unpacked = chunks::Unpacked::of(payload, protocol::PAYLOAD_BYTES_MAX)
            .map_err(|error| Refusal::Malformed(error.to_string()))?;
        let failed = |error: store::StoreError| {
            self.refuse(&ReplicaError::from(error), volume, "look for chunks")
        };
        let mut wanted = Vec::new();
        for chunk in unpacked.chunks() {
            let name = volume.secret.name(chunk);
            if volume.wanted.has(&name) {
                wanted.push(chunk);
            } else if !self.blobs.has(&volume.blob(&name)).map_err(failed)? {
                return Err(Refusal::ReadOnly);
            }
        }
        let promise = self.upkeep.promises.current();
        crate::examine::put_chunks(self, volume, &promise, &wanted).map(drop)
    }
}
