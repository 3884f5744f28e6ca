//! The journal in files: segments named for their first position, in one directory.
//! Holds: a torn tail is cut off when the journal is opened; damage of what was synced, as later
//! records, the mark or the caller say, is an error that names file and offset, and then nothing is
//! changed; the newest segment is never removed, so that no position is given twice.
//! Never: two processes at once in one directory.

use super::envelope::{self, HEADER_BYTES, Header, RECORD_BYTES_MAX};
use super::{Journal, Position};
use crate::error::{Result, StoreError};
use crate::files::{self, locked};
use crate::group_sync::GroupSync;
use crate::kept::{Identity, parent_of};
use crate::ordinary;
use marks::{Marks, read_records};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use synced::SyncedMark;

/// A segment that has reached this gets no further records.
pub const SEGMENT_BYTES: u64 = 4 << 20;

/// The newest segment goes too when all its records are retired, if that frees this much.
const WORTH_RETIRING_BYTES: u64 = 64 << 10;

mod kept;
mod marks;
pub(super) mod synced;

pub(super) const ENDING: &str = ".journal";

/// No journal gets as far: a segment that says so was not written here, and its records could not
/// be counted without an overflow.
const FIRST_MAX: Position = 1 << 62;

/// What was cut off as a torn tail, of the last time only, for a person to look at.
const TORN_FILE: &str = "torn-tail";

pub struct FileJournal {
    directory: PathBuf,
    segment_bytes: u64,
    state: Mutex<State>,
    group: GroupSync,
    mark: Mutex<SyncedMark>,
    lock: Mutex<File>,
    /// The directory in which that of the journal lies.
    parent: Identity,
}

struct State {
    /// In order; the last one is the newest.
    segments: VecDeque<Segment>,
    newest: kept::Open,
    /// All of the newest, so that it can be written anew.
    newest_bytes: Vec<u8>,
    next: Position,
    /// Of the segments before the newest, which is looked at next.
    turn: usize,
    /// How often something was missing and was put there anew.
    put_anew: u64,
}

struct Segment {
    first: Position,
    path: PathBuf,
    bytes: u64,
    marks: Marks,
    /// Of some that are not the newest.
    file: Option<Arc<File>>,
}

/// What is in a journal that is only read.
pub struct AsItIs {
    pub records: Vec<(Position, Vec<u8>)>,
    /// What `append` would give.
    pub next: Position,
    /// The file that has a torn tail, and the bytes of that, which are passed over.
    pub torn: Option<(PathBuf, usize)>,
}

impl FileJournal {
    /// Makes the directory if it is missing.
    pub fn open(directory: &Path) -> Result<FileJournal> {
        FileJournal::open_with_segments(directory, SEGMENT_BYTES)
    }

    /// The same, where the caller knows of records up to `known` that were synced.
    pub fn open_knowing(directory: &Path, known: Position) -> Result<FileJournal> {
        FileJournal::opened(directory, SEGMENT_BYTES, known)
    }

    pub fn open_with_segments(directory: &Path, segment_bytes: u64) -> Result<FileJournal> {
        FileJournal::opened(directory, segment_bytes, 0)
    }

    fn opened(directory: &Path, segment_bytes: u64, known: Position) -> Result<FileJournal> {
        if !files::is_directory(directory)? && known > 0 {
            return Err(missing(directory, 1, known + 1));
        }
        files::make_directory(directory)?;
        let lock = files::lock_directory(directory)?;
        let state = recovered(directory, synced::upto(directory)?.max(known))?;
        let mark = SyncedMark::open(directory)?;
        // What survived is in the files; whether it is beyond the reach of a power cut is not
        // known before the next sync.
        let safe = state.segments.back().map_or(0, |newest| newest.first - 1);
        Ok(FileJournal {
            directory: directory.to_path_buf(),
            segment_bytes,
            state: Mutex::new(state),
            group: GroupSync::new(directory, safe),
            mark: Mutex::new(mark),
            lock: Mutex::new(lock),
            parent: parent_of(directory)?,
        })
    }

    /// Reads one to which nothing can be written.
    pub fn read_as_it_is(directory: &Path) -> Result<AsItIs> {
        let Found { segments, next, torn, .. } = found(directory, synced::upto(directory)?)?;
        let torn = torn.map(|(path, bytes, _)| (path, bytes.len()));
        Ok(AsItIs { records: read_from(&segments, 0, usize::MAX)?, next, torn })
    }

    #[cfg(test)]
    pub fn fail_syncs(&self) {
        self.group.note_failure();
    }

    /// Begins a segment. What the old ones hold is synced before, so only the newest can be torn.
    fn begin_segment(&self, state: &mut State) -> Result<()> {
        self.look_at_newest(state)?;
        if let Err(error) = state.newest.file.sync_data() {
            self.group.note_failure();
            return Err(files::failed(&self.directory, error));
        }
        self.group.note(state.next - 1);
        locked(&self.mark).note(state.next - 1);
        let (segment, opened) = make_segment(&self.directory, state.next)?;
        let before = std::mem::replace(&mut state.newest, opened);
        if state.segments.len() <= kept::OPEN_MAX {
            state.segments.back_mut().expect("open makes the first").file = Some(before.file);
        }
        state.segments.push_back(segment);
        state.newest_bytes = envelope::header(state.next).to_vec();
        Ok(())
    }
}

impl Journal for FileJournal {
    fn append(&self, record: &[u8]) -> Result<Position> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(too_long(&self.directory, record.len()));
        }
        let mut state = locked(&self.state);
        self.look_at_newest(&mut state)?;
        if newest(&state).bytes >= self.segment_bytes {
            self.begin_segment(&mut state)?;
        }
        let position = state.next;
        let bytes = envelope::sealed(position, self.group.synced(), record);
        let segment = newest(&state);
        files::append_at(&state.newest.file, &segment.path, segment.bytes, &bytes)?;
        let segment = state.segments.back_mut().expect("open makes the first");
        segment.marks.note(position, segment.bytes);
        segment.bytes += bytes.len() as u64;
        kept::add(&mut state.newest_bytes, &bytes);
        state.next += 1;
        Ok(position)
    }

    fn next(&self) -> Position {
        locked(&self.state).next
    }

    fn sync(&self) -> Result<()> {
        let wanted = locked(&self.state).next - 1;
        self.group.upto(wanted, || {
            let (file, last) = {
                let state = locked(&self.state);
                (state.newest.file.clone(), state.next - 1)
            };
            file.sync_data().map_err(|source| files::failed(&self.directory, source))?;
            locked(&self.mark).note(last);
            Ok(last)
        })?;
        self.look(&mut locked(&self.state), kept::LOOKED_AT).map(drop)
    }

    fn read(&self, from: Position, bytes_max: usize) -> Result<Vec<(Position, Vec<u8>)>> {
        let mut state = locked(&self.state);
        match read_from(&state.segments, from, bytes_max) {
            Err(error) if !matches!(self.look(&mut state, usize::MAX), Ok(true)) => Err(error),
            Err(_) => read_from(&state.segments, from, bytes_max),
            read => read,
        }
    }

    fn put_anew(&self) -> u64 {
        locked(&self.state).put_anew
    }

    fn retire(&self, upto: Position) -> Result<()> {
        let mut state = locked(&self.state);
        let upto = upto.min(state.next - 1);
        if upto + 1 == state.next && newest(&state).bytes >= WORTH_RETIRING_BYTES {
            self.begin_segment(&mut state)?;
        }
        let mut removed = false;
        // Oldest first, so that a crash in between leaves no gap.
        while state.segments.len() > 1 && state.segments[1].first <= upto + 1 {
            files::remove(&state.segments[0].path)?;
            state.segments.pop_front();
            removed = true;
        }
        if removed { files::sync_directory(&self.directory) } else { Ok(()) }
    }
}

fn read_from(
    segments: &VecDeque<Segment>,
    mut from: Position,
    bytes_max: usize,
) -> Result<Vec<(Position, Vec<u8>)>> {
    let (mut records, mut left) = (Vec::new(), bytes_max);
    let begun = segments.partition_point(|segment| segment.first <= from);
    for segment in segments.iter().skip(begun.saturating_sub(1)) {
        if left == 0 && !records.is_empty() {
            break;
        }
        from = from.max(segment.first);
        let read = read_records(segment, from, left, &mut records)?;
        if !read.to_the_end {
            break;
        }
        left = left.saturating_sub(read.bytes);
        from = records.last().map_or(from, |(last, _)| last + 1);
    }
    Ok(records)
}

fn newest(state: &State) -> &Segment {
    state.segments.back().expect("open makes the first, and retire keeps the newest")
}

fn make_segment(directory: &Path, first: Position) -> Result<(Segment, kept::Open)> {
    let path = directory.join(format!("{first:016x}{ENDING}"));
    let made = write_header(&path, first).and_then(|file| {
        files::sync_directory(directory)?;
        kept::Open::of(file, &path)
    });
    if made.is_err()
        && let Err(error) = files::remove(&path)
    {
        tracing::warn!(%error, "a segment without a header stays until the next start");
    }
    let bytes = HEADER_BYTES as u64;
    Ok((Segment { first, path, bytes, marks: Marks::default(), file: None }, made?))
}

fn write_header(path: &Path, first: Position) -> Result<File> {
    let file = files::open(path, true)?;
    // A crash may have left one of this name with half a header.
    file.set_len(0).map_err(|source| files::failed(path, source))?;
    files::append_at(&file, path, 0, &envelope::header(first))?;
    file.sync_data().map_err(|source| files::failed(path, source))?;
    Ok(file)
}

/// What is there, of which the records up to `synced` had been synced. Nothing is changed before
/// all of it has been read.
fn recovered(directory: &Path, synced: Position) -> Result<State> {
    let Found { mut segments, mut newest_bytes, next, useless, torn } = found(directory, synced)?;
    useless.iter().try_for_each(|path| files::remove(path))?;
    if let Some((path, bytes, offset)) = torn {
        cut_tail(directory, &path, &bytes, offset)?;
    }
    let newest = match segments.back() {
        Some(segment) => kept::Open::of(files::open(&segment.path, false)?, &segment.path)?,
        None => {
            let (segment, opened) = make_segment(directory, next)?;
            segments.push_back(segment);
            newest_bytes = envelope::header(next).to_vec();
            opened
        }
    };
    Ok(State { segments, newest, newest_bytes, next, turn: 0, put_anew: 0 })
}

/// A journal as it was left.
struct Found {
    segments: VecDeque<Segment>,
    /// Of the last one, without a torn tail.
    newest_bytes: Vec<u8>,
    next: Position,
    /// Segments whose making was interrupted.
    useless: Vec<PathBuf>,
    /// The tail of the last one, and where it begins.
    torn: Option<(PathBuf, Vec<u8>, usize)>,
}

/// The same, and nothing is changed.
fn found(directory: &Path, synced: Position) -> Result<Found> {
    let (mut found, mut useless, mut torn) = (Vec::new(), Vec::new(), None);
    // A segment whose making was interrupted has no record, but its name says what had been
    // synced by then.
    let mut begun = 1;
    for (first, path) in files::numbered(directory, ENDING)? {
        if !is_first(first) {
            return Err(nowhere(&path, first));
        }
        let (header, length) = read_header(&path)?;
        match envelope::parse_header(&header) {
            Header::First(named) if named == first => found.push((first, path)),
            Header::Newer(format) => return Err(newer(&path, format)),
            _ if length <= HEADER_BYTES as u64 => {
                begun = begun.max(first);
                useless.push(path);
            }
            _ => return Err(damaged(&path, 0)),
        }
    }
    let mut next = found.first().map_or(begun, |(first, _)| *first);
    let count = found.len();
    let mut segments = VecDeque::with_capacity(count + 1);
    let mut newest_bytes = Vec::new();
    for (index, (first, path)) in found.into_iter().enumerate() {
        if first != next {
            return Err(missing(&path, next, first));
        }
        // One at a time: together they have all that is pending.
        let (bytes, marks, end) = read_marking(&path, first)?;
        if end.offset < bytes.len() {
            let is_newest = index + 1 == count;
            if !is_newest || end.next < begun || was_synced(&bytes[end.offset..], end.next) {
                return Err(damaged(&path, end.offset));
            }
            if end.next <= synced {
                return Err(damaged_end(&path, end.offset));
            }
            torn = Some((path.clone(), bytes[end.offset..].to_vec(), end.offset));
        }
        next = end.next;
        let file = (index + 1 < count.min(kept::OPEN_MAX)).then(|| opened(&path)).flatten();
        segments.push_back(Segment { first, path, bytes: end.offset as u64, marks, file });
        newest_bytes = bytes;
        newest_bytes.truncate(end.offset);
    }
    if next < begun {
        return Err(missing(directory, next, begun));
    }
    if next <= synced {
        let end = segments.back().map_or((directory, 0), |newest| (&newest.path, newest.bytes));
        return Err(damaged_end(end.0, end.1 as usize));
    }
    Ok(Found { segments, newest_bytes, next, useless, torn })
}

/// A segment, and how far its records are whole.
fn read_marking(path: &Path, first: Position) -> Result<(Vec<u8>, Marks, End)> {
    let bytes = read_segment(path)?;
    let mut marks = Marks::default();
    let mut offset = HEADER_BYTES as u64;
    let end = walk(&bytes, End::at_first(first), |position, record| {
        marks.note(position, offset);
        offset += (envelope::ENVELOPE_BYTES + record.len()) as u64;
    });
    Ok((bytes, marks, end))
}

/// Where there are too few descriptors for it, it is opened when it is read.
fn opened(path: &Path) -> Option<Arc<File>> {
    ordinary::open_at_once(path, File::options().read(true)).ok().map(Arc::new)
}

/// Whether a segment may begin there.
pub(super) fn is_first(position: Position) -> bool {
    (1..=FIRST_MAX).contains(&position)
}

/// Where the whole records of a segment end, and the position that follows them.
pub(super) struct End {
    pub offset: usize,
    pub next: Position,
}

impl End {
    /// Where the records of a segment begin.
    pub fn at_first(first: Position) -> End {
        End { offset: HEADER_BYTES, next: first }
    }
}

/// Calls `each` for every record from `begin` on, up to the first that is not whole.
pub(super) fn walk(bytes: &[u8], begin: End, mut each: impl FnMut(Position, &[u8])) -> End {
    let mut end = End { offset: begin.offset.min(bytes.len()), ..begin };
    while let Some(envelope) = envelope::open(&bytes[end.offset..]) {
        if envelope.position != end.next {
            break;
        }
        each(envelope.position, envelope.record);
        end.offset += envelope.bytes();
        end.next += 1;
    }
    end
}

/// A power cut leaves what was not synced in any state, but nobody appended after a sync of these
/// bytes then. A later record that knows of such a sync tells damage from a torn tail.
fn was_synced(tail: &[u8], broken: Position) -> bool {
    let mut rest = tail;
    let last = broken + (tail.len() / envelope::ENVELOPE_BYTES) as u64;
    while let Some((offset, found)) = envelope::find(rest, broken + 1, last) {
        if found.synced >= broken {
            return true;
        }
        rest = &rest[offset + found.bytes()..];
    }
    false
}

fn cut_tail(directory: &Path, path: &Path, torn: &[u8], offset: usize) -> Result<()> {
    tracing::warn!(path = %path.display(), offset, bytes = torn.len(), "torn tail cut off");
    let kept = directory.join(TORN_FILE);
    if let Err(error) = ordinary::write(&kept, torn) {
        // It is for a person to look at; on a full disk the journal must open all the same.
        tracing::warn!(path = %kept.display(), %error, "torn tail not kept");
    }
    let file = files::open(path, false)?;
    file.set_len(offset as u64).map_err(|source| files::failed(path, source))?;
    file.sync_data().map_err(|source| files::failed(path, source))
}

/// The header, or as much of it as there is, and how long the file is.
pub(super) fn read_header(path: &Path) -> Result<(Vec<u8>, u64)> {
    let failed = |source| files::failed(path, source);
    let file = ordinary::open(path, File::options().read(true)).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(failed)?;
    Ok((header, length))
}

pub(super) fn read_segment(path: &Path) -> Result<Vec<u8>> {
    ordinary::read(path).map_err(|source| files::failed(path, source))
}

pub(super) const SALVAGE: &str = "what is whole can still be had of it: keep the directory";

fn damaged(path: &Path, offset: usize) -> StoreError {
    files::damaged(path, offset as u64, format!("a record is not what was written; {SALVAGE}"))
}

/// Of the newest records some are not there that had been synced.
fn damaged_end(path: &Path, offset: usize) -> StoreError {
    let what = "what was synced is not here any more, from this record on";
    files::damaged(path, offset as u64, format!("{what}; {SALVAGE}"))
}

fn nowhere(path: &Path, first: Position) -> StoreError {
    files::damaged(path, 0, format!("no segment begins at position {first}; {SALVAGE}"))
}

fn missing(path: &Path, from: Position, to: Position) -> StoreError {
    let what = format!("records {from} to {} are missing before it", to - 1);
    files::damaged(path, 0, format!("{what}; {SALVAGE}"))
}

fn newer(path: &Path, format: u16) -> StoreError {
    files::damaged(path, 8, format!("format {format} is of a newer farfs; use that"))
}

fn too_long(directory: &Path, bytes: usize) -> StoreError {
    StoreError::Io {
        place: directory.display().to_string(),
        source: std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            format!("a record of {bytes} bytes is beyond {RECORD_BYTES_MAX}"),
        ),
    }
}
