//! What a segment of the journal looks like on the disk: a header, then records, each in an
//! envelope that says where it stands and how far the journal was synced when it was appended.
//! Holds: bytes that were not written as this record of this position are told from it.
//! Layout: docs/FORMATS.md, "Journal".

use super::Position;

/// More is refused at `append`.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

pub const HEADER_BYTES: usize = 24;
pub const ENVELOPE_BYTES: usize = 28;

const MAGIC: [u8; 8] = *b"FarFSjnl";
const FORMAT: u16 = 1;

/// A segment begins with this.
pub fn header(first: Position) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..20].copy_from_slice(&first.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..20]);
    header[20..].copy_from_slice(&checksum.to_le_bytes());
    header
}

#[derive(Debug, PartialEq, Eq)]
pub enum Header {
    First(Position),
    /// Fewer bytes than a header has: its writing was interrupted.
    Torn,
    Newer(u16),
    Wrong,
}

pub fn parse_header(bytes: &[u8]) -> Header {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Header::Torn };
    let checksum = crc32c::crc32c(&header[..20]).to_le_bytes();
    if header[..8] != MAGIC || header[20..] != checksum {
        return Header::Wrong;
    }
    match u16::from_le_bytes(array(header, 8)) {
        FORMAT => Header::First(u64::from_le_bytes(array(header, 12))),
        format => Header::Newer(format),
    }
}

/// A record in its envelope. `synced` is the last position known to be safe from a power cut.
pub fn sealed(position: Position, synced: Position, record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).expect("append refuses records beyond the bound");
    let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + record.len());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&position.to_le_bytes());
    bytes.extend_from_slice(&synced.to_le_bytes());
    bytes.extend_from_slice(record);
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub position: Position,
    pub synced: Position,
    pub record: &'a [u8],
}

impl Envelope<'_> {
    /// With its record.
    pub fn bytes(&self) -> usize {
        ENVELOPE_BYTES + self.record.len()
    }
}

/// The record at the start of `bytes`, if it is whole and as it was written.
pub fn open(bytes: &[u8]) -> Option<Envelope<'_>> {
    let envelope = bytes.first_chunk::<ENVELOPE_BYTES>()?;
    if u16::from_le_bytes(array(envelope, 8)) != FORMAT {
        return None;
    }
    let length = u32::from_le_bytes(array(envelope, 4)) as usize;
    if length > RECORD_BYTES_MAX {
        return None;
    }
    let whole = bytes.get(..ENVELOPE_BYTES + length)?;
    if whole[..4] != crc32c::crc32c(&whole[4..]).to_le_bytes() {
        return None;
    }
    Some(Envelope {
        position: u64::from_le_bytes(array(envelope, 12)),
        synced: u64::from_le_bytes(array(envelope, 20)),
        record: &whole[ENVELOPE_BYTES..],
    })
}

/// The first whole record within `bytes` of a position from `from` to `to`, and its offset.
/// The position is looked at first, so that few checksums are computed.
pub fn find(bytes: &[u8], from: Position, to: Position) -> Option<(usize, Envelope<'_>)> {
    (0..bytes.len().saturating_sub(ENVELOPE_BYTES - 1)).find_map(|offset| {
        let tail = &bytes[offset..];
        let position = u64::from_le_bytes(array(tail, 12));
        if position < from || position > to {
            return None;
        }
        open(tail).map(|envelope| (offset, envelope))
    })
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    *bytes[offset..].first_chunk().expect("the callers ask within a header they have in full")
}
