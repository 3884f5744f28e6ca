//! What `statfs` shows of a volume with a quota.
//! Holds: what is done here shows at once, sent or not; what nobody has told is nothing.

use crate::client::Client;
use crate::types::Step;
use model::{Allowance, Growth, Usage};
use protocol::{Totals, Upstream};
use store::Containers;
use world::Moment;

/// The totals of the replica above.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub totals: Totals,
    pub at: Moment,
    /// What was known then to be used of the quota, if there was one.
    pub used: Option<Usage>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is used is as it was told last, which is with each verdict, with what is pending.
    pub(crate) fn with_quota(&self, told: Option<Told>) -> Step<Totals> {
        let mut core = self.core();
        let core = &mut *core;
        let known = told.map(|told| told.totals).unwrap_or_default();
        if core.meta.allowance.is_none() {
            return Ok(known);
        }
        self.count_written(core)?;
        self.count_pending(core)?;
        let pending = core.charges.total.total();
        Ok(core.meta.allowance.as_ref().map_or(known, |said| shown(told, said, pending)))
    }
}

fn shown(told: Option<Told>, said: &Allowance, pending: Growth) -> Totals {
    let Allowance { quota, used, .. } = said;
    let then = told.and_then(|told| told.used).unwrap_or(*used);
    let known = told.map(|told| told.totals);
    let bytes = Known { all: known.map(|known| (known.bytes, known.bytes_free)), then: then.bytes };
    let files = Known { all: known.map(|known| (known.files, known.files_free)), then: then.files };
    let (bytes, bytes_free) = bytes.now(quota.bytes, plus(used.bytes, pending.bytes));
    // Of files it is those of the volume that are told in any case.
    let (files, files_free) = files.now(quota.files, plus(used.files, pending.files));
    Totals { bytes, bytes_free, files, files_free }
}

/// Of bytes or of files.
struct Known {
    /// What there is, and what is free.
    all: Option<(u64, u64)>,
    /// What was used of the quota then.
    then: u64,
}

impl Known {
    /// What there is and what is free, when so much is used of the quota.
    fn now(&self, most: Option<u64>, used: u64) -> (u64, u64) {
        let left = most.map(|most| most.saturating_sub(used));
        let Some((all, free)) = self.all else { return left.map_or((0, 0), |left| (used, left)) };
        // With a quota what is told is used of that.
        let then = if most.is_some() { all } else { self.then };
        let more = i128::from(used) - i128::from(then);
        (plus(all, more), plus(free, -more).min(left.unwrap_or(u64::MAX)))
    }
}

fn plus(now: u64, by: i128) -> u64 {
    u64::try_from(i128::from(now).saturating_add(by).max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_follows_what_is_used_and_is_within_the_quota_and_the_disk() {
        let known = |all, free| Known { all: Some((all, free)), then: 3 };
        assert_eq!(known(20, 80).now(Some(100), 50), (50, 50));
        assert_eq!(known(20, 10).now(Some(100), 25), (25, 5), "the disk has less");
        assert_eq!(known(20, 10).now(Some(100), 50), (50, 0));
        assert_eq!(known(120, 0).now(Some(100), 90), (90, 10), "it was beyond");
        assert_eq!(known(500, 80).now(None, 13), (510, 70), "of all volumes together");
        assert_eq!(Known { all: None, then: 3 }.now(Some(100), 30), (30, 70));
        assert_eq!(Known { all: None, then: 3 }.now(None, 30), (0, 0));
    }
}
