//! The client's end of a line: connects by itself, carries requests, hands out events.

use super::passage::Direction;
use super::wire::{Connection, SimDownstream};
use super::{Alive, Conditions, Line, LineId, Network, describe};
use protocol::{
    Caller, Class, Event, LinkQuality, Request, Response, Service, Session, Traffic, Unreachable,
    Upstream,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};
use world::Moment;

/// Between the end of a session and the next try.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Between two tries of a device that was turned away.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The replica above, over a simulated line.
pub struct SimUpstream<S: Service> {
    network: Network<S>,
    line: LineId,
    process: u64,
    alive: Alive,
    events: Mutex<mpsc::UnboundedReceiver<Event>>,
}

impl<S: Service> SimUpstream<S> {
    /// The upstream of a process that starts on this line. `alive` is the machine's.
    pub fn connect(network: &Network<S>, line: LineId, caller: Caller, alive: Alive) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let process = network.state().lines[line].process;
        let driver = Driver { network: network.clone(), line, caller, events: sender };
        let driver = tokio::spawn(driver.run()).abort_handle();
        network.state().lines[line].driver = Some(driver);
        SimUpstream { network: network.clone(), line, process, alive, events: Mutex::new(events) }
    }

    /// A process that has died asks nothing and hears nothing.
    async fn unless_dead(&self) {
        if !(self.alive)() || self.network.state().lines[self.line].process != self.process {
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Service> Upstream for SimUpstream<S> {
    async fn ask(&self, class: Class, request: Request) -> Result<Response, Unreachable> {
        self.unless_dead().await;
        let connection = {
            let state = self.network.state();
            let line = &state.lines[self.line];
            match (&line.connection, &line.turned_away) {
                (Some(connection), _) => connection.clone(),
                (None, Some(why)) => return Err(Unreachable::TurnedAway(why.clone())),
                (None, None) => return Err(Unreachable::NoLink),
            }
        };
        let answer = self.network.clone().carry(connection.clone(), class, &request);
        let answer = tokio::select! {
            biased;
            Ok(bytes) = answer => Ok(bytes),
            () = connection.wire.noticed_below() => Err(Unreachable::Lost),
        };
        self.unless_dead().await;
        let bytes = answer?;
        self.network.state().lines[self.line].traffic.received[class as usize] +=
            bytes.len() as u64;
        minicbor::decode(&bytes).map_err(|error| {
            self.network.fault(format!("a response cannot be decoded: {error}"));
            Unreachable::Lost
        })
    }

    async fn event(&self) -> Option<Event> {
        self.unless_dead().await;
        let event = self.events.lock().await.recv().await;
        self.unless_dead().await;
        event
    }

    fn quality(&self) -> LinkQuality {
        let now = self.network.inner.world.clock.moment();
        let mut state = self.network.state();
        let line = &mut state.lines[self.line];
        line.count(now);
        if line.connection.is_none() {
            return LinkQuality::default();
        }
        let least = line.conditions.delay * 2;
        LinkQuality {
            connected: true,
            round_trip: Some(least + line.conditions.jitter),
            round_trip_age: Some(Duration::ZERO),
            round_trip_min: Some(least),
            rate_up: line.conditions.bytes_a_second,
            rate_down: line.conditions.bytes_a_second.filter(|_| line.tells_rate()),
            round_trip_lately: Some(least),
            limit_up: None,
            limit_down: None,
            counts: line.counts,
        }
    }

    fn traffic(&self) -> Traffic {
        self.network.state().lines[self.line].traffic
    }
}

/// Before so much has come over a session, nobody knows at what rate it comes.
const TELLS_RATE_BYTES: u64 = 2_400;

impl<S: Service> Line<S> {
    fn tells_rate(&self) -> bool {
        // Over a line as slow as that, the handshake alone takes a second.
        let is_slow = self.conditions.bytes_a_second.is_some_and(|rate| rate < TELLS_RATE_BYTES);
        let came = self.traffic.wire_received.saturating_sub(self.came_before);
        is_slow || came >= TELLS_RATE_BYTES
    }

    /// Counts what a link like this would have carried since the last look.
    fn count(&mut self, now: Moment) {
        const PACKETS_A_SECOND: u64 = 1_000;
        let long = now.since(self.counted_at);
        self.counted_at = now;
        let Conditions { lost_in_thousand, bytes_a_second, .. } = self.conditions;
        let of = |a_second: u64| a_second.saturating_mul(long.as_millis() as u64) / 1000;
        self.counts.round_trips += of(PACKETS_A_SECOND);
        self.counts.packets_sent += of(PACKETS_A_SECOND);
        self.counts.packets_lost += of(PACKETS_A_SECOND * lost_in_thousand / 1000);
        if let Some(rate) = bytes_a_second {
            self.counts.busy_bytes += of(rate);
            self.counts.busy_for += long;
        }
    }
}

impl<S: Service> Network<S> {
    /// Takes a request to the origin and the answer back. The receiver fails if either is lost.
    fn carry(
        self,
        connection: Arc<Connection<S>>,
        class: Class,
        request: &Request,
    ) -> oneshot::Receiver<Vec<u8>> {
        let line = connection.wire.line;
        let bytes = minicbor::to_vec(request).expect("a vector takes every byte");
        self.inner.trace.note(
            &format!("{line}>origin"),
            format_args!("{} ({} bytes)", describe::request(request), bytes.len()),
        );
        self.state().lines[line].traffic.sent[class as usize] += bytes.len() as u64;
        let (answer, answered) = oneshot::channel();
        let takes = self.travel(line, Direction::Up, bytes.len());
        let at = connection.clone();
        let handler = tokio::spawn(async move {
            self.inner.world.clock.sleep(takes).await;
            if let Some(response) = self.answer(&connection, &bytes).await {
                // The asker may have given up meanwhile.
                let _ = answer.send(response);
            }
        });
        at.add_handler(handler.abort_handle());
        answered
    }

    async fn answer(&self, connection: &Connection<S>, request: &[u8]) -> Option<Vec<u8>> {
        let wire = &connection.wire;
        let session = connection.session().filter(|_| wire.passes())?;
        let alive = self.state().origin.as_ref().map(|origin| origin.alive.clone())?;
        let request = match minicbor::decode::<Request>(request) {
            Ok(mut request) => {
                self.spoil_request(&mut request);
                self.age_request(wire.line, &mut request);
                request
            }
            Err(error) => {
                self.fault(format!("a request cannot be decoded: {error}"));
                return None;
            }
        };
        let mut response = session.answer(request).await;
        self.spoil_response(&mut response);
        self.age_response(wire.line, &mut response);
        if !alive() {
            return None;
        }
        let bytes = minicbor::to_vec(&response).expect("a vector takes every byte");
        let travels = if wire.passes() { "" } else { ", which nobody hears" };
        self.inner.trace.note(
            &format!("origin>{}", wire.line),
            format_args!("{} ({} bytes){travels}", describe::response(&response), bytes.len()),
        );
        let takes = self.travel(wire.line, Direction::Down, bytes.len());
        self.inner.world.clock.sleep(takes).await;
        (wire.passes() && alive()).then_some(bytes)
    }
}

/// Keeps one session up for as long as the process lives.
struct Driver<S: Service> {
    network: Network<S>,
    line: LineId,
    caller: Caller,
    events: mpsc::UnboundedSender<Event>,
}

impl<S: Service> Driver<S> {
    async fn run(self) {
        let clock = self.network.inner.world.clock.clone();
        loop {
            self.usable().await;
            let conditions = self.network.conditions(self.line);
            clock.sleep(conditions.delay * 4).await;
            match self.connect().await {
                Some(Ok(connection)) => {
                    self.say(Event::Up);
                    connection.wire.noticed_below().await;
                    let silence = {
                        let line = &mut self.network.state().lines[self.line];
                        line.connection = None;
                        line.silence.take()
                    };
                    let why = silence.map_or(Unreachable::Lost, Unreachable::Silent);
                    self.say(Event::Down(why));
                    clock.sleep(RETRY_AFTER).await;
                }
                Some(Err(why)) => {
                    self.network.state().lines[self.line].turned_away = Some(why.clone());
                    self.say(Event::Down(Unreachable::TurnedAway(why)));
                    clock.sleep(ASK_AGAIN_AFTER).await;
                }
                None => clock.sleep(RETRY_AFTER).await,
            }
        }
    }

    /// Waits until the line is up and the origin listens.
    async fn usable(&self) {
        loop {
            let changed = self.network.inner.changed.notified();
            {
                let state = self.network.state();
                if state.lines[self.line].up && state.origin.as_ref().is_some_and(|o| (o.alive)()) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// None: the line or the origin has gone meanwhile.
    async fn connect(&self) -> Option<Result<Arc<Connection<S>>, String>> {
        let service = {
            let state = self.network.state();
            let origin = state.origin.as_ref().filter(|origin| (origin.alive)())?;
            state.lines[self.line].up.then(|| origin.service.clone())?
        };
        let wire = self.network.lay(self.line, self.events.clone());
        let downstream = SimDownstream { network: self.network.clone(), wire: wire.clone() };
        let admitted = service.admit(self.caller.clone(), downstream).await;
        let mut state = self.network.state();
        let same = state
            .origin
            .as_ref()
            .is_some_and(|origin| Arc::ptr_eq(&origin.service, &service) && (origin.alive)());
        if !same || !state.lines[self.line].up {
            return None;
        }
        Some(match admitted {
            Ok(session) => {
                let connection = Arc::new(Connection::new(wire, session));
                let line = &mut state.lines[self.line];
                line.connection = Some(connection.clone());
                line.turned_away = None;
                line.came_before = line.traffic.wire_received;
                Ok(connection)
            }
            Err(away) => Err(away.to_string()),
        })
    }

    fn say(&self, event: Event) {
        let what = match &event {
            Event::Up => "a session is up".to_owned(),
            Event::Down(why) => format!("the session is gone: {why}"),
            Event::Notice(..) => "a notice".to_owned(),
        };
        self.network.inner.trace.note("network", format_args!("line {}: {what}", self.line));
        // Nobody listens only when the process is gone.
        let _ = self.events.send(event);
    }
}
