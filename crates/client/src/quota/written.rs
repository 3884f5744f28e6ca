//! What is written to open files and not stored.
//! Holds: with what is pending each byte counts once: of a file that is what shows of it here, and what
//! is written beyond that.

use super::{Charges, known_node};
use crate::client::{Client, Core, failed};
use crate::files::{Grip, OpenFile};
use crate::room::taken;
use crate::types::{Error, Handle, Step};
use model::{Contents, FileId, Growths, Node, ReplicaId, Stamp};
use protocol::Upstream;
use store::container::Key;
use store::{Container, Containers, StoreError};
use volume::partial::Tree;

/// Files that were written to and are remembered; when there are more, it is looked which still are.
const WRITTEN_MAX: usize = 4096;

/// Of a file that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub uid: u32,
    /// What it counts for before it is stored.
    pub before: u64,
    /// Bytes that are no hole, at most.
    pub most: u64,
    /// The version that is written over.
    pub expects: Stamp,
}

impl Written {
    pub fn growths(self) -> Growths {
        let mut growths = Growths::default();
        growths.add_bytes(self.uid, self.most.saturating_sub(self.before));
        growths
    }

    /// With a stretch more that was written, of a file that ends there.
    fn with(self, from: u64, to: u64, end: u64) -> Written {
        let most = self.most.saturating_add(to - from).min(end.max(to));
        Written { most: most.max(self.most.min(end)), ..self }
    }
}

impl Charges {
    pub(super) fn is_written(&self, file: FileId) -> bool {
        self.written.range((file, 0)..=(file, u32::MAX)).next().is_some()
    }

    /// Of a file that shows like this now, what is written is more by less, or by more. What somebody
    /// else has stored is not written over: both are kept.
    pub(super) fn lies_upon(&mut self, file: FileId, own: Option<ReplicaId>, node: Option<&Node>) {
        let of_file = self.written.range((file, 0)..=(file, u32::MAX));
        for (key, written) in of_file.map(|(key, written)| (*key, *written)).collect::<Vec<_>>() {
            let next = match node {
                None => Written { before: 0, ..written },
                Some(node) => {
                    let stamp = node.contents_stamp;
                    let is_under = stamp == written.expects || Some(stamp.replica) == own;
                    let before = if is_under { node.contents.data() } else { written.before };
                    Written { uid: node.uid, before, ..written }
                }
            };
            self.set_written(key, Some(next));
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A store was taken back, and its container counts as written: what it held is not pending any
    /// more.
    pub(crate) fn charge_again(
        &self,
        core: &mut Core,
        key: Key,
        expects: Stamp,
        contents: &Contents,
    ) {
        if !self.has_quota() {
            return;
        }
        let (file, generation) = (FileId(key.file), key.generation);
        let known = core.charges.written.get(&(file, generation)).copied();
        let most = known.map_or(contents.data(), |known| known.most.max(contents.data()));
        let written = Written { uid: known.map_or(0, |known| known.uid), before: 0, most, expects };
        core.charges.set_written((file, generation), Some(written));
        self.recharge(core, [file]);
    }

    /// What is written to a file that has its name again.
    pub(crate) fn charge_named(&self, core: &mut Core, file: FileId) {
        if !self.has_quota() {
            return;
        }
        self.note_what_is_written(core, Some(file));
        self.recharge(core, [file]);
    }

    /// A container is not written to any more, or nothing of it is to be stored.
    pub(crate) fn forget_charge(core: &mut Core, file: FileId, generation: u32) {
        core.charges.set_written((file, generation), None);
    }

    /// What was written before there was a quota, or before a crash.
    pub(super) fn count_written(&self, core: &mut Core) -> Result<(), Error> {
        if core.charges.written_counted {
            return Ok(());
        }
        let files = self.note_what_is_written(core, None);
        core.charges.written_counted = true;
        self.look_at_pending(core, files)
    }

    /// Of this file or of all. Gives those that were not known.
    fn note_what_is_written(&self, core: &mut Core, file: Option<FileId>) -> Vec<FileId> {
        let files = self.files();
        let mut added = Vec::new();
        for ((file, generation), open) in files.being_written(file) {
            let Some(dirty) = open.presence.dirty else { continue };
            if core.charges.written.contains_key(&(file, generation)) {
                continue;
            }
            let most = most_of(open).unwrap_or(open.presence.contents.data());
            let written = Written { uid: dirty.uid, before: 0, most, expects: dirty.expects };
            core.charges.set_written((file, generation), Some(written));
            added.push(file);
        }
        added
    }

    /// Whether there is room for so many bytes more of an open file, from `offset` on or at the end.
    pub(crate) fn has_quota_to_write(
        &self,
        handle: Handle,
        offset: Option<u64>,
        length: u64,
    ) -> Step<()> {
        if !self.has_quota() || length == 0 {
            return Ok(());
        }
        let (grip, _) = self.files().grip(handle)?;
        let end = grip.container.length().map_err(failed)?;
        let from = offset.unwrap_or(end);
        let change = |written: Written| written.with(from, from.saturating_add(length), end);
        self.charge_written(&grip, change)
    }

    /// An open file was cut.
    pub(crate) fn charge_cut(&self, handle: Handle, size: u64) -> Step<()> {
        if !self.has_quota() {
            return Ok(());
        }
        let (grip, _) = self.files().grip(handle)?;
        self.charge_written(&grip, |written| Written { most: written.most.min(size), ..written })
    }

    fn charge_written(
        &self,
        grip: &Grip<C::Container>,
        change: impl Fn(Written) -> Written,
    ) -> Step<()> {
        let key = (grip.file, grip.generation);
        let mut core = self.core();
        let core = &mut *core;
        self.count_written(core)?;
        self.count_pending(core)?;
        let Some(before) = self.written_so_far(core, grip)? else { return Ok(()) };
        if core.charges.written.len() > WRITTEN_MAX {
            self.look_which_are_written(core)?;
        }
        let mut after = change(before);
        if let Err(stop) = self.judge_written(core, before, after) {
            // What is known of what is written is at most so much. It may be less.
            self.look_which_are_written(core)?;
            let Some(before) = self.written_so_far(core, grip)? else { return Ok(()) };
            after = change(before);
            self.judge_written(core, before, after).map_err(|_| stop)?;
        }
        core.charges.set_written(key, Some(after));
        Ok(())
    }

    fn judge_written(&self, core: &Core, before: Written, after: Written) -> Step<()> {
        let mut more = after.growths();
        more.take_away(&before.growths());
        if more.grows() { self.judge(core, &more) } else { Ok(()) }
    }

    /// None: it has no name, and counts for nothing.
    fn written_so_far(&self, core: &Core, grip: &Grip<C::Container>) -> Step<Option<Written>> {
        let (here, expects) = {
            let files = self.files();
            let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            if open.unlinked.is_some() {
                return Ok(None);
            }
            match open.presence.dirty {
                Some(dirty) => (most_of(open).map_err(failed)?, dirty.expects),
                None => (0, open.presence.version),
            }
        };
        if let Some(written) = core.charges.written.get(&(grip.file, grip.generation)) {
            return Ok(Some(*written));
        }
        let read = self.inner.tables.read().map_err(failed)?;
        let node = known_node(&Tree::new(&*read, 0), grip.file)?;
        Ok(node.map(|node| Written {
            uid: node.uid,
            before: node.contents.data(),
            // It may have been written to before there was a quota.
            most: node.contents.data().max(here),
            expects,
        }))
    }

    /// Forgets what is not written any more, and looks how much of the rest is no hole.
    fn look_which_are_written(&self, core: &mut Core) -> Step<()> {
        let keys: Vec<(FileId, u32)> = core.charges.written.keys().copied().collect();
        for key in keys {
            let Some(&written) = core.charges.written.get(&key) else { continue };
            let now = {
                let files = self.files();
                let open = files.get(key.0, key.1);
                match open.filter(|open| open.unlinked.is_none() && open.presence.dirty.is_some()) {
                    None => None,
                    // What is not here is not seen here.
                    Some(open) if !open.presence.is_whole() => Some(written),
                    Some(open) => {
                        let most = written.most.min(taken(&open.container).map_err(failed)?);
                        Some(Written { most, ..written })
                    }
                }
            };
            core.charges.set_written(key, now);
        }
        Ok(())
    }
}

/// Bytes of an open file that is written that are no hole, at most.
fn most_of<K: Container>(open: &OpenFile<K>) -> Result<u64, StoreError> {
    let here = taken(&open.container)?;
    match open.presence.ground.as_ref().filter(|_| !open.presence.is_whole()) {
        None => Ok(here),
        Some(ground) => {
            let under = ground.contents.data().min(ground.reach);
            Ok(under.saturating_add(here).min(open.container.length()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(before: u64, most: u64) -> Written {
        Written { uid: 5, before, most, expects: Stamp::default() }
    }

    #[test]
    fn what_is_written_over_counts_once_and_a_hole_for_nothing() {
        let dense = written(100, 100);
        assert_eq!(dense.with(0, 50, 100), dense, "there was something there");
        assert_eq!(dense.with(90, 120, 100).most, 120, "what is beyond the end is more");
        let new = written(0, 0);
        assert_eq!(new.with(1 << 40, (1 << 40) + 10, 0).most, 10);
        let sparse = written(10, 10);
        assert_eq!(sparse.with(0, 10, 1000).most, 20, "it may have been a hole");
        assert_eq!(written(0, 1000).with(0, 10, 1000).most, 1000);
    }
}
