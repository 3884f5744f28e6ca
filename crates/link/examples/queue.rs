//! How long a small request waits behind a bulk upload on a slow link, with our congestion control
//! and with the one that the library of QUIC takes by itself, side by side.
//!
//! `cargo run -p link --example queue [FILE]` takes some minutes, prints a table, and writes it to
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

use link::{Congestion, Identity, Packets, Remote};
use protocol::{Class, Payload, Request, Upstream};
use relay::Relay;
use service::{Memory, Server, pattern, up};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes a second: 9.6 kb/s.
const RATE: u64 = 1_200;
/// One way, as the emulator's profile of this rate has it.
const DELAY: Duration = Duration::from_millis(100);
/// Of one upload.
const BULK_BYTES: usize = 256 << 10;
/// The upload goes on alone for so long.
const ALONE: Duration = Duration::from_secs(60);
const REQUESTS: usize = 8;
const BETWEEN: Duration = Duration::from_secs(2);
/// Who waits longer gives up, and counts as waiting so long.
const WAIT_MAX: Duration = Duration::from_secs(90);
/// A queue of half a minute is not to be taken for a dead link.
const SILENCE: Duration = Duration::from_secs(120);

struct Row {
    congestion: Congestion,
    queue_bytes: usize,
    waits: Vec<Duration>,
    /// Bytes a second.
    sent: f64,
}

fn upload() -> Request {
    let bytes = pattern(BULK_BYTES);
    let lengths = vec![u32::try_from(bytes.len()).expect("a quarter of a MiB")];
    Request::Put { payload: Payload { lengths, bytes: bytes.into(), plain: true }, deltas: None }
}

async fn measure(congestion: Congestion, queue_bytes: usize) -> Row {
    let server = Server::start(&Memory::inviting());
    let relay = Relay::with_queue(server.socket(), RATE, DELAY, queue_bytes).await;
    let mut config = server.config(Identity::generate().expect("a key"));
    config.address.port = relay.address.port();
    config.limits.silence = SILENCE;
    config.congestion = congestion;
    // What is slow is far, which the relay's address does not show.
    config.packets = Packets::Least;
    let remote = Arc::new(Remote::connect(config).expect("nothing is asked of the network yet"));
    up(&remote).await;
    let bulk = tokio::spawn({
        let remote = remote.clone();
        async move { while remote.ask(Class::Replay, upload()).await.is_ok() {} }
    });
    tokio::time::sleep(ALONE).await;
    let (began, before) = (Instant::now(), remote.traffic().wire_sent);
    let mut waits = Vec::new();
    for _ in 0..REQUESTS {
        let asked = Instant::now();
        let answer = remote.ask(Class::Interactive, Request::Measure);
        let answered = matches!(tokio::time::timeout(WAIT_MAX, answer).await, Ok(Ok(_)));
        waits.push(if answered { asked.elapsed() } else { WAIT_MAX });
        tokio::time::sleep(BETWEEN).await;
    }
    let sent = (remote.traffic().wire_sent - before) as f64 / began.elapsed().as_secs_f64();
    waits.sort();
    bulk.abort();
    remote.close();
    Row { congestion, queue_bytes, waits, sent }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "# A small request behind a bulk upload, at 9.6 kb/s\n\n\
         Measured by `cargo run -p link --example queue`. One client uploads without end, in the\n\
         class of replay, over a link of 9.6 kb/s and 100 ms each way. After a minute it asks a\n\
         small question in the class of names, eight times, two seconds after each answer. How\n\
         much of what it sends may be under way is decided by delay, as everywhere in FarFS, or by\n\
         losses, as the library of QUIC does by itself; classes and their lottery are the same. The\n\
         *queue* is what the link holds before it drops packets, *sent* what the client put on the\n\
         wire in that time, as a share of the link's rate: more than all of it was sent in vain.\n\n\
         | congestion control | queue | least wait | median | longest | sent |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let name = match row.congestion {
            Congestion::ByDelay => "by delay (ours)",
            Congestion::ByLoss => "by losses (Cubic)",
        };
        let at = |place: usize| row.waits[place].as_secs_f64();
        writeln!(
            text,
            "| {name} | {} KiB | {:.1} s | {:.1} s | {:.1} s | {:.0} % |",
            row.queue_bytes >> 10,
            at(0),
            at(REQUESTS / 2),
            at(REQUESTS - 1),
            100.0 * row.sent / RATE as f64
        )
        .expect("a string takes every row");
    }
    text
}

#[tokio::main]
async fn main() {
    let runs: Vec<_> = [16 << 10, 32 << 10]
        .into_iter()
        .flat_map(|queue| [Congestion::ByDelay, Congestion::ByLoss].map(|how| (how, queue)))
        .map(|(how, queue)| tokio::spawn(measure(how, queue)))
        .collect();
    let mut rows = Vec::new();
    for run in runs {
        rows.push(run.await.expect("a measurement that went through"));
    }
    let text = table(&rows);
    print!("{text}");
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(file, text).expect("the file can be written");
    }
}
