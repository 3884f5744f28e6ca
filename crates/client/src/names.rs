//! Names and attributes: what needs no contents.

mod listing;
mod numbered;

pub(crate) use listing::{Listings, Order, cookie};

use crate::client::Client;
use crate::files::Files;
use crate::ids::Ids;
use crate::mode::waits_for_verdicts;
use crate::past::entry_or_past;
use crate::times_set::note_time_set;
use crate::types::{
    Caller, Done, Error, Found, Handle, Making, Need, OpenFlags, Opened, RenameFlag, SetTime,
    Setting, Step, Stop,
};
use model::{
    AttributeChange, Change, Effects, FileId, Kind, Name, Node, SET_IDS, Stamp, Time, Update, View,
    Whiteout,
};
use protocol::{Objection, Totals, Upstream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Containers, StoreError, Write};
use volume::partial::Tree;

/// Attributes that are set on a file that is being written leave without its contents after this.
const HELD_BACK: Duration = Duration::from_millis(50);
/// How long totals are believed.
const TOTALS_KEPT: Duration = Duration::from_secs(30);
/// The bit of a mode by which a directory hands its group down.
const SETGID: u16 = 0o2000;

/// Who is told of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Program,
    Kernel,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What `stat` shows of a file.
    pub fn attributes(&self, file: FileId) -> Step<Found> {
        let mut files = self.files();
        let node = self.node_or_unborn(&files, file)?;
        self.found(&mut files, file, node)
    }

    /// The file of a name, or none if the directory has no such name.
    pub fn lookup(&self, parent: FileId, name: &Name) -> Step<Option<Found>> {
        self.look_up(parent, name, For::Program)
    }

    /// As `lookup`, for a kernel that has the file from then on, until it is `forgotten`.
    pub fn lookup_known(&self, parent: FileId, name: &Name) -> Step<Option<Found>> {
        self.look_up(parent, name, For::Kernel)
    }

    fn look_up(&self, parent: FileId, name: &Name, whom: For) -> Step<Option<Found>> {
        let found = self.look_and_find(whom == For::Kernel, || self.find(parent, name, whom));
        let counters = &self.inner.counters;
        match &found {
            Err(Stop::Need(_)) => counters.misses.fetch_add(1, Ordering::Relaxed),
            _ => counters.hits.fetch_add(1, Ordering::Relaxed),
        };
        found
    }

    fn find(&self, parent: FileId, name: &Name, whom: For) -> Step<Option<Found>> {
        let mut files = self.files();
        // What is found here cannot go before it is noted that the kernel has it.
        let mut known = self.known();
        let found = self.view(|tree| {
            let Some(file) = entry_or_past(tree, parent, name)? else { return Ok(None) };
            Ok(Some((file, tree.node(file)?)))
        })?;
        // An older replica above knows no snapshots.
        let unknown =
            |found: &(FileId, Option<Node>)| found.0 == FileId::CONTROL && found.1.is_none();
        let Some((file, node)) = found.filter(|found| !unknown(found)) else { return Ok(None) };
        if whom == For::Kernel {
            known.tell(file);
        }
        drop(known);
        self.note_named(parent, name, file);
        let outcome = self.found(&mut files, file, node);
        if let (Ok(found), For::Kernel) = (&outcome, whom) {
            files.tell_size(file, found.node.contents_stamp);
        }
        drop(files);
        if outcome.is_err() && whom == For::Kernel {
            self.forgotten(file, 1);
        }
        outcome.map(Some)
    }

    /// The directory that a directory is in; of the root, itself.
    pub fn parent(&self, directory: FileId) -> Step<FileId> {
        let node = self.view(|tree| tree.node(directory))?;
        let node = node.ok_or(Error::Objection(Objection::NoEntry))?;
        node.parent.ok_or(Error::Objection(Objection::NotADirectory).into())
    }

    /// A new file of any kind.
    pub fn make(
        &self,
        caller: Caller,
        parent: FileId,
        name: &Name,
        making: &Making,
    ) -> Step<Done<Found>> {
        self.make_with(caller, parent, name, making, |_, _| Ok(()))
    }

    /// A new file, of which `also` notes more before it is logged.
    fn make_with(
        &self,
        caller: Caller,
        parent: FileId,
        name: &Name,
        making: &Making,
        also: impl FnMut(&mut dyn Write, &Update) -> Result<(), StoreError>,
    ) -> Step<Done<Found>> {
        let done = self.change(
            caller.uid,
            |_, ids| {
                Ok(Change::Make {
                    parent,
                    name: name.clone(),
                    file: ids.next()?,
                    kind: making.kind,
                    mode: making.mode & 0o7777,
                    uid: making.uid,
                    gid: making.gid,
                    target: making.target.clone().map(Into::into),
                    rdev: making.rdev,
                    born: None,
                })
            },
            also,
        )?;
        let (update, effects) = done.value;
        let Change::Make { file, .. } = update.change else {
            unreachable!("a Make was built above")
        };
        let node = effects.nodes.get(&file).cloned().flatten();
        let value = self.found(&mut self.files(), file, node)?;
        Ok(Done { value, wait: done.wait })
    }

    /// A new ordinary file, open.
    pub fn create(
        &self,
        caller: Caller,
        parent: FileId,
        name: &Name,
        making: &Making,
        flags: OpenFlags,
    ) -> Step<Done<(Found, Opened)>> {
        self.has_place()?;
        // With its container, or not at all: a disk may have room for the one and not for the other.
        let mut prepared = None;
        let also = |write: &mut dyn Write, update: &Update| {
            prepared = Some(self.prepare_container(write, update)?);
            Ok(())
        };
        let made = match self.make_with(caller, parent, name, making, also) {
            Ok(made) => made,
            Err(stop) => {
                self.remove_prepared(prepared.map(|(key, _)| key));
                return Err(stop);
            }
        };
        let opened = self.open_new(&made.value, flags, prepared)?;
        Ok(Done { value: (made.value, opened), wait: made.wait })
    }

    /// One more name for a file.
    pub fn link(
        &self,
        caller: Caller,
        file: FileId,
        parent: FileId,
        name: &Name,
    ) -> Step<Done<Found>> {
        if let Some(done) = self.bear(caller, file, parent, name)? {
            return Ok(done);
        }
        let change = Change::Link { parent, name: name.clone(), file };
        let done = self.change(caller.uid, |_, _| Ok(change.clone()), |_, _| Ok(()))?;
        let mut files = self.files();
        // Done already, so whatever the lease: of what may be open, as it is by now.
        let node = self.node_here(file)?;
        Ok(Done { value: self.found(&mut files, file, node)?, wait: done.wait })
    }

    /// Takes a name away: of a directory if `directory` says so, of anything else if not.
    pub fn unlink(
        &self,
        caller: Caller,
        parent: FileId,
        name: &Name,
        directory: bool,
    ) -> Step<Done<()>> {
        let mut before = None;
        self.may_move(parent, name)?;
        let done = self.change(
            caller.uid,
            |tree, ids| {
                let (file, node) = entry(tree, parent, name)?;
                match (directory, node.kind == Kind::Directory) {
                    (true, false) => return Err(Objection::NotADirectory.into()),
                    (false, true) => return Err(Objection::IsADirectory.into()),
                    _ => before = Some((file, node)),
                }
                let expects = match &before {
                    Some((_, node)) => self.seen_contents(ids, file, node)?,
                    None => None,
                };
                Ok(Change::Unlink { parent, name: name.clone(), file, expects })
            },
            |_, _| Ok(()),
        )?;
        if let Some((file, node)) = before {
            self.after_removal((file, node), &done.value, None);
        }
        Ok(Done { value: (), wait: done.wait })
    }

    /// Moves a name, over another or in exchange for it.
    pub fn rename(
        &self,
        caller: Caller,
        from: FileId,
        from_name: &Name,
        to: FileId,
        to_name: &Name,
        flag: RenameFlag,
    ) -> Step<Done<()>> {
        let mut replaced = None;
        self.may_move(from, from_name)?;
        let done = self.change(
            caller.uid,
            |tree, ids| {
                let (file, _) = entry(tree, from, from_name)?;
                let over = tree.entry(to, to_name).map_err(crate::client::stop)?;
                let mut expects = None;
                match (flag, over) {
                    (RenameFlag::NoReplace | RenameFlag::WhiteoutNoReplace, Some(_)) => {
                        return Err(Objection::Exists.into());
                    }
                    (RenameFlag::Exchange, None) => return Err(Objection::NoEntry.into()),
                    (RenameFlag::Replace | RenameFlag::Whiteout, Some(over)) if over != file => {
                        let node = node_of(tree, (to, to_name), over)?;
                        expects = self.seen_contents(ids, over, &node)?;
                        replaced = Some((over, node, file));
                    }
                    _ => {}
                }
                let whiteout = match flag {
                    RenameFlag::Whiteout | RenameFlag::WhiteoutNoReplace => {
                        Some(whiteout(tree, ids, caller, from)?)
                    }
                    RenameFlag::Replace | RenameFlag::NoReplace | RenameFlag::Exchange => None,
                };
                Ok(Change::Rename {
                    from,
                    from_name: from_name.clone(),
                    to,
                    to_name: to_name.clone(),
                    file,
                    over,
                    exchange: flag == RenameFlag::Exchange,
                    whiteout,
                    expects,
                })
            },
            |_, _| Ok(()),
        )?;
        if let Some((over, node, by)) = replaced {
            self.after_removal((over, node), &done.value, Some(by));
        }
        Ok(Done { value: (), wait: done.wait })
    }

    /// The stamp of the contents that go with the last name of a file: of those that show here, whatever
    /// the replica above has said since, or that they were written over. Who waits for verdicts removes
    /// what is there.
    fn seen_contents(&self, ids: &Ids<'_>, file: FileId, node: &Node) -> Step<Option<Stamp>> {
        if node.kind != Kind::File {
            return Ok(None);
        }
        let waits = waits_for_verdicts(self.connection().mode);
        let unsaved = if waits { None } else { ids.below_unsaved(file)? };
        Ok(Some(ids.below_pending(file, unsaved.unwrap_or(node.contents_stamp))?))
    }

    /// What a symbolic link says.
    pub fn read_link(&self, file: FileId) -> Step<Vec<u8>> {
        let node = self.node(file)?;
        node.target.map(Vec::from).ok_or(Objection::Invalid.into())
    }

    /// Sets attributes; a new size cuts or grows the contents.
    pub fn set_attributes(
        &self,
        caller: Caller,
        file: FileId,
        handle: Option<Handle>,
        setting: &Setting,
    ) -> Step<Done<Found>> {
        let mut wait = None;
        if setting.mode.is_some_and(|mode| mode & SET_IDS != 0) {
            self.is_written_where_it_is_seen(file)?;
        }
        if let Some(size) = setting.size {
            // What the answer takes must be here first: a call that fails has changed nothing.
            self.attributes(file)?;
            wait = self.truncate(caller, file, handle, size)?;
        }
        // What was written to a mapping before was changed before: else it would count as changed
        // when the kernel hands it on.
        if setting.mtime.is_some()
            && self.files().may_be_mapped(file)
            && let Some(kernel) = self.inner.kernel.get()
            && !kernel.forget_node(file, true)
        {
            tracing::debug!(%file, "what is mapped was not handed on before its times were set");
        }
        let now = self.inner.world.clock.time();
        let mut set = AttributeChange {
            mode: setting.mode.map(|mode| mode & 0o7777),
            uid: setting.uid,
            gid: setting.gid,
            atime: setting.atime.map(|time| time_of(time, now)),
            mtime: setting.mtime.map(|time| time_of(time, now)),
        };
        if set == AttributeChange::default() {
            return Ok(Done { value: self.attributes(file)?, wait });
        }
        // When it was read here goes with what is set in any case.
        let untold = self.access_untold(file);
        set.atime = set.atime.or(untold);
        let change = Change::SetAttributes { file, expects: Stamp::default(), set: set.clone() };
        if self.change_nameless(caller.uid, file, &change)? {
            self.access_was_set(file);
            return Ok(Done { value: self.attributes(file)?, wait });
        }
        let mtime = set.mtime;
        let done = self.change_attributes(caller, file, |tree| {
            let node = tree.node(file).map_err(crate::client::stop)?;
            let node = node.ok_or(Error::Objection(Objection::NoEntry))?;
            Ok(Change::SetAttributes { file, expects: node.attributes_stamp, set: set.clone() })
        })?;
        if untold.is_some() {
            self.access_was_set(file);
        }
        if let Some(mtime) = mtime {
            self.files().set_mtime(file, mtime);
        }
        Ok(Done { value: self.attributes(file)?, wait: done.wait.or(wait) })
    }

    /// As `change`, of a file's attributes. While it is being written they go with its contents:
    /// programs set them just before they close it, and are told then what became of them.
    fn change_attributes(
        &self,
        caller: Caller,
        file: FileId,
        build: impl Fn(&Tree<'_>) -> Step<Change>,
    ) -> Step<Done<(Update, Effects)>> {
        self.settle_closed(None);
        self.catch_up()?;
        let epoch = self.epoch_that_counts()?;
        let done = self.with_room(|| {
            let mut core = self.core();
            let (uid, build) = (caller.uid, |tree: &Tree<'_>, _: &mut Ids<'_>| build(tree));
            let mut done = self.change_under(&mut core, epoch, uid, build, note_time_set)?;
            if !done.value.1.nodes.is_empty() {
                self.show_time_set(&mut core, &done.value.0);
            }
            let is_being_written = self.files().is_being_written(file);
            if let (Some(number), true) = (done.wait, is_being_written) {
                let until = self.inner.world.clock.moment() + HELD_BACK;
                core.waiters.wait_with_close(file, number, until);
                done.wait = None;
            }
            Ok::<_, Stop>(done)
        })?;
        self.after_change()?;
        Ok(done)
    }

    /// What `statfs` shows: the origin's totals as last told, and what this device has done of a quota.
    pub fn totals(&self) -> Step<Totals> {
        let now = self.inner.world.clock.moment();
        let known = self.core().totals;
        let mode = self.connection().mode;
        match known {
            Some(told) if now.since(told.at) < TOTALS_KEPT => self.with_quota(known),
            // Without a link the last known will do, and nothing at all is better than a wait.
            known if !crate::mode::fetches(mode) => self.with_quota(known),
            _ => Err(Stop::Need(Need::Totals)),
        }
    }

    pub(crate) fn node(&self, file: FileId) -> Step<Node> {
        Ok(self.attributes(file)?.node)
    }

    /// A node as it is cached, whether or not that counts.
    pub(crate) fn node_here(&self, file: FileId) -> Step<Option<Node>> {
        let read = self.inner.tables.read().map_err(crate::client::failed)?;
        Tree::new(&*read, 0).with_accesses().node(file).map_err(crate::client::stop)
    }

    /// A node with what is open and written here over it. It must have been read under the lock
    /// of the open files: in one that was read before, what has been stored and closed since
    /// would be missing from both.
    pub(crate) fn found(
        &self,
        files: &mut Files<C::Container>,
        file: FileId,
        node: Option<Node>,
    ) -> Step<Found> {
        let gone = match &node {
            Some(_) => None,
            None => self.known().gone(file).map(|gone| gone.node.clone()),
        };
        let node = files.show(file, node, gone.as_ref()).map_err(crate::client::failed)?;
        let mut node = node.ok_or(Error::Objection(Objection::NoEntry))?;
        self.show_access(file, &mut node);
        // Where it has several numbers, it is told by each of what it caches by that (`size_by`).
        if self.inner.kernel.get().is_some() && !self.numbers().has_several(file) {
            let told = files.size_cached(file, node.contents_stamp);
            node.contents.size = told.map_err(crate::client::failed)?.unwrap_or(node.contents.size);
        }
        Ok(Found { file, node })
    }
}

impl From<Objection> for Stop {
    fn from(objection: Objection) -> Stop {
        Stop::Error(Error::Objection(objection))
    }
}

fn entry(tree: &volume::partial::Tree<'_>, parent: FileId, name: &Name) -> Step<(FileId, Node)> {
    let stop = crate::client::stop;
    let file = tree.entry(parent, name).map_err(stop)?.ok_or(Stop::from(Objection::NoEntry))?;
    Ok((file, node_of(tree, (parent, name), file)?))
}

/// The file that bears a name. One that is known to be gone, while the replica above has not said yet what has its name now,
/// as when somebody has saved over it, is no sign that nothing has: that is asked for.
fn node_of(
    tree: &volume::partial::Tree<'_>,
    (parent, name): (FileId, &Name),
    file: FileId,
) -> Step<Node> {
    let stop = crate::client::stop;
    if let Some(node) = tree.node(file).map_err(stop)? {
        return Ok(node);
    }
    let parent = tree.now(parent).map_err(stop)?;
    match tree.entry_shown_by(parent, name).map_err(stop)? {
        (None, Some(said)) if said == file => Err(Stop::Need(Need::Entry(parent, name.clone()))),
        _ => Err(Objection::NoEntry.into()),
    }
}

/// What is to stand for a name that leaves this directory, which hands its group down if it does so.
fn whiteout(tree: &Tree<'_>, ids: &mut Ids<'_>, caller: Caller, from: FileId) -> Step<Whiteout> {
    let node = tree.node(from).map_err(crate::client::stop)?;
    let group = node.filter(|node| node.mode & SETGID != 0).map(|node| node.gid);
    Ok(Whiteout { file: ids.next()?, uid: caller.uid, gid: group.unwrap_or(caller.gid) })
}

fn time_of(time: SetTime, now: Time) -> Time {
    match time {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}
