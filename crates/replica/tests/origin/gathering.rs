//! The contents of several files in one answer.

use crate::party::{Device, Party, noise};
use model::{FileId, Stamp};
use protocol::{
    Base, GATHERED_FILES_MAX, Gathered, PAYLOAD_BYTES_MAX, Portion, Range, Refusal, Request,
    Response, Sought, Wish,
};

type Version = (FileId, Stamp);

async fn store(ada: &mut Device, text: &str, bytes: &[u8]) -> Version {
    ada.stored(text, bytes).await
}

fn wish((file, version): Version) -> Wish {
    Wish { file, version, base: None, ranges: None }
}

async fn gather(ada: &Device, files: Vec<Wish>, bytes_max: u64, held: Vec<Version>) -> Gathered {
    let held = (!held.is_empty()).then_some(held);
    let request = Request::Gather { files, bytes_max, sought: Sought::Contents, held };
    match ada.ask(request).await {
        Response::Gathered(gathered) => gathered,
        other => panic!("{other:?}"),
    }
}

/// The contents of the portions that came plain.
fn plain(gathered: &Gathered) -> Vec<Option<Vec<u8>>> {
    let mut chunks = chunks::unpack(&gathered.payload, PAYLOAD_BYTES_MAX).unwrap().into_iter();
    let contents = gathered.portions.iter().map(|portion| match portion {
        Portion::Plain { chunks: count, .. } => {
            Some(chunks.by_ref().take(*count as usize).flatten().collect())
        }
        _ => None,
    });
    contents.collect()
}

#[tokio::test(start_paused = true)]
async fn several_files_come_in_order_as_one_stream() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let large = noise(100_000, 1);
    let one = store(&mut ada, "one", b"first").await;
    let two = store(&mut ada, "two", &large).await;
    let empty = ada.write_new(FileId::ROOT, "none", "").await;
    let wishes = [two, one, empty].map(wish).into();
    let gathered = gather(&ada, wishes, 1 << 20, vec![]).await;
    let expected = [Some(large), Some(b"first".to_vec()), Some(vec![])];
    assert_eq!(plain(&gathered), expected);
    let Portion::Plain { contents, .. } = &gathered.portions[1] else { panic!() };
    assert_eq!(*contents, ada.describe(b"first").tree.contents, "with what checks it");
}

#[tokio::test(start_paused = true)]
async fn as_many_of_the_first_come_as_there_is_room_for_and_one_at_least() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let mut wishes = Vec::new();
    for number in 0..3 {
        wishes.push(wish(store(&mut ada, &number.to_string(), &noise(10_000, number)).await));
    }
    for (room, portions) in [(30_000, 3), (29_999, 2), (10_000, 1), (0, 1)] {
        let gathered = gather(&ada, wishes.clone(), room, vec![]).await;
        assert_eq!(gathered.portions.len(), portions, "{room}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_given_keeps_nothing_else_back() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let one = store(&mut ada, "one", b"first").await;
    let huge = store(&mut ada, "huge", &noise(PAYLOAD_BYTES_MAX + 1, 3)).await;
    let never = (one.0, Stamp::new(ada.replica, 999));
    let nobody = (FileId(1 << 50), one.1);
    let directory = (FileId::ROOT, Stamp::default());
    let half = Wish { ranges: Some(vec![Range { offset: 0, length: 2 }]), ..wish(one) };
    let mut wishes: Vec<Wish> = [never, nobody, huge, directory].map(wish).into();
    wishes.extend([half, wish(one)]);
    let gathered = gather(&ada, wishes, 1 << 20, vec![]).await;
    assert_eq!(gathered.portions[..5], vec![Portion::Nothing; 5]);
    assert_eq!(plain(&gathered)[5].as_deref(), Some(&b"first"[..]));
    let files = vec![wish(one); GATHERED_FILES_MAX + 1];
    let sought = Sought::Contents;
    let refused = ada.ask(Request::Gather { files, bytes_max: 1, sought, held: None }).await;
    assert!(matches!(refused, Response::Refused(Refusal::Malformed(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn one_comes_against_its_base_and_recipes_come_alone() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let old = noise(50_000, 1);
    let new = [&old[..20_000], b"something else", &old[20_000..]].concat();
    let before = store(&mut ada, "before", &old).await;
    let changed = store(&mut ada, "changed", &new).await;
    let stretch = Range { offset: 0, length: old.len() as u64 };
    let base = Some(Base { file: before.0, version: before.1, stretch });
    let wishes = vec![Wish { base, ..wish(changed) }];
    let gathered = gather(&ada, wishes, 1 << 20, vec![]).await;
    let [Portion::Delta { delta, .. }] = &gathered.portions[..] else { panic!("{gathered:?}") };
    assert!(delta.bytes.len() < 200, "{} bytes", delta.bytes.len());
    let chunks = chunks::unpack_against(&ada.secret(), delta, &old, 1 << 20).unwrap().unwrap();
    assert_eq!(chunks.concat(), new);
    let (files, sought) = (vec![wish(changed)], Sought::Recipes);
    let asked = Request::Gather { files, bytes_max: 1 << 20, sought, held: None };
    let Response::Gathered(gathered) = ada.ask(asked).await else { panic!() };
    let Portion::Recipe { contents, recipe } = &gathered.portions[0] else { panic!() };
    let described = ada.describe(&new);
    assert_eq!(*contents, described.tree.contents);
    assert_eq!(recipe.len(), described.tree.chunks.len());
}

#[tokio::test(start_paused = true)]
async fn what_comes_takes_from_versions_that_the_client_names_if_all_are_here() {
    let party = Party::new();
    let mut ada = party.join("ada").await;
    let old = noise(50_000, 1);
    let one = store(&mut ada, "one", &old[..30_000]).await;
    let two = store(&mut ada, "two", &old[30_000..]).await;
    let new = [&old[35_000..], b" and ", &old[..9_000]].concat();
    let third = store(&mut ada, "three", &new).await;
    let held = vec![one, two];
    let gathered = gather(&ada, vec![wish(third)], 1 << 20, held).await;
    let sequel = gathered.sequel.expect("it is worth it");
    assert!(sequel.bytes.len() < 200 && gathered.payload.lengths.is_empty());
    let chunks = chunks::unpack_after(&ada.secret(), &sequel, &old, 1 << 20).unwrap().unwrap();
    assert_eq!(chunks.concat(), new);
    let never = (one.0, Stamp::new(ada.replica, 999));
    let gathered = gather(&ada, vec![wish(third)], 1 << 20, vec![one, never]).await;
    assert!(gathered.sequel.is_none());
    assert_eq!(plain(&gathered), [Some(new)]);
}
