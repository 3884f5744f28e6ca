//! Messages with contents that are missing above: how many are under way at once.
//! Holds: on a link that one of them fills for a while, one at a time.

use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::mode;
use crate::pace::put_bytes;
use crate::parcel::pack_all;
use crate::parcel::{Parcel, coded_bytes};
use crate::portions::carried;
use crate::replay_log::{MISSING_TOLD_MAX, Setback};
use crate::types::Error;
use chunks::pack;
use model::{Change, ChunkName, Update};
use protocol::{Class, PAYLOAD_BYTES_MAX, Request, Response, Upstream};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::{Containers, StoreError};
use tokio::task::JoinSet;

/// What is under way takes the link no longer than this; it is one message at least.
const UNDER_WAY_FOR: Duration = Duration::from_millis(100);
const UNDER_WAY_MAX: usize = 3;

/// What is known while missing chunks are sent.
pub(super) struct Supply {
    /// About what one message may take.
    pub most: u64,
    /// Stores of which no chunks are worth a delta.
    pub hopeless: BTreeSet<u64>,
}

/// Messages that may be under way at once, by the bytes a second that the link carries: while the
/// other side takes in one of them, the link should have the next.
pub(crate) fn under_way_most(rate: Option<u64>) -> usize {
    let messages = carried(rate.unwrap_or(0), UNDER_WAY_FOR) / PAYLOAD_BYTES_MAX as u64;
    usize::try_from(messages).unwrap_or(usize::MAX).clamp(1, UNDER_WAY_MAX)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Sends the chunks that the replica above lacks for these updates, the first not judged.
    pub(crate) async fn put(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
        class: Class,
    ) -> Result<(), Setback> {
        if !self.put_found(updates, missing, class).await?
            && !self.ground_is_lacking(updates).await?
        {
            self.mend_unsent(updates, missing).await?;
            self.look_again(updates)?;
        }
        Ok(())
    }

    /// The same, as far as they are found here, and as long as the mode lets anything leave: a large
    /// file takes long. Says whether any was.
    pub(crate) async fn put_found(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
        class: Class,
    ) -> Result<bool, Setback> {
        let mut found_any = false;
        let mut supply = Supply { most: 0, hopeless: BTreeSet::new() };
        let (updates, missing): (Arc<[Update]>, Arc<[ChunkName]>) =
            (updates.into(), missing.into());
        let (client, of, lacking) = (self.clone(), updates.clone(), missing.clone());
        let looked_up =
            self.off_the_runtime(move || Ok(client.look_up_missing(&of, &lacking))).await;
        looked_up.map_err(error_of)??;
        self.begin_way(&updates, &missing);
        self.ask_what_is_above(&updates, &missing).await?;
        let mut at = 0;
        let mut under_way = JoinSet::new();
        while at < missing.len() {
            if !mode::replays(self.connection().mode) {
                // What is there stays there, and the rest follows when it may.
                found_any = true;
                break;
            }
            let bytes_max = self.inner.full.bytes_max();
            while bytes_max.is_some() && !under_way.is_empty() {
                arrived(under_way.join_next().await)?;
            }
            // A session that has just begun does not know yet what its link carries.
            let most = put_bytes(self.inner.upstream.quality().rate_up);
            supply.most = self.inner.full.bytes_max().map_or(most, |bytes_max| bytes_max.min(most));
            // The next is put together while others are on their way: on a fast link, or with a
            // slow disk, the one takes as long as the other.
            let made = self.make_parcel(supply, &updates, &missing, at).await;
            let parcel;
            (parcel, at, supply) = made.map_err(error_of)??;
            if parcel.is_empty() {
                continue;
            }
            found_any = true;
            let room = under_way_most(self.inner.upstream.quality().rate_up);
            while under_way.len() >= room {
                arrived(under_way.join_next().await)?;
            }
            under_way.spawn(self.clone().put_parcel(parcel, class));
        }
        while !under_way.is_empty() {
            arrived(under_way.join_next().await)?;
        }
        Ok(found_any)
    }

    /// What is to be sent next of the missing chunks from `at` on, and where to go on after it.
    async fn make_parcel(
        &self,
        mut supply: Supply,
        updates: &Arc<[Update]>,
        missing: &Arc<[ChunkName]>,
        at: usize,
    ) -> Result<Result<(Parcel, usize, Supply), Error>, StoreError> {
        let (client, updates, missing) = (self.clone(), updates.clone(), missing.clone());
        let work = move || {
            let made = client.next_parcel(&mut supply, &updates, &missing[at..]);
            Ok(made.map(|(parcel, used)| (parcel, at + used, supply)))
        };
        self.off_the_runtime(work).await
    }

    /// Notes how much of these updates the replica above has: all but the missing chunks.
    fn begin_way(&self, updates: &[Update], missing: &[ChunkName]) {
        let more = missing.len() >= MISSING_TOLD_MAX;
        let mut core = self.core();
        for update in updates {
            let (number, change) = (update.stamp.number, &update.change);
            let Change::Store { contents, .. } = change else { continue };
            let lacking = core.plans.get(number).map(|plan| plan.lacking_bytes(missing, more));
            if let Some(lacking) = lacking {
                core.plans.ways.begin(number, contents.data(), lacking);
            }
        }
    }

    fn note_way(&self, parcel: &Parcel) {
        let plain = parcel.chunks_of.iter().zip(&parcel.chunks);
        let plain = plain.map(|((number, _), chunk)| (*number, chunk.len() as u64));
        let coded = parcel.coded_of.iter().zip(&parcel.deltas);
        let coded = coded.map(|((number, _), delta)| (*number, coded_bytes(delta)));
        let mut core = self.core();
        for (number, bytes) in plain.chain(coded) {
            core.plans.ways.came(number, bytes);
        }
    }

    async fn put_parcel(self, parcel: Parcel, class: Class) -> Result<(), Setback> {
        let rate = self.inner.upstream.quality().rate_up;
        let payload = pack_all(&parcel.chunks, rate).unwrap_or_else(|| pack(&[]));
        let request = Request::Put { payload, deltas: parcel.deltas() };
        match self.inner.upstream.ask(class, request).await {
            Ok(Response::Stored { useless, .. }) => {
                self.note_useless(useless.as_ref());
                self.note_arrived(&parcel, useless.as_ref());
                self.note_way(&parcel);
                self.inner.full.kept();
                Ok(())
            }
            Ok(Response::Refused(refusal)) => Err(self.refused(refusal)),
            Ok(other) => Err(unexpected("put", &other).into()),
            Err(_) => Err(Setback::Link),
        }
    }
}

/// One of the messages was answered.
fn arrived(
    answer: Option<Result<Result<(), Setback>, tokio::task::JoinError>>,
) -> Result<(), Setback> {
    match answer {
        None => Ok(()),
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(Error::Failed(error.to_string()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_one_message_fills_has_one_under_way() {
        let megabit = 125_000;
        assert_eq!(under_way_most(None), 1);
        for slow in [1_200, megabit, 100 * megabit] {
            assert_eq!(under_way_most(Some(slow)), 1);
        }
        assert_eq!(under_way_most(Some(200 * megabit)), 2);
        assert_eq!(under_way_most(Some(1_000 * megabit)), UNDER_WAY_MAX);
    }
}
