//! What a user can wish of a mount: by flags, by `-o`, by a configuration file. What none of
//! them says has a default.

use crate::exit::{Exit, OrExit, fail};
use crate::limits::{Limits, Most, Shares, Stay};
use crate::units::{Patience, Size};
use anyhow::Result;
use clap::ValueEnum;
use client::{Durability, WantedMode};
use mount::{KernelFlag, Passthrough};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub const CACHE_BYTES_MAX: u64 = 10 << 30;
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// None: not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Wishes {
    /// In the configuration file alone: what is mounted there.
    #[arg(skip)]
    pub url: Option<String>,

    /// Where the device's key, the cache and what is not yet sent are kept [default:
    /// $XDG_STATE_HOME/farfs/VOLUME-KEY, or /var/lib/farfs/VOLUME-KEY for root]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// The most that cached files may take on the local disk; 1M at least [default: 10G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub cache_size: Option<Size>,

    /// How to work with the link; auto goes by how good it is [default: auto]
    #[arg(long, value_enum)]
    pub mode: Option<ModeName>,

    /// prompt: what is written is put on the local disk as fast as it can, without waiting for
    /// it; sync: every call waits for the disk [default: prompt]
    #[arg(long, value_enum)]
    pub durability: Option<DurabilityName>,

    /// How long a call may wait for the server before it fails; 1s at least [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub answer_within: Option<Patience>,

    /// Let other users of this machine see the mount
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub allow_other: Option<bool>,

    /// Mount read-only
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub read_only: Option<bool>,

    /// auto: as root, the kernel reads and writes large cached files by itself, at the
    /// speed of the disk, and as another user where farfs-lend, beside this program, has
    /// the capability CAP_SYS_ADMIN; off: never [default: auto]
    #[arg(long, value_enum)]
    pub passthrough: Option<PassthroughName>,

    /// Send at most so many bytes a second, or `none` [default: none]
    #[arg(long, value_name = "RATE")]
    pub limit_up: Option<Most>,

    /// Receive at most so many bytes a second, or `none` [default: none]
    #[arg(long, value_name = "RATE")]
    pub limit_down: Option<Most>,

    /// How names and what is waited for, fetches, and what is sent in the background share the link;
    /// a fourth number is for what is fetched ahead, which gets what is left over without it
    /// [default: 8:3:1]
    #[arg(long, value_name = "N:N:N[:N]")]
    pub tickets: Option<Shares>,

    /// When so many bytes have gone over the link in a calendar month, hold back what nobody waits
    /// for [default: none]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Most>,

    /// Send what nobody waits for no sooner than so long after it was done: what is undone or done
    /// over meanwhile is not sent at all. `auto`: 3min where there is a --budget, else 0s [default: auto]
    #[arg(long, value_name = "TIME")]
    pub replay_delay: Option<Stay>,

    /// Send everything in the order in which it was done: what is small does not go before a file
    /// that takes long and has nothing to do with it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub in_order: Option<bool>,

    /// Answer Prometheus there, over HTTP under /metrics: whoever can reach the address can read it
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,

    /// By `-o` alone: what the kernel is to keep to.
    #[arg(skip)]
    #[serde(skip)]
    pub flags: Vec<FlagName>,
}

/// What the kernel is to keep to, as mount(8) calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlagName {
    Suid,
    Dev,
    Noexec,
    Noatime,
    Sync,
    Dirsync,
}

impl FlagName {
    pub fn wanted(self) -> KernelFlag {
        match self {
            FlagName::Suid => KernelFlag::Suid,
            FlagName::Dev => KernelFlag::Dev,
            FlagName::Noexec => KernelFlag::NoExec,
            FlagName::Noatime => KernelFlag::NoAtime,
            FlagName::Sync => KernelFlag::Sync,
            FlagName::Dirsync => KernelFlag::DirSync,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// By the link as it is measured
    Auto,
    /// A change is done when the server has taken it
    Connected,
    /// A change is done when it is in the local log; sent in the background
    Partial,
    /// Changes are held back; what is missing is fetched
    FetchOnly,
    /// The link is not used
    Disconnected,
}

impl ModeName {
    pub fn wanted(self) -> WantedMode {
        match self {
            ModeName::Auto => WantedMode::Auto,
            ModeName::Connected => WantedMode::Fixed(protocol::Mode::Connected),
            ModeName::Partial => WantedMode::Fixed(protocol::Mode::Partial),
            ModeName::FetchOnly => WantedMode::Fixed(protocol::Mode::FetchOnly),
            ModeName::Disconnected => WantedMode::Fixed(protocol::Mode::Disconnected),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityName {
    Prompt,
    Sync,
}

impl DurabilityName {
    pub fn wanted(self) -> Durability {
        match self {
            DurabilityName::Prompt => Durability::Prompt,
            DurabilityName::Sync => Durability::Sync,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassthroughName {
    Auto,
    Off,
}

impl PassthroughName {
    pub fn wanted(self) -> Passthrough {
        match self {
            PassthroughName::Auto => Passthrough::Auto,
            PassthroughName::Off => Passthrough::Off,
        }
    }
}

impl Wishes {
    pub fn limits(&self) -> Limits {
        let Wishes { limit_up, limit_down, tickets, budget, replay_delay, .. } = self;
        Limits {
            up: *limit_up,
            down: *limit_down,
            tickets: *tickets,
            budget: *budget,
            replay_delay: *replay_delay,
        }
    }

    /// These wishes, and where they say nothing, the others.
    pub fn or(self, others: Wishes) -> Wishes {
        Wishes {
            url: self.url.or(others.url),
            state: self.state.or(others.state),
            cache_size: self.cache_size.or(others.cache_size),
            mode: self.mode.or(others.mode),
            durability: self.durability.or(others.durability),
            answer_within: self.answer_within.or(others.answer_within),
            allow_other: self.allow_other.or(others.allow_other),
            read_only: self.read_only.or(others.read_only),
            passthrough: self.passthrough.or(others.passthrough),
            limit_up: self.limit_up.or(others.limit_up),
            limit_down: self.limit_down.or(others.limit_down),
            tickets: self.tickets.or(others.tickets),
            budget: self.budget.or(others.budget),
            replay_delay: self.replay_delay.or(others.replay_delay),
            in_order: self.in_order.or(others.in_order),
            metrics: self.metrics.or(others.metrics),
            flags: if self.flags.is_empty() { others.flags } else { self.flags },
        }
    }
}

/// What `mount` and fstab pass to every file system, and what does not concern this one.
const OF_MOUNT: [&str; 18] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "nouser",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "default_permissions",
];

/// The options after `-o`, comma after comma. With `sloppy` unknown ones are passed over.
pub fn from_options(options: &[String], sloppy: bool) -> Result<Wishes> {
    let wishes = read(options, sloppy)?;
    allowed(&wishes.flags, rustix::process::geteuid().is_root())?;
    Ok(wishes)
}

/// Who could bring programs along that run as somebody else, or devices, would be root here.
fn allowed(flags: &[FlagName], is_root: bool) -> Result<()> {
    for (flag, name) in [(FlagName::Suid, "suid"), (FlagName::Dev, "dev")] {
        if flags.contains(&flag) && !is_root {
            return Err(fail(
                Exit::Usage,
                format!(
                    "only root may mount with the option {name}; leave it out, and \
                     set-user-id programs and devices do not count in the volume (nosuid,nodev)"
                ),
            ));
        }
    }
    Ok(())
}

fn read(options: &[String], sloppy: bool) -> Result<Wishes> {
    let mut wishes = Wishes::default();
    for option in options.iter().flat_map(|list| list.split(',')).filter(|o| !o.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        set(&mut wishes, name, value, sloppy)?;
    }
    Ok(wishes)
}

fn set(wishes: &mut Wishes, name: &str, value: Option<&str>, sloppy: bool) -> Result<()> {
    let said =
        || value.ok_or_else(|| fail(Exit::Usage, format!("the mount option {name} needs a value")));
    let wrong = || format!("in the mount option {name}");
    let choice = |error: String| fail(Exit::Usage, format!("in the mount option {name}: {error}"));
    match name.replace('_', "-").as_str() {
        "state" => wishes.state = Some(said()?.into()),
        "cache-size" => wishes.cache_size = Some(said()?.parse().or_exit(Exit::Usage, wrong())?),
        "answer-within" => {
            wishes.answer_within = Some(said()?.parse().or_exit(Exit::Usage, wrong())?);
        }
        "mode" => wishes.mode = Some(ModeName::from_str(said()?, false).map_err(choice)?),
        "durability" => {
            wishes.durability = Some(DurabilityName::from_str(said()?, false).map_err(choice)?);
        }
        "passthrough" => {
            wishes.passthrough = Some(PassthroughName::from_str(said()?, false).map_err(choice)?);
        }
        "limit-up" => wishes.limit_up = Some(said()?.parse().or_exit(Exit::Usage, wrong())?),
        "limit-down" => wishes.limit_down = Some(said()?.parse().or_exit(Exit::Usage, wrong())?),
        "tickets" => wishes.tickets = Some(said()?.parse().or_exit(Exit::Usage, wrong())?),
        "budget" => wishes.budget = Some(said()?.parse().or_exit(Exit::Usage, wrong())?),
        "replay-delay" => {
            wishes.replay_delay = Some(said()?.parse().or_exit(Exit::Usage, wrong())?)
        }
        "metrics" => wishes.metrics = Some(said()?.parse().or_exit(Exit::Usage, wrong())?),
        "allow-other" => wishes.allow_other = Some(true),
        "in-order" => wishes.in_order = Some(true),
        "ro" | "read-only" => wishes.read_only = Some(true),
        // mount(8) always says one of the two: by itself it wishes nothing.
        "rw" => wishes.read_only = None,
        "noexec" => raise(wishes, FlagName::Noexec),
        // Who lets everybody mount lets nobody bring programs along, unless `exec` follows.
        "user" | "users" => {
            raise(wishes, FlagName::Noexec);
            lower(wishes, &[FlagName::Suid, FlagName::Dev]);
        }
        "owner" | "group" => lower(wishes, &[FlagName::Suid, FlagName::Dev]),
        "exec" => lower(wishes, &[FlagName::Noexec]),
        "suid" => raise(wishes, FlagName::Suid),
        "nosuid" => lower(wishes, &[FlagName::Suid]),
        "dev" => raise(wishes, FlagName::Dev),
        "nodev" => lower(wishes, &[FlagName::Dev]),
        "noatime" => raise(wishes, FlagName::Noatime),
        "atime" | "strictatime" => lower(wishes, &[FlagName::Noatime]),
        "sync" => {
            raise(wishes, FlagName::Sync);
            wishes.durability.get_or_insert(DurabilityName::Sync);
        }
        "dirsync" => raise(wishes, FlagName::Dirsync),
        "async" => lower(wishes, &[FlagName::Sync, FlagName::Dirsync]),
        "remount" => {
            return Err(fail(
                Exit::Usage,
                "what is mounted keeps its options (no remount): unmount it, and mount it with \
                 others",
            ));
        }
        _ if OF_MOUNT.contains(&name) || name.starts_with("x-") || name.starts_with("X-") => {}
        "comment" => {}
        _ if sloppy => {}
        _ => {
            return Err(fail(
                Exit::Usage,
                format!("farfs does not know the mount option {name} (farfs mount --help)"),
            ));
        }
    }
    Ok(())
}

fn raise(wishes: &mut Wishes, flag: FlagName) {
    if !wishes.flags.contains(&flag) {
        wishes.flags.push(flag);
    }
}

fn lower(wishes: &mut Wishes, flags: &[FlagName]) {
    wishes.flags.retain(|flag| !flags.contains(flag));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Wishes> {
        read(&[text.to_owned()], false)
    }

    #[test]
    fn options_of_mount_are_passed_over_and_ours_are_taken() {
        let wishes =
            options("rw,_netdev,noauto,x-systemd.automount,cache_size=2G,mode=fetch-only,ro")
                .unwrap();
        assert_eq!(wishes.cache_size, Some(Size(2 << 30)));
        assert_eq!(wishes.mode, Some(ModeName::FetchOnly));
        assert_eq!(wishes.read_only, Some(true));
        assert_eq!(wishes.allow_other, None);
    }

    #[test]
    fn what_the_kernel_is_to_keep_to_is_never_dropped() {
        let flags = |text| options(text).unwrap().flags;
        assert_eq!(flags("nosuid,noexec,noatime,noexec"), [FlagName::Noexec, FlagName::Noatime]);
        assert_eq!(flags("user,rw"), [FlagName::Noexec]);
        assert_eq!(flags("user,exec"), []);
        let synced = options("sync,dirsync").unwrap();
        assert_eq!(synced.flags, [FlagName::Sync, FlagName::Dirsync]);
        assert_eq!(synced.durability, Some(DurabilityName::Sync));
        assert_eq!(
            options("durability=prompt,sync").unwrap().durability,
            Some(DurabilityName::Prompt)
        );
        assert_eq!(flags("sync,dirsync,async"), []);
        assert!(options("remount,ro").unwrap_err().to_string().contains("unmount"));
    }

    #[test]
    fn set_user_id_bits_and_devices_count_if_root_asks_for_it_last() {
        let flags = |text| options(text).unwrap().flags;
        assert_eq!(flags("suid,dev"), [FlagName::Suid, FlagName::Dev]);
        assert_eq!(flags("defaults,rw"), []);
        for taken_back in ["suid,dev,nosuid,nodev", "suid,dev,owner", "dev,suid,group"] {
            assert_eq!(flags(taken_back), [], "{taken_back}");
        }
        assert_eq!(flags("dev,user"), [FlagName::Noexec]);
        assert_eq!(flags("users,suid,exec"), [FlagName::Suid]);
        assert_eq!(flags("nosuid,suid,noexec"), [FlagName::Suid, FlagName::Noexec]);
        for asked in ["suid", "dev"] {
            assert!(allowed(&flags(asked), true).is_ok());
            let said = allowed(&flags(asked), false).unwrap_err();
            assert_eq!(crate::exit::code(&said), Exit::Usage);
            assert!(said.to_string().contains(&format!("with the option {asked}")), "{said}");
        }
        assert!(allowed(&flags("noexec,sync"), false).is_ok());
    }

    #[test]
    fn of_ro_and_rw_the_last_counts() {
        let read_only = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
            read(&list, false).unwrap().read_only
        };
        assert_eq!(read_only(&["ro,rw"]), None);
        assert_eq!(read_only(&["ro", "noatime,rw"]), None);
        assert_eq!(read_only(&["rw,ro"]), Some(true));
        assert_eq!(read_only(&["rw"]), None);
    }

    #[test]
    fn a_misspelt_option_is_an_error_unless_sloppy() {
        for wrong in ["cachesize=2G", "mode=sometimes", "mode", "answer-within=soon"] {
            assert_eq!(crate::exit::code(&options(wrong).unwrap_err()), Exit::Usage, "{wrong}");
        }
        assert!(read(&["cachesize=2G".into()], true).is_ok());
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let flag = options("mode=connected").unwrap();
        let file = options("mode=partial,cache-size=1G").unwrap();
        let both = flag.or(file);
        assert_eq!(both.mode, Some(ModeName::Connected));
        assert_eq!(both.cache_size, Some(Size(1 << 30)));
    }
}
