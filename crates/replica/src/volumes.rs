//! What an origin knows of a volume while it runs, besides what is in its store.

use crate::callbacks::{Grace, Holders};
use crate::catalog::{DeviceId, VolumeRow};
use crate::locks::Book;
use crate::newcomers::Newcomers;
use crate::take::{Queue, Unsettled};
use crate::tree::Door;
use crate::wanted::Wanted;
use chunks::Secret;
use model::{ChunkName, Quota, Seq};
use protocol::Cutter;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use volume::whole::VolumeId;
use world::{Clock, Moment};

#[derive(Debug)]
pub(crate) struct Volume {
    pub id: VolumeId,
    pub name: String,
    /// The key that names the volume's chunks.
    pub key: [u8; 32],
    pub secret: Secret,
    pub cutter: Cutter,
    pub grace: Grace,
    /// Chunks that are missing.
    pub wanted: Wanted,
    holders: Mutex<Holders>,
    /// Taken after the holders.
    book: Mutex<Book>,
    queue: Mutex<Queue>,
    /// Held while updates are committed and told of, so that notices keep their order.
    turn: Mutex<()>,
    /// To whoever keeps the volume in step with a tree.
    pub door: Door,
    removed: AtomicBool,
    /// Of commits that failed.
    pub unsettled: Unsettled,
    quota: Mutex<Quota>,
    /// That this run began is not written down yet, and nobody was told anything in it.
    run_is_due: AtomicBool,
    /// Devices that were removed while they had sessions.
    turned_out: Mutex<BTreeSet<DeviceId>>,
    newcomers: Mutex<Newcomers>,
}

impl Volume {
    pub fn new(row: &VolumeRow, position: Seq, grace: Grace, wanted: Wanted) -> Volume {
        Volume {
            id: VolumeId(row.id),
            name: row.name.clone(),
            key: row.secret,
            secret: Secret::new(row.secret),
            cutter: row.cutter,
            grace,
            wanted,
            holders: Mutex::new(Holders::new(position)),
            book: Mutex::default(),
            queue: Mutex::new(Queue::default()),
            turn: Mutex::new(()),
            door: Door::default(),
            removed: AtomicBool::new(false),
            unsettled: Unsettled::default(),
            quota: Mutex::new(row.quota.clone().unwrap_or_default()),
            run_is_due: AtomicBool::new(false),
            turned_out: Mutex::new(BTreeSet::new()),
            newcomers: Mutex::default(),
        }
    }

    pub fn holders(&self) -> MutexGuard<'_, Holders> {
        locked(&self.holders)
    }

    /// The locks of its files.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        locked(&self.book)
    }

    /// Tells the only client that there is, if there is no other, that it has the volume for itself.
    pub fn look_for_one_alone(&self, clock: &Clock) {
        let now = clock.moment();
        if self.grace.is_over(now) {
            self.holders().look_for_one_alone(now);
        }
    }

    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }

    pub fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.turn)
    }

    pub fn run_is_due(&self) -> bool {
        self.run_is_due.load(Ordering::Acquire)
    }

    pub fn note_run(&self, is_due: bool) {
        self.run_is_due.store(is_due, Ordering::Release);
    }

    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// None: it may have as much as there is room for.
    pub fn quota(&self) -> Option<Quota> {
        Some(locked(&self.quota).clone()).filter(|quota| !quota.is_none())
    }

    pub fn set_quota(&self, quota: Quota) {
        *locked(&self.quota) = quota;
    }

    pub fn turn_out(&self, device: DeviceId) {
        locked(&self.turned_out).insert(device);
    }

    pub fn let_in(&self, device: DeviceId) {
        locked(&self.turned_out).remove(&device);
    }

    /// Whether one more client of the device may begin.
    pub fn admits_newcomer(&self, device: DeviceId, now: Moment) -> bool {
        locked(&self.newcomers).admit(device, now)
    }

    pub fn has_turned_out(&self, device: DeviceId) -> bool {
        locked(&self.turned_out).contains(&device)
    }

    /// What a chunk is called among the blobs: volumes share none, so that knowing a name of one
    /// volume gives nothing in another.
    pub fn blob(&self, chunk: &ChunkName) -> Vec<u8> {
        blob_name(self.id, chunk)
    }
}

pub(crate) fn blob_name(volume: VolumeId, chunk: &ChunkName) -> Vec<u8> {
    [&volume.0.to_be_bytes()[..], &chunk.0].concat()
}

/// The volume and the chunk that a blob's name means.
pub(crate) fn parse_blob_name(name: &[u8]) -> Option<(VolumeId, ChunkName)> {
    let (volume, chunk) = name.split_first_chunk()?;
    Some((VolumeId(u32::from_be_bytes(*volume)), ChunkName(chunk.try_into().ok()?)))
}

/// What a mutex guards, whether or not somebody panicked with it: every change under these
/// mutexes leaves the state whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
