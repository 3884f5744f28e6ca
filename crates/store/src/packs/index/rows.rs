//! The rows of the index, as bytes.
//! Layout: docs/FORMATS.md, "Packs".

use super::{PackState, Place};

const STATE_BYTES: usize = 25;
const RETIRED: u8 = 1;
const CUT: u8 = 2;

/// A row in a number that no other row has, but by chance.
pub fn mark(name: &[u8], place: Place) -> u64 {
    // FNV-1a, and SplitMix64's last steps, so that marks can be put together bit by bit.
    let row = encode_place(place);
    let hash = name.iter().chain(&row).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

pub fn encode_place(place: Place) -> [u8; 16] {
    let mut row = [0; 16];
    row[..4].copy_from_slice(&place.pack.to_le_bytes());
    row[4..12].copy_from_slice(&place.offset.to_le_bytes());
    row[12..].copy_from_slice(&place.length.to_le_bytes());
    row
}

pub fn parse_place(row: &[u8]) -> Option<Place> {
    let row: &[u8; 16] = row.try_into().ok()?;
    Some(Place {
        pack: u32::from_le_bytes(*row.first_chunk()?),
        offset: u64::from_le_bytes(*row[4..].first_chunk()?),
        length: u32::from_le_bytes(*row[12..].first_chunk()?),
    })
}

pub fn encode_state(state: PackState) -> [u8; STATE_BYTES] {
    let mut row = [0; STATE_BYTES];
    row[..8].copy_from_slice(&state.upto.to_le_bytes());
    row[8..16].copy_from_slice(&state.dead.to_le_bytes());
    row[16] = if state.retired { RETIRED } else { 0 } | if state.cut { CUT } else { 0 };
    row[17..].copy_from_slice(&state.marks.to_le_bytes());
    row
}

pub fn parse_state(row: &[u8]) -> Option<PackState> {
    let row: &[u8; STATE_BYTES] = row.try_into().ok()?;
    Some(PackState {
        upto: u64::from_le_bytes(*row.first_chunk()?),
        dead: u64::from_le_bytes(*row[8..].first_chunk()?),
        retired: row[16] & RETIRED != 0,
        cut: row[16] & CUT != 0,
        marks: u64::from_le_bytes(*row[17..].first_chunk()?),
    })
}

pub fn parse_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
