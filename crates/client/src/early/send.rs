//! Cutting and sending what programs write, while they write it; and what a close has to do with it.

use super::{Early, Steps, Work, most_early};
use crate::client::{Client, error_of, failed};
use crate::failures::of_chunks;
use crate::files::{Altered, Front};
use crate::home::is_home;
use crate::parcel::pack_all;
use crate::plan::describe_container_again;
use crate::portions::carried;
use crate::ranks::{self, Rank, Ranked};
use crate::replay_log::Setback;
use crate::supply::under_way_most;
use crate::types::{Error, Step};
use crate::undo::of_log;
use chunks::Described;
use model::{Change, ChunkName, FileId, Update};
use protocol::{Class, PAYLOAD_BYTES_MAX, Request, Response, Upstream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers, StoreError};
use tokio::task::JoinSet;

/// Chunks with their names, as much as goes into one message.
type Batch = Vec<(ChunkName, Vec<u8>)>;

/// Bytes that are read at once.
const READ_BYTES: u64 = 256 << 10;
/// About what a close takes to cut and note a large file.
const CLOSE_TAKES: Duration = Duration::from_millis(150);
/// Messages that are cut before it is their turn, at most.
const AHEAD_MAX: usize = 16;
/// Pending updates that are looked at for what of them is on its way.
const LOOKED_AT_MAX: usize = 64;

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn early(&self) -> Ranked<'_, Early> {
        ranks::lock(Rank::Early, &self.inner.early)
    }

    pub(crate) fn steps(&self) -> Steps {
        Steps::of(self.inner.settings.early_bytes_min)
    }

    /// For a file of which the first byte was written.
    pub(crate) fn work_for(&self, altered: &Altered) -> Option<Arc<Work>> {
        let first = matches!(altered, Altered::Stretch(stretch) if stretch.start == 0);
        first.then(|| {
            let (secret, cutter) = self.secret();
            Arc::new(Work::new(&secret, cutter, self.early().losses.clone()))
        })
    }

    /// A file has more to be cut.
    pub(crate) fn more_is_written(&self, file: FileId, generation: u32) {
        self.early().push(file, generation);
        self.inner.early_wanted.notify_one();
    }

    pub(crate) async fn run_early(&self) {
        let mut under_way = JoinSet::new();
        let mut ready: VecDeque<(Flight, Batch)> = VecDeque::new();
        while !self.is_stopping() {
            let rate = self.inner.upstream.quality().rate_up;
            while under_way.len() < under_way_most(rate)
                && let Some((flight, batch)) = ready.pop_front()
            {
                under_way.spawn(self.clone().put_early(flight, batch));
            }
            let next = match ready.len() < ahead_most(rate) {
                true => self.early().queue.pop_front(),
                false => None,
            };
            let Some(key) = next else {
                tokio::select! {
                    biased;
                    Some(_) = under_way.join_next() => {}
                    () = self.inner.early_wanted.notified() => {}
                    () = self.until_stopping() => {}
                }
                continue;
            };
            let Some(work) = self.goes_on(key) else {
                self.files().leave_front(key);
                continue;
            };
            let (client, working) = (self.clone(), work.clone());
            let cut = self.off_the_runtime(move || client.cut_on(key, &working)).await;
            self.early().push(key.0, key.1);
            ready.extend(cut.unwrap_or_else(|error| {
                // What is wrong is found again when the file is closed.
                tracing::debug!(%error, file = %key.0, "what is written is sent when it is closed");
                work.sent().stopped = true;
                Vec::new()
            }));
        }
    }

    /// The work on a file, if there is enough of it and it may be sent.
    fn goes_on(&self, key: (FileId, u32)) -> Option<Arc<Work>> {
        let Steps { least, step } = self.steps();
        let (attached, replays) = {
            let connection = self.connection();
            // Where there is no room, what is written need not go in vain.
            (connection.attached, connection.sends_early())
        };
        if !attached || !replays {
            return None;
        }
        let lost = self.early().lost(self.inner.world.clock.moment());
        let most = match self.inner.settings.early_bytes_min {
            Some(_) => u64::MAX,
            None => most_early(&self.inner.upstream.quality(), lost),
        };
        let (work, enough) = {
            let mut files = self.files();
            let (front, _) = files.front(key)?;
            (front.work.clone(), front.end() >= least && front.ready() >= step)
        };
        let may = {
            let sent = work.sent();
            !sent.stopped && sent.bytes.saturating_add(step) <= most
        };
        (enough && may).then_some(work)
    }

    /// Cuts the next of a file, and gives what the replica above is not known to have of it.
    fn cut_on(
        &self,
        key: (FileId, u32),
        work: &Arc<Work>,
    ) -> Result<Vec<(Flight, Batch)>, StoreError> {
        let mut growing = work.growing();
        let Some(cutting) = growing.as_mut() else {
            // It is, or was, about to be stored: nothing more is cut of it before that.
            work.sent().stopped = true;
            return Ok(Vec::new());
        };
        let (container, range) = match self.files().front(key) {
            Some((front, container)) if Arc::ptr_eq(&front.work, work) => {
                (container.clone(), front.claim(self.steps().step))
            }
            _ => return Ok(Vec::new()),
        };
        let mut chunks: Batch = Vec::new();
        let mut offset = range.start;
        while offset < range.end {
            let found = container.data(offset, range.end - offset)?;
            let (from, length) = found.first().copied().unwrap_or((range.end, 0));
            if from > offset {
                let from = from.min(range.end);
                cutting.push_zeros(from - offset);
                offset = from;
                continue;
            }
            let left = (from + length).min(range.end).saturating_sub(offset).min(READ_BYTES);
            let bytes = container.read(offset, usize::try_from(left).unwrap_or(usize::MAX))?;
            if bytes.is_empty() {
                // It was cut shorter, and is cut anew when it is closed.
                *growing = None;
                return Ok(Vec::new());
            }
            cutting.push(&bytes, |name, bytes| chunks.push((*name, bytes.to_vec())));
            offset += bytes.len() as u64;
        }
        let read = self.inner.tables.read()?;
        let mut new = Vec::new();
        for (name, bytes) in chunks {
            if !is_home(&*read, &name)? && work.sent().takes(&name) {
                new.push((name, bytes));
            }
        }
        // Before the file may be stored: whoever stores it waits for these.
        work.sent().bytes += new.iter().map(|(_, chunk)| chunk.len() as u64).sum::<u64>();
        Ok(batches(new).into_iter().map(|batch| (Flight::of(work, &batch), batch)).collect())
    }

    async fn put_early(self, flight: Flight, batch: Batch) {
        let (names, chunks): (Vec<(ChunkName, u32)>, Vec<Vec<u8>>) = batch
            .into_iter()
            .map(|(name, bytes)| ((name, u32::try_from(bytes.len()).unwrap_or(u32::MAX)), bytes))
            .unzip();
        let rate = self.inner.upstream.quality().rate_up;
        let Some(payload) = pack_all(&chunks, rate) else { return };
        drop(chunks);
        let request = Request::Put { payload, deltas: None };
        match self.inner.upstream.ask(Class::Replay, request).await {
            Ok(Response::Stored { known, .. }) => {
                flight.work.sent().land(names, known.unwrap_or(0));
                self.note_progress();
            }
            // A disk that is full, or anything else, is told when the file is closed.
            Ok(answer) => {
                tracing::debug!(?answer, "what is written is sent when it is closed");
                flight.work.sent().stopped = true;
            }
            Err(_) => flight.work.sent().stopped = true,
        }
    }

    /// The file is stored: what was cut of it need not be read again. None: all of it has to be.
    pub(crate) fn describe_front(
        &self,
        key: Key,
        container: &C::Container,
        front: &Front,
    ) -> Step<Option<Described>> {
        let (secret, cutter) = self.secret();
        let Some(growing) = front.work.close().filter(|_| front.work.secret == secret) else {
            return Ok(None);
        };
        let size = container.length().map_err(failed)?;
        if growing.pushed() == 0 || size < growing.pushed() {
            return Ok(None);
        }
        let described = match front.again.is_empty() {
            true => self.describe_here(key, container, Some(growing)),
            false => {
                let (pieces, again) = (growing.pieces(), &front.again);
                describe_container_again(container, &secret, cutter, pieces, again)
                    .map(|(described, _)| described)
            }
        };
        described.map(Some).map_err(|error| of_chunks(error).into())
    }

    /// What was sent of pending stores before they were closed has arrived, or will not.
    pub(crate) async fn early_has_landed(&self) {
        while let Some(work) = self.early_under_way() {
            work.has_landed().await;
        }
    }

    /// Of the first pending stores notes what has arrived. Gives one of which more is under way.
    fn early_under_way(&self) -> Option<Arc<Work>> {
        let mut core = self.core();
        let numbers: Vec<u64> = core.log.numbers_from(0).take(LOOKED_AT_MAX).collect();
        for number in numbers {
            let Some(plan) = core.plans.get_mut(number) else { continue };
            let Some(work) = plan.early.take() else { continue };
            let Some(arrived) = work.arrived() else {
                plan.early = Some(work.clone());
                return Some(work);
            };
            work.used(|name| plan.data.contains_key(name));
            for name in &arrived {
                plan.note_arrived(name);
            }
            plan.sends_on &= work.goes_well();
        }
        None
    }

    /// Of a store that is next, and of which much is there already, the rest goes the same way,
    /// behind what is still under way: the replica above was not known to have any of it. The disk
    /// here has the time to take it in.
    pub(crate) async fn send_on(&self) -> Result<(), Setback> {
        let Some(SendsOn { update, awaited, early }) = self.next_to_send_on()? else {
            return Ok(());
        };
        if let Some(work) = &early {
            work.shows().await;
            if !work.goes_well() {
                return Ok(());
            }
        }
        let mut lacking = self.lacking_of(&update)?;
        lacking.retain(|name| !early.as_ref().is_some_and(|work| work.has_seen_off(name)));
        if lacking.is_empty() {
            return Ok(());
        }
        let class = if awaited { Class::Interactive } else { Class::Replay };
        let client = self.clone();
        let sync = async {
            match awaited {
                true => Ok(()),
                false => self.off_the_runtime(move || client.sync_log()).await,
            }
        };
        let updates = [update];
        let put = self.put_found(&updates, &lacking, class);
        let put = self.while_others_pass(&updates, &lacking, put);
        let (synced, put) = tokio::join!(sync, put);
        synced.map_err(error_of)?;
        put.map(drop)
    }

    fn next_to_send_on(&self) -> Result<Option<SendsOn>, Error> {
        let mut core = self.core();
        let Some(number) = core.log.first_number() else { return Ok(None) };
        let Some(plan) = core.plans.get_mut(number) else { return Ok(None) };
        if !std::mem::take(&mut plan.sends_on) {
            return Ok(None);
        }
        let (early, awaited) = (plan.early.clone(), core.waiters.is_awaited(number));
        let update = core.log.get(number).map_err(of_log)?;
        let store = update.filter(|update| matches!(update.change, Change::Store { .. }));
        Ok(store.map(|update| SendsOn { update, awaited, early }))
    }
}

/// A store that is next, and of which much was sent before its file was closed.
struct SendsOn {
    update: Update,
    awaited: bool,
    /// The work on it, if that is not known to have landed.
    early: Option<Arc<Work>>,
}

/// Chunks on their way, until they have landed or not.
struct Flight {
    work: Arc<Work>,
    names: Vec<ChunkName>,
}

impl Flight {
    fn of(work: &Arc<Work>, batch: &Batch) -> Flight {
        work.sent().under_way += 1;
        Flight { work: work.clone(), names: batch.iter().map(|(name, _)| *name).collect() }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        {
            let mut sent = self.work.sent();
            sent.under_way -= 1;
            for name in &self.names {
                sent.on_the_way.remove(name);
            }
        }
        self.work.landed.notify_waiters();
    }
}

/// So many messages are cut before it is their turn, so that the link has something to carry while
/// a close cuts the rest of the file.
fn ahead_most(rate: Option<u64>) -> usize {
    let messages = carried(rate.unwrap_or(0), CLOSE_TAKES) / PAYLOAD_BYTES_MAX as u64;
    usize::try_from(messages).unwrap_or(usize::MAX).clamp(1, AHEAD_MAX)
}

/// As few messages as they fit in.
fn batches(chunks: Batch) -> Vec<Batch> {
    let (mut batches, mut bytes): (Vec<Batch>, usize) = (Vec::new(), 0);
    for (name, chunk) in chunks {
        bytes += chunk.len();
        match batches.last_mut() {
            Some(batch) if bytes <= PAYLOAD_BYTES_MAX => batch.push((name, chunk)),
            _ => {
                bytes = chunk.len();
                batches.push(vec![(name, chunk)]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_a_message_goes_into_the_next() {
        let chunk = |length: usize| (ChunkName([7; 24]), vec![0; length]);
        let most = PAYLOAD_BYTES_MAX;
        let chunks = vec![chunk(most), chunk(1), chunk(most - 1), chunk(1)];
        let lengths: Vec<usize> = batches(chunks).iter().map(Vec::len).collect();
        assert_eq!(lengths, [1, 2, 1]);
        assert!(batches(Vec::new()).is_empty());
    }

    #[test]
    fn a_link_has_something_to_carry_while_a_file_is_closed() {
        let seconds = |rate| ahead_most(Some(rate)) as f64 * PAYLOAD_BYTES_MAX as f64 / rate as f64;
        assert_eq!((ahead_most(None), ahead_most(Some(1_000_000))), (1, 1));
        assert!(seconds(37_500_000) > 0.1 && seconds(118_000_000) > 0.1);
        assert_eq!(ahead_most(Some(u64::MAX)), AHEAD_MAX);
    }
}
