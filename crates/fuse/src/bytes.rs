//! Numbers and names in the order in which the kernel lays them out: whole numbers as this machine
//! has them, names with a NUL behind them.

use crate::words::{FileAttr, Moment, Totals, kept};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Of an entry of a listing, without its name.
const ENTRY_BYTES: usize = 24;
/// What most answers take at most: an entry, and the open file.
const ANSWER_BYTES: usize = 144;
/// An entry begins at a multiple of these.
const ALIGNMENT: usize = 8;

/// What is left of a request. None: it is shorter than it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left<'a>(pub &'a [u8]);

impl<'a> Left<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Up to the next NUL, which goes with it.
    pub fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.bytes(end)?;
        self.skip(1)?;
        Some(OsStr::from_bytes(name))
    }
}

/// An answer, or a part of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Laid(pub Vec<u8>);

impl Laid {
    /// One that does not grow while most answers are laid into it.
    pub fn answer() -> Self {
        Laid(Vec::with_capacity(ANSWER_BYTES))
    }

    pub fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// `struct fuse_attr`.
    pub fn attributes(self, attr: &FileAttr) -> Self {
        let mode = attr.kind.bits() | u32::from(attr.perm);
        self.u64(attr.ino.0)
            .u64(attr.size)
            .u64(attr.blocks)
            // The bits of a time before 1970 are those of the signed number.
            .u64(attr.atime.0.cast_unsigned())
            .u64(attr.mtime.0.cast_unsigned())
            .u64(attr.ctime.0.cast_unsigned())
            .u32(attr.atime.1)
            .u32(attr.mtime.1)
            .u32(attr.ctime.1)
            .u32(mode)
            .u32(attr.nlink)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(attr.rdev)
            .u32(attr.blksize)
            .u32(0)
    }

    /// `struct fuse_statx`.
    pub fn statx(self, attr: &FileAttr) -> Self {
        let (born, known) = match attr.born {
            Some(born) => (born, libc::STATX_BTIME),
            None => ((0, 0), 0),
        };
        // Never more than 16 bits: those of the kind and of the permissions.
        let mode = attr.kind.bits() as u16 | attr.perm;
        let rdev = u64::from(attr.rdev);
        self.u32(libc::STATX_BASIC_STATS | known)
            .u32(attr.blksize)
            .u64(0)
            .u32(attr.nlink)
            .u32(attr.uid)
            .u32(attr.gid)
            .u16(mode)
            .zeros(2)
            .u64(attr.ino.0)
            .u64(attr.size)
            .u64(attr.blocks)
            .u64(0)
            .moment(attr.atime)
            .moment(born)
            .moment(attr.ctime)
            .moment(attr.mtime)
            .u32(libc::major(rdev))
            .u32(libc::minor(rdev))
            .u32(0)
            .u32(0)
            .zeros(112)
    }

    /// `struct fuse_sx_time`.
    fn moment(self, (secs, nanos): Moment) -> Self {
        self.u64(secs.cast_unsigned()).u32(nanos).zeros(4)
    }

    /// `struct fuse_entry_out`: a file that the kernel has from then on.
    pub fn entry(self, keep: Duration, attr: &FileAttr) -> Self {
        let (secs, nanos) = kept(keep);
        // File numbers are never used again, so that there is one generation.
        let head = self.u64(attr.number.0).u64(0).u64(secs).u64(secs).u32(nanos).u32(nanos);
        head.attributes(attr)
    }

    /// `struct fuse_dirent`, with its name.
    pub fn listed(self, attr: &FileAttr, position: u64, name: &OsStr) -> Self {
        let name = name.as_bytes();
        // The kind is the four bits above the permissions.
        let kind = attr.kind.bits() >> 12;
        let mut laid = self.u64(attr.ino.0).u64(position).u32(name.len() as u32).u32(kind);
        laid.0.extend(name);
        let over = name.len() % ALIGNMENT;
        if over == 0 { laid } else { laid.zeros(ALIGNMENT - over) }
    }

    /// `struct fuse_kstatfs`.
    pub fn totals(self, totals: &Totals) -> Self {
        self.u64(totals.blocks)
            .u64(totals.blocks_free)
            .u64(totals.blocks_free)
            .u64(totals.files)
            .u64(totals.files_free)
            .u32(totals.block_bytes)
            .u32(totals.name_bytes_max)
            .u32(totals.block_bytes)
            .zeros(28)
    }
}

/// How long an entry of a listing is.
pub(crate) fn listed_bytes(name: &OsStr) -> usize {
    ENTRY_BYTES + name.len().next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{FileType, INodeNo};

    const ATTR: FileAttr = FileAttr {
        ino: INodeNo(77),
        number: INodeNo(77),
        size: 5,
        blocks: 1,
        atime: (-2, 1),
        mtime: (3, 4),
        ctime: (5, 6),
        born: Some((-7, 8)),
        kind: FileType::RegularFile,
        perm: 0o4755,
        nlink: 1,
        uid: 1000,
        gid: 100,
        rdev: 0,
        blksize: 4096,
    };

    #[test]
    fn attributes_have_the_kernels_layout() {
        let laid = Laid::default().attributes(&ATTR).0;
        assert_eq!(laid.len(), 88);
        assert_eq!(laid[24..32], (-2_i64).to_ne_bytes());
        assert_eq!(laid[60..64], 0o104_755_u32.to_ne_bytes());
        let entry = Laid::default().entry(Duration::from_millis(1500), &ATTR).0;
        assert_eq!((entry.len(), &entry[16..24]), (128, &1_u64.to_ne_bytes()[..]));
        assert_eq!(entry[32..36], 500_000_000_u32.to_ne_bytes());
        let totals = Totals {
            blocks: 9,
            blocks_free: 4,
            files: 2,
            files_free: 1,
            block_bytes: 4096,
            name_bytes_max: 255,
        };
        assert_eq!(Laid::default().totals(&totals).0.len(), 80);
    }

    #[test]
    fn attributes_with_the_time_of_birth_have_the_kernels_layout() {
        let rdev = libc::makedev(8, 17) as u32;
        let device = FileAttr { kind: FileType::BlockDevice, rdev, ..ATTR };
        let laid = Laid::default().statx(&device).0;
        let at = |from: usize, to: usize| &laid[from..to];
        let u32_at = |from: usize| u32::from_ne_bytes(at(from, from + 4).try_into().unwrap());
        let time_at = |from: usize| {
            (i64::from_ne_bytes(at(from, from + 8).try_into().unwrap()), u32_at(from + 8))
        };
        assert_eq!(laid.len(), 256);
        assert_eq!((u32_at(0), u32_at(4)), (0xfff, 4096));
        assert_eq!((u32_at(16), u32_at(20), u32_at(24)), (1, 1000, 100));
        assert_eq!(at(28, 30), 0o064_755_u16.to_ne_bytes());
        assert_eq!((at(32, 40), at(40, 48)), (&77_u64.to_ne_bytes()[..], &5_u64.to_ne_bytes()[..]));
        let times = [64, 80, 96, 112].map(time_at);
        assert_eq!(times, [device.atime, (-7, 8), device.ctime, device.mtime]);
        assert_eq!((u32_at(128), u32_at(132)), (8, 17));
        let unknown = Laid::default().statx(&FileAttr { born: None, ..ATTR }).0;
        assert_eq!(unknown[..4], 0x7ff_u32.to_ne_bytes());
        assert_eq!(unknown[80..96], [0; 16]);
    }

    #[test]
    fn entries_of_a_listing_begin_at_multiples_of_eight() {
        for (name, bytes) in [("a", 32), ("12345678", 32), ("123456789", 40)] {
            let laid = Laid::default().listed(&ATTR, 1, OsStr::new(name)).0;
            assert_eq!((laid.len(), listed_bytes(OsStr::new(name))), (bytes, bytes));
            assert_eq!(laid[20..24], 8_u32.to_ne_bytes());
            assert_eq!(&laid[24..24 + name.len()], name.as_bytes());
        }
    }
}
