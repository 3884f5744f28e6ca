//! Group commit: whoever comes first takes all that wait for a volume into one transaction, so
//! that they share its sync.
//! Holds: a batch whose session another one of the same client has followed changes nothing.

use super::again::answered;
use super::batch::{Batch, Taken, take};
use super::missed::{ended, settle, tell_missed};
use super::{Done, records, redirect::Redirects};
use crate::answer::{pick, states};
use crate::callbacks::{Showing, Touch};
use crate::error::{ReplicaError, Result};
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{Change, FileId, Kind, Seq, View};
use protocol::Refusal;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use store::Durability;
use tokio::sync::oneshot;
use tracing::debug;
use volume::whole::{Committer, Touched, Whole};

/// Directories above a file that are looked at.
const DEPTH_MAX: usize = 4_096;

/// Updates in one transaction, about.
const GROUP_UPDATES_MAX: usize = 10_000;
/// Batches that wait. Every session has one at a time or a few.
const WAITING_MAX: usize = 8192;

type Sender = oneshot::Sender<Result<Done, Refusal>>;

/// Batches that wait for the transaction before theirs.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<(Batch, Sender)>,
    /// Somebody works on it.
    worked_on: bool,
}

impl Queue {
    /// True: nobody works on the queue, and the caller has to see to it.
    pub fn push(&mut self, batch: Batch, sender: Sender) -> Result<bool, Refusal> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(Refusal::Failed("too many updates wait; send them again later".into()));
        }
        self.waiting.push_back((batch, sender));
        Ok(!std::mem::replace(&mut self.worked_on, true))
    }

    /// What goes into the next transaction; nothing: the work is over.
    fn group(&mut self) -> Vec<(Batch, Sender)> {
        let mut group = Vec::new();
        let mut updates = 0;
        while updates < GROUP_UPDATES_MAX {
            let Some(next) = self.waiting.pop_front() else { break };
            updates += next.0.updates.len().max(1);
            group.push(next);
        }
        self.worked_on = !group.is_empty();
        group
    }
}

/// Works until the queue is empty.
pub(super) async fn work(inner: Arc<Inner>, volume: Arc<Volume>) {
    loop {
        let group = volume.queue().group();
        if group.is_empty() {
            return;
        }
        let (for_inner, for_volume) = (inner.clone(), volume.clone());
        let work = move || commit_group(&for_inner, &for_volume, group);
        // If the runtime goes down the askers see their senders dropped, and ask again later.
        if inner.limits.blocking.run(work).await.is_err() {
            volume.queue().worked_on = false;
            return;
        }
    }
}

/// Answers every batch of the group. One that fails does not take the others with it.
fn commit_group(inner: &Inner, volume: &Volume, group: Vec<(Batch, Sender)>) {
    let (batches, senders): (Vec<Batch>, Vec<Sender>) = group.into_iter().unzip();
    let turn = volume.turn();
    let outcomes = match commit_more(inner, volume, &batches) {
        Ok(Committed { mut outcomes, unprepared }) => {
            inner.note_written();
            for place in unprepared {
                outcomes[place] = commit_by_itself(inner, volume, &batches[place]);
            }
            outcomes
        }
        Err(error) if batches.len() == 1 && !(error.is_full() && batches[0].frees()) => {
            vec![refuse(inner, volume, &error, &batches[0])]
        }
        Err(_) => batches.iter().map(|batch| commit_by_itself(inner, volume, batch)).collect(),
    };
    drop(turn);
    volume.door.wake();
    for (sender, outcome) in senders.into_iter().zip(outcomes) {
        // An asker that is gone asks again, and is answered from the kept verdicts.
        let _ = sender.send(outcome);
    }
}

/// What came of a transaction.
struct Committed {
    outcomes: Vec<Result<Done, Refusal>>,
    /// The places of batches that meet what another one of them has stored: they are to be taken by
    /// themselves.
    unprepared: Vec<usize>,
}

fn commit_by_itself(inner: &Inner, volume: &Volume, batch: &Batch) -> Result<Done, Refusal> {
    match commit_one(inner, volume, std::slice::from_ref(batch)) {
        Ok(mut committed) => committed.outcomes.remove(0),
        Err(error) => refuse(inner, volume, &error, batch),
    }
}

/// Within the turn: why a batch was not taken, or what became of it before.
fn refuse(
    inner: &Inner,
    volume: &Volume,
    error: &ReplicaError,
    batch: &Batch,
) -> Result<Done, Refusal> {
    if !error.is_full() {
        return Err(inner.refuse(error, volume, "take updates"));
    }
    // Who hears that the disk is full knows that the first of what it sent was not taken, and goes on
    // to what removes something.
    if let Err(error) = inner.reserved.used(|| settle(inner, volume)) {
        debug!(volume = volume.name, %error, "what a failed commit has left may not be on the disk");
        return Err(not_known());
    }
    match answered(inner, volume, batch) {
        Ok(Some(done)) => Ok(done),
        Ok(None) => Err(inner.refuse(error, volume, "take updates")),
        Err(error) => Err(inner.refuse(&error, volume, "look for verdicts")),
    }
}

fn not_known() -> Refusal {
    Refusal::Failed("its disk is full, and a write before that had failed: try again later".into())
}

/// A full disk keeps nobody from removing what has filled it.
fn commit_one(inner: &Inner, volume: &Volume, one: &[Batch]) -> Result<Committed> {
    match one.iter().all(Batch::frees) {
        true => inner.reserved.used(|| commit(inner, volume, one)),
        false => commit_more(inner, volume, one),
    }
}

/// Also what frees nothing, which leaves the room that the rest needs.
fn commit_more(inner: &Inner, volume: &Volume, batches: &[Batch]) -> Result<Committed> {
    if !batches.iter().all(Batch::frees) {
        inner.has_room_for_more()?;
    }
    commit(inner, volume, batches)
}

/// One transaction, and then the word to all whom it concerns.
fn commit(inner: &Inner, volume: &Volume, batches: &[Batch]) -> Result<Committed> {
    let done = commit_now(inner, volume, batches);
    ended(inner, volume, done)
}

fn commit_now(inner: &Inner, volume: &Volume, batches: &[Batch]) -> Result<Committed> {
    let updates = || batches.iter().flat_map(|batch| &batch.updates);
    let prepared = records::prepare(inner, volume, batches)?;
    if updates().any(|update| matches!(update.change, Change::Store { .. })) {
        inner.blobs.sync()?;
    }
    let now = inner.world.clock.time();
    let mut write = inner.tables.write()?;
    let mut committer = Committer::begin(&mut *write, volume.id)?;
    tell_missed(inner, volume, (&committer.view(), committer.position()));
    let redirects = Redirects::of(committer.read(), volume.id)?;
    let quota = volume.quota();
    let mut outcomes = Vec::with_capacity(batches.len());
    let mut unprepared = Vec::new();
    for (place, batch) in batches.iter().enumerate() {
        // Sessions follow one another within transactions, so none does before this one ends.
        let is_newest = volume.holders().is_newest(&batch.by.place);
        outcomes.push(match is_newest {
            true => {
                match take(&mut committer, (batch, &prepared), redirects, now, quota.as_ref()) {
                    Err(ReplicaError::Unprepared) if batches.len() > 1 => {
                        unprepared.push(place);
                        Err(Refusal::Failed("its turn has not come".into()))
                    }
                    taken => taken?,
                }
            }
            false => Err(Refusal::NotAttached),
        });
    }
    let showing = show((&committer.view(), committer.position()), &outcomes)?;
    let lines = match volume.holders().is_any_patient() {
        true => outcomes.iter().map(|taken| lines_of(&committer.view(), taken)).collect(),
        false => Ok(vec![Vec::new(); outcomes.len()]),
    };
    let lines: Vec<Vec<Vec<FileId>>> = lines?;
    let upto = committer.finish()?;
    write.commit(Durability::Now)?;
    volume.unsettled.over();
    let outcomes = publish(inner, volume, (batches, &lines), outcomes, &showing, upto);
    Ok(Committed { outcomes, unprepared })
}

/// The state of all that the group touched, as its transaction leaves it.
pub(super) fn show(
    (view, position): (&Whole<'_>, Seq),
    outcomes: &[Result<Taken, Refusal>],
) -> Result<Showing> {
    let mut touched = Touched::default();
    for taken in outcomes.iter().flatten() {
        touched.add(&taken.shown);
        touched.add(&taken.before);
    }
    Ok(Showing::of(states(view, &touched, position)?))
}

/// Where that is which was touched: each file with the directories that it is in, upwards. One that
/// is gone has none; of its name the directory tells.
fn lines_of(view: &Whole<'_>, taken: &Result<Taken, Refusal>) -> Result<Vec<Vec<FileId>>> {
    let Ok(Taken { changed, before, .. }) = taken else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    for file in changed.nodes.union(&before.nodes) {
        match view.node(*file)? {
            Some(node) if node.kind == Kind::Directory => lines.push(line(view, *file)?),
            Some(_) => {
                let place = view.names(*file, 1)?.into_iter().next();
                let mut upwards = vec![*file];
                if let Some((directory, _)) = place {
                    upwards.extend(line(view, directory)?);
                }
                lines.push(upwards);
            }
            None => {}
        }
    }
    for (directory, _) in changed.entries.union(&before.entries) {
        lines.push(line(view, *directory)?);
    }
    Ok(lines)
}

/// A directory, and those that it is in.
fn line(view: &Whole<'_>, directory: FileId) -> Result<Vec<FileId>> {
    let mut upwards = vec![directory];
    for _ in 0..DEPTH_MAX {
        let Some(last) = upwards.last() else { break };
        let node = view.node(*last)?;
        match node.and_then(|node| node.parent).filter(|parent| parent != last) {
            Some(parent) => upwards.push(parent),
            None => break,
        }
    }
    Ok(upwards)
}

/// What others are told of. Who waits for what was judged before was not answered then, and may have
/// others wait for it whom that has not reached.
fn told_of<'a>(batch: &Batch, outcome: &'a Result<Taken, Refusal>) -> Cow<'a, Touched> {
    match outcome {
        Ok(taken) if batch.strict && !taken.before.is_empty() => {
            let mut keys = taken.changed.clone();
            keys.add(&taken.before);
            Cow::Owned(keys)
        }
        Ok(taken) => Cow::Borrowed(&taken.changed),
        Err(_) => Cow::Owned(Touched::default()),
    }
}

pub(super) fn publish(
    inner: &Inner,
    volume: &Volume,
    (batches, lines): (&[Batch], &[Vec<Vec<FileId>>]),
    outcomes: Vec<Result<Taken, Refusal>>,
    showing: &Showing,
    upto: Seq,
) -> Vec<Result<Done, Refusal>> {
    let mut updates = batches.iter().flat_map(|batch| &batch.updates);
    if updates.any(|update| matches!(update.change, Change::Store { .. })) {
        inner.noticed.stored();
    }
    let keys: Vec<Cow<'_, Touched>> =
        batches.iter().zip(&outcomes).map(|(batch, outcome)| told_of(batch, outcome)).collect();
    let mut touches = Vec::with_capacity(batches.len());
    let mut holders = volume.holders();
    for (((batch, outcome), lines), keys) in batches.iter().zip(&outcomes).zip(lines).zip(&keys) {
        let by = batch.by.place.replica;
        touches.push(Touch { by, strict: batch.strict, keys, lines });
        if let Ok(taken) = outcome {
            let directories = taken.shown.entries.iter().map(|(directory, _)| *directory);
            let files = taken.shown.nodes.iter().copied().chain(directories);
            holders.show(&batch.by.place, files, inner.limits.shown_max);
        }
    }
    let now = inner.world.clock.moment();
    let waits = holders.publish(&touches, showing, upto, now);
    let mut answers = Vec::with_capacity(batches.len());
    for ((batch, outcome), waits) in batches.iter().zip(outcomes).zip(waits) {
        answers.push(outcome.map(|taken| {
            let (states, rest) = pick(showing, &taken.shown);
            holders.note(&batch.by.place, &rest, showing);
            let Taken { verdicts, allowance, .. } = taken;
            Done { verdicts, states, upto, waits, allowance }
        }));
    }
    answers
}
