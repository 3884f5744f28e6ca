//! Fetching what a file lacks from the version that it was written upon.
//! Holds: bytes are checked before they reach the container, and go only where nothing is yet.

use super::steps::Steps;
use super::{Shelf, Wanting, opened_record};
use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::fetch::{STEP_BYTES, bad};
use crate::home::note_home;
use crate::portions::{Portions, REQUESTS_MAX, requests};
use crate::presence::{Ground, Presence};
use crate::ranks::{self, Rank};
use crate::types::Error;
use crate::undo::of_log;
use chunks::index::{self, Place};
use chunks::{Placed, Secret, cover, unpack};
use model::{ChunkName, Contents, FileId, Piece, Stamp};
use protocol::{Class, PAYLOAD_BYTES_MAX, Range, Request, Response, Upstream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use store::{Container, Containers, Durability};
use tokio::task::JoinSet;
use update_log::Record;

/// Pieces that are fetched at once: chunks of 2 KiB at the least.
const PIECES_MAX: usize = 1 << 16;
/// Recipes that are asked for at once.
const RECIPES_MAX: usize = 8;
/// Questions for recipe chunks of which each has to bring some: more than a tree has depths.
const ROUNDS_MAX: usize = 64;

/// An open file and its ground.
struct Upon<K> {
    file: FileId,
    generation: u32,
    /// The file of which the ground is a version.
    of: FileId,
    version: Stamp,
    contents: Contents,
    container: K,
    still: Arc<RwLock<()>>,
    shelf: Arc<Shelf>,
    secret: Secret,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What a reader lacks of a file with a ground, with what is worth a round trip besides. None:
    /// the file has no ground.
    pub(crate) fn wanted_of_ground(
        &self,
        file: FileId,
        generation: u32,
        offset: u64,
        length: u64,
    ) -> Option<Wanting> {
        let portions = Portions::of(&self.inner.upstream.quality()).within(self.window_most());
        let mut files = self.files();
        let open = files.get_mut(file, generation)?;
        open.presence.ground.as_ref()?;
        let length = match open.presence.has(offset, length) {
            true => 0,
            false => length.max(open.widen(&portions, offset)),
        };
        let bytes = open.presence.absent(offset, offset.saturating_add(length));
        Some(Wanting { recipe: Vec::new(), bytes })
    }

    pub(crate) async fn fetch_ground(
        &self,
        file: FileId,
        generation: u32,
        wanting: Wanting,
    ) -> Result<(), Error> {
        let _held = self.hold(file, generation)?;
        let fetching = match self.files().get(file, generation) {
            Some(open) => open.fetching.clone(),
            None => return Ok(()),
        };
        let _alone = fetching.write().await;
        self.get_of_ground(file, generation, wanting).await
    }

    /// For who has the fetching of this file to itself.
    pub(crate) async fn get_of_ground(
        &self,
        file: FileId,
        generation: u32,
        wanting: Wanting,
    ) -> Result<(), Error> {
        if wanting.recipe.is_empty() && wanting.bytes.is_empty() {
            return Ok(());
        }
        self.inner.counters.misses.fetch_add(1, Ordering::Relaxed);
        match self.get_now(file, generation, &wanting).await {
            // What was stored upon it has been taken since, and is its own ground.
            Err(Error::Stale) if self.stands_alone(file, generation)? => {
                self.get_now(file, generation, &wanting).await
            }
            outcome => outcome,
        }
    }

    async fn get_now(&self, file: FileId, generation: u32, wanting: &Wanting) -> Result<(), Error> {
        let Some(mut upon) = self.upon(file, generation) else { return Ok(()) };
        // What is much comes in steps.
        let mut steps = Steps::of(&wanting.recipe);
        while let Some(stretches) = steps.next(STEP_BYTES) {
            self.get_recipes(&mut upon, &stretches).await?;
            steps.go_on_from(known_until(&upon, &stretches)?);
        }
        let mut steps = Steps::of(&wanting.bytes);
        while let Some(stretches) = steps.next(STEP_BYTES) {
            self.get_recipes(&mut upon, &stretches).await?;
            self.get_bytes(&upon, &stretches).await?;
            steps.go_on_from(known_until(&upon, &stretches)?);
        }
        Ok(())
    }

    /// Stretches of which the recipe is known.
    async fn get_bytes(
        &self,
        upon: &Upon<C::Container>,
        stretches: &[(u64, u64)],
    ) -> Result<(), Error> {
        let step = Portions::of(&self.inner.upstream.quality()).window_most;
        let mut pieces: Vec<Placed> = Vec::new();
        let mut bytes = 0;
        for &(from, to) in stretches {
            let mut at = from;
            while at < to.min(upon.contents.size) {
                let upto = to.min(at.saturating_add(step));
                let found = pieces_of(upon, (at, upto))?;
                at = found.last().map_or(upto, |last| last.end().max(upto));
                bytes += found.iter().map(|placed| placed.piece.length()).sum::<u64>();
                pieces.extend(found);
                if bytes >= step {
                    pieces.dedup();
                    self.get_pieces(upon, std::mem::take(&mut pieces)).await?;
                    bytes = 0;
                }
            }
        }
        pieces.dedup();
        self.get_pieces(upon, pieces).await
    }

    fn upon(&self, file: FileId, generation: u32) -> Option<Upon<C::Container>> {
        let secret = self.secret().0;
        let files = self.files();
        let open = files.get(file, generation)?;
        let ground = open.presence.ground.as_ref()?;
        Some(Upon {
            file,
            generation,
            of: ground.of.unwrap_or(file),
            version: ground.version,
            contents: ground.contents,
            container: open.container.clone(),
            still: open.still.clone(),
            shelf: open.shelf.clone(),
            secret,
        })
    }

    /// The version that rests on a ground which is gone may be at the replica above by now, though
    /// nobody heard so before it was written over. What is still lacking is in it as it was there.
    fn stands_alone(&self, file: FileId, generation: u32) -> Result<bool, Error> {
        let mut core = self.core();
        let pending = core.log.pending_store(file).is_some();
        let mut files = self.files();
        let Some(open) = files.get_mut(file, generation) else { return Ok(false) };
        let Presence { version, contents, dirty, .. } = open.presence;
        let Some(ground) = open.presence.ground.clone() else { return Ok(true) };
        if pending || ground.version == version || open.unlinked.is_some() {
            return Ok(false);
        }
        let Some(dirty) = dirty else {
            open.presence.ground = Some(Ground::new(version, contents));
            return Ok(true);
        };
        // What was copied from another file since need not be in it.
        let is_upon = open.overtook && ground.of.is_none();
        let is_own = core.meta.replica == Some(version.replica);
        if !(is_upon && is_own && core.meta.is_taken(version.number)) {
            return Ok(false);
        }
        let ground = Ground { reach: ground.reach, ..Ground::new(version, contents) };
        let mut moved = Presence { ground: Some(ground), ..open.presence.clone() };
        moved.doubt();
        core.log.note(&opened_record(file, dirty, &moved)).map_err(of_log)?;
        core.unsaved = true;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        moved.save_in_place(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)?;
        open.presence = moved;
        Ok(true)
    }

    /// A store that rests on a ground was taken: what it lacks is in that version too.
    pub(crate) fn was_taken(&self, file: FileId, version: Stamp) -> Result<(), Error> {
        let mut files = self.files();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let is_it =
            |row: &Presence| row.version == version && row.dirty.is_none() && row.ground.is_some();
        let Some(mut row) = Presence::load(&*write, file).map_err(error_of)?.filter(is_it) else {
            return Ok(());
        };
        let ground = (!row.is_whole()).then(|| Ground::new(version, row.contents));
        row.ground = ground.clone();
        match files.get_mut(file, row.generation) {
            Some(open) if is_it(&open.presence) => open.presence.ground = ground,
            // It is being written to again.
            Some(_) => return Ok(()),
            None => {}
        }
        row.save(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }

    /// The recipe chunks above these stretches come to the shelf.
    async fn get_recipes(
        &self,
        upon: &mut Upon<C::Container>,
        stretches: &[(u64, u64)],
    ) -> Result<(), Error> {
        if upon.contents.root.is_none() {
            let (answer, _) = self.clone().ask_recipe_of((upon.of, upon.version), (0, 1)).await;
            self.shelve(upon, answer?)?;
        }
        for _ in 0..ROUNDS_MAX {
            let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
            for stretch in stretches {
                if lacks_recipe(upon, *stretch)? {
                    waiting.push_back(*stretch);
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            let mut under_way = JoinSet::new();
            loop {
                while under_way.len() < RECIPES_MAX {
                    let Some(stretch) = waiting.pop_front() else { break };
                    // One that came meanwhile may have brought this too.
                    if lacks_recipe(upon, stretch)? {
                        let of = (upon.of, upon.version);
                        under_way.spawn(self.clone().ask_recipe_of(of, stretch));
                    }
                }
                match under_way.join_next().await {
                    None => break,
                    Some(Ok((answer, _))) => self.shelve(upon, answer?)?,
                    Some(Err(error)) => return Err(Error::Failed(error.to_string())),
                }
            }
        }
        let text = format!("the recipe of {} that the server sent is not whole", upon.file);
        Err(Error::Failed(text))
    }

    async fn ask_recipe_of(
        self,
        (file, version): (FileId, Stamp),
        (from, to): (u64, u64),
    ) -> (Result<Response, Error>, (u64, u64)) {
        let range = Range { offset: from, length: to - from };
        let (version, base) = (Some(version), None);
        let request = Request::Recipe { file, version, range, eager_bytes: 0, base };
        (self.ask_for(Class::Demand, 0, request).await, (from, to))
    }

    fn shelve(&self, upon: &mut Upon<C::Container>, answer: Response) -> Result<(), Error> {
        let Response::Recipe(fetched) = answer else { return Err(unexpected("recipe", &answer)) };
        let known = upon.contents;
        let fits = fetched.contents.size == known.size
            && (known.root.is_none() || known.root == fetched.contents.root);
        if fetched.version != upon.version || !fits {
            return Err(Error::Stale);
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for bytes in fetched.recipe {
            let name = upon.secret.name(&bytes);
            note_home(&mut *write, &name).map_err(error_of)?;
            upon.shelf.put(name, bytes.to_vec());
        }
        write.commit(Durability::Later).map_err(error_of)?;
        if known.root.is_none() {
            upon.contents = fetched.contents;
            let mut files = self.files();
            let open = files.get_mut(upon.file, upon.generation);
            if let Some(ground) = open.and_then(|open| open.presence.ground.as_mut())
                && ground.version == upon.version
            {
                ground.contents = fetched.contents;
            }
        }
        Ok(())
    }

    async fn get_pieces(
        &self,
        upon: &Upon<C::Container>,
        pieces: Vec<Placed>,
    ) -> Result<(), Error> {
        let mut found = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for placed in &pieces {
            let Piece::Chunk { name, .. } = placed.piece else { continue };
            if found.contains_key(&name) || missing.contains(&name) {
                continue;
            }
            match self.chunk_here(&upon.secret, &name)? {
                Some(bytes) => {
                    found.insert(name, bytes);
                }
                None => {
                    missing.insert(name);
                }
            }
        }
        let most = Portions::of(&self.inner.upstream.quality()).request;
        let mut waiting: VecDeque<Vec<Range>> = requests(&pieces, &missing, most).into();
        let mut under_way = JoinSet::new();
        self.fill_upon(upon, &pieces, &found)?;
        loop {
            while under_way.len() < REQUESTS_MAX {
                let Some(ranges) = waiting.pop_front() else { break };
                under_way.spawn(self.clone().ask_bytes_of((upon.of, upon.version), ranges));
            }
            let payload = match under_way.join_next().await {
                None => break,
                Some(Ok(Ok(Response::Bytes(payload)))) => payload,
                Some(Ok(Ok(other))) => return Err(unexpected("read", &other)),
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(error)) => return Err(Error::Failed(error.to_string())),
            };
            let came = unpack(&payload, PAYLOAD_BYTES_MAX).map_err(bad)?;
            let bytes = came.iter().map(|chunk| chunk.len() as u64).sum();
            self.note_plain(upon.file, upon.version, false, bytes);
            let came: BTreeMap<ChunkName, Vec<u8>> =
                came.into_iter().map(|bytes| (upon.secret.name(&bytes), bytes)).collect();
            missing.retain(|name| !came.contains_key(name));
            self.fill_upon(upon, &pieces, &came)?;
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Error::Failed(format!(
                "the server did not send all that was asked of {}",
                upon.file
            ))),
        }
    }

    async fn ask_bytes_of(
        self,
        (file, version): (FileId, Stamp),
        ranges: Vec<Range>,
    ) -> Result<Response, Error> {
        let bytes = ranges.iter().map(|range| range.length).sum();
        let request =
            Request::Read { file, version, ranges, base: None, packed: None, inside: None };
        self.ask_for(Class::Demand, bytes, request).await
    }

    /// What came goes where nothing is yet, and is noted when the disk has it.
    fn fill_upon(
        &self,
        upon: &Upon<C::Container>,
        pieces: &[Placed],
        came: &BTreeMap<ChunkName, Vec<u8>>,
    ) -> Result<(), Error> {
        let _still = ranks::write(Rank::Still, &upon.still);
        let before = match self.files().get(upon.file, upon.generation) {
            Some(open) => open.presence.clone(),
            None => return Ok(()),
        };
        if before.ground.as_ref().is_none_or(|ground| ground.version != upon.version) {
            return Ok(());
        }
        let mut filled: Vec<(u64, u64)> = Vec::new();
        let mut whole = Vec::new();
        for placed in pieces {
            let absent = before.absent(placed.offset, placed.end());
            match placed.piece {
                // A write that failed may have left something there.
                Piece::Zeros { .. } => {
                    for (from, to) in &absent {
                        upon.container.punch(*from, to - from).map_err(error_of)?;
                    }
                }
                Piece::Chunk { name, length } => {
                    let fits = |bytes: &&Vec<u8>| bytes.len() as u64 == length;
                    let Some(bytes) = came.get(&name).filter(fits) else { continue };
                    for (from, to) in &absent {
                        let part = (from - placed.offset) as usize..(to - placed.offset) as usize;
                        upon.container.write(*from, &bytes[part]).map_err(error_of)?;
                    }
                    if absent == [(placed.offset, placed.end())] {
                        whole.push((name, placed.offset, length));
                    }
                }
            }
            filled.extend(absent);
        }
        if filled.is_empty() {
            return Ok(());
        }
        upon.container.sync().map_err(error_of)?;
        self.note_filled(upon, &filled, &whole)
    }

    fn note_filled(
        &self,
        upon: &Upon<C::Container>,
        filled: &[(u64, u64)],
        whole: &[(ChunkName, u64, u64)],
    ) -> Result<(), Error> {
        let (file, generation) = (upon.file, upon.generation);
        let mut core = self.core();
        let mut files = self.files();
        let Some(open) = files.get_mut(file, generation) else { return Ok(()) };
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let logged = open.presence.dirty.is_some() && open.unlinked.is_none();
        for stretch in filled.chunk_by(|one, next| one.1 == next.0) {
            let (from, to) = (stretch[0].0, stretch[stretch.len() - 1].1);
            if logged {
                core.log.note(&Record::Here { file, generation, from, to }).map_err(of_log)?;
            }
            open.presence.add(from, to - from);
        }
        for (name, offset, length) in whole {
            let length = u32::try_from(*length).expect("no chunk is longer than 1 MiB");
            let place = Place { file, generation, offset: *offset, length };
            index::note(&mut *write, name, place).map_err(error_of)?;
            note_home(&mut *write, name).map_err(error_of)?;
        }
        if !logged && open.unlinked.is_none() {
            open.presence.save_in_place(&mut *write, file).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)?;
        core.unsaved = true;
        Ok(())
    }
}

/// Up to where nothing is left to be asked for, of stretches that have come: a hole is one piece, however
/// long it is.
fn known_until<K>(upon: &Upon<K>, stretches: &[(u64, u64)]) -> Result<u64, Error> {
    let end = stretches.last().map_or(0, |(_, to)| *to);
    if end >= upon.contents.size {
        return Ok(u64::MAX);
    }
    let last = pieces_of(upon, (end.saturating_sub(1), end))?;
    Ok(last.last().map_or(end, Placed::end))
}

fn lacks_recipe<K>(upon: &Upon<K>, (from, to): (u64, u64)) -> Result<bool, Error> {
    let range = Range { offset: from, length: to - from };
    let shelf = |name: &ChunkName| Ok(upon.shelf.get(name));
    let found = cover(&upon.secret, &upon.contents, range, PIECES_MAX, shelf).map_err(bad)?;
    Ok(!found.missing.is_empty())
}

fn pieces_of<K>(upon: &Upon<K>, (from, to): (u64, u64)) -> Result<Vec<Placed>, Error> {
    let range = Range { offset: from, length: to - from };
    let shelf = |name: &ChunkName| Ok(upon.shelf.get(name));
    let found = cover(&upon.secret, &upon.contents, range, PIECES_MAX, shelf).map_err(bad)?;
    match found.missing.is_empty() && found.next.is_none() {
        true => Ok(found.pieces),
        false => Err(Error::Retry),
    }
}
