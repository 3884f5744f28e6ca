//! Renames of every kind.

use crate::{errno, in_both_modes};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_rename_over_a_file_takes_its_place() {
    in_both_modes(|mount| {
        fs::create_dir(mount.path("folder")).unwrap();
        fs::write(mount.path("old"), "old").unwrap();
        fs::write(mount.path("new"), "new").unwrap();
        let inode = fs::metadata(mount.path("new")).unwrap().ino();
        fs::rename(mount.path("new"), mount.path("old")).unwrap();
        assert_eq!(fs::read(mount.path("old")).unwrap(), b"new");
        assert_eq!(fs::metadata(mount.path("old")).unwrap().ino(), inode);
        assert_eq!(errno(fs::metadata(mount.path("new"))), Errno::NOENT);
        fs::rename(mount.path("old"), mount.path("folder/moved")).unwrap();
        assert_eq!(fs::read(mount.path("folder/moved")).unwrap(), b"new");
        fs::rename(mount.path("folder/moved"), mount.path("folder/moved")).unwrap();
        assert_eq!(fs::read(mount.path("folder/moved")).unwrap(), b"new");
    });
}

#[test]
fn a_directory_is_renamed_with_all_that_is_in_it() {
    in_both_modes(|mount| {
        fs::create_dir_all(mount.path("a/b/c")).unwrap();
        fs::write(mount.path("a/b/c/file"), "x").unwrap();
        fs::create_dir(mount.path("empty")).unwrap();
        fs::rename(mount.path("a/b"), mount.path("empty")).unwrap();
        assert_eq!(fs::read(mount.path("empty/c/file")).unwrap(), b"x");
        assert_eq!(errno(fs::metadata(mount.path("a/b"))), Errno::NOENT);
        let up = fs::metadata(mount.path("empty/..")).unwrap().ino();
        assert_eq!(up, fs::metadata(&mount.mountpoint).unwrap().ino());
    });
}

#[test]
fn what_does_not_fit_together_is_not_renamed() {
    in_both_modes(|mount| {
        fs::write(mount.path("file"), "").unwrap();
        fs::create_dir_all(mount.path("folder/inner")).unwrap();
        fs::create_dir(mount.path("other")).unwrap();
        let rename = |from: &str, to: &str| errno(fs::rename(mount.path(from), mount.path(to)));
        assert_eq!(rename("other", "file"), Errno::NOTDIR);
        assert_eq!(rename("file", "other"), Errno::ISDIR);
        assert_eq!(rename("other", "folder"), Errno::NOTEMPTY);
        assert_eq!(rename("folder", "folder/inner/x"), Errno::INVAL);
        assert_eq!(rename("folder", "folder/inner"), Errno::INVAL);
    });
}

#[test]
fn two_names_can_be_exchanged() {
    in_both_modes(|mount| {
        fs::write(mount.path("file"), "was a file").unwrap();
        fs::create_dir(mount.path("folder")).unwrap();
        fs::write(mount.path("folder/inside"), "x").unwrap();
        let exchange = |one: &str, other: &str| {
            renameat_with(CWD, mount.path(one), CWD, mount.path(other), RenameFlags::EXCHANGE)
        };
        exchange("file", "folder").unwrap();
        assert_eq!(fs::read(mount.path("folder")).unwrap(), b"was a file");
        assert_eq!(fs::read(mount.path("file/inside")).unwrap(), b"x");
        assert_eq!(exchange("file", "missing"), Err(Errno::NOENT));
    });
}

#[test]
fn a_rename_can_be_told_not_to_replace() {
    in_both_modes(|mount| {
        fs::write(mount.path("one"), "1").unwrap();
        fs::write(mount.path("two"), "2").unwrap();
        let careful = |from: &str, to: &str| {
            renameat_with(CWD, mount.path(from), CWD, mount.path(to), RenameFlags::NOREPLACE)
        };
        assert_eq!(careful("one", "two"), Err(Errno::EXIST));
        assert_eq!(fs::read(mount.path("two")).unwrap(), b"2");
        careful("one", "three").unwrap();
        assert_eq!(fs::read(mount.path("three")).unwrap(), b"1");
    });
}

/// The way of every careful editor: whoever opens the name finds one whole version or another.
#[test]
fn a_reader_never_misses_a_file_that_is_replaced_by_renames() {
    in_both_modes(|mount| {
        let target = mount.path("target");
        fs::write(&target, e2e::contents::version(0, 9_000)).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    let whole = fs::read(&target).expect("the name is always there");
                    let number = e2e::contents::number_of(&whole).expect("a whole version");
                    assert!(number >= seen, "{number} after {seen}");
                    seen = number;
                }
                seen
            });
            for number in 1..=40 {
                fs::write(mount.path("new"), e2e::contents::version(number, 9_000)).unwrap();
                fs::rename(mount.path("new"), &target).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        let last = e2e::contents::number_of(&fs::read(&target).unwrap());
        assert_eq!(last, Ok(40));
    });
}
