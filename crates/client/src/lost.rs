//! What the replica above has taken and this machine has lost with its power.
//! Holds: a number or an id that may have left is never given again; what such an update stored
//! is not replaced by what an older container holds.
//!
//! In connected mode an update leaves before the log is synced. So the tables say durably up to
//! which bound that may happen, a start goes on beyond it, and the next attach asks what there is
//! of the updates between the last one in the log and the bound.
//! From: DESIGN, "Updates" and "The client".

use crate::client::{Client, Core, error_of};
use crate::meta::{Bound, Lost, Meta};
use crate::mode;
use crate::part::opened_record;
use crate::presence::Dirty;
use crate::types::Error;
use crate::undo::of_log;
use model::{FileId, Node, ReplicaId, Stamp, Update};
use protocol::{Attached, NodeState, Upstream};
use store::{Containers, Durability};
use update_log::{UpdateLog, What};
use volume::partial::Changed;

/// Updates and files that may be made between two checkpoints without waiting for the log; beyond
/// that it is synced first.
const AHEAD: u64 = 1 << 14;
/// Files of which it is asked before the next ones are looked for.
const ASKED_AT_ONCE: usize = 1024;

impl Bound {
    pub fn covers(&self, update: &Update) -> bool {
        let own = update.makes().filter(|file| file.replica() == update.stamp.replica);
        let made = own.map_or(0, FileId::counter);
        update.stamp.number <= self.number && made < self.counter
    }

    pub fn least(self, other: Bound) -> Bound {
        Bound { number: self.number.min(other.number), counter: self.counter.min(other.counter) }
    }
}

impl Lost {
    /// The replica above shows an update that is not in the log.
    fn has(&self, stamp: Stamp, replica: ReplicaId) -> bool {
        let number = stamp.number;
        let is_gone = self.after < number && number <= self.upto;
        stamp.replica == replica && (is_gone || self.torn.contains(&number))
    }

    /// The replica above has taken some of it.
    fn is_taken(&self, taken: u64) -> bool {
        self.after < taken || self.torn.iter().any(|number| *number <= taken)
    }
}

/// The log is open: numbers and ids go on beyond all that may have left. Gives the last number of
/// which it is known what became of it: it is in the log, or was asked about before.
pub(crate) fn go_on_beyond(meta: &mut Meta, log: &mut UpdateLog) -> u64 {
    let after = log.last_number().max(meta.taken.unwrap_or(0));
    let Some(bound) = meta.may_leave else { return after };
    match &mut meta.lost {
        // Until it has been asked about nothing leaves, so there is one such stretch at most.
        Some(lost) => lost.again = true,
        None if bound.number > after => {
            meta.lost = Some(Lost { after, upto: bound.number, ..Lost::default() });
        }
        None => {}
    }
    log.skip_to(bound.number);
    meta.counter = meta.counter.max(bound.counter);
    after
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Up to where updates may leave before they are in the log on the disk, once the tables say
    /// so there. Whoever does not wait for the replica above syncs first, and whoever stops stays
    /// within what is synced now.
    pub(crate) fn next_bound(&self, core: &Core) -> Bound {
        let waits = mode::waits_for_verdicts(self.connection().mode);
        let ahead = if waits && !self.is_stopping() { AHEAD } else { 0 };
        Bound { number: core.log.last_number() + ahead, counter: core.meta.counter + ahead }
    }

    /// Asks what there is of files that were being written to when this machine stopped, and of
    /// those that were stored since, if it has lost updates. Before this nothing of them leaves.
    pub(crate) async fn ask_of_lost(&self, attached: &Attached) -> Result<(), Error> {
        let (replica, lost, doubtful) = {
            let core = self.core();
            let Some(lost) = core.meta.lost.clone() else { return Ok(()) };
            (core.meta.replica, lost, self.files().doubtful())
        };
        if replica == Some(attached.replica) && lost.is_taken(attached.taken) {
            self.ask_of_files(doubtful.clone(), attached, &lost).await?;
            let mut after = None;
            loop {
                let mut stored: Vec<FileId> =
                    self.core().log.stored_after(after).take(ASKED_AT_ONCE).collect();
                let Some(last) = stored.last().copied() else { break };
                after = Some(last);
                stored.retain(|file| {
                    !doubtful.contains(file) && self.has_stored(*file, attached.taken)
                });
                self.ask_of_files(stored, attached, &lost).await?;
            }
        }
        self.files().doubt_no_more();
        let mut core = self.core();
        core.meta.lost = None;
        core.unsaved = true;
        Ok(())
    }

    async fn ask_of_files(
        &self,
        files: Vec<FileId>,
        attached: &Attached,
        lost: &Lost,
    ) -> Result<(), Error> {
        let is_made = |file: FileId| self.is_made_above(file, attached.taken);
        for state in self.said_of(files.into_iter().filter(|file| is_made(*file))).await? {
            let by_lost = |node: &Node| lost.has(node.contents_stamp, attached.replica);
            match &state.node {
                Some(node) if by_lost(node) => self.meets_lost(&state, lost, attached.taken)?,
                // Whoever removed it, nothing is left of what had not been synced.
                None if !lost.again && !self.files().is_in_use(state.file) => {
                    self.drop_doubtful(state.file)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Contents of the file are pending that are not taken.
    fn has_stored(&self, file: FileId, taken: u64) -> bool {
        let core = self.core();
        core.log.of_file(file).any(|(number, what)| number > taken && what == What::Stores)
    }

    /// Not by a pending update that is still to be taken.
    fn is_made_above(&self, file: FileId, taken: u64) -> bool {
        let core = self.core();
        !core.log.of_file(file).any(|(number, what)| number > taken && what == What::Makes)
    }

    /// The replica above has contents that were stored here, and that the log has lost.
    fn meets_lost(&self, state: &NodeState, lost: &Lost, taken: u64) -> Result<(), Error> {
        let file = state.file;
        for update in self.stores_of(file, taken)? {
            self.set_apart(&update, nowhere(update.stamp.replica))?;
        }
        // What may have been written since the start is kept beside.
        if lost.again || self.files().is_in_use(file) {
            return self.expect_nothing(file);
        }
        self.drop_doubtful(file)
    }

    /// Pending stores of a file that are not taken.
    fn stores_of(&self, file: FileId, taken: u64) -> Result<Vec<Update>, Error> {
        let core = self.core();
        let is_new = |(number, what): &(u64, What)| *what == What::Stores && *number > taken;
        let mut numbers: Vec<u64> =
            core.log.of_file(file).filter(is_new).map(|(number, _)| number).collect();
        numbers.reverse();
        let stores = numbers.into_iter().map(|number| core.log.get(number));
        stores.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(of_log)
    }

    /// The replica above has it better than the container, whose bytes may not all have reached
    /// the disk.
    fn drop_doubtful(&self, file: FileId) -> Result<(), Error> {
        {
            let mut core = self.core();
            let mut files = self.files();
            for generation in files.doubtful_generations(file) {
                tracing::info!(%file, "what was written before the power went is at the server");
                self.drop_version(&mut core, &mut files, file, Some(generation))?;
            }
        }
        self.forget(&[Changed::Node { file, contents: true }]);
        Ok(())
    }

    /// What is written to a file is kept beside whatever the replica above has.
    fn expect_nothing(&self, file: FileId) -> Result<(), Error> {
        let mut core = self.core();
        let mut files = self.files();
        let Some(replica) = core.meta.replica else { return Ok(()) };
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for open in files.written_versions(file) {
            let Some(Dirty { uid, .. }) = open.presence.dirty else { continue };
            let dirty = Dirty::new(nowhere(replica), uid);
            core.log.note(&opened_record(file, dirty, &open.presence)).map_err(of_log)?;
            core.unsaved = true;
            open.presence.dirty = Some(dirty);
            open.presence.save_in_place(&mut *write, file).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)
    }
}

/// A stamp that nothing bears: who expects it meets whatever is there.
pub(crate) fn nowhere(replica: ReplicaId) -> Stamp {
    Stamp::new(replica, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Change, Kind, Name, Time};

    const REPLICA: ReplicaId = ReplicaId(3);

    fn make(number: u64, counter: u64) -> Update {
        let at = Time { secs: 1, nanos: 0 };
        let file = FileId::new(REPLICA, counter).unwrap();
        let (parent, name) = (FileId::ROOT, Name::new("a").unwrap());
        let (kind, mode, uid, gid) = (Kind::Directory, 0o755, 0, 0);
        let change = Change::Make {
            parent,
            name,
            file,
            kind,
            mode,
            uid,
            gid,
            target: None,
            rdev: None,
            born: None,
        };
        Update { stamp: Stamp::new(REPLICA, number), uid: 0, at, change }
    }

    #[test]
    fn an_update_is_covered_up_to_the_bound_and_not_beyond() {
        let bound = Bound { number: 5, counter: 9 };
        assert!(bound.covers(&make(5, 8)));
        assert!(!bound.covers(&make(6, 8)) && !bound.covers(&make(5, 9)));
        assert!(!Bound::default().covers(&make(1, 1)), "before the first checkpoint nothing is");
        let other = Bound { number: 7, counter: 2 };
        assert_eq!(bound.least(other), Bound { number: 5, counter: 2 });
    }

    #[test]
    fn only_own_updates_between_the_log_and_the_bound_are_lost() {
        let lost = Lost { after: 5, upto: 9, again: false, torn: vec![2] };
        let has = |replica, number| lost.has(Stamp::new(ReplicaId(replica), number), REPLICA);
        assert!(has(3, 6) && has(3, 9) && has(3, 2));
        assert!(!has(3, 5) && !has(3, 10) && !has(4, 6));
        assert!(lost.is_taken(6) && lost.is_taken(2) && !lost.is_taken(1));
    }
}
