//! Stretches of packs that hold no record.

use super::Packs;
use super::record::{self, HEADER_BYTES, Spot};
use crate::blob::Damage;
use crate::blocks;
use crate::error::Result;
use crate::files::locked;

impl Packs {
    /// What is damaged in each pack of which anything is.
    pub(super) fn damaged(&self) -> Result<Vec<(u32, Vec<Damage>)>> {
        let lengths = self.lengths()?;
        let (newest, written) = {
            let appender = locked(&self.appender);
            (appender.pack, appender.offset)
        };
        let mut damaged = Vec::new();
        for (pack, length) in lengths {
            // What comes behind the end of what was written is being written now.
            let end = if pack == newest { written } else { length };
            let mut found = Vec::new();
            self.damage_of(pack, end, &mut found)?;
            if !found.is_empty() {
                damaged.push((pack, found));
            }
        }
        Ok(damaged)
    }

    fn damage_of(&self, pack: u32, end: u64, found: &mut Vec<Damage>) -> Result<()> {
        // Compaction may have removed it meanwhile.
        let Some((file, path)) = self.pack_file(pack)? else { return Ok(()) };
        let place = path.display().to_string();
        let mut note = |offset: u64, until: u64| {
            if until > offset {
                found.push(Damage { place: place.clone(), offset, bytes: until - offset });
            }
        };
        let header = blocks::read_what_is_there(&file, &path, 0, HEADER_BYTES)?;
        if !record::parse_header(&header).is_some_and(record::is_known) {
            note(0, HEADER_BYTES as u64);
        }
        let mut whole_until = HEADER_BYTES as u64;
        let from = Spot { pack, offset: whole_until };
        record::walk(&file, &path, from, end, |spot, head| {
            note(whole_until, spot.offset);
            whole_until = spot.offset + head.record_bytes();
            Ok(())
        })?;
        note(whole_until, end);
        Ok(())
    }
}
