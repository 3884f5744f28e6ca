//! Coming up after a crash: the tables as of the last checkpoint, and the log after it.
//! Holds: what the log says was done is shown and pending again; what was written to a file and
//! not stored is open again, and stored beside the calls as if it had been closed at the crash.
//! From: partially connected operation, 5.2 ("Effective crash recovery is critical").

use crate::client::{Client, ClientError, Core};
use crate::damage::Torn;
use crate::effects::effects_of_pending;
use crate::files::{forget_written, sized};
use crate::kin::REMEMBERED_MAX;
use crate::meta::Meta;
use crate::part::{Added, PartRow, redo_part};
use crate::plan::describe_container_while;
use crate::presence::{Dirty, NO_VERSION, Presence};
use crate::shown::Gone;
use crate::times_set::note_time_set;
use crate::trash::GENERATION_MIN;
use chunks::{ChunksError, Growing, Secret};
use model::{Change, Contents, FileId, Update, View};
use protocol::Upstream;
use std::collections::BTreeSet;
use store::container::Key;
use store::{Container, Containers, Durability, Read, StoreError, Write};
use update_log::{LogError, Record, Recovered, UpdateLog};
use volume::partial::{self, Tree};

/// What became of a record that is done once more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Redone {
    Done,
    /// It rests on what is not known here any more: it is pending, and does not show yet.
    Hidden,
    /// A store whose contents are not there.
    Torn,
}

/// Which container holds what an update has stored, as far as can be told.
enum Holder {
    /// That of the file's row.
    Row,
    /// That of another version, which was written to at the same time.
    Displaced(u32),
    None,
}

/// What came of doing once more what the log has.
struct Again {
    torn: Torn,
    records: usize,
    /// Files that lost a name.
    removed: BTreeSet<FileId>,
}

/// Files that are looked at in one reading.
const PAGE_FILES: usize = 1024;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// `logged`: the last update that the log had, or that was asked about.
    pub(crate) fn recover(&self, recovered: Recovered, logged: u64) -> Result<(), ClientError> {
        self.keep_the_order();
        let records;
        {
            let mut core = self.core();
            let mut write = self.inner.tables.write()?;
            let made = core.meta.replica.and_then(|replica| recovered.made.get(&replica));
            if let Some(last) = made {
                core.meta.counter = core.meta.counter.max(last.saturating_add(1));
            }
            let core = &mut *core;
            let Again { torn, records: again, removed } = self.redo_all(&mut *write, core)?;
            records = again;
            match &mut core.meta.lost {
                // They may have left before they were on the disk, and are asked about.
                Some(lost) => lost.torn.extend(torn.last()),
                None => self.note_torn(&mut *write, &core.log, &torn)?,
            }
            for number in &torn.numbers {
                core.log.cancel(*number)?;
            }
            let rebuilds = core.meta.hides.is_some() || !recovered.cancelled.is_empty();
            // Written down at once: redoing twice would be right too, and longer. But that something
            // was taken back is told by the records behind the tables alone, until these show it.
            let applied = core.log.last_position();
            if !rebuilds {
                core.meta.applied = applied;
                forget_removed(&mut *write, &core.log, &removed)?;
            }
            core.meta.save(&mut *write)?;
            // What outlived the process may not be on the disk yet.
            self.sync_log()?;
            write.commit(Durability::Now)?;
            // What an earlier recovery could not show either is not in the log behind the tables.
            if rebuilds {
                let cancelled = recovered.cancelled.iter().map(|number| core.log.written(*number));
                let cancelled: Vec<Update> =
                    cancelled.filter_map(Result::transpose).collect::<Result<_, _>>()?;
                self.rebuild_without(core, &Gone::Updates(&cancelled))
                    .map_err(|error| ClientError::Rebuild(error.to_string()))?;
                core.meta.applied = applied;
                let mut write = self.inner.tables.write()?;
                forget_removed(&mut *write, &core.log, &removed)?;
                core.meta.save(&mut *write)?;
                write.commit(Durability::Now)?;
            }
        }
        if records > 0 {
            tracing::info!(records, "recovered from the log");
        }
        {
            let core = self.core();
            let mut kin = self.kin();
            let earlier = core.log.pending_len().saturating_sub(REMEMBERED_MAX);
            if let Some(from) = core.log.numbers_from(0).nth(earlier) {
                core.log.each_from(from, |update| {
                    kin.note(update);
                    Ok::<(), LogError>(())
                })?;
            }
        }
        self.reopen_written(logged)?;
        self.sweep_containers()
    }

    /// Does once more what the log has behind the checkpoint.
    fn redo_all(&self, write: &mut dyn Write, core: &mut Core) -> Result<Again, ClientError> {
        let meta = core.meta.clone();
        let mut again = Again { torn: Torn::default(), records: 0, removed: BTreeSet::new() };
        let mut after = meta.applied;
        while let Some(page) = core.log.page(after)? {
            after = page.last;
            again.records += page.records.len();
            self.inner.settings.headway.step();
            for record in &page.records {
                match record {
                    Record::Moot { cancelled, .. } => forget_unmade(write, &core.log, cancelled)?,
                    Record::Update(update) => again.removed.extend(update.removes()),
                    _ => {}
                }
                let redone = self.redo(write, record, &meta)?;
                again.torn.note(record, redone == Redone::Torn);
                if redone == Redone::Hidden {
                    core.meta.hides = Some(true);
                }
            }
        }
        Ok(again)
    }

    fn redo(
        &self,
        write: &mut dyn Write,
        record: &Record,
        meta: &Meta,
    ) -> Result<Redone, ClientError> {
        match record {
            Record::Update(update) => {
                if let Change::Store { file, contents, .. } = &update.change {
                    let generation = match self.holder(&*write, update, *file, contents, meta)? {
                        Holder::None => return Ok(Redone::Torn),
                        Holder::Row => None,
                        Holder::Displaced(generation) => Some(generation),
                    };
                    self.redo_store(write, update, (*file, *contents), generation)?;
                }
                note_time_set(write, update)?;
                if meta.is_taken(update.stamp.number) {
                    return Ok(Redone::Done);
                }
                let tree = Tree::new(&*write as &dyn Read, 0);
                let effects = match effects_of_pending(update, &tree) {
                    Ok(Ok(effects)) => effects,
                    // It was done upon what was heard since the checkpoint, and will be again.
                    Ok(Err(_)) => return Ok(Redone::Hidden),
                    Err(missing) if missing.file().is_some() => return Ok(Redone::Hidden),
                    Err(missing) => return Err(missing.into()),
                };
                partial::apply_local(write, update.stamp.number, &effects, meta.epoch)?;
            }
            Record::Opened { file, generation, expects, uid } => {
                let dirty = Dirty::new(*expects, *uid);
                self.mark_written(write, *file, *generation, dirty)?;
            }
            Record::OpenedPart { .. }
            | Record::Here { .. }
            | Record::Reach { .. }
            | Record::Part { .. } => redo_part(write, record)?,
            Record::Closed { file } => redo_closed(write, *file)?,
            // What they did is not redone.
            Record::Cancelled { .. } | Record::Moot { .. } | Record::Sure { .. } => {}
        }
        Ok(Redone::Done)
    }

    fn redo_store(
        &self,
        write: &mut dyn Write,
        update: &Update,
        (file, contents): (FileId, Contents),
        generation: Option<u32>,
    ) -> Result<(), StoreError> {
        let part = PartRow::load(&*write, file, update.stamp.number, &contents)?;
        let row = match generation.or(part.as_ref().map(|part| part.generation)) {
            Some(generation) => Presence::of_generation(&*write, file, generation)?,
            None => None,
        };
        let row = row.map_or_else(|| Presence::load(&*write, file), |row| Ok(Some(row)))?;
        if let (Some(_), Some(row)) = (part, row.as_ref().filter(|row| row.ground.is_some())) {
            let mut row = row.clone();
            // The log does not say what of it was written over.
            row.doubt();
            row.stored(update.stamp, contents).save(write, file)?;
            self.contents_written(Key { file: file.0, generation: row.generation });
            return Ok(());
        }
        let (generation, used) = row.map_or((0, update.at.secs), |row| (row.generation, row.used));
        let mut presence = Presence::new(generation, update.stamp, contents, used);
        presence.add_all();
        presence.save(write, file)?;
        self.contents_written(Key { file: file.0, generation });
        Ok(())
    }

    /// The log says that these contents were stored, and the container holds others: the power
    /// went before they were on the disk, or they were written over since. Then it is still being
    /// written to, as the log has said before, and what it holds is stored anew. Where there is no
    /// container, most often it left the cache, or the file was removed, once the store had been
    /// taken, which is not in the log: the replica above is asked.
    fn holder(
        &self,
        read: &dyn Read,
        update: &Update,
        file: FileId,
        contents: &Contents,
        meta: &Meta,
    ) -> Result<Holder, ClientError> {
        let Some(row) = Presence::load(read, file)? else { return Ok(Holder::Row) };
        let displaced = Presence::displaced(read, file)?;
        let is_stored = row.dirty.is_none() && row.version == update.stamp;
        if is_stored || (row.dirty.is_none() && displaced.is_empty()) {
            return Ok(Holder::Row);
        }
        let secret = Secret::new(meta.secret);
        if let Some(part) = PartRow::load(read, file, update.stamp.number, contents)? {
            return match self.added(file, &part, &secret) {
                Ok(Added::Altered) => Ok(Holder::None),
                Ok(_) => Ok(Holder::Row),
                // It is seen to when it is to be sent.
                Err(error) if error.is_unreadable() => Ok(Holder::Row),
                Err(error) => Err(error.into()),
            };
        }
        let goes_on = || {
            self.inner.settings.headway.step();
            true
        };
        let holds = |generation: u32| -> Result<Option<bool>, ClientError> {
            let key = Key { file: file.0, generation };
            let Some(container) = self.inner.containers.open(key, false)? else { return Ok(None) };
            let (growing, size) = (Growing::new(&secret, meta.cutter), container.length()?);
            match describe_container_while(&container, growing, (size, 0), goes_on, |_| Ok(())) {
                Ok(described) => Ok(Some(described.tree.contents == *contents)),
                // As above.
                Err(ChunksError::Store(error)) if error.is_unreadable() => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        for other in displaced {
            if holds(other.generation)? == Some(true) {
                return Ok(Holder::Displaced(other.generation));
            }
        }
        let is_altered = holds(row.generation)? == Some(false);
        Ok(if is_altered { Holder::None } else { Holder::Row })
    }

    fn mark_written(
        &self,
        write: &mut dyn Write,
        file: FileId,
        generation: u32,
        dirty: Dirty,
    ) -> Result<(), ClientError> {
        let row = Presence::of_generation(&*write, file, generation)?;
        let had_row = row.is_some();
        let mut presence = match row {
            Some(row) => row,
            // The tables are ahead of the log: it was let go of since.
            None if !self.has_container(Key { file: file.0, generation })? => return Ok(()),
            // What it holds is no version: if it is not stored, nobody may take it for one.
            None => Presence::new(generation, NO_VERSION, sized(0), 0),
        };
        presence.dirty = Some(dirty);
        presence.ground = None;
        // Where a newer one was stored since, the log says of it anew that it is written to.
        let save = if had_row { Presence::save_in_place } else { Presence::save };
        Ok(save(&presence, write, file)?)
    }

    fn has_container(&self, key: Key) -> Result<bool, StoreError> {
        Ok(self.inner.containers.open(key, false)?.is_some())
    }

    /// Files that were being written to are open again, for `store_left_over` to store.
    fn reopen_written(&self, logged: u64) -> Result<(), ClientError> {
        let doubtful = self.core().meta.lost.is_some();
        let mut after = None;
        loop {
            let page = {
                let read = self.inner.tables.read()?;
                Presence::page(&*read, after, PAGE_FILES)?
            };
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            self.inner.settings.headway.step();
            for (file, presence) in page {
                if presence.dirty.is_none() || self.was_never_born(file, &presence, logged)? {
                    continue;
                }
                if !self.reopen(file, presence, doubtful)? {
                    let mut write = self.inner.tables.write()?;
                    Presence::remove(&mut *write, file)?;
                    // Durable before there can be a container again, to be fetched into: after
                    // another crash it would be taken for what was being written.
                    write.commit(Durability::Now)?;
                }
            }
        }
        let mut after = None;
        loop {
            let page = {
                let read = self.inner.tables.read()?;
                Presence::page_displaced(&*read, after, PAGE_FILES)?
            };
            let Some((last, presence)) = page.last() else { return Ok(()) };
            after = Some((*last, presence.generation));
            for (file, presence) in page {
                let generation = presence.generation;
                if !self.reopen(file, presence, doubtful)? {
                    let mut write = self.inner.tables.write()?;
                    Presence::forget_displaced(&mut *write, file, generation)?;
                    write.commit(Durability::Now)?;
                }
            }
        }
    }

    /// Opens what was being written to. False: its container is not there.
    fn reopen(
        &self,
        file: FileId,
        presence: Presence,
        doubtful: bool,
    ) -> Result<bool, ClientError> {
        self.take_from_the_kernel(Key { file: file.0, generation: presence.generation })?;
        Ok(self.open_again(file, presence, doubtful)?)
    }

    /// The same of what nobody else can write to.
    pub(crate) fn open_again(
        &self,
        file: FileId,
        mut presence: Presence,
        doubtful: bool,
    ) -> Result<bool, StoreError> {
        presence.doubt();
        let key = Key { file: file.0, generation: presence.generation };
        let Some(container) = self.inner.containers.open(key, false)? else {
            tracing::warn!(%file, "a file that was being written to has no container");
            return Ok(false);
        };
        presence.cut(container.length()?);
        // It outlived the process, and may not be on the disk yet.
        self.contents_written(key);
        self.files().reopen(file, container, presence, doubtful);
        Ok(true)
    }

    /// A program that has it open since before the crash may go on writing to a container that the
    /// kernel was lent, through a mount that is gone: it keeps that one, and here is a copy.
    fn take_from_the_kernel(&self, key: Key) -> Result<(), ClientError> {
        let containers = &self.inner.containers;
        let Some(container) = containers.open(key, false)? else { return Ok(()) };
        // Where that cannot be told, nothing is lent.
        if container.is_alone().unwrap_or(true) {
            return Ok(());
        }
        // No version has this one; what a crash leaves of it is swept.
        let beside = Key { generation: u32::MAX, ..key };
        let mut step = || self.inner.settings.headway.step();
        let copied =
            containers.copy_in_steps(key, beside, u64::MAX, &mut step).and_then(|copied| {
                if let (true, Some(copy)) = (copied, containers.open(beside, false)?) {
                    // What the program has synced stays safe.
                    copy.sync()?;
                    containers.rename(beside, key)?;
                }
                Ok(())
            });
        match copied {
            // There is no room for it.
            Err(StoreError::Full(_)) => {
                tracing::warn!(
                    file = %FileId(key.file),
                    "a file that was being written to could not be copied for want of room: end the \
                     programs that have it open since before the crash"
                );
                containers.remove(beside)?;
                Ok(())
            }
            // It stays where it is, and is seen to when it is to be stored.
            Err(error) if error.is_unreadable() => {
                tracing::warn!(file = %FileId(key.file), %error, "a file that was being written to was not copied");
                containers.remove(beside)?;
                Ok(())
            }
            outcome => Ok(outcome?),
        }
    }

    /// Containers that no row speaks of are left from before the crash.
    fn sweep_containers(&self) -> Result<(), ClientError> {
        let mut there = self.inner.containers.keys()?;
        there.sort_unstable();
        let core = self.core();
        let in_trash = self.recover_trash(&there)?;
        // Nobody writes to the tables meanwhile.
        let read = self.inner.tables.read()?;
        for key in there {
            if key.generation >= GENERATION_MIN {
                if !in_trash.contains(&key) {
                    self.inner.containers.remove(key)?;
                }
                continue;
            }
            let row = Presence::of_generation(&*read, FileId(key.file), key.generation)?;
            // Of a version of which nothing is here, the last close was not seen to.
            let is_needed = row.is_some_and(|row| !row.holds_nothing());
            if !is_needed && core.log.pending_store(FileId(key.file)).is_none() {
                self.inner.containers.remove(key)?;
            }
        }
        Ok(())
    }
}

/// What was written to files of which it shows that they were removed here: the store of what they
/// held may have been cancelled for that. How it came to show does not matter. The removal may have
/// been taken already, or find its place as it is only when all that was cancelled is left out.
fn forget_removed(
    write: &mut dyn Write,
    log: &UpdateLog,
    removed: &BTreeSet<FileId>,
) -> Result<(), ClientError> {
    for file in removed {
        match Tree::new(&*write as &dyn Read, 0).node(*file) {
            Ok(None) => {}
            // It has other names.
            Ok(Some(_)) => continue,
            // It is not known here whether it has.
            Err(missing) if missing.file().is_some() => continue,
            Err(missing) => return Err(missing.into()),
        }
        let is_written = Presence::load(&*write, *file)?.is_some_and(|row| row.dirty.is_some())
            || !Presence::displaced(&*write, *file)?.is_empty();
        // What is stored and has not left is needed until it has.
        if is_written || log.pending_store(*file).is_none() {
            forget_written(write, *file)?;
        }
    }
    Ok(())
}

/// What was written to one version of a file is stored no more. Where several are written to, the log
/// does not say of which, and says anew of the others that they are: then nothing is forgotten, and
/// what was not written to is found to be as it was when it is to be stored.
fn redo_closed(write: &mut dyn Write, file: FileId) -> Result<(), ClientError> {
    let several = !Presence::displaced(&*write, file)?.is_empty();
    let is_gone = matches!(Tree::new(&*write as &dyn Read, 0).node(file), Ok(None));
    if !several || is_gone {
        forget_written(write, file)?;
    }
    Ok(())
}

/// What was written to files that were made and removed here, and are in the log no more.
fn forget_unmade(
    write: &mut dyn Write,
    log: &UpdateLog,
    cancelled: &[u64],
) -> Result<(), ClientError> {
    for number in cancelled {
        let made = log.written(*number)?.and_then(|update| update.makes());
        if let Some(file) = made {
            forget_written(write, file)?;
        }
    }
    Ok(())
}
