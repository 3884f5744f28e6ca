//! Which volumes there are, which devices may use them, and the invitations that are open.
//! Holds: the token of an invitation is kept as a hash only; an invitation is consumed in the
//! transaction that registers the device.
//! From: DESIGN, "Trust".

mod admission;
mod check;
mod rows;

pub(crate) use admission::{Admitted, admit};
pub use check::describe_row;
pub(crate) use check::{RowFault, check_rows};
pub use rows::DeviceId;
pub(crate) use rows::{InvitationRow, LeaseRow, RemovedRow, VolumeRow, hex, later};

use crate::error::{ReplicaError, Result};
use model::{Quota, ReplicaId, Time, Usage};
use protocol::{Access, Cutter};
use rows::{DeviceRow, token_hash};
use std::collections::BTreeSet;
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

const VOLUMES: &str = "origin-volumes";
const REMOVED: &str = "origin-removed";
const NEXT_VOLUME: &str = "origin-next-volume";
const DEVICES: &str = "origin-devices";
const INVITATIONS: &str = "origin-invitations";
const LEASES: &str = "origin-leases";

/// Rows that are read at once; there are no more of volumes, or of devices of one volume.
const ROWS_MAX: usize = 100_000;
/// Before and after every key of a table that does not begin with a volume.
const ALL: (&[u8], &[u8]) = (&[], &[0xff; 80]);

/// A volume, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub name: String,
    pub id: VolumeId,
    pub created: Time,
    pub cutter: Cutter,
    pub files: u64,
    pub position: model::Seq,
    /// How long versions are kept after they were replaced.
    pub versions_kept: std::time::Duration,
    pub quota: Quota,
    pub used: Usage,
    /// Bytes that the users of the quota have, in its order.
    pub users: Vec<u64>,
}

/// A device that may use a volume, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub id: DeviceId,
    /// The name that the device gave itself.
    pub name: String,
    pub volume: String,
    pub access: Access,
    pub since: Time,
}

pub(crate) fn volume(read: &dyn Read, name: &str) -> Result<Option<VolumeRow>> {
    match read.get(VOLUMES, name.as_bytes())? {
        Some(bytes) => Ok(Some(decode(|| format!("volume {name}"), &bytes)?)),
        None => Ok(None),
    }
}

pub(crate) fn volumes(read: &dyn Read) -> Result<Vec<VolumeRow>> {
    let rows = read.scan(VOLUMES, ALL.0, ALL.1, ROWS_MAX)?;
    let row = |(key, value): &(Vec<u8>, Vec<u8>)| {
        let name = || format!("volume {}", String::from_utf8_lossy(key));
        Ok(decode(name, value)?)
    };
    rows.iter().map(row).collect()
}

/// Whether there has ever been a volume, also where all were removed.
pub fn has_had_volumes(read: &dyn Read) -> bool {
    // A row that is damaged is there.
    !matches!(read.get(NEXT_VOLUME, b"next"), Ok(None))
}

/// Whether a database in which these tables have rows is of an origin: with the first volume comes a row
/// that stays.
pub fn are_of_an_origin(tables: &BTreeSet<String>) -> bool {
    tables.is_empty() || tables.contains(NEXT_VOLUME)
}

pub(crate) fn put_volume(write: &mut dyn Write, row: &VolumeRow) -> Result<()> {
    Ok(write.put(VOLUMES, row.name.as_bytes(), &encode(row))?)
}

/// Whether a volume has not been removed.
pub(crate) fn is_there(read: &dyn Read, id: VolumeId) -> Result<bool> {
    Ok(volumes(read)?.iter().any(|row| row.id == id.0))
}

/// An id that no volume of this store ever had.
pub(crate) fn fresh_volume(write: &mut dyn Write) -> Result<VolumeId> {
    let place = || "the number of the next volume".to_owned();
    let next = match write.get(NEXT_VOLUME, b"next")? {
        Some(bytes) => decode(place, &bytes)?,
        None => 1u32,
    };
    if next == VolumeId::NEVER.0 {
        return Err(volume::whole::Error::NoneLeft("volume ids").into());
    }
    write.put(NEXT_VOLUME, b"next", &encode(&(next + 1)))?;
    Ok(VolumeId(next))
}

/// The volume's name is free from now on, nobody may use it, and what it has is to go.
pub(crate) fn remove_volume(write: &mut dyn Write, row: &VolumeRow) -> Result<()> {
    write.delete(VOLUMES, row.name.as_bytes())?;
    let removed = RemovedRow { id: row.id, secret: row.secret };
    write.put(REMOVED, &row.id.to_be_bytes(), &encode(&removed))?;
    let (from, to) = VolumeId(row.id).range();
    for table in [DEVICES, LEASES] {
        for (key, _) in write.scan(table, &from, &to, ROWS_MAX)? {
            write.delete(table, &key)?;
        }
    }
    for (key, value) in write.scan(INVITATIONS, ALL.0, ALL.1, ROWS_MAX)? {
        let invitation: InvitationRow = decode(|| "an invitation".into(), &value)?;
        if invitation.volume == row.id {
            write.delete(INVITATIONS, &key)?;
        }
    }
    Ok(())
}

/// Volumes that were removed and are not gone yet.
pub(crate) fn removed(read: &dyn Read) -> Result<Vec<RemovedRow>> {
    let rows = read.scan(REMOVED, ALL.0, ALL.1, ROWS_MAX)?;
    rows.iter().map(|(_, value)| Ok(decode(|| "a removed volume".into(), value)?)).collect()
}

pub(crate) fn forget_removed(write: &mut dyn Write, volume: VolumeId) -> Result<()> {
    Ok(write.delete(REMOVED, &volume.0.to_be_bytes())?)
}

pub(crate) fn put_invitation(
    write: &mut dyn Write,
    token: &str,
    invitation: &InvitationRow,
) -> Result<()> {
    Ok(write.put(INVITATIONS, &token_hash(token), &encode(invitation))?)
}

/// Devices of a volume, in the order of their ids.
pub(crate) fn devices(read: &dyn Read, volume: &VolumeRow) -> Result<Vec<Device>> {
    let (from, to) = VolumeId(volume.id).range();
    let rows = read.scan(DEVICES, &from, &to, ROWS_MAX)?;
    rows.iter()
        .map(|(_, value)| {
            let row: DeviceRow = decode(|| format!("a device of {}", volume.name), value)?;
            Ok(Device {
                id: row.id(),
                name: row.name,
                volume: volume.name.clone(),
                access: row.access,
                since: row.since,
            })
        })
        .collect()
}

pub(crate) fn remove_device(write: &mut dyn Write, volume: VolumeId, id: DeviceId) -> Result<()> {
    Ok(write.delete(DEVICES, &id.key(volume))?)
}

/// The devices that `which` means: by the first letters of the id, or by the whole name.
pub(crate) fn find_device(devices: Vec<Device>, which: &str) -> Result<Vec<Device>> {
    let is_meant = |device: &Device| device.name == which || device.id.begins_with(which);
    let found: Vec<Device> = devices.into_iter().filter(is_meant).collect();
    let Some(first) = found.first() else {
        return Err(ReplicaError::NoDevice(which.to_owned()));
    };
    let others = found.iter().filter(|device| device.id != first.id).count();
    if others > 0 {
        return Err(ReplicaError::AmbiguousDevice(which.to_owned(), others + 1));
    }
    Ok(found)
}

/// The clients that may hold callbacks, as far as that was written down.
pub(crate) fn leases(read: &dyn Read, volume: VolumeId) -> Result<Vec<LeaseRow>> {
    let (from, to) = volume.range();
    let rows = read.scan(LEASES, &from, &to, ROWS_MAX)?;
    rows.iter().map(|(_, value)| Ok(decode(|| format!("a lease of {volume}"), value)?)).collect()
}

pub(crate) fn lease(
    read: &dyn Read,
    volume: VolumeId,
    replica: ReplicaId,
) -> Result<Option<LeaseRow>> {
    match read.get(LEASES, &lease_key(volume, replica))? {
        Some(bytes) => Ok(Some(decode(|| format!("lease of {replica} of {volume}"), &bytes)?)),
        None => Ok(None),
    }
}

pub(crate) fn put_lease(write: &mut dyn Write, volume: VolumeId, lease: &LeaseRow) -> Result<()> {
    Ok(write.put(LEASES, &lease_key(volume, lease.replica), &encode(lease))?)
}

pub(crate) fn remove_lease(
    write: &mut dyn Write,
    volume: VolumeId,
    replica: ReplicaId,
) -> Result<()> {
    Ok(write.delete(LEASES, &lease_key(volume, replica))?)
}

fn lease_key(volume: VolumeId, replica: ReplicaId) -> Vec<u8> {
    [volume.0.to_be_bytes(), replica.0.to_be_bytes()].concat()
}
