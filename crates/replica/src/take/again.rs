//! Answers what was judged before.
//! Holds: a number is used once: one that comes again gets the verdict that it had. Who hears that
//! the disk is full knows that the first of what it sent was not taken.

use super::batch::{Batch, Taken, show_update, show_verdict};
use super::group::{publish, show};
use super::{Done, Submitter};
use crate::answer::allowance;
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use model::{Seq, Update};
use protocol::{Objection, Verdict};
use volume::whole::{Whole, Writer};

/// Answers an update whose number is behind.
pub(super) fn answer(
    taken: &mut Taken,
    (view, position): (&Whole<'_>, Seq),
    writer: &Writer,
    update: &Update,
) -> Result<()> {
    let verdict = match view.verdict(update.stamp)? {
        Some(verdict) => verdict,
        // The writer had this verdict, and has lost it with a crash since. Whoever waited for it
        // has been told; what counts now is how things are.
        None if update.stamp.number <= writer.settled => Verdict::Taken(position),
        // A number that was passed over: its writer had taken the update back.
        None => Verdict::Refused(Objection::Changed),
    };
    if let Verdict::Taken(seq) | Verdict::KeptAside { seq, .. } = verdict
        && let Some(logged) = view.logged(seq)?
        && logged.update.stamp == update.stamp
    {
        taken.before.nodes.extend(logged.nodes);
        taken.before.entries.extend(logged.entries);
    }
    show_update(&mut taken.shown, update);
    show_verdict(view, &mut taken.shown, &verdict)?;
    taken.verdicts.push(verdict);
    Ok(())
}

/// How many of the updates were judged, from the first on.
pub(super) fn judged(
    inner: &Inner,
    volume: &Volume,
    by: &Submitter,
    (ahead, updates): (bool, &[Update]),
) -> Result<usize> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let writer = view.writer(by.place.replica)?;
    writer.map_or(Ok(0), |writer| judged_of(&view, &writer, (ahead, updates)))
}

fn judged_of(
    view: &Whole<'_>,
    writer: &Writer,
    (ahead, updates): (bool, &[Update]),
) -> Result<usize> {
    for (count, update) in updates.iter().enumerate() {
        // Of one that was taken ahead and whose turn comes now, that would have to be written down.
        let is_judged =
            update.stamp.number <= writer.taken || (ahead && view.verdict(update.stamp)?.is_some());
        if !is_judged {
            return Ok(count);
        }
    }
    Ok(updates.len())
}

/// Answers without a write. None: nothing of the batch was judged.
pub(super) fn answered(inner: &Inner, volume: &Volume, batch: &Batch) -> Result<Option<Done>> {
    let place = &batch.by.place;
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let Some(writer) = view.writer(place.replica)? else { return Ok(None) };
    let count = judged_of(&view, &writer, (batch.ahead, &batch.updates))?;
    if count == 0 || !volume.holders().is_newest(place) {
        return Ok(None);
    }
    let position = view.position()?;
    let mut taken = Taken::default();
    for update in &batch.updates[..count] {
        answer(&mut taken, (&view, position), &writer, update)?;
    }
    if let Some(quota) = volume.quota() {
        taken.allowance = Some(allowance(inner, volume, quota, place.replica)?);
    }
    let outcomes = vec![Ok(taken)];
    let showing = show((&view, position), &outcomes)?;
    let batches = (std::slice::from_ref(batch), &[Vec::new()][..]);
    let answers = publish(inner, volume, batches, outcomes, &showing, position);
    Ok(answers.into_iter().next().and_then(std::result::Result::ok))
}
