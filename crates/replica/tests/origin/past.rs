//! Earlier states: snapshots, the versions of a file, and bringing one back.
#![allow(clippy::disallowed_methods, reason = "the test sees what the server's programs would see")]

use crate::ground::{Ground, Place};
use crate::party::{
    Device, EPOCH_SECS, LEASE, Party, VOLUME, mode_of, name, noise, rename_of, rename_over,
    store_of, unlink_of,
};
use model::{ACL_ACCESS, CAPABILITY, FileId, Kind, Name, Node, Seq, SnapshotId, Stamp, Time, View};
use protocol::past::{
    By, Changed, Found, NotFound, Past, Restore, Restored, SnapshotInfo, Then, Version,
};
use protocol::{Access, Objection, Refusal, Request, Response, Verdict};
use replica::{Keeper, Limits, Repair, Wish};
use std::time::Duration;
use volume::whole::Whole;

const ROOT: FileId = FileId::ROOT;
const HOUR: Duration = Duration::from_secs(3600);
const EVERYTHING: Wish =
    Wish { dry_run: false, empty_trash: true, thorough: true, forget_sent: false };

/// Nothing old is kept but what is held.
fn forgetful() -> Party {
    let limits = Limits {
        lease: LEASE,
        versions_kept: Duration::ZERO,
        names_kept: Duration::ZERO,
        trash_bytes_min: 0,
        trash_percent: 0,
        trash_kept: HOUR,
        promise: HOUR,
        ..Limits::simulated()
    };
    Party::with(limits)
}

async fn ask(device: &Device, past: Past) -> Found {
    match device.ask(Request::Past(past)).await {
        Response::Past(found) => found,
        response => panic!("{response:?}"),
    }
}

async fn snapshot(device: &Device, name: &str) -> SnapshotInfo {
    let token = u64::from(name.as_bytes()[0]);
    match ask(device, Past::Snapshot { name: name.into(), uid: 7, token }).await {
        Found::Snapshot(info) => info,
        found => panic!("{found:?}"),
    }
}

async fn forget(device: &Device, name: &str) -> Found {
    ask(device, Past::Forget { name: name.into(), uid: 7 }).await
}

fn path(text: &str) -> Vec<Name> {
    text.split('/').filter(|part| !part.is_empty()).map(name).collect()
}

async fn history(device: &Device, text: &str) -> Vec<Version> {
    let past = Past::History { path: path(text), before: None, versions_max: 100, by: None };
    match ask(device, past).await {
        Found::History(history) => history.versions,
        found => panic!("{found:?}"),
    }
}

fn changes(versions: &[Version]) -> Vec<Vec<Changed>> {
    versions.iter().map(|version| version.changes.clone()).collect()
}

async fn restore(device: &Device, text: &str, then: Then, to: Option<&str>) -> Found {
    let to = to.map(path);
    let asked = Restore {
        path: path(text),
        then,
        to,
        uid: 1000,
        gid: 1000,
        groups: Some(vec![1000]),
        over_others: None,
    };
    ask(device, Past::Restore(asked)).await
}

/// All chunks that nobody needs go.
async fn tidy(party: &Party) {
    for _ in 0..4 {
        party.world.clock.sleep(HOUR).await;
        party.origin.collect(EVERYTHING).await.unwrap();
    }
}

async fn check(party: &Party) {
    let checked = party.origin.check(Repair::No).await.unwrap();
    assert_eq!(checked.problems, []);
}

async fn node(device: &Device, file: FileId) -> Node {
    device.node(file).await.unwrap()
}

async fn past_text(device: &Device, file: FileId, then: &SnapshotInfo) -> String {
    let file = file.in_snapshot(then.number).unwrap();
    let range = protocol::Range { offset: 0, length: 1 };
    let version = Some(node(device, file).await.contents_stamp);
    let recipe = Request::Recipe { file, version, range, eager_bytes: 1000, base: None };
    match device.ask(recipe).await {
        Response::Recipe(fetched) => {
            let chunks = chunks::unpack(&fetched.bytes.unwrap(), 1000).unwrap();
            String::from_utf8(chunks.concat()).unwrap()
        }
        response => panic!("{response:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_holds_what_it_shows_until_it_is_removed() {
    let party = forgetful();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(ROOT, "docs").await;
    let (file, first) = ada.write_new(docs, "a", "first").await;
    let one = snapshot(&ada, "one").await;
    assert_eq!((one.number, one.uid, one.device.as_deref()), (SnapshotId(1), 7, Some("ada")));
    let store = ada.storing(file, first, "second").await;
    ada.replay(store).await;
    ada.replay(unlink_of(docs, "a", file)).await;
    ada.replay(unlink_of(ROOT, "docs", docs)).await;
    tidy(&party).await;
    let party = party.without_power();
    let ada = party.rejoin(&ada).await;
    tidy(&party).await;
    let ada = party.rejoin(&ada).await;
    check(&party).await;
    let root = ROOT.in_snapshot(one.number).unwrap();
    let listing = ada.list_as(root, None, 100, true).await;
    let names: Vec<_> = listing.directories.iter().flat_map(|listed| &listed.entries).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(past_text(&ada, file, &one).await, "first");
    assert_eq!(party.blobs.list(&[], 10).unwrap().len(), 1);
    assert!(matches!(forget(&ada, "one").await, Found::Snapshot(_)));
    assert_eq!(forget(&ada, "one").await, Found::Not(NotFound::NoSnapshot("one".into())));
    assert_eq!(ada.node(root).await, None);
    tidy(&party).await;
    assert_eq!(party.blobs.list(&[], 10).unwrap().len(), 0, "nothing holds it any more");
    check(&party).await;
    let ada = party.rejoin(&ada).await;
    assert_eq!(snapshot(&ada, "two").await.number, SnapshotId(2), "no number comes again");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_holds_what_was_removed_and_came_back_and_was_stored_again() {
    let party = forgetful();
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let one = snapshot(&ada, "one").await;
    let mut bob = party.join("bob").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    // Bob has not heard of that.
    let back = bob.replay(rename_of((ROOT, "a"), (ROOT, "b"), file)).await;
    assert!(matches!(back, Verdict::Taken(_)), "{back:?}");
    assert_eq!(party.tree(), "b: first");
    let store = bob.storing(file, first, "second").await;
    bob.replay(store).await;
    assert_eq!(party.tree(), "b: second");
    let settle = Past::Settle { number: 1, token: None, by: None };
    assert_eq!(ask(&bob, settle).await, Found::Settled(1), "nor does the conflict hold it");
    tidy(&party).await;
    let ada = party.rejoin(&ada).await;
    assert_eq!(past_text(&ada, file, &one).await, "first");
    check(&party).await;
    assert!(matches!(forget(&ada, "one").await, Found::Snapshot(_)));
    tidy(&party).await;
    assert_eq!(party.blobs.list(&[], 10).unwrap().len(), 1, "nothing holds it any more");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_asked_for_twice_and_made_once_and_others_hear_of_it() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let eve = party.join("eve").await;
    assert_eq!(eve.attached.looks_back, Some(true));
    eve.list(FileId::SNAPSHOTS).await;
    let one = snapshot(&ada, "one").await;
    assert_eq!(eve.heard(), ["one"], "before it was answered");
    assert_eq!(snapshot(&ada, "one").await, one);
    let by_eve = Past::Snapshot { name: "one".into(), uid: 7, token: 1 };
    assert_eq!(ask(&eve, by_eve).await, Found::Not(NotFound::Exists("one".into())));
    for bad in ["", "a/b", "v1"] {
        let past = Past::Snapshot { name: bad.into(), uid: 7, token: 1 };
        assert!(matches!(ask(&ada, past).await, Found::Not(NotFound::BadName(..))), "{bad}");
    }
    forget(&ada, "one").await;
    assert_eq!(eve.heard(), ["one", "-one"]);
    let reader = party.join_as("reader", Access::ReadOnly).await;
    let past = Past::Snapshot { name: "two".into(), uid: 7, token: 1 };
    let refused = reader.ask(Request::Past(past)).await;
    assert_eq!(refused, Response::Refused(Refusal::ReadOnly));
    assert_eq!(ask(&reader, Past::Snapshots).await, Found::Snapshots(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_a_snapshot_shows_takes_no_update() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let one = snapshot(&ada, "one").await;
    let past = |file: FileId| file.in_snapshot(one.number).unwrap();
    let (root, there) = (past(ROOT), past(file));
    let contents = ada.describe(b"other").tree.contents;
    let (_, make) = ada.making(root, "b", Kind::File);
    let tries = [
        make,
        ada.storing(there, first, "other").await,
        store_of(there, first, contents),
        mode_of(there, first, 0o600),
        unlink_of(root, "a", there),
        unlink_of(FileId::SNAPSHOTS, "one", root),
        rename_of((root, "a"), (ROOT, "b"), there),
        rename_of((ROOT, "a"), (root, "b"), file),
    ];
    for change in tries {
        let said = ada.strict(change.clone()).await;
        assert_eq!(said, Verdict::Refused(Objection::ReadOnly), "{change:?}");
    }
    assert_eq!(past_text(&ada, file, &one).await, "first");
    check(&party).await;
}

#[tokio::test(start_paused = true)]
async fn there_is_an_end_to_the_number_of_snapshots() {
    let party = Party::with(Limits { lease: LEASE, snapshots_max: 20, ..Limits::simulated() });
    let ada = party.join("ada").await;
    for number in 0..20 {
        snapshot(&ada, &format!("s{number}")).await;
    }
    let more = Past::Snapshot { name: "more".into(), uid: 7, token: 1 };
    assert_eq!(ask(&ada, more).await, Found::Not(NotFound::TooMany(20)));
    forget(&ada, "s5").await;
    snapshot(&ada, "more").await;
    let Found::Snapshots(all) = ask(&ada, Past::Snapshots).await else { panic!() };
    assert_eq!(all.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_history_follows_names_and_files() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let store = ada.storing(file, first, "second!").await;
    ada.replay(store).await;
    ada.replay(rename_of((ROOT, "a"), (ROOT, "b"), file)).await;
    let (other, _) = ada.write_new(ROOT, "new", "third").await;
    ada.replay(rename_over((ROOT, "new"), (ROOT, "b"), other, Some(file))).await;
    ada.replay(unlink_of(ROOT, "b", other)).await;
    let told = history(&ada, "b").await;
    let expected = [
        vec![Changed::Removed],
        vec![Changed::Replaced, Changed::Moved(path("new"))],
        vec![Changed::Moved(path("a"))],
        vec![Changed::Contents],
        vec![Changed::Contents],
        vec![Changed::Made],
    ];
    assert_eq!(changes(&told), expected);
    let sizes: Vec<_> = told.iter().map(|v| v.looks.as_ref().map(|looks| looks.size)).collect();
    assert_eq!(sizes, [None, Some(5), Some(7), Some(7), Some(5), Some(0)]);
    assert!(told.iter().all(|version| version.device.as_deref() == Some("ada")));
    assert!(told.iter().all(|version| version.at.secs == EPOCH_SECS && version.by == ada.replica));
    // A page goes on where the one before stopped.
    let page =
        Past::History { path: path("b"), before: Some(told[1].since), versions_max: 3, by: None };
    let Found::History(page) = ask(&ada, page).await else { panic!() };
    assert_eq!((page.versions, page.more), (told[2..5].to_vec(), true));
    let nothing = Past::History { path: path("no/such"), before: None, versions_max: 9, by: None };
    assert_eq!(ask(&ada, nothing).await, Found::Not(NotFound::NoPath("/no/such".into())));
}

/// What had borne a name before, and was removed, before something else was moved there.
#[tokio::test(start_paused = true)]
async fn a_history_goes_on_with_what_was_removed_before_something_was_moved_to_the_name() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (first, _) = ada.write_new(ROOT, "a", "first").await;
    ada.replay(unlink_of(ROOT, "a", first)).await;
    let (file, _) = ada.write_new(ROOT, "new", "second!").await;
    ada.replay(rename_of((ROOT, "new"), (ROOT, "a"), file)).await;
    let told = history(&ada, "a").await;
    let sizes: Vec<_> = told.iter().map(|v| v.looks.as_ref().map(|looks| looks.size)).collect();
    assert_eq!(sizes, [Some(7), Some(7), Some(0), None, Some(5), Some(0)]);
    // Each of them can be had by that, and a page goes on where the one before stopped.
    for version in told.iter().filter(|version| version.looks.is_some()) {
        let wanted = Then::Version(version.since);
        let Found::Restored(_) = restore(&ada, "a", wanted, Some("copy")).await else { panic!() };
        ada = party.rejoin(&ada).await;
        assert!(party.tree().contains("copy"));
    }
    for at in 0..told.len() - 1 {
        let before = Some(told[at].since);
        let page = Past::History { path: path("a"), before, versions_max: 1, by: None };
        let Found::History(page) = ask(&ada, page).await else { panic!() };
        assert_eq!((page.versions, page.more), (vec![told[at + 1].clone()], at + 2 < told.len()));
    }
    // One that was moved away and back has been told of once.
    ada.replay(rename_of((ROOT, "a"), (ROOT, "b"), file)).await;
    ada.replay(rename_of((ROOT, "b"), (ROOT, "a"), file)).await;
    assert_eq!(history(&ada, "a").await[2..], told);
    check(&party).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_becomes_the_newest_and_what_it_replaced_stays_one() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let eve = party.join("eve").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    eve.list(ROOT).await;
    let store = ada.storing(file, first, "second").await;
    ada.replay(store).await;
    let before = history(&ada, "a").await;
    let wanted = Then::Version(before[1].since);
    let done = |made, changed, same| {
        Found::Restored(Restored { made, changed, same, directories: Some(0) })
    };
    assert_eq!(restore(&ada, "a", wanted.clone(), None).await, done(0, 1, 0));
    assert_eq!(party.tree(), "a: first");
    assert!(eve.ears.heard.lock().unwrap().iter().any(|notice| !notice.states.is_empty()));
    assert_eq!(restore(&ada, "a", wanted.clone(), None).await, done(0, 0, 1));
    assert_eq!(restore(&ada, "a", wanted, Some("copy")).await, done(1, 0, 0));
    let after = history(&ada, "a").await;
    assert!(after.len() > before.len());
    assert_eq!(after[after.len() - before.len()..], before);
    let again = Then::Version(before[0].since);
    assert_eq!(restore(&ada, "a", again, None).await, done(0, 1, 0));
    assert_eq!(party.tree(), "a: second\ncopy: first");
    let never = Then::Version(Seq(999));
    assert_eq!(restore(&ada, "a", never, None).await, Found::Not(NotFound::NotThen("/a".into())));
    check(&party).await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_tree_comes_back_as_of_a_snapshot_or_a_time() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(ROOT, "docs").await;
    let deep = ada.make_directory(docs, "deep").await;
    let (a, _) = ada.write_new(docs, "a", "first").await;
    let (b, _) = ada.write_new(deep, "b", "below").await;
    ada.replay(model::Change::Link { parent: deep, name: name("a too"), file: a }).await;
    snapshot(&ada, "one").await;
    party.world.clock.sleep(HOUR).await;
    let mut ada = party.rejoin(&ada).await;
    let before = party.tree();
    let births = |party: &Party, top: &str| {
        let paths = ["", "/a", "/deep", "/deep/b", "/deep/a too"];
        let read = party.tables.read().unwrap();
        let view = Whole::now(&*read, party.origin.volumes().unwrap()[0].id);
        let file = |path: &str| crate::tree::find(party, &format!("{top}{path}")).unwrap().1;
        paths.map(|path| view.node(file(path)).unwrap().unwrap().born.unwrap())
    };
    let born = births(&party, "docs");
    for (parent, text, file) in [
        (deep, "b", b),
        (deep, "a too", a),
        (docs, "a", a),
        (docs, "deep", deep),
        (ROOT, "docs", docs),
    ] {
        let mut update = ada.update(unlink_of(parent, text, file));
        update.at = party.world.clock.time();
        let submitted = ada.submit_all(false, vec![update], None).await.unwrap();
        assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "{submitted:?}");
    }
    assert_eq!(party.tree(), "");
    let snapshot = Then::Snapshot("one".into());
    let made = Found::Restored(Restored { made: 3, changed: 0, same: 0, directories: Some(2) });
    assert_eq!(restore(&ada, "docs", snapshot.clone(), None).await, made);
    assert_eq!(party.tree(), before);
    assert_eq!(births(&party, "docs"), born, "what comes back was made when it was made");
    let then = Time { secs: EPOCH_SECS + 1800, nanos: 0 };
    let to = Some("then");
    assert_eq!(restore(&ada, "docs", Then::Time(then), to).await, made);
    assert_eq!(party.tree(), format!("{before}\n{}", before.replace("docs", "then")));
    assert_eq!(births(&party, "then"), born);
    let links = |listing: protocol::Listing| {
        listing.nodes.into_iter().filter_map(|state| state.node).map(|node| node.links).max()
    };
    let listed = ada.list(ROOT).await;
    let then = listed.directories[0].entries.iter().find(|(text, _)| *text == name("then"));
    assert_eq!(links(ada.list(then.unwrap().1).await), Some(3));
    let into_nothing = restore(&ada, "docs", snapshot.clone(), Some("x/y")).await;
    assert_eq!(into_nothing, Found::Not(NotFound::NoDirectory("/x/y".into())));
    let over_a_file = restore(&ada, "docs", snapshot, Some("docs/a")).await;
    assert_eq!(over_a_file, Found::Not(NotFound::OtherKind("/docs/a".into())));
    let long_ago = Then::Time(Time { secs: 5, nanos: 0 });
    assert_eq!(
        restore(&ada, "docs", long_ago, None).await,
        Found::Not(NotFound::NotThen("/docs".into()))
    );
    check(&party).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_pruned_is_not_made_up() {
    let party = forgetful();
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let told = history(&ada, "a").await;
    let store = ada.storing(file, first, "second").await;
    ada.replay(store).await;
    tidy(&party).await;
    let ada = party.rejoin(&ada).await;
    // A longer time does not bring back what is gone.
    party.origin.keep_versions(VOLUME, Some(HOUR * 1000)).unwrap();
    let gone = restore(&ada, "a", Then::Version(told[0].since), None).await;
    assert_eq!(gone, Found::Not(NotFound::NotThen("/a".into())));
    let early = Then::Time(Time { secs: EPOCH_SECS - 1, nanos: 0 });
    assert_eq!(restore(&ada, "a", early, None).await, Found::Not(NotFound::TooEarly));
    assert_eq!(changes(&history(&ada, "a").await), [[Changed::Kept]]);
    assert_eq!(party.tree(), "a: second");
}

#[tokio::test(start_paused = true)]
async fn nobody_but_root_brings_back_what_is_anothers() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let store = ada.storing(file, first, "second").await;
    ada.replay(store).await;
    let then = Then::Version(history(&ada, "a").await[1].since);
    let asked = |uid| Restore {
        path: path("a"),
        then: then.clone(),
        to: None,
        uid,
        gid: uid,
        groups: None,
        over_others: None,
    };
    let by = |uid| Past::Restore(asked(uid));
    let Found::Not(why @ NotFound::NotYours(_)) = ask(&ada, by(5)).await else {
        panic!("it is another's")
    };
    // The directory, which is as much another's.
    let expected = "/ belongs to another user: copy it out of a snapshot, or restore it as root";
    assert_eq!(why.to_string(), expected);
    assert_eq!(party.tree(), "a: second");
    assert!(matches!(ask(&ada, by(0)).await, Found::Restored(_)));
    assert_eq!(party.tree(), "a: first");
}

#[tokio::test(start_paused = true)]
async fn a_large_tree_comes_back_in_pieces_and_goes_on_after_a_crash() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(ROOT, "docs").await;
    let mut files = Vec::new();
    for number in 0..1300 {
        files.push(ada.write_new(docs, &format!("f{number:04}"), &number.to_string()).await.0);
    }
    snapshot(&ada, "one").await;
    let before = party.tree();
    for (number, file) in files.into_iter().enumerate() {
        ada.replay(unlink_of(docs, &format!("f{number:04}"), file)).await;
    }
    let asked = Restore {
        path: path("docs"),
        then: Then::Snapshot("one".into()),
        to: None,
        uid: 0,
        gid: 0,
        groups: None,
        over_others: None,
    };
    // Whoever asks is gone before the last piece.
    let request = Request::Past(Past::Restore(asked.clone()));
    {
        let asking = ada.ask(request);
        tokio::pin!(asking);
        tokio::select! {
            biased;
            _ = &mut asking => panic!("it is too much for one piece"),
            () = tokio::task::yield_now() => {}
        }
    }
    let half = party.tree();
    assert!(half.len() > "docs/".len() && half.len() < before.len());
    let party = party.killed();
    let ada = party.rejoin(&ada).await;
    assert_eq!(party.tree(), half);
    let found = ask(&ada, Past::Restore(asked)).await;
    let Found::Restored(done) = found else { panic!("{found:?}") };
    assert!(done.made > 0 && done.same > 0 && done.made + done.same + done.changed == 1300);
    assert_eq!(party.tree(), before);
    check(&party).await;
}

fn settle(keeper: &mut Keeper) {
    for _ in 0..20 {
        keeper.round().unwrap();
        if keeper.is_settled() {
            return;
        }
    }
    panic!("it does not come to rest");
}

#[tokio::test(start_paused = true)]
async fn what_is_restored_goes_out_into_a_tree_and_snapshots_do_not() {
    let ground = Ground::new(Limits { lease: LEASE, ..Limits::simulated() }, Place::Beside).await;
    let Ground { party, folder, mut keeper, mut ada, .. } = ground;
    let (file, _) = ada.write_new(ROOT, "a", "first").await;
    settle(&mut keeper);
    snapshot(&ada, "one").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    settle(&mut keeper);
    assert!(!folder.path().join("a").exists());
    let then = Then::Snapshot("one".into());
    let asked = Restore {
        path: path("a"),
        then,
        to: None,
        uid: 0,
        gid: 0,
        groups: None,
        over_others: None,
    };
    let found = ask(&ada, Past::Restore(asked)).await;
    assert!(matches!(found, Found::Restored(Restored { made: 1, .. })), "{found:?}");
    settle(&mut keeper);
    assert_eq!(std::fs::read_to_string(folder.path().join("a")).unwrap(), "first");
    assert!(!folder.path().join(".farfs").exists());
    check(&party).await;
}

#[tokio::test(start_paused = true)]
async fn contents_of_a_snapshot_come_as_a_delta_over_what_the_file_is_now() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut bytes = noise(60_000, 1);
    let (file, first) = ada.stored("a", &bytes).await;
    let one = snapshot(&ada, "one").await;
    bytes[30_000] ^= 1;
    let described = ada.describe(&bytes);
    for (_, chunk) in crate::party::all_chunks(&described, &bytes) {
        ada.put(&[&chunk]).await;
    }
    ada.replay(store_of(file, first, described.tree.contents)).await;
    let second = ada.stamp();
    let stretch = protocol::Range { offset: 0, length: 60_000 };
    let recipe = Request::Recipe {
        file: file.in_snapshot(one.number).unwrap(),
        version: Some(first),
        range: stretch,
        eager_bytes: 100_000,
        base: Some(protocol::Base { file, version: second, stretch }),
    };
    let Response::Recipe(fetched) = ada.ask(recipe).await else { panic!() };
    let delta = fetched.delta.unwrap();
    assert!(delta.bytes.len() < 3000, "{} bytes", delta.bytes.len());
    assert_eq!(fetched.version, first);
    assert_ne!(first, Stamp::default());
}

async fn restore_as(device: &Device, what: (&str, Then), to: Option<&str>, uid: u32) -> Found {
    let (text, then) = what;
    let asked = Restore {
        path: path(text),
        then,
        to: to.map(path),
        uid,
        gid: uid,
        groups: Some(vec![uid]),
        over_others: None,
    };
    ask(device, Past::Restore(asked)).await
}

/// What was found against it.
async fn refused(device: &Device, what: (&str, Then), to: Option<&str>, uid: u32) -> String {
    match restore_as(device, what, to, uid).await {
        Found::Not(why) => why.to_string(),
        found => panic!("{found:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_root_takes_nothing_but_the_root_and_of_who_owns_it() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(ROOT, "a", Kind::File);
    let model::Change::Make { parent, name, file: _, kind, mode, gid, target, rdev, born, .. } =
        make
    else {
        panic!()
    };
    let uid = 5;
    let make = model::Change::Make { parent, name, file, kind, mode, uid, gid, target, rdev, born };
    ada.replay(make).await;
    ada.make_directory(ROOT, "docs").await;
    snapshot(&ada, "one").await;
    let then = || Then::Snapshot("one".into());
    let before = node(&ada, ROOT).await;
    let kind = refused(&ada, ("a", then()), Some(""), 0).await;
    assert_eq!(kind, "/ is something of another kind now; say with --to where to restore it");
    let others = refused(&ada, ("a", then()), Some(""), 5).await;
    assert!(others.starts_with("/ belongs to another user"), "{others}");
    assert_eq!(node(&ada, ROOT).await, before);
    let over_root = restore_as(&ada, ("docs", then()), Some(""), 1000).await;
    assert!(matches!(over_root, Found::Restored(_)), "{over_root:?}");
    assert_eq!(node(&ada, ROOT).await.mode, node_named(&ada, "docs").await.mode);
    check(&party).await;
}

async fn node_named(device: &Device, text: &str) -> Node {
    let listed = device.list(ROOT).await;
    let entry = listed.directories[0].entries.iter().find(|(name, _)| *name == self::name(text));
    node(device, entry.unwrap().1).await
}

#[tokio::test(start_paused = true)]
async fn nothing_is_restored_over_the_name_by_which_snapshots_are_found() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.write_new(ROOT, "a", "first").await;
    snapshot(&ada, "one").await;
    for to in [".farfs", ".farfs/new", ".farfs/snapshots/one/new"] {
        let why = refused(&ada, ("a", Then::Snapshot("one".into())), Some(to), 0).await;
        assert!(why.starts_with("it cannot be put there: .farfs is where"), "{to}: {why}");
    }
    assert_eq!(party.tree(), "a: first");
    let docs = ada.make_directory(ROOT, "docs").await;
    let into = restore(&ada, "a", Then::Snapshot("one".into()), Some("docs/.farfs")).await;
    assert!(matches!(into, Found::Restored(_)), "{into:?}: {docs}");
}

#[tokio::test(start_paused = true)]
async fn a_version_from_before_a_rename_is_restored_and_told_a_page_at_a_time() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let store = ada.storing(file, first, "second").await;
    ada.replay(store).await;
    ada.replay(rename_of((ROOT, "a"), (ROOT, "b"), file)).await;
    ada.replay(rename_of((ROOT, "b"), (ROOT, "c"), file)).await;
    let told = history(&ada, "c").await;
    assert!(told.len() >= 5, "{told:?}");
    for at in 1..=told.len() {
        let before = Some(told[at - 1].since);
        let page = Past::History { path: path("c"), before, versions_max: 100, by: None };
        match ask(&ada, page).await {
            Found::History(page) => assert_eq!(page.versions, told[at..], "before {at}"),
            found => panic!("{found:?}"),
        }
    }
    let oldest = told.iter().rfind(|version| version.looks.as_ref().unwrap().size == 5).unwrap();
    let done = restore(&ada, "c", Then::Version(oldest.since), None).await;
    assert!(matches!(done, Found::Restored(_)), "{done:?}");
    assert_eq!(party.tree(), "c: first");
    ada.replay(unlink_of(ROOT, "c", file)).await;
    let removed = Then::Version(history(&ada, "c").await[0].since);
    let why = refused(&ada, ("c", removed), None, 0).await;
    assert_eq!(why, "/c was removed then; `farfs history` lists the versions before");
    let never = refused(&ada, ("c", Then::Version(Seq(u64::MAX))), None, 0).await;
    assert!(never.starts_with("/c was not there then"), "{never}");
}

#[tokio::test(start_paused = true)]
async fn names_of_one_file_are_names_of_one_again_whichever_was_left() {
    for (left, gone) in [("f", "g"), ("g", "f")] {
        let party = Party::new();
        let mut ada = party.join("ada").await;
        let docs = ada.make_directory(ROOT, "docs").await;
        let deep = ada.make_directory(docs, "deep").await;
        let (file, first) = ada.write_new(docs, "f", "one").await;
        for (parent, text) in [(docs, "g"), (deep, "h")] {
            ada.replay(model::Change::Link { parent, name: name(text), file }).await;
        }
        snapshot(&ada, "one").await;
        let before = party.tree();
        ada.replay(unlink_of(docs, gone, file)).await;
        ada.replay(unlink_of(deep, "h", file)).await;
        let store = ada.storing(file, first, "two").await;
        ada.replay(store).await;
        let found = restore_as(&ada, ("docs", Then::Snapshot("one".into())), None, 0).await;
        assert!(matches!(found, Found::Restored(_)), "{found:?}");
        assert_eq!(party.tree(), before);
        assert_eq!(node(&ada, file).await.links, 3, "{left} was left");
        // Elsewhere they are names of another file.
        restore_as(&ada, ("docs", Then::Snapshot("one".into())), Some("other"), 0).await;
        assert_eq!(node(&ada, file).await.links, 3, "{left} was left");
        check(&party).await;
    }
}

/// Something of user 7 and group 7.
async fn make_as(device: &mut Device, at: (FileId, &str), kind: Kind, mode: u16) -> FileId {
    make_of_group(device, at, (kind, mode), 7).await
}

async fn make_of_group(
    device: &mut Device,
    (parent, text): (FileId, &str),
    (kind, mode): (Kind, u16),
    gid: u32,
) -> FileId {
    let (file, name) = (device.fresh_file(), name(text));
    let (uid, target, rdev, born) = (7, None, None, None);
    let change =
        model::Change::Make { parent, name, file, kind, mode, uid, gid, target, rdev, born };
    assert!(matches!(device.replay(change).await, Verdict::Taken(_)));
    file
}

/// A list by which user 7 gets nothing, whom others are.
fn barring(mask: u16) -> Vec<u8> {
    let entries = [
        (1_u16, 7_u16, u32::MAX),
        (2, 0, 7),
        (4, 7, u32::MAX),
        (0x10, mask, u32::MAX),
        (0x20, 7, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

async fn set_xattr(device: &mut Device, file: FileId, name: &[u8], value: Vec<u8>) {
    let (name, value) = (name.to_vec().into(), value.into());
    let set = model::Change::SetXattr { file, name, value, expects: None };
    assert!(matches!(device.replay(set).await, Verdict::Taken(_)));
}

async fn set_mode(device: &mut Device, file: FileId, mode: u16) {
    let expects = node(device, file).await.attributes_stamp;
    assert!(matches!(device.replay(mode_of(file, expects, mode)).await, Verdict::Taken(_)));
}

#[tokio::test(start_paused = true)]
async fn what_is_of_another_kind_is_replaced_only_if_that_is_wanted_and_no_directory_ever() {
    let kinds = [Kind::File, Kind::Fifo, Kind::Socket, Kind::Directory];
    for (then, now) in kinds.into_iter().flat_map(|one| kinds.map(|other| (one, other))) {
        if then == now {
            continue;
        }
        let party = Party::new();
        let mut ada = party.join("ada").await;
        let was = make_as(&mut ada, (ROOT, "a"), then, 0o640).await;
        snapshot(&ada, "one").await;
        ada.replay(unlink_of(ROOT, "a", was)).await;
        make_as(&mut ada, (ROOT, "a"), now, 0o600).await;
        let asked = |over_others| Restore {
            path: path("a"),
            then: Then::Snapshot("one".into()),
            to: None,
            uid: 0,
            gid: 0,
            groups: None,
            over_others,
        };
        let refused = Found::Not(NotFound::OtherKind("/a".into()));
        for over_others in [None, Some(false)] {
            assert_eq!(ask(&ada, Past::Restore(asked(over_others))).await, refused);
        }
        let found = ask(&ada, Past::Restore(asked(Some(true)))).await;
        if [then, now].contains(&Kind::Directory) {
            assert_eq!(found, refused, "{then:?} over {now:?}");
            continue;
        }
        assert!(matches!(found, Found::Restored(Restored { made: 1, .. })), "{found:?}");
        let newest = history(&ada, "a").await.remove(0);
        let looks = newest.looks.unwrap();
        assert_eq!((looks.kind, looks.mode), (then, 0o640), "{then:?} over {now:?}");
        check(&party).await;
    }
}

async fn history_as(device: &Device, text: &str, uid: u32, groups: &[u32]) -> Found {
    let by = Some(By { uid, gid: uid, groups: Some(groups.to_vec()) });
    ask(device, Past::History { path: path(text), before: None, versions_max: 100, by }).await
}

#[tokio::test(start_paused = true)]
async fn nothing_is_restored_to_where_a_user_may_not_go_and_nothing_told_of_it() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let shut = ada.make_directory(ROOT, "shut").await;
    let open = make_as(&mut ada, (shut, "open"), Kind::Directory, 0o777).await;
    make_as(&mut ada, (open, "a"), Kind::File, 0o644).await;
    let listed = ada.make_directory(ROOT, "listed").await;
    make_as(&mut ada, (listed, "a"), Kind::File, 0o644).await;
    for directory in [shut, listed] {
        set_mode(&mut ada, directory, 0o777).await;
    }
    snapshot(&ada, "one").await;
    let then = || Then::Snapshot("one".into());
    let free = restore_as(&ada, ("listed/a", then()), Some("listed/free"), 7).await;
    assert!(matches!(free, Found::Restored(_)), "{free:?}");
    set_xattr(&mut ada, listed, ACL_ACCESS, barring(7)).await;
    set_mode(&mut ada, shut, 0o700).await;
    for (text, directory) in [("shut/open/a", "/shut"), ("listed/a", "/listed")] {
        let why = refused(&ada, (text, then()), None, 7).await;
        assert!(why.starts_with(&format!("{directory} belongs to another user")), "{why}");
        let hidden = Found::Not(NotFound::Hidden(directory.into()));
        assert_eq!(history_as(&ada, text, 7, &[7]).await, hidden);
        for uid in [0, 1000] {
            let told = history_as(&ada, text, uid, &[]).await;
            assert!(matches!(told, Found::History(_)), "{told:?}");
        }
    }
    // What the group's bits say is the mask's.
    set_xattr(&mut ada, listed, ACL_ACCESS, barring(5)).await;
    let found = ask(&ada, restoring(("listed/a", then()), "listed/more", (8, 1000))).await;
    assert!(matches!(found, Found::Not(NotFound::NotYours(_))), "{found:?}");
    // By a group that is told of.
    set_mode(&mut ada, shut, 0o750).await;
    assert!(matches!(history_as(&ada, "shut/open/a", 7, &[1000]).await, Found::History(_)));
    // It is as it was last, too, when it is removed.
    set_mode(&mut ada, shut, 0o700).await;
    let why = refused(&ada, ("shut/open/a", then()), Some("mine"), 7).await;
    assert!(why.contains("belongs to another user"), "{why}");
    check(&party).await;
}

fn restoring((text, then): (&str, Then), to: &str, (uid, gid): (u32, u32)) -> Past {
    let to = Some(path(to));
    Past::Restore(Restore {
        path: path(text),
        then,
        to,
        uid,
        gid,
        groups: Some(Vec::new()),
        over_others: None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_user_gets_no_group_and_no_bits_back_that_he_could_not_set() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let home = make_as(&mut ada, (ROOT, "home"), Kind::Directory, 0o755).await;
    let program = make_of_group(&mut ada, (home, "program"), (Kind::File, 0o6755), 50).await;
    make_of_group(&mut ada, (home, "shared"), (Kind::Directory, 0o2775), 50).await;
    set_xattr(&mut ada, program, CAPABILITY, b"all".to_vec()).await;
    set_xattr(&mut ada, program, b"user.note", b"kept".to_vec()).await;
    snapshot(&ada, "one").await;
    let then = || Then::Snapshot("one".into());
    ada.replay(unlink_of(home, "program", program)).await;
    set_mode(&mut ada, ROOT, 0o777).await;
    let restored = async |uid: u32, to: &str| {
        let (what, to) = (("home", then()), Some(to));
        let found = restore_as(&ada, what, to, uid).await;
        assert!(matches!(found, Found::Restored(_)), "{found:?}");
    };
    restored(7, "his").await;
    restored(0, "root's").await;
    let looks = async |text: &str| {
        let file = crate::tree::find(&party, text).unwrap().1;
        let node = node(&ada, file).await;
        let xattrs = node.xattrs.clone().unwrap_or_default().len();
        (node.gid, node.mode, xattrs)
    };
    assert_eq!(looks("his/program").await, (7, 0o755, 1));
    assert_eq!(looks("his/shared").await, (7, 0o775, 0));
    assert_eq!(looks("root's/program").await, (50, 0o6755, 2));
    assert_eq!(looks("root's/shared").await, (50, 0o2775, 0));
    restored(7, "root's").await;
    assert_eq!(looks("root's/program").await, (50, 0o6755, 2), "it was so");
    check(&party).await;
}
