//! Opening the packs: the index is brought up to what the packs say, from where it knows them,
//! and a torn tail of the newest pack is cut off.

use super::index::Index;
use super::kept;
use super::record::{self, HEADER_BYTES, Head, Kind, Spot};
use super::{Appender, make_pack, pack_lengths, pack_path, place_of};
use crate::blocks;
use crate::error::{Result, StoreError};
use crate::files;
use crate::ordinary;
use crate::overlay::Writes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

pub struct Recovered {
    pub index: Index,
    pub appender: Appender,
    pub total_bytes: u64,
    /// Of the packs that are used, by number: how far each is.
    pub lengths: BTreeMap<u32, u64>,
    /// What would be mended if they were not only read, in words.
    pub unmended: Vec<String>,
}

pub fn recover(directory: &Path, writes: Writes) -> Result<Recovered> {
    let is_kept = writes == Writes::Kept;
    if is_kept {
        kept::forget_halves(directory)?;
    }
    let mut lengths = match pack_lengths(directory) {
        // Where packs may be written, it was made before, and must not be gone since.
        Err(error) if !is_kept && error.kind() == Some(ErrorKind::NotFound) => BTreeMap::new(),
        found => found?,
    };
    let index = Index::open(directory, &lengths, writes)?;
    let mut unmended: Vec<String> = index.unmended().map(str::to_owned).into_iter().collect();
    let mut to_go = |pack| {
        let shown = pack_path(directory, pack);
        unmended.push(format!("{}: what is needed of it was moved elsewhere", shown.display()));
    };
    for (pack, state) in index.packs() {
        if state.retired {
            match writes {
                Writes::Kept => files::remove(&pack_path(directory, pack))?,
                Writes::Forgotten => to_go(pack),
            }
            index.forget_pack(pack);
            lengths.remove(&pack);
        } else if state.cut
            && let Some(length) = lengths.get_mut(&pack)
            && *length > state.upto
        {
            match writes {
                Writes::Kept => cut_off(&pack_path(directory, pack), state.upto)?,
                Writes::Forgotten => to_go(pack),
            }
            *length = state.upto;
        }
    }
    let newest = lengths.keys().next_back().copied().unwrap_or(1);
    let mut total_bytes = 0;
    let mut offset = HEADER_BYTES as u64;
    for (pack, length) in &lengths {
        let of_pack = (*pack, *length);
        let whole_until = bring_up(directory, &index, of_pack, *pack == newest, writes)?;
        total_bytes += if *pack == newest { whole_until } else { *length };
        offset = whole_until;
        if writes == Writes::Forgotten && *pack == newest && *length > whole_until {
            let path = pack_path(directory, newest);
            unmended.push(crate::overlay::unmended::torn(&path, *length - whole_until));
        }
    }
    let path = pack_path(directory, newest);
    if lengths.is_empty() {
        index.indexed(newest, offset);
        total_bytes = offset;
    }
    let file = match writes {
        Writes::Forgotten => None,
        Writes::Kept if lengths.is_empty() => Some(make_pack(&path)?),
        Writes::Kept => Some(files::open(&path, false)?),
    };
    if lengths.get(&newest).is_some_and(|length| is_just_begun(*length)) {
        lengths.remove(&newest);
    }
    index.flush_if_room()?;
    let (appended, unsynced) = (0, 0);
    let file = file.map(Arc::new);
    let appender = Appender { pack: newest, path, file, offset, appended, unsynced };
    Ok(Recovered { index, appender, total_bytes, lengths, unmended })
}

/// There is no record in it, and maybe not even all of its header.
fn is_just_begun(length: u64) -> bool {
    length <= HEADER_BYTES as u64
}

/// The index had this written before a crash came between.
fn cut_off(path: &Path, length: u64) -> Result<()> {
    files::open(path, false)?.set_len(length).map_err(|source| files::failed(path, source))
}

/// Returns where the pack's last whole record ends.
fn bring_up(
    directory: &Path,
    index: &Index,
    (pack, length): (u32, u64),
    is_newest: bool,
    writes: Writes,
) -> Result<u64> {
    let path = pack_path(directory, pack);
    let is_kept = writes == Writes::Kept;
    if is_newest && is_just_begun(length) {
        // Its making may have been interrupted.
        if is_kept {
            make_pack(&path)?;
        }
        index.indexed(pack, HEADER_BYTES as u64);
        return Ok(HEADER_BYTES as u64);
    }
    let file = match writes {
        Writes::Kept => files::open(&path, false)?,
        Writes::Forgotten => ordinary::open(&path, File::options().read(true))
            .map_err(|source| files::failed(&path, source))?,
    };
    check_header(&file, &path)?;
    let known = index.packs().get(&pack).map_or(0, |state| state.upto);
    let from = Spot { pack, offset: known.max(HEADER_BYTES as u64) };
    let (whole_until, damaged) =
        record::walk(&file, &path, from, length, |spot, head| take_in(index, spot, &head))?;
    let tail = length.saturating_sub(whole_until);
    if damaged > 0 || tail > 0 {
        tracing::warn!(path = %path.display(), damaged, tail, "bytes of a pack are no records");
    }
    index.died(pack, damaged);
    if tail > 0 && is_newest {
        if is_kept {
            file.set_len(whole_until).map_err(|source| files::failed(&path, source))?;
        }
        index.indexed(pack, whole_until);
    } else {
        index.died(pack, tail);
        index.indexed(pack, length);
    }
    Ok(whole_until)
}

fn take_in(index: &Index, spot: Spot, head: &Head) -> Result<()> {
    let before = index.get(&head.name)?;
    match head.kind {
        Kind::Blob if before == Some(place_of(spot, head)) => {}
        Kind::Blob => index.put(&head.name, place_of(spot, head), before),
        Kind::Deletion => {
            index.died(spot.pack, head.record_bytes());
            if let Some(before) = before {
                index.remove(&head.name, before);
            }
        }
    }
    index.indexed(spot.pack, spot.offset + head.record_bytes());
    if index.is_gathered_full() {
        index.flush_if_room()?;
    }
    Ok(())
}

/// A damaged header is passed over: every record says itself where it belongs.
fn check_header(file: &File, path: &Path) -> Result<()> {
    let bytes = blocks::read_what_is_there(file, path, 0, HEADER_BYTES)?;
    match record::parse_header(&bytes) {
        Some(format) if !record::is_known(format) => Err(newer(path, format)),
        Some(_) => Ok(()),
        None => {
            tracing::warn!(path = %path.display(), "the header of a pack is damaged");
            Ok(())
        }
    }
}

fn newer(path: &Path, format: u16) -> StoreError {
    files::damaged(path, 8, format!("format {format} is of a newer farfs; use that"))
}

#[cfg(test)]
mod tests;
