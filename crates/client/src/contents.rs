//! Making a version of what was written: cut, name, log.
//! Holds: nobody writes to the container while it is cut; the version is in the log before the
//! close that made it returns.
//! From: LBFS, "Atomic update RPCs"; DESIGN, "Contents".

use crate::client::{Client, Core, failed, log_failed, stop};
use crate::failures::of_chunks;
use crate::files::{Front, Grip, Images, Since};
use crate::mode;
use crate::part::PartRow;
use crate::plan::Plan;
use crate::presence::{Dirty, Presence};
use crate::ranks::{self, Rank};
use crate::room::taken;
use crate::types::{Error, Need, Step, Stop};
use crate::votes::Votes;
use chunks::index::{self, Place};
use chunks::{Described, Placed};
use model::{Change, Contents, FileId, Piece, Stamp, Time, View};
use protocol::Upstream;
use std::sync::Arc;
use store::{Container, Containers, Durability, StoreError, Write};
use update_log::Record;

/// An open file that has been written to.
struct Written {
    dirty: Dirty,
    version: Stamp,
    /// Of the version that was written to.
    before: Contents,
    mtime: Option<Time>,
    changed: Option<Time>,
    unlinked: bool,
    overtook: bool,
    plain: Option<bool>,
    used: i64,
    since: Option<Since>,
    images: Option<Images>,
    front: Option<Front>,
}

impl Written {
    /// It is only known that it might have been written to, and it holds what it held.
    fn may_be_unwritten(&self, contents: Contents) -> bool {
        let said = self.mtime.is_some() || self.dirty.mtime.is_some() || self.overtook;
        !said && contents == self.before && self.dirty.expects == self.version
    }

    /// The plan of its store, with what is known besides of how to send it.
    fn planned(&self, mut plan: Plan) -> Plan {
        plan.images = self.images.clone().map(Arc::new);
        plan.early = self.front.as_ref().map(|front| front.work.clone());
        plan.early = plan.early.filter(|work| work.has_sent());
        plan.sends_on = plan.early.is_some();
        plan
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Stores what was written to an open file since the last time, if anything was. Gives the
    /// number of the update that must be waited for.
    pub(crate) fn store(&self, grip: &Grip<C::Container>, uid: Option<u32>) -> Step<Option<u64>> {
        let stored = self.store_contents(grip, uid)?;
        Ok(self.core().waiters.at_close(grip.file, stored))
    }

    /// As `store`, of the contents alone.
    pub(crate) fn store_contents(
        &self,
        grip: &Grip<C::Container>,
        uid: Option<u32>,
    ) -> Step<Option<u64>> {
        self.settle_closed(Some((grip.file, grip.generation)));
        self.store_contents_now(grip, uid)
    }

    /// As `store_contents`, whatever else was closed before.
    pub(crate) fn store_contents_now(
        &self,
        grip: &Grip<C::Container>,
        uid: Option<u32>,
    ) -> Step<Option<u64>> {
        let _still = ranks::write(Rank::Still, &grip.still);
        let grip = &self.still_open(grip).ok_or(Error::BadHandle)?;
        if self.files().kernel_writes(grip.file, grip.generation) {
            // What it would be cut into might never have been there: it waits for the last close.
            return Ok(None);
        }
        let Some(written) = self.written(grip)? else { return Ok(self.unsettled(grip.file)) };
        if written.unlinked {
            return self.store_nothing(grip).map(|()| None);
        }
        if self.is_as_it_was_lent(grip)? {
            return self.leave_unwritten(grip, &written).map(|()| None);
        }
        self.keep_container(grip)?;
        self.take_privileges((grip.file, grip.generation), true)?;
        if let Some((presence, described)) = self.describe_upon(grip)? {
            return self.store_upon(grip, uid, &written, (presence, described));
        }
        let (described, fresh) = self.describe_written(grip, &written)?;
        if written.may_be_unwritten(described.tree.contents) && self.is_current(grip, &written)? {
            return self.leave_unwritten(grip, &written).map(|()| None);
        }
        let kin = match fresh {
            Some(_) => None,
            None => self.guess_by_name(&described, grip.file, &grip.container),
        };
        let mtime = self.mtime_to_store(grip, &written, described.tree.contents);
        let uid = uid.unwrap_or(written.dirty.uid);
        let mut core = self.core();
        if self.has_gone_meanwhile(grip)? {
            drop(core);
            return self.store_nothing(grip).map(|()| None);
        }
        let cut = (&described, fresh.as_deref());
        let wait = self.log_store(&mut core, grip, cut, &written, (mtime, uid, kin, None))?;
        drop(core);
        self.after_change()?;
        Ok(wait)
    }

    /// Cuts and names what was written. With the pieces that were cut anew, if the others are as
    /// they were.
    fn describe_written(
        &self,
        grip: &Grip<C::Container>,
        written: &Written,
    ) -> Step<(Described, Option<Vec<Placed>>)> {
        let size = grip.container.length().map_err(failed)?;
        if let Some(since) = written.since.as_ref().filter(|since| since.is_little_of(size))
            && let Some((described, fresh)) = self.describe_since(grip, since)?
        {
            return Ok((described, Some(fresh)));
        }
        let front = match &written.front {
            Some(front) => self.describe_front(grip.key(), &grip.container, front)?,
            None => None,
        };
        let described = match front {
            Some(described) => described,
            None => self.describe_here(grip.key(), &grip.container, None).map_err(of_chunks)?,
        };
        Ok((described, None))
    }

    /// As `store`, of what was written upon a version that is not all here.
    fn store_upon(
        &self,
        grip: &Grip<C::Container>,
        uid: Option<u32>,
        written: &Written,
        (presence, described): (Presence, Described),
    ) -> Step<Option<u64>> {
        let mtime = self.mtime_to_store(grip, written, described.tree.contents);
        let uid = uid.unwrap_or(written.dirty.uid);
        let mut core = self.core();
        if self.has_gone_meanwhile(grip)? {
            drop(core);
            return self.store_nothing(grip).map(|()| None);
        }
        let part = self.note_part(&mut core, grip, &described)?;
        let upon = Some((presence, part));
        let cut = (&described, None);
        let wait = self.log_store(&mut core, grip, cut, written, (mtime, uid, None, upon))?;
        drop(core);
        self.after_change()?;
        Ok(wait)
    }

    /// Of what was written before a crash it is not known when. What holds what it held before was
    /// not written to: there was no room for it, or it did not come to that.
    fn mtime_to_store(
        &self,
        grip: &Grip<C::Container>,
        written: &Written,
        contents: Contents,
    ) -> Time {
        let as_before = || {
            let node = self.node_here(grip.file).ok()??;
            // What was pending, and was taken back when it was opened, shows no more.
            let is_it = node.contents == contents || node.contents_stamp == written.dirty.expects;
            (written.before == contents && is_it).then_some(node.mtime)
        };
        let on_disk = || {
            let (secs, nanos) = grip.container.changed_at().ok()??;
            Some(Time { secs, nanos })
        };
        let known = written.mtime.or(written.dirty.mtime).or_else(as_before).or_else(on_disk);
        known.unwrap_or_else(|| self.inner.world.clock.time())
    }

    /// Nobody has stored another version upon the one that was opened.
    fn is_current(&self, grip: &Grip<C::Container>, written: &Written) -> Step<bool> {
        let node = self.node_here(grip.file)?;
        Ok(node.is_some_and(|node| {
            node.contents_stamp == written.version && node.contents == written.before
        }))
    }

    /// It is the version that it was, and not written to.
    fn leave_unwritten(&self, grip: &Grip<C::Container>, written: &Written) -> Step<()> {
        let mut core = self.core();
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        let unwritten = Presence {
            plain: open.presence.plain,
            ..whole(grip.generation, (written.version, written.before), written.used)
        };
        // Of a row that says otherwise, who opens it next would take the container for current.
        let mut write = self.inner.tables.write().map_err(failed)?;
        unwritten.save_in_place(&mut *write, grip.file).map_err(failed)?;
        write.commit(Durability::Later).map_err(failed)?;
        core.unsaved = true;
        open.presence = unwritten;
        (open.unseen, open.since, open.written) = (None, None, false);
        open.is_mappable = false;
        Self::forget_charge(&mut core, grip.file, grip.generation);
        self.room_taken(taken(&open.container).unwrap_or(written.before.size));
        if let Err(error) = files.note_closed(&mut core.log, grip.file, Some(grip.generation)) {
            // After a crash it is found once more to be what it was.
            tracing::debug!(%error, file = %grip.file, "that nothing was written is not noted");
        }
        Ok(())
    }

    /// A program of this machine has taken its last name since the caller looked. The log is locked:
    /// a store after that would bring it back.
    fn has_gone_meanwhile(&self, grip: &Grip<C::Container>) -> Step<bool> {
        let files = self.files();
        let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        if open.unborn || open.unlinked.is_some() {
            return Ok(open.unlinked.is_some());
        }
        drop(files);
        Ok(self.node_here(grip.file)?.is_none() && self.known().gone_here(grip.file).is_some())
    }

    fn log_store(
        &self,
        core: &mut Core,
        grip: &Grip<C::Container>,
        (described, fresh): (&Described, Option<&[Placed]>),
        written: &Written,
        (mtime, uid, kin, upon): (Time, u32, Option<FileId>, Option<(Presence, PartRow)>),
    ) -> Step<Option<u64>> {
        self.contents_written(grip.key());
        let contents = described.tree.contents;
        let change =
            Change::Store { file: grip.file, expects: written.dirty.expects, contents, mtime };
        let (mut stored, mut votes) = (None, Votes::on(grip.file));
        let now = self.inner.world.clock.time();
        // What was open before the lease ran out may be stored: the origin looks at what it
        // expects to find.
        let everything = 0;
        let done = self.change_under(
            core,
            everything,
            uid,
            |tree, ids| {
                // The change was made when it was written, as everybody is shown: closing a file
                // changes no times.
                let node = tree.node(grip.file).map_err(stop)?;
                let shown = written.changed.map(|at| node.map_or(at, |node| at.max(node.ctime)));
                ids.at = shown.map(|shown| shown.min(now));
                Ok(change)
            },
            |write, update| {
                let presence = match &upon {
                    Some((presence, part)) => {
                        part.save(write, grip.file)?;
                        presence.stored(update.stamp, contents)
                    }
                    None => whole(grip.generation, (update.stamp, contents), written.used),
                };
                let presence = Presence { plain: written.plain, ..presence };
                presence.save(write, grip.file)?;
                let pieces = fresh.unwrap_or(&described.pieces);
                note_pieces(write, (grip.file, grip.generation), pieces, &mut votes)?;
                match upon {
                    Some(_) => self.drop_unsent(write, grip.file)?,
                    None => {
                        let of = (grip.file, update.stamp.number);
                        self.note_recipe(write, of, described, fresh.is_none())?;
                    }
                }
                note_features(write, (grip.file, grip.generation), described, &mut votes)?;
                stored = Some(presence);
                Ok(())
            },
        )?;
        self.note_others_written(core, grip);
        let presence = stored.expect("a change that was done has been written");
        self.became(grip, &presence, described);
        self.known().written(grip.file, presence.version, contents, mtime);
        let number = done.value.0.stamp.number;
        if written.overtook {
            core.waiters.owe(number);
        }
        // What is cut anew in part has a version before it, or lies upon one.
        let is_all = fresh.is_none() && upon.is_none();
        let alike = if is_all { votes.best() } else { Vec::new() };
        let kin = if alike.is_empty() { kin.into_iter().collect() } else { alike };
        let most = self.inner.settings.plan_chunks_max;
        let plan = Plan::new(grip.file, grip.generation, described, kin, most);
        core.plans.insert(number, written.planned(plan));
        Ok(done.wait)
    }

    /// The log says by a store that the file is written to no more: of other versions of it, it says
    /// anew that they are.
    fn note_others_written(&self, core: &mut Core, grip: &Grip<C::Container>) {
        let noted = self.files().note_others(&mut core.log, grip.file, Some(grip.generation));
        if let Err(error) = noted {
            tracing::debug!(%error, file = %grip.file, "what else is written to is not noted anew");
        }
    }

    /// Stores what a file holds that gets its first name just now, under the lock under which it
    /// gets it.
    pub(crate) fn store_born(
        &self,
        core: &mut Core,
        grip: &Grip<C::Container>,
        uid: u32,
        (described, kin): (&Described, Option<FileId>),
    ) -> Step<()> {
        let written = self.written(grip)?.ok_or(Error::BadHandle)?;
        let mtime = written.mtime.unwrap_or_else(|| self.inner.world.clock.time());
        self.log_store(core, grip, (described, None), &written, (mtime, uid, kin, None))?;
        Ok(())
    }

    fn written(&self, grip: &Grip<C::Container>) -> Step<Option<Written>> {
        let files = self.files();
        let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        let (mtime, changed) = open.times().map_err(failed)?;
        // What the kernel wrote by itself is not among what was noted.
        let noted = open.unseen.is_none().then_some(open);
        Ok(open.presence.dirty.map(|dirty| Written {
            dirty,
            version: open.presence.version,
            before: open.presence.contents,
            mtime,
            changed,
            unlinked: open.unlinked.is_some(),
            overtook: open.overtook,
            plain: open.is_known_as_plain(),
            used: open.presence.used,
            since: noted.and_then(|open| open.since.clone()),
            images: noted.and_then(|open| open.images.clone()),
            front: noted.and_then(|open| open.front.clone()),
        }))
    }

    /// Before it is said that what was written is here: another program may have removed its container.
    pub(crate) fn keep_container(&self, grip: &Grip<C::Container>) -> Step<()> {
        let has_names = self
            .files()
            .get(grip.file, grip.generation)
            .is_some_and(|open| open.unlinked.is_none());
        if has_names { grip.container.look().map_err(failed) } else { Ok(()) }
    }

    /// A store that is still on its way, where the mode waits for it.
    fn unsettled(&self, file: FileId) -> Option<u64> {
        let waits = mode::waits_for_verdicts(self.connection().mode);
        if waits { self.core().log.pending_store(file) } else { None }
    }

    /// What was written to a file without a name goes nowhere, and stays readable while open.
    fn store_nothing(&self, grip: &Grip<C::Container>) -> Step<()> {
        if self.keep_unborn(grip.file)? {
            return Ok(());
        }
        let mut core = self.core();
        // Whoever removed it may yet be told that it was not done.
        let removed = core.log.of_file(grip.file).map(|(number, _)| number);
        if let Some(number) = removed.take(1).find(|number| self.is_kept(&core, *number)) {
            return Err(Stop::Need(Need::Verdict(number)));
        }
        core.log.note(&Record::Closed { file: grip.file }).map_err(log_failed)?;
        core.unsaved = true;
        Self::forget_charge(&mut core, grip.file, grip.generation);
        let mut files = self.files();
        let contents = crate::files::sized(grip.container.length().map_err(failed)?);
        let presence = files.store_nowhere(grip.file, grip.generation, contents);
        let presence = presence.ok_or(Error::BadHandle)?;
        let pending = core.pending_version(grip.file);
        let mut write = self.inner.tables.write().map_err(failed)?;
        let row = Presence::load(&*write, grip.file).map_err(failed)?;
        // Another version that is pending keeps the row.
        let is_kept = pending.is_some() && row.is_some_and(|row| Some(row.version) == pending);
        let save = if is_kept { Presence::save_in_place } else { Presence::save };
        save(presence, &mut *write, grip.file).map_err(failed)?;
        write.commit(Durability::Later).map_err(failed)
    }
}

/// A version of which all is in its container.
pub(crate) fn whole(
    generation: u32,
    (version, contents): (Stamp, Contents),
    used: i64,
) -> Presence {
    let mut presence = Presence::new(generation, version, contents, used);
    presence.add_all();
    presence
}

/// Notes where each chunk of a container is, and what it looks like.
pub(crate) fn note_places(
    write: &mut dyn Write,
    (file, generation): (FileId, u32),
    described: &Described,
) -> Result<(), StoreError> {
    let mut votes = Votes::on(file);
    note_pieces(write, (file, generation), &described.pieces, &mut votes)?;
    note_features(write, (file, generation), described, &mut votes)
}

/// Where other files have them, too, counts for those.
pub(crate) fn note_pieces(
    write: &mut dyn Write,
    (file, generation): (FileId, u32),
    pieces: &[Placed],
    votes: &mut Votes,
) -> Result<(), StoreError> {
    for placed in pieces {
        let Piece::Chunk { name, length } = placed.piece else { continue };
        let short = u32::try_from(length).expect("no chunk is longer than 1 MiB");
        let place = Place { file, generation, offset: placed.offset, length: short };
        votes.of_chunk(&index::note(write, &name, place)?, length);
    }
    Ok(())
}

/// Notes what a container looks like.
fn note_features(
    write: &mut dyn Write,
    (file, generation): (FileId, u32),
    described: &Described,
    votes: &mut Votes,
) -> Result<(), StoreError> {
    // They stand for no stretch of the file.
    let place = Place { file, generation, offset: 0, length: 0 };
    let size = described.tree.contents.size;
    for feature in &described.features {
        votes.of_feature(&index::note(write, feature, place)?, size);
    }
    Ok(())
}
