//! An origin and its clients on this machine's loopback, with no emulated link between them, and
//! what their processes take: for what measures FarFS and not the link.

use crate::backend::farfs::{invitation, quiet, serving};
use crate::mounts;
use crate::process::Process;
use anyhow::{Context, Result, bail};
use bench::command::run;
use bench::undo::{self, Undo};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An origin that runs until this is dropped.
pub struct Origin {
    pub data: PathBuf,
    pub pid: u32,
    program: PathBuf,
    _process: Process,
}

impl Origin {
    /// Serves `data`, and a directory of this machine with it if one is named. Waits until it
    /// says that it is ready.
    pub fn start(program: &Path, data: &Path, tree: Option<&Path>) -> Result<Self> {
        let log = data.with_extension("log");
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.context("there is no free port")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--data").arg(data);
        command.args(["--listen", &address.to_string()]);
        if let Some(tree) = tree {
            command.arg("--tree").arg(tree);
        }
        let process = Process::start(quiet(&mut command), &log)?;
        serving(&log)?;
        let pid = process.pid();
        Ok(Self { data: data.into(), pid, program: program.into(), _process: process })
    }

    /// Gives a command to the origin, and waits until it is carried out.
    pub fn order(&self, order: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        Ok(run(quiet(&mut command).arg(order).arg("--data").arg(&self.data))?)
    }
}

/// A volume that is mounted until this is dropped.
pub struct Client {
    pub point: PathBuf,
    program: PathBuf,
    url: String,
    state: PathBuf,
    pub mode: String,
    options: Vec<String>,
    undo: Option<Undo>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    pub pid: u32,
    pub mode: String,
    pub pending_updates: u64,
    pub wire_bytes_sent: u64,
    pub wire_bytes_received: u64,
    /// An older program does not tell it.
    #[serde(default)]
    pub replayed: Replayed,
}

/// What has been judged since the mount, and how long it stood in the log.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Replayed {
    pub updates: u64,
    pub waited_ms: u64,
    pub waited_most_ms: u64,
}

impl Client {
    /// A device of its own, with all that it keeps in `directory`.
    pub fn new(origin: &Origin, directory: &Path, mode: &str) -> Result<Self> {
        Self::with(origin, directory, mode, &[])
    }

    /// As `new`, with more options for `farfs mount`.
    pub fn with(origin: &Origin, directory: &Path, mode: &str, options: &[&str]) -> Result<Self> {
        let (point, state) = (directory.join("mnt"), directory.join("state"));
        fs::create_dir_all(&point).with_context(|| format!("cannot make {}", point.display()))?;
        let (program, url) = (origin.program.clone(), invitation(&origin.program, &origin.data)?);
        let options = options.iter().map(|option| (*option).into()).collect();
        let mut client =
            Self { point, program, url, state, mode: mode.into(), options, undo: None };
        client.mount()?;
        Ok(client)
    }

    pub fn mount(&mut self) -> Result<()> {
        let point = self.point.clone();
        self.undo = Some(undo::later(move || mounts::unmount(&point)));
        let mut command = Command::new(&self.program);
        command.arg("mount").arg(&self.url).arg(&self.point).arg("--state").arg(&self.state);
        command.args(["--mode", &self.mode]).args(&self.options);
        run(quiet(&mut command)).context("cannot mount the volume")?;
        Ok(())
    }

    pub fn unmount(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        run(quiet(&mut command).args(["umount", "--wait", "0s"]).arg(&self.point))?;
        self.undo = None;
        Ok(())
    }

    pub fn set_mode(&self, mode: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        run(quiet(&mut command).arg("mode").arg(&self.point).arg(mode))?;
        Ok(())
    }

    pub fn status(&self) -> Result<Status> {
        self.asker().status()
    }

    /// For another thread.
    pub fn asker(&self) -> Asker {
        Asker { program: self.program.clone(), point: self.point.clone() }
    }

    /// Returns when everything is at the origin.
    pub fn settle(&self, within: Duration) -> Result<()> {
        mounts::sync(&self.point)?;
        let start = Instant::now();
        loop {
            let pending = self.status()?.pending_updates;
            if pending == 0 {
                return Ok(());
            }
            if start.elapsed() > within {
                bail!("after {within:?}, {pending} updates are not at the origin");
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Asks a mount how it is.
#[derive(Clone)]
pub struct Asker {
    pub program: PathBuf,
    pub point: PathBuf,
}

impl Asker {
    pub fn status(&self) -> Result<Status> {
        let start = Instant::now();
        loop {
            let mut command = Command::new(&self.program);
            match run(quiet(&mut command).arg("status").arg(&self.point).arg("--json")) {
                Ok(printed) => {
                    return serde_json::from_str(&printed)
                        .with_context(|| format!("farfs status printed {printed}"));
                }
                // On a machine with much else to do it may be silent for a while.
                Err(error) if start.elapsed() > SILENT_MAX => return Err(error.into()),
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

/// Who does not say for longer how he is has failed.
const SILENT_MAX: Duration = Duration::from_secs(120);

/// What a process has in the machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub now_kb: u64,
    /// The most since `begin_peak`.
    pub peak_kb: u64,
}

impl Memory {
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("{path} does not say what it takes"))
    }

    fn parse(status: &str) -> Option<Self> {
        let kb = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self { now_kb: kb("VmRSS:")?, peak_kb: kb("VmHWM:")? })
    }

    pub fn begin_peak(pid: u32) -> Result<()> {
        /// As proc(5) has it: resets the peak to what is taken now.
        const RESET_PEAK: &str = "5";
        let path = format!("/proc/{pid}/clear_refs");
        fs::write(&path, RESET_PEAK).with_context(|| format!("cannot write {path}"))
    }
}

/// Seconds of processor time that a process has used.
pub fn processor_secs(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    ticks(&text)
        .map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
        .with_context(|| format!("{path} does not say what it has used"))
}

/// Of the process and of the kernel for it. The name before may have spaces in it.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
    let [user, system] = [fields.get(11)?, fields.get(12)?];
    Some(user.parse::<u64>().ok()? + system.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_process_is_read() {
        let text = "Name:\tfarfs\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { now_kb: 1024, peak_kb: 2048 }));
        assert_eq!(Memory::parse("Name:\tzombie\n"), None);
        assert_eq!(ticks("7 (a b) S 1 2 3 4 5 6 7 8 9 10 100 23 0"), Some(123));
        assert!(Memory::of(std::process::id()).unwrap().now_kb > 0);
    }
}
