//! Packs that are mostly dead are written anew: what is alive goes to the end of the newest pack,
//! in pieces from the old one's end, which is cut off each time, so that little room will do.
//! Holds: the old pack, or its end, goes only when the copies are safe from a power cut and indexed; a
//! deletion goes along for as long as an older pack may still have the blob it deletes.

use super::record::{self, HEADER_BYTES, Head, Kind, Spot};
use super::{Packs, pack_lengths, pack_path, place_of};
use crate::error::Result;
use crate::files::{self, locked};
use std::path::Path;
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
            // What is copied is what was put into it, and not what bears its name by now.
            self.look_at(pack, &mut appender)?;
        }
        match pack_lengths(&self.directory)?.get(&pack) {
            Some(length) => self.compact_pack(pack, *length),
            None => Ok(0),
        }
    }

    /// From its end, in pieces for which there is room: each is copied, and cut off.
    fn compact_pack(&self, pack: u32, whole: u64) -> Result<u64> {
        let Some((file, path)) = self.pack_file(pack)? else { return Ok(0) };
        let oldest = self.index.packs().keys().next().copied();
        let keep_deletions = oldest.is_some_and(|oldest| oldest < pack);
        let (mut left, mut length, mut copied) = (Vec::new(), whole, 0);
        let from = Spot { pack, offset: HEADER_BYTES as u64 };
        record::walk(&file, &path, from, length, |spot, head| {
            left.push((spot, head));
            Ok(())
        })?;
        loop {
            let piece = last_piece(&mut left, self.piece_bytes()?, |spot, head| {
                Ok(match head.kind {
                    Kind::Blob => self.index.get(&head.name)? == Some(place_of(spot, head)),
                    Kind::Deletion => keep_deletions && self.index.get(&head.name)?.is_none(),
                })
            })?;
            let end = piece.first().map_or(from.offset, |(spot, _)| spot.offset);
            self.look_at_newest(&mut locked(&self.appender))?;
            for (spot, head) in &piece {
                copied += match head.kind {
                    Kind::Blob => self.copy_blob(*spot, head)?,
                    Kind::Deletion if keep_deletions => self.copy_deletion(head)?,
                    Kind::Deletion => 0,
                };
            }
            self.sync_newest()?;
            self.look_at_newest(&mut locked(&self.appender))?;
            if left.is_empty() {
                break;
            }
            self.cut_pack(pack, &path, end)?;
            self.total_bytes.fetch_sub(length - end, Ordering::Relaxed);
            length = end;
        }
        {
            let appender = locked(&self.appender);
            // Before the file goes: an index that still led there would have to be made again.
            self.index.retire_pack(pack);
            self.flush_index(&appender)?;
            self.close(pack);
            files::remove(&pack_path(&self.directory, pack))?;
            self.index.forget_pack(pack);
        }
        self.total_bytes.fetch_sub(length, Ordering::Relaxed);
        Ok(whole.saturating_sub(copied))
    }

    /// The index knows it first: what it said to be beyond the end would make it another one.
    fn cut_pack(&self, pack: u32, path: &Path, end: u64) -> Result<()> {
        let appender = locked(&self.appender);
        self.index.cut_pack(pack, end);
        self.flush_index(&appender)?;
        files::open(path, false)?.set_len(end).map_err(|source| files::failed(path, source))
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

/// Takes the last records from the list: as many as have so much among them that is to be copied,
/// and one at least.
fn last_piece(
    left: &mut Vec<(Spot, Head)>,
    bytes_max: u64,
    is_copied: impl Fn(Spot, &Head) -> Result<bool>,
) -> Result<Vec<(Spot, Head)>> {
    let (mut from, mut bytes) = (left.len(), 0);
    for (spot, head) in left.iter().rev() {
        if is_copied(*spot, head)? {
            bytes += head.record_bytes();
        }
        if bytes > bytes_max && from < left.len() {
            break;
        }
        from -= 1;
    }
    Ok(left.split_off(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Blobs;
    use crate::table::Durability;

    #[test]
    fn a_piece_ends_where_no_more_may_be_copied_and_has_one_record_at_least() {
        let record = |offset: u64, alive: bool| {
            let spot = Spot { pack: 1, offset };
            let head = record::encode_head(spot, Kind::Blob, &[u8::from(alive)], &[0; 100]);
            (spot, record::parse(spot, &head).unwrap())
        };
        let alive = [true, false, true, true, false, false];
        let mut left: Vec<_> =
            alive.iter().zip(0..).map(|(alive, at)| record(at, *alive)).collect();
        let one = left[0].1.record_bytes();
        let mut next = |bytes_max| {
            let piece = last_piece(&mut left, bytes_max, |_, head| Ok(head.name == [1])).unwrap();
            piece.iter().map(|(spot, _)| spot.offset).collect::<Vec<_>>()
        };
        assert_eq!(next(one), [3, 4, 5]);
        assert_eq!(next(0), [2]);
        assert_eq!(next(u64::MAX), [0, 1]);
        assert_eq!(next(u64::MAX), [0; 0]);
    }

    /// Packs with a few blobs each, of which one pack is being written anew in small pieces.
    struct Halfway {
        directory: tempfile::TempDir,
        packs: Packs,
        blobs: u32,
    }

    fn blob(number: u32) -> Vec<u8> {
        vec![number as u8; 1000]
    }

    impl Halfway {
        fn new() -> Halfway {
            let directory = tempfile::tempdir().unwrap();
            let mut packs = Packs::open_with_packs(directory.path(), 20_000).unwrap();
            packs.piece_bytes_max = 3000;
            let blobs = 100_u32;
            for number in 0..blobs {
                packs.put(&number.to_be_bytes(), &blob(number)).unwrap();
            }
            Halfway { directory, packs, blobs }
        }

        fn has(&self, packs: &Packs, is_there: impl Fn(u32) -> bool) {
            for number in 0..self.blobs {
                let found = packs.get(&number.to_be_bytes()).unwrap();
                assert_eq!(found, is_there(number).then(|| blob(number)), "blob {number}");
            }
        }

        fn length(&self, pack: u32) -> u64 {
            pack_lengths(self.directory.path()).unwrap().get(&pack).copied().unwrap_or(0)
        }
    }

    #[test]
    fn in_pieces_a_pack_is_never_much_larger_together_with_what_was_copied_of_it() {
        let halfway = Halfway::new();
        let names: Vec<_> =
            (0..halfway.blobs).filter(|n| n % 3 > 0).map(u32::to_be_bytes).collect();
        halfway.packs.let_go(&names.iter().map(|name| &name[..]).collect::<Vec<_>>()).unwrap();
        let before = halfway.packs.total_bytes.load(Ordering::Relaxed);
        while halfway.packs.reclaim(10).unwrap().is_some() {}
        halfway.has(&halfway.packs, |number| number % 3 == 0);
        let on_disk: u64 = pack_lengths(halfway.directory.path()).unwrap().values().sum();
        assert_eq!(halfway.packs.total_bytes.load(Ordering::Relaxed), on_disk);
        assert!(on_disk < before / 2, "{before} {on_disk}");
        let Halfway { directory, packs, .. } = halfway;
        drop(packs);
        let packs = Packs::open_with_packs(directory.path(), 20_000).unwrap();
        assert_eq!(packs.list(&[], 1000).unwrap().len(), 34);
        assert_eq!(packs.damage().unwrap(), []);
    }

    #[test]
    fn a_crash_before_the_end_of_a_pack_is_cut_off_brings_nothing_back_and_takes_nothing() {
        let halfway = Halfway::new();
        let last = 19_u32;
        let packs = &halfway.packs;
        let path = pack_path(halfway.directory.path(), 1);
        let whole = std::fs::read(&path).unwrap();
        let end = whole.len() as u64 - record::record_bytes(4, 1000);
        let name = last.to_be_bytes();
        let place = packs.index.get(&name).unwrap().unwrap();
        assert_eq!((place.pack, place.offset), (1, end));
        let bytes = packs.get(&name).unwrap().unwrap();
        let copy = packs.append(&mut locked(&packs.appender), Kind::Blob, &name, &bytes).unwrap();
        packs.index.put(&name, copy, Some(place));
        packs.sync().unwrap();
        packs.cut_pack(1, &path, end).unwrap();
        assert_eq!(halfway.length(1), end);
        packs.delete(&name).unwrap();
        packs.index.flush(Durability::Now).unwrap();
        // The end is there again, as if the power had gone before.
        std::fs::write(&path, &whole).unwrap();
        let Halfway { directory, packs, blobs } = halfway;
        drop(packs);
        let packs = Packs::look_with_packs(directory.path(), 20_000).unwrap();
        let halfway = Halfway { directory, packs, blobs };
        halfway.has(&halfway.packs, |number| number != last);
        assert_eq!(
            (halfway.packs.damage().unwrap(), halfway.length(1)),
            (vec![], whole.len() as u64)
        );
        let Halfway { directory, packs, blobs } = halfway;
        drop(packs);
        let packs = Packs::open_with_packs(directory.path(), 20_000).unwrap();
        let halfway = Halfway { directory, packs, blobs };
        assert_eq!(halfway.length(1), end);
        halfway.has(&halfway.packs, |number| number != last);
        drop(halfway.packs);
        // Without an index the deletion counts, which comes after both.
        std::fs::write(&path, &whole).unwrap();
        Packs::forget_index(halfway.directory.path()).unwrap();
        let packs = Packs::open_with_packs(halfway.directory.path(), 20_000).unwrap();
        assert_eq!(packs.get(&name).unwrap(), None);
        assert_eq!(packs.list(&[], 1000).unwrap().len(), 99);
    }

    #[test]
    fn what_came_last_is_synced_before_the_index_that_knows_of_it() {
        let halfway = Halfway::new();
        let (packs, name) = (&halfway.packs, 19_u32.to_be_bytes());
        let place = packs.index.get(&name).unwrap().unwrap();
        packs.let_go(&[&name]).unwrap();
        packs.sync().unwrap();
        let put = |name: &[u8]| {
            packs.put(name, b"just now").unwrap();
            let last = locked(&packs.appender).appended;
            assert!(packs.group.synced() < last);
            last
        };
        let last = put(b"before the end of a pack goes");
        packs.cut_pack(1, &pack_path(&packs.directory, 1), place.offset).unwrap();
        assert!(packs.group.synced() >= last, "else it counts as lost after a power cut");
        let last = put(b"before a pack goes");
        packs.flush_index(&locked(&packs.appender)).unwrap();
        assert!(packs.group.synced() >= last);
    }

    #[test]
    fn what_was_let_go_of_is_back_where_the_index_is_lost_and_gone_where_it_is_not() {
        let halfway = Halfway::new();
        let (name, total) =
            (3_u32.to_be_bytes(), halfway.packs.total_bytes.load(Ordering::Relaxed));
        halfway.packs.let_go(&[&name, &name, b"none"]).unwrap();
        halfway.has(&halfway.packs, |number| number != 3);
        assert_eq!(halfway.packs.total_bytes.load(Ordering::Relaxed), total, "it took no room");
        let Halfway { directory, packs, .. } = halfway;
        drop(packs);
        let open = || Packs::open_with_packs(directory.path(), 20_000).unwrap();
        assert_eq!(open().get(&name).unwrap(), None);
        Packs::forget_index(directory.path()).unwrap();
        assert_eq!(open().get(&name).unwrap(), Some(blob(3)));
    }
}
