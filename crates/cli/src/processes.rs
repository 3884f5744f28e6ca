//! Other processes, as /proc shows them, and what the system lets this one have.

use crate::exit::{Exit, fail};
use crate::units;
use anyhow::Result;
use rustix::process::{Resource, Rlimit};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The most users of a file system that a message names.
const USERS_MAX: usize = 5;
/// How long they are looked for: what other processes use may lie on file systems that wait.
const USERS_WITHIN: Duration = Duration::from_secs(2);

/// As many open files as the system lets this process have: a cached file that is open takes one.
pub fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of open files stays limited");
    }
}

/// Less would not do for the tables of a mount, or a pack of a server.
const FILE_BYTES_MIN: u64 = 128 << 20;

/// A write beyond the limit of the size of files fails from now on, as on a full disk, and ends nobody; and
/// files may be as large as the system lets this process make them, whatever a shell meant for its own programs. To be
/// called before anything is written. Error: what the system lets it have is too little.
pub fn raise_file_size(what: &str) -> Result<()> {
    #[allow(unsafe_code, reason = "the kernel is told so by no other call")]
    // SAFETY: to ignore a signal runs no code of ours when it comes.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
    // What stays is told with the limit.
    let _ = rustix::process::setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum });
    match file_bytes_max() {
        Some(most) if most < FILE_BYTES_MIN => Err(fail(
            Exit::Failure,
            format!(
                "files that this process writes may have {} at most, and {what} needs {}: raise that limit, \
                 in a shell `ulimit -Hf unlimited`, in a unit of systemd LimitFSIZE=infinity",
                units::show_size(most),
                units::show_size(FILE_BYTES_MIN)
            ),
        )),
        _ => Ok(()),
    }
}

/// Says in the log what is left of that limit.
pub fn tell_file_size() {
    if let Some(bytes_max) = file_bytes_max() {
        tracing::warn!(
            bytes_max,
            "no file that this process writes may be larger (`ulimit -Hf`, LimitFSIZE=): what needs a \
             larger one fails with EFBIG, or as on a full disk"
        );
    }
}

fn file_bytes_max() -> Option<u64> {
    rustix::process::getrlimit(Resource::Fsize).current
}

/// Heaps that threads share. Each would have its own, and none gives back what another could use:
/// after files by the hundred thousand that is most of the memory of a client or a server.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 2;
/// What is as large is given back to the system when it is not needed any more, as what a log with updates by
/// the hundred thousand is looked through with. Unless this is said, the C library takes it into a heap from the second
/// time on.
#[cfg(target_env = "gnu")]
const APART_BYTES: i32 = 8 << 20;
/// So much a heap keeps at its end for the next who needs it. The C library would go by this itself if it
/// were not told the other, and gives back each larger buffer now unless it is said.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 2 * APART_BYTES;

/// To be called before there are threads.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code, reason = "there is no other way to say this to the C library")]
    // SAFETY: mallopt takes two numbers, keeps no pointer, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// What this process was started with besides its input and its outputs, as the lock of a script that runs it,
/// stays with it: what it starts from now on does not have it. To be called before there are threads.
pub fn keep_what_is_open() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|file| file.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > libc::STDERR_FILENO) {
        #[allow(
            unsafe_code,
            reason = "of a descriptor that nobody here has opened there is but the number"
        )]
        // SAFETY: it sets a flag; a number that leads to nothing any more is an error without a consequence.
        unsafe {
            libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// When the process began, in ticks since the machine did. With its id it is that process and
/// no later one. None: there is none.
pub fn started(pid: u32) -> Option<u64> {
    start_field(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether it is that process, and dead but for a thread that waits in the kernel and keeps open what the
/// process had open.
pub fn is_left(pid: u32, started: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let seen = stat.ok().and_then(|stat| seen(&stat));
    seen.is_some_and(|seen| seen.is_dead && seen.threads > 1 && seen.started == started)
}

/// Whether /proc shows that it is dead, or another one by now. What cannot be looked at may live.
pub fn is_dead(pid: u32, started: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let seen = stat.ok().and_then(|stat| seen(&stat));
    seen.is_some_and(|seen| seen.is_dead || seen.started != started)
}

fn start_field(stat: &str) -> Option<u64> {
    // A dead process that nobody has waited for yet is no process.
    seen(stat).and_then(|seen| (!seen.is_dead).then_some(seen.started))
}

/// What /proc says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    is_dead: bool,
    /// The first one counts until the process is gone.
    threads: u32,
    started: u64,
}

/// Fields 3, 20 and 22; the program's name, field 2, stands in brackets and may hold anything.
fn seen(stat: &str) -> Option<Seen> {
    let (before, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if before.is_empty() {
        return None;
    }
    let is_dead = matches!(fields.first()?, &("Z" | "X"));
    let threads = fields.get(17)?.parse().ok()?;
    Some(Seen { is_dead, threads, started: fields.get(19)?.parse().ok()? })
}

/// The farfs process of a user that was told to mount there and has mounted something. None: it has ended, is
/// trying just that, or cannot be seen from here.
pub fn mounted_at(mountpoint: &Path, owner: u32) -> Option<u32> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let owned = std::fs::metadata(&process).is_ok_and(|process| process.uid() == owner);
        let name = || std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        let said = || std::fs::read(process.join("cmdline")).unwrap_or_default();
        owned
            && *pid != std::process::id()
            && name().trim() == "farfs"
            && mounts_at(&said(), mountpoint.as_os_str().as_bytes())
            && started(*pid).is_some()
            && serves(&process)
    })
}

/// It has a connection with the kernel. What cannot be looked at may have.
fn serves(process: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(process.join("fd")) else { return true };
    let is_fuse =
        |link: &Path| std::fs::read_link(link).is_ok_and(|to| to == Path::new("/dev/fuse"));
    files.flatten().any(|file| is_fuse(&file.path()))
}

/// Of a command line as /proc shows it.
fn mounts_at(said: &[u8], mountpoint: &[u8]) -> bool {
    let mut words = said.split(|byte| *byte == 0).skip(1);
    words.next().is_some_and(|word| word == b"daemon" || word == b"mount")
        && words.any(|word| word == mountpoint)
}

/// Processes that keep a file system busy: "bash (1234)".
pub fn using(mountpoint: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id() && uses(*pid, mountpoint))
        .take(USERS_MAX)
        .map(|pid| format!("{} ({pid})", name(pid)))
        .collect()
}

/// Processes that use a device, which may be out of sight, as above.
pub fn using_device(device: &str) -> Vec<String> {
    let (sender, found) = mpsc::channel();
    let device = device.to_owned();
    let looks = std::thread::Builder::new().spawn(move || {
        for pid in mount::users(&device).take(USERS_MAX + 1) {
            // Nobody may listen any more.
            let _ = sender.send(pid);
        }
    });
    if looks.is_err() {
        return Vec::new();
    }
    let until = Instant::now() + USERS_WITHIN;
    let next = || found.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    let named = std::iter::from_fn(next).map(|pid| (pid, name(pid)));
    // The command that has started this process stands where its user does.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_pid().cast_unsigned());
    named
        .filter(|(pid, name)| Some(*pid) != parent || name != "farfs")
        .take(USERS_MAX)
        .map(|(pid, name)| format!("{name} ({pid})"))
        .collect()
}

fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The links are read, never followed: nothing here waits for the file system itself.
fn uses(pid: u32, mountpoint: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let below = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(mountpoint));
    if ["cwd", "root", "exe"].iter().any(|link| below(&process.join(link))) {
        return true;
    }
    std::fs::read_dir(process.join("fd"))
        .is_ok_and(|files| files.flatten().any(|file| below(&file.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_start() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(start_field(&format!("42 (a) b) {tail}")), Some(777));
        let dead = format!("42 (dead) {}", tail.replacen('S', "Z", 1));
        assert_eq!(start_field(&dead), None);
        assert_eq!(seen(&dead), Some(Seen { is_dead: true, threads: 17, started: 777 }));
        assert_eq!(start_field("nonsense"), None);
    }

    #[test]
    fn a_process_that_mounts_is_told_from_one_that_asks() {
        assert!(mounts_at(b"/usr/bin/farfs\0daemon\0/mnt\0", b"/mnt"));
        assert!(mounts_at(b"farfs\0mount\0--foreground\0farfs://h:1/v\0/mnt\0", b"/mnt"));
        assert!(!mounts_at(b"farfs\0status\0/mnt\0", b"/mnt"));
        assert!(!mounts_at(b"farfs\0daemon\0/mnt/other\0", b"/mnt"));
        assert!(!mounts_at(b"", b"/mnt"));
    }

    #[test]
    fn this_process_has_a_start_and_one_that_cannot_be_has_none() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }
}
