//! A faulty disk leaves what a real one would.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use store::container::Key;
use store::faulty::Disk;
use store::{Blobs, Container, Containers, Durability, Journal, Result, StoreError, Tables};

const KEY: Key = Key { file: 1, generation: 0 };

fn commit(disk: &Disk, key: &[u8], durability: Durability) -> Result<()> {
    let tables = disk.tables("tables");
    let mut write = tables.write()?;
    write.put("rows", key, b"value")?;
    write.commit(durability)
}

fn rows(disk: &Disk) -> Vec<Vec<u8>> {
    let tables = disk.tables("tables");
    let rows = tables.read().unwrap().scan("rows", b"", b"\xff", 100).unwrap();
    rows.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_kill_keeps_all_but_commits_for_later() {
    let disk = Disk::new(1);
    commit(&disk, b"now", Durability::Now).unwrap();
    commit(&disk, b"later", Durability::Later).unwrap();
    disk.journal("journal").append(b"record").unwrap();
    disk.blobs("blobs").put(b"name", b"blob").unwrap();
    let container = disk.containers("cache").open(KEY, true).unwrap().unwrap();
    container.write(3, b"contents").unwrap();
    disk.kill();
    assert!(matches!(container.read(0, 1), Err(StoreError::Crashed)));

    let after = disk.restart();
    assert_eq!(rows(&after), [b"now"]);
    assert_eq!(after.journal("journal").records().unwrap(), [(1, b"record".to_vec())]);
    assert_eq!(after.blobs("blobs").get(b"name").unwrap(), Some(b"blob".to_vec()));
    let container = after.containers("cache").open(KEY, false).unwrap().unwrap();
    assert_eq!(container.read(0, 99).unwrap(), b"\0\0\0contents");
    assert!(matches!(commit(&disk, b"x", Durability::Now), Err(StoreError::Crashed)));
}

#[test]
fn a_commit_that_is_durable_takes_the_later_ones_along() {
    let disk = Disk::new(1);
    commit(&disk, b"a later", Durability::Later).unwrap();
    commit(&disk, b"b now", Durability::Now).unwrap();
    commit(&disk, b"c later", Durability::Later).unwrap();
    disk.cut_power();
    assert_eq!(rows(&disk.restart()), [b"a later".to_vec(), b"b now".to_vec()]);
}

/// What a power cut left: how many records, blobs, and which letters of the container.
fn after_power_cut(seed: u64) -> (usize, usize, String, bool) {
    let disk = Disk::new(seed);
    let journal = disk.journal("journal");
    let blobs = disk.blobs("blobs");
    let container = disk.containers("cache").open(KEY, true).unwrap().unwrap();
    container.set_length(8).unwrap();
    for letter in 0..4_u8 {
        journal.append(&[letter]).unwrap();
        blobs.put(&[letter], b"blob").unwrap();
        container.write(u64::from(letter), &[b'a' + letter]).unwrap();
    }
    journal.sync().unwrap();
    blobs.sync().unwrap();
    container.sync().unwrap();
    for letter in 4..8_u8 {
        journal.append(&[letter]).unwrap();
        blobs.put(&[letter], b"blob").unwrap();
        container.write(u64::from(letter), &[b'a' + letter]).unwrap();
    }
    let fresh = Key { file: 2, generation: 0 };
    disk.containers("cache").open(fresh, true).unwrap();
    disk.cut_power();

    let left = disk.restart();
    let records = left.journal("journal").records().unwrap();
    assert!(records.len() >= 4 && (0..4).all(|n| records[n] == (n as u64 + 1, vec![n as u8])));
    let next = left.journal("journal").append(b"next").unwrap();
    assert_eq!(next, records.len() as u64 + 1);
    let blobs = left.blobs("blobs");
    assert!((0..4_u8).all(|letter| blobs.has(&[letter]).unwrap()));
    let count = (0..8_u8).filter(|letter| blobs.has(&[*letter]).unwrap()).count();
    let container = left.containers("cache").open(KEY, false).unwrap().unwrap();
    let contents = container.read(0, 8).unwrap();
    assert_eq!(contents[..4], *b"abcd");
    let letters = contents.into_iter().filter(|byte| *byte != 0).map(char::from).collect();
    let has_fresh = left.containers("cache").open(fresh, false).unwrap().is_some();
    (records.len(), count, letters, has_fresh)
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_some_of_the_rest() {
    let outcomes: Vec<_> = (0..60).map(after_power_cut).collect();
    for count in 4..=8 {
        assert!(outcomes.iter().any(|left| left.0 == count), "{count} records");
        assert!(outcomes.iter().any(|left| left.1 == count), "{count} blobs");
    }
    assert!(outcomes.iter().any(|left| left.2 == "abcd"));
    assert!(outcomes.iter().any(|left| left.2 == "abcdefgh"));
    assert!(outcomes.iter().any(|left| left.2.contains('h') && left.2.len() < 8), "out of order");
    assert!(outcomes.iter().any(|left| left.3) && outcomes.iter().any(|left| !left.3));
    assert_eq!(outcomes, (0..60).map(after_power_cut).collect::<Vec<_>>(), "by the seed alone");
}

#[test]
fn a_removal_that_was_not_synced_may_be_undone() {
    let outcomes: Vec<bool> = (0..40)
        .map(|seed| {
            let disk = Disk::new(seed);
            let containers = disk.containers("cache");
            containers.open(KEY, true).unwrap().unwrap().sync().unwrap();
            containers.remove(KEY).unwrap();
            disk.cut_power();
            disk.restart().containers("cache").open(KEY, false).unwrap().is_some()
        })
        .collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false));
}

/// Three writes in three stores.
fn three_writes(disk: &Disk) -> Result<()> {
    disk.journal("journal").append(b"intent")?;
    commit(disk, b"row", Durability::Now)?;
    disk.journal("journal").append(b"done")?;
    Ok(())
}

#[test]
fn a_crash_can_be_had_at_every_write() {
    let whole = Disk::new(1);
    three_writes(&whole).unwrap();
    assert_eq!(whole.writes(), 3);
    for crash in 0..3 {
        let disk = Disk::new(1);
        disk.crash_after(crash);
        assert!(matches!(three_writes(&disk), Err(StoreError::Crashed)));
        assert!(disk.has_crashed());
        assert_eq!(disk.writes(), crash);
        let after = disk.restart();
        let left = after.journal("journal").records().unwrap().len() + rows(&after).len();
        assert_eq!(left as u64, crash);
        three_writes(&after).unwrap();
        assert_eq!(after.writes(), 3, "it runs, and counts anew");
    }
    let disk = Disk::new(1);
    disk.crash_after(3);
    three_writes(&disk).unwrap();
    assert!(!disk.has_crashed());
}

#[test]
fn a_full_disk_refuses_and_leaves_nothing() {
    let disk = Disk::new(1);
    disk.fill_after(20);
    commit(&disk, b"first", Durability::Now).unwrap();
    let refused = |outcome: Result<()>| assert!(matches!(outcome, Err(StoreError::Full(_))));
    refused(commit(&disk, b"second is too long", Durability::Now));
    refused(disk.blobs("blobs").put(b"name", &[0; 11]));
    refused(disk.journal("journal").append(&[0; 11]).map(drop));
    let container = disk.containers("cache").open(KEY, true).unwrap().unwrap();
    refused(container.write(0, &[0; 11]));
    refused(container.allocate(0, 11));
    assert_eq!(rows(&disk), [b"first"]);
    assert_eq!(container.length().unwrap(), 0);
    container.write(0, &[1; 10]).unwrap();
    refused(container.write(0, &[1; 1]));
    disk.make_room();
    commit(&disk, b"second is too long", Durability::Now).unwrap();
}

#[test]
fn an_append_at_which_the_machine_dies_is_torn_or_there_by_the_seed() {
    let whole_of = |seed| {
        let disk = Disk::new(seed);
        disk.crash_after(1);
        let journal = disk.journal("journal");
        journal.append(b"first").unwrap();
        assert!(matches!(journal.append(b"second"), Err(StoreError::Crashed)));
        let after = disk.restart().journal("journal");
        let records = after.records().unwrap();
        assert_eq!(records[0], (1, b"first".to_vec()));
        assert_eq!(after.append(b"next").unwrap(), records.len() as u64 + 1);
        records.get(1).is_some_and(|record| *record == (2, b"second".to_vec()))
    };
    let whole: Vec<bool> = (0..400).map(whole_of).collect();
    let count = whole.iter().filter(|whole| **whole).count();
    assert!((1..100).contains(&count), "{count} of 400");
    assert_eq!(whole, (0..400).map(whole_of).collect::<Vec<_>>(), "by the seed alone");
}
