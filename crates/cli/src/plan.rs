//! A mount as it is to be made: every wish decided, every path absolute. It travels as JSON from
//! the command to the daemon that carries it out.

use crate::config::{self, Config};
use crate::exit::{Exit, OrExit, fail};
use crate::state::{self, Known};
use crate::wishes::{ANSWER_WITHIN, CACHE_BYTES_MAX, DurabilityName, ModeName, Wishes};
use crate::{mounts, places};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub known: Known,
    pub state: PathBuf,
    pub mountpoint: PathBuf,
    pub mode: ModeName,
    pub durability: DurabilityName,
    pub cache_bytes_max: u64,
    pub answer_within: Duration,
    pub allow_other: bool,
    pub read_only: bool,
}

/// Decides from what was said on the command line and in the configuration. Without a URL the
/// mount point's section says what to mount, or the state directory last mounted there.
pub fn decide(
    configs: &[Config],
    url: Option<String>,
    mountpoint: &Path,
    wishes: Wishes,
) -> Result<Plan> {
    let mountpoint = checked(mountpoint)?;
    let mut last_state = None;
    let url = match url.or_else(|| config::url_of(configs, &mountpoint)) {
        Some(url) => url,
        None => {
            let place = match &wishes.state {
                Some(state) => state::known(state)?.map(|known| (state.clone(), known)),
                None => places::last_mounted_at(&mountpoint)?,
            };
            let (state, known) = place.ok_or_else(|| unknown(&mountpoint))?;
            last_state = Some(state);
            known.url
        }
    };
    let address = url.parse::<link::Address>().or_exit(Exit::Usage, "cannot mount this")?;
    let wishes = wishes.or(config::wishes(configs, &mountpoint, &url));
    let key = address.key.to_string();
    let state = match wishes.state.or(last_state) {
        Some(state) => mounts::absolute(&state)?,
        None => places::default_directory(&address.volume, &key)?,
    };
    if state.starts_with(&mountpoint) {
        return Err(fail(Exit::Usage, "the state directory may not lie below the mount point"));
    }
    let mut known = Known::new(String::new(), key, address.volume.clone(), mountpoint.clone());
    known.invitation.clone_from(&address.invitation);
    known.url = address.without_invitation().to_string();
    Ok(Plan {
        known,
        state,
        mountpoint,
        mode: wishes.mode.unwrap_or(ModeName::Auto),
        durability: wishes.durability.unwrap_or(DurabilityName::Prompt),
        cache_bytes_max: wishes.cache_size.map_or(CACHE_BYTES_MAX, |size| size.0),
        answer_within: wishes.answer_within.map_or(ANSWER_WITHIN, |time| time.0),
        allow_other: wishes.allow_other.unwrap_or(false),
        read_only: wishes.read_only.unwrap_or(false),
    })
}

fn unknown(mountpoint: &Path) -> anyhow::Error {
    fail(
        Exit::Usage,
        format!(
            "what is to be mounted at {}? Give the URL that `farfs invite` printed on the server, \
             or, with --state, the state directory that was mounted there before",
            mountpoint.display()
        ),
    )
}

/// The mount point, absolute; it must be a directory on which no farfs is mounted.
fn checked(mountpoint: &Path) -> Result<PathBuf> {
    let mountpoint = mounts::absolute(mountpoint)?;
    let shown = mountpoint.display();
    if mounts::live().iter().any(|entry| entry.mountpoint == mountpoint) {
        return Err(fail(Exit::Busy, format!("a farfs volume is mounted at {shown} already")));
    }
    if mounts::farfs_mountpoints().contains(&mountpoint) {
        return Err(fail(Exit::Busy, mounts::died(&mountpoint)));
    }
    match std::fs::metadata(&mountpoint) {
        Ok(metadata) if metadata.is_dir() => Ok(mountpoint),
        Ok(_) => Err(fail(Exit::Usage, format!("the mount point {shown} is not a directory"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(fail(Exit::NotFound, format!("the mount point {shown} is missing; make it first")))
        }
        Err(error) => Err(error).or_exit(Exit::Failure, format!("cannot mount at {shown}")),
    }
}
