//! Fetching ahead: follows what programs open, asks for several files at once, and takes in what
//! comes.
//! Holds: nothing is fetched ahead where the mode does not say that what is cached counts by
//! callback; what comes is checked as what somebody waits for is; of what the cache holds, it is
//! the first to go until somebody has read it.

use super::Kept;
use super::bounds::patience;
use super::walk::{self, Known, Walk};
use super::{Ahead, Look, Seen};
use crate::client::{Client, error_of};
use crate::fetch::{is_here, now_of};
use crate::mode;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::together::{Asked, lacks_all};
use crate::types::Error;
use model::{FileId, Kind, Node, View};
use protocol::{GATHERED_FILES_MAX, Gathered, Upstream};
use std::time::Duration;
use store::{Containers, Durability, StoreError};
use tokio::task::JoinSet;
use volume::partial::{Missing, Tree};

/// Requests that are under way at once: while one answer comes the next is asked for.
const BATCHES_MAX: usize = 3;
/// How often guesses are looked through for those that were wrong.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Files that are asked for together, and what the answer may be coded against.
struct Batch<K> {
    files: Vec<Asked<K>>,
    held: Vec<Kept>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn ahead(&self) -> Ranked<'_, Ahead> {
        ranks::lock(Rank::Ahead, &self.inner.ahead)
    }

    /// Somebody waits for contents that are not here.
    pub(crate) fn note_miss(&self, file: FileId) {
        let now = self.inner.world.clock.moment();
        self.ahead().missed(file, now);
        self.inner.ahead_wanted.notify_one();
    }

    /// What somebody waited for is here: whatever it took was no pause of the program's.
    pub(crate) fn note_arrival(&self, file: FileId) {
        let now = self.inner.world.clock.moment();
        self.ahead().arrived(file, now);
    }

    /// Somebody reads contents that are here.
    pub(crate) fn note_read(&self, file: FileId) {
        let now = self.inner.world.clock.moment();
        if self.ahead().read(file, now) {
            self.inner.ahead_wanted.notify_one();
        }
    }

    /// Waits for a file that is on its way already, if it does not take too long.
    pub(crate) async fn join_ahead(&self, file: FileId) {
        let Some((landed, bytes)) = self.ahead().join(file) else { return };
        let within = patience(&self.inner.upstream.quality(), bytes);
        if self.inner.world.clock.within(within, landed).await.is_none() {
            self.ahead().overtake(file);
        }
    }

    /// Fetches ahead, until `shut_down`.
    pub(crate) async fn run_ahead(&self) {
        let mut under_way = JoinSet::new();
        while !self.is_stopping() {
            let landed = tokio::select! {
                biased;
                Some(landed) = under_way.join_next(), if !under_way.is_empty() => Some(landed),
                () = self.inner.ahead_wanted.notified() => None,
                () = self.inner.world.clock.sleep(LOOK_EVERY) => None,
                () = self.until_stopping() => break,
            };
            if let Some(Ok((batch, answer))) = landed {
                self.take_answer(&batch, answer);
            }
            let now = self.inner.world.clock.moment();
            self.ahead().expire(now);
            self.follow_aside().await;
            while under_way.len() < BATCHES_MAX {
                let batch = match self.batch_ahead() {
                    Ok(batch) if batch.files.is_empty() => break,
                    Ok(batch) => batch,
                    Err(error) => {
                        tracing::debug!(%error, "nothing could be fetched ahead");
                        break;
                    }
                };
                let client = self.clone();
                under_way.spawn(async move {
                    let answer = client.ask_together(&batch.files, &batch.held).await;
                    (batch, answer)
                });
            }
        }
    }

    /// It reads the tree, and the lease is renewed meanwhile.
    async fn follow_aside(&self) {
        if self.ahead().seen.is_empty() {
            return;
        }
        let client = self.clone();
        let followed = self.off_the_runtime(move || Ok(client.follow())).await;
        if let Err(error) = followed.map_err(error_of).flatten() {
            tracing::debug!(%error, "what comes next could not be seen");
        }
    }

    /// Where programs have gone since the last look, and what comes after that.
    fn follow(&self) -> Result<(), Error> {
        let seen: Vec<Seen> = self.ahead().seen.drain(..).collect();
        if seen.is_empty() || !self.may_fetch_ahead() {
            return Ok(());
        }
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, self.epoch_now());
        for seen in seen {
            if seen.look == Look::Foreseen {
                self.note_used_now(seen.file)?;
            }
            let place = self.ahead().places.get(&seen.file).map(|(directory, _)| *directory);
            let Some(directory) = place else { continue };
            let (goes_on, walk) = {
                let mut ahead = self.ahead();
                let walk = ahead.trail.step(seen.file, directory, seen.at, &tree);
                ahead.note_followed(directory, &seen);
                (ahead.goes_on(&seen), walk)
            };
            if let (false, Some(walk)) = (goes_on, walk)
                && self.ahead().may_plan(directory, seen.at)
            {
                self.plan(&tree, &read_presence(&*read), (directory, seen.file), &walk)
                    .map_err(|error| Error::Failed(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn epoch_now(&self) -> u32 {
        self.inner.epoch.load(std::sync::atomic::Ordering::Acquire)
    }

    fn may_fetch_ahead(&self) -> bool {
        let connection = self.connection();
        let now = self.inner.world.clock.outer_moment();
        connection.attached
            && connection.gathers
            && connection.fetches_ahead()
            && mode::validates(connection.mode)
            && connection.lease_holds(now)
    }

    fn plan(
        &self,
        tree: &Tree<'_>,
        presence: &dyn Fn(FileId) -> Result<Option<Presence>, StoreError>,
        (directory, file): (FileId, FileId),
        walk: &Walk,
    ) -> Result<(), Missing> {
        let bounds = self.bounds();
        let wanted = |file: FileId, node: &Node| {
            let small = bounds.small(bounds.window_most);
            (1..=small).contains(&node.contents.size)
                && self.ahead().is_wanted(file, node.contents_stamp)
                && presence(file).is_ok_and(|row| row.is_none_or(|row| lacks_all(&row, node)))
                && !is_here_now(presence, file, node)
        };
        let so_far = self.ahead().order;
        let name = |directory, file| self.ahead().name_in(directory, file).cloned();
        let order = |directory| self.order_kept(directory);
        let known = Known { tree, name: &name, order: &order };
        let Some(plan) = walk::after(&known, (directory, file), walk, so_far, &wanted)? else {
            return Ok(());
        };
        let files = plan.files.len();
        tracing::trace!(%directory, ?walk, order = ?plan.order, files, "planned ahead");
        let mut ahead = self.ahead();
        ahead.order = plan.order;
        ahead.coming = plan.files;
        ahead.all_planned = plan.all;
        Ok(())
    }

    /// What to ask for next, noted as under way. Empty: nothing, for now.
    fn batch_ahead(&self) -> Result<Batch<C::Container>, Error> {
        let none = Batch { files: Vec::new(), held: Vec::new() };
        if !self.may_fetch_ahead() {
            self.ahead().stop();
            return Ok(none);
        }
        let bounds = self.bounds();
        let (room, small, held) = {
            let mut ahead = self.ahead();
            let Some(room) = ahead.room(&bounds) else { return Ok(none) };
            (room, bounds.small(ahead.window.unwrap_or(0)), ahead.held.newest(&bounds))
        };
        let mut asked: Vec<Asked<C::Container>> = Vec::new();
        let mut bytes = 0;
        while asked.len() < GATHERED_FILES_MAX {
            let Some(file) = self.ahead().coming.pop_front() else { break };
            let Some(node) = self.lacking(file)?.filter(|node| node.contents.size <= small) else {
                continue;
            };
            let (version, size) = (node.contents_stamp, node.contents.size);
            if !self.ahead().is_wanted(file, version) {
                continue;
            }
            if bytes + size > room && !asked.is_empty() {
                self.ahead().coming.push_front(file);
                break;
            }
            let source = self.source_for_fetch(file, version)?;
            self.ahead().ask_for(file, version, size);
            bytes += size;
            // No version that is open bears this generation: it is the current one that is wanted.
            asked.push(Asked { file, generation: u32::MAX, version, size, source, is_guess: true });
        }
        Ok(Batch { files: asked, held })
    }

    /// The file as it is, if none of its contents is here and nobody is at it.
    fn lacking(&self, file: FileId) -> Result<Option<Node>, Error> {
        if self.files().is_open(file) {
            return Ok(None);
        }
        let read = self.inner.tables.read().map_err(error_of)?;
        let node = match Tree::new(&*read, self.epoch_now()).node(file) {
            Ok(Some(node)) if node.kind == Kind::File => node,
            _ => return Ok(None),
        };
        let row = Presence::load(&*read, file).map_err(error_of)?;
        Ok(row.is_none_or(|row| lacks_all(&row, &node)).then_some(node))
    }

    fn take_answer(&self, batch: &Batch<C::Container>, answer: Result<Gathered, Error>) {
        let asked = &batch.files;
        let mut came = vec![false; asked.len()];
        match answer.and_then(|gathered| self.take_gathered(batch, gathered, &mut came)) {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%error, files = asked.len(), "what was fetched ahead did not come");
                self.ahead().stop();
            }
        }
        let now = self.inner.world.clock.moment();
        let mut ahead = self.ahead();
        for (one, came) in asked.iter().zip(came) {
            ahead.land(one.file, came, now);
        }
    }

    fn take_gathered(
        &self,
        batch: &Batch<C::Container>,
        gathered: Gathered,
        came: &mut [bool],
    ) -> Result<(), Error> {
        let asked = &batch.files;
        let Some(mut chunks) = self.chunks_of(&gathered, &batch.held)? else {
            // The other side has something else under these names: they are not named again.
            let mut ahead = self.ahead();
            ahead.held.clear();
            asked.iter().rev().for_each(|one| ahead.coming.push_front(one.file));
            return Ok(());
        };
        let answered = gathered.portions.len();
        for ((one, portion), came) in asked.iter().zip(gathered.portions).zip(came) {
            let taken = self.take_portion(one, portion, &mut chunks);
            *came = taken.unwrap_or_else(|error| {
                tracing::debug!(%error, file = %one.file, "fetched ahead and of no use");
                false
            });
            if !*came {
                self.ahead().give_up(one.file);
            }
        }
        // There was no room for the rest: it comes next.
        let mut ahead = self.ahead();
        for one in asked.iter().skip(answered).rev() {
            ahead.coming.push_front(one.file);
        }
        Ok(())
    }

    /// What was fetched ahead has been read: it is used like anything else from now on.
    fn note_used_now(&self, file: FileId) -> Result<(), Error> {
        let used = self.inner.world.clock.time().secs;
        let mut files = self.files();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let Some(mut row) = Presence::load(&*write, file).map_err(error_of)? else {
            return Ok(());
        };
        row.used = used;
        if let Some(open) = files.get_mut(file, row.generation) {
            open.presence.used = row.used;
        }
        row.save(&mut *write, file).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }
}

/// Of what a snapshot shows, whether it is here as the file is now.
fn is_here_now(
    presence: &dyn Fn(FileId) -> Result<Option<Presence>, StoreError>,
    file: FileId,
    node: &Node,
) -> bool {
    let row = now_of(file).and_then(|now| presence(now).ok().flatten());
    row.is_some_and(|row| is_here(&row, node.contents_stamp) && row.is_whole())
}

fn read_presence(
    read: &dyn store::Read,
) -> impl Fn(FileId) -> Result<Option<Presence>, StoreError> + '_ {
    |file| Presence::load(read, file)
}
