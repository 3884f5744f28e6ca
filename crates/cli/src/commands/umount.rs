//! `farfs umount`.

use crate::exit::{self, Exit, fail};
use crate::mounts::{self, Entry};
use crate::questions::{self, Question};
use crate::units::{self, Patience};
use crate::{connection, output, places, processes, show};
use anyhow::{Context, Result};
use protocol::Status;
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the daemon may take to end once it is unmounted.
const ENDING: Duration = Duration::from_secs(30);
/// The same for one that does not answer.
const SILENT: Duration = Duration::from_secs(3);
/// How long programs that hung in the mount may take to leave it, and its process to end where nobody
/// uses it.
const LEAVING: Duration = Duration::from_secs(3);
/// How long a link that is down is given to come up.
const CONNECTING: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Unmount a volume
///
/// What is not yet at the server is kept, and sent once it is mounted again. It also clears the
/// mount point of a farfs process that has died.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs umount ~/work
     farfs umount --wait 10m ~/work    (send what is pending first)
     farfs umount --lazy ~/work        (also while programs use it)",
    &[Exit::Busy, Exit::NotFound],
))]
pub struct Umount {
    /// Where the volume is mounted
    mountpoint: PathBuf,
    /// How long to go on sending what is not yet at the server
    #[arg(long, value_name = "TIME", default_value = "5s")]
    wait: Patience,
    /// Take it out of sight now, and end when the last program stops using it
    #[arg(long, short = 'l')]
    lazy: bool,
}

impl Umount {
    pub fn run(self) -> Result<()> {
        let mountpoint = mounts::spelled(&self.mountpoint)?;
        let daemon = || mounts::live_at(&mountpoint);
        // Who comes second finds nothing mounted, or what the first has mounted since.
        let alone = daemon().is_none().then(mounts::clearing);
        let daemon = daemon();
        if daemon.is_none() && !mounts::farfs_mountpoints().contains(&mountpoint) {
            let shown = mountpoint.display();
            return Err(fail(Exit::NotFound, format!("no farfs volume is mounted at {shown}")));
        }
        let is_freed =
            daemon.is_none() && connection::end_of_dead(|left| left.mountpoint == mountpoint)?;
        let alone = alone.filter(|_| daemon.is_none());
        let answers = daemon.as_ref().is_none_or(|daemon| send_first(daemon, self.wait.0));
        // Of a mount that is out of sight something else may be in its place.
        let is_there = match &daemon {
            Some(daemon) if daemon.is_away() => mounts::farfs_mountpoints().contains(&mountpoint),
            _ => mounts::is_mounted(&mountpoint),
        };
        if is_there {
            let patience = if is_freed { LEAVING } else { Duration::ZERO };
            unmount_within(patience, &mountpoint, self.lazy)?;
        }
        drop(alone);
        match daemon {
            Some(daemon) if !self.lazy => ended(&daemon, if answers { ENDING } else { SILENT }),
            _ => Ok(()),
        }
    }
}

/// Waits until nothing is pending, and says what is. A daemon that does not answer is no reason
/// not to unmount. False: it does not.
fn send_first(daemon: &Entry, patience: Duration) -> bool {
    if let Err(error) = questions::tell(daemon, &Question::Hurry)
        && questions::is_silence(&error)
    {
        output::tell(exit::words(&error));
        return false;
    }
    let began = Instant::now();
    while let Ok(status) = questions::status(daemon) {
        if status.pending.updates == 0 {
            return true;
        }
        if began.elapsed() >= patience.min(worth_waiting(&status)) {
            let pending = show::pending(&status.pending);
            output::tell(format_args!("not yet at the server: {pending}"));
            let again = places::mount_again(&status.mountpoint, &status.state_directory);
            let kept = &status.state_directory;
            output::tell(format_args!("kept in {kept}, and sent after the next mount: `{again}`"));
            let _ = questions::tell(daemon, &Question::Leave { patience: Duration::ZERO });
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

/// How long it can make sense to wait for what is pending.
fn worth_waiting(status: &Status) -> Duration {
    match status.mode_wanted.as_str() {
        "fetch-only" | "disconnected" => Duration::ZERO,
        _ if status.link.connected => Duration::MAX,
        _ => CONNECTING,
    }
}

fn unmount_within(patience: Duration, mountpoint: &Path, lazy: bool) -> Result<()> {
    let until = Instant::now() + patience;
    loop {
        match unmount(mountpoint, lazy) {
            Err(error) if exit::code(&error) == Exit::Busy && Instant::now() < until => {
                std::thread::sleep(LOOK_EVERY);
            }
            outcome => return outcome,
        }
    }
}

pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(busy(mountpoint)),
        Err(rustix::io::Errno::PERM) => with_fusermount(mountpoint, lazy),
        Err(error) => {
            Err(error).with_context(|| format!("cannot unmount {}", mountpoint.display()))
        }
    }
}

/// The way of ordinary users.
fn with_fusermount(mountpoint: &Path, lazy: bool) -> Result<()> {
    let output = Command::new("fusermount3")
        .args(if lazy { &["-u", "-z", "--"][..] } else { &["-u", "--"] })
        .arg(mountpoint)
        .output()
        .context("cannot run fusermount3 (package fuse3)")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(busy(mountpoint)),
        false => Err(fail(Exit::Failure, said)),
    }
}

fn busy(mountpoint: &Path) -> anyhow::Error {
    let users = processes::using(mountpoint);
    let who = if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) };
    fail(Exit::Busy, format!("{} is in use{who}; end that, or use --lazy", mountpoint.display()))
}

/// The next mount needs the state directory: so the daemon's end is waited for.
fn ended(daemon: &Entry, within: Duration) -> Result<()> {
    if has_ended_within(daemon, LEAVING) {
        return Ok(());
    }
    // Programs of another mount table, or that have it from where it is out of sight already.
    let serves = mounts::with_state(&daemon.state_directory).is_some_and(|now| now == *daemon);
    let users = if serves && daemon.is_away() { daemon.who_uses_it() } else { Vec::new() };
    if !users.is_empty() {
        return Err(fail(Exit::Busy, daemon.away(&users)));
    }
    if has_ended_within(daemon, within.saturating_sub(LEAVING)) {
        return Ok(());
    }
    Err(fail(
        Exit::Busy,
        format!(
            "unmounted, but the farfs process {0} has not ended after {1}; the volume can be mounted \
             again when it has (`kill -CONT {0}` wakes it if it was stopped, `kill {0}` ends it)",
            daemon.pid,
            units::show_secs(within.as_secs())
        ),
    ))
}

fn has_ended_within(daemon: &Entry, within: Duration) -> bool {
    let until = Instant::now() + within;
    while processes::started(daemon.pid) == Some(daemon.started) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}
