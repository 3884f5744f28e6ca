//! The store is tidied while what programs put into a tree is being taken in.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::party::{EPOCH_SECS, LEASE, Party, VOLUME};
use crate::tree::Yard;
use protocol::Cutter;
use replica::{Limits, Repair, Wish};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use store::memory::{MemoryBlobs, MemoryTables};
use store::{Before, Blobs, Read, Tables, Write};
use world::World;

const EVERYTHING: Wish =
    Wish { dry_run: false, empty_trash: true, thorough: true, forget_sent: true };
const FILES: usize = 6;
/// Larger than any of them.
const LARGE: u64 = 1 << 20;

type Act = Box<dyn FnOnce() + Send>;

struct Due {
    /// Chunks that were there before.
    chunks: usize,
    /// Readings from when another one came.
    reads: usize,
    act: Act,
}

/// Tables at which something is done before one of the readings that lie between the first chunk and
/// the commit.
struct Watched {
    tables: MemoryTables,
    blobs: MemoryBlobs,
    due: Mutex<Option<Due>>,
}

impl Watched {
    fn has_begun(&self, due: &Due) -> bool {
        self.blobs.list(&[], usize::MAX).unwrap().len() > due.chunks
    }

    fn due(&self) -> Option<Act> {
        let mut due = self.due.lock().unwrap();
        let acts = due.take_if(|due| self.has_begun(due) && due.reads == 0);
        if let Some(due) = due.as_mut().filter(|due| self.has_begun(due)) {
            due.reads -= 1;
        }
        acts.map(|due| due.act)
    }
}

impl Tables for Watched {
    fn read(&self) -> store::Result<Box<dyn Read + '_>> {
        if let Some(act) = self.due() {
            act();
        }
        self.tables.read()
    }

    fn write(&self) -> store::Result<Box<dyn Write + '_>> {
        self.due.lock().unwrap().take_if(|due| self.has_begun(due));
        self.tables.write()
    }

    fn room(&self) -> store::Result<u64> {
        self.tables.room()
    }

    fn before(&self) -> Before {
        self.tables.before()
    }
}

/// Does all of it here and now.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(tokio::task::unconstrained(work));
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// Files come into a tree, and the store is tidied, with what was sent forgotten, before that reading
/// of the tables. False: all was committed before.
fn taken_in(yard: &mut Yard, watched: &Watched, (name, text): (&str, &str), reads: usize) -> bool {
    let origin = yard.party.origin.clone();
    let chunks = watched.blobs.list(&[], usize::MAX).unwrap().len();
    let has_acted = Arc::new(AtomicBool::new(false));
    let acted = has_acted.clone();
    let act = Box::new(move || {
        at_once(origin.collect(EVERYTHING)).unwrap();
        acted.store(true, Ordering::SeqCst);
    });
    *watched.due.lock().unwrap() = Some(Due { chunks, reads, act });
    for number in 0..FILES {
        yard.write(&format!("{name} {number}"), &format!("{text} {number}"));
    }
    yard.settle();
    // A tree that lacks something could not be shown.
    let checked = at_once(yard.party.origin.check(Repair::No)).unwrap();
    assert_eq!(checked.problems, [], "{text}, tidied before reading {reads}");
    assert_eq!(yard.agreed().matches(text).count(), FILES);
    has_acted.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn what_is_being_taken_in_of_a_tree_stays_though_all_that_was_sent_is_forgotten() {
    for (large_from, replaces) in [(LARGE, false), (LARGE, true), (3, false), (3, true)] {
        let limits = Limits {
            lease: LEASE,
            trash_bytes_min: 0,
            trash_percent: 0,
            tree_piece_bytes: large_from,
            ..Limits::simulated()
        };
        let (tables, blobs) = (MemoryTables::new(), MemoryBlobs::new());
        let watched = Watched { tables, blobs: blobs.clone(), due: Mutex::new(None) };
        let watched = Arc::new(watched);
        let world = World::simulated(EPOCH_SECS, 1);
        let party = Party::on(watched.clone(), Arc::new(blobs), world, limits);
        party.origin.create_volume(VOLUME, 1000, 1000, Cutter::Gear).unwrap();
        let mut yard = Yard::of(party, tempfile::tempdir().unwrap());
        let mut reads = 0;
        loop {
            let name = if replaces { "replaced".into() } else { format!("made {reads}") };
            if !taken_in(&mut yard, &watched, (&name, &format!("text {reads} of")), reads) {
                break;
            }
            reads += 1;
        }
        // Files that are large are committed one by one.
        assert!(reads >= if large_from == LARGE { FILES } else { 1 }, "{reads} readings");
    }
}
