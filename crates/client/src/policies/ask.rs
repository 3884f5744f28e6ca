//! Contents that would take long to come are not fetched unasked: whoever opens the file is told at
//! once, and the user decides.
//! Holds: what is open already goes on; what is here opens whatever the policy.
//! From: partially connected operation, section 4.

use crate::client::{Client, failed};
use crate::mode;
use crate::pins::{lacks, lasts};
use crate::presence::Presence;
use crate::types::{Error, Need, OpenFlags, Step};
use model::{FileId, Kind, View};
use protocol::{LinkQuality, Upstream};
use store::Containers;

/// How many seconds so many bytes take, where that is more than `limit`. `waiting`: bytes that
/// somebody waits for already. None: it is not so long, or nothing is known of the link.
fn takes_long(lacking: u64, waiting: u64, link: &LinkQuality, limit: u32) -> Option<u64> {
    if lacking == 0 {
        return None;
    }
    let bytes = lacking.saturating_add(waiting);
    lasts(bytes, link.likely_down(), link.round_trip).filter(|secs| *secs > u64::from(limit))
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before a file is opened: whether it is to be asked for first.
    pub(crate) fn asks_first(&self, file: FileId, flags: OpenFlags) -> Step<()> {
        // Who only writes waits for little of what is not here.
        if !self.inner.keeping.choosing.is_any() || flags.truncate || !flags.read {
            return Ok(());
        }
        if !mode::fetches(self.connection().mode) || self.misses().is_allowed(file) {
            return Ok(());
        }
        if self.files().is_unborn(file) {
            return Ok(());
        }
        let node = match self.view(|tree| tree.node(file))? {
            Some(node) if node.kind == Kind::File => node,
            _ => return Ok(()),
        };
        let read = self.inner.tables.read().map_err(failed)?;
        let Some(limit) = self.counts_for(&*read, file)?.ask_above else { return Ok(()) };
        let row = Presence::load(&*read, file).map_err(failed)?;
        let lacking = lacks(&node, row.as_ref());
        drop(read);
        let link = self.link_remembered();
        match takes_long(lacking, self.waited_for(), &link, limit) {
            Some(secs) => {
                self.note_missed(file, Some(secs));
                Err(Error::TakesLong { secs, limit }.into())
            }
            None => Ok(()),
        }
    }

    /// Bytes that somebody waits for.
    fn waited_for(&self) -> u64 {
        let length = |need: &Need| match need {
            Need::Contents { length, .. } => *length,
            _ => 0,
        };
        self.flights().keys().map(length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn link(rate_down: Option<u64>) -> LinkQuality {
        let round_trip = Some(Duration::from_millis(600));
        LinkQuality { rate_down, round_trip, ..LinkQuality::default() }
    }

    #[test]
    fn what_takes_long_goes_by_the_rate_and_by_what_waits_before_it() {
        let link = link(Some(1_000));
        assert_eq!(takes_long(10_000, 0, &link, 10), None);
        assert_eq!(takes_long(10_001, 0, &link, 10), Some(11));
        assert_eq!(takes_long(9_000, 5_000, &link, 10), Some(14));
        assert_eq!(takes_long(0, 99_999, &link, 10), None, "it is here");
        assert_eq!(takes_long(99_999, 0, &self::link(None), 1), None, "nobody knows");
    }

    proptest! {
        #[test]
        fn prop_more_bytes_and_a_slower_link_never_take_less(
            lacking in 1..1_u64 << 40, more in 0..1_u64 << 30, waiting in 0..1_u64 << 30,
            rate in 2..1_u64 << 30, limit in 0..10_000_u32
        ) {
            let before = takes_long(lacking, waiting, &link(Some(rate)), limit);
            prop_assert!(before <= takes_long(lacking + more, waiting, &link(Some(rate)), limit));
            prop_assert!(before <= takes_long(lacking, waiting + more, &link(Some(rate)), limit));
            prop_assert!(before <= takes_long(lacking, waiting, &link(Some(rate / 2)), limit));
            prop_assert!(before.is_none_or(|secs| secs > u64::from(limit)));
        }
    }
}
