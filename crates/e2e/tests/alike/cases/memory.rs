//! What files hold: in memory, on the disk, and past their ends.

use super::{both, errno, sum};
use crate::calls::{Pages, aligned, in_child};
use e2e::contents::{checksum, noise};
use rustix::fs::{FallocateFlags, fallocate};
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

type Way = (&'static str, fn(&File));

/// A file whose last page has something past the end, in memory, grows in every way there is.
pub fn grown(place: &Path, told: &mut String) {
    let ways: [Way; 6] = [
        ("cut longer", |file| file.set_len(9_000).unwrap()),
        ("written past the end", |file| file.write_all_at(b"end", 8_997).unwrap()),
        ("written over several pages", |file| file.write_all_at(b"end", 20_000).unwrap()),
        ("given room", |file| fallocate(file, FallocateFlags::empty(), 0, 9_000).unwrap()),
        ("zeroed", |file| fallocate(file, FallocateFlags::ZERO_RANGE, 6_000, 3_000).unwrap()),
        ("copied into", |file| {
            let copied =
                rustix::fs::copy_file_range(file, Some(&mut 0), file, Some(&mut 8_990), 10);
            assert_eq!(copied, Ok(10));
        }),
    ];
    for (number, (name, way)) in ways.iter().enumerate() {
        for mapped in [false, true] {
            let path = place.join(format!("grown-{number}-{mapped}"));
            let file = both(&path);
            file.write_all_at(&[b'x'; 10_000], 0).unwrap();
            let pages = Pages::shared(&file, 40_000);
            pages.fill(8_192, 3_000, b'y');
            file.set_len(5_000).unwrap();
            if mapped {
                pages.fill(3_000, 2_000, b'z');
            }
            way(&file);
            let seen = pages.sum(0, 8_192);
            pages.sync();
            writeln!(told, "{name} {mapped}: mapped {seen:x}, read {}", sum(&path)).unwrap();
            drop((pages, file));
            writeln!(told, "  then {}", sum(&path)).unwrap();
        }
    }
}

pub fn cut_under_mapping(place: &Path, told: &mut String) {
    let path = place.join("cut");
    let file = both(&path);
    file.write_all_at(&noise(3, 12_288), 0).unwrap();
    let pages = Pages::shared(&file, 12_288);
    let tries = |what: &str, told: &mut String| {
        let ends = [0, 4_095, 4_096, 8_192].map(|at| in_child(|| pages.touch(at)));
        writeln!(told, "{what}: {ends:?}").unwrap();
    };
    tries("whole", told);
    file.set_len(4_000).unwrap();
    tries("cut", told);
    file.set_len(12_288).unwrap();
    tries("grown", told);
    writeln!(told, "{:x} {}", pages.sum(0, 12_288), sum(&path)).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100, 3_000).unwrap();
    writeln!(told, "{:x} {}", pages.sum(0, 12_288), sum(&path)).unwrap();
    file.set_len(0).unwrap();
    tries("nothing left", told);
    // What nobody else sees stays as it was written, also where the file is cut.
    file.write_all_at(&noise(4, 8_192), 0).unwrap();
    let own = Pages::private(&file, 8_192);
    own.fill(10, 10, b'o');
    file.write_all_at(b"changed after", 4_096).unwrap();
    writeln!(told, "{:x} {}", own.sum(0, 4_096), sum(&path)).unwrap();
}

/// A call that reads or writes a file from or to memory that is a part of the same file.
pub fn written_from_itself(place: &Path, told: &mut String) {
    let path = place.join("itself");
    let file = both(&path);
    file.write_all_at(&noise(5, 65_536), 0).unwrap();
    let pages = Pages::shared(&file, 65_536);
    for (from, to, bytes) in [(0, 100, 4_000), (8_192, 8_192, 4_096), (0, 60_000, 20_000)] {
        let written = pages.write_to(&file, from, bytes, to);
        writeln!(told, "{written:?} {}", sum(&path)).unwrap();
    }
    for (from, to, bytes) in [(0, 16_384, 4_096), (100, 20_000, 10_000)] {
        let read = pages.read_from(&file, to, bytes, from);
        writeln!(told, "{read:?} {:x} {}", pages.sum(0, 65_536), sum(&path)).unwrap();
    }
    // Of pages that are not in memory yet.
    drop(pages);
    let other = both(&place.join("other"));
    other.write_all_at(&noise(6, 200_000), 0).unwrap();
    let pages = Pages::shared(&other, 200_000);
    let written = pages.write_to(&file, 5, 150_000, 3);
    writeln!(told, "{written:?} {}", sum(&path)).unwrap();
}

pub fn direct(place: &Path, told: &mut String) {
    let path = place.join("direct");
    let buffered = both(&path);
    let opened = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
    let Ok(direct) = opened else { return writeln!(told, "none: {opened:?}").unwrap() };
    buffered.write_all_at(&noise(8, 20_000), 0).unwrap();
    let mut memory = aligned(16_384);
    let pages = Pages::shared(&buffered, 16_384);
    let mut look = |what: &str, direct: &File| {
        let memory = memory.get_mut();
        let seen = direct.read_at(memory, 4_096).unwrap();
        let seen = (seen, checksum(&memory[..seen]));
        writeln!(told, "{what}: {seen:x?}, {:x}, {}", pages.sum(0, 16_384), sum(&path)).unwrap();
    };
    look("written", &direct);
    buffered.write_all_at(&[1; 5_000], 4_100).unwrap();
    look("written buffered", &direct);
    let mut block = aligned(4_096);
    block.get_mut().fill(2);
    direct.write_all_at(block.get_mut(), 8_192).unwrap();
    look("written direct", &direct);
    pages.fill(5_000, 4_000, 3);
    look("written mapped", &direct);
    direct.write_all_at(block.get_mut(), 4_096).unwrap();
    look("written direct over it", &direct);
    direct.write_all_at(block.get_mut(), 20_480).unwrap();
    look("written direct past the end", &direct);
    buffered.set_len(6_000).unwrap();
    look("cut", &direct);
}

pub fn unlinked(place: &Path, told: &mut String) {
    let path = place.join("unlinked");
    let mut file = both(&path);
    file.write_all(&noise(1, 30_000)).unwrap();
    let reader = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut look = |what: &str| {
        let stat = reader.metadata().unwrap();
        let mut bytes = Vec::new();
        (&reader).seek(SeekFrom::Start(0)).unwrap();
        (&reader).read_to_end(&mut bytes).unwrap();
        let (size, links, mode) = (stat.len(), stat.nlink(), stat.mode());
        writeln!(told, "{what}: {size} {links} {mode:o} {:x}", checksum(&bytes)).unwrap();
    };
    look("removed");
    file.set_len(0).unwrap();
    look("emptied");
    file.write_all_at(&noise(2, 50_000), 5_000).unwrap();
    look("written");
    let pages = Pages::shared(&file, 55_000);
    pages.fill(100, 4_000, 9);
    look("mapped");
    file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    fs::write(&path, "another").unwrap();
    look("another in its place");
    let mut again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let mut bytes = Vec::new();
    again.read_to_end(&mut bytes).unwrap();
    file.sync_all().unwrap();
    writeln!(told, "{:x} {}", checksum(&bytes), fs::read_to_string(&path).unwrap()).unwrap();
}

pub fn far(place: &Path, told: &mut String) {
    let path = place.join("far");
    let mut file = both(&path);
    for at in [(1_u64 << 44) - 4_097, (1 << 44) - 4_096, 1 << 44, i64::MAX as u64 - 1] {
        let written = errno(file.write_at(b"xy", at));
        let cut = errno(file.set_len(at));
        let size = file.metadata().unwrap().len();
        writeln!(told, "at {at:x}: {written}, {cut}, {size:x}").unwrap();
        let end = errno(file.seek(SeekFrom::End(-1)));
        writeln!(told, "  {end} {}", errno(file.read(&mut [0; 10]))).unwrap();
        file.set_len(0).unwrap();
    }
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"middle", 1 << 39).unwrap();
    let stat = file.metadata().unwrap();
    writeln!(told, "{:x}, few blocks: {}", stat.len(), stat.blocks() < 1_000).unwrap();
    let seek = |from: u64, hole: bool| {
        let from =
            if hole { rustix::fs::SeekFrom::Hole(from) } else { rustix::fs::SeekFrom::Data(from) };
        rustix::fs::seek(&file, from)
    };
    let found =
        [seek(0, false), seek(0, true), seek(1 << 39, true), seek((1 << 39) + 9_000, false)];
    writeln!(told, "{found:x?}").unwrap();
}
