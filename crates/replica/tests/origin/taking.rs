//! Updates: in order, exactly once, all or nothing.

use crate::party::{Party, make_of, mode_of, rename_of, rename_over, unlink_of};
use model::{Change, FileId, Kind, Seq, Stamp, Whiteout};
use protocol::{Objection, Refusal, Verdict};

#[tokio::test(start_paused = true)]
async fn updates_get_positions_in_their_order() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut updates = Vec::new();
    for text in ["a", "b", "c"] {
        let (_, make) = ada.making(FileId::ROOT, text, Kind::File);
        updates.push(ada.update(make));
    }
    let submitted = ada.submit_all(false, updates, None).await.unwrap();
    assert_eq!(submitted.verdicts, [1, 2, 3].map(|n| Verdict::Taken(Seq(n))));
    // Three files, three names, and the root.
    assert_eq!((submitted.states.nodes.len(), submitted.states.entries.len()), (4, 3));
    assert!(submitted.states.nodes.iter().all(|state| state.seq == Seq(3)));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_sent_again_is_taken_once_and_gets_the_same_verdicts() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (_, make) = ada.making(FileId::ROOT, "a", Kind::File);
    let (_, again) = ada.making(FileId::ROOT, "a", Kind::Symlink);
    let batch = vec![
        ada.update(make),
        ada.update(mode_of(FileId(u64::MAX / 2), Stamp::default(), 0o600)),
        ada.update(again),
    ];
    let first = ada.submit_all(true, batch.clone(), None).await.unwrap();
    let refused = [Objection::NoEntry, Objection::Invalid].map(Verdict::Refused);
    assert_eq!(first.verdicts[1..], refused, "a link without a target is not valid");
    let second = ada.submit_all(true, batch.clone(), None).await.unwrap();
    assert_eq!(second, first);
    // The answer may be lost with the origin, too.
    let after = party.killed();
    let back = after.rejoin(&ada).await;
    assert_eq!(back.attached.taken, 3);
    let third = back.submit_all(true, batch, None).await.unwrap();
    assert_eq!(third, first);
    assert_eq!(after.tree(), "a: ");
}

#[tokio::test(start_paused = true)]
async fn a_whiteout_is_left_in_the_update_that_moves_a_file_by_who_may_make_it() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut bob = party.join("bob").await;
    let (file, _) = ada.write_new(FileId::ROOT, "a", "text").await;
    let foreign = bob.fresh_file();
    let leaving = |whiteout: FileId, to: &str| {
        let mut change = rename_of((FileId::ROOT, "a"), (FileId::ROOT, to), file);
        if let Change::Rename { whiteout: left, .. } = &mut change {
            *left = Some(Whiteout { file: whiteout, uid: 1, gid: 2 });
        }
        change
    };
    let refused = Verdict::Refused(Objection::Invalid);
    assert_eq!(ada.strict(leaving(foreign, "b")).await, refused, "it is not this device's to make");
    let own = ada.fresh_file();
    assert!(matches!(ada.strict(leaving(own, "b")).await, Verdict::Taken(_)));
    let left = bob.node(own).await.unwrap();
    assert_eq!((left.kind, left.mode, left.rdev), (Kind::CharDevice, 0, Some(0)));
    let entries =
        vec![(FileId::ROOT, crate::party::name("a")), (FileId::ROOT, crate::party::name("b"))];
    let states = bob.inspect(vec![], entries).await;
    let mut files: Vec<_> = states.entries.iter().map(|state| state.file).collect();
    files.sort();
    let mut expected = vec![Some(own), Some(file)];
    expected.sort();
    assert_eq!(files, expected);
}

#[tokio::test(start_paused = true)]
async fn part_of_a_batch_that_is_sent_again_is_new() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (_, one) = ada.making(FileId::ROOT, "one", Kind::File);
    let (_, two) = ada.making(FileId::ROOT, "two", Kind::File);
    let (one, two) = (ada.update(one), ada.update(two));
    ada.submit_all(false, vec![one.clone()], None).await.unwrap();
    let both = ada.submit_all(false, vec![one, two], None).await.unwrap();
    assert_eq!(both.verdicts, [1, 2].map(|n| Verdict::Taken(Seq(n))));
}

#[tokio::test(start_paused = true)]
async fn numbers_that_do_not_grow_and_those_of_others_are_malformed_and_change_nothing() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bob = party.join("bob").await;
    let (_, make) = ada.making(FileId::ROOT, "a", Kind::File);
    let first = ada.update(make);
    let numbered = |stamp| model::Update { stamp, ..first.clone() };
    let own = |number| numbered(Stamp::new(ada.replica, number));
    for bad in [
        vec![numbered(Stamp::new(bob.replica, 1))],
        vec![own(0)],
        vec![own(2), own(1)],
        vec![own(1), own(1)],
    ] {
        let refused = ada.submit_all(false, bad, None).await.unwrap_err();
        assert!(matches!(refused, Refusal::Malformed(_)), "{refused}");
    }
    assert_eq!(party.tree(), "");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_was_passed_over_is_never_taken() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (_, taken_back) = ada.making(FileId::ROOT, "never", Kind::File);
    let (_, make) = ada.making(FileId::ROOT, "a", Kind::File);
    let (taken_back, make) = (ada.update(taken_back), ada.update(make));
    let submitted = ada.submit_all(false, vec![make], None).await.unwrap();
    assert_eq!(submitted.verdicts, [Verdict::Taken(Seq(1))]);
    let submitted = ada.submit_all(false, vec![taken_back], None).await.unwrap();
    assert_eq!(submitted.verdicts, [Verdict::Refused(Objection::Changed)]);
    assert_eq!(party.tree(), "a: ");
}

#[tokio::test(start_paused = true)]
async fn an_update_whose_verdict_was_settled_is_not_taken_again() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (_, one) = ada.making(FileId::ROOT, "one", Kind::File);
    let (_, two) = ada.making(FileId::ROOT, "two", Kind::File);
    let one = ada.update(one);
    ada.submit_all(false, vec![one.clone()], None).await.unwrap();
    ada.settled = 1;
    ada.replay(two).await;
    let submitted = ada.submit_all(false, vec![one], None).await.unwrap();
    assert_eq!(submitted.verdicts, [Verdict::Taken(Seq(2))], "as things are now");
    assert_eq!(party.tree(), "one: \ntwo: ");
}

#[tokio::test(start_paused = true)]
async fn concurrent_submits_are_all_taken() {
    let party = Party::new();
    let mut devices = Vec::new();
    for n in 0..8 {
        let mut device = party.join(&format!("d{n}")).await;
        let (_, make) = device.making(FileId::ROOT, &format!("f{n}"), Kind::File);
        let update = device.update(make);
        devices.push((device, update));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (device, update) in devices {
        tasks.spawn(async move { device.submit_all(true, vec![update], None).await.unwrap() });
    }
    let mut seqs = Vec::new();
    while let Some(submitted) = tasks.join_next().await {
        let Verdict::Taken(seq) = submitted.unwrap().verdicts[0] else { panic!() };
        seqs.push(seq.0);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=8).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_answered_update_outlives_a_power_cut_with_its_contents() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.write_new(FileId::ROOT, "a", "kept").await;
    let after = party.without_power();
    assert_eq!(after.tree(), "a: kept");
}

#[tokio::test(start_paused = true)]
async fn a_strict_update_that_meets_a_change_is_refused_with_the_truth() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut bob = party.join("bob").await;
    let (file, stamp) = ada.write_new(FileId::ROOT, "a", "text").await;
    let (_, make) = bob.making(FileId::ROOT, "a", Kind::Directory);
    assert_eq!(bob.strict(make).await, Verdict::Refused(Objection::Exists));
    let (other, make) = bob.making(FileId::ROOT, "b", Kind::File);
    bob.strict(make).await;
    let taken = bob.strict(rename_of((FileId::ROOT, "b"), (FileId::ROOT, "a"), other)).await;
    assert_eq!(taken, Verdict::Refused(Objection::Exists));
    let gone = bob.strict(unlink_of(FileId::ROOT, "c", file)).await;
    assert_eq!(gone, Verdict::Refused(Objection::NoEntry));
    let chmod = bob.update(mode_of(file, stamp, 0o600));
    let submitted = bob.submit_all(true, vec![chmod], None).await.unwrap();
    assert_eq!(submitted.verdicts, [Verdict::Refused(Objection::Changed)]);
    let node = submitted.states.nodes[0].node.as_ref().unwrap();
    assert_eq!((node.mode, node.attributes_stamp), (0o644, Stamp::new(ada.replica, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_file_is_replaced_by_a_rename_in_one_update() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (old, _) = ada.write_new(FileId::ROOT, "a", "old").await;
    let (new, _) = ada.write_new(FileId::ROOT, "a.tmp", "new").await;
    let rename = rename_over((FileId::ROOT, "a.tmp"), (FileId::ROOT, "a"), new, Some(old));
    assert!(matches!(ada.strict(rename).await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: new");
    assert_eq!(ada.node(old).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_no_file_system_would_do_is_not_valid() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(FileId::ROOT, "a", Kind::File);
    ada.replay(make).await;
    let (_, mut bad_mode) = ada.making(FileId::ROOT, "b", Kind::File);
    if let Change::Make { mode, .. } = &mut bad_mode {
        *mode = 0o100_644;
    }
    let (_, no_target) = ada.making(FileId::ROOT, "b", Kind::Symlink);
    let xattr = |value: usize| Change::SetXattr {
        file,
        name: b"user.x".to_vec().into(),
        value: vec![1; value].into(),
        expects: None,
    };
    for change in [bad_mode, no_target, xattr(70_000)] {
        let verdict = ada.replay(change.clone()).await;
        assert_eq!(verdict, Verdict::Refused(Objection::Invalid), "{change:?}");
    }
    for n in 0..2 {
        let name = format!("user.{n}").into_bytes().into();
        let more = Change::SetXattr { file, name, value: vec![1; 60_000].into(), expects: None };
        assert!(matches!(ada.replay(more).await, Verdict::Taken(_)));
    }
    assert_eq!(ada.replay(xattr(60_000)).await, Verdict::Refused(Objection::NoSpace));
}

#[tokio::test(start_paused = true)]
async fn many_updates_at_once_are_bounded() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let make = make_of(FileId::ROOT, "a", FileId::ROOT, Kind::File);
    let updates = (0..10_001).map(|_| ada.update(make.clone())).collect();
    let refused = ada.submit_all(false, updates, None).await.unwrap_err();
    assert!(matches!(refused, Refusal::Malformed(_)));
}

#[test]
fn on_many_threads_everything_is_taken_once_too() {
    const UPDATES: u64 = 40;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let taken = runtime.block_on(async {
        let party = Party::with(replica::Limits::default());
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..6 {
            let mut device = party.join(&format!("d{n}")).await;
            device.list(FileId::ROOT).await;
            tasks.spawn(async move {
                for k in 0..UPDATES {
                    let (_, make) = device.making(FileId::ROOT, &format!("{n}.{k}"), Kind::File);
                    let verdict = device.strict(make).await;
                    assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
                }
                device
            });
        }
        // Whoever is done stays, or the others would wait for the end of its lease.
        for device in tasks.join_all().await {
            let heard = device.ears.heard.lock().unwrap();
            assert!(heard.windows(2).all(|pair| pair[0].upto < pair[1].upto));
        }
        party.tree().lines().count() as u64
    });
    assert_eq!(taken, 6 * UPDATES);
}
