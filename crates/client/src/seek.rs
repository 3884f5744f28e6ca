//! Contents that the replica above may have inside a container, of which nobody here knows: it is
//! asked to look for them, and sometimes before they are sent.
//! Holds: looking takes a processor there about as long as the link would for the bytes, at most;
//! contents are withheld for one answer, once in a while, or where the last ones were there.
//! From: LBFS, which asks before it sends; where that is dear nothing waits for it here.

use crate::client::Client;
use crate::parcel::Parcel;
use crate::worth;
use chunks::delta::Effort;
use model::{ChunkName, FileId, Stamp};
use protocol::Upstream;
use std::collections::{BTreeMap, BTreeSet};
use store::Containers;

/// Plain bytes that a processor unpacks in a second, about.
const UNPACK_RATE: u64 = 64 << 20;
/// For each byte that is found, so many are unpacked at most.
const FOR_EACH_MAX: u64 = 1 << 13;
/// Of batches with contents it is asked about one in so many before these are sent.
const TRY_ONE_IN: u32 = 16;
/// After some were there, so many batches are asked about.
const SURE_FOR: u32 = 8;
/// For fewer bytes nobody waits for an answer.
const WITHHELD_BYTES_MIN: usize = 4 << 10;

/// Whether what is sent next is likely to be there.
#[derive(Debug, Default)]
pub(crate) struct Seeking {
    sure: u32,
    batches: u32,
}

impl Seeking {
    /// Whether the next batch is asked about before its contents are sent.
    fn asks(&mut self) -> bool {
        self.batches = self.batches.wrapping_add(1);
        self.sure > 0 || self.batches % TRY_ONE_IN == 1
    }

    /// Contents of a batch were withheld: whether most of them were there.
    fn note(&mut self, there: bool) {
        self.sure = if there { SURE_FOR } else { self.sure / 2 };
    }
}

/// What may be unpacked for each byte that is found, at so many bytes a second up; none where the
/// link is quicker.
fn for_each(rate: Option<u64>) -> Option<u32> {
    const ONE: u64 = 1 << 20;
    let pays = worth::effort(rate, ONE, 4 * ONE) == Some(Effort::Usual);
    let each = rate.map_or(FOR_EACH_MAX, |rate| (UNPACK_RATE / rate.max(1)).min(FOR_EACH_MAX));
    u32::try_from(each).ok().filter(|_| pays)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What the replica above may unpack to find what it misses; none: it is not asked to.
    pub(crate) fn seek_above(&self) -> Option<u32> {
        let assembles = self.connection().assembles;
        for_each(self.inner.upstream.quality().rate_up).filter(|_| assembles)
    }

    /// Takes data out of a parcel again, if the replica above is to look for it first. Gives back
    /// the names.
    pub(crate) fn withhold(&self, parcel: &mut Parcel) -> Vec<ChunkName> {
        let (mut data, mut bytes) = (BTreeSet::new(), 0);
        let mut of = BTreeMap::<(FileId, Stamp), u64>::new();
        let mut core = self.core();
        for ((number, name), chunk) in parcel.chunks_of.iter().zip(&parcel.chunks) {
            let Some(plan) = core.plans.get(*number) else { continue };
            if plan.data.contains_key(name) && !plan.is_left_alone(&[*name]) {
                data.insert(*name);
                bytes += chunk.len();
                let replica = core.meta.replica.unwrap_or_default();
                let version = Stamp::new(replica, *number);
                *of.entry((plan.file, version)).or_default() += chunk.len() as u64;
            }
        }
        if bytes < WITHHELD_BYTES_MIN || !core.seeking.asks() {
            return Vec::new();
        }
        drop(core);
        parcel.leave_out(&data);
        for ((file, version), bytes) in of {
            let mut kin = self.kin();
            let transfer = kin.transfer_of(file, version, true);
            transfer.plain = transfer.plain.saturating_sub(bytes);
        }
        data.into_iter().collect()
    }

    /// The replica above has looked for what was withheld.
    pub(crate) fn note_sought(&self, withheld: &[ChunkName], missing: &[ChunkName]) {
        if withheld.is_empty() {
            return;
        }
        let missing: BTreeSet<&ChunkName> = missing.iter().collect();
        let lacking = withheld.iter().filter(|name| missing.contains(name)).count();
        self.core().seeking.note(lacking * 2 <= withheld.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_lets_the_other_side_unpack_and_a_fast_one_does_not() {
        assert_eq!(for_each(None), Some(FOR_EACH_MAX as u32));
        assert_eq!(for_each(Some(0)), Some(FOR_EACH_MAX as u32));
        assert_eq!(for_each(Some(1_200)), Some(FOR_EACH_MAX as u32));
        assert_eq!(for_each(Some(64 << 10)), Some(1024));
        assert_eq!(for_each(Some(2 << 20)), Some(32));
        assert_eq!(for_each(Some(125_000_000)), None);
    }

    #[test]
    fn who_finds_nothing_is_rarely_asked_and_who_finds_something_again_at_once() {
        let mut seeking = Seeking::default();
        let asked = (0..64).filter(|_| {
            let asks = seeking.asks();
            if asks {
                seeking.note(false);
            }
            asks
        });
        assert_eq!(asked.count(), 4);
        seeking.note(true);
        assert!((0..20).all(|_| seeking.asks()));
        for _ in 0..4 {
            seeking.note(false);
        }
        assert!((0..TRY_ONE_IN).filter(|_| seeking.asks()).count() <= 1);
    }
}
