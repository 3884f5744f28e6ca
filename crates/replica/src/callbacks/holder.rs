//! One client as a holder of callbacks.
//!
//! ```text
//!            attach                publish            next              acknowledge
//!   (away) ----------> listening ----------> pending ------> on its way ------------> listening
//!                          |  too much is pending
//!                          +----------------------> behind --- renew or attach ---> listening
//! ```

use super::level::Level;
use super::{Showing, Wait, Wake};
use crate::weight::{self, STATES_BYTES_MAX};
use model::{FileId, Name, ReplicaId, Seq};
use protocol::{EntryState, NodeState, Notice, Patience, States, Tail};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;
use volume::whole::Touched;
use world::Moment;

/// What a client may have cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Not known, or too much to be counted: it is told of every change.
    Everything,
    /// Nodes, and directories with their entries.
    These(BTreeSet<FileId>),
}

impl Shown {
    pub fn nothing() -> Shown {
        Shown::These(BTreeSet::new())
    }

    pub fn has(&self, file: FileId) -> bool {
        match self {
            Shown::Everything => true,
            Shown::These(files) => files.contains(&file),
        }
    }

    pub fn add(&mut self, more: impl IntoIterator<Item = FileId>, shown_max: usize) {
        let Shown::These(files) = self else { return };
        files.extend(more);
        if files.len() > shown_max {
            *self = Shown::Everything;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Holder {
    pub shown: Shown,
    pub lease_end: Moment,
    /// A lease may be on its way that ends then.
    pub promised_until: Moment,
    /// What is written of its leases was struck off when the last had ended.
    pub struck: bool,
    /// It let a lease end while somebody waited.
    late: bool,
    /// Somebody has waited in vain until this lease ended, and it had renewed it meanwhile.
    unheard: Option<Moment>,
    /// Of what nobody waits until it has been told, by its own wish.
    pub patience: Patience,
    pub session: Option<u64>,
    /// The last session that was expected or began.
    pub newest: u64,
    pub acknowledged: Level<Seq>,
    /// It was told that nobody else may use the volume, and has not acknowledged the contrary.
    pub alone: Level<bool>,
    pub wake: Wake,
    behind: bool,
    pending: Pending,
    /// The position of the last notice that was sent.
    told: Seq,
}

/// What a client has to be told: each key once, as it is now.
#[derive(Debug, Default)]
struct Pending {
    nodes: BTreeMap<FileId, NodeState>,
    entries: BTreeMap<(FileId, Name), EntryState>,
    /// About what the states take. With more than one message holds, the client is told nothing
    /// until it renews, which brings everything in one tail.
    bytes: usize,
    /// There is a notice to send even if it has no states.
    position: bool,
    /// Whether the client has the volume for itself, if that has changed.
    alone: Option<bool>,
    /// Files of whose locks there is news: as many as there are files with locks.
    locks: BTreeSet<FileId>,
}

impl Pending {
    fn put_node(&mut self, state: &NodeState) {
        self.bytes += weight::of_node_state(state);
        if let Some(before) = self.nodes.insert(state.file, state.clone()) {
            self.bytes = self.bytes.saturating_sub(weight::of_node_state(&before));
        }
    }

    fn put_entry(&mut self, key: &(FileId, Name), state: &EntryState) {
        self.bytes += weight::of_entry_state(state);
        if let Some(before) = self.entries.insert(key.clone(), state.clone()) {
            self.bytes = self.bytes.saturating_sub(weight::of_entry_state(&before));
        }
    }
}

/// What is to be sent next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Notice(Notice),
    Nothing,
    /// The session is over.
    Over,
}

impl Holder {
    pub fn new(shown: Shown, lease_end: Moment) -> Holder {
        Holder {
            shown,
            lease_end,
            promised_until: lease_end,
            struck: false,
            late: false,
            unheard: None,
            patience: Patience::default(),
            session: None,
            newest: 0,
            acknowledged: Level::new(Seq::START),
            alone: Level::new(false),
            wake: Arc::new(Notify::new()),
            behind: false,
            pending: Pending::default(),
            told: Seq::START,
        }
    }

    /// A session begins: its tail brings all that was pending.
    pub fn begin(&mut self, session: u64, seen: Seq, upto: Seq) {
        self.wake.notify_one();
        self.wake = Arc::new(Notify::new());
        self.session = Some(session);
        self.newest = session;
        (self.late, self.unheard) = (false, None);
        self.patience = Patience::default();
        self.behind = false;
        self.told = self.told.max(upto);
        self.acknowledge(seen);
        // Who waits for this client hears of it as soon as it has taken in the tail.
        let position = self.acknowledged.is_watched();
        self.pending = Pending { position, ..Pending::default() };
        self.not_alone();
    }

    /// Whether who changes what it was shown waits until it has heard of it.
    pub fn is_waited_for(&self, now: Moment) -> bool {
        !self.late && self.lease_end > now
    }

    pub fn wait(&self, replica: ReplicaId) -> Wait {
        let (session, acknowledged) = (self.newest, self.acknowledged.watch());
        Wait { replica, session, acknowledged, until: self.lease_end }
    }

    /// Somebody has waited in vain until the lease ended that a session had then. If it was renewed
    /// meanwhile, that came with what was waited for, and the acknowledgement may be on its way: once.
    pub fn mark_late(&mut self, wait: &Wait, now: Moment) {
        if self.newest != wait.session {
            return;
        }
        let again = self.unheard.is_some_and(|before| before < wait.until);
        self.late |= self.has_no_lease(now) || again;
        self.unheard.get_or_insert(wait.until);
    }

    /// It has taken in a notice.
    pub fn has_heard(&mut self, upto: Seq) {
        self.unheard = None;
        self.acknowledge(upto);
    }

    /// It holds no lease, and none is on its way to it.
    pub fn has_no_lease(&self, now: Moment) -> bool {
        self.lease_end <= now && self.promised_until <= now
    }

    pub fn end(&mut self) {
        self.not_alone();
        self.session = None;
        self.pending = Pending::default();
        self.wake.notify_one();
    }

    /// Whether a tail of what a client was shown may leave out what it has to be told: it was shown
    /// more meanwhile, and while it is behind nothing of that comes in another way.
    pub fn lacks(&self, of: &Shown) -> bool {
        self.behind && self.shown != *of
    }

    /// A tail brings all that the client was not told, up to `upto`. What is pending goes out all
    /// the same: somebody may wait for its acknowledgement.
    pub fn renew(&mut self, seen: Seq, (tail, upto): (&Tail, Seq), lease_end: Moment) {
        self.lease_end = self.lease_end.max(lease_end);
        let was_behind = std::mem::replace(&mut self.behind, false);
        self.told = self.told.max(upto);
        self.acknowledge(seen);
        // Who waits for it had no notice to wait for. One may arrive before the tail, and so has all
        // that the tail has; where that is too much to be told, the next renewal acknowledges it.
        if let Tail::Changes(Notice { states, .. }) = tail
            && was_behind
            && self.acknowledged.is_watched()
        {
            states.nodes.iter().for_each(|state| self.pending.put_node(state));
            for state in &states.entries {
                self.pending.put_entry(&(state.directory, state.name.clone()), state);
            }
            self.pending.position = true;
            self.wake.notify_one();
        }
    }

    /// Notes what of the touched keys is the client's concern. False: none is.
    pub fn note(&mut self, touched: &Touched, showing: &Showing) -> bool {
        let nodes: Vec<FileId> =
            touched.nodes.iter().copied().filter(|file| self.shown.has(*file)).collect();
        let entries: Vec<&(FileId, Name)> =
            touched.entries.iter().filter(|(directory, _)| self.shown.has(*directory)).collect();
        if nodes.is_empty() && entries.is_empty() {
            return false;
        }
        // Who is away or behind gets all of it with the next tail.
        if self.session.is_none() || self.behind {
            return true;
        }
        for file in nodes {
            if let Some(state) = showing.nodes.get(&file) {
                self.pending.put_node(state);
            }
        }
        for key in entries {
            if let Some(state) = showing.entries.get(key) {
                self.pending.put_entry(key, state);
            }
        }
        if self.pending.bytes > STATES_BYTES_MAX {
            self.fall_behind();
            return true;
        }
        self.pending.position = true;
        self.wake.notify_one();
        true
    }

    /// What is pending is more than it is told: it waits for the next tail.
    pub fn fall_behind(&mut self) {
        // Who is away or behind gets all of it with that.
        if self.session.is_none() || self.behind {
            return;
        }
        let Pending { alone, locks, .. } = std::mem::take(&mut self.pending);
        let position = alone.is_some() || !locks.is_empty();
        self.pending = Pending { alone, locks, position, ..Pending::default() };
        self.behind = true;
    }

    /// Lets a notice go that only moves the position, if that lies far back.
    pub fn note_position(&mut self, upto: Seq, lag_max: u64) {
        let far = upto.0.saturating_sub(self.told.0) >= lag_max;
        if far && self.session.is_some() && !self.behind && !self.pending.position {
            self.pending.position = true;
            self.wake.notify_one();
        }
    }

    pub fn next(&mut self, published: Seq) -> Next {
        if !self.pending.position {
            return Next::Nothing;
        }
        let Pending { nodes, entries, alone, locks, .. } = std::mem::take(&mut self.pending);
        // Who is behind learns no position: it has missed what lies before.
        let upto = if self.behind { self.told } else { published };
        self.told = self.told.max(upto);
        Next::Notice(Notice {
            upto,
            states: States {
                nodes: nodes.into_values().collect(),
                entries: entries.into_values().collect(),
            },
            alone,
            locks: (!locks.is_empty()).then(|| locks.into_iter().collect()),
        })
    }

    /// Tells the client that there is news of the locks of a file.
    pub fn tell_of_locks(&mut self, file: FileId) {
        if self.session.is_some() {
            self.pending.locks.insert(file);
            self.pending.position = true;
            self.wake.notify_one();
        }
    }

    /// Tells the client whether it has the volume for itself, unless it knows.
    pub fn tell_alone(&mut self, alone: bool) {
        let mut changed = false;
        // That it is not counts once it has been acknowledged.
        self.alone.change(|told| {
            changed = *told != alone;
            *told |= alone;
            changed && alone
        });
        if changed && self.session.is_some() {
            self.pending.alone = Some(alone);
            self.pending.position = true;
            self.wake.notify_one();
        }
    }

    /// It has acknowledged that others may use the volume, or goes by nothing it was told.
    pub fn not_alone(&mut self) {
        self.alone.change(|alone| std::mem::replace(alone, false));
    }

    pub fn acknowledge(&mut self, upto: Seq) {
        self.told = self.told.max(upto);
        self.acknowledged.change(|acknowledged| {
            let further = upto > *acknowledged;
            *acknowledged = upto.max(*acknowledged);
            further
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use world::World;

    #[tokio::test]
    async fn a_tail_lacks_what_was_shown_since_it_was_decided_on_only_where_nothing_else_tells_of_it()
     {
        let now = World::simulated(0, 1).clock.moment();
        let mut holder = Holder::new(Shown::nothing(), now + Duration::from_secs(60));
        holder.begin(1, Seq::START, Seq::START);
        let (file, touched) =
            (FileId(7), Touched { nodes: [FileId(7)].into(), ..Touched::default() });
        let state = NodeState { file, seq: Seq(3), node: None };
        let showing = Showing::of(States { nodes: vec![state], ..States::default() });
        let decided_on = holder.shown.clone();
        holder.shown.add([file], 9);
        assert!(holder.note(&touched, &showing) && !holder.lacks(&decided_on));
        assert!(
            matches!(holder.next(Seq(3)), Next::Notice(notice) if notice.states.nodes.len() == 1)
        );
        // With too much to tell, the next tail is to bring it.
        holder.fall_behind();
        assert!(holder.note(&touched, &showing) && holder.lacks(&decided_on));
        assert!(!holder.lacks(&holder.shown.clone()));
    }
}
