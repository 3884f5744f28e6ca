//! What the kernel is told unasked.
//! Never: called by a thread that answers requests: the kernel may wait for one of those.

use crate::bytes::Laid;
use crate::device::Device;
use crate::words::INodeNo;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const INODE: u32 = 2;
const ENTRY: u32 = 3;
/// `struct fuse_out_header`.
const HEAD_BYTES: usize = 16;
/// The name is asked for again before it is used again. Without this the kernel unhooks the
/// directory from its tree even if it turns out to be the same, and a shell in it loses its way.
const EXPIRE_ONLY: u32 = 1;

#[derive(Clone, Debug)]
pub struct Notifier(Arc<Device>);

impl Notifier {
    pub(crate) fn of(device: &Arc<Device>) -> Notifier {
        Notifier(Arc::clone(device))
    }

    /// What the kernel knows of a file's attributes is old, and of its contents from this byte on, if one is
    /// given.
    pub fn forget_inode(&self, ino: INodeNo, contents_from: Option<u64>) -> io::Result<()> {
        self.tell(&inode_notice(ino, contents_from))
    }

    /// What bears a name is asked for again.
    pub fn expire_entry(&self, directory: INodeNo, name: &OsStr) -> io::Result<()> {
        self.tell(&entry_notice(directory, name))
    }

    fn tell(&self, notice: &[u8]) -> io::Result<()> {
        match self.0.write(&[IoSlice::new(notice)]) {
            // The kernel does not have it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }
}

/// A notice has a head as an answer has, with its code in place of an error and no request.
fn head(code: u32, body_bytes: usize) -> Laid {
    Laid::default().u32((HEAD_BYTES + body_bytes) as u32).u32(code).u64(0)
}

/// As far as there is anything; attributes alone from before the first byte.
fn inode_notice(ino: INodeNo, contents_from: Option<u64>) -> Vec<u8> {
    let from = contents_from.map_or(-1, |from| i64::try_from(from).unwrap_or(i64::MAX));
    head(INODE, 24).u64(ino.0).u64(from.cast_unsigned()).u64(0).0
}

fn entry_notice(directory: INodeNo, name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    let head = head(ENTRY, 16 + name.len() + 1);
    let mut laid = head.u64(directory.0).u32(name.len() as u32).u32(EXPIRE_ONLY);
    laid.0.extend(name);
    laid.zeros(1).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_the_kernels_layout() {
        let notice = entry_notice(INodeNo(0x0102), OsStr::new("ab"));
        assert_eq!(notice.len(), 35);
        assert_eq!(notice[..4], 35_u32.to_ne_bytes());
        assert_eq!(notice[16..24], 0x0102_u64.to_ne_bytes());
        assert_eq!(notice[24..28], 2_u32.to_ne_bytes());
        assert_eq!(&notice[32..], b"ab\0");
        for (contents_from, from) in
            [(None, -1), (Some(0), 0), (Some(70), 70), (Some(u64::MAX), i64::MAX)]
        {
            let notice = inode_notice(INodeNo(5), contents_from);
            assert_eq!((notice.len(), &notice[24..32]), (40, &from.to_ne_bytes()[..]));
        }
    }
}
