//! What an origin takes and gives of new chunks, asked over a link with nothing else at the other
//! end: no mount, no cache, no disk. Beside it what cutting, naming and packing take here, so that
//! it shows which of them is the slower.
//!
//! `cargo run --release -p e2e --example origin_speed -- URL [MEGABYTES [loss]]`, where URL is an
//! invitation to a volume that may be filled, of a server on this machine. With `loss`, what is sent
//! to it goes by losses and not by delay.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a measurement")]

use chunks::{Secret, describe_bytes};
use link::{Congestion, Identity, Remote, RemoteConfig};
use model::{Change, FileId, Kind, Name, Piece, ReplicaId, Stamp, Time, Update};
use protocol::{
    Attach, Class, Event, PAYLOAD_BYTES_MAX, Payload, Range, Request, Response, Submit, Upstream,
};
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use world::World;

/// Requests that are under way at once.
const UNDER_WAY: [usize; 3] = [1, 4, 8];
const MEGABYTE: usize = 1_000_000;

struct Asker {
    remote: Arc<Remote>,
    replica: ReplicaId,
    secret: Secret,
    cutter: protocol::Cutter,
}

/// One message: a stretch of the file, whole chunks.
#[derive(Clone)]
struct Message {
    range: Range,
    lengths: Vec<u32>,
}

async fn attach(url: &str, congestion: Congestion) -> Asker {
    let identity = Identity::generate().expect("a key");
    let address = url.parse().expect("a farfs:// URL with an invitation");
    let mut config = RemoteConfig::new(address, identity, "origin_speed".into(), World::real());
    config.congestion = congestion;
    let remote = Arc::new(Remote::connect(config).expect("a socket"));
    assert!(matches!(remote.event().await, Some(Event::Up)), "the server lets us in");
    let attach = Request::Attach(Attach {
        replica: None,
        made: 0,
        seen: model::Seq(0),
        locks: None,
        life: None,
        heard: None,
    });
    match remote.ask(Class::Interactive, attach).await {
        Ok(Response::Attached(attached)) => Asker {
            remote,
            replica: attached.replica,
            secret: Secret::new(attached.secret),
            cutter: attached.cutter,
        },
        other => panic!("it attaches: {other:?}"),
    }
}

/// Asks for all, so many at once, and says how many MB/s that were.
async fn rate<F: Future<Output = ()> + Send + 'static>(
    bytes: usize,
    under_way: usize,
    asks: impl Iterator<Item = F>,
) -> f64 {
    let (begun, room) = (Instant::now(), Arc::new(Semaphore::new(under_way)));
    let mut tasks = Vec::new();
    for ask in asks {
        let turn = room.clone().acquire_owned().await.expect("it is never closed");
        tasks.push(tokio::spawn(async move {
            ask.await;
            drop(turn);
        }));
    }
    for task in tasks {
        task.await.expect("what was asked is answered");
    }
    bytes as f64 / MEGABYTE as f64 / begun.elapsed().as_secs_f64()
}

fn contents(seed: u8, bytes: usize) -> Vec<u8> {
    let mut contents = vec![0; bytes];
    let mut word = 0x9e37_79b9_7f4a_7c15_u64 ^ (u64::from(seed) << 32);
    for eight in contents.chunks_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        eight.copy_from_slice(&word.to_le_bytes()[..eight.len()]);
    }
    contents
}

fn messages(pieces: &[chunks::Placed]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for placed in pieces {
        let Piece::Chunk { length, .. } = placed.piece else { panic!("there are no zeros") };
        let small = u32::try_from(length).expect("a chunk has at most 1 MiB");
        match messages.last_mut() {
            Some(last) if last.range.length + length <= PAYLOAD_BYTES_MAX as u64 => {
                last.range.length += length;
                last.lengths.push(small);
            }
            _ => {
                let range = Range { offset: placed.offset, length };
                messages.push(Message { range, lengths: vec![small] });
            }
        }
    }
    messages
}

async fn put(asker: &Asker, lengths: Vec<u32>, bytes: Vec<u8>) {
    let payload = Payload { lengths, bytes: bytes.into(), plain: true };
    let answer = asker.remote.ask(Class::Replay, Request::Put { payload, deltas: None }).await;
    assert!(matches!(answer, Ok(Response::Stored { .. })), "{answer:?}");
}

async fn read(asker: &Asker, file: FileId, version: Stamp, range: Range) {
    let request = Request::Read {
        file,
        version,
        ranges: vec![range],
        base: None,
        packed: None,
        inside: None,
    };
    match asker.remote.ask(Class::Demand, request).await {
        Ok(Response::Bytes(payload)) => assert_eq!(payload.bytes.len() as u64, range.length),
        other => panic!("it gives the bytes: {other:?}"),
    }
}

/// A file of these contents, whose chunks are there.
async fn store(asker: &Asker, round: u64, tree: &chunks::Tree) -> (FileId, Stamp) {
    let recipe: Vec<&[u8]> = tree.chunks.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    for some in recipe.chunks(64) {
        put(asker, some.iter().map(|bytes| bytes.len() as u32).collect(), some.concat()).await;
    }
    let file = FileId::new(asker.replica, 10 + round).expect("a small number");
    let stamp = |number| Stamp::new(asker.replica, number);
    let (at, number) = (Time::default(), 2 * round + 1);
    let make = Change::Make {
        parent: FileId::ROOT,
        name: Name::new(format!("speed-{round}-{}", asker.replica).into_bytes()).expect("a name"),
        file,
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        target: None,
        rdev: None,
        born: None,
    };
    let (contents, expects) = (tree.contents, stamp(number));
    let store = Change::Store { file, expects, contents, mtime: at };
    let updates = [(number, make), (number + 1, store)].map(|(number, change)| Update {
        stamp: stamp(number),
        uid: 0,
        at,
        change,
    });
    let submit = Submit {
        settled: number - 1,
        strict: false,
        updates: updates.into(),
        payload: None,
        deltas: None,
        seek: None,
        ahead: None,
        under: None,
    };
    match asker.remote.ask(Class::Interactive, Request::Submit(submit)).await {
        Ok(Response::Submitted(done)) if done.verdicts.len() == 2 => (file, stamp(number + 1)),
        other => panic!("it takes the file: {other:?}"),
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("the first argument is a URL");
    let megabytes: usize = arguments.next().map_or(500, |text| text.parse().expect("a number"));
    let congestion = match arguments.next().as_deref() {
        Some("loss") => Congestion::ByLoss,
        _ => Congestion::ByDelay,
    };
    let asker = Arc::new(attach(&url, congestion).await);
    println!("{:<34} {:>9}  {:>9}", "", "takes", "gives");
    for (round, under_way) in UNDER_WAY.into_iter().enumerate() {
        let bytes: Arc<Vec<u8>> = contents(round as u8, megabytes * MEGABYTE).into();
        let begun = Instant::now();
        let described = describe_bytes(&asker.secret, asker.cutter, &bytes);
        let cut = megabytes as f64 / begun.elapsed().as_secs_f64();
        let messages = messages(&described.pieces);
        let puts = messages.clone().into_iter().map(|message| {
            let (asker, bytes) = (asker.clone(), bytes.clone());
            async move {
                let from = message.range.offset as usize;
                let bytes = bytes[from..][..message.range.length as usize].to_vec();
                put(&asker, message.lengths, bytes).await;
            }
        });
        let taken = rate(bytes.len(), under_way, puts).await;
        let begun = Instant::now();
        let (file, version) = store(&asker, round as u64, &described.tree).await;
        let stored = begun.elapsed();
        let reads = messages.into_iter().map(|message| {
            let asker = asker.clone();
            async move { read(&asker, file, version, message.range).await }
        });
        let given = rate(bytes.len(), under_way, reads).await;
        println!(
            "{:<34} {taken:>6.0} MB/s {given:>6.0} MB/s   recipe and update {:.2} s, cut here {cut:.0} MB/s",
            format!("{megabytes} MB, {under_way} messages at once"),
            stored.as_secs_f64()
        );
    }
    asker.remote.close();
}
