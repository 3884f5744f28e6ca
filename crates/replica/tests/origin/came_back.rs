//! Files that somebody removed and that came back by a name that another device gave them: what they
//! held is kept while the removal grows old, and no longer than anything else.

use crate::party::{Device, LEASE, Party, name, rename_of, unlink_of};
use model::{Change, FileId, Stamp};
use protocol::past::{Changed, Found, Past, Version};
use protocol::{Range, Refusal, Request, Response, Verdict};
use replica::{Limits, Repair, Wish};
use std::time::Duration;

const ROOT: FileId = FileId::ROOT;
const HOUR: Duration = Duration::from_secs(3600);
const RETENTION: Duration = Duration::from_secs(10 * 3600);

struct Scene {
    party: Party,
    ada: Device,
    bob: Device,
    file: FileId,
    first: Stamp,
    /// Conflicts so far.
    told: u64,
}

/// Ada's file `a`, which she removed an hour ago; and Bob, who has not heard of it.
async fn removed() -> Scene {
    let limits = Limits {
        lease: LEASE,
        versions_kept: RETENTION,
        names_kept: RETENTION,
        trash_bytes_min: 0,
        trash_percent: 0,
        trash_kept: HOUR,
        promise: HOUR,
        ..Limits::simulated()
    };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    let (file, first) = ada.write_new(ROOT, "a", "first").await;
    let bob = party.join("bob").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    let mut scene = Scene { party, ada, bob, file, first, told: 0 };
    scene.hours(1).await;
    scene
}

impl Scene {
    /// Hours pass, and what is due is tidied.
    async fn hours(&mut self, hours: u64) {
        for _ in 0..hours {
            self.party.world.clock.sleep(HOUR).await;
            self.party.origin.collect(Wish::default()).await.unwrap();
        }
        let checked = self.party.origin.check(Repair::No).await.unwrap();
        assert_eq!(checked.problems, []);
        self.ada = self.party.rejoin(&self.ada).await;
        self.bob = self.party.rejoin(&self.bob).await;
    }

    /// Bob's change brings the file back, and the conflict that tells of it is settled: nothing is
    /// held because of it.
    async fn comes_back(&mut self, change: Change) {
        let back = self.bob.replay(change).await;
        assert!(matches!(back, Verdict::Taken(_)), "{back:?}");
        assert_eq!(self.party.conflicts().len(), 1);
        self.told += 1;
        let settled =
            ask(&self.ada, Past::Settle { number: self.told, token: None, by: None }).await;
        assert_eq!(settled, Found::Settled(self.told));
    }

    async fn text(&self, version: Stamp) -> Result<String, Refusal> {
        let (file, range) = (self.file, Range { offset: 0, length: 1 });
        let version = Some(version);
        let recipe = Request::Recipe { file, version, range, eager_bytes: 1000, base: None };
        match self.ada.ask(recipe).await {
            Response::Recipe(fetched) => {
                let chunks = chunks::unpack(&fetched.bytes.unwrap(), 1000).unwrap();
                Ok(String::from_utf8(chunks.concat()).unwrap())
            }
            Response::Refused(refusal) => Err(refusal),
            response => panic!("{response:?}"),
        }
    }

    async fn history(&self, text: &str) -> Vec<Version> {
        let path = vec![name(text)];
        let past = Past::History { path, before: None, versions_max: 100, by: None };
        match ask(&self.ada, past).await {
            Found::History(history) => history.versions,
            found => panic!("{found:?}"),
        }
    }

    fn chunks(&self) -> usize {
        self.party.blobs.list(&[], 10).unwrap().len()
    }
}

async fn ask(device: &Device, past: Past) -> Found {
    match device.ask(Request::Past(past)).await {
        Response::Past(found) => found,
        response => panic!("{response:?}"),
    }
}

fn readable(versions: &[Version]) -> Vec<(Vec<Changed>, bool)> {
    let is_kept = |version: &Version| version.looks.as_ref().is_some_and(|looks| !looks.pruned);
    versions.iter().map(|version| (version.changes.clone(), is_kept(version))).collect()
}

#[tokio::test(start_paused = true)]
async fn what_came_back_is_kept_while_its_removal_grows_old() {
    let mut scene = removed().await;
    scene.comes_back(rename_of((ROOT, "a"), (ROOT, "b"), scene.file)).await;
    for _ in 0..20 {
        scene.hours(1).await;
        assert_eq!(scene.party.tree(), "b: first");
        assert_eq!(scene.chunks(), 1);
    }
    scene.ada.replay(unlink_of(ROOT, "b", scene.file)).await;
    scene.hours(14).await;
    assert_eq!(scene.chunks(), 0, "removed for good, it goes when that is old");
}

#[tokio::test(start_paused = true)]
async fn what_came_back_and_was_replaced_is_a_version_for_as_long_as_any() {
    let mut scene = removed().await;
    let (file, first) = (scene.file, scene.first);
    scene.comes_back(Change::Link { parent: ROOT, name: name("b"), file }).await;
    scene.hours(5).await;
    let store = scene.bob.storing(file, first, "second").await;
    assert!(matches!(scene.bob.replay(store).await, Verdict::Taken(_)));
    // The removal is as old as versions get, and what was there between it and the store is not.
    scene.hours(8).await;
    assert_eq!(scene.party.tree(), "b: second");
    assert_eq!(scene.text(first).await, Ok("first".into()));
    let versions = [(vec![Changed::Contents], true), (vec![Changed::Made], true)];
    assert_eq!(readable(&scene.history("b").await), versions);
    scene.hours(6).await;
    assert_eq!(scene.text(first).await, Err(Refusal::NoVersion(file, first)));
    assert_eq!(scene.party.tree(), "b: second");
    assert_eq!(scene.chunks(), 1, "nothing is kept for ever");
}

#[tokio::test(start_paused = true)]
async fn what_came_back_twice_is_kept_and_so_it_is_with_a_snapshot_of_when_it_was_away() {
    let mut scene = removed().await;
    let file = scene.file;
    let snapshot = Past::Snapshot { name: "away".into(), uid: 7, token: 1 };
    assert!(matches!(ask(&scene.ada, snapshot).await, Found::Snapshot(_)));
    scene.comes_back(rename_of((ROOT, "a"), (ROOT, "b"), file)).await;
    scene.hours(3).await;
    scene.ada.replay(unlink_of(ROOT, "b", file)).await;
    scene.hours(2).await;
    scene.comes_back(rename_of((ROOT, "b"), (ROOT, "c"), file)).await;
    for _ in 0..20 {
        scene.hours(1).await;
        assert_eq!(scene.party.tree(), "c: first");
        assert_eq!(scene.chunks(), 1);
    }
}
