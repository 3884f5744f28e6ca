//! Packing a directory of the volume and unpacking an archive of somebody else's, over a slow link:
//! what the other side has does not travel.

use crate::{BOUND, shell};
use e2e::contents::noise;
use e2e::mount::Wanted;
use e2e::world::farfs;
use e2e::{Lane, Mount, Server, World, contents, run};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Bytes up and down besides contents: packets have heads, and are acknowledged.
const OVERHEAD: u64 = 25_000;
/// What the server and a mount may take in memory, whatever is stored.
const MEMORY_KIB_MAX: u64 = 300 << 10;
/// Archives that are tried one after the other.
const ARCHIVES: u64 = 6;

/// Sources of a program, about 1 MB of them, which deflate to a third and less.
fn write_sources(folder: &Path, number: u64) {
    for module in 0..12u64 {
        let inner = folder.join(format!("module-{module}"));
        fs::create_dir_all(&inner).unwrap();
        for file in 0..5u64 {
            let seed = 10_000 * number + 100 * module + file;
            let words = noise(seed, 4_000 + 1_500 * file as usize);
            let text: String = words
                .chunks(2)
                .map(|pair| format!("let v{} = f{}(x);\n", pair[0], pair[1] / 4))
                .collect();
            fs::write(inner.join(format!("file-{file}.rs")), text).unwrap();
        }
    }
}

fn slow(world: &World, server: &Server, name: &str) -> Mount {
    lagging(world, server, name, "partial")
}

fn lagging(world: &World, server: &Server, name: &str, mode: &'static str) -> Mount {
    let lane = Lane::new(3_000_000, Duration::from_millis(20));
    let wanted = Wanted { mode, up: Some(lane), down: Some(lane), ..Wanted::default() };
    world.mount_with(server, name, wanted)
}

/// Bytes that go over the link while a shell line is carried out and all of it gets to the server.
fn cost(mount: &Mount, line: &str) -> (u64, u64) {
    let before = mount.relay.traffic();
    shell(&mount.mountpoint, line);
    mount.wait();
    let after = mount.relay.traffic();
    let up = after.up.carried.bytes - before.up.carried.bytes;
    (up, after.down.carried.bytes - before.down.carried.bytes)
}

#[test]
fn a_directory_that_is_packed_and_unpacked_elsewhere_costs_what_names_it() {
    let world = World::bounded(3 * BOUND);
    let server = world.server();
    let near = world.mount(&server, "near", "connected");
    write_sources(&near.path("tree"), 0);
    near.wait();
    let mount = slow(&world, &server, "far");
    shell(&mount.mountpoint, "cat tree/*/* > /dev/null");
    for (archive, line) in [
        ("tree.zip", "zip -qr tree.zip tree"),
        ("python.zip", "python3 -m zipfile -c python.zip tree"),
        ("tree.tar.gz", "tar -czf tree.tar.gz tree"),
    ] {
        let (up, _) = cost(&mount, line);
        let size = fs::metadata(mount.path(archive)).unwrap().len();
        assert!(size > 150_000, "{archive} has {size} bytes");
        assert!(up < OVERHEAD, "{archive} has {size} bytes, and {up} went up");
        assert!(fs::read(near.path(archive)).unwrap() == fs::read(mount.path(archive)).unwrap());
    }
    // Unpacked on the spot, from what is in the volume.
    let (up, _) = cost(&mount, "mkdir again && cd again && unzip -q ../tree.zip");
    assert!(up < 2 * OVERHEAD, "{up} bytes went up");
    assert_eq!(contents::tree(&near.path("tree")), contents::tree(&mount.path("again/tree")));
    assert_eq!(contents::tree(&near.path("tree")), contents::tree(&near.path("again/tree")));
}

#[test]
fn an_archive_of_somebody_else_s_is_unpacked_for_what_names_its_files() {
    let world = World::bounded(3 * BOUND);
    let server = world.server();
    let near = world.mount(&server, "near", "connected");
    let outside = world.folder("outside");
    for number in 0..ARCHIVES {
        write_sources(&outside.join(format!("tree-{number}")), number);
        shell(&outside, &format!("zip -qr archive-{number}.zip tree-{number}"));
        let archive = format!("archive-{number}.zip");
        fs::copy(outside.join(&archive), near.path(&archive)).unwrap();
    }
    near.wait();
    let mount = slow(&world, &server, "far");
    // The server looks into them while nobody asks it for anything, so the first may be too early.
    let mut costs = Vec::new();
    for number in 0..ARCHIVES {
        let size = fs::metadata(near.path(format!("archive-{number}.zip"))).unwrap().len();
        let (up, _) = cost(&mount, &format!("unzip -q archive-{number}.zip"));
        let tree = format!("tree-{number}");
        assert_eq!(contents::tree(&outside.join(&tree)), contents::tree(&near.path(&tree)));
        costs.push((up, size));
        if up < size / 3 {
            return;
        }
    }
    panic!("bytes up, and of the archive: {costs:?}");
}

/// The most memory that a process has had, in KiB.
fn memory_peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn whatever_unpacks_to_far_more_takes_no_more_memory() {
    let world = World::bounded(3 * BOUND);
    let server = world.server();
    let lane = Lane::new(12_000_000, Duration::from_millis(5));
    let wanted = Wanted { mode: "partial", up: Some(lane), down: Some(lane), ..Wanted::default() };
    let mount = world.mount_with(&server, "far", wanted);
    let outside = world.folder("outside");
    shell(
        &outside,
        "mkdir many && for n in $(seq 2000); do echo \"$n, or $((n * n)) of them\" > many/$n; done \
         && head -c 67108864 /dev/zero > zeros && { yes 'the same again' || true; } | head -c 50000000 > same \
         && gzip -k zeros && gzip -9k same && zip -q twice.zip zeros same zeros.gz same.gz \
         && zip -qr many.zip many && tar -czf all.tar.gz zeros same many many.zip",
    );
    for name in ["zeros.gz", "same.gz", "twice.zip", "many.zip", "all.tar.gz"] {
        fs::copy(outside.join(name), mount.path(name)).unwrap();
    }
    mount.wait();
    // Once more, with what is there by now, and a little more.
    shell(&outside, "echo more >> same && gzip -9fk same && zip -q twice.zip same same.gz");
    for name in ["same.gz", "twice.zip"] {
        fs::copy(outside.join(name), mount.path(name)).unwrap();
    }
    mount.wait();
    let other = world.mount_with(&server, "other", wanted);
    for name in ["twice.zip", "all.tar.gz", "same.gz"] {
        let (here, there) = (fs::read(outside.join(name)), fs::read(other.path(name)));
        assert!(here.unwrap() == there.unwrap(), "{name} is not as it was");
    }
    for (who, process) in
        [("server", server.process()), ("writer", mount.process()), ("reader", other.process())]
    {
        let peak = memory_peak(process.pid());
        println!("{who}: {peak} KiB at most");
        assert!(peak < MEMORY_KIB_MAX, "{who} had {peak} KiB");
    }
}

/// GNU tar takes a file for unchanged by its times, and a directory by inode number and device. The
/// last is another one for each mount.
#[test]
fn an_incremental_archive_is_gone_on_with_on_another_device() {
    let world = World::bounded(2 * BOUND);
    let server = world.server();
    let first = world.mount(&server, "first", "connected");
    let outside = world.folder("outside");
    write_sources(&first.path("tree"), 0);
    let tar = |mount: &Mount, snapshot: &str, archive: &str, more: &str| {
        let place = outside.display();
        let line = format!(
            "tar --listed-incremental={place}/{snapshot} {more} -cf {place}/{archive} tree
             tar -tf {place}/{archive} | sed '/\\/$/d'"
        );
        shell(&mount.mountpoint, &line)
    };
    const SAME: &str = "--no-check-device";
    assert_eq!(tar(&first, "snapshot", "full.tar", SAME).lines().count(), 60);
    shell(&outside, "cp snapshot for-another && cp snapshot with-devices");
    shell(&first.mountpoint, "echo more >> tree/module-3/file-2.rs");
    first.wait();
    let other = world.mount(&server, "other", "connected");
    let changed = "tree/module-3/file-2.rs\n";
    let all = fs::metadata(first.path(changed.trim())).unwrap().len();
    let before = other.relay.traffic().down.carried.bytes;
    assert_eq!(tar(&other, "for-another", "later.tar", SAME), changed);
    let fetched = other.relay.traffic().down.carried.bytes - before;
    assert!(fetched < all + 2 * OVERHEAD, "{fetched} bytes for one file of {all}");
    assert_eq!(tar(&first, "snapshot", "here.tar", ""), changed);
    // Without that option all is packed there.
    assert_eq!(tar(&other, "with-devices", "again.tar", "").lines().count(), 60);
    let back = world.folder("back");
    for archive in ["full.tar", "later.tar"] {
        shell(&back, &format!("tar --listed-incremental=/dev/null -xf ../outside/{archive}"));
    }
    assert_eq!(contents::tree(&back.join("tree")), contents::tree(&other.path("tree")));
}

/// What is moved by the server alone is contents, and it moves nothing but names.
#[test]
fn a_copy_of_what_is_not_cached_moves_no_contents() {
    const BYTES: usize = 8 << 20;
    const NAMES: u64 = 100_000;
    let world = World::bounded(3 * BOUND);
    let server = world.server();
    let near = world.mount(&server, "near", "connected");
    let source = noise(3, BYTES);
    fs::write(near.path("from"), &source).unwrap();
    near.wait();
    let place = near.mountpoint.display().to_string();
    run(&mut farfs(&["snapshot", "create", &place, "one"])).succeeds();
    for mode in ["partial", "connected"] {
        let mut mount = lagging(&world, &server, &format!("far-{mode}"), mode);
        let is_copied = |name: &str, (up, down): (u64, u64)| {
            println!("{mode}, {name}: {up} up, {down} down for {BYTES} bytes");
            assert!(up < NAMES && down < NAMES, "{mode}, {name}: {up} up, {down} down");
        };
        let name = |how: &str| format!("{mode}-{how}");
        let [whole, old, calls] = ["whole", "old", "calls"].map(name);
        is_copied(&whole, cost(&mount, &format!("cp from {whole}")));
        is_copied(&old, cost(&mount, &format!("cp .farfs/snapshots/one/from {old}")));
        let before = mount.relay.traffic();
        let from = fs::File::open(mount.path("from")).unwrap();
        let to = fs::File::create_new(mount.path(&calls)).unwrap();
        let (mut at, mut into) = (0, 0);
        while at < BYTES as u64 {
            let step = 3 << 20;
            let copied =
                rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), step);
            assert_ne!(copied.unwrap(), 0);
        }
        drop((from, to));
        mount.wait();
        let after = mount.relay.traffic();
        let up = after.up.carried.bytes - before.up.carried.bytes;
        is_copied(&calls, (up, after.down.carried.bytes - before.down.carried.bytes));
        for name in [&whole, &old, &calls] {
            assert!(fs::read(near.path(name)).unwrap() == source, "{name} near");
            assert!(fs::read(mount.path(name)).unwrap() == source, "{name} far");
        }
        // Nobody is to wait for its lease.
        mount.unmount(&[]);
    }
}
