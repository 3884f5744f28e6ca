//! Contents over a link that brings a kilobyte a second: whoever waits for them gets them.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot go on is a failed test")]

use client::{Caller, Handle, Making, OpenFlags, WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use std::time::Duration;

const CALLER: Caller = Caller { uid: 1000, gid: 1000 };
/// 9.6 kb/s.
const MODEM: Conditions = Conditions { bytes_a_second: Some(1_200), ..Conditions::NEAR };

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

async fn joined(room: &Room, origin: &OriginMachine, number: usize, line: Conditions) -> SimClient {
    let mode = WantedMode::Fixed(Mode::Connected);
    let mut machine = ClientMachine::new(room, number, origin.invite().unwrap(), line, mode);
    machine.start().await.unwrap();
    machine.client().unwrap().clone()
}

async fn store(client: &SimClient, text: &str, bytes: &[u8]) {
    let (handle, number) = begin_store(client, text, bytes).await;
    client.settled(number).await.unwrap();
    client.release(handle);
}

/// Gives the number of the update to wait for.
async fn begin_store(client: &SimClient, text: &str, bytes: &[u8]) -> (Handle, u64) {
    let making =
        Making { kind: Kind::File, mode: 0o644, uid: 1000, gid: 1000, target: None, rdev: None };
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let name = Name::new(text).unwrap();
    let call = |client: &SimClient| client.create(CALLER, FileId::ROOT, &name, &making, flags);
    let handle = complete(client, call).await.unwrap().value.1.handle;
    complete(client, |client| client.write(handle, 0, bytes)).await.unwrap();
    let done = complete(client, |client| client.flush(CALLER, handle)).await.unwrap();
    (handle, done.wait.expect("connected"))
}

/// Reads the beginning of a file, of which the first try may not be told that time is up.
async fn read(client: &SimClient, text: &str, length: usize) -> Vec<u8> {
    let name = Name::new(text).unwrap();
    let found = complete(client, |client| client.lookup(FileId::ROOT, &name)).await.unwrap();
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let file = found.unwrap().file;
    let opened = complete(client, |client| client.open_file(CALLER, file, flags)).await.unwrap();
    let handle = opened.value.handle;
    let bytes = complete(client, |client| client.read(handle, 0, length)).await.unwrap();
    client.release(handle);
    bytes
}

fn simulated<T>(play: impl AsyncFnOnce(&Room) -> T) -> T {
    sim::run::paused(async {
        let room = Room::new(3, false);
        let outcome = play(&room).await;
        room.network.close();
        outcome
    })
}

#[test]
fn a_file_that_takes_a_minute_is_read_at_the_first_try() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let contents = noise(60_000);
        store(&joined(room, &origin, 0, Conditions::NEAR).await, "minute", &contents).await;
        let far = joined(room, &origin, 1, MODEM).await;
        assert!(read(&far, "minute", contents.len()).await == contents);
    });
}

#[test]
fn a_file_that_takes_minutes_is_stored_by_one_close() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let contents = noise(200_000);
        let far = joined(room, &origin, 0, MODEM).await;
        let before = room.clock.moment();
        store(&far, "minutes", &contents).await;
        let took = room.clock.moment().since(before);
        assert!(took.as_secs() > 160, "the link brings no more than it does: {took:?}");
        let near = joined(room, &origin, 1, Conditions::NEAR).await;
        assert!(read(&near, "minutes", contents.len()).await == contents);
    });
}

#[test]
fn who_waits_for_a_link_that_brings_nothing_is_told_that_time_is_up() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let far = joined(room, &origin, 0, MODEM).await;
        room.network.lose_chunks();
        let (file, number) = begin_store(&far, "never", &noise(20_000)).await;
        let before = room.clock.moment();
        let told = far.settled(number).await;
        assert!(matches!(told, Err(client::Error::TimedOut(_))), "{told:?}");
        assert!(room.clock.moment().since(before).as_secs() < 600);
        far.release(file);
    });
}

#[test]
fn what_a_close_waits_for_is_written_over_when_it_is_there() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let far = joined(room, &origin, 0, MODEM).await;
        let (closed, open) = (noise(20_000), vec![7; 20_000]);
        let (handle, number) = begin_store(&far, "both", &closed).await;
        let before = room.clock.moment();
        let written = complete(&far, |client| client.write(handle, 0, &open));
        let (told, written) = tokio::join!(far.settled(number), written);
        told.unwrap();
        written.unwrap();
        let took = room.clock.moment().since(before);
        assert!((16..60).contains(&took.as_secs()), "as long as the link takes for it: {took:?}");
        let near = joined(room, &origin, 1, Conditions::NEAR).await;
        assert!(read(&near, "both", closed.len()).await == closed, "what was closed is not above");
        let done = complete(&far, |client| client.flush(CALLER, handle)).await.unwrap();
        far.settled(done.wait.expect("connected")).await.unwrap();
        assert!(read(&near, "both", open.len()).await == open);
        far.release(handle);
    });
}

#[test]
fn who_writes_over_what_a_link_does_not_bring_goes_on_and_the_close_is_told() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let far = joined(room, &origin, 0, MODEM).await;
        room.network.lose_chunks();
        let (handle, number) = begin_store(&far, "never", &noise(20_000)).await;
        let before = room.clock.moment();
        let write = complete(&far, |client| client.write(handle, 0, b"other"));
        let later = async {
            // The bound of the first is not that of who comes later.
            room.clock.sleep(Duration::from_secs(25)).await;
            far.settled(number).await
        };
        let (written, told, told_later) = tokio::join!(write, far.settled(number), later);
        written.unwrap();
        assert!(matches!(told, Err(client::Error::TimedOut(_))), "{told:?}");
        assert!(matches!(told_later, Err(client::Error::TimedOut(_))), "{told_later:?}");
        assert!(room.clock.moment().since(before).as_secs() < 600);
        far.release(handle);
    });
}

#[test]
fn the_beginning_of_a_large_file_does_not_wait_for_the_rest() {
    simulated(async |room| {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let contents = noise(600_000);
        store(&joined(room, &origin, 0, Conditions::NEAR).await, "large", &contents).await;
        let far = joined(room, &origin, 1, MODEM).await;
        let before = room.clock.moment();
        assert!(read(&far, "large", 4096).await == contents[..4096]);
        let took = room.clock.moment().since(before);
        assert!(took.as_secs() < 90, "{took:?} for what comes in {} s", contents.len() / 1_200);
    });
}
