#![no_main]
//! A file of tables with bytes of it changed. The embedded database may panic over it within the
//! store, which catches that; nothing may come out of the store but rows and errors.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::path::Path;
use std::sync::OnceLock;
use store::embedded::Database;
use store::{Durability, StoreError, Tables};

const TABLE: &str = "rows";
const ROWS: u8 = 40;

#[derive(Arbitrary, Debug)]
struct Change {
    offset: u32,
    bytes: [u8; 4],
    count: u8,
}

/// The file as it was written.
fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let directory = fuzz::scratch();
        let path = directory.path().join("tables");
        let database = Database::open_with_cache(&path, 1 << 20).expect("a new file");
        let mut write = database.write().expect("nobody else writes");
        for row in 0..ROWS {
            write.put(TABLE, &[row], &value(row)).expect("there is room");
        }
        write.commit(Durability::Now).expect("there is room");
        drop(database);
        std::fs::read(path).expect("just written")
    })
}

fn value(row: u8) -> Vec<u8> {
    vec![row; 90]
}

/// Rows are what was written, or an error says that they are not.
fn use_it(path: &Path) -> Result<(), StoreError> {
    let database = Database::open_with_cache(path, 1 << 20)?;
    {
        let read = database.read()?;
        for row in 0..ROWS {
            if let Some(found) = read.get(TABLE, &[row])? {
                assert_eq!(found, value(row));
            }
        }
        for (key, found) in read.scan(TABLE, &[0], &[ROWS], usize::from(ROWS) * 2)? {
            assert_eq!(found, value(key[0]));
        }
    }
    let mut write = database.write()?;
    write.put(TABLE, &[ROWS], &value(ROWS))?;
    write.commit(Durability::Now)?;
    drop(database);
    Database::check(path).map(|_| ())
}

fn quiet() {
    // The usual hook ends the process at the first panic, caught or not. One that is not caught
    // still does; what it said is printed when the input is tried again with FUZZ_LOUD=1.
    std::panic::set_hook(Box::new(|panic| {
        if std::env::var_os("FUZZ_LOUD").is_some() {
            eprintln!("{panic}");
        }
    }));
}

libfuzzer_sys::fuzz_target!(init: quiet(), |changes: Vec<Change>| {
    let mut bytes = sound().to_vec();
    for change in &changes {
        let at = change.offset as usize % bytes.len();
        let count = usize::from(change.count % 5).min(bytes.len() - at);
        bytes[at..at + count].copy_from_slice(&change.bytes[..count]);
    }
    let directory = fuzz::scratch();
    let path = directory.path().join("tables");
    std::fs::write(&path, bytes).expect("there is room for small files");
    let _ = use_it(&path);
});
