//! What a pack looks like on the disk: a header, then records of blobs and of deletions.
//! Holds: a record is taken for one only in the pack and at the offset where it was written, so
//! that a pack stored as somebody's contents cannot be mistaken for records.
//! Layout: docs/FORMATS.md, "Packs".

use crate::blocks;
use crate::error::Result;
use std::fs::File;
use std::path::Path;

pub const NAME_BYTES_MAX: usize = 64;
pub const BLOB_BYTES_MAX: usize = 256 << 20;
pub const HEADER_BYTES: usize = 16;
pub const RECORD_HEADER_BYTES: usize = 20;

const MAGIC: [u8; 8] = *b"FarFSpak";
const FORMAT: u16 = 1;
const RECORD_MAGIC: [u8; 4] = *b"FPk1";
const BLOB: u8 = 1;
const DELETION: u8 = 2;

/// Read at a time when the next whole record is looked for behind a damaged one.
const SEARCH_BYTES: usize = 1 << 20;

pub fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The format, if the bytes are a pack's header.
pub fn parse_header(bytes: &[u8]) -> Option<u16> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let sound = header[..8] == MAGIC && header[12..] == crc32c::crc32c(&header[..12]).to_le_bytes();
    sound.then(|| u16::from_le_bytes([header[8], header[9]]))
}

pub fn is_known(format: u16) -> bool {
    format == FORMAT
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Blob,
    Deletion,
}

/// Where a record is to be written, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub pack: u32,
    pub offset: u64,
}

/// The head of a record: all but the blob's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub name: Vec<u8>,
    pub length: u32,
    bytes_checksum: u32,
}

impl Head {
    /// Of the whole record.
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.name.len(), self.length)
    }

    pub fn is_of(&self, bytes: &[u8]) -> bool {
        self.length as usize == bytes.len() && self.bytes_checksum == crc32c::crc32c(bytes)
    }
}

pub fn record_bytes(name_bytes: usize, length: u32) -> u64 {
    (RECORD_HEADER_BYTES + name_bytes) as u64 + u64::from(length)
}

/// All of a record but the blob's bytes, which come after it.
pub fn encode_head(spot: Spot, kind: Kind, name: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(RECORD_HEADER_BYTES + name.len());
    let length = u32::try_from(bytes.len()).expect("put refuses blobs beyond the bound");
    record.extend_from_slice(&RECORD_MAGIC);
    record.push(match kind {
        Kind::Blob => BLOB,
        Kind::Deletion => DELETION,
    });
    record.push(u8::try_from(name.len()).expect("put refuses names beyond the bound"));
    record.extend_from_slice(&[0; 2]);
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let checksum = head_checksum(spot, &record, name);
    record.extend_from_slice(&checksum.to_le_bytes());
    record.extend_from_slice(name);
    record
}

/// The head at the start of `bytes`, if one was written at this spot.
pub fn parse(spot: Spot, bytes: &[u8]) -> Option<Head> {
    let fixed = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
    if fixed[..4] != RECORD_MAGIC {
        return None;
    }
    let kind = match fixed[4] {
        BLOB => Kind::Blob,
        DELETION => Kind::Deletion,
        _ => return None,
    };
    let name_bytes = usize::from(fixed[5]);
    if name_bytes == 0 || name_bytes > NAME_BYTES_MAX {
        return None;
    }
    let name = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + name_bytes)?;
    if fixed[16..] != head_checksum(spot, &fixed[..16], name).to_le_bytes() {
        return None;
    }
    Some(Head {
        kind,
        name: name.to_vec(),
        length: u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        bytes_checksum: u32::from_le_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]),
    })
}

fn head_checksum(spot: Spot, fixed: &[u8], name: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(&spot.pack.to_le_bytes());
    let checksum = crc32c::crc32c_append(checksum, &spot.offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(checksum, fixed), name)
}

/// The head that was written at the spot, if its whole record lies before `end`.
pub fn read_head(file: &File, path: &Path, spot: Spot, end: u64) -> Result<Option<Head>> {
    let most = RECORD_HEADER_BYTES + NAME_BYTES_MAX;
    let bytes = blocks::read_what_is_there(file, path, spot.offset, most)?;
    Ok(parse(spot, &bytes).filter(|head| spot.offset + head.record_bytes() <= end))
}

/// Goes through the records from `from` to `end`, past whatever is damaged. Returns where the
/// last whole record ends, and how many bytes before that are damaged.
pub fn walk(
    file: &File,
    path: &Path,
    from: Spot,
    end: u64,
    mut each: impl FnMut(Spot, Head) -> Result<()>,
) -> Result<(u64, u64)> {
    let mut spot = from;
    let mut whole_until = from.offset;
    let mut damaged = 0;
    while spot.offset < end {
        match read_head(file, path, spot, end)? {
            Some(head) => {
                damaged += spot.offset - whole_until;
                let at = spot;
                spot.offset += head.record_bytes();
                whole_until = spot.offset;
                each(at, head)?;
            }
            None => match find(file, path, Spot { offset: spot.offset + 1, ..spot }, end)? {
                Some(found) => spot = found,
                None => break,
            },
        }
    }
    Ok((whole_until, damaged))
}

/// The first spot from here on where a whole record stands.
fn find(file: &File, path: &Path, from: Spot, end: u64) -> Result<Option<Spot>> {
    let overlap = RECORD_HEADER_BYTES + NAME_BYTES_MAX - 1;
    let mut base = from.offset;
    while base < end {
        let bytes = blocks::read_what_is_there(file, path, base, SEARCH_BYTES + overlap)?;
        for index in 0..bytes.len().min(SEARCH_BYTES) {
            if !bytes[index..].starts_with(&RECORD_MAGIC) {
                continue;
            }
            let spot = Spot { offset: base + index as u64, ..from };
            let head = parse(spot, &bytes[index..]);
            if head.is_some_and(|head| spot.offset + head.record_bytes() <= end) {
                return Ok(Some(spot));
            }
        }
        base += SEARCH_BYTES as u64;
    }
    Ok(None)
}
