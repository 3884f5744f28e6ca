//! Cases that chance hardly finds: each is done in both trees, and what it tells must be the same.

mod memory;
mod times;
mod together;

use e2e::contents::checksum;
use memory::{cut_under_mapping, direct, far, grown, unlinked, written_from_itself};
use std::fs::{self, File};
use std::path::Path;
use times::{accesses, changes};
use together::{appended, events, gone_below, locked, places, running};

pub type Case = (&'static str, fn(&Path, &mut String));

pub const CASES: [Case; 14] = [
    ("what lies past the end is zero when the file grows", grown),
    ("memory past the end of a cut file is none", cut_under_mapping),
    ("what is written past the direct end of a mapping", written_from_itself),
    ("direct and buffered", direct),
    ("times of access", accesses),
    ("times that calls change", changes),
    ("a program that runs", running),
    ("a directory that is gone below its user", gone_below),
    ("places in a directory", places),
    ("events", events),
    ("appended by several", appended),
    ("locks of several processes", locked),
    ("removed and written on", unlinked),
    ("far beyond the end", far),
];

fn both(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn sum(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    format!("{} bytes {:x}, {} of them zero", bytes.len(), checksum(&bytes), zeros(&bytes))
}

fn zeros(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == 0).count()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("errno {:?}", error.raw_os_error()),
    }
}
