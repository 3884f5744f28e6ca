//! Records of one file, each locked by itself on several machines: what is written under them is all
//! there, whoever stores first.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

use client::{
    Caller, Error, Handle, LockCall, Making, OpenFlags, Owner, Taker, WantedMode, complete,
};
use model::{FileId, Kind, Lock, LockKind, Name};
use protocol::Mode;
use sim::contents::stretch;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient, VOLUME};
use sim::network::Conditions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::Containers;
use world::Clock;

const CALLER: Caller = Caller { uid: 0, gid: 0 };

const SECOND: Duration = Duration::from_secs(1);
const CONNECTED: WantedMode = WantedMode::Fixed(Mode::Connected);
const BOTH: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
/// Bytes of a record.
const RECORD: u64 = 8;

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: Vec<ClientMachine>,
}

impl Scene {
    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    fn conflicts(&self) -> usize {
        self.origin.origin().unwrap().conflicts(VOLUME, usize::MAX).unwrap().len()
    }

    /// What a machine finds in the file that opens it now.
    async fn all(&self, number: usize, file: FileId) -> Vec<u8> {
        let client = self.client(number);
        let handle = open(&client, file).await;
        let bytes = complete(&client, |c| c.read(handle, 0, 1 << 20)).await.unwrap();
        close(&client, handle).await;
        bytes
    }
}

/// With so many machines, all connected, and a file of so many bytes that each has seen.
fn play<F: Future<Output = ()>>(
    (seed, machines, bytes): (u64, usize, usize),
    work: impl FnOnce(Scene, FileId) -> F,
) {
    sim::run::paused(async {
        let room = Room::new(seed, false);
        let network = room.network.clone();
        let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
        let mut scene = Scene { room, origin, machines: Vec::new() };
        let all = async {
            for number in 0..machines {
                let invitation = scene.origin.invite().unwrap();
                let mut machine = ClientMachine::new(
                    &scene.room,
                    number,
                    invitation,
                    Conditions::NEAR,
                    CONNECTED,
                );
                machine.cache_bytes_max = 1 << 30;
                machine.start().await.unwrap();
                scene.machines.push(machine);
            }
            let client = scene.client(0);
            let name = Name::new("records").unwrap();
            let making =
                Making { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, target: None, rdev: None };
            let made = complete(&client, |c| c.create(CALLER, FileId::ROOT, &name, &making, BOTH));
            let made = made.await.unwrap();
            if let Some(number) = made.wait {
                client.settled(number).await.unwrap();
            }
            let (found, opened) = made.value;
            if bytes > 0 {
                let zeros = vec![0; bytes];
                complete(&client, |c| c.write(opened.handle, 0, &zeros)).await.unwrap();
            }
            close(&client, opened.handle).await;
            work(scene, found.file).await;
        };
        tokio::task::LocalSet::new().run_until(all).await;
        network.close();
    });
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

async fn write(client: &SimClient, handle: Handle, at: u64, bytes: &[u8]) {
    complete(client, |c| c.write(handle, at, bytes)).await.unwrap();
}

async fn read(client: &SimClient, handle: Handle, at: u64, length: usize) -> Vec<u8> {
    complete(client, |c| c.read(handle, at, length)).await.unwrap()
}

async fn sync(client: &SimClient, handle: Handle) -> Result<(), Error> {
    let done = complete(client, |c| c.sync(CALLER, handle)).await?;
    match done.wait {
        Some(number) => client.settled(number).await,
        None => Ok(()),
    }
}

/// A lock of bytes from the first to the last, with nobody else.
fn alone(file: FileId, handle: Handle, owner: u64, (first, last): (u64, u64)) -> LockCall {
    let lock = Lock { kind: LockKind::Record, exclusive: true, first, last };
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

/// Adds one to the number in each of these records, one after the other, under a lock of that record
/// alone, and writes it in two parts.
async fn count(
    (client, clock): (SimClient, Clock),
    file: FileId,
    owner: u64,
    records: Vec<(u64, Duration)>,
) {
    let handle = open(&client, file).await;
    for (record, pause) in records {
        let at = RECORD * record;
        let call = alone(file, handle, owner, (at, at + RECORD - 1));
        client.lock(&call, true).await.unwrap();
        let mut bytes = read(&client, handle, at, RECORD as usize).await;
        bytes.resize(RECORD as usize, 0);
        let number = u64::from_le_bytes(bytes.try_into().unwrap()) + 1;
        write(&client, handle, at, &number.to_le_bytes()[..1]).await;
        clock.sleep(pause).await;
        write(&client, handle, at + 1, &number.to_le_bytes()[1..]).await;
        unlock(&client, &call).await.unwrap();
    }
    close(&client, handle).await;
}

#[test]
fn what_many_count_in_records_of_one_file_is_all_there() {
    const ROUNDS: u64 = 12;
    const RECORDS: u64 = 5;
    // Empty, small, and of many chunks.
    for (seed, bytes) in [(1, 0), (2, 40), (3, 40), (4, 300_000)] {
        play((seed, 3, bytes), |scene, file| async move {
            let mut tasks = Vec::new();
            for machine in 0..3 {
                for process in 0..2 {
                    let chance = &scene.room.chance;
                    let pause = || Duration::from_millis(chance.below(3) * chance.below(100));
                    let records = (0..ROUNDS).map(|_| (chance.below(RECORDS), pause())).collect();
                    let owner = 10 * machine + process;
                    let client = scene.client(machine as usize);
                    let clock = scene.room.clock.clone();
                    tasks.push(tokio::task::spawn_local(count(
                        (client, clock),
                        file,
                        owner,
                        records,
                    )));
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
            let mut found = scene.all(1, file).await;
            assert!(found.len() >= bytes);
            found.resize((RECORDS * RECORD) as usize, 0);
            let records = found.chunks(RECORD as usize);
            let sum: u64 = records.map(|r| u64::from_le_bytes(r.try_into().unwrap())).sum();
            assert_eq!((sum, scene.conflicts()), (6 * ROUNDS, 0), "seed {seed}");
        });
    }
}

#[test]
fn who_has_written_to_one_record_reads_what_others_have_made_of_the_next() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let (first, second) = (alone(file, hers, 1, (0, 9)), alone(file, hers, 1, (10, 19)));
        let his_second = alone(file, his, 2, (10, 19));
        adas.lock(&first, false).await.unwrap();
        write(&adas, hers, 0, b"ada's").await;
        bobs.lock(&his_second, false).await.unwrap();
        write(&bobs, his, 10, b"bob's").await;
        unlock(&bobs, &his_second).await.unwrap();
        // She has not given up the first, nor stored it.
        adas.lock(&second, true).await.unwrap();
        assert_eq!(read(&adas, hers, 0, 20).await, *b"ada's\0\0\0\0\0bob's\0\0\0\0\0");
        write(&adas, hers, 10, b"ada!!").await;
        write(&adas, hers, 3, b"!!").await;
        unlock(&adas, &second).await.unwrap();
        unlock(&adas, &first).await.unwrap();
        bobs.lock(&his_second, true).await.unwrap();
        assert_eq!(read(&bobs, his, 0, 15).await, *b"ada!!\0\0\0\0\0ada!!");
        assert_eq!(scene.conflicts(), 0);
    });
}

/// A process stores its record while another one of the machine gets a record that was changed elsewhere.
#[test]
fn who_gets_a_record_while_another_is_stored_reads_what_was_made_of_it_elsewhere() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        for round in 1..60u8 {
            let her_record = alone(file, hers, 1, (0, 9));
            let (his_record, wanted) =
                (alone(file, his, 2, (10, 19)), alone(file, second, 3, (10, 19)));
            adas.lock(&her_record, true).await.unwrap();
            bobs.lock(&his_record, true).await.unwrap();
            write(&adas, hers, 0, &[round]).await;
            write(&bobs, his, 10, &[round]).await;
            let waits = {
                let (client, file) = (adas.clone(), second);
                tokio::task::spawn_local(async move {
                    client.lock(&wanted, true).await.unwrap();
                    read(&client, file, 0, 11).await
                })
            };
            let stores = {
                let (client, clock) = (adas.clone(), scene.room.clock.clone());
                tokio::task::spawn_local(async move {
                    clock.sleep(Duration::from_millis(2) * round.into()).await;
                    unlock(&client, &her_record).await.unwrap();
                })
            };
            unlock(&bobs, &his_record).await.unwrap();
            let found = waits.await.unwrap();
            assert_eq!((found[0], found[10]), (round, round));
            stores.await.unwrap();
            unlock(&adas, &wanted).await.unwrap();
        }
        assert_eq!(scene.conflicts(), 0);
    });
}

/// The second process has the file to itself by then, and asks nobody.
#[test]
fn what_was_stored_before_a_machine_had_the_file_to_itself_is_read_there() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        let her_first = alone(file, hers, 1, (0, 9));
        let her_other = alone(file, second, 3, (20, 29));
        let his_record = alone(file, his, 2, (10, 19));
        adas.lock(&her_first, false).await.unwrap();
        adas.lock(&her_other, false).await.unwrap();
        bobs.lock(&his_record, false).await.unwrap();
        write(&adas, hers, 0, b"ada's").await;
        write(&bobs, his, 10, b"bob's").await;
        unlock(&bobs, &his_record).await.unwrap();
        close(&bobs, his).await;
        // With this she tells what she has, and nobody else has anything.
        unlock(&adas, &her_other).await.unwrap();
        scene.room.clock.sleep(SECOND * 3).await;
        let record = alone(file, second, 3, (10, 19));
        adas.lock(&record, false).await.unwrap();
        assert_eq!(read(&adas, second, 0, 15).await, *b"ada's\0\0\0\0\0bob's");
        unlock(&adas, &record).await.unwrap();
        unlock(&adas, &her_first).await.unwrap();
        let all = scene.all(1, file).await;
        assert_eq!((&all[..15], all.len()), (&b"ada's\0\0\0\0\0bob's"[..], 100));
        assert_eq!(scene.conflicts(), 0);
    });
}

#[test]
fn what_grows_under_records_beyond_the_end_is_all_there_and_what_is_cut_is_gone() {
    play((1, 2, 10), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let (her_record, his_record) =
            (alone(file, hers, 1, (10, 19)), alone(file, his, 2, (20, 29)));
        adas.lock(&her_record, false).await.unwrap();
        bobs.lock(&his_record, false).await.unwrap();
        write(&adas, hers, 10, b"ada's").await;
        write(&bobs, his, 20, b"bob's").await;
        unlock(&bobs, &his_record).await.unwrap();
        unlock(&adas, &her_record).await.unwrap();
        assert_eq!(scene.all(0, file).await[10..], *b"ada's\0\0\0\0\0bob's");
        let (her_head, his_rest) =
            (alone(file, hers, 1, (0, 4)), alone(file, his, 2, (15, i64::MAX as u64)));
        adas.lock(&her_head, false).await.unwrap();
        bobs.lock(&his_rest, false).await.unwrap();
        write(&adas, hers, 0, b"first").await;
        let cut = client::Setting { size: Some(15), ..client::Setting::default() };
        complete(&bobs, |c| c.set_attributes(CALLER, file, Some(his), &cut)).await.unwrap();
        unlock(&adas, &her_head).await.unwrap();
        unlock(&bobs, &his_rest).await.unwrap();
        assert_eq!(scene.all(0, file).await, *b"first\0\0\0\0\0ada's");
        assert_eq!(scene.conflicts(), 0);
    });
}

#[test]
fn what_is_written_outside_of_what_is_locked_lies_beside_as_without_locks() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let her_record = alone(file, hers, 1, (0, 9));
        adas.lock(&her_record, false).await.unwrap();
        write(&bobs, his, 50, b"bob's").await;
        sync(&bobs, his).await.unwrap();
        write(&adas, hers, 0, b"ada's").await;
        write(&adas, hers, 60, b"too").await;
        unlock(&adas, &her_record).await.unwrap();
        let all = scene.all(1, file).await;
        assert_eq!(
            (&all[..5], &all[50..55], &all[60..63]),
            (&[0; 5][..], &b"bob's"[..], &[0; 3][..])
        );
        assert_eq!(scene.conflicts(), 1);
        // Who wrote into a record of others has met them, too.
        let his_record = alone(file, his, 2, (20, 29));
        close(&adas, hers).await;
        let hers = open(&adas, file).await;
        bobs.lock(&his_record, false).await.unwrap();
        write(&adas, hers, 25, b"ada").await;
        sync(&adas, hers).await.unwrap();
        write(&bobs, his, 20, b"bob").await;
        unlock(&bobs, &his_record).await.unwrap();
        let all = scene.all(1, file).await;
        assert_eq!((&all[20..23], &all[25..28]), (&[0; 3][..], &b"ada"[..]));
        assert_eq!(scene.conflicts(), 2);
    });
}

#[test]
fn what_others_could_change_meanwhile_is_not_laid_over_it() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let her_record = alone(file, hers, 1, (0, 9));
        adas.lock(&her_record, false).await.unwrap();
        write(&adas, hers, 0, b"ada's").await;
        scene.room.network.cut(scene.machines[0].line, SECOND / 10);
        let his_record = alone(file, his, 2, (0, 9));
        bobs.lock(&his_record, true).await.unwrap();
        write(&bobs, his, 0, b"bob").await;
        unlock(&bobs, &his_record).await.unwrap();
        scene.room.network.restore(scene.machines[0].line);
        scene.room.clock.sleep(SECOND * 5).await;
        assert!(matches!(unlock(&adas, &her_record).await, Err(Error::LockLost)));
        close(&adas, hers).await;
        assert_eq!(scene.all(1, file).await[..5], *b"bob\0\0");
        assert_eq!(scene.conflicts(), 1, "what she wrote lies beside");
    });
}

/// A program that takes no locks writes a file anew in two steps, as `dd conv=notrunc` does; the
/// other machine stores the whole of it meanwhile, and another process here locks some record.
#[test]
fn what_a_program_without_locks_writes_is_not_mixed_with_what_others_stored() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        write(&adas, hers, 0, &[b'a'; 50]).await;
        write(&bobs, his, 0, &[b'b'; 100]).await;
        close(&bobs, his).await;
        let record = alone(file, second, 3, (200, 209));
        adas.lock(&record, true).await.unwrap();
        write(&adas, hers, 50, &[b'a'; 50]).await;
        unlock(&adas, &record).await.unwrap();
        close(&adas, hers).await;
        let all = scene.all(1, file).await;
        let text = String::from_utf8_lossy(&all).into_owned();
        assert!(all == [b'a'; 100] || all == [b'b'; 100], "nobody has written this: {text}");
    });
}

/// Zeros that she writes to under her record, and he cuts off, holding all behind his own.
#[test]
fn what_is_written_under_a_record_is_not_lost_to_who_cuts_zeros_off() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let her_record = alone(file, hers, 1, (90, 93));
        adas.lock(&her_record, false).await.unwrap();
        write(&adas, hers, 90, b"ada!").await;
        let cut = client::Setting { size: Some(40), ..client::Setting::default() };
        complete(&bobs, |c| c.set_attributes(CALLER, file, Some(his), &cut)).await.unwrap();
        sync(&bobs, his).await.unwrap();
        unlock(&adas, &her_record).await.unwrap();
        close(&adas, hers).await;
        let all = scene.all(1, file).await;
        assert!(all.ends_with(b"ada!") || scene.conflicts() == 1, "{} bytes", all.len());
    });
}

/// She holds a record and has written to it, and, by mistake, beside it. Another process of hers
/// locks something else: what she wrote is kept aside, and is gone under her.
#[test]
fn who_holds_a_record_reads_what_it_wrote_to_it_whatever_others_lock() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        let (record, another) = (alone(file, hers, 1, (0, 9)), alone(file, second, 3, (80, 89)));
        adas.lock(&record, false).await.unwrap();
        write(&adas, hers, 0, b"ada's").await;
        write(&adas, hers, 60, b"too").await;
        write(&bobs, his, 50, b"bob's").await;
        sync(&bobs, his).await.unwrap();
        adas.lock(&another, true).await.unwrap();
        let found = complete(&adas, |c| c.read(hers, 0, 5)).await;
        let found = found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(found.is_err() || found.as_ref().unwrap() == "ada's", "{found:?}");
    });
}

/// Two processes of a machine have open what came to lie beside. A lock of one of them, of a file that the
/// other one has open too, would show each what the kernel has of the other.
#[test]
fn what_lies_beside_stays_what_all_of_its_programs_have_open_until_one_has_it_alone() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        write(&bobs, his, 50, b"bob's").await;
        write(&adas, hers, 50, b"ada's").await;
        sync(&bobs, his).await.unwrap();
        sync(&adas, hers).await.unwrap();
        assert_eq!(scene.conflicts(), 1);
        let record = alone(file, second, 3, (0, 9));
        adas.lock(&record, true).await.unwrap();
        assert_eq!(read(&adas, second, 50, 5).await, b"ada's");
        write(&adas, second, 0, b"more").await;
        unlock(&adas, &record).await.unwrap();
        assert_eq!(read(&adas, hers, 0, 4).await, b"more");
        close(&adas, hers).await;
        adas.lock(&record, true).await.unwrap();
        assert_eq!(read(&adas, second, 50, 5).await, b"bob's");
        assert_eq!(read(&adas, second, 0, 4).await, [0; 4], "that lies beside, too");
        unlock(&adas, &record).await.unwrap();
    });
}

/// What a machine has written to a file of which only a part is here is a version as any other once
/// it has been taken: its programs go on with the next one.
#[test]
fn who_has_only_a_part_of_a_file_reads_what_others_have_made_of_its_records() {
    const AT: u64 = 1 << 20;
    play((1, 3, 0), |mut scene, file| async move {
        let maker = open(&scene.client(0), file).await;
        write(&scene.client(0), maker, 0, &stretch(1, 3 << 20)).await;
        close(&scene.client(0), maker).await;
        for machine in &mut scene.machines[1..] {
            machine.stop(End::Killed, Duration::ZERO);
            machine.whole_bytes_max = Some(64 << 10);
            machine.start().await.unwrap();
        }
        let (adas, bobs) = (scene.client(1), scene.client(2));
        let (hers, his) = (open(&adas, file).await, open(&bobs, file).await);
        let her_record = alone(file, hers, 1, (AT, AT + 9));
        let her_other = alone(file, hers, 1, (AT + 10, AT + 19));
        let his_record = alone(file, his, 2, (AT + 10, AT + 19));
        for round in 1..4 {
            adas.lock(&her_record, true).await.unwrap();
            write(&adas, hers, AT, &[round]).await;
            unlock(&adas, &her_record).await.unwrap();
            bobs.lock(&his_record, true).await.unwrap();
            assert_eq!(read(&bobs, his, AT, 1).await, [round]);
            write(&bobs, his, AT + 10, &[round]).await;
            unlock(&bobs, &his_record).await.unwrap();
            adas.lock(&her_other, true).await.unwrap();
            assert_eq!(read(&adas, hers, AT + 10, 1).await, [round]);
            unlock(&adas, &her_other).await.unwrap();
        }
        assert_eq!(scene.conflicts(), 0);
    });
}

/// Of what two processes go on with that lies beside, nothing is opened when others have stored a newer
/// version: nobody would close it.
#[test]
fn of_what_nobody_goes_on_with_no_container_is_left() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        write(&bobs, his, 50, b"bob's").await;
        write(&adas, hers, 50, b"ada's").await;
        sync(&bobs, his).await.unwrap();
        sync(&adas, hers).await.unwrap();
        let (record, his_record) = (alone(file, second, 3, (0, 9)), alone(file, his, 2, (20, 29)));
        for round in 0..20 {
            bobs.lock(&his_record, true).await.unwrap();
            write(&bobs, his, 20, &[round]).await;
            unlock(&bobs, &his_record).await.unwrap();
            adas.lock(&record, true).await.unwrap();
            unlock(&adas, &record).await.unwrap();
        }
        let containers = scene.machines[0].disk.containers("files").list_of(file.0).unwrap();
        assert!(containers.len() <= 3, "{containers:?}");
    });
}

/// One process closes and syncs a file, and another one of the machine goes on with what others have made of
/// it in that very moment.
#[test]
fn who_closes_a_file_while_another_locks_it_is_told_of_no_error() {
    play((1, 2, 100), |scene, file| async move {
        let (adas, bobs) = (scene.client(0), scene.client(1));
        let (hers, second) = (open(&adas, file).await, open(&adas, file).await);
        let his = open(&bobs, file).await;
        let (record, his_record) = (alone(file, second, 3, (0, 9)), alone(file, his, 2, (10, 19)));
        let ends = Arc::new(AtomicBool::new(false));
        let closes = std::thread::spawn({
            let (adas, ends) = (adas.clone(), ends.clone());
            move || {
                while !ends.load(Ordering::Relaxed) {
                    adas.flush(CALLER, hers).map_err(|stop| stop.to_string())?;
                    adas.sync(CALLER, hers).map_err(|stop| stop.to_string())?;
                }
                Ok::<(), String>(())
            }
        });
        for round in 0..200 {
            bobs.lock(&his_record, true).await.unwrap();
            write(&bobs, his, 10, &[round]).await;
            unlock(&bobs, &his_record).await.unwrap();
            adas.lock(&record, true).await.unwrap();
            unlock(&adas, &record).await.unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(closes.join().unwrap(), Ok(()));
    });
}
