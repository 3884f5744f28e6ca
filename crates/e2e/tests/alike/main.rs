//! The same calls, drawn by chance, on a mounted volume and on the file system of this machine's
//! disk: what comes of each must be the same.
//!
//! Holds: a seed that fails is told with the fewest of its steps that show a difference. One seed,
//! or many of them, by `FARFS_ALIKE_SEEDS=FROM-TO`; `FARFS_ALIKE_STEPS` says how long each is.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests of real mounts open files and start processes"
)]

mod asking;
mod calls;
mod cases;
mod chance;
mod doing;
mod looking;
mod pair;
mod side;
mod steps;
mod tolerated;

use e2e::mount::Wanted;
use e2e::{Disk, World};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is tried by default, and how long each of it is.
const SEEDS: std::ops::Range<u64> = 0..12;
const STEPS: usize = 150;
const EXT4: u64 = 0xef53;
const DISK_BYTES: u64 = 1 << 30;
/// How long another machine may take to see what was done.
const SEEN_ELSEWHERE: Duration = Duration::from_secs(3);

/// A folder on ext4, with the disk for it if this machine's temporary files are elsewhere.
fn local(world: &World) -> (PathBuf, Option<Disk>) {
    let folder = world.folder("local");
    if rustix::fs::statfs(&folder).unwrap().f_type as u64 == EXT4 {
        return (folder, None);
    }
    let disk = Disk::new(world, "disk", DISK_BYTES);
    (disk.folder("local"), Some(disk))
}

fn alike(mode: &'static str) {
    let world = World::bounded(Duration::from_secs(3600));
    let server = world.server();
    let options = &["--answer-within", "10s", "--allow-other", "-o", "suid,dev"][..];
    let mount = world.mount_with(&server, mode, Wanted { mode, options, ..Wanted::default() });
    let (local, _disk) = local(&world);
    let steps = std::env::var("FARFS_ALIKE_STEPS").map_or(STEPS, |steps| steps.parse().unwrap());
    let seeds = match std::env::var("FARFS_ALIKE_SEEDS") {
        Ok(range) => {
            let (from, to) = range.split_once('-').unwrap_or((&range, &range));
            from.parse().unwrap()..to.parse::<u64>().unwrap() + 1
        }
        Err(_) => SEEDS,
    };
    side::on_its_own();
    let other = world.mount(&server, "other", "partial");
    let elsewhere = |name: &str| {
        mount.wait();
        let [one, two] = [&mount, &other].map(|mount| mount.path(name).join("tree"));
        let look = |tree: &Path| looking::looked(tree, &mut looking::Seen::default(), true);
        let until = std::time::Instant::now() + SEEN_ELSEWHERE;
        loop {
            let differ = tolerated::tree((true, true), &[], look(&one), look(&two));
            if differ.is_none() || std::time::Instant::now() > until {
                return differ.map(|(one, two)| format!("{one}, elsewhere {two}"));
            }
        }
    };
    let places = (local.as_path(), mount.mountpoint.as_path());
    let found = pair::differences(places, seeds, steps, elsewhere);
    assert!(found.is_empty(), "{mode}: {} differences\n{}", found.len(), found.join("\n"));
}

/// Every case is told on both sides, or those whose name has `FARFS_ALIKE_CASE` in it.
fn cases_alike(mode: &'static str) {
    let world = World::bounded(Duration::from_secs(120));
    let server = world.server();
    let mount = world.mount(&server, mode, mode);
    let (local, _disk) = local(&world);
    let wanted = std::env::var("FARFS_ALIKE_CASE").unwrap_or_default();
    side::on_its_own();
    let mut found = String::new();
    for (number, (name, case)) in cases::CASES.iter().enumerate() {
        if !name.contains(&wanted) {
            continue;
        }
        let [local, here] = [&local, &mount.mountpoint].map(|place| {
            let place = place.join(format!("case-{number}"));
            std::fs::create_dir(&place).unwrap();
            let mut told = String::new();
            case(&place, &mut told);
            told
        });
        let lines = local.lines().zip(here.lines());
        let differ = lines.filter(|(local, here)| local != here);
        let differ: Vec<_> =
            differ.map(|(local, here)| format!("  local {local}\n  here  {here}\n")).collect();
        if local != here {
            found += &format!("{name}:\n{}", differ.concat());
        }
    }
    assert!(found.is_empty(), "{mode}:\n{found}");
}

#[test]
fn in_connected_mode_all_cases_are_as_on_a_local_disk() {
    cases_alike("connected");
}

#[test]
fn in_partial_mode_all_cases_are_as_on_a_local_disk() {
    cases_alike("partial");
}

#[test]
fn in_connected_mode_every_call_is_as_on_a_local_disk() {
    alike("connected");
}

#[test]
fn in_partial_mode_every_call_is_as_on_a_local_disk() {
    alike("partial");
}
