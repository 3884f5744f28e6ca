//! A large file of which hardly anything is cached is written to.

use crate::raw::Mapping;
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::{Lane, World, eventually};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const LENGTH: usize = 12_000_000;

#[test]
fn what_is_changed_of_a_large_file_costs_what_lies_around_it() {
    let world = World::new();
    let server = world.server();
    let author = world.mount(&server, "author", "partial");
    let mut bytes = noise(1, LENGTH);
    fs::write(author.path("image"), &bytes).unwrap();
    author.wait();
    // All of it would take ten seconds.
    let slow = Lane::new(10_000_000, Duration::from_millis(10));
    let (up, down) = (Some(slow), Some(slow));
    let wanted = Wanted { mode: "partial", up, down, ..Wanted::default() };
    let mut mount = world.mount_with(&server, "mount", wanted);
    let path = mount.path("image");
    let open = || File::options().read(true).write(true).open(&path).unwrap();

    let (_, cost) = mount.relay.traffic_of(|| {
        open().write_all_at(b"here", 7_000_001).unwrap();
        mount.wait();
    });
    bytes[7_000_001..7_000_005].copy_from_slice(b"here");
    assert!(cost < 300_000, "{cost} bytes");

    let (_, cost) = mount.relay.traffic_of(|| {
        let file = open();
        let mapping = Mapping::shared(&file, LENGTH);
        mapping.write(2_000_000, b"through memory");
        mapping.sync();
        drop(mapping);
        file.set_len(11_000_000).unwrap();
        file.write_all_at(b"behind the end", 11_000_100).unwrap();
        drop(file);
        mount.wait();
    });
    bytes[2_000_000..2_000_014].copy_from_slice(b"through memory");
    bytes.truncate(11_000_000);
    bytes.resize(11_000_100, 0);
    bytes.extend(b"behind the end");
    assert!(cost < 1_500_000, "{cost} bytes");

    // What was not closed when the mount was killed is stored by the next one.
    let file = open();
    file.write_all_at(&[7; 100_000], 5_000_123).unwrap();
    bytes[5_000_123..5_100_123].fill(7);
    mount.kill();
    drop(file);
    let before = mount.relay.traffic().bytes();
    mount.again();
    mount.wait();
    let cost = mount.relay.traffic().bytes() - before;
    assert!(cost < 500_000, "{cost} bytes");
    let found = fs::read(&path).unwrap();
    let other = found.iter().zip(&bytes).position(|(found, expected)| found != expected);
    assert_eq!((found.len(), other), (bytes.len(), None));
    // The author is told in its time.
    eventually(Duration::from_secs(20), "the author sees it", || {
        fs::read(author.path("image")).is_ok_and(|found| found == bytes)
    });
}
