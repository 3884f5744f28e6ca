use super::*;
use model::CHUNK_NAME_BYTES;
use proptest::prelude::*;
use store::memory::MemoryTables;
use store::{Durability, Tables};

fn name(fill: u8) -> ChunkName {
    ChunkName([fill; CHUNK_NAME_BYTES])
}

fn place(file: u64, offset: u64) -> Place {
    Place { file: FileId(file), generation: 3, offset, length: 8192 }
}

/// Runs in a transaction that leaves nothing.
fn with_tables(run: impl FnOnce(&mut dyn Write)) {
    let tables = MemoryTables::new();
    let mut transaction = tables.write().unwrap();
    run(&mut *transaction);
}

fn found(tables: &dyn Read, fill: u8) -> Vec<Place> {
    find(tables, &name(fill)).unwrap()
}

#[test]
fn what_was_seen_is_found_after_a_commit() {
    let tables = MemoryTables::new();
    let mut transaction = tables.write().unwrap();
    note(&mut *transaction, &name(1), place(7, 100)).unwrap();
    transaction.commit(Durability::Later).unwrap();
    let view = tables.read().unwrap();
    assert_eq!(found(&*view, 1), [place(7, 100)]);
    assert_eq!(found(&*view, 2), []);
}

#[test]
fn the_newest_places_are_kept_and_come_first() {
    with_tables(|tables| {
        for file in 1..=5 {
            let before = found(tables, 1);
            assert_eq!(note(tables, &name(1), place(file, 0)).unwrap(), before);
        }
        assert_eq!(found(tables, 1), [place(5, 0), place(4, 0)]);
        let before = note(tables, &name(1), place(4, 0)).unwrap();
        assert_eq!(before, [place(5, 0), place(4, 0)]);
        assert_eq!(note(tables, &name(1), place(4, 0)).unwrap(), found(tables, 1));
        assert_eq!(found(tables, 1), [place(4, 0), place(5, 0)]);
    });
}

#[test]
fn a_wrong_place_is_forgotten_and_the_others_stay() {
    with_tables(|tables| {
        note(tables, &name(1), place(1, 0)).unwrap();
        note(tables, &name(1), place(2, 0)).unwrap();
        forget(tables, &name(1), &place(2, 0)).unwrap();
        assert_eq!(found(tables, 1), [place(1, 0)]);
        forget(tables, &name(1), &place(9, 9)).unwrap();
        assert_eq!(found(tables, 1), [place(1, 0)]);
        forget(tables, &name(1), &place(1, 0)).unwrap();
        assert_eq!(tables.get(TABLE, &name(1).0).unwrap(), None);
    });
}

#[test]
fn a_sweep_forgets_files_that_are_gone_a_few_rows_at_a_time() {
    with_tables(|tables| {
        for fill in [0, 1, 2, 0xfe, 0xff] {
            note(tables, &name(fill), place(1, 0)).unwrap();
            note(tables, &name(fill), place(u64::from(fill) + 10, 0)).unwrap();
        }
        let (mut from, mut calls) = (None, 0);
        loop {
            let look = Look { from, rows_max: 2, most: None };
            from = sweep(tables, look, |file, _| file.0 > 10).unwrap().next;
            calls += 1;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(calls, 3);
        assert_eq!(found(tables, 0), []);
        for fill in [1, 2, 0xfe, 0xff] {
            assert_eq!(found(tables, fill), [place(u64::from(fill) + 10, 0)]);
        }
    });
}

#[test]
fn a_sweep_of_full_batches_ends_behind_the_last_name() {
    with_tables(|tables| {
        note(tables, &name(0xff), place(1, 0)).unwrap();
        let look = Look { from: None, rows_max: 1, most: None };
        assert_eq!(sweep(tables, look, |_, _| true).unwrap().next, None);
    });
}

#[test]
fn a_damaged_row_is_no_place_and_is_mended() {
    with_tables(|tables| {
        tables.put(TABLE, &name(1).0, b"damaged").unwrap();
        assert_eq!(found(tables, 1), []);
        note(tables, &name(1), place(1, 0)).unwrap();
        assert_eq!(found(tables, 1), [place(1, 0)]);
        tables.put(TABLE, &name(2).0, &[0; PLACE_BYTES * (PLACES_MAX + 1)]).unwrap();
        let look = Look { from: None, rows_max: 10, most: None };
        assert_eq!(sweep(tables, look, |_, _| true).unwrap().next, None);
        assert_eq!(tables.get(TABLE, &name(2).0).unwrap(), None);
    });
}

#[test]
fn the_layout_is_pinned() {
    let place = Place { file: FileId(0x0102), generation: 3, offset: 0x0405, length: 0x0607 };
    let golden = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4, 5, 0, 0, 6, 7];
    assert_eq!(encode(&[place]), golden);
    assert_eq!(decode(&golden), [place]);
}

proptest! {
    #[test]
    fn prop_arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        crate::fuzz_index(&bytes);
    }

    #[test]
    fn prop_the_index_agrees_with_a_list(
        steps in prop::collection::vec((0..3u8, 0..4u64, any::<bool>()), 0..60),
    ) {
        let mut model = vec![Vec::<Place>::new(); 3];
        let tables = MemoryTables::new();
        let mut transaction = tables.write().unwrap();
        for (fill, file, seen) in steps {
            let (places, here) = (&mut model[usize::from(fill)], place(file, 0));
            places.retain(|known| *known != here);
            if seen {
                note(&mut *transaction, &name(fill), here).unwrap();
                places.insert(0, here);
                places.truncate(PLACES_MAX);
            } else {
                forget(&mut *transaction, &name(fill), &here).unwrap();
            }
            prop_assert_eq!(&found(&*transaction, fill), places);
        }
    }
}
