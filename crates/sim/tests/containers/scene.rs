//! Clients over a slow line, and what it costs them to store and to read.

use client::{Caller, Handle, Making, OpenFlags, WantedMode, complete};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Limits;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;

const CALLER: Caller = Caller { uid: 1000, gid: 1000 };

pub struct Scene {
    pub room: Room,
    pub origin: OriginMachine,
    pub machines: Vec<ClientMachine>,
}

impl Scene {
    pub async fn new(clients: usize) -> Scene {
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
        Scene { room, origin, machines }
    }

    pub fn client(&self, number: usize) -> SimClient {
        self.machines[number].client().unwrap().clone()
    }

    /// Bytes sent, and received, so far.
    pub fn traffic(&self, number: usize) -> (u64, u64) {
        let classes = self.client(number).status().traffic;
        let sent = classes.iter().map(|class| class.sent).sum();
        (sent, classes.iter().map(|class| class.received).sum())
    }

    /// Bytes that are sent to store a file. Another client finds it as it was written.
    pub async fn costs(&self, number: usize, name: &str, bytes: &[u8]) -> u64 {
        let before = self.traffic(number).0;
        store(&self.client(number), name, bytes).await;
        let sent = self.traffic(number).0 - before;
        if let Some(other) = (0..self.machines.len()).find(|other| *other != number) {
            assert!(read(&self.client(other), name).await == bytes, "{name} is not as it was");
        }
        sent
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub async fn settled<T>(
    client: &SimClient,
    call: impl Fn(&SimClient) -> client::Step<client::Done<T>>,
) -> T {
    let done = complete(client, call).await.unwrap();
    if let Some(number) = done.wait {
        client.settled(number).await.unwrap();
    }
    done.value
}

pub async fn create(client: &SimClient, text: &str) -> Handle {
    let making =
        Making { kind: Kind::File, mode: 0o644, uid: 1000, gid: 1000, target: None, rdev: None };
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let call =
        |client: &SimClient| client.create(CALLER, FileId::ROOT, &name(text), &making, flags);
    settled(client, call).await.1.handle
}

pub async fn file_of(client: &SimClient, text: &str) -> Option<FileId> {
    let found = complete(client, |client| client.lookup(FileId::ROOT, &name(text))).await.unwrap();
    found.map(|found| found.file)
}

pub async fn open(client: &SimClient, text: &str, flags: OpenFlags) -> Handle {
    let file = file_of(client, text).await.unwrap();
    settled(client, |client| client.open_file(CALLER, file, flags)).await.handle
}

pub async fn store(client: &SimClient, text: &str, bytes: &[u8]) {
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

pub async fn read(client: &SimClient, text: &str) -> Vec<u8> {
    let handle = open(client, text, OpenFlags { read: true, ..OpenFlags::default() }).await;
    let bytes = complete(client, |client| client.read(handle, 0, 64 << 20)).await.unwrap();
    client.release(handle);
    bytes
}

pub async fn told(client: &SimClient, text: &str) -> String {
    let file = file_of(client, text).await.unwrap();
    complete(client, |client| client.explain(file, text)).await.unwrap().why.concat()
}

pub async fn store_all(client: &SimClient, files: &[Vec<u8>]) {
    for (number, bytes) in files.iter().enumerate() {
        store(client, &format!("file-{number}"), bytes).await;
    }
}
