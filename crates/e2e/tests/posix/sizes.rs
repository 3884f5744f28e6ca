//! How long, how large and how many.

use crate::{errno, in_both_modes};
use e2e::contents::noise;
use e2e::{Mount, World};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest path that a call takes, less its NUL.
const PATH_BYTES_MAX: usize = 4095;
const TERABYTE: u64 = 1 << 40;
const ENTRIES: usize = 5_000;

/// A path below a directory, of so many bytes.
fn long_path(below: &Path, bytes: usize) -> PathBuf {
    let mut path = below.to_path_buf();
    loop {
        let left = bytes - path.as_os_str().len() - 1;
        // No name is left over that would have no letter.
        let name = if left > 300 { 255 } else { left.min(200) };
        path.push("n".repeat(name));
        if name == left {
            return path;
        }
    }
}

#[test]
fn a_path_has_4095_bytes_and_no_more() {
    in_both_modes(|mount| {
        let path = long_path(&mount.mountpoint, PATH_BYTES_MAX);
        assert_eq!(path.as_os_str().len(), PATH_BYTES_MAX);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "far down").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"far down");
        let listed =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(listed.collect::<Vec<_>>(), std::slice::from_ref(&path));
        let longer = PathBuf::from(format!("{}n", path.display()));
        assert_eq!(errno(fs::metadata(&longer)), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::rename(&path, &longer)), Errno::NAMETOOLONG);
        fs::rename(&path, mount.path("up")).unwrap();
        assert_eq!(fs::read(mount.path("up")).unwrap(), b"far down");
    });
}

#[test]
fn a_file_of_a_terabyte_is_written_read_cut_and_removed() {
    let world = World::new();
    let server = world.server();
    for mode in ["connected", "partial"] {
        let one = world.mount(&server, &format!("one-{mode}"), mode);
        let other = world.mount(&server, &format!("other-{mode}"), mode);
        let places = [0, TERABYTE / 2 + 1, TERABYTE - 1000];
        let file = File::create(one.path("large")).unwrap();
        file.set_len(TERABYTE).unwrap();
        for place in places {
            file.write_all_at(&noise(place, 1000), place).unwrap();
        }
        drop(file);
        one.wait();
        let holds = |mount: &Mount| {
            let file = File::open(mount.path("large")).unwrap();
            let found = file.metadata().unwrap();
            assert_eq!(found.len(), TERABYTE);
            assert!(found.blocks() * 512 < 1 << 20, "{} blocks in {mode}", found.blocks());
            for place in places {
                let mut bytes = vec![0; 1000];
                file.read_exact_at(&mut bytes, place).unwrap();
                assert!(bytes == noise(place, 1000), "at {place} in {mode}");
            }
            let data = seek(&file, SeekFrom::Data(TERABYTE / 4)).unwrap();
            assert!((TERABYTE / 4..=places[1]).contains(&data), "{data}");
        };
        holds(&one);
        holds(&other);
        let file = OpenOptions::new().write(true).open(other.path("large")).unwrap();
        file.set_len(TERABYTE / 2).unwrap();
        drop(file);
        other.wait();
        if mode == "connected" {
            assert_eq!(fs::metadata(one.path("large")).unwrap().len(), TERABYTE / 2);
        }
        fs::remove_file(other.path("large")).unwrap();
        other.wait();
    }
}

#[test]
fn a_directory_of_many_entries_is_filled_listed_and_emptied() {
    in_both_modes(|mount| {
        let directory = mount.path("many");
        fs::create_dir(&directory).unwrap();
        let names: BTreeSet<String> = (0..ENTRIES).map(|number| format!("{number:06}")).collect();
        for name in &names {
            File::create(directory.join(name)).unwrap();
        }
        let listed = || -> BTreeSet<String> {
            let entries = fs::read_dir(&directory).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(listed(), names);
        for name in names.iter().step_by(2) {
            fs::remove_file(directory.join(name)).unwrap();
        }
        assert_eq!(listed(), names.iter().skip(1).step_by(2).cloned().collect());
    });
}
