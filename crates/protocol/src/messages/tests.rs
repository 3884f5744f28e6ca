use super::*;
use expect_test::expect;
use model::{
    AttributeChange, Change, Contents, Kind, Lock, LockKind, Quota, SnapshotId, Time, Usage,
    UserQuota,
};
use proptest::prelude::*;
use std::fmt::Debug;

/// Reads or refuses the bytes; what was read can be written and is then read as the same.
fn read_back<M: Debug + PartialEq + Encode<()> + for<'b> Decode<'b, ()>>(bytes: &[u8]) -> bool {
    let Ok(message) = minicbor::decode::<M>(bytes) else { return false };
    let written = minicbor::to_vec(&message).unwrap();
    assert_eq!(minicbor::decode::<M>(&written).unwrap(), message);
    true
}

fn stamp() -> Stamp {
    Stamp::new(ReplicaId(3), 9)
}

fn payload() -> Payload {
    Payload { lengths: vec![2, 1], bytes: vec![7; 3].into(), plain: true }
}

fn delta() -> Delta {
    let stretch = Range { offset: 5, length: 300 };
    let base = Base { file: FileId(5), version: stamp(), stretch };
    Delta { base, lengths: vec![2, 1], codec: 1, bytes: vec![7; 3].into(), check: 1 << 40 }
}

fn update(change: Change) -> Update {
    Update { stamp: stamp(), uid: 1000, at: Time { secs: -1, nanos: 2 }, change }
}

fn request() -> Vec<u8> {
    let set = AttributeChange { mode: Some(0o644), ..Default::default() };
    let updates = vec![
        update(Change::SetAttributes { file: FileId(5), expects: stamp(), set }),
        update(Change::RemoveXattr {
            file: FileId(5),
            name: b"user.x".to_vec().into(),
            expects: None,
        }),
    ];
    let submit = Submit {
        settled: 300,
        strict: true,
        updates,
        payload: Some(payload()),
        deltas: Some(vec![delta()]),
        seek: None,
        ahead: None,
        under: None,
    };
    minicbor::to_vec(Request::Submit(submit)).unwrap()
}

fn response() -> Vec<u8> {
    let name = Name::new(*b"notes").unwrap();
    let node = Node::root_directory(3, 4, Time { secs: 1, nanos: 2 });
    let states = States {
        nodes: vec![NodeState { file: FileId(5), seq: Seq(300), node: Some(node) }],
        entries: vec![EntryState {
            directory: FileId::ROOT,
            name: name.clone(),
            seq: Seq(7),
            file: None,
        }],
    };
    let kept_aside =
        Verdict::KeptAside { seq: Seq(7), directory: FileId::ROOT, name, merged: None };
    let submitted = Submitted {
        verdicts: vec![kept_aside, Verdict::Refused(Objection::Cycle)],
        missing: vec![ChunkName([0xab; 24])],
        states,
        useless: Some(vec![(FileId(5), stamp())]),
        allowance: None,
    };
    minicbor::to_vec(Response::Submitted(submitted)).unwrap()
}

fn gather() -> Request {
    let stretch = Range { offset: 0, length: 9 };
    let base = Some(Base { file: FileId(6), version: stamp(), stretch });
    let one = Wish { file: FileId(5), version: stamp(), base: None, ranges: None };
    let two = Wish { file: FileId(7), base, ranges: Some(vec![stretch]), ..one.clone() };
    let held = Some(vec![(FileId(5), stamp())]);
    Request::Gather { files: vec![one, two], bytes_max: 4096, sought: Sought::Contents, held }
}

fn gathered() -> Response {
    let contents = Contents { size: 2, root: None, holes: None };
    let sequel = Sequel { lengths: vec![2], codec: 1, bytes: vec![7; 2].into(), check: 1 << 40 };
    Response::Gathered(Gathered {
        portions: vec![
            Portion::Plain { contents, chunks: 1 },
            Portion::Delta { contents, delta: delta() },
            Portion::Recipe { contents, recipe: vec![vec![9].into()] },
            Portion::Nothing,
        ],
        payload: payload(),
        sequel: Some(sequel),
    })
}

#[test]
fn a_message_is_read_back_as_it_was_written() {
    assert!(read_back::<Request>(&request()));
    assert!(read_back::<Response>(&response()));
    assert!(read_back::<Request>(&minicbor::to_vec(gather()).unwrap()));
    assert!(read_back::<Response>(&minicbor::to_vec(gathered()).unwrap()));
}

#[test]
fn golden_bytes_of_a_read_read_with_and_without_what_was_added() {
    let read = |packed| Request::Read {
        file: FileId(5),
        version: stamp(),
        ranges: vec![Range { offset: 0, length: 9 }],
        base: None,
        packed,
        inside: None,
    };
    let before = [0x82, 5, 0x83, 5, 0x82, 3, 9, 0x81, 0x82, 0, 9];
    assert_eq!(minicbor::decode::<Request>(&before).unwrap(), read(None));
    assert_eq!(minicbor::to_vec(read(None)).unwrap(), before);
    let packed = [0x82, 5, 0x85, 5, 0x82, 3, 9, 0x81, 0x82, 0, 9, 0xf6, 0xf5];
    assert_eq!(minicbor::to_vec(read(Some(true))).unwrap(), packed);
    assert_eq!(minicbor::decode::<Request>(&packed).unwrap(), read(Some(true)));
}

/// The bytes of a message never change their meaning.
#[test]
fn golden_bytes_of_several_files_at_once_still_read() {
    let wish = Wish { file: FileId(5), version: stamp(), base: None, ranges: None };
    let (files, sought) = (vec![wish], Sought::Contents);
    let plain = Request::Gather { files, bytes_max: 4096, sought, held: None };
    let golden = [0x82, 10, 0x83, 0x81, 0x82, 5, 0x82, 3, 9, 0x19, 0x10, 0, 0];
    assert_eq!(minicbor::decode::<Request>(&golden).unwrap(), plain);
    assert_eq!(minicbor::to_vec(&plain).unwrap(), golden);
    let contents = Contents { size: 2, root: None, holes: None };
    let portions = vec![Portion::Plain { contents, chunks: 1 }, Portion::Nothing];
    let payload = Payload { lengths: vec![2], bytes: vec![7; 2].into(), plain: true };
    let answer = Response::Gathered(Gathered { portions, payload, sequel: None });
    let golden = [
        &[0x82, 12, 0x81, 0x82, 0x82, 0x82, 0, 0x82, 0x81, 2, 1, 0x82, 3, 0x80][..],
        &[0x83, 0x81, 2, 0x42, 7, 7, 0xf5],
    ]
    .concat();
    assert_eq!(minicbor::decode::<Response>(&golden).unwrap(), answer);
    assert_eq!(minicbor::to_vec(&answer).unwrap(), golden);
}

/// Who does not know a field passes it over, and who does not get it does without.
#[test]
fn an_older_replica_does_not_say_that_it_gathers() {
    let attached = Attached {
        replica: ReplicaId(3),
        taken: 0,
        secret: [7; 32],
        cutter: Cutter::Gear,
        lease_secs: 25,
        access: Access::ReadWrite,
        tail: Tail::TooFar(Seq(1)),
        gathers: None,
        wanted: None,
        locks_lost: None,
        assembles: None,
        looks_back: None,
        allowance: None,
        takes_ahead: None,
        ahead: None,
        takes_any_ahead: None,
        tells: None,
        conflicts: None,
        heeds: None,
        runs: None,
        in_common: None,
    };
    let older = minicbor::to_vec(&attached).unwrap();
    assert_eq!(older[0], 0x87, "seven fields, as before there was an eighth");
    assert_eq!(minicbor::decode::<Attached>(&older).unwrap(), attached);
    let newer = minicbor::to_vec(Attached { gathers: Some(true), ..attached }).unwrap();
    assert_eq!(minicbor::decode::<Attached>(&newer).unwrap().gathers, Some(true));
}

#[test]
fn golden_bytes_of_patience_still_read() {
    let patience = Request::Patience(Patience { below: vec![FileId(2)], but: Vec::new() });
    let golden = [0x82, 20, 0x81, 0x82, 0x81, 2, 0x80];
    assert_eq!(minicbor::to_vec(&patience).unwrap(), golden);
    assert_eq!(minicbor::decode::<Request>(&golden).unwrap(), patience);
    let heeded = minicbor::to_vec(Response::Heeded).unwrap();
    assert_eq!(heeded, [0x82, 22, 0x80]);
}

#[test]
fn golden_bytes_of_what_is_looked_for_still_read() {
    let find = Request::Find { names: vec![ChunkName([7; 24])] };
    let golden = [&[0x82, 12, 0x81, 0x81, 0x58, 24][..], &[7; 24]].concat();
    assert_eq!(minicbor::to_vec(&find).unwrap(), golden);
    assert_eq!(minicbor::decode::<Request>(&golden).unwrap(), find);
    let (file, version) = (FileId(5), Stamp::new(ReplicaId(1), 2));
    let inside = Request::Inside { file, version, stretch: Range { offset: 3, length: 4 } };
    let golden = [0x82, 13, 0x83, 5, 0x82, 1, 2, 0x82, 3, 4];
    assert_eq!(minicbor::to_vec(&inside).unwrap(), golden);
    let found = Response::Found(vec![5].into());
    let golden = [0x82, 14, 0x81, 0x41, 5];
    assert_eq!(minicbor::to_vec(&found).unwrap(), golden);
    assert_eq!(minicbor::decode::<Response>(&golden).unwrap(), found);
}

/// The bytes of a message never change their meaning, and who knows no locks reads the rest.
#[test]
fn golden_bytes_of_locks_still_read() {
    let lock = Lock { kind: LockKind::Record, exclusive: true, first: 2, last: 9 };
    let held = Held { file: FileId(5), locks: vec![lock] };
    let whole = Lock { kind: LockKind::Whole, exclusive: false, ..lock };
    let asks = Locking { held: held.clone(), wished: vec![whole], aim: LockAim::Wait };
    let golden = [
        &[0x82, 11, 0x81, 0x83, 0x82, 5, 0x81, 0x84, 0, 0xf5, 2, 9][..],
        &[0x81, 0x84, 1, 0xf4, 2, 9, 1],
    ]
    .concat();
    assert_eq!(minicbor::to_vec(Request::Lock(asks.clone())).unwrap(), golden);
    assert_eq!(minicbor::decode::<Request>(&golden).unwrap(), Request::Lock(asks));

    let outcome = LockOutcome::InTheWay(lock);
    let answer = Response::Locked(Locked { outcome, states: States::default() });
    let golden = [0x82, 13, 0x81, 0x82, 0x82, 2, 0x81, 0x84, 0, 0xf5, 2, 9, 0x82, 0x80, 0x80];
    assert_eq!(minicbor::to_vec(&answer).unwrap(), golden);
    assert_eq!(minicbor::decode::<Response>(&golden).unwrap(), answer);

    let attach =
        Attach { replica: None, made: 0, seen: Seq(1), locks: None, life: None, heard: None };
    assert_eq!(minicbor::to_vec(&attach).unwrap(), [0x83, 0xf6, 0, 1]);
    let claims = Attach { locks: Some(vec![held]), ..attach };
    let golden = [0x84, 0xf6, 0, 1, 0x81, 0x82, 5, 0x81, 0x84, 0, 0xf5, 2, 9];
    assert_eq!(minicbor::to_vec(&claims).unwrap(), golden);
    let notice = Notice { upto: Seq(1), ..Notice::default() };
    assert_eq!(minicbor::to_vec(&notice).unwrap(), [0x82, 1, 0x82, 0x80, 0x80]);
    let news = Notice { locks: Some(vec![FileId(5)]), ..notice };
    let golden = [0x84, 1, 0x82, 0x80, 0x80, 0xf6, 0x81, 5];
    assert_eq!(minicbor::to_vec(&news).unwrap(), golden);
    assert_eq!(minicbor::decode::<Notice>(&golden).unwrap(), news);
}

fn wanted() -> Wanted {
    let of = WantedOf { file: FileId(5), version: stamp(), chunks: vec![ChunkName([0xab; 24])] };
    Wanted { missing: 300, versions: vec![of] }
}

/// The bytes of a message never change their meaning, and an older one says that nothing is wanted.
#[test]
fn golden_bytes_of_what_is_wanted_still_read() {
    let tail = Tail::TooFar(Seq(1));
    let older = [0x82, 1, 0x81, 0x82, 1, 0x81, 1];
    let nothing =
        Response::Renewed { tail: tail.clone(), wanted: None, allowance: None, conflicts: None };
    assert_eq!(minicbor::decode::<Response>(&older).unwrap(), nothing);
    assert_eq!(minicbor::to_vec(&nothing).unwrap(), older);
    let asks = Response::Renewed { tail, wanted: Some(wanted()), allowance: None, conflicts: None };
    let golden = [
        &[0x82, 1, 0x82, 0x82, 1, 0x81, 1, 0x82, 0x19, 1, 44][..],
        &[0x81, 0x83, 5, 0x82, 3, 9, 0x81, 0x58, 24],
        &[0xab; 24],
    ]
    .concat();
    assert_eq!(minicbor::decode::<Response>(&golden).unwrap(), asks);
    assert_eq!(minicbor::to_vec(&asks).unwrap(), golden);
}

/// The same of what a volume may have, of which an older replica says nothing.
#[test]
fn golden_bytes_of_what_a_volume_may_have_still_read() {
    let users = Some(vec![UserQuota { uid: 5, bytes: 6 }]);
    let quota = Quota { bytes: Some(9), files: Some(10), users };
    let used = Usage { bytes: 8, files: 7 };
    let allowance = Allowance { quota, used, users: Some(vec![4]), upto: Seq(3), taken: 2 };
    let tail = Tail::TooFar(Seq(1));
    let says =
        Response::Renewed { tail, wanted: None, allowance: Some(allowance), conflicts: None };
    let golden = [
        &[0x82, 1, 0x83, 0x82, 1, 0x81, 1, 0xf6][..],
        &[0x85, 0x83, 9, 10, 0x81, 0x82, 5, 6, 0x82, 8, 7, 0x81, 4, 3, 2],
    ]
    .concat();
    assert_eq!(minicbor::decode::<Response>(&golden).unwrap(), says);
    assert_eq!(minicbor::to_vec(&says).unwrap(), golden);
    assert_eq!(minicbor::to_vec(Refusal::OverQuota).unwrap(), [0x82, 9, 0x80]);
    assert_eq!(minicbor::to_vec(Objection::OverQuota).unwrap(), [13]);
}

/// The answer to a renewal as somebody reads it who knows of no second field.
#[derive(Debug, PartialEq, Decode)]
enum Older {
    #[n(1)]
    Renewed(#[n(0)] Tail),
}

#[test]
fn an_older_client_passes_over_what_is_wanted() {
    let tail = Tail::TooFar(Seq(1));
    let asks = Response::Renewed {
        tail: tail.clone(),
        wanted: Some(wanted()),
        allowance: None,
        conflicts: Some(3),
    };
    let bytes = minicbor::to_vec(asks).unwrap();
    assert_eq!(minicbor::decode::<Older>(&bytes).unwrap(), Older::Renewed(tail));
}

#[test]
fn a_message_that_is_cut_short_is_refused() {
    for (whole, read) in [
        (request(), read_back::<Request> as fn(&[u8]) -> bool),
        (response(), read_back::<Response>),
        (minicbor::to_vec(gather()).unwrap(), read_back::<Request>),
        (minicbor::to_vec(gathered()).unwrap(), read_back::<Response>),
    ] {
        assert!((0..whole.len()).all(|end| !read(&whole[..end])));
    }
}

#[test]
fn a_list_that_says_it_is_endless_is_refused_before_room_is_made_for_it() {
    // An inspection of 2^63 files, of which none follows.
    let bytes = [0x82, 3, 0x82, 0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0];
    assert!(!read_back::<Request>(&bytes));
}

proptest! {
    #[test]
    fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>, variant in 0_u8..13) {
        for bytes in [bytes.clone(), [&[0x82, variant][..], &bytes].concat()] {
            read_back::<Request>(&bytes);
            read_back::<Response>(&bytes);
        }
    }

    #[test]
    fn prop_a_damaged_message_is_read_or_refused(at: prop::sample::Index, value: u8) {
        let (mut request, mut response) = (request(), response());
        let (in_request, in_response) = (at.index(request.len()), at.index(response.len()));
        request[in_request] = value;
        response[in_response] = value;
        read_back::<Request>(&request);
        read_back::<Response>(&response);
    }
}

/// The bytes of a message never change their meaning.
#[test]
fn golden_bytes_of_earlier_states_still_read() {
    use past::{Changed, Found, History, Looks, NotFound, Past, Restore, Restored, SnapshotInfo};
    use past::{Then, Version};
    let name = |text: &[u8]| Name::new(text).unwrap();
    let at = Time { secs: 1, nanos: 2 };
    let snapshot = Past::Snapshot { name: "a".into(), uid: 3, token: 9 };
    let restore = Past::Restore(Restore {
        path: vec![name(b"d"), name(b"f")],
        then: Then::Version(Seq(7)),
        to: None,
        uid: 3,
        gid: 4,
        groups: None,
        over_others: None,
    });
    let history = Past::History { path: vec![name(b"f")], before: None, versions_max: 5, by: None };
    let info = SnapshotInfo {
        number: SnapshotId(1),
        name: name(b"a"),
        position: Seq(7),
        at,
        device: None,
        uid: 3,
    };
    let looks =
        Looks { kind: Kind::File, size: 8, mode: 0o644, uid: 3, gid: 4, mtime: at, pruned: false };
    let version = Version {
        since: Seq(6),
        at,
        by: ReplicaId(2),
        device: Some("ada".into()),
        changes: vec![Changed::Contents, Changed::Moved(vec![name(b"e")])],
        looks: Some(looks),
    };
    let found = Found::History(History { versions: vec![version], more: true });
    let requests = [Past::Snapshots, snapshot, restore, history].map(|past| {
        let bytes = minicbor::to_vec(Request::Past(past.clone())).unwrap();
        assert_eq!(minicbor::decode::<Request>(&bytes).unwrap(), Request::Past(past));
        hex(&bytes)
    });
    let answers = [
        Found::Snapshot(info),
        found,
        Found::Restored(Restored { made: 1, changed: 2, same: 3, directories: None }),
        Found::Not(NotFound::TooEarly),
    ]
    .map(|found| {
        let bytes = minicbor::to_vec(Response::Past(found.clone())).unwrap();
        assert_eq!(minicbor::decode::<Response>(&bytes).unwrap(), Response::Past(found));
        hex(&bytes)
    });
    expect![[r#"
        820e81820080
        820e8182018361610309
        820e8182048185824164416682008107f60304
        820e81820383814166f605
        8210818201818601416107820102f603
        821081820281828186068201020263616461828201808207818141658700081901a40304820102f4f5
        82108182038183010203
        821081820481820a80"#]]
    .assert_eq(&[requests, answers].concat().join("\n"));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
