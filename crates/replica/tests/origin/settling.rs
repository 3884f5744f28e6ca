//! Who sees to a conflict: claimed before anything is changed, and taken back afterwards.

use crate::party::{Device, Party, mode_of, name, rename_over, unlink_of};
use model::{Change, FileId, Kind, Name, Seq, Stamp};
use protocol::past::{
    By, CLAIM_SECS, Claim, Clash, ConflictInfo, Conflicts, Found, NotFound, Past, Restore, STAGED,
    SettledInfo, Then,
};
use protocol::{Request, Response};
use std::time::Duration;

const ROOT: FileId = FileId::ROOT;

/// Bob's contents lie beside ada's, which have the name.
struct Scene {
    party: Party,
    ada: Device,
    bob: Device,
    file: FileId,
}

impl Scene {
    async fn new() -> Scene {
        let party = Party::new();
        let mut ada = party.join("ada").await;
        let (file, base) = ada.write_new(ROOT, "a", "base").await;
        let mut bob = party.join("bob").await;
        let store = ada.storing(file, base, "ada's").await;
        ada.replay(store).await;
        let store = bob.storing(file, base, "bob's").await;
        bob.replay(store).await;
        Scene { party, ada, bob, file }
    }

    async fn listed(&self) -> Vec<ConflictInfo> {
        match ask(&self.ada, Past::Conflicts { after: 0, conflicts_max: 10, by: None }).await {
            Found::Conflicts(told) => told.conflicts,
            found => panic!("{found:?}"),
        }
    }

    async fn settled(&self) -> Vec<SettledInfo> {
        match ask(&self.ada, Past::Settled { after: 0, conflicts_max: 10, by: None }).await {
            Found::SettledConflicts(told) => told.conflicts,
            found => panic!("{found:?}"),
        }
    }

    /// The file beside, and its name.
    async fn aside(&self) -> (FileId, String) {
        let aside = self.listed().await.remove(0).aside.unwrap().remove(0).to_string();
        let conflict = self.party.origin.conflicts("v", 1).unwrap().remove(0);
        (conflict.aside.unwrap().0, aside)
    }
}

async fn ask(device: &Device, past: Past) -> Found {
    match device.ask(Request::Past(past)).await {
        Response::Past(found) => found,
        response => panic!("{response:?}"),
    }
}

async fn claim(device: &Device, token: u64, holds: bool, seen: Option<Stamp>) -> Found {
    ask(device, Past::Claim(Claim { number: 1, token, holds, seen, by: None })).await
}

async fn settle(device: &Device, token: Option<u64>) -> Found {
    ask(device, Past::Settle { number: 1, token, by: None }).await
}

async fn restore(device: &Device, path: Vec<Name>, then: Seq, to: Option<Vec<Name>>) {
    let then = Then::Version(then);
    let restore = Restore { path, then, to, uid: 0, gid: 0, groups: None, over_others: None };
    let found = ask(device, Past::Restore(restore)).await;
    assert!(matches!(found, Found::Restored(_)), "{found:?}");
}

fn staged() -> String {
    format!("{STAGED}1")
}

/// What is merged comes to the server: the file, and the version that it is there.
async fn stage(device: &mut Device, says: &str) -> (FileId, Seq) {
    let (file, _) = device.write_new(ROOT, &staged(), says).await;
    let (path, by) = (vec![name(&staged())], None);
    let history = Past::History { path, before: None, versions_max: 1, by };
    let Found::History(history) = ask(device, history).await else { panic!() };
    (file, history.versions[0].since)
}

async fn listed_number(device: &Device) -> Option<u64> {
    match device.ask(Request::Renew { seen: device.seen() }).await {
        Response::Renewed { conflicts, .. } => conflicts,
        response => panic!("{response:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_who_see_to_a_conflict_the_second_is_told_before_anything_is_changed() {
    let scene = Scene::new().await;
    let Scene { ada, bob, .. } = &scene;
    assert_eq!(claim(ada, 1, true, None).await, Found::Claimed(1));
    assert_eq!(claim(ada, 1, true, None).await, Found::Claimed(1), "the answer may be lost");
    let taken = Found::Not(NotFound::Claimed(1, "ada".into(), CLAIM_SECS));
    assert_eq!(claim(bob, 2, true, None).await, taken);
    assert_eq!(settle(bob, None).await, taken);
    assert_eq!(scene.listed().await[0].claimed_by.as_deref(), Some("ada"), "it is listed still");
    // What does not come about is given back; who dies keeps it for a while.
    assert_eq!(claim(ada, 1, false, None).await, Found::Claimed(1));
    assert_eq!(claim(bob, 2, true, None).await, Found::Claimed(1));
    scene.party.world.clock.sleep(Duration::from_secs(CLAIM_SECS)).await;
    assert_eq!(scene.listed().await[0].claimed_by, None);
    assert_eq!(claim(ada, 1, true, None).await, Found::Claimed(1));
    assert_eq!(settle(ada, Some(1)).await, Found::Settled(1));
    assert_eq!(settle(ada, Some(1)).await, Found::Settled(1), "the answer may be lost");
    assert_eq!(scene.settled().await[0].conflict.claimed_by, None);
    let gone = Found::Not(NotFound::NoConflict(1));
    assert_eq!((claim(bob, 2, true, None).await, settle(bob, Some(2)).await), (gone.clone(), gone));
    assert!(scene.listed().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_has_not_seen_what_has_the_name_now_gets_no_claim() {
    let mut scene = Scene::new().await;
    let seen = scene.ada.stamp();
    let store = scene.ada.storing(scene.file, seen, "later").await;
    scene.ada.replay(store).await;
    let changed = Found::Not(NotFound::ChangedSince(1));
    assert_eq!(claim(&scene.bob, 1, true, Some(seen)).await, changed);
    assert_eq!(scene.listed().await[0].claimed_by, None);
    let now = scene.ada.stamp();
    let listed = scene.listed().await.remove(0);
    assert_eq!((listed.found, listed.now), (Some(seen), Some(now)));
    assert_eq!(claim(&scene.bob, 1, true, Some(now)).await, Found::Claimed(1));
}

#[tokio::test(start_paused = true)]
async fn what_was_replaced_is_had_back_and_listed_anew() {
    let mut scene = Scene::new().await;
    let tree = scene.party.tree();
    let before = scene.listed().await.remove(0);
    let (mine, aside) = scene.aside().await;
    claim(&scene.ada, 1, true, None).await;
    scene.ada.replay(rename_over((ROOT, &aside), (ROOT, "a"), mine, Some(scene.file))).await;
    settle(&scene.ada, Some(1)).await;
    assert_eq!(scene.party.tree(), "a: bob's");
    let settled = scene.settled().await.remove(0);
    assert_eq!((settled.left, settled.conflict.now), (Some(scene.bob.stamp()), settled.left));
    assert_eq!(settled.conflict.aside, before.aside, "by the name that it had");
    for path in [settled.conflict.path, settled.conflict.aside] {
        restore(&scene.bob, path.unwrap(), settled.before, None).await;
    }
    assert_eq!(ask(&scene.bob, Past::Reopen { number: 1, by: None }).await, Found::Reopened(1));
    assert_eq!(scene.party.tree(), tree);
    let again = scene.listed().await.remove(0);
    assert_eq!((&again.path, &again.aside), (&before.path, &before.aside));
    assert_eq!((again.base, again.base_since), (before.base, before.base_since));
    let again = Found::Reopened(1);
    assert_eq!(
        ask(&scene.bob, Past::Reopen { number: 1, by: None }).await,
        again,
        "the answer may be lost"
    );
    let none = Found::Not(NotFound::NotSettled(2));
    assert_eq!(ask(&scene.bob, Past::Reopen { number: 2, by: None }).await, none);
    assert_eq!(settle(&scene.ada, None).await, Found::Settled(1));
}

/// What a claim that nothing came of was there for.
#[tokio::test(start_paused = true)]
async fn what_was_stored_since_an_earlier_claim_is_not_taken_back_with_what_was_done() {
    for (beside, after) in [(false, 1), (false, CLAIM_SECS), (true, 1), (true, CLAIM_SECS)] {
        let mut scene = Scene::new().await;
        let (mine, aside) = scene.aside().await;
        claim(&scene.ada, 1, true, None).await;
        scene.party.world.clock.sleep(Duration::from_secs(after)).await;
        let (file, seen) = match beside {
            true => (mine, scene.bob.stamp()),
            false => (scene.file, scene.ada.stamp()),
        };
        let store = scene.bob.storing(file, seen, "later").await;
        scene.bob.replay(store).await;
        let tree = scene.party.tree();
        claim(&scene.ada, 1, true, None).await;
        scene.ada.replay(unlink_of(ROOT, &aside, mine)).await;
        settle(&scene.ada, Some(1)).await;
        let settled = scene.settled().await.remove(0);
        for path in [settled.conflict.path, settled.conflict.aside] {
            restore(&scene.ada, path.unwrap(), settled.before, None).await;
        }
        assert_eq!(scene.party.tree(), tree);
    }
}

#[tokio::test(start_paused = true)]
async fn all_that_was_done_under_earlier_claims_is_taken_back_however_late_the_last_word_comes() {
    for is_merged in [false, true] {
        let mut scene = Scene::new().await;
        let (tree, (mine, aside)) = (scene.party.tree(), scene.aside().await);
        claim(&scene.ada, 1, true, None).await;
        if is_merged {
            let (file, then) = stage(&mut scene.ada, "both").await;
            restore(&scene.ada, vec![name(&staged())], then, Some(vec![name("a")])).await;
            scene.ada.replay(unlink_of(ROOT, &staged(), file)).await;
            scene.ada.replay(unlink_of(ROOT, &aside, mine)).await;
        } else {
            let over = rename_over((ROOT, &aside), (ROOT, "a"), mine, Some(scene.file));
            scene.ada.replay(over).await;
        }
        scene.party.world.clock.sleep(Duration::from_secs(2 * CLAIM_SECS)).await;
        claim(&scene.ada, 1, true, None).await;
        settle(&scene.ada, Some(1)).await;
        let settled = scene.settled().await.remove(0);
        assert!(settled.left.is_some_and(|left| Some(left) != settled.conflict.found));
        for path in [settled.conflict.path, settled.conflict.aside] {
            restore(&scene.ada, path.unwrap(), settled.before, None).await;
        }
        assert_eq!(scene.party.tree(), tree);
    }
}

/// What lies beside is changed while that is on its way.
#[tokio::test(start_paused = true)]
async fn what_was_staged_before_the_claim_was_renewed_is_known_when_it_is_the_newest() {
    let mut scene = Scene::new().await;
    let (mine, aside) = scene.aside().await;
    claim(&scene.ada, 1, true, None).await;
    let (file, then) = stage(&mut scene.ada, "both").await;
    let store = scene.bob.storing(mine, scene.bob.stamp(), "later").await;
    scene.bob.replay(store).await;
    claim(&scene.ada, 1, true, None).await;
    restore(&scene.ada, vec![name(&staged())], then, Some(vec![name("a")])).await;
    scene.ada.replay(unlink_of(ROOT, &staged(), file)).await;
    scene.ada.replay(unlink_of(ROOT, &aside, mine)).await;
    settle(&scene.ada, Some(1)).await;
    let settled = scene.settled().await.remove(0);
    assert_ne!(settled.left, settled.conflict.found, "it is what was merged");
    for path in [settled.conflict.path, settled.conflict.aside] {
        restore(&scene.ada, path.unwrap(), settled.before, None).await;
    }
    assert_eq!(scene.party.tree(), format!("a: ada's\n{aside}: later"));
}

/// Whoever takes it back is asked, by what counts as left.
#[tokio::test(start_paused = true)]
async fn what_was_stored_between_the_claim_and_the_last_word_is_not_taken_for_what_was_left() {
    for is_done_again in [false, true] {
        let mut scene = Scene::new().await;
        let (tree, (mine, aside)) = (scene.party.tree(), scene.aside().await);
        let seen = scene.ada.stamp();
        claim(&scene.ada, 1, true, None).await;
        scene.ada.replay(unlink_of(ROOT, &aside, mine)).await;
        let store = scene.bob.storing(scene.file, seen, "later").await;
        scene.bob.replay(store).await;
        if is_done_again {
            claim(&scene.ada, 1, true, None).await;
        }
        settle(&scene.ada, Some(1)).await;
        let settled = scene.settled().await.remove(0);
        assert_eq!(settled.left, Some(seen));
        for path in [settled.conflict.path, settled.conflict.aside] {
            restore(&scene.ada, path.unwrap(), settled.before, None).await;
        }
        assert_eq!(scene.party.tree(), tree);
    }
}

#[tokio::test(start_paused = true)]
async fn no_number_is_given_twice_and_what_is_listed_is_counted() {
    let mut scene = Scene::new().await;
    assert_eq!(listed_number(&scene.ada).await, Some(1));
    settle(&scene.ada, None).await;
    assert_eq!(listed_number(&scene.ada).await, Some(0));
    for says in ["one", "two"] {
        let store = scene.bob.storing(scene.file, Stamp::default(), says).await;
        scene.bob.replay(store).await;
    }
    let numbers: Vec<u64> = scene.listed().await.iter().map(|one| one.number).collect();
    assert_eq!((numbers, listed_number(&scene.bob).await), (vec![2, 3], Some(2)));
    let after = scene.party.killed();
    let ada = after.rejoin(&scene.ada).await;
    assert_eq!(ada.attached.conflicts, Some(2));
    assert_eq!(ask(&ada, Past::Reopen { number: 1, by: None }).await, Found::Reopened(1));
    assert_eq!(listed_number(&ada).await, Some(3));
}

/// One conflict lies where everybody may look, and one where only its owner may.
#[tokio::test(start_paused = true)]
async fn of_a_conflict_where_a_user_may_not_search_nothing_is_told_and_nothing_done() {
    let mut scene = Scene::new().await;
    let shut = scene.ada.make_directory(ROOT, "shut").await;
    let (file, base) = scene.ada.write_new(shut, "a", "base").await;
    for device in [&mut scene.ada, &mut scene.bob] {
        let says = device.attached.replica.0.to_string();
        let store = device.storing(file, base, &says).await;
        device.replay(store).await;
    }
    let expects = scene.ada.node(shut).await.unwrap().attributes_stamp;
    scene.ada.replay(mode_of(shut, expects, 0o700)).await;
    let tree = scene.party.tree();
    let by = |uid| Some(By { uid, gid: 7, groups: Some(Vec::new()) });
    let numbers = |told: &Conflicts| -> (Vec<u64>, Vec<(u64, String)>) {
        let hidden = told.hidden.iter().flatten();
        let hidden = hidden.map(|one| (one.number, one.directory.clone()));
        (told.conflicts.iter().map(|one| one.number).collect(), hidden.collect())
    };
    let there = vec![(2, "/shut".to_owned())];
    for (uid, after, expected) in [
        (0, 0, (vec![1, 2], Vec::new())),
        (1000, 0, (vec![1, 2], Vec::new())),
        (7, 0, (vec![1], there.clone())),
        (7, 1, (Vec::new(), there.clone())),
    ] {
        let asked = Past::Conflicts { after, conflicts_max: 10, by: by(uid) };
        let Found::Conflicts(told) = ask(&scene.bob, asked).await else { panic!() };
        assert_eq!(numbers(&told), expected, "{uid}");
    }
    let hidden = Found::Not(NotFound::Hidden("/shut".into()));
    let (number, token, seen, his) = (2, 1, None, by(7));
    for asked in [
        Past::Claim(Claim { number, token, holds: true, seen, by: his.clone() }),
        Past::Settle { number, token: None, by: his.clone() },
        Past::Base { number, offset: 0, uid: 7, gid: 7, groups: Some(Vec::new()) },
    ] {
        assert_eq!(ask(&scene.bob, asked.clone()).await, hidden, "{asked:?}");
    }
    let base = Past::Base { number, offset: 0, uid: 1000, gid: 7, groups: None };
    assert_eq!(ask(&scene.bob, base).await, Found::Base(b"base".to_vec().into()));
    assert_eq!((scene.party.tree(), scene.listed().await.len()), (tree, 2));
    // Seen to by who may, it is not listed anew by who may not.
    let settle = Past::Settle { number, token: None, by: by(1000) };
    assert_eq!(ask(&scene.bob, settle).await, Found::Settled(2));
    assert_eq!(ask(&scene.bob, Past::Reopen { number, by: his.clone() }).await, hidden);
    let settled = Past::Settled { after: 0, conflicts_max: 10, by: his };
    let Found::SettledConflicts(told) = ask(&scene.bob, settled).await else { panic!() };
    assert_eq!((told.conflicts.len(), told.hidden.unwrap().len()), (0, 1));
    let reopen = Past::Reopen { number, by: by(1000) };
    assert_eq!(ask(&scene.bob, reopen).await, Found::Reopened(2));
    // Removed, the directory counts as it was last.
    let aside = scene.listed().await.remove(1).aside.unwrap();
    let conflict = scene.party.origin.conflicts("v", 2).unwrap().remove(1);
    let beside = aside.last().unwrap().to_string();
    scene.ada.replay(unlink_of(shut, "a", file)).await;
    scene.ada.replay(unlink_of(shut, &beside, conflict.aside.unwrap().0)).await;
    scene.ada.replay(unlink_of(ROOT, "shut", shut)).await;
    assert_eq!(scene.listed().await.len(), 2);
    let asked = Past::Conflicts { after: 1, conflicts_max: 10, by: by(7) };
    let Found::Conflicts(told) = ask(&scene.bob, asked).await else { panic!() };
    assert!(told.conflicts.is_empty() && told.hidden.is_some(), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn the_base_is_read_by_who_may_read_the_file_and_by_nobody_else() {
    let mut scene = Scene::new().await;
    let base = |offset, uid| Past::Base { number: 1, offset, uid, gid: 7, groups: None };
    let read = |bytes: &[u8]| Found::Base(bytes.to_vec().into());
    assert_eq!(ask(&scene.ada, base(0, 1000)).await, read(b"base"));
    assert_eq!(ask(&scene.ada, base(2, 1000)).await, read(b"se"));
    assert_eq!(ask(&scene.ada, base(4, 1000)).await, read(b""));
    assert_eq!(ask(&scene.ada, base(0, 7)).await, read(b"base"), "its mode lets everybody");
    let looks = scene.listed().await.remove(0).base_looks.unwrap();
    assert_eq!((looks.size, looks.pruned), (4, false));
    assert_eq!(scene.party.tree().lines().count(), 2, "and has no name in the tree");
    // One that nobody else may read.
    let (file, mut make) = scene.ada.making(ROOT, "b", Kind::File);
    if let Change::Make { mode, .. } = &mut make {
        *mode = 0o600;
    }
    scene.ada.replay(make).await;
    let first = scene.ada.stamp();
    let store = scene.ada.storing(file, first, "secret").await;
    scene.ada.replay(store).await;
    let base_stamp = scene.ada.stamp();
    for device in [&mut scene.ada, &mut scene.bob] {
        let says = device.attached.replica.0.to_string();
        let store = device.storing(file, base_stamp, &says).await;
        device.replay(store).await;
    }
    let base = |uid| Past::Base { number: 2, offset: 0, uid, gid: 7, groups: None };
    assert_eq!(ask(&scene.ada, base(1000)).await, read(b"secret"));
    assert_eq!(ask(&scene.ada, base(0)).await, read(b"secret"));
    assert_eq!(ask(&scene.ada, base(7)).await, Found::Not(NotFound::NotYours("b".into())));
    scene.ada.replay(unlink_of(ROOT, "b", file)).await;
    assert_eq!(ask(&scene.ada, base(1000)).await, read(b"secret"), "as long as it is listed");
}

#[tokio::test(start_paused = true)]
async fn what_lies_beside_is_told_by_the_name_that_it_was_given_and_else_by_where_it_is() {
    let mut scene = Scene::new().await;
    let before = scene.listed().await.remove(0);
    let (mine, aside) = scene.aside().await;
    // With another name, by which alone it might be told.
    let link = Change::Link { parent: ROOT, name: name("0"), file: mine };
    scene.ada.replay(link).await;
    assert_eq!(scene.listed().await[0].aside, before.aside);
    scene.ada.replay(unlink_of(ROOT, "0", mine)).await;
    // Each has the other's place: two lie there still.
    let mut swap = rename_over((ROOT, &aside), (ROOT, "a"), mine, Some(scene.file));
    if let Change::Rename { exchange, .. } = &mut swap {
        *exchange = true;
    }
    for _ in 0..2 {
        scene.ada.replay(swap.clone()).await;
        let told = scene.listed().await.remove(0);
        assert_eq!((&told.path, &told.aside), (&before.path, &before.aside));
        if let Change::Rename { file, over, .. } = &mut swap {
            (*file, *over) = (scene.file, Some(mine));
        }
    }
    // Moved over the name by hand it has that, and nothing lies beside.
    scene.ada.replay(rename_over((ROOT, &aside), (ROOT, "a"), mine, Some(scene.file))).await;
    let told = scene.listed().await.remove(0);
    assert_eq!((&told.path, &told.aside), (&before.path, &before.path));
    scene.ada.replay(unlink_of(ROOT, "a", mine)).await;
    assert_eq!(scene.listed().await[0].aside, None);
}

/// It is no removal that the contents met.
#[tokio::test(start_paused = true)]
async fn what_was_stored_into_what_another_replaced_is_told_by_its_name_though_it_is_gone() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(ROOT, "a", "base").await;
    let mut bob = party.join("bob").await;
    let (other, _) = ada.write_new(ROOT, "t", "ada's").await;
    ada.replay(rename_over((ROOT, "t"), (ROOT, "a"), other, Some(file))).await;
    let store = bob.storing(file, base, "bob's").await;
    bob.replay(store).await;
    let scene = Scene { party, ada, bob, file };
    let told = scene.listed().await.remove(0);
    assert_eq!(told.clash, Clash::Removed);
    let (mine, aside) = scene.aside().await;
    let Scene { mut ada, bob, party, .. } = scene;
    ada.replay(unlink_of(ROOT, &aside, mine)).await;
    let scene = Scene { party, ada, bob, file };
    assert_eq!(scene.listed().await.remove(0).aside, told.aside);
}
