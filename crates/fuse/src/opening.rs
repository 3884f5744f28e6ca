//! What both sides agree on when the mount begins.

use crate::asked::Offered;
use crate::bytes::Laid;
use crate::words::InitFlags;

const MAJOR: u32 = 7;
/// What is spoken here. A newer kernel keeps to it.
const MINOR: u32 = 40;
/// Older kernels lay out less than is read here: Linux 5.4 has this.
const MINOR_MIN: u32 = 31;
const PAGE_BYTES: u32 = 4096;
/// Times are kept to the nanosecond.
const TIME_GRAIN_NANOS: u32 = 1;
/// File systems that lie one upon another, if files of others are lent to the kernel: those files
/// lie on one that lies on none, and there is room for one more upon this one.
const STACK_DEPTH_MAX: u32 = 1;

/// What the file system wants of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub flags: InitFlags,
    /// Bytes of one request to read or write, at most.
    pub bytes_max: u32,
    /// Requests for nobody in particular, at once.
    pub background_max: u16,
    pub busy_from: u16,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub minor: u32,
    pub flags: InitFlags,
    /// Of what was wanted, what the kernel cannot do.
    pub lacking: InitFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Agreed(Agreed),
    /// The kernel speaks a newer language, and asks once more in ours when it is told of it.
    Again,
    /// The kernel is too old.
    TooOld,
}

/// How we answer, and what is agreed on then.
pub(crate) fn open(offered: &Offered, wanted: &Wanted) -> (Opening, Vec<u8>) {
    if offered.major > MAJOR {
        return (Opening::Again, Laid::default().u32(MAJOR).u32(MINOR).zeros(56).0);
    }
    if offered.major < MAJOR || offered.minor < MINOR_MIN {
        return (Opening::TooOld, Vec::new());
    }
    let can = InitFlags::from_bits_truncate(offered.flags);
    let always = InitFlags::ASYNC_READ | InitFlags::BIG_WRITES | InitFlags::MAX_PAGES;
    let flags = can & (wanted.flags | always | InitFlags::INIT_EXT);
    let minor = offered.minor.min(MINOR);
    let pages = wanted.bytes_max.div_ceil(PAGE_BYTES).min(u32::from(u16::MAX));
    let answer = Laid::default()
        .u32(MAJOR)
        .u32(minor)
        .u32(offered.readahead_bytes_max)
        .u32(flags.bits() as u32)
        .u16(wanted.background_max)
        .u16(wanted.busy_from)
        .u32(wanted.bytes_max)
        .u32(TIME_GRAIN_NANOS)
        .u16(pages as u16)
        .u16(0)
        .u32((flags.bits() >> 32) as u32)
        .u32(if flags.contains(InitFlags::PASSTHROUGH) { STACK_DEPTH_MAX } else { 0 })
        .zeros(24);
    let agreed = Agreed { minor, flags, lacking: wanted.flags - can };
    (Opening::Agreed(agreed), answer.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        flags: InitFlags::POSIX_ACL.union(InitFlags::PASSTHROUGH),
        bytes_max: 1 << 20,
        background_max: 64,
        busy_from: 48,
    };

    fn offered(major: u32, minor: u32, flags: InitFlags) -> Offered {
        Offered { major, minor, readahead_bytes_max: 131_072, flags: flags.bits() }
    }

    #[test]
    fn what_both_can_do_is_agreed_on() {
        let can = InitFlags::POSIX_ACL | InitFlags::MAX_PAGES | InitFlags::POSIX_LOCKS;
        let (opening, answer) = open(&offered(7, 45, can), &WANTED);
        let flags = InitFlags::POSIX_ACL | InitFlags::MAX_PAGES;
        let lacking = InitFlags::PASSTHROUGH;
        assert_eq!(opening, Opening::Agreed(Agreed { minor: 40, flags, lacking }));
        assert_eq!(answer.len(), 64);
        assert_eq!(answer[12..16], (flags.bits() as u32).to_ne_bytes());
        assert_eq!(answer[20..24], (1_u32 << 20).to_ne_bytes());
        assert_eq!(answer[28..30], 256_u16.to_ne_bytes());
        assert_eq!(answer[36..40], 0_u32.to_ne_bytes());
    }

    #[test]
    fn a_kernel_to_which_files_are_lent_is_told_how_deep_they_lie() {
        let can = InitFlags::PASSTHROUGH | InitFlags::INIT_EXT;
        let (_, answer) = open(&offered(7, 45, can), &WANTED);
        assert_eq!(answer[32..36], (1_u32 << 5).to_ne_bytes());
        assert_eq!(answer[36..40], 1_u32.to_ne_bytes());
    }

    #[test]
    fn a_newer_language_is_asked_for_ours_and_an_older_kernel_is_refused() {
        assert_eq!(open(&offered(8, 1, InitFlags::empty()), &WANTED).0, Opening::Again);
        assert_eq!(open(&offered(7, 30, InitFlags::empty()), &WANTED).0, Opening::TooOld);
        assert_eq!(open(&offered(6, 99, InitFlags::empty()), &WANTED).0, Opening::TooOld);
    }
}
