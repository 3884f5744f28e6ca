//! An origin and machines that mount its volume, in one process, with a link that can be held
//! or cut.

use client::{Client, Durability, Settings, Stores, WantedMode};
use mount::{MountOptions, Mounted, mount};
use protocol::{
    Access, Caller, Class, Cutter, Downstream, Event, LinkQuality, Mode, Notice, Request, Response,
    Service, Session, Traffic, Unreachable, Upstream,
};
use replica::{Limits, Origin, OriginSession};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};
use store::journal::Position;
use store::memory::{MemoryBlobs, MemoryContainers, MemoryJournal, MemoryTables};
use store::reserve::NoReserve;
use store::{Containers, Journal};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use world::World;

pub const VOLUME: &str = "main";
pub const ANSWER_WITHIN: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Open,
    /// Requests and answers stay on the way.
    Held,
    Cut,
}

pub struct Farm {
    origin: Origin,
    runtime: Runtime,
}

/// A machine with the volume mounted.
pub struct Machine {
    mounted: Option<Mounted>,
    link: watch::Sender<Link>,
    folder: TempDir,
    runtime: tokio::runtime::Handle,
    client: Client<Wire, MemoryContainers>,
    containers: MemoryContainers,
    disk: Arc<Disk>,
}

/// A machine's journal, on a disk that can be held up.
#[derive(Default)]
pub struct Disk {
    journal: MemoryJournal,
    is_held: std::sync::Mutex<bool>,
    goes_on: Condvar,
    waiting: AtomicUsize,
}

/// One machine's way to the origin.
pub struct Wire {
    session: OriginSession,
    link: watch::Receiver<Link>,
    events: Mutex<mpsc::UnboundedReceiver<Event>>,
    told_down: AtomicBool,
}

struct Below(mpsc::UnboundedSender<Event>);

impl Downstream for Below {
    async fn tell(&self, notice: Notice) -> bool {
        let (done, taken) = oneshot::channel();
        // Dropped counts as done, as the trait has it.
        self.0.send(Event::Notice(notice, done)).is_ok() && {
            let _ = taken.await;
            true
        }
    }
}

impl Disk {
    pub fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.goes_on.notify_all();
    }

    /// How many wait until they are safe from a power cut.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Journal for Disk {
    fn append(&self, record: &[u8]) -> store::Result<Position> {
        self.journal.append(record)
    }

    fn next(&self) -> Position {
        self.journal.next()
    }

    fn sync(&self) -> store::Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let held = self.is_held.lock().unwrap();
        drop(self.goes_on.wait_while(held, |held| *held).unwrap());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.journal.sync()
    }

    fn read(&self, from: Position, bytes_max: usize) -> store::Result<Vec<(Position, Vec<u8>)>> {
        self.journal.read(from, bytes_max)
    }

    fn retire(&self, upto: Position) -> store::Result<()> {
        self.journal.retire(upto)
    }
}

impl Upstream for Wire {
    async fn ask(&self, _: Class, request: Request) -> Result<Response, Unreachable> {
        let mut link = self.link.clone();
        let passes = link.wait_for(|link| *link != Link::Held).await;
        match passes.map(|link| *link) {
            Ok(Link::Open) => Ok(self.session.answer(request).await),
            _ => Err(Unreachable::NoLink),
        }
    }

    async fn event(&self) -> Option<Event> {
        let mut events = self.events.lock().await;
        let mut link = self.link.clone();
        let was_cut = async { link.wait_for(|link| *link == Link::Cut).await.map(drop) };
        let event = tokio::select! {
            biased;
            _ = was_cut => None,
            event = events.recv() => event,
        };
        if event.is_some() {
            return event;
        }
        // Told once: a link that was cut stays so.
        if self.told_down.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Some(Event::Down(Unreachable::NoLink))
    }

    fn quality(&self) -> LinkQuality {
        let connected = *self.link.borrow() != Link::Cut;
        // Near enough for a client that chooses by itself to work connected.
        let round_trip = Some(Duration::from_millis(1));
        LinkQuality { connected, round_trip, round_trip_min: round_trip, ..LinkQuality::default() }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// Why these tests cannot run here, if they cannot.
pub fn hindrance() -> Option<&'static str> {
    (!Path::new("/dev/fuse").exists()).then_some("/dev/fuse is missing")
}

impl Farm {
    pub fn new() -> Farm {
        Farm::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Farm {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (tables, blobs) = (MemoryTables::default(), MemoryBlobs::default());
        let entered = runtime.enter();
        let origin =
            Origin::open(Arc::new(tables), Arc::new(blobs), World::real(), limits).unwrap();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        origin.create_volume(VOLUME, uid.as_raw(), gid.as_raw(), Cutter::Gear).unwrap();
        drop(entered);
        Farm { origin, runtime }
    }

    pub fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// A machine with the volume mounted as the test wants it.
    pub fn machine(&self, name: &str, options: MountOptions) -> Machine {
        self.patient_machine(name, options, ANSWER_WITHIN)
    }

    /// A machine that waits so long for the link.
    pub fn patient_machine(
        &self,
        name: &str,
        options: MountOptions,
        answer_within: Duration,
    ) -> Machine {
        let _entered = self.runtime.enter();
        let token = self.origin.invite(VOLUME, Access::ReadWrite, None).unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        sender.send(Event::Up).unwrap();
        let caller = Caller {
            device: name.as_bytes().to_vec(),
            name: name.into(),
            volume: VOLUME.into(),
            invitation: Some(token),
        };
        let session = self.runtime.block_on(self.origin.admit(caller, Below(sender))).unwrap();
        let (link, on_the_wire) = watch::channel(Link::Open);
        let wire = Wire {
            session,
            link: on_the_wire,
            events: Mutex::new(events),
            told_down: AtomicBool::new(false),
        };
        let folder = tempfile::tempdir().unwrap();
        let mountpoint = folder.path().to_path_buf();
        let settings = Settings {
            whole_bytes_max: None,
            early_bytes_min: None,
            mode: WantedMode::Auto,
            durability: Durability::Prompt,
            cache_bytes_max: 1 << 30,
            pending_near_max: client::PENDING_NEAR_MAX,
            plan_chunks_max: client::PLAN_CHUNKS_MAX,
            again_bytes_min: client::AGAIN_BYTES_MIN,
            accepts_set_back: false,
            replay_delay: None,
            passes_from: Some(client::PASSES_FROM),
            budget: None,
            answer_within,
            on_behalf_of: None,
            volume: VOLUME.into(),
            server: "farm".into(),
            mountpoint: mountpoint.clone(),
            state_directory: PathBuf::from("/nowhere"),
            headway: client::Headway::default(),
        };
        let containers = MemoryContainers::default();
        let disk = Arc::new(Disk::default());
        let stores = Stores {
            tables: Arc::new(MemoryTables::default()),
            journal: Arc::clone(&disk) as Arc<dyn Journal>,
            containers: containers.clone(),
            reserve: Arc::new(NoReserve),
        };
        let client = Client::open(stores, wire, World::real(), settings).unwrap();
        let runtime = self.runtime.handle().clone();
        let running = client.clone();
        runtime.spawn(async move { running.run().await });
        runtime.block_on(client.ready(ANSWER_WITHIN)).unwrap();
        let mounted = mount(client.clone(), &mountpoint, options, runtime.clone()).unwrap();
        Machine { mounted: Some(mounted), link, folder, runtime, client, containers, disk }
    }
}

impl Machine {
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    pub fn client(&self) -> &Client<Wire, MemoryContainers> {
        &self.client
    }

    /// Files of which this machine keeps contents, of any version.
    pub fn containers(&self) -> usize {
        self.containers.keys().unwrap().len()
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Whether the client comes to work in that mode within its bound.
    pub fn comes_to(&self, mode: Mode) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < ANSWER_WITHIN {
            if self.client.status().mode == mode {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    pub fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    pub fn take_mounted(&mut self) -> Mounted {
        self.mounted.take().unwrap()
    }

    /// Whether the mount ends in time.
    pub fn ends(&self, mounted: &Mounted) -> bool {
        let wait = async { tokio::time::timeout(Duration::from_secs(10), mounted.wait()).await };
        matches!(self.runtime.block_on(wait), Ok(Ok(())))
    }
}

/// Whether this is root, without whom some tests cannot be run.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("not run: only root can do this");
    }
    is_root
}

/// Whether something is mounted there.
pub fn is_mountpoint(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}
