//! The machines of a simulation: one with an origin, and one for each client. A machine is a disk
//! that can fail, and a process on it that dies with the disk and starts again from what is left.

use crate::failing::{FailingReads, ReadFault};
use crate::network::{Alive, Conditions, LineId, Network, SimUpstream};
use crate::tally::Counting;
use crate::trace::Trace;
use client::{
    Client, Durability, Headway, PASSES_FROM, PENDING_NEAR_MAX, PLAN_CHUNKS_MAX, Settings, Stores,
    WantedMode,
};
use protocol::{Access, Caller, Cutter};
use replica::{Limits, Origin};
use std::sync::Arc;
use std::time::Duration;
use store::faulty::{Disk, FaultyContainers};
use tokio::task::{AbortHandle, JoinHandle};
use world::{Clock, Entropy, World};

pub const VOLUME: &str = "home";
/// 2026-11-21 12:00:00 UTC.
pub const EPOCH_SECS: i64 = 1_795_262_400;
/// What a call may wait for the link.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// A cache that some clients have, too small for what they work with.
const CACHE_BYTES_SMALL: u64 = 20_000;
/// Of pending updates, so many are in memory at some clients.
const NEAR_FEW: usize = 2;
/// Of smaller files all is cut in any case.
const AGAIN_BYTES_FEW: u64 = 1 << 20;
/// Of so many commits of the tables of every other client one comes to the disk that need not.
const FLUSHED_ONE_IN: u64 = 16;
/// A client that finds nothing of its volume yet waits for the first session.
const READY_WITHIN: Duration = Duration::from_secs(120);

pub type SimNetwork = Network<Origin>;
pub type SimClient = Client<SimUpstream<Origin>, FaultyContainers>;

/// What all machines of one simulation share.
#[derive(Clone)]
pub struct Room {
    pub clock: Clock,
    /// Draws what is not any machine's own affair.
    pub chance: Entropy,
    pub trace: Trace,
    pub network: SimNetwork,
    pub tally: Counting,
}

impl Room {
    pub fn new(seed: u64, print: bool) -> Room {
        let World { clock, entropy } = World::simulated(EPOCH_SECS, seed);
        let trace = Trace::new(clock.clone(), print);
        let of_network = World { clock: clock.clone(), entropy: Entropy::seeded(entropy.number()) };
        let network = Network::new(of_network, trace.clone());
        Room { clock, chance: entropy, trace, network, tally: Counting::default() }
    }

    /// A machine's clock, and chance of its own.
    fn world(&self, clock: &Clock) -> World {
        World { clock: clock.clone(), entropy: Entropy::seeded(self.chance.number()) }
    }
}

/// Bounds of an origin that are sometimes so small that they are met.
pub fn drawn_limits(chance: &Entropy) -> Limits {
    let mut limits = Limits::simulated();
    if chance.below(4) == 0 {
        limits.tail_keys_max = 3;
    }
    if chance.below(4) == 0 {
        limits.shown_max = 4;
    }
    tidying(&mut limits, chance);
    limits
}

/// An origin that hardly does anything but tidy its store: chunks that nothing names go as soon as
/// they may, and often nothing but what is promised stays.
fn tidying(limits: &mut Limits, chance: &Entropy) {
    let secs = |bound| Duration::from_secs(chance.below(bound));
    limits.mark_every = Duration::from_millis(200 + chance.below(3_000));
    limits.collect_every = secs(20);
    limits.collect_first = secs(20);
    limits.promise = secs(3) * 20;
    limits.trash_kept = secs(2) * 10;
    limits.trash_percent = chance.below(30);
    limits.trash_bytes_min = 0;
    limits.names_kept = VERSIONS_KEPT;
    limits.versions_kept = VERSIONS_KEPT;
}

/// Shorter than most runs, and than some files stay open or changes unsent.
pub(crate) const VERSIONS_KEPT: Duration = Duration::from_secs(45);

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Killed,
    PowerCut,
}

fn alive(disk: &Disk) -> Alive {
    let disk = disk.clone();
    Arc::new(move || !disk.has_crashed())
}

/// The server.
pub struct OriginMachine {
    room: Room,
    /// Its wall clock is its own.
    pub clock: Clock,
    pub disk: Disk,
    limits: Limits,
    origin: Option<Origin>,
    /// Tidies the store in the background.
    tidying: Option<AbortHandle>,
}

impl OriginMachine {
    /// A new origin with one empty volume, listening.
    pub fn start(room: &Room, limits: Limits) -> Result<OriginMachine, String> {
        let disk = Disk::new(room.chance.number());
        let mut machine = OriginMachine {
            room: room.clone(),
            clock: room.clock.apart(),
            disk,
            limits,
            origin: None,
            tidying: None,
        };
        let origin = machine.open()?;
        origin
            .create_volume(VOLUME, crate::reference::UID, crate::reference::GID, Cutter::Gear)
            .map_err(|error| format!("the volume cannot be made: {error}"))?;
        machine.listen(origin);
        Ok(machine)
    }

    fn open(&self) -> Result<Origin, String> {
        let tables = Arc::new(self.disk.tables("origin"));
        let blobs = Arc::new(self.disk.blobs("chunks"));
        let world = self.room.world(&self.clock);
        let origin = Origin::open(tables, blobs, world, self.limits.clone())
            .map_err(|error| format!("the origin does not open: {error}"))?;
        origin.use_reserve(Arc::new(self.disk.reserve()));
        Ok(origin)
    }

    fn listen(&mut self, origin: Origin) {
        self.room.network.origin_up(origin.clone(), alive(&self.disk));
        self.origin = Some(origin.clone());
        let tidying = tokio::spawn(async move { origin.keep_up().await });
        self.tidying = Some(tidying.abort_handle());
    }

    /// None: it is down.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    pub fn invite(&self) -> Result<String, String> {
        let origin = self.origin.as_ref().ok_or("the origin is down")?;
        origin
            .invite(VOLUME, Access::ReadWrite, None)
            .map_err(|error| format!("no invitation: {error}"))
    }

    /// The process is gone. The clients notice within `notice`.
    pub fn stop(&mut self, how: End, notice: Duration) {
        self.room.trace.note("origin", format_args!("{how:?}"));
        match how {
            End::Killed => self.disk.kill(),
            End::PowerCut => self.disk.cut_power(),
        }
        self.room.network.origin_down(notice);
        self.origin = None;
        if let Some(tidying) = self.tidying.take() {
            tidying.abort();
        }
    }

    /// Comes up from what the disk still has.
    pub fn restart(&mut self) -> Result<(), String> {
        self.room.trace.note("origin", "starts again");
        self.disk = self.disk.restart();
        let origin = self.open()?;
        self.listen(origin);
        Ok(())
    }
}

/// One client's machine. The line, the device, the disk and the clock outlive its process.
pub struct ClientMachine {
    pub name: String,
    room: Room,
    /// Its wall clock is its own.
    pub clock: Clock,
    pub line: LineId,
    pub disk: Disk,
    caller: Caller,
    pub mode: WantedMode,
    pub durability: Durability,
    pub cache_bytes_max: u64,
    /// What some clients keep of their logs in memory is less than one batch.
    pub pending_near_max: usize,
    pub plan_chunks_max: usize,
    /// Files of so many bytes that are opened again are cut around what is written.
    pub again_bytes_min: u64,
    /// Files up to so many bytes are fetched whole before they are written to.
    pub whole_bytes_max: Option<u64>,
    /// What nobody waits for stays so long.
    pub replay_delay: Option<Duration>,
    /// Bytes in a month.
    pub budget: Option<u64>,
    /// What takes the link longer is passed by others. None: nothing is.
    pub passes_from: Option<Duration>,
    pub accepts_set_back: bool,
    /// Files of so many bytes are sent while they are written.
    pub early_bytes_min: Option<u64>,
    /// Its cache is read through so often, and nothing may be wrong in it.
    pub reads_through: Option<Duration>,
    /// A read of its tables that fails.
    pub read_fault: ReadFault,
    /// What all its starts have made.
    pub headway: Headway,
    /// What was not synced by then, and no call acknowledged, may be lost though the log knows of it.
    power_was_cut: bool,
    process: Option<Process>,
}

struct Process {
    client: SimClient,
    running: JoinHandle<()>,
}

impl ClientMachine {
    /// A machine that has not been started, with an invitation.
    pub fn new(
        room: &Room,
        number: usize,
        invitation: String,
        conditions: Conditions,
        mode: WantedMode,
    ) -> ClientMachine {
        let name = format!("client{number}");
        let durability =
            if room.chance.below(4) == 0 { Durability::Sync } else { Durability::Prompt };
        let cache_bytes_max = if room.chance.below(4) == 0 { CACHE_BYTES_SMALL } else { 1 << 30 };
        let caller = Caller {
            device: name.clone().into_bytes(),
            name: name.clone(),
            volume: VOLUME.into(),
            invitation: Some(invitation),
        };
        let disk = Disk::new(room.chance.number());
        if !number.is_multiple_of(2) {
            disk.flush_one_in(FLUSHED_ONE_IN);
        }
        ClientMachine {
            name,
            room: room.clone(),
            clock: room.clock.apart(),
            line: room.network.add_line(conditions),
            disk,
            caller,
            mode,
            durability,
            cache_bytes_max,
            pending_near_max: if number.is_multiple_of(2) { NEAR_FEW } else { PENDING_NEAR_MAX },
            plan_chunks_max: PLAN_CHUNKS_MAX,
            again_bytes_min: AGAIN_BYTES_FEW,
            whole_bytes_max: None,
            replay_delay: None,
            budget: None,
            passes_from: Some(if number.is_multiple_of(3) { PASSES_FROM } else { Duration::ZERO }),
            accepts_set_back: false,
            early_bytes_min: None,
            reads_through: None,
            read_fault: ReadFault::default(),
            headway: Headway::default(),
            power_was_cut: false,
            process: None,
        }
    }

    /// The same with an invitation of the origin's, and with room in its cache for everything.
    pub fn invited(
        room: &Room,
        origin: &OriginMachine,
        number: usize,
        conditions: Conditions,
        mode: WantedMode,
    ) -> ClientMachine {
        let invitation = origin.invite().expect("an origin that runs invites");
        let machine = ClientMachine::new(room, number, invitation, conditions, mode);
        ClientMachine { cache_bytes_max: 1 << 30, ..machine }
    }

    /// Starts the process over what the disk has, and waits until the volume is there.
    pub async fn start(&mut self) -> Result<SimClient, String> {
        let client = self.launch()?;
        client
            .ready(READY_WITHIN)
            .await
            .map_err(|error| format!("{} does not come up: {error}", self.name))?;
        Ok(client)
    }

    /// Starts the process and waits for nothing.
    pub fn launch(&mut self) -> Result<SimClient, String> {
        self.room.trace.note(&self.name, "starts");
        let alive = alive(&self.disk);
        let upstream =
            SimUpstream::connect(&self.room.network, self.line, self.caller.clone(), alive);
        let stores = Stores {
            tables: Arc::new(FailingReads {
                tables: self.disk.tables("client"),
                fault: self.read_fault.clone(),
            }),
            journal: Arc::new(self.disk.journal("log")),
            containers: self.disk.containers("files"),
            reserve: Arc::new(self.disk.reserve()),
        };
        let settings = Settings {
            whole_bytes_max: self.whole_bytes_max,
            early_bytes_min: self.early_bytes_min,
            mode: self.mode,
            durability: self.durability,
            cache_bytes_max: self.cache_bytes_max,
            pending_near_max: self.pending_near_max,
            plan_chunks_max: self.plan_chunks_max,
            again_bytes_min: self.again_bytes_min,
            accepts_set_back: self.accepts_set_back,
            replay_delay: self.replay_delay,
            passes_from: self.passes_from,
            budget: self.budget,
            answer_within: ANSWER_WITHIN,
            on_behalf_of: None,
            volume: VOLUME.into(),
            server: "origin".into(),
            mountpoint: "/mnt".into(),
            state_directory: "/state".into(),
            headway: self.headway.clone(),
        };
        let client = Client::open(stores, upstream, self.room.world(&self.clock), settings)
            .map_err(|error| format!("{} does not open: {error}", self.name))?;
        let running = tokio::spawn({
            let (client, room, name) = (client.clone(), self.room.clone(), self.name.clone());
            let (every, power_was_cut) = (self.reads_through, self.power_was_cut);
            async move {
                tokio::select! {
                    () = client.run() => {}
                    () = is_sound(&client, &room, &name, (every, power_was_cut)) => {}
                }
            }
        });
        self.process = Some(Process { client: client.clone(), running });
        Ok(client)
    }

    /// None: no process runs.
    pub fn client(&self) -> Option<&SimClient> {
        self.process.as_ref().map(|process| &process.client)
    }

    pub fn has_crashed(&self) -> bool {
        self.disk.has_crashed()
    }

    /// The process is gone. The origin notices within `notice`.
    pub fn stop(&mut self, how: End, notice: Duration) {
        self.room.trace.note(&self.name, format_args!("{how:?}"));
        match how {
            End::Killed => self.disk.kill(),
            End::PowerCut => {
                self.power_was_cut = true;
                self.disk.cut_power();
            }
        }
        if let Some(process) = self.process.take() {
            process.running.abort();
        }
        self.room.network.process_died(self.line, notice);
        self.disk = self.disk.restart();
    }

    /// Whether what drives the client has panicked or ended.
    pub fn has_stopped_by_itself(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.running.is_finished())
    }
}

/// Reads through the cache again and again. Of what no disk has harmed nothing is found to be wrong.
async fn is_sound(
    client: &SimClient,
    room: &Room,
    name: &str,
    (every, power_was_cut): (Option<Duration>, bool),
) {
    let Some(every) = every else { return std::future::pending().await };
    loop {
        room.clock.sleep(every).await;
        let mut next = Some((0, 0));
        while let Some(at) = next {
            // What failed is tried again the next time.
            let Ok(read) = client.read_through(at).await else { break };
            // What could not be read is the machine's that has died.
            let wrong = read.wrong.into_iter().filter(|wrong| wrong.bytes > 0);
            for wrong in wrong.filter(|wrong| !(wrong.unsent && power_was_cut)) {
                room.network.fault(format!("{name}: the cache was wrong: {wrong:?}"));
            }
            next = read.next;
        }
    }
}
