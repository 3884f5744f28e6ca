//! What another program does to the files of a journal while it is in use: what was appended is
//! there all the same, or nobody is told that it is.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "changes the journal's files behind its back")]

use std::fs::{File, create_dir, read_dir, remove_dir_all, remove_file, rename, write};
use std::path::{Path, PathBuf};
use store::embedded::{Database, Settings};
use store::journal::{FileJournal, Position};
use store::{Durability, Journal, StoreError, Tables};

/// Some segments of about ten records each.
const SEGMENT_BYTES: u64 = 400;
const RECORDS: u64 = 35;

fn record(number: u64) -> Vec<u8> {
    format!("record {number}").into_bytes()
}

fn append(journal: &FileJournal, upto: Position) {
    while journal.next() <= upto {
        journal.append(&record(journal.next())).unwrap();
    }
}

fn wanted(upto: Position) -> Vec<(Position, Vec<u8>)> {
    (1..=upto).map(|number| (number, record(number))).collect()
}

/// What a machine that loses its power now finds in the directory.
fn found(directory: &Path) -> Vec<(Position, Vec<u8>)> {
    let copy = tempfile::tempdir().unwrap();
    for entry in read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    FileJournal::open(copy.path()).unwrap().records().unwrap()
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let all = read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|e| e == "journal")).collect();
    found.sort();
    found
}

fn newest(directory: &Path) -> PathBuf {
    segments(directory).pop().unwrap()
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

type Harm = fn(&Path);

const HARMS: [(&str, Harm); 12] = [
    ("a copy is put in the place of the newest, which goes elsewhere", |at| {
        let (newest, other) = (newest(at), at.join("other"));
        rename(&newest, &other).unwrap();
        std::fs::copy(&other, &newest).unwrap();
    }),
    ("the newest is removed", |at| remove_file(newest(at)).unwrap()),
    ("the oldest is removed", |at| remove_file(&segments(at)[0]).unwrap()),
    ("all files are removed", |at| {
        read_dir(at).unwrap().for_each(|entry| remove_file(entry.unwrap().path()).unwrap());
    }),
    ("all is removed", |at| remove_dir_all(at).unwrap()),
    ("it is moved away", |at| rename(at, at.with_extension("away")).unwrap()),
    ("the newest is emptied", |at| cut(&newest(at), 0)),
    ("a part of the newest is cut off", |at| cut(&newest(at), 60)),
    ("something is written behind the newest", |at| cut(&newest(at), 4000)),
    ("another one is put in its place", |at| {
        let (newest, other) = (newest(at), at.join("other"));
        write(&other, vec![7; newest.metadata().unwrap().len() as usize]).unwrap();
        rename(&other, &newest).unwrap();
    }),
    ("a directory is put in its place", |at| {
        let newest = newest(at);
        remove_file(&newest).unwrap();
        create_dir(newest).unwrap();
    }),
    ("a file is put in the place of the directory's lock", |at| {
        remove_file(at.join("lock")).unwrap();
        remove_file(newest(at)).unwrap();
    }),
];

#[test]
fn what_another_program_has_done_to_a_journal_in_use_is_mended_before_a_sync_returns() {
    for (what, harm) in HARMS {
        for more in [0, 1, 20] {
            let above = tempfile::tempdir().unwrap();
            let directory = above.path().join("log");
            let journal = FileJournal::open_with_segments(&directory, SEGMENT_BYTES).unwrap();
            append(&journal, RECORDS);
            journal.sync().unwrap();
            harm(&directory);
            append(&journal, RECORDS + more);
            journal.sync().unwrap();
            let all = wanted(RECORDS + more);
            assert_eq!(found(&directory), all, "{what}, {more} more");
            assert_eq!(journal.put_anew(), 1, "{what}, {more} more");
            append(&journal, RECORDS + more + 20);
            journal.sync().unwrap();
            assert_eq!(found(&directory), wanted(RECORDS + more + 20), "{what}, {more} more");
            assert!(matches!(FileJournal::open(&directory), Err(StoreError::Busy(_))), "{what}");
        }
    }
}

#[test]
fn it_is_mended_so_where_the_journal_was_opened_with_what_was_there() {
    for (what, harm) in HARMS {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("log");
        let open = || FileJournal::open_with_segments(&directory, SEGMENT_BYTES).unwrap();
        append(&open(), RECORDS);
        let journal = open();
        harm(&directory);
        assert_eq!(journal.records().unwrap(), wanted(RECORDS), "{what}");
        journal.sync().unwrap();
        assert_eq!(found(&directory), wanted(RECORDS), "{what}");
    }
}

#[test]
fn what_cannot_be_mended_is_not_said_to_be_on_the_disk() {
    let above = tempfile::tempdir().unwrap();
    let directory = above.path().join("log");
    let journal = FileJournal::open_with_segments(&directory, SEGMENT_BYTES).unwrap();
    append(&journal, RECORDS);
    journal.sync().unwrap();
    cut(&segments(&directory)[1], 60);
    for _ in 0..3 {
        let error = journal.sync().unwrap_err().to_string();
        assert!(error.contains("is not here any more"), "{error}");
    }
    // Once nobody needs it, it is none of anybody's concern.
    journal.retire(RECORDS - 1).unwrap();
    journal.sync().unwrap();
}

#[test]
fn a_directory_that_was_moved_with_all_above_it_is_not_made_anew() {
    let above = tempfile::tempdir().unwrap();
    let (state, away) = (above.path().join("state"), above.path().join("away"));
    let directory = state.join("log");
    create_dir(&state).unwrap();
    let journal = FileJournal::open(&directory).unwrap();
    append(&journal, RECORDS);
    rename(&state, &away).unwrap();
    let error = journal.sync().unwrap_err().to_string();
    assert!(error.contains("move that back"), "{error}");
    create_dir(&state).unwrap();
    journal.append(b"x").unwrap_err();
    assert_eq!(read_dir(&state).unwrap().count(), 0);
    std::fs::remove_dir(&state).unwrap();
    rename(&away, &state).unwrap();
    append(&journal, RECORDS + 1);
    journal.sync().unwrap();
    assert_eq!(found(&directory), wanted(RECORDS + 1));
}

#[test]
fn the_log_of_tables_in_use_is_mended_too() {
    for (what, harm) in HARMS {
        let above = tempfile::tempdir().unwrap();
        let (log, path) = (above.path().join("log"), above.path().join("tables"));
        let settings = || Settings { log: Some(&log), ..Settings::default() };
        let tables = Database::open_as(&path, settings()).unwrap();
        let put = |key: &[u8]| {
            let mut write = tables.write().unwrap();
            write.put("rows", key, b"value").unwrap();
            write.commit(Durability::Now).unwrap();
        };
        put(b"one");
        put(b"two");
        harm(&log);
        put(b"three");
        let copy = tempfile::tempdir().unwrap();
        let (copied_log, copied) = (copy.path().join("log"), copy.path().join("tables"));
        create_dir(&copied_log).unwrap();
        std::fs::copy(&path, &copied).unwrap();
        for segment in segments(&log) {
            std::fs::copy(&segment, copied_log.join(segment.file_name().unwrap())).unwrap();
        }
        let settings = Settings { log: Some(&copied_log), ..Settings::default() };
        let again = Database::open_as(&copied, settings).unwrap();
        let read = again.read().unwrap();
        for key in ["one", "two", "three"] {
            assert!(read.get("rows", key.as_bytes()).unwrap().is_some(), "{what}: {key}");
        }
    }
}
