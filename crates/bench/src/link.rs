//! An emulated link between two network namespaces, for any protocol over IPv4.
//!
//! ```text
//!  near namespace            this process             far namespace
//!  programs -- link0 (TUN) -- up:   Shape ->  -- (TUN) link0 -- programs
//!                             down: Shape <-
//! ```
//! Holds: nothing gets from one end to the other but through a `Shape`; counters count IP packets,
//! headers included; namespaces, devices and processes in them end with the `Link`.

pub mod namespace;
mod pump;
mod run;
pub mod shape;
mod tun;

use crate::command;
use crate::profile::{Lane, Profile};
use crate::{Error, Result};
use namespace::Namespace;
use pump::Pump;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use shape::{Counters, Tally};

const DEVICE: &str = "link";
/// Which packets a link loses is the same in every run.
const SEED: u64 = 0x6661_7266_7300;
/// From here on a run of 64 kB takes less than a millisecond.
const RUNS_BITS_PER_SEC: u64 = 600_000_000;
/// Links to one far end are told apart by one byte of their addresses.
const LINKS_MAX: u8 = 250;

/// A link that runs until it is dropped.
pub struct Link {
    // Pumps stop before the namespaces go.
    up: Pump,
    down: Pump,
    near: End,
    far: End,
    devices: [File; 2],
}

/// One end of a link: a network of its own, with one address.
#[derive(Clone, Debug)]
pub struct End {
    namespace: Arc<Namespace>,
    address: Ipv4Addr,
}

/// What went over a link. `up` is from the near end to the far one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    pub up: Counters,
    pub down: Counters,
}

impl Traffic {
    /// Bytes over the link both ways, lost ones included.
    pub fn bytes(&self) -> u64 {
        self.up.carried.bytes + self.down.carried.bytes
    }
}

impl End {
    /// The namespace's name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A command that will run at this end. Only the network is another: it shares files, mounts
    /// and process ids with everybody else, so that its mounts are seen by all.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace.path().display())).arg("--").arg(program);
        command
    }

    /// Does something as a thread of this end; sockets that it opens stay here.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.namespace.inside(work)
    }

    /// The processes at this end.
    pub fn pids(&self) -> Vec<i32> {
        self.namespace.pids()
    }
}

impl Link {
    /// A new link between two new ends.
    pub fn start(profile: &Profile) -> Result<Self> {
        let missing = missing();
        if !missing.is_empty() {
            return Err(Error::Missing(missing));
        }
        Self::between(Arc::new(Namespace::make()?), Arc::new(Namespace::make()?), profile)
    }

    /// Another link, from a new near end to the far end of this one: a second client of the same
    /// server. The far end has an address for each link and is reached by all of them.
    pub fn join(&self, profile: &Profile) -> Result<Self> {
        Self::between(Arc::new(Namespace::make()?), self.far.namespace.clone(), profile)
    }

    /// A link between a new near end and one that is already there, such as a server to which
    /// another server is the near end.
    pub fn start_at(far: &End, profile: &Profile) -> Result<Self> {
        Self::between(Arc::new(Namespace::make()?), far.namespace.clone(), profile)
    }

    fn between(near: Arc<Namespace>, far: Arc<Namespace>, profile: &Profile) -> Result<Self> {
        static NUMBER: AtomicU8 = AtomicU8::new(0);
        let number = NUMBER
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |number| {
                (number < LINKS_MAX).then(|| number + 1)
            })
            .map_err(|_| Error::Full(LINKS_MAX))?;
        let device = format!("{DEVICE}{number}");
        let addresses = [1, 2].map(|host| Ipv4Addr::new(10, 77, number, host));
        let near_device = tun::make(&near, &device)?;
        let far_device = tun::make(&far, &device)?;
        near.connect(&device, addresses[0], addresses[1])?;
        far.connect(&device, addresses[1], addresses[0])?;
        // Whatever address a far end was first known by, it is reached by it.
        command::run_line(&format!("ip -n {} route add default dev {device}", near.name()))?;
        let copy = |file: &File| {
            file.try_clone()
                .map_err(|source| Error::System { doing: "cannot copy a descriptor", source })
        };
        let seed = SEED + u64::from(number) * 2;
        let up = Pump::start(profile.up, seed, copy(&near_device)?, copy(&far_device)?)?;
        let down = Pump::start(profile.down, seed + 1, copy(&far_device)?, copy(&near_device)?)?;
        let devices = [near_device, far_device];
        take_runs(&devices, profile);
        Ok(Self {
            devices,
            up,
            down,
            near: End { namespace: near, address: addresses[0] },
            far: End { namespace: far, address: addresses[1] },
        })
    }

    pub fn near(&self) -> &End {
        &self.near
    }

    pub fn far(&self) -> &End {
        &self.far
    }

    pub fn command_near(&self, program: impl AsRef<OsStr>) -> Command {
        self.near.command(program)
    }

    pub fn command_far(&self, program: impl AsRef<OsStr>) -> Command {
        self.far.command(program)
    }

    /// Loses everything that is under way, and whatever comes, until `restore`.
    pub fn cut(&self) {
        self.up.with(|shape, _| shape.cut());
        self.down.with(|shape, _| shape.cut());
    }

    pub fn restore(&self) {
        self.up.with(|shape, now| shape.restore(now));
        self.down.with(|shape, now| shape.restore(now));
    }

    pub fn is_cut(&self) -> bool {
        self.up.with(|shape, _| shape.is_cut())
    }

    /// From the next packet on. A link that is cut stays cut.
    pub fn set_profile(&self, profile: &Profile) {
        take_runs(&self.devices, profile);
        self.up.with(|shape, now| shape.set_lane(now, profile.up));
        self.down.with(|shape, now| shape.set_lane(now, profile.down));
    }

    /// What both directions are like now.
    pub fn lanes(&self) -> [crate::Lane; 2] {
        [self.up.with(|shape, _| shape.lane()), self.down.with(|shape, _| shape.lane())]
    }

    pub fn counters(&self) -> Traffic {
        Traffic {
            up: self.up.with(|shape, _| shape.counters()),
            down: self.down.with(|shape, _| shape.counters()),
        }
    }

    pub fn reset_counters(&self) {
        self.up.with(|shape, _| shape.reset_counters());
        self.down.with(|shape, _| shape.reset_counters());
    }
}

/// A fast link carries runs of packets as one, as a network card takes them: otherwise carrying them
/// takes a good part of the processors, from both ends. Where packets are lost, delayed one by one or
/// queued at a slow sender, each counts.
fn take_runs(devices: &[File; 2], profile: &Profile) {
    let is_fast = |lane: &Lane| {
        lane.bits_per_sec >= RUNS_BITS_PER_SEC && lane.loss == 0.0 && lane.jitter.is_zero()
    };
    let may = [profile.up, profile.down].iter().all(is_fast);
    devices.iter().for_each(|device| tun::take_runs(device, may));
}

/// What this machine lacks for links, in words that say what to do.
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("network namespaces need root: run it with sudo".into());
    }
    if !std::path::Path::new(tun::CLONE_DEVICE).exists() {
        missing.push(format!("there is no {} (modprobe tun)", tun::CLONE_DEVICE));
    }
    for (program, package) in [("ip", "iproute2"), ("nsenter", "util-linux")] {
        if !command::exists(program) {
            missing.push(format!("there is no {program} (package {package})"));
        }
    }
    missing
}
