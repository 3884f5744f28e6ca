//! A mount as it is to be made: every wish decided, every path absolute. It travels as JSON from
//! the command to the daemon that carries it out.

use crate::commands::umount;
use crate::config::{self, Config};
use crate::exit::{self, Exit, OrExit, fail};
use crate::limits::Limits;
use crate::state::{self, Known};
use crate::units::{Patience, Size, show_secs, show_size};
use crate::wishes::{
    ANSWER_WITHIN, CACHE_BYTES_MAX, DurabilityName, FlagName, ModeName, PassthroughName, Wishes,
};
use crate::{connection, mounts, places};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const INVITATION_LETTERS: usize = 40;
/// A moment passes between a mount and the note of it.
const LISTING: Duration = Duration::from_secs(1);

/// What a user agrees to for this one mount, when a key was lost or replaced; it is never in a
/// configuration file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct Consent {
    /// The server has another key than before, on purpose: go on with what is kept here of the
    /// volume, and send what is pending to the server of this URL
    #[arg(long)]
    pub accept_new_key: bool,

    /// The key of this device is lost: make another one. The server knows it only with a new
    /// invitation in the URL
    #[arg(long)]
    pub new_device_key: bool,

    /// The server was set back to an earlier state, as from a backup: believe it, and let go of what
    /// is cached here of later versions
    #[arg(long)]
    #[serde(default)]
    pub accept_set_back: bool,
}

impl Consent {
    pub fn any(self) -> bool {
        self.accept_new_key || self.new_device_key
    }
}

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
    pub passthrough: PassthroughName,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub in_order: bool,
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    pub flags: Vec<FlagName>,
    pub consent: Consent,
}

/// Decides from what was said on the command line and in the configuration. Without a URL the
/// mount point's section says what to mount, or the state directory last mounted there.
pub fn decide(
    configs: &[Config],
    url: Option<String>,
    mountpoint: &Path,
    wishes: Wishes,
    consent: Consent,
) -> Result<Plan> {
    let mountpoint = checked(mountpoint)?;
    let mut last_state = None;
    let url = match url.or_else(|| config::url_of(configs, &mountpoint)) {
        Some(url) => url,
        None => {
            let place = match &wishes.state {
                Some(state) => state::known(state)?.map(|known| (state.clone(), known)),
                None => mounted_last(&mountpoint)?,
            };
            let (state, known) =
                place.ok_or_else(|| unknown(&mountpoint, wishes.state.as_deref()))?;
            last_state = Some(state);
            known.url
        }
    };
    let address = url.parse::<link::Address>().or_exit(Exit::Usage, "cannot mount this")?;
    if address.invitation.as_deref().is_some_and(|token| !is_token(token)) {
        return Err(fail(
            Exit::Usage,
            format!(
                "the invitation in the URL is malformed: after invite= come {INVITATION_LETTERS} \
                 hexadecimal digits; copy the whole line that `farfs invite` printed"
            ),
        ));
    }
    let wishes = wishes.or(config::wishes(configs, &mountpoint, &url));
    let (key, limits) = (address.key.to_string(), wishes.limits().checked()?);
    let state = match wishes.state.or(last_state) {
        Some(state) => mounts::spelled(&state)?,
        None => place_of(&address, &mountpoint, consent)?,
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
        cache_bytes_max: cache_bytes(wishes.cache_size)?,
        answer_within: answer_within(wishes.answer_within)?,
        allow_other: wishes.allow_other.unwrap_or(false),
        read_only: wishes.read_only.unwrap_or(false),
        passthrough: wishes.passthrough.unwrap_or(PassthroughName::Auto),
        limits,
        in_order: wishes.in_order.unwrap_or(false),
        metrics: wishes.metrics,
        flags: wishes.flags,
        consent,
    })
}

/// A cache that holds less than a chunk or two of one file cannot work.
const CACHE_BYTES_MIN: u64 = 1 << 20;

fn cache_bytes(said: Option<Size>) -> Result<u64> {
    match said.map_or(CACHE_BYTES_MAX, |size| size.0) {
        bytes if bytes < CACHE_BYTES_MIN => Err(fail(
            Exit::Usage,
            format!(
                "a cache of {} is too small (--cache-size, cache-size): it needs {} at least",
                show_size(bytes),
                show_size(CACHE_BYTES_MIN)
            ),
        )),
        bytes => Ok(bytes),
    }
}

/// An answer from the other side of the world, over a link that loses some, takes as long.
const ANSWER_WITHIN_MIN: Duration = Duration::from_secs(1);

fn answer_within(said: Option<Patience>) -> Result<Duration> {
    match said.map_or(ANSWER_WITHIN, |time| time.0) {
        time if time < ANSWER_WITHIN_MIN => Err(fail(
            Exit::Usage,
            format!(
                "{} ms are too short for a call to wait for the server (--answer-within, answer-within): \
                 {} at least",
                time.as_millis(),
                show_secs(ANSWER_WITHIN_MIN.as_secs())
            ),
        )),
        time => Ok(time),
    }
}

/// Where the state of a volume is if nobody says: in the default place, or, if its server has
/// another key by now, where it was when it was mounted there last.
fn place_of(address: &link::Address, mountpoint: &Path, consent: Consent) -> Result<PathBuf> {
    let key = address.key.to_string();
    let default = places::default_directory(&address.volume, &key)?;
    let Some((last, before)) = places::last_mounted_at(mountpoint)? else { return Ok(default) };
    if before.volume != address.volume || before.unattached {
        return Ok(default);
    }
    if before.key != key && consent.accept_new_key {
        return Ok(last);
    }
    if state::known(&default)?.is_some() {
        return Ok(default);
    }
    if before.key == key {
        return Ok(last);
    }
    let earlier: Option<link::Address> = before.url.parse().ok();
    let same_server = |earlier: link::Address| {
        (earlier.host.as_str(), earlier.port) == (address.host.as_str(), address.port)
    };
    match earlier.is_some_and(same_server) {
        true => Err(state::other_key(&before.key, &key, &last)),
        false => Ok(default),
    }
}

/// What was mounted there last. Error: that is damaged, and what was mounted there before it is not what is
/// meant.
fn mounted_last(mountpoint: &Path) -> Result<Option<(PathBuf, Known)>> {
    let last = places::last_mounted_at(mountpoint)?;
    let Some((directory, _)) = &last else { return Ok(last) };
    match places::damaged_since(mountpoint, directory) {
        None => Ok(last),
        Some(error) => Err(fail(
            Exit::Damaged,
            format!(
                "what was mounted last at {0} cannot be told: {1}. To mount what was mounted there before \
                 that: farfs mount --state {2} {0}",
                mountpoint.display(),
                exit::words(&error),
                directory.display(),
            ),
        )),
    }
}

/// As servers make them.
fn is_token(token: &str) -> bool {
    token.len() == INVITATION_LETTERS && token.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Neither a URL nor the state directory, if one was given, says what to mount.
fn unknown(mountpoint: &Path, state: Option<&Path>) -> anyhow::Error {
    if let Some(state) = state {
        return state::says_nothing(state);
    }
    let shown = mountpoint.display();
    let damaged = places::damaged(mountpoint).map(|(error, is_it)| (exit::words(&error), is_it));
    if let Some((said, true)) = damaged {
        let said = format!("what was mounted at {shown} cannot be told: {said}");
        return fail(Exit::Damaged, said);
    }
    let perhaps = damaged.map_or(String::new(), |(said, _)| {
        format!(". Or, if this is the one that was mounted there: {said}")
    });
    fail(
        Exit::Usage,
        format!(
            "what is to be mounted at {shown}? Give the URL that `farfs invite` printed on the server, \
             or, with --state, the state directory that was mounted there before{perhaps}"
        ),
    )
}

/// The mount point, absolute; it must be a directory on which no farfs is mounted. A mount whose process
/// has died is cleared away.
fn checked(mountpoint: &Path) -> Result<PathBuf> {
    let mountpoint = mounts::spelled(mountpoint)?;
    let shown = mountpoint.display();
    let is_mounted = || {
        let said = || fail(Exit::Busy, format!("a farfs volume is mounted at {shown} already"));
        if mounts::is_live_at(&mountpoint) { Err(said()) } else { Ok(()) }
    };
    is_mounted()?;
    clear_dead(&mountpoint)?;
    let until = Instant::now() + LISTING;
    while mounts::farfs_mountpoints().contains(&mountpoint) {
        is_mounted()?;
        if Instant::now() >= until {
            return Err(fail(Exit::Busy, mounts::unlisted(&mountpoint)));
        }
        std::thread::sleep(LISTING / 100);
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

fn clear_dead(mountpoint: &Path) -> Result<()> {
    let _alone = mounts::clearing();
    connection::end_of_dead(|left| left.mountpoint == mountpoint)?;
    if mounts::is_left_at(mountpoint) {
        umount::unmount(mountpoint, true)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_that_is_too_short_for_any_answer_is_refused_with_the_least() {
        assert_eq!(answer_within(None).unwrap(), ANSWER_WITHIN);
        assert_eq!(answer_within(Some(Patience(ANSWER_WITHIN_MIN))).unwrap(), ANSWER_WITHIN_MIN);
        for short in [Duration::ZERO, Duration::from_millis(1)] {
            let error = answer_within(Some(Patience(short))).unwrap_err();
            assert_eq!(crate::exit::code(&error), Exit::Usage);
            assert!(error.to_string().contains("1 s at least"), "{error}");
        }
    }

    #[test]
    fn a_cache_that_is_too_small_to_work_is_refused_with_the_least() {
        assert_eq!(cache_bytes(None).unwrap(), CACHE_BYTES_MAX);
        assert_eq!(cache_bytes(Some(Size(CACHE_BYTES_MIN))).unwrap(), CACHE_BYTES_MIN);
        let error = cache_bytes(Some(Size(1))).unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::Usage);
        assert!(error.to_string().contains("1.0 MiB at least"), "{error}");
    }
}
