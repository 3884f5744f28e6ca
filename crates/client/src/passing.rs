//! While contents are sent that take the link long, what is pending behind them and has nothing to
//! do with them goes ahead.
//! Holds: what goes ahead keeps its number, under which the replica above knows it should it come
//! again in its turn; one batch at a time is on its way, ahead or not; what may have been taken ahead
//! counts as on its way until its verdict comes, or the replica above has said that it was not.

use crate::client::{Client, Core, error_of, failed};
use crate::meta::Meta;
use crate::pace::eager_bytes;
use crate::parcel::Parcel;
use crate::replay_log::{Sending, Setback};
use crate::types::{Error, Step};
use crate::undo::of_log;
use model::{Change, ChunkName, FileId, Update};
use protocol::{Class, Request, Response, Submit, Upstream};
use replay::{Held, unit_at};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{Containers, Journal};
use tokio::sync::Notify;
use update_log::{LogError, Recovered, UpdateLog};

/// Pending updates that are read at once, and so many of them in one look.
const PAGE_UPDATES: usize = 256;
const PAGES_MAX: usize = 16;
/// Updates that go ahead in one message.
const AHEAD_UPDATES_MAX: usize = 256;
/// The replica above keeps a verdict for each that was taken ahead, until its turn comes.
const PASSED_MAX: usize = 4096;
/// Contents go ahead of others that are so many times as long.
pub(crate) const SHORTER_BY: u64 = 8;
/// Files of which it is noted that a program made sure of them.
const NOTED_FROM: u64 = 2 << 10;
/// How often contents that turn out to be missing are sent before what needs them stays behind.
const TRIES_MAX: usize = 4;
/// What stays for its age is looked at again after this.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// What stays behind while something long is sent, and what was not looked at.
#[derive(Default)]
struct Lookout {
    held: Held,
    /// Pending updates from this number on were not looked at.
    next: u64,
    /// Contents of so many bytes may go ahead.
    bytes_max: u64,
}

/// The long thing is done, or has failed.
#[derive(Default)]
struct Over {
    is_so: AtomicBool,
    told: Notify,
}

/// What becomes of updates that go together.
enum Place {
    Along,
    /// With the next message.
    Next,
    Behind,
}

/// What a look has found so far.
#[derive(Default)]
struct Found {
    updates: Vec<Update>,
    eager: Parcel,
    sent: BTreeSet<ChunkName>,
    strict: bool,
    /// Bytes that may go along unasked.
    room: u64,
    /// Nothing more goes with it.
    whole: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Does `work`, which sends what the first of these updates lack; meanwhile others go ahead.
    pub(crate) async fn while_others_pass<T>(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
        work: impl Future<Output = Result<T, Setback>>,
    ) -> Result<T, Setback> {
        let Some(lookout) = self.lookout(updates, missing) else { return work.await };
        let over = Over::default();
        let work = async {
            let outcome = work.await;
            over.is_so.store(true, Ordering::Relaxed);
            over.told.notify_one();
            outcome
        };
        // What is on its way ahead is waited for: the next batch must not leave before.
        tokio::join!(work, self.go_ahead(lookout, &over)).0
    }

    /// None: it does not take long, or nothing may go ahead of it.
    fn lookout(&self, updates: &[Update], missing: &[ChunkName]) -> Option<Lookout> {
        let takes_long = self.inner.settings.passes_from?;
        if !self.connection().takes_any_ahead || self.inner.full.bytes_max().is_some() {
            return None;
        }
        let is_store = |update: &Update| matches!(update.change, Change::Store { .. });
        let stays = 1 + updates.iter().position(is_store)?;
        let quality = self.inner.upstream.quality();
        let core = self.core();
        let plan = core.plans.get(updates[stays - 1].stamp.number)?;
        let bytes: u64 = missing.iter().filter_map(|name| plan.length(name)).sum();
        let millis = u64::try_from(takes_long.as_millis()).unwrap_or(u64::MAX);
        let is_long = |rate: u64| bytes.saturating_mul(1000) >= rate.saturating_mul(millis);
        if !quality.rate_up.or(quality.likely_up()).is_none_or(is_long) {
            return None;
        }
        let mut held = Held::default();
        for update in &updates[..stays] {
            held.hold(update, core.log.sure_at(update.stamp.number));
        }
        let next = updates[stays - 1].stamp.number + 1;
        Some(Lookout { held, next, bytes_max: bytes / SHORTER_BY })
    }

    async fn go_ahead(&self, mut lookout: Lookout, over: &Over) {
        loop {
            let wanted = self.inner.replay_wanted.notified();
            tokio::pin!(wanted);
            wanted.as_mut().enable();
            if over.is_so.load(Ordering::Relaxed) || self.is_stopping() {
                return;
            }
            match self.pass_once(&mut lookout).await {
                Ok(true) => continue,
                Ok(false) => {}
                // Who sends the long thing meets it too.
                Err(Setback::Link) => return,
                Err(Setback::Failed(error)) => {
                    tracing::debug!(%error, "nothing more goes ahead of what takes long");
                    return;
                }
            }
            let again = async {
                match self.stays().is_zero() {
                    true => std::future::pending().await,
                    false => self.inner.world.clock.sleep(LOOKS_AGAIN).await,
                }
            };
            tokio::select! {
                biased;
                () = over.told.notified() => return,
                () = &mut wanted => {}
                () = again => {}
            }
        }
    }

    /// False: there is nothing that may go ahead now.
    async fn pass_once(&self, lookout: &mut Lookout) -> Result<bool, Setback> {
        self.look_through().await;
        let client = self.clone();
        let mut looking = std::mem::take(lookout);
        let look = move || {
            let found = client.next_ahead(&mut looking);
            Ok((found, looking))
        };
        let (found, looked) = self.off_the_runtime(look).await.map_err(error_of)?;
        *lookout = looked;
        let Some(sending) = found? else { return Ok(false) };
        for update in self.send_ahead(sending).await? {
            let sure_at = self.core().log.sure_at(update.stamp.number);
            lookout.held.hold(&update, sure_at);
        }
        Ok(true)
    }

    fn next_ahead(&self, lookout: &mut Lookout) -> Result<Option<Sending>, Error> {
        let may = {
            let connection = self.connection();
            connection.attached && connection.replays() && !connection.full
        };
        if !may || self.core().meta.passed.as_ref().is_some_and(|passed| passed.len() >= PASSED_MAX)
        {
            return Ok(None);
        }
        let room = eager_bytes(&self.inner.upstream.quality());
        let mut found = Found { room, ..Found::default() };
        for _ in 0..PAGES_MAX {
            if found.whole || !self.look_further(lookout, &mut found)? {
                break;
            }
        }
        let Found { mut updates, eager, strict, .. } = found;
        let mut core = self.core();
        // Somebody may have taken one back meanwhile.
        updates.retain(|update| core.log.is_pending(update.stamp.number));
        if updates.is_empty() {
            return Ok(None);
        }
        Ok(Some(core.sending_ahead(updates, eager, strict)))
    }

    /// False: there is nothing more to look at now.
    fn look_further(&self, lookout: &mut Lookout, found: &mut Found) -> Result<bool, Error> {
        let page = self.core().log.pending_from(lookout.next, PAGE_UPDATES).map_err(of_log)?;
        let mut at = 0;
        while let Some(first) = page.get(at) {
            let length = unit_at(&page, at);
            if at > 0 && at + length == page.len() && page.len() == PAGE_UPDATES {
                // More of it may follow.
                return Ok(true);
            }
            let unit = &page[at..at + length];
            if lookout.held.ends_before(first.stamp.number) || !self.is_old_enough(unit) {
                found.whole = true;
                return Ok(false);
            }
            let strict = self.core().waiters.is_awaited(first.stamp.number);
            if !found.updates.is_empty() && strict != found.strict {
                found.whole = true;
                return Ok(false);
            }
            let lets = unit.iter().all(|update| lookout.held.lets(update));
            let place = match lets {
                true => self.place_of(unit, lookout.bytes_max, found)?,
                false => Place::Behind,
            };
            match place {
                Place::Along => {
                    found.strict = strict;
                    found.updates.extend_from_slice(unit);
                }
                Place::Next => {
                    found.whole = true;
                    return Ok(false);
                }
                Place::Behind => {
                    let core = self.core();
                    for update in unit {
                        lookout.held.hold(update, core.log.sure_at(update.stamp.number));
                    }
                }
            }
            at += length;
            lookout.next = page[at - 1].stamp.number + 1;
            found.whole |= found.updates.len() >= AHEAD_UPDATES_MAX;
            if found.whole {
                return Ok(false);
            }
        }
        Ok(!page.is_empty())
    }

    /// Contents go ahead if they are at most `bytes_max` long; up to half of what takes long, if they
    /// are no longer than what is sent unasked. Puts what may be missing of them with what was found.
    fn place_of(&self, unit: &[Update], bytes_max: u64, found: &mut Found) -> Result<Place, Error> {
        let is_store = |update: &&Update| matches!(update.change, Change::Store { .. });
        for update in unit.iter().filter(is_store) {
            self.plan_again(update)?;
            let lacking = self.lacking_of(update)?;
            let bytes: u64 = {
                let core = self.core();
                let plan = core.plans.get(update.stamp.number);
                lacking.iter().filter_map(|name| plan.and_then(|plan| plan.length(name))).sum()
            };
            let eager = eager_bytes(&self.inner.upstream.quality());
            if bytes > bytes_max.max(eager.min(bytes_max.saturating_mul(SHORTER_BY) / 2)) {
                return Ok(Place::Behind);
            }
            let alone = found.updates.is_empty();
            let Found { room, sent, eager: parcel, .. } = found;
            if !self.add_eager(update, room, alone, sent, parcel)? {
                return Ok(Place::Next);
            }
            found.whole |= alone && bytes > eager;
        }
        Ok(Place::Along)
    }

    /// Sends updates ahead of their turn, and what they turn out to lack. Gives those that were not
    /// judged, which wait for their turn.
    pub(crate) async fn send_ahead(&self, mut sending: Sending) -> Result<Vec<Update>, Setback> {
        let class = if sending.strict { Class::Interactive } else { Class::Replay };
        for _ in 0..TRIES_MAX {
            // What is lost with the power here must not have been taken: its number is behind others
            // that were not.
            self.sync_before_sending(&sending).await?;
            let submit = Submit { seek: None, ahead: Some(true), ..self.submit(&sending) };
            let answer = self.inner.upstream.ask(class, Request::Submit(submit)).await;
            let submitted = match answer {
                Ok(Response::Submitted(submitted)) => submitted,
                Ok(Response::Refused(refusal)) => {
                    self.core().returned_ahead(&sending.updates);
                    return Err(self.refused(refusal));
                }
                Ok(other) => return Err(crate::asking::unexpected("submit", &other).into()),
                Err(_) => return Err(Setback::Link),
            };
            if submitted.verdicts.len() > sending.updates.len() {
                let text = "the server judged more updates than were sent";
                return Err(Error::Failed(text.into()).into());
            }
            self.note_useless(submitted.useless.as_ref());
            self.note_arrived(&sending.eager, submitted.useless.as_ref());
            self.settle(&sending, &submitted)?;
            sending.updates.drain(..submitted.verdicts.len());
            sending.eager = Parcel::default();
            if sending.updates.is_empty() || submitted.missing.is_empty() {
                break;
            }
            if !self.put_found(&sending.updates, &submitted.missing, class).await? {
                break;
            }
            let mut core = self.core();
            sending.updates.retain(|update| core.log.is_pending(update.stamp.number));
            if sending.updates.is_empty() {
                break;
            }
            core.sent_ahead(&sending.updates);
        }
        self.core().returned_ahead(&sending.updates);
        Ok(sending.updates)
    }

    /// What the replica above says it has taken ahead, and has not told of, is asked for by sending
    /// it again.
    pub(crate) async fn ask_of_passed(&self) -> Result<(), Setback> {
        loop {
            let sending = {
                let mut core = self.core();
                let ahead = core.meta.ahead.clone().unwrap_or_default();
                let known = ahead.iter().map(|number| core.log.get(*number));
                let mut updates: Vec<Update> = known
                    .filter_map(Result::transpose)
                    .take(AHEAD_UPDATES_MAX)
                    .collect::<Result<_, _>>()
                    .map_err(of_log)?;
                let awaited = |update: &Update| core.waiters.is_awaited(update.stamp.number);
                let strict = updates.first().is_some_and(awaited);
                let alike = updates.iter().take_while(|update| awaited(update) == strict).count();
                updates.truncate(alike);
                if updates.is_empty() {
                    core.meta.ahead = None;
                    return Ok(());
                }
                core.sending_ahead(updates, Parcel::default(), strict)
            };
            if !self.send_ahead(sending).await?.is_empty() {
                let text = "the server has said that it took updates, and does not judge them";
                return Err(Error::Failed(text.into()).into());
            }
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A program makes sure of what a file holds: it is logged on the disk, and nothing that is done
    /// from then on is seen elsewhere before that.
    pub(crate) fn make_sure(&self, file: FileId) -> Step<()> {
        if self.inner.settings.passes_from.is_some() {
            self.note_sure(file)?;
        }
        self.sync_log().map_err(failed)
    }

    /// What is sent in no time need not be noted.
    fn note_sure(&self, file: FileId) -> Result<(), Error> {
        let mut core = self.core();
        let Some(number) = core.log.pending_store(file) else { return Ok(()) };
        let stored = core.log.get(number).map_err(of_log)?;
        match stored.map(|update| update.change) {
            Some(Change::Store { contents, .. }) if contents.size >= NOTED_FROM => {
                core.log.make_sure(number).map_err(of_log)
            }
            _ => Ok(()),
        }
    }
}

/// The log without what is settled, in its turn or ahead of it.
pub(crate) fn open_log(
    journal: &Arc<dyn Journal>,
    meta: &Meta,
    near_max: usize,
) -> Result<(UpdateLog, Recovered), LogError> {
    let (mut log, recovered) =
        UpdateLog::open(journal.clone(), meta.settled, meta.applied, near_max)?;
    for number in meta.passed.iter().flatten() {
        if let Some(update) = log.get(*number)? {
            log.retire(&update);
        }
        // It was in the log, also where that has been cut off behind it since.
        log.skip_to(*number);
    }
    Ok((log, recovered))
}

impl Core {
    /// These are about to be sent ahead, all of them awaited or none.
    pub(crate) fn sending_ahead(
        &mut self,
        updates: Vec<Update>,
        eager: Parcel,
        strict: bool,
    ) -> Sending {
        self.sent_ahead(&updates);
        let (settled, sync_first, seek, withheld) = (self.meta.settled, true, None, Vec::new());
        Sending { updates, eager, strict, settled, sync_first, seek, withheld, ahead: true }
    }

    /// It may have been taken ahead, and its verdict has not come.
    pub(crate) fn may_be_ahead(&self, number: u64) -> bool {
        let taken = self.meta.ahead.as_ref();
        self.ahead.contains(&number) || taken.is_some_and(|taken| taken.contains(&number))
    }

    /// These may have been taken from now on.
    fn sent_ahead(&mut self, updates: &[Update]) {
        let numbers: Vec<u64> = updates.iter().map(|update| update.stamp.number).collect();
        self.log.submitted(&numbers);
        self.ahead.extend(numbers);
    }

    /// The replica above has said that it did not take them.
    fn returned_ahead(&mut self, updates: &[Update]) {
        let numbers: Vec<u64> = updates.iter().map(|update| update.stamp.number).collect();
        self.log.returned(&numbers);
        self.ahead.retain(|number| !numbers.contains(number));
    }

    /// They were judged, ahead of their turn or in it.
    pub(crate) fn judged_of<'a>(&mut self, updates: impl Iterator<Item = &'a Update>, ahead: bool) {
        for update in updates {
            let number = update.stamp.number;
            self.ahead.remove(&number);
            if let Some(taken) = &mut self.meta.ahead {
                taken.retain(|taken| *taken != number);
            }
            if ahead {
                self.meta.passed.get_or_insert_default().insert(number);
            }
        }
        let unsettled = self.meta.settled.saturating_add(1);
        let passed = self.meta.passed.take().map(|mut passed| passed.split_off(&unsettled));
        self.meta.passed = passed.filter(|passed| !passed.is_empty());
    }
}
