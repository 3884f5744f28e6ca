//! Network namespaces: one for each end of a link.
//! Holds: a namespace is removed when its last user drops it; those of processes that died without
//! removing theirs are removed by the next process that makes one.

use crate::undo::{self, Undo};
use crate::{Error, Result, command};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where `ip netns` keeps them.
const DIRECTORY: &str = "/run/netns";
const PREFIX: &str = "farfs-link";

/// A network of its own, in which processes can be started.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    _undo: Undo,
}

impl Namespace {
    /// Makes one without IPv6, whose neighbour discovery would be counted as traffic.
    pub fn make() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{number}", std::process::id());
        let undo = undo::later({
            let name = name.clone();
            move || remove(&name)
        });
        command::run_line(&format!("ip netns add {name}"))?;
        let namespace = Self { name, _undo: undo };
        namespace.inside(|| {
            for which in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
                // A kernel without IPv6 has no such file, and no need of it.
                let _ = fs::write(path, "1");
            }
            Ok(())
        })?;
        command::run_line(&format!("ip -n {} link set lo up", namespace.name))?;
        Ok(namespace)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// Does something as a thread of this network.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = self.path();
        let opened = File::open(&path).map_err(Error::file("cannot open the network", path))?;
        let entered = || {
            let only = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(opened.as_fd(), only)
                .map_err(Error::system("cannot enter a network namespace"))?;
            work()
        };
        // A thread of its own, as it does not come back to the network that it came from.
        std::thread::scope(|scope| scope.spawn(entered).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Gives a device its address and the other end's, and sets it up.
    pub fn connect(&self, device: &str, own: Ipv4Addr, peer: Ipv4Addr) -> Result<()> {
        let ip = format!("ip -n {}", self.name);
        command::run_line(&format!("{ip} addr add {own} peer {peer} dev {device}"))?;
        command::run_line(&format!("{ip} link set {device} up"))?;
        Ok(())
    }

    /// The processes that were started in it and still run.
    pub fn pids(&self) -> Vec<i32> {
        pids(&self.name)
    }
}

fn pids(name: &str) -> Vec<i32> {
    let printed = command::run_line(&format!("ip netns pids {name}")).unwrap_or_default();
    printed.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Its processes can reach nobody any more, so they end with it.
fn remove(name: &str) {
    end(&pids(name));
    let _ = command::run_line(&format!("ip netns del {name}"));
}

/// What is asked to end by SIGTERM gets this long, before SIGKILL.
const ENDING: std::time::Duration = std::time::Duration::from_secs(3);
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);

/// Ends processes, with force if they do not listen.
pub fn end(pids: &[i32]) {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    let mut left: Vec<Pid> = pids.iter().copied().filter_map(Pid::from_raw).collect();
    let own = rustix::process::getpid();
    left.retain(|&pid| pid != own && kill_process(pid, Signal::TERM).is_ok());
    let start = std::time::Instant::now();
    while !left.is_empty() && start.elapsed() < ENDING {
        std::thread::sleep(LOOK_EVERY);
        left.retain(|&pid| test_kill_process(pid).is_ok() && !is_zombie(pid));
    }
    for pid in left {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Ended, and waiting for its parent to ask.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

/// Removes what processes left that were killed: namespaces, and whoever still runs in them.
pub fn sweep() {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

/// The process that made a namespace, by its name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_prefix('-')?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_made_here_have_an_owner() {
        assert_eq!(owner("farfs-link-4711-0"), Some(4711));
        assert_eq!(owner("farfs-link-x-0"), None);
        assert_eq!(owner("somebody-elses-4711-0"), None);
    }
}
