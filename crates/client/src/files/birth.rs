//! Giving a first name to a file that never had one.
//! Holds: with its name it gets its contents, in updates that leave and are taken together; what is
//! refused leaves the file as it was, open and without a name.
//! From: Linux, linkat(2), AT_EMPTY_PATH.

use super::{Files, OpenFile};
use crate::client::{Client, Core, failed, log_failed, stop};
use crate::failures::of_chunks;
use crate::ids::Ids;
use crate::presence::{Dirty, Presence};
use crate::ranks::{self, Rank};
use crate::types::{Caller, Done, Error, Found, Need, Step, Stop};
use chunks::Described;
use model::{AttributeChange, Change, Contents, FileId, Kind, Name, Node, Stamp, View};
use protocol::{Objection, Upstream};
use store::{Container, Containers, Durability, StoreError};
use update_log::Record;
use volume::partial::Tree;

/// What has given a file its name.
#[derive(Clone, Debug)]
pub(crate) struct Birth {
    /// The update whose verdict is waited for.
    number: u64,
    parent: FileId,
    name: Name,
    /// The file as it was.
    node: Node,
}

impl<K: Container> Files<K> {
    /// What somebody has open that this update gave a name to, or was to.
    fn born_by(&mut self, number: u64) -> Option<(FileId, &mut OpenFile<K>, Birth)> {
        self.open.iter_mut().find_map(|((file, _), open)| {
            let birth = open.birth.take_if(|birth| birth.number == number)?;
            Some((*file, open, birth))
        })
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Gives a file its first name. None: it is no such file.
    pub(crate) fn bear(
        &self,
        caller: Caller,
        file: FileId,
        parent: FileId,
        name: &Name,
    ) -> Step<Option<Done<Found>>> {
        let (generation, mapped) = {
            let mut files = self.files();
            let mapped = files.may_be_mapped(file);
            let Some(open) = files.unborn(file) else { return Ok(None) };
            (open.presence.generation, mapped)
        };
        self.catch_up()?;
        let epoch = self.epoch_that_counts()?;
        if let (true, Some(kernel)) = (mapped, self.inner.kernel.get()) {
            // What was written to a mapping belongs to it.
            kernel.forget_node(file, true);
        }
        self.settle_closed(None);
        let grip = self.grip_of(file, generation).ok_or(Error::BadHandle)?;
        let _still = ranks::write(Rank::Still, &grip.still);
        if self.files().unborn(file).is_none() {
            // Somebody else has given it one meanwhile.
            return Ok(None);
        }
        let described = match grip.container.length().map_err(failed)? {
            0 => None,
            _ => Some(self.describe_here(grip.key(), &grip.container, None).map_err(of_chunks)?),
        };
        let described = described.as_ref().map(|described| {
            let kin = self.guess_by_name(described, file, &grip.container);
            (described, kin)
        });
        let wait = self.with_room(|| {
            let core = &mut self.core();
            let wanted = self.found(&mut self.files(), file, None)?.node;
            let named = Named { caller, file, generation, parent, name, wanted };
            let first = core.log.next_number();
            let outcome = self.bear_under(core, epoch, &named, described.as_ref());
            outcome.inspect_err(|_| self.not_begun(core, &named, first))
        })?;
        self.after_change()?;
        let mut files = self.files();
        let node = self.node_here(file)?;
        Ok(Some(Done { value: self.found(&mut files, file, node)?, wait }))
    }

    /// All of it under the lock of what changes, so that nothing leaves before all is there. Gives
    /// the number that is to be waited for.
    fn bear_under(
        &self,
        core: &mut Core,
        epoch: u32,
        named: &Named<'_>,
        described: Option<&(&Described, Option<FileId>)>,
    ) -> Step<Option<u64>> {
        let &Named { caller, file, generation, ref wanted, .. } = named;
        let Some(replica) = core.meta.replica else { return Err(Stop::Need(Need::Volume)) };
        if let Some((described, _)) = described {
            self.has_quota_for_born(core, wanted.uid, &described.tree.contents)?;
        }
        let expects = Stamp::new(replica, core.log.next_number());
        let dirty = described.map(|_| Dirty::new(expects, caller.uid));
        if let Some(Dirty { expects, uid, .. }) = dirty {
            // Before the name: a crash between the two leaves no file without its contents.
            let opened = Record::Opened { file, generation, expects, uid };
            core.log.note(&opened).map_err(log_failed)?;
        }
        let used = self.inner.world.clock.time().secs;
        let mut born = None;
        let done = self.change_under(
            core,
            epoch,
            caller.uid,
            |_, _| Ok(named.make()),
            |write, update| {
                let presence = Presence {
                    dirty,
                    ..Presence::new(generation, update.stamp, Contents::EMPTY, used)
                };
                presence.save(write, file)?;
                born = Some(presence);
                Ok(())
            },
        )?;
        let mut numbers = vec![done.value.0.stamp.number];
        let made = done.value.1.nodes.get(&file).cloned().flatten();
        let made = made.ok_or(Error::Objection(Objection::NoEntry))?;
        let grip = self.grip_of(file, generation).ok_or(Error::BadHandle)?;
        if let (Some(open), Some(presence)) = (self.files().unborn(file), born) {
            (open.unborn, open.unlinked) = (false, None);
            open.presence = presence;
            open.mtime = Some(wanted.mtime);
        }
        for change in what_differs(file, &made, wanted) {
            let build = |tree: &Tree<'_>, _: &mut Ids<'_>| with_stamp(tree, &change);
            let done = self.change_under(core, epoch, caller.uid, build, |_, _| Ok(()))?;
            numbers.push(done.value.0.stamp.number);
        }
        if let Some((described, kin)) = described {
            self.store_born(core, &grip, caller.uid, (described, *kin))?;
            numbers.push(core.log.last_number());
        }
        let wait = done.wait.and(numbers.pop());
        if let Some(number) = wait {
            numbers.reverse();
            core.waiters.tell_with(number, numbers);
            let (parent, name) = (named.parent, named.name.clone());
            if let Some(open) = self.files().get_mut(file, generation) {
                open.birth = Some(Birth { number, parent, name, node: wanted.clone() });
            }
        }
        self.known().is_born(file);
        Ok(wait)
    }

    /// Not all of it could be logged: none of it was done.
    fn not_begun(&self, core: &mut Core, named: &Named<'_>, first: u64) {
        let _pressed = self.pressed();
        let (file, generation) = (named.file, named.generation);
        let begun: Vec<u64> = core.log.numbers_from(first).collect();
        let undone = (|| {
            core.log.note(&Record::Closed { file }).map_err(log_failed)?;
            let mut gone = Vec::new();
            for number in begun {
                gone.extend(core.log.get(number).map_err(log_failed)?);
                core.log.cancel(number).map_err(log_failed)?;
                core.plans.remove(number);
            }
            if !gone.is_empty() {
                self.rebuild(core, &gone)?;
                let mut write = self.inner.tables.write().map_err(failed)?;
                Presence::remove(&mut *write, file).map_err(failed)?;
                write.commit(Durability::Later).map_err(failed)?;
            }
            Ok::<_, Stop>(!gone.is_empty())
        })();
        match undone {
            Ok(false) => {}
            Ok(true) => self.unborn_again(file, generation, named.wanted.clone()),
            Err(stop) => tracing::warn!(%file, %stop, "a name that was not given may show"),
        }
    }

    /// It has no name after all, and may be given another.
    fn unborn_again(&self, file: FileId, generation: u32, node: Node) {
        let node = Node { links: 0, ..node };
        let mut files = self.files();
        let Some(open) = files.get_mut(file, generation) else { return };
        open.unborn = true;
        open.unlinked = Some(node.clone());
        open.turned_down = false;
        open.since = None;
        open.presence.dirty = None;
        open.presence.ground = None;
        drop(files);
        self.known().set_unborn(file, node);
    }

    /// Whoever waits for this update is told that it was not taken: if it was to give a file its
    /// name, that has none, as before.
    pub(crate) fn not_born(&self, number: u64) {
        let found = {
            let mut files = self.files();
            files.born_by(number).map(|(file, open, birth)| {
                let stored = open.presence.dirty.is_none() && open.presence.contents.size > 0;
                (file, open.presence.generation, birth, stored)
            })
        };
        let Some((file, generation, birth, stored)) = found else { return };
        let outcome = match self.node_here(file) {
            // It has its name, and what it holds found no room.
            Ok(Some(node)) => {
                let caller = Caller { uid: node.uid, gid: node.gid };
                self.unlink(caller, birth.parent, &birth.name, false).map(|_| ())
            }
            Ok(None) | Err(Stop::Need(_)) => self.take_back_birth(file).map(|()| {
                if let (true, Some(open)) = (stored, self.files().get(file, generation)) {
                    self.inner.room.sub(crate::room::taken(&open.container).unwrap_or(0));
                }
                self.unborn_again(file, generation, birth.node);
            }),
            Err(stop) => Err(stop),
        };
        if let Err(stop) = outcome {
            tracing::warn!(%file, %stop, "a file was not given its name, and is not as before");
        }
    }

    fn take_back_birth(&self, file: FileId) -> Step<()> {
        let _pressed = self.pressed();
        let mut core = self.core();
        core.log.note(&Record::Closed { file }).map_err(log_failed)?;
        core.unsaved = true;
        let mut write = self.inner.tables.write().map_err(failed)?;
        Presence::remove(&mut *write, file).map_err(failed)?;
        write.commit(Durability::Later).map_err(failed)
    }

    /// What was to get a name when this machine stopped, and did not: `logged` is the last update
    /// that is in the log, or was asked about. Nothing is left of it.
    pub(crate) fn was_never_born(
        &self,
        file: FileId,
        presence: &Presence,
        logged: u64,
    ) -> Result<bool, StoreError> {
        let own = self.core().meta.replica;
        let awaited = presence.dirty.map(|dirty| dirty.expects);
        let Some(make) = awaited.filter(|make| Some(make.replica) == own && make.number > logged)
        else {
            return Ok(false);
        };
        tracing::debug!(%file, %make, "a file was to be given a name, and has none");
        let mut write = self.inner.tables.write()?;
        Presence::remove(&mut *write, file)?;
        write.commit(Durability::Now)?;
        Ok(true)
    }
}

/// A name that is to be given.
struct Named<'a> {
    caller: Caller,
    file: FileId,
    generation: u32,
    parent: FileId,
    name: &'a Name,
    /// The file as it is.
    wanted: Node,
}

impl Named<'_> {
    fn make(&self) -> Change {
        let node = &self.wanted;
        Change::Make {
            parent: self.parent,
            name: self.name.clone(),
            file: self.file,
            kind: Kind::File,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            target: None,
            rdev: None,
            born: node.born,
        }
    }
}

/// What makes of a file that was made just now the one that is wanted, but for its contents. The
/// directory in which it gets its name is not asked what it hands down.
fn what_differs(file: FileId, made: &Node, wanted: &Node) -> Vec<Change> {
    let (none, mut changes) = (Default::default(), Vec::new());
    let (there, wished) =
        (made.xattrs.as_ref().unwrap_or(&none), wanted.xattrs.as_ref().unwrap_or(&none));
    for name in there.keys().filter(|name| !wished.contains_key(*name)) {
        changes.push(Change::RemoveXattr { file, name: name.clone(), expects: None });
    }
    for (name, value) in wished.iter().filter(|(name, value)| there.get(*name) != Some(*value)) {
        changes.push(Change::SetXattr {
            file,
            name: name.clone(),
            value: value.clone(),
            expects: None,
        });
    }
    let set = AttributeChange {
        mode: (made.mode != wanted.mode || !changes.is_empty()).then_some(wanted.mode),
        atime: Some(wanted.atime),
        mtime: Some(wanted.mtime),
        ..AttributeChange::default()
    };
    changes.push(Change::SetAttributes { file, expects: made.attributes_stamp, set });
    changes
}

fn with_stamp(tree: &Tree<'_>, change: &Change) -> Step<Change> {
    let mut change = change.clone();
    if let Change::SetAttributes { file, expects, .. } = &mut change {
        let node = tree.node(*file).map_err(stop)?;
        *expects = node.ok_or(Error::Objection(Objection::NoEntry))?.attributes_stamp;
    }
    Ok(change)
}
