//! Tables that keep a log: what was durable outlives the process, and a log that is damaged,
//! gone, or of another moment is told of.

#![allow(clippy::disallowed_methods, reason = "damages files behind the store's back")]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::path::{Path, PathBuf};
use store::embedded::{Database, Settings};
use store::{Durability, StoreError, Tables};
use tempfile::{TempDir, tempdir};

const LOG: &str = "log";

/// What a kill at this moment would leave.
fn copy(from: &Path) -> TempDir {
    let to = tempdir().unwrap();
    copy_into(from, to.path());
    to
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&place).unwrap();
            copy_into(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}

fn newest_segment(directory: &Path) -> PathBuf {
    let entries = std::fs::read_dir(directory.join(LOG)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "journal")).max().unwrap()
}

fn value(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(1 + number as usize % 60)
}

/// Tables with a log that were killed after some commits, of which redb has the first few.
fn killed_with_a_log() -> (TempDir, Vec<u32>) {
    let original = tempdir().unwrap();
    let log = original.path().join(LOG);
    let settings = Settings { log: Some(&log), young_rows_max: 8, ..Settings::default() };
    let tables = Database::open_as(&original.path().join("tables"), settings).unwrap();
    for number in 0..21 {
        let mut write = tables.write().unwrap();
        write.put("rows", &number_key(number), &value(number)).unwrap();
        write.put("newest", b"", &number_key(number)).unwrap();
        write.commit(Durability::Now).unwrap();
    }
    let mut write = tables.write().unwrap();
    write.put("rows", &number_key(99), &value(99)).unwrap();
    write.commit(Durability::Later).unwrap();
    (copy(original.path()), (0..21).collect())
}

fn number_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn logged_rows(directory: &Path) -> Result<Vec<u32>, StoreError> {
    let log = directory.join(LOG);
    let settings = Settings { log: Some(&log), young_rows_max: 8, ..Settings::default() };
    let tables = Database::open_as(&directory.join("tables"), settings)?;
    let read = tables.read()?;
    let mut numbers = Vec::new();
    for (key, bytes) in read.scan("rows", &[], &[0xff; 5], usize::MAX)? {
        let number = u32::from_be_bytes(key.as_slice().try_into().unwrap());
        assert_eq!(bytes, value(number));
        numbers.push(number);
    }
    let newest = numbers.last().map(|number| number_key(*number).to_vec());
    assert_eq!(read.get("newest", b"")?, newest, "a commit is there whole");
    Ok(numbers)
}

#[test]
fn logged_commits_outlive_a_kill_and_are_taken_up_once() {
    let (left, wanted) = killed_with_a_log();
    for _ in 0..3 {
        // What is closed in order does not need the log.
        assert_eq!(logged_rows(left.path()).unwrap(), wanted);
    }
    std::fs::write(newest_segment(left.path()), "no journal of ours, and longer than a header")
        .unwrap();
    assert_eq!(logged_rows(left.path()).unwrap(), wanted, "whatever has become of it");
    let again = tempdir().unwrap();
    std::fs::copy(left.path().join("tables"), again.path().join("tables")).unwrap();
    assert_eq!(logged_rows(again.path()).unwrap(), wanted, "nor does its copy");
}

#[test]
fn a_log_that_is_damaged_or_gone_is_an_error_or_costs_the_last_commit_alone() {
    let (left, wanted) = killed_with_a_log();
    let segment = newest_segment(left.path());
    let name = segment.strip_prefix(left.path()).unwrap().to_path_buf();
    let whole = std::fs::read(&segment).unwrap();
    let mut told = 0;
    for offset in (0..whole.len()).step_by(29) {
        let copied = copy(left.path());
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x24;
        std::fs::write(copied.path().join(&name), bytes).unwrap();
        match logged_rows(copied.path()) {
            Ok(rows) => assert!(rows == wanted || rows == wanted[..wanted.len() - 1], "{offset}"),
            Err(StoreError::Damaged { place, .. }) => {
                assert!(place.contains(LOG), "{place}");
                told += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(told > whole.len() / 29 / 2, "{told}");
    let without = Database::open(&left.path().join("tables")).err().expect("it is needed");
    assert!(without.to_string().contains("its log is needed"), "{without}");
    std::fs::remove_file(left.path().join(&name)).unwrap();
    assert!(matches!(logged_rows(left.path()), Err(StoreError::Damaged { .. })), "no segment");
    std::fs::remove_dir_all(left.path().join(LOG)).unwrap();
    let said = logged_rows(left.path()).unwrap_err().to_string();
    assert!(said.contains("log is missing") && said.contains("; put it back"), "{said}");
}

#[test]
fn tables_and_a_log_of_different_moments_are_told_apart() {
    let (left, _) = killed_with_a_log();
    let earlier = std::fs::read(left.path().join("tables")).unwrap();
    let log = left.path().join(LOG);
    let settings = Settings { log: Some(&log), young_rows_max: 8, ..Settings::default() };
    let tables = Database::open_as(&left.path().join("tables"), settings).unwrap();
    for number in 0..30_u32 {
        let mut write = tables.write().unwrap();
        write.put("rows", &number_key(1000 + number), &[0; 20_000]).unwrap();
        write.commit(Durability::Now).unwrap();
    }
    let later = copy(left.path());
    std::fs::write(later.path().join("tables"), earlier).unwrap();
    let said = logged_rows(later.path()).unwrap_err().to_string();
    assert!(said.contains("not of the same moment") || said.contains("is needed"), "{said}");
}
