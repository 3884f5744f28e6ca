//! A file that is read and never written: what is written lies above it, in memory, and beyond a bound
//! in a file without a name in the directory for temporary files.
//! Holds: what is read is what was written last, and below that what the file has.
//! Never: changes anything where the file lies.

use crate::error::Result;
use crate::files::{self, locked};
use crate::ordinary;
use redb::StorageBackend;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What is kept together.
const PAGE_BYTES: usize = 4096;

/// What is written above one file and kept in memory.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// What becomes of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// It is on the disk.
    Kept,
    /// It is seen while what it was written to is open, and is gone then: the disk is only read.
    Forgotten,
}

impl Writes {
    /// Where to write what is for a file. None: into it.
    pub fn above(self, path: &Path) -> Result<Option<Arc<Overlay>>> {
        match self {
            Writes::Kept => Ok(None),
            Writes::Forgotten => Overlay::of(path).map(|overlay| Some(Arc::new(overlay))),
        }
    }

    /// The same, as if the file were not there.
    pub fn above_nothing(self) -> Option<Arc<Overlay>> {
        match self {
            Writes::Kept => None,
            Writes::Forgotten => Some(Arc::new(Overlay::above(None, 0, HELD_BYTES_MAX))),
        }
    }
}

/// What opening a file mends where it may be written to, in words.
pub(crate) mod unmended {
    use std::path::Path;

    pub fn torn(path: &Path, bytes: u64) -> String {
        let shown = path.display();
        format!(
            "{shown}: its last {bytes} bytes are of what was being written when the server ended"
        )
    }
}

#[derive(Debug)]
pub struct Overlay {
    below: Option<File>,
    above: Mutex<Above>,
    held_bytes_max: usize,
}

struct Above {
    len: u64,
    /// Of the file below so much is seen; what it had behind that was cut off.
    seen: u64,
    pages: HashMap<u64, Page>,
    held_bytes: usize,
    aside: Option<Aside>,
}

/// Hand-written, so that not every byte is shown.
impl std::fmt::Debug for Above {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Above").field("len", &self.len).field("pages", &self.pages.len()).finish()
    }
}

enum Page {
    Held(Box<[u8; PAGE_BYTES]>),
    /// At this place of the file without a name, counted in pages.
    Aside(u64),
}

struct Aside {
    file: File,
    pages: u64,
    /// Places of pages that were cut off.
    free: Vec<u64>,
}

impl Overlay {
    /// Above the file at `path`, or above nothing if there is none.
    pub fn of(path: &Path) -> Result<Overlay> {
        Overlay::bounded(path, HELD_BYTES_MAX)
    }

    fn bounded(path: &Path, held_bytes_max: usize) -> Result<Overlay> {
        match ordinary::open(path, File::options().read(true)) {
            Ok(file) => {
                let len = files::length(&file, path)?;
                Ok(Overlay::above(Some(file), len, held_bytes_max))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Overlay::above(None, 0, held_bytes_max))
            }
            Err(error) => Err(files::failed(path, error)),
        }
    }

    fn above(below: Option<File>, len: u64, held_bytes_max: usize) -> Overlay {
        let pages = HashMap::new();
        let above = Mutex::new(Above { len, seen: len, pages, held_bytes: 0, aside: None });
        Overlay { below, above, held_bytes_max }
    }

    /// What the file below has, and zeros where nothing is seen of it.
    fn read_below(&self, at: u64, seen: u64, out: &mut [u8]) -> io::Result<()> {
        let there = seen.saturating_sub(at).min(out.len() as u64) as usize;
        let (there, none) = out.split_at_mut(there);
        none.fill(0);
        match &self.below {
            Some(file) if !there.is_empty() => file.read_exact_at(there, at),
            _ => Ok(()),
        }
    }
}

impl Above {
    /// Room for a page that is not here yet, with these bytes in it.
    fn put(
        &mut self,
        number: u64,
        bytes: Box<[u8; PAGE_BYTES]>,
        held_max: usize,
    ) -> io::Result<()> {
        let page = if self.held_bytes + PAGE_BYTES <= held_max {
            self.held_bytes += PAGE_BYTES;
            Page::Held(bytes)
        } else {
            let aside = match &mut self.aside {
                Some(aside) => aside,
                none => none.insert(Aside::new().map_err(|error| no_room(held_max, &error))?),
            };
            Page::Aside(aside.put(&bytes[..]).map_err(|error| no_room(held_max, &error))?)
        };
        self.pages.insert(number, page);
        Ok(())
    }

    /// False: the page is not here.
    fn read(&self, number: u64, within: usize, out: &mut [u8]) -> io::Result<bool> {
        match (self.pages.get(&number), &self.aside) {
            (Some(Page::Held(bytes)), _) => {
                out.copy_from_slice(&bytes[within..within + out.len()]);
            }
            (Some(Page::Aside(place)), Some(aside)) => {
                aside.file.read_exact_at(out, place * PAGE_BYTES as u64 + within as u64)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// False: the page is not here.
    fn write(&mut self, number: u64, within: usize, bytes: &[u8]) -> io::Result<bool> {
        match (self.pages.get_mut(&number), &self.aside) {
            (Some(Page::Held(held)), _) => {
                held[within..within + bytes.len()].copy_from_slice(bytes);
            }
            (Some(Page::Aside(place)), Some(aside)) => {
                aside.file.write_all_at(bytes, *place * PAGE_BYTES as u64 + within as u64)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        (self.len, self.seen) = (len, self.seen.min(len));
        let first_gone = len.div_ceil(PAGE_BYTES as u64);
        let gone: Vec<u64> =
            self.pages.keys().filter(|page| **page >= first_gone).copied().collect();
        for number in gone {
            match self.pages.remove(&number) {
                Some(Page::Held(_)) => self.held_bytes -= PAGE_BYTES,
                Some(Page::Aside(place)) => {
                    self.aside.iter_mut().for_each(|aside| aside.free.push(place));
                }
                None => {}
            }
        }
        let (last, left) = (len / PAGE_BYTES as u64, (len % PAGE_BYTES as u64) as usize);
        self.write(last, left, &[0; PAGE_BYTES][left..]).map(drop)
    }
}

impl Aside {
    fn new() -> io::Result<Aside> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory().join(format!("farfs-aside-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = ordinary::open(&path, &mut options)?;
        std::fs::remove_file(&path)?;
        Ok(Aside { file, pages: 0, free: Vec::new() })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let place = self.free.last().copied().unwrap_or(self.pages);
        self.file.write_all_at(bytes, place * PAGE_BYTES as u64)?;
        if self.free.pop().is_none() {
            self.pages += 1;
        }
        Ok(place)
    }
}

fn directory() -> PathBuf {
    std::env::temp_dir()
}

/// It is not the disk below that is full, and whoever is told that would go on.
fn no_room(held_bytes_max: usize, error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "it cannot be written to, what is written instead takes more than {} MiB, and {} takes no \
         more of it ({error}): have TMPDIR name a directory with more room",
        held_bytes_max >> 20,
        directory().display()
    ))
}

/// The pages of a stretch: the number of each, where in it the stretch begins, and how much of it.
fn pages_of(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut at, mut left) = (offset, length);
    std::iter::from_fn(move || {
        let (page, within) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
        let take = left.min(PAGE_BYTES - within);
        (at, left) = (at + take as u64, left - take);
        (take > 0).then_some((page, within, take))
    })
}

/// For redb, which has it as its own. It is locked by nobody: nobody is kept from what is read.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub Arc<Overlay>);

impl StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        Ok(locked(&self.0.above).len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let above = locked(&self.0.above);
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > above.len) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (seen, mut rest) = (above.seen, out);
        for (page, within, take) in pages_of(offset, rest.len()) {
            let (part, behind) = rest.split_at_mut(take);
            if !above.read(page, within, part)? {
                self.0.read_below(page * PAGE_BYTES as u64 + within as u64, seen, part)?;
            }
            rest = behind;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut above = locked(&self.0.above);
        if len < above.len {
            return above.cut(len);
        }
        above.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut above = locked(&self.0.above);
        let mut rest = data;
        for (page, within, take) in pages_of(offset, data.len()) {
            let (part, behind) = rest.split_at(take);
            if !above.write(page, within, part)? {
                let mut bytes = Box::new([0; PAGE_BYTES]);
                if take < PAGE_BYTES {
                    let seen = above.seen;
                    self.0.read_below(page * PAGE_BYTES as u64, seen, &mut bytes[..])?;
                }
                bytes[within..within + take].copy_from_slice(part);
                above.put(page, bytes, self.0.held_bytes_max)?;
            }
            rest = behind;
        }
        above.len = above.len.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEN_MAX: u64 = 6 * PAGE_BYTES as u64;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || (1..255_u8, 1..9000_usize).prop_map(|(byte, count)| vec![byte; count]);
        let write = (0..LEN_MAX, bytes()).prop_map(|(at, bytes)| Step::Write(at, bytes));
        let step = prop_oneof![3 => write, 1 => (0..LEN_MAX).prop_map(Step::SetLen)];
        proptest::collection::vec(step, 1..30)
    }

    fn all(overlay: &Shared) -> Vec<u8> {
        let mut bytes = vec![0xee; overlay.len().unwrap() as usize];
        overlay.read(0, &mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn prop_it_reads_as_a_file_that_was_written_to_and_the_file_stays(
            steps in steps(),
            before in 0..LEN_MAX,
            held in 0..4_usize,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let file: Vec<u8> = (0..before).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &file).unwrap();
            let overlay = Overlay::bounded(&path, held * PAGE_BYTES).unwrap();
            let overlay = Shared(Arc::new(overlay));
            let mut model = file.clone();
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        let end = at as usize + bytes.len();
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&bytes);
                        overlay.write(at, &bytes).unwrap();
                    }
                    Step::SetLen(len) => {
                        model.resize(len as usize, 0);
                        overlay.set_len(len).unwrap();
                    }
                }
                prop_assert!(all(&overlay) == model);
                let above = locked(&overlay.0.above);
                prop_assert!(above.held_bytes <= held * PAGE_BYTES);
            }
            let mut beyond = [0; 2];
            prop_assert!(overlay.read(model.len() as u64, &mut beyond).is_err());
            prop_assert_eq!(std::fs::read(&path).unwrap(), file);
            let there = std::fs::read_dir(directory.path()).unwrap();
            prop_assert_eq!(there.count(), 1);
        }
    }

    #[test]
    fn places_of_pages_that_were_cut_off_are_used_again() {
        let overlay = Shared(Arc::new(Overlay::above(None, 0, 0)));
        for _ in 0..5 {
            overlay.write(0, &[7; 3 * PAGE_BYTES]).unwrap();
            overlay.set_len(0).unwrap();
        }
        assert_eq!(locked(&overlay.0.above).aside.as_ref().unwrap().pages, 3);
    }

    #[test]
    fn what_was_there_and_cannot_be_read_any_more_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [1; 2 * PAGE_BYTES]).unwrap();
        let overlay = Shared(Arc::new(Overlay::of(&path).unwrap()));
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert!(overlay.read(0, &mut [0; PAGE_BYTES]).is_err());
        overlay.write(0, &[2; PAGE_BYTES]).unwrap();
        assert!(overlay.read(0, &mut [0; PAGE_BYTES]).is_ok());
    }

    #[test]
    fn where_there_is_no_room_for_it_either_it_is_said_what_to_do() {
        let error = no_room(64 << 20, &ErrorKind::StorageFull.into());
        assert!(error.kind() != ErrorKind::StorageFull && error.to_string().contains("64 MiB"));
        assert!(error.to_string().contains("TMPDIR"), "{error}");
    }
}
