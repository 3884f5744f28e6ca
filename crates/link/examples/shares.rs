//! How the classes share a slow link that has more of each to send than it carries, over a real
//! session.
//!
//! `cargo run -p link --example shares [FILE]` takes some minutes, prints a table, and writes it to
//! FILE too.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement with what the tests of the link have"
)]

#[path = "../tests/link/relay.rs"]
mod relay;
#[path = "../tests/link/service.rs"]
mod service;

use link::{Identity, Packets, Remote};
use protocol::{Class, Payload, Request, Upstream};
use relay::Relay;
use service::{Memory, Server, pattern, up};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Bytes a second: 57.6 kb/s.
const RATE: u64 = 7_200;
/// One way, as the emulator's profile of this rate has it.
const DELAY: Duration = Duration::from_millis(100);
const QUEUE_BYTES: usize = 16 << 10;
/// Of one upload, which counts when it begins. Four of each class are under way, so that there is
/// always more.
const UPLOAD_BYTES: usize = 16 << 10;
const UPLOADS: usize = 4;
const SETTLE: Duration = Duration::from_secs(30);
const MEASURED: Duration = Duration::from_secs(600);

/// By the tickets: how much of what both send is the first one's.
const PAIRS: [(Class, Class, f64); 3] = [
    (Class::Demand, Class::Replay, 0.75),
    (Class::Interactive, Class::Demand, 8.0 / 11.0),
    (Class::Interactive, Class::Replay, 8.0 / 9.0),
];

fn upload() -> Request {
    let bytes = pattern(UPLOAD_BYTES);
    let lengths = vec![u32::try_from(bytes.len()).expect("16 KiB")];
    Request::Put { payload: Payload { lengths, bytes: bytes.into(), plain: true }, deltas: None }
}

/// Where a class is in what a session tells of its traffic.
fn place(class: Class) -> usize {
    let all = Class::ALL.iter();
    all.take_while(|one| **one != class).count()
}

/// Bytes of both classes that were sent.
async fn measure(classes: [Class; 2]) -> [u64; 2] {
    let server = Server::start(&Memory::inviting());
    let relay = Relay::with_queue(server.socket(), RATE, DELAY, QUEUE_BYTES).await;
    let mut config = server.config(Identity::generate().expect("a key"));
    config.address.port = relay.address.port();
    // What is slow is far, which the relay's address does not show.
    config.packets = Packets::Least;
    let remote = Arc::new(Remote::connect(config).expect("nothing is asked of the network yet"));
    up(&remote).await;
    let mut uploads = Vec::new();
    for class in classes {
        for _ in 0..UPLOADS {
            let remote = remote.clone();
            uploads.push(tokio::spawn(async move {
                while remote.ask(class, upload()).await.is_ok() {}
            }));
        }
    }
    let sent = || {
        let traffic = remote.traffic();
        classes.map(|class| traffic.sent[place(class)])
    };
    tokio::time::sleep(SETTLE).await;
    let before = sent();
    tokio::time::sleep(MEASURED).await;
    let after = sent();
    uploads.iter().for_each(tokio::task::JoinHandle::abort);
    remote.close();
    [after[0] - before[0], after[1] - before[1]]
}

#[tokio::main]
async fn main() {
    let runs: Vec<_> = PAIRS.map(|(one, other, _)| tokio::spawn(measure([one, other]))).into();
    let mut text = String::from(
        "# Shares of the classes, at 57.6 kb/s\n\n\
         Measured by `cargo run -p link --example shares`. Over a link of 57.6 kb/s and 100 ms each\n\
         way a client uploads in two classes at once, without end, for ten minutes.\n\n\
         | classes | tickets | share of the first | sent, both |\n\
         | --- | --- | --- | --- |\n",
    );
    for ((one, other, tickets), run) in PAIRS.into_iter().zip(runs) {
        let [first, second] = run.await.expect("a measurement that went through");
        let share = first as f64 / (first + second) as f64;
        writeln!(
            text,
            "| {one:?}, {other:?} | {:.1} % | {:.1} % | {:.0} % of the link |",
            tickets * 100.0,
            share * 100.0,
            (first + second) as f64 / MEASURED.as_secs_f64() / RATE as f64 * 100.0
        )
        .expect("a string takes every row");
    }
    print!("{text}");
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(file, text).expect("the file can be written");
    }
}
