//! How much of a volume's locks each client takes up, and each device with all of its clients: of one
//! alone there is room for all others.

use crate::catalog::DeviceId;
use model::ReplicaId;
use std::collections::BTreeMap;

/// Files of which one client holds, or waits for, anything.
pub(super) const FILES_OF_ONE_MAX: usize = 16_384;
/// Stretches of all files that one client holds.
pub(super) const STRETCHES_OF_ONE_MAX: usize = 262_144;
/// Files of all clients of a device: a third of those that there is room for, and as many as all of its
/// sessions keep that lock nothing any more.
pub(super) const FILES_OF_DEVICE_MAX: usize = 2 * FILES_OF_ONE_MAX;
/// Stretches of all clients of a device.
pub(super) const STRETCHES_OF_DEVICE_MAX: usize = 2 * STRETCHES_OF_ONE_MAX;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    clients: BTreeMap<ReplicaId, (DeviceId, Share)>,
    /// Of all clients of each together.
    devices: BTreeMap<DeviceId, Share>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub files: usize,
    pub stretches: usize,
}

/// A client, and the device that it belongs to.
pub(super) type Client = (ReplicaId, DeviceId);

/// Of a file: those who hold, or wait for, anything, and how many stretches they hold.
pub(super) type Parts = BTreeMap<ReplicaId, usize>;

impl Share {
    fn of_a_file(stretches: usize) -> Share {
        Share { files: 1, stretches }
    }

    fn and(self, more: Share) -> Share {
        let (files, stretches) = (self.files + more.files, self.stretches + more.stretches);
        Share { files, stretches }
    }

    fn but(self, less: Share) -> Share {
        let files = self.files.saturating_sub(less.files);
        Share { files, stretches: self.stretches.saturating_sub(less.stretches) }
    }
}

impl Shares {
    fn of(&self, who: ReplicaId) -> Share {
        self.clients.get(&who).map(|(_, share)| *share).unwrap_or_default()
    }

    /// Whether a client may hold so many stretches of a file of which it has `had` so many, or nothing.
    pub fn have_room(&self, client: Client, had: Option<usize>, stretches: usize) -> bool {
        let all = self.devices.get(&client.1).copied().unwrap_or_default();
        let has_room = |share: Share, files_max: usize, stretches_max: usize| {
            let others = share.stretches.saturating_sub(had.unwrap_or_default());
            let is_one_more = had.is_none() && share.files >= files_max;
            !is_one_more && others + stretches <= stretches_max
        };
        has_room(self.of(client.0), FILES_OF_ONE_MAX, STRETCHES_OF_ONE_MAX)
            && has_room(all, FILES_OF_DEVICE_MAX, STRETCHES_OF_DEVICE_MAX)
    }

    /// How much a client may have that begins anew, beside all others of its device.
    pub fn room_of(&self, client: Client) -> Share {
        let all = self.devices.get(&client.1).copied().unwrap_or_default();
        let others = all.but(self.of(client.0));
        let left =
            Share { files: FILES_OF_DEVICE_MAX, stretches: STRETCHES_OF_DEVICE_MAX }.but(others);
        let files = left.files.min(FILES_OF_ONE_MAX);
        Share { files, stretches: left.stretches.min(STRETCHES_OF_ONE_MAX) }
    }

    /// The clients of a device that have anything.
    pub fn clients_of(&self, device: DeviceId) -> impl Iterator<Item = ReplicaId> {
        let its = self.clients.iter().filter(move |(_, (its, _))| *its == device);
        its.map(|(who, _)| *who)
    }

    /// What some have of a file was `before`, and is another now. Who had nothing of any is of `device`.
    pub fn change(&mut self, before: &Parts, now: &Parts, device: DeviceId) {
        for (who, stretches) in before {
            self.take(*who, Share::of_a_file(*stretches));
        }
        for (who, stretches) in now {
            self.add((*who, device), Share::of_a_file(*stretches));
        }
        before.keys().for_each(|who| self.forget_if_none(*who));
    }

    /// All that a client has is this from now on.
    pub fn set(&mut self, client: Client, share: Share) {
        self.take_all(client.0);
        if share.files > 0 {
            self.add(client, share);
        }
    }

    /// A client has nothing any more.
    pub fn take_all(&mut self, who: ReplicaId) {
        self.take(who, self.of(who));
        self.forget_if_none(who);
    }

    fn add(&mut self, (who, device): Client, more: Share) {
        let (device, share) = self.clients.entry(who).or_insert((device, Share::default()));
        *share = share.and(more);
        let all = self.devices.entry(*device).or_default();
        *all = all.and(more);
    }

    fn take(&mut self, who: ReplicaId, less: Share) {
        let Some((device, share)) = self.clients.get_mut(&who) else { return };
        *share = share.but(less);
        if let Some(all) = self.devices.get_mut(device) {
            *all = all.but(less);
        }
    }

    fn forget_if_none(&mut self, who: ReplicaId) {
        let Some((device, _)) = self.clients.get(&who).filter(|(_, share)| share.files == 0) else {
            return;
        };
        if self.devices.get(device).is_some_and(|all| all.files == 0) {
            self.devices.remove(device);
        }
        self.clients.remove(&who);
    }
}
