//! Locks among connected clients: what excludes each other is never held by two, whatever becomes
//! of links and machines, and who gets a lock reads what was written under it elsewhere.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{
    Allocate, Caller, Error, Handle, LockCall, Making, Need, OpenFlags, Owner, Setting, Taker,
    Tried, WantedMode, complete,
};
use model::{FileId, Kind, Lock, LockKind, Name};
use protocol::Mode;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::{Entropy, Moment};

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const SECOND: Duration = Duration::from_secs(1);
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
/// A client believes in no lease for as long as this without a link.
const BELIEVED: Duration = Duration::from_secs(23);

struct Scene {
    room: Room,
    origin: OriginMachine,
}

fn play<F: Future<Output = ()>>(seed: u64, work: impl FnOnce(Scene) -> F) {
    sim::run::paused(async {
        let room = Room::new(seed, false);
        let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
        let network = room.network.clone();
        tokio::task::LocalSet::new().run_until(work(Scene { room, origin })).await;
        network.close();
    });
}

impl Scene {
    async fn comes(&self, number: usize, mode: WantedMode) -> ClientMachine {
        let invitation = self.origin.invite().unwrap();
        let mut machine =
            ClientMachine::new(&self.room, number, invitation, Conditions::NEAR, mode);
        machine.cache_bytes_max = 1 << 30;
        machine.start().await.unwrap();
        machine
    }

    async fn pass(&self, time: Duration) {
        self.room.clock.sleep(time).await;
    }
}

fn client(machine: &ClientMachine) -> SimClient {
    machine.client().unwrap().clone()
}

const BOTH: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };

async fn make(client: &SimClient, name: &str) -> FileId {
    let name = Name::new(name.as_bytes()).unwrap();
    let making = Making { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None, rdev: None };
    let done = complete(client, |c| c.create(CALLER, FileId::ROOT, &name, &making, BOTH)).await;
    let done = done.unwrap();
    let (found, opened) = done.value;
    if let Some(number) = done.wait {
        client.settled(number).await.unwrap();
    }
    close(client, opened.handle).await;
    found.file
}

async fn open(client: &SimClient, file: FileId) -> Handle {
    complete(client, |c| c.attributes(file)).await.unwrap();
    complete(client, |c| c.open_file(CALLER, file, BOTH)).await.unwrap().value.handle
}

async fn close(client: &SimClient, handle: Handle) {
    let done = complete(client, |c| c.flush(CALLER, handle)).await.unwrap();
    if let Some(number) = done.wait {
        client.settled(number).await.unwrap();
    }
    client.release(handle);
}

fn stretch(
    file: FileId,
    handle: Handle,
    owner: u64,
    exclusive: bool,
    bytes: (u64, u64),
) -> LockCall {
    let lock = Lock { kind: LockKind::Record, exclusive, first: bytes.0, last: bytes.1 };
    LockCall { file, handle, owner: Owner(owner), lock, process: 1, taker: Taker::Told }
}

async fn unlock(client: &SimClient, call: &LockCall) -> Result<(), Error> {
    let done = complete(client, |c| c.before_unlock(CALLER, call)).await?;
    if let Some(number) = done.wait {
        client.settled(number).await?;
    }
    client.unlock(call, &[LockKind::Record])?;
    client.tell_of_lock(call.file).await;
    Ok(())
}

/// Adds one to the number in a file under a lock, many times, without closing or syncing it.
async fn count(client: SimClient, file: FileId, owner: u64, rounds: u64) {
    let handle = open(&client, file).await;
    let call = stretch(file, handle, owner, true, (0, 7));
    for _ in 0..rounds {
        client.lock(&call, true).await.unwrap();
        let bytes = complete(&client, |c| c.read(handle, 0, 8)).await.unwrap();
        let number = bytes.try_into().map_or(0, u64::from_le_bytes) + 1;
        let bytes = number.to_le_bytes();
        complete(&client, |c| c.write(handle, 0, &bytes)).await.unwrap();
        unlock(&client, &call).await.unwrap();
    }
    close(&client, handle).await;
}

#[test]
fn who_gets_a_lock_reads_what_was_written_under_it_elsewhere() {
    const ROUNDS: u64 = 12;
    for seed in 1..4 {
        play(seed, |scene| async move {
            let machines = [
                scene.comes(0, CONNECTED).await,
                scene.comes(1, CONNECTED).await,
                scene.comes(2, CONNECTED).await,
            ];
            let file = make(&client(&machines[0]), "counter").await;
            let mut tasks = Vec::new();
            for (number, machine) in machines.iter().enumerate() {
                for owner in 0..2 {
                    let owner = number as u64 * 10 + owner;
                    let counting = count(client(machine), file, owner, ROUNDS);
                    tasks.push(tokio::task::spawn_local(counting));
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
            let reader = client(&machines[2]);
            let handle = open(&reader, file).await;
            let bytes = complete(&reader, |c| c.read(handle, 0, 8)).await.unwrap();
            assert_eq!(u64::from_le_bytes(bytes.try_into().unwrap()), 6 * ROUNDS);
        });
    }
}

#[test]
fn who_was_alone_keeps_its_locks_when_another_comes() {
    play(1, |scene| async move {
        let ada = scene.comes(0, WantedMode::Auto).await;
        let adas = client(&ada);
        let file = make(&adas, "file").await;
        scene.pass(SECOND).await;
        assert_eq!(adas.status().mode, Mode::Partial, "nobody else is there");
        let handle = open(&adas, file).await;
        let held = stretch(file, handle, 1, true, (0, 9));
        assert_eq!(adas.try_lock(&held).unwrap(), Tried::Done);
        let bob = scene.comes(1, WantedMode::Auto).await;
        let bobs = client(&bob);
        scene.pass(SECOND).await;
        let his = open(&bobs, file).await;
        let call = |bytes| stretch(file, his, 2, true, bytes);
        assert!(matches!(bobs.lock(&call((5, 5)), false).await, Err(Error::Locked)));
        bobs.lock(&call((10, 19)), false).await.unwrap();
        let seen = bobs.look_at_lock(&call((0, 99))).await.unwrap();
        assert_eq!(seen.map(|(lock, _)| (lock.first, lock.last)), Some((0, 9)));
        unlock(&adas, &held).await.unwrap();
        bobs.lock(&call((5, 5)), true).await.unwrap();
    });
}

#[test]
fn the_lock_of_a_client_that_died_is_free_when_its_lease_is_over_and_one_that_came_back_lost_it() {
    play(1, |scene| async move {
        let mut ada = scene.comes(0, CONNECTED).await;
        let bob = scene.comes(1, CONNECTED).await;
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let held = stretch(file, hers, 1, true, (0, 9));
        let wanted = stretch(file, his, 2, true, (0, 9));
        adas.lock(&held, false).await.unwrap();
        scene.room.network.cut(ada.line, SECOND / 10);
        let began = scene.room.clock.moment();
        bobs.lock(&wanted, true).await.unwrap();
        let waited = scene.room.clock.moment().since(began);
        assert!(waited > SECOND * 10 && waited < SECOND * 30, "{waited:?}");
        scene.room.network.restore(ada.line);
        scene.pass(SECOND * 10).await;
        let lost = complete(&adas, |c| c.read(hers, 0, 1)).await;
        assert!(matches!(lost, Err(Error::LockLost)), "{lost:?}");
        assert!(matches!(adas.lock(&held, false).await, Err(Error::LockLost)));
        adas.release(hers);
        let hers = open(&adas, file).await;
        let again = stretch(file, hers, 1, true, (0, 9));
        assert!(matches!(adas.lock(&again, false).await, Err(Error::Locked)));
        unlock(&bobs, &wanted).await.unwrap();
        adas.lock(&again, false).await.unwrap();
        // A process that starts anew holds nothing.
        ada.stop(End::Killed, SECOND / 10);
        ada.start().await.unwrap();
        bobs.lock(&wanted, false).await.unwrap();
    });
}

#[test]
fn a_lock_that_another_has_had_and_given_up_meanwhile_is_lost() {
    for restarts in [false, true] {
        play(1, |mut scene| async move {
            let ada = scene.comes(0, CONNECTED).await;
            let bob = scene.comes(1, CONNECTED).await;
            let carol = scene.comes(2, CONNECTED).await;
            let (adas, bobs, carols) = (client(&ada), client(&bob), client(&carol));
            let (one, other) = (make(&adas, "one").await, make(&adas, "other").await);
            let mut handles = BTreeMap::new();
            for file in [one, other] {
                let hers = open(&adas, file).await;
                adas.lock(&stretch(file, hers, 1, true, (0, 9)), false).await.unwrap();
                handles.insert(file, hers);
            }
            scene.room.network.cut(ada.line, SECOND / 10);
            if restarts {
                // Her lease may last when it stops.
                scene.origin.stop(End::Killed, SECOND / 10);
                scene.origin.restart().unwrap();
            }
            let his = open(&bobs, one).await;
            let wanted = stretch(one, his, 2, true, (0, 9));
            bobs.lock(&wanted, true).await.unwrap();
            unlock(&bobs, &wanted).await.unwrap();
            close(&bobs, his).await;
            // Who looks has it told that nobody holds any of it now.
            let theirs = open(&carols, one).await;
            let looked = carols.look_at_lock(&stretch(one, theirs, 3, true, (0, 9))).await;
            assert_eq!(looked.unwrap(), None);
            scene.room.network.restore(ada.line);
            scene.pass(SECOND * 10).await;
            let lost = handles[&one];
            let read = complete(&adas, |c| c.read(lost, 0, 1)).await;
            assert!(matches!(read, Err(Error::LockLost)), "{read:?}");
            let cut = Setting { size: Some(0), ..Setting::default() };
            let cut = complete(&adas, |c| c.set_attributes(CALLER, one, Some(lost), &cut)).await;
            assert!(matches!(cut, Err(Error::LockLost)), "{:?}", cut.err());
            let mode = Allocate::Extend;
            let grown = complete(&adas, |c| c.allocate(lost, 0, 9, mode)).await;
            assert!(matches!(grown, Err(Error::LockLost)), "{grown:?}");
            adas.release(lost);
            // The same through another descriptor: nobody has it.
            let hers = open(&adas, one).await;
            adas.lock(&stretch(one, hers, 1, true, (0, 9)), false).await.unwrap();
            // And what nobody has locked is hers as before.
            let kept = handles[&other];
            complete(&adas, |c| c.read(kept, 0, 1)).await.unwrap();
            let theirs = open(&bobs, other).await;
            let wanted = stretch(other, theirs, 2, true, (0, 9));
            assert!(matches!(bobs.lock(&wanted, false).await, Err(Error::Locked)));
        });
    }
}

#[test]
fn locks_outlive_a_short_outage_and_a_restart_of_the_origin() {
    play(1, |mut scene| async move {
        let ada = scene.comes(0, CONNECTED).await;
        let bob = scene.comes(1, CONNECTED).await;
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let held = stretch(file, hers, 1, true, (0, 9));
        let wanted = stretch(file, his, 2, true, (0, 9));
        adas.lock(&held, false).await.unwrap();
        scene.room.network.cut(ada.line, SECOND / 10);
        scene.pass(SECOND * 3).await;
        scene.room.network.restore(ada.line);
        assert!(matches!(bobs.lock(&wanted, false).await, Err(Error::Locked)));
        scene.origin.stop(End::Killed, SECOND / 10);
        scene.pass(SECOND * 3).await;
        scene.origin.restart().unwrap();
        assert!(matches!(bobs.lock(&wanted, false).await, Err(Error::Locked)));
        scene.pass(SECOND * 90).await;
        // It was renewed all the while, though no program did anything.
        assert!(matches!(bobs.lock(&wanted, false).await, Err(Error::Locked)));
        unlock(&adas, &held).await.unwrap();
        bobs.lock(&wanted, true).await.unwrap();
    });
}

/// What is held, as those who hold it believe, and since when a client has had no link.
#[derive(Default)]
struct Held {
    locks: BTreeMap<(usize, u64), Lock>,
    cut: BTreeMap<usize, Moment>,
    granted: u64,
    refused: u64,
}

impl Held {
    /// A lock was given. Who is in the way has been without a link for so long that it does not
    /// count on its own any more.
    fn given(&mut self, who: (usize, u64), lock: Lock, now: Moment) {
        self.granted += 1;
        let in_the_way: Vec<_> = self
            .locks
            .iter()
            .filter(|(other, held)| **other != who && held.excludes(&lock))
            .map(|(other, held)| (*other, *held))
            .collect();
        for (other, held) in in_the_way {
            let cut = self.cut.get(&other.0);
            let over = other.0 != who.0 && cut.is_some_and(|since| now.since(*since) >= BELIEVED);
            assert!(over, "{who:?} got {lock:?}, and {other:?} has {held:?}");
            self.locks.remove(&other);
        }
        self.locks.insert(who, lock);
    }
}

struct Program {
    client: SimClient,
    file: FileId,
    who: (usize, u64),
    held: Rc<RefCell<Held>>,
    chance: Entropy,
    clock: world::Clock,
}

/// Locks stretches, holds them for a while, gives them back: now at once, now waiting.
async fn lock_at_random(program: Program, rounds: usize) {
    let Program { client, file, who, held, chance, clock } = program;
    let mut handle = open(&client, file).await;
    for _ in 0..rounds {
        let first = chance.below(6);
        let bytes = (first, first + chance.below(4));
        let call = stretch(file, handle, who.1, chance.below(2) == 0, bytes);
        let locked = client.lock(&call, chance.below(2) == 0).await;
        match locked {
            Ok(()) => held.borrow_mut().given(who, call.lock, clock.moment()),
            Err(Error::LockLost) => {
                held.borrow_mut().locks.remove(&who);
                client.release(handle);
                handle = open_some_time(&client, file, &clock).await;
                continue;
            }
            // Somebody has it, or there is no link.
            Err(_) => held.borrow_mut().refused += 1,
        }
        clock.sleep(Duration::from_millis(chance.below(3000))).await;
        // Before it is given up: another may have it at once.
        held.borrow_mut().locks.remove(&who);
        if unlock(&client, &call).await.is_err() {
            client.release(handle);
            handle = open_some_time(&client, file, &clock).await;
        }
    }
}

async fn open_some_time(client: &SimClient, file: FileId, clock: &world::Clock) -> Handle {
    for _ in 0..1000 {
        match complete(client, |c| c.open_file(CALLER, file, BOTH)).await {
            Ok(done) => return done.value.handle,
            Err(_) => clock.sleep(SECOND).await,
        }
    }
    panic!("the link is there again by then");
}

#[test]
fn what_excludes_each_other_is_never_held_by_two_whatever_becomes_of_their_links() {
    const CLIENTS: usize = 3;
    for seed in 1..12 {
        play(seed, |mut scene| async move {
            let mut machines = Vec::new();
            for number in 0..CLIENTS {
                machines.push(scene.comes(number, CONNECTED).await);
            }
            let file = make(&client(&machines[0]), "file").await;
            let held = Rc::new(RefCell::new(Held::default()));
            let mut tasks = Vec::new();
            for (number, machine) in machines.iter().enumerate() {
                for owner in 0..2 {
                    let program = Program {
                        client: client(machine),
                        file,
                        who: (number, owner),
                        held: held.clone(),
                        chance: scene.room.chance.clone(),
                        clock: scene.room.clock.clone(),
                    };
                    tasks.push(tokio::task::spawn_local(lock_at_random(program, 30)));
                }
            }
            let chance = scene.room.chance.clone();
            for _ in 0..12 {
                scene.pass(Duration::from_millis(chance.below(9000))).await;
                let line = machines[chance.below(CLIENTS as u64) as usize].line;
                let number = machines.iter().position(|machine| machine.line == line).unwrap();
                match chance.below(3) {
                    0 => scene.room.network.break_session(line, SECOND / 10),
                    1 => {
                        let now = scene.room.clock.moment();
                        held.borrow_mut().cut.insert(number, now);
                        scene.room.network.cut(line, SECOND / 10);
                        scene.pass(Duration::from_millis(chance.below(60_000))).await;
                        scene.room.network.restore(line);
                        // Until it has asked it may still count on what it had.
                        scene.pass(SECOND * 5).await;
                        held.borrow_mut().cut.remove(&number);
                    }
                    _ => {
                        scene.origin.stop(End::Killed, SECOND / 10);
                        scene.pass(Duration::from_millis(chance.below(3000))).await;
                        scene.origin.restart().unwrap();
                    }
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
            let held = held.borrow();
            assert!(held.granted > 40, "seed {seed}: {} given, {} not", held.granted, held.refused);
        });
    }
}

#[test]
fn of_two_machines_that_ask_flock_for_more_one_gets_it_and_then_the_other() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let whole = |handle, owner, exclusive| {
            let call = stretch(file, handle, owner, exclusive, (0, i64::MAX as u64));
            LockCall { lock: Lock { kind: LockKind::Whole, ..call.lock }, ..call }
        };
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        adas.lock(&whole(hers, 1, false), true).await.unwrap();
        bobs.lock(&whole(his, 2, false), true).await.unwrap();
        let upgrade = async |client: &SimClient, handle, owner| {
            client.lock(&whole(handle, owner, true), true).await.unwrap();
            client.unlock(&whole(handle, owner, true), &[LockKind::Whole]).unwrap();
            client.tell_of_lock(file).await;
        };
        let both = async { tokio::join!(upgrade(&adas, hers, 1), upgrade(&bobs, his, 2)) };
        let within = scene.room.clock.within(SECOND * 10, both).await;
        assert!(within.is_some(), "they wait for each other");
        // Who does not wait has given up what it had, too.
        adas.lock(&whole(hers, 1, false), false).await.unwrap();
        bobs.lock(&whole(his, 2, false), false).await.unwrap();
        let refused = bobs.lock(&whole(his, 2, true), false).await;
        assert!(matches!(refused, Err(Error::Locked)));
        adas.lock(&whole(hers, 1, true), false).await.unwrap();
    });
}

/// The name as a program found it.
async fn find(client: &SimClient, name: &str) -> FileId {
    let name = Name::new(name.as_bytes()).unwrap();
    complete(client, |c| c.lookup(FileId::ROOT, &name)).await.unwrap().unwrap().file
}

#[test]
fn memory_that_processes_share_by_a_file_is_for_one_machine_at_a_time() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "data.db-shm").await;
        assert_eq!(find(&bobs, "data.db-shm").await, file);
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        // What SQLite does before it maps the file: then it shares this byte.
        let shared = |handle, owner| stretch(file, handle, owner, false, (128, 128));
        let alone = |handle, owner| stretch(file, handle, owner, true, (128, 128));
        adas.lock(&alone(hers, 1), false).await.unwrap();
        adas.lock(&shared(hers, 1), false).await.unwrap();
        adas.lock(&shared(hers, 3), false).await.unwrap();
        assert!(matches!(bobs.lock(&shared(his, 2), false).await, Err(Error::Locked)));
        let seen = bobs.look_at_lock(&alone(his, 2)).await.unwrap();
        assert!(seen.is_some_and(|(lock, _)| lock.exclusive), "{seen:?}");
        // One of two processes has closed its database.
        unlock(&adas, &shared(hers, 3)).await.unwrap();
        assert!(matches!(bobs.lock(&shared(his, 2), false).await, Err(Error::Locked)));
        unlock(&adas, &shared(hers, 1)).await.unwrap();
        bobs.lock(&shared(his, 2), false).await.unwrap();
        assert!(matches!(adas.lock(&shared(hers, 1), false).await, Err(Error::Locked)));

        // The same of a file with another name is as ever.
        let file = make(&adas, "data.db").await;
        assert_eq!(find(&bobs, "data.db").await, file);
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        adas.lock(&stretch(file, hers, 1, false, (128, 128)), false).await.unwrap();
        bobs.lock(&stretch(file, his, 2, false, (128, 128)), false).await.unwrap();
    });
}

#[test]
fn a_call_of_locks_takes_no_longer_than_its_bound_when_the_server_is_silent() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let held = stretch(file, hers, 1, true, (0, 9));
        adas.lock(&held, false).await.unwrap();
        bobs.lock(&stretch(file, his, 2, true, (10, 19)), false).await.unwrap();
        let bound = SECOND * 30;
        for (number, silence) in [(0, SECOND * 6), (1, SECOND * 20)] {
            let wanted = stretch(file, hers, 1, true, (30 + number, 30 + number));
            scene.room.network.hang(ada.line, silence);
            for waits in [true, false] {
                let began = scene.room.clock.moment();
                let outcome = adas.lock(&wanted, waits).await;
                let took = scene.room.clock.moment().since(began);
                assert!(outcome.is_err() && took <= bound, "{silence:?}: {outcome:?} {took:?}");
            }
            let began = scene.room.clock.moment();
            let _ = adas.look_at_lock(&wanted).await;
            let took = scene.room.clock.moment().since(began);
            assert!(took <= bound, "{silence:?}: {took:?}");
            scene.room.network.restore(ada.line);
            scene.pass(SECOND * 60).await;
        }
    });
}

/// Long on its way.
const FAR: Conditions = Conditions { delay: Duration::from_secs(2), ..Conditions::NEAR };
const SOON: Duration = Duration::from_millis(10);

#[test]
fn what_nobody_waits_for_any_more_is_answered_before_another_thing_is_asked() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let (network, clock) = (scene.room.network.clone(), scene.room.clock.clone());
        let held = stretch(file, hers, 1, true, (0, 9));
        let wanted = stretch(file, his, 2, true, (0, 9));
        adas.lock(&held, false).await.unwrap();
        bobs.lock(&stretch(file, his, 2, true, (20, 29)), false).await.unwrap();

        // A signal ends the wait while it is told that the lock is given up.
        network.set_conditions(ada.line, FAR);
        adas.unlock(&held, &[LockKind::Record]).unwrap();
        assert!(clock.within(SOON, adas.tell_of_lock(file)).await.is_none());
        network.set_conditions(ada.line, Conditions::NEAR);
        adas.lock(&held, false).await.unwrap();
        scene.pass(SECOND * 3).await;
        assert!(matches!(bobs.lock(&wanted, false).await, Err(Error::Locked)));
        unlock(&adas, &held).await.unwrap();
        bobs.lock(&wanted, false).await.unwrap();
        unlock(&bobs, &wanted).await.unwrap();

        // And while it is asked for: what nobody took is given back.
        network.set_conditions(ada.line, FAR);
        assert!(clock.within(SOON, adas.lock(&held, true)).await.is_none());
        network.set_conditions(ada.line, Conditions::NEAR);
        scene.pass(SECOND * 10).await;
        bobs.lock(&wanted, false).await.unwrap();
    });
}

#[test]
fn who_has_got_a_lock_does_not_wait_until_others_know_what_it_gave_up() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        adas.lock(&stretch(file, hers, 1, true, (0, 9)), false).await.unwrap();
        bobs.lock(&stretch(file, his, 2, true, (20, 29)), false).await.unwrap();
        scene.room.network.set_conditions(ada.line, FAR);
        // A signal that comes meanwhile would say that it has not got it.
        let weaker = stretch(file, hers, 1, false, (0, 9));
        let locked = scene.room.clock.within(SOON, adas.lock(&weaker, true)).await;
        assert!(matches!(locked, Some(Ok(()))), "{locked:?}");
        scene.room.network.set_conditions(ada.line, Conditions::NEAR);
        scene.pass(SECOND * 6).await;
        bobs.lock(&stretch(file, his, 2, false, (0, 9)), false).await.unwrap();
    });
}

#[test]
fn nothing_is_given_by_an_old_lease_when_it_counts_again_after_a_rest() {
    const THREADS: usize = 2;
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let wanted = stretch(file, hers, 1, true, (0, 9));
        let held = stretch(file, his, 2, true, (0, 9));
        for round in 0..20 {
            adas.lock(&wanted, false).await.unwrap();
            unlock(&adas, &wanted).await.unwrap();
            scene.pass(SECOND * 90).await;
            bobs.lock(&held, false).await.unwrap();
            // As the threads of the mount do, while it learns that its lease lasts.
            let over = Arc::new(AtomicBool::new(false));
            let begin = || {
                let (runtime, over) = (tokio::runtime::Handle::current(), over.clone());
                let adas = adas.clone();
                std::thread::spawn(move || {
                    let _clock = runtime.enter();
                    let mut given = false;
                    while !given && !over.load(Ordering::Relaxed) {
                        given = matches!(adas.try_lock(&wanted), Ok(Tried::Done));
                    }
                    given
                })
            };
            let threads: Vec<_> = (0..THREADS).map(|_| begin()).collect();
            let renewed = adas.satisfy(Need::Lease).await;
            over.store(true, Ordering::Relaxed);
            let given: Vec<bool> = threads.into_iter().map(|one| one.join().unwrap()).collect();
            renewed.unwrap();
            assert!(!given.contains(&true), "round {round}: two hold it");
            assert!(matches!(adas.lock(&wanted, false).await, Err(Error::Locked)));
            unlock(&bobs, &held).await.unwrap();
        }
    });
}

/// ftruncate(2).
async fn cut(client: &SimClient, file: FileId, handle: Handle) {
    let cut = Setting { size: Some(0), ..Setting::default() };
    let done = complete(client, |c| c.set_attributes(CALLER, file, Some(handle), &cut)).await;
    assert_eq!(done.unwrap().wait, None, "it is stored with the close");
}

async fn contents(client: &SimClient, handle: Handle) -> Vec<u8> {
    complete(client, |c| c.read(handle, 0, 64)).await.unwrap()
}

#[test]
fn what_was_cut_under_a_lock_and_closed_is_seen_cut_by_who_gets_the_lock() {
    for flock in [false, true] {
        play(1, |scene| async move {
            let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
            let (adas, bobs) = (client(&ada), client(&bob));
            let file = make(&adas, "queue").await;
            let kind = if flock { LockKind::Whole } else { LockKind::Record };
            let call = |handle, owner, first| {
                let call = stretch(file, handle, owner, true, (first, first + 9));
                LockCall { lock: Lock { kind, ..call.lock }, ..call }
            };
            let beside = open(&adas, file).await;
            complete(&adas, |c| c.write(beside, 0, b"to be done")).await.unwrap();
            let done = complete(&adas, |c| c.flush(CALLER, beside)).await.unwrap();
            adas.settled(done.wait.unwrap()).await.unwrap();

            let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
            bobs.lock(&call(his, 2, 20), false).await.unwrap();
            adas.lock(&call(hers, 1, 0), true).await.unwrap();
            assert_eq!(contents(&adas, hers).await, b"to be done");
            cut(&adas, file, hers).await;
            // Locks of flock(2) are not the process's.
            let process = Owner(if flock { 7 } else { 1 });
            let done = complete(&adas, |c| c.flush_by(CALLER, hers, process)).await.unwrap();
            if let Some(number) = done.wait {
                adas.settled(number).await.unwrap();
            }
            adas.closed_by(file, hers, process);
            if flock {
                adas.release(hers);
            }
            adas.tell_of_lock(file).await;
            bobs.lock(&call(his, 2, 0), false).await.unwrap();
            assert_eq!(contents(&bobs, his).await, b"", "flock: {flock}");
        });
    }
}

#[test]
fn what_was_only_cut_is_stored_with_the_last_close_where_nobody_locked_it_alone() {
    play(1, |scene| async move {
        let ada = scene.comes(0, CONNECTED).await;
        let adas = client(&ada);
        let file = make(&adas, "file").await;
        let (hers, beside) = (open(&adas, file).await, open(&adas, file).await);
        let shared = stretch(file, beside, 1, false, (0, 9));
        adas.lock(&shared, false).await.unwrap();
        complete(&adas, |c| c.write(hers, 0, b"old")).await.unwrap();
        let done = complete(&adas, |c| c.flush(CALLER, hers)).await.unwrap();
        adas.settled(done.wait.unwrap()).await.unwrap();
        cut(&adas, file, hers).await;
        let done = complete(&adas, |c| c.flush_by(CALLER, hers, Owner(1))).await.unwrap();
        assert_eq!(done.wait, None);
        adas.release(hers);
        let bob = scene.comes(1, CONNECTED).await;
        let bobs = client(&bob);
        let his = open(&bobs, file).await;
        assert_eq!(contents(&bobs, his).await, b"old");
    });
}

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);

#[test]
fn in_a_mode_in_which_locks_hold_here_alone_none_is_lost_by_what_is_given_up() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        let (hers, his, beside) =
            (open(&adas, file).await, open(&bobs, file).await, open(&adas, file).await);
        let leased = stretch(file, hers, 1, true, (0, 9));
        adas.lock(&leased, false).await.unwrap();
        bobs.lock(&stretch(file, his, 2, true, (20, 29)), false).await.unwrap();
        scene.pass(SECOND * 2).await;
        adas.set_mode(PARTIAL);
        scene.pass(SECOND).await;
        let one = stretch(file, beside, 3, true, (100, 109));
        let the_same = stretch(file, his, 2, true, (100, 109));
        bobs.lock(&the_same, false).await.unwrap();
        adas.lock(&one, false).await.unwrap();
        unlock(&adas, &leased).await.unwrap();
        scene.pass(SECOND * 3).await;
        complete(&adas, |c| c.read(beside, 0, 1)).await.unwrap();
        bobs.lock(&stretch(file, his, 2, true, (0, 9)), false).await.unwrap();
        // Where others hold it no more, it counts among them when it is to.
        unlock(&bobs, &the_same).await.unwrap();
        adas.set_mode(CONNECTED);
        scene.pass(SECOND * 3).await;
        complete(&adas, |c| c.read(beside, 0, 1)).await.unwrap();
        assert!(matches!(bobs.lock(&the_same, false).await, Err(Error::Locked)));
    });
}

#[test]
fn what_was_locked_here_alone_is_lost_only_where_another_machine_holds_it_when_locks_are_shared() {
    for holds in [false, true] {
        play(1, |scene| async move {
            let (ada, bob) = (scene.comes(0, PARTIAL).await, scene.comes(1, CONNECTED).await);
            let (adas, bobs) = (client(&ada), client(&bob));
            let file = make(&adas, "file").await;
            scene.pass(SECOND * 2).await;
            let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
            let alone = stretch(file, hers, 1, true, (0, 9));
            let meanwhile = stretch(file, his, 2, true, (5, 5));
            adas.lock(&alone, false).await.unwrap();
            // From then on nobody else has to be asked there for what is locked of the file.
            bobs.lock(&meanwhile, false).await.unwrap();
            if !holds {
                unlock(&bobs, &meanwhile).await.unwrap();
            }
            scene.room.network.break_session(ada.line, SECOND / 10);
            scene.pass(SECOND * 10).await;
            adas.set_mode(CONNECTED);
            scene.pass(SECOND * 5).await;
            let read = complete(&adas, |c| c.read(hers, 0, 1)).await;
            assert_eq!(matches!(read, Err(Error::LockLost)), holds, "{read:?}");
            assert_eq!(matches!(bobs.lock(&meanwhile, false).await, Err(Error::Locked)), !holds);
        });
    }
}

#[test]
fn what_was_locked_without_a_link_is_not_lost_to_who_has_the_file_to_itself_and_holds_nothing() {
    for before in [false, true] {
        play(1, |scene| async move {
            let ada = scene.comes(0, WantedMode::Auto).await;
            let bob = scene.comes(1, CONNECTED).await;
            let (adas, bobs) = (client(&ada), client(&bob));
            let file = make(&adas, "file").await;
            scene.pass(SECOND * 5).await;
            assert_eq!(adas.status().mode, Mode::Connected);
            let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
            let held = stretch(file, hers, 1, true, (0, 9));
            let meanwhile = stretch(file, his, 2, true, (0, 9));
            if before {
                // Then all of the file is leased to her.
                adas.lock(&held, false).await.unwrap();
                unlock(&adas, &held).await.unwrap();
            }
            scene.room.network.cut(ada.line, SECOND / 10);
            scene.pass(SECOND * 40).await;
            bobs.lock(&meanwhile, true).await.unwrap();
            unlock(&bobs, &meanwhile).await.unwrap();
            assert_eq!(adas.status().mode, Mode::Disconnected);
            adas.lock(&held, false).await.unwrap();
            scene.room.network.restore(ada.line);
            scene.pass(SECOND * 20).await;
            assert_eq!(adas.status().mode, Mode::Connected);
            complete(&adas, |c| c.read(hers, 0, 1)).await.unwrap();
            assert!(matches!(bobs.lock(&meanwhile, false).await, Err(Error::Locked)));
        });
    }
}

#[test]
fn who_locks_what_another_process_has_lost_before_loses_nothing() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        scene.pass(SECOND * 2).await;
        let (hers, his, beside) =
            (open(&adas, file).await, open(&bobs, file).await, open(&adas, file).await);
        let overtaken = stretch(file, hers, 1, true, (0, 9));
        let meanwhile = stretch(file, his, 2, true, (0, 9));
        adas.lock(&overtaken, false).await.unwrap();
        adas.set_mode(PARTIAL);
        scene.pass(SECOND).await;
        scene.room.network.cut(ada.line, SECOND / 10);
        bobs.lock(&meanwhile, true).await.unwrap();
        scene.room.network.restore(ada.line);
        scene.pass(SECOND * 10).await;
        unlock(&adas, &overtaken).await.unwrap();
        scene.pass(SECOND * 5).await;
        unlock(&bobs, &meanwhile).await.unwrap();
        let innocent = stretch(file, beside, 3, true, (0, 9));
        adas.lock(&innocent, false).await.unwrap();
        adas.set_mode(CONNECTED);
        scene.pass(SECOND * 5).await;
        complete(&adas, |c| c.read(beside, 0, 1)).await.unwrap();
        assert!(matches!(bobs.lock(&meanwhile, false).await, Err(Error::Locked)));
    });
}

#[test]
fn who_asks_just_when_it_is_found_that_another_process_has_lost_its_lock_gets_what_it_asks_for() {
    play(1, |scene| async move {
        let (ada, bob, carol) = (
            scene.comes(0, PARTIAL).await,
            scene.comes(1, CONNECTED).await,
            scene.comes(2, CONNECTED).await,
        );
        let (adas, bobs, carols) = (client(&ada), client(&bob), client(&carol));
        let file = make(&adas, "file").await;
        scene.pass(SECOND * 2).await;
        let (hers, beside) = (open(&adas, file).await, open(&adas, file).await);
        let (his, theirs) = (open(&bobs, file).await, open(&carols, file).await);
        adas.lock(&stretch(file, hers, 1, true, (0, 9)), false).await.unwrap();
        bobs.lock(&stretch(file, his, 2, true, (5, 5)), false).await.unwrap();
        carols.lock(&stretch(file, theirs, 3, true, (20, 29)), false).await.unwrap();
        adas.set_mode(CONNECTED);
        let innocent = stretch(file, beside, 4, true, (100, 109));
        adas.lock(&innocent, false).await.unwrap();
        let lost = complete(&adas, |c| c.read(hers, 0, 1)).await;
        assert!(matches!(lost, Err(Error::LockLost)), "{lost:?}");
        complete(&adas, |c| c.read(beside, 0, 1)).await.unwrap();
        let seen = bobs.look_at_lock(&stretch(file, his, 2, true, (0, 200))).await.unwrap();
        assert!(seen.is_some(), "it holds among all");
    });
}

#[test]
fn a_file_that_takes_long_to_be_stored_holds_up_the_locks_of_no_other() {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, CONNECTED).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let (slow, other) = (make(&adas, "slow").await, make(&adas, "other").await);
        let hers = [open(&adas, slow).await, open(&adas, other).await];
        let his = [open(&bobs, slow).await, open(&bobs, other).await];
        let wanted = stretch(other, hers[1], 1, true, (0, 9));
        adas.lock(&wanted, false).await.unwrap();
        adas.unlock(&wanted, &[LockKind::Record]).unwrap();
        let held = stretch(slow, hers[0], 1, true, (0, 9));
        adas.lock(&held, false).await.unwrap();
        bobs.lock(&stretch(slow, his[0], 2, true, (20, 29)), true).await.unwrap();

        let line = Conditions { bytes_a_second: Some(100_000), ..Conditions::NEAR };
        scene.room.network.set_conditions(ada.line, line);
        let bytes: Vec<u8> = (0..3_000_000).map(|_| scene.room.chance.below(256) as u8).collect();
        complete(&adas, |c| c.write(hers[0], 0, &bytes)).await.unwrap();
        let stored = complete(&adas, |c| c.before_unlock(CALLER, &held)).await.unwrap();
        assert!(stored.wait.is_some());
        adas.unlock(&held, &[LockKind::Record]).unwrap();
        scene.pass(SECOND).await;
        let began = scene.room.clock.moment();
        bobs.lock(&stretch(other, his[1], 2, true, (0, 9)), true).await.unwrap();
        let waited = scene.room.clock.moment().since(began);
        assert!(waited < SECOND * 6, "{waited:?}");
    });
}

#[test]
fn what_is_claimed_waits_for_nothing_that_is_still_being_stored() {
    what_is_claimed_waits_for_nothing(false);
}

#[test]
fn what_is_claimed_from_who_has_the_file_to_himself_waits_for_nothing_either() {
    what_is_claimed_waits_for_nothing(true);
}

/// `keeps`: the other one has locked the file before, and keeps it to himself.
fn what_is_claimed_waits_for_nothing(keeps: bool) {
    play(1, |scene| async move {
        let (ada, bob) = (scene.comes(0, PARTIAL).await, scene.comes(1, CONNECTED).await);
        let (adas, bobs) = (client(&ada), client(&bob));
        let file = make(&adas, "file").await;
        scene.pass(SECOND * 2).await;
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let wanted = stretch(file, his, 2, true, (5, 5));
        if keeps {
            bobs.lock(&wanted, false).await.unwrap();
            unlock(&bobs, &wanted).await.unwrap();
        }
        let held = stretch(file, hers, 1, true, (0, 9));
        adas.lock(&held, false).await.unwrap();
        let line = Conditions { bytes_a_second: Some(100_000), ..Conditions::NEAR };
        scene.room.network.set_conditions(ada.line, line);
        let bytes: Vec<u8> = (0..2_000_000).map(|_| scene.room.chance.below(256) as u8).collect();
        complete(&adas, |c| c.write(hers, 0, &bytes)).await.unwrap();
        complete(&adas, |c| c.flush(CALLER, hers)).await.unwrap();
        adas.set_mode(CONNECTED);
        scene.pass(SECOND * 5).await;
        assert!(adas.status().pending.updates > 0);
        assert!(matches!(bobs.lock(&wanted, false).await, Err(Error::Locked)));
        complete(&adas, |c| c.read(hers, 0, 1)).await.unwrap();
        unlock(&adas, &held).await.unwrap();
        bobs.lock(&wanted, true).await.unwrap();
    });
}

#[test]
fn who_gives_a_lock_up_and_asks_the_one_who_waited_for_it_waits_and_is_no_deadlock() {
    for closes in [false, true] {
        play(1, |scene| async move {
            let ada = scene.comes(0, CONNECTED).await;
            let adas = client(&ada);
            let file = make(&adas, "file").await;
            let (one, other) = (open(&adas, file).await, open(&adas, file).await);
            let call =
                move |handle, owner, first| stretch(file, handle, owner, true, (first, first));
            adas.lock(&call(one, 1, 2), true).await.unwrap();
            adas.lock(&call(other, 2, 1), true).await.unwrap();
            let (waits, its) = (call(one, 1, 1), call(one, 1, 2));
            let first = adas.clone();
            let first = tokio::task::spawn_local(async move {
                first.lock(&waits, true).await.unwrap();
                first.unlock(&its, &[LockKind::Record]).unwrap();
            });
            scene.pass(SECOND).await;
            // Nobody else has its turn between the two.
            if closes {
                adas.closed_by(file, other, Owner(2));
            } else {
                adas.unlock(&call(other, 2, 1), &[LockKind::Record]).unwrap();
            }
            adas.lock(&call(other, 2, 2), true).await.unwrap();
            first.await.unwrap();
            // One that is to stay is said at once.
            let second = adas.clone();
            let second = tokio::task::spawn_local(async move {
                second.lock(&call(one, 1, 2), true).await.unwrap();
            });
            scene.pass(SECOND).await;
            let deadlock = adas.lock(&call(other, 2, 1), true).await;
            assert!(matches!(deadlock, Err(Error::Deadlock)), "{deadlock:?}");
            second.abort();
        });
    }
}
