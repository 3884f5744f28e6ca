//! Blocks that the disk here has lost: it says so when they are read.
//! Holds: of what the server has they leave the cache, and are fetched as what was never here. Of a
//! store that is pending, that the server lacks and that nothing else here has, they become zeros when
//! they could not be read at any try for so long that it is no trouble that passes; people are told,
//! and what comes after it waits no longer.
//! Never: lets go of a block that can be read, or of one that the kernel writes to by itself.
//! From: beyond the papers, whose caches trust their disks (LBFS, "Implementation").

use crate::client::{Client, error_of};
use crate::files::Grip;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::replay_log::first_pending;
use crate::room::{Stretches, both, without};
use crate::types::{Error, Need};
use crate::undo::of_log;
use model::{Change, FileId, Update};
use protocol::Upstream;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers, Durability, Result as StoreResult, StoreError};
use world::Moment;

/// What is lost together, and what a hole is made of.
const BLOCK_BYTES: u64 = 4096;
const READ_BYTES_MAX: u64 = 256 << 10;
/// The kernel reads at most so much into its cache in one piece, and fails with all of it; and a chunk
/// that begins before it may end in it.
const AROUND_BYTES: u64 = 2 << 20;
/// A disk that was unplugged, or starts anew, is there again sooner.
const TRIED_FOR: Duration = Duration::from_secs(120);
/// What is given up then has failed at each of so many looks, so long apart.
const LOOKS: u32 = 3;
const LOOKS_APART: Duration = Duration::from_secs(1);
/// How often something of one file may leave for this: what is written there may be lost as well.
const OF_ONE_FILE_MAX: u32 = 256;
/// Files of which that is counted.
const FILES_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Unreadable(Mutex<State>);

#[derive(Default)]
struct State {
    /// Since when what is pending first cannot be read, without a break.
    since: Option<Moment>,
    /// How often something of a file left.
    left: BTreeMap<FileId, u32>,
}

impl Unreadable {
    fn state(&self) -> Ranked<'_, State> {
        ranks::lock(Rank::Unreadable, &self.0)
    }

    /// Something that was pending was sent, or is not sent for another reason.
    pub fn over(&self) {
        self.state().since = None;
    }

    /// What is pending could not be read. Says whether that is so for long enough.
    fn is_due(&self, now: Moment) -> bool {
        let since = *self.state().since.get_or_insert(now);
        now.since(since) >= TRIED_FOR
    }

    fn may_leave(&self, file: FileId) -> bool {
        self.state().left.get(&file).is_none_or(|times| *times < OF_ONE_FILE_MAX)
    }

    fn leaves(&self, file: FileId) {
        let left = &mut self.state().left;
        if left.len() >= FILES_MAX && !left.contains_key(&file) {
            left.pop_first();
        }
        *left.entry(file).or_default() += 1;
    }
}

/// None: the disk has lost some of it.
pub(crate) fn readable<T>(outcome: StoreResult<T>) -> StoreResult<Option<T>> {
    match outcome {
        Err(error) if error.is_unreadable() => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// The blocks of a stretch that cannot be read, in order.
fn unreadable_in<K: Container>(container: &K, from: u64, to: u64) -> StoreResult<Stretches> {
    let mut found = Stretches::new();
    for (start, length) in container.data(from, to.saturating_sub(from))? {
        let end = (start + length).next_multiple_of(BLOCK_BYTES);
        let mut at = start - start % BLOCK_BYTES;
        while at < end {
            let step = READ_BYTES_MAX.min(end - at);
            if !is_read(container, at, step)? {
                unreadable_blocks(container, at, at + step, &mut found)?;
            }
            at += step;
        }
    }
    Ok(found)
}

fn unreadable_blocks<K: Container>(
    container: &K,
    from: u64,
    to: u64,
    found: &mut Stretches,
) -> StoreResult<()> {
    for at in (from..to).step_by(BLOCK_BYTES as usize) {
        if is_read(container, at, BLOCK_BYTES)? {
            continue;
        }
        match found.last_mut() {
            Some((_, end)) if *end == at => *end += BLOCK_BYTES,
            _ => found.push((at, at + BLOCK_BYTES)),
        }
    }
    Ok(())
}

/// From the disk, or from what the kernel still has of it.
fn is_read<K: Container>(container: &K, offset: u64, length: u64) -> StoreResult<bool> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Ok(readable(container.read_apart(offset, length))?.is_some()
        || readable(container.read(offset, length))?.is_some())
}

fn bytes_of(stretches: &[(u64, u64)], end: u64) -> u64 {
    stretches.iter().map(|(from, to)| (*to).min(end).saturating_sub(*from)).sum()
}

/// What is wrong with a container of what is pending first.
struct Lost {
    update: Update,
    file: FileId,
    key: Key,
    /// Empty: it cannot be opened, or read at all.
    blocks: Stretches,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What a call needs that could not read something of an open file.
    pub(crate) fn need_of_unread(
        grip: &Grip<C::Container>,
        (offset, length): (u64, u64),
        error: StoreError,
    ) -> Result<Need, Error> {
        match error.is_unreadable() {
            true => {
                Ok(Need::Readable { file: grip.file, generation: grip.generation, offset, length })
            }
            false => Err(error_of(error)),
        }
    }

    /// What cannot be read of a stretch leaves, if the server has it: a call lacks it from then on.
    pub(crate) async fn let_unreadable_go(
        &self,
        (file, generation): (FileId, u32),
        (offset, length): (u64, u64),
    ) -> Result<(), Error> {
        let _held = self.hold(file, generation)?;
        let fetching = self.files().get(file, generation).map(|open| open.fetching.clone());
        let Some(fetching) = fetching else { return Ok(()) };
        let _alone = fetching.write_owned().await;
        let client = self.clone();
        let gone = self.off_the_runtime(move || {
            Ok(client.let_unreadable_leave((file, generation), (offset, length)))
        });
        gone.await.map_err(error_of).flatten()
    }

    /// Nobody fills the file meanwhile.
    fn let_unreadable_leave(
        &self,
        (file, generation): (FileId, u32),
        (offset, length): (u64, u64),
    ) -> Result<(), Error> {
        let Some(grip) = self.grip_of(file, generation) else { return Ok(()) };
        let is_here = || {
            let files = self.files();
            files.get(file, generation).is_some_and(|open| open.presence.has(offset, length))
        };
        let read = grip.container.read(offset, usize::try_from(length).unwrap_or(usize::MAX));
        let error = match read {
            // It has left meanwhile, or is read again.
            _ if !is_here() => return Ok(()),
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        // Without a session it would not be here at all, and it may be readable again.
        let may_leave = self.connection().attached && self.inner.unreadable.may_leave(file);
        if !error.is_unreadable() || !may_leave {
            return Err(error_of(error));
        }
        let from = (offset - offset % AROUND_BYTES).saturating_sub(AROUND_BYTES);
        let to = offset.saturating_add(length).next_multiple_of(AROUND_BYTES) + AROUND_BYTES;
        let lost = unreadable_in(&grip.container, from, to).map_err(error_of)?;
        let bytes = bytes_of(&lost, u64::MAX);
        if lost.is_empty() || !self.let_lost_leave((file, generation), lost)? {
            return Err(error_of(error));
        }
        self.inner.unreadable.leaves(file);
        let path = self.name_for_people(file);
        tracing::warn!(
            path,
            bytes,
            "the disk here has lost a part of the cache; it is fetched anew"
        );
        self.inner.mended.note(&path, bytes);
        Ok(())
    }

    /// What is pending first could not be sent, since it cannot be read.
    pub(crate) async fn see_to_unreadable(&self) {
        if !self.inner.unreadable.is_due(self.inner.world.clock.moment()) {
            return;
        }
        match self.give_up_unreadable().await {
            Ok(()) => self.inner.unreadable.over(),
            Err(error) => tracing::error!(%error, "what cannot be read stays pending"),
        }
    }

    async fn give_up_unreadable(&self) -> Result<(), Error> {
        let mut lost = None::<Lost>;
        for look in 0..LOOKS {
            if look > 0 {
                self.inner.world.clock.sleep(LOOKS_APART).await;
            }
            let client = self.clone();
            let found = self.off_the_runtime(move || Ok(client.first_unreadable())).await;
            let Some(found) = found.map_err(error_of).flatten()? else { return Ok(()) };
            lost = match lost.take() {
                None => Some(found),
                Some(before) if before.key == found.key && before.update == found.update => {
                    let same = before.blocks.is_empty() == found.blocks.is_empty();
                    let blocks = both(&before.blocks, &found.blocks);
                    (same && blocks.is_empty() == found.blocks.is_empty())
                        .then_some(Lost { blocks, ..found })
                }
                Some(_) => None,
            };
            if lost.is_none() {
                return Ok(());
            }
        }
        let Some(lost) = lost else { return Ok(()) };
        let client = self.clone();
        let given_up = self.off_the_runtime(move || Ok(client.give_up_lost(&lost)));
        given_up.await.map_err(error_of).flatten()
    }

    /// The first store that is pending, if its container cannot be read.
    fn first_unreadable(&self) -> Result<Option<Lost>, Error> {
        let updates = first_pending(&mut self.core().log).map_err(of_log)?;
        let stores = updates.into_iter().filter_map(|update| match update.change {
            Change::Store { file, .. } => Some((update, file)),
            _ => None,
        });
        for (update, file) in stores {
            let row = {
                let read = self.inner.tables.read().map_err(error_of)?;
                Presence::load(&*read, file).map_err(error_of)?
            };
            let Some(row) = row.filter(|row| row.version == update.stamp) else { continue };
            let key = Key { file: file.0, generation: row.generation };
            let looked = readable(self.inner.containers.open(key, false).and_then(|container| {
                container.map(|one| unreadable_in(&one, 0, one.length()?)).transpose()
            }));
            match looked.map_err(error_of)? {
                Some(Some(blocks)) if !blocks.is_empty() => {
                    return Ok(Some(Lost { update, file, key, blocks }));
                }
                Some(_) => {}
                None => return Ok(Some(Lost { update, file, key, blocks: Stretches::new() })),
            }
        }
        Ok(None)
    }

    fn give_up_lost(&self, lost: &Lost) -> Result<(), Error> {
        let zeros = self.make_zeros(lost)?;
        self.core().plans.remove(lost.update.stamp.number);
        match self.plan_what_is_read(&lost.update) {
            Ok(_) | Err(Error::Unreadable(_)) => {}
            Err(error) => return Err(error),
        }
        self.give_up_store(&lost.update, zeros)
    }

    /// Gives how many bytes of the container became zeros.
    fn make_zeros(&self, lost: &Lost) -> Result<Option<u64>, Error> {
        let (file, generation) = (lost.file, lost.key.generation);
        if lost.blocks.is_empty() {
            return Ok(None);
        }
        // Nobody opens it meanwhile, or whoever has it open and writes by calls waits.
        let grip = self.grip_of(file, generation);
        let still = grip.as_ref().map(|grip| &grip.still);
        let _still = still.map(|still| ranks::write(Rank::Still, still));
        let core = self.core();
        let mut files = self.files();
        let is_it = |still| grip.as_ref().is_some_and(|grip| Arc::ptr_eq(still, &grip.still));
        let opened = files.get(file, generation).is_some_and(|open| !is_it(&open.still));
        if opened || files.kernel_writes(file, generation) {
            // What the kernel writes there can be read.
            return Err(Error::Changing);
        }
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let open = files.get(file, generation).map(|open| open.presence.clone());
        let row = match open {
            None => Presence::load(&*write, file).map_err(error_of)?,
            open => open,
        };
        let is_it = |row: &Presence| {
            (row.version, row.generation) == (lost.update.stamp, generation) && row.dirty.is_none()
        };
        let Some(mut row) = row.filter(is_it) else { return Ok(None) };
        let container = self.inner.containers.open(lost.key, false).map_err(error_of)?;
        let Some(container) = container else { return Ok(None) };
        if !core.log.is_pending(lost.update.stamp.number) {
            return Ok(None);
        }
        let mut cleared = Stretches::new();
        let blocks = |(from, to): &(u64, u64)| (*from..*to).step_by(BLOCK_BYTES as usize);
        for at in lost.blocks.iter().flat_map(blocks) {
            if !is_read(&container, at, BLOCK_BYTES).map_err(error_of)? {
                cleared.push((at, at + BLOCK_BYTES));
                row.ranges = without(&row.ranges, at, at + BLOCK_BYTES);
            }
        }
        if row.ground.is_some() {
            // There it is as it was before.
            row.save(&mut *write, file).map_err(error_of)?;
            write.commit(Durability::Now).map_err(error_of)?;
            if let Some(open) = files.get_mut(file, generation) {
                open.presence = row;
                open.left.fetch_add(1, Ordering::AcqRel);
            }
        }
        for (from, to) in &cleared {
            container.punch(*from, to - from).map_err(error_of)?;
        }
        container.sync().map_err(error_of)?;
        let bytes = bytes_of(&cleared, container.length().map_err(error_of)?);
        tracing::error!(%file, bytes, "the disk here has lost a part of what was not sent");
        Ok((bytes > 0).then_some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::faulty::Disk;

    #[test]
    fn exactly_the_blocks_are_found_that_cannot_be_read() {
        let containers = Disk::new(1).containers("files");
        let container = containers.open(Key { file: 7, generation: 0 }, true).unwrap().unwrap();
        container.write(0, &vec![1; 1_000_000]).unwrap();
        container.write(3_000_000, &[2; 10]).unwrap();
        assert_eq!(unreadable_in(&container, 0, u64::MAX).unwrap(), []);
        container.lose(10_000, 1, true);
        container.lose(300_000, 9_000, true);
        container.lose(3_000_009, 1, true);
        let lost = [(8192, 12_288), (299_008, 311_296), (2_998_272, 3_002_368)];
        assert_eq!(unreadable_in(&container, 0, u64::MAX).unwrap(), lost);
        assert_eq!(unreadable_in(&container, 12_288, 299_008).unwrap(), []);
        assert_eq!(bytes_of(&lost, 3_000_010), 4096 + 12_288 + 1738, "no more than there was");
    }

    #[test]
    fn what_passes_is_waited_for_and_a_file_is_not_fetched_for_ever() {
        let unreadable = Unreadable::default();
        let begun = world::Clock::simulated(0).moment();
        assert!(!unreadable.is_due(begun));
        assert!(!unreadable.is_due(begun + TRIED_FOR / 2));
        assert!(unreadable.is_due(begun + TRIED_FOR));
        unreadable.over();
        assert!(!unreadable.is_due(begun + TRIED_FOR));
        let file = FileId(1);
        let leaves = |_: &u32| {
            let may_leave = unreadable.may_leave(file);
            unreadable.leaves(file);
            may_leave
        };
        assert_eq!((0..10_000).filter(leaves).count(), OF_ONE_FILE_MAX as usize);
        (2..3000).for_each(|file| unreadable.leaves(FileId(file)));
        assert!(unreadable.state().left.len() <= FILES_MAX);
    }
}
