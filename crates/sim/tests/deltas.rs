//! Versions travel as what they add to what the other side has, and whatever goes wrong with that,
//! they arrive.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot go on is a failed test")]

use client::{Caller, Handle, Making, OpenFlags, RenameFlag, WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, End, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use std::future::Future;
use std::time::Duration;
use store::{Durability, Tables};

const CALLER: Caller = Caller { uid: 1000, gid: 1000 };
const BYTES: usize = 200_000;
/// Recipe chunks name every chunk anew: 24 bytes for each 8 KiB, and a little more.
const FEW_BYTES: u64 = 3_000;

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// The same with a byte changed everywhere: no chunk is as it was.
fn compiled_again(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.iter_mut().step_by(1500).for_each(|byte| *byte ^= 0x55);
    bytes
}

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: Vec<ClientMachine>,
}

impl Scene {
    async fn new(clients: usize, cache_bytes_max: u64) -> Scene {
        let room = Room::new(7, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut scene = Scene { room, origin, machines: Vec::new() };
        for number in 0..clients {
            let invitation = scene.origin.invite().unwrap();
            let mode = WantedMode::Fixed(Mode::Connected);
            let line = Conditions { bytes_a_second: Some(40_000), ..Conditions::NEAR };
            let mut machine = ClientMachine::new(&scene.room, number, invitation, line, mode);
            machine.cache_bytes_max = cache_bytes_max;
            machine.start().await.unwrap();
            scene.machines.push(machine);
        }
        scene
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    fn sent(&self, number: usize) -> u64 {
        self.client(number).status().traffic.iter().map(|class| class.sent).sum()
    }

    fn received(&self, number: usize) -> u64 {
        self.client(number).status().traffic.iter().map(|class| class.received).sum()
    }

    /// Stores the first version of `doc`.
    async fn begin(&self) -> Vec<u8> {
        let old = noise(BYTES, 1);
        let handle = create(&self.client(0), "doc").await;
        save(&self.client(0), handle, &old).await;
        old
    }

    /// Saves with `save`, and says how many bytes were sent for it. What is there then is `new`.
    async fn costs<F: Future<Output = ()>>(&self, new: &[u8], save: F) -> u64 {
        let before = self.sent(0);
        save.await;
        let sent = self.sent(0) - before;
        self.is_at_the_origin(new).await;
        sent
    }

    /// A client that never had anything finds these contents.
    async fn is_at_the_origin(&self, new: &[u8]) {
        let invitation = self.origin.invite().unwrap();
        let mode = WantedMode::Fixed(Mode::Connected);
        let number = 1000 + self.room.chance.below(1 << 40) as usize;
        let mut fresh = ClientMachine::new(&self.room, number, invitation, Conditions::NEAR, mode);
        fresh.start().await.unwrap();
        let found = read(fresh.client().unwrap(), "doc").await;
        assert!(found == new, "{} bytes instead of {}", found.len(), new.len());
        // Nobody is to wait for its lease.
        fresh.client().unwrap().shut_down(Duration::ZERO).await;
        fresh.stop(End::Killed, Duration::ZERO);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn settled<T>(
    client: &SimClient,
    call: impl Fn(&SimClient) -> client::Step<client::Done<T>>,
) -> T {
    let done = complete(client, call).await.unwrap();
    if let Some(number) = done.wait {
        client.settled(number).await.unwrap();
    }
    done.value
}

async fn create(client: &SimClient, text: &str) -> Handle {
    let making =
        Making { kind: Kind::File, mode: 0o644, uid: 1000, gid: 1000, target: None, rdev: None };
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let call =
        |client: &SimClient| client.create(CALLER, FileId::ROOT, &name(text), &making, flags);
    settled(client, call).await.1.handle
}

async fn open(client: &SimClient, text: &str, flags: OpenFlags) -> Handle {
    let found = complete(client, |client| client.lookup(FileId::ROOT, &name(text))).await.unwrap();
    let file = found.unwrap().file;
    settled(client, |client| client.open_file(CALLER, file, flags)).await.handle
}

async fn write(client: &SimClient, handle: Handle, offset: u64, bytes: &[u8]) {
    complete(client, |client| client.write(handle, offset, bytes)).await.unwrap();
}

async fn close(client: &SimClient, handle: Handle) {
    settled(client, |client| client.flush(CALLER, handle)).await;
    client.release(handle);
}

async fn save(client: &SimClient, handle: Handle, bytes: &[u8]) {
    write(client, handle, 0, bytes).await;
    close(client, handle).await;
}

async fn read(client: &SimClient, text: &str) -> Vec<u8> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = open(client, text, flags).await;
    let bytes = complete(client, |client| client.read(handle, 0, 4 * BYTES)).await.unwrap();
    client.release(handle);
    bytes
}

async fn rename(client: &SimClient, from: &str, to: &str) {
    let (root, from, to) = (FileId::ROOT, name(from), name(to));
    let call =
        |client: &SimClient| client.rename(CALLER, root, &from, root, &to, RenameFlag::Replace);
    settled(client, call).await;
}

async fn unlink(client: &SimClient, text: &str) {
    settled(client, |client| client.unlink(CALLER, FileId::ROOT, &name(text), false)).await;
}

const TRUNCATE: OpenFlags = OpenFlags { read: false, write: true, truncate: true, append: false };
const WRITE: OpenFlags = OpenFlags { read: true, write: true, truncate: false, append: false };
const PLENTY: u64 = 1 << 30;

#[tokio::test(start_paused = true)]
async fn a_file_that_is_cut_and_written_anew_costs_the_difference() {
    let scene = Scene::new(1, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    let sent = scene
        .costs(&new, async { save(&client, open(&client, "doc", TRUNCATE).await, &new).await })
        .await;
    assert!(sent < FEW_BYTES, "{sent} bytes");
    let file = complete(&client, |client| client.lookup(FileId::ROOT, &name("doc"))).await;
    let file = file.unwrap().unwrap().file;
    let told = complete(&client, |client| client.explain(file, "doc")).await.unwrap().why.concat();
    assert!(told.contains("200000 bytes of it as a delta of "), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_written_over_costs_the_difference() {
    let scene = Scene::new(1, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    let sent = scene
        .costs(&new, async { save(&client, open(&client, "doc", WRITE).await, &new).await })
        .await;
    assert!(sent < FEW_BYTES, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_like_another_one_costs_the_difference_whatever_it_is_called() {
    let scene = Scene::new(2, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    let before = scene.sent(0);
    let handle = create(&client, "another").await;
    save(&client, handle, &new).await;
    let sent = scene.sent(0) - before;
    assert!(sent < FEW_BYTES, "{sent} bytes");
    assert!(read(&scene.client(1), "another").await == new);
    // What is like nothing costs all of it.
    let before = scene.sent(0);
    let handle = create(&client, "third").await;
    save(&client, handle, &noise(BYTES, 2)).await;
    assert!(scene.sent(0) - before > BYTES as u64);
}

/// Words that deflate well, and no two lines alike.
fn text() -> Vec<u8> {
    let words: Vec<String> =
        noise(6_000, 3).chunks(3).map(|word| format!("{:02x}{:x}", word[0], word[1])).collect();
    let numbers = noise(160_000, 4);
    let word = |pair: &[u8]| usize::from(pair[0]) << 3 | usize::from(pair[1]) & 7;
    numbers
        .chunks(2)
        .flat_map(|pair| format!("{} ", words[word(pair) % 2_000]).into_bytes())
        .collect()
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_compressed_file_costs_what_changed_in_it() {
    let scene = Scene::new(1, PLENTY).await;
    let client = scene.client(0);
    let mut plain = text();
    let old = compressed(&plain);
    assert!(old.len() > 60_000, "{}", old.len());
    let handle = create(&client, "doc").await;
    save(&client, handle, &old).await;
    // What lies before the change is as it was, so only the rest is missing at the origin.
    let middle = plain.len() / 2;
    plain.splice(middle..middle, *b"a few words more ");
    let new = compressed(&plain);
    let sent = scene
        .costs(&new, async { save(&client, open(&client, "doc", TRUNCATE).await, &new).await })
        .await;
    assert!(sent < FEW_BYTES, "{sent} bytes of {}", new.len());
}

#[tokio::test(start_paused = true)]
async fn a_compressed_file_that_is_saved_beside_the_old_one_costs_what_changed_in_it() {
    // As an office program saves, as an archiver does by hand, and as an editor saves by itself.
    for saved_as in ["lu2x81.tmp", "doc.new", "#doc#"] {
        let scene = Scene::new(1, PLENTY).await;
        let client = scene.client(0);
        let mut plain = text();
        save(&client, create(&client, "doc").await, &compressed(&plain)).await;
        save(&client, create(&client, "else").await, &noise(70_000, 5)).await;
        // Near the beginning: hardly a byte of the container is as it was.
        plain.splice(100..100, *b"a few words more ");
        let new = compressed(&plain);
        let sent = scene
            .costs(&new, async {
                save(&client, create(&client, saved_as).await, &new).await;
                rename(&client, saved_as, "doc").await;
            })
            .await;
        assert!(sent < FEW_BYTES, "{saved_as}: {sent} bytes of {}", new.len());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_packed_of_what_is_there_costs_little_whatever_it_is_called() {
    let scene = Scene::new(1, PLENTY).await;
    let client = scene.client(0);
    let plain = text();
    save(&client, create(&client, "notes").await, &plain).await;
    let packed = compressed(&plain);
    let before = scene.sent(0);
    save(&client, create(&client, "sent yesterday").await, &packed).await;
    let sent = scene.sent(0) - before;
    assert!(sent < FEW_BYTES, "{sent} bytes of {}", packed.len());
    assert!(read(&client, "sent yesterday").await == packed);
    // And unpacked again elsewhere, when the first one is gone.
    unlink(&client, "notes").await;
    let before = scene.sent(0);
    let other = [&plain[..], b"and so on"].concat();
    save(&client, create(&client, "again").await, &compressed(&other)).await;
    let sent = scene.sent(0) - before;
    assert!(sent < FEW_BYTES, "{sent} bytes of {}", packed.len());
}

#[tokio::test(start_paused = true)]
async fn who_reads_a_compressed_file_again_fetches_what_changed_in_it() {
    let scene = Scene::new(2, PLENTY).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let mut plain = text();
    plain.extend(noise(60_000, 9).iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    let old = compressed(&plain);
    save(&writer, create(&writer, "doc").await, &old).await;
    assert!(read(&reader, "doc").await == old);
    plain.splice(10_000..10_000, *b"a few words more ");
    let new = compressed(&plain);
    assert!(new.len() > 100_000, "more than comes with a recipe: {}", new.len());
    save(&writer, open(&writer, "doc", TRUNCATE).await, &new).await;
    let before = scene.received(1);
    assert!(read(&reader, "doc").await == new);
    let received = scene.received(1) - before;
    assert!(received < FEW_BYTES, "{received} bytes of {}", new.len());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_removed_and_made_anew_costs_the_difference() {
    let scene = Scene::new(1, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    let sent = scene
        .costs(&new, async {
            unlink(&client, "doc").await;
            save(&client, create(&client, "doc").await, &new).await;
        })
        .await;
    assert!(sent < FEW_BYTES, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_an_editor_has_put_aside_is_the_base_of_the_new_one() {
    let scene = Scene::new(1, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    let sent = scene
        .costs(&new, async {
            rename(&client, "doc", "doc~").await;
            save(&client, create(&client, "doc").await, &new).await;
            unlink(&client, "doc~").await;
        })
        .await;
    assert!(sent < FEW_BYTES, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_temporary_file_that_has_chunks_of_another_costs_the_difference() {
    let scene = Scene::new(1, PLENTY).await;
    let mut new = scene.begin().await;
    let changed = compiled_again(&new[40_000..160_000]);
    new[40_000..160_000].copy_from_slice(&changed);
    let client = scene.client(0);
    let sent = scene
        .costs(&new, async {
            save(&client, create(&client, ".doc.a7Qx").await, &new).await;
            rename(&client, ".doc.a7Qx", "doc").await;
        })
        .await;
    assert!(sent < FEW_BYTES, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn what_is_pending_when_the_machine_dies_is_sent_as_a_difference_too() {
    let mut scene = Scene::new(1, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    // Until the tables are on the disk.
    scene.room.clock.sleep(Duration::from_secs(20)).await;
    client.set_mode(WantedMode::Fixed(Mode::Disconnected));
    save(&client, open(&client, "doc", TRUNCATE).await, &new).await;
    scene.room.clock.sleep(Duration::from_secs(20)).await;
    scene.machines[0].stop(End::Killed, Duration::ZERO);
    let before = scene.sent_by_line();
    scene.machines[0].start().await.unwrap();
    sim::check::settled(&scene.room, &scene.machines, true).await.unwrap();
    let sent = scene.sent_by_line() - before;
    scene.is_at_the_origin(&new).await;
    assert!(sent < 2 * FEW_BYTES, "{sent} bytes");
}

impl Scene {
    /// Of the first client's line, whose count outlives the process.
    fn sent_by_line(&self) -> u64 {
        self.room.network.traffic(0).sent.iter().sum()
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_who_had_the_version_before_fetches_the_difference() {
    let scene = Scene::new(2, PLENTY).await;
    let old = scene.begin().await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    assert!(read(&reader, "doc").await == old);
    let new = compiled_again(&old);
    save(&writer, open(&writer, "doc", TRUNCATE).await, &new).await;
    let before = scene.received(1);
    assert!(read(&reader, "doc").await == new);
    let received = scene.received(1) - before;
    assert!(received < FEW_BYTES, "{received} bytes");

    let newer = compiled_again(&compiled_again(&new)[1..]);
    save(&writer, create(&writer, "tmp").await, &newer).await;
    rename(&writer, "tmp", "doc").await;
    let before = scene.received(1);
    assert!(read(&reader, "doc").await == newer);
    let received = scene.received(1) - before;
    assert!(received < FEW_BYTES, "another file under the same name: {received} bytes");
}

#[tokio::test(start_paused = true)]
async fn without_room_for_the_old_version_the_new_one_travels_by_itself() {
    let scene = Scene::new(1, 3 * BYTES as u64).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    let sent = scene
        .costs(&new, async { save(&client, open(&client, "doc", TRUNCATE).await, &new).await })
        .await;
    assert!(sent > BYTES as u64, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn deltas_that_are_of_no_use_cost_time_and_lose_nothing() {
    let scene = Scene::new(2, PLENTY).await;
    let mut bytes = scene.begin().await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    assert!(read(&reader, "doc").await == bytes);
    scene.room.network.spoil_deltas(1);
    for way in [TRUNCATE, WRITE] {
        bytes = compiled_again(&bytes);
        bytes.extend_from_slice(b"more");
        save(&writer, open(&writer, "doc", way).await, &bytes).await;
        assert!(read(&reader, "doc").await == bytes);
        scene.is_at_the_origin(&bytes).await;
    }
    // A small one comes with its recipe.
    let small = noise(9000, 3);
    save(&writer, create(&writer, "small").await, &small).await;
    assert!(read(&reader, "small").await == small);
    let again = compiled_again(&small);
    save(&writer, open(&writer, "small", TRUNCATE).await, &again).await;
    assert!(read(&reader, "small").await == again);
}

#[tokio::test(start_paused = true)]
async fn a_delta_of_which_nothing_comes_is_sent_once_and_then_the_contents() {
    let scene = Scene::new(1, PLENTY).await;
    let new = compiled_again(&scene.begin().await);
    let client = scene.client(0);
    scene.room.network.lose_deltas();
    let sent = scene
        .costs(&new, async { save(&client, open(&client, "doc", TRUNCATE).await, &new).await })
        .await;
    let once = BYTES as u64 + 2 * FEW_BYTES;
    assert!((BYTES as u64..once).contains(&sent), "{sent} bytes");
}

/// Two files have the same, and a third one is about to be like both.
async fn with_a_twin() -> (Scene, Vec<u8>) {
    let scene = Scene::new(1, PLENTY).await;
    let old = scene.begin().await;
    save(&scene.client(0), create(&scene.client(0), "twin").await, &old).await;
    (scene, compiled_again(&old))
}

#[tokio::test(start_paused = true)]
async fn of_two_that_are_alike_one_that_cannot_be_looked_at_is_passed_over() {
    let (scene, new) = with_a_twin().await;
    let client = scene.client(0);
    let call = |client: &SimClient| client.lookup(FileId::ROOT, &name("twin"));
    let twin = complete(&client, call).await.unwrap().unwrap().file;
    let tables = scene.machines[0].disk.tables("client");
    let mut write = tables.write().unwrap();
    write.put("client-presence", &twin.0.to_be_bytes(), b"no row").unwrap();
    write.commit(Durability::Later).unwrap();
    let before = scene.sent(0);
    save(&client, create(&client, "another").await, &new).await;
    let sent = scene.sent(0) - before;
    assert!(sent < FEW_BYTES, "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn where_one_came_to_nothing_the_next_that_is_alike_is_not_tried() {
    let (scene, new) = with_a_twin().await;
    let client = scene.client(0);
    scene.room.network.spoil_deltas(1);
    let before = scene.sent(0);
    save(&client, create(&client, "another").await, &new).await;
    assert_eq!(scene.room.network.spoiled(), 1);
    let sent = scene.sent(0) - before;
    let once = BYTES as u64 + 2 * FEW_BYTES;
    assert!((BYTES as u64..once).contains(&sent), "{sent} bytes");
}

#[tokio::test(start_paused = true)]
async fn what_arrived_before_the_update_is_not_sent_with_it_again() {
    let scene = Scene::new(1, PLENTY).await;
    let handle = create(&scene.client(0), "doc").await;
    let bytes = noise(BYTES, 5);
    let sent = scene.costs(&bytes, async { save(&scene.client(0), handle, &bytes).await }).await;
    // The recipe once, and twice the names of what is missing in it.
    assert!(sent < BYTES as u64 + 1_500, "{sent} bytes");
}

/// An archive of these, as `ar` makes it: each behind a head of its own.
fn archive(objects: &[Vec<u8>]) -> Vec<u8> {
    let member = |(number, bytes): (usize, &Vec<u8>)| {
        [format!("{number:<16}{:<43}`\n", bytes.len()).into_bytes(), bytes.clone()].concat()
    };
    [b"!<arch>\n".to_vec(), objects.iter().enumerate().flat_map(member).collect()].concat()
}

#[tokio::test(start_paused = true)]
async fn an_archive_of_what_is_there_costs_little_in_every_mode() {
    for mode in [Mode::Connected, Mode::Partial] {
        let scene = Scene::new(1, PLENTY).await;
        let client = scene.client(0);
        let mut objects: Vec<Vec<u8>> =
            (0..20).map(|number| noise(5_000 + 2_000 * number, number as u64)).collect();
        for (number, bytes) in objects.iter().enumerate() {
            save(&client, create(&client, &format!("{number}.o")).await, bytes).await;
        }
        save(&client, create(&client, "built.a").await, &archive(&objects)).await;
        objects.reverse();
        let packed = archive(&objects);
        client.set_mode(WantedMode::Fixed(mode));
        let sent = scene
            .costs(&packed, async {
                // As binutils do: begun, then into another file, and then a copy of that.
                save(&client, create(&client, "doc").await, b"!<arch>\n").await;
                sim::check::settled(&scene.room, &scene.machines, true).await.unwrap();
                let temporary = create(&client, "st4711").await;
                save(&client, temporary, &packed).await;
                save(&client, open(&client, "doc", TRUNCATE).await, &packed).await;
                unlink(&client, "st4711").await;
                sim::check::settled(&scene.room, &scene.machines, true).await.unwrap();
            })
            .await;
        assert!(sent < FEW_BYTES, "{mode:?}: {sent} bytes of {}", packed.len());
    }
}
