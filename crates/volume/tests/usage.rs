//! What files count for, as an origin keeps it.
#![allow(clippy::unwrap_used, reason = "a volume that cannot be written is a failed test")]

use minicbor::Encode;
use model::{Change, Contents, FileId, Kind, Name, Node, ReplicaId, Seq, Stamp, Time, Update};
use model::{Usage, judge};
use store::memory::MemoryTables;
use store::{Durability, Read, Tables};
use volume::whole::{Committer, VolumeId, Whole, check, count_usage, create, encode, is_counted};

const VOLUME: VolumeId = VolumeId(7);
const HEAD: &str = "whole-head";
const USAGE: &str = "whole-usage";

/// A volume with one file of 9 bytes of user 5, in a root directory of user 1.
fn volume() -> MemoryTables {
    let tables = MemoryTables::new();
    let mut write = tables.write().unwrap();
    create(&mut *write, VOLUME, Node::root_directory(1, 2, Time::default())).unwrap();
    let mut committer = Committer::begin(&mut *write, VOLUME).unwrap();
    let file = FileId::new(ReplicaId(1), 1).unwrap();
    let make = Change::Make {
        parent: FileId::ROOT,
        name: Name::new("a").unwrap(),
        file,
        kind: Kind::File,
        mode: 0o644,
        uid: 5,
        gid: 5,
        target: None,
        rdev: None,
        born: None,
    };
    let stamp = Stamp::new(ReplicaId(1), 1);
    let store = Change::Store {
        file,
        expects: stamp,
        contents: Contents { size: 9, root: None, holes: None },
        mtime: Time::default(),
    };
    for (number, change) in [(1, make), (2, store)] {
        let stamp = Stamp::new(ReplicaId(1), number);
        let update = Update { stamp, uid: 5, at: Time::default(), change };
        let effects = judge(&update, &committer.view()).unwrap().unwrap();
        committer.apply(&update, &effects).unwrap();
    }
    committer.finish().unwrap();
    write.commit(Durability::Now).unwrap();
    tables
}

fn key(uid: u32) -> Vec<u8> {
    [VOLUME.0.to_be_bytes(), uid.to_be_bytes()].concat()
}

fn put(tables: &MemoryTables, table: &'static str, key: &[u8], value: Option<&[u8]>) {
    let mut write = tables.write().unwrap();
    match value {
        Some(value) => write.put(table, key, value).unwrap(),
        None => write.delete(table, key).unwrap(),
    }
    write.commit(Durability::Now).unwrap();
}

/// A head as it was written before usage was kept.
#[derive(Encode)]
#[cbor(array)]
struct OldHead {
    #[n(0)]
    position: Seq,
    #[n(1)]
    files: u64,
    #[n(2)]
    next_replica: u32,
    #[n(3)]
    next_file: u64,
}

#[test]
fn what_was_written_before_usage_was_kept_is_counted_once() {
    let tables = volume();
    let old = OldHead { position: Seq(2), files: 2, next_replica: 2, next_file: 2 };
    put(&tables, HEAD, &VOLUME.0.to_be_bytes(), Some(&encode(&old)));
    put(&tables, USAGE, &key(5), None);
    // Of somebody whose last file was removed by a program that did not keep usage.
    put(&tables, USAGE, &key(6), Some(&encode(&Usage { bytes: 8, files: 1 })));
    assert!(!is_counted(&*tables.read().unwrap(), VOLUME).unwrap());
    assert!(faults(&*tables.read().unwrap()).is_empty(), "nothing is said that could be wrong");
    let mut write = tables.write().unwrap();
    count_usage(&mut *write, VOLUME).unwrap();
    write.commit(Durability::Now).unwrap();
    assert_counted(&tables);
}

fn assert_counted(tables: &MemoryTables) {
    let read = tables.read().unwrap();
    let view = Whole::now(&*read, VOLUME);
    assert_eq!(view.usage().unwrap(), Some(Usage { bytes: 9, files: 2 }));
    assert_eq!(view.usage_of(1).unwrap(), Usage { bytes: 0, files: 1 });
    assert_eq!(view.usage_of(5).unwrap(), Usage { bytes: 9, files: 1 });
    assert!(faults(&*read).is_empty());
}

fn faults(read: &dyn Read) -> Vec<volume::whole::Fault> {
    let mut faults = Vec::new();
    check(read, VOLUME, &mut |fault| faults.push(fault));
    faults
}

#[test]
fn usage_that_is_not_what_the_files_are_is_told_and_mended() {
    let wrong = encode(&Usage { bytes: 8, files: 1 });
    let damages: [(u32, Option<&[u8]>); 4] =
        [(5, Some(&wrong)), (5, None), (6, Some(&wrong)), (1, Some(b"damaged"))];
    for (uid, value) in damages {
        let tables = volume();
        assert_counted(&tables);
        put(&tables, USAGE, &key(uid), value);
        let found = faults(&*tables.read().unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].place.contains(&format!("user {uid}")), "{found:?}");
        let mut write = tables.write().unwrap();
        found[0].mend.as_ref().unwrap().carry_out(&mut *write).unwrap();
        write.commit(Durability::Now).unwrap();
        assert_counted(&tables);
    }
}
