//! The origin: the replica that has none above it, and what is done to it from outside.

mod purge;

use crate::callbacks::Grace;
use crate::catalog::{self, Device, InvitationRow, VolumeInfo, VolumeRow, hex};
use crate::deltas::Turns;
use crate::error::{ReplicaError, Result};
use crate::limits::Limits;
use crate::parts::Seen;
use crate::reserved::Reserved;
use crate::session::OriginSession;
use crate::take::{Conflict, conflicts};
use crate::upkeep::Upkeep;
use crate::volumes::{Volume, locked};
use crate::wanted::Wanted;
use crate::within::Noticed;
use model::{Node, Quota, USER_QUOTAS_MAX};
use protocol::{Access, Caller, Cutter, Downstream, Service, TurnedAway};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Blobs, Durability, Reserve, Tables, Writes};
use tracing::{error, info, warn};
use volume::whole::{self, VolumeId, Whole};
use world::World;

/// The longest name of a volume.
const VOLUME_NAME_BYTES_MAX: usize = 64;
/// Chance in the token of an invitation.
const TOKEN_BYTES: usize = 20;

/// An origin. Clones are the same one.
#[derive(Clone)]
pub struct Origin(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub tables: Arc<dyn Tables>,
    pub blobs: Arc<dyn Blobs>,
    pub world: World,
    pub limits: Limits,
    pub sessions: AtomicUsize,
    pub upkeep: Upkeep,
    pub turns: Turns,
    pub seen: Seen,
    pub noticed: Noticed,
    pub volumes: Mutex<BTreeMap<VolumeId, Arc<Volume>>>,
    pub reserved: Reserved,
    pub crowded: crate::crowded::Crowded,
    pub damage: crate::damage::Damage,
    pub writes: Writes,
}

impl Origin {
    /// Opens the origin whose volumes are in these stores. Volumes whose removal was interrupted
    /// are removed first.
    pub fn open(
        tables: Arc<dyn Tables>,
        blobs: Arc<dyn Blobs>,
        world: World,
        limits: Limits,
    ) -> Result<Origin> {
        Origin::opened(tables, blobs, (world, limits), Writes::Kept)
    }

    /// Only to check what is in stores that can only be read: nobody can be served, and nothing is removed.
    pub fn look(
        tables: Arc<dyn Tables>,
        blobs: Arc<dyn Blobs>,
        world: World,
        limits: Limits,
    ) -> Result<Origin> {
        Origin::opened(tables, blobs, (world, limits), Writes::Forgotten)
    }

    fn opened(
        tables: Arc<dyn Tables>,
        blobs: Arc<dyn Blobs>,
        (world, limits): (World, Limits),
        writes: Writes,
    ) -> Result<Origin> {
        let inner = Inner {
            tables,
            blobs,
            world,
            limits,
            sessions: AtomicUsize::new(0),
            upkeep: Upkeep::default(),
            turns: Turns::default(),
            seen: Seen::default(),
            noticed: Noticed::default(),
            volumes: Mutex::new(BTreeMap::new()),
            reserved: Reserved::default(),
            crowded: Default::default(),
            damage: Default::default(),
            writes,
        };
        inner.upkeep.pace.begin(&inner.world.clock);
        if writes == Writes::Kept {
            inner.purge_where_there_is_room()?;
        }
        let rows = catalog::volumes(&*inner.tables.read()?)?;
        for row in &rows {
            inner.count_usage(row);
            let volume = inner.load(row)?;
            if writes == Writes::Kept {
                inner.begin_run(&volume);
            }
            locked(&inner.volumes).insert(volume.id, Arc::new(volume));
        }
        info!(volumes = rows.len(), "the origin is open");
        Ok(Origin(Arc::new(inner)))
    }

    /// What is kept aside on the disk, for clients that attach and for what is removed, from now
    /// on. The first one stays.
    pub fn use_reserve(&self, reserve: Arc<dyn Reserve>) {
        self.0.reserved.give(reserve);
    }

    /// Makes a volume with nothing in it but a root directory that belongs to `root_uid`.
    pub fn create_volume(
        &self,
        name: &str,
        root_uid: u32,
        root_gid: u32,
        cutter: Cutter,
    ) -> Result<VolumeInfo> {
        if !is_volume_name(name) {
            return Err(ReplicaError::BadVolumeName(name.to_owned()));
        }
        let inner = &self.0;
        let now = inner.world.clock.time();
        let mut secret = [0; 32];
        inner.world.entropy.fill(&mut secret);
        let mut write = inner.tables.write()?;
        if catalog::volume(&*write, name)?.is_some() {
            return Err(ReplicaError::VolumeExists(name.to_owned()));
        }
        let id = catalog::fresh_volume(&mut *write)?;
        let row = VolumeRow {
            id: id.0,
            name: name.to_owned(),
            secret,
            cutter,
            created: now,
            kept_secs: None,
            quota: None,
        };
        catalog::put_volume(&mut *write, &row)?;
        whole::create(&mut *write, id, Node::root_directory(root_uid, root_gid, now))?;
        whole::begin_run(&mut *write, id, inner.drawn())?;
        write.commit(Durability::Now)?;
        let volume = inner.load(&row)?;
        locked(&inner.volumes).insert(id, Arc::new(volume));
        info!(volume = name, "volume created");
        inner.info(&row)
    }

    /// All volumes, in the order of their names.
    pub fn volumes(&self) -> Result<Vec<VolumeInfo>> {
        let rows = catalog::volumes(&*self.0.tables.read()?)?;
        rows.iter().map(|row| self.0.info(row)).collect()
    }

    /// The volume goes away with all that it has, and whoever uses it is told so. The name is free
    /// at once; an interrupted removal goes on when the origin is opened again, and one for which
    /// the disk is too full with the next cycle of tidying up for which it is not.
    pub fn remove_volume(&self, name: &str) -> Result<()> {
        let inner = &self.0;
        let mut write = inner.tables.write()?;
        let row = inner.row(&*write, name)?;
        catalog::remove_volume(&mut *write, &row)?;
        write.commit(Durability::Now)?;
        if let Some(volume) = locked(&inner.volumes).remove(&VolumeId(row.id)) {
            volume.remove();
        }
        info!(volume = name, "volume removed");
        inner.purge_where_there_is_room()
    }

    /// How long versions are kept after they were replaced; none: as long as by default.
    pub fn keep_versions(&self, name: &str, kept: Option<Duration>) -> Result<()> {
        let mut write = self.0.tables.write()?;
        let row = self.0.row(&*write, name)?;
        let kept_secs = kept.map(|kept| kept.as_secs());
        catalog::put_volume(&mut *write, &VolumeRow { kept_secs, ..row })?;
        write.commit(Durability::Now)?;
        info!(volume = name, seconds = kept_secs, "the time was set for which versions are kept");
        Ok(())
    }

    /// Sets what a volume may have: `change` makes it of what it was. What there is already stays,
    /// whatever the quota.
    pub fn set_quota(&self, name: &str, change: impl FnOnce(&mut Quota)) -> Result<()> {
        let mut write = self.0.tables.write()?;
        let row = self.0.row(&*write, name)?;
        let mut quota = row.quota.clone().unwrap_or_default();
        change(&mut quota);
        if quota.users().len() > USER_QUOTAS_MAX {
            return Err(ReplicaError::TooManyQuotas(USER_QUOTAS_MAX));
        }
        let id = VolumeId(row.id);
        if !whole::is_counted(&*write, id)? {
            whole::count_usage(&mut *write, id)?;
        }
        let kept = Some(quota.clone()).filter(|quota| !quota.is_none());
        catalog::put_volume(&mut *write, &VolumeRow { quota: kept, ..row })?;
        write.commit(Durability::Now)?;
        let users = quota.users().len();
        info!(volume = name, bytes = quota.bytes, files = quota.files, users, "the quota was set");
        if let Some(volume) = locked(&self.0.volumes).get(&id) {
            volume.set_quota(quota);
        }
        Ok(())
    }

    /// The token of an invitation: good for one device, and until it expires if `lasts` says so.
    /// It is told once; only its hash is kept.
    pub fn invite(&self, volume: &str, access: Access, lasts: Option<Duration>) -> Result<String> {
        let inner = &self.0;
        let mut secret = [0; TOKEN_BYTES];
        inner.world.entropy.fill(&mut secret);
        let token = hex(&secret);
        let now = inner.world.clock.time();
        let expires = lasts.map(|lasts| model::Time {
            secs: now.secs.saturating_add_unsigned(lasts.as_secs()),
            ..now
        });
        let mut write = inner.tables.write()?;
        let row = inner.row(&*write, volume)?;
        let invitation = InvitationRow { volume: row.id, access, expires };
        catalog::put_invitation(&mut *write, &token, &invitation)?;
        write.commit(Durability::Now)?;
        Ok(token)
    }

    /// The devices that may use each volume.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let read = self.0.tables.read()?;
        let mut devices = Vec::new();
        for row in catalog::volumes(&*read)? {
            devices.extend(catalog::devices(&*read, &row)?);
        }
        Ok(devices)
    }

    /// Shuts a device out of every volume, sessions that it has included. `which` is its name, or
    /// the first letters of its id. Gives back what it was.
    pub fn remove_device(&self, which: &str) -> Result<Vec<Device>> {
        let found = catalog::find_device(self.devices()?, which)?;
        let inner = &self.0;
        let mut write = inner.tables.write()?;
        let mut volumes = Vec::new();
        for device in &found {
            let row = inner.row(&*write, &device.volume)?;
            catalog::remove_device(&mut *write, VolumeId(row.id), device.id)?;
            volumes.push((VolumeId(row.id), device.id));
        }
        write.commit(Durability::Now)?;
        for (volume, device) in volumes {
            if let Some(volume) = locked(&inner.volumes).get(&volume) {
                volume.turn_out(device);
            }
        }
        Ok(found)
    }

    /// Conflicts of a volume, oldest first, at most `conflicts_max`.
    pub fn conflicts(&self, volume: &str, conflicts_max: usize) -> Result<Vec<Conflict>> {
        let read = self.0.tables.read()?;
        let row = self.0.row(&*read, volume)?;
        conflicts(&*read, VolumeId(row.id), conflicts_max)
    }
}

impl Service for Origin {
    type Session = OriginSession;

    async fn admit<D: Downstream>(
        &self,
        caller: Caller,
        downstream: D,
    ) -> Result<OriginSession, TurnedAway> {
        let inner = self.0.clone();
        let blocking = inner.limits.blocking;
        let work = move || inner.admit(&caller);
        let admitted =
            blocking.run(work).await.map_err(|refusal| TurnedAway::Busy(refusal.to_string()))??;
        OriginSession::begin(self.0.clone(), admitted.0, admitted.1, downstream)
    }
}

impl Inner {
    /// What is kept of a volume while the origin runs.
    fn load(&self, row: &VolumeRow) -> Result<Volume> {
        let id = VolumeId(row.id);
        let read = self.tables.read()?;
        let position = Whole::now(&*read, id).position().map_err(|error| match error {
            whole::Error::NoVolume => headless(row),
            error => error,
        })?;
        // Whatever the wall clock says: it may have been set since. A row goes when its lease ends.
        let unknown: BTreeSet<_> =
            catalog::leases(&*read, id)?.iter().map(|row| row.replica).collect();
        // No lease of an earlier life is longer than one that begins now.
        let until = self.world.clock.moment() + self.limits.lease;
        let wanted = Wanted::load(&*read, id)?;
        Ok(Volume::new(row, position, Grace::new(unknown, until), wanted))
    }

    /// Of a volume of before usage was kept it is counted once. Where that fails, because the disk is
    /// full or a row damaged, the volume is served, and no quota can be set.
    fn count_usage(&self, row: &VolumeRow) {
        let id = VolumeId(row.id);
        let count = || -> Result<()> {
            if !whole::is_counted(&*self.tables.read()?, id)? {
                let mut write = self.tables.write()?;
                whole::count_usage(&mut *write, id)?;
                write.commit(Durability::Now)?;
            }
            Ok(())
        };
        if let Err(error) = count() {
            warn!(volume = row.name, %error, "what the volume's files take could not be counted");
        }
    }

    /// Where that cannot be written down, because the disk is full for one, it is with the next attach,
    /// for which there is room aside.
    pub fn begin_run(&self, volume: &Volume) {
        let begin = || -> Result<()> {
            let mut write = self.tables.write()?;
            whole::begin_run(&mut *write, volume.id, self.drawn())?;
            Ok(write.commit(Durability::Now)?)
        };
        let outcome = self.reserved.used(begin);
        volume.note_run(outcome.is_err());
        if let Err(error) = outcome {
            let name = &volume.name;
            warn!(volume = name, %error, "that the server was started could not be written down");
        }
    }

    fn drawn(&self) -> u64 {
        let mut bytes = [0; 8];
        self.world.entropy.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub fn each_volume(&self, work: impl Fn(&Inner, &Volume) -> Result<()>) -> Result<()> {
        let volumes: Vec<Arc<Volume>> = locked(&self.volumes).values().cloned().collect();
        volumes.iter().try_for_each(|volume| work(self, volume))
    }

    pub fn row(&self, read: &dyn store::Read, name: &str) -> Result<VolumeRow> {
        catalog::volume(read, name)?.ok_or_else(|| ReplicaError::NoVolume(name.to_owned()))
    }

    fn info(&self, row: &VolumeRow) -> Result<VolumeInfo> {
        let read = self.tables.read()?;
        let view = Whole::now(&*read, VolumeId(row.id));
        let quota = row.quota.clone().unwrap_or_default();
        let users = quota.users().to_vec().into_iter();
        let users = users.map(|user| view.usage_of(user.uid).map(|used| used.bytes));
        Ok(VolumeInfo {
            name: row.name.clone(),
            id: VolumeId(row.id),
            created: row.created,
            cutter: row.cutter,
            files: view.files()?,
            versions_kept: self.versions_kept(row),
            position: view.position()?,
            used: view.usage()?.unwrap_or_default(),
            users: users.collect::<std::result::Result<_, _>>()?,
            quota,
        })
    }

    pub fn versions_kept(&self, row: &VolumeRow) -> Duration {
        row.kept_secs.map_or(self.limits.versions_kept, Duration::from_secs)
    }

    fn admit(&self, caller: &Caller) -> Result<(Arc<Volume>, catalog::Admitted), TurnedAway> {
        let failed = |error: ReplicaError| {
            error!(volume = caller.volume, error = %error, "a device could not be looked up");
            TurnedAway::Busy("its store failed; the server's log says how".into())
        };
        let admitted = self.reserved.used(|| self.look_up(caller)).map_err(failed)?;
        let Some(admitted) = admitted else {
            info!(volume = caller.volume, device = caller.name, "a caller was turned away");
            return Err(TurnedAway::NotInvited);
        };
        let volume = locked(&self.volumes).get(&VolumeId(admitted.volume.id)).cloned();
        let volume = volume.ok_or(TurnedAway::NotInvited)?;
        volume.let_in(admitted.device);
        if self.sessions.load(Ordering::Acquire) >= self.limits.sessions_max {
            return Err(TurnedAway::Busy("it has as many sessions as it can have".into()));
        }
        Ok((volume, admitted))
    }

    fn look_up(&self, caller: &Caller) -> Result<Option<catalog::Admitted>> {
        let mut write = self.tables.write()?;
        let admitted = catalog::admit(&mut *write, caller, self.world.clock.time())?;
        if admitted.as_ref().is_some_and(|admitted| admitted.changed) {
            write.commit(Durability::Now)?;
        }
        Ok(admitted)
    }
}

/// A volume has its head as long as the catalogue has its name.
fn headless(row: &VolumeRow) -> whole::Error {
    whole::Error::Damaged {
        place: format!("head of volume {}", row.name),
        what: format!(
            "the catalogue has {} by this name, and the tables have not",
            VolumeId(row.id)
        ),
    }
}

fn is_volume_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=VOLUME_NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(is_letter)
        && !name.starts_with(['.', '-'])
}
