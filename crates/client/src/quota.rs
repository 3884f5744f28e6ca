//! Whether the quotas of the volume have room for what is done here, as far as is known here.
//! Holds: what is accepted is within what the replica above last said is used, with all that is
//! pending and all that is being written here; what frees is always accepted; nobody is told that a
//! quota is used up before the replica above was asked, where there is a link.
//! Never: judges contents when they are stored: they were judged when they were written.

mod shown;
mod written;

pub(crate) use shown::Told;

use crate::client::{Client, Core, error_of};
use crate::failures::of_missing;
use crate::mode;
use crate::types::{Error, Need, Step, Stop};
use crate::undo::of_log;
use model::{Allowance, Contents, Effects, FileId, Growths, Node, View};
use protocol::{Objection, Submitted, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Containers;
use volume::partial::{self, Missing, Tree};
use world::Moment;
use written::Written;

/// So long what the replica above said is used counts before it is asked once more.
const SAID_FOR: Duration = Duration::from_secs(1);
/// Pending updates that are read at once.
const PAGE_UPDATES: usize = 256;

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
    /// What was written before that, or before a crash, is in it.
    written_counted: bool,
    asked: Option<Moment>,
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
    pub(crate) fn forget_written(&mut self, file: FileId) {
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
        let tree = Tree::new(&*read, 0);
        for file in files {
            let growths = partial::pending_growths(&*read, file).map_err(of_missing)?;
            core.charges.set_pending(file, growths);
            if core.charges.is_written(file) {
                // Of what is not known it counts as before.
                if let Ok(node) = tree.node(file) {
                    core.charges.lies_upon(file, core.meta.replica, node.as_ref());
                }
            }
        }
        Ok(())
    }

    /// The same of those that are known to have some, or that are being written.
    pub(crate) fn recharge_known(&self, core: &mut Core, files: impl IntoIterator<Item = FileId>) {
        let charges = &core.charges;
        let known = |file: &FileId| charges.pending.contains_key(file) || charges.is_written(*file);
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
        (core.charges.counted, core.charges.written_counted) = (false, false);
    }

    fn count_pending(&self, core: &mut Core) -> Result<(), Error> {
        if core.charges.counted {
            return Ok(());
        }
        let mut files: BTreeSet<FileId> =
            core.charges.written.keys().map(|(file, _)| *file).collect();
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
    use model::{Growth, Stamp};

    const FILE: FileId = FileId(7);

    fn written(before: u64, most: u64) -> Written {
        Written { uid: 5, before, most, expects: Stamp::default() }
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
