//! Whether the quotas of the volume have room for what is done here, as far as is known here.
//! Holds: what is accepted is within what the replica above last said is used, with all that is
//! pending and all that is being written here; what frees is always accepted; nobody is told that a
//! quota is used up before the replica above was asked, where there is a link.
//! Never: judges contents when they are stored: they were judged when they were written.

use crate::client::{Client, Core, error_of, failed};
use crate::failures::of_missing;
use crate::files::Grip;
use crate::mode;
use crate::room::taken;
use crate::types::{Error, Handle, Need, Step, Stop};
use crate::undo::of_log;
use model::{Allowance, Contents, Effects, FileId, Growths, Node, View};
use protocol::{Objection, Submitted, Totals, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Container, Containers};
use volume::partial::{self, Missing, Tree};
use world::Moment;

/// So long what the replica above said is used counts before it is asked once more.
const SAID_FOR: Duration = Duration::from_secs(1);
/// Pending updates that are read at once.
const PAGE_UPDATES: usize = 256;
/// Files that were written to and are remembered; when there are more, it is looked which still are.
const WRITTEN_MAX: usize = 4096;

/// What is done here and is not in what the replica above said is used.
#[derive(Default)]
pub(crate) struct Charges {
    /// By which pending updates change what each file counts for.
    pending: BTreeMap<FileId, Growths>,
    /// What is written and not stored, by file and generation.
    written: BTreeMap<(FileId, u32), Written>,
    /// All of both.
    total: Growths,
    /// What was pending when the quota was first heard of is in it.
    counted: bool,
    asked: Option<Moment>,
}

/// Of a file that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    uid: u32,
    /// What it counts for before it is stored.
    before: u64,
    /// Bytes that are no hole, at most.
    most: u64,
}

impl Written {
    fn growths(self) -> Growths {
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
    fn set_pending(&mut self, file: FileId, growths: Growths) {
        if let Some(before) = self.pending.remove(&file) {
            self.total.take_away(&before);
        }
        if !growths.is_empty() {
            self.total.join(&growths);
            self.pending.insert(file, growths);
        }
    }

    fn set_written(&mut self, key: (FileId, u32), written: Option<Written>) {
        if let Some(before) = self.written.remove(&key) {
            self.total.take_away(&before.growths());
        }
        if let Some(written) = written {
            self.total.join(&written.growths());
            self.written.insert(key, written);
        }
    }

    /// It is stored: what it counts for is pending from now on.
    fn forget_written(&mut self, file: FileId) {
        let keys = self.written.range((file, 0)..=(file, u32::MAX)).map(|(key, _)| *key);
        for key in keys.collect::<Vec<_>>() {
            self.set_written(key, None);
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn has_quota(&self) -> bool {
        self.inner.has_quota.load(Ordering::Acquire)
    }

    /// What the replica above says is used. It is passed over if it counts what is pending here, or
    /// is older than what is known.
    pub(crate) fn take_allowance(&self, core: &mut Core, said: Option<Allowance>) {
        core.charges.asked = Some(self.inner.world.clock.moment());
        match &said {
            None => core.charges = Charges::default(),
            Some(said) => {
                let counts_pending = core.log.first_number().is_some_and(|n| n <= said.taken);
                let known = core.meta.allowance.as_ref();
                if counts_pending || known.is_some_and(|known| known.upto > said.upto) {
                    return;
                }
            }
        }
        self.inner.has_quota.store(said.is_some(), Ordering::Release);
        core.unsaved |= core.meta.allowance != said;
        let quota =
            |allowance: Option<&Allowance>| allowance.map(|allowance| allowance.quota.clone());
        if quota(core.meta.allowance.as_ref()) != quota(said.as_ref()) {
            // What was said of the whole volume goes by another bound now.
            core.totals = None;
        }
        core.meta.allowance = said;
    }

    /// The same of an answer to updates, which says nothing of it where it judges none.
    pub(crate) fn take_allowance_of(&self, core: &mut Core, submitted: &Submitted) {
        if !submitted.verdicts.is_empty() {
            self.take_allowance(core, submitted.allowance.clone());
        }
    }

    /// Whether there is room for these effects, if they are none of contents that were judged when
    /// they were written.
    pub(crate) fn has_quota_for(
        &self,
        core: &mut Core,
        tree: &Tree<'_>,
        effects: &Effects,
        is_store: bool,
    ) -> Step<()> {
        if !self.has_quota() || is_store {
            return Ok(());
        }
        let mut more = Growths::default();
        for (file, node) in &effects.nodes {
            more.note(known_node(tree, *file)?.as_ref(), node.as_ref());
        }
        if !more.grows() {
            return Ok(());
        }
        self.count_pending(core)?;
        self.judge(core, &more)
    }

    /// Whether there is room for what a file without a name holds, which counted for nothing until
    /// now that it gets one.
    pub(crate) fn has_quota_for_born(
        &self,
        core: &mut Core,
        uid: u32,
        contents: &Contents,
    ) -> Step<()> {
        if !self.has_quota() {
            return Ok(());
        }
        let mut more = Growths::default();
        more.add_bytes(uid, contents.data());
        self.count_pending(core)?;
        self.judge(core, &more)
    }

    fn judge(&self, core: &Core, more: &Growths) -> Step<()> {
        let over = |allowance: &Allowance| allowance.is_exceeded_by(&core.charges.total, more);
        if !core.meta.allowance.as_ref().is_some_and(over) {
            return Ok(());
        }
        let now = self.inner.world.clock.moment();
        let connection = self.connection();
        let may_ask = connection.attached && mode::fetches(connection.mode);
        if may_ask && core.charges.asked.is_none_or(|asked| now.since(asked) > SAID_FOR) {
            return Err(Stop::Need(Need::Lease));
        }
        Err(Error::Objection(Objection::OverQuota).into())
    }

    /// What pending updates of these files change is looked at anew.
    pub(crate) fn recharge(&self, core: &mut Core, files: impl IntoIterator<Item = FileId>) {
        if !self.has_quota() || !core.charges.counted {
            return;
        }
        if let Err(error) = self.look_at_pending(core, files) {
            tracing::warn!(%error, "what is pending is counted anew");
            Self::recount(core);
        }
    }

    fn look_at_pending(
        &self,
        core: &mut Core,
        files: impl IntoIterator<Item = FileId>,
    ) -> Result<(), Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        for file in files {
            let growths = partial::pending_growths(&*read, file).map_err(of_missing)?;
            core.charges.set_pending(file, growths);
        }
        Ok(())
    }

    /// The same of those that are known to have some.
    pub(crate) fn recharge_known(&self, core: &mut Core, files: impl IntoIterator<Item = FileId>) {
        let known = |file: &FileId| core.charges.pending.contains_key(file);
        let files: BTreeSet<FileId> = files.into_iter().filter(known).collect();
        self.recharge(core, files);
    }

    /// A file's contents were stored.
    pub(crate) fn charge_store(&self, core: &mut Core, file: FileId) {
        core.charges.forget_written(file);
    }

    /// What was counted of pending updates does not hold any more.
    pub(crate) fn recount(core: &mut Core) {
        let files: Vec<FileId> = core.charges.pending.keys().copied().collect();
        for file in files {
            core.charges.set_pending(file, Growths::default());
        }
        core.charges.counted = false;
    }

    fn count_pending(&self, core: &mut Core) -> Result<(), Error> {
        if core.charges.counted {
            return Ok(());
        }
        let mut files = BTreeSet::new();
        let mut from = 0;
        loop {
            let page = core.log.pending_from(from, PAGE_UPDATES).map_err(of_log)?;
            let Some(last) = page.last() else { break };
            from = last.stamp.number + 1;
            files.extend(page.iter().flat_map(model::Update::touches));
        }
        self.look_at_pending(core, files)?;
        core.charges.counted = true;
        Ok(())
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
        let here = {
            let files = self.files();
            let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            if open.unlinked.is_some() {
                return Ok(None);
            }
            let written = open.presence.dirty.is_some() && open.presence.is_whole();
            if written { taken(&open.container).map_err(failed)? } else { 0 }
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

    /// Of a volume with a quota, what is pending here counts too.
    pub(crate) fn with_pending(&self, totals: Totals) -> Step<Totals> {
        if !self.has_quota() {
            return Ok(totals);
        }
        let mut core = self.core();
        self.count_pending(&mut core)?;
        let more = core.charges.total.total();
        let add = |now: u64, by: i128| {
            u64::try_from(i128::from(now).saturating_add(by).max(0)).unwrap_or(u64::MAX)
        };
        Ok(Totals {
            bytes: add(totals.bytes, more.bytes),
            bytes_free: add(totals.bytes_free, -more.bytes),
            files: add(totals.files, more.files),
            files_free: add(totals.files_free, -more.files),
        })
    }
}

/// A node as it is known here. Of one that is not, nothing can be counted.
fn known_node(tree: &Tree<'_>, file: FileId) -> Step<Option<Node>> {
    match tree.node(file) {
        Err(Missing::Node(_)) => Ok(None),
        known => known.map_err(crate::client::stop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Growth;

    const FILE: FileId = FileId(7);

    fn written(before: u64, most: u64) -> Written {
        Written { uid: 5, before, most }
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

    #[test]
    fn charges_add_up_whatever_is_set_and_forgotten() {
        let mut charges = Charges::default();
        let growths = |bytes| {
            let mut growths = Growths::default();
            growths.add_bytes(5, bytes);
            growths
        };
        charges.set_pending(FILE, growths(10));
        charges.set_written((FILE, 1), Some(written(3, 7)));
        charges.set_written((FILE, 2), Some(written(0, 1)));
        charges.set_written((FileId(8), 1), Some(written(9, 4)));
        assert_eq!(charges.total.of(5), Growth { bytes: 15, files: 0 });
        charges.set_pending(FILE, growths(1));
        charges.forget_written(FILE);
        assert_eq!(charges.total.of(5), Growth { bytes: 1, files: 0 });
        charges.set_pending(FILE, Growths::default());
        charges.forget_written(FileId(8));
        assert!(charges.total.is_empty() && charges.pending.is_empty());
    }
}
