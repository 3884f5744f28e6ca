//! The mounts of this machine: a file for each in the runtime directory, beside what the kernel
//! says is mounted.
//! Holds: a mount is live if the very process that registered it still runs.
//! Never: touches a mounted file system, which might wait for the link.

use crate::exit::{Exit, OrExit, fail};
use crate::processes;
use anyhow::{Context, Result};
use model::{FileId, Name};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

mod away;
mod noted;

pub use noted::{clearing, register};

/// What the daemon writes of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub mountpoint: PathBuf,
    pub state_directory: PathBuf,
    pub pid: u32,
    /// When the process began: a later process may have its id.
    pub started: u64,
    /// What is mounted, as the kernel's table has it: `major:minor`.
    #[serde(default)]
    pub device: Option<String>,
    /// By which the kernel knows the mount of it there, also when a directory above is called otherwise.
    #[serde(default)]
    pub mount: Option<u64>,
}

impl Entry {
    fn live(&self) -> bool {
        processes::started(self.pid) == Some(self.started)
    }

    /// By the path that its mount point has by now: it is noted as it was when it was mounted.
    fn where_it_is(mut self, table: &[InKernel]) -> Entry {
        let is_its = |line: &&InKernel| {
            self.device.as_ref() == Some(&line.device) && self.mount == Some(line.mount)
        };
        if let Some(line) = table.iter().find(is_its) {
            self.mountpoint.clone_from(&line.at);
        }
        self
    }

    /// The process is dead, and not gone.
    fn is_left(&self) -> bool {
        processes::is_left(self.pid, self.started)
    }
}

/// All live mounts, by mount point.
pub fn live() -> Vec<Entry> {
    entries(Entry::live)
}

/// Whether a process that was mounted there is dead, and the mount is there all the same.
pub fn is_left_at(mountpoint: &Path) -> bool {
    let dead = entries(|entry| !entry.live() && is_in_kernel(entry));
    dead.iter().any(|entry| entry.mountpoint == mountpoint) && is_dead(mountpoint)
}

/// Mounts whose process is dead, and holds what it had open all the same.
pub fn left() -> Vec<Entry> {
    entries(Entry::is_left)
}

fn entries(wanted: fn(&Entry) -> bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = noted::entries().into_iter().filter(wanted).collect();
    entries.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    entries.dedup();
    entries
}

/// The live mount that keeps its state there.
pub fn with_state(state_directory: &Path) -> Option<Entry> {
    live().into_iter().find(|entry| entry.state_directory == state_directory)
}

/// The live mount that was mounted there: of several the one that is to be seen.
pub fn live_at(mountpoint: &Path) -> Option<Entry> {
    live().into_iter().filter(|entry| entry.mountpoint == mountpoint).min_by_key(Entry::is_away)
}

/// Whether a live mount is to be seen there.
pub fn is_live_at(mountpoint: &Path) -> bool {
    live_at(mountpoint).is_some_and(|entry| !entry.is_away())
}

/// What a path lies in.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    Live(Entry),
    /// A mount that no entry was found for: its process has died, or it is another user's.
    Unlisted(PathBuf),
    Outside,
}

impl Place {
    /// The innermost of a path without `.`, `..` and symbolic links.
    pub fn of(path: &Path) -> Place {
        innermost(live(), farfs_in_kernel().collect(), path)
    }
}

/// The live mount in which `path` lies: the innermost.
pub fn holding(path: &Path) -> Result<Entry> {
    let path = absolute(path)?;
    match Place::of(&path) {
        Place::Live(entry) => Ok(entry),
        Place::Unlisted(mountpoint) => Err(fail(Exit::Failure, unlisted(&mountpoint))),
        Place::Outside => Err(fail(
            Exit::NotFound,
            format!("{} is not in a farfs mount (farfs status lists them)", path.display()),
        )),
    }
}

fn depth(mountpoint: &Path) -> usize {
    mountpoint.components().count()
}

/// The line of the table by which a path is found: the last of the innermost.
fn over<'a>(table: &'a [InKernel], path: &Path) -> Option<&'a InKernel> {
    let over = table.iter().filter(|mounted| path.starts_with(&mounted.at));
    over.max_by_key(|mounted| depth(&mounted.at))
}

fn innermost(mut live: Vec<Entry>, in_kernel: Vec<InKernel>, path: &Path) -> Place {
    let mounted = over(&in_kernel, path);
    let of_it = mounted.and_then(|mounted| mounted.process(&live, &in_kernel));
    if let Some(at) = of_it {
        return Place::Live(live.swap_remove(at));
    }
    let mounted = mounted.map(|mounted| mounted.at.clone());
    let entry = live
        .into_iter()
        .filter(|entry| path.starts_with(&entry.mountpoint))
        .max_by_key(|entry| depth(&entry.mountpoint));
    match (entry, mounted) {
        (Some(entry), Some(mounted)) if depth(&mounted) > depth(&entry.mountpoint) => {
            Place::Unlisted(mounted)
        }
        (Some(entry), _) => Place::Live(entry),
        (None, Some(mounted)) => Place::Unlisted(mounted),
        (None, None) => Place::Outside,
    }
}

/// What to say of a mount that no entry was found for.
pub fn unlisted(mountpoint: &Path) -> String {
    let of_kernel = farfs_in_kernel().filter(|mounted| mounted.at == mountpoint).last();
    let Some(owner) = of_kernel.and_then(|mounted| mounted.owner) else { return died(mountpoint) };
    let caller = rustix::process::getuid();
    let process = processes::mounted_at(mountpoint, owner);
    unseen(mountpoint, owner, process, caller.is_root() || caller.as_raw() == owner)
}

fn unseen(mountpoint: &Path, owner: u32, process: Option<u32>, may_ask: bool) -> String {
    let shown = mountpoint.display();
    let user = crate::owner::user_name(owner);
    let alive = process.map_or(String::new(), |pid| format!(" (process {pid})"));
    match (may_ask, process) {
        (false, _) => {
            let who = if owner == 0 { user.clone() } else { format!("{user} or root") };
            format!("{shown} is mounted by {user}{alive}; only {who} may ask about it")
        }
        (true, Some(_)) => format!(
            "{shown} is mounted by {user}{alive}, who has noted it in another place: ask as {user}, \
             with XDG_RUNTIME_DIR as it was then"
        ),
        (true, None) => died(mountpoint),
    }
}

/// What to say of a mount whose process has died.
fn died(mountpoint: &Path) -> String {
    let shown = mountpoint.display();
    format!(
        "the farfs process that was mounted at {shown} has died; `farfs umount {shown}` clears \
         the mount point, and `farfs mount {shown}` goes on from what is on this machine's disk"
    )
}

/// The live mount that was meant: the one of that path, the one in which the program stands, or the
/// only one.
pub fn meant(path: Option<&Path>) -> Result<Entry> {
    if let Some(path) = path {
        return holding(path);
    }
    let mut all = live();
    let here = std::env::current_dir().ok();
    if let Some(here) = here
        && let Place::Live(entry) = Place::of(&here)
    {
        return Ok(entry);
    }
    match all.len() {
        0 => Err(match unlisted_mountpoints(&all).first() {
            Some(dead) => fail(Exit::Failure, died(dead)),
            None => fail(Exit::NotFound, "no farfs volume is mounted"),
        }),
        1 => Ok(all.remove(0)),
        _ => {
            let list: Vec<_> = all.iter().map(|e| e.mountpoint.display().to_string()).collect();
            let what = "there are several mounts: name one, or a path in it (where the command \
                        takes a number, after --in)";
            Err(fail(Exit::Usage, format!("{what}: {}", list.join(", "))))
        }
    }
}

/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;

/// As `spelled`; of what lies in a farfs mount that shows in another place too (`mount --bind`), by the place
/// where its process has mounted it.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    Ok(where_it_was_mounted(spelled(path)?, &live(), &table()))
}

fn where_it_was_mounted(path: PathBuf, live: &[Entry], table: &[InKernel]) -> PathBuf {
    let Some(mounted) = over(table, &path) else { return path };
    let Some(entry) = mounted.process(live, table).and_then(|at| live.get(at)) else { return path };
    if mounted.at == entry.mountpoint {
        return path;
    }
    let relative = |path: &Path, to: &Path| path.strip_prefix(to).map(Path::to_path_buf);
    match (relative(&mounted.root, Path::new("/")), relative(&path, &mounted.at)) {
        // Without the slash that an empty rest would leave.
        (Ok(root), Ok(rest)) => {
            let there: PathBuf = entry.mountpoint.join(root).join(rest).components().collect();
            // Something else may be mounted over it, or in it.
            let is_it = |over: &InKernel| over.device == mounted.device;
            if over(table, &there).is_some_and(is_it) { there } else { path }
        }
        _ => path,
    }
}

/// The path without `.`, `..` and symbolic links. What lies in a farfs mount is not looked at.
pub fn spelled(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).context("there is no current directory")?;
    let mounted = farfs_mountpoints();
    let link = |path: &Path, _| {
        let inside = mounted.iter().any(|mountpoint| path.starts_with(mountpoint));
        Ok(if inside { None } else { std::fs::read_link(path).ok() })
    };
    resolve(&path, link)
}

/// Without `.`, `..` and what `link` says is a symbolic link; it is told whether nothing comes after.
pub fn resolve(
    path: &Path,
    mut link: impl FnMut(&Path, bool) -> Result<Option<PathBuf>>,
) -> Result<PathBuf> {
    let backwards = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|component| component.as_os_str().into()).collect()
    };
    let mut ahead = backwards(path);
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    while let Some(component) = ahead.pop() {
        if component == ".." {
            resolved.pop();
        } else if component != "." {
            // An absolute link starts over: pushing "/" replaces what was there.
            resolved.push(component);
            let target = if links < LINKS_MAX { link(&resolved, ahead.is_empty())? } else { None };
            if let Some(target) = target {
                links += 1;
                resolved.pop();
                ahead.extend(backwards(&target));
            }
        }
    }
    Ok(resolved)
}

/// The kernel's number of the mount of that device there.
fn number_of(mountpoint: &Path, device: &str) -> Option<u64> {
    let top = table().into_iter().rfind(|line| line.at == mountpoint && line.device == device);
    top.map(|line| line.mount)
}

/// Where the kernel has farfs mounted, also if the daemon is dead.
pub fn farfs_mountpoints() -> Vec<PathBuf> {
    farfs_in_kernel().map(|mounted| mounted.at).collect()
}

/// Where the kernel has farfs mounted for this user, and none of the `live` ones; root sees all.
pub fn unlisted_mountpoints(live: &[Entry]) -> Vec<PathBuf> {
    let own = rustix::process::getuid();
    let owned = |mounted: &InKernel| own.is_root() || mounted.owner == Some(own.as_raw());
    let in_kernel: Vec<InKernel> = farfs_in_kernel().collect();
    let is_unlisted = |mounted: &&InKernel| {
        let here = |entry: &Entry| entry.mountpoint == mounted.at && !entry.is_away();
        mounted.process(live, &in_kernel).is_none() && !live.iter().any(here)
    };
    let unlisted = in_kernel.iter().filter(|mounted| owned(mounted)).filter(is_unlisted);
    unlisted.map(|mounted| mounted.at.clone()).collect()
}

fn farfs_in_kernel() -> impl Iterator<Item = InKernel> {
    table().into_iter().filter(InKernel::is_farfs)
}

/// How many farfs mounts the kernel has there, one above the other.
pub fn farfs_at(mountpoint: &Path) -> usize {
    farfs_in_kernel().filter(|mounted| mounted.at == mountpoint).count()
}

/// Whether what is mounted there is farfs, and its process has ended. Of one that lives nothing is
/// asked.
pub fn is_dead(mountpoint: &Path) -> bool {
    let top = table().into_iter().rfind(|mounted| mounted.at == mountpoint);
    let Some(owner) = top.filter(InKernel::is_farfs).and_then(|mounted| mounted.owner) else {
        return false;
    };
    let lives = is_live_at(mountpoint) || processes::mounted_at(mountpoint, owner).is_some();
    // Attributes the kernel may have cached.
    !lives && rustix::fs::statfs(mountpoint).is_err_and(|errno| errno == rustix::io::Errno::NOTCONN)
}

/// Whether the kernel still has the very mount of that process.
pub fn is_in_kernel(mount: &Entry) -> bool {
    let is_it = |mounted: InKernel| {
        mounted.at == mount.mountpoint && Some(&mounted.device) == mount.device.as_ref()
    };
    farfs_in_kernel().any(is_it)
}

/// Whether the kernel has anything mounted there.
pub fn is_mounted(mountpoint: &Path) -> bool {
    table().iter().any(|mounted| mounted.at == mountpoint)
}

/// A line of the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InKernel {
    /// Its number.
    mount: u64,
    at: PathBuf,
    /// What of it is mounted there, from its root.
    root: PathBuf,
    /// `major:minor`.
    device: String,
    kind: Vec<u8>,
    /// Who mounted it, if it is FUSE.
    owner: Option<u32>,
}

impl InKernel {
    fn is_farfs(&self) -> bool {
        self.kind == b"fuse.farfs"
    }

    /// Which of these has mounted it here, or elsewhere, where the `table` has it still: when it has been
    /// unmounted, another may get the number of its device while the process goes on.
    fn process(&self, live: &[Entry], table: &[InKernel]) -> Option<usize> {
        let is_its = |entry: &Entry| entry.device.as_ref() == Some(&self.device);
        let is_at = |line: &InKernel, entry: &Entry| {
            line.at == entry.mountpoint && line.device == self.device
        };
        let here = live.iter().position(|entry| is_its(entry) && is_at(self, entry));
        let there = |entry: &Entry| is_its(entry) && table.iter().any(|line| is_at(line, entry));
        here.or_else(|| live.iter().position(there)).filter(|_| self.is_farfs())
    }
}

fn table() -> Vec<InKernel> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(in_kernel).collect()
}

/// Of one line of mountinfo: `36 35 98:0 /root /mountpoint options … - type source options`.
fn in_kernel(line: &[u8]) -> Option<InKernel> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = String::from_utf8(fields.nth(1)?.to_vec()).ok()?;
    let (root, at) = (unescape(fields.next()?), unescape(fields.next()?));
    let mut fields = fields.skip_while(|field| *field != b"-");
    let kind = fields.nth(1)?.to_vec();
    let options = fields.nth(1).and_then(|options| std::str::from_utf8(options).ok());
    let owner = options.and_then(|options| {
        options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    });
    Some(InKernel { mount, at, root, device, kind, owner })
}

/// Blanks and the like stand as `\040`.
fn unescape(bytes: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            rest = &tail[3..];
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    OsString::from_vec(plain).into()
}

/// The file system's id of a path as the kernel tells a program: its inode number.
pub fn inode(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::symlink_metadata(path).map_err(|error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::TimedOut => Exit::Unreachable,
            _ => Exit::Failure,
        };
        fail(exit, format!("cannot look at {}: {error}", path.display()))
    })?;
    Ok(metadata.ino())
}

/// The directory and the name by which a path leads to a file. None: it is the mount itself.
pub fn called(mount: &Entry, path: &Path) -> Result<Option<client::Place>> {
    use std::os::unix::fs::MetadataExt;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    if path == mount.mountpoint {
        return Ok(None);
    }
    // The directory may be called by a link.
    let looked = || format!("cannot look at {}", above.display());
    let directory = FileId(std::fs::metadata(above).with_context(looked)?.ino());
    let name = Name::new(name.as_bytes()).or_exit(Exit::Usage, "this is no name of a file")?;
    Ok(Some(client::Place { directory, name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mountpoint: &str) -> Entry {
        Entry {
            mountpoint: mountpoint.into(),
            state_directory: "/s".into(),
            pid: 1,
            started: 1,
            device: None,
            mount: None,
        }
    }

    fn in_kernel(at: &str, root: &str, device: &str) -> InKernel {
        let kind = b"fuse.farfs".to_vec();
        let (mount, device, owner) = (7, device.into(), Some(9));
        InKernel { mount, at: at.into(), root: root.into(), device, kind, owner }
    }

    #[test]
    fn a_mount_is_where_its_mount_point_is_by_now() {
        let noted = Entry { device: Some("0:9".into()), mount: Some(7), ..entry("/before/m") };
        let now = |line| noted.clone().where_it_is(&[line]).mountpoint;
        assert_eq!(now(in_kernel("/after/m", "/", "0:9")), Path::new("/after/m"));
        // Another one, of which the number or that of the device is the same.
        assert_eq!(now(in_kernel("/after/m", "/", "0:8")), Path::new("/before/m"));
        let bound = InKernel { mount: 8, ..in_kernel("/after/m", "/", "0:9") };
        assert_eq!(now(bound), Path::new("/before/m"));
        let of_before = Entry { mount: None, ..noted.clone() };
        let line = in_kernel("/after/m", "/", "0:9");
        assert_eq!(of_before.where_it_is(&[line]).mountpoint, Path::new("/before/m"));
    }

    #[test]
    fn what_shows_in_another_place_too_is_of_the_process_that_mounted_it() {
        let of =
            |mountpoint, device: &str| Entry { device: Some(device.into()), ..entry(mountpoint) };
        // The first was unmounted, and its process goes on.
        let live = [of("/before", "0:8"), of("/mnt", "0:9"), of("/now", "0:8")];
        let table = [
            in_kernel("/mnt", "/", "0:9"),
            in_kernel("/bound", "/some/where", "0:9"),
            in_kernel("/inside", "/over", "0:9"),
            in_kernel("/mnt/over", "/", "0:6"),
            in_kernel("/now", "/", "0:8"),
            in_kernel("/dead", "/", "0:7"),
        ];
        let holds = |path: &str| innermost(live.to_vec(), table.to_vec(), Path::new(path));
        assert_eq!(holds("/bound/x"), Place::Live(live[1].clone()));
        assert_eq!(holds("/now/x"), Place::Live(live[2].clone()));
        assert_eq!(holds("/dead/x"), Place::Unlisted("/dead".into()));
        for (path, by_its_mount) in [
            ("/bound", "/mnt/some/where"),
            ("/bound/a/b", "/mnt/some/where/a/b"),
            ("/mnt/a", "/mnt/a"),
            ("/now/a", "/now/a"),
            ("/inside/a", "/inside/a"),
            ("/dead/a", "/dead/a"),
            ("/elsewhere", "/elsewhere"),
        ] {
            let found = where_it_was_mounted(path.into(), &live, &table);
            assert_eq!(found.as_os_str(), by_its_mount, "{path}");
        }
    }

    #[test]
    fn a_path_belongs_to_the_innermost_mount_above_it() {
        let mounts = ["/mnt", "/mnt/a", "/mnt/ab"];
        let holds = |path: &str| {
            let in_kernel = mounts.map(|at| in_kernel(at, "/", "0:9")).to_vec();
            innermost(mounts.map(entry).to_vec(), in_kernel, Path::new(path))
        };
        assert_eq!(holds("/mnt/a/x"), Place::Live(entry("/mnt/a")));
        assert_eq!(holds("/mnt/ac"), Place::Live(entry("/mnt")));
        assert_eq!(holds("/home"), Place::Outside);
    }

    #[test]
    fn a_path_in_a_mount_whose_process_has_died_is_told_from_one_outside() {
        let holds = |path: &str| {
            let in_kernel =
                ["/mnt", "/mnt/dead", "/dead"].map(|at| in_kernel(at, "/", "0:9")).to_vec();
            innermost(vec![entry("/mnt")], in_kernel, Path::new(path))
        };
        assert_eq!(holds("/dead/file"), Place::Unlisted("/dead".into()));
        assert_eq!(holds("/mnt/dead/file"), Place::Unlisted("/mnt/dead".into()));
        assert_eq!(holds("/mnt/file"), Place::Live(entry("/mnt")));
        let said = unseen(Path::new("/dead"), 4_000_000_000, None, true);
        for command in ["`farfs umount /dead`", "`farfs mount /dead`"] {
            assert!(said.contains(command), "{said}");
        }
    }

    #[test]
    fn a_mount_of_another_user_is_not_called_dead() {
        let said = |owner, process, may| unseen(Path::new("/m"), owner, process, may);
        let others = said(4_000_000_000, Some(7), false);
        for part in ["user 4000000000 (process 7)", "only user 4000000000 or root"] {
            assert!(others.contains(part), "{others}");
        }
        // Whether it lives cannot be seen by everybody.
        assert!(!said(4_000_000_000, None, false).contains("died"));
        assert!(said(0, Some(7), false).contains("only root may ask"));
        let hidden = said(0, Some(7), true);
        assert!(hidden.contains("process 7") && hidden.contains("XDG_RUNTIME_DIR"), "{hidden}");
    }

    #[test]
    fn the_kernel_s_table_is_read_with_its_escapes() {
        let line = br"36 35 0:50 / /mnt/my\040files rw shared:1 - fuse.farfs a@b rw,user_id=9";
        let (at, kind) = ("/mnt/my files".into(), b"fuse.farfs".to_vec());
        let device = "0:50".into();
        let root = "/".into();
        assert_eq!(
            super::in_kernel(line),
            Some(InKernel { mount: 36, at, root, device, kind, owner: Some(9) })
        );
        let (at, kind) = ("/".into(), b"ext4".to_vec());
        let line = b"25 1 8:1 /a\\040b / rw - ext4 /dev/sda1 rw";
        let (root, device) = ("/a b".into(), "8:1".into());
        let (mount, owner) = (25, None);
        assert_eq!(super::in_kernel(line), Some(InKernel { mount, at, root, device, kind, owner }));
        assert_eq!(super::in_kernel(b"36 35 0:50 / /mnt rw"), None);
        assert_eq!(super::in_kernel(b""), None);
        assert_eq!(unescape(br"a\"), PathBuf::from(r"a\"));
    }

    #[test]
    fn a_path_through_a_symbolic_link_is_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::os::unix::fs::symlink("loop", base.join("loop")).unwrap();
        assert_eq!(spelled(&base.join("link/../link/x")).unwrap(), base.join("real/x"));
        assert_eq!(spelled(&base.join("missing/y")).unwrap(), base.join("missing/y"));
        assert_eq!(spelled(&base.join("loop/y")).unwrap(), base.join("loop/y"));
    }
}
