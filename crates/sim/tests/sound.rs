//! A client whose disk loses bits of what the server has: that is found when the cache is read
//! through, and fetched anew.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{OpenFlags, ReadThrough, WantedMode, Wrong};
use protocol::Mode;
use replica::Limits;
use sim::check;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::time::Duration;
use store::{Container, Containers, Durability, Tables};

/// Of its recipe the client keeps what it has seen.
const LARGE: usize = 3_000_000;
const SMALL: usize = 60_000;
const FILES: [(&str, u64, usize); 4] =
    [("large", 1, LARGE), ("small", 2, SMALL), ("one", 3, 900), ("other", 4, SMALL)];
const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const READ: OpenFlags = OpenFlags { read: true, write: false, truncate: false, append: false };
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer than it takes until it is looked whether a pass is due, and until such a cache is read.
const LOOKED: Duration = Duration::from_secs(1300);
const CHECKPOINTED: Duration = Duration::from_secs(12);

async fn perform(client: &SimClient, operations: &[Operation]) -> Outcome {
    let mut programs = Programs::default();
    let mut last = Outcome::Done;
    for operation in operations {
        last = programs.perform(client, operation).await;
    }
    last
}

async fn save(client: &SimClient, path: &str, version: u64, length: usize) {
    let slot = 0;
    let saved = perform(
        client,
        &[
            Operation::Create { path: Path::new(path), mode: 0o644, slot },
            Operation::Write { slot, offset: 0, length, version },
            Operation::Close { slot },
        ],
    )
    .await;
    assert!(!matches!(saved, Outcome::Failed(_)), "{saved}");
}

async fn read(client: &SimClient, path: &str) -> Outcome {
    perform(client, &[Operation::Fetch { path: Path::new(path) }]).await
}

async fn file_of(client: &SimClient, path: &str) -> u64 {
    match perform(client, &[Operation::Stat { path: Path::new(path) }]).await {
        Outcome::Shown(shown) => shown.file,
        other => panic!("{other}"),
    }
}

/// Flips a bit of every container of a file. Says of how many.
fn flip(machine: &ClientMachine, file: u64, at: u64) -> usize {
    let containers = machine.disk.containers("files");
    let keys = containers.list_of(file).unwrap();
    for key in &keys {
        let container = containers.open(*key, false).unwrap().unwrap();
        let byte = container.read(at, 1).unwrap()[0];
        container.write(at, &[byte ^ 4]).unwrap();
    }
    keys.len()
}

async fn read_through(client: &SimClient) -> ReadThrough {
    let mut all = ReadThrough::default();
    let mut next = Some((0, 0));
    while let Some(at) = next {
        let turn = client.read_through(at).await.unwrap();
        all.files += turn.files;
        all.bytes += turn.bytes;
        all.unknown += turn.unknown;
        all.wrong.extend(turn.wrong);
        assert_ne!(turn.next, Some(at), "it goes on");
        next = turn.next;
    }
    all
}

struct Scene {
    origin: OriginMachine,
    /// Who wrote the files, and who has read them.
    machines: [ClientMachine; 2],
    clients: [SimClient; 2],
}

impl Scene {
    async fn set(room: &Room) -> Scene {
        let origin = OriginMachine::start(room, Limits::simulated()).unwrap();
        let writer = ClientMachine::invited(room, &origin, 0, Conditions::NEAR, PARTIAL);
        let reader =
            ClientMachine::new(room, 1, origin.invite().unwrap(), Conditions::NEAR, PARTIAL);
        let mut machines = [writer, reader];
        let mut clients = Vec::new();
        for machine in &mut machines {
            clients.push(machine.start().await.unwrap());
        }
        for (path, version, length) in FILES {
            save(&clients[0], path, version, length).await;
        }
        check::settled(room, &machines, true).await.unwrap();
        for (path, version, length) in FILES {
            assert_eq!(read(&clients[1], path).await, Outcome::Bytes(stretch(version, length)));
        }
        room.clock.sleep(CHECKPOINTED).await;
        let clients = clients.try_into().unwrap_or_else(|_| panic!("there are two"));
        Scene { origin, machines, clients }
    }

    /// The large one, the small one, and where a bit of them was flipped.
    async fn harm(&self, side: usize) {
        for (path, at) in [("large", 1_500_000), ("small", 31_000)] {
            let file = file_of(&self.clients[side], path).await;
            assert!(flip(&self.machines[side], file, at) > 0);
        }
    }

    async fn is_right(&self, side: usize) {
        for (path, version, length) in FILES {
            let seen = read(&self.clients[side], path).await;
            assert!(seen == Outcome::Bytes(stretch(version, length)), "side {side}: {path}");
        }
    }
}

fn simulated(work: impl AsyncFnOnce(&Room)) {
    sim::run::paused(async {
        let room = Room::new(1, false);
        work(&room).await;
        room.network.close();
    });
}

#[test]
fn what_the_disk_has_lost_of_a_cached_file_is_fetched_anew() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        for side in [0, 1] {
            let sound = read_through(&scene.clients[side]).await;
            assert_eq!((&sound.wrong[..], sound.unknown), (&[][..], 0), "side {side}");
            assert!(sound.bytes >= (LARGE + 2 * SMALL + 900) as u64, "side {side}: {sound:?}");
            scene.harm(side).await;
            let before = scene.clients[side].status().wire_bytes_received;
            let found = read_through(&scene.clients[side]).await;
            let mut named: Vec<_> = found.wrong.iter().map(|wrong| &wrong.path[..]).collect();
            named.sort_unstable();
            assert_eq!(named, ["large", "small"], "side {side}");
            assert!(found.wrong.iter().all(|wrong| wrong.left.is_none()), "{found:?}");
            let bytes: u64 = found.wrong.iter().map(|wrong| wrong.bytes).sum();
            assert!(bytes < 200_000, "side {side}: only what is wrong leaves: {bytes}");
            let came = scene.clients[side].status().wire_bytes_received - before;
            assert!(came < 300_000, "side {side}: {came}");
            let mended = scene.clients[side].status().mended;
            assert_eq!((mended.times, mended.bytes), (2, bytes), "side {side}");
            scene.is_right(side).await;
            assert_eq!(read_through(&scene.clients[side]).await.wrong, [], "side {side}");
        }
        scene.is_right(0).await;
        check::nothing_broke(room, &scene.machines).unwrap();
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

#[test]
fn a_week_after_the_last_time_the_cache_is_read_through_by_itself() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        // Nobody runs meanwhile, so that there is little to simulate.
        scene.machines[0].stop(End::Killed, Duration::ZERO);
        scene.machines[1].stop(End::Killed, Duration::ZERO);
        room.clock.sleep(6 * DAY).await;
        scene.clients[1] = scene.machines[1].start().await.unwrap();
        scene.harm(1).await;
        room.clock.sleep(LOOKED).await;
        assert_eq!(scene.clients[1].status().mended.times, 0, "it was read six days ago");
        scene.machines[1].stop(End::Killed, Duration::ZERO);
        room.clock.sleep(2 * DAY).await;
        scene.clients[1] = scene.machines[1].start().await.unwrap();
        room.clock.sleep(LOOKED).await;
        assert_eq!(scene.clients[1].status().mended.times, 2);
        scene.is_right(1).await;
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

#[test]
fn without_a_link_what_is_wrong_stays_until_there_is_one() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        let disconnected = WantedMode::Fixed(Mode::Disconnected);
        scene.clients[1].set_mode(disconnected);
        room.clock.sleep(CHECKPOINTED).await;
        scene.harm(1).await;
        let found = read_through(&scene.clients[1]).await;
        let mut named: Vec<_> = found.wrong.iter().map(|wrong| &wrong.path[..]).collect();
        named.sort_unstable();
        assert_eq!((&named[..], found.unknown), (&["large", "small"][..], 0), "{found:?}");
        assert!(found.wrong.iter().all(|wrong| wrong.left.is_some()), "{found:?}");
        assert!(matches!(read(&scene.clients[1], "large").await, Outcome::Bytes(_)), "it stays");
        assert_eq!(scene.clients[1].status().mended.times, 0);
        scene.clients[1].set_mode(PARTIAL);
        room.clock.sleep(CHECKPOINTED).await;
        let found = read_through(&scene.clients[1]).await;
        assert_eq!(found.wrong.len(), 2, "{found:?}");
        scene.is_right(1).await;
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// What is pending is here alone: what was altered of it is said, and nothing of it is changed.
#[test]
fn what_is_pending_or_open_to_be_written_stays_as_it_is() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        let client = scene.clients[1].clone();
        client.set_mode(WantedMode::Fixed(Mode::FetchOnly));
        let mut programs = Programs::default();
        for operation in [
            Operation::Open { path: Path::new("small"), slot: 1, flags: WRITE },
            Operation::Write { slot: 1, offset: 10, length: 100, version: 9 },
            Operation::Open { path: Path::new("other"), slot: 2, flags: WRITE },
            Operation::Write { slot: 2, offset: 10, length: 100, version: 9 },
            Operation::Close { slot: 2 },
        ] {
            let outcome = programs.perform(&client, &operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
        }
        for path in ["small", "other"] {
            let file = file_of(&client, path).await;
            assert!(flip(&scene.machines[1], file, 31_000) > 0);
        }
        let Outcome::Bytes(before) = read(&client, "other").await else { panic!("it is gone") };
        let wrong = read_through(&client).await.wrong;
        let [Wrong { path, bytes: 1.., left: Some(_), unsent: true }] = &wrong[..] else {
            panic!("{wrong:?}")
        };
        assert_eq!(path, "other", "and nothing of what is open");
        assert_eq!(read(&client, "other").await, Outcome::Bytes(before.clone()));
        let mut written = stretch(4, SMALL);
        written[10..110].copy_from_slice(&stretch(9, 100));
        let differ = written.iter().zip(&before).filter(|(one, other)| one != other);
        assert_eq!((before.len(), differ.count()), (SMALL, 1), "what was flipped, and no more");
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// Zeros are one piece, as long as they go on.
#[test]
fn what_should_be_zeros_is_zeros_again_where_it_is_not() {
    const ZEROS: u64 = 40 << 20;
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        let made = [
            Operation::Create { path: Path::new("sparse"), mode: 0o644, slot: 0 },
            Operation::Write { slot: 0, offset: ZEROS, length: 5000, version: 6 },
            Operation::Close { slot: 0 },
        ];
        perform(&scene.clients[0], &made).await;
        check::settled(room, &scene.machines, true).await.unwrap();
        room.clock.sleep(CHECKPOINTED).await;
        let file = file_of(&scene.clients[0], "sparse").await;
        assert!(flip(&scene.machines[0], file, 20 << 20) > 0);
        let found = read_through(&scene.clients[0]).await;
        let named: Vec<_> =
            found.wrong.iter().map(|wrong| (&wrong.path[..], &wrong.left)).collect();
        assert_eq!(named, [("sparse", &None)]);
        assert!(found.wrong[0].bytes <= 16 << 20, "no more than one turn looks at: {found:?}");
        assert_eq!(read_through(&scene.clients[0]).await.wrong, []);
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// A row that cannot be read holds up no others.
#[test]
fn one_file_that_cannot_be_looked_at_is_named_and_the_rest_is_looked_at() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        let first = file_of(&scene.clients[1], "large").await;
        let tables = scene.machines[1].disk.tables("client");
        let mut write = tables.write().unwrap();
        write.put("client-presence", &first.to_be_bytes(), &[0xff]).unwrap();
        write.commit(Durability::Later).unwrap();
        let small = file_of(&scene.clients[1], "small").await;
        assert!(first < small, "it comes first");
        assert!(flip(&scene.machines[1], small, 31_000) > 0);
        let found = read_through(&scene.clients[1]).await;
        let named: Vec<_> =
            found.wrong.iter().map(|wrong| (&wrong.path[..], wrong.bytes)).collect();
        assert_eq!(named[0], ("large", 0), "{found:?}");
        assert_eq!((named[1].0, found.wrong.len()), ("small", 2), "{found:?}");
        assert!(found.wrong[0].left.is_some() && found.wrong[1].left.is_none(), "{found:?}");
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// Another file has the same bytes: no link is needed.
#[test]
fn what_is_elsewhere_in_the_cache_is_taken_from_there() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        save(&scene.clients[0], "twin", 1, LARGE).await;
        check::settled(room, &scene.machines, true).await.unwrap();
        let twin = Outcome::Bytes(stretch(1, LARGE));
        assert!(read(&scene.clients[1], "twin").await == twin);
        room.clock.sleep(CHECKPOINTED).await;
        scene.clients[1].set_mode(WantedMode::Fixed(Mode::Disconnected));
        let large = file_of(&scene.clients[1], "large").await;
        assert!(flip(&scene.machines[1], large, 1_500_000) > 0);
        let found = read_through(&scene.clients[1]).await;
        assert!(matches!(&found.wrong[..], [Wrong { left: None, .. }]), "{found:?}");
        assert!(read(&scene.clients[1], "large").await == twin);
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// The disk loses blocks of every container of a file, or finds them again.
fn lose(machine: &ClientMachine, file: u64, blocks: &[u64], lost: bool) {
    let containers = machine.disk.containers("files");
    for key in containers.list_of(file).unwrap() {
        let container = containers.open(key, false).unwrap().unwrap();
        blocks.iter().for_each(|block| container.lose(block * 4096, 4096, lost));
    }
}

/// Two of them have ends of two chunks, and one the end of the file.
async fn lose_some(scene: &Scene, side: usize, lost: bool) {
    for (path, blocks) in [("large", &[0, 300, 301, 732][..]), ("small", &[7, 14]), ("one", &[0])] {
        let file = file_of(&scene.clients[side], path).await;
        lose(&scene.machines[side], file, blocks, lost);
    }
}

#[test]
fn what_cannot_be_read_is_fetched_when_it_is_wanted() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        for side in [0, 1] {
            lose_some(&scene, side, true).await;
            let before = scene.clients[side].status().wire_bytes_received;
            scene.is_right(side).await;
            let mended = scene.clients[side].status().mended;
            // Of a stretch that is read at once, what is lost goes at once.
            assert!((3..=7).contains(&mended.times), "side {side}: {mended:?}");
            assert_eq!(mended.bytes, 7 * 4096, "side {side}");
            let came = scene.clients[side].status().wire_bytes_received - before;
            assert!(came < 500_000, "side {side}: {came}");
            assert_eq!(read_through(&scene.clients[side]).await.wrong, [], "side {side}");
        }
        check::nothing_broke(room, &scene.machines).unwrap();
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

#[test]
fn what_cannot_be_read_is_mended_by_who_reads_the_cache_through() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        for side in [0, 1] {
            lose_some(&scene, side, true).await;
            let found = read_through(&scene.clients[side]).await;
            let mut named: Vec<_> = found.wrong.iter().map(|wrong| &wrong.path[..]).collect();
            named.sort_unstable();
            assert_eq!(named, ["large", "one", "small"], "side {side}: {found:?}");
            assert!(found.wrong.iter().all(|wrong| wrong.left.is_none()), "{found:?}");
            assert_eq!(read_through(&scene.clients[side]).await.wrong, [], "side {side}");
            let mended = scene.clients[side].status().mended;
            scene.is_right(side).await;
            assert_eq!(scene.clients[side].status().mended, mended, "nothing is left to mend");
        }
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// It may be readable again before there is a link.
#[test]
fn without_a_link_nothing_leaves_that_cannot_be_read() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        scene.clients[1].set_mode(WantedMode::Fixed(Mode::Disconnected));
        room.clock.sleep(CHECKPOINTED).await;
        lose_some(&scene, 1, true).await;
        for (path, ..) in &FILES[..3] {
            assert!(matches!(read(&scene.clients[1], path).await, Outcome::Failed(_)), "{path}");
        }
        lose_some(&scene, 1, false).await;
        scene.is_right(1).await;
        assert_eq!(scene.clients[1].status().mended.times, 0);
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// Opens a file to write to it, and does one thing.
async fn change(client: &SimClient, path: &str, operation: Operation) -> Outcome {
    let open = Operation::Open { path: Path::new(path), slot: 0, flags: WRITE };
    let mut programs = Programs::default();
    let opened = programs.perform(client, &open).await;
    assert!(!matches!(opened, Outcome::Failed(_)), "{opened}");
    let done = programs.perform(client, &operation).await;
    let closed = programs.perform(client, &Operation::Close { slot: 0 }).await;
    assert!(!matches!(closed, Outcome::Failed(_)), "{closed}");
    done
}

fn added(length: usize) -> Operation {
    Operation::Write { slot: 0, offset: length as u64, length: 10, version: 9 }
}

/// As it was stored, and then changed.
fn changed(version: u64, length: usize, change: impl FnOnce(&mut Vec<u8>)) -> Outcome {
    let mut bytes = stretch(version, length);
    change(&mut bytes);
    Outcome::Bytes(bytes)
}

/// What a program left as it was is in the next version as the server had it.
#[test]
fn what_the_disk_has_lost_is_mended_before_the_file_is_written_to() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        // The large ones too are cut whole when they are opened again.
        for side in [0, 1] {
            scene.machines[side].stop(End::Killed, Duration::ZERO);
            scene.machines[side].again_bytes_min = 1 << 24;
            scene.clients[side] = scene.machines[side].start().await.unwrap();
        }
        for (path, version, length, at) in
            [("large", 1, LARGE, 1_500_000), ("small", 2, SMALL, 31_000), ("one", 3, 900, 7)]
        {
            // The one grows by it, the other one is written over in it, and cut short.
            for (side, operation, now) in [
                (0, added(length), changed(version, length, |bytes| bytes.extend(stretch(9, 10)))),
                (
                    1,
                    Operation::Write { slot: 0, offset: 300, length: 90, version: 8 },
                    changed(version, length, |bytes| {
                        bytes.extend(stretch(9, 10));
                        bytes[300..390].copy_from_slice(&stretch(8, 90));
                    }),
                ),
                (
                    1,
                    Operation::Truncate { slot: 0, size: length as u64 - 50 },
                    changed(version, length - 50, |bytes| {
                        bytes[300..390].copy_from_slice(&stretch(8, 90));
                    }),
                ),
            ] {
                assert!(matches!(read(&scene.clients[side], path).await, Outcome::Bytes(_)));
                let file = file_of(&scene.clients[side], path).await;
                assert!(flip(&scene.machines[side], file, at) > 0);
                let before = scene.clients[side].status().mended.times;
                let done = change(&scene.clients[side], path, operation).await;
                assert!(!matches!(done, Outcome::Failed(_)), "{path}: {done}");
                check::settled(room, &scene.machines, true).await.unwrap();
                for reader in [0, 1] {
                    let seen = read(&scene.clients[reader], path).await;
                    assert!(seen == now, "{path} at {reader}, written by {side}");
                }
                assert_eq!(scene.clients[side].status().mended.times, before + 1, "{path}");
                room.clock.sleep(CHECKPOINTED).await;
            }
        }
        check::nothing_broke(room, &scene.machines).unwrap();
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// Nor does it become part of a version for want of a link. What is right is written to as ever, and
/// so is what is written anew.
#[test]
fn without_a_link_what_the_disk_has_lost_is_not_written_upon() {
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        let client = scene.clients[1].clone();
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        room.clock.sleep(CHECKPOINTED).await;
        for path in ["small", "one"] {
            let file = file_of(&client, path).await;
            assert!(flip(&scene.machines[1], file, 7) > 0);
        }
        let refused = change(&client, "small", added(SMALL)).await;
        assert!(matches!(refused, Outcome::Failed(_)), "{refused}");
        assert_eq!(client.status().pending.updates, 0, "nothing was written");
        let all = Operation::Write { slot: 0, offset: 0, length: 900, version: 8 };
        for (path, operation) in [("other", added(SMALL)), ("one", all)] {
            let done = change(&client, path, operation).await;
            assert!(!matches!(done, Outcome::Failed(_)), "{path}: {done}");
        }
        client.set_mode(PARTIAL);
        room.clock.sleep(CHECKPOINTED).await;
        let done = change(&client, "small", added(SMALL)).await;
        assert!(!matches!(done, Outcome::Failed(_)), "{done}");
        check::settled(room, &scene.machines, true).await.unwrap();
        for side in [0, 1] {
            for (path, version) in [("small", 2), ("other", 4)] {
                let seen = read(&scene.clients[side], path).await;
                let now = changed(version, SMALL, |bytes| bytes.extend(stretch(9, 10)));
                assert!(seen == now, "side {side}: {path}");
            }
            assert!(read(&scene.clients[side], "one").await == Outcome::Bytes(stretch(8, 900)));
        }
        check::nothing_broke(room, &scene.machines).unwrap();
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// What was here before the rest came is compared as well.
#[test]
fn of_what_is_fetched_whole_to_be_written_to_what_was_here_is_mended() {
    const LENGTH: usize = 900_000;
    simulated(async |room| {
        let mut scene = Scene::set(room).await;
        save(&scene.clients[0], "part", 5, LENGTH).await;
        check::settled(room, &scene.machines, true).await.unwrap();
        let mut programs = Programs::default();
        for operation in [
            Operation::Open { path: Path::new("part"), slot: 0, flags: READ },
            Operation::Read { slot: 0, offset: 0, length: 1000 },
            Operation::Close { slot: 0 },
        ] {
            let outcome = programs.perform(&scene.clients[1], &operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{outcome}");
        }
        room.clock.sleep(CHECKPOINTED).await;
        let file = file_of(&scene.clients[1], "part").await;
        let containers = scene.machines[1].disk.containers("files");
        let key = containers.list_of(file).unwrap()[0];
        let here = containers.open(key, false).unwrap().unwrap().allocated().unwrap();
        assert!(here < LENGTH as u64, "only a part is here: {here}");
        assert!(flip(&scene.machines[1], file, 500) > 0);
        let done = change(&scene.clients[1], "part", added(LENGTH)).await;
        assert!(!matches!(done, Outcome::Failed(_)), "{done}");
        check::settled(room, &scene.machines, true).await.unwrap();
        for side in [0, 1] {
            let now = changed(5, LENGTH, |bytes| bytes.extend(stretch(9, 10)));
            assert!(read(&scene.clients[side], "part").await == now, "side {side}");
        }
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// A reader's machine on which `large` is open, written to and synced, and all of it is compared.
async fn written_and_synced(room: &Room) -> (Scene, SimClient, Programs) {
    let mut scene = Scene::set(room).await;
    scene.machines[1].stop(End::Killed, Duration::ZERO);
    scene.machines[1].again_bytes_min = 1 << 24;
    let client = scene.machines[1].start().await.unwrap();
    assert!(matches!(read(&client, "large").await, Outcome::Bytes(_)));
    let mut programs = Programs::default();
    let first = [
        Operation::Open { path: Path::new("large"), slot: 0, flags: WRITE },
        Operation::Write { slot: 0, offset: 300, length: 90, version: 8 },
        Operation::Sync { slot: 0 },
    ];
    done(&client, &mut programs, &first).await;
    check::settled(room, &scene.machines, true).await.unwrap();
    (scene, client, programs)
}

async fn done(client: &SimClient, programs: &mut Programs, operations: &[Operation]) {
    for operation in operations {
        let outcome = programs.perform(client, operation).await;
        assert!(!matches!(outcome, Outcome::Failed(_)), "{operation:?}: {outcome}");
    }
}

/// Who writes to a file and syncs it again and again does not have all of it read each time: what he does
/// not write to is in the next version by name, whatever the disk here has lost of it meanwhile.
#[test]
fn what_is_synced_and_written_again_is_taken_over_by_name() {
    simulated(async |room| {
        let (mut scene, client, mut programs) = written_and_synced(room).await;
        let file = file_of(&client, "large").await;
        // Nobody could mend it.
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        room.clock.sleep(CHECKPOINTED).await;
        assert!(flip(&scene.machines[1], file, 1_500_000) > 0);
        let write = Operation::Write { slot: 0, offset: 2_500_000, length: 90, version: 8 };
        done(&client, &mut programs, &[write, Operation::Close { slot: 0 }]).await;
        client.set_mode(PARTIAL);
        room.clock.sleep(CHECKPOINTED).await;
        check::settled(room, &scene.machines, true).await.unwrap();
        let now = changed(1, LARGE, |bytes| {
            for at in [300, 2_500_000] {
                bytes[at..at + 90].copy_from_slice(&stretch(8, 90));
            }
        });
        assert!(read(&scene.clients[0], "large").await == now);
        scene.origin.stop(End::Killed, Duration::ZERO);
    });
}

/// A file that stays open may after all be cut whole: where it becomes small, or is written to in very many
/// places. So all of it is compared again once in a while.
#[test]
fn what_stays_open_is_compared_again_after_a_while_as_all_of_it_may_be_cut() {
    const LEFT: usize = 700_000;
    const A_WHILE: Duration = Duration::from_secs(90);
    for cuts in [false, true] {
        simulated(async |room| {
            let (mut scene, client, mut programs) = written_and_synced(room).await;
            let file = file_of(&client, "large").await;
            room.clock.sleep(A_WHILE).await;
            assert!(flip(&scene.machines[1], file, 500_000) > 0);
            done(
                &client,
                &mut programs,
                &[Operation::Write { slot: 0, offset: 30_000, length: 90, version: 8 }],
            )
            .await;
            // More places than are noted one by one, or little that is left.
            let after: Vec<_> = if cuts {
                vec![Operation::Truncate { slot: 0, size: LEFT as u64 }]
            } else {
                let to_and_fro = |n: usize| if n.is_multiple_of(2) { n } else { 9000 - n };
                (0..4200)
                    .map(|n| 700_000 + 100 * to_and_fro(n) as u64)
                    .map(|offset| Operation::Write { slot: 0, offset, length: 1, version: 9 })
                    .collect()
            };
            done(&client, &mut programs, &after).await;
            done(&client, &mut programs, &[Operation::Close { slot: 0 }]).await;
            check::settled(room, &scene.machines, true).await.unwrap();
            let Outcome::Bytes(found) = read(&scene.clients[0], "large").await else {
                panic!("it can be read");
            };
            assert_eq!(found.len(), if cuts { LEFT } else { LARGE });
            assert_eq!(found[500_000], stretch(1, LARGE)[500_000], "cuts: {cuts}");
            scene.origin.stop(End::Killed, Duration::ZERO);
        });
    }
}
