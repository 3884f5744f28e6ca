//! What meets what, and that nothing of it is lost.

use crate::party::{
    Device, Party, make_of, mode_of, name, rename_of, rename_over, store_of, unlink_of,
};
use model::{Change, Contents, FileId, Kind, Seq, Stamp, Time, Update};
use protocol::{Objection, Verdict};

const ROOT: FileId = FileId::ROOT;
/// The mark of bob's updates in these scenarios.
const MARK: &str = "(conflict of bob 2026-11-21 12.30.05)";

/// Ada and bob, who both know of ada's file.
async fn two_with(party: &Party, file: &str, says: &str) -> (Device, Device, FileId, Stamp) {
    let mut ada = party.join("ada").await;
    let (id, stamp) = ada.write_new(ROOT, file, says).await;
    let bob = party.join("bob").await;
    (ada, bob, id, stamp)
}

fn aside_name(verdict: &Verdict) -> String {
    match verdict {
        Verdict::KeptAside { name, .. } => name.to_string(),
        verdict => panic!("not kept aside: {verdict:?}"),
    }
}

async fn store(device: &mut Device, file: FileId, expects: Stamp, says: &str) -> Verdict {
    let store = device.storing(file, expects, says).await;
    device.replay(store).await
}

#[tokio::test(start_paused = true)]
async fn two_stores_of_one_file_are_both_kept() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "notes.txt", "base").await;
    let born = ada.node(file).await.unwrap().born;
    store(&mut ada, file, base, "ada's").await;
    let verdict = store(&mut bob, file, base, "bob's").await;
    assert_eq!(aside_name(&verdict), format!("notes {MARK}.txt"));
    assert_eq!(party.tree(), format!("notes {MARK}.txt: bob's\nnotes.txt: ada's"));
    let conflict = party.origin.conflicts("v", 10).unwrap().remove(0);
    assert_eq!(conflict.clash, replica::Clash::Contents);
    assert_eq!((conflict.base, conflict.found), (Some(base), Some(ada.stamp())));
    assert_eq!((conflict.update, conflict.device.as_str()), (bob.stamp(), "bob"));
    assert_eq!((conflict.name, conflict.seq), (name("notes.txt"), Some(Seq(4))));
    // Both are versions of what was made at that time.
    assert!(born.is_some());
    let aside = conflict.aside.unwrap().0;
    for file in [file, aside] {
        assert_eq!(ada.node(file).await.unwrap().born, born);
    }
}

#[tokio::test(start_paused = true)]
async fn contents_are_never_refused_even_where_somebody_waits() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
    store(&mut ada, file, base, "ada's").await;
    let change = bob.storing(file, base, "bob's").await;
    let update = bob.update(change);
    let submitted = bob.submit_all(true, vec![update], None).await.unwrap();
    assert_eq!(aside_name(&submitted.verdicts[0]), format!("a {MARK}"));
    // The answer shows both: what bob's file is now, and what was kept beside it.
    let nodes = submitted.states.nodes.iter().filter_map(|state| state.node.as_ref());
    assert_eq!(nodes.filter(|node| node.kind == Kind::File).count(), 2);
    assert_eq!(submitted.states.entries[0].name, name(&format!("a {MARK}")));
}

#[tokio::test(start_paused = true)]
async fn later_stores_of_the_writer_follow_to_the_file_that_was_kept_aside() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
    store(&mut ada, file, base, "ada's").await;
    store(&mut bob, file, base, "bob's 1").await;
    for says in ["bob's 2", "bob's 3"] {
        let expects = bob.stamp();
        let verdict = store(&mut bob, file, expects, says).await;
        assert_eq!(aside_name(&verdict), format!("a {MARK}"));
    }
    assert_eq!(party.tree(), format!("a: ada's\na {MARK}: bob's 3"));
    assert_eq!(party.conflicts().len(), 1, "one conflict, not three");
}

#[tokio::test(start_paused = true)]
async fn the_same_contents_stored_twice_are_no_conflict() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
    store(&mut ada, file, base, "same").await;
    assert!(matches!(store(&mut bob, file, base, "same").await, Verdict::Taken(_)));
    let expects = bob.stamp();
    assert!(matches!(store(&mut bob, file, expects, "next").await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: next");
    assert!(party.conflicts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn names_beside_are_numbered_when_they_are_taken() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
    store(&mut ada, file, base, "ada's").await;
    store(&mut bob, file, base, "one").await;
    let verdict = store(&mut bob, file, base, "two").await;
    assert_eq!(aside_name(&verdict), "a (conflict of bob 2026-11-21 12.30.05 2)");
    assert_eq!(party.tree().lines().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_brings_back_a_file_that_was_removed() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    assert!(matches!(store(&mut bob, file, base, "bob's").await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: bob's");
    assert_eq!(party.conflicts(), ["Removed a by bob"]);
    // It is the same file: what bob does next finds it.
    let expects = bob.stamp();
    store(&mut bob, file, expects, "bob's 2").await;
    assert_eq!(party.tree(), "a: bob's 2");
}

#[tokio::test(start_paused = true)]
async fn what_was_emptied_comes_back_only_where_nobody_waited() {
    for waited in [true, false] {
        let party = Party::new();
        let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
        ada.replay(unlink_of(ROOT, "a", file)).await;
        let mtime = Time::default();
        let emptied = Change::Store { file, expects: base, contents: Contents::EMPTY, mtime };
        let verdict = if waited { bob.strict(emptied).await } else { bob.replay(emptied).await };
        assert!(matches!(verdict, Verdict::Taken(_)), "{verdict:?}");
        assert_eq!(party.tree(), if waited { "" } else { "a: " });
        assert_eq!(party.conflicts().len(), usize::from(!waited));
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_comes_back_beside_what_has_taken_its_name() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a.txt", "base").await;
    ada.replay(unlink_of(ROOT, "a.txt", file)).await;
    ada.write_new(ROOT, "a.txt", "another").await;
    let verdict = store(&mut bob, file, base, "bob's").await;
    assert_eq!(aside_name(&verdict), format!("a {MARK}.txt"));
    assert_eq!(party.tree(), format!("a {MARK}.txt: bob's\na.txt: another"));
}

#[tokio::test(start_paused = true)]
async fn a_file_whose_directory_is_gone_too_comes_back_in_the_nearest_that_is_left() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let top = ada.make_directory(ROOT, "top").await;
    let low = ada.make_directory(top, "low").await;
    let (file, base) = ada.write_new(low, "a", "base").await;
    let mut bob = party.join("bob").await;
    ada.replay(unlink_of(low, "a", file)).await;
    ada.replay(unlink_of(top, "low", low)).await;
    let verdict = store(&mut bob, file, base, "bob's").await;
    assert_eq!(aside_name(&verdict), format!("a {MARK}"));
    assert_eq!(party.tree(), format!("top/\ntop/a {MARK}: bob's"));
    let (_, make) = bob.making(low, "new", Kind::File);
    assert_eq!(aside_name(&bob.replay(make).await), format!("new {MARK}"));
    ada.replay(unlink_of(top, "nothing", file)).await;
    assert_eq!(party.conflicts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn contents_of_a_file_that_never_came_to_be_are_kept() {
    let party = Party::new();
    let mut bob = party.join("bob").await;
    let file = bob.fresh_file();
    let expects = bob.stamp();
    let verdict = store(&mut bob, file, expects, "bob's").await;
    assert_eq!(aside_name(&verdict), format!("file 1-1 {MARK}"));
    let aside = party.origin.conflicts("v", 10).unwrap().remove(0).aside.unwrap().0;
    assert_eq!(bob.node(aside).await.unwrap().born, None, "nobody knows when it was made");
    let expects = bob.stamp();
    store(&mut bob, file, expects, "bob's 2").await;
    assert_eq!(party.tree(), format!("file 1-1 {MARK}: bob's 2"));
}

#[tokio::test(start_paused = true)]
async fn two_files_made_under_one_name_are_both_kept() {
    let party = Party::new();
    let (ada, mut bob, _, _) = two_with(&party, "a.c", "ada's").await;
    let (file, make) = bob.making(ROOT, "a.c", Kind::File);
    assert_eq!(aside_name(&bob.replay(make).await), format!("a {MARK}.c"));
    // What bob did to his file under the name that he gave it goes on.
    let expects = bob.stamp();
    store(&mut bob, file, expects, "bob's").await;
    let rename = rename_of((ROOT, "a.c"), (ROOT, "b.c"), file);
    assert!(matches!(bob.replay(rename).await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a.c: ada's\nb.c: bob's");
    drop(ada);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_kept_aside_is_removed_by_the_name_that_it_was_given() {
    let party = Party::new();
    let (_ada, mut bob, _, _) = two_with(&party, "a", "ada's").await;
    let (file, make) = bob.making(ROOT, "a", Kind::File);
    bob.replay(make).await;
    assert!(matches!(bob.replay(unlink_of(ROOT, "a", file)).await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: ada's");
}

#[tokio::test(start_paused = true)]
async fn two_makes_of_one_directory_are_one_directory() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut bob = party.join("bob").await;
    let docs = ada.make_directory(ROOT, "docs").await;
    ada.write_new(docs, "ada.txt", "ada's").await;
    let (mine, make) = bob.making(ROOT, "docs", Kind::Directory);
    let update = bob.update(make);
    let submitted = bob.submit_all(false, vec![update], None).await.unwrap();
    assert_eq!(aside_name(&submitted.verdicts[0]), "docs");
    let shown = submitted.states.entries.iter().find(|state| state.name == name("docs"));
    assert_eq!(shown.unwrap().file, Some(docs));
    // What bob made in his is in the one that there is, deeper down too.
    bob.write_new(mine, "bob.txt", "bob's").await;
    let deep = bob.make_directory(mine, "deep").await;
    bob.write_new(deep, "more.txt", "more").await;
    bob.replay(mode_of(mine, bob.stamp(), 0o700)).await;
    let tree = "docs/\ndocs/ada.txt: ada's\ndocs/bob.txt: bob's\ndocs/deep/\n\
                docs/deep/more.txt: more";
    assert_eq!(party.tree(), tree);
    assert_eq!(party.conflicts(), ["Merged docs -> docs by bob"]);
    assert_eq!(bob.node(docs).await.unwrap().mode, 0o700);
    assert_eq!(bob.node(docs).await.unwrap().links, 3);
}

#[tokio::test(start_paused = true)]
async fn a_link_and_a_rename_to_a_taken_name_get_another() {
    let party = Party::new();
    let (mut ada, mut bob, file, _) = two_with(&party, "a", "text").await;
    ada.write_new(ROOT, "b", "ada's b").await;
    let link = Change::Link { parent: ROOT, name: name("b"), file };
    assert_eq!(aside_name(&bob.replay(link).await), format!("b {MARK}"));
    let (mine, _) = bob.write_new(ROOT, "mine", "bob's").await;
    let rename = rename_of((ROOT, "mine"), (ROOT, "b"), mine);
    let verdict = bob.replay(rename).await;
    assert_eq!(aside_name(&verdict), "b (conflict of bob 2026-11-21 12.30.05 2)");
    assert_eq!(party.tree().lines().count(), 4);
    assert_eq!(bob.node(file).await.unwrap().links, 2);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_replaced_meanwhile_is_not_replaced_again() {
    let party = Party::new();
    let (mut ada, mut bob, old, _) = two_with(&party, "a", "old").await;
    let (theirs, _) = ada.write_new(ROOT, "tmp", "ada's").await;
    ada.replay(rename_over((ROOT, "tmp"), (ROOT, "a"), theirs, Some(old))).await;
    let (mine, _) = bob.write_new(ROOT, "tmp2", "bob's").await;
    let over = rename_over((ROOT, "tmp2"), (ROOT, "a"), mine, Some(old));
    assert_eq!(aside_name(&bob.replay(over).await), format!("a {MARK}"));
    assert_eq!(party.tree(), format!("a: ada's\na {MARK}: bob's"));
}

#[tokio::test(start_paused = true)]
async fn a_rename_over_what_is_gone_takes_the_free_name() {
    let party = Party::new();
    let (mut ada, mut bob, old, _) = two_with(&party, "a", "old").await;
    ada.replay(unlink_of(ROOT, "a", old)).await;
    let (mine, _) = bob.write_new(ROOT, "tmp", "bob's").await;
    let over = rename_over((ROOT, "tmp"), (ROOT, "a"), mine, Some(old));
    assert!(matches!(bob.replay(over).await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: bob's");
}

/// Bob goes away, ada changes the file, and bob comes back with one update that he made without
/// knowing of it.
async fn behind_his_back(
    party: &Party,
    change: impl FnOnce(FileId) -> Change,
) -> (Device, Verdict) {
    let (mut ada, mut bob, file, base) = two_with(party, "a", "base").await;
    bob.write_new(ROOT, "tmp", "bob's").await;
    let pending = bob.update(change(file));
    store(&mut ada, file, base, "ada's").await;
    // What he has seen is what there was before ada's store.
    let (session, ears) = party.admit("bob", None).await.unwrap();
    let (replica, made) = (Some(bob.replica), bob.made);
    drop(bob);
    let bob = Device::attached("bob", session, ears, replica, made, Seq(4)).await;
    let submitted = bob.submit_all(false, vec![pending], None).await.unwrap();
    (bob, submitted.verdicts.into_iter().next().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_removal_does_not_take_an_update_with_it_that_its_writer_never_saw() {
    let party = Party::new();
    let (_, verdict) = behind_his_back(&party, |file| unlink_of(ROOT, "a", file)).await;
    assert_eq!(verdict, Verdict::Refused(Objection::Changed));
    assert_eq!(party.tree(), "a: ada's\ntmp: bob's");
    assert_eq!(party.conflicts(), ["Replaced a by bob"]);
}

#[tokio::test(start_paused = true)]
async fn a_rename_does_not_replace_an_update_that_its_writer_never_saw() {
    let party = Party::new();
    let over = |file| {
        // Bob is the second device, and tmp its first file.
        let mine = FileId::new(model::ReplicaId(2), 1).unwrap();
        rename_over((ROOT, "tmp"), (ROOT, "a"), mine, Some(file))
    };
    let (_, verdict) = behind_his_back(&party, over).await;
    assert_eq!(aside_name(&verdict), format!("a {MARK}"));
    assert_eq!(party.tree(), format!("a: ada's\na {MARK}: bob's"));
}

#[tokio::test(start_paused = true)]
async fn of_two_settings_of_one_attribute_the_last_wins_and_both_are_listed() {
    let party = Party::new();
    let (mut ada, mut bob, file, _) = two_with(&party, "a", "text").await;
    let made = Stamp::new(ada.replica, 1);
    ada.replay(mode_of(file, made, 0o600)).await;
    assert!(matches!(bob.replay(mode_of(file, made, 0o640)).await, Verdict::Taken(_)));
    assert_eq!(bob.node(file).await.unwrap().mode, 0o640);
    assert_eq!(party.conflicts(), ["Attributes a by bob"], "both values are listed");
}

#[tokio::test(start_paused = true)]
async fn renames_that_would_make_a_cycle_are_not_done_and_reported() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let one = ada.make_directory(ROOT, "one").await;
    let two = ada.make_directory(ROOT, "two").await;
    let mut bob = party.join("bob").await;
    ada.replay(rename_of((ROOT, "one"), (two, "one"), one)).await;
    let verdict = bob.replay(rename_of((ROOT, "two"), (one, "two"), two)).await;
    assert_eq!(verdict, Verdict::Refused(Objection::Cycle));
    assert_eq!(party.tree(), "two/\ntwo/one/");
    assert_eq!(party.conflicts(), ["Cycle two by bob"]);
}

#[tokio::test(start_paused = true)]
async fn what_loses_nothing_is_refused_and_the_rest_of_the_log_goes_on() {
    let party = Party::new();
    let (mut ada, mut bob, file, _) = two_with(&party, "a", "text").await;
    ada.replay(unlink_of(ROOT, "a", file)).await;
    let (new, make) = bob.making(ROOT, "b", Kind::File);
    let batch = vec![
        bob.update(unlink_of(ROOT, "a", file)),
        bob.update(mode_of(file, Stamp::default(), 0o600)),
        bob.update(make),
        bob.update(make_of(ROOT, "d", new, Kind::File)),
    ];
    let submitted = bob.submit_all(false, batch, None).await.unwrap();
    let refused = Verdict::Refused(Objection::NoEntry);
    assert_eq!(submitted.verdicts[..2], [refused.clone(), refused]);
    assert!(matches!(submitted.verdicts[2], Verdict::Taken(_)));
    assert_eq!(submitted.verdicts[3], Verdict::Refused(Objection::Exists), "the id is used");
    assert_eq!(party.tree(), "b: ");
    assert!(party.conflicts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_remembered_over_a_restart_and_sent_again_they_are_the_same() {
    let party = Party::new();
    let (mut ada, mut bob, file, base) = two_with(&party, "a", "base").await;
    store(&mut ada, file, base, "ada's").await;
    let change = bob.storing(file, base, "bob's").await;
    let update = bob.update(change);
    let first = bob.submit_all(false, vec![update.clone()], None).await.unwrap();
    let after = party.killed();
    let bob = after.rejoin(&bob).await;
    let second = bob.submit_all(false, vec![update], None).await.unwrap();
    assert_eq!(second.verdicts, first.verdicts);
    assert_eq!(after.conflicts().len(), 1);
    assert_eq!(after.tree(), format!("a: ada's\na {MARK}: bob's"));
}

#[tokio::test(start_paused = true)]
async fn changes_of_different_names_in_one_directory_never_conflict() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut bob = party.join("bob").await;
    ada.write_new(ROOT, "a", "ada's").await;
    bob.write_new(ROOT, "b", "bob's").await;
    assert_eq!(party.tree(), "a: ada's\nb: bob's");
    assert!(party.conflicts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_into_what_is_no_file_is_not_valid() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(ROOT, "docs").await;
    let verdict = ada.replay(store_of(docs, ada.stamp(), model::Contents::EMPTY)).await;
    assert_eq!(verdict, Verdict::Refused(Objection::Invalid));
}

#[tokio::test(start_paused = true)]
async fn a_store_replaces_one_that_its_writer_took_back_too_late() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(ROOT, "a", "old").await;
    let store = ada.storing(file, base, "older").await;
    assert!(matches!(ada.replay(store).await, Verdict::Taken(_)));
    let store = ada.storing(file, base, "newer").await;
    assert!(matches!(ada.replay(store).await, Verdict::Taken(_)));
    let store = ada.storing(file, base, "newest").await;
    assert!(matches!(ada.replay(store).await, Verdict::Taken(_)), "again and again");
    assert_eq!((party.tree(), party.conflicts()), ("a: newest".into(), vec![]));
    assert_eq!(ada.node(file).await.unwrap().contents_stamp, ada.stamp());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_expects_less_than_its_writer_replaced_is_kept_aside() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, base) = ada.write_new(ROOT, "a", "old").await;
    let between = ada.storing(file, base, "between").await;
    ada.replay(between).await;
    let last = ada.storing(file, ada.stamp(), "last").await;
    ada.replay(last).await;
    let contents = ada.describe(b"between").tree.contents;
    let verdict = ada.replay(store_of(file, base, contents)).await;
    assert!(matches!(verdict, Verdict::KeptAside { .. }), "{verdict:?}");
    assert_eq!(party.conflicts().len(), 1);
}

/// Bob's contents were kept aside, and he has written to the file as he has it open. Gives the file that has
/// them, the name of that, and the stamp that it shows to bob, who has not heard of what he wrote last.
async fn with_a_copy(party: &Party) -> (Device, FileId, String, Stamp, Update) {
    let (mut ada, mut bob, file, base) = two_with(party, "a", "base").await;
    store(&mut ada, file, base, "ada's").await;
    let verdict = store(&mut bob, file, base, "bob's 1").await;
    let copy = party.origin.conflicts("v", 10).unwrap().remove(0).aside.unwrap().0;
    let first = bob.stamp();
    let change = bob.storing(file, first, "bob's 2").await;
    let pending = bob.update(change);
    (bob, copy, aside_name(&verdict), first, pending)
}

#[tokio::test(start_paused = true)]
async fn what_one_stores_by_the_name_of_a_copy_does_not_replace_what_followed_there() {
    let party = Party::new();
    let (mut bob, copy, _, first, pending) = with_a_copy(&party).await;
    let change = bob.storing(copy, first, "by its name").await;
    let by_name = bob.update(change);
    let submitted = bob.submit_all(false, vec![pending, by_name], None).await.unwrap();
    assert!(matches!(submitted.verdicts[..], [_, Verdict::KeptAside { .. }]), "{submitted:?}");
    let tree = party.tree();
    assert!(["ada's", "bob's 2", "by its name"].iter().all(|says| tree.contains(says)), "{tree}");
    assert_eq!(party.conflicts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_removes_a_copy_does_not_take_along_what_followed_there_just_before() {
    let party = Party::new();
    let (mut bob, copy, copy_name, _, pending) = with_a_copy(&party).await;
    let removal = bob.update(unlink_of(ROOT, &copy_name, copy));
    let submitted = bob.submit_all(false, vec![pending, removal], None).await.unwrap();
    assert_eq!(submitted.verdicts[1], Verdict::Refused(Objection::Changed));
    assert_eq!(party.tree(), format!("a: ada's\n{copy_name}: bob's 2"));
    // Who has heard of it removes it.
    assert!(matches!(bob.replay(unlink_of(ROOT, &copy_name, copy)).await, Verdict::Taken(_)));
    assert_eq!(party.tree(), "a: ada's");
}
