//! What another program does to the file of tables while it is in use: what was committed is there
//! all the same, or nobody is told that it is.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "changes the files of the store behind its back")]

use std::fs::{File, copy, create_dir, read_dir, remove_dir_all, remove_file, rename, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use store::embedded::{Database, Settings};
use store::{Durability, Result, StoreError, Tables};
use tempfile::{TempDir, tempdir};

const FILE: &str = "tables.redb";
const LOG: &str = "tables.log";
const ROWS: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Logged,
    Unlogged,
    /// Each commit is written to the file at once, with those before it.
    Flushed,
}

const WAYS: [Way; 3] = [Way::Logged, Way::Unlogged, Way::Flushed];

fn opened(directory: &Path, way: Way) -> Result<Database> {
    let log = directory.join(LOG);
    let settings = Settings {
        log: Some(log.as_path()).filter(|_| way != Way::Unlogged),
        young_rows_max: if way == Way::Flushed { 1 } else { 4096 },
        ..Settings::default()
    };
    Database::open_as(&directory.join(FILE), settings)
}

fn put(tables: &Database, number: u32) -> Result<()> {
    put_as(tables, number, Durability::Now)
}

fn put_as(tables: &Database, number: u32, durability: Durability) -> Result<()> {
    let mut write = tables.write()?;
    write.put("rows", &number.to_be_bytes(), &[number as u8; 300])?;
    write.commit(durability)
}

fn filled(directory: &Path, way: Way) -> Database {
    let tables = opened(directory, way).unwrap();
    (0..ROWS).for_each(|number| put(&tables, number).unwrap());
    tables
}

fn rows(tables: &Database) -> Vec<u32> {
    let rows = tables.read().unwrap().scan("rows", &[], &[0xff; 8], usize::MAX).unwrap();
    assert!(rows.iter().all(|(_, value)| value.len() == 300));
    rows.into_iter().map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap())).collect()
}

/// What a machine whose process is killed now has on its disk.
fn killed(from: &Path) -> TempDir {
    let to = tempdir().unwrap();
    for name in ["", LOG] {
        let Ok(entries) = read_dir(from.join(name)) else { continue };
        std::fs::create_dir_all(to.path().join(name)).unwrap();
        for file in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            copy(&file, to.path().join(name).join(file.file_name().unwrap())).unwrap();
        }
    }
    to
}

type Harm = fn(&Path);

fn file(at: &Path) -> PathBuf {
    at.join(FILE)
}

const MENDED: [(&str, Harm); 6] = [
    ("it is removed", |at| remove_file(file(at)).unwrap()),
    ("it is moved away", |at| rename(file(at), at.join("away")).unwrap()),
    ("a copy takes its place", |at| {
        copy(file(at), at.join("copy")).unwrap();
        rename(at.join("copy"), file(at)).unwrap();
    }),
    ("another takes its place", |at| {
        write(at.join("other"), b"not a database").unwrap();
        rename(at.join("other"), file(at)).unwrap();
    }),
    ("a directory takes its place", |at| {
        remove_file(file(at)).unwrap();
        create_dir(file(at)).unwrap();
    }),
    ("it is removed with its log", |at| {
        remove_file(file(at)).unwrap();
        let _ = remove_dir_all(at.join(LOG));
    }),
];

#[test]
fn a_commit_to_memory_sees_it_too() {
    for way in WAYS {
        for (what, harm) in MENDED {
            let directory = tempdir().unwrap();
            let tables = filled(directory.path(), way);
            // Of these not all look for room.
            for more in 0..20 {
                harm(directory.path());
                put_as(&tables, ROWS + more, Durability::Later).unwrap();
                assert!(tables.put_anew() > u64::from(more), "{what}, {way:?}");
            }
            let wanted: Vec<_> = (0..ROWS + 20).collect();
            assert_eq!(rows(&tables), wanted, "{what}, {way:?}");
        }
    }
}

#[test]
fn what_another_program_has_done_to_the_file_is_mended_before_a_commit_returns() {
    for way in WAYS {
        for (what, harm) in MENDED {
            let directory = tempdir().unwrap();
            let tables = filled(directory.path(), way);
            for more in 0..3 {
                harm(directory.path());
                put(&tables, ROWS + more).unwrap();
                assert!(tables.put_anew() > u64::from(more), "{what}, {way:?}");
                let killed = killed(directory.path());
                let wanted: Vec<_> = (0..=ROWS + more).collect();
                assert_eq!(rows(&opened(killed.path(), way).unwrap()), wanted, "{what}, {way:?}");
                assert_eq!(rows(&tables), wanted, "{what}, {way:?}");
                let busy = opened(directory.path(), way);
                assert!(matches!(busy, Err(StoreError::Busy(_))), "{what}, {way:?}");
            }
            drop(tables);
            assert_eq!(rows(&opened(directory.path(), way).unwrap()).len() as u32, ROWS + 3);
            assert!(Database::check(&file(directory.path())).unwrap());
        }
    }
}

#[test]
fn what_lies_there_instead_stays_under_another_name() {
    let directory = tempdir().unwrap();
    let tables = filled(directory.path(), Way::Logged);
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file(directory.path()), owner_only.clone()).unwrap();
    write(directory.path().join("other"), b"of somebody").unwrap();
    rename(directory.path().join("other"), file(directory.path())).unwrap();
    put(&tables, ROWS).unwrap();
    let aside = directory.path().join(format!("{FILE}.aside-1"));
    assert_eq!(std::fs::read(aside).unwrap(), b"of somebody");
    let mode = file(directory.path()).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, owner_only.mode(), "nobody else may read it");
}

const CUT: [(&str, Harm); 3] = [
    ("it is emptied", |at| drop(File::create(file(at)).unwrap())),
    ("half of it is cut off", |at| {
        let open = File::options().write(true).open(file(at)).unwrap();
        open.set_len(open.metadata().unwrap().len() / 2).unwrap();
    }),
    ("it is emptied and removed", |at| {
        File::create(file(at)).unwrap();
        remove_file(file(at)).unwrap();
    }),
];

#[test]
fn of_a_file_that_was_cut_short_no_commit_is_said_to_be_on_the_disk() {
    for way in WAYS {
        for (what, harm) in CUT {
            let directory = tempdir().unwrap();
            let tables = filled(directory.path(), way);
            let before = file(directory.path()).metadata().unwrap().len();
            harm(directory.path());
            for number in 0..3 {
                let error = put(&tables, ROWS + number).unwrap_err().to_string();
                assert!(error.contains("while it was in use"), "{what}, {way:?}: {error}");
            }
            drop(tables);
            // Nothing is begun anew in its place.
            let after = file(directory.path()).metadata().map_or(0, |found| found.len());
            assert!(after <= before / 2, "{what}, {way:?}: {after} of {before}");
        }
    }
}

#[test]
fn what_was_not_read_before_it_was_removed_is_read_from_what_is_open() {
    for (what, harm) in MENDED {
        let directory = tempdir().unwrap();
        let tables = filled(directory.path(), Way::Logged);
        drop(tables);
        let tables = opened(directory.path(), Way::Logged).unwrap();
        harm(directory.path());
        assert_eq!(rows(&tables).len() as u32, ROWS, "{what}");
        put(&tables, ROWS).unwrap();
        assert_eq!(rows(&tables).len() as u32, ROWS + 1, "{what}");
    }
}

#[test]
fn where_all_was_moved_nothing_is_made_and_all_is_well_when_it_is_back() {
    for way in WAYS {
        let above = tempdir().unwrap();
        let (state, away) = (above.path().join("state"), above.path().join("away"));
        create_dir(&state).unwrap();
        let tables = filled(&state, way);
        rename(&state, &away).unwrap();
        for _ in 0..2 {
            let error = put(&tables, ROWS).unwrap_err().to_string();
            assert!(error.contains("move that back"), "{way:?}: {error}");
        }
        create_dir(&state).unwrap();
        put(&tables, ROWS).unwrap_err();
        assert_eq!(read_dir(&state).unwrap().count(), 0, "{way:?}");
        std::fs::remove_dir(&state).unwrap();
        rename(&away, &state).unwrap();
        put(&tables, ROWS).unwrap();
        let wanted: Vec<_> = (0..=ROWS).collect();
        assert_eq!(rows(&opened(killed(&state).path(), way).unwrap()), wanted, "{way:?}");
        assert_eq!(tables.put_anew(), 0, "{way:?}");
    }
}

#[test]
fn what_was_left_of_a_file_that_was_being_put_anew_does_no_harm() {
    let directory = tempdir().unwrap();
    drop(filled(directory.path(), Way::Unlogged));
    let half = directory.path().join(format!("{FILE}.new"));
    write(&half, b"half").unwrap();
    let tables = opened(directory.path(), Way::Unlogged).unwrap();
    assert!(!half.exists());
    write(&half, [7; 100_000]).unwrap();
    remove_file(file(directory.path())).unwrap();
    put(&tables, ROWS).unwrap();
    assert!(!half.exists());
    let wanted: Vec<_> = (0..=ROWS).collect();
    let killed = killed(directory.path());
    assert_eq!(rows(&opened(killed.path(), Way::Unlogged).unwrap()), wanted);
}

#[test]
fn whose_name_was_taken_away_here_stays_without() {
    let directory = tempdir().unwrap();
    let tables = filled(directory.path(), Way::Unlogged);
    tables.unname().unwrap();
    put(&tables, ROWS).unwrap();
    assert_eq!(rows(&tables).len() as u32, ROWS + 1);
    drop(tables);
    assert_eq!(read_dir(directory.path()).unwrap().count(), 0);
}
