use crate::needs_fuse;
use crate::support::Farm;
use client::{Caller, OpenFlags, WantedMode};
use model::FileId;
use mount::MountOptions;
use protocol::Mode;
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that differ from place to place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn both(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn what_is_written_is_read_back_at_any_place() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("large");
    let bytes = pattern(5_000_001);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let file = both(&path);
    let mut some = [0; 3000];
    file.read_exact_at(&mut some, 4_100_000).unwrap();
    assert_eq!(some, bytes[4_100_000..4_103_000]);
    file.write_all_at(b"in the middle", 2_000_000).unwrap();
    let mut some = [0; 15];
    file.read_exact_at(&mut some, 1_999_999).unwrap();
    assert_eq!(&some[1..14], b"in the middle");
    assert_eq!(file.metadata().unwrap().len(), 5_000_001);
}

#[test]
fn appending_and_cutting_move_the_end() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("log");
    for line in ["one\n", "two\n"] {
        let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    let file = both(&path);
    file.set_len(3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    file.set_len(6).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one\0\0\0");
    drop(file);
    assert!(Command::new("truncate").args(["-s", "2"]).arg(&path).status().unwrap().success());
    assert_eq!(fs::read(&path).unwrap(), b"on");
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn two_descriptors_see_each_others_writes() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("shared");
    let (mut writer, mut reader) = (both(&path), both(&path));
    writer.write_all(b"before").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    writer.write_all(b" after").unwrap();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after");
}

#[test]
fn holes_are_made_found_and_filled() {
    needs_fuse!();
    const MIB: u64 = 1 << 20;
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let file = both(&machine.path("sparse"));
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"end", 4 * MIB).unwrap();
    let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
    assert!((5..=MIB).contains(&hole), "{hole}");
    let data = seek(&file, SeekFrom::Data(hole)).unwrap();
    assert!((3 * MIB..=4 * MIB).contains(&data), "{data}");
    assert_eq!(seek(&file, SeekFrom::Data(5 * MIB)), Err(Errno::NXIO));

    fallocate(&file, FallocateFlags::empty(), 0, 6 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 6 * MIB);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 9 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 6 * MIB);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 2, 4 * MIB).unwrap();
    let mut some = [9; 8];
    file.read_exact_at(&mut some, 0).unwrap();
    assert_eq!(&some, b"st\0\0\0\0\0\0");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 7 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 7 * MIB);
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, MIB);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP));
}

#[test]
fn a_stretch_is_copied_from_file_to_file() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let bytes = pattern(3_000_000);
    let (from, to) = (both(&machine.path("from")), both(&machine.path("to")));
    from.write_all_at(&bytes, 0).unwrap();
    let (mut at, mut into) = (1_000_000, 500);
    while at < 3_000_000 {
        let copied = copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 2_000_000);
        assert!(copied.unwrap() > 0);
    }
    let mut copy = Vec::new();
    (&to).rewind().unwrap();
    (&to).read_to_end(&mut copy).unwrap();
    assert_eq!(copy[500..], bytes[1_000_000..]);
    assert_eq!(copy[..500], [0; 500]);
}

#[test]
fn direct_input_and_output_pass_the_page_cache_by() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("direct");
    let bytes = pattern(1 << 20);
    let direct = |options: &mut OpenOptions| options.custom_flags(libc::O_DIRECT).open(&path);
    let mut file = direct(OpenOptions::new().write(true).create(true)).unwrap();
    file.write_all(&bytes).unwrap();
    drop(file);
    let mut read = vec![0; 1 << 20];
    direct(OpenOptions::new().read(true)).unwrap().read_exact(&mut read).unwrap();
    assert_eq!(read, bytes);
}

#[test]
fn what_is_synced_or_closed_is_at_the_origin() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    // By its own choice it would not wait: nobody else is there.
    machine.client().set_mode(WantedMode::Fixed(Mode::Connected));
    let mut file = File::create(machine.path("file")).unwrap();
    file.write_all(b"one").unwrap();
    file.sync_all().unwrap();
    assert_eq!(machine.client().status().pending.updates, 0);
    file.write_all(b" two").unwrap();
    drop(file);
    assert_eq!(machine.client().status().pending.updates, 0);
    assert_eq!(fs::read_to_string(machine.path("file")).unwrap(), "one two");
}

#[test]
fn a_directory_can_be_synced() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    fs::write(machine.path("file"), "text").unwrap();
    File::open(machine.path("")).unwrap().sync_all().unwrap();
}

#[test]
fn a_program_on_the_mount_runs() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let program = machine.path("program");
    // By a program of its own: a copy of a descriptor for writing would keep it from running.
    assert!(Command::new("cp").arg("/bin/true").arg(&program).status().unwrap().success());
    // Mapped into memory by the loader, page by page.
    assert!(Command::new(&program).status().unwrap().success());
}

const SOMEBODY: Caller = Caller { uid: 0, gid: 0 };
const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };

/// What is not cached cannot be mapped by two programs as one memory.
#[test]
fn a_file_that_is_written_again_while_its_store_is_pending_is_still_cached() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    machine.client().set_mode(WantedMode::Fixed(Mode::FetchOnly));
    let path = machine.path("shared memory");
    let file = both(&path);
    let id = FileId(file.metadata().unwrap().ino());
    for _ in 0..3 {
        file.write_all_at(b"stored, and not sent", 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(b"and written once more", 0).unwrap();
        assert_eq!(machine.client().attributes(id).unwrap().node.size(), 21);
        let opened = machine.client().open_file(SOMEBODY, id, READ_WRITE).unwrap().value;
        machine.client().release(opened.handle);
        assert!(!opened.direct, "nobody has another version of it");
    }
}

#[test]
fn whoever_looks_while_a_file_is_stored_and_closed_sees_it_as_it_is() {
    const ROUNDS: u64 = 400;
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let client = machine.client();
    client.set_mode(WantedMode::Fixed(Mode::FetchOnly));
    let path = machine.path("growing");
    let id = FileId(both(&path).metadata().unwrap().ino());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for size in 0..ROUNDS {
                let handle = client.open_file(SOMEBODY, id, READ_WRITE).unwrap().value.handle;
                client.write(handle, size, b"x").unwrap();
                client.flush(SOMEBODY, handle).unwrap();
                client.release(handle);
            }
        });
        let mut seen = 0;
        while !writer.is_finished() {
            let size = client.attributes(id).unwrap().node.size();
            assert!(size >= seen, "{size} bytes after {seen}");
            seen = size;
            let opened = client.open_file(SOMEBODY, id, OpenFlags { write: false, ..READ_WRITE });
            let opened = opened.unwrap().value;
            client.release(opened.handle);
            assert!(!opened.direct, "nobody has another version of it");
        }
    });
    assert_eq!(client.attributes(id).unwrap().node.size(), ROUNDS);
}

/// Who appends goes around the kernel's cache in connected mode, and two who look at once may be answered in
/// either order.
#[test]
fn a_file_that_is_appended_to_grows_for_all_who_look_at_it() {
    const ROUNDS: usize = 6000;
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    machine.client().set_mode(WantedMode::Fixed(Mode::Connected));
    let path = machine.path("log");
    let mut log = File::options().create(true).append(true).open(&path).unwrap();
    let is_over = AtomicBool::new(false);
    let look = || {
        let (mut seen, mut back) = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let size = fs::metadata(&path).unwrap().len();
            back += usize::from(size < seen);
            seen = size;
        }
        back
    };
    std::thread::scope(|scope| {
        let others = [scope.spawn(look), scope.spawn(look)];
        for _ in 0..ROUNDS {
            log.write_all(&[b'x'; 64]).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let back = others.map(|other| other.join().unwrap());
        assert_eq!(back, [0, 0], "times that it had become shorter");
    });
    assert_eq!(fs::metadata(&path).unwrap().len(), 64 * ROUNDS as u64);
}
