//! Large files of devices are written into a tree a piece at a time: what happens meanwhile is not
//! held up, and under a name there is all of a version or nothing of it.
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs of the server are played by the test"
)]

use crate::ground::{Ground, Place};
use crate::party::{LEASE, Party, noise, rename_of, rename_over, unlink_of};
use crate::tree::Yard;
use model::FileId;
use replica::Limits;
use std::fs;
use std::time::Duration;

/// Bytes that are written between two looks: a chunk, however small it is.
const PIECE: u64 = 1000;
/// A large file has more chunks than this.
const ROUNDS: usize = 8;
/// A large file is written in fewer rounds, also where it is stored again in each; and in more than
/// these, unless much of it is written at once.
const OVERTAKEN_ROUNDS: usize = 200;
const OVERTAKEN_STEPS_MIN: usize = ROUNDS;

fn yard() -> Yard {
    let limits = Limits { lease: LEASE, tree_piece_bytes: PIECE, ..Limits::simulated() };
    Yard::of(Party::with(limits), tempfile::tempdir().unwrap())
}

/// Letters of which no chunk comes twice.
fn text(seed: u64) -> String {
    noise(200_000, seed).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// What lies in the stage beside what says which tree it is.
fn staged(yard: &Yard) -> Vec<String> {
    let names = fs::read_dir(yard.path(".farfs-tree")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "mark").collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_small_comes_and_goes_while_something_large_is_written() {
    let mut yard = yard();
    let mut ada = yard.party.join("ada").await;
    ada.write_new(FileId::ROOT, "large", &text(1)).await;
    for step in 0..ROUNDS {
        let (theirs, ours) = (format!("theirs {step}"), format!("ours {step}"));
        ada.write_new(FileId::ROOT, &theirs, "t").await;
        yard.write(&ours, "o");
        yard.keeper.round().unwrap();
        assert!(yard.path(&theirs).exists(), "{theirs} waited");
        assert!(yard.find(&ours).is_some(), "{ours} waited");
        assert!(!yard.path("large").exists(), "nothing of it before all is written");
        assert!(!yard.keeper.is_settled());
    }
    yard.agreed();
    assert_eq!(fs::read_to_string(yard.path("large")).unwrap(), text(1));
    assert_eq!(staged(&yard), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn large_files_are_written_one_after_the_other() {
    let mut yard = yard();
    let mut ada = yard.party.join("ada").await;
    let names = ["a", "b", "c"];
    for (seed, name) in names.iter().enumerate() {
        ada.write_new(FileId::ROOT, name, &text(seed as u64)).await;
    }
    let mut seen = Vec::new();
    for _ in 0..1000 {
        yard.keeper.round().unwrap();
        assert!(staged(&yard).len() <= 1, "{:?}", staged(&yard));
        seen.push(names.iter().filter(|name| yard.path(name).exists()).count());
        if yard.keeper.is_settled() {
            break;
        }
    }
    assert!([0, 1, 2, 3].iter().all(|count| seen.contains(count)), "{seen:?}");
    yard.agreed();
}

/// A version that is like another but for a place, its beginning, its length, or a hole.
fn versions() -> [String; 6] {
    let base = text(1);
    let with = |change: &dyn Fn(&mut String)| {
        let mut text = base.clone();
        change(&mut text);
        text
    };
    [
        with(&|text| text.replace_range(90_000..90_010, "0123456789")),
        with(&|text| text.insert(0, '!')),
        with(&|text| text.truncate(120_000)),
        with(&|text| text.push_str(&base)),
        with(&|text| text.replace_range(20_000..150_000, &"\0".repeat(130_000))),
        text(2),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_stored_meanwhile_takes_the_place_of_what_is_written() {
    for (number, version) in versions().iter().enumerate() {
        for (rounds, is_there) in [(1, false), (ROUNDS, false), (1, true), (ROUNDS, true)] {
            let mut yard = yard();
            let mut ada = yard.party.join("ada").await;
            let first = if is_there { text(3) } else { text(1) };
            let (file, mut stamp) = ada.write_new(FileId::ROOT, "large", &first).await;
            if is_there {
                yard.agreed();
                let store = ada.storing(file, stamp, &text(1)).await;
                ada.replay(store).await;
                stamp = ada.stamp();
            }
            for _ in 0..rounds {
                yard.keeper.round().unwrap();
                let there = fs::read_to_string(yard.path("large")).ok();
                assert_eq!(there, is_there.then(|| first.clone()), "half of a version");
            }
            let store = ada.storing(file, stamp, version).await;
            ada.replay(store).await;
            yard.agreed();
            let there = fs::read_to_string(yard.path("large")).unwrap();
            assert!(there == *version, "version {number} after {rounds} rounds");
            assert_eq!(staged(&yard), Vec::<String>::new());
            assert_eq!(yard.party.conflicts(), Vec::<String>::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_stored_without_end_is_there_all_the_same_and_holds_up_nothing() {
    let mut yard = yard();
    let mut ada = yard.party.join("ada").await;
    // It grows at its end, as what is recorded or logged does.
    let mut versions = vec![text(0)];
    let (file, mut stamp) = ada.write_new(FileId::ROOT, "large", &versions[0]).await;
    let mut seen = Vec::new();
    for step in 0..OVERTAKEN_ROUNDS {
        let small = format!("small {step}");
        ada.write_new(FileId::ROOT, &small, "s").await;
        yard.keeper.round().unwrap();
        assert!(yard.path(&small).exists(), "{small} waited");
        if let Ok(there) = fs::read_to_string(yard.path("large")) {
            let version = versions.iter().position(|version| *version == there);
            seen.push(version.expect("half of a version, or of two"));
            assert!(step > OVERTAKEN_STEPS_MIN, "a piece at a time, and not all in one: {step}");
        }
        versions.push(format!("{}and more", versions[step]));
        let store = ada.storing(file, stamp, &versions[step + 1]).await;
        ada.replay(store).await;
        stamp = ada.stamp();
    }
    assert!(seen.is_sorted(), "an older one after a newer one: {seen:?}");
    seen.dedup();
    assert!(seen.len() > 1, "it stays behind: {seen:?}");
    yard.agreed();
    assert_eq!(fs::read_to_string(yard.path("large")).unwrap(), versions[OVERTAKEN_ROUNDS]);
    assert_eq!(yard.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_file_comes_to_a_new_name_with_what_was_stored_before() {
    for (large, seed) in [(false, 4), (true, 5)] {
        let mut yard = yard();
        let mut ada = yard.party.join("ada").await;
        let bytes = if large { text(seed) } else { "saved".into() };
        let (document, _) = ada.write_new(FileId::ROOT, "document", "older").await;
        let (fresh, stamp) = ada.write_new(FileId::ROOT, "fresh", "").await;
        yard.agreed();
        // Both are seen at once.
        let store = ada.storing(fresh, stamp, &bytes).await;
        ada.replay(store).await;
        let to = (FileId::ROOT, "document");
        ada.replay(rename_over((FileId::ROOT, "fresh"), to, fresh, Some(document))).await;
        for _ in 0..OVERTAKEN_ROUNDS {
            yard.keeper.round().unwrap();
            let there = fs::read_to_string(yard.path("document")).unwrap();
            assert!(there == "older" || there == bytes, "{} bytes", there.len());
        }
        yard.agreed();
        assert_eq!(fs::read_to_string(yard.path("document")).unwrap(), bytes);
        assert!(!yard.path("fresh").exists());
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_file_while_it_is_written_both_sides_agree() {
    let acts = ["unlink", "rename", "rename over", "a program makes one", "a kill"];
    for act in acts {
        for rounds in [1, ROUNDS] {
            let mut yard = yard();
            let mut ada = yard.party.join("ada").await;
            ada.write_new(FileId::ROOT, "other", "before").await;
            yard.agreed();
            let (file, _) = ada.write_new(FileId::ROOT, "large", &text(1)).await;
            for _ in 0..rounds {
                yard.keeper.round().unwrap();
            }
            match act {
                "unlink" => {
                    ada.replay(unlink_of(FileId::ROOT, "large", file)).await;
                }
                "rename" => {
                    let (from, to) = ((FileId::ROOT, "large"), (FileId::ROOT, "moved"));
                    ada.replay(rename_of(from, to, file)).await;
                }
                "rename over" => {
                    let (_, over, _) = yard.find("other").unwrap();
                    let (from, to) = ((FileId::ROOT, "large"), (FileId::ROOT, "other"));
                    ada.replay(rename_over(from, to, file, Some(over))).await;
                }
                "a program makes one" => yard.write("large", "a program's"),
                _ => yard = yard.killed(),
            }
            let tree = yard.agreed();
            let has = |what: &str| tree.contains(what);
            assert_eq!(has(&text(1)), act != "unlink", "{act} after {rounds}");
            assert_eq!(has("a program's"), act == "a program makes one");
            assert_eq!(staged(&yard), Vec::<String>::new(), "{act} after {rounds}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_large_file_that_a_program_changes_while_a_version_is_written_both_are_kept() {
    for rounds in [1, ROUNDS] {
        let mut yard = yard();
        let mut ada = yard.party.join("ada").await;
        let (file, stamp) = ada.write_new(FileId::ROOT, "large", &text(1)).await;
        yard.agreed();
        let store = ada.storing(file, stamp, &text(2)).await;
        ada.replay(store).await;
        for _ in 0..rounds {
            yard.keeper.round().unwrap();
        }
        yard.write("large", "a program's");
        let tree = yard.agreed();
        assert!(tree.contains(&text(2)) && tree.contains("a program's"), "after {rounds}");
        assert_eq!(yard.party.conflicts().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_has_no_room_for_a_large_file_holds_up_nothing_else() {
    let limits = Limits { lease: LEASE, tree_piece_bytes: PIECE, ..Limits::simulated() };
    let mut ground = Ground::new(limits, Place::Apart).await;
    while !ground.keeper.is_settled() {
        ground.keeper.round().unwrap();
    }
    let large = ground.ada.write_new(FileId::ROOT, "large", &text(1)).await;
    ground.tree_disk.fill_after(60_000);
    for step in 0..2 * ROUNDS {
        let _ = ground.keeper.round();
        assert!(!ground.path("large").exists(), "half of it, in round {step}");
    }
    let is_staged = || fs::read_dir(ground.path(".farfs-tree")).unwrap().count() > 1;
    assert!(!is_staged(), "what cannot be written whole takes no room");
    assert!(ground.keeper.round().unwrap() > Duration::ZERO, "it is not tried without end");
    fs::write(ground.path("ours"), "o").unwrap();
    ground.keeper.round().unwrap();
    assert!(crate::tree::find(&ground.party, "ours").is_some(), "ours waited");
    ground.tree_disk.make_room();
    for _ in 0..10 * ROUNDS {
        tokio::time::advance(Duration::from_secs(1)).await;
        ground.keeper.round().unwrap();
    }
    assert!(ground.keeper.is_settled());
    assert_eq!(fs::read_to_string(ground.path("large")).unwrap(), text(1), "{large:?}");
}

/// A file that is removed gives its room back, which it does not while somebody has it open.
#[tokio::test(start_paused = true)]
async fn what_was_placed_is_not_held_open() {
    let mut yard = yard();
    let mut ada = yard.party.join("ada").await;
    ada.write_new(FileId::ROOT, "large", &text(1)).await;
    yard.agreed();
    let placed = fs::canonicalize(yard.path("large")).unwrap();
    let open =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    // By the name under which it was written, too.
    let place = placed.parent().unwrap();
    let held: Vec<_> = open.filter(|at| at.starts_with(place) && at.is_file()).collect();
    assert!(held.is_empty(), "{held:?}");
}
