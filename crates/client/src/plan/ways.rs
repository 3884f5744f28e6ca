//! How much of the contents of pending stores the replica above has, as far as it has said.

use super::Plan;
use model::ChunkName;
use std::collections::BTreeMap;

/// What is on its way, by number of the update.
#[derive(Default)]
pub(crate) struct Ways(BTreeMap<u64, Way>);

struct Way {
    size: u64,
    /// Bytes of contents that are not there yet.
    left: u64,
}

impl Ways {
    /// The replica above has said what it lacks of an update with contents of `size` bytes
    /// without their holes.
    pub fn begin(&mut self, number: u64, size: u64, left: u64) {
        self.0.insert(number, Way { size, left: left.min(size) });
    }

    /// It has received so many bytes of them.
    pub fn came(&mut self, number: u64, bytes: u64) {
        if let Some(way) = self.0.get_mut(&number) {
            way.left = way.left.saturating_sub(bytes);
        }
    }

    /// It has said what it lacks, and is being sent that, or will be when there is a link.
    pub fn has_begun(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }

    /// Bytes of the contents that it has.
    pub fn sent(&self, number: u64) -> u64 {
        self.0.get(&number).map_or(0, |way| way.size - way.left)
    }

    pub fn remove(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// The updates before this one are pending no more; with none, none is.
    pub fn forget_before(&mut self, oldest: Option<u64>) {
        match oldest {
            Some(oldest) => self.0 = self.0.split_off(&oldest),
            None => self.0.clear(),
        }
    }
}

impl Plan {
    /// Bytes of contents that are lacking, where these chunks are. `more`: not all are named that
    /// are: those behind the last one may be lacking, too.
    pub fn lacking_bytes(&self, missing: &[ChunkName], more: bool) -> u64 {
        let lacking = missing.iter().filter_map(|name| self.data.get(name));
        let (mut bytes, mut end) = (0, 0);
        for (offset, length) in lacking {
            bytes += u64::from(*length);
            end = end.max(offset + u64::from(*length));
        }
        bytes + if more { self.size().saturating_sub(end) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::FileId;

    const NAMES: [ChunkName; 3] = [ChunkName([1; 24]), ChunkName([2; 24]), ChunkName([3; 24])];

    fn plan() -> Plan {
        let mut plan = Plan::empty(FileId(7), 1);
        for (at, name) in NAMES.into_iter().enumerate() {
            plan.data.insert(name, (at as u64 * 100, 100));
        }
        plan
    }

    #[test]
    fn what_is_not_named_behind_the_last_chunk_may_be_lacking() {
        assert_eq!(plan().lacking_bytes(&NAMES, false), 300);
        assert_eq!(plan().lacking_bytes(&NAMES[1..2], false), 100);
        assert_eq!(plan().lacking_bytes(&NAMES[1..2], true), 200);
        assert_eq!(plan().lacking_bytes(&[], false), 0, "it has all of it");
    }

    #[test]
    fn what_came_is_counted_until_it_is_judged() {
        let mut ways = Ways::default();
        ways.came(4, 50);
        assert_eq!(ways.sent(4), 0, "nothing is known of it");
        ways.begin(4, 300, 200);
        ways.begin(5, 100, 900);
        assert_eq!((ways.sent(4), ways.sent(5)), (100, 0));
        assert_eq!([4, 5, 6].map(|number| ways.has_begun(number)), [true, true, false]);
        ways.came(4, 150);
        assert_eq!(ways.sent(4), 250);
        ways.came(4, 150);
        assert_eq!(ways.sent(4), 300);
        ways.forget_before(Some(5));
        assert_eq!((ways.sent(4), ways.0.len()), (0, 1));
        ways.forget_before(None);
        assert!(ways.0.is_empty());
    }
}
