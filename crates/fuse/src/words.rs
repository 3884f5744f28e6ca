//! What both sides speak of: numbers, flags and attributes.

use bitflags::bitflags;
use std::time::Duration;

/// The number by which the kernel knows a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct INodeNo(pub u64);

impl INodeNo {
    pub const ROOT: INodeNo = INodeNo(1);
}

/// What an open file was given when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// Whose a lock is: the same for all threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// The flags of open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(pub i32);

/// The number of an error, as errno(3) has it: more than 0 and less than 512.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errors {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*
        }

        impl std::fmt::Debug for Errno {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(other) => write!(f, "Errno({other})"),
                }
            }
        }
    };
}

errors!(
    E2BIG,
    EACCES,
    EAGAIN,
    EBADF,
    EBUSY,
    EDEADLK,
    EDQUOT,
    EEXIST,
    EFBIG,
    EHOSTUNREACH,
    EINTR,
    EINVAL,
    EIO,
    EISDIR,
    EMLINK,
    ENAMETOOLONG,
    ENFILE,
    ENODATA,
    ENOENT,
    ENOLCK,
    ENOSPC,
    ENOSYS,
    ENOTDIR,
    ENOTEMPTY,
    ENOTTY,
    ENXIO,
    EOPNOTSUPP,
    EPERM,
    ERANGE,
    EROFS,
    ESTALE,
    ETIMEDOUT,
    ETXTBSY,
    EXDEV,
);

impl Errno {
    pub fn code(self) -> i32 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    NamedPipe,
    CharDevice,
    BlockDevice,
    Directory,
    RegularFile,
    Symlink,
    Socket,
    /// Only in a listing.
    Unknown,
}

impl FileType {
    /// The bits of a mode that say it.
    pub fn bits(self) -> u32 {
        match self {
            FileType::NamedPipe => libc::S_IFIFO,
            FileType::CharDevice => libc::S_IFCHR,
            FileType::BlockDevice => libc::S_IFBLK,
            FileType::Directory => libc::S_IFDIR,
            FileType::RegularFile => libc::S_IFREG,
            FileType::Symlink => libc::S_IFLNK,
            FileType::Socket => libc::S_IFSOCK,
            FileType::Unknown => 0,
        }
    }
}

/// Since 1970, in whole seconds, rounded down, and nanoseconds beyond them.
pub type Moment = (i64, u32);

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    /// 0 in the answer to a lookup: there is nothing of that name.
    pub ino: INodeNo,
    /// By which the kernel is to know it: programs never see this one.
    pub number: INodeNo,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub atime: Moment,
    pub mtime: Moment,
    pub ctime: Moment,
    /// When it was made, for those who ask for that; None: nobody knows.
    pub born: Option<Moment>,
    pub kind: FileType,
    /// Permissions, with the set-id bits and the sticky one.
    pub perm: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a device, as `makedev` has its low 32 bits.
    pub rdev: u32,
    /// What programs are told to read and write at a time.
    pub blksize: u32,
}

impl FileAttr {
    /// What stands for a name that nothing bears: the kernel takes inode 0 for that.
    pub const NOTHING: FileAttr = FileAttr {
        ino: INodeNo(0),
        number: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: (0, 0),
        mtime: (0, 0),
        ctime: (0, 0),
        born: None,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
    };
}

/// What statfs(2) shows. Blocks are of `block_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub blocks: u64,
    pub blocks_free: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_bytes: u32,
    pub name_bytes_max: u32,
}

/// For how long the kernel may keep what it is told: seconds and nanoseconds.
pub(crate) fn kept(keep: Duration) -> (u64, u32) {
    (keep.as_secs(), keep.subsec_nanos())
}

bitflags! {
    /// What the kernel can do, and is to do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        const ASYNC_READ = 1;
        const POSIX_LOCKS = 1 << 1;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const FLOCK_LOCKS = 1 << 10;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// Flags beyond the first 32 count.
        const INIT_EXT = 1 << 30;
        const PASSTHROUGH = 1 << 37;
        const OVER_IO_URING = 1 << 41;
    }

    /// What the kernel is to do about an open file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FopenFlags: u32 {
        /// Around its cache.
        const FOPEN_DIRECT_IO = 1;
        /// What it has in its cache still counts.
        const FOPEN_KEEP_CACHE = 1 << 1;
        /// It does not say when the file is closed.
        const FOPEN_NOFLUSH = 1 << 5;
        const FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6;
        /// It reads, writes and maps another file in its place.
        const FOPEN_PASSTHROUGH = 1 << 7;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// From the kernel's cache, and not from a call.
        const FUSE_WRITE_CACHE = 1;
        /// The set-id bits go.
        const FUSE_WRITE_KILL_SUIDGID = 1 << 2;
        /// No bit of the kernel's word: it is to be safe when the call returns, by O_DSYNC or O_SYNC of the
        /// descriptor, by a flag of the call's, or by the mount.
        const SYNCS = 1 << 30;
        /// No bit of the kernel's word: the descriptor has O_APPEND now, whatever it was opened with.
        const APPENDS = 1 << 31;
    }

    /// The flags of renameat2(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        const RENAME_NOREPLACE = 1;
        const RENAME_EXCHANGE = 1 << 1;
        const RENAME_WHITEOUT = 1 << 2;
        // Others are seen by whoever is asked.
        const _ = !0;
    }
}
