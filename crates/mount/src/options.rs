//! How a volume is mounted, and in which words it is said that it cannot be.

use fuse::{Agreed, How, InitFlags, Settings};
use rustix::fs::{Access, StatFs, access, stat, statfs};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `mount` shows as the kind of file system, after `fuse.`.
const SUBTYPE: &str = "farfs";
const DEVICE: &str = "/dev/fuse";
/// The largest write in one request, and the largest read.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way in the background. Each read through its cache is one, for
/// which a program waits: what waits for the link may not keep those waiting that need none.
const BACKGROUND_MAX: u16 = 4096;
/// From so many on it reads nothing ahead for which nobody waits.
const BUSY_FROM: u16 = 48;
/// Threads that read requests. None of them waits for the link, so a few are enough; and with more than
/// the processors run, each request wakes one more, which finds nothing.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 8;
/// The magic number of FUSE in `statfs`.
const FUSE_MAGIC: u64 = 0x6573_5546;

/// What the kernel shall do by itself, where it can. All of it saves round trips, but for: locks,
/// which other machines have to know of;
/// killpriv, without which it asks for `security.capability` before every write; export, by
/// which files can be opened by handle; explicit invalidation, because the client says when;
/// access control lists, by which it decides; and that it leaves the mask of a user to us, which
/// does not count where a directory hands such a list down.
const WANTED: InitFlags = InitFlags::ATOMIC_O_TRUNC
    .union(InitFlags::EXPORT_SUPPORT)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::CACHE_SYMLINKS)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::EXPLICIT_INVAL_DATA)
    .union(InitFlags::POSIX_ACL)
    .union(InitFlags::DONT_MASK)
    .union(InitFlags::POSIX_LOCKS)
    .union(InitFlags::FLOCK_LOCKS);

#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Other users see the mount too, as far as the permissions of files allow.
    pub allow_other: bool,
    pub read_only: bool,
    /// What else the kernel is to keep to. Unless it is told here, neither devices nor set-user-id
    /// bits count.
    pub kernel_flags: Vec<KernelFlag>,
    /// Whether the kernel reads cached files itself.
    pub passthrough: Passthrough,
    /// What `mount` and `df` show as the source: volume@server.
    pub fs_name: String,
    /// Threads that read requests; none: by the number of processors.
    pub threads: Option<usize>,
}

impl MountOptions {
    /// Whether reading moves times of access: the kernel leaves that to the daemon.
    pub(crate) fn notes_reads(&self) -> bool {
        !self.read_only && !self.kernel_flags.contains(&KernelFlag::NoAtime)
    }
}

/// Whether the kernel reads cached files itself that nobody may write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passthrough {
    /// Where it can, and lets us.
    #[default]
    Auto,
    Off,
}

/// Options of a mount that are the kernel's business, most of them alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFlag {
    /// Set-user-id bits count, and so do capabilities of programs.
    Suid,
    /// Device nodes can be opened.
    Dev,
    NoExec,
    NoAtime,
    /// Every write is synced.
    Sync,
    /// Every change of a directory is.
    DirSync,
}

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{0} does not exist; make the directory first")]
    NoMountpoint(PathBuf),
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    #[error("something is mounted on {0} already; unmount it first (umount {0})")]
    AlreadyMounted(PathBuf),
    #[error(
        "{0} is what is left of a mount whose program has ended; \
         clear it first (umount -l {0}, or fusermount3 -uz {0})"
    )]
    DeadMount(PathBuf),
    #[error("the kernel offers no FUSE: {DEVICE} is missing; load it (modprobe fuse)")]
    NoFuse,
    #[error(
        "this user may not open {DEVICE}, without which nothing can be mounted; \
         have it opened to you (as root: chmod 666 {DEVICE}, and a udev rule to keep it so)"
    )]
    DeviceClosed,
    #[error("only root may mount without fusermount3; install the package fuse3")]
    NoFusermount,
    #[error(
        "other users may not be let in: \
         have `user_allow_other` written into /etc/fuse.conf, or mount without allow-other"
    )]
    OthersNotAllowed,
    #[error("no permission to mount on {mountpoint}: {source}")]
    NotPermitted { mountpoint: PathBuf, source: io::Error },
    #[error("{0} is in use; close what is open below it, and leave it")]
    InUse(PathBuf),
    #[error("{mountpoint} cannot be mounted or unmounted: {source}")]
    Failed { mountpoint: PathBuf, source: io::Error },
    #[error("the mount on {mountpoint} broke down: {source}")]
    BrokeDown { mountpoint: PathBuf, source: Arc<io::Error> },
}

/// The mountpoint as an absolute path, if something can be mounted on it. What lies in it is
/// hidden while the mount lasts, so it need not be empty.
pub(crate) fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let failed = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOENT) => MountError::NoMountpoint(mountpoint.into()),
        Some(libc::ENOTDIR) => MountError::NotADirectory(mountpoint.into()),
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountError::DeadMount(mountpoint.into()),
        Some(libc::EACCES | libc::EPERM) => {
            MountError::NotPermitted { mountpoint: mountpoint.into(), source }
        }
        _ => MountError::Failed { mountpoint: mountpoint.into(), source },
    };
    let path = mountpoint.canonicalize().map_err(failed)?;
    let here = stat(&path).map_err(|errno| failed(errno.into()))?;
    if here.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(MountError::NotADirectory(path));
    }
    // A directory within some FUSE file system may be mounted on; its root is in use.
    let above = stat(path.join("..")).map_err(|errno| failed(errno.into()))?;
    let is_fuse = |seen: StatFs| u64::try_from(seen.f_type) == Ok(FUSE_MAGIC);
    if here.st_dev != above.st_dev && statfs(&path).is_ok_and(is_fuse) {
        return Err(MountError::AlreadyMounted(path));
    }
    Ok(path)
}

pub(crate) fn settings(options: &MountOptions, lends: bool) -> Settings {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let has = |flag| options.kernel_flags.contains(&flag);
    Settings {
        how: How {
            source: source_name(&options.fs_name),
            subtype: SUBTYPE.into(),
            allow_other: options.allow_other,
            read_only: options.read_only,
            suid: has(KernelFlag::Suid),
            dev: has(KernelFlag::Dev),
            no_exec: has(KernelFlag::NoExec),
            no_atime: has(KernelFlag::NoAtime),
            sync: has(KernelFlag::Sync),
            dir_sync: has(KernelFlag::DirSync),
        },
        flags: if lends { WANTED | InitFlags::PASSTHROUGH } else { WANTED },
        bytes_max: WRITE_BYTES_MAX,
        background_max: BACKGROUND_MAX,
        busy_from: BUSY_FROM,
        threads: options.threads.unwrap_or(processors).clamp(THREADS_MIN, THREADS_MAX),
        looks: processors > 1,
    }
}

/// fusermount3 takes options as one list: what would end an item, or hide the end, is replaced.
fn source_name(name: &str) -> String {
    let fits = |c: char| !c.is_control() && !c.is_whitespace() && c != ',' && c != '\\';
    let name: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { SUBTYPE.into() } else { name }
}

/// Says what the kernel cannot do.
pub(crate) fn tell(agreed: &Agreed) {
    if !agreed.lacking.is_empty() {
        let lacking = agreed.lacking;
        tracing::debug!(?lacking, "the kernel is too old for this; going on without it");
    }
}

/// Why the kernel or fusermount3 did not mount.
pub(crate) fn refused(mountpoint: &Path, source: io::Error) -> MountError {
    let device_closed = access(DEVICE, Access::READ_OK | Access::WRITE_OK)
        .is_err_and(|errno| errno == rustix::io::Errno::ACCESS);
    explained(mountpoint, source, device_closed)
}

fn explained(mountpoint: &Path, source: io::Error, device_closed: bool) -> MountError {
    let mountpoint = mountpoint.to_path_buf();
    if source.to_string().contains("user_allow_other") {
        return MountError::OthersNotAllowed;
    }
    match source.kind() {
        // The mountpoint was there a moment ago, so it is a program or the device that is not.
        io::ErrorKind::NotFound if Path::new(DEVICE).exists() => MountError::NoFusermount,
        io::ErrorKind::NotFound => MountError::NoFuse,
        io::ErrorKind::PermissionDenied if device_closed => MountError::DeviceClosed,
        io::ErrorKind::PermissionDenied => MountError::NotPermitted { mountpoint, source },
        _ => MountError::Failed { mountpoint, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountpoint_that_is_not_there_or_no_directory_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = check_mountpoint(&missing).unwrap_err();
        assert!(matches!(&error, MountError::NoMountpoint(path) if *path == missing), "{error}");

        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = check_mountpoint(&path).unwrap_err();
            assert!(matches!(error, MountError::NotADirectory(_)), "{error}");
        }
        // What lies in it does not matter.
        let path = check_mountpoint(folder.path()).unwrap();
        assert_eq!(path, folder.path().canonicalize().unwrap());
    }

    #[test]
    fn the_root_of_a_file_system_that_is_not_fuse_can_be_mounted_on() {
        assert!(check_mountpoint(Path::new("/proc")).is_ok());
    }

    #[test]
    fn a_source_name_cannot_bring_options_with_it() {
        assert_eq!(source_name("home@farm.example"), "home@farm.example");
        assert_eq!(source_name("a,suid\\ b\n"), "a_suid__b_");
        assert_eq!(source_name(""), "farfs");
    }

    #[test]
    fn refusals_say_what_to_do() {
        let refused =
            |kind, text: &str| refused(Path::new("/m"), io::Error::new(kind, text)).to_string();
        let others = "fusermount3: option allow_other only allowed if 'user_allow_other' is set";
        assert!(refused(io::ErrorKind::PermissionDenied, others).contains("/etc/fuse.conf"));
        assert!(refused(io::ErrorKind::PermissionDenied, "no").contains("no permission"));
        let missing = refused(io::ErrorKind::NotFound, "no such file");
        let wanted = if Path::new(DEVICE).exists() { "package fuse3" } else { "modprobe fuse" };
        assert!(missing.contains(wanted), "{missing}");
    }

    #[test]
    fn a_device_that_the_user_may_not_open_is_named_as_the_cause() {
        let said = |closed, kind| {
            explained(Path::new("/m"), io::Error::new(kind, "no"), closed).to_string()
        };
        assert!(said(true, io::ErrorKind::PermissionDenied).contains("may not open /dev/fuse"));
        assert!(said(false, io::ErrorKind::PermissionDenied).contains("to mount on /m"));
        assert!(said(true, io::ErrorKind::Other).contains("/m cannot be mounted"));
    }

    #[test]
    fn what_the_kernel_is_to_keep_to_is_told_to_it() {
        let kernel_flags = vec![KernelFlag::NoExec, KernelFlag::Sync];
        let told = settings(&MountOptions { kernel_flags, ..MountOptions::default() }, false).how;
        assert!(told.no_exec && told.sync && !told.dir_sync && !told.no_atime);
        assert!(!told.suid && !told.dev);
        let kernel_flags = vec![KernelFlag::Dev, KernelFlag::Suid];
        let told = settings(&MountOptions { kernel_flags, ..MountOptions::default() }, false).how;
        assert!(told.suid && told.dev);
    }

    #[test]
    fn times_of_access_move_unless_that_is_not_wanted_or_nothing_may_change() {
        let wanted = MountOptions::default();
        assert!(wanted.notes_reads());
        assert!(!MountOptions { read_only: true, ..wanted.clone() }.notes_reads());
        let flags = vec![KernelFlag::Sync, KernelFlag::NoAtime];
        assert!(!MountOptions { kernel_flags: flags, ..wanted }.notes_reads());
    }

    #[test]
    fn a_few_threads_are_used_however_many_are_asked_for() {
        let threads = |threads| {
            settings(&MountOptions { threads: Some(threads), ..MountOptions::default() }, false)
                .threads
        };
        assert_eq!([threads(0), threads(3), threads(999)], [2, 3, 8]);
    }
}
