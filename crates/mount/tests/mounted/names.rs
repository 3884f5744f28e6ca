use crate::needs_fuse;
use crate::support::{Farm, is_root};
use mount::MountOptions;
use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

fn listed(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn names_are_made_looked_up_listed_and_taken_away() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let folder = machine.path("folder");
    assert_eq!(fs::metadata(&folder).unwrap_err().kind(), ErrorKind::NotFound);
    fs::create_dir(&folder).unwrap();
    assert_eq!(fs::create_dir(&folder).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::write(folder.join("file"), "text").unwrap();
    assert_eq!(listed(&folder), ["file".to_owned()].into());
    assert_eq!(fs::remove_dir(&folder).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::remove_dir(folder.join("file")).unwrap_err().kind(), ErrorKind::NotADirectory);
    fs::remove_file(folder.join("file")).unwrap();
    assert_eq!(listed(&folder), BTreeSet::new());
    fs::remove_dir(&folder).unwrap();
    assert_eq!(fs::metadata(&folder).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_directory_of_thousands_is_listed_whole_each_name_once() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let folder = machine.path("many");
    fs::create_dir(&folder).unwrap();
    let names: BTreeSet<String> = (0..2500).map(|number| format!("file {number}")).collect();
    for name in &names {
        fs::File::create(folder.join(name)).unwrap();
    }
    for _ in 0..2 {
        let entries = fs::read_dir(&folder).unwrap().count();
        assert_eq!((entries, listed(&folder)), (names.len(), names.clone()));
    }
    // Taking entries away while reading passes over none of the others.
    for entry in fs::read_dir(&folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(listed(&folder), BTreeSet::new());
}

/// The kernel is had to forget it meanwhile.
#[test]
fn a_listing_goes_on_where_it_was_while_the_directories_in_it_are_listed() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let folder = machine.path("folder");
    let names: BTreeSet<String> = (0..60).map(|number| format!("directory {number}")).collect();
    names.iter().for_each(|name| fs::create_dir_all(folder.join(name).join("below")).unwrap());
    assert_eq!(listed(&folder), names);
    let open = fs::File::open(&folder).unwrap();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
    let mut listing = rustix::fs::RawDir::new(&open, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = listing.next() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        if found.len() == 20 {
            names.iter().for_each(|name| assert_eq!(listed(&folder.join(name)).len(), 1));
            // The kernel is told by a thread of its own.
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        found.push(name);
    }
    let all: BTreeSet<String> =
        found.iter().filter(|name| !name.starts_with('.')).cloned().collect();
    assert_eq!((found.len(), all), (62, names));
}

#[test]
fn a_listing_begins_with_the_directory_and_the_one_above() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let folder = machine.path("folder");
    fs::create_dir(&folder).unwrap();
    let open = fs::File::open(&folder).unwrap();
    let mut entries = rustix::fs::Dir::read_from(&open).unwrap();
    let dot = entries.next().unwrap().unwrap();
    let above = entries.next().unwrap().unwrap();
    assert_eq!((dot.file_name(), above.file_name()), (c".", c".."));
    assert_eq!(dot.ino(), fs::metadata(&folder).unwrap().ino());
    assert_eq!(above.ino(), 1);
}

#[test]
fn rename_replaces_keeps_or_exchanges() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let [a, b] = ["a", "b"].map(|name| machine.path(name));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(&a).unwrap(), "b");
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::read_to_string(&b).unwrap(), "b");
    assert_eq!(fs::metadata(&a).unwrap_err().kind(), ErrorKind::NotFound);

    let (outer, inner) = (machine.path("outer"), machine.path("outer/inner"));
    fs::create_dir_all(&inner).unwrap();
    assert_eq!(fs::rename(&outer, inner.join("x")).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn links_share_a_file_and_symbolic_links_lead_to_it() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let [file, link, symlink] = ["file", "link", "symlink"].map(|name| machine.path(name));
    fs::write(&file, "text").unwrap();
    fs::hard_link(&file, &link).unwrap();
    let (first, second) = (fs::metadata(&file).unwrap(), fs::metadata(&link).unwrap());
    assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::metadata(&link).unwrap().nlink(), 1);

    std::os::unix::fs::symlink("link", &symlink).unwrap();
    assert_eq!(fs::read_link(&symlink).unwrap(), Path::new("link"));
    assert_eq!(fs::read_to_string(&symlink).unwrap(), "text");
    assert!(fs::symlink_metadata(&symlink).unwrap().is_symlink());
}

#[test]
fn special_files_keep_their_kind_and_number() {
    needs_fuse!();
    if !is_root() {
        return;
    }
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let [fifo, device] = ["fifo", "device"].map(|name| machine.path(name));
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    let number = rustix::fs::makedev(7, 300);
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    rustix::fs::mknodat(CWD, &device, rustix::fs::FileType::BlockDevice, mode, number).unwrap();
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    let seen = fs::metadata(&device).unwrap();
    assert!(seen.file_type().is_block_device());
    assert_eq!((seen.rdev(), seen.mode() & 0o7777), (number, 0o640));
}

#[test]
fn a_file_without_a_name_is_there_as_long_as_it_is_open() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let path = machine.path("file");
    fs::write(&path, "still here").unwrap();
    let open = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(std::io::read_to_string(&open).unwrap(), "still here");
    assert_eq!(open.metadata().unwrap().nlink(), 0);
}

#[test]
fn a_name_that_is_too_long_is_said_to_be_so() {
    needs_fuse!();
    let farm = Farm::new();
    let machine = farm.machine("a", MountOptions::default());
    let longest = machine.path(&"x".repeat(255));
    fs::write(&longest, "").unwrap();
    let longer = machine.path(&"x".repeat(256));
    let stat = rustix::fs::statat(CWD, &longer, AtFlags::empty());
    assert_eq!(stat.unwrap_err(), Errno::NAMETOOLONG);
}
