//! What a program has written is what it reads, whatever others on the same mount do meanwhile.

use e2e::World;
use e2e::contents::noise;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 60;
const SLOT: usize = 512;
const SLOTS: u64 = 3;
const FOR: Duration = Duration::from_secs(4);

/// One writes a block, closes the file, and reads the block through another descriptor, while
/// others open, read and close it.
fn reads_what_it_wrote(mode: &str) {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", mode);
    let path = mount.path("file");
    fs::write(&path, noise(1, BLOCK * BLOCKS as usize)).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut all = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    all.clear();
                    File::open(&path).unwrap().read_to_end(&mut all).unwrap();
                }
            });
        }
        let begun = Instant::now();
        let stale = (0..).take_while(|_| begun.elapsed() < FOR).find(|number| {
            let at = number * 7 % BLOCKS * BLOCK as u64;
            let block = noise(*number, BLOCK);
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            file.write_all_at(&block, at).unwrap();
            drop(file);
            let mut read = vec![0; BLOCK];
            File::open(&path).unwrap().read_exact_at(&mut read, at).unwrap();
            read != block
        });
        over.store(true, Ordering::Relaxed);
        assert_eq!(stale, None, "the first write of which the bytes before were read ({mode})");
    });
}

/// Several write to places of their own in one file, and read them through the descriptor that they wrote
/// with, while each other's closes are waited for and others have the kernel drop the pages.
#[test]
fn who_writes_reads_that_though_the_write_waits_and_the_kernel_drops_its_pages() {
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "connected");
    let path = mount.path("file");
    fs::write(&path, noise(1, SLOT * SLOTS as usize)).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let file = File::open(&path).unwrap();
                file.read_exact_at(&mut vec![0; SLOT * SLOTS as usize], 0).unwrap();
                fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            }
        });
        let writers: Vec<_> = (0..SLOTS)
            .map(|slot| {
                let path = &path;
                scope.spawn(move || stale_write(path, slot * SLOT as u64))
            })
            .collect();
        let stale: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(stale, [None; SLOTS as usize], "writes of which the bytes before were read");
    });
}

/// The first write there that was not what was read at once.
fn stale_write(path: &Path, at: u64) -> Option<u64> {
    let begun = Instant::now();
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    (0..).take_while(|_| begun.elapsed() < 2 * FOR).find(|number| {
        let (block, mut read) = (noise(*number, SLOT), vec![0; SLOT]);
        file.write_all_at(&block, at).unwrap();
        file.read_exact_at(&mut read, at).unwrap();
        if number % 4 == 3 {
            file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        }
        read != block
    })
}

#[test]
fn who_writes_and_closes_reads_that_while_others_open_and_read_it() {
    reads_what_it_wrote("partial");
    reads_what_it_wrote("connected");
}

/// As `tail -f` does. Who appends goes around the kernel's cache in connected mode.
#[test]
fn who_follows_a_file_that_others_append_to_reads_no_zeros_at_its_end() {
    const LINE: &[u8] = b"0123456789abcde\n";
    const PAGE: u64 = 4096;
    let world = World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "connected");
    let path = mount.path("file");
    fs::write(&path, LINE).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let appends = || {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            let mut written = LINE.len() as u64;
            while !over.load(Ordering::Relaxed) {
                file.write_all(LINE).unwrap();
                written += LINE.len() as u64;
                let told = file.metadata().unwrap().len();
                assert_eq!(told, written, "who has written is told of all of it");
            }
            written
        };
        let writer = scope.spawn(appends);
        let file = File::open(&path).unwrap();
        let begun = Instant::now();
        let (mut read, mut lacking, mut zeros) = (0, 0, 0);
        while begun.elapsed() < FOR && !writer.is_finished() {
            let length = file.metadata().map_or(0, |told| told.len());
            let from = length.saturating_sub(1) / PAGE * PAGE;
            let mut end = vec![1; (length - from) as usize];
            let got = file.read_at(&mut end, from).unwrap_or(0);
            read += got;
            lacking += end.len() - got;
            zeros += end.iter().filter(|byte| **byte == 0).count();
        }
        over.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        let what = format!("of {read} bytes, while {written} were written");
        assert_eq!((zeros, lacking), (0, 0), "zeros and lacking {what}");
        assert!(read > 100_000, "{read} bytes were read");
        let all = fs::read(&path).unwrap();
        assert!(all.len() as u64 == written && all.chunks(LINE.len()).all(|line| line == LINE));
    });
}
