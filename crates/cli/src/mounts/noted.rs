//! Where mounts are noted: a file for each, in a directory of the user who has mounted.
//! Holds: a note is written into a directory of one's own, and nowhere else; what another user has put
//! into his is neither waited for nor followed, and is believed of what the kernel has mounted for him.

use super::{Entry, farfs_in_kernel, is_in_kernel, number_of, table};
use crate::exit::{Exit, fail};
use crate::lock::{self, Lock};
use crate::processes;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::ordinary;

/// The longest that another may take to clear a mount away.
const CLEARING: Duration = Duration::from_secs(10);
/// What is read of a directory, and of a note in it.
const NOTES_MAX: usize = 4096;
const NOTE_BYTES_MAX: u64 = 64 << 10;
const OF_ROOT: &str = "/run/farfs";

/// Registered while it lives.
pub struct Registered(PathBuf);

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Of the caller: /run/farfs, $XDG_RUNTIME_DIR/farfs, or a directory of the user's below /tmp.
fn runtime_directory() -> PathBuf {
    let uid = rustix::process::getuid();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if uid.is_root() => OF_ROOT.into(),
        Some(directory) if !directory.is_empty() => Path::new(&directory).join("farfs"),
        _ => below_tmp(uid.as_raw()),
    }
}

fn below_tmp(uid: u32) -> PathBuf {
    format!("/tmp/farfs-{uid}").into()
}

/// Whether it is a directory of that user's, and no link to another.
fn is_of(directory: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(directory).is_ok_and(|it| it.is_dir() && it.uid() == uid)
}

/// A directory below /tmp may be anybody's: a user believes nobody else but root.
fn is_trusted(directory: &Path, own: u32) -> bool {
    if directory == below_tmp(own) {
        return is_of(directory, own);
    }
    std::fs::metadata(directory).is_ok_and(|it| it.is_dir() && [0, own].contains(&it.uid()))
}

/// Directories of other users in which root looks, and whose they are.
fn of_others() -> Vec<(PathBuf, u32)> {
    let users = std::fs::read_dir("/run/user").into_iter().flatten().flatten();
    let uids = users.filter_map(|user| user.file_name().to_str()?.parse().ok());
    let mut others: Vec<(PathBuf, u32)> =
        uids.map(|uid: u32| (format!("/run/user/{uid}/farfs").into(), uid)).collect();
    // Of those who mounted something there is a directory, if they had no other place.
    let mut owners: Vec<u32> = farfs_in_kernel().filter_map(|mounted| mounted.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    others.extend(owners.into_iter().map(|uid| (below_tmp(uid), uid)));
    others.retain(|(directory, uid)| is_of(directory, *uid));
    others
}

/// All that are noted: one's own and root's; root sees those of all.
pub fn entries() -> Vec<Entry> {
    let own = rustix::process::getuid();
    let mut directories = vec![runtime_directory(), OF_ROOT.into()];
    directories.dedup();
    let trusted = directories.iter().filter(|directory| is_trusted(directory, own.as_raw()));
    let mut found: Vec<Entry> =
        trusted.flat_map(|directory| entries_of(directory)).map(|(_, entry)| entry).collect();
    if own.is_root() {
        for (directory, uid) in of_others() {
            let entries = entries_of(&directory).into_iter().map(|(_, entry)| entry);
            found.extend(entries.filter(|entry| is_mounted_by(entry, uid)));
        }
    }
    found
}

/// Whether the kernel has it mounted for that user.
fn is_mounted_by(entry: &Entry, uid: u32) -> bool {
    farfs_in_kernel().any(|mounted| {
        let is_it =
            mounted.at == entry.mountpoint && Some(&mounted.device) == entry.device.as_ref();
        is_it && mounted.owner == Some(uid)
    })
}

fn entries_of(directory: &Path) -> Vec<(PathBuf, Entry)> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let table = table();
    files
        .take(NOTES_MAX)
        .map(|file| file.path())
        .filter(|path| path.extension() == Some(OsStr::new("json")))
        .filter_map(|path| read(&path).map(|entry| (path, entry.where_it_is(&table))))
        .collect()
}

/// None: it is none. Neither a pipe nor a lease on it is waited for.
fn read(note: &Path) -> Option<Entry> {
    let at_once = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(at_once).open(note).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub fn register(
    mountpoint: &Path,
    state_directory: &Path,
    device: Option<&str>,
) -> Result<Registered> {
    let pid = std::process::id();
    let entry = Entry {
        mountpoint: mountpoint.into(),
        state_directory: state_directory.into(),
        pid,
        started: processes::started(pid).context("/proc does not show this process")?,
        device: device.map(str::to_owned),
        mount: device.and_then(|device| number_of(mountpoint, device)),
    };
    let directory = made_runtime_directory()?;
    if !is_trusted(&directory, rustix::process::getuid().as_raw()) {
        return Err(of_somebody_else(&directory));
    }
    let is_stale = |entry: &Entry| !entry.live() && !entry.is_left() && !is_in_kernel(entry);
    for stale in entries_of(&directory).into_iter().filter(|(_, entry)| is_stale(entry)) {
        let _ = std::fs::remove_file(stale.0);
    }
    write(&directory, &entry).map(Registered)
}

fn of_somebody_else(directory: &Path) -> anyhow::Error {
    fail(
        Exit::Failure,
        format!(
            "mounts are noted in {}, and that is no directory of this user's: somebody else may have \
             made it. Have it removed, or set XDG_RUNTIME_DIR to a directory of this user's",
            directory.display()
        ),
    )
}

/// Gives back where it is.
fn write(directory: &Path, entry: &Entry) -> Result<PathBuf> {
    let path = directory.join(format!("{}.json", entry.pid));
    let fresh = directory.join(format!("{}.new", entry.pid));
    let write = || -> Result<()> {
        // What an earlier process of this number has left.
        let _ = std::fs::remove_file(&fresh);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o644);
        let mut file = ordinary::open(&fresh, &mut options)?;
        file.write_all(&serde_json::to_vec(entry)?)?;
        Ok(std::fs::rename(&fresh, &path)?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn made_runtime_directory() -> Result<PathBuf> {
    let directory = runtime_directory();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// While it is held no other farfs process of this user clears away the mount of a dead one: what is seen to be
/// dead stays the one that is unmounted. None: another takes too long, or there is no place for it.
pub fn clearing() -> Option<Lock> {
    let own = rustix::process::getuid().as_raw();
    let directory = made_runtime_directory().ok().filter(|it| is_trusted(it, own))?;
    let until = Instant::now() + CLEARING;
    loop {
        if let Some(lock) = lock::try_lock(&directory).ok()? {
            return Some(lock);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(CLEARING / 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(10);

    fn entry(mountpoint: &str, pid: u32) -> Entry {
        let (mountpoint, state_directory) = (mountpoint.into(), "/s".into());
        let (device, mount) = (Some("0:57".into()), None);
        Entry { mountpoint, state_directory, pid, started: 1, device, mount }
    }

    #[test]
    fn what_another_user_has_put_among_his_notes_is_neither_waited_for_nor_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        write(directory.path(), &entry("/mnt", 7)).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe.json"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        symlink("/dev/zero", at("endless.json")).unwrap();
        symlink(at("7.json"), at("again.json")).unwrap();
        std::fs::create_dir(at("directory.json")).unwrap();
        std::fs::write(at("large.json"), vec![b' '; 2 * NOTE_BYTES_MAX as usize]).unwrap();
        let (sender, found) = mpsc::channel();
        let place = directory.path().to_path_buf();
        std::thread::spawn(move || sender.send(entries_of(&place)));
        let found = found.recv_timeout(SOON).expect("nothing is waited for");
        assert_eq!(found, [(at("7.json"), entry("/mnt", 7))]);
    }

    #[test]
    fn a_note_is_written_to_no_file_of_somebody_elses_choice() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        std::fs::write(&precious, "kept").unwrap();
        symlink(&precious, directory.path().join("7.new")).unwrap();
        write(directory.path(), &entry("/mnt", 7)).unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "kept");
        assert_eq!(entries_of(directory.path()).len(), 1);
    }

    #[test]
    fn a_directory_of_somebody_else_is_trusted_by_nobody_but_him() {
        const SOMEBODY: u32 = 4_000_000_000;
        let directory = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(directory.path()).unwrap().uid();
        let link = directory.path().join("link");
        symlink(directory.path(), &link).unwrap();
        assert!(is_trusted(directory.path(), own) && is_of(directory.path(), own));
        assert!(is_trusted(&link, own) && !is_of(&link, own));
        assert_eq!(is_trusted(directory.path(), SOMEBODY), own == 0);
        if chown(directory.path(), Some(SOMEBODY), None).is_ok() {
            assert!(!is_trusted(directory.path(), 0) && !is_trusted(directory.path(), 1000));
        }
    }

    #[test]
    fn what_another_user_notes_of_what_the_kernel_has_not_mounted_for_him_is_not_believed() {
        let mounted_nowhere = entry("/mnt/nowhere", std::process::id());
        assert!(!is_mounted_by(&mounted_nowhere, 1000));
        // Of the root of this machine nobody is asked.
        assert!(!is_mounted_by(&entry("/", std::process::id()), 0));
    }
}
