//! What is pending, shown over what the replica above says.
//! Holds: what was learnt and what is pending over it come to be seen in one transaction; while
//! something pending cannot be shown, and what it rests on can be asked for, calls wait for that;
//! where something cannot be learnt, what does not rest on it shows when the others were asked for.
//! What could not be written for want of room is made good before the next change.
//! From: partially connected operation, 5.2 ("Effective crash recovery is critical").

mod hidden;
mod merged;
mod named;
mod otherwise;
mod resting;
#[cfg(test)]
mod tests;

pub(crate) use hidden::{Hidden, Unshown};
pub(crate) use merged::{Merged, named_now};

use crate::client::{Client, Core, error_of, stop};
use crate::effects::{effects_of_pending, names_alone, shows_nothing};
use crate::known::{Going, Remover};
use crate::meta::Taken;
use crate::types::{Error, Need, Step, Stop};
use model::{FileId, Update};
use otherwise::Showing;
use protocol::{States, Upstream};
use resting::Resting;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use store::{Containers, Durability, Read, Write};
use update_log::UpdateLog;
use volume::partial::{self, Changed, Missing, Touched, Tree};

/// Updates that are looked at at once.
const PAGE_UPDATES: usize = 1024;

/// What is not to show any more, besides what is pending and shows anew.
pub(crate) enum Gone<'a> {
    Updates(&'a [Update]),
    /// Files that bear other ids now.
    Files(&'a [FileId]),
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Shows what is pending anew over what the replica above says, without `gone`: what rests on
    /// that, or all of it where more may rest on it than is quickly found.
    pub(crate) fn rebuild(&self, core: &mut Core, gone: &[Update]) -> Result<(), Error> {
        // What was turned down may have been what others rested on.
        core.hidden.ask_again();
        let outcome = self.show_resting(core, gone);
        core.note_behind(&outcome);
        if outcome? { Ok(()) } else { self.rebuild_without(core, &Gone::Updates(gone)) }
    }

    /// False: nothing was done.
    fn show_resting(&self, core: &mut Core, gone: &[Update]) -> Result<bool, Error> {
        if core.behind || !core.hidden.is_all_known() {
            return Ok(false);
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let Some(resting) = Resting::on(&*write, &core.log, gone)? else { return Ok(false) };
        let files: Vec<FileId> = resting.files().collect();
        if core.hidden.rest_on(&files.iter().copied().collect()) {
            return Ok(false);
        }
        let Some(unshown) = resting.show(&mut *write, &core.meta.taken_now(), core.meta.epoch)?
        else {
            return Ok(false);
        };
        let known = self.going(self.going_of(&*write, files.clone())?, Remover::Elsewhere);
        self.commit_shown(core, write)?;
        drop(known);
        core.hidden.rest(unshown);
        self.note_hides(core);
        self.name_again(core, Some(&files.iter().copied().collect()));
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
            show_pending(&mut *write, &core.log, (&core.meta.taken_now(), core.meta.epoch), gone)?;
        let mut going = match gone {
            Gone::Updates(gone) => self.going_by(&*write, &States::default(), *gone)?,
            Gone::Files(files) => {
                let mut going = Going::default();
                for files in files.chunks(PAGE_UPDATES) {
                    going.extend(self.going_of(&*write, files.to_vec())?);
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
        self.commit_shown(core, write)?;
        drop(known);
        self.name_again(core, None);
        self.now_hidden(core, hidden);
        Ok(())
    }

    /// Commits what the replica above said of these files. What is pending and rests on them shows
    /// again with it, and where `anew` says that what is pending has changed, all of it without those that
    /// `anew` has. `taken`: these updates are part of what was said. `going`: what `write` takes away. Gives
    /// back what of what is pending the kernel may show and is not so any more.
    pub(crate) fn commit_learnt(
        &self,
        core: &mut Core,
        mut write: Box<dyn Write + '_>,
        learnt: impl Iterator<Item = FileId>,
        (taken, anew): (Option<Taken>, Option<&[Update]>),
        mut going: Going,
    ) -> Result<Vec<Changed>, Error> {
        let taken = taken.unwrap_or_else(|| core.meta.taken_now());
        let learnt: BTreeSet<FileId> = learnt.collect();
        let mut anew = anew.or_else(|| core.hidden.would_show(&learnt).then_some(&[]));
        let as_of = (&taken, core.meta.epoch);
        let named = match core.log.pending_len() {
            0 => Vec::new(),
            _ => {
                let before = self.inner.tables.read().map_err(error_of)?;
                named::named_otherwise((&*before, &*write), &core.log, &learnt)?
            }
        };
        let (mut rested, mut files) = (None, named.clone());
        if anew.is_none() && !named.is_empty() {
            let resting = match core.hidden.is_none() {
                true => Resting::of(&*write, &core.log, &named)?,
                false => None,
            };
            match resting {
                None => anew = Some(&[]),
                Some(resting) if resting.has_what_is_gone_above(&*write)? => {}
                Some(resting) => {
                    files.extend(resting.files());
                    rested = Some(resting.show(&mut *write, as_of.0, as_of.1)?);
                    rested = rested.filter(Option::is_some);
                    anew = rested.is_none().then_some(&[]);
                }
            }
        }
        let hidden = anew
            .map(|gone| show_pending(&mut *write, &core.log, as_of, &Gone::Updates(gone)))
            .transpose()?;
        let stale = named::stale_of(&core.log, &named)?;
        going.extend(self.going_of(&*write, files)?);
        let known = self.going(going, Remover::Elsewhere);
        match hidden.is_none() && rested.is_none() && core.hidden.is_none() {
            true => write.commit(Durability::Later).map_err(error_of)?,
            false => self.commit_shown(core, write)?,
        }
        drop(known);
        // Where what is pending was shown anew, any may show again.
        let is_little = hidden.is_none() && rested.is_none();
        self.name_again(core, is_little.then_some(&learnt));
        core.meta.set_taken(taken);
        match (hidden, rested.flatten()) {
            (Some(hidden), _) => self.now_hidden(core, hidden),
            (None, Some(unshown)) => {
                core.hidden.rest(unshown);
                self.note_hides(core);
            }
            (None, None) if core.log.pending_len() == 0 => {
                self.now_hidden(core, Unshown::default());
            }
            (None, None) => {
                core.hidden.learn(&learnt);
                self.note_hides(core);
            }
        }
        self.recharge_known(core, learnt);
        Ok(stale)
    }

    /// What shows of what is said something of. None: there is no kernel that could have it.
    pub(crate) fn showing(&self, states: &States) -> Result<Option<Showing>, Error> {
        if self.inner.kernel.get().is_none() {
            return Ok(None);
        }
        let read = self.inner.tables.read().map_err(error_of)?;
        Showing::of(&*read, states).map(Some)
    }

    /// What the kernel may have of it that is not so any more.
    pub(crate) fn shows_otherwise(
        &self,
        before: Option<Showing>,
        states: &States,
    ) -> Result<Vec<Changed>, Error> {
        let now = self.showing(states)?;
        Ok(before.zip(now).map_or(Vec::new(), |(before, now)| before.otherwise(&now)))
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
            let taken = core.meta.taken_now();
            let as_of = (&taken, core.meta.epoch);
            let hidden = show_pending(&mut *write, &core.log, as_of, &gone_before)?;
            self.commit_shown(core, write)?;
            self.name_again(core, None);
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

    /// Commits what says anew what shows of what is pending. Whoever reads it before it is noted what of
    /// that is hidden waits; `note_hides` must follow.
    fn commit_shown(&self, core: &Core, write: Box<dyn Write + '_>) -> Result<(), Error> {
        self.inner.unshown.store(true, Ordering::Release);
        let outcome = write.commit(Durability::Later).map_err(error_of);
        if outcome.is_err() {
            self.note_hides(core);
        }
        outcome
    }

    /// Stops where something pending is hidden. Whoever has read the tables asks again: it may have been
    /// hidden in between.
    pub(crate) fn hides_nothing(&self, attached: bool) -> Step<()> {
        let awaited = attached && self.inner.hides.load(Ordering::Acquire);
        match awaited || self.inner.unshown.load(Ordering::Acquire) {
            true => Err(Stop::Need(Need::Pending)),
            false => Ok(()),
        }
    }

    fn now_hidden(&self, core: &mut Core, unshown: Unshown) {
        core.hidden.show(unshown);
        self.note_hides(core);
    }

    fn note_hides(&self, core: &Core) {
        self.inner.hides.store(core.hidden.is_awaited(), Ordering::Release);
        self.inner.unshown.store(core.hidden.is_unshown(), Ordering::Release);
    }

    /// With a new session what could not be learnt may be.
    pub(crate) fn ask_again_for_hidden(&self, core: &mut Core) {
        core.hidden.ask_again();
        self.note_hides(core);
    }

    /// Asks for what pending updates rest on, so that they show; without a session, shows what was
    /// learnt while there was one.
    pub(crate) async fn show_hidden(&self) -> Result<(), Error> {
        let outcome = self.ask_for_hidden().await;
        let mut core = self.core();
        let core = &mut *core;
        if core.hidden.is_unshown() {
            // What was learnt is enough for some.
            self.rebuild_without(core, &Gone::Updates(&[]))?;
        }
        outcome
    }

    async fn ask_for_hidden(&self) -> Result<(), Error> {
        while self.connection().attached {
            let next = {
                let mut core = self.core();
                let next = core.hidden.next();
                if next.is_none() && core.hidden.is_unshown() {
                    // What shows now may rest on more.
                    self.rebuild_without(&mut core, &Gone::Updates(&[]))?;
                    continue;
                }
                next
            };
            let Some(need) = next else { break };
            match Box::pin(self.get(need.clone())).await {
                // What is gone is known to be gone.
                Ok(()) | Err(Error::Objection(_)) => {}
                Err(
                    error @ (Error::Unreachable(_)
                    | Error::TimedOut(_)
                    | Error::Retry
                    | Error::DiskFull),
                ) => return Err(error),
                // The others do not wait for it.
                Err(error) => {
                    tracing::warn!(?need, %error, "what is pending rests on what cannot be learnt");
                }
            }
            self.core().hidden.note_asked(need);
        }
        // Nothing more can be learnt: the verdicts will say what becomes of the rest.
        self.note_hides(&self.core());
        Ok(())
    }
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

/// Shows every pending update that is not part of what the replica above said. Gives back which cannot be
/// shown; of those that lack something the names show that they took away, and where to.
fn show_pending(
    write: &mut dyn Write,
    log: &UpdateLog,
    (taken, epoch): (&Taken, u32),
    gone: &Gone<'_>,
) -> Result<Unshown, Error> {
    let failed = |error: Missing| Error::Failed(error.to_string());
    match gone {
        Gone::Updates(gone) => gone.iter().try_for_each(|update| {
            partial::forget_local(write, u64::MAX, &Touched::by(update)).map_err(failed)
        })?,
        Gone::Files(files) => files
            .iter()
            .try_for_each(|file| partial::forget_local_of(write, *file).map_err(failed))?,
    }
    log.each_from(0, |update| {
        partial::forget_local(write, u64::MAX, &Touched::by(update)).map_err(failed)
    })?;
    let mut hidden = Unshown::default();
    let first = taken.upto.map_or(0, |upto| upto.saturating_add(1));
    log.each_from(first, |update| {
        if taken.has(update.stamp.number) {
            return Ok(());
        }
        let effects = match effects_of_pending(update, &Tree::new(&*write as &dyn Read, 0)) {
            Ok(Ok(effects)) => effects,
            // It rests on what was turned down, and the replica above may turn it down too.
            Ok(Err(_)) => {
                hidden.rests(update);
                return Ok(());
            }
            Err(missing) => {
                hidden.needs.insert(need_of(missing)?);
                names_alone(update, &Tree::new(&*write as &dyn Read, 0)).map_err(failed)?
            }
        };
        if shows_nothing(update, &effects) {
            hidden.rests(update);
        }
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
