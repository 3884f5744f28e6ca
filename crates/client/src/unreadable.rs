//! Blocks that the disk here has lost: it says so when they are read.
//! Holds: of what the server has they leave the cache, and are fetched as what was never here. Of what
//! is pending, and is to be had nowhere else, they count as zeros when they could not be read for so
//! long that it is no trouble that passes; people are told, and what comes after it waits no longer.
//! Never: lets go of a block that can be read, or of one that the kernel reads or writes by itself.
//! From: beyond the papers, whose caches trust their disks (LBFS, "Implementation").

use crate::client::{Client, error_of, failed};
use crate::files::Grip;
use crate::replay_log::first_pending;
use crate::room::Stretches;
use crate::types::{Error, Stop};
use crate::undo::of_log;
use model::{Change, FileId};
use protocol::Upstream;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::container::Key;
use store::{Container, Containers, Result as StoreResult, StoreError};
use world::Moment;

/// What is lost together, and what a hole is made of.
const BLOCK_BYTES: u64 = 4096;
const READ_BYTES_MAX: u64 = 256 << 10;
/// The kernel reads at most so much into its cache in one piece, and fails with all of it.
const AROUND_BYTES: u64 = 2 << 20;
/// A disk that was unplugged, or starts anew, is there again sooner.
const TRIED_FOR: Duration = Duration::from_secs(120);
/// How often something of one file may be fetched for this: what is written there may be lost as well.
const OF_ONE_FILE_MAX: u32 = 256;
/// Files of which that is counted.
const FILES_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Unreadable(Mutex<State>);

#[derive(Default)]
struct State {
    /// Since when what is pending first cannot be read.
    since: Option<Moment>,
    /// The same of what a crash has left, and is to be stored.
    left_over: BTreeMap<(FileId, u32), Moment>,
    /// How often something of a file left.
    left: BTreeMap<FileId, u32>,
}

impl Unreadable {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn is_left_over_due(&self, container: (FileId, u32), now: Moment) -> bool {
        let left_over = &mut self.state().left_over;
        if left_over.len() >= FILES_MAX && !left_over.contains_key(&container) {
            left_over.pop_first();
        }
        now.since(*left_over.entry(container).or_insert(now)) >= TRIED_FOR
    }

    fn may_leave(&self, file: FileId) -> bool {
        let left = &mut self.state().left;
        if left.len() >= FILES_MAX && !left.contains_key(&file) {
            left.pop_first();
        }
        let times = left.entry(file).or_default();
        *times += 1;
        *times <= OF_ONE_FILE_MAX
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

fn is_read<K: Container>(container: &K, offset: u64, length: u64) -> StoreResult<bool> {
    match container.read_apart(offset, usize::try_from(length).unwrap_or(usize::MAX)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_unreadable() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes holes of the blocks at the ends of a stretch that cannot be read, of which a part is to be
/// written: the kernel would have to read the rest of them.
pub(crate) fn clear_ends<K: Container>(container: &K, from: u64, to: u64) -> StoreResult<()> {
    for end in [from, to].into_iter().filter(|end| end % BLOCK_BYTES != 0) {
        let block = end - end % BLOCK_BYTES;
        if !is_read(container, block, BLOCK_BYTES)? {
            container.punch(block, BLOCK_BYTES)?;
        }
    }
    Ok(())
}

fn bytes_of(stretches: &[(u64, u64)]) -> u64 {
    stretches.iter().map(|(from, to)| to - from).sum()
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Something here of an open file could not be read. If the server has it, it leaves, and the call
    /// lacks it from then on.
    pub(crate) fn could_not_read(
        &self,
        grip: &Grip<C::Container>,
        (offset, length): (u64, u64),
        error: StoreError,
    ) -> Result<(), Stop> {
        if !error.is_unreadable() {
            return Err(failed(error));
        }
        let from = offset - offset % AROUND_BYTES;
        let to = offset.saturating_add(length).next_multiple_of(AROUND_BYTES);
        match self.let_unreadable_go(grip, from, to) {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed(error)),
            Err(other) => {
                tracing::warn!(%other, "what cannot be read could not leave the cache");
                Err(failed(error))
            }
        }
    }

    fn let_unreadable_go(
        &self,
        grip: &Grip<C::Container>,
        from: u64,
        to: u64,
    ) -> Result<bool, Error> {
        // It would not be here at all, and may be readable again.
        if !self.connection().attached || !self.inner.unreadable.may_leave(grip.file) {
            return Ok(false);
        }
        let lost = unreadable_in(&grip.container, from, to).map_err(error_of)?;
        let bytes = bytes_of(&lost);
        if lost.is_empty() || !self.let_lost_leave((grip.file, grip.generation), lost)? {
            return Ok(false);
        }
        let path = self.name_for_people(grip.file);
        tracing::warn!(
            path,
            bytes,
            "the disk here has lost a part of the cache; it is fetched anew"
        );
        self.inner.mended.note(&path, bytes);
        Ok(true)
    }

    /// What is pending could not be sent, since it cannot be read.
    pub(crate) async fn see_to_unreadable(&self) {
        if !self.inner.unreadable.is_due(self.inner.world.clock.moment()) {
            return;
        }
        let client = self.clone();
        let seen = self.off_the_runtime(move || Ok(client.give_up_unreadable())).await;
        match seen.map_err(error_of).flatten() {
            Ok(()) => self.inner.unreadable.over(),
            Err(error) => tracing::error!(%error, "what cannot be read stays pending"),
        }
    }

    /// What a crash has left of what was being written, and nobody has open, cannot be read.
    pub(crate) fn left_over_unreadable(&self, grip: &Grip<C::Container>) {
        let (file, generation) = (grip.file, grip.generation);
        let now = self.inner.world.clock.moment();
        if !self.inner.unreadable.is_left_over_due((file, generation), now) {
            return;
        }
        if let Err(error) = self.zeros_in_left_over(grip) {
            tracing::error!(%file, %error, "what was written is kept, and cannot be read");
        }
    }

    fn zeros_in_left_over(&self, grip: &Grip<C::Container>) -> Result<(), Error> {
        let (file, generation) = (grip.file, grip.generation);
        let there = grip.container.length().map_err(error_of)?;
        let zeros = bytes_of(&unreadable_in(&grip.container, 0, there).map_err(error_of)?);
        let version = self.files().get(file, generation).map(|open| open.presence.version);
        if let Some(version) = version.filter(|_| zeros > 0) {
            self.note_zeros((file, version), (there, zeros)).map_err(error_of)?;
            self.make_zeros(file, Key { file: file.0, generation })?;
        }
        Ok(())
    }

    /// Of the stores that are to be sent next, the first that cannot be read.
    fn give_up_unreadable(&self) -> Result<(), Error> {
        let updates = first_pending(&mut self.core().log).map_err(of_log)?;
        for update in updates {
            let Change::Store { file, .. } = update.change else { continue };
            let mut zeros = None;
            for key in self.inner.containers.list_of(file.0).map_err(error_of)? {
                let lost = self.make_zeros(file, key)?;
                if let Some(bytes) = lost.filter(|bytes| *bytes > 0) {
                    *zeros.get_or_insert(0) += bytes;
                }
            }
            let planned = {
                self.core().plans.remove(update.stamp.number);
                self.plan_again(&update)
            };
            match planned {
                // It cannot even be opened.
                Err(Error::Unreadable(_)) => {}
                planned => planned?,
            }
            if !self.core().plans.has(update.stamp.number) {
                return self.give_up_store(&update, zeros);
            }
        }
        Ok(())
    }

    /// Says how many bytes of a container became zeros. None: it cannot be opened.
    fn make_zeros(&self, file: FileId, key: Key) -> Result<Option<u64>, Error> {
        let held = self.hold(file, key.generation).ok();
        let grip = self.grip_of(file, key.generation);
        // Whoever writes by calls waits.
        let _still =
            grip.as_ref().map(|grip| grip.still.write().unwrap_or_else(PoisonError::into_inner));
        if self.files().is_lent(file, key.generation) {
            return Err(Error::Changing);
        }
        let container = match (&grip, self.inner.containers.open(key, false)) {
            (Some(grip), _) => grip.container.clone(),
            (None, Ok(Some(container))) => container,
            (None, Ok(None)) => return Ok(Some(0)),
            (None, Err(error)) if error.is_unreadable() => return Ok(None),
            (None, Err(error)) => return Err(error_of(error)),
        };
        let length = container.length().map_err(error_of)?;
        let lost = unreadable_in(&container, 0, length).map_err(error_of)?;
        for &(from, to) in &lost {
            container.punch(from, to - from).map_err(error_of)?;
        }
        if !lost.is_empty() {
            container.sync().map_err(error_of)?;
            let path = self.name_for_people(file);
            let bytes = bytes_of(&lost);
            tracing::error!(
                path,
                bytes,
                "the disk here has lost a part of what was written and not sent: zeros take its place"
            );
        }
        drop(held);
        Ok(Some(bytes_of(&lost)))
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
        assert!(container.write(8193, &[3]).is_err(), "the rest of the block cannot be read");
        clear_ends(&container, 8193, 20_000).unwrap();
        container.write(8193, &[3]).unwrap();
        assert_eq!(container.read(8192, 3).unwrap(), [0, 3, 0]);
        assert_eq!(container.read(8191, 1).unwrap(), [1]);
    }

    #[test]
    fn what_passes_is_waited_for_and_a_file_is_not_fetched_for_ever() {
        let unreadable = Unreadable::default();
        let clock = world::Clock::simulated(0);
        let begun = clock.moment();
        assert!(!unreadable.is_due(begun));
        assert!(!unreadable.is_due(begun + TRIED_FOR / 2));
        assert!(unreadable.is_due(begun + TRIED_FOR));
        unreadable.over();
        assert!(!unreadable.is_due(begun + TRIED_FOR));
        let times = (0..1000).filter(|_| unreadable.may_leave(FileId(1))).count();
        assert_eq!(times, OF_ONE_FILE_MAX as usize);
        (2..3000).for_each(|file| assert!(unreadable.may_leave(FileId(file))));
        assert!(unreadable.state().left.len() <= FILES_MAX);
    }
}
