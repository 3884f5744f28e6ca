//! Whether a caller is let in.
//! Holds: who is turned away learns nothing but that; a device that is known needs no invitation,
//! so one whose answer was lost gets in with the same token again.

use super::rows::{DeviceId, DeviceRow, InvitationRow, VolumeRow, token_hash};
use super::{DEVICES, INVITATIONS};
use crate::error::Result;
use model::Time;
use protocol::{Access, Caller};
use store::Write;
use volume::whole::{VolumeId, decode, encode};

/// Bytes of a device's name that are kept.
const DEVICE_NAME_BYTES_MAX: usize = 64;

/// A caller that is let in.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub volume: VolumeRow,
    pub device: DeviceId,
    pub name: String,
    pub access: Access,
    /// The transaction has something to commit.
    pub changed: bool,
}

/// None: turned away.
pub(crate) fn admit(write: &mut dyn Write, caller: &Caller, now: Time) -> Result<Option<Admitted>> {
    let Some(volume) = super::volume(write, &caller.volume)? else { return Ok(None) };
    let device = DeviceId::of(&caller.device);
    let key = device.key(VolumeId(volume.id));
    let known: Option<DeviceRow> = match write.get(DEVICES, &key)? {
        Some(bytes) => Some(decode(|| format!("device {device} of {}", volume.name), &bytes)?),
        None => None,
    };
    let invited = match &caller.invitation {
        Some(token) => consume(write, token, &volume, now)?,
        None => None,
    };
    let name = readable(&caller.name);
    let row = match (known, invited) {
        (None, None) => return Ok(None),
        // A second invitation may give a known device another access.
        (Some(known), Some(invited)) => DeviceRow { access: invited, name, ..known },
        (Some(known), None) if known.name == name => {
            let access = known.access;
            return Ok(Some(Admitted { volume, device, name, access, changed: false }));
        }
        (Some(known), None) => DeviceRow { name, ..known },
        (None, Some(access)) => {
            DeviceRow { key: caller.device.clone().into(), name, access, since: now }
        }
    };
    write.put(DEVICES, &key, &encode(&row))?;
    Ok(Some(Admitted { volume, device, name: row.name, access: row.access, changed: true }))
}

/// The access that a token gives; it gives none a second time.
fn consume(
    write: &mut dyn Write,
    token: &str,
    volume: &VolumeRow,
    now: Time,
) -> Result<Option<Access>> {
    let key = token_hash(token);
    let Some(bytes) = write.get(INVITATIONS, &key)? else { return Ok(None) };
    let invitation: InvitationRow = decode(|| "an invitation".into(), &bytes)?;
    let expired = invitation.expires.is_some_and(|expires| expires <= now);
    if expired || invitation.volume != volume.id {
        return Ok(None);
    }
    write.delete(INVITATIONS, &key)?;
    Ok(Some(invitation.access))
}

/// The name that a device gives itself, fit to be shown and to stand in the name of a file.
fn readable(name: &str) -> String {
    let mut readable = String::new();
    for letter in name.trim().chars() {
        let letter = if letter.is_control() || letter == '/' { '_' } else { letter };
        if readable.len() + letter.len_utf8() > DEVICE_NAME_BYTES_MAX {
            break;
        }
        readable.push(letter);
    }
    if readable.is_empty() { "a device".into() } else { readable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_s_name_is_made_fit_to_be_shown() {
        assert_eq!(readable(" ada's laptop\n"), "ada's laptop");
        assert_eq!(readable("a/b\u{7}c"), "a_b_c");
        assert_eq!(readable(""), "a device");
        assert!(readable(&"ü".repeat(100)).len() <= DEVICE_NAME_BYTES_MAX);
    }
}
