//! What is known of a file besides its contents.

use crate::{Acl, Contents, FileId, Stamp};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// All extended attributes of a file, names and values.
const XATTRS_BYTES_MAX: usize = 128 << 10;

/// A moment: seconds since 1970-01-01 UTC, and nanoseconds (0 to 999,999,999) after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode, Hash)]
#[cbor(array)]
pub struct Time {
    #[n(0)]
    pub secs: i64,
    #[n(1)]
    pub nanos: u32,
}

impl Time {
    /// The nanosecond after it.
    pub fn next(self) -> Time {
        match self.nanos < 999_999_999 {
            true => Time { nanos: self.nanos + 1, ..self },
            false => Time { secs: self.secs.saturating_add(1), nanos: 0 },
        }
    }

    /// Year, month (1 to 12) and day (1 to 31) in UTC, by the Gregorian calendar.
    pub fn date(self) -> (i64, u8, u8) {
        const SECS_PER_DAY: i64 = 86_400;
        // Years that begin in March have their leap day last, so the months before it are regular:
        // five of them are 153 days. 400 years are 146,097 days; 719,468 lie before 1970.
        let since_era = self.secs.div_euclid(SECS_PER_DAY) + 719_468;
        let (era, day) = (since_era.div_euclid(146_097), since_era.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year + year / 4 - year / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        // Both are within their bounds by construction.
        (era * 400 + year + i64::from(month <= 2), month as u8, day_of_month as u8)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode, Hash, PartialOrd, Ord)]
#[cbor(index_only)]
pub enum Kind {
    #[n(0)]
    File,
    #[n(1)]
    Directory,
    #[n(2)]
    Symlink,
    #[n(3)]
    Fifo,
    #[n(4)]
    Socket,
    #[n(5)]
    CharDevice,
    #[n(6)]
    BlockDevice,
}

/// S_ISUID and S_ISGID, which a write takes away.
pub const SET_IDS: u16 = 0o6000;
/// The attribute with a program's capabilities, which a write takes away.
pub const CAPABILITY: &[u8] = b"security.capability";

/// A file of any kind as of one version.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Node {
    #[n(0)]
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: the low 12 bits of `st_mode`.
    #[n(1)]
    pub mode: u16,
    #[n(2)]
    pub uid: u32,
    #[n(3)]
    pub gid: u32,
    /// Names that lead to it; of a directory, 2 and one more for each directory in it.
    #[n(4)]
    pub links: u32,
    #[n(5)]
    pub atime: Time,
    #[n(6)]
    pub mtime: Time,
    #[n(7)]
    pub ctime: Time,
    /// The update that last stored contents: what the next `store` expects to find.
    #[n(8)]
    pub contents_stamp: Stamp,
    /// The update that last set attributes: what the next attribute update expects to find.
    #[n(9)]
    pub attributes_stamp: Stamp,
    #[n(10)]
    pub contents: Contents,
    /// Of a directory, the directory that it is in; the root is in itself.
    #[n(11)]
    pub parent: Option<FileId>,
    /// Of a symbolic link, what it says.
    #[n(12)]
    pub target: Option<ByteVec>,
    /// Of a device, its number as `makedev` packs it.
    #[n(13)]
    pub rdev: Option<u64>,
    /// Extended attributes by name.
    #[n(14)]
    pub xattrs: Option<BTreeMap<ByteVec, ByteVec>>,
    /// When it was made. None: whoever wrote this did not know it, and nobody does.
    #[n(15)]
    pub born: Option<Time>,
}

impl Node {
    /// Whether these are more extended attributes than a file may have.
    pub fn has_too_many_xattrs(&self) -> bool {
        let xattrs = self.xattrs.iter().flatten();
        xattrs.map(|(name, value)| name.len() + value.len()).sum::<usize>() > XATTRS_BYTES_MAX
    }

    /// The root of a new volume, owned by `uid` and `gid`.
    pub fn root_directory(uid: u32, gid: u32, at: Time) -> Node {
        Node {
            kind: Kind::Directory,
            mode: 0o755,
            uid,
            gid,
            links: 2,
            atime: at,
            mtime: at,
            ctime: at,
            contents_stamp: Stamp::default(),
            attributes_stamp: Stamp::default(),
            contents: Contents::EMPTY,
            parent: Some(FileId::ROOT),
            target: None,
            rdev: None,
            xattrs: None,
            born: Some(at),
        }
    }

    pub fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        let value = self.xattrs.as_ref()?.get(&ByteVec::from(name.to_vec()))?;
        Some(value.as_slice())
    }

    /// Whether it has capabilities for whoever runs it.
    pub fn has_capability(&self) -> bool {
        self.xattr(CAPABILITY).is_some()
    }

    /// Whether whoever runs it may do what its owner may, its group, or what its capabilities say:
    /// what is not to outlive a write of somebody else's.
    pub fn gives_privileges(&self) -> bool {
        self.kind == Kind::File && (self.mode & SET_IDS != 0 || self.has_capability())
    }

    /// The access control list of this name, if it has one.
    pub fn acl(&self, name: &[u8]) -> Option<Acl> {
        Acl::read(self.xattr(name)?)
    }

    /// The size that `stat` shows, in bytes.
    pub fn size(&self) -> u64 {
        match (self.kind, &self.target) {
            (Kind::Symlink, Some(target)) => target.len() as u64,
            (Kind::Directory, _) => 4096,
            _ => self.contents.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A directory as it was written before births were kept.
    const BEFORE: &[u8] = &[
        0x8c, 1, 0x19, 1, 0xed, 3, 4, 2, 0x82, 1, 2, 0x82, 1, 2, 0x82, 1, 2, 0x82, 0, 0, 0x82, 0,
        0, 0x81, 0, 1,
    ];

    fn directory() -> Node {
        Node { born: None, ..Node::root_directory(3, 4, Time { secs: 1, nanos: 2 }) }
    }

    #[test]
    fn a_node_of_before_births_were_kept_is_read_and_written_as_ever() {
        assert_eq!(minicbor::to_vec(directory()).unwrap(), BEFORE);
        assert_eq!(minicbor::decode::<Node>(BEFORE).unwrap(), directory());
    }

    /// An earlier farfs, which passes over fields that it does not know.
    #[derive(Decode)]
    #[cbor(array)]
    struct Earlier {
        #[n(0)]
        kind: Kind,
        #[n(14)]
        xattrs: Option<BTreeMap<ByteVec, ByteVec>>,
    }

    proptest! {
        #[test]
        fn prop_a_birth_comes_back_and_an_earlier_farfs_passes_over_it(
            secs in any::<i64>(), nanos in 0_u32..1_000_000_000, has_xattrs in any::<bool>(),
        ) {
            let some = BTreeMap::from([(vec![1].into(), vec![2].into())]);
            let xattrs = has_xattrs.then_some(some);
            let node = Node { born: Some(Time { secs, nanos }), xattrs, ..directory() };
            let bytes = minicbor::to_vec(&node).unwrap();
            prop_assert_eq!(minicbor::decode::<Node>(&bytes).unwrap(), node.clone());
            let earlier: Earlier = minicbor::decode(&bytes).unwrap();
            prop_assert_eq!((earlier.kind, earlier.xattrs), (node.kind, node.xattrs));
        }
    }
}
