//! What one can order of a server's data directory, whether the server runs or not: a running
//! server is asked through its control socket, else the stores are opened here.

use crate::control;
use crate::data::{self, Data, Unwritable};
use crate::lock;
use crate::output;
use crate::past::Written;
use crate::quota;
use crate::reserve::Reserve;
use crate::threads;
use crate::tree_status::TreeStatus;
use crate::units;
use crate::upkeep;
use anyhow::{Context, Result};
use link::Address;
use protocol::{Access, Cutter};
use replica::{Device, Origin, Repair, VolumeInfo, Wish};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The same for what goes through the whole store.
const WHOLE_STORE_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The same for what looks at the past, and may bring a whole tree of it back.
const LOOKED_BACK_WITHIN: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    CreateVolume {
        name: String,
        uid: u32,
        gid: u32,
        cutter: How,
    },
    ListVolumes,
    RemoveVolume {
        name: String,
    },
    Invite {
        volume: String,
        read_only: bool,
        lasts: Option<Duration>,
    },
    ListDevices,
    RemoveDevice {
        device: String,
    },
    KeepVersions {
        name: String,
        kept: Option<Duration>,
    },
    SetQuota {
        name: String,
        quota: quota::Wish,
    },
    Collect {
        dry_run: bool,
        empty_trash: bool,
        #[serde(default)]
        forget_sent: bool,
    },
    Check {
        repair: bool,
    },
    ListTrees,
    LookBack {
        volume: String,
        asks: Written,
        frees: bool,
    },
}

/// How a volume's contents are cut, in the words of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// By a gear hash: the quicker one
    Gear,
    /// By Rabin fingerprints over 48 bytes, as LBFS does
    Rabin,
}

impl From<How> for Cutter {
    fn from(how: How) -> Cutter {
        match how {
            How::Gear => Cutter::Gear,
            How::Rabin => Cutter::Rabin,
        }
    }
}

impl Order {
    fn answer_within(&self) -> Duration {
        match self {
            Order::Collect { .. } | Order::Check { .. } => WHOLE_STORE_WITHIN,
            Order::LookBack { .. } => LOOKED_BACK_WITHIN,
            _ => ANSWER_WITHIN,
        }
    }

    /// Whether it is there to make room.
    pub fn frees(&self) -> bool {
        match self {
            Order::Collect { dry_run, .. } => !dry_run,
            Order::RemoveVolume { .. } | Order::KeepVersions { .. } => true,
            Order::LookBack { frees, .. } => *frees,
            _ => false,
        }
    }
}

/// Lines for people; the first field of each is what other commands take. Of trees, an object of
/// JSON each; of a check one, its findings.
pub type Answer = Vec<String>;

/// What a carried-out order needs besides the origin.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// HOST:PORT.
    pub address: String,
    pub key: String,
    /// Nothing can be written.
    pub unwritable: Option<Unwritable>,
}

pub fn give(directory: &Path, order: &Order) -> Result<Answer> {
    data::exists(directory)?;
    if matches!(order, Order::Collect { .. } | Order::Check { .. }) {
        // The next server would not start with it.
        data::settings(directory)?;
    }
    // A repair needs the store for itself.
    if !matches!(order, Order::Check { repair: true })
        && let Some(answer) = ask(directory, order)?
    {
        return Ok(answer);
    }
    let work = || {
        let opened = match order {
            Order::Check { .. } => Data::open_to_check(directory),
            _ => Data::open(directory),
        };
        let data = opened?.ok_or_else(|| lock::in_use(directory, ", which does not listen"))?;
        let key = data.identity.fingerprint().to_string();
        let (address, unwritable) = (data.address()?, data.unwritable.clone());
        carry_out(&data.origin, &Place { address, key, unwritable }, order)
    };
    // Opening a store takes a little room, too.
    if order.frees() { Reserve::of(directory).free(work) } else { work() }
}

/// Asks the server, if one runs.
fn ask(directory: &Path, order: &Order) -> Result<Option<Answer>> {
    let asked = control::ask(directory, order, order.answer_within());
    // Who may only read may not ask either, but sees that there is nobody who would answer.
    let is_unused = || matches!(lock::try_look(directory), Ok(Some(_)));
    match asked {
        Err(_) if matches!(order, Order::Check { .. }) && is_unused() => Ok(None),
        asked => asked,
    }
}

pub fn print(answer: &Answer) -> Result<()> {
    output::text(&answer.iter().map(|line| format!("{line}\n")).collect::<String>())
}

pub fn carry_out(origin: &Origin, place: &Place, order: &Order) -> Result<Answer> {
    match order {
        Order::CreateVolume { name, uid, gid, cutter } => {
            origin.create_volume(name, *uid, *gid, (*cutter).into())?;
            Ok(Vec::new())
        }
        Order::ListVolumes => Ok(origin.volumes()?.iter().map(volume_line).collect()),
        Order::RemoveVolume { name } => {
            origin.remove_volume(name)?;
            Ok(Vec::new())
        }
        Order::KeepVersions { name, kept } => {
            origin.keep_versions(name, *kept)?;
            Ok(Vec::new())
        }
        Order::SetQuota { name, quota } => {
            origin.set_quota(name, |now| quota.change(now))?;
            Ok(Vec::new())
        }
        Order::Collect { dry_run, empty_trash, forget_sent } => {
            let (dry_run, empty_trash, forget_sent) = (*dry_run, *empty_trash, *forget_sent);
            let wish = Wish { dry_run, empty_trash, thorough: true, forget_sent };
            let freed = wait(origin.collect(wish))?.map_err(upkeep::not_tidied)?;
            Ok(upkeep::freed(&freed, wish))
        }
        Order::Check { repair } => {
            let repair = if *repair { Repair::Yes } else { Repair::No };
            let trees: Vec<TreeStatus> = origin.trees()?.into_iter().map(Into::into).collect();
            let checked = wait(origin.check(repair))??;
            let findings = upkeep::checked(&checked, &trees, place.unwritable.as_ref());
            Ok(vec![serde_json::to_string(&findings)?])
        }
        Order::ListTrees => {
            let trees = origin.trees()?.into_iter().map(TreeStatus::from);
            trees.map(|tree| Ok(serde_json::to_string(&tree)?)).collect()
        }
        Order::LookBack { volume, asks, .. } => {
            let found = wait(origin.look_back(volume, asks.read()?))??;
            Ok(vec![Written::of(&found).line()])
        }
        Order::Invite { volume, read_only, lasts } => {
            let access = if *read_only { Access::ReadOnly } else { Access::ReadWrite };
            let token = origin.invite(volume, access, *lasts)?;
            Ok(vec![invitation(place, volume, token)?])
        }
        Order::ListDevices => Ok(origin.devices()?.iter().map(device_line).collect()),
        Order::RemoveDevice { device } => {
            let removed = origin.remove_device(device)?;
            Ok(removed.iter().map(|device| format!("removed {}", device_line(device))).collect())
        }
    }
}

/// In a server this is on a thread that may wait; elsewhere there is nobody yet who could run it.
fn wait<F: Future>(work: F) -> Result<F::Output> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => Ok(runtime.block_on(work)),
        Err(_) => {
            threads::are_there("this")?;
            Ok(tokio::runtime::Runtime::new().context("cannot start threads")?.block_on(work))
        }
    }
}

fn invitation(place: &Place, volume: &str, token: String) -> Result<String> {
    let bare = format!("farfs://{}/x?key={}", place.address, place.key);
    let address: Address = bare.parse().context("the server's own address")?;
    let url = Address { volume: volume.into(), invitation: Some(token), ..address };
    Ok(url.to_string())
}

fn volume_line(volume: &VolumeInfo) -> String {
    let cutter = match volume.cutter {
        Cutter::Gear => "gear",
        Cutter::Rabin => "rabin",
    };
    let has = quota::shown(volume);
    let since = units::show_time(volume.created);
    let kept = match volume.versions_kept.as_secs() {
        0 => "no old versions".to_owned(),
        secs => format!("versions for {}", units::show_secs(secs)),
    };
    format!("{}  {has}  cut by {cutter}  keeps {kept}  since {since}", volume.name)
}

fn device_line(device: &Device) -> String {
    let access = match device.access {
        Access::ReadWrite => "read-write",
        Access::ReadOnly => "read-only",
    };
    let since = units::show_time(device.since);
    format!("{}  {}  {access}  since {since}  {}", device.id, device.volume, device.name)
}
