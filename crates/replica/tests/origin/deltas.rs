//! Chunks as what they add to a version that both sides have.

use crate::party::{Device, Party, all_chunks, noise, store_of};
use chunks::delta::Effort;
use model::{Contents, FileId, Stamp};
use protocol::{
    BASE_BYTES_MAX, Base, DELTAS_MAX, Delta, PAYLOAD_BYTES_MAX, Payload, Range, Refusal, Request,
    Response, Submit, Submitted, Verdict,
};

const BYTES: usize = 300_000;

/// A text of no pattern, and the same with something put in at three places.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let old = noise(BYTES, 1);
    let mut new = old.clone();
    for at in [200_000, 100_000, 50] {
        new.splice(at..at, *b"something that was put in");
    }
    (old, new)
}

/// A file with the first version, stored by ada.
async fn stored(ada: &mut Device, bytes: &[u8]) -> (FileId, Stamp) {
    ada.stored("large", bytes).await
}

fn whole(file: FileId, version: Stamp, bytes: &[u8]) -> Base {
    Base { file, version, stretch: Range { offset: 0, length: bytes.len() as u64 } }
}

/// All chunks of `new` as one delta against `old`, and the contents that they make.
fn delta(ada: &Device, base: Base, old: &[u8], new: &[u8]) -> (Delta, Contents) {
    let described = ada.describe(new);
    let chunks: Vec<Vec<u8>> =
        all_chunks(&described, new).into_iter().map(|(_, chunk)| chunk).collect();
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let from = base.stretch.offset as usize;
    let old = &old[from..from + base.stretch.length as usize];
    let delta = chunks::pack_against(&ada.secret(), (base, old), &chunks, Effort::Usual)
        .expect("they are alike");
    (delta, described.tree.contents)
}

async fn submit(
    ada: &mut Device,
    file: FileId,
    expects: Stamp,
    sent: (Delta, Contents),
) -> Submitted {
    let updates = vec![ada.update(store_of(file, expects, sent.1))];
    let deltas = Some(vec![sent.0]);
    let submit = Submit {
        settled: 0,
        strict: false,
        updates,
        payload: None,
        deltas,
        seek: None,
        ahead: None,
        under: None,
    };
    match ada.ask(Request::Submit(submit)).await {
        Response::Submitted(submitted) => submitted,
        response => panic!("{response:?}"),
    }
}

async fn read(ada: &Device, file: FileId, version: Stamp, bytes: &[u8]) -> Vec<u8> {
    let ranges = vec![Range { offset: 0, length: bytes.len() as u64 }];
    match ada
        .ask(Request::Read { file, version, ranges, base: None, packed: None, inside: None })
        .await
    {
        Response::Bytes(payload) => chunks::unpack(&payload, PAYLOAD_BYTES_MAX).unwrap().concat(),
        response => panic!("{response:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_chunks_come_as_a_delta_is_taken() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (old, new) = versions();
    let (file, before) = stored(&mut ada, &old).await;
    let sent = delta(&ada, whole(file, before, &old), &old, &new);
    // The names in the recipe are most of it.
    let names = 24 * ada.describe(&new).pieces.len();
    assert!(sent.0.bytes.len() < names + 2000, "{} bytes", sent.0.bytes.len());
    let submitted = submit(&mut ada, file, before, sent).await;
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "{submitted:?}");
    assert_eq!(submitted.useless, None);
    assert!(read(&ada, file, ada.stamp(), &new).await == new);
}

#[tokio::test(start_paused = true)]
async fn a_stretch_of_a_version_that_is_not_current_serves_as_well() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (old, new) = versions();
    let (file, first) = stored(&mut ada, &old).await;
    let second = ada.storing(file, first, "something else").await;
    ada.replay(second).await;
    // In the middle of a chunk at both ends.
    let stretch = Range { offset: 12_345, length: 280_000 };
    let sent = delta(&ada, Base { file, version: first, stretch }, &old, &new);
    let expects = ada.stamp();
    let submitted = submit(&mut ada, file, expects, sent).await;
    assert!(matches!(submitted.verdicts[..], [Verdict::Taken(_)]), "{submitted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_base_that_is_not_here_is_told_and_what_is_missing_too() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (old, new) = versions();
    let (file, before) = stored(&mut ada, &old).await;
    let never = Stamp::new(ada.replica, 999);
    let right = whole(file, before, &old);
    let beyond = Range { offset: 1, length: BYTES as u64 };
    let (good, contents) = delta(&ada, right, &old, &new);
    let with = |base| Delta { base, ..good.clone() };
    let bad = [
        with(Base { version: never, ..right }),
        with(Base { file: FileId(12_345), ..right }),
        with(Base { stretch: beyond, ..right }),
        with(Base { stretch: Range { offset: u64::MAX, length: 2 }, ..right }),
        with(Base { stretch: Range { offset: 0, length: 0 }, ..right }),
        with(Base { stretch: Range { offset: 0, length: BASE_BYTES_MAX + 1 }, ..right }),
        with(Base { stretch: Range { offset: 0, length: 1000 }, ..right }),
        Delta { codec: 250, ..good.clone() },
        Delta { check: good.check ^ 1, ..good.clone() },
        Delta { bytes: b"nothing of the kind".to_vec().into(), ..good.clone() },
    ];
    for delta in bad {
        let base = delta.base;
        let submitted = submit(&mut ada, file, before, (delta.clone(), contents)).await;
        assert_eq!(submitted.verdicts, [], "{base:?}");
        assert!(!submitted.missing.is_empty(), "{base:?}");
        assert_eq!(submitted.useless, Some(vec![(base.file, base.version)]));
        let payload = chunks::pack(&[]);
        let put = ada.ask(Request::Put { payload, deltas: Some(vec![delta]) }).await;
        let useless = Some(vec![(base.file, base.version)]);
        assert_eq!(put, Response::Stored { useless, known: None });
    }
    let payload = chunks::pack(&[]);
    let put = ada.ask(Request::Put { payload, deltas: Some(vec![good]) }).await;
    assert_eq!(put, Response::Stored { useless: None, known: None }, "nothing was spoiled by that");
    assert!(matches!(ada.replay(store_of(file, before, contents)).await, Verdict::Taken(_)));
}

#[tokio::test(start_paused = true)]
async fn more_work_than_one_message_may_ask_for_is_malformed() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (old, new) = versions();
    let (file, before) = stored(&mut ada, &old).await;
    let (good, _) = delta(&ada, whole(file, before, &old), &old, &new);
    let long = Base { stretch: Range { offset: 0, length: BASE_BYTES_MAX }, ..good.base };
    let small = Delta { lengths: vec![1], ..good.clone() };
    for deltas in [
        vec![small.clone(); DELTAS_MAX + 1],
        vec![Delta { base: long, ..small }; DELTAS_MAX],
        vec![good.clone(); 17],
        vec![Delta { lengths: vec![0], ..good.clone() }],
        vec![Delta { lengths: vec![u32::MAX; 2], ..good }],
    ] {
        let payload = chunks::pack(&[]);
        let refused = ada.ask(Request::Put { payload, deltas: Some(deltas) }).await;
        assert!(matches!(refused, Response::Refused(Refusal::Malformed(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_who_has_the_version_before_gets_the_difference() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let (old, new) = versions();
    let (file, before) = stored(&mut ada, &old).await;
    let (_, contents) = delta(&ada, whole(file, before, &old), &old, &new);
    for (_, chunk) in all_chunks(&ada.describe(&new), &new) {
        ada.put(&[&chunk]).await;
    }
    ada.replay(store_of(file, before, contents)).await;
    let base = whole(file, before, &old);
    let ranges = vec![Range { offset: 0, length: new.len() as u64 }];
    let read = |base, packed| Request::Read {
        file,
        version: ada.stamp(),
        ranges: ranges.clone(),
        base,
        packed,
        inside: None,
    };
    // What is no container is not taken for one, whatever is said of it.
    for packed in [None, Some(true)] {
        let Response::Delta(delta) = ada.ask(read(Some(base), packed)).await else { panic!() };
        assert!(delta.bytes.len() < 1000, "{} bytes", delta.bytes.len());
        let made = chunks::unpack_against(&ada.secret(), &delta, &old, PAYLOAD_BYTES_MAX).unwrap();
        assert!(made.unwrap().concat() == new);
    }

    for base in [
        Base { version: Stamp::new(ada.replica, 999), ..base },
        Base { stretch: Range { offset: 5, length: u64::MAX }, ..base },
    ] {
        let plain = ada.ask(read(Some(base), Some(true))).await;
        let Response::Bytes(Payload { lengths, .. }) = plain else { panic!("{plain:?}") };
        assert_eq!(lengths.iter().sum::<u32>() as usize, new.len());
    }
}

#[tokio::test(start_paused = true)]
async fn small_contents_come_with_their_recipe_as_a_delta() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let old: String = (0..200).map(|line| format!("line {line} of the text\n")).collect();
    let (file, before) = ada.write_new(FileId::ROOT, "a", &old).await;
    let new = old.replace("line 77 ", "another line ");
    let store = ada.storing(file, before, &new).await;
    ada.replay(store).await;
    let base = Some(whole(file, before, old.as_bytes()));
    let range = Range { offset: 0, length: 1 };
    let asked = Request::Recipe { file, version: None, range, eager_bytes: 65_536, base };
    let Response::Recipe(fetched) = ada.ask(asked).await else { panic!() };
    assert_eq!(fetched.bytes, None);
    let delta = fetched.delta.unwrap();
    assert!(delta.bytes.len() < 60, "{} bytes", delta.bytes.len());
    let made = chunks::unpack_against(&ada.secret(), &delta, old.as_bytes(), 65_536).unwrap();
    assert_eq!(made.unwrap().concat(), new.as_bytes());
}
