//! Reading and writing: descriptors, offsets, holes, and a naive model beside them.

use crate::{errno, in_both_modes, opened};
use e2e::contents::noise;
use e2e::{Mount, World};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, ftruncate, seek};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::fs::{self, File};
use std::io::{IoSlice, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

#[test]
fn who_opens_to_read_and_asks_for_an_empty_file_gets_one() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "something").unwrap();
        let cut = opened(&path, OFlags::RDONLY | OFlags::TRUNC).unwrap();
        assert_eq!(File::from(cut).read(&mut [0; 9]).unwrap(), 0);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(fs::read(&path).unwrap(), b"");
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "before").unwrap();
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.seek(std::io::SeekFrom::End(0)).unwrap();
        file.write_all(b" and after").unwrap();
        file.rewind().unwrap();
        let mut all = String::new();
        file.read_to_string(&mut all).unwrap();
        assert_eq!(all, "before and after");
        // Another file of the same name is another file.
        fs::write(&path, "new").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    });
}

#[test]
fn an_open_file_outlives_being_replaced() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let old = noise(1, 300_000);
        fs::write(&path, &old).unwrap();
        let file = File::open(&path).unwrap();
        fs::write(mount.path("new"), "new").unwrap();
        fs::rename(mount.path("new"), &path).unwrap();
        let mut seen = vec![0; old.len()];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == old);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    });
}

#[test]
fn what_is_appended_goes_to_the_end_whoever_appends() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let append = || File::options().create(true).append(true).open(&path).unwrap();
        let (mut one, mut two) = (append(), append());
        for _ in 0..50 {
            one.write_all(b"one\n").unwrap();
            two.write_all(b"two\n").unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n".repeat(50));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut file = append();
                    (0..50).for_each(|_| file.write_all(b"more\n").unwrap());
                });
            }
        });
        assert_eq!(fs::metadata(&path).unwrap().len(), 400 + 4 * 50 * 5);
    });
}

/// fcntl(2), as by a program that makes its standard output one that does not block.
#[test]
fn a_descriptor_that_appends_no_more_writes_where_it_is_told() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "0123456789").unwrap();
        let file = opened(&path, OFlags::RDWR | OFlags::APPEND).unwrap();
        rustix::io::pwrite(&file, b"end", 0).unwrap();
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
        rustix::io::pwrite(&file, b"AB", 0).unwrap();
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND).unwrap();
        rustix::io::pwrite(&file, b"!", 0).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "AB23456789end!");
    });
}

/// What appends goes around the kernel's cache in connected mode, where the kernel syncs nothing by itself.
#[test]
fn what_is_appended_to_be_safe_is_seen_elsewhere_when_the_call_returns() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "connected");
    let other = world.mount(&server, "other", "connected");
    let (flags, mut expected) = (OFlags::WRONLY | OFlags::APPEND, b"begun".to_vec());
    fs::write(mount.path("file"), &expected).unwrap();
    let appends = |more| opened(&mount.path("file"), flags | more).unwrap();
    for (file, call) in [
        (appends(OFlags::DSYNC), ReadWriteFlags::empty()),
        (appends(OFlags::SYNC), ReadWriteFlags::empty()),
        (appends(OFlags::empty()), ReadWriteFlags::DSYNC),
        (appends(OFlags::empty()), ReadWriteFlags::SYNC),
    ] {
        let text = IoSlice::new(b" more");
        assert_eq!(pwritev2(&file, &[text], u64::MAX, call), Ok(5));
        expected.extend_from_slice(b" more");
        let seen = fs::read(other.path("file")).unwrap();
        assert_eq!(String::from_utf8(seen), String::from_utf8(expected.clone()), "{call:?}");
    }
}

#[test]
fn a_file_can_be_cut_and_made_longer() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, noise(1, 100_000)).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1_000).unwrap();
        assert!(fs::read(&path).unwrap() == noise(1, 100_000)[..1_000]);
        file.set_len(5_000).unwrap();
        let whole = fs::read(&path).unwrap();
        assert!(whole[..1_000] == noise(1, 100_000)[..1_000] && whole[1_000..] == [0; 4_000]);
        drop(file);
        File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        let read_only = opened(&path, OFlags::RDONLY).unwrap();
        assert_eq!(ftruncate(&read_only, 1).unwrap_err(), Errno::INVAL);
    });
}

#[test]
fn holes_read_as_zeros_and_can_be_found() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.unwrap();
        file.write_all_at(b"start", 0).unwrap();
        file.write_all_at(b"end", 4 * MIB).unwrap();
        let mut between = vec![1; 1000];
        file.read_exact_at(&mut between, MIB).unwrap();
        assert_eq!(between, [0; 1000]);
        let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
        assert!((5..=MIB).contains(&hole), "{hole}");
        let data = seek(&file, SeekFrom::Data(hole)).unwrap();
        assert!((MIB..=4 * MIB).contains(&data), "{data}");
        let length = 4 * MIB + 3;
        assert_eq!(seek(&file, SeekFrom::Hole(4 * MIB)).unwrap(), length, "the end is a hole");
        assert_eq!(seek(&file, SeekFrom::Data(length)), Err(Errno::NXIO));
        assert_eq!(seek(&file, SeekFrom::Hole(length + 1)), Err(Errno::NXIO));
    });
}

/// What all files below a folder of an ordinary disk take up there.
fn bytes_on_disk(folder: &Path) -> u64 {
    let below = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        match path.symlink_metadata() {
            Ok(stat) if stat.is_dir() => bytes_on_disk(&path),
            Ok(stat) => stat.blocks() * 512,
            // The program that owns the folder has removed it meanwhile.
            Err(_) => 0,
        }
    });
    below.sum()
}

#[test]
fn a_huge_file_of_holes_costs_nothing() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(b"far", 20 << 30).unwrap();
        // The disk of the cache has a limit of its own.
        let too_far = errno(file.set_len(i64::MAX as u64));
        assert!([Errno::FBIG, Errno::NOSPC].contains(&too_far), "{too_far}");
        drop(file);
        assert_eq!(fs::metadata(&path).unwrap().len(), (20 << 30) + 3);
        // `st_blocks` is the size in blocks, as for files that are not here. The disk knows better.
        let bytes = bytes_on_disk(&mount.state);
        assert!(bytes < 100 * MIB, "{bytes} bytes of the disk here");
        // It takes a minute to read; the end is as good as the whole.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut end = [0; 6];
        file.read_exact_at(&mut end, (20 << 30) - 3).unwrap();
        assert_eq!(&end, b"\0\0\0far");
        file.set_len(10).unwrap();
    });
}

#[test]
fn room_is_set_aside_and_given_back() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, noise(3, 10_000)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 20_000);
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 90_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 20_000);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 1_000, 2_000).unwrap();
        let mut expected = noise(3, 10_000);
        expected[1_000..3_000].fill(0);
        expected.resize(20_000, 0);
        assert!(fs::read(&path).unwrap() == expected);
        let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn a_stretch_is_copied_from_file_to_file() {
    in_both_modes(|mount| {
        let source = noise(4, 200_000);
        fs::write(mount.path("from"), &source).unwrap();
        let from = File::open(mount.path("from")).unwrap();
        let to = File::create_new(mount.path("to")).unwrap();
        let (mut at, mut left, mut into) = (1_000, 150_000, 10);
        while left > 0 {
            let copied =
                rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), left);
            left -= copied.unwrap();
        }
        drop(to);
        let copy = fs::read(mount.path("to")).unwrap();
        assert!(copy[..10] == [0; 10] && copy[10..] == source[1_000..151_000]);
        fs::copy(mount.path("from"), mount.path("whole")).unwrap();
        assert!(fs::read(mount.path("whole")).unwrap() == source);
    });
}

#[test]
fn descriptors_allow_what_they_were_opened_for() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        fs::write(&path, "abc").unwrap();
        let (reader, writer) =
            (File::open(&path).unwrap(), File::options().write(true).open(&path));
        let writer = writer.unwrap();
        let mut buffer = [0; 10];
        assert_eq!(errno(reader.write_at(b"x", 0)), Errno::BADF);
        assert_eq!(errno(writer.read_at(&mut buffer, 0)), Errno::BADF);
        assert_eq!(reader.read_at(&mut buffer, 3).unwrap(), 0);
        assert_eq!(reader.read_at(&mut buffer, 1_000).unwrap(), 0);
        assert_eq!(reader.read_at(&mut buffer, 1).unwrap(), 2);
        assert_eq!(writer.write_at(b"", 0).unwrap(), 0);
        writer.sync_all().unwrap();
        writer.sync_data().unwrap();
        File::open(&mount.mountpoint).unwrap().sync_all().unwrap();
    });
}

#[test]
fn what_one_descriptor_writes_another_reads_at_once() {
    in_both_modes(|mount| {
        let path = mount.path("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        let mut seen = [0; 5];
        for number in 0..20 {
            let line = format!("{number:04}\n");
            writer.write_all_at(line.as_bytes(), 5 * number).unwrap();
            reader.read_exact_at(&mut seen, 5 * number).unwrap();
            assert_eq!(seen, line.as_bytes());
        }
        assert_eq!(reader.metadata().unwrap().len(), 100);
    });
}

#[test]
fn hundreds_of_files_may_be_open() {
    in_both_modes(|mount| {
        let files: Vec<File> = (0..300)
            .map(|number| File::create(mount.path(format!("f{number}"))).unwrap())
            .collect();
        for (number, mut file) in files.iter().enumerate() {
            write!(file, "{number}").unwrap();
        }
        drop(files);
        for number in 0..300 {
            let seen = fs::read_to_string(mount.path(format!("f{number}"))).unwrap();
            assert_eq!(seen, number.to_string());
        }
    });
}

#[test]
fn a_file_of_many_megabytes_comes_back_as_it_was() {
    in_both_modes(|mount| {
        let large = noise(9, 24 << 20);
        fs::write(mount.path("large"), &large).unwrap();
        assert!(fs::read(mount.path("large")).unwrap() == large);
        mount.wait();
    });
}

/// Random writes, cuts, holes and reopenings against a vector of bytes.
#[test]
fn prop_a_file_is_what_a_naive_model_says() {
    in_both_modes(|mount| {
        for seed in 1..=4 {
            follows_the_model(mount, seed);
        }
    });
}

fn follows_the_model(mount: &Mount, seed: u64) {
    const SIZE_MAX: u64 = 300_000;
    let path = mount.path(format!("model-{seed}"));
    let open =
        || File::options().create(true).truncate(false).read(true).write(true).open(&path).unwrap();
    let mut chances = noise(seed, 8 * 5 * 400).into_iter();
    let mut chance = |below: u64| {
        let eight: Vec<u8> = chances.by_ref().take(8).collect();
        u64::from_le_bytes(eight.try_into().unwrap()) % below
    };
    let (mut file, mut model) = (open(), Vec::<u8>::new());
    for step in 0..400 {
        let what = chance(12);
        let (at, length) = (chance(SIZE_MAX), chance(20_000));
        let end = (at + length) as usize;
        match what {
            0..5 => {
                let bytes = noise(seed * 1_000 + step, length as usize);
                file.write_all_at(&bytes, at).unwrap();
                if length > 0 {
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&bytes);
                }
            }
            5 => {
                file.set_len(at).unwrap();
                model.resize(at as usize, 0);
            }
            6 if length > 0 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, punch, at, length).unwrap();
                let (from, to) = (model.len().min(at as usize), model.len().min(end));
                model[from..to].fill(0);
            }
            7 => file = open(),
            8 => file.sync_all().unwrap(),
            _ => {
                let mut seen = vec![0xee; length as usize];
                let read = read_all(&file, &mut seen, at);
                let (from, to) = (model.len().min(at as usize), model.len().min(end));
                assert!(seen[..read] == model[from..to], "seed {seed}, step {step}: {at} {length}");
            }
        }
        let size = file.metadata().unwrap().len();
        assert_eq!(size, model.len() as u64, "seed {seed}, step {step}: {what} {at} {length}");
    }
    drop(file);
    assert!(fs::read(&path).unwrap() == model, "seed {seed}: at the end");
}

fn read_all(file: &File, into: &mut [u8], from: u64) -> usize {
    let mut read = 0;
    loop {
        match file.read_at(&mut into[read..], from + read as u64).unwrap() {
            0 => return read,
            bytes => read += bytes,
        }
    }
}

/// A file that is only cut is stored when the kernel says that nobody has it any more, which is a
/// moment after the close: by then its name may have gone.
#[test]
fn what_is_cut_to_nothing_and_removed_or_replaced_at_once_does_not_come_back() {
    let world = e2e::World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let does = |who: usize| {
        let (path, new) = (mount.path(format!("file-{who}")), mount.path(format!("new-{who}")));
        for number in 0..40 {
            let text = format!("{who} {number}");
            fs::write(&path, &text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            // What has not left is cancelled, and nobody sees in which order it was.
            std::thread::sleep(Duration::from_millis(20));
            drop(File::create(&path).unwrap());
            if number % 2 == 0 {
                fs::remove_file(&path).unwrap();
            } else {
                fs::write(&new, &text).unwrap();
                fs::rename(&new, &path).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|who| _ = scope.spawn(move || does(who))));
    mount.wait();
    assert_eq!(server.conflicts(), Vec::<String>::new());
    assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 4);
}
