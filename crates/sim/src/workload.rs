//! What programs do, drawn from the seed: few names, so that they meet; files kept open across
//! other operations; the ways in which editors and tools save a file.

use crate::operation::{Operation, Path, SLOTS};
use client::{Allocate, OpenFlags, RenameFlag, XattrFlag};
use model::{Kind, Name};
use std::collections::VecDeque;
use world::Entropy;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const XATTRS: [&[u8]; 3] = [b"user.one", b"user.two", b"user.three"];
const MODES: [u16; 5] = [0o644, 0o600, 0o755, 0o700, 0o4755];
const DEPTH_MAX: u64 = 3;
/// Offsets of reads and writes, mostly within a file.
const OFFSET_MAX: u64 = 12_000;
/// Versions of one client are below those of the next.
const VERSIONS_EACH: u64 = 1_000_000;

/// Whether programs give such a name.
pub fn is_given(name: &Name) -> bool {
    NAMES.iter().any(|given| given.as_bytes() == name.as_bytes())
}

pub struct Workload {
    chance: Entropy,
    version: u64,
    /// The rest of what a program is in the middle of.
    next: VecDeque<Operation>,
}

impl Workload {
    pub fn new(chance: Entropy, side: usize) -> Workload {
        Workload { chance, version: side as u64 * VERSIONS_EACH, next: VecDeque::new() }
    }

    /// The next operation of a client whose programs have these slots open.
    pub fn draw(&mut self, open: &[usize]) -> Operation {
        if let Some(next) = self.next.pop_front() {
            return next;
        }
        let free = (0..SLOTS).find(|slot| !open.contains(slot));
        let slot = self.pick(open);
        match (self.chance.below(100), free, slot) {
            (0..20, Some(free), _) => self.begin_with_file(free),
            (20..50, _, Some(slot)) => self.with_open(slot, open),
            (20..50, Some(free), None) => self.begin_with_file(free),
            (50..80, ..) => self.with_names(),
            (0..20, None, Some(slot)) => Operation::Close { slot },
            _ => self.question(),
        }
    }

    /// What a program was in the middle of, it is no more.
    pub fn interrupt(&mut self) {
        self.next.clear();
    }

    pub fn version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub fn length(&mut self) -> usize {
        let most = match self.chance.below(12) {
            0..8 => 200,
            8..11 => 9_000,
            _ => 150_000,
        };
        1 + self.chance.below(most) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        from.get(self.chance.below(from.len() as u64) as usize).copied()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.chance.below(n) == 0
    }

    fn name(&mut self) -> Name {
        let name = NAMES[self.chance.below(NAMES.len() as u64) as usize];
        Name::new(name).expect("a letter is a name")
    }

    pub fn path(&mut self) -> Path {
        // Most are near the top, where there is most.
        let depth = 1 + self.chance.below(DEPTH_MAX).min(self.chance.below(DEPTH_MAX));
        Path((0..depth).map(|_| self.name()).collect())
    }

    fn mode(&mut self) -> u16 {
        MODES[self.chance.below(MODES.len() as u64) as usize]
    }

    fn write(&mut self, slot: usize) -> Operation {
        let (length, version) = (self.length(), self.version());
        if self.one_in(3) {
            return Operation::Append { slot, length, version };
        }
        let offset = if self.one_in(2) { 0 } else { self.chance.below(OFFSET_MAX) };
        Operation::Write { slot, offset, length, version }
    }

    /// A program opens a file, and perhaps saves it in one go.
    fn begin_with_file(&mut self, slot: usize) -> Operation {
        let path = self.path();
        let mode = self.mode();
        let write = self.write(slot);
        let close = Operation::Close { slot };
        match self.chance.below(8) {
            0..2 => {
                self.next.extend([write, close]);
                Operation::Create { path, mode, slot }
            }
            2 => Operation::Create { path, mode, slot },
            3 => {
                let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
                self.next.extend([write, close]);
                Operation::Open { path, slot, flags }
            }
            4 if self.one_in(3) => {
                // Without a name until it is whole.
                let above = path.split().map_or_else(|| Path(Vec::new()), |(above, _)| above);
                self.next.extend([write, Operation::Bear { slot, to: path }, close]);
                Operation::CreateUnborn { directory: above, mode, slot }
            }
            4 => {
                // As editors do it: a new file in the old one's place.
                let temporary = self.path();
                let rename = Operation::Rename {
                    from: temporary.clone(),
                    to: path,
                    flag: RenameFlag::Replace,
                };
                self.next.extend([write, Operation::Sync { slot }, close, rename]);
                Operation::Create { path: temporary, mode, slot }
            }
            5 => {
                let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
                self.next.extend([write, close]);
                Operation::Open { path, slot, flags }
            }
            _ => {
                let (read, write) =
                    [(true, false), (true, true), (false, true)][self.chance.below(3) as usize];
                let truncate = write && self.one_in(4);
                let append = write && self.one_in(4);
                let flags = OpenFlags { read, write, truncate, append };
                Operation::Open { path, slot, flags }
            }
        }
    }

    fn with_open(&mut self, slot: usize, open: &[usize]) -> Operation {
        let offset = self.chance.below(OFFSET_MAX);
        let length = self.length();
        match self.chance.below(20) {
            0..6 => self.write(slot),
            6 => Operation::Truncate { slot, size: offset },
            7 => Operation::Truncate { slot, size: 0 },
            8 => {
                let how = [Allocate::Keep, Allocate::Extend, Allocate::Punch, Allocate::Zero]
                    [self.chance.below(4) as usize];
                Operation::Allocate { slot, offset, length: length as u64, how }
            }
            9 => {
                let to = self.pick(open).unwrap_or(slot);
                let to_offset = self.chance.below(OFFSET_MAX);
                // To the same place, as a copy of a whole file goes.
                let to_offset = if offset.is_multiple_of(2) { offset / 4 } else { to_offset };
                let length = length as u64;
                Operation::Copy { from: slot, from_offset: offset / 4, to, to_offset, length }
            }
            10..13 => {
                let offset = if self.one_in(2) { 0 } else { offset };
                Operation::Read { slot, offset, length }
            }
            13 => Operation::SeekData { slot, offset },
            14 => Operation::StatOpen { slot },
            15 => Operation::Flush { slot },
            16 => Operation::Sync { slot },
            _ => Operation::Close { slot },
        }
    }

    /// A change of names or attributes, and not of contents.
    pub fn name_change(&mut self) -> Operation {
        loop {
            let drawn = self.with_names();
            if !matches!(drawn, Operation::Cut { .. }) {
                return drawn;
            }
        }
    }

    /// A change of a mode or an owner.
    pub fn attribute_change(&mut self) -> Operation {
        loop {
            let drawn = self.with_names();
            if matches!(drawn, Operation::SetMode { .. } | Operation::SetOwner { .. }) {
                return drawn;
            }
        }
    }

    fn with_names(&mut self) -> Operation {
        let path = self.path();
        match self.chance.below(24) {
            0..6 => {
                Operation::Make { path, kind: Kind::Directory, mode: self.mode(), target: None }
            }
            6 => {
                let target = Some(b"a/b".to_vec());
                Operation::Make { path, kind: Kind::Symlink, mode: 0o777, target }
            }
            7 => Operation::Make { path, kind: Kind::Fifo, mode: self.mode(), target: None },
            8..10 => Operation::Link { from: path, to: self.path() },
            10..13 => Operation::Unlink { path },
            13 => Operation::RemoveDirectory { path },
            14..18 => {
                let flag = match self.chance.below(6) {
                    0 => RenameFlag::NoReplace,
                    1 => RenameFlag::Exchange,
                    _ => RenameFlag::Replace,
                };
                Operation::Rename { from: path, to: self.path(), flag }
            }
            18 => {
                let size = if self.one_in(3) { 0 } else { self.chance.below(OFFSET_MAX) };
                Operation::Cut { path, size }
            }
            19 => Operation::SetMode { path, mode: self.mode() },
            20 => {
                let (uid, gid) = (self.chance.below(3) as u32, self.chance.below(3) as u32);
                Operation::SetOwner { path, uid, gid }
            }
            21 => Operation::SetTime { path, secs: self.chance.below(2_000_000_000) as i64 },
            22 => {
                let name = XATTRS[self.chance.below(XATTRS.len() as u64) as usize].to_vec();
                let value = crate::contents::stretch(self.version(), 20);
                let flag = match self.chance.below(4) {
                    0 => XattrFlag::Create,
                    1 => XattrFlag::Replace,
                    _ => XattrFlag::Either,
                };
                Operation::SetXattr { path, name, value, flag }
            }
            _ => {
                let name = XATTRS[self.chance.below(XATTRS.len() as u64) as usize].to_vec();
                Operation::RemoveXattr { path, name }
            }
        }
    }

    pub fn question(&mut self) -> Operation {
        let path = self.path();
        match self.chance.below(14) {
            0..4 => Operation::Fetch { path },
            4..7 => Operation::Stat { path },
            7..9 => Operation::List { path, page: 1 + self.chance.below(4) as usize },
            9 => Operation::List { path: Path(Vec::new()), page: 100 },
            10 => Operation::ReadLink { path },
            11 => Operation::Parent { path },
            12 => {
                let name = XATTRS[self.chance.below(XATTRS.len() as u64) as usize].to_vec();
                if self.one_in(2) {
                    Operation::Xattr { path, name }
                } else {
                    Operation::Xattrs { path }
                }
            }
            _ => Operation::Totals,
        }
    }
}
