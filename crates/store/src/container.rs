//! Containers: one ordinary local file for each cached file, whole or sparse.
//! The kernel may read and write it directly, so it is a plain file and nothing else.

use crate::error::{Result, StoreError};

mod directory;
mod fan;
mod mapped;
mod pieces;
mod places;

pub use directory::{DirectoryContainers, OrdinaryFile};

/// Which container: the file's id, and a generation where two versions are open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub file: u64,
    pub generation: u32,
}

/// Is called after each step of what is done in bounded steps.
pub type Step<'a> = &'a mut dyn FnMut();

pub trait Containers: Send + Sync + 'static {
    type Container: Container;

    /// Opens it, and makes it if it is missing and `create` says so. None: it is missing.
    fn open(&self, key: Key, create: bool) -> Result<Option<Self::Container>>;

    /// Whether one more may be opened to stay open: what is open needs more of what it takes to open
    /// one, for a moment now and then.
    fn has_place(&self) -> bool {
        true
    }

    /// Goes away; whoever has it open keeps it until then. Removing what is missing is done.
    fn remove(&self, key: Key) -> Result<()>;

    /// Gives a container another name, in place of what may bear that; whoever has either open
    /// keeps it. False: there is no container of the first name.
    fn rename(&self, from: Key, to: Key) -> Result<bool>;

    /// A second container with the same contents, in place of what may be there: at once where the
    /// file system shares the bytes, or else if they are at most `bytes_max`. False: it was not
    /// made. Nobody may write to the first one meanwhile.
    fn copy(&self, from: Key, to: Key, bytes_max: u64) -> Result<bool> {
        self.copy_in_steps(from, to, bytes_max, &mut || {})
    }

    /// The same: what is not copied at once is in bounded steps.
    fn copy_in_steps(&self, from: Key, to: Key, bytes_max: u64, step: Step<'_>) -> Result<bool>;

    /// A second name of a container, in place of what may be there: what is written through one name
    /// is there through the other, and either may be removed. False: it was not made. Safe from a power
    /// cut with a sync of the container by that name.
    fn link(&self, from: Key, to: Key) -> Result<bool>;

    /// Whether it has a second name.
    fn is_linked(&self, key: Key) -> Result<bool>;

    /// All that are there, in no order, with the bytes that each takes on the disk.
    fn list(&self) -> Result<Vec<(Key, u64)>>;

    /// The same without a look at each.
    fn keys(&self) -> Result<Vec<Key>> {
        Ok(self.list()?.into_iter().map(|(key, _)| key).collect())
    }

    /// The same of all that can be read, and why others cannot.
    fn readable_keys(&self) -> (Vec<Key>, Vec<StoreError>) {
        match self.keys() {
            Ok(keys) => (keys, Vec::new()),
            Err(error) => (Vec::new(), vec![error]),
        }
    }

    /// Those of one file.
    fn list_of(&self, file: u64) -> Result<Vec<Key>> {
        Ok(self.keys()?.into_iter().filter(|key| key.file == file).collect())
    }

    /// Whether it is one more of them that their disk has no room for, though it has bytes.
    fn lack_files(&self) -> Result<bool> {
        Ok(false)
    }

    /// As `Container::sync` of all at once, for when there are many.
    fn sync_all(&self) -> Result<()>;
}

/// See `Container::length` and `Container::allocated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub length: u64,
    pub allocated: u64,
}

/// Clones share the file. Methods may be called from several threads at once.
pub trait Container: Clone + Send + Sync + 'static {
    /// Fewer bytes than asked for only at the end of the file.
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>>;
    /// The same of a stretch of whole blocks, from the disk itself where that can be: the kernel fails
    /// to read into its cache also what lies around a block that cannot be read.
    fn read_apart(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.read(offset, length)
    }
    /// All of it, or an error; survives the process when this returns.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// The same of what can be had again, and goes before it is in anybody's way: it may take half of what
    /// other contents leave free of the disk.
    fn fill(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }
    fn set_length(&self, length: u64) -> Result<()>;
    fn length(&self) -> Result<u64>;
    /// Frees the stretch; it reads as zeros.
    fn punch(&self, offset: u64, length: u64) -> Result<()>;
    /// The stretch reads as zeros, as far as the file goes, and has room set aside. What there is no
    /// room for stays as it is.
    fn zero(&self, offset: u64, length: u64) -> Result<()>;
    /// Sets room aside, for what is written there later: it lasts until it is punched or the file is
    /// set to a length that is not larger, and a copy of the container has none. The length stays.
    fn set_aside(&self, offset: u64, length: u64) -> Result<()>;
    /// The same, and grows the file to it.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;
    /// Stretches that hold data within `offset .. offset + length`, as (offset, length); the rest
    /// are holes. They may be wider than what was written, by the file system's block.
    fn data(&self, offset: u64, length: u64) -> Result<Vec<(u64, u64)>>;
    /// Bytes that it takes on the disk, without its holes.
    fn allocated(&self) -> Result<u64>;
    /// Both, by one look where that can be.
    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes { length: self.length()?, allocated: self.allocated()? })
    }
    /// When its bytes last changed, whoever changed them, by the disk's clock: seconds since 1970 and
    /// nanoseconds. None: that is not kept.
    fn changed_at(&self) -> Result<Option<(i64, u32)>>;
    /// Whether nobody but its clones has it open or mapped. Errors: that cannot be told here.
    fn is_alone(&self) -> Result<bool>;
    /// Bytes that its disk has left.
    fn free_bytes(&self) -> Result<u64>;
    /// Safe from a power cut when this returns.
    fn sync(&self) -> Result<()>;
    /// Where another program has taken the name of a container away, which is nobody's to take now,
    /// what it has is there again under that name when this returns, safe from a power cut. What is
    /// written to it later is not, before the next look.
    fn look(&self) -> Result<()> {
        Ok(())
    }
    /// Whether its name leads to it, as when it was opened. False: that it does is not known.
    fn is_kept(&self) -> Result<bool> {
        Ok(false)
    }
    /// The kernel's descriptor, if it is an ordinary file of this machine.
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>>;
}
