//! One seed of one family, from beginning to end.

use crate::crowd::{self, Full, Plan};
use crate::exact;
use crate::machine::{End, Room};
use crate::network::Conditions;
use crate::tally::Tally;
use client::WantedMode;
use protocol::Mode;
use std::fmt;

/// What kind of world a seed is played in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// One connected client: every outcome is that of one file system.
    ConnectedSingle,
    /// Several connected clients, one operation after another: the same, with close-to-open.
    ConnectedSeveral,
    /// Several connected clients at once.
    ConnectedCrowd,
    /// Several clients over weak links, in all modes.
    PartialSeveral,
    /// Clients and origin are killed at any write.
    Crashes,
    /// Clients and origin lose their power at any write.
    PowerCuts,
    /// Lines are bad, and are cut.
    NetworkFaults,
    /// The disks of clients and origin are full for a while; some machines are killed then.
    FullDisks,
    /// The clients' indexes are damaged while they run; some are killed then, lose their power, or
    /// have a full disk.
    DamagedIndexes,
    /// Three clients write one volume in all modes, while lines are cut, clients and origin are
    /// killed, users pin, set policies, refresh and pause, and clients' clocks are set.
    Storm,
}

impl Family {
    pub const ALL: [Family; 10] = [
        Family::ConnectedSingle,
        Family::ConnectedSeveral,
        Family::ConnectedCrowd,
        Family::PartialSeveral,
        Family::Crashes,
        Family::PowerCuts,
        Family::NetworkFaults,
        Family::FullDisks,
        Family::DamagedIndexes,
        Family::Storm,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Family::ConnectedSingle => "connected-single",
            Family::ConnectedSeveral => "connected-several",
            Family::ConnectedCrowd => "connected-crowd",
            Family::PartialSeveral => "partial-several",
            Family::Crashes => "crashes",
            Family::PowerCuts => "power-cuts",
            Family::NetworkFaults => "network-faults",
            Family::FullDisks => "full-disks",
            Family::DamagedIndexes => "damaged-indexes",
            Family::Storm => "storm",
        }
    }

    pub fn of_name(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }

    /// Operations in one run, of all clients together, unless it is said otherwise.
    pub fn steps(self) -> usize {
        match self {
            Family::ConnectedSingle => 120,
            Family::ConnectedSeveral => 120,
            Family::ConnectedCrowd | Family::PartialSeveral => 120,
            Family::Crashes | Family::PowerCuts | Family::NetworkFaults => 120,
            Family::FullDisks | Family::DamagedIndexes => 120,
            Family::Storm => 240,
        }
    }

    async fn play(self, room: &Room, seed: u64, steps: usize) -> Result<(), String> {
        use WantedMode::{Auto, Fixed};
        let connected = vec![Fixed(Mode::Connected)];
        let any = vec![Fixed(Mode::Partial), Fixed(Mode::Connected), Auto];
        let plan = Plan {
            clients: 3,
            modes: connected.clone(),
            conditions: vec![Conditions::NEAR, Conditions::FAR],
            cuts: false,
            client_ends: None,
            origin_ends: None,
            full: Full::default(),
            damaged_indexes: false,
            wishes: false,
            clocks: false,
        };
        let kills = |when: bool| when.then_some(End::Killed);
        let plan = match self {
            Family::ConnectedSingle => return exact::run(room, 1, steps).await,
            Family::ConnectedSeveral => return exact::run(room, 3, steps).await,
            Family::ConnectedCrowd => plan,
            Family::PartialSeveral => Plan {
                modes: [Mode::Partial, Mode::Disconnected, Mode::FetchOnly]
                    .map(Fixed)
                    .into_iter()
                    .chain([Auto, Fixed(Mode::Partial)])
                    .collect(),
                cuts: true,
                clocks: seed.is_multiple_of(2),
                ..plan
            },
            Family::Crashes | Family::PowerCuts => {
                let end = if self == Family::Crashes { End::Killed } else { End::PowerCut };
                let modes = if seed.is_multiple_of(3) { connected } else { any };
                // Who fails: a client, both, or the origin alone.
                let (client_ends, origin_ends) = match seed % 4 {
                    0 => (None, Some(end)),
                    1 => (Some(end), None),
                    _ => (Some(end), Some(end)),
                };
                let clocks = seed.is_multiple_of(5);
                Plan { clients: 2, modes, client_ends, origin_ends, clocks, ..plan }
            }
            Family::NetworkFaults => {
                let modes = if seed.is_multiple_of(2) { connected } else { any };
                Plan { modes, cuts: true, ..plan }
            }
            Family::FullDisks => {
                let modes = if seed.is_multiple_of(3) { connected } else { any };
                // Whose disk is full: the origin's, the clients', or both; and who is killed.
                let (clients, origin) = (!seed.is_multiple_of(3), seed % 3 != 1);
                Plan {
                    clients: 2,
                    modes,
                    client_ends: kills(clients && seed % 4 >= 2),
                    origin_ends: kills(origin && seed % 4 >= 2),
                    full: Full { clients, origin },
                    ..plan
                }
            }
            Family::DamagedIndexes => {
                let modes = if seed.is_multiple_of(3) { connected } else { any };
                with_damaged_indexes(Plan { modes, ..plan }, seed)
            }
            Family::Storm => in_a_storm(plan),
        };
        crowd::run(room, plan, steps).await
    }
}

/// All modes that a user can ask for, and everything else that people and machines do, but for what
/// disks do.
fn in_a_storm(plan: Plan) -> Plan {
    let modes = [Mode::Partial, Mode::Connected, Mode::FetchOnly, Mode::Disconnected];
    Plan {
        modes: modes.map(WantedMode::Fixed).into_iter().chain([WantedMode::Auto]).collect(),
        cuts: true,
        client_ends: Some(End::Killed),
        origin_ends: Some(End::Killed),
        wishes: true,
        clocks: true,
        ..plan
    }
}

/// Half of those that end lose their power, and in two seeds of five disks are full.
fn with_damaged_indexes(plan: Plan, seed: u64) -> Plan {
    let end = if seed % 8 >= 4 { End::PowerCut } else { End::Killed };
    let ends = |when: bool| when.then_some(end);
    Plan {
        client_ends: ends(seed % 4 == 1),
        origin_ends: ends(seed % 4 == 2),
        cuts: seed % 4 == 3,
        full: Full { clients: seed % 5 == 1 && !seed.is_multiple_of(3), origin: seed % 5 == 2 },
        damaged_indexes: true,
        ..plan
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub family: Family,
    pub seed: u64,
    pub steps: usize,
    /// Prints the trace as it comes.
    pub print: bool,
}

impl Order {
    pub fn new(family: Family, seed: u64) -> Order {
        Order { family, seed, steps: family.steps(), print: false }
    }
}

/// The command that does the same again.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo run -p sim -- --scenario {} --seed {}", self.family.name(), self.seed)?;
        if self.steps != self.family.steps() {
            write!(f, " --steps {}", self.steps)?;
        }
        Ok(())
    }
}

pub struct Report {
    /// Over everything that happened.
    pub hash: u64,
    pub lines: usize,
    pub tally: Tally,
    pub outcome: Result<(), String>,
}

/// Carries out `work` in a runtime of its own, whose time is simulated.
pub fn paused<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without input and output needs nothing that could be lacking");
    runtime.block_on(work)
}

/// Runs an order in a runtime of its own, whose time is simulated.
pub fn run(order: &Order) -> Report {
    paused(async {
        let room = Room::new(order.seed, order.print);
        let outcome = order.family.play(&room, order.seed, order.steps).await;
        if let Err(why) = &outcome {
            room.trace.note("FAILED", why);
        }
        room.network.close();
        let tally = Tally { runs: 1, ..room.tally.tally() };
        Report { hash: room.trace.hash(), lines: room.trace.lines().len(), tally, outcome }
    })
}
