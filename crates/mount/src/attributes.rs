//! What `stat` shows, and what the kernel asks to set, in the client's words and back.

use client::{Found, OpenFlags, SetTime, Setting};
use fuse::{FileAttr, FileType, INodeNo};
use model::{FileId, Kind, Time};

/// What programs are told to read and write at a time. Every write is a round trip to this
/// program, so what buffers by this size should buffer much.
const IO_BYTES: u32 = 128 << 10;
/// `st_blocks` counts these, whatever the file system.
const BLOCK_BYTES: u64 = 512;
/// The permission bits, with setuid, setgid and sticky.
const MODE_BITS: u32 = 0o7777;

pub(crate) fn shown(found: &Found) -> FileAttr {
    let node = &found.node;
    let size = node.size();
    FileAttr {
        ino: INodeNo(found.file.0),
        number: INodeNo(found.file.0),
        size,
        // Without the holes: by this, programs see that a file has some.
        blocks: node.contents.data().min(size).div_ceil(BLOCK_BYTES),
        atime: time_shown(node.atime),
        mtime: time_shown(node.mtime),
        ctime: time_shown(node.ctime),
        born: node.born.map(time_shown),
        kind: kind_shown(node.kind),
        perm: node.mode,
        nlink: node.links,
        uid: node.uid,
        gid: node.gid,
        // The kernel's 32 bits are the low 32 of `makedev` for every number that it knows.
        rdev: node.rdev.unwrap_or(0) as u32,
        blksize: IO_BYTES,
    }
}

/// What stands for a name that nothing bears.
pub(crate) fn nothing() -> FileAttr {
    FileAttr { blksize: IO_BYTES, ..FileAttr::NOTHING }
}

/// A directory of which only the number is of interest: `.` and `..` of a listing.
pub(crate) fn bare_directory(file: FileId) -> FileAttr {
    FileAttr { perm: 0o755, ..bare(file, Some(Kind::Directory)) }
}

/// What a listing without attributes has of a file. None: nobody can tell its kind.
pub(crate) fn bare(file: FileId, kind: Option<Kind>) -> FileAttr {
    let number = INodeNo(file.0);
    let kind = kind.map_or(FileType::Unknown, kind_shown);
    FileAttr { ino: number, number, kind, ..nothing() }
}

pub(crate) fn kind_shown(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// The kind in a mode given to `mknod`. None: not one that mknod makes.
pub(crate) fn kind_asked(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        // POSIX takes no type for a regular file.
        libc::S_IFREG | 0 => Some(Kind::File),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

pub(crate) fn mode_asked(mode: u32) -> u16 {
    (mode & MODE_BITS) as u16
}

pub(crate) fn flags_asked(flags: i32) -> OpenFlags {
    let access = flags & libc::O_ACCMODE;
    OpenFlags {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        append: flags & libc::O_APPEND != 0,
    }
}

fn time_shown(time: Time) -> (i64, u32) {
    (time.secs, time.nanos)
}

/// What the kernel wants to be set.
pub(crate) fn setting_asked(set: &fuse::SetAttributes) -> Setting {
    Setting {
        mode: set.mode.map(mode_asked),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(time_asked),
        mtime: set.mtime.map(time_asked),
    }
}

fn time_asked(time: fuse::SetTime) -> SetTime {
    match time {
        fuse::SetTime::Now => SetTime::Now,
        fuse::SetTime::At((secs, nanos)) => SetTime::At(Time { secs, nanos }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, Node};

    fn found(node: Node) -> Found {
        Found { file: FileId(77), node }
    }

    fn file(size: u64) -> Node {
        let contents = Contents { size, root: None, holes: None };
        let directory = Node::root_directory(1000, 100, Time::default());
        Node { kind: Kind::File, mode: 0o4755, links: 1, contents, ..directory }
    }

    #[test]
    fn blocks_are_counted_by_512_bytes_and_rounded_up() {
        let blocks = [0, 1, 512, 513, 1 << 40].map(|size| shown(&found(file(size))).blocks);
        assert_eq!(blocks, [0, 1, 1, 2, 1 << 31]);
    }

    #[test]
    fn holes_take_no_blocks() {
        let blocks = [0, 1, 4096, 1 << 30].map(|data| {
            let sparse = file(1 << 30);
            let contents = Contents { holes: Some((1 << 30) - data), ..sparse.contents };
            shown(&found(Node { contents, ..sparse })).blocks
        });
        assert_eq!(blocks, [0, 1, 8, 1 << 21]);
    }

    #[test]
    fn the_inode_number_is_the_file_id_and_the_mode_keeps_setuid() {
        let attributes = shown(&found(file(3)));
        assert_eq!((attributes.ino, attributes.perm, attributes.nlink), (INodeNo(77), 0o4755, 1));
        assert_eq!((attributes.uid, attributes.gid), (1000, 100));
    }

    #[test]
    fn a_time_that_is_set_is_the_time_that_is_shown() {
        for moment in [(-2, 800_000_000), (-1, 0), (0, 1), (1 << 33, 999_999_999), (i64::MIN, 5)] {
            let time = Time { secs: moment.0, nanos: moment.1 };
            assert_eq!(time_asked(fuse::SetTime::At(moment)), SetTime::At(time));
            assert_eq!(time_shown(time), moment);
        }
    }

    #[test]
    fn devices_keep_their_numbers() {
        let rdev = libc::makedev(8, 17);
        let node = Node { kind: Kind::BlockDevice, rdev: Some(rdev), ..file(0) };
        let attributes = shown(&found(node));
        assert_eq!(attributes.kind, FileType::BlockDevice);
        assert_eq!((attributes.rdev >> 8, attributes.rdev & 0xff), (8, 17));
    }

    #[test]
    fn mknod_makes_all_kinds_but_directories_and_links() {
        assert_eq!(kind_asked(0o644), Some(Kind::File));
        assert_eq!(kind_asked(libc::S_IFSOCK | 0o600), Some(Kind::Socket));
        assert_eq!(kind_asked(libc::S_IFDIR | 0o755), None);
        assert_eq!(mode_asked(libc::S_IFIFO | 0o2664), 0o2664);
    }

    #[test]
    fn open_flags_say_read_write_or_both() {
        let read = flags_asked(libc::O_RDONLY);
        assert!(read.read && !read.write && !read.truncate);
        let write = flags_asked(libc::O_WRONLY | libc::O_TRUNC | libc::O_APPEND);
        assert!(!write.read && write.write && write.truncate && write.append);
        let both = flags_asked(libc::O_RDWR);
        assert!(both.read && both.write);
    }
}
