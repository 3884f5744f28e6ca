//! What goes wrong outside the clients: lines, sessions, the origin's machine, and what the clients'
//! wall clocks are set to.

use super::{Plan, room_left};
use crate::machine::{OriginMachine, Room};
use std::time::Duration;
use world::{Clock, Entropy, Moment};

/// How often it is drawn whether something goes wrong.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between two troubles of a line, about.
const LINE_TICKS: u64 = 120;
/// Ticks between two troubles of the origin, about.
const ORIGIN_TICKS: u64 = 250;
/// Ticks between two times in which the origin's disk is full, about.
const FULL_TICKS: u64 = 60;
/// Ticks between two times that some client's wall clock is set, about.
const CLOCK_TICKS: u64 = 40;
/// So far: a hiccup, hours, a month, ten years, and more than 64 bits hold of nanoseconds since 1970.
const SET_BY_SECS: [i64; 5] = [3, 7_200, 2_700_000, 315_000_000, 9_500_000_000];
/// A session that is gone is noticed within this.
const NOTICE: Duration = Duration::from_secs(12);
/// One outage in so many is longer than any lease.
const LONG_ONE_IN: u64 = 10;
const LONG_SECS: u64 = 100;

pub(super) struct Trouble {
    room: Room,
    plan: Plan,
    chance: Entropy,
    next: Moment,
    /// When each line comes back.
    lines: Vec<Option<Moment>>,
    /// When the origin comes back.
    origin: Option<Moment>,
    /// When there is room on the origin's disk again.
    room_again: Option<Moment>,
    /// Of the clients' machines.
    clocks: Vec<Clock>,
}

impl Trouble {
    pub fn new(room: &Room, plan: Plan, clocks: Vec<Clock>) -> Trouble {
        Trouble {
            room: room.clone(),
            chance: Entropy::seeded(room.chance.number()),
            next: room.clock.moment(),
            lines: vec![None; plan.clients],
            origin: None,
            room_again: None,
            clocks,
            plan,
        }
    }

    /// Waits for the next tick and does what is due. May be dropped while it waits.
    pub async fn make(&mut self, origin: &mut OriginMachine) -> Result<(), String> {
        let now = self.room.clock.moment();
        self.room.clock.sleep(self.next.since(now)).await;
        let now = self.room.clock.moment();
        self.next = now + TICK;
        for line in 0..self.lines.len() {
            self.trouble_line(line, now);
        }
        self.set_some_clock();
        self.fill_origin(origin, now);
        self.trouble_origin(origin, now)
    }

    fn trouble_line(&mut self, line: usize, now: Moment) {
        let network = &self.room.network;
        if let Some(back) = self.lines[line] {
            if now >= back {
                self.lines[line] = None;
                network.restore(line);
            }
            return;
        }
        if self.chance.below(LINE_TICKS) != 0 {
            return;
        }
        let conditions = &self.plan.conditions;
        match self.chance.below(6) {
            0..2 if self.plan.cuts => {
                network.cut(line, NOTICE);
                self.room.tally.count(|tally| tally.cuts += 1);
                self.lines[line] = Some(now + self.outage());
            }
            2 if self.plan.cuts => {
                network.break_session(line, NOTICE);
                self.room.tally.count(|tally| tally.cuts += 1);
            }
            _ => {
                let drawn = conditions[self.chance.below(conditions.len() as u64) as usize];
                network.set_conditions(line, drawn);
            }
        }
    }

    fn trouble_origin(&mut self, origin: &mut OriginMachine, now: Moment) -> Result<(), String> {
        let Some(how) = self.plan.origin_ends else { return Ok(()) };
        if let Some(back) = self.origin {
            if now >= back {
                self.origin = None;
                origin.restart()?;
            }
            return Ok(());
        }
        if !origin.disk.has_crashed() && self.chance.below(ORIGIN_TICKS) == 0 {
            match self.chance.below(3) {
                0 => origin.disk.kill(),
                _ => origin.disk.crash_after(self.chance.below(40)),
            }
        }
        if origin.disk.has_crashed() {
            origin.stop(how, NOTICE * self.chance.below(2) as u32);
            self.room.tally.count(|tally| tally.origins_ended += 1);
            self.origin = Some(now + self.outage());
        }
        Ok(())
    }

    /// Its disk gets full, or there is room again.
    fn fill_origin(&mut self, origin: &OriginMachine, now: Moment) {
        if !self.plan.full.origin {
            return;
        }
        match self.room_again {
            Some(again) if now >= again => {
                self.room_again = None;
                self.room.trace.note("origin", "has room again");
                origin.disk.make_room();
            }
            None if self.chance.below(FULL_TICKS) == 0 => {
                let left = room_left(&self.chance);
                self.room.trace.note("origin", format_args!("has {left} bytes left"));
                origin.disk.fill_after(left);
                self.room_again = Some(now + self.outage());
            }
            _ => {}
        }
    }

    fn set_some_clock(&self) {
        if !self.plan.clocks || self.chance.below(CLOCK_TICKS) != 0 {
            return;
        }
        let side = self.chance.below(self.clocks.len() as u64) as usize;
        set_clock(&self.room, &self.chance, &format!("client{side}"), &self.clocks[side]);
    }

    fn outage(&self) -> Duration {
        if self.chance.below(LONG_ONE_IN) == 0 {
            return Duration::from_secs(LONG_SECS);
        }
        Duration::from_millis(self.chance.below(15_000))
    }
}

/// The wall clock of a client's machine is set: ahead or back, to 1970, or right again.
pub(crate) fn set_clock(room: &Room, chance: &Entropy, name: &str, clock: &Clock) {
    let by = SET_BY_SECS[chance.below(SET_BY_SECS.len() as u64) as usize];
    let shown = clock.time().secs;
    let to = match chance.below(6) {
        0..2 => shown.saturating_add(by),
        2..4 => shown.saturating_sub(by).max(0),
        4 => 0,
        _ => room.clock.time().secs,
    };
    clock.shift(to - shown);
    room.trace.note(name, format_args!("its clock is set to {to}"));
    room.tally.count(|tally| tally.clocks_set += 1);
}
