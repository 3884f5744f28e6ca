//! One client: its machine, its programs, and what becomes of both when the machine crashes.

use super::board::Board;
use super::candidates::Candidates;
use super::{Plan, damage, own_part, room_left, shared_part};
use crate::check::{self, CALL_WITHIN};
use crate::machine::{ClientMachine, End, Room, SimClient};
use crate::operation::{Fault, Operation, Path};
use crate::past::Past;
use crate::perform::Programs;
use crate::tree::{self, Tree};
use crate::workload::Workload;
use client::{Durability, WantedMode};
use protocol::Mode;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use world::{Entropy, Moment};

/// How often a machine is looked at while a call is under way.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// What a mended client may need to bring home what it had.
const MENDED_WITHIN: Duration = Duration::from_secs(900);
/// The origin notices that a client is gone within this.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// A client makes a checkpoint within this.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(10);
const PAUSE_MILLIS_MAX: u64 = 800;
const LONG_PAUSE_SECS: u64 = 75;

pub(super) struct Actor {
    pub room: Room,
    pub side: usize,
    pub machine: ClientMachine,
    pub plan: Plan,
    pub board: Arc<Board>,
    pub chance: Entropy,
    pub own: Programs,
    pub shared: Programs,
    pub workload: Workload,
    pub candidates: Candidates,
    /// Of what is open in its own part.
    pub past: Past,
    /// When it had got over a power cut: what it has asked for since is kept by the next checkpoint.
    mended_at: Option<Moment>,
}

/// A client that has played its part.
pub(super) struct Ended {
    pub side: usize,
    pub machine: ClientMachine,
    /// What its own part may be.
    pub expected: Vec<Tree>,
}

/// A call that the machine did not live to finish.
pub(super) struct Crashed;

impl Actor {
    pub fn new(
        room: &Room,
        side: usize,
        machine: ClientMachine,
        plan: Plan,
        board: Arc<Board>,
        chance: Entropy,
    ) -> Actor {
        let may_be_refused = plan.full.origin;
        Actor {
            room: room.clone(),
            side,
            machine,
            plan,
            board,
            workload: Workload::new(Entropy::seeded(chance.number()), side + 1),
            chance,
            own: Programs::at(own_part(side)),
            shared: Programs::at(shared_part()),
            candidates: Candidates::new(may_be_refused),
            past: Past::default(),
            mended_at: None,
        }
    }

    pub async fn play(mut self, steps: usize) -> Result<Ended, String> {
        for _ in 0..steps {
            self.pause().await;
            self.room.tally.count(|tally| tally.operations += 1);
            self.invite_trouble();
            if self.machine.has_crashed() {
                self.recover(None).await?;
            }
            if self.plan.wishes && self.chance.below(6) == 0 {
                self.wish().await?;
            }
            match self.chance.below(10) {
                0..6 => {
                    let operation = self.workload.draw(&self.own.open_slots());
                    self.own_step(operation).await?;
                }
                6..9 => self.shared_step().await?,
                _ => self.visit().await?,
            }
        }
        self.machine.disk.crash_after(u64::MAX);
        self.machine.disk.make_room();
        if self.machine.has_crashed() {
            self.recover(None).await?;
        }
        for slot in self.own.open_slots() {
            self.own_step(Operation::Close { slot }).await?;
        }
        if self.plan.wishes {
            self.wishes_no_more()?;
        }
        self.count_cancelled();
        let expected = self.candidates.trees();
        Ok(Ended { side: self.side, machine: self.machine, expected })
    }

    pub fn name(&self) -> String {
        self.machine.name.clone()
    }

    pub fn client(&self) -> Result<SimClient, String> {
        self.machine.client().cloned().ok_or(format!("{} has no process", self.machine.name))
    }

    async fn pause(&mut self) {
        let millis = self.chance.below(PAUSE_MILLIS_MAX);
        self.room.clock.sleep(Duration::from_millis(millis)).await;
        if self.chance.below(50) == 0 {
            self.room.clock.sleep(Duration::from_secs(LONG_PAUSE_SECS)).await;
        }
    }

    fn invite_trouble(&mut self) {
        if self.plan.modes.len() > 1 && self.chance.below(12) == 0 {
            let mode = self.plan.modes[self.chance.below(self.plan.modes.len() as u64) as usize];
            self.room.trace.note(&self.machine.name, format_args!("changes to {mode:?}"));
            self.room.tally.count(|tally| tally.modes += 1);
            self.machine.mode = mode;
            if let Some(client) = self.machine.client() {
                client.set_mode(mode);
            }
        }
        if self.plan.client_ends.is_some() {
            match self.chance.below(40) {
                0 => self.machine.disk.kill(),
                1..4 => self.machine.disk.crash_after(self.chance.below(25)),
                _ => {}
            }
        }
        if self.plan.full.clients {
            match self.chance.below(12) {
                0 => {
                    let left = room_left(&self.chance);
                    self.room.trace.note(&self.machine.name, format_args!("has {left} bytes left"));
                    self.machine.disk.fill_after(left);
                }
                1 => {
                    self.room.trace.note(&self.machine.name, "has room");
                    self.machine.disk.make_room();
                }
                _ => {}
            }
        }
        if self.plan.damaged_indexes && self.chance.below(3) == 0 {
            damage::indexes(&self.machine.disk, &self.chance);
        }
    }

    /// Does it, unless the machine crashes meanwhile.
    pub async fn unless_crashed<T>(
        &self,
        what: &(dyn std::fmt::Display + Sync),
        call: impl Future<Output = T>,
    ) -> Result<Result<T, Crashed>, String> {
        let disk = self.machine.disk.clone();
        let clock = self.room.clock.clone();
        let crashed = async {
            while !disk.has_crashed() {
                clock.sleep(LOOK_EVERY).await;
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = self.room.clock.within(CALL_WITHIN, call) => outcome,
            () = crashed => return Ok(Err(Crashed)),
        };
        match outcome {
            _ if self.machine.has_crashed() => Ok(Err(Crashed)),
            Some(outcome) => Ok(Ok(outcome)),
            None => Err(format!("{} hangs: {what}", self.machine.name)),
        }
    }

    /// The machine has crashed, perhaps in the middle of an operation on its own part: it starts
    /// again, and what it has then must be what it may have.
    pub async fn recover(&mut self, in_flight: Option<&Operation>) -> Result<(), String> {
        // A machine that loses its power now and then loses a process alone, too.
        let how = match self.plan.client_ends {
            Some(End::PowerCut) if self.chance.below(3) > 0 => End::PowerCut,
            _ => End::Killed,
        };
        for contents in self.candidates.unsaved(in_flight) {
            self.board.enter(&contents);
        }
        match how {
            End::Killed => self.candidates.killed(in_flight)?,
            End::PowerCut => {
                self.candidates.power_cut(in_flight);
                let forgets = self.machine.durability == Durability::Prompt;
                self.board.power_was_cut(&self.machine.name, forgets);
            }
        }
        self.room.tally.count(|tally| tally.clients_ended += 1);
        self.count_cancelled();
        self.board.starts_anew(&self.machine.name);
        let stopped = self.room.clock.moment();
        let notice = GONE_WITHIN * self.chance.below(2) as u32;
        self.machine.stop(how, notice);
        self.own.forget();
        self.shared.forget();
        self.workload.interrupt();
        let away = if self.chance.below(8) == 0 { 100 } else { self.chance.below(5) };
        self.room.clock.sleep(Duration::from_secs(away)).await;
        let client = self.machine.launch()?;
        match how {
            End::PowerCut => self.mend(&client).await,
            End::Killed if self.chance.below(2) == 0 && self.has_kept_what_it_learnt(stopped) => {
                self.look_at_once(&client).await
            }
            End::Killed => Ok(()),
        }
    }

    /// A process counts from its start.
    fn count_cancelled(&self) {
        if let Some(client) = self.machine.client() {
            let updates = client.status().cancelled.updates;
            self.room.tally.count(|tally| tally.cancelled += updates);
        }
    }

    /// What a power cut took of its own part it learns again from the origin, and has for good with
    /// the next checkpoint.
    fn has_kept_what_it_learnt(&self, stopped: Moment) -> bool {
        self.mended_at.is_none_or(|mended| stopped.since(mended) > CHECKPOINT_WITHIN)
    }

    /// Without asking anybody, the client shows what it had when it was killed.
    async fn look_at_once(&mut self, client: &SimClient) -> Result<(), String> {
        client.set_mode(WantedMode::Fixed(Mode::Disconnected));
        let found = self.read_part(client, &own_part(self.side)).await;
        client.set_mode(self.machine.mode);
        match found {
            Ok(found) => self.candidates.found(&found).map_err(|why| {
                format!("{} has lost or made up something by a crash:\n{why}", self.machine.name)
            }),
            // What is not in the cache cannot be looked at now.
            Err(Fault::Unreachable) => Ok(()),
            Err(fault) => Err(format!("{} cannot be read: {fault:?}", self.machine.name)),
        }
    }

    /// After a power cut: brings home what is left, and looks at what that is.
    async fn mend(&mut self, client: &SimClient) -> Result<(), String> {
        client.set_mode(WantedMode::Fixed(Mode::Partial));
        let start = self.room.clock.moment();
        let (own, shared) = loop {
            let status = client.status();
            if status.link.connected && status.pending.updates == 0 {
                let own = self.read_part(client, &own_part(self.side)).await;
                let shared = self.read_part(client, &shared_part()).await;
                if let (Ok(own), Ok(shared)) = (own, shared) {
                    break (own, shared);
                }
            }
            if self.room.clock.moment().since(start) > MENDED_WITHIN {
                return Err(format!(
                    "{} does not get over a power cut: {:?} {:?}",
                    self.machine.name, status.link, status.pending
                ));
            }
            self.room.clock.sleep(Duration::from_secs(1)).await;
        };
        client.set_mode(self.machine.mode);
        self.mended_at = Some(self.room.clock.moment());
        self.board.power_cut_is_mended(&[&own, &shared]);
        self.candidates.found(&own).map_err(|why| {
            format!("{} has lost or made up something by a power cut:\n{why}", self.machine.name)
        })?;
        self.candidates.all_is_home();
        check::nothing_broke(&self.room, std::slice::from_ref(&self.machine))
    }

    async fn read_part(&self, client: &SimClient, part: &Path) -> Result<Tree, Fault> {
        let walk = tree::of_client(client, part);
        let found = self.room.clock.within(CALL_WITHIN, walk).await;
        found.unwrap_or(Err(Fault::Other("reading hangs".into())))
    }
}
