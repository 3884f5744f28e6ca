//! What arrived, or is in the cache by another name, goes into the container.
//! Holds: bytes are checked before they reach it; nothing is written that somebody has begun to
//! change, and nothing counts as present that is not there.

use super::Target;
use crate::client::{Client, error_of};
use crate::home::note_home;
use crate::presence::Presence;
use crate::ranks::{self, Rank};
use crate::recipes;
use crate::room::taken;
use crate::types::Error;
use crate::unreadable::readable;
use chunks::index::{self, Place};
use chunks::{Described, Placed};
use model::{ChunkName, Contents, FileId, Piece};
use protocol::Upstream;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use store::container::Key;
use store::{Container, Containers, Durability, StoreError, Write};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Fills in what is in the cache already, by any name. Gives back what is not.
    pub(super) fn take_from_cache(
        &self,
        target: &Target<C::Container>,
        pieces: &[Placed],
    ) -> Result<BTreeSet<ChunkName>, Error> {
        let mut missing = Vec::new();
        let mut found_here = Vec::new();
        let mut wrong: Vec<(ChunkName, Place)> = Vec::new();
        let mut containers = BTreeMap::new();
        // What is noted meanwhile is not seen, and fetched as if it were not here.
        let read = self.inner.tables.read().map_err(error_of)?;
        for placed in pieces {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            let places = index::find(&*read, &name).map_err(error_of)?;
            let mut bytes = None;
            for (key, place) in self.where_now(&places) {
                let container = match containers.entry(key) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        let opened = readable(self.inner.containers.open(key, false));
                        entry.insert(opened.map_err(error_of)?.flatten())
                    }
                };
                let Some(container) = container else {
                    wrong.push((name, place));
                    continue;
                };
                let found = readable(container.read(place.offset, place.length as usize));
                let found = found.map_err(error_of)?.unwrap_or_default();
                if found.len() as u64 == length && target.secret.check(&name, &found).is_ok() {
                    bytes = Some(found);
                    break;
                }
                wrong.push((name, place));
            }
            match bytes {
                Some(bytes) => {
                    self.fill(target, placed.offset, &bytes)?;
                    found_here.push((name, place_of(target, placed)));
                }
                None => missing.push((name, *placed)),
            }
        }
        drop(read);
        let names: Vec<ChunkName> = missing.iter().map(|(name, _)| *name).collect();
        let within = self.chunks_within(&target.secret, &names)?;
        for (name, placed) in &missing {
            if let Some(bytes) = within.get(name) {
                self.fill(target, placed.offset, bytes)?;
                found_here.push((*name, place_of(target, placed)));
            }
        }
        let missing = names.into_iter().filter(|name| !within.contains_key(name)).collect();
        if !wrong.is_empty() || !found_here.is_empty() {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            for (name, place) in &wrong {
                index::forget(&mut *write, name, place).map_err(error_of)?;
            }
            // Where it was found may be gone when the next version is fetched.
            for (name, place) in found_here {
                index::note(&mut *write, &name, place).map_err(error_of)?;
            }
            write.commit(Durability::Later).map_err(error_of)?;
        }
        Ok(missing)
    }

    /// Takes in what came of these pieces: it is written, and counts as present. Gives back which
    /// they are.
    pub(super) fn take_chunks(
        &self,
        target: &Target<C::Container>,
        contents: Contents,
        pieces: &[Placed],
        chunks: &[Vec<u8>],
    ) -> Result<Vec<Placed>, Error> {
        let by_name: BTreeMap<ChunkName, &[u8]> =
            chunks.iter().map(|bytes| (target.secret.name(bytes), bytes.as_slice())).collect();
        let (mut filling, mut came) = (Vec::new(), Vec::new());
        for placed in pieces {
            let Piece::Chunk { name, length } = placed.piece else { continue };
            // A recipe may lie about a length: the chunk would not fit where it says.
            let fits = |bytes: &&&[u8]| bytes.len() as u64 == length;
            let Some(bytes) = by_name.get(&name).filter(fits) else { continue };
            filling.push((placed.offset, *bytes));
            came.push(*placed);
        }
        // Nobody writes over them before they count as present, so they need not be read again.
        let _still = ranks::write(Rank::Still, &target.still);
        if self.fill_still(target, &filling)? {
            self.note_checked(target, contents, &came, |write| {
                for placed in &came {
                    let Piece::Chunk { name, .. } = placed.piece else { continue };
                    index::note(write, &name, place_of(target, placed))?;
                }
                Ok(())
            })?;
        }
        Ok(came)
    }

    /// Writes all the contents, which have been checked and described, and counts them as present.
    pub(super) fn take_described(
        &self,
        target: &Target<C::Container>,
        bytes: &[u8],
        described: &Described,
    ) -> Result<(), Error> {
        let _still = ranks::write(Rank::Still, &target.still);
        if !self.fill_still(target, &[(0, bytes)])? {
            return Ok(());
        }
        self.note_checked(target, described.tree.contents, &described.pieces, |write| {
            crate::contents::note_places(write, (target.file, target.generation), described)?;
            described.tree.chunks.iter().try_for_each(|(name, _)| note_home(write, name))
        })
    }

    /// Writes checked bytes, unless somebody has begun to change the file.
    fn fill(&self, target: &Target<C::Container>, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let _still = ranks::write(Rank::Still, &target.still);
        self.fill_still(target, &[(offset, bytes)]).map(drop)
    }

    /// Writes checked bytes, for whoever sees to it that nobody writes meanwhile. False: somebody
    /// has begun to change the file.
    fn fill_still(
        &self,
        target: &Target<C::Container>,
        stretches: &[(u64, &[u8])],
    ) -> Result<bool, Error> {
        if self.is_overtaken(target) {
            return Ok(false);
        }
        let before = taken(&target.container).map_err(error_of)?;
        // On a disk that is full of what is pending a program reads all the same.
        let is_open =
            self.files().get(target.file, target.generation).is_some_and(|o| o.handles > 0);
        for (offset, bytes) in stretches {
            let written = match target.container.write(*offset, bytes) {
                Err(StoreError::Full(_)) if is_open => target.container.fill(*offset, bytes),
                outcome => outcome,
            };
            written.map_err(error_of)?;
        }
        let after = taken(&target.container).map_err(error_of)?;
        self.room_taken(after.saturating_sub(before));
        self.contents_written(Key { file: target.file.0, generation: target.generation });
        Ok(true)
    }

    /// The pieces are in the container now: checked piece by piece, so that what is missing
    /// from an answer is not taken for present.
    pub(super) fn note_present(
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
        self.note_checked(target, contents, pieces, |_| Ok(()))
    }

    /// The pieces are in the container, and are what they should be; `besides` goes with it.
    fn note_checked(
        &self,
        target: &Target<C::Container>,
        contents: Contents,
        pieces: &[Placed],
        besides: impl FnOnce(&mut dyn Write) -> Result<(), StoreError>,
    ) -> Result<(), Error> {
        let (whole, older) = {
            let mut files = self.files();
            let Some(open) = files.get_mut(target.file, target.generation) else { return Ok(()) };
            if !is_still(target, &open.presence) {
                return Ok(());
            }
            open.presence.contents = contents;
            for placed in pieces {
                open.presence.add(placed.offset, placed.piece.length());
                self.touch(open, placed.offset, placed.piece.length());
            }
            open.coming.some_came();
            let mut write = self.inner.tables.write().map_err(error_of)?;
            besides(&mut *write).map_err(error_of)?;
            if !open.beside {
                open.presence.save_in_place(&mut *write, target.file).map_err(error_of)?;
            }
            for placed in pieces {
                if let Piece::Chunk { name, .. } = placed.piece {
                    note_home(&mut *write, &name).map_err(error_of)?;
                }
            }
            write.commit(Durability::Later).map_err(error_of)?;
            self.inner.fetched.store(true, Ordering::Release);
            let whole = open.presence.is_whole();
            let replaces = whole && !open.beside;
            (whole, replaces.then(|| target.generation.checked_sub(1)).flatten())
        };
        if whole && recipes::is_kept(&contents) {
            self.keep_recipe_of_this(target, &contents)?;
        }
        older.map_or(Ok(()), |older| self.remove_older(target.file, older))
    }

    /// The version before is not needed as a source any more. One that was written to beside this may be
    /// all that there is of a store that is pending.
    fn remove_older(&self, file: FileId, generation: u32) -> Result<(), Error> {
        let core = self.core();
        if core.log.pending_store(file).is_some() || self.files().get(file, generation).is_some() {
            return Ok(());
        }
        let key = Key { file: file.0, generation };
        self.inner.containers.remove(key).map_err(error_of)
    }

    fn is_overtaken(&self, target: &Target<C::Container>) -> bool {
        self.files()
            .get(target.file, target.generation)
            .is_none_or(|open| !is_still(target, &open.presence))
    }
}

fn place_of<K>(target: &Target<K>, placed: &Placed) -> Place {
    Place {
        file: target.file,
        generation: target.generation,
        offset: placed.offset,
        length: u32::try_from(placed.piece.length()).expect("no chunk is longer than 1 MiB"),
    }
}

/// Nobody has begun to change the version that is fetched.
fn is_still<K>(target: &Target<K>, presence: &Presence) -> bool {
    let begun = presence.dirty.is_some() || presence.ground.is_some();
    !begun && presence.version == target.version
}
