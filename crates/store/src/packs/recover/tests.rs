//! Packs on a disk that has lost blocks of them.

use super::*;
use crate::blocks::lost::{find_again, lose};
use crate::packs::{Blobs, Packs};

const BLOBS: u32 = 40;

fn name(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn blob(number: u32) -> Vec<u8> {
    vec![number as u8; 3000]
}

/// Two packs, with blobs of which the first has lost a block.
fn harmed(directory: &Path) -> Packs {
    let packs = Packs::open_with_packs(directory, 60_000).unwrap();
    (0..BLOBS).for_each(|number| packs.put(&name(number), &blob(number)).unwrap());
    packs.sync().unwrap();
    lose(&pack_path(directory, 1), 5..6);
    packs
}

fn there(packs: &Packs) -> Vec<u32> {
    let whole = |number: &u32| packs.get(&name(*number)).unwrap() == Some(blob(*number));
    (0..BLOBS).filter(whole).collect()
}

#[test]
fn what_lies_in_a_lost_block_counts_as_missing_and_can_be_put_again() {
    let directory = tempfile::tempdir().unwrap();
    let packs = harmed(directory.path());
    let found = there(&packs);
    assert!((BLOBS - 3..BLOBS).contains(&(found.len() as u32)), "{found:?}");
    let damage = packs.damage().unwrap();
    assert!(!damage.is_empty() && damage.iter().all(|one| one.bytes < 13_000), "{damage:?}");
    for number in 0..BLOBS {
        if !packs.has(&name(number)).unwrap() {
            packs.put(&name(number), &blob(number)).unwrap();
        }
    }
    assert_eq!(there(&packs).len() as u32, BLOBS);
    // A pack with a lost block can be let go of.
    (0..10).for_each(|number| packs.delete(&name(number)).unwrap());
    while packs.reclaim(1).unwrap().is_some() {}
    find_again();
    assert_eq!(there(&packs), (10..BLOBS).collect::<Vec<_>>());
}

#[test]
fn packs_with_a_lost_block_are_opened_also_where_the_index_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    drop(harmed(directory.path()));
    for forgets in [false, true] {
        if forgets {
            Packs::forget_index(directory.path()).unwrap();
        }
        let packs = Packs::open_with_packs(directory.path(), 60_000).unwrap();
        assert!(there(&packs).len() as u32 >= BLOBS - 3, "without an index: {forgets}");
    }
    find_again();
}

#[test]
fn of_a_disk_that_reads_nothing_for_a_while_nothing_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let packs = harmed(directory.path());
    find_again();
    lose(directory.path(), 0..1000);
    let read = |number| packs.get(&name(number));
    assert!((0..BLOBS).all(|number| read(number).is_err_and(|error| error.is_unreadable())));
    assert!(packs.damage().is_err());
    find_again();
    assert_eq!(there(&packs).len() as u32, BLOBS);
    assert_eq!(packs.damage().unwrap(), []);
}
