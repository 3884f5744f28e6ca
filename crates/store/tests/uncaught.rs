//! Damage that makes redb panic once more while it unwinds. Nobody can catch that, so each damaged file is
//! opened by a process of its own: this program, called anew.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "damages the store's files behind its back")]

use std::path::Path;
use std::process::Command;
use store::embedded::{Database, Panicked, Settings, Words};
use store::{Durability, StoreError, Tables};

const PAGE: usize = 4096;
/// Names the file for the process that opens it.
const FILE: &str = "FARFS_TEST_DAMAGED";
/// How it ends after what cannot be caught.
const ENDED: i32 = 6;
/// Of a page's head, in which redb counts what is on it.
const FLIPS: [(usize, u8); 2] = [(2, 0x10), (3, 0x01)];

fn fill(path: &Path) {
    let tables = open(path, None).unwrap();
    (0..20).for_each(|batch| commit(&tables, batch).unwrap());
}

/// Each commit goes to redb.
fn open(path: &Path, mark: Option<&Path>) -> Result<Database, StoreError> {
    let words = Words { advice: "ask Ada".into(), ..Words::default() };
    let settings = Settings { words, mark, young_rows_max: 0, ..Settings::default() };
    Database::open_as(path, settings)
}

fn commit(tables: &Database, batch: u32) -> Result<(), StoreError> {
    let mut write = tables.write()?;
    for number in 0..50_u32 {
        let key = (batch * 50 + number).to_be_bytes();
        write.put("rows", &key, &[batch as u8; 100])?;
    }
    write.commit(Durability::Now)
}

/// Ends this process as the program does.
fn use_damaged(path: &Path) {
    std::panic::set_hook(Box::new(|panic| {
        if let Panicked::Ends(damage) = Panicked::of(panic) {
            eprintln!("{damage}");
            std::process::exit(ENDED);
        }
    }));
    let mark = path.with_extension("mark");
    // An error is as good as its being whole.
    let _ = open(path, Some(&mark)).and_then(|tables| commit(&tables, 3));
}

#[test]
fn a_panic_that_nobody_can_catch_names_the_file_and_what_to_do_and_leaves_a_mark() {
    if let Some(path) = std::env::var_os(FILE) {
        return use_damaged(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tables");
    fill(&path);
    let whole = std::fs::read(&path).unwrap();
    let is_used = |page: &usize| whole[page * PAGE..][..64].iter().any(|byte| *byte != 0);
    let mut ended = 0;
    for page in (1..whole.len() / PAGE).filter(is_used) {
        for (offset, bit) in FLIPS {
            let mut bytes = whole.clone();
            bytes[page * PAGE + offset] ^= bit;
            std::fs::write(&path, bytes).unwrap();
            let mut again = Command::new(std::env::current_exe().unwrap());
            let ran = again.arg("--nocapture").env(FILE, &path).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            let mark = path.with_extension("mark");
            match ran.status.code() {
                Some(0) => assert!(!mark.exists()),
                Some(ENDED) => {
                    let shown = path.display();
                    let wanted = format!("{shown} is damaged: a page makes no sense; ask Ada");
                    assert!(said.contains(&wanted), "{said}");
                    std::fs::remove_file(mark).unwrap();
                    ended += 1;
                }
                _ => panic!("page {page}, byte {offset}: {}: {said}", ran.status),
            }
        }
    }
    // With assertions redb looks at more when it opens, where a panic can be caught.
    assert!(ended > 0 || cfg!(debug_assertions), "it is damage of a kind that nobody can catch");
}
