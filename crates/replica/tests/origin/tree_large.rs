//! Large files of a tree are read a piece at a time; what happens meanwhile is not held up, and
//! what is taken in is what a file held at one moment.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::party::{LEASE, Party};
use crate::tree::Yard;
use replica::Limits;
use std::fs;

/// Bytes that are read between two looks, and of a file for which that takes some rounds.
const PIECE: u64 = 1000;
const PIECES: usize = 4;
/// More than any file here takes.
const ROUNDS_MAX: usize = 3 * PIECES;

fn yard() -> Yard {
    let limits = Limits { lease: LEASE, tree_piece_bytes: PIECE, ..Limits::simulated() };
    Yard::of(Party::with(limits), tempfile::tempdir().unwrap())
}

/// A text of so many pieces.
fn text(letter: &str) -> String {
    letter.repeat(usize::try_from(PIECE).unwrap() * PIECES)
}

#[tokio::test(start_paused = true)]
async fn what_is_small_is_taken_in_while_something_large_is_read() {
    let mut yard = yard();
    yard.write("large", &text("l"));
    yard.keeper.round().unwrap();
    for step in 1..PIECES {
        let small = format!("small {step}");
        yard.write(&small, "s");
        yard.keeper.round().unwrap();
        assert!(yard.find(&small).is_some(), "{small} waited");
        assert!(yard.find("large").is_none(), "nothing of it before all was read");
    }
    assert!(!yard.keeper.is_settled());
    let tree = yard.agreed();
    assert!(tree.starts_with(&format!("large: {}\n", text("l"))), "{tree}");
}

#[tokio::test(start_paused = true)]
async fn what_devices_do_is_put_out_while_something_large_is_read() {
    let mut yard = yard();
    let mut ada = yard.party.join("ada").await;
    yard.write("large", &text("l"));
    yard.keeper.round().unwrap();
    ada.write_new(model::FileId::ROOT, "small", "s").await;
    yard.keeper.round().unwrap();
    assert_eq!(fs::read_to_string(yard.path("small")).unwrap(), "s");
    assert!(yard.find("large").is_none());
    yard.agreed();
}

/// What a program does to `large` while it is read.
type Act = fn(&Yard);

const ACTS: [(&str, Act); 9] = [
    ("written to", |yard| {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(yard.path("large")).unwrap();
        file.write_all_at(b"changed", 10).unwrap();
    }),
    ("appended to", |yard| {
        use std::io::Write;
        let mut file = fs::OpenOptions::new().append(true).open(yard.path("large")).unwrap();
        file.write_all(b"appended").unwrap();
    }),
    ("cut", |yard| {
        let file = fs::OpenOptions::new().write(true).open(yard.path("large")).unwrap();
        file.set_len(PIECE + 7).unwrap();
    }),
    ("made small", |yard| yard.write("large", "small")),
    ("removed", |yard| fs::remove_file(yard.path("large")).unwrap()),
    ("renamed", |yard| fs::rename(yard.path("large"), yard.path("d/other")).unwrap()),
    ("linked", |yard| fs::hard_link(yard.path("large"), yard.path("d/other")).unwrap()),
    ("replaced", |yard| {
        yard.write("new", &text("n"));
        fs::rename(yard.path("new"), yard.path("large")).unwrap();
    }),
    ("moved with its directory", |yard| {
        fs::rename(yard.path("large"), yard.path("d/large")).unwrap();
        fs::rename(yard.path("d"), yard.path("e")).unwrap();
    }),
];

#[tokio::test(start_paused = true)]
async fn whatever_is_done_to_a_file_while_it_is_read_it_is_taken_in_as_it_is_then() {
    for (what, act) in ACTS {
        for rounds in 1..PIECES + 3 {
            let mut yard = yard();
            fs::create_dir(yard.path("d")).unwrap();
            if rounds % 2 == 0 {
                yard.write("large", &text("b"));
                yard.agreed();
            }
            yard.write("large", &text("l"));
            for _ in 0..rounds {
                yard.keeper.round().unwrap();
            }
            act(&yard);
            for _ in 0..ROUNDS_MAX {
                if yard.keeper.is_settled() {
                    break;
                }
                yard.keeper.round().unwrap();
                tokio::time::advance(std::time::Duration::from_millis(100)).await;
            }
            yard.agreed();
            assert_eq!(yard.party.conflicts(), Vec::<String>::new(), "{what} after {rounds}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_of_several_names_is_read_once_and_stays_one() {
    let mut yard = yard();
    yard.write("a", &text("l"));
    for name in ["b", "c"] {
        fs::hard_link(yard.path("a"), yard.path(name)).unwrap();
    }
    for _ in 0..PIECES + 2 {
        yard.keeper.round().unwrap();
    }
    assert!(yard.keeper.is_settled(), "all three were read as one");
    let files = ["a", "b", "c"].map(|name| yard.find(name).unwrap().1);
    assert_eq!((files[0], files[0]), (files[1], files[2]));
    yard.agreed();
}

#[tokio::test(start_paused = true)]
async fn large_files_are_read_one_after_the_other() {
    let mut yard = yard();
    for name in ["a", "b", "c"] {
        yard.write(name, &text(name));
    }
    let mut seen = Vec::new();
    for _ in 0..4 * PIECES {
        yard.keeper.round().unwrap();
        seen.push(["a", "b", "c"].iter().filter(|name| yard.find(name).is_some()).count());
    }
    assert!([0, 1, 2, 3].iter().all(|count| seen.contains(count)), "{seen:?}");
    yard.agreed();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_written_to_without_end_is_taken_in_all_the_same() {
    let mut yard = yard();
    yard.write("large", &text("l"));
    for step in 0..400 {
        yard.write("large", &format!("{}{step:04}", text("l")));
        yard.keeper.round().unwrap();
        tokio::time::advance(std::time::Duration::from_millis(100)).await;
        if yard.find("large").is_some() {
            return;
        }
    }
    panic!("it was never taken in");
}

#[tokio::test(start_paused = true)]
async fn of_a_large_file_that_both_sides_change_both_are_kept() {
    let mut yard = yard();
    let mut ada = yard.party.join("ada").await;
    yard.write("large", &text("b"));
    yard.agreed();
    let (_, file, stamp) = yard.find("large").unwrap();
    yard.write("large", &text("l"));
    for _ in 0..3 {
        yard.keeper.round().unwrap();
    }
    let store = ada.storing(file, stamp, "theirs").await;
    ada.replay(store).await;
    let tree = yard.agreed();
    assert!(tree.contains(": theirs") && tree.contains(&text("l")), "{tree}");
    assert_eq!(yard.party.conflicts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_a_restart_ends_begins_again() {
    let mut yard = yard();
    yard.write("large", &text("l"));
    for _ in 0..3 {
        yard.keeper.round().unwrap();
    }
    let mut yard = yard.killed();
    assert_eq!(yard.agreed(), format!("large: {}", text("l")));
}
