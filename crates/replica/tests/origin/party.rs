//! An origin, and devices that speak to it.

use chunks::{Described, Secret, describe_bytes};
use model::{
    AttributeChange, Change, ChunkName, Contents, FileId, Kind, Name, Node, Piece, ReplicaId, Seq,
    Stamp, Time, Update, View,
};
use protocol::{
    Access, Attach, Attached, Caller, Cutter, Downstream, Fetched, Listing, NodeState, Notice,
    Payload, Range, Refusal, Request, Response, Service, Session, States, Submit, Submitted, Tail,
    TurnedAway, Verdict,
};
use replica::{Limits, Origin, OriginSession};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::memory::{MemoryBlobs, MemoryTables};
use store::{Blobs, Tables};
use world::World;

/// The lease that the times in these tests are reckoned from.
pub const LEASE: Duration = Duration::from_secs(60);

pub const VOLUME: &str = "v";
/// 2026-11-21 12:30:05 UTC.
pub const EPOCH_SECS: i64 = 1_795_264_205;

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub struct Party {
    pub origin: Origin,
    pub tables: Arc<dyn Tables>,
    pub blobs: Arc<dyn Blobs>,
    /// Behind `tables` and `blobs`, unless they are on a faulty disk.
    memory: Option<(MemoryTables, MemoryBlobs)>,
    pub world: World,
    pub limits: Limits,
}

impl Party {
    pub fn new() -> Party {
        Party::with(Limits { lease: LEASE, ..Limits::simulated() })
    }

    pub fn with(limits: Limits) -> Party {
        let world = World::simulated(EPOCH_SECS, 1);
        let party = Party::open(MemoryTables::new(), MemoryBlobs::new(), world, limits);
        party.origin.create_volume(VOLUME, 1000, 1000, Cutter::Gear).unwrap();
        party
    }

    fn open(tables: MemoryTables, blobs: MemoryBlobs, world: World, limits: Limits) -> Party {
        let (t, b) = (Arc::new(tables.clone()), Arc::new(blobs.clone()));
        let party = Party::on(t, b, world, limits);
        Party { memory: Some((tables, blobs)), ..party }
    }

    /// An origin on any stores.
    pub fn on(
        tables: Arc<dyn Tables>,
        blobs: Arc<dyn Blobs>,
        world: World,
        limits: Limits,
    ) -> Party {
        let origin =
            Origin::open(tables.clone(), blobs.clone(), world.clone(), limits.clone()).unwrap();
        Party { origin, tables, blobs, memory: None, world, limits }
    }

    /// The origin's process dies, and another opens what it left.
    pub fn killed(&self) -> Party {
        let (tables, blobs) = self.memory.as_ref().unwrap();
        let (tables, blobs) = (tables.after_kill(), blobs.after_kill());
        Party::open(tables, blobs, self.world.clone(), self.limits.clone())
    }

    /// The power fails, and what was not synced is lost.
    pub fn without_power(&self) -> Party {
        let (tables, blobs) = self.memory.as_ref().unwrap();
        let (tables, blobs) = (tables.after_power_cut(), blobs.after_power_cut(&mut || false));
        Party::open(tables, blobs, self.world.clone(), self.limits.clone())
    }

    pub fn caller(&self, device: &str, invitation: Option<String>) -> Caller {
        Caller {
            device: format!("key of {device}").into_bytes(),
            name: device.into(),
            volume: VOLUME.into(),
            invitation,
        }
    }

    pub async fn admit(
        &self,
        device: &str,
        invitation: Option<String>,
    ) -> Result<(OriginSession, Ears), TurnedAway> {
        let ears = Ears::default();
        let caller = self.caller(device, invitation);
        Ok((self.origin.admit(caller, ears.clone()).await?, ears))
    }

    /// A device that was never here: invited, admitted, attached.
    pub async fn join(&self, device: &str) -> Device {
        self.join_as(device, Access::ReadWrite).await
    }

    pub async fn join_as(&self, device: &str, access: Access) -> Device {
        let token = self.origin.invite(VOLUME, access, None).unwrap();
        let (session, ears) = self.admit(device, Some(token)).await.unwrap();
        Device::attached(device, session, ears, None, 0, Seq::START).await
    }

    /// A device that comes back with what it remembers.
    pub async fn rejoin(&self, device: &Device) -> Device {
        let back = self.rejoin_deaf(device).await;
        back.ears.take_in();
        back
    }

    /// The same, which takes in no notice yet.
    pub async fn rejoin_deaf(&self, device: &Device) -> Device {
        let (session, ears) = self.admit(&device.name, None).await.unwrap();
        ears.hang();
        let (replica, made) = (Some(device.replica), device.made);
        let mut back =
            Device::attached(&device.name, session, ears, replica, made, device.seen()).await;
        back.files = device.files;
        back
    }

    /// The whole tree, a line for each name: `docs/`, `docs/a.txt: what it says`.
    pub fn tree(&self) -> String {
        let read = self.tables.read().unwrap();
        let view = volume::whole::Whole::now(&*read, self.origin.volumes().unwrap()[0].id);
        let mut lines = Vec::new();
        self.lines(&view, FileId::ROOT, "", &mut lines);
        lines.join("\n")
    }

    fn lines(
        &self,
        view: &volume::whole::Whole<'_>,
        directory: FileId,
        path: &str,
        lines: &mut Vec<String>,
    ) {
        let page = view.entries(directory, None, 1000).unwrap();
        for (name, file) in page.entries {
            let node = view.node(file).unwrap().unwrap();
            let path = format!("{path}{name}");
            match node.kind {
                Kind::Directory => {
                    lines.push(format!("{path}/"));
                    self.lines(view, file, &format!("{path}/"), lines);
                }
                Kind::File => lines.push(format!("{path}: {}", self.text(&node))),
                kind => lines.push(format!("{path} ({kind:?})")),
            }
        }
    }

    /// What a file holds.
    pub fn text(&self, node: &Node) -> String {
        let Some(root) = node.contents.root else { return String::new() };
        let length = node.contents.size;
        let (id, mut bytes) = (self.origin.volumes().unwrap()[0].id, Vec::new());
        let mut open = vec![(Piece::Chunk { name: root.name, length }, root.depth)];
        while let Some((piece, depth)) = open.pop() {
            let Piece::Chunk { name, .. } = piece else {
                bytes.resize(bytes.len() + piece.length() as usize, 0);
                continue;
            };
            let blob = [&id.0.to_be_bytes()[..], &name.0].concat();
            let chunk = self.blobs.get(&blob).unwrap().unwrap();
            if depth == 0 {
                bytes.extend(chunk);
            } else {
                let pieces = chunks::decode(&chunk).unwrap().pieces;
                open.extend(pieces.into_iter().rev().map(|piece| (piece, depth - 1)));
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    /// `Clash name [aside]` for every conflict.
    pub fn conflicts(&self) -> Vec<String> {
        let conflicts = self.origin.conflicts(VOLUME, 100).unwrap();
        let line = |c: &replica::Conflict| match &c.aside {
            Some((_, _, aside)) => format!("{:?} {} -> {aside} by {}", c.clash, c.name, c.device),
            None => format!("{:?} {} by {}", c.clash, c.name, c.device),
        };
        conflicts.iter().map(line).collect()
    }
}

/// What a device does with notices.
const TAKES_IN: u8 = 0;
const HANGS: u8 = 1;

#[derive(Clone, Default)]
pub struct Ears {
    /// What was said of nodes and names.
    pub heard: Arc<Mutex<Vec<Notice>>>,
    /// What was said of having the volume for oneself.
    pub alone: Arc<Mutex<Vec<bool>>>,
    mode: Arc<AtomicU8>,
    /// The link of the session has ended.
    gone: Arc<AtomicBool>,
    goes_on: Arc<tokio::sync::Notify>,
}

impl Ears {
    /// From now on notices arrive and are never taken in.
    pub fn hang(&self) {
        self.mode.store(HANGS, Ordering::SeqCst);
    }

    /// The link has ended; what was asked over it may still be answered.
    pub fn go(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// All that has arrived is taken in, and what comes.
    pub fn take_in(&self) {
        self.mode.store(TAKES_IN, Ordering::SeqCst);
        // Notices come one at a time.
        self.goes_on.notify_one();
    }
}

impl Downstream for Ears {
    async fn tell(&self, notice: Notice) -> bool {
        self.alone.lock().unwrap().extend(notice.alone);
        if notice.alone.is_none() || !notice.states.is_empty() {
            self.heard.lock().unwrap().push(notice);
        }
        while self.mode.load(Ordering::SeqCst) != TAKES_IN {
            self.goes_on.notified().await;
        }
        true
    }

    fn is_there(&self) -> bool {
        !self.gone.load(Ordering::SeqCst)
    }
}

/// A device with a session. It numbers its updates and files as a client does.
pub struct Device {
    pub name: String,
    pub session: OriginSession,
    pub ears: Ears,
    pub attached: Attached,
    pub replica: ReplicaId,
    pub made: u64,
    pub files: u64,
    pub settled: u64,
}

impl Device {
    pub async fn attached(
        name: &str,
        session: OriginSession,
        ears: Ears,
        replica: Option<ReplicaId>,
        made: u64,
        seen: Seq,
    ) -> Device {
        let attach = Attach { replica, made, seen, locks: None, life: None, heard: None };
        Device::attached_by(name, session, ears, attach).await
    }

    pub async fn attached_by(
        name: &str,
        session: OriginSession,
        ears: Ears,
        attach: Attach,
    ) -> Device {
        let (replica, made) = (attach.replica, attach.made);
        let response = session.answer(Request::Attach(attach)).await;
        let Response::Attached(attached) = response else { panic!("{response:?}") };
        let replica_now = attached.replica;
        let made = if replica == Some(replica_now) { made } else { 0 };
        Device {
            name: name.into(),
            session,
            ears,
            attached,
            replica: replica_now,
            made,
            files: 0,
            settled: 0,
        }
    }

    /// How far this device has seen what others did.
    pub fn seen(&self) -> Seq {
        let heard = self.ears.heard.lock().unwrap().iter().map(|notice| notice.upto).max();
        let tail = match &self.attached.tail {
            Tail::Changes(notice) => notice.upto,
            Tail::TooFar(upto) => *upto,
        };
        heard.unwrap_or(tail).max(tail)
    }

    /// Everything that was heard, as short words: `f:ID` and `NAME`, `-NAME` if it is gone.
    pub fn heard(&self) -> Vec<String> {
        let mut words = Vec::new();
        for notice in self.ears.heard.lock().unwrap().iter() {
            for entry in &notice.states.entries {
                let gone = if entry.file.is_none() { "-" } else { "" };
                words.push(format!("{gone}{}", entry.name));
            }
        }
        words
    }

    pub fn secret(&self) -> Secret {
        Secret::new(self.attached.secret)
    }

    /// A new file in the root with these contents, and the stamp of them.
    pub async fn stored(&mut self, text: &str, bytes: &[u8]) -> (FileId, Stamp) {
        let (file, make) = self.making(FileId::ROOT, text, Kind::File);
        self.replay(make).await;
        let described = self.describe(bytes);
        for (_, chunk) in all_chunks(&described, bytes) {
            self.put(&[&chunk]).await;
        }
        let store = store_of(file, self.stamp(), described.tree.contents);
        assert!(matches!(self.replay(store).await, Verdict::Taken(_)));
        (file, self.stamp())
    }

    pub fn describe(&self, bytes: &[u8]) -> Described {
        describe_bytes(&self.secret(), self.attached.cutter, bytes)
    }

    pub fn fresh_file(&mut self) -> FileId {
        self.files += 1;
        FileId::new(self.replica, self.files).unwrap()
    }

    pub fn update(&mut self, change: Change) -> Update {
        self.made += 1;
        let at = Time { secs: EPOCH_SECS, nanos: 0 };
        Update { stamp: Stamp::new(self.replica, self.made), uid: 1000, at, change }
    }

    pub async fn ask(&self, request: Request) -> Response {
        self.session.answer(request).await
    }

    pub async fn submit_all(
        &self,
        strict: bool,
        updates: Vec<Update>,
        payload: Option<Payload>,
    ) -> Result<Submitted, Refusal> {
        let submit = Submit {
            settled: self.settled,
            strict,
            updates,
            payload,
            deltas: None,
            seek: None,
            ahead: None,
            under: None,
        };
        match self.ask(Request::Submit(submit)).await {
            Response::Submitted(submitted) => Ok(submitted),
            Response::Refused(refusal) => Err(refusal),
            response => panic!("{response:?}"),
        }
    }

    /// One update, replayed: nobody waits for it.
    pub async fn replay(&mut self, change: Change) -> Verdict {
        let update = self.update(change);
        let submitted = self.submit_all(false, vec![update], None).await.unwrap();
        submitted.verdicts.into_iter().next().unwrap()
    }

    /// One update that somebody waits for.
    pub async fn strict(&mut self, change: Change) -> Verdict {
        let update = self.update(change);
        let submitted = self.submit_all(true, vec![update], None).await.unwrap();
        submitted.verdicts.into_iter().next().unwrap()
    }

    pub async fn put(&self, chunks: &[&[u8]]) {
        let put = Request::Put { payload: chunks::pack(chunks), deltas: None };
        let stored = self.ask(put).await;
        assert!(matches!(stored, Response::Stored { useless: None, .. }), "{stored:?}");
    }

    /// A change that stores a text, with its chunks put before.
    pub async fn storing(&self, file: FileId, expects: Stamp, text: &str) -> Change {
        let described = self.describe(text.as_bytes());
        let chunks = all_chunks(&described, text.as_bytes());
        if !chunks.is_empty() {
            let chunks: Vec<&[u8]> = chunks.iter().map(|(_, bytes)| &bytes[..]).collect();
            self.put(&chunks).await;
        }
        store_of(file, expects, described.tree.contents)
    }

    pub fn making(&mut self, parent: FileId, text: &str, kind: Kind) -> (FileId, Change) {
        let file = self.fresh_file();
        (file, make_of(parent, text, file, kind))
    }

    /// Makes a file with contents, and gives back its id and the stamp of the contents.
    pub async fn write_new(&mut self, parent: FileId, text: &str, says: &str) -> (FileId, Stamp) {
        let (file, make) = self.making(parent, text, Kind::File);
        let make = self.replay(make).await;
        assert!(matches!(make, Verdict::Taken(_)), "{make:?}");
        let stamp = Stamp::new(self.replica, self.made);
        let store = self.storing(file, stamp, says).await;
        let store = self.replay(store).await;
        assert!(matches!(store, Verdict::Taken(_)), "{store:?}");
        (file, Stamp::new(self.replica, self.made))
    }

    pub async fn make_directory(&mut self, parent: FileId, text: &str) -> FileId {
        let (file, make) = self.making(parent, text, Kind::Directory);
        assert!(matches!(self.replay(make).await, Verdict::Taken(_)));
        file
    }

    pub fn stamp(&self) -> Stamp {
        Stamp::new(self.replica, self.made)
    }

    pub async fn list(&self, directory: FileId) -> Listing {
        self.list_as(directory, None, 1000, false).await
    }

    pub async fn list_as(
        &self,
        directory: FileId,
        after: Option<Name>,
        entries_max: u32,
        deep: bool,
    ) -> Listing {
        let list = Request::List { directory, after, entries_max, deep, also: None };
        match self.ask(list).await {
            Response::Listing(listing) => listing,
            response => panic!("{response:?}"),
        }
    }

    pub async fn inspect(&self, nodes: Vec<FileId>, entries: Vec<(FileId, Name)>) -> States {
        match self.ask(Request::Inspect { nodes, entries }).await {
            Response::Inspected(states) => states,
            response => panic!("{response:?}"),
        }
    }

    pub async fn node(&self, file: FileId) -> Option<Node> {
        let states = self.inspect(vec![file], vec![]).await;
        let NodeState { node, .. } = states.nodes.into_iter().next().unwrap();
        node
    }

    pub async fn recipe(&self, file: FileId, range: Range, eager_bytes: u64) -> Fetched {
        let recipe = Request::Recipe { file, version: None, range, eager_bytes, base: None };
        match self.ask(recipe).await {
            Response::Recipe(fetched) => fetched,
            response => panic!("{response:?}"),
        }
    }

    pub async fn renew(&self, seen: Seq) -> Tail {
        match self.ask(Request::Renew { seen }).await {
            Response::Renewed { tail, .. } => tail,
            response => panic!("{response:?}"),
        }
    }
}

pub fn store_of(file: FileId, expects: Stamp, contents: Contents) -> Change {
    Change::Store { file, expects, contents, mtime: Time { secs: EPOCH_SECS, nanos: 1 } }
}

pub fn make_of(parent: FileId, text: &str, file: FileId, kind: Kind) -> Change {
    Change::Make {
        parent,
        name: name(text),
        file,
        kind,
        mode: if kind == Kind::Directory { 0o755 } else { 0o644 },
        uid: 1000,
        gid: 1000,
        target: None,
        rdev: None,
        born: None,
    }
}

pub fn unlink_of(parent: FileId, text: &str, file: FileId) -> Change {
    Change::Unlink { parent, name: name(text), file, expects: None }
}

pub fn rename_of(from: (FileId, &str), to: (FileId, &str), file: FileId) -> Change {
    rename_over(from, to, file, None)
}

pub fn rename_over(
    from: (FileId, &str),
    to: (FileId, &str),
    file: FileId,
    over: Option<FileId>,
) -> Change {
    Change::Rename {
        from: from.0,
        from_name: name(from.1),
        to: to.0,
        to_name: name(to.1),
        file,
        over,
        exchange: false,
        whiteout: None,
        expects: None,
    }
}

pub fn mode_of(file: FileId, expects: Stamp, mode: u16) -> Change {
    let set = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Change::SetAttributes { file, expects, set }
}

/// The chunks of a description with their bytes: recipe chunks and data.
pub fn all_chunks(described: &Described, bytes: &[u8]) -> Vec<(ChunkName, Vec<u8>)> {
    let mut chunks = described.tree.chunks.clone();
    for placed in &described.pieces {
        if let Piece::Chunk { name, length } = placed.piece {
            let from = placed.offset as usize;
            chunks.push((name, bytes[from..from + length as usize].to_vec()));
        }
    }
    chunks
}

/// Bytes that follow from the seed and do not repeat.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    World::simulated(0, seed).entropy.fill(&mut bytes);
    bytes
}
