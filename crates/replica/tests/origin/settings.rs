//! Two who set attributes of one file without knowing of each other.

use crate::party::{Device, Party, mode_of};
use model::{ACL_ACCESS, AttributeChange, Change, FileId, Node, Stamp, Time};
use protocol::past::{Attribute, Setting, Value};
use protocol::{Objection, Verdict};

const TAG: &[u8] = b"user.tag";

/// Ada and bob, who both know of a file of ada's and of the stamp of its attributes.
struct Two {
    party: Party,
    ada: Device,
    bob: Device,
    file: FileId,
    seen: Stamp,
}

impl Two {
    async fn new() -> Two {
        let party = Party::new();
        let mut ada = party.join("ada").await;
        let (file, _) = ada.write_new(FileId::ROOT, "a", "text").await;
        ada.replay(tag(file, Some(b"old"), None)).await;
        let seen = ada.stamp();
        let bob = party.join("bob").await;
        Two { party, ada, bob, file, seen }
    }

    async fn node(&self) -> Node {
        self.bob.node(self.file).await.unwrap()
    }

    /// What is listed, as (what, was, theirs, mine).
    fn listed(&self) -> Vec<Setting> {
        let conflicts = self.party.origin.conflicts("v", 10).unwrap();
        conflicts.into_iter().flat_map(|one| one.settings.unwrap_or_default()).collect()
    }
}

fn tag(file: FileId, value: Option<&[u8]>, expects: Option<Stamp>) -> Change {
    let name = TAG.to_vec().into();
    match value {
        Some(value) => Change::SetXattr { file, name, value: value.to_vec().into(), expects },
        None => Change::RemoveXattr { file, name, expects },
    }
}

fn set(file: FileId, expects: Stamp, set: AttributeChange) -> Change {
    Change::SetAttributes { file, expects, set }
}

fn bytes(value: &[u8]) -> Value {
    Value::Bytes(value.to_vec().into())
}

fn taken(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Taken(_))
}

#[tokio::test(start_paused = true)]
async fn both_values_of_one_attribute_are_listed_with_what_it_was_and_the_second_holds() {
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    assert!(taken(&two.ada.replay(mode_of(file, seen, 0o600)).await));
    assert!(taken(&two.bob.replay(mode_of(file, seen, 0o640)).await));
    let [was, theirs, mine] = [0o644, 0o600, 0o640].map(Value::Number);
    assert_eq!(two.listed(), [Setting { what: Attribute::Mode, was: Some(was), theirs, mine }]);
    assert_eq!(two.node().await.mode, 0o640);
    // What bob sets upon his own meets nothing.
    let expects = two.bob.stamp();
    assert!(taken(&two.bob.replay(mode_of(file, expects, 0o660)).await));
    assert_eq!(two.listed().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn different_attributes_and_equal_values_are_no_conflict() {
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    let times = AttributeChange { mtime: Some(Time { secs: 7, nanos: 0 }), ..Default::default() };
    let owner = AttributeChange { uid: Some(7), ..times.clone() };
    two.ada.replay(mode_of(file, seen, 0o600)).await;
    two.bob.replay(set(file, seen, owner)).await;
    two.bob.replay(tag(file, Some(b"bob's"), Some(two.bob.stamp()))).await;
    two.ada.replay(set(file, two.ada.stamp(), times)).await;
    let mut cathy = two.party.join("cathy").await;
    assert!(taken(&cathy.replay(mode_of(file, seen, 0o600)).await), "the same");
    let node = two.node().await;
    assert_eq!((node.mode, node.uid, node.mtime.secs), (0o600, 7, 7));
    assert_eq!(node.xattr(TAG), Some(&b"bob's"[..]));
    assert_eq!(two.party.conflicts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn who_sets_what_was_so_already_takes_nothing_from_who_changed_it() {
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    two.ada.replay(mode_of(file, seen, 0o600)).await;
    two.ada.replay(tag(file, Some(b"ada's"), Some(two.ada.stamp()))).await;
    assert!(taken(&two.bob.replay(mode_of(file, seen, 0o644)).await));
    assert!(taken(&two.bob.replay(tag(file, Some(b"old"), Some(seen))).await));
    let node = two.node().await;
    assert_eq!((node.mode, node.xattr(TAG)), (0o600, Some(&b"ada's"[..])));
    assert!(two.listed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_an_extended_attribute_both_values_are_listed_and_that_it_was_removed() {
    for (ada, bob) in [(Some(&b"ada's"[..]), Some(&b"bob's"[..])), (None, Some(b"bob's"))] {
        for (first, second) in [(ada, bob), (bob, ada)] {
            let mut two = Two::new().await;
            let (file, seen) = (two.file, two.seen);
            two.ada.replay(tag(file, first, Some(seen))).await;
            assert!(taken(&two.bob.replay(tag(file, second, Some(seen))).await));
            let [theirs, mine] = [first, second].map(|value| value.map_or(Value::Absent, bytes));
            let (what, was) = (Attribute::Xattr(TAG.to_vec().into()), Some(bytes(b"old")));
            assert_eq!(two.listed(), [Setting { what, was, theirs, mine }]);
            assert_eq!(two.node().await.xattr(TAG), second);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mode_and_an_access_list_that_brings_another_are_listed() {
    // rw- for the owner, rw- for user 7, r-- for the group, rw- as the mask, nothing for others.
    let list = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 6, 0, 7, 0, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[16, 0, 6, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    let shares = |file, expects| {
        let (name, value) = (ACL_ACCESS.to_vec().into(), list.clone().into());
        Change::SetXattr { file, name, value, expects: Some(expects) }
    };
    let [was, mode, of_list] = [0o644, 0o600, 0o660].map(Value::Number);
    let (what, was) = (Attribute::Mode, Some(was));
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    two.ada.replay(mode_of(file, seen, 0o600)).await;
    two.bob.replay(shares(file, seen)).await;
    let (theirs, mine) = (mode.clone(), of_list.clone());
    assert_eq!(two.listed(), [Setting { what: what.clone(), was: was.clone(), theirs, mine }]);
    assert_eq!(two.node().await.mode, 0o660);
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    two.ada.replay(shares(file, seen)).await;
    two.bob.replay(mode_of(file, seen, 0o600)).await;
    assert_eq!(two.listed(), [Setting { what, was, theirs: of_list, mine: mode }]);
    assert_eq!(two.node().await.mode, 0o600);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_refused_what_another_set_otherwise_and_nothing_else() {
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    two.ada.strict(mode_of(file, seen, 0o600)).await;
    let verdict = two.bob.strict(mode_of(file, seen, 0o640)).await;
    assert_eq!(verdict, Verdict::Refused(Objection::Changed));
    let owner = AttributeChange { uid: Some(7), ..AttributeChange::default() };
    assert!(taken(&two.bob.strict(set(file, seen, owner)).await));
    let node = two.node().await;
    assert_eq!((node.mode, node.uid), (0o600, 7));
    assert!(two.listed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_update_that_says_nothing_of_what_it_saw_is_taken_as_before() {
    let mut two = Two::new().await;
    let file = two.file;
    two.ada.replay(tag(file, Some(b"ada's"), None)).await;
    two.bob.replay(tag(file, Some(b"bob's"), None)).await;
    assert_eq!(two.node().await.xattr(TAG), Some(&b"bob's"[..]));
    assert!(two.listed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_sets_several_things_one_after_the_other_has_not_seen_what_was_set_meanwhile() {
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    two.ada.replay(mode_of(file, seen, 0o600)).await;
    two.ada.replay(tag(file, Some(b"ada's"), Some(two.ada.stamp()))).await;
    // Three updates of bob's, each made upon the one before.
    let owner = AttributeChange { uid: Some(7), ..AttributeChange::default() };
    two.bob.replay(set(file, seen, owner)).await;
    assert!(two.listed().is_empty());
    two.bob.replay(mode_of(file, two.bob.stamp(), 0o640)).await;
    assert_eq!(two.listed().len(), 1);
    two.bob.replay(tag(file, Some(b"bob's"), Some(two.bob.stamp()))).await;
    let (what, was) = (Attribute::Xattr(TAG.to_vec().into()), Some(bytes(b"old")));
    let (theirs, mine) = (bytes(b"ada's"), bytes(b"bob's"));
    assert_eq!(two.listed()[1..], [Setting { what, was, theirs, mine }]);
    // What bob has set himself meets nothing when he sets it again.
    two.bob.replay(mode_of(file, two.bob.stamp(), 0o660)).await;
    assert_eq!((two.listed().len(), two.node().await.mode), (2, 0o660));
}

#[tokio::test(start_paused = true)]
async fn who_has_seen_what_came_of_both_meets_nothing() {
    let mut two = Two::new().await;
    let (file, seen) = (two.file, two.seen);
    two.ada.replay(mode_of(file, seen, 0o600)).await;
    two.bob.replay(tag(file, Some(b"bob's"), Some(seen))).await;
    let both = two.node().await.attributes_stamp;
    assert_ne!(both, two.bob.stamp(), "bob has not seen it when he made his");
    two.bob.replay(mode_of(file, both, 0o640)).await;
    assert!(two.listed().is_empty());
    assert_eq!(two.node().await.attributes_stamp, two.bob.stamp());
}
