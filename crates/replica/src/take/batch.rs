//! Takes one batch within a transaction.
//! Holds: a number is used once: every update gets its verdict in the transaction that takes it,
//! and one that comes again gets the same verdict.

use super::conflict::{self, Conflict};
use super::decide::{Decision, Desk, Kept, decide};
use super::redirect::{Redirect, Redirects, forget_contents};
use super::{Submitter, vet};
use crate::error::Result;
use crate::upkeep::Promise;
use model::{Change, Effects, FileId, Name, ReplicaId, Time, Update};
use protocol::{Access, Objection, Refusal, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use volume::whole::{Committer, Touched, Writer};

/// What is taken together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub by: Submitter,
    pub settled: u64,
    pub strict: bool,
    pub updates: Vec<Update>,
    /// Numbers of stores whose recipes make no sense.
    pub bad: BTreeSet<u64>,
    /// The chunks that the updates count on stay until this is dropped.
    pub _promise: Promise,
}

impl Batch {
    /// It removes, and does nothing else.
    pub fn frees(&self) -> bool {
        self.updates.iter().all(|update| matches!(update.change, Change::Unlink { .. }))
    }
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub verdicts: Vec<Verdict>,
    /// What was changed: others are told of it.
    pub changed: Touched,
    /// What the updates are about: the writer is shown it.
    pub shown: Touched,
}

/// Takes the batch, or refuses all of it and changes nothing.
pub(super) fn take(
    committer: &mut Committer<'_>,
    batch: &Batch,
    redirects: Redirects,
    now: Time,
) -> Result<Result<Taken, Refusal>> {
    let replica = batch.by.place.replica;
    let Some(mut writer) = committer.view().writer(replica)? else {
        return Ok(Err(Refusal::NotAttached));
    };
    committer.settle(replica, &mut writer, batch.settled)?;
    let mut hand =
        Hand { batch, writer, redirects, now, owned: BTreeMap::new(), taken: Taken::default() };
    for update in &batch.updates {
        if update.stamp.number <= hand.writer.taken {
            hand.answer_again(committer, update)?;
        } else {
            hand.take(committer, update)?;
        }
    }
    committer.put_writer(replica, &hand.writer)?;
    Ok(Ok(hand.taken))
}

struct Hand<'a> {
    batch: &'a Batch,
    writer: Writer,
    redirects: Redirects,
    now: Time,
    /// Whether the device may make files under a replica id.
    owned: BTreeMap<ReplicaId, bool>,
    taken: Taken,
}

impl Hand<'_> {
    fn answer_again(&mut self, committer: &Committer<'_>, update: &Update) -> Result<()> {
        let kept = committer.view().verdict(update.stamp)?;
        let verdict = kept.unwrap_or_else(|| {
            if update.stamp.number <= self.writer.settled {
                // The writer had this verdict, and has lost it with a crash since. Whoever
                // waited for it has been told; what counts now is how things are.
                Verdict::Taken(committer.position())
            } else {
                // A number that was passed over: its writer had taken the update back.
                Verdict::Refused(Objection::Changed)
            }
        });
        show_update(&mut self.taken.shown, update);
        self.show_verdict(committer, &verdict)?;
        self.taken.verdicts.push(verdict);
        Ok(())
    }

    fn take(&mut self, committer: &mut Committer<'_>, update: &Update) -> Result<()> {
        show_update(&mut self.taken.shown, update);
        let verdict = match self.objection(committer, update)? {
            Some(objection) => Verdict::Refused(objection),
            None => self.decide(committer, update)?,
        };
        self.show_verdict(committer, &verdict)?;
        committer.put_verdict(update.stamp, &verdict)?;
        self.writer.taken = update.stamp.number;
        self.taken.verdicts.push(verdict);
        Ok(())
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
        if let Change::Make { file, .. } = &update.change
            && !self.owns(committer, file.replica())?
        {
            return Ok(Some(Objection::Invalid));
        }
        Ok(vet::vet(update).err())
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

    fn decide(&mut self, committer: &mut Committer<'_>, update: &Update) -> Result<Verdict> {
        let redirected = self.redirects.follow(committer.read(), &committer.view(), update)?;
        let mut desk = Desk {
            committer,
            writer: &self.writer,
            strict: self.batch.strict,
            device: &self.batch.by.device_name,
        };
        let decision = decide(&mut desk, &redirected.update)?;
        if redirected.aside.is_some()
            && !matches!(decision, Decision::Refuse(..))
            && let Change::Store { expects, .. } = &redirected.update.change
        {
            forget_contents(committer, *expects)?;
        }
        match decision {
            Decision::Take(effects) if has_too_much(&effects) => {
                Ok(Verdict::Refused(Objection::NoSpace))
            }
            Decision::Take(effects) => {
                let seq = self.apply(committer, update, &effects)?;
                match redirected.aside {
                    Some(file) => self.taken_aside(committer, update, seq, file),
                    None => Ok(Verdict::Taken(seq)),
                }
            }
            Decision::Keep(kept) => self.keep(committer, update, *kept),
            Decision::Refuse(objection, conflict) => {
                if let Some(conflict) = conflict {
                    self.record(committer, update, *conflict, None)?;
                }
                Ok(Verdict::Refused(objection))
            }
        }
    }

    /// A store into a file that was kept aside: later ones of the writer follow it there.
    fn taken_aside(
        &mut self,
        committer: &mut Committer<'_>,
        update: &Update,
        seq: model::Seq,
        file: FileId,
    ) -> Result<Verdict> {
        Redirect::Contents { stamp: update.stamp, to: file }.put(committer)?;
        let names = committer.view().names(file, 1)?;
        Ok(match names.into_iter().next() {
            Some((directory, name)) => Verdict::KeptAside { seq, directory, name },
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
        let aside = kept.conflict.aside.clone();
        self.record(committer, update, kept.conflict, Some(seq))?;
        Ok(match aside {
            Some((_, directory, name)) => Verdict::KeptAside { seq, directory, name },
            None => Verdict::Taken(seq),
        })
    }

    fn record(
        &self,
        committer: &mut Committer<'_>,
        update: &Update,
        conflict: Conflict,
        seq: Option<model::Seq>,
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
    ) -> Result<model::Seq> {
        let made = committer.apply(update, effects)?;
        for touched in [&mut self.taken.changed, &mut self.taken.shown] {
            touched.nodes.extend(&made.nodes);
            touched.entries.extend(made.entries.iter().cloned());
        }
        Ok(made.seq)
    }

    fn show_verdict(&mut self, committer: &Committer<'_>, verdict: &Verdict) -> Result<()> {
        use model::View;
        if let Verdict::KeptAside { directory, name, .. } = verdict {
            let shown = &mut self.taken.shown;
            shown.nodes.extend(committer.view().entry(*directory, name)?);
            shown.nodes.insert(*directory);
            shown.entries.insert((*directory, name.clone()));
        }
        Ok(())
    }
}

fn has_too_much(effects: &Effects) -> bool {
    effects.nodes.values().flatten().any(vet::has_too_much)
}

/// What an update is about, whatever becomes of it.
fn show_update(shown: &mut Touched, update: &Update) {
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
