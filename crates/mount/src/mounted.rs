//! A mount, from the moment it is there until it is gone.
//! Holds: dropped, it is unmounted; if something is open below it, it leaves the tree at once
//! and ends with the process. Taken out of the tree by others, it lasts until nobody uses it.
//! Never: unmounts what somebody has mounted in its place.

use crate::driver::Driver;
use crate::fuse::Fuse;
use crate::kernel::{Forgetter, Teller, Told, Waits};
use crate::lending::{Lending, Right};
use crate::options::{MountError, MountOptions, check_mountpoint, refused, settings, tell};
use crate::readahead;
use crate::table;
use crate::users::{is_copied, users};
use crate::watch::Watch;
use client::Client;
use fuse::{Session, in_path};
use protocol::Upstream;
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use store::Containers;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// None while it lasts.
type Ended = Option<Result<(), Arc<io::Error>>>;

#[derive(Debug)]
pub struct Mounted {
    mountpoint: PathBuf,
    ended: watch::Receiver<Ended>,
    /// As the table of mounts has it, `major:minor`.
    device: Option<String>,
}

/// How often the table of mounts is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// So many looks one after the other must find that nobody uses it: a program may have been taking it up.
const LOOKS: u32 = 2;

/// Whether what is in use may be taken out of the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Respected,
    CutOff,
}

/// Mounts what `client` shows. Requests are answered from here on; those that must wait for the
/// link wait as tasks of `runtime`.
pub fn mount<U: Upstream, C: Containers>(
    client: Client<U, C>,
    mountpoint: &Path,
    options: MountOptions,
    runtime: Handle,
) -> Result<Mounted, MountError> {
    let mountpoint = check_mountpoint(mountpoint)?;
    let failed = |source| MountError::Failed { mountpoint: mountpoint.clone(), source };
    let (told, waits) = (Told::default(), Waits::default());
    let watch = Watch::start().map_err(failed)?;
    let driver = Driver::new(client.clone(), runtime, watch, told.clone(), waits.clone());
    let listings = driver.listings().clone();
    let fuse = Fuse::new(driver.noting_reads(options.notes_reads()));
    let right = Right::find(options.passthrough);
    let session = Session::mount(fuse, &mountpoint, settings(&options, right.is_there()))
        .map_err(|source| refused(&mountpoint, source))?;
    tell(session.agreed());
    let lending = Lending::by(session.lender(), right);
    let teller = Teller::new(session.notifier(), client.clone());
    let lends = (lending, session.idle());
    let forgetter = Forgetter::start(teller, told, waits, lends).map_err(failed)?;
    let forgetter = Arc::new(forgetter);
    listings.start(session.notifier()).map_err(failed)?;
    client.set_kernel(Arc::clone(&forgetter) as Arc<dyn client::Kernel>);

    let (sender, ended) = watch::channel(None);
    std::thread::Builder::new()
        .name("farfs-mount".into())
        .spawn(move || {
            let outcome = session.run();
            forgetter.close();
            listings.close();
            sender.send_replace(Some(outcome.map_err(Arc::new)));
        })
        .map_err(failed)?;
    readahead::widen(&mountpoint);
    tracing::info!(mountpoint = %mountpoint.display(), "mounted");
    let device = table::read()
        .ok()
        .and_then(|table| table::device_of(&table, &mountpoint).map(str::to_owned));
    Ok(Mounted { mountpoint, ended, device })
}

impl Mounted {
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// As the table of mounts has it, `major:minor`.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Unmounts, unless something is in use below the mountpoint. `wait` tells when the last
    /// request has been answered.
    pub fn unmount(&self) -> Result<(), MountError> {
        match self.has_ended() || !self.is_there() {
            true => Ok(()),
            false => take_down(&self.mountpoint, Use::Respected),
        }
    }

    /// Ready when it has been unmounted, here or from outside, and the last program has stopped using
    /// it. Whoever has a copy of the mount in a mount table of its own does not keep it alive by
    /// that alone: while nobody uses it, it is cut off there with the process.
    pub async fn wait(&self) -> Result<(), MountError> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => {}
            () = self.is_of_copies_alone() => return Ok(()),
        }
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Err(source))) => {
                let (mountpoint, source) = (self.mountpoint.clone(), Arc::clone(source));
                Err(MountError::BrokeDown { mountpoint, source })
            }
            // Without a word the thread is gone, and the mount with it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Ready when the mount is in the table no more, and nothing but copies keeps the kernel from
    /// ending it. Where nobody has a copy, the kernel says by itself when the last use ends.
    async fn is_of_copies_alone(&self) {
        let Some(device) = &self.device else { return std::future::pending().await };
        let mut looks = 0;
        while looks < LOOKS {
            tokio::time::sleep(LOOK_EVERY).await;
            if !is_gone_here(device) {
                looks = 0;
                continue;
            }
            let device = device.clone();
            // To look at what processes use may take long: other file systems may wait for theirs.
            let look = tokio::task::spawn_blocking(move || is_kept_by_copies_alone(&device));
            looks = if look.await.unwrap_or(false) { looks + 1 } else { 0 };
        }
    }

    /// Whether it is what would be unmounted. It may be out of sight, and another mount in its place.
    fn is_there(&self) -> bool {
        let (Some(device), Ok(table)) = (&self.device, table::read()) else { return true };
        match table::device_of(&table, &self.mountpoint) {
            Some(at_it) => at_it == device,
            // The path to it may have been renamed.
            None => table::is_mounted(&table, device),
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.has_ended() || !self.is_there() {
            return;
        }
        let outcome = match take_down(&self.mountpoint, Use::Respected) {
            Err(MountError::InUse(_)) => take_down(&self.mountpoint, Use::CutOff),
            outcome => outcome,
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "the mount stays behind");
        }
    }
}

fn is_gone_here(device: &str) -> bool {
    table::read().is_ok_and(|table| !table::is_mounted(&table, device))
}

fn is_kept_by_copies_alone(device: &str) -> bool {
    is_copied(device) && users(device).next().is_none()
}

fn take_down(mountpoint: &Path, in_use: Use) -> Result<(), MountError> {
    let lazily = match in_use {
        Use::Respected => UnmountFlags::empty(),
        Use::CutOff => UnmountFlags::DETACH,
    };
    match unmount(mountpoint, lazily | UnmountFlags::NOFOLLOW) {
        // Somebody was faster.
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::InUse(mountpoint.into())),
        Err(rustix::io::Errno::PERM) => take_down_as_user(mountpoint, in_use),
        Err(errno) => {
            Err(MountError::Failed { mountpoint: mountpoint.into(), source: errno.into() })
        }
    }
}

/// The helper, which has an older name on older systems, wherever it may be when PATH does not
/// lead to it: who could mount by it must be able to unmount.
const HELPERS: [&str; 4] = ["fusermount3", "fusermount", "/bin/fusermount3", "/bin/fusermount"];

/// Only root may unmount without the helper.
fn take_down_as_user(mountpoint: &Path, in_use: Use) -> Result<(), MountError> {
    let failed = |source| MountError::Failed { mountpoint: mountpoint.into(), source };
    let lazily: &[&str] = if in_use == Use::CutOff { &["-z"] } else { &[] };
    for program in HELPERS {
        let mut command = Command::new(program);
        let ended = command.arg("-u").args(lazily).arg("--").arg(mountpoint).output();
        match ended.map_err(|error| in_path(program, error)) {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                if said.contains("busy") {
                    return Err(MountError::InUse(mountpoint.into()));
                }
                return Err(failed(io::Error::other(said)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(MountError::NoFusermount)
}
