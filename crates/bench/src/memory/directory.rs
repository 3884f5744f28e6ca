//! The names of one directory, in memory.
//! Holds: a name has the same position until it is taken out; later ones have higher ones, so that
//! who lists in pieces goes on where the last piece ended, whatever changes meanwhile.

use fuse::INodeNo;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::sync::Arc;

/// Where the two dots are in a listing; names come after them.
pub const DOT: u64 = 1;
pub const DOT_DOT: u64 = 2;

#[derive(Debug)]
pub struct Directory {
    pub parent: INodeNo,
    positions: HashMap<Arc<OsStr>, u64>,
    names: BTreeMap<u64, (Arc<OsStr>, INodeNo)>,
    last: u64,
}

impl Directory {
    pub fn new(parent: INodeNo) -> Directory {
        Directory { parent, positions: HashMap::new(), names: BTreeMap::new(), last: DOT_DOT }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn find(&self, name: &OsStr) -> Option<INodeNo> {
        let position = self.positions.get(name)?;
        self.names.get(position).map(|(_, file)| *file)
    }

    /// A name that is not there yet.
    pub fn put(&mut self, name: &OsStr, file: INodeNo) {
        self.last += 1;
        let name: Arc<OsStr> = OsString::from(name).into();
        self.positions.insert(Arc::clone(&name), self.last);
        self.names.insert(self.last, (name, file));
    }

    pub fn take(&mut self, name: &OsStr) -> Option<INodeNo> {
        let position = self.positions.remove(name)?;
        self.names.remove(&position).map(|(_, file)| file)
    }

    /// In order, without the dots: positions, names, files.
    pub fn after(&self, position: u64) -> impl Iterator<Item = (u64, &OsStr, INodeNo)> {
        let later = (Bound::Excluded(position), Bound::Unbounded);
        self.names.range(later).map(|(position, (name, file))| (*position, &**name, *file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lists_in_pieces_goes_on_behind_what_it_has_whatever_is_removed_or_added() {
        let mut directory = Directory::new(INodeNo::ROOT);
        let listed = |directory: &Directory, after| -> Vec<_> {
            directory.after(after).map(|(position, name, _)| (position, name.to_owned())).collect()
        };
        for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            directory.put(OsStr::new(name), INodeNo(10 + number as u64));
        }
        let (second, _) = listed(&directory, DOT_DOT)[1];
        assert_eq!(directory.take(OsStr::new("a")), Some(INodeNo(10)));
        assert_eq!(directory.take(OsStr::new("b")), Some(INodeNo(11)));
        directory.put(OsStr::new("a"), INodeNo(20));
        let rest: Vec<_> = listed(&directory, second).into_iter().map(|(_, name)| name).collect();
        assert_eq!(rest, ["c", "d", "a"]);
        assert_eq!(directory.find(OsStr::new("a")), Some(INodeNo(20)));
        assert_eq!(directory.take(OsStr::new("b")), None);
        assert!(listed(&directory, u64::MAX).is_empty());
    }
}
