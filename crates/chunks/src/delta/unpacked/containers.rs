//! Where the deflate streams of a file are: in zip (and so docx, xlsx, odt, jar), gzip, PNG, PDF.
//! Holds: what is named lies inside the file, streams in order and apart. Whether a stream is one
//! shows when it is inflated; nothing here is believed.

use std::ops::Range;

/// Streams of one file that are looked for, at most.
pub(crate) const STREAMS_MAX: usize = 4096;

/// Pieces of one stream, at most.
pub(crate) const PIECES_MAX: usize = 4096;

const ZIP_MEMBER: &[u8] = b"PK\x03\x04";
const ZIP_HEAD_BYTES: usize = 30;
const ZIP_DEFLATED: u16 = 8;
const GZIP: &[u8] = b"\x1f\x8b\x08";
const GZIP_HEAD_BYTES: usize = 10;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const PDF: &[u8] = b"%PDF-";
const PDF_STREAM: &[u8] = b"stream";

/// Whether a file begins as one of these kinds does.
pub(crate) fn is_known(file: &[u8]) -> bool {
    [ZIP_MEMBER, PNG, PDF, GZIP].iter().any(|magic| file.starts_with(magic))
}

pub(crate) fn is_zip(file: &[u8]) -> bool {
    file.starts_with(ZIP_MEMBER)
}

pub(crate) fn is_gzip(file: &[u8]) -> bool {
    file.starts_with(GZIP)
}

/// Where a stream may be: its pieces one after the other, and perhaps more behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pieces: Vec<Range<usize>>,
    /// The container says that the stream ends where the pieces do.
    pub(crate) exact: bool,
}

/// The places at which a file of a known kind may have streams. Of a gzip file it is the first
/// only: where the next is shows when that is inflated.
pub(crate) fn places(file: &[u8]) -> Vec<Place> {
    if file.starts_with(ZIP_MEMBER) {
        zip(file)
    } else if file.starts_with(PNG) {
        png(file).into_iter().collect()
    } else if file.starts_with(PDF) {
        pdf(file)
    } else {
        gzip(file, 0).into_iter().collect()
    }
}

/// The stream of a gzip member that begins here.
pub(crate) fn gzip(file: &[u8], at: usize) -> Option<Place> {
    let member = file.get(at..)?;
    if !member.starts_with(GZIP) {
        return None;
    }
    let [extra, name, comment, check] =
        [2, 3, 4, 1].map(|bit| member.get(3).map(|f| f >> bit & 1 == 1));
    let mut head = GZIP_HEAD_BYTES;
    if extra? {
        head += 2 + usize::from(number(member, head)?);
    }
    for text in [name?, comment?] {
        if text {
            head += member.get(head..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    head += if check? { 2 } else { 0 };
    (head < member.len()).then(|| open(at + head, file.len()))
}

fn open(start: usize, end: usize) -> Place {
    one(start..end, false)
}

fn one(piece: Range<usize>, exact: bool) -> Place {
    Place { pieces: std::iter::once(piece).collect(), exact }
}

/// By the heads before the members: the directory at the end may be anywhere.
fn zip(file: &[u8]) -> Vec<Place> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(head) = find(file, ZIP_MEMBER, at) {
        at = head + ZIP_MEMBER.len();
        let Some(start) = zip_member(file, head) else { continue };
        let size = file[head + 18..head + 22].first_chunk().map_or(0, |n| u32::from_le_bytes(*n));
        let end = start.checked_add(size as usize).filter(|end| size > 0 && *end <= file.len());
        places.push(match end {
            Some(end) => one(start..end, true),
            None => open(start, file.len()),
        });
        at = end.unwrap_or(start);
        if places.len() == STREAMS_MAX {
            break;
        }
    }
    places
}

/// Where the bytes of a deflated member begin.
fn zip_member(file: &[u8], head: usize) -> Option<usize> {
    if number(file, head + 8)? != ZIP_DEFLATED {
        return None;
    }
    let names = usize::from(number(file, head + 26)?) + usize::from(number(file, head + 28)?);
    Some(head + ZIP_HEAD_BYTES + names).filter(|start| *start < file.len())
}

/// All that the picture's data chunks hold, without the two bytes of zlib's head.
fn png(file: &[u8]) -> Option<Place> {
    let mut pieces = Vec::new();
    let mut at = PNG.len();
    while let Some(head) = file.get(at..at + 8) {
        let length = u32::from_be_bytes(*head.first_chunk()?) as usize;
        let data = at + 8..(at + 8).checked_add(length)?;
        if data.end > file.len() || pieces.len() == PIECES_MAX {
            break;
        }
        match &head[4..] {
            b"IDAT" => pieces.push(data.clone()),
            _ if !pieces.is_empty() => break,
            _ => {}
        }
        at = data.end.checked_add(4)?;
    }
    let first = pieces.first_mut()?;
    first.start += 2;
    (first.start < first.end).then_some(Place { pieces, exact: false })
}

/// Behind each word `stream` that a head of zlib's follows.
fn pdf(file: &[u8]) -> Vec<Place> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(word) = find(file, PDF_STREAM, at) {
        at = word + PDF_STREAM.len();
        let line = file[at..].iter().take_while(|byte| **byte == b'\r' || **byte == b'\n').count();
        let Some([method, flags, ..]) = file.get(at + line..) else { break };
        let zlib = method & 0xf == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31);
        let start = at + line + 2;
        if zlib && (1..=2).contains(&line) && start < file.len() {
            places.push(open(start, file.len()));
            if places.len() == STREAMS_MAX {
                break;
            }
        }
    }
    places
}

fn find(file: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let (first, rest) = wanted.split_first()?;
    let mut at = from;
    loop {
        at += file.get(at..)?.iter().position(|byte| byte == first)? + 1;
        if file[at..].starts_with(rest) {
            return Some(at - 1);
        }
    }
}

/// Two bytes, the lowest first.
fn number(file: &[u8], at: usize) -> Option<u16> {
    file.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}
