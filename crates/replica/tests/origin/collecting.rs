//! The store over time: versions that are pruned, chunks in the trash and out of it, space.

use crate::party::{
    Device, EPOCH_SECS, LEASE, Party, all_chunks, noise, rename_over, store_of, unlink_of,
};
use model::{Change, Contents, FileId, Kind, Stamp};
use protocol::past::{Found, Past};
use protocol::{Cutter, Range, Refusal, Request, Response, Verdict};
use replica::{Freed, Limits, Wish};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::faulty::Disk;
use world::World;

const ROOT: FileId = FileId::ROOT;
const HOUR: Duration = Duration::from_secs(3600);
const KEPT: Duration = Duration::from_secs(10 * 3600);
const EVERYTHING: Wish =
    Wish { dry_run: false, empty_trash: true, thorough: true, forget_sent: false };

/// Versions are kept for ten hours, and chunks go from the trash as soon as it is too full.
fn limits() -> Limits {
    Limits {
        lease: LEASE,
        versions_kept: KEPT,
        names_kept: KEPT,
        trash_bytes_min: 100,
        trash_percent: 0,
        trash_kept: HOUR,
        promise: HOUR,
        ..Limits::simulated()
    }
}

async fn collect(party: &Party, wish: Wish) -> Freed {
    party.origin.collect(wish).await.unwrap()
}

/// What was stored anew `times` times over the last hours by a clock that goes evenly, a file.
async fn stored_anew(party: &Party, ada: &mut Device, times: u32) -> (FileId, Stamp) {
    let (file, make) = ada.making(ROOT, "f", Kind::File);
    ada.replay(make).await;
    let mut expects = ada.stamp();
    for n in 0..times {
        party.world.clock.sleep(HOUR / 10).await;
        let store = ada.storing(file, expects, &format!("{n}").repeat(30)).await;
        ada.replay(store).await;
        expects = ada.stamp();
    }
    collect(party, Wish::default()).await;
    (file, expects)
}

const YEARS_SECS: i64 = 800 * 24 * 3600;

#[tokio::test(start_paused = true)]
async fn nothing_is_pruned_for_a_clock_that_was_set_forward_and_back_again() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    stored_anew(&party, &mut ada, 5).await;
    party.world.clock.shift(YEARS_SECS);
    let freed = collect(&party, Wish::default()).await;
    assert_eq!((freed.versions, freed.clock_leapt.as_secs()), (0, YEARS_SECS.unsigned_abs()));
    party.world.clock.shift(-YEARS_SECS);
    party.world.clock.sleep(HOUR).await;
    let freed = collect(&party, Wish::default()).await;
    assert_eq!((freed.versions, freed.clock_leapt.as_secs(), freed.clock_behind), (0, 0, 0));
    party.world.clock.sleep(2 * KEPT).await;
    assert!(collect(&party, Wish::default()).await.versions > 0, "marks are made as before");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_pruned_for_a_clock_that_was_set_back_and_right_again() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, expects) = stored_anew(&party, &mut ada, 5).await;
    party.world.clock.shift(-YEARS_SECS);
    let store = ada.storing(file, expects, "while it was wrong").await;
    ada.replay(store).await;
    let freed = collect(&party, Wish::default()).await;
    assert_eq!((freed.versions, freed.clock_behind), (0, 1));
    party.world.clock.shift(YEARS_SECS);
    for _ in 0..3 {
        party.world.clock.sleep(HOUR).await;
        assert_eq!(collect(&party, Wish::default()).await.versions, 0);
    }
    party.world.clock.sleep(2 * KEPT).await;
    assert!(collect(&party, Wish::default()).await.versions > 0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_forward_and_goes_evenly_from_there_counts_from_the_next_cycle_on() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    stored_anew(&party, &mut ada, 5).await;
    party.world.clock.shift(YEARS_SECS);
    assert_eq!(collect(&party, Wish::default()).await.versions, 0);
    party.world.clock.sleep(HOUR).await;
    assert!(collect(&party, Wish::default()).await.versions > 0);
}

/// Nobody was promised anything since.
async fn promises_end(party: &Party) {
    for _ in 0..3 {
        party.world.clock.sleep(HOUR).await;
        collect(party, Wish::default()).await;
    }
}

async fn reads(
    device: &Device,
    file: FileId,
    version: Stamp,
    length: u64,
) -> Result<usize, Refusal> {
    let ranges = vec![Range { offset: 0, length }];
    match device
        .ask(Request::Read { file, version, ranges, base: None, packed: None, inside: None })
        .await
    {
        Response::Bytes(payload) => Ok(payload.bytes.len()),
        Response::Refused(refusal) => Err(refusal),
        response => panic!("{response:?}"),
    }
}

/// Whether the origin takes a store of the text without being sent a chunk.
async fn has(device: &mut Device, file: FileId, expects: Stamp, text: &str) -> bool {
    let contents = device.describe(text.as_bytes()).tree.contents;
    let store = device.update(store_of(file, expects, contents));
    let submitted = device.submit_all(false, vec![store], None).await.unwrap();
    if submitted.verdicts.is_empty() {
        // What was not sent is taken back.
        device.made -= 1;
    }
    submitted.missing.is_empty()
}

#[tokio::test(start_paused = true)]
async fn a_version_can_be_read_for_its_time_after_it_was_replaced_and_not_for_ever() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, old) = ada.write_new(ROOT, "a", "first").await;
    party.world.clock.sleep(KEPT * 3).await;
    collect(&party, EVERYTHING).await;
    assert!(reads(&ada, file, old, 5).await.is_ok(), "what is current has no age");
    let store = ada.storing(file, old, "second").await;
    ada.replay(store).await;
    collect(&party, EVERYTHING).await;
    party.world.clock.sleep(KEPT - HOUR).await;
    let ada = party.rejoin(&ada).await;
    collect(&party, EVERYTHING).await;
    assert!(reads(&ada, file, old, 5).await.is_ok());
    party.world.clock.sleep(HOUR * 2).await;
    let ada = party.rejoin(&ada).await;
    let freed = collect(&party, EVERYTHING).await;
    assert!(freed.versions > 0);
    assert_eq!(reads(&ada, file, old, 5).await, Err(Refusal::NoVersion(file, old)));
    assert_eq!(party.tree(), "a: second");
    assert_eq!(party.blobs.list(&[], 10).unwrap().len(), 1, "its chunk is gone too");
}

#[tokio::test(start_paused = true)]
async fn the_time_is_the_volumes_own_if_it_has_one() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, old) = ada.write_new(ROOT, "a", "first").await;
    let store = ada.storing(file, old, "second").await;
    ada.replay(store).await;
    party.origin.keep_versions(crate::party::VOLUME, Some(KEPT * 2)).unwrap();
    collect(&party, EVERYTHING).await;
    party.world.clock.sleep(KEPT + HOUR).await;
    collect(&party, EVERYTHING).await;
    let party = party.killed();
    let ada = party.rejoin(&ada).await;
    assert!(reads(&ada, file, old, 5).await.is_ok());
    party.origin.keep_versions(crate::party::VOLUME, Some(Duration::ZERO)).unwrap();
    assert_eq!(party.origin.volumes().unwrap()[0].versions_kept, Duration::ZERO);
    collect(&party, EVERYTHING).await;
    assert_eq!(reads(&ada, file, old, 5).await, Err(Refusal::NoVersion(file, old)));
}

#[tokio::test(start_paused = true)]
async fn the_base_and_both_sides_of_a_conflict_stay() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(ROOT, "a", "base").await;
    let mut bob = party.join("bob").await;
    let ours = ada.storing(file, base, "ada's").await;
    ada.replay(ours).await;
    let adas = ada.stamp();
    let theirs = bob.storing(file, base, "bob's").await;
    assert!(matches!(bob.replay(theirs).await, Verdict::KeptAside { .. }));
    let later = ada.storing(file, adas, "later").await;
    ada.replay(later).await;
    collect(&party, EVERYTHING).await;
    party.world.clock.sleep(KEPT * 2).await;
    collect(&party, EVERYTHING).await;
    let ada = party.rejoin(&ada).await;
    assert!(reads(&ada, file, base, 4).await.is_ok());
    assert!(reads(&ada, file, adas, 5).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_two_saves_by_rename_began_from_stays_though_it_has_no_name() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(ROOT, "a", "base").await;
    let mut bob = party.join("bob").await;
    let mut verdicts = Vec::new();
    for (device, text) in [(&mut ada, "ada's"), (&mut bob, "bob's")] {
        let (new, _) = device.write_new(ROOT, text, text).await;
        let mut saves = rename_over((ROOT, text), (ROOT, "a"), new, Some(file));
        if let Change::Rename { expects, .. } = &mut saves {
            *expects = Some(base);
        }
        verdicts.push(device.replay(saves).await);
    }
    assert!(matches!(verdicts[..], [Verdict::Taken(_), Verdict::KeptAside { .. }]));
    for _ in 0..3 {
        collect(&party, EVERYTHING).await;
        party.world.clock.sleep(KEPT * 2).await;
    }
    let conflict = party.origin.conflicts("v", 10).unwrap().remove(0);
    assert_eq!(conflict.began_from(), Some((file, base)));
    let ada = party.rejoin(&ada).await;
    let asked = Past::Base { number: 1, offset: 0, uid: 0, gid: 0, groups: None };
    let answer = ada.ask(Request::Past(asked)).await;
    assert_eq!(answer, Response::Past(Found::Base(b"base".to_vec().into())));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_trash_is_found_and_taken_out_when_it_is_needed_again() {
    let party = Party::with(Limits { versions_kept: HOUR, names_kept: HOUR, ..limits() });
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(ROOT, "a", "useful again").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    let (other, stamp) = ada.write_new(ROOT, "b", "other").await;
    promises_end(&party).await;
    let freed = collect(&party, Wish::default()).await;
    assert_eq!((freed.trash.chunks, freed.trash.bytes), (1, 12));
    let mut ada = party.rejoin(&ada).await;
    assert!(has(&mut ada, other, stamp, "useful again").await);
    let freed = collect(&party, EVERYTHING).await;
    assert_eq!((freed.taken_back.chunks, freed.deleted.chunks), (1, 0));
    assert_eq!(party.tree(), "b: useful again");
}

#[tokio::test(start_paused = true)]
async fn the_trash_keeps_to_its_size_and_the_oldest_goes_first() {
    let kept = Limits { versions_kept: HOUR, names_kept: HOUR, ..limits() };
    let party = Party::with(kept);
    let mut ada = party.join("ada").await;
    let texts: Vec<String> = (0..6).map(|n| format!("{n}").repeat(30)).collect();
    for text in &texts {
        let (file, _) = ada.write_new(ROOT, "a", text).await;
        ada.replay(unlink_of(ROOT, "a", file)).await;
        promises_end(&party).await;
        ada = party.rejoin(&ada).await;
    }
    promises_end(&party).await;
    let freed = collect(&party, Wish::default()).await;
    assert_eq!((freed.trash.chunks, freed.trash.bytes), (3, 90), "of 100 bytes");
    let mut ada = party.rejoin(&ada).await;
    let (file, stamp) = ada.write_new(ROOT, "b", "").await;
    for (n, text) in texts.iter().enumerate() {
        // A refused store leaves the stamp as it was; a taken one is followed by the next.
        let expects = if n > 3 { ada.stamp() } else { stamp };
        assert_eq!(has(&mut ada, file, expects, text).await, n >= 3, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_or_asked_about_stays_until_the_update_comes() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(ROOT, "large", Kind::File);
    ada.replay(make).await;
    let stamp = ada.stamp();
    let bytes = noise(300_000, 3);
    let described = ada.describe(&bytes);
    let chunks = all_chunks(&described, &bytes);
    let store = ada.update(store_of(file, stamp, described.tree.contents));
    let (half, rest) = chunks.split_at(chunks.len() / 2);
    for (_, chunk) in half {
        ada.put(&[chunk]).await;
    }
    let wished = Wish { dry_run: true, ..EVERYTHING };
    let said = collect(&party, wished).await;
    let freed = collect(&party, EVERYTHING).await;
    assert_eq!(freed.deleted.chunks, 0, "they are on their way");
    assert_eq!((said.promised, said.deleted), (freed.promised, freed.deleted));
    assert_eq!(freed.promised.chunks, half.len() as u64, "and that is told");
    assert_eq!(freed.promised_for, HOUR);
    for (_, chunk) in rest {
        ada.put(&[chunk]).await;
    }
    // A restart forgets what was promised; but what was asked about since is promised anew.
    let party = party.killed();
    let ada = party.rejoin(&ada).await;
    let device = ada.describe(b"").tree.contents;
    assert_eq!(device, Contents::EMPTY);
    let submitted = ada.submit_all(false, vec![store.clone()], None).await.unwrap();
    assert_eq!(submitted.missing, []);
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]));
    collect(&party, EVERYTHING).await;
    let fetched = ada.recipe(file, Range { offset: 0, length: 300_000 }, 0).await;
    assert_eq!(fetched.contents, described.tree.contents);
}

#[tokio::test(start_paused = true)]
async fn what_was_promised_goes_when_it_was_said_to() {
    let party = Party::with(limits());
    let ada = party.join("ada").await;
    collect(&party, Wish::default()).await;
    ada.put(&[b"nobody names this"]).await;
    let freed = collect(&party, EVERYTHING).await;
    assert_eq!((freed.promised.chunks, freed.deleted.chunks), (1, 0));
    let origin = party.origin.clone();
    let upkeep = tokio::spawn(async move { origin.keep_up().await });
    party.world.clock.sleep(freed.promised_for).await;
    assert_eq!(collect(&party, EVERYTHING).await.promised.chunks, 0);
    assert_eq!(party.blobs.list(&[], 9).unwrap(), []);
    upkeep.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_too_young_to_be_pruned_is_told_of() {
    let party = Party::with(Limits { versions_kept: HOUR, names_kept: HOUR, ..limits() });
    let mut ada = party.join("ada").await;
    let (file, stamp) = ada.write_new(ROOT, "a", "first").await;
    let second = ada.storing(file, stamp, "second").await;
    ada.replay(second).await;
    let freed = collect(&party, EVERYTHING).await;
    assert_eq!((freed.young, freed.versions), (3, 0), "making it is two of them");
    party.world.clock.sleep(HOUR).await;
    let freed = collect(&party, EVERYTHING).await;
    assert!(freed.young == 0 && freed.versions > 0, "{freed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_restart_has_forgotten_to_have_promised_is_asked_for_again() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(ROOT, "large", Kind::File);
    ada.replay(make).await;
    let bytes = noise(300_000, 3);
    let described = ada.describe(&bytes);
    let store = ada.update(store_of(file, ada.stamp(), described.tree.contents));
    let chunks = all_chunks(&described, &bytes);
    for (_, chunk) in &chunks {
        ada.put(&[chunk]).await;
    }
    let party = party.killed();
    assert_eq!(collect(&party, EVERYTHING).await.deleted.chunks, chunks.len() as u64);
    // Ada was told that all of it is there, and counts on that.
    let ada = party.rejoin(&ada).await;
    let submitted = ada.submit_all(false, vec![store.clone()], None).await.unwrap();
    assert_eq!(submitted.verdicts, []);
    assert!(!submitted.missing.is_empty(), "it is not taken on trust");
    for (_, chunk) in &chunks {
        ada.put(&[chunk]).await;
    }
    let submitted = ada.submit_all(false, vec![store], None).await.unwrap();
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]));
    collect(&party, EVERYTHING).await;
    let checked = party.origin.check(replica::Repair::No).await.unwrap();
    assert_eq!(checked.problems, []);
}

#[tokio::test(start_paused = true)]
async fn what_the_trash_has_lost_is_asked_for_and_sent_again() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, stamp) = ada.write_new(ROOT, "a", "").await;
    ada.put(&[b"sent too early"]).await;
    promises_end(&party).await;
    assert_eq!(collect(&party, EVERYTHING).await.deleted.chunks, 1);
    let mut ada = party.rejoin(&ada).await;
    assert!(!has(&mut ada, file, stamp, "sent too early").await);
    let store = ada.storing(file, stamp, "sent too early").await;
    assert!(matches!(ada.replay(store).await, Verdict::Taken(_)));
    collect(&party, EVERYTHING).await;
    assert_eq!(party.tree(), "a: sent too early");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_would_go_and_changes_nothing() {
    let party = Party::with(Limits { versions_kept: HOUR, names_kept: HOUR, ..limits() });
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(ROOT, "a", "gone").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    ada.write_new(ROOT, "b", "stays").await;
    collect(&party, Wish::default()).await;
    party.world.clock.sleep(HOUR * 2).await;
    collect(&party, Wish { dry_run: true, ..EVERYTHING }).await;
    party.world.clock.sleep(HOUR * 2).await;
    let before = party.blobs.list(&[], 100).unwrap();
    let said = collect(&party, Wish { dry_run: true, ..EVERYTHING }).await;
    assert_eq!(party.blobs.list(&[], 100).unwrap(), before);
    let done = collect(&party, EVERYTHING).await;
    assert_eq!((said.versions, said.deleted), (done.versions, done.deleted));
    assert_eq!(done.deleted.chunks, 1);
    assert_eq!(party.tree(), "b: stays");
}

#[tokio::test(start_paused = true)]
async fn a_recipe_that_cannot_be_read_lets_nothing_of_its_volume_go() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(ROOT, "large", Kind::File);
    ada.replay(make).await;
    let bytes = noise(300_000, 3);
    let described = ada.describe(&bytes);
    for (_, chunk) in all_chunks(&described, &bytes) {
        ada.put(&[&chunk]).await;
    }
    let store = store_of(file, ada.stamp(), described.tree.contents);
    assert!(matches!(ada.replay(store).await, Verdict::Taken(_)));
    promises_end(&party).await;
    let root = described.tree.contents.root.unwrap().name;
    let id = party.origin.volumes().unwrap()[0].id;
    party.blobs.delete(&[&id.0.to_be_bytes()[..], &root.0].concat()).unwrap();
    let before = party.blobs.list(&[], 10_000).unwrap();
    let freed = collect(&party, EVERYTHING).await;
    assert_eq!((freed.unsure, freed.deleted.chunks), (1, 0));
    assert_eq!(party.blobs.list(&[], 10_000).unwrap(), before);
}

/// Files whose versions come and go; gives back what each says in the end.
async fn much(party: &Party, ada: &mut Device) -> BTreeMap<String, String> {
    let mut says = BTreeMap::new();
    for n in 0..6 {
        let name = format!("f{n}");
        let (file, mut stamp) = ada.write_new(ROOT, &name, &format!("{n} first")).await;
        let second = ada.storing(file, stamp, &format!("{n} second")).await;
        ada.replay(second).await;
        stamp = ada.stamp();
        if n % 2 == 0 {
            // What was there once comes back, out of the trash if it has come there.
            let back = ada.storing(file, stamp, &format!("{} first", n / 2)).await;
            ada.replay(back).await;
            says.insert(name, format!("{} first", n / 2));
        } else if n % 3 == 0 {
            ada.replay(unlink_of(ROOT, &name, file)).await;
        } else {
            says.insert(name, format!("{n} second"));
        }
        party.world.clock.sleep(HOUR).await;
        *ada = party.rejoin(ada).await;
    }
    says
}

fn tree_of(says: &BTreeMap<String, String>) -> String {
    says.iter().map(|(name, says)| format!("{name}: {says}")).collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_of_a_cycle_costs_nothing_and_the_next_goes_on() {
    let limits = Limits { versions_kept: HOUR, names_kept: HOUR, ..limits() };
    for power_cut in [false, true] {
        let mut crashes = 0;
        for writes in 0.. {
            let world = World::simulated(EPOCH_SECS, writes);
            let mut disk = Disk::new(writes);
            let on = |disk: &Disk| {
                let (tables, blobs) = (Arc::new(disk.tables("t")), Arc::new(disk.blobs("b")));
                Party::on(tables, blobs, world.clone(), limits.clone())
            };
            let party = on(&disk);
            party.origin.create_volume(crate::party::VOLUME, 1, 1, Cutter::Gear).unwrap();
            let mut ada = party.join("ada").await;
            let says = much(&party, &mut ada).await;
            promises_end(&party).await;
            party.world.clock.sleep(KEPT).await;
            disk.crash_after(writes);
            let outcome = party.origin.collect(EVERYTHING).await;
            if outcome.is_err() {
                crashes += 1;
                if power_cut {
                    disk.cut_power();
                }
            }
            disk = disk.restart();
            let party = on(&disk);
            assert_eq!(party.tree(), tree_of(&says), "after {writes} writes");
            collect(&party, EVERYTHING).await;
            assert_eq!(party.tree(), tree_of(&says), "after {writes} writes");
            let needed: std::collections::BTreeSet<_> = says.values().collect();
            assert_eq!(party.blobs.list(&[], 1000).unwrap().len(), needed.len());
            if outcome.is_ok() {
                break;
            }
        }
        assert!(crashes > 5, "{crashes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_a_cycle_and_costs_nothing() {
    let world = World::simulated(EPOCH_SECS, 1);
    let disk = Disk::new(1);
    let (tables, blobs) = (Arc::new(disk.tables("t")), Arc::new(disk.blobs("b")));
    let limits = Limits { versions_kept: HOUR, names_kept: HOUR, ..limits() };
    let party = Party::on(tables, blobs, world, limits);
    party.origin.create_volume(crate::party::VOLUME, 1, 1, Cutter::Gear).unwrap();
    let mut ada = party.join("ada").await;
    let says = much(&party, &mut ada).await;
    let mut refused = 0;
    for bytes in [0, 20, 60, 200, 400] {
        party.world.clock.sleep(KEPT).await;
        disk.fill_after(bytes);
        refused += usize::from(party.origin.collect(EVERYTHING).await.is_err());
        assert_eq!(party.tree(), tree_of(&says));
        disk.make_room();
    }
    assert!(refused > 0);
    party.world.clock.sleep(KEPT).await;
    promises_end(&party).await;
    collect(&party, EVERYTHING).await;
    assert_eq!(party.tree(), tree_of(&says));
}

#[tokio::test(start_paused = true)]
async fn the_background_tidies_now_and_then_and_makes_way() {
    let limits = Limits { versions_kept: HOUR, names_kept: HOUR, trash_bytes_min: 0, ..limits() };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    let says = much(&party, &mut ada).await;
    let origin = party.origin.clone();
    let background = tokio::spawn(async move { origin.keep_up().await });
    let needed: std::collections::BTreeSet<_> = says.values().collect();
    // Somebody else wants the same at the same moment: the background makes way, once.
    party.world.clock.sleep(HOUR).await;
    collect(&party, Wish { dry_run: true, ..Wish::default() }).await;
    // The first day finds what is old, and what follows empties the trash.
    party.world.clock.sleep(HOUR * 24 * 4).await;
    assert_eq!(party.blobs.list(&[], 1000).unwrap().len(), needed.len());
    assert_eq!(party.tree(), tree_of(&says));
    background.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_lately_goes_where_that_is_wished_and_is_sent_again_if_it_is_needed() {
    let party = Party::with(limits());
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(ROOT, "a", "sent lately").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    party.origin.keep_versions(crate::party::VOLUME, Some(Duration::ZERO)).unwrap();
    let freed = collect(&party, EVERYTHING).await;
    assert_eq!((freed.promised.chunks, freed.deleted.chunks), (1, 0));
    let freed = collect(&party, Wish { forget_sent: true, ..EVERYTHING }).await;
    assert_eq!((freed.promised.chunks, freed.deleted.chunks), (0, 1));
    assert!(party.blobs.list(&[], 10).unwrap().is_empty());
    // Who takes it to be there is told that it is not.
    let (file, make) = ada.making(ROOT, "b", Kind::File);
    ada.replay(make).await;
    let described = ada.describe(b"sent lately");
    let store = store_of(file, ada.stamp(), described.tree.contents);
    let store = ada.update(store);
    let submitted = ada.submit_all(false, vec![store], None).await.unwrap();
    assert_eq!((submitted.verdicts.len(), submitted.missing.len()), (0, 1));
}
