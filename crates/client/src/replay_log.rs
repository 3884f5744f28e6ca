//! Sending what is pending: a prefix of the log, in order, with the contents that are missing.
//! Holds: one batch is on its way at a time; a batch whose answer was lost is sent again as it
//! was, and the replica above knows it by its numbers; a number that has left is never given to
//! another update.
//! From: partially connected operation, section 5; LBFS, "Update protocol".

use crate::asking::unexpected;
use crate::client::{Client, Core, error_of};
use crate::home::{note_home, note_lacking};
use crate::needs::files_of;
use crate::pace::eager_bytes;
use crate::parcel::{Parcel, pack_all};
use crate::part::forget_part;
use crate::recipes::forget_unsent;
use crate::shown::Merged;
use crate::types::Error;
use crate::undo::of_log;
use model::{Change, ChunkName, FileId, Stamp, Update, birth_of};
use protocol::{
    Access, Class, Objection, Refusal, Request, Response, Submit, Submitted, Upstream, Verdict,
};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Containers, Write};
use update_log::{Batch, LogError, UpdateLog};
use volume::partial::{self, Changed, Touched};

/// Updates of one batch.
const BATCH_UPDATES_MAX: usize = 256;
/// After a failure that is not the link's.
pub(crate) const PAUSE: Duration = Duration::from_secs(2);
/// After a failure of the link's, and after one that the next try does not meet.
pub(crate) const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// With so many missing chunks in an answer there may be more.
pub(crate) const MISSING_TOLD_MAX: usize = 10_000;
/// Refusals that nobody asked for are forgotten beyond so many.
pub(crate) const REFUSALS_MAX: usize = 10_000;

/// What is to be sent next.
pub(crate) struct Sending {
    pub updates: Vec<Update>,
    /// What goes along unasked.
    pub eager: Parcel,
    pub strict: bool,
    pub settled: u64,
    /// The log is to be synced before it leaves.
    pub sync_first: bool,
    /// What may be unpacked above to find what is missing.
    pub seek: Option<u32>,
    /// Chunks that would have gone along, if the replica above were not to look for them first.
    pub withheld: Vec<ChunkName>,
    /// What is pending before it has no room.
    pub ahead: bool,
}

/// Why a batch did not get through.
pub(crate) enum Setback {
    Link,
    Failed(Error),
}

impl From<Error> for Setback {
    fn from(error: Error) -> Setback {
        Setback::Failed(error)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) async fn run_replay(&self) {
        while !self.is_stopping() {
            let wanted = self.inner.replay_wanted.notified();
            tokio::pin!(wanted);
            wanted.as_mut().enable();
            if !self.may_replay() {
                tokio::select! {
                    biased;
                    () = &mut wanted => {}
                    () = self.until_stopping() => {}
                }
                continue;
            }
            self.look_through().await;
            if let Some(rest) = self.holds_back() {
                tokio::select! {
                    biased;
                    () = &mut wanted => {}
                    () = self.until_stopping() => {}
                    () = self.inner.world.clock.sleep(rest) => {}
                }
                continue;
            }
            match self.replay_where_room().await {
                Ok(()) => {
                    self.core().setback = None;
                    self.note_full(false);
                    self.inner.full.over();
                    self.inner.unreadable.over();
                    self.inner.mended.sent();
                }
                // The next attach calls again.
                Err(Setback::Link) => self.inner.world.clock.sleep(SHORT_PAUSE).await,
                Err(Setback::Failed(error)) => self.be_set_back(&error).await,
            }
        }
    }

    /// What no longer matters does not leave.
    pub(crate) async fn look_through(&self) {
        let client = self.clone();
        let looked = self.off_the_runtime(move || {
            client.cancel_if_due();
            Ok(())
        });
        // It says itself what went wrong.
        let _ = looked.await;
    }

    pub(crate) fn may_replay(&self) -> bool {
        let (attached, replays) = {
            let connection = self.connection();
            (connection.attached, connection.replays())
        };
        attached && replays && self.core().log.pending_len() > 0
    }

    pub(crate) async fn replay_batch(&self) -> Result<(), Setback> {
        if self.core().meta.access == Access::ReadOnly {
            // It could write when it did that, and may again.
            return Err(Error::Objection(Objection::ReadOnly).into());
        }
        self.ask_of_passed().await?;
        self.send_on().await?;
        self.early_has_landed().await;
        if !self.connection().replays() {
            return Ok(());
        }
        let sending = if self.core().log.has_stores() {
            let client = self.clone();
            let sending = self.off_the_runtime(move || Ok(client.next_batch())).await;
            sending.map_err(error_of)??
        } else {
            // It reads no contents, and another thread would take longer than that.
            self.next_batch()?
        };
        if sending.updates.is_empty() {
            return self.nothing_is_sent().await;
        }
        if sending.sync_first {
            self.sync_before_sending(&sending).await?;
        }
        let class = if sending.strict { Class::Interactive } else { Class::Replay };
        let submit = self.submit(&sending);
        let session = self.connection().sessions;
        let answer = self.inner.upstream.ask(class, Request::Submit(submit)).await;
        let submitted = match answer {
            Ok(Response::Submitted(submitted)) => submitted,
            Ok(Response::Refused(Refusal::NotAttached)) => {
                self.is_attached_no_more(session);
                return Err(Setback::Link);
            }
            Ok(Response::Refused(refusal)) => {
                if matches!(refusal, Refusal::NoSpace) {
                    self.core().returned_for_room(&sending.updates);
                }
                return Err(self.refused(refusal));
            }
            Ok(other) => return Err(unexpected("submit", &other).into()),
            Err(_) => return Err(Setback::Link),
        };
        if submitted.verdicts.len() > sending.updates.len() {
            return Err(
                Error::Failed("the server judged more updates than were sent".into()).into()
            );
        }
        self.note_useless(submitted.useless.as_ref());
        self.note_arrived(&sending.eager, submitted.useless.as_ref());
        self.note_sought(&sending.withheld, &submitted.missing);
        let progress = !submitted.verdicts.is_empty();
        self.settle(&sending, &submitted)?;
        if submitted.missing.is_empty() {
            if !progress {
                let text = "the server neither took an update nor said what it lacks";
                return Err(Error::Failed(text.into()).into());
            }
            return Ok(());
        }
        let rest = &sending.updates[submitted.verdicts.len()..];
        let missing = &submitted.missing;
        self.while_others_pass(rest, missing, self.put(rest, missing, class)).await
    }

    /// What is sent of updates that have their turn.
    pub(crate) fn submit(&self, sending: &Sending) -> Submit {
        let rate = self.inner.upstream.quality().likely_up();
        Submit {
            settled: sending.settled,
            strict: sending.strict,
            updates: sending.updates.clone(),
            payload: pack_all(&sending.eager.chunks, rate),
            deltas: sending.eager.deltas(),
            seek: sending.seek,
            ahead: None,
            under: self.held_under(&sending.updates),
        }
    }

    /// What nobody waits for is on this machine's disk before it leaves, and so is what this machine
    /// would not pass over if it lost it with its power.
    pub(crate) async fn sync_before_sending(&self, sending: &Sending) -> Result<(), Setback> {
        let client = self.clone();
        let synced = self.off_the_runtime(move || client.sync_log()).await;
        if synced.is_err() {
            let numbers: Vec<u64> =
                sending.updates.iter().map(|update| update.stamp.number).collect();
            self.core().log.returned(&numbers);
        }
        Ok(synced.map_err(error_of)?)
    }

    pub(crate) fn refused(&self, refusal: Refusal) -> Setback {
        match refusal {
            Refusal::NotAttached => Setback::Link,
            Refusal::NoSpace => Setback::Failed(Error::Objection(Objection::NoSpace)),
            Refusal::OverQuota => Setback::Failed(Error::Objection(Objection::OverQuota)),
            refusal => Setback::Failed(Error::Unreachable(refusal.to_string())),
        }
    }

    /// The first pending updates, with the contents that are quicker sent than asked about.
    fn next_batch(&self) -> Result<Sending, Error> {
        let mut room = eager_bytes(&self.inner.upstream.quality());
        let (updates, settled) = {
            let mut core = self.core();
            (first_pending(&mut core.log).map_err(of_log)?, core.meta.settled)
        };
        let mut taken = Vec::new();
        let mut eager = Parcel::default();
        let mut sent = BTreeSet::new();
        let asks_first = self.inner.full.bytes_max().is_some();
        for (at, update) in updates.iter().enumerate() {
            if matches!(update.change, Change::Store { .. }) {
                if asks_first {
                    self.plan_again(update)?;
                    taken.push(update.clone());
                    break;
                }
                // What makes the file goes with what it holds.
                let begins = birth_of(&updates, at);
                if !self.add_eager(update, &mut room, begins == 0, &mut sent, &mut eager)? {
                    taken.truncate(begins);
                    break;
                }
            }
            taken.push(update.clone());
        }
        let seek = self.seek_above();
        let withheld = if seek.is_some() { self.withhold(&mut eager) } else { Vec::new() };
        let delay = self.stays();
        let mut core = self.core();
        // Somebody may have taken one back meanwhile; what is left is still a prefix in order.
        taken.retain(|update| core.log.is_pending(update.stamp.number));
        let awaited = |update: &Update| core.waiters.is_awaited(update.stamp.number);
        let strict = taken.first().is_some_and(awaited);
        let alike = taken.iter().take_while(|update| awaited(update) == strict).count();
        taken.truncate(alike);
        self.old_enough(&core, delay, &mut taken);
        let numbers: Vec<u64> = taken.iter().map(|update| update.stamp.number).collect();
        core.log.submitted(&numbers);
        let sync_first = !strict || !taken.iter().all(|update| core.may_leave.covers(update));
        let ahead = false;
        Ok(Sending { updates: taken, eager, strict, settled, sync_first, seek, withheld, ahead })
    }

    /// Takes in the verdicts. Whoever waits for them is told, whatever becomes of the rest.
    pub(crate) fn settle(&self, sending: &Sending, submitted: &Submitted) -> Result<(), Setback> {
        let _pressed = self.pressed();
        let (mut stale, mut outcome) = (Vec::<Changed>::new(), Ok(()));
        let mut said = Said::default();
        let is_merged;
        {
            let mut core = self.core();
            let core = &mut *core;
            let judged: Vec<(&Update, &Verdict)> =
                sending.updates.iter().zip(&submitted.verdicts).collect();
            let before = self.showing(&submitted.states)?;
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let (changed, taking) = self.take_said(core, &mut *write, &submitted.states)?;
            stale.extend(taking.changed());
            note_lacking(core, &mut *write, &sending.updates[judged.len()..], &submitted.missing)?;
            let settled = core.meta.settled;
            let learnt = files_of(&submitted.states);
            let merged = Merged::by(&judged);
            let noted = said
                .note(
                    core,
                    &mut *write,
                    &judged,
                    (sending.ahead, self.numbers().merged().is_some()),
                )
                .and_then(|()| self.going_said(&*write, submitted, &said.turned_down, &taking))
                .and_then(|going| {
                    self.go_on_in(&merged, core, &mut *write)?;
                    let anew = (!merged.is_none()).then_some(&said.turned_down[..]);
                    stale.extend(self.commit_learnt(core, write, learnt, (None, anew), going)?);
                    Ok(())
                });
            if let Err(error) = noted {
                // Nothing of it is known here yet: they are sent again, and judged the same.
                core.log.put_back(said.retired);
                // The log may say already where it is done.
                core.behind |= !merged.is_none();
                core.judged = core.judged.max(core.meta.settled);
                core.meta.settled = settled;
                return Err(error.into());
            }
            core.unsaved = true;
            self.taking_noted(taking);
            is_merged = !merged.is_none();
            core.judged_of(judged.iter().map(|(update, _)| *update), sending.ahead);
            self.note_judged(core, &judged, sending);
            core.forget_settled();
            self.take_allowance_of(core, submitted);
            // What was not judged has not been taken, and may be taken back again.
            let rest: Vec<u64> =
                sending.updates[judged.len()..].iter().map(|update| update.stamp.number).collect();
            core.log.returned(&rest);
            if !said.turned_down.is_empty() {
                outcome = self.shown_without(core, &said.turned_down, is_merged);
                stale.extend(said.turned_down.iter().flat_map(stale_by));
                stale.extend(changed);
            }
            stale.extend(self.shows_otherwise(before, &submitted.states)?);
        }
        let judged = &sending.updates[..submitted.verdicts.len()];
        outcome = outcome.and(self.let_go_of_judged(judged, said.grounds));
        self.forget_after_verdicts(&stale, is_merged);
        self.acknowledge_company();
        if !submitted.verdicts.is_empty() {
            self.note_progress();
        }
        self.inner.settled.notify_waiters();
        Ok(outcome?)
    }

    /// What was kept for stores that have been judged, and for the grounds that some rested on.
    fn let_go_of_judged(
        &self,
        judged: &[Update],
        grounds: Vec<(FileId, Stamp)>,
    ) -> Result<(), Error> {
        let filled = judged.iter().filter_map(|update| update.change.fills());
        filled.for_each(|file| self.discard_outlived(file));
        let taken = grounds.into_iter().map(|(file, version)| self.was_taken(file, version));
        taken.fold(Ok(()), Result::and)
    }

    /// Nobody needs the plans of what has been judged, and whoever waits is told.
    fn note_judged(&self, core: &mut Core, judged: &[(&Update, &Verdict)], sending: &Sending) {
        for (update, verdict) in judged {
            let number = update.stamp.number;
            core.plans.remove(number);
            core.plans.ways.remove(number);
            core.refusals.remove(&number);
            if !matches!(verdict, Verdict::Taken(_)) {
                self.report(update, verdict);
            }
            if let (Verdict::KeptAside { .. }, Some(file)) = (verdict, update.change.fills()) {
                self.files().lies_aside(file, update.stamp);
            }
            if let (Verdict::Refused(objection), true) = (verdict, sending.strict) {
                core.refusals.insert(number, *objection);
            }
        }
        let ahead = u64::from(sending.ahead) * judged.len() as u64;
        self.inner.counters.ahead.fetch_add(ahead, Ordering::Relaxed);
        self.note_home(judged.iter().map(|(update, _)| update.at), sending.strict);
    }

    fn report(&self, update: &Update, verdict: &Verdict) {
        match verdict {
            Verdict::Taken(_) => {}
            Verdict::KeptAside { name, directory, .. } => {
                self.inner.counters.conflicts.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    update = %update.stamp, %directory, %name,
                    "somebody else changed the same thing: both are kept, this one under another name"
                );
            }
            Verdict::Refused(objection) => {
                tracing::info!(update = %update.stamp, %objection, "an update was refused");
            }
        }
    }

    /// What is pending has come a step nearer to its verdict: a step of which there are only so
    /// many, so that nobody waits without end.
    pub(crate) fn note_progress(&self) {
        self.inner.progress.fetch_add(1, Ordering::Relaxed);
    }
}

/// What verdicts come to, before it is committed.
#[derive(Default)]
struct Said {
    retired: Vec<Update>,
    turned_down: Vec<Update>,
    /// Files and versions that rested on a ground.
    grounds: Vec<(FileId, Stamp)>,
}

impl Said {
    /// If this fails, or the commit after it, what was retired so far is to be put back.
    fn note(
        &mut self,
        core: &mut Core,
        write: &mut dyn Write,
        judged: &[(&Update, &Verdict)],
        (ahead, may_be_renamed): (bool, bool),
    ) -> Result<(), Error> {
        for (update, verdict) in judged {
            let number = update.stamp.number;
            if may_be_renamed && let Some(now) = core.log.get(number).map_err(of_log)? {
                // It shows as that, and left before it named another directory.
                partial::forget_local(write, number, &Touched::by(&now))
                    .map_err(|error| Error::Failed(error.to_string()))?;
            }
            self.retired.extend(retire(core, update, ahead));
            partial::forget_local(write, number, &Touched::by(update))
                .map_err(|error| Error::Failed(error.to_string()))?;
            if let Some(plan) = core.plans.get(number) {
                for name in plan.names() {
                    note_home(write, name).map_err(error_of)?;
                }
            }
            self.grounds.extend(rested(write, update, verdict)?);
            if !matches!(verdict, Verdict::Taken(_)) {
                self.turned_down.push((*update).clone());
            }
        }
        Ok(())
    }
}

impl Core {
    /// Of updates that are pending no more, nobody needs more than their refusals.
    fn forget_settled(&mut self) {
        self.plans.forget_before(self.log.first_number());
        self.forget_waiters();
        while self.refusals.len() > REFUSALS_MAX {
            self.refusals.pop_first();
        }
    }
}

/// The first pending updates, none of which is to leave with one that comes after them.
pub(crate) fn first_pending(log: &mut UpdateLog) -> Result<Vec<Update>, LogError> {
    let Batch { mut updates, more } = log.batch(BATCH_UPDATES_MAX)?;
    let last = updates.last().map_or(0, |last| last.stamp.number);
    let next = if more { log.numbers_from(last + 1).next() } else { None };
    if let Some(next) = next.map(|next| log.get(next)).transpose()?.flatten() {
        let whole = updates.len();
        updates.push(next);
        let begins = birth_of(&updates, whole);
        updates.truncate(if begins > 0 { begins } else { whole });
    }
    Ok(updates)
}

/// The update has been judged. Gives it, if it was pending.
fn retire(core: &mut Core, update: &Update, ahead: bool) -> Option<Update> {
    let number = update.stamp.number;
    let was_pending = core.log.retire(update);
    if !ahead {
        core.meta.settled = core.meta.settled.max(number);
    }
    was_pending.then(|| update.clone())
}

/// A store has been judged: the file and the version, if it rested on a ground and was taken.
fn rested(
    write: &mut dyn Write,
    update: &Update,
    verdict: &Verdict,
) -> Result<Option<(FileId, Stamp)>, Error> {
    let Change::Store { file, .. } = update.change else { return Ok(None) };
    let had_part = forget_part(write, file, update.stamp.number).map_err(error_of)?;
    forget_unsent(write, file, update.stamp.number).map_err(error_of)?;
    Ok((had_part && matches!(verdict, Verdict::Taken(_))).then_some((file, update.stamp)))
}

/// What the kernel may show that an update which was turned down had made.
pub(crate) fn stale_by(update: &Update) -> Vec<Changed> {
    let touched = Touched::by(update);
    let nodes = touched.nodes.into_iter().map(|file| Changed::Node { file, contents: true });
    let entries =
        touched.entries.into_iter().map(|(directory, name)| Changed::Entry(directory, name));
    nodes.chain(entries).collect()
}
