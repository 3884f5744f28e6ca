//! Takes one batch within a transaction.
//! Holds: a number is used once: every update gets its verdict in the transaction that takes it,
//! and one that comes again gets the same verdict.

use super::again;
use super::conflict::{self, Conflict};
use super::decide::{Decision, Desk, Kept, decide};
use super::quota::{self, Room, allowance, exceeds};
use super::records::{self, Merges, Prepared};
use super::redirect::{Redirect, Redirected, Redirects, forget_contents};
use super::{Submitter, vet};
use crate::error::{ReplicaError, Result};
use crate::upkeep::Promise;
use model::{Allowance, Change, Effects, FileId, Locks, Name, Quota, ReplicaId, Seq, Time, Update};
use protocol::{Access, Objection, Refusal, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use volume::whole::{Committer, Touched, Whole, Writer};

/// What is taken together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub by: Submitter,
    pub settled: u64,
    pub strict: bool,
    /// It is taken before updates with lower numbers.
    pub ahead: bool,
    pub updates: Vec<Update>,
    /// Numbers of stores whose recipes make no sense.
    pub bad: BTreeSet<u64>,
    /// Of files, the records that the writer holds with nobody else.
    pub under: BTreeMap<FileId, Locks>,
    /// What its stores under these came to, when that was looked at.
    pub merges: Merges,
    /// The chunks that the updates count on stay until this is dropped.
    pub _promise: Promise,
}

impl Batch {
    /// It removes, cuts to nothing or renames, and does nothing else: what one does to make room.
    pub fn frees(&self) -> bool {
        self.updates.iter().all(|update| match update.change {
            Change::Unlink { .. } | Change::Rename { .. } => true,
            Change::Store { contents, .. } => contents.size == 0,
            _ => false,
        })
    }

    /// What was prepared for a store under records that the writer holds. None: it is no such store.
    fn prepared_for<'a>(
        &self,
        prepared: &'a Prepared,
        update: &Redirected,
    ) -> Option<&'a Prepared> {
        let file = update.update.change.fills()?;
        (update.aside.is_none() && self.under.contains_key(&file)).then_some(prepared)
    }
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub verdicts: Vec<Verdict>,
    /// What was changed: others are told of it.
    pub changed: Touched,
    /// What those changed that were judged before: who waits for them waits until it is told.
    pub before: Touched,
    /// What the updates are about: the writer is shown it.
    pub shown: Touched,
    /// What the volume may have, and has. None: there is no quota.
    pub allowance: Option<Allowance>,
}

/// Takes the batch, or refuses all of it and changes nothing.
pub(super) fn take(
    committer: &mut Committer<'_>,
    (batch, prepared): (&Batch, &Prepared),
    redirects: Redirects,
    now: Time,
    quota: Option<&Quota>,
) -> Result<Result<Taken, Refusal>> {
    let replica = batch.by.place.replica;
    let Some(mut writer) = committer.view().writer(replica)? else {
        return Ok(Err(Refusal::NotAttached));
    };
    committer.settle(replica, &mut writer, batch.settled)?;
    let mut hand = Hand {
        batch,
        prepared,
        writer,
        redirects,
        came_at: committer.position(),
        now,
        quota,
        unprepared: false,
        owned: BTreeMap::new(),
        unmade: BTreeMap::new(),
        taken: Taken::default(),
    };
    for update in &batch.updates {
        if hand.is_judged(committer, update)? {
            let view = (&committer.view(), committer.position());
            again::answer(&mut hand.taken, view, &hand.writer, update)?;
        } else if !hand.take(committer, update)? {
            break;
        }
    }
    committer.put_writer(replica, &hand.writer)?;
    if hand.taken.verdicts.is_empty() && hand.unprepared {
        return Err(ReplicaError::Unprepared);
    }
    if hand.taken.verdicts.is_empty() && !batch.updates.is_empty() {
        return Ok(Err(Refusal::OverQuota));
    }
    if let Some(quota) = quota {
        hand.taken.allowance = Some(allowance(committer, quota, hand.writer.taken)?);
    }
    Ok(Ok(hand.taken))
}

struct Hand<'a> {
    batch: &'a Batch,
    prepared: &'a Prepared,
    /// What came before it in its transaction was not known when its merge was prepared.
    unprepared: bool,
    writer: Writer,
    redirects: Redirects,
    /// Where the volume was before them.
    came_at: Seq,
    now: Time,
    quota: Option<&'a Quota>,
    /// Whether the device may make files under a replica id.
    owned: BTreeMap<ReplicaId, bool>,
    /// Files of which somebody waits to hear that they were not made, and why.
    unmade: BTreeMap<FileId, Objection>,
    taken: Taken,
}

impl Hand<'_> {
    /// It comes again; or it was taken ahead, and it is its turn now.
    fn is_judged(&mut self, committer: &Committer<'_>, update: &Update) -> Result<bool> {
        let number = update.stamp.number;
        if number <= self.writer.taken {
            return Ok(true);
        }
        let was_ahead = committer.view().verdict(update.stamp)?.is_some();
        if was_ahead && !self.batch.ahead {
            self.writer.taken = number;
        }
        Ok(was_ahead)
    }

    /// False: there is no room for it in a quota. It is not judged, nor is what comes after it.
    fn take(&mut self, committer: &mut Committer<'_>, update: &Update) -> Result<bool> {
        let verdict = match self.objection(committer, update)? {
            Some(objection) => Verdict::Refused(objection),
            None => match self.decide(committer, update)? {
                Some(verdict) => verdict,
                None => return Ok(false),
            },
        };
        self.note_unmade(update, &verdict);
        show_update(&mut self.taken.shown, update);
        show_verdict(&committer.view(), &mut self.taken.shown, &verdict)?;
        committer.put_verdict(update.stamp, &verdict)?;
        if !self.batch.ahead {
            self.writer.taken = update.stamp.number;
        }
        self.taken.verdicts.push(verdict);
        Ok(true)
    }

    /// What is against the update before the tree is looked at.
    fn objection(
        &mut self,
        committer: &Committer<'_>,
        update: &Update,
    ) -> Result<Option<Objection>> {
        if self.batch.by.access == Access::ReadOnly {
            return Ok(Some(Objection::ReadOnly));
        }
        if self.batch.bad.contains(&update.stamp.number) {
            return Ok(Some(Objection::Invalid));
        }
        if let Some(file) = update.makes()
            && !self.owns(committer, file.replica())?
        {
            return Ok(Some(Objection::Invalid));
        }
        if let Some(why) = update.change.fills().and_then(|file| self.unmade.get(&file)) {
            return Ok(Some(*why));
        }
        Ok(vet::vet(update).err())
    }

    /// What came with a file that was not made shares its fate, where its writer is told: nothing
    /// of it was acknowledged.
    fn note_unmade(&mut self, update: &Update, verdict: &Verdict) {
        if let (Change::Make { file, .. }, Verdict::Refused(why)) = (&update.change, verdict)
            && self.batch.strict
        {
            self.unmade.insert(*file, *why);
        }
    }

    /// A device makes files under its own replica ids only, those of earlier attachments too.
    fn owns(&mut self, committer: &Committer<'_>, replica: ReplicaId) -> Result<bool> {
        if let Some(owns) = self.owned.get(&replica) {
            return Ok(*owns);
        }
        let writer = committer.view().writer(replica)?;
        let owns = writer.is_some_and(|writer| *writer.device == self.batch.by.device.0[..]);
        self.owned.insert(replica, owns);
        Ok(owns)
    }

    /// None: what it would store has no room in a quota, or meets what it is not prepared for.
    fn decide(
        &mut self,
        committer: &mut Committer<'_>,
        update: &Update,
    ) -> Result<Option<Verdict>> {
        let redirected = self.redirects.follow(committer.read(), &committer.view(), update)?;
        let mut desk = Desk {
            committer,
            writer: &self.writer,
            strict: self.batch.strict,
            device: &self.batch.by.device_name,
            prepared: self.batch.prepared_for(self.prepared, &redirected),
            meant: update.change.fills(),
            came_at: self.came_at,
        };
        let mut decision = decide(&mut desk, &redirected.update)?;
        let is_first = self.prepared.is_all_there_is() && self.taken.verdicts.is_empty();
        if matches!(decision, Decision::Unprepared) && is_first {
            // It was prepared for what is there, and that did not help.
            desk.prepared = None;
            decision = decide(&mut desk, &redirected.update)?;
        }
        let room = self.room(committer, update, decision.effects())?;
        match room {
            Room::There | Room::Overrun => {}
            Room::Not => return Ok(Some(Verdict::Refused(Objection::OverQuota))),
            Room::NotYet => return Ok(None),
        }
        if redirected.aside.is_some()
            && !matches!(decision, Decision::Refuse(..))
            && let Change::Store { expects, .. } = &redirected.update.change
        {
            forget_contents(committer, *expects)?;
        }
        if room == Room::Overrun {
            self.note_overrun(committer, update)?;
        }
        let verdict = match decision {
            Decision::Take(effects) if has_too_much(&effects) => {
                Verdict::Refused(Objection::NoSpace)
            }
            Decision::Take(effects) => {
                let seq = self.apply(committer, update, &effects)?;
                match redirected.aside {
                    Some(file) => self.taken_aside(committer, update, seq, file)?,
                    None => Verdict::Taken(seq),
                }
            }
            Decision::Lay(laid) => {
                let seq = self.apply(committer, update, &laid.mine)?;
                let (merged, effects) =
                    records::merged(committer, update, (laid.contents, laid.mtime))?;
                self.apply(committer, &merged, &effects)?;
                Verdict::Taken(seq)
            }
            Decision::Unprepared => {
                self.unprepared = true;
                return Ok(None);
            }
            Decision::Keep(kept) => self.keep(committer, update, *kept)?,
            Decision::Refuse(objection, conflict) => {
                if let Some(conflict) = conflict {
                    self.record(committer, update, *conflict, None)?;
                }
                Verdict::Refused(objection)
            }
        };
        Ok(Some(verdict))
    }

    /// Whether the quotas have room for what the update does.
    fn room(
        &self,
        committer: &Committer<'_>,
        update: &Update,
        effects: Option<&Effects>,
    ) -> Result<Room> {
        let (Some(quota), Some(effects)) = (self.quota, effects) else { return Ok(Room::There) };
        if !exceeds(committer, quota, effects)? {
            return Ok(Room::There);
        }
        Ok(match (self.batch.strict, &update.change) {
            // Contents are not thrown away: their writer keeps them, and is told.
            (true, Change::Store { .. }) => Room::NotYet,
            (true, _) => Room::Not,
            (false, _) => Room::Overrun,
        })
    }

    /// What its writer had accepted while others used the room is taken, and listed.
    fn note_overrun(&self, committer: &mut Committer<'_>, update: &Update) -> Result<()> {
        let conflict = quota::overrun(&committer.view(), update)?;
        self.record(committer, update, conflict, Some(committer.position().next()))
    }

    /// A store into a file that was kept aside: later ones of the writer follow it there.
    fn taken_aside(
        &mut self,
        committer: &mut Committer<'_>,
        update: &Update,
        seq: Seq,
        file: FileId,
    ) -> Result<Verdict> {
        Redirect::Contents { stamp: update.stamp, to: file }.put(committer)?;
        let names = committer.view().names(file, 1)?;
        Ok(match names.into_iter().next() {
            Some((directory, name)) => Verdict::KeptAside { seq, directory, name, merged: None },
            None => Verdict::Taken(seq),
        })
    }

    fn keep(
        &mut self,
        committer: &mut Committer<'_>,
        update: &Update,
        kept: Kept,
    ) -> Result<Verdict> {
        let seq = self.apply(committer, update, &kept.effects)?;
        for redirect in &kept.redirects {
            redirect.put(committer)?;
            self.redirects = Redirects::all();
        }
        let merged = kept.redirects.iter().find_map(|redirect| match redirect {
            Redirect::Merged { to, .. } => Some(*to),
            _ => None,
        });
        let aside = kept.conflict.aside.clone();
        self.record(committer, update, kept.conflict, Some(seq))?;
        Ok(match aside {
            Some((_, directory, name)) => Verdict::KeptAside { seq, directory, name, merged },
            None => Verdict::Taken(seq),
        })
    }

    fn record(
        &self,
        committer: &mut Committer<'_>,
        update: &Update,
        conflict: Conflict,
        seq: Option<Seq>,
    ) -> Result<()> {
        let device = self.batch.by.device_name.clone();
        let conflict = Conflict { update: update.stamp, device, at: self.now, seq, ..conflict };
        let volume = committer.volume();
        conflict::record(committer.write(), volume, &conflict)
    }

    fn apply(
        &mut self,
        committer: &mut Committer<'_>,
        update: &Update,
        effects: &Effects,
    ) -> Result<Seq> {
        let made = committer.apply(update, effects)?;
        for touched in [&mut self.taken.changed, &mut self.taken.shown] {
            touched.nodes.extend(&made.nodes);
            touched.entries.extend(made.entries.iter().cloned());
        }
        Ok(made.seq)
    }
}

/// Where what was kept aside is.
pub(super) fn show_verdict(view: &Whole<'_>, shown: &mut Touched, verdict: &Verdict) -> Result<()> {
    use model::View;
    if let Verdict::KeptAside { directory, name, merged, .. } = verdict {
        shown.nodes.extend(view.entry(*directory, name)?);
        shown.nodes.extend(*merged);
        shown.nodes.insert(*directory);
        shown.entries.insert((*directory, name.clone()));
    }
    Ok(())
}

fn has_too_much(effects: &Effects) -> bool {
    effects.nodes.values().flatten().any(model::Node::has_too_many_xattrs)
}

/// What an update is about, whatever becomes of it.
pub(super) fn show_update(shown: &mut Touched, update: &Update) {
    shown.nodes.extend(update.touches());
    let mut entry = |directory: &FileId, name: &Name| {
        shown.entries.insert((*directory, name.clone()));
    };
    match &update.change {
        Change::Make { parent, name, .. }
        | Change::Link { parent, name, .. }
        | Change::Unlink { parent, name, .. } => entry(parent, name),
        Change::Rename { from, from_name, to, to_name, .. } => {
            entry(from, from_name);
            entry(to, to_name);
        }
        Change::Store { .. }
        | Change::SetAttributes { .. }
        | Change::SetXattr { .. }
        | Change::RemoveXattr { .. } => {}
    }
}
