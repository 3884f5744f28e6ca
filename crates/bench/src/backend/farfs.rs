//! FarFS as it is built: a server at the far end, a mount at the near one.

use super::{Backend, FarfsOptions};
use crate::loopback::Asker;
use crate::mounts;
use crate::process::{Process, tail};
use anyhow::{Context, Result, bail};
use bench::command::run;
use bench::undo::{self, Undo};
use bench::{End, Link};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 7440;
const SERVING_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An origin at the far end.
pub struct Server {
    program: PathBuf,
    data: PathBuf,
    _process: Process,
}

impl Server {
    pub fn start(program: &Path, directory: &Path, far: &End) -> Result<Self> {
        let data = directory.join("data");
        let log = directory.join("serve.log");
        let mut command = far.command(program);
        command.arg("serve").arg("--data").arg(&data);
        command.args(["--listen", &format!("{}:{PORT}", far.address())]);
        let process = Process::start(quiet(&mut command), &log)?;
        serving(&log)?;
        Ok(Self { program: program.to_owned(), data, _process: process })
    }

    /// A URL that mounts the volume once.
    pub fn invite(&self) -> Result<String> {
        invitation(&self.program, &self.data)
    }
}

/// Waits until an origin that was started is ready: its one line of output says so.
pub fn serving(log: &Path) -> Result<()> {
    let start = Instant::now();
    while !tail(log).contains(" key=") {
        if start.elapsed() > SERVING_MAX {
            bail!("farfs serve did not start: {}", tail(log));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A URL that mounts the volume of a data directory once.
pub fn invitation(program: &Path, data: &Path) -> Result<String> {
    let mut command = Command::new(program);
    let printed = run(quiet(&mut command).arg("invite").arg("--data").arg(data))?;
    let url = printed.lines().find(|line| line.starts_with("farfs://"));
    url.map(str::to_owned).with_context(|| format!("farfs invite printed no URL: {printed}"))
}

/// A mounted volume.
pub struct Mount {
    options: FarfsOptions,
    near: End,
    url: String,
    state: PathBuf,
    pub point: PathBuf,
    undo: Option<Undo>,
}

impl Mount {
    /// Mounts as a device of its own: `directory` is where the point and the device's state are
    /// made.
    pub fn new(
        options: &FarfsOptions,
        server: &Server,
        near: &End,
        directory: &Path,
    ) -> Result<Self> {
        let (point, state) = (directory.join("mnt"), directory.join("state"));
        fs::create_dir_all(&point).with_context(|| format!("cannot make {}", point.display()))?;
        let (options, near, url) = (options.clone(), near.clone(), server.invite()?);
        let mut mount = Self { options, near, url, state, point, undo: None };
        mount.again()?;
        Ok(mount)
    }

    /// As the same device, with what it has cached, over the link as it is now.
    pub fn again(&mut self) -> Result<()> {
        self.undo = None;
        self.undo = Some(undo::later({
            let (program, point) = (self.options.program.clone(), self.point.clone());
            move || unmount(&program, &point)
        }));
        let mut command = self.near.command(&self.options.program);
        command.arg("mount").arg(&self.url).arg(&self.point).arg("--state").arg(&self.state);
        if let Some(mode) = &self.options.mode {
            command.args(["--mode", mode]);
        }
        run(quiet(&mut command)).context("cannot mount the volume")?;
        Ok(())
    }

    /// How many updates are not at the origin yet.
    pub fn pending(&self) -> Result<u64> {
        Ok(self.asker().status()?.pending_updates)
    }

    pub fn asker(&self) -> Asker {
        Asker { program: self.options.program.clone(), point: self.point.clone() }
    }

    /// From now on, and until it is mounted again.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        let mut command = Command::new(&self.options.program);
        run(quiet(&mut command).arg("mode").arg(&self.point).arg(mode))?;
        Ok(())
    }

    /// Returns when everything is at the origin.
    pub fn settle(&self, within: Duration) -> Result<()> {
        mounts::sync(&self.point)?;
        let start = Instant::now();
        // A fast link is through with a small file in a few milliseconds.
        let mut look_after = Duration::from_millis(1);
        loop {
            let pending = self.pending()?;
            if pending == 0 {
                return Ok(());
            }
            if start.elapsed() > within {
                bail!("after {within:?}, {pending} updates are not at the origin");
            }
            std::thread::sleep(look_after);
            look_after = (look_after * 2).min(LOOK_EVERY);
        }
    }

    pub fn unmount(&mut self) {
        self.undo = None;
    }
}

/// Without asking whether it wants to: what is pending at the end is not wanted any more.
fn unmount(program: &Path, point: &Path) {
    if !mounts::is_mounted(point) {
        return;
    }
    let mut command = Command::new(program);
    let asked = run(quiet(&mut command).arg("umount").arg("--wait").arg("0s").arg(point));
    if asked.is_err() {
        mounts::unmount(point);
    }
}

/// Without what the configuration of this machine's users says.
pub fn quiet(command: &mut Command) -> &mut Command {
    command.env("FARFS_CONFIG", "/dev/null")
}

pub struct Farfs {
    options: FarfsOptions,
    directory: PathBuf,
    near: End,
    mounted: u32,
    mount: Mount,
    server: Server,
}

impl Farfs {
    pub fn start(directory: &Path, link: &Link, options: &FarfsOptions) -> Result<Self> {
        let server = Server::start(&options.program, directory, link.far())?;
        let near = link.near().clone();
        let mount = Mount::new(options, &server, &near, &directory.join("0"))?;
        let directory = directory.to_owned();
        Ok(Self { options: options.clone(), directory, near, mounted: 1, mount, server })
    }
}

impl Backend for Farfs {
    fn root(&self) -> &Path {
        &self.mount.point
    }

    fn settle(&mut self, within: Duration) -> Result<()> {
        self.mount.settle(within)
    }

    /// Another device, which has never seen the volume.
    fn make_cold(&mut self) -> Result<()> {
        self.mount.unmount();
        let directory = self.directory.join(self.mounted.to_string());
        self.mounted += 1;
        self.mount = Mount::new(&self.options, &self.server, &self.near, &directory)?;
        Ok(())
    }

    fn resume(&mut self) -> Result<()> {
        self.mount.again()
    }

    fn set_mode(&mut self, mode: &str) -> Result<()> {
        self.mount.set_mode(mode)
    }

    fn abort(&mut self) {
        bench::link::namespace::end(&self.near.pids());
        mounts::unmount(&self.mount.point);
    }
}
