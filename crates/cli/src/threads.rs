//! Whether this process can have the threads that it needs, asked before anybody relies on it: a
//! mount that meets the limit later stands still, or ends and leaves a dead mount point.

use crate::exit::{Exit, fail};
use crate::units;
use anyhow::{Context, Error, Result};
use rustix::process::{Resource, getrlimit};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Besides those that carry out tasks, one for each processor: those that wait for disks, those
/// that read the kernel's requests, and those that have it forget.
const BESIDE: usize = 24;
/// Of those that wait for disks so many are there from the beginning on. Later there may be no more,
/// and what would wait for one for good holds up whoever waits for it.
const WAITING: usize = 8;
/// They stay for as long as the process: one that has ended may not be had again.
const STAY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

type Work = Box<dyn FnOnce() + Send>;

/// Starts as many threads at once as `who` ("a mount") is going to need, and ends them again. Files are
/// counted first: without some a thread cannot so much as wait for a signal.
pub fn are_there(who: &str) -> Result<()> {
    files_are_enough(who, getrlimit(Resource::Nofile).maximum)?;
    let wanted = available_parallelism().map_or(1, usize::from) + BESIDE;
    together(wanted, |work| Builder::new().spawn(work)).map_err(|Few { started, error }| {
        let what = format!("the {wanted} threads that {who} needs, but {started} of them");
        refused(&what, wanted, &error)
    })
}

/// What carries out tasks, with threads for what waits for disks that stay.
pub fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().thread_keep_alive(STAY).build();
    let runtime = runtime.context("cannot start threads")?;
    let gate = Arc::new(Mutex::new(()));
    // While it is closed none of them is free for the next.
    let _closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..WAITING {
        let gate = gate.clone();
        runtime.spawn_blocking(move || drop(gate.lock()));
    }
    Ok(runtime)
}

/// Less would not do for the tables, the sockets and the signals.
const FILES_MIN: u64 = 32;

fn files_are_enough(who: &str, most: Option<u64>) -> Result<()> {
    match most {
        Some(most) if most < FILES_MIN => Err(fail(
            Exit::Failure,
            format!(
                "this process may have {most} files and sockets open at once, and {who} needs {FILES_MIN} at \
                 least: raise that limit, in a shell `ulimit -Hn 1024`, in a unit of systemd LimitNOFILE="
            ),
        )),
        _ => Ok(()),
    }
}

/// What is said of so many processes or threads that could not be started.
pub fn refused(what: &str, wanted: usize, error: &io::Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::WouldBlock => format!(". {}", Limits::read().advice(wanted as u64)),
        _ => String::new(),
    };
    fail(Exit::Failure, format!("cannot start {what}: {error}{advice}"))
}

/// How many there were, and why there were no more.
#[derive(Debug)]
struct Few {
    started: usize,
    error: io::Error,
}

/// Threads that wait, so that all are there at once.
fn together(wanted: usize, spawn: impl Fn(Work) -> io::Result<JoinHandle<()>>) -> Result<(), Few> {
    let gate = Arc::new(Mutex::new(()));
    let mut threads = Vec::new();
    let outcome = {
        let _closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        (0..wanted).try_for_each(|started| {
            let gate = gate.clone();
            let thread = spawn(Box::new(move || drop(gate.lock())));
            threads.push(thread.map_err(|error| Few { started, error })?);
            Ok(())
        })
    };
    for thread in threads {
        // It does nothing that could fail.
        let _ = thread.join();
    }
    outcome
}

/// What limits processes and threads, which count alike.
#[derive(Debug, Default)]
struct Limits {
    /// Of the user.
    user: Option<u64>,
    /// Bytes of addresses, of this process: each thread takes some for its stack.
    addresses: Option<u64>,
    /// Control groups, from the innermost: what each has and may have.
    groups: Vec<(PathBuf, u64, u64)>,
}

impl Limits {
    fn read() -> Limits {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        let group = |path: &Path| {
            let (has, most) = (number(path.join("pids.current"))?, number(path.join("pids.max"))?);
            Some((path.to_path_buf(), has, most))
        };
        let all = Path::new(CONTROL_GROUPS).join(own);
        let groups = all.ancestors().filter(|path| path.starts_with(CONTROL_GROUPS));
        Limits {
            user: getrlimit(Resource::Nproc).current,
            addresses: getrlimit(Resource::As).current,
            groups: groups.filter_map(group).collect(),
        }
    }

    /// Which one is met with so many more, as far as can be told, and how it is raised.
    fn advice(&self, wanted: u64) -> String {
        let met = |group: &&(PathBuf, u64, u64)| group.1.saturating_add(wanted) > group.2;
        let group = self.groups.iter().find(met);
        let addresses = self.addresses.filter(|_| group.is_none());
        let addresses = addresses.map_or(String::new(), |most| {
            format!(
                "This process may have {} of addresses (`ulimit -v`), and each thread takes some: raise that, \
                 in a unit of systemd with LimitAS=. If it is not that: ",
                units::show_size(most)
            )
        });
        addresses + &self.of_number(group)
    }

    fn of_number(&self, group: Option<&(PathBuf, u64, u64)>) -> String {
        match (group, self.user) {
            (Some((path, has, most)), _) => format!(
                "The control group {} has {has} processes and threads of the {most} that it may have \
                 (pids.max): raise that, in a unit of systemd with TasksMax=, of a container with \
                 --pids-limit",
                path.display()
            ),
            (None, Some(most)) => format!(
                "The user may have {most} processes and threads at once (`ulimit -u`): raise that, in \
                 /etc/security/limits.conf (nproc), or in a unit of systemd with LimitNPROC=, or end \
                 some of the user's processes"
            ),
            (None, None) => "The machine has no room for more: look at the sysctls \
                             kernel.threads-max and kernel.pid_max, and at its memory"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_are_there_at_once_and_all_end() {
        let ended = Arc::new(AtomicUsize::new(0));
        let spawned = together(20, |work| {
            assert_eq!(ended.load(Ordering::Acquire), 0, "they wait for each other");
            let ended = ended.clone();
            Builder::new().spawn(move || {
                work();
                ended.fetch_add(1, Ordering::AcqRel);
            })
        });
        assert!(spawned.is_ok());
        assert_eq!(ended.load(Ordering::Acquire), 20);
    }

    #[test]
    fn threads_that_wait_for_disks_are_there_from_the_beginning_on_and_stay() {
        // Unless it is told otherwise, the runtime ends them after ten seconds.
        const LONG: Duration = Duration::from_secs(11);
        let runtime = runtime().unwrap();
        let working = {
            let all = Arc::new(Barrier::new(WAITING));
            let spawn = |_| {
                let all = all.clone();
                runtime.spawn_blocking(move || {
                    all.wait();
                    rustix::thread::gettid().as_raw_nonzero()
                })
            };
            (0..WAITING).map(spawn).collect::<Vec<_>>()
        };
        let ids = working.into_iter().map(|work| runtime.block_on(work).unwrap());
        let ids: HashSet<_> = ids.collect();
        assert_eq!(ids.len(), WAITING);
        std::thread::sleep(LONG);
        let own = Path::new("/proc/self/task");
        assert!(ids.iter().all(|id| own.join(id.to_string()).exists()));
    }

    #[test]
    fn where_there_are_too_few_those_that_are_there_end_and_it_is_told() {
        let left = Cell::new(3_usize);
        let few = together(20, |work| {
            let next = left.get().checked_sub(1).ok_or(ErrorKind::WouldBlock)?;
            left.set(next);
            Builder::new().spawn(work)
        });
        let few = few.unwrap_err();
        assert_eq!((few.started, few.error.kind()), (3, ErrorKind::WouldBlock));
    }

    #[test]
    fn the_limit_that_is_met_is_named_and_how_it_is_raised() {
        let group = |name: &str, has, most| (PathBuf::from(name), has, most);
        let groups = vec![group("/a/b", 3, 900), group("/a", 90, 100)];
        let all = Limits { user: Some(64), addresses: None, groups };
        let said = all.advice(11);
        assert!(said.contains("group /a has 90") && said.contains("TasksMax="), "{said}");
        let said = all.advice(10);
        assert!(said.contains("64") && said.contains("ulimit -u"), "{said}");
        assert!(Limits::default().advice(10).contains("kernel.threads-max"));
        let said = Limits { addresses: Some(200 << 20), ..all }.advice(10);
        assert!(said.contains("200.0 MiB") && said.contains("`ulimit -v`"), "{said}");
        assert!(said.contains("`ulimit -u`"), "{said}");
        for most in [Some(FILES_MIN), None] {
            files_are_enough("a mount", most).unwrap();
        }
        let said = files_are_enough("a mount", Some(16)).unwrap_err().to_string();
        assert!(said.contains("16 files") && said.contains("`ulimit -Hn 1024`"), "{said}");
    }
}
