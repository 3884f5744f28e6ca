//! The tables fail at a row while the server puts what devices did into a tree: that is no failure of
//! one file, and nothing of it is taken for a program's work.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::party::{EPOCH_SECS, Party, VOLUME, rename_over};
use crate::tree::Yard;
use model::FileId;
use protocol::{Cutter, Verdict};
use replica::Limits;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::memory::{MemoryBlobs, MemoryTables};
use store::{Before, Durability, Read, Row, StoreError, Tables, Write};
use world::World;

const ROUNDS_MAX: usize = 80;
/// More calls than a transaction here makes on a table of the tree.
const CALLS_MAX: i64 = 200;
/// Calls before one fails: none does.
const NEVER: i64 = i64::MAX;

/// Tables of which one call in a transaction fails, on a row of how files are known in the tree.
#[derive(Clone)]
struct Brittle {
    tables: MemoryTables,
    left: Arc<AtomicI64>,
    failed: Arc<Mutex<Option<&'static str>>>,
}

struct Writing<'a>(Box<dyn Write + 'a>, &'a Brittle);

impl Brittle {
    fn calls(&self, table: &str, call: &'static str) -> store::Result<()> {
        if !["tree-known", "tree-names", "tree-numbers"].contains(&table) {
            return Ok(());
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return Ok(());
        }
        *self.failed.lock().unwrap() = Some(call);
        self.left.store(NEVER, Ordering::SeqCst);
        let source = std::io::Error::from_raw_os_error(5);
        Err(StoreError::Io { place: "the tables".into(), source })
    }
}

impl Tables for Brittle {
    fn read(&self) -> store::Result<Box<dyn Read + '_>> {
        self.tables.read()
    }

    fn write(&self) -> store::Result<Box<dyn Write + '_>> {
        Ok(Box::new(Writing(self.tables.write()?, self)))
    }

    fn room(&self) -> store::Result<u64> {
        self.tables.room()
    }

    fn before(&self) -> Before {
        self.tables.before()
    }
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> store::Result<Option<Vec<u8>>> {
        self.1.calls(table, "get")?;
        self.0.get(table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> store::Result<Vec<Row>> {
        self.1.calls(table, "scan")?;
        self.0.scan(table, from, to, rows_max)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> store::Result<Option<Row>> {
        self.1.calls(table, "last")?;
        self.0.last(table, from, to)
    }
}

impl Write for Writing<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.1.calls(table, "put")?;
        self.0.put(table, key, value)
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> store::Result<()> {
        self.1.calls(table, "delete")?;
        self.0.delete(table, key)
    }

    fn commit(self: Box<Self>, durability: Durability) -> store::Result<()> {
        self.0.commit(durability)
    }
}

fn yard() -> (Yard, Brittle) {
    let left = Arc::new(AtomicI64::new(NEVER));
    let brittle = Brittle { tables: MemoryTables::new(), left, failed: Arc::default() };
    let (world, blobs) = (World::simulated(EPOCH_SECS, 1), Arc::new(MemoryBlobs::new()));
    let party = Party::on(Arc::new(brittle.clone()), blobs, world, Limits::simulated());
    party.origin.create_volume(VOLUME, 1000, 1000, Cutter::Gear).unwrap();
    (Yard::of(party, tempfile::tempdir().unwrap()), brittle)
}

#[tokio::test(start_paused = true)]
async fn a_table_that_fails_at_a_row_costs_the_transaction_and_is_said() {
    let (mut said, mut puts) = (0, 0);
    for calls in 0..CALLS_MAX {
        let (mut yard, brittle) = yard();
        let mut ada = yard.party.join("ada").await;
        for (name, text) in [("a", "a program's"), ("z", "z")] {
            fs::write(yard.path(name), text).unwrap();
        }
        yard.settle();
        let id = |yard: &Yard, path: &str| yard.find(path).map(|(_, file, _)| file);
        let before = id(&yard, "a").unwrap();
        let change = rename_over((FileId::ROOT, "a"), (FileId::ROOT, "b"), before, None);
        assert!(matches!(ada.replay(change).await, Verdict::Taken(_)));
        brittle.left.store(calls, Ordering::SeqCst);
        let first = yard.keeper.round();
        let failed = brittle.failed.lock().unwrap().take();
        if let Some(call) = failed {
            let error = first.unwrap_err().to_string();
            assert!(error.contains("the tables"), "{calls} {call}: {error}");
            said += 1;
            puts += usize::from(call == "put");
        }
        for _ in 0..ROUNDS_MAX {
            tokio::time::advance(Duration::from_millis(50)).await;
            yard.keeper.round().unwrap();
        }
        assert_eq!(yard.agreed(), "b: a program's\nz: z", "{calls} {failed:?}");
        assert_eq!(id(&yard, "b"), Some(before), "{calls} {failed:?}");
        assert_eq!(yard.party.conflicts(), Vec::<String>::new(), "{calls} {failed:?}");
        if failed.is_none() {
            assert!(said > 3 && puts > 2, "{said} {puts}");
            return;
        }
    }
    panic!("it makes more than {CALLS_MAX} calls");
}
