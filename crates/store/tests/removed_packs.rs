//! What another program does to packs while they are in use: what was put is there all the same, or
//! nobody is told that it is.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "changes the files of the store behind its back")]

use std::fs::{File, copy, create_dir, read_dir, remove_dir_all, remove_file, rename, write};
use std::path::{Path, PathBuf};
use store::packs::Packs;
use store::{Blobs, StoreError};
use tempfile::{TempDir, tempdir};

/// Some packs of about ten blobs each.
const PACK_BYTES: u64 = 3000;
const BLOBS: u32 = 35;

fn opened(directory: &Path) -> Packs {
    Packs::open_with_packs(directory, PACK_BYTES).unwrap()
}

fn blob(number: u32) -> Vec<u8> {
    vec![number as u8; 300]
}

fn put(packs: &Packs, upto: u32) -> store::Result<()> {
    for number in 0..upto {
        packs.put(&number.to_be_bytes(), &blob(number))?;
    }
    packs.sync()
}

fn filled(directory: &Path) -> Packs {
    let packs = opened(directory);
    put(&packs, BLOBS).unwrap();
    packs
}

#[track_caller]
fn has(packs: &Packs, upto: u32, what: &str) {
    for number in 0..upto {
        let found = packs.get(&number.to_be_bytes()).unwrap();
        assert_eq!(found, Some(blob(number)), "{what}: blob {number}");
    }
}

/// What a machine whose process is killed now has on its disk.
fn killed(from: &Path) -> TempDir {
    let to = tempdir().unwrap();
    for file in read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() {
            copy(&file, to.path().join(file.file_name().unwrap())).unwrap();
        }
    }
    to
}

fn packs_of(directory: &Path) -> Vec<PathBuf> {
    let all = read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|ending| ending == "pack")).collect();
    found.sort();
    found
}

fn oldest(directory: &Path) -> PathBuf {
    packs_of(directory).remove(0)
}

fn newest(directory: &Path) -> PathBuf {
    packs_of(directory).pop().unwrap()
}

fn replaced(path: &Path, bytes: &[u8]) {
    let other = path.with_extension("other");
    write(&other, bytes).unwrap();
    rename(&other, path).unwrap();
}

type Harm = fn(&Path);

const MENDED: [(&str, Harm); 12] = [
    ("the newest is removed", |at| remove_file(newest(at)).unwrap()),
    ("the oldest is removed", |at| remove_file(oldest(at)).unwrap()),
    ("all packs are removed", |at| {
        packs_of(at).iter().for_each(|pack| remove_file(pack).unwrap());
    }),
    // It is written anew with the next rows that it gets.
    ("the index is removed", |at| drop(remove_file(at.join("index.redb")))),
    ("another takes the place of the index", |at| replaced(&at.join("index.redb"), b"other")),
    ("all is removed", |at| remove_dir_all(at).unwrap()),
    ("all is removed, and a directory is there", |at| {
        remove_dir_all(at).unwrap();
        create_dir(at).unwrap();
    }),
    ("the newest is moved away", |at| rename(newest(at), at.join("away")).unwrap()),
    ("an older state of the newest takes its place", |at| {
        let bytes = std::fs::read(newest(at)).unwrap();
        replaced(&newest(at), &bytes[..bytes.len() / 2]);
    }),
    ("something else takes the place of the oldest", |at| replaced(&oldest(at), b"other")),
    ("a directory takes the place of the newest", |at| {
        let newest = newest(at);
        remove_file(&newest).unwrap();
        create_dir(newest).unwrap();
    }),
    ("the lock is removed, and the newest", |at| {
        remove_file(at.join("lock")).unwrap();
        remove_file(newest(at)).unwrap();
    }),
];

#[test]
fn what_another_program_has_done_to_packs_is_mended_before_a_sync_returns() {
    for (what, harm) in MENDED {
        for is_opened_again in [false, true] {
            for more in [0, 20] {
                let above = tempdir().unwrap();
                let directory = above.path().join("chunks");
                let mut packs = filled(&directory);
                if is_opened_again {
                    drop(packs);
                    packs = opened(&directory);
                }
                for round in 1..3 {
                    let upto = BLOBS + more * round;
                    harm(&directory);
                    put(&packs, upto).unwrap();
                    has(&opened(killed(&directory).path()), upto, what);
                    has(&packs, upto, what);
                    let busy = Packs::open_with_packs(&directory, PACK_BYTES);
                    assert!(matches!(busy, Err(StoreError::Busy(_))), "{what}");
                }
                drop(packs);
                let packs = opened(&directory);
                has(&packs, BLOBS + more * 2, what);
                assert_eq!((packs.damage().unwrap(), packs.lost().unwrap()), (vec![], None));
            }
        }
    }
}

#[test]
fn what_cannot_be_had_is_not_said_to_be_on_the_disk() {
    let cut: [(&str, Harm); 3] = [
        ("the newest is emptied", |at| drop(File::create(newest(at)).unwrap())),
        ("the oldest is cut short", |at| {
            File::options().write(true).open(oldest(at)).unwrap().set_len(500).unwrap();
        }),
        ("the newest is emptied and removed", |at| {
            File::create(newest(at)).unwrap();
            remove_file(newest(at)).unwrap();
        }),
    ];
    for (what, harm) in cut {
        let directory = tempdir().unwrap();
        let packs = filled(directory.path());
        harm(directory.path());
        for more in 0..3 {
            let error = put(&packs, BLOBS + more).unwrap_err().to_string();
            assert!(error.contains("start farfs again"), "{what}: {error}");
        }
        drop(packs);
        let packs = opened(directory.path());
        let lost = packs.lost().unwrap();
        assert!(lost.is_some_and(|lost| lost.contains("cut short: 0000000")), "{what}");
        // What a device sends again is taken.
        put(&packs, BLOBS).unwrap();
        has(&packs, BLOBS, what);
    }
}

/// More than are kept open: with these it is as if they were not.
#[test]
fn a_pack_that_is_not_open_is_missed_until_it_is_back_and_nothing_of_it_is_forgotten() {
    let directory = tempdir().unwrap();
    let (blobs, bytes) = (400, PACK_BYTES as usize);
    let name = |number: u32| number.to_be_bytes();
    let packs = opened(directory.path());
    for number in 0..blobs {
        packs.put(&name(number), &vec![number as u8; bytes]).unwrap();
    }
    packs.sync().unwrap();
    for number in 1..blobs {
        packs.get(&name(number)).unwrap();
    }
    let (oldest, away) = (oldest(directory.path()), directory.path().join("away"));
    rename(&oldest, &away).unwrap();
    for _ in 0..2 {
        let errors = [packs.sync().unwrap_err(), packs.get(&name(0)).unwrap_err()];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains("put it back, or start farfs again"), "{error}");
        }
    }
    rename(&away, &oldest).unwrap();
    packs.sync().unwrap();
    assert_eq!(packs.get(&name(0)).unwrap(), Some(vec![0; bytes]));
}

#[test]
fn where_the_directory_was_moved_nothing_is_made_and_all_is_well_when_it_is_back() {
    let above = tempdir().unwrap();
    let (data, away) = (above.path().join("data"), above.path().join("away"));
    for moved in ["data", "data/chunks"].map(|moved| above.path().join(moved)) {
        let directory = data.join("chunks");
        std::fs::create_dir_all(&data).unwrap();
        let packs = filled(&directory);
        rename(&moved, &away).unwrap();
        for more in 0..2 {
            let error = put(&packs, BLOBS + more).unwrap_err().to_string();
            assert!(error.contains("move that back"), "{error}");
        }
        packs.damage().expect_err("nobody is told that all is well");
        create_dir(&moved).unwrap();
        put(&packs, BLOBS + 1).unwrap_err();
        assert_eq!(read_dir(&moved).unwrap().count(), 0);
        has(&packs, BLOBS, "it is open all the same");
        std::fs::remove_dir(&moved).unwrap();
        rename(&away, &moved).unwrap();
        put(&packs, BLOBS + 1).unwrap();
        has(&opened(killed(&directory).path()), BLOBS + 1, "it is back");
        drop(packs);
        remove_dir_all(&data).unwrap();
    }
}

#[test]
fn what_was_left_of_a_pack_that_was_being_put_anew_does_no_harm() {
    let directory = tempdir().unwrap();
    drop(filled(directory.path()));
    let half = newest(directory.path()).with_extension("pack.new");
    write(&half, b"half").unwrap();
    let packs = opened(directory.path());
    assert!(!half.exists());
    write(&half, [7; 100_000]).unwrap();
    remove_file(newest(directory.path())).unwrap();
    put(&packs, BLOBS + 1).unwrap();
    assert!(!half.exists());
    has(&opened(killed(directory.path()).path()), BLOBS + 1, "half");
}

#[test]
fn packs_that_were_written_anew_are_not_missed() {
    let directory = tempdir().unwrap();
    let packs = filled(directory.path());
    for number in 0..BLOBS - 2 {
        packs.delete(&number.to_be_bytes()).unwrap();
        packs.sync().unwrap();
    }
    while packs.reclaim(10).unwrap().is_some() {
        packs.sync().unwrap();
    }
    put(&packs, BLOBS).unwrap();
    has(&packs, BLOBS, "written anew");
}
