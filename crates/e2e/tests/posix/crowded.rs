//! A mount that may have no more files open: what is open goes on.

use crate::in_both_modes;
use crate::raw::Mapping;
use e2e::contents::noise;
use e2e::{Mount, World, run};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::fs::{self, File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

const BYTES: usize = 3_000;
const SYNCED: u64 = 4;
const CLOSED: u64 = 8;
const FREE: u64 = 16;
const THREADS: u64 = 6;
/// Fewer than a mount begins with.
const NONE: u64 = 8;
const MANY: u64 = 1024;
/// Longer than any other call waits for a descriptor.
const LONG: Duration = Duration::from_secs(8);

fn limit(mount: &Mount, few: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let process = Pid::from_raw(mount.process().pid().cast_signed()).unwrap();
    prlimit(Some(process), Resource::Nofile, Rlimit { current: Some(few), maximum }).unwrap();
}

fn open(mount: &Mount, number: u64, options: &mut OpenOptions) -> Result<File> {
    options.read(true).open(mount.path(format!("{number}")))
}

fn code<T>(outcome: Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// What is open cannot be opened to write, cut or made, and nothing of that is begun.
fn nothing_is_begun(mount: &Mount, number: u64) {
    let full = Some(libc::ENFILE);
    assert_eq!(code(open(mount, number, &mut OpenOptions::new())), full);
    assert_eq!(code(open(mount, number, OpenOptions::new().write(true).truncate(true))), full);
    assert_eq!(fs::metadata(mount.path(format!("{number}"))).unwrap().len(), BYTES as u64);
    assert_eq!(code(File::create(mount.path("new"))), full);
    assert!(!fs::exists(mount.path("new")).unwrap());
    let unborn = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(mount.path(""));
    assert_eq!(code(unborn), full);
    fs::create_dir(mount.path("directory")).unwrap();
}

/// All at once, from several threads.
fn is_written(files: &[File]) {
    let some = files.len().div_ceil(THREADS as usize);
    std::thread::scope(|scope| {
        for files in files.chunks(some) {
            scope.spawn(move || {
                for file in files {
                    file.write_all_at(b"written", 100).unwrap();
                    file.sync_all().unwrap();
                    file.set_len(BYTES as u64 - 100).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
}

fn what_is_open_goes_on_with(few: u64) {
    for mode in ["partial", "connected"] {
        let world = World::new();
        let server = world.server();
        let mount = world.mount(&server, "mount", mode);
        for number in 0..few {
            fs::write(mount.path(format!("{number}")), noise(number, BYTES)).unwrap();
        }
        mount.wait();
        limit(&mount, few);
        let to_write = |number| open(&mount, number, OpenOptions::new().write(true)).unwrap();
        let map = |number| (to_write(number), Mapping::shared(&to_write(number), BYTES));
        let synced: Vec<_> = (0..SYNCED).map(map).collect();
        let closed: Vec<_> = (SYNCED..CLOSED).map(map).collect();
        let written: Vec<_> = (CLOSED..FREE).map(to_write).collect();
        let mut held = Vec::new();
        let reads = |number| open(&mount, number, &mut OpenOptions::new());
        let error = (FREE..few).find_map(|number| reads(number).map(|file| held.push(file)).err());
        assert_eq!(error.expect("there are too few").raw_os_error(), Some(libc::ENFILE), "{mode}");
        nothing_is_begun(&mount, few - 1);
        is_written(&written);
        synced.iter().chain(&closed).for_each(|(_, mapping)| mapping.write(100, b"in memory"));
        for (file, mapping) in synced {
            mapping.sync();
            file.sync_all().unwrap();
        }
        drop(closed);
        // Who has one of them open shares it.
        drop(open(&mount, CLOSED, &mut OpenOptions::new()).unwrap());
        run(&mut mount.farfs("status", &[])).succeeds();
        drop(written);
        mount.wait();
        let other = world.mount(&server, "other", "connected");
        for number in 0..FREE {
            let mut wanted = noise(number, BYTES);
            let word = if number < CLOSED { &b"in memory"[..] } else { b"written" };
            wanted[100..100 + word.len()].copy_from_slice(word);
            wanted.truncate(if number < CLOSED { BYTES } else { BYTES - 100 });
            let name = format!("{number}");
            assert!(fs::read(other.path(&name)).unwrap() == wanted, "{mode} {number}");
        }
        assert_eq!(mount.said().matches("LimitNOFILE").count(), 1, "{}", mount.said());
        drop(held);
        fs::write(mount.path("new"), "and there are some again").unwrap();
        mount.wait();
    }
}

#[test]
fn what_is_open_goes_on_where_64_descriptors_are_too_few_for_more() {
    what_is_open_goes_on_with(64);
}

#[test]
fn what_is_open_goes_on_where_256_descriptors_are_too_few_for_more() {
    what_is_open_goes_on_with(256);
}

#[test]
fn what_is_written_to_a_mapping_waits_for_a_descriptor_as_long_as_it_takes() {
    in_both_modes(|mount| {
        fs::write(mount.path("0"), noise(0, BYTES)).unwrap();
        mount.wait();
        let file = open(mount, 0, OpenOptions::new().write(true)).unwrap();
        let mapping = Mapping::shared(&file, BYTES);
        mapping.write(100, b"in memory");
        limit(mount, NONE);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(LONG);
                limit(mount, MANY);
            });
            mapping.sync();
            file.sync_all().unwrap();
        });
        assert_eq!(&fs::read(mount.path("0")).unwrap()[100..109], b"in memory");
    });
}
