//! A device with a volume mounted: `farfs mount` in the foreground, behind a relay of its own.
//! Holds: the state directory and the relay last over kills, unmounts and new mounts.

use crate::process::{Process, run};
use crate::relay::{Relay, fast};
use crate::server::Server;
use crate::wait::eventually;
use crate::world::{Shared, farfs};
use bench::Lane;
use rustix::mount::{UnmountFlags, unmount};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const READY_BOUND: Duration = Duration::from_secs(40);
const ENDED_BOUND: Duration = Duration::from_secs(40);
/// What `farfs mount --foreground` says when the mount can be used.
const READY: &str = "farfs: mounted at";

/// How a test wants its mount.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub mode: &'a str,
    pub volume: &'a str,
    /// More for `farfs mount`.
    pub options: &'a [&'a str],
    /// More for `farfs invite`.
    pub invitation: &'a [&'a str],
    pub up: Option<Lane>,
    pub down: Option<Lane>,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Wanted {
            mode: "auto",
            volume: "main",
            options: &["--answer-within", "10s"],
            invitation: &[],
            up: None,
            down: None,
        }
    }
}

pub struct Mount {
    shared: Arc<Shared>,
    name: String,
    pub mountpoint: PathBuf,
    pub state: PathBuf,
    /// With the invitation, and the relay's address in the place of the server's.
    pub url: String,
    pub relay: Relay,
    mode: String,
    options: Vec<String>,
    process: Option<Process>,
}

impl Mount {
    pub(crate) fn start(
        shared: &Arc<Shared>,
        server: &Server,
        name: &str,
        wanted: &Wanted,
    ) -> Mount {
        let mut mount = Mount::prepared(shared, server, name, wanted);
        mount.again();
        mount
    }

    fn prepared(shared: &Arc<Shared>, server: &Server, name: &str, wanted: &Wanted) -> Mount {
        let relay = Relay::start(
            server.address,
            wanted.up.unwrap_or_else(fast),
            wanted.down.unwrap_or_else(fast),
        );
        let invited = server.invite_to(wanted.volume, wanted.invitation);
        let url = invited.replace(&server.address.to_string(), &relay.address().to_string());
        assert_ne!(url, invited, "the invitation names the server's address");
        let mountpoint = shared.folder.join(name);
        std::fs::create_dir_all(&mountpoint)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", mountpoint.display()));
        Mount {
            shared: shared.clone(),
            name: name.into(),
            mountpoint,
            state: shared.folder.join(format!("{name}.state")),
            url,
            relay,
            mode: wanted.mode.into(),
            options: wanted.options.iter().map(|option| (*option).into()).collect(),
            process: None,
        }
    }

    /// Mounts it, again or for the first time.
    ///
    /// # Panics
    /// If it is not ready within a bound.
    #[track_caller]
    pub fn again(&mut self) {
        if let Err(said) = self.try_again() {
            panic!("farfs mount ended: {said}");
        }
    }

    /// What `farfs mount` said, if it ended instead of being ready.
    #[track_caller]
    pub fn try_again(&mut self) -> Result<(), String> {
        assert!(self.process.is_none(), "it is mounted already");
        let (process, _) = self.shared.start(self.command(), &self.name);
        let before = process.said().matches(READY).count();
        let ready = || process.said().matches(READY).count() > before;
        eventually(READY_BOUND, "the mount is ready or has ended", || {
            ready() || !process.is_running()
        });
        if !ready() {
            return Err(process.said());
        }
        self.process = Some(process);
        Ok(())
    }

    /// `farfs mount` as it is run.
    pub fn command(&self) -> Command {
        let mut command = farfs(&["mount", &self.url]);
        command.arg(&self.mountpoint).arg("--state").arg(&self.state);
        command.args(["--mode", &self.mode, "--foreground"]).args(&self.options);
        command
    }

    /// For the next `again`.
    pub fn mount_as(&mut self, mode: &str) {
        self.mode = mode.into();
    }

    /// For the next `again`.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|option| (*option).into()).collect();
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mountpoint.join(name)
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the test has not killed it, or has mounted it again")
    }

    /// kill -9. The dead mount point is cleared away.
    #[track_caller]
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
        self.clear();
    }

    /// SIGKILL alone. What is left of the process may not end, and the mount point is as it leaves it.
    #[track_caller]
    pub fn strike(&mut self) -> Process {
        let process = self.process.take().expect("the test has not killed it before");
        process.signal(rustix::process::Signal::KILL);
        process
    }

    fn clear(&self) {
        // It is not mounted if the process had time to unmount it. By force: what hangs in it goes on.
        let _ = unmount(&self.mountpoint, UnmountFlags::DETACH | UnmountFlags::FORCE);
    }

    /// `farfs umount`, and the end of the process. Returns what was said.
    #[track_caller]
    pub fn unmount(&mut self, more: &[&str]) -> String {
        let mountpoint = self.mountpoint.display().to_string();
        let ran = run(&mut farfs(&[&["umount", mountpoint.as_str()][..], more].concat()));
        let said = ran.err.clone();
        ran.succeeds();
        if let Some(process) = self.process.take() {
            process.ends_within(ENDED_BOUND);
        }
        said
    }

    /// `farfs COMMAND MOUNTPOINT ...`
    pub fn farfs(&self, command: &str, more: &[&str]) -> Command {
        let mountpoint = self.mountpoint.display().to_string();
        farfs(&[&[command, mountpoint.as_str()][..], more].concat())
    }

    /// What `farfs status --json` shows.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let text = run(&mut self.farfs("status", &["--json"])).succeeds();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Updates that are not yet at the server.
    #[track_caller]
    pub fn pending(&self) -> u64 {
        let status = self.status();
        status["pending_updates"].as_u64().unwrap_or_else(|| panic!("no number in {status:#}"))
    }

    #[track_caller]
    pub fn mode(&self) -> String {
        self.status()["mode"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub fn set_mode(&mut self, mode: &str) {
        run(&mut self.farfs("mode", &[mode])).succeeds();
        self.mode = mode.into();
    }

    /// `farfs wait`: until everything is at the server.
    #[track_caller]
    pub fn wait(&self) {
        run(&mut self.farfs("wait", &["--timeout", "50s"])).succeeds();
    }

    /// Everything that its programs have said.
    pub fn said(&self) -> String {
        let log = self.shared.folder.join(format!("{}.stderr", self.name));
        String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(rustix::process::Signal::KILL);
            self.clear();
        }
    }
}
