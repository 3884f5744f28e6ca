use crate::needs_fuse;
use crate::support::{Farm, is_mountpoint, is_root};
use mount::{MountError, MountOptions, Mounted, mount};
use std::fs;
use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, Instant};

/// Unmounts. Programs that other tests start have copies of all descriptors until they begin, so
/// what has just been closed may be in use for a moment.
fn is_unmounted(mounted: &Mounted) -> bool {
    comes_true(|| mounted.unmount().is_ok())
}

fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_mount_lasts_until_it_is_unmounted_and_says_so() {
    needs_fuse!();
    let farm = Farm::new();
    let mut machine = farm.machine("a", MountOptions::default());
    let mountpoint = machine.path("");
    let mounted = machine.take_mounted();
    assert!(is_mountpoint(mounted.mountpoint()));
    fs::write(mountpoint.join("file"), "text").unwrap();
    assert!(is_unmounted(&mounted));
    assert!(machine.ends(&mounted));
    assert!(!is_mountpoint(mounted.mountpoint()));
    assert_eq!(fs::read_dir(&mountpoint).unwrap().count(), 0);
    // Once more is nothing.
    mounted.unmount().unwrap();
}

#[test]
fn a_mount_that_is_in_use_stays_until_it_is_left() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let file = fs::File::create(machine.path("file")).unwrap();
    let error = machine.mounted().unmount().unwrap_err();
    assert!(matches!(error, MountError::InUse(_)), "{error}");
    assert!(error.to_string().contains("in use"));
    drop(file);
    assert!(is_unmounted(machine.mounted()));
    assert!(machine.ends(machine.mounted()));
}

#[test]
fn who_unmounts_from_outside_ends_the_mount() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let program: &[&str] = if is_root() { &["umount"] } else { &["fusermount3", "-u"] };
    let mut unmount = Command::new(program[0]);
    unmount.args(&program[1..]).arg(machine.mounted().mountpoint());
    assert!(comes_true(|| unmount.status().unwrap().success()));
    assert!(machine.ends(machine.mounted()));
}

#[test]
fn a_mount_that_is_dropped_leaves_the_tree_even_if_it_is_in_use() {
    needs_fuse!();
    let farm = Farm::new();
    let mut machine = farm.machine("a", MountOptions::default());
    let file = fs::File::create(machine.path("file")).unwrap();
    let mounted = machine.take_mounted();
    let mountpoint = mounted.mountpoint().to_path_buf();
    drop(mounted);
    assert!(!is_mountpoint(&mountpoint));
    // What was open can still be closed in peace.
    file.sync_all().unwrap();
}

#[test]
fn one_mountpoint_takes_one_mount() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let client = machine.client().clone();
    let again = mount(client, &machine.path(""), MountOptions::default(), farm.handle());
    let error = again.unwrap_err();
    assert!(matches!(error, MountError::AlreadyMounted(_)), "{error}");
    // Below it there is room for others. fusermount3 may not look into somebody's mount.
    if !is_root() {
        return;
    }
    fs::create_dir(machine.path("below")).unwrap();
    let client = machine.client().clone();
    let below = mount(client, &machine.path("below"), MountOptions::default(), farm.handle());
    assert!(is_unmounted(&below.unwrap()));
}

#[test]
fn a_read_only_mount_takes_no_changes() {
    needs_fuse!();
    let farm = Farm::new();
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let machine = farm.machine("a", options);
    let error = fs::write(machine.path("file"), "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_dir(machine.path("")).unwrap().count(), 0);
}

#[test]
fn the_table_of_mounts_names_volume_and_server() {
    needs_fuse!();
    let farm = Farm::new();
    let options = MountOptions { fs_name: "main@farm".into(), ..MountOptions::default() };
    let machine = farm.machine("a", options);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mountpoint = machine.mounted().mountpoint().to_str().unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(mountpoint)).unwrap();
    assert!(line.contains(" - fuse.farfs main@farm "), "{line}");
    assert!(line.contains("default_permissions"), "{line}");
}
