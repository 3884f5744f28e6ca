//! A disk that loses its power: a file system of its own in a file, of which everything that was not
//! synced can be taken away at any moment.
//!
//! The kernel's file system stops in that moment, as it does for the tests of file systems
//! themselves: nothing goes to the disk any more, not even its journal, and every call fails. What the
//! kernel had written back of its own accord before is there, and nothing that it had not.
//!
//! A sync that runs in that moment may return as if all were written: ext4's journal ends the
//! transaction that it gives up, and who waited for it takes it for committed. It was so in 5 of 100
//! times in which a program did nothing but append and sync (Linux 6.18). A machine without power
//! tells nobody of such a sync, so whoever has files on the disk stands still in that moment.

use crate::process::{Process, Still, run};
use crate::wait::eventually;
use crate::world::World;
use rustix::ioctl::{Setter, opcode};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `EXT4_IOC_SHUTDOWN`, which XFS and F2FS have too.
const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: what is in the journal's memory is lost too.
const NO_LOG_FLUSH: u32 = 2;
const UNMOUNTED_BOUND: Duration = Duration::from_secs(20);

pub struct Disk {
    image: PathBuf,
    pub place: PathBuf,
}

impl Disk {
    /// A new disk of so many bytes, mounted in the world's folder.
    ///
    /// # Panics
    /// Where there are no loop devices or no ext4.
    pub fn new(world: &World, name: &str, bytes: u64) -> Disk {
        Disk::made(world, name, bytes, &[])
    }

    /// The same, that can have about so many files.
    ///
    /// # Panics
    /// As `new`.
    pub fn of_few_files(world: &World, name: &str, bytes: u64, files: u64) -> Disk {
        Disk::made(world, name, bytes, &["-N", &files.to_string()])
    }

    fn made(world: &World, name: &str, bytes: u64, options: &[&str]) -> Disk {
        let image = world.path(&format!("{name}.image"));
        let file = File::create(&image).unwrap_or_else(|error| panic!("no image: {error}"));
        file.set_len(bytes).unwrap_or_else(|error| panic!("no room for an image: {error}"));
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).args(options).arg(&image)).succeeds();
        let disk = Disk { image, place: world.folder(name) };
        disk.come_back();
        disk
    }

    /// The machine loses its power: everything that was not synced is lost, and these processes of
    /// it, all that have files on the disk, are killed, also in the midst of a sync.
    ///
    /// # Panics
    /// If the file system cannot do that.
    pub fn lose_power(&self, machine: &[&Process]) {
        machine.iter().for_each(|process| process.stands_still(Still::OrInACall));
        self.shut_down();
        machine.iter().for_each(|process| process.kill());
    }

    /// The disk alone is gone: everything that was not synced is lost, and every call fails from
    /// now on. Its users go on, and have to be ended before it comes back.
    ///
    /// # Panics
    /// If the file system cannot do that.
    pub fn fail(&self, users: &[&Process]) {
        users.iter().for_each(|process| process.stands_still(Still::OutsideCalls));
        self.shut_down();
        users.iter().for_each(|process| process.signal(Signal::CONT));
    }

    fn shut_down(&self) {
        let root = File::open(&self.place).unwrap_or_else(|error| panic!("no disk: {error}"));
        shut_down(&root).unwrap_or_else(|error| panic!("the disk keeps its power: {error}"));
    }

    /// After `lose_power` or `fail`, mounted again as it is then.
    ///
    /// # Panics
    /// If somebody still uses it.
    pub fn is_back(&self) {
        eventually(UNMOUNTED_BOUND, "nobody uses the disk any more", || {
            unmount(&self.place, UnmountFlags::empty()).is_ok()
        });
        self.come_back();
    }

    fn come_back(&self) {
        let mut mount = Command::new("mount");
        run(mount.args(["-o", "loop"]).arg(&self.image).arg(&self.place)).succeeds();
    }

    /// A folder on it.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.place.join(name);
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("no folder: {error}"));
        folder
    }
}

#[allow(unsafe_code, reason = "no library offers what tests of file systems do")]
fn shut_down(root: &File) -> rustix::io::Result<()> {
    // SAFETY: the call reads a number of 32 bits and keeps nothing.
    unsafe { rustix::ioctl::ioctl(root, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) }
}

/// Spoils the middle of a file, as a disk does that lost its power while it wrote.
///
/// # Panics
/// If it cannot be read or written.
pub fn spoil(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap_or_else(|error| panic!("nothing there: {error}"));
    let (from, to) = (bytes.len() / 3, bytes.len() * 2 / 3);
    bytes[from..to].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("it stays as it is: {error}"));
}
