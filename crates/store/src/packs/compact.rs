//! Packs that are mostly dead are written anew: what is alive goes to the end of the newest pack.
//! Holds: the old pack goes only when the copies are safe from a power cut and indexed; a
//! deletion goes along for as long as an older pack may still have the blob it deletes.

use super::record::{self, HEADER_BYTES, Head, Kind, Spot};
use super::{Packs, pack_lengths, pack_path, place_of};
use crate::blob::Blobs;
use crate::error::Result;
use crate::files::{self, locked};
use crate::table::Durability;
use std::sync::atomic::Ordering;

/// The newest pack is left alone while less of it is dead: it is being written to.
const NEWEST_DEAD_BYTES_MIN: u64 = 1 << 20;

impl Packs {
    /// The deadest pack of those that are dead by so many percent at least; others may read and put
    /// meanwhile. The newest comes last: another begins, and what is alive in it moves there.
    pub(super) fn compact_one(&self, dead_percent: u8) -> Result<Option<u64>> {
        let _alone = locked(&self.compacting);
        let newest = locked(&self.appender).pack;
        let states = self.index.packs();
        let worth = |(pack, length): (u32, u64)| {
            let records = length.saturating_sub(HEADER_BYTES as u64);
            let dead = states.get(&pack).map_or(0, |state| state.dead).min(records);
            let is_small = pack == newest && dead < NEWEST_DEAD_BYTES_MIN;
            let percent = u128::from(dead) * 100 / u128::from(records.max(1));
            let is_worth = dead > 0 && percent >= u128::from(dead_percent) && !is_small;
            is_worth.then_some((pack != newest, percent, pack, length))
        };
        let found = pack_lengths(&self.directory)?.into_iter().filter_map(worth).max();
        let Some((_, _, pack, _)) = found else { return Ok(None) };
        self.compact_closed(pack).map(Some)
    }

    /// A pack of which a part cannot be read, however much of it is alive.
    pub(super) fn compact_damaged(&self, pack: u32) -> Result<u64> {
        let _alone = locked(&self.compacting);
        self.compact_closed(pack)
    }

    /// Nothing is added to the pack from now on.
    fn compact_closed(&self, pack: u32) -> Result<u64> {
        {
            let mut appender = locked(&self.appender);
            if appender.pack == pack {
                self.begin_pack(&mut appender)?;
            }
        }
        match pack_lengths(&self.directory)?.get(&pack) {
            Some(length) => self.compact_pack(pack, *length),
            None => Ok(0),
        }
    }

    fn compact_pack(&self, pack: u32, length: u64) -> Result<u64> {
        let Some((file, path)) = self.pack_file(pack)? else { return Ok(0) };
        let oldest = self.index.packs().keys().next().copied();
        let keep_deletions = oldest.is_some_and(|oldest| oldest < pack);
        let mut copied = 0;
        let from = Spot { pack, offset: HEADER_BYTES as u64 };
        record::walk(&file, &path, from, length, |spot, head| {
            copied += match head.kind {
                Kind::Blob => self.copy_blob(spot, &head)?,
                Kind::Deletion if keep_deletions => self.copy_deletion(&head)?,
                Kind::Deletion => 0,
            };
            Ok(())
        })?;
        self.sync()?;
        {
            let _appender = locked(&self.appender);
            // Before the file goes: an index that still led there would have to be made again.
            self.index.retire_pack(pack);
            self.index.flush(Durability::Now)?;
            locked(&self.open).files.remove(&pack);
            files::remove(&pack_path(&self.directory, pack))?;
            self.index.forget_pack(pack);
        }
        self.total_bytes.fetch_sub(length, Ordering::Relaxed);
        Ok(length.saturating_sub(copied))
    }

    fn copy_blob(&self, spot: Spot, head: &Head) -> Result<u64> {
        let place = place_of(spot, head);
        if self.index.get(&head.name)? != Some(place) {
            return Ok(0);
        }
        let Some(bytes) = self.read_place(&head.name, place)? else {
            self.forget(&head.name, place)?;
            return Ok(0);
        };
        let mut appender = locked(&self.appender);
        // It may have been deleted while its bytes were read.
        if self.index.get(&head.name)? != Some(place) {
            return Ok(0);
        }
        let copy = self.append(&mut appender, Kind::Blob, &head.name, &bytes)?;
        self.index.put(&head.name, copy, Some(place));
        Ok(head.record_bytes())
    }

    fn copy_deletion(&self, head: &Head) -> Result<u64> {
        let mut appender = locked(&self.appender);
        if self.index.get(&head.name)?.is_some() {
            // A newer record of the blob outdoes the older ones by itself.
            return Ok(0);
        }
        self.append(&mut appender, Kind::Deletion, &head.name, &[])?;
        Ok(head.record_bytes())
    }
}
