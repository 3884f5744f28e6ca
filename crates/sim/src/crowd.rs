//! Several clients at once, while the network and the machines fail.
//! Each client works in a part of the tree of its own, which a reference foretells, and in a part
//! that all share, where only what must hold for everybody is looked at.
//! Holds, and is checked:
//! - every call ends in bounded time;
//! - whatever is read was stored as a whole by somebody;
//! - in its own part a client finds what it did, each operation once, crashes or not: after a
//!   kill all that was acknowledged, after a power cut all up to some point behind the last sync;
//! - what was stored in the shared part and acknowledged is found at the end, under whatever name,
//!   unless somebody who had seen it stored over it or removed it;
//! - whoever is connected or partially connected, and opens a file after a connected writer's close
//!   has returned, sees what was closed, unless something of it is pending here or its policy asks for
//!   less;
//! - what a client saw replaced never comes back there;
//! - what lies beside, and what cannot both be and leaves nothing beside, is in the list of conflicts;
//! - when nothing is in the way any more, all clients and the origin agree.

use crate::check;
use crate::machine::{ClientMachine, End, OriginMachine, Room, VOLUME, drawn_limits};
use crate::network::Conditions;
use crate::operation::{Operation, Outcome, Path};
use crate::perform::Programs;
use crate::tree::Tree;
use crate::workload;
use client::{PLAN_CHUNKS_MAX, WantedMode};
use model::{FileId, Kind, Name};
use protocol::Mode;
use replica::Conflict;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use world::Entropy;

mod actor;
mod board;
mod candidates;
mod damage;
mod own;
mod shared;
mod stance;
mod trouble;
mod wishes;

use actor::Actor;
pub use board::Board;
use trouble::Trouble;
pub(crate) use trouble::set_clock;

/// Longer than a lease, and than anybody needs to notice that a session is gone.
const QUIET: Duration = Duration::from_secs(120);

/// One delta in so many is of no use to whom it reaches.
const DELTA_SPOILED_ONE_IN: u64 = 4;

/// What the world does to the clients.
#[derive(Clone, Debug)]
pub struct Plan {
    pub clients: usize,
    /// One of these for each client, and where it may change it, any of them.
    pub modes: Vec<WantedMode>,
    pub conditions: Vec<Conditions>,
    /// Lines are cut and sessions break.
    pub cuts: bool,
    /// How clients' machines end, if they do.
    pub client_ends: Option<End>,
    pub origin_ends: Option<End>,
    /// Whose disks are full now and then.
    pub full: Full,
    /// Rows of the clients' indexes are replaced by others while they run.
    pub damaged_indexes: bool,
    /// Users pin, set policies, refresh and pause.
    pub wishes: bool,
    /// The wall clocks of clients are set, far ahead and far back.
    pub clocks: bool,
}

/// Whose disks are full now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Full {
    pub clients: bool,
    pub origin: bool,
}

/// What is left on a disk that is about to be full: nothing, a few names, or a few files.
fn room_left(chance: &Entropy) -> u64 {
    let most = [1, 500, 3_000, 30_000][chance.below(4) as usize];
    chance.below(most)
}

pub(crate) fn own_part(side: usize) -> Path {
    Path::new(&format!("own-{side}"))
}

pub(crate) fn shared_part() -> Path {
    Path::new("shared")
}

/// From so many bytes on files are sent while they are written.
pub(crate) fn early_bytes_min(chance: &Entropy) -> Option<u64> {
    (chance.below(2) == 0).then_some(4_000)
}

/// For every second machine a file of more than one chunk is a very large one.
pub(crate) fn plan_chunks_max(side: usize) -> usize {
    if side.is_multiple_of(2) { PLAN_CHUNKS_MAX } else { 1 }
}

/// How often each cache is read through: now and then while all sorts of things are under way.
const READS_THROUGH_EVERY: Duration = Duration::from_secs(3);

pub async fn run(room: &Room, plan: Plan, steps: usize) -> Result<(), String> {
    let mut origin = OriginMachine::start(room, drawn_limits(&room.chance))?;
    room.network.spoil_deltas(DELTA_SPOILED_ONE_IN);
    let board = Arc::new(Board::default());
    let mut actors = Vec::new();
    for side in 0..plan.clients {
        let mode = plan.modes[room.chance.below(plan.modes.len() as u64) as usize];
        let conditions = Conditions::NEAR;
        let mut machine = ClientMachine::new(room, side, origin.invite()?, conditions, mode);
        // What is not all there is written to as it is.
        machine.whole_bytes_max = side.is_multiple_of(2).then_some(0);
        machine.early_bytes_min = early_bytes_min(&room.chance);
        machine.plan_chunks_max = plan_chunks_max(side);
        machine.reads_through = Some(READS_THROUGH_EVERY);
        let chance = Entropy::seeded(room.chance.number());
        actors.push(Actor::new(room, side, machine, plan.clone(), board.clone(), chance));
    }
    prepare(room, &mut actors).await?;
    let clocks = actors.iter().map(|actor| actor.machine.clock.clone()).collect();
    let mut playing = JoinSet::new();
    for actor in actors {
        playing.spawn(actor.play(steps / plan.clients));
    }
    let mut trouble = Trouble::new(room, plan.clone(), clocks);
    let mut machines = Vec::new();
    let mut parts = Vec::new();
    while !playing.is_empty() {
        tokio::select! {
            biased;
            Some(ended) = playing.join_next() => {
                let ended = ended.map_err(|error| format!("a client's program panicked: {error}"))??;
                machines.push(ended.machine);
                parts.push((ended.side, ended.expected));
            }
            failed = trouble.make(&mut origin) => failed?,
        }
    }
    machines.sort_by_key(|machine| machine.line);
    heal(room, &mut origin, &machines)?;
    check::settled(room, &machines, true).await?;
    for machine in &machines {
        machine.client().ok_or("a client is down")?.set_mode(WantedMode::Fixed(Mode::Connected));
    }
    // A session that broke is noticed by then, and what went past it has been told.
    room.clock.sleep(QUIET).await;
    let truth = check::all_agree(room, &origin, &machines).await?;
    check::nothing_broke(room, &machines)?;
    for (side, expected) in parts {
        one_of(side, &expected, &truth.below(&own_part(side)))?;
    }
    let listed = listed(room, &origin)?;
    all_beside_is_listed(&listed, &truth)?;
    let files = listed.iter().flat_map(|conflict| {
        [Some(conflict.file), conflict.aside.as_ref().map(|(file, ..)| *file)]
    });
    board.is_listed(&truth, &files.flatten().collect())?;
    board.nothing_lost(&truth, &damaged(&machines)?)
}

/// What clients have told to be damaged, by whose it is.
fn damaged(machines: &[ClientMachine]) -> Result<BTreeSet<(String, FileId)>, String> {
    let mut damaged = BTreeSet::new();
    for machine in machines {
        let client = machine.client().ok_or("a client is down")?;
        let told = client.status().damage.into_iter();
        damaged.extend(told.map(|damage| (machine.name.clone(), FileId(damage.file))));
    }
    Ok(damaged)
}

fn listed(room: &Room, origin: &OriginMachine) -> Result<Vec<Conflict>, String> {
    let origin = origin.origin().ok_or("the origin is down")?;
    let listed = origin.conflicts(VOLUME, usize::MAX).map_err(|error| error.to_string())?;
    room.tally.count(|tally| tally.conflicts += listed.len() as u64);
    Ok(listed)
}

/// What lies beside under a name that no program gave it is in the list of conflicts.
fn all_beside_is_listed(listed: &[Conflict], truth: &Tree) -> Result<(), String> {
    let aside: BTreeSet<&Name> =
        listed.iter().filter_map(|listed| Some(&listed.aside.as_ref()?.2)).collect();
    let shared = truth.below(&shared_part());
    let names = shared.0.keys().flat_map(|path| path.0.iter());
    let unlisted = names.filter(|name| !workload::is_given(name) && !aside.contains(name));
    match unlisted.into_iter().next() {
        Some(name) => Err(format!("{name:?} lies beside, and no conflict tells of it")),
        None => Ok(()),
    }
}

/// The directories in which everybody will work, before anything goes wrong.
async fn prepare(room: &Room, actors: &mut [Actor]) -> Result<(), String> {
    let sides = actors.len();
    for actor in actors.iter_mut() {
        let client = actor.machine.start().await?;
        client.set_mode(WantedMode::Fixed(Mode::Connected));
    }
    let Some(first) = actors.first().and_then(|actor| actor.machine.client()) else {
        return Ok(());
    };
    let mut programs = Programs::default();
    for path in (0..sides).map(own_part).chain([shared_part()]) {
        let make = Operation::Make { path, kind: Kind::Directory, mode: 0o755, target: None };
        let outcome = programs.perform(first, &make).await;
        if !matches!(outcome, Outcome::Shown(_)) {
            return Err(format!("{make}: {outcome}"));
        }
    }
    // Long enough for everybody to have heard of it.
    room.clock.sleep(Duration::from_secs(10)).await;
    for actor in actors.iter() {
        let Some(client) = actor.machine.client() else { continue };
        let mut programs = Programs::default();
        let stat = Operation::Stat { path: shared_part() };
        let outcome = programs.perform(client, &stat).await;
        if !matches!(outcome, Outcome::Shown(_)) {
            return Err(format!(
                "{} does not see {}: {outcome}",
                actor.machine.name,
                shared_part()
            ));
        }
    }
    Ok(())
}

/// Nothing is in the way any more.
fn heal(room: &Room, origin: &mut OriginMachine, machines: &[ClientMachine]) -> Result<(), String> {
    room.trace.note("network", "all is well again");
    if origin.origin().is_none() || origin.disk.has_crashed() {
        if origin.origin().is_some() {
            origin.stop(End::Killed, Duration::ZERO);
        }
        origin.restart()?;
    } else {
        origin.disk.crash_after(u64::MAX);
        origin.disk.make_room();
    }
    for machine in machines {
        room.network.set_conditions(machine.line, Conditions::NEAR);
        if !room.network.is_up(machine.line) {
            room.network.restore(machine.line);
        }
        if let Some(client) = machine.client() {
            client.set_mode(WantedMode::Fixed(Mode::Partial));
        }
    }
    Ok(())
}

/// What is there is one of the trees that there may be.
fn one_of(side: usize, expected: &[Tree], found: &Tree) -> Result<(), String> {
    let mut least: Option<String> = None;
    for tree in expected {
        match check::same("the reference", tree, "the origin", found) {
            Ok(()) => return Ok(()),
            Err(why) if least.as_ref().is_none_or(|least| why.len() < least.len()) => {
                least = Some(why);
            }
            Err(_) => {}
        }
    }
    let nearest = least.unwrap_or_default();
    Err(format!(
        "{} is none of the {} trees that it may be; the nearest differs:\n{nearest}",
        own_part(side),
        expected.len()
    ))
}
