//! What a program has written is what it reads, whatever others on the same mount do meanwhile.

use e2e::World;
use e2e::contents::noise;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 60;
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

#[test]
fn who_writes_and_closes_reads_that_while_others_open_and_read_it() {
    reads_what_it_wrote("partial");
    reads_what_it_wrote("connected");
}
