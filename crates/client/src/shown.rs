//! What is pending, shown over what the replica above says.
//! Holds: what was learnt and what is pending over it come to be seen in one transaction; while
//! something pending cannot be shown, and what it rests on can be asked for, calls wait for that.
//! What could not be written for want of room is made good before the next change.
//! From: partially connected operation, 5.2 ("Effective crash recovery is critical").

mod resting;

use crate::client::{Client, Core, error_of, stop};
use crate::effects::effects_here;
use crate::known::{Going, Remover};
use crate::types::{Error, Need, Stop};
use model::{FileId, Update};
use protocol::{States, Upstream};
use resting::Resting;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use store::{Containers, Durability, Read, Write};
use update_log::UpdateLog;
use volume::partial::{self, Missing, Touched, Tree};

/// More than what is pending after a crash can lack: each is asked for once.
const ASKED_MAX: usize = 4096;
/// Updates that are looked at at once.
const PAGE_UPDATES: usize = 1024;

/// What is not to show any more, besides what is pending and shows anew.
pub(crate) enum Gone<'a> {
    Updates(&'a [Update]),
    /// Files that bear other ids now.
    Files(&'a [(FileId, FileId)]),
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Shows what is pending anew over what the replica above says, without `gone`: what rests on
    /// that, or all of it where more may rest on it than is quickly found.
    pub(crate) fn rebuild(&self, core: &mut Core, gone: &[Update]) -> Result<(), Error> {
        let outcome = self.show_resting(core, gone);
        core.note_behind(&outcome);
        if outcome? { Ok(()) } else { self.rebuild_without(core, &Gone::Updates(gone)) }
    }

    /// False: nothing was done.
    fn show_resting(&self, core: &mut Core, gone: &[Update]) -> Result<bool, Error> {
        if core.behind || !core.hidden.is_empty() {
            return Ok(false);
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let Some(resting) = Resting::on(&*write, &core.log, gone)? else { return Ok(false) };
        let files: Vec<FileId> = resting.files().collect();
        if !resting.show(&mut *write, core.meta.taken, core.meta.epoch)? {
            return Ok(false);
        }
        let known = self.going(self.going_of(&*write, files.clone())?, Remover::Elsewhere);
        write.commit(Durability::Later).map_err(error_of)?;
        drop(known);
        self.recharge(core, files);
        Ok(true)
    }

    pub(crate) fn rebuild_without(&self, core: &mut Core, gone: &Gone<'_>) -> Result<(), Error> {
        let outcome = self.show_without(core, gone);
        Self::recount(core);
        core.note_behind(&outcome);
        outcome
    }

    fn show_without(&self, core: &mut Core, gone: &Gone<'_>) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let hidden =
            show_pending(&mut *write, &core.log, (core.meta.taken, core.meta.epoch), gone)?;
        let mut going = match gone {
            Gone::Updates(gone) => self.going_by(&*write, &States::default(), *gone)?,
            Gone::Files(files) => {
                let mut going = Going::default();
                for files in files.chunks(PAGE_UPDATES) {
                    let files = files.iter().map(|(file, _)| *file).collect();
                    going.extend(self.going_of(&*write, files)?);
                }
                going
            }
        };
        let mut from = 0;
        loop {
            let page = core.log.pending_from(from, PAGE_UPDATES)?;
            let Some(last) = page.last() else { break };
            from = last.stamp.number + 1;
            going.extend(self.going_by(&*write, &States::default(), &page)?);
        }
        let known = self.going(going, Remover::Elsewhere);
        write.commit(Durability::Later).map_err(error_of)?;
        drop(known);
        self.now_hidden(core, hidden);
        Ok(())
    }

    /// Commits what the replica above said of these files. What is pending and rests on them shows
    /// again with it. `taken`: the updates up to this number are part of what was said. `going`:
    /// what `write` takes away.
    pub(crate) fn commit_learnt(
        &self,
        core: &mut Core,
        mut write: Box<dyn Write + '_>,
        learnt: impl Iterator<Item = FileId>,
        taken: Option<u64>,
        going: Going,
    ) -> Result<(), Error> {
        let taken = taken.or(core.meta.taken);
        let learnt: BTreeSet<FileId> = learnt.collect();
        let (shows, left) = left_hidden(&core.hidden, &learnt);
        let hidden = match shows {
            true => {
                let as_of = (taken, core.meta.epoch);
                Some(show_pending(&mut *write, &core.log, as_of, &Gone::Updates(&[]))?)
            }
            false => None,
        };
        let known = self.going(going, Remover::Elsewhere);
        write.commit(Durability::Later).map_err(error_of)?;
        drop(known);
        core.meta.taken = taken;
        match hidden {
            Some(hidden) => self.now_hidden(core, hidden),
            None => core.hidden = left,
        }
        self.recharge_known(core, learnt);
        Ok(())
    }

    /// Where the tables could not be told that updates were taken back, they are now.
    pub(crate) fn catch_up(&self) -> Result<(), Error> {
        let gone = {
            let mut core = self.core();
            let core = &mut *core;
            if !core.behind {
                return Ok(());
            }
            let _pressed = self.pressed();
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let gone = partial::forget_gone(&mut *write, |number| core.log.is_pending(number))
                .map_err(|error| Error::Failed(error.to_string()))?;
            let gone_before = Gone::Updates(&[]);
            let as_of = (core.meta.taken, core.meta.epoch);
            let hidden = show_pending(&mut *write, &core.log, as_of, &gone_before)?;
            write.commit(Durability::Later).map_err(error_of)?;
            self.now_hidden(core, hidden);
            core.behind = false;
            Self::recount(core);
            core.unsaved = true;
            gone
        };
        tracing::info!("there is room again: changes that were undone do not show any more");
        self.forget(&gone.changed());
        Ok(())
    }

    fn now_hidden(&self, core: &mut Core, hidden: BTreeSet<Need>) {
        self.inner.hides.store(!hidden.is_empty(), Ordering::Release);
        core.hidden = hidden;
    }

    /// Asks for what pending updates rest on, so that they show.
    pub(crate) async fn show_hidden(&self) -> Result<(), Error> {
        let mut asked = BTreeSet::new();
        while asked.len() < ASKED_MAX {
            let next = self.core().hidden.iter().find(|need| !asked.contains(*need)).cloned();
            let Some(need) = next else { break };
            match Box::pin(self.get(need.clone())).await {
                // What is gone is known to be gone.
                Ok(()) | Err(Error::Objection(_)) => drop(asked.insert(need)),
                Err(error) => return Err(error),
            }
        }
        if !self.core().hidden.is_empty() {
            // What was learnt meanwhile may be enough for some.
            self.rebuild_without(&mut self.core(), &Gone::Updates(&[]))?;
        }
        // Nothing more can be learnt: the verdicts will say what becomes of the rest.
        self.inner.hides.store(false, Ordering::Release);
        Ok(())
    }
}

/// Of what is awaited, what was not learnt yet; and whether that is the end of it, so that all that
/// is pending is shown once, and not once for each that was awaited.
fn left_hidden(hidden: &BTreeSet<Need>, learnt: &BTreeSet<FileId>) -> (bool, BTreeSet<Need>) {
    let is_learnt = |need: &&Need| file_of(need).is_none_or(|file| learnt.contains(&file));
    let left: BTreeSet<Need> = hidden.iter().filter(|need| !is_learnt(need)).cloned().collect();
    (left.is_empty() && !hidden.is_empty(), left)
}

impl Core {
    /// What is pending and what shows differ from now on, if this failed.
    pub(crate) fn note_behind<T>(&mut self, outcome: &Result<T, Error>) {
        if outcome.is_err() {
            self.behind = true;
            self.unsaved = true;
        }
    }
}

/// Shows every pending update that is not part of what the replica above said. Gives back what
/// those lack that cannot be shown.
fn show_pending(
    write: &mut dyn Write,
    log: &UpdateLog,
    (taken, epoch): (Option<u64>, u32),
    gone: &Gone<'_>,
) -> Result<BTreeSet<Need>, Error> {
    let failed = |error: Missing| Error::Failed(error.to_string());
    match gone {
        Gone::Updates(gone) => gone.iter().try_for_each(|update| {
            partial::forget_local(write, u64::MAX, &Touched::by(update)).map_err(failed)
        })?,
        Gone::Files(files) => files
            .iter()
            .try_for_each(|(file, _)| partial::forget_local_of(write, *file).map_err(failed))?,
    }
    log.each_from(0, |update| {
        partial::forget_local(write, u64::MAX, &Touched::by(update)).map_err(failed)
    })?;
    let mut hidden = BTreeSet::new();
    let first = taken.map_or(0, |taken| taken.saturating_add(1));
    log.each_from(first, |update| {
        let effects = match effects_here(update, &Tree::new(&*write as &dyn Read, 0)) {
            Ok(Ok(effects)) => effects,
            // It rests on what was turned down: the replica above will turn it down too.
            Ok(Err(_)) => return Ok(()),
            Err(missing) => {
                hidden.insert(need_of(missing)?);
                return Ok(());
            }
        };
        partial::apply_local(write, update.stamp.number, &effects, epoch).map_err(failed)
    })?;
    Ok(hidden)
}

fn need_of(missing: Missing) -> Result<Need, Error> {
    match stop(missing) {
        Stop::Need(need) => Ok(need),
        Stop::Error(error) => Err(error),
    }
}

fn file_of(need: &Need) -> Option<FileId> {
    match need {
        Need::Node(file) | Need::Entry(file, _) | Need::Directory(file) => Some(*file),
        Need::Lease
        | Need::Contents { .. }
        | Need::Ground { .. }
        | Need::Holes { .. }
        | Need::Volume
        | Need::Totals
        | Need::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_is_shown_when_the_last_that_it_rests_on_was_learnt() {
        let files = |files: &[u64]| files.iter().copied().map(FileId).collect::<BTreeSet<_>>();
        let needs = |of: &[u64]| files(of).into_iter().map(Need::Node).collect::<BTreeSet<_>>();
        assert_eq!(left_hidden(&needs(&[]), &files(&[7])), (false, needs(&[])));
        assert_eq!(left_hidden(&needs(&[7, 8]), &files(&[9])), (false, needs(&[7, 8])));
        assert_eq!(left_hidden(&needs(&[7, 8]), &files(&[7])), (false, needs(&[8])));
        assert_eq!(left_hidden(&needs(&[8]), &files(&[7, 8])), (true, needs(&[])));
    }
}
