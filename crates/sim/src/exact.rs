//! Connected clients, one operation after another: every outcome is that of one file system.
//! From: LBFS, "LBFS overview": close-to-open consistency.

use crate::check::{self, CALL_WITHIN, Pairs};
use crate::crowd::set_clock;
use crate::machine::{ClientMachine, OriginMachine, Room, drawn_limits};
use crate::network::Conditions;
use crate::operation::{Operation, Outcome};
use crate::past::Past;
use crate::perform::Programs;
use crate::reference::Reference;
use crate::workload::Workload;
use client::WantedMode;
use protocol::Mode;
use std::time::Duration;
use world::Entropy;

/// Draws that may be passed over in a row because their outcome cannot be foretold.
const REDRAWS_MAX: usize = 50;
/// One pause in so many is so long that leases run out.
const LONG_PAUSE_ONE_IN: u64 = 40;
const LONG_PAUSE: Duration = Duration::from_secs(90);
const PAUSE_MILLIS_MAX: u64 = 400;
/// In every second run, before one operation in so many, the wall clock is set of who does it.
const SET_ONE_IN: u64 = 6;

pub async fn run(room: &Room, clients: usize, steps: usize) -> Result<(), String> {
    let origin = OriginMachine::start(room, drawn_limits(&room.chance))?;
    let mut machines = Vec::new();
    // Who has the volume for itself waits for nobody, and that makes no difference.
    let chosen = room.chance.below(2) == 0;
    let mode = if chosen { WantedMode::Auto } else { WantedMode::Fixed(Mode::Connected) };
    for number in 0..clients {
        let mut machine =
            ClientMachine::new(room, number, origin.invite()?, Conditions::NEAR, mode);
        machine.whole_bytes_max = number.is_multiple_of(2).then_some(0);
        machine.early_bytes_min = crate::crowd::early_bytes_min(&room.chance);
        machine.plan_chunks_max = crate::crowd::plan_chunks_max(number);
        machine.start().await?;
        machines.push(machine);
    }
    let mut world = Exact {
        room,
        machines,
        programs: (0..clients).map(|_| Programs::default()).collect(),
        workloads: (0..clients)
            .map(|side| Workload::new(Entropy::seeded(room.chance.number()), side))
            .collect(),
        reference: Reference::new(clients, 0o755),
        past: (0..clients).map(|_| Past::default()).collect(),
        pairs: Pairs::default(),
    };
    let clocks = room.chance.below(2) == 0;
    for _ in 0..steps {
        let side = room.chance.below(clients as u64) as usize;
        if clocks && room.chance.below(SET_ONE_IN) == 0 {
            let machine = &world.machines[side];
            set_clock(room, &room.chance, &machine.name, &machine.clock);
        }
        let operation = world.draw(side);
        world.step(side, &operation).await?;
        if room.chance.below(LONG_PAUSE_ONE_IN) == 0 {
            room.clock.sleep(LONG_PAUSE).await;
        } else {
            room.clock.sleep(Duration::from_millis(room.chance.below(PAUSE_MILLIS_MAX))).await;
        }
    }
    world.close_all().await?;
    check::settled(room, &world.machines, true).await?;
    let truth = check::all_agree(room, &origin, &world.machines).await?;
    check::same("the reference", &world.reference.tree(), "the origin", &truth)
}

struct Exact<'a> {
    room: &'a Room,
    machines: Vec<ClientMachine>,
    programs: Vec<Programs>,
    workloads: Vec<Workload>,
    reference: Reference,
    past: Vec<Past>,
    pairs: Pairs,
}

impl Exact<'_> {
    fn draw(&mut self, side: usize) -> Operation {
        for _ in 0..REDRAWS_MAX {
            let operation = self.workloads[side].draw(&self.reference.open_slots(side));
            if self.reference.foretells(side, &operation) {
                return operation;
            }
        }
        Operation::Totals
    }

    async fn step(&mut self, side: usize, operation: &Operation) -> Result<(), String> {
        let machine = &self.machines[side];
        let began = self.room.clock.moment();
        self.room.trace.note(&machine.name, operation);
        let client = machine.client().ok_or("the client has stopped")?;
        let performed = self.programs[side].perform(client, operation);
        let found = self.room.clock.within(CALL_WITHIN, performed).await;
        let found = found.ok_or(format!("{} hangs: {operation}", machine.name))?;
        self.room.trace.note(&machine.name, format_args!("  = {found}"));
        if self.past[side].excuses(operation, &found, self.room.clock.moment()) {
            return check::nothing_broke(self.room, &self.machines);
        }
        let closes_cut = matches!(operation, Operation::Close { slot } if self.reference.is_only_cut(side, *slot));
        let expected = self.reference.perform(side, operation);
        for (side, past) in self.past.iter_mut().enumerate() {
            past.note(self.reference.past_slots(side), began);
        }
        if !self.pairs.agree_on_outcome(&expected, &found) {
            return Err(told(&machine.name, operation, &expected, &found));
        }
        if closes_cut {
            // It is stored behind the close, and nobody waits for it.
            check::settled(self.room, &self.machines[side..=side], false).await?;
        }
        check::nothing_broke(self.room, &self.machines)
    }

    async fn close_all(&mut self) -> Result<(), String> {
        for side in 0..self.machines.len() {
            for slot in self.reference.open_slots(side) {
                let close = Operation::Close { slot };
                self.step(side, &close).await?;
            }
        }
        Ok(())
    }
}

fn told(name: &str, operation: &Operation, expected: &Outcome, found: &Outcome) -> String {
    format!("{name}: {operation}\n  gave     {found}\n  and not  {expected}")
}
