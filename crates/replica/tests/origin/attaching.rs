//! Attaching, listing, and what has changed meanwhile.

use crate::party::{Device, Party, name, unlink_of};
use model::{FileId, Kind, Seq};
use protocol::{
    Attach, Heard, Life, Objection, Refusal, Request, Response, Run, Session, Tail, Verdict,
};

fn names(listing: &protocol::Listing, at: usize) -> Vec<String> {
    listing.directories[at].entries.iter().map(|(name, _)| name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_listing_pages_through_a_directory() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    for text in ["a", "b", "c", "d", "e"] {
        ada.write_new(FileId::ROOT, text, text).await;
    }
    let one = ada.list_as(FileId::ROOT, None, 2, true).await;
    assert_eq!(
        (names(&one, 0), one.directories[0].complete),
        (vec!["a".into(), "b".into()], false)
    );
    assert_eq!(one.as_of, Seq(10));
    let two = ada.list_as(FileId::ROOT, Some(name("b")), 3, true).await;
    assert_eq!(names(&two, 0), ["c", "d", "e"]);
    assert!(two.directories[0].complete);
    let nodes = two.nodes.iter().filter_map(|state| state.node.as_ref());
    assert!(nodes.clone().all(|node| node.contents.root.is_none()), "roots are left out");
    assert_eq!(nodes.count(), 4, "three files and the directory");
}

#[tokio::test(start_paused = true)]
async fn a_deep_listing_adds_whole_directories_breadth_first() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let docs = ada.make_directory(FileId::ROOT, "docs").await;
    let src = ada.make_directory(FileId::ROOT, "src").await;
    let deep = ada.make_directory(docs, "deep").await;
    for text in ["x", "y", "z"] {
        ada.write_new(src, text, "").await;
    }
    let listed = |listing: &protocol::Listing| {
        listing.directories.iter().map(|listed| listed.directory).collect::<Vec<_>>()
    };
    let all = ada.list_as(FileId::ROOT, None, 100, true).await;
    assert_eq!(listed(&all), [FileId::ROOT, docs, src, deep]);
    assert!(all.directories.iter().all(|listed| listed.complete));
    // Two entries in the root, one in docs; three more have no room.
    let some = ada.list_as(FileId::ROOT, None, 5, true).await;
    assert_eq!(listed(&some), [FileId::ROOT, docs]);
    let flat = ada.list_as(FileId::ROOT, None, 100, false).await;
    assert_eq!(listed(&flat), [FileId::ROOT]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_directory_is_not_listed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(FileId::ROOT, "a", "").await;
    let list = |directory| Request::List {
        directory,
        after: None,
        entries_max: 9,
        deep: false,
        also: None,
    };
    let refused = |refusal| Response::Refused(refusal);
    assert_eq!(ada.ask(list(file)).await, refused(Refusal::NotADirectory(file)));
    assert_eq!(ada.ask(list(FileId(99))).await, refused(Refusal::NoFile(FileId(99))));
}

#[tokio::test(start_paused = true)]
async fn inspecting_tells_of_what_is_not_there_too() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, _) = ada.write_new(FileId::ROOT, "a", "").await;
    ada.replay(unlink_of(FileId::ROOT, "a", file)).await;
    let states = ada
        .inspect(vec![file, FileId(99)], vec![(FileId::ROOT, name("a")), (FileId::ROOT, name("b"))])
        .await;
    assert!(states.nodes.iter().all(|state| state.node.is_none() && state.seq == Seq(3)));
    assert!(states.entries.iter().all(|state| state.file.is_none()));
    assert_eq!((states.nodes.len(), states.entries.len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_gets_what_changed_each_key_once() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.make_directory(FileId::ROOT, "docs").await;
    let bob = party.join("bob").await;
    assert_eq!(bob.seen(), Seq(1));
    let (replica, made) = (bob.replica, bob.made);
    drop(bob.session);
    let (_, stamp) = ada.write_new(FileId::ROOT, "a", "one").await;
    let store = ada.storing(FileId::new(ada.replica, 2).unwrap(), stamp, "two!").await;
    ada.replay(store).await;
    let (session, ears) = party.admit("bob", None).await.unwrap();
    let back = Device::attached("bob", session, ears, Some(replica), made, Seq(1)).await;
    let Tail::Changes(notice) = &back.attached.tail else { panic!() };
    assert_eq!(notice.upto, Seq(4));
    assert_eq!(notice.states.nodes.len(), 2, "the root and the file");
    assert_eq!(notice.states.nodes[1].node.as_ref().unwrap().contents.size, 4);
    assert_eq!(notice.states.entries.len(), 1);
}

/// The tail of a client that has seen so much.
async fn tail_after(party: &Party, seen: Seq) -> Tail {
    let (session, ears) = party.admit("ada", None).await.unwrap();
    Device::attached("ada", session, ears, None, 0, seen).await.attached.tail
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_missed_too_much_is_told_to_look_anew() {
    let limits = replica::Limits { tail_keys_max: 4, ..replica::Limits::simulated() };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    for text in ["a", "b", "c", "d", "e"] {
        ada.make_directory(FileId::ROOT, text).await;
    }
    assert_eq!(tail_after(&party, Seq(1)).await, Tail::TooFar(Seq(5)));
    assert!(matches!(tail_after(&party, Seq(4)).await, Tail::Changes(_)));
    assert_eq!(tail_after(&party, Seq::START).await, Tail::TooFar(Seq(5)), "and one that is new");
    assert_eq!(tail_after(&party, Seq(6)).await, Tail::TooFar(Seq(5)), "and one from the future");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_set_back_gets_another_id() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.write_new(FileId::ROOT, "a", "text").await;
    let same = party.rejoin(&ada).await;
    assert_eq!((same.replica, same.attached.taken), (ada.replica, 2));
    let (session, ears) = party.admit("ada", None).await.unwrap();
    let mut back = Device::attached("ada", session, ears, Some(ada.replica), 1, Seq(1)).await;
    assert_ne!(back.replica, ada.replica);
    assert_eq!(back.attached.taken, 0);
    // Files that it made under its earlier id are its own still.
    let old = FileId::new(ada.replica, 50).unwrap();
    let make = crate::party::make_of(FileId::ROOT, "b", old, Kind::File);
    assert!(matches!(back.replay(make).await, Verdict::Taken(_)));
}

/// A device that was told of all that there is, in runs that `change` makes of those that there were, and that
/// removed a file before it attached.
async fn told_in(change: impl FnOnce(Vec<Run>) -> Vec<Run>) -> (Option<Seq>, Tail, Verdict) {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, stamp) = ada.write_new(FileId::ROOT, "a", "one").await;
    let bob = party.join("bob").await;
    let store = ada.storing(file, stamp, "two!").await;
    ada.replay(store).await;
    let runs = change(bob.attached.runs.clone().unwrap());
    let heard = Some(Heard { upto: Seq(3), runs });
    let replica = Some(bob.replica);
    let attach = Attach { replica, made: 1, seen: Seq(3), locks: None, life: None, heard };
    let (session, ears) = party.admit("bob", None).await.unwrap();
    let mut bob = Device::attached_by("bob", session, ears, attach).await;
    assert_eq!(Some(bob.replica), replica);
    bob.made = 0;
    let verdict = bob.replay(unlink_of(FileId::ROOT, "a", file)).await;
    (bob.attached.in_common, bob.attached.tail, verdict)
}

#[tokio::test(start_paused = true)]
async fn who_was_told_of_what_was_lost_has_not_seen_what_came_in_its_place() {
    let (in_common, tail, verdict) = told_in(|runs| runs).await;
    assert_eq!(in_common, None);
    assert!(matches!((tail, verdict), (Tail::Changes(_), Verdict::Taken(_))), "it saw all of it");
    let lost = |runs: Vec<Run>| runs.into_iter().map(|run| Run { drawn: !run.drawn, ..run });
    let (in_common, tail, verdict) = told_in(|runs| lost(runs).collect()).await;
    assert_eq!((in_common, tail), (Some(Seq::START), Tail::TooFar(Seq(3))));
    assert_eq!(verdict, Verdict::Refused(Objection::Changed));
    let (in_common, ..) = told_in(|runs| [runs.clone(), lost(runs).collect()].concat()).await;
    assert_eq!(in_common, Some(Seq::START), "it was told so since");
}

#[tokio::test(start_paused = true)]
async fn of_two_that_begin_with_a_copy_of_one_state_the_second_to_attach_gets_another_id() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let attach = async |now, before| {
        let (session, _ears) = party.admit("ada", None).await.unwrap();
        let life = Some(Life { now, before });
        let replica = Some(ada.replica);
        let attach = Attach { replica, made: 9, seen: Seq::START, locks: None, life, heard: None };
        match session.answer(Request::Attach(attach)).await {
            Response::Attached(attached) => attached.replica,
            response => panic!("{response:?}"),
        }
    };
    assert_eq!(attach(1, None).await, ada.replica, "nothing is known of earlier lives");
    assert_eq!(attach(1, None).await, ada.replica, "a new session of the same life");
    assert_eq!(attach(2, Some(1)).await, ada.replica, "the next life");
    let copy = attach(3, Some(1)).await;
    assert_ne!(copy, ada.replica, "it has gone on from where another has gone on");
    assert_eq!(attach(2, Some(1)).await, ada.replica, "who was first stays");
    assert_eq!(attach(4, Some(2)).await, ada.replica);
}

#[tokio::test(start_paused = true)]
async fn an_id_of_another_device_is_not_given_away() {
    let party = Party::new();
    let ada = party.join("ada").await;
    let token = party.origin.invite("v", protocol::Access::ReadWrite, None).unwrap();
    let (session, ears) = party.admit("eve", Some(token)).await.unwrap();
    let eve = Device::attached("eve", session, ears, Some(ada.replica), 99, Seq::START).await;
    assert_ne!(eve.replica, ada.replica);
    assert!(matches!(ada.ask(Request::Measure).await, Response::Measured(_)), "ada stays");
}

#[tokio::test(start_paused = true)]
async fn a_walk_gets_the_directories_that_it_comes_to_next_with_the_one_it_is_at() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut made = Vec::new();
    for text in ["a", "b", "c"] {
        let (directory, make) = ada.making(FileId::ROOT, text, Kind::Directory);
        ada.replay(make).await;
        let (file, make) = ada.making(directory, "inside", Kind::File);
        ada.replay(make).await;
        made.push((directory, file));
    }
    let (a, b, c) = (made[0].0, made[1], made[2].0);
    // What is no directory, or is gone, is passed over.
    let also = Some(vec![b.1, b.0, FileId(999), c]);
    let list = Request::List { directory: a, after: None, entries_max: 2, deep: true, also };
    let Response::Listing(listing) = ada.ask(list).await else { panic!("a directory is listed") };
    let listed: Vec<FileId> = listing.directories.iter().map(|listed| listed.directory).collect();
    assert_eq!(listed, [a, b.0], "there was room for two entries");
    assert!(listing.directories.iter().all(|listed| listed.complete));
}

/// A device that lies needs no more than a session to ask for one client after another.
#[tokio::test(start_paused = true)]
async fn a_device_that_begins_ever_more_clients_takes_no_places_from_others() {
    let party = Party::new();
    let ada = party.join_as("ada", protocol::Access::ReadOnly).await;
    let bob = party.join("bob").await;
    let anew = || {
        let attach = Attach {
            replica: None,
            made: 0,
            seen: Seq::START,
            locks: None,
            life: None,
            heard: None,
        };
        Request::Attach(attach)
    };
    let mut begun = 0;
    for _ in 0..300 {
        match ada.ask(anew()).await {
            Response::Attached(_) => begun += 1,
            Response::Refused(Refusal::Failed(why)) => assert!(why.contains("too many"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun, 127, "and the one with which it joined");
    assert!(matches!(bob.ask(anew()).await, Response::Attached(_)));
    let again = party.rejoin(&ada).await;
    assert_eq!(again.replica, ada.replica, "what it has it keeps");
}

/// An attach may wait, for somebody who had the volume for itself, for longer than its session lives.
#[tokio::test(start_paused = true)]
async fn an_attach_of_a_session_that_has_ended_does_not_end_the_one_in_its_place() {
    let party = Party::new();
    let before = party.join("ada").await;
    let mut now = party.rejoin(&before).await;
    before.ears.go();
    let attach = Attach {
        replica: Some(before.replica),
        made: before.made,
        seen: Seq::START,
        locks: None,
        life: None,
        heard: None,
    };
    let late = before.ask(Request::Attach(attach)).await;
    assert_eq!(late, Response::Refused(Refusal::NotAttached));
    now.write_new(FileId::ROOT, "a", "goes on").await;
    assert_eq!(party.tree(), "a: goes on");
}
