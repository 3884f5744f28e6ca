//! Names: making, finding, removing, listing.

use crate::{errno, in_both_modes, opened};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};

#[test]
fn what_is_there_is_not_made_again() {
    in_both_modes(|mount| {
        fs::write(mount.path("file"), "old").unwrap();
        fs::create_dir(mount.path("folder")).unwrap();
        symlink("nowhere", mount.path("link")).unwrap();
        for name in ["file", "folder", "link"] {
            let path = mount.path(name);
            let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            assert_eq!(opened(&path, exclusive).unwrap_err(), Errno::EXIST, "{name}");
            assert_eq!(errno(fs::create_dir(&path)), Errno::EXIST, "{name}");
            assert_eq!(errno(symlink("x", &path)), Errno::EXIST, "{name}");
            assert_eq!(errno(fs::hard_link(mount.path("file"), &path)), Errno::EXIST, "{name}");
        }
        assert_eq!(fs::read(mount.path("file")).unwrap(), b"old");
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    in_both_modes(|mount| {
        let (missing, below) = (mount.path("missing"), mount.path("missing/x"));
        fs::write(mount.path("file"), "").unwrap();
        for path in [&missing, &below] {
            assert_eq!(errno(fs::read(path)), Errno::NOENT);
            assert_eq!(errno(fs::symlink_metadata(path)), Errno::NOENT);
            assert_eq!(errno(fs::remove_file(path)), Errno::NOENT);
            assert_eq!(errno(fs::remove_dir(path)), Errno::NOENT);
            assert_eq!(errno(fs::read_dir(path)), Errno::NOENT);
            assert_eq!(errno(fs::read_link(path)), Errno::NOENT);
            assert_eq!(errno(fs::rename(path, mount.path("new"))), Errno::NOENT);
            assert_eq!(errno(fs::hard_link(path, mount.path("new"))), Errno::NOENT);
        }
        assert_eq!(errno(fs::write(&below, "")), Errno::NOENT);
        assert_eq!(errno(fs::create_dir(&below)), Errno::NOENT);
        assert_eq!(errno(fs::rename(mount.path("file"), &below)), Errno::NOENT);
        // A name that was looked up in vain can be made all the same.
        fs::write(&missing, "now").unwrap();
        assert_eq!(fs::read(&missing).unwrap(), b"now");
        fs::remove_file(&missing).unwrap();
        assert_eq!(errno(fs::read(&missing)), Errno::NOENT);
    });
}

#[test]
fn files_and_directories_are_told_apart() {
    in_both_modes(|mount| {
        let (file, folder) = (mount.path("file"), mount.path("folder"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&folder).unwrap();
        assert_eq!(errno(fs::read(file.join("x"))), Errno::NOTDIR);
        assert_eq!(errno(fs::create_dir(file.join("x"))), Errno::NOTDIR);
        assert_eq!(errno(fs::read_dir(&file)), Errno::NOTDIR);
        assert_eq!(errno(fs::remove_dir(&file)), Errno::NOTDIR);
        assert_eq!(opened(&file, OFlags::DIRECTORY).unwrap_err(), Errno::NOTDIR);
        assert_eq!(errno(fs::remove_file(&folder)), Errno::ISDIR);
        assert_eq!(errno(fs::read(&folder)), Errno::ISDIR);
        assert_eq!(opened(&folder, OFlags::WRONLY).unwrap_err(), Errno::ISDIR);
        assert_eq!(errno(fs::read_link(&file)), Errno::INVAL);
        assert_eq!(errno(fs::hard_link(&folder, mount.path("again"))), Errno::PERM);
    });
}

#[test]
fn a_directory_goes_when_it_is_empty() {
    in_both_modes(|mount| {
        let folder = mount.path("folder");
        fs::create_dir_all(folder.join("inner")).unwrap();
        assert_eq!(errno(fs::remove_dir(&folder)), Errno::NOTEMPTY);
        fs::write(folder.join("inner/file"), "").unwrap();
        assert_eq!(errno(fs::remove_dir(folder.join("inner"))), Errno::NOTEMPTY);
        fs::remove_file(folder.join("inner/file")).unwrap();
        fs::remove_dir(folder.join("inner")).unwrap();
        fs::remove_dir(&folder).unwrap();
        assert_eq!(errno(fs::metadata(&folder)), Errno::NOENT);
        assert_eq!(fs::read_dir(&mount.mountpoint).unwrap().count(), 0);
    });
}

#[test]
fn a_directory_that_is_open_can_be_removed_and_then_takes_nothing() {
    in_both_modes(|mount| {
        let path = mount.path("folder");
        fs::create_dir(&path).unwrap();
        let folder = opened(&path, OFlags::DIRECTORY).unwrap();
        fs::remove_dir(&path).unwrap();
        let made = rustix::fs::mkdirat(&folder, "x", 0o755.into());
        assert_eq!(made.unwrap_err(), Errno::NOENT);
    });
}

#[test]
fn names_have_up_to_255_bytes_of_any_kind() {
    in_both_modes(|mount| {
        let names: Vec<OsString> = vec![
            OsString::from("a".repeat(255)),
            OsString::from("ä".repeat(127)),
            OsString::from("with blanks and\nline breaks"),
            OsString::from("-rf"),
            OsString::from("back\\slash \"quote\" 'tick' $HOME *"),
            OsString::from("..."),
            OsString::from_vec((1..=255).filter(|byte| *byte != b'/').collect()),
            OsString::from_vec(vec![0xff, 0xfe, 0x80]),
        ];
        for name in &names {
            fs::write(mount.path(name), name.as_bytes()).unwrap();
        }
        let listed: BTreeSet<OsString> = fs::read_dir(&mount.mountpoint)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(listed, names.iter().cloned().collect());
        for name in &names {
            assert_eq!(fs::read(mount.path(name)).unwrap(), name.as_bytes());
        }
        let long = mount.path("a".repeat(256));
        assert_eq!(errno(fs::write(&long, "")), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::metadata(&long)), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::create_dir(&long)), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::rename(mount.path("-rf"), &long)), Errno::NAMETOOLONG);
    });
}

#[test]
fn paths_may_be_deep() {
    in_both_modes(|mount| {
        let mut path = mount.mountpoint.clone();
        for depth in 0..100 {
            path.push(format!("level-{depth:03}-{}", "x".repeat(20)));
        }
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("file"), "deep").unwrap();
        assert_eq!(fs::read(path.join("file")).unwrap(), b"deep");
        let up = path.join("..").join("..");
        let expected = path.parent().unwrap().parent().unwrap();
        assert_eq!(fs::metadata(up).unwrap().ino(), fs::metadata(expected).unwrap().ino());
        let too_long = path.join("x".repeat(200)).join("y".repeat(200)).join("z".repeat(200));
        let too_long = too_long.join("x".repeat(250)).join("y".repeat(250));
        assert_eq!(errno(fs::metadata(too_long)), Errno::NAMETOOLONG);
    });
}

#[test]
fn symbolic_links_lead_where_they_say() {
    in_both_modes(|mount| {
        fs::create_dir(mount.path("folder")).unwrap();
        fs::write(mount.path("folder/file"), "found").unwrap();
        symlink("folder/file", mount.path("link")).unwrap();
        symlink("folder", mount.path("way")).unwrap();
        symlink("../link", mount.path("folder/back")).unwrap();
        for path in ["link", "way/file", "way/back"] {
            assert_eq!(fs::read(mount.path(path)).unwrap(), b"found", "{path}");
        }
        assert_eq!(fs::symlink_metadata(mount.path("link")).unwrap().len(), 11);
        let long = format!("/{}", "x/".repeat(2047));
        symlink(&long, mount.path("long")).unwrap();
        assert_eq!(fs::read_link(mount.path("long")).unwrap().as_os_str(), OsStr::new(&long));
        symlink("missing", mount.path("dangling")).unwrap();
        assert_eq!(errno(fs::read(mount.path("dangling"))), Errno::NOENT);
        fs::write(mount.path("dangling"), "made through it").unwrap();
        assert_eq!(fs::read(mount.path("missing")).unwrap(), b"made through it");
        symlink("b", mount.path("a")).unwrap();
        symlink("a", mount.path("b")).unwrap();
        assert_eq!(errno(fs::read(mount.path("a"))), Errno::LOOP);
        assert_eq!(opened(&mount.path("link"), OFlags::NOFOLLOW).unwrap_err(), Errno::LOOP);
        fs::remove_file(mount.path("link")).unwrap();
        assert_eq!(fs::read(mount.path("folder/file")).unwrap(), b"found");
    });
}

#[test]
fn a_file_may_have_many_names() {
    in_both_modes(|mount| {
        fs::create_dir(mount.path("folder")).unwrap();
        fs::write(mount.path("one"), "first").unwrap();
        fs::hard_link(mount.path("one"), mount.path("two")).unwrap();
        fs::hard_link(mount.path("two"), mount.path("folder/three")).unwrap();
        let stat = |name: &str| fs::metadata(mount.path(name)).unwrap();
        for name in ["one", "two", "folder/three"] {
            assert_eq!((stat(name).nlink(), stat(name).ino()), (3, stat("one").ino()), "{name}");
        }
        fs::write(mount.path("two"), "second").unwrap();
        assert_eq!(fs::read(mount.path("folder/three")).unwrap(), b"second");
        fs::remove_file(mount.path("one")).unwrap();
        assert_eq!(stat("two").nlink(), 2);
        // Renaming one name of a file over another of its names does nothing.
        fs::rename(mount.path("two"), mount.path("folder/three")).unwrap();
        assert_eq!((stat("two").nlink(), stat("folder/three").nlink()), (2, 2));
        fs::remove_file(mount.path("two")).unwrap();
        assert_eq!(stat("folder/three").nlink(), 1);
        assert_eq!(fs::read(mount.path("folder/three")).unwrap(), b"second");
    });
}

#[test]
fn the_links_of_a_directory_count_the_directories_in_it() {
    in_both_modes(|mount| {
        let links = |name: &str| fs::metadata(mount.path(name)).unwrap().nlink();
        fs::create_dir_all(mount.path("a/one")).unwrap();
        fs::create_dir_all(mount.path("a/two")).unwrap();
        fs::create_dir(mount.path("b")).unwrap();
        assert_eq!((links("a"), links("b")), (4, 2));
        fs::rename(mount.path("a/one"), mount.path("b/one")).unwrap();
        assert_eq!((links("a"), links("b")), (3, 3));
        fs::remove_dir(mount.path("b/one")).unwrap();
        assert_eq!(links("b"), 2);
    });
}

/// A directory that does not fit one answer of the server, nor one of the kernel's buffers.
#[test]
fn a_directory_of_five_thousand_entries_is_listed_whole_and_removed_while_it_is_read() {
    let world = e2e::World::new();
    let server = world.server();
    let mount = world.mount(&server, "mount", "partial");
    let folder = mount.path("folder");
    fs::create_dir(&folder).unwrap();
    let names: BTreeSet<String> = (0..5_000).map(|number| format!("entry-{number:05}")).collect();
    for name in &names {
        fs::File::create(folder.join(name)).unwrap();
    }
    let listed = |folder: &std::path::Path| -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let seen = listed(&folder);
    assert_eq!(seen.len(), names.len(), "each once");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    mount.wait();
    let other = world.mount(&server, "other", "connected");
    let seen = listed(&other.path("folder"));
    assert_eq!(seen.len(), names.len(), "each once");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    // Half of it goes, and as much comes, while it is read: the rest is seen, each name once.
    let mut entries = fs::read_dir(&folder).unwrap();
    let mut seen: Vec<_> = entries.by_ref().take(100).collect();
    for name in names.iter().step_by(2) {
        fs::remove_file(folder.join(name)).unwrap();
        fs::write(folder.join(format!("new-{name}")), b"").unwrap();
    }
    seen.extend(entries);
    let seen: Vec<_> = seen.into_iter().map(Result::unwrap).collect();
    let stay: BTreeSet<OsString> = names.iter().skip(1).step_by(2).map(OsString::from).collect();
    let stayed: Vec<_> = seen.iter().filter(|entry| stay.contains(&entry.file_name())).collect();
    assert_eq!(stayed.len(), stay.len());
    for entry in stayed {
        assert!(entry.file_type().unwrap().is_file());
        assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
    }
    let different: BTreeSet<_> = seen.iter().map(fs::DirEntry::file_name).collect();
    assert_eq!(different.len(), seen.len(), "none twice");
    // As `rm -r` does: the listing goes on over what has been removed.
    for entry in fs::read_dir(&folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(&folder).unwrap();
    mount.wait();
    e2e::eventually(std::time::Duration::from_secs(10), "the other device sees it gone", || {
        !other.path("folder").exists()
    });
}

#[test]
fn a_listing_has_the_directory_itself_and_the_one_above_and_can_start_over() {
    in_both_modes(|mount| {
        fs::create_dir_all(mount.path("folder/inner")).unwrap();
        let fd = opened(&mount.path("folder/inner"), OFlags::DIRECTORY).unwrap();
        let mut directory = rustix::fs::Dir::new(fd).unwrap();
        let read = |directory: &mut rustix::fs::Dir| {
            let mut seen = std::collections::BTreeMap::new();
            while let Some(entry) = directory.read() {
                let entry = entry.unwrap();
                seen.insert(entry.file_name().to_str().unwrap().to_owned(), entry.ino());
            }
            seen
        };
        let inode = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
        let seen = read(&mut directory);
        assert_eq!(seen[".."], inode("folder"));
        assert_eq!(seen["."], inode("folder/inner"));
        assert_eq!(seen.len(), 2);
        fs::write(mount.path("folder/inner/new"), "").unwrap();
        directory.rewind();
        assert!(read(&mut directory).contains_key("new"));
    });
}
