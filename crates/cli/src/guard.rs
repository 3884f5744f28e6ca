//! A small process beside the daemon of a mount. When the daemon is dead, it ends the kernel's connection
//! with it, which else may last for ever, and with it every call of a program in the mount.
//! Holds: it does so only when the daemon is dead; it ends when the daemon does, and before that
//! nothing but SIGKILL ends it.

use crate::{connection, processes};
use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The word by which this program is started so.
pub const COMMAND: &str = "guard";
/// How often, and how long apart, it is looked whether the daemon is dead as the signal says.
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What it says when it looks after the daemon.
const READY: u8 = b'!';
const READY_WITHIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Starts it for the mount on this device. To be called by the daemon's first thread: the kernel tells of
/// the end of the thread that has started it. Without it the mount works all the same.
pub fn start(mountpoint: &Path, device: Option<&str>) {
    if let Err(error) = started(mountpoint, device) {
        let error = format!("{error:#}");
        tracing::info!(
            error,
            "nobody looks after this process: if it is killed, programs in the mount may hang until \
             `farfs umount`"
        );
    }
}

fn started(mountpoint: &Path, device: Option<&str>) -> Result<()> {
    ensure!(rustix::thread::gettid() == getpid(), "this is not the first thread");
    let number = device.and_then(connection::number).context("the mount is in no table")?;
    let control = connection::control(number)
        .with_context(|| format!("cannot open the control of connection {number}"))?;
    let own = getpid().as_raw_pid().cast_unsigned();
    let began = processes::started(own).context("/proc does not show this process")?;
    let program = std::env::current_exe().context("cannot find this program")?;
    // The child is waited for when this process ends.
    let mut child = Command::new(program)
        .args([COMMAND, &getpid().to_string(), &began.to_string()])
        .arg(mountpoint)
        .current_dir("/")
        .process_group(0)
        .stdin(control)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    until_ready(child.stdout.take().context("its output is not ours")?)
}

/// Before it has said so, a signal meant for many ends it.
fn until_ready(mut said: ChildStdout) -> Result<()> {
    let heard =
        retry_on_intr(|| poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&READY_WITHIN)));
    if heard? == 0 {
        bail!("it has not begun within {} s", READY_WITHIN.tv_sec);
    }
    said.read_exact(&mut [0]).context("it has ended")
}

/// What the daemon starts.
#[derive(clap::Args)]
pub struct Guard {
    daemon: i32,
    /// When it began, as /proc has it.
    began: u64,
    /// For people who look at the list of processes.
    mountpoint: PathBuf,
}

impl Guard {
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(self.look_after())
    }

    async fn look_after(self) -> Result<()> {
        let mut died = signal(SignalKind::user_defined1())?;
        // What is sent to all of a terminal or a service does not end it before the daemon.
        let _ignored =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        set_parent_process_death_signal(Some(Signal::USR1))?;
        let daemon = Pid::from_raw(self.daemon).context("this is no process")?;
        if getppid() != Some(daemon) {
            // Nothing is left of it, so the kernel has ended the connection by itself.
            return Ok(());
        }
        // Who has started it may have gone, or be tired of waiting.
        let _heard = std::io::stdout().write_all(&[READY]).and_then(|()| std::io::stdout().flush());
        let pid = daemon.as_raw_pid().cast_unsigned();
        // It may have died before it was asked for a signal.
        let mut has_ended = shows_end(pid, self.began);
        while !has_ended {
            died.recv().await;
            has_ended = is_dead(pid, self.began);
        }
        connection::end(File::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
        Ok(())
    }
}

fn shows_end(pid: u32, began: u64) -> bool {
    processes::is_dead(pid, began) || is_nobodys(pid)
}

/// Nothing is left of the process that has started this one.
fn is_nobodys(parent: u32) -> bool {
    getppid().is_none_or(|now| now.as_raw_pid().cast_unsigned() != parent)
}

/// The kernel sends the signal a moment before it shows the end; whoever else may send it, too. What
/// cannot be looked at lives.
fn is_dead(pid: u32, began: u64) -> bool {
    (0..LOOKS).any(|_| {
        shows_end(pid, began) || {
            std::thread::sleep(LOOK_EVERY);
            false
        }
    })
}
