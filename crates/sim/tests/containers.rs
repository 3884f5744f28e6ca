//! What is inside compressed containers travels only if it is nowhere at the other side, whatever
//! it is called there and in whatever it is packed.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot go on is a failed test")]

use client::{Caller, Handle, Making, OpenFlags, WantedMode, complete};
use flate2::{Compress, Compression, Crc, FlushCompress};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;

const CALLER: Caller = Caller { uid: 1000, gid: 1000 };

/// Lines that no other number has, and that deflate to about a third.
fn text(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = Vec::with_capacity(length + 40);
    while text.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        text.extend(format!("{} of {}, ", (state >> 40) % 9973, (state >> 33) % 61).bytes());
    }
    text.truncate(length);
    text
}

fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn deflated(plain: &[u8], level: u32) -> Vec<u8> {
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let mut compress = Compress::new(Compression::new(level), false);
    compress.compress_vec(plain, &mut packed, FlushCompress::Finish).unwrap();
    packed
}

fn crc(plain: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(plain);
    crc.sum().to_le_bytes()
}

/// A zip of these files, as zip makes it.
fn zip(files: &[Vec<u8>]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (number, plain) in files.iter().enumerate() {
        let name = format!("some/member-{number}");
        let packed = deflated(plain, 6);
        let mut about = vec![20, 0, 0, 0, 8, 0, 0, 0x60, 0x21, 0x55];
        about.extend(crc(plain));
        about.extend((packed.len() as u32).to_le_bytes());
        about.extend((plain.len() as u32).to_le_bytes());
        about.extend((name.len() as u32).to_le_bytes());
        directory.extend([b"PK\x01\x02\x14\0", &about[..], &[0; 10]].concat());
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        file.extend([b"PK\x03\x04", &about[..], name.as_bytes(), &packed].concat());
    }
    let (start, length) = (file.len() as u32, directory.len() as u32);
    file.extend(directory);
    file.extend([b"PK\x05\x06\0\0\0\0\0\0\0\0", &length.to_le_bytes()[..]].concat());
    file.extend([&start.to_le_bytes()[..], &[0, 0]].concat());
    file
}

fn tar(files: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (number, bytes) in files.iter().enumerate() {
        let mut head = vec![0; 512];
        let name = format!("tree/file-{number}");
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        head[156] = b'0';
        head[257..262].copy_from_slice(b"ustar");
        tar.extend([&head[..], bytes].concat());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let head = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    let length = (plain.len() as u32).to_le_bytes();
    [head, &deflated(plain, 6)[..], &crc(plain), &length].concat()
}

struct Scene {
    room: Room,
    _origin: OriginMachine,
    machines: Vec<ClientMachine>,
}

impl Scene {
    async fn new(clients: usize) -> Scene {
        let room = Room::new(7, false);
        let origin = OriginMachine::start(&room, Limits::simulated()).unwrap();
        let mut machines = Vec::new();
        for number in 0..clients {
            let invitation = origin.invite().unwrap();
            let mode = WantedMode::Fixed(Mode::Connected);
            let line = Conditions { bytes_a_second: Some(40_000), ..Conditions::NEAR };
            let mut machine = ClientMachine::new(&room, number, invitation, line, mode);
            machine.cache_bytes_max = 1 << 30;
            machine.start().await.unwrap();
            machines.push(machine);
        }
        Scene { room, _origin: origin, machines }
    }

    fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    /// Bytes sent, and received, so far.
    fn traffic(&self, number: usize) -> (u64, u64) {
        let classes = self.client(number).status().traffic;
        let sent = classes.iter().map(|class| class.sent).sum();
        (sent, classes.iter().map(|class| class.received).sum())
    }

    /// Bytes that are sent to store a file. Another client finds it as it was written.
    async fn costs(&self, number: usize, name: &str, bytes: &[u8]) -> u64 {
        let before = self.traffic(number).0;
        store(&self.client(number), name, bytes).await;
        let sent = self.traffic(number).0 - before;
        if let Some(other) = (0..self.machines.len()).find(|other| *other != number) {
            assert!(read(&self.client(other), name).await == bytes, "{name} is not as it was");
        }
        sent
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

async fn file_of(client: &SimClient, text: &str) -> Option<FileId> {
    let found = complete(client, |client| client.lookup(FileId::ROOT, &name(text))).await.unwrap();
    found.map(|found| found.file)
}

async fn open(client: &SimClient, text: &str, flags: OpenFlags) -> Handle {
    let file = file_of(client, text).await.unwrap();
    settled(client, |client| client.open_file(CALLER, file, flags)).await.handle
}

async fn store(client: &SimClient, text: &str, bytes: &[u8]) {
    const TRUNCATE: OpenFlags =
        OpenFlags { read: false, write: true, truncate: true, append: false };
    let handle = match file_of(client, text).await {
        Some(_) => open(client, text, TRUNCATE).await,
        None => create(client, text).await,
    };
    complete(client, |client| client.write(handle, 0, bytes)).await.unwrap();
    settled(client, |client| client.flush(CALLER, handle)).await;
    client.release(handle);
}

async fn read(client: &SimClient, text: &str) -> Vec<u8> {
    let handle = open(client, text, OpenFlags { read: true, ..OpenFlags::default() }).await;
    let bytes = complete(client, |client| client.read(handle, 0, 64 << 20)).await.unwrap();
    client.release(handle);
    bytes
}

async fn told(client: &SimClient, text: &str) -> String {
    let file = file_of(client, text).await.unwrap();
    complete(client, |client| client.explain(file, text)).await.unwrap().why.concat()
}

/// As many files, of so many bytes and more.
fn files(count: u64, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| text(number, bytes + 777 * number as usize)).collect()
}

async fn store_all(client: &SimClient, files: &[Vec<u8>]) {
    for (number, bytes) in files.iter().enumerate() {
        store(client, &format!("file-{number}"), bytes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_archive_of_files_that_are_there_costs_what_names_them() {
    let scene = Scene::new(1).await;
    let client = scene.client(0);
    let files = files(30, 4_000);
    store_all(&client, &files).await;
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let sent = scene.costs(0, name, &packed).await;
        assert!(sent < 5_000, "{name}: {sent} bytes of {}", packed.len());
    }
    let told = told(&client, "all.zip").await;
    assert!(told.contains("30 parts of it as contents of their own"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn who_knows_nothing_of_the_files_asks_for_them() {
    let scene = Scene::new(2).await;
    let files = files(30, 6_000);
    store_all(&scene.client(0), &files).await;
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let sent = scene.costs(1, name, &packed).await;
        assert!(sent < 8_000, "{name}: {sent} bytes of {}", packed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn archives_that_are_put_together_of_others_cost_what_names_their_parts() {
    let scene = Scene::new(2).await;
    let files = files(30, 5_000);
    let (some, others) = files.split_at(12);
    store(&scene.client(0), "some.zip", &zip(some)).await;
    store(&scene.client(0), "others.tgz", &gzip(&tar(others))).await;
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        let sent = scene.costs(0, name, &packed).await;
        assert!(sent < 6_000, "{name}: {sent} bytes of {}", packed.len());
    }
    let told = told(&scene.client(0), "all.zip").await;
    assert!(told.contains("in other containers"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_is_unpacked_beside_its_archive_costs_little() {
    let scene = Scene::new(2).await;
    let files = files(6, 60_000);
    store(&scene.client(0), "all.tgz", &gzip(&tar(&files))).await;
    for (number, bytes) in files.iter().enumerate() {
        let sent = scene.costs(0, &format!("file-{number}"), bytes).await;
        assert!(sent < 1_500, "{sent} bytes of {}", bytes.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_archive_with_a_change_in_one_member_costs_little() {
    let scene = Scene::new(2).await;
    // What does not deflate takes no time to.
    let mut files: Vec<Vec<u8>> = (0..12).map(|number| noise(number, 500_000)).collect();
    files[5] = text(5, 900_000);
    let old = zip(&files);
    assert!(old.len() > 5 << 20, "more than can be unpacked at once: {}", old.len());
    let client = scene.client(0);
    store(&client, "all.zip", &old).await;
    files[5].splice(600_000..600_000, *b"a few words more ");
    let new = zip(&files);
    let sent = scene.costs(0, "all.zip", &new).await;
    assert!(sent < 30_000, "{sent} bytes of {}", new.len());
}

#[tokio::test(start_paused = true)]
async fn who_reads_an_archive_of_files_that_are_here_fetches_what_names_them() {
    let scene = Scene::new(2).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let files = files(30, 12_000);
    store_all(&writer, &files).await;
    for (number, bytes) in files.iter().enumerate() {
        assert!(read(&reader, &format!("file-{number}")).await == *bytes);
    }
    for (name, packed) in [("all.zip", zip(&files)), ("all.tgz", gzip(&tar(&files)))] {
        store(&writer, name, &packed).await;
        let before = scene.traffic(1).1;
        assert!(read(&reader, name).await == packed);
        let received = scene.traffic(1).1 - before;
        assert!(received < 12_000, "{name}: {received} bytes of {}", packed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_files_of_an_archive_that_is_here_fetches_their_names() {
    let scene = Scene::new(2).await;
    let (writer, reader) = (scene.client(0), scene.client(1));
    let files = files(4, 150_000);
    let packed = gzip(&tar(&files));
    store(&reader, "all.tgz", &packed).await;
    store_all(&writer, &files).await;
    let before = scene.traffic(1).1;
    for (number, bytes) in files.iter().enumerate() {
        assert!(read(&reader, &format!("file-{number}")).await == *bytes);
    }
    let received = scene.traffic(1).1 - before;
    assert!(received < 15_000, "{received} bytes");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_assembled_there_travels_by_itself() {
    let scene = Scene::new(2).await;
    let files = files(20, 6_000);
    store_all(&scene.client(0), &files).await;
    scene.room.network.lose_deltas();
    let packed = zip(&files);
    let sent = scene.costs(0, "all.zip", &packed).await;
    assert!(sent > packed.len() as u64, "{sent} bytes of {}", packed.len());
}
