//! Giving back what the replica above has lost: it asks for chunks, and whoever has them in its
//! cache sends them.
//! Holds: every chunk is hashed before it is sent, so a wrong entry of the index, or a container
//! that has changed, costs a look and nothing else; what the user does here goes first, and where
//! nothing may be sent nothing is; a chunk is looked for once in a session.
//! From: LBFS, which finds a chunk in any file; the way back from the client is beyond it.

use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::parcel::pack_all;
use crate::plan::describe_container;
use crate::portions::carried;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::replay_log::Setback;
use crate::types::{Error, Need};
use crate::unreadable::readable;
use chunks::index::{self, Place};
use chunks::{CHUNK_BYTES_MAX, Growing, Secret};
use model::{ChunkName, FileId, Piece};
use protocol::{
    Class, PAYLOAD_BYTES_MAX, Refusal, Request, Response, Upstream, WANTED_CHUNKS_MAX, Wanted,
    WantedOf, WantedStatus,
};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers, Durability};

/// Chunks that wait to be looked for, where nothing may be sent for now.
const QUEUE_MAX: usize = 4096;
/// Chunks of which it is remembered, in a session, that they were asked for.
const ASKED_MAX: usize = 1 << 16;
/// How long one message may take at the measured rate.
const GIVE_FOR: Duration = Duration::from_secs(2);
const GIVE_BYTES_MIN: u64 = 4 << 10;
/// Until something is known of the link.
const RATE_GUESS: u64 = 8 << 10;
/// How often it is looked whether what waits may be sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a failure that is not the link's.
const PAUSE: Duration = Duration::from_secs(60);
/// Recipe chunks that were made again are kept up to so many bytes: the next answer asks for more.
const REMADE_BYTES_MAX: usize = 8 << 20;
/// Files that `status` names.
const FILES_MAX: usize = 8;

/// What is known of the chunks that the replica above has lost.
#[derive(Default)]
pub(crate) struct Giving {
    queue: VecDeque<WantedOf>,
    /// Names in the queue.
    queued: usize,
    /// What was asked for in this session.
    asked: HashSet<ChunkName>,
    /// Chunks that are missing above, as it said last.
    missing: u64,
    /// Files that lack some of them, as far as they were named.
    files: BTreeSet<FileId>,
    /// Chunks that were given back since the mount.
    given: u64,
    /// Something was given back since more was asked for.
    asks_on: bool,
    /// The recipe chunks of what was read last for that.
    remade: BTreeMap<ChunkName, Vec<u8>>,
}

impl Giving {
    /// A new session: it asks anew, and what waited is asked for again.
    fn begin(&mut self) {
        *self = Giving { given: self.given, ..Giving::default() };
    }

    /// What was said of what is missing. Says whether there is something to look for.
    fn take(&mut self, wanted: Option<Wanted>) -> bool {
        let wanted = wanted.unwrap_or_default();
        self.missing = wanted.missing;
        if wanted.missing == 0 {
            self.files.clear();
        }
        let mut room = WANTED_CHUNKS_MAX.min(QUEUE_MAX - self.queued.min(QUEUE_MAX));
        for mut version in wanted.versions {
            if self.files.len() <= FILES_MAX {
                self.files.insert(version.file);
            }
            version.chunks.retain(|name| {
                let fits = room > 0 && self.asked.len() < ASKED_MAX;
                let takes = fits && self.asked.insert(*name);
                room -= usize::from(takes);
                takes
            });
            if !version.chunks.is_empty() {
                self.queued += version.chunks.len();
                self.queue.push_back(version);
            }
        }
        self.queued > 0
    }

    fn pop(&mut self) -> Option<WantedOf> {
        let version = self.queue.pop_front()?;
        self.queued -= version.chunks.len();
        Some(version)
    }

    /// It was not sent, and waits again.
    fn push_back(&mut self, versions: Vec<WantedOf>) {
        for version in versions.into_iter().rev().filter(|version| !version.chunks.is_empty()) {
            self.queued += version.chunks.len();
            self.queue.push_front(version);
        }
    }
}

/// What is to be sent back next, and what of it was asked for.
#[derive(Default)]
struct Gift {
    chunks: Vec<Vec<u8>>,
    of: Vec<WantedOf>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    fn giving(&self) -> Ranked<'_, Giving> {
        ranks::lock(Rank::Giving, &self.inner.giving)
    }

    /// The replica above has said, with the answer to an attach or a renewal, what it lacks.
    pub(crate) fn asked_for(&self, wanted: Option<Wanted>, is_new_session: bool) {
        let mut giving = self.giving();
        if is_new_session {
            giving.begin();
        }
        if giving.take(wanted) {
            self.inner.giving_wanted.notify_one();
        }
    }

    pub(crate) fn wanted_status(&self) -> WantedStatus {
        let (missing, given, files) = {
            let giving = self.giving();
            (giving.missing, giving.given, giving.files.clone())
        };
        let (named, more) = (files.iter().take(FILES_MAX), files.len() > FILES_MAX);
        let files = named.map(|file| self.name_for_people(*file)).collect();
        WantedStatus { missing, given, files, more }
    }

    pub(crate) async fn run_giving(&self) {
        while !self.is_stopping() {
            let waits = self.giving().queued > 0;
            if !waits || !self.may_give() {
                let wanted = self.inner.giving_wanted.notified();
                let look = async {
                    match waits {
                        true => self.inner.world.clock.sleep(LOOK_EVERY).await,
                        false => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = wanted => {}
                    () = look => {}
                    () = self.until_stopping() => {}
                }
                continue;
            }
            match self.give_back().await {
                Ok(()) => self.ask_on().await,
                // The next session asks anew.
                Err(Setback::Link) => self.inner.world.clock.sleep(LOOK_EVERY).await,
                Err(Setback::Failed(error)) => {
                    tracing::warn!(%error, "what the server has lost could not be given back yet");
                    self.inner.world.clock.sleep(PAUSE).await;
                }
            }
        }
    }

    /// What is pending here goes first.
    fn may_give(&self) -> bool {
        let (attached, replays) = {
            let connection = self.connection();
            (connection.attached, connection.replays())
        };
        attached && replays && self.core().log.pending_len() == 0
    }

    /// Looks for some of what was asked for, and sends what is here.
    async fn give_back(&self) -> Result<(), Setback> {
        let rate = self.inner.upstream.quality().rate_up;
        let most = carried(rate.unwrap_or(RATE_GUESS), GIVE_FOR)
            .clamp(GIVE_BYTES_MIN, PAYLOAD_BYTES_MAX as u64);
        let client = self.clone();
        let made = self.off_the_runtime(move || Ok(client.next_gift(most))).await;
        let gift = made.map_err(error_of)??;
        let Some(payload) = pack_all(&gift.chunks, rate) else { return Ok(()) };
        let count = gift.chunks.len() as u64;
        let request = Request::Put { payload, deltas: None };
        let failed = match self.inner.upstream.ask(Class::Replay, request).await {
            Ok(Response::Stored { .. }) => {
                tracing::info!(chunks = count, "chunks that the server had lost were given back");
                let mut giving = self.giving();
                giving.given += count;
                giving.asks_on = true;
                return Ok(());
            }
            // Somebody else was first, and this device may send nothing else.
            Ok(Response::Refused(Refusal::ReadOnly)) => return Ok(()),
            Ok(Response::Refused(refusal)) => self.refused(refusal),
            Ok(other) => unexpected("put", &other).into(),
            Err(_) => Setback::Link,
        };
        self.giving().push_back(gift.of);
        Err(failed)
    }

    /// When all has been looked for and some of it was here, more is asked for at once: the next
    /// renewal of a mount that nobody uses may be far away.
    async fn ask_on(&self) {
        let asks = {
            let mut giving = self.giving();
            let asks = giving.queued == 0 && giving.asks_on;
            giving.asks_on &= !asks;
            asks
        };
        if asks && let Err(error) = self.satisfy(Need::Lease).await {
            tracing::debug!(%error, "what else is missing could not be asked for");
        }
    }

    /// The next chunks that are here, of about so many bytes; empty if none of some is.
    fn next_gift(&self, most: u64) -> Result<Gift, Error> {
        let secret = self.secret().0;
        let mut gift = Gift::default();
        let mut bytes = 0;
        while bytes < most {
            let Some(version) = self.giving().pop() else { break };
            let mut rest = version.chunks.clone().into_iter();
            let mut found = Vec::new();
            let mut nowhere = BTreeSet::new();
            for name in rest.by_ref() {
                match self.chunk_here(&secret, &name)? {
                    Some(chunk) => {
                        bytes += chunk.len() as u64;
                        found.push(name);
                        gift.chunks.push(chunk);
                    }
                    None => {
                        nowhere.insert(name);
                    }
                }
                if bytes >= most {
                    break;
                }
            }
            let rest = WantedOf { chunks: rest.collect(), ..version };
            self.giving().push_back(vec![rest]);
            if !nowhere.is_empty() {
                for (name, chunk) in self.make_again(&version, nowhere)? {
                    bytes += chunk.len() as u64;
                    found.push(name);
                    gift.chunks.push(chunk);
                }
            }
            gift.of.push(WantedOf { chunks: found, ..version });
        }
        Ok(gift)
    }

    /// A chunk that is in any container, as far as the index knows, or was made again lately.
    pub(crate) fn chunk_here(
        &self,
        secret: &Secret,
        name: &ChunkName,
    ) -> Result<Option<Vec<u8>>, Error> {
        if let Some(chunk) = self.giving().remade.get(name) {
            return Ok(Some(chunk.clone()));
        }
        let places = {
            let read = self.inner.tables.read().map_err(error_of)?;
            index::find(&*read, name).map_err(error_of)?
        };
        let mut wrong: Vec<Place> = Vec::new();
        let mut right = None;
        for (key, place) in self.where_now(&places) {
            let length = place.length as usize;
            let container = match length <= CHUNK_BYTES_MAX {
                true => {
                    readable(self.inner.containers.open(key, false)).map_err(error_of)?.flatten()
                }
                false => None,
            };
            let bytes = match container {
                Some(container) => {
                    let read = readable(container.read(place.offset, length));
                    read.map_err(error_of)?.unwrap_or_default()
                }
                None => Vec::new(),
            };
            if !bytes.is_empty() && secret.check(name, &bytes).is_ok() {
                right = Some((place, bytes));
                break;
            }
            wrong.push(place);
        }
        // A container may have gone into the trash, and the place be right all the same.
        wrong.retain(|place| right.as_ref().is_none_or(|(there, _)| there != place));
        if !wrong.is_empty() {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            for place in &wrong {
                index::forget(&mut *write, name, place).map_err(error_of)?;
            }
            write.commit(Durability::Later).map_err(error_of)?;
        }
        Ok(right.map(|(_, bytes)| bytes))
    }

    /// Reads what is here of the file whole, and describes it again: its recipe, and data of which
    /// the index does not know.
    fn make_again(
        &self,
        of: &WantedOf,
        mut wanted: BTreeSet<ChunkName>,
    ) -> Result<Vec<(ChunkName, Vec<u8>)>, Error> {
        let (secret, cutter) = self.secret();
        let mut found = Vec::new();
        for key in self.whole_containers(of)? {
            if wanted.is_empty() {
                break;
            }
            let container = self.inner.containers.open(key, false).map_err(error_of)?;
            let Some(container) = container else { continue };
            let size = container.length().map_err(error_of)?;
            let growing = Growing::new(&secret, cutter);
            let described = describe_container(&container, growing, size, 0, |pieces| {
                for placed in pieces {
                    let Piece::Chunk { name, length } = placed.piece else { continue };
                    if !wanted.contains(&name) {
                        continue;
                    }
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    let bytes = container.read(placed.offset, length)?;
                    if secret.check(&name, &bytes).is_ok() && wanted.remove(&name) {
                        found.push((name, bytes));
                    }
                }
                Ok(())
            });
            let described = described.map_err(of_chunks)?;
            let recipe: BTreeMap<ChunkName, Vec<u8>> = described.tree.chunks.into_iter().collect();
            let here: Vec<ChunkName> =
                wanted.iter().filter(|name| recipe.contains_key(name)).copied().collect();
            for name in &here {
                wanted.remove(name);
                found.extend(recipe.get(name).map(|bytes| (*name, bytes.clone())));
            }
            // What hangs below is asked for next.
            let bytes: usize = recipe.values().map(Vec::len).sum();
            if !here.is_empty() && bytes <= REMADE_BYTES_MAX {
                self.giving().remade = recipe;
            }
        }
        Ok(found)
    }

    /// Where a file is whole: the version that is asked for, or another, which may have much of it.
    fn whole_containers(&self, of: &WantedOf) -> Result<Vec<Key>, Error> {
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Presence::load(&*read, of.file).map_err(error_of)?
        };
        let is_whole = |row: &Presence| row.dirty.is_none() && row.is_whole();
        let now = row.filter(is_whole).map(|row| {
            let key = Key { file: of.file.0, generation: row.generation };
            (row.version == of.version, key)
        });
        let kept = {
            let trash = self.trash();
            trash.find(of.file, Some(of.version)).or_else(|| trash.find(of.file, None))
        };
        let kept = kept.map(|(key, kept)| (kept.version == of.version, key));
        let mut there: Vec<(bool, Key)> = now.into_iter().chain(kept).collect();
        there.sort_by_key(|(is_this, _)| !is_this);
        Ok(there.into_iter().map(|(_, key)| key).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ReplicaId, Stamp};

    fn chunk(number: u32) -> ChunkName {
        let mut name = [0; 24];
        name[..4].copy_from_slice(&number.to_be_bytes());
        ChunkName(name)
    }

    fn wanted(missing: u64, numbers: std::ops::Range<u32>) -> Option<Wanted> {
        let version = Stamp::new(ReplicaId(3), 4);
        let chunks = numbers.map(chunk).collect();
        Some(Wanted { missing, versions: vec![WantedOf { file: FileId(5), version, chunks }] })
    }

    #[test]
    fn a_chunk_is_looked_for_once_in_a_session_and_again_in_the_next() {
        let mut giving = Giving::default();
        assert!(giving.take(wanted(2, 0..2)));
        assert_eq!(giving.pop().unwrap().chunks, [chunk(0), chunk(1)]);
        assert!(!giving.take(wanted(2, 0..2)), "nothing new");
        assert!(giving.take(wanted(3, 0..3)));
        assert_eq!(giving.pop().unwrap().chunks, [chunk(2)]);
        giving.begin();
        assert!(giving.take(wanted(3, 0..1)));
        assert!(!{
            giving.pop();
            giving.take(None)
        });
        assert_eq!((giving.missing, giving.files.len()), (0, 0));
    }

    #[test]
    fn what_was_not_sent_waits_in_its_place() {
        let mut giving = Giving::default();
        giving.take(wanted(9, 0..4));
        giving.take(wanted(9, 4..6));
        let first = giving.pop().unwrap();
        giving.push_back(vec![first.clone(), WantedOf { chunks: Vec::new(), ..first.clone() }]);
        assert_eq!(giving.queued, 6);
        assert_eq!(giving.pop(), Some(first));
        assert_eq!(giving.pop().unwrap().chunks, [chunk(4), chunk(5)]);
        assert_eq!((giving.pop(), giving.queued), (None, 0));
    }

    #[test]
    fn however_much_is_asked_for_no_more_is_remembered_than_there_is_room_for() {
        let mut giving = Giving::default();
        giving.take(wanted(1 << 40, 0..100_000));
        assert_eq!(giving.queued, WANTED_CHUNKS_MAX);
        for answer in 0..10_000 {
            giving.take(wanted(1 << 40, answer * 64..(answer + 1) * 64));
        }
        assert_eq!(giving.queued, QUEUE_MAX);
        while giving.pop().is_some() {}
        for answer in 10_000..20_000 {
            giving.take(wanted(1 << 40, answer * 64..(answer + 1) * 64));
            giving.pop();
        }
        assert_eq!(giving.asked.len(), ASKED_MAX);
    }
}
