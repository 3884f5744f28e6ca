//! The network between clients and one origin: every message is encoded, travels, and is decoded.
//! Messages are late, overtake each other, and vanish with the session that they belong to; a
//! session that is cut is noticed by its ends some time later, each at its own.
//!
//! ```text
//!            line up, origin there          cut            each end notices
//!   no session ───────────→ session ──────────────→ silent ────────────────→ no session
//! ```
//!
//! Holds: notices of one session come in the order in which they were told; what a machine that
//! has crashed would say is never heard; all of it follows from the seed.

use crate::trace::Trace;
use protocol::{LinkCounts, Service, Traffic};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use world::{Moment, World};

mod below;
mod describe;
mod older;
mod passage;
mod spoil;
mod wire;

pub use below::SimUpstream;
pub use wire::SimDownstream;

use wire::Connection;

/// Says whether a machine still runs.
pub type Alive = Arc<dyn Fn() -> bool + Send + Sync>;

/// How a line treats what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// One way.
    pub delay: Duration,
    /// Up to so much more, drawn for each message.
    pub jitter: Duration,
    /// Packets in a thousand that must be sent again, which takes a round trip and more.
    pub lost_in_thousand: u64,
    /// None is no bound.
    pub bytes_a_second: Option<u64>,
}

impl Conditions {
    /// A cable between neighbours.
    pub const NEAR: Conditions = Conditions {
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(1),
        lost_in_thousand: 0,
        bytes_a_second: None,
    };

    /// A telephone on a train.
    pub const FAR: Conditions = Conditions {
        delay: Duration::from_millis(120),
        jitter: Duration::from_millis(80),
        lost_in_thousand: 30,
        bytes_a_second: Some(60_000),
    };
}

/// Which line: one for each client, from 0.
pub type LineId = usize;

/// Clones are the same network.
pub struct Network<S: Service> {
    inner: Arc<Inner<S>>,
}

impl<S: Service> Clone for Network<S> {
    fn clone(&self) -> Self {
        Network { inner: self.inner.clone() }
    }
}

struct Inner<S: Service> {
    world: World,
    trace: Trace,
    state: Mutex<State<S>>,
    /// A line, or the origin, came or went.
    changed: Notify,
}

struct State<S: Service> {
    origin: Option<Origin<S>>,
    lines: Vec<Line<S>>,
    /// One delta in so many names a base that the other side does not have, or is against
    /// another one than it has.
    spoiled_one_in: Option<u64>,
    /// Of those that went up, how many.
    spoiled: u64,
    lost: Option<spoil::Lost>,
    /// What must not happen on a network, whatever the seed.
    faults: Vec<String>,
}

struct Origin<S> {
    service: Arc<S>,
    alive: Alive,
}

struct Line<S: Service> {
    conditions: Conditions,
    up: bool,
    connection: Option<Arc<Connection<S>>>,
    /// The process that uses the line: one that has died is never heard again.
    process: u64,
    turned_away: Option<String>,
    /// One of its ends is of an earlier version.
    older: bool,
    /// How long nothing is heard before the session is given up, where that is how it ends.
    silence: Option<Duration>,
    driver: Option<AbortHandle>,
    traffic: Traffic,
    /// What had come down before the session began.
    came_before: u64,
    /// As if it had been in use all the time, and when that was last looked at.
    counts: LinkCounts,
    counted_at: Moment,
    /// The line is taken by earlier messages until then: up, down.
    busy: [Moment; 2],
}

impl<S: Service> Network<S> {
    pub fn new(world: World, trace: Trace) -> Network<S> {
        let state = State {
            origin: None,
            lines: Vec::new(),
            spoiled_one_in: None,
            spoiled: 0,
            lost: None,
            faults: Vec::new(),
        };
        let inner = Inner { world, trace, state: Mutex::new(state), changed: Notify::new() };
        Network { inner: Arc::new(inner) }
    }

    /// A line that is up, for one more client.
    pub fn add_line(&self, conditions: Conditions) -> LineId {
        let now = self.inner.world.clock.moment();
        let mut state = self.state();
        state.lines.push(Line {
            conditions,
            up: true,
            connection: None,
            process: 0,
            turned_away: None,
            older: false,
            silence: None,
            driver: None,
            traffic: Traffic::default(),
            came_before: 0,
            counts: LinkCounts::default(),
            counted_at: now,
            busy: [now, now],
        });
        state.lines.len() - 1
    }

    pub fn set_conditions(&self, line: LineId, conditions: Conditions) {
        self.state().lines[line].conditions = conditions;
    }

    /// From now on one delta in so many is of no use to whom it reaches: the base is not there any
    /// more, or is not what the sender has.
    pub fn spoil_deltas(&self, one_in: u64) {
        self.state().spoiled_one_in = Some(one_in);
    }

    /// Deltas that went up and were of no use.
    pub fn spoiled(&self) -> u64 {
        self.state().spoiled
    }

    /// From now on nothing is stored of the deltas that are sent, and nobody is told.
    pub fn lose_deltas(&self) {
        self.state().lost = Some(spoil::Lost::Deltas);
    }

    /// The same of all chunks.
    pub fn lose_chunks(&self) {
        self.state().lost = Some(spoil::Lost::Chunks);
    }

    pub fn conditions(&self, line: LineId) -> Conditions {
        self.state().lines[line].conditions
    }

    /// Bytes that went over a line, in messages.
    pub fn traffic(&self, line: LineId) -> Traffic {
        self.state().lines[line].traffic
    }

    pub fn is_up(&self, line: LineId) -> bool {
        self.state().lines[line].up
    }

    /// Nothing passes from now on; the ends notice it within `notice`.
    pub fn cut(&self, line: LineId, notice: Duration) {
        self.inner.trace.note("network", format_args!("line {line} is cut"));
        let connection = {
            let mut state = self.state();
            state.lines[line].up = false;
            state.lines[line].connection.clone()
        };
        if let Some(connection) = connection {
            connection.sever(self, self.within(notice), self.within(notice));
        }
    }

    /// Nothing passes from now on; the client notices it by hearing nothing for `silence`.
    pub fn hang(&self, line: LineId, silence: Duration) {
        self.inner.trace.note("network", format_args!("line {line} hangs"));
        let connection = {
            let mut state = self.state();
            state.lines[line].up = false;
            state.lines[line].silence = Some(silence);
            state.lines[line].connection.clone()
        };
        if let Some(connection) = connection {
            connection.sever(self, silence, silence);
        }
    }

    /// The session breaks, and the line is there for the next one at once.
    pub fn break_session(&self, line: LineId, notice: Duration) {
        let connection = self.state().lines[line].connection.clone();
        if let Some(connection) = connection {
            self.inner.trace.note("network", format_args!("the session of line {line} breaks"));
            connection.sever(self, self.within(notice), self.within(notice));
        }
    }

    pub fn restore(&self, line: LineId) {
        self.inner.trace.note("network", format_args!("line {line} is back"));
        self.state().lines[line].up = true;
        self.inner.changed.notify_waiters();
    }

    /// The origin listens.
    pub fn origin_up(&self, service: S, alive: Alive) {
        self.state().origin = Some(Origin { service: Arc::new(service), alive });
        self.inner.changed.notify_waiters();
    }

    /// The origin's process is gone: nothing of it acts any more. The clients notice within
    /// `notice`.
    pub fn origin_down(&self, notice: Duration) {
        let connections: Vec<_> = {
            let mut state = self.state();
            state.origin = None;
            state.lines.iter().filter_map(|line| line.connection.clone()).collect()
        };
        for connection in connections {
            connection.abandon();
            connection.sever(self, self.within(notice), Duration::ZERO);
        }
    }

    /// The client's process on this line is gone. The origin notices within `notice`.
    pub fn process_died(&self, line: LineId, notice: Duration) {
        let connection = {
            let mut state = self.state();
            let line = &mut state.lines[line];
            line.process += 1;
            if let Some(driver) = line.driver.take() {
                driver.abort();
            }
            line.connection.take()
        };
        if let Some(connection) = connection {
            connection.sever(self, Duration::ZERO, self.within(notice));
        }
    }

    /// Everything ends: nothing that was laid here holds on to anything.
    pub fn close(&self) {
        self.origin_down(Duration::ZERO);
        let mut state = self.state();
        for line in &mut state.lines {
            if let Some(driver) = line.driver.take() {
                driver.abort();
            }
            line.connection = None;
        }
    }

    /// What must not happen and did, since the last call.
    pub fn faults(&self) -> Vec<String> {
        std::mem::take(&mut self.state().faults)
    }

    /// Something happened that must not.
    pub fn fault(&self, what: String) {
        self.inner.trace.note("network", format_args!("FAULT: {what}"));
        self.state().faults.push(what);
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of `most`, drawn.
    fn within(&self, most: Duration) -> Duration {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.inner.world.entropy.below(millis.saturating_add(1)))
    }
}
