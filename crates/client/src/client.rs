//! The client itself: its parts, how it is opened and recovered, and the one way in which
//! everything here changes the volume.
//! Holds: a change is in the journal before it shows; locks are taken in the order core, files,
//! tables, and the others where `ranks` says; nothing that is cached needs the core's lock to be read.

use crate::company::Company;
use crate::connection::Connection;
use crate::effects::effects_asked;
use crate::failures::of_missing;
pub(crate) use crate::failures::{error_of, failed, log_failed, stop};
use crate::files::Files;
use crate::ids::Ids;
use crate::kernel::TheKernel;
use crate::known::Remover;
use crate::meta::{Bound, Meta};
use crate::mode;
use crate::plan::Plans;
use crate::ranks::{self, Rank, Ranked};
use crate::reserved::Reserved;
use crate::seek::Seeking;
use crate::shown::{Hidden, named_now};
use crate::status::Counters;
use crate::types::{Done, Error, Kernel, Need, Settings, Step, Stop};
use crate::waiters::Waiters;
use model::{Change, Effects, FileId, Seq, Stamp, Update};
use protocol::{Access, NodeState, Objection, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::{Containers, Durability, Journal, Read, Reserve, StoreError, Tables, Write};
use tokio::sync::{Notify, oneshot};
use update_log::{LogError, UpdateLog};
use volume::partial::{self, Missing, Tree};
use world::World;

/// Where a client keeps what it has.
pub struct Stores<C> {
    pub tables: Arc<dyn Tables>,
    pub journal: Arc<dyn Journal>,
    pub containers: C,
    /// Of the disk that they are on.
    pub reserve: Arc<dyn Reserve>,
}

/// A client that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    /// Nothing was ever logged before the tables knew this client's id.
    #[error("the tables are empty, and the log has updates that were made with what was in them")]
    TablesEmpty,
    #[error("the cached tree cannot be read: {0}")]
    Tree(#[from] Missing),
    #[error("what the cache holds cannot be read: {0}")]
    Contents(#[from] chunks::ChunksError),
    #[error("what is pending could not be shown again: {0}")]
    Rebuild(String),
}

/// A file system without the kernel. Clones share everything.
pub struct Client<U, C: Containers> {
    pub(crate) inner: Arc<Inner<U, C>>,
}

impl<U, C: Containers> Clone for Client<U, C> {
    fn clone(&self) -> Self {
        Client { inner: self.inner.clone() }
    }
}

pub(crate) struct Inner<U, C: Containers> {
    pub tables: Arc<dyn Tables>,
    pub marred: Arc<crate::marred::Marred>,
    pub journal: Arc<dyn Journal>,
    pub containers: C,
    pub reserved: Reserved,
    pub upstream: U,
    pub world: World,
    pub settings: Settings,
    core: Mutex<Core>,
    files: Mutex<Files<C::Container>>,
    connection: Mutex<Connection>,
    /// A copy of the meta row's, for readers that do not take the core's lock.
    pub epoch: AtomicU32,
    /// Something is hidden that may show when what it rests on has been asked for.
    pub hides: AtomicBool,
    /// Something of that was learnt, and what rests on it does not show yet.
    pub unshown: AtomicBool,
    /// The volume has a quota.
    pub has_quota: AtomicBool,
    /// Contents were fetched since the last checkpoint, and a crash would have them fetched again.
    pub fetched: AtomicBool,
    pub kernel: TheKernel,
    /// The session or the mode has changed.
    pub session_changed: Notify,
    /// Verdicts have come.
    pub settled: Notify,
    /// Counts the steps that what is pending has made.
    pub progress: AtomicU64,
    /// There may be something to replay.
    pub replay_wanted: Notify,
    pub company: Company,
    /// The replica above has no room.
    pub full: crate::full::Full,
    /// The log has grown since it was last synced.
    pub sync_wanted: Notify,
    /// What is known has to be on the disk soon: there may be no link for a long time.
    pub checkpoint_wanted: Notify,
    pub stopping: AtomicBool,
    pub flights: Mutex<BTreeMap<Need, Vec<oneshot::Sender<()>>>>,
    pub listings: Mutex<crate::names::Listings>,
    pub untold: crate::untold::Untold,
    pub counters: Counters,
    pub room: crate::room::Room,
    pub unsynced: crate::durable::Unsynced,
    /// Taken after the other locks, and let go before another is taken.
    pub kin: Mutex<crate::kin::Kin>,
    /// What was last seen inside containers.
    pub looked: crate::inside::Seen,
    /// As `kin`.
    pub trash: Mutex<crate::trash::Trash>,
    /// As `kin`.
    pub accesses: Mutex<crate::accesses::Accesses>,
    /// As `kin`.
    pub ahead: Mutex<crate::ahead::Ahead>,
    /// Programs have gone on, and more may be fetched ahead.
    pub ahead_wanted: Notify,
    /// As `kin`.
    pub onward: Mutex<crate::onward::Onward>,
    /// Somebody reads a file on and on.
    pub onward_wanted: Notify,
    /// As `kin`.
    pub early: Mutex<crate::early::Early>,
    /// More was written of what may be sent before it is closed.
    pub early_wanted: Notify,
    pub keeping: crate::pins::Keeping,
    /// As `kin`.
    pub giving: Mutex<crate::give::Giving>,
    pub mended: crate::soundness::Mended,
    pub unreadable: crate::unreadable::Unreadable,
    /// The replica above has asked for what it has lost.
    pub giving_wanted: Notify,
    /// Taken before the connection, and before no other.
    pub locks: Mutex<crate::locks::Table>,
    /// Of locks that were given up, or are not leased yet, the replica above may have to be told.
    pub locks_wanted: Notify,
    /// Taken after the tables and before the connection. Whoever has it reads the tables, or commits.
    pub known: Mutex<crate::known::Known>,
}

/// What changes the volume goes through here, one at a time.
pub(crate) struct Core {
    pub log: UpdateLog,
    pub meta: Meta,
    /// How the contents of pending stores are to be sent, by number of the update.
    pub plans: Plans,
    /// Refused updates that somebody waits for.
    pub refusals: BTreeMap<u64, Objection>,
    pub waiters: Waiters,
    pub seeking: Seeking,
    /// The replica above has judged up to this number, though that could not be written down here.
    pub judged: u64,
    /// Why what is pending was not taken when it was last sent, in words for the user.
    pub setback: Option<String>,
    /// What pending updates rest on and is not known here, because a crash undid what had been
    /// said of it: what is pending shows again when it is.
    pub hidden: Hidden,
    /// The tables could not be told that updates were taken back, for want of room.
    pub behind: bool,
    /// What bears no higher number may leave before the log is synced: the tables on the disk say so.
    pub may_leave: Bound,
    /// The user waits for what was pending up to this number: it does not stay for its age.
    pub hurried: u64,
    /// Updates up to this number were logged before this process began: until the next attach it is
    /// not known which of them have left.
    pub unsure: u64,
    /// Sent ahead of their turn, and not answered.
    pub ahead: BTreeSet<u64>,
    /// What is done here and counts against a quota.
    pub charges: crate::quota::Charges,
    pub totals: Option<crate::quota::Told>,
    /// The epoch began with the word that more was missed up to here than could be told.
    pub epoch_since: Seq,
    /// Something has changed since the last checkpoint.
    pub unsaved: bool,
}

/// Whoever has logged anything has its id from the tables.
fn tables_know(meta: &Meta, log: &UpdateLog) -> Result<(), ClientError> {
    match meta.replica.is_none() && log.last_number() > 0 {
        true => Err(ClientError::TablesEmpty),
        false => Ok(()),
    }
}

impl Core {
    fn new(log: UpdateLog, meta: Meta) -> Core {
        let log_last = log.last_number();
        Core {
            log,
            meta,
            plans: Plans::default(),
            refusals: BTreeMap::new(),
            waiters: Waiters::default(),
            seeking: Seeking::default(),
            judged: 0,
            setback: None,
            hidden: Hidden::default(),
            behind: false,
            may_leave: Bound::default(),
            hurried: 0,
            unsure: log_last,
            ahead: BTreeSet::new(),
            charges: crate::quota::Charges::default(),
            totals: None,
            epoch_since: Seq::START,
            unsaved: true,
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Opens and recovers what is in the stores. Touches no network.
    pub fn open(
        stores: Stores<C>,
        upstream: U,
        world: World,
        settings: Settings,
    ) -> Result<Self, ClientError> {
        let (stores, marred) = crate::marred::watched(stores);
        let mut meta = crate::life::begun(&*stores.tables.read()?, &world)?;
        let trash = crate::trash::Trash::load(&*stores.tables.read()?)?;
        let near_max = settings.pending_near_max;
        let (mut log, recovered) = crate::passing::open_log(&stores.journal, &meta, near_max)?;
        tables_know(&meta, &log)?;
        let logged = crate::lost::go_on_beyond(&mut meta, &mut log);
        let core = Core::new(log, meta);
        let client = Client {
            inner: Arc::new(Inner {
                connection: Mutex::new(Connection::of(&settings, &world, &core.meta)),
                trash: Mutex::new(trash),
                keeping: crate::pins::Keeping::load(&*stores.tables)?,
                tables: stores.tables,
                marred,
                journal: stores.journal,
                containers: stores.containers,
                reserved: Reserved::new(stores.reserve),
                upstream,
                world,
                settings,
                epoch: AtomicU32::new(core.meta.epoch),
                has_quota: AtomicBool::new(core.meta.allowance.is_some()),
                core: Mutex::new(core),
                files: Mutex::new(Files::default()),
                hides: AtomicBool::new(false),
                unshown: AtomicBool::new(false),
                fetched: AtomicBool::new(false),
                kernel: TheKernel::default(),
                session_changed: Notify::new(),
                settled: Notify::new(),
                progress: AtomicU64::new(0),
                replay_wanted: Notify::new(),
                company: Company::default(),
                full: Default::default(),
                sync_wanted: Notify::new(),
                checkpoint_wanted: Notify::new(),
                stopping: false.into(),
                flights: Mutex::new(BTreeMap::new()),
                listings: Mutex::default(),
                untold: Default::default(),
                counters: Counters::default(),
                room: Default::default(),
                unsynced: crate::durable::Unsynced::default(),
                kin: Mutex::default(),
                looked: Mutex::default(),
                accesses: Mutex::default(),
                ahead: Mutex::default(),
                ahead_wanted: Notify::new(),
                onward: Mutex::default(),
                onward_wanted: Notify::new(),
                early: Mutex::default(),
                early_wanted: Notify::new(),
                giving: Mutex::default(),
                mended: crate::soundness::Mended::default(),
                unreadable: crate::unreadable::Unreadable::default(),
                giving_wanted: Notify::new(),
                known: Mutex::default(),
                locks: Mutex::default(),
                locks_wanted: Notify::new(),
            }),
        };
        client.recover(recovered, logged).map(|()| client)
    }

    /// What the kernel must forget is told to `kernel` from now on. The first one stays.
    pub fn set_kernel(&self, kernel: Arc<dyn Kernel>) {
        self.inner.kernel.numbers.begin(&self.inner.world.entropy);
        self.inner.kernel.set(kernel);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn core(&self) -> Ranked<'_, Core> {
        ranks::lock(Rank::Core, &self.inner.core)
    }

    pub(crate) fn files(&self) -> Ranked<'_, Files<C::Container>> {
        ranks::lock(Rank::Files, &self.inner.files)
    }

    pub(crate) fn connection(&self) -> Ranked<'_, Connection> {
        ranks::lock(Rank::Connection, &self.inner.connection)
    }

    /// Reads the tree, under a valid lease where the mode asks for one.
    pub(crate) fn view<T>(&self, look: impl FnOnce(&Tree<'_>) -> Result<T, Missing>) -> Step<T> {
        let epoch = self.epoch_that_counts()?;
        let read = self.inner.tables.read().map_err(failed)?;
        self.hides_nothing(self.connection().attached)?;
        let merged = self.numbers().merged();
        let tree = Tree::new(&*read, epoch).with_accesses().with_merged(merged.as_deref());
        look(&tree).map_err(stop)
    }

    /// Since when what is cached counts; 0 takes everything. Stops where the lease has run out.
    pub(crate) fn epoch_that_counts(&self) -> Step<u32> {
        self.inner.counters.calls.fetch_add(1, Ordering::Relaxed);
        let connection = self.connection();
        if !connection.volume_known {
            return Err(Stop::Need(Need::Volume));
        }
        self.hides_nothing(connection.attached)?;
        if !mode::validates(connection.mode) {
            return Ok(0);
        }
        let now = self.inner.world.clock.outer_moment();
        if !connection.lease_holds(now) || connection.owes_patience {
            return Err(Stop::Need(Need::Lease));
        }
        Ok(self.inner.epoch.load(Ordering::Acquire))
    }

    /// Changes the volume: checks here what the replica above will check, logs the update, and
    /// shows it. `build` makes the change from what is found; `also` writes what belongs to it.
    pub(crate) fn change(
        &self,
        uid: u32,
        mut build: impl FnMut(&Tree<'_>, &mut Ids) -> Step<Change>,
        mut also: impl FnMut(&mut dyn Write, &Update) -> Result<(), StoreError>,
    ) -> Step<Done<(Update, Effects)>> {
        self.settle_closed(None);
        self.catch_up()?;
        let epoch = self.epoch_that_counts()?;
        let done = self.with_room(|| {
            let mut core = self.core();
            self.hides_nothing(self.connection().attached)?;
            self.change_under(&mut core, epoch, uid, &mut build, &mut also)
        })?;
        self.pins_see_update(&done.value.0);
        self.inner.full.see(&done.value.0);
        self.after_change()?;
        Ok(done)
    }

    /// As `change`, for whoever holds the core's lock; `after_change` must follow.
    pub(crate) fn change_under(
        &self,
        core: &mut Core,
        epoch: u32,
        uid: u32,
        build: impl FnOnce(&Tree<'_>, &mut Ids) -> Step<Change>,
        also: impl FnOnce(&mut dyn Write, &Update) -> Result<(), StoreError>,
    ) -> Step<Done<(Update, Effects)>> {
        if core.meta.access == Access::ReadOnly {
            return Err(Error::Objection(Objection::ReadOnly).into());
        }
        let Some(replica) = core.meta.replica else { return Err(Stop::Need(Need::Volume)) };
        let mut write = self.inner.tables.write().map_err(failed)?;
        let mut ids = Ids::new(replica, core.meta.counter, (&core.log, &*write as &dyn Read));
        let merged = self.numbers().merged();
        let tree = Tree::new(&*write as &dyn Read, epoch).with_merged(merged.as_deref());
        let change = named_now(&tree, build(&tree, &mut ids)?)?;
        let (counter, at) = (ids.counter(), ids.at);
        // A full disk keeps nobody from removing what has filled it.
        let frees = matches!(change, Change::Unlink { .. });
        if !frees {
            self.has_room()?;
        }
        let _pressed = frees.then(|| self.pressed());
        let update = Update {
            stamp: Stamp::new(replica, core.log.next_number()),
            uid,
            at: at.unwrap_or_else(|| self.inner.world.clock.time()),
            change,
        };
        let effects = effects_asked(&update, &tree)?;
        let is_store = matches!(update.change, Change::Store { .. });
        if effects.nodes.is_empty() && effects.entries.is_empty() && !is_store {
            return Ok(Done { value: (update, effects), wait: None });
        }
        self.has_quota_for(core, &tree, &effects, is_store)?;
        partial::apply_local(&mut *write, update.stamp.number, &effects, core.meta.epoch)
            .map_err(stop)?;
        also(&mut *write, &update).map_err(failed)?;
        let going = self.going_here(&*write, &effects, update.at)?;
        // The journal first: what shows must be there after a crash.
        core.log.append(update.clone()).map_err(log_failed)?;
        let _known = self.going(going, Remover::Here);
        if let Err(error) = write.commit(Durability::Later) {
            // Logged and not shown: take it back, so that both agree.
            let _pressed = self.pressed();
            let cancelled = core.log.cancel(update.stamp.number);
            let undone = cancelled.is_ok();
            tracing::error!(%error, undone, "a change could not be written to the cache");
            return Err(failed(error));
        }
        if let Change::Store { file, .. } = update.change {
            self.charge_store(core, file);
        }
        self.recharge(core, effects.nodes.keys().copied());
        self.kin().note(&update);
        core.meta.counter = counter;
        core.unsaved = true;
        let waits = mode::waits_for_verdicts(self.connection().mode);
        if waits {
            core.waiters.expect(update.stamp.number);
        }
        let wait = waits.then_some(update.stamp.number);
        Ok(Done { value: (update, effects), wait })
    }

    /// Wakes whoever carries a change on, and syncs the log where that is to be waited for.
    pub(crate) fn after_change(&self) -> Step<()> {
        self.inner.replay_wanted.notify_one();
        self.inner.counters.reached.note_appended(self.inner.world.clock.moment());
        if self.inner.settings.durability == crate::Durability::Sync {
            self.sync_log().map_err(failed)?;
        } else {
            self.inner.sync_wanted.notify_one();
        }
        Ok(())
    }

    /// Before the replica above is believed: of which files it says that they have other contents.
    /// Whoever opens one from now on must not mix them with what the kernel has.
    pub(crate) fn expect<'a>(
        &self,
        states: impl IntoIterator<Item = &'a NodeState>,
    ) -> Result<(), Error> {
        if self.inner.kernel.get().is_none() {
            return Ok(());
        }
        let mut changed = Vec::new();
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        for state in states {
            let other = tree.may_show_other_contents(state);
            if other.map_err(of_missing)? {
                changed.push(state.file);
            }
        }
        self.files().doubt_sizes(&changed, self.inner.world.clock.moment());
        Ok(())
    }

    pub(crate) fn forget(&self, changed: &[partial::Changed]) {
        self.pins_see(changed);
        let Some(kernel) = self.inner.kernel.get() else { return };
        // A name is forgotten with the listing and the attributes of its directory. Each word to
        // the kernel is waited for, and somebody else may wait for all of them.
        let with_names: BTreeSet<FileId> = changed
            .iter()
            .filter_map(|change| match change {
                partial::Changed::Entry(directory, _) => Some(*directory),
                partial::Changed::Node { .. } => None,
            })
            .collect();
        for change in changed {
            match change {
                partial::Changed::Node { file, .. } if with_names.contains(file) => {}
                partial::Changed::Node { file, contents } => {
                    let node = self.node_here(*file).ok().flatten();
                    let current = node.map(|node| node.contents_stamp);
                    let carried_out = kernel.forget_node(*file, *contents);
                    if *contents && !current.is_some_and(|at| self.files().knows_size(*file, at)) {
                        let now = self.inner.world.clock.moment();
                        self.files().forget_size(*file, carried_out, now);
                    }
                }
                partial::Changed::Entry(directory, name) => {
                    kernel.forget_entry(*directory, name);
                }
            }
        }
    }
}
