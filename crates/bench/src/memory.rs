//! A file system in memory, through FUSE: what the way through FUSE takes by itself. It answers each
//! request at once, lets the kernel keep all that it may, and leaves to it syncs, locks, and what a
//! program waits for at a close. What it takes beyond a directory of the local disk is the way through the
//! kernel, as long as that hands every write on: its writeback cache is off here, as with FarFS, and nothing
//! is lent to it, as FarFS lends large files.

mod contents;
mod directory;
mod filesystem;
mod node;
mod tree;

use anyhow::{Context, Result};
use filesystem::Memory;
use fuse::{How, InitFlags, Session, Settings};
use rustix::system::sysinfo;
use std::path::Path;

/// What `mount` shows as the source, and as the kind after `fuse.`.
const NAME: &str = "bench-memory";
/// As FarFS has them: a request to read or write, and requests for nobody in particular.
const BYTES_MAX: u32 = 1 << 20;
const BACKGROUND_MAX: u16 = 4096;
const BUSY_FROM: u16 = 48;
const THREADS: usize = 2;
/// Files may take one part in so many of the machine's memory.
const PART_OF_MEMORY: u64 = 2;

/// What FarFS wants of the kernel, without what is about other machines or handles: of locks and of
/// files opened by handle the kernel asks nothing then.
const WANTED: InitFlags = InitFlags::ATOMIC_O_TRUNC
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::CACHE_SYMLINKS)
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    .union(InitFlags::EXPLICIT_INVAL_DATA)
    .union(InitFlags::POSIX_ACL)
    .union(InitFlags::DONT_MASK);

/// Mounts one that is empty, and returns when it is unmounted.
pub fn serve(mountpoint: &Path) -> Result<()> {
    let machine = sysinfo();
    let memory = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let session = Session::mount(Memory::new(memory / PART_OF_MEMORY), mountpoint, settings())
        .with_context(|| format!("cannot mount on {}", mountpoint.display()))?;
    session.run().with_context(|| format!("the mount on {} broke down", mountpoint.display()))
}

fn settings() -> Settings {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let how = How { source: NAME.into(), subtype: NAME.into(), ..How::default() };
    Settings {
        how,
        flags: WANTED,
        bytes_max: BYTES_MAX,
        background_max: BACKGROUND_MAX,
        busy_from: BUSY_FROM,
        threads: THREADS,
        looks: processors > 1,
    }
}
