//! Chunks in, chunks out.

use crate::party::{Device, Party, all_chunks, noise, store_of};
use model::{ChunkName, Contents, FileId, Kind, Root, Stamp};
use protocol::{
    Objection, PAYLOAD_BYTES_MAX, Payload, Portion, Range, Refusal, Request, Response, Sought,
    Verdict, Wish,
};

const LARGE: usize = 400_000;

/// A file of `bytes`, stored by ada, with the stamp of its contents.
async fn large_file(ada: &mut Device, bytes: &[u8]) -> (FileId, Stamp) {
    ada.stored("large", bytes).await
}

#[tokio::test(start_paused = true)]
async fn a_store_names_what_is_missing_until_all_of_it_is_here() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(FileId::ROOT, "large", Kind::File);
    ada.replay(make).await;
    let bytes = noise(LARGE, 7);
    let described = ada.describe(&bytes);
    assert!(described.tree.contents.root.unwrap().depth > 0, "it has recipe chunks");
    let store = ada.update(store_of(file, ada.stamp(), described.tree.contents));
    let mut chunks = all_chunks(&described, &bytes);
    let mut rounds = 0;
    let verdict = loop {
        let submitted = ada.submit_all(false, vec![store.clone()], None).await.unwrap();
        if let [verdict] = &submitted.verdicts[..] {
            break verdict.clone();
        }
        assert!(!submitted.missing.is_empty());
        for name in &submitted.missing {
            let at = chunks.iter().position(|chunk| chunk.0 == *name).expect("asked for once");
            ada.put(&[&chunks.swap_remove(at).1]).await;
        }
        rounds += 1;
    };
    assert!(matches!(verdict, Verdict::Taken(_)));
    assert!(chunks.is_empty(), "every chunk was asked for");
    // The root of the recipe first, then what it names; a level a round.
    assert!(rounds <= 3, "{rounds}");
    let fetched = ada.recipe(file, Range { offset: 0, length: LARGE as u64 }, 0).await;
    assert_eq!(fetched.contents, described.tree.contents);
    assert_eq!(fetched.recipe.len(), described.tree.chunks.len());
}

#[tokio::test(start_paused = true)]
async fn verdicts_go_up_to_the_first_file_whose_store_lacks_chunks() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (_, make_folder) = ada.making(FileId::ROOT, "zero", Kind::Directory);
    let make_folder = ada.update(make_folder);
    let (one, make_one) = ada.making(FileId::ROOT, "one", Kind::File);
    let (two, make_two) = ada.making(FileId::ROOT, "two", Kind::File);
    let make_one = ada.update(make_one);
    let text = |text: &str| text.as_bytes().to_vec();
    let first = ada.describe(&text("first"));
    let store_one = ada.update(store_of(one, make_one.stamp, first.tree.contents));
    let make_two = ada.update(make_two);
    let second = ada.describe(&text("second"));
    let store_two = ada.update(store_of(two, make_two.stamp, second.tree.contents));
    let all = vec![make_folder, make_one, store_one, make_two, store_two];
    let submitted = ada.submit_all(false, all.clone(), None).await.unwrap();
    // A file that is made with its contents is not there without them.
    assert_eq!((submitted.verdicts.len(), &party.tree()[..]), (1, "zero/"));
    let missing = [&first, &second].map(|d| d.tree.contents.root.unwrap().name);
    assert_eq!(submitted.missing, missing, "of later stores too");
    // Chunks may come with the updates.
    let payload = Some(chunks::pack(&[b"first", b"second"]));
    let submitted = ada.submit_all(false, all, payload).await.unwrap();
    assert_eq!(submitted.verdicts.len(), 5);
    assert_eq!(party.tree(), "one: first\ntwo: second\nzero/");
}

#[tokio::test(start_paused = true)]
async fn what_comes_with_a_file_that_is_not_made_shares_its_fate_where_its_writer_is_told() {
    for (strict, left) in [(true, 1), (false, 2)] {
        let party = Party::new();
        let mut ada = party.join("ada").await;
        let (_, taken) = ada.making(FileId::ROOT, "taken", Kind::Directory);
        let taken = ada.update(taken);
        assert_eq!(ada.submit_all(strict, vec![taken], None).await.unwrap().verdicts.len(), 1);
        let (file, make) = ada.making(FileId::ROOT, "taken", Kind::File);
        let make = ada.update(make);
        let described = ada.describe(b"text");
        let store = ada.update(store_of(file, make.stamp, described.tree.contents));
        let payload = Some(chunks::pack(&[b"text"]));
        let submitted = ada.submit_all(strict, vec![make, store], payload).await.unwrap();
        let refused = Verdict::Refused(Objection::Exists);
        let are_refused = submitted.verdicts.iter().filter(|verdict| **verdict == refused).count();
        assert_eq!(are_refused, if strict { 2 } else { 0 }, "{:?}", submitted.verdicts);
        assert_eq!(party.tree().lines().count(), left, "{}", party.tree());
    }
}

#[tokio::test(start_paused = true)]
async fn ranges_of_whole_chunks_are_read_and_others_are_malformed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bytes = noise(LARGE, 3);
    let (file, version) = large_file(&mut ada, &bytes).await;
    let pieces = ada.describe(&bytes).pieces;
    let (a, b, z) = (pieces[1], pieces[2], pieces[pieces.len() - 1]);
    let two = Range { offset: a.offset, length: b.end() - a.offset };
    let last = Range { offset: z.offset, length: z.piece.length() };
    let read =
        |ranges| Request::Read { file, version, ranges, base: None, packed: None, inside: None };
    let response = ada.ask(read(vec![two, last])).await;
    let Response::Bytes(payload) = response else { panic!("{response:?}") };
    let chunks = chunks::unpack(&payload, PAYLOAD_BYTES_MAX).unwrap();
    let whole = chunks.concat();
    assert_eq!(chunks.len(), 3);
    assert_eq!(whole[..two.length as usize], bytes[a.offset as usize..b.end() as usize]);
    for bad in [
        Range { offset: a.offset + 1, length: a.piece.length() - 1 },
        Range { offset: a.offset, length: a.piece.length() - 1 },
        Range { offset: 0, length: LARGE as u64 + 1 },
        Range { offset: u64::MAX, length: u64::MAX },
        Range { offset: 0, length: 0 },
    ] {
        let response = ada.ask(read(vec![bad])).await;
        assert!(matches!(response, Response::Refused(Refusal::Malformed(_))), "{bad:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_version_is_read_after_a_newer_one_was_stored() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, old) = ada.write_new(FileId::ROOT, "a", "old text").await;
    let store = ada.storing(file, old, "new text").await;
    ada.replay(store).await;
    let range = Range { offset: 0, length: 8 };
    let read = |version| Request::Read {
        file,
        version,
        ranges: vec![range],
        base: None,
        packed: None,
        inside: None,
    };
    let text = |payload: &Payload| chunks::unpack(payload, 100).unwrap().concat();
    let Response::Bytes(payload) = ada.ask(read(old)).await else { panic!() };
    assert_eq!(text(&payload), b"old text");
    let Response::Bytes(payload) = ada.ask(read(ada.stamp())).await else { panic!() };
    assert_eq!(text(&payload), b"new text");
    let never = Stamp::new(ada.replica, 999);
    let refused = ada.ask(read(never)).await;
    assert_eq!(refused, Response::Refused(Refusal::NoVersion(file, never)));
}

#[tokio::test(start_paused = true)]
async fn few_contents_come_with_their_recipe() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, version) = ada.write_new(FileId::ROOT, "a", "some text").await;
    let none = Range { offset: 0, length: 0 };
    let fetched = ada.recipe(file, none, 9).await;
    assert_eq!(fetched.version, version);
    let bytes = chunks::unpack(&fetched.bytes.unwrap(), 100).unwrap().concat();
    assert_eq!(bytes, b"some text");
    assert!(ada.recipe(file, none, 8).await.bytes.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_recipe_covers_the_range_that_was_asked_for_and_no_more() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let bytes = noise(8 * LARGE, 5);
    let (file, _) = large_file(&mut ada, &bytes).await;
    let all = Range { offset: 0, length: bytes.len() as u64 };
    let whole = ada.recipe(file, all, 0).await.recipe.len();
    let part = ada.recipe(file, Range { offset: 100, length: 1 }, 0).await.recipe.len();
    assert!(part < whole && part > 0, "{part} of {whole}");
}

#[tokio::test(start_paused = true)]
async fn a_recipe_that_lies_is_refused() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(FileId::ROOT, "a", Kind::File);
    ada.replay(make).await;
    let expects = ada.stamp();
    let bytes = noise(LARGE, 9);
    let described = ada.describe(&bytes);
    for (_, chunk) in all_chunks(&described, &bytes) {
        ada.put(&[&chunk]).await;
    }
    let right = described.tree.contents;
    let root = right.root.unwrap();
    let lies = [
        Contents { size: right.size + 1, ..right },
        Contents { size: 0, ..right },
        Contents { root: None, ..right },
        Contents { root: Some(Root { depth: root.depth + 1, ..root }), ..right },
        Contents { root: Some(Root { depth: 200, ..root }), ..right },
        Contents { size: u64::MAX, ..right },
    ];
    for lie in lies {
        let verdict = ada.replay(store_of(file, expects, lie)).await;
        assert_eq!(verdict, Verdict::Refused(Objection::Invalid), "{lie:?}");
    }
    assert!(matches!(ada.replay(store_of(file, expects, right)).await, Verdict::Taken(_)));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_of_another_length_than_its_recipe_says_is_not_sent() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (file, make) = ada.making(FileId::ROOT, "a", Kind::File);
    ada.replay(make).await;
    let long = noise(5000, 1);
    ada.put(&[&long]).await;
    let name = ada.secret().name(&long);
    let lie = Contents { size: 10, root: Some(Root { name, depth: 0 }), holes: None };
    ada.replay(store_of(file, ada.stamp(), lie)).await;
    let ranges = vec![Range { offset: 0, length: 10 }; 1000];
    let refused = ada
        .ask(Request::Read {
            file,
            version: ada.stamp(),
            ranges,
            base: None,
            packed: None,
            inside: None,
        })
        .await;
    assert!(matches!(refused, Response::Refused(Refusal::Failed(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_makes_no_sense_is_malformed() {
    let party = Party::new();
    let ada = party.join("ada").await;
    for payload in [
        Payload { lengths: vec![10], bytes: vec![1, 2].into(), plain: true },
        Payload { lengths: vec![u32::MAX; 4], bytes: vec![].into(), plain: false },
        Payload { lengths: vec![0], bytes: vec![].into(), plain: true },
    ] {
        let refused = ada.ask(Request::Put { payload, deltas: None }).await;
        assert!(matches!(refused, Response::Refused(Refusal::Malformed(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_origin_keeps_no_more_chunks_and_loses_none() {
    let limits = replica::Limits { bytes_max: 100, ..replica::Limits::simulated() };
    let party = Party::with(limits);
    let mut ada = party.join("ada").await;
    ada.write_new(FileId::ROOT, "a", "fits").await;
    let payload = chunks::pack(&[&noise(200, 1)]);
    let refused = ada.ask(Request::Put { payload, deltas: None }).await;
    assert_eq!(refused, Response::Refused(Refusal::NoSpace));
    assert_eq!(party.tree(), "a: fits");
    let Response::Measured(totals) = ada.ask(Request::Measure).await else { panic!() };
    assert_eq!((totals.bytes, totals.bytes_free, totals.files), (4, 96, 2));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_of_one_volume_is_missing_in_another() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    ada.write_new(FileId::ROOT, "a", "secret text").await;
    let name = ada.secret().name(b"secret text");
    party.origin.create_volume("w", 0, 0, protocol::Cutter::Gear).unwrap();
    let token = party.origin.invite("w", protocol::Access::ReadWrite, None).unwrap();
    let mut caller = party.caller("eve", Some(token));
    caller.volume = "w".into();
    let ears = crate::party::Ears::default();
    let session = protocol::Service::admit(&party.origin, caller, ears.clone()).await.unwrap();
    let mut eve = Device::attached("eve", session, ears, None, 0, model::Seq::START).await;
    let (file, make) = eve.making(FileId::ROOT, "stolen", Kind::File);
    eve.replay(make).await;
    let contents = Contents { size: 11, root: Some(Root { name, depth: 0 }), holes: None };
    let store = eve.update(store_of(file, eve.stamp(), contents));
    let submitted = eve.submit_all(false, vec![store], None).await.unwrap();
    assert_eq!(submitted.missing, [name] as [ChunkName; 1]);
}

#[tokio::test(start_paused = true)]
async fn zeros_without_end_are_not_read_at_once() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    // A recipe of 65,536 zeros, each by itself: two small chunks, and nothing wrong with them.
    let many = 256;
    let leaf = [&[1, 1][..], &[3; 256]].concat();
    let one = [&[0x80, 0x04][..], &ada.secret().name(&leaf).0].concat();
    let top = [&[1, 2][..], &one.repeat(256)].concat();
    ada.put(&[&leaf, &top]).await;
    let size = many * 256;
    let root = Some(Root { name: ada.secret().name(&top), depth: 2 });
    let (file, make) = ada.making(FileId::ROOT, "zeros", Kind::File);
    ada.replay(make).await;
    let store = store_of(file, ada.stamp(), Contents { size, root, holes: Some(size) });
    assert!(matches!(ada.replay(store).await, Verdict::Taken(_)));
    let version = ada.stamp();
    let eve = party.join_as("eve", protocol::Access::ReadOnly).await;
    let read = |length, times| {
        let ranges = vec![Range { offset: 0, length }; times];
        eve.ask(Request::Read { file, version, ranges, base: None, packed: None, inside: None })
    };
    assert!(matches!(read(many, 2).await, Response::Bytes(_)));
    for (length, times) in [(30_000, 1), (10_000, 2), (30_000, 10_000)] {
        let told = read(length, times).await;
        assert!(matches!(told, Response::Refused(Refusal::Malformed(_))), "{length}: {told:?}");
    }
    let ranges = Some(vec![Range { offset: 0, length: 30_000 }; 10_000]);
    let wish = Wish { file, version, base: None, ranges };
    let (bytes_max, sought) = (PAYLOAD_BYTES_MAX as u64, Sought::Contents);
    let gather = Request::Gather { files: vec![wish; 8], bytes_max, sought, held: None };
    let Response::Gathered(gathered) = eve.ask(gather).await else { panic!("refused") };
    // So much is looked for in one answer, and the others are to be asked for anew.
    assert_eq!(gathered.portions, vec![Portion::Nothing; 2]);
}
