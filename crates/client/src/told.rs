//! The list of conflicts as it was last told: without a link it is what there is to go by.
//! Holds: it says how old it is; it is asked for soon after there are others than it has.

use crate::client::{Client, error_of};
use crate::mode;
use crate::types::Error;
use minicbor::{Decode, Encode};
use protocol::Upstream;
use protocol::past::{By, CONFLICTS_TOLD_MAX, Conflicts, Found, Past};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Containers, Durability, Read, StoreError, Write};

const TABLE: &str = "client-conflicts";
const KEY: &[u8] = b"told";
const FORMAT: u8 = 1;
/// How often it is looked whether there are others.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What the replica above said of conflicts: the first of them, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Told {
    /// Seconds since 1970.
    #[n(0)]
    pub at: i64,
    #[n(1)]
    pub conflicts: Conflicts,
}

impl Told {
    fn load(read: &dyn Read) -> Result<Option<Told>, StoreError> {
        let damaged = |what: String| StoreError::Damaged { place: TABLE.into(), what };
        match read.get(TABLE, KEY)?.as_deref() {
            None => Ok(None),
            Some([FORMAT, rest @ ..]) => {
                minicbor::decode(rest).map(Some).map_err(|error| damaged(error.to_string()))
            }
            Some(_) => Err(damaged("it has an unknown format".into())),
        }
    }

    fn save(&self, write: &mut dyn Write) -> Result<(), StoreError> {
        let mut bytes = vec![FORMAT];
        // A vector takes every byte.
        let _ = minicbor::encode(self, &mut bytes);
        write.put(TABLE, KEY, &bytes)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What was last said of conflicts, and how many seconds ago. None: nobody has asked.
    pub fn conflicts_told(&self) -> Result<Option<(u64, Conflicts)>, Error> {
        let told = Told::load(&*self.inner.tables.read().map_err(error_of)?).map_err(error_of)?;
        let now = self.inner.world.clock.time().secs;
        let ago = |told: &Told| u64::try_from(now.saturating_sub(told.at)).unwrap_or(0);
        Ok(told.map(|told| (ago(&told), told.conflicts)))
    }

    /// Keeps what was said of conflicts to who runs this, if it is all, or the beginning of more than is told at once.
    pub(crate) fn note_told(&self, asked: &Past, found: &Found) -> Result<(), Error> {
        let (Past::Conflicts { after: 0, conflicts_max, by }, Found::Conflicts(conflicts)) =
            (asked, found)
        else {
            return Ok(());
        };
        // What another user may know of is not told here without a link.
        let user = |by: &Option<By>| by.as_ref().map_or(0, |by| by.uid);
        if user(by) != user(&self.inner.settings.on_behalf_of) {
            return Ok(());
        }
        if conflicts.more && *conflicts_max < CONFLICTS_TOLD_MAX {
            return Ok(());
        }
        let at = self.inner.world.clock.time().secs;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        Told { at, conflicts: conflicts.clone() }.save(&mut *write).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }

    /// Asks for the list when there are other conflicts than before, until `shut_down`.
    pub(crate) async fn run_told(&self) {
        let known = match self.conflicts_told() {
            Ok(told) => told.map_or(0, |(_, told)| known_of(&told)),
            Err(error) => {
                tracing::warn!(%error, "the list of conflicts is asked for anew");
                u64::MAX
            }
        };
        // Of this machine's own since it began, and all that are listed.
        let mut met = (0, known);
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.inner.world.clock.sleep(LOOK_EVERY) => {}
                () = self.until_stopping() => break,
            }
            let own = self.inner.counters.conflicts.load(Ordering::Relaxed);
            let (listed, may_ask) = {
                let connection = self.connection();
                let may_ask = connection.attached && connection.looks_back;
                (connection.conflicts_listed, may_ask && mode::fetches(connection.mode))
            };
            let now = (own, listed.unwrap_or(met.1));
            if now == met || !may_ask {
                continue;
            }
            let by = self.inner.settings.on_behalf_of.clone();
            let all = Past::Conflicts { after: 0, conflicts_max: CONFLICTS_TOLD_MAX, by };
            match self.look_back(all).await {
                Ok(_) => met = now,
                Err(error) => tracing::debug!(%error, "nobody told of the conflicts"),
            }
        }
    }
}

/// Those of which nothing is told are listed, too.
fn known_of(told: &Conflicts) -> u64 {
    (told.conflicts.len() + told.hidden.as_ref().map_or(0, Vec::len)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Tables;
    use store::memory::MemoryTables;

    #[test]
    fn what_was_told_is_read_as_it_was_written_and_damage_is_told() {
        let tables = MemoryTables::default();
        assert_eq!(Told::load(&*tables.read().unwrap()).unwrap(), None);
        let told = Told { at: 7, conflicts: Conflicts { more: true, ..Conflicts::default() } };
        let mut write = tables.write().unwrap();
        told.save(&mut *write).unwrap();
        let golden = [1, 0x82, 7, 0x82, 0x80, 0xf5];
        assert_eq!(write.get(TABLE, KEY).unwrap().as_deref(), Some(&golden[..]));
        assert_eq!(Told::load(&*write).unwrap(), Some(told));
        for bad in [&[][..], &[2], &[1], &[1, 0x80]] {
            write.put(TABLE, KEY, bad).unwrap();
            assert!(Told::load(&*write).is_err(), "{bad:?}");
        }
    }
}
