//! The session of a client, from the hello to the end of the connection.
//! Holds: notices are handed on in the order in which they came, and each is acknowledged once
//! whoever took it in says so.

use crate::carry::{NotReceived, Outgoing, Wire, permits_of};
use crate::frame::{self, FRAME_BYTES_MAX, Squeeze};
use crate::hello::{Downward, Hello, Upward, wrong_version};
use crate::limits::NOTICES_SENT_MAX;
use crate::quality::{self, Arrivals, Measuring};
use crate::silence::{self, Look, Owed};
use crate::transport::code;
use crate::{Error, Limits, route};
use protocol::{
    Class, Event, LinkQuality, Refusal, Request, Response, TurnedAway, Unreachable, Versions,
};
use quinn::{RecvStream, WriteError};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, Semaphore, mpsc};
use world::Clock;

/// Acknowledgements and probes that wait to be sent: one for each notice, and some.
const UPWARD_WAITING_MAX: usize = NOTICES_SENT_MAX + 8;

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// It may work the next time.
    Passing(String),
    /// The same: nothing could be sent.
    Nowhere(String),
    /// So may the next attempt, which is due.
    Unanswered(String),
    /// It will not work until somebody does something.
    Final(String),
}

/// The two directions of the first stream.
#[derive(Debug)]
pub(crate) struct First {
    say: Outgoing,
    hear: RecvStream,
    offered: Versions,
}

/// Says hello. What is asked behind it comes with it, and is answered once the server has let us in.
pub(crate) async fn greet(wire: &Wire, hello: Hello) -> Result<First, NoSession> {
    let (say, hear) = wire.connection.open_bi().await.map_err(|error| lost(&error))?;
    let mut say = Outgoing::new(say, Class::Interactive);
    let offered = hello.versions;
    let sealed = frame::seal(Class::Interactive, &Upward::Hello(hello), Squeeze::Try)
        .map_err(|error| NoSession::Final(error.to_string()))?;
    wire.say(&mut say, &sealed.frame).await.map_err(|error| lost(&error))?;
    Ok(First { say, hear, offered })
}

/// Hears the answer to the hello: whether the server keeps to the rules that it is given.
async fn welcomed(
    wire: &Wire,
    hear: &mut RecvStream,
    offered: Versions,
) -> Result<bool, NoSession> {
    let answer = match wire.hear(hear, FRAME_BYTES_MAX).await {
        Ok(Some(frame)) => read_downward(&frame).map_err(|error| lost(&error))?,
        Ok(None) => return Err(lost(&"the server ended the stream")),
        Err(error) => return Err(lost(&error)),
    };
    welcome(answer, offered)
}

fn lost(what: &dyn std::fmt::Display) -> NoSession {
    NoSession::Passing(format!("the connection was lost during the hello: {what}"))
}

/// What the answer to the hello means: whether the server keeps to the rules that it is given.
fn welcome(answer: Downward, ours: Versions) -> Result<bool, NoSession> {
    match answer {
        Downward::Welcome { version, regulates } if (ours.min..=ours.max).contains(&version) => {
            Ok(regulates == Some(true))
        }
        Downward::Welcome { version, .. } => Err(NoSession::Passing(format!(
            "the server chose version {version}, which nobody offered"
        ))),
        Downward::WrongVersion(theirs) => Err(NoSession::Final(wrong_version(ours, theirs))),
        Downward::NotInvited => Err(NoSession::Final(TurnedAway::NotInvited.to_string())),
        Downward::Busy(why) => Err(NoSession::Passing(TurnedAway::Busy(why).to_string())),
        Downward::Notice { .. } | Downward::Probe => {
            Err(NoSession::Passing("the server did not answer the hello".to_owned()))
        }
    }
}

fn read_downward(frame: &[u8]) -> Result<Downward, Error> {
    frame::decode(&frame::open(frame)?.1)
}

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) wire: Wire,
    clock: Clock,
    limits: Limits,
    owed: Owed,
    permits: [Semaphore; 4],
    arrivals: Mutex<Arrivals>,
    measuring: Mutex<Measuring>,
    pub(crate) upward: mpsc::Sender<Upward>,
    /// The server keeps to the rules that it is given.
    regulates: AtomicBool,
    endpoint: quinn::Endpoint,
    /// The address of this machine that packets leave from.
    source: Mutex<Option<IpAddr>>,
    nudged: Notify,
}

/// What waits to be said on the first stream.
pub(crate) type Saying = mpsc::Receiver<Upward>;

impl Live {
    pub(crate) fn new(
        wire: Wire,
        clock: Clock,
        limits: Limits,
        endpoint: quinn::Endpoint,
        source: Option<IpAddr>,
    ) -> (Live, Saying) {
        let (upward, saying) = mpsc::channel(UPWARD_WAITING_MAX);
        let arrivals = Mutex::new(Arrivals::begin(0, clock.moment()));
        let measuring = Mutex::new(Measuring::begin(clock.moment()));
        let permits = Class::ALL.map(|class| Semaphore::new(permits_of(class)));
        let live = Live {
            wire,
            clock,
            limits,
            owed: Owed::default(),
            permits,
            arrivals,
            measuring,
            upward,
            regulates: AtomicBool::new(false),
            endpoint,
            source: Mutex::new(source),
            nudged: Notify::new(),
        };
        (live, saying)
    }

    /// Until the connection ends; then nobody who asked waits any longer. Gives why it ended.
    pub(crate) async fn run(
        self: &Arc<Live>,
        first: First,
        saying: Saying,
        events: &mpsc::Sender<Event>,
    ) -> Unreachable {
        let First { say, hear, .. } = first;
        let watched = |look: Look| self.looked(look);
        let mut silent = None;
        let why = tokio::select! {
            () = self.take_in(hear, events) => "the server's stream has ended",
            never = self.check_when_nudged() => never,
            () = self.say_all(say, saying) => "the server takes nothing more",
            silence = silence::watch(
                &self.wire.connection, &self.owed, &self.clock, &self.limits, watched,
            ) => {
                silent = Some(silence);
                "nothing was heard from the server"
            }
            _ = self.wire.connection.closed() => "the connection was closed",
        };
        let reason = self.wire.connection.close_reason().map(|reason| reason.to_string());
        tracing::info!(why, reason, "session ended");
        self.end();
        silent.map_or(Unreachable::Lost, Unreachable::Silent)
    }

    /// Hears the answer to the hello. A server that dies before it answers, and has confirmed the hello, is
    /// found out as later in the session. None: nothing is heard of it.
    pub(crate) async fn hears_welcome(&self, first: &mut First) -> Option<Result<bool, NoSession>> {
        let _owing = self.owed.begin();
        let quiet = Notify::new();
        let watched = |look: Look| match look {
            Look::Probe => quiet.notify_one(),
            other => self.looked(other),
        };
        let First { say, hear, offered } = first;
        let mut silent = pin!(silence::watch(
            &self.wire.connection,
            &self.owed,
            &self.clock,
            &self.limits,
            watched
        ));
        let mut answered = pin!(welcomed(&self.wire, hear, *offered));
        loop {
            tokio::select! {
                answer = &mut answered => return Some(answer),
                _ = &mut silent => return None,
                () = quiet.notified() => {
                    self.follow_route();
                    // It is not broken off half-way: what follows the hello would be read as its rest.
                    let probe = frame::seal(Class::Interactive, &Upward::Probe, Squeeze::No)
                        .expect("a probe is short");
                    if let Err(error) = self.wire.say(say, &probe.frame).await {
                        return Some(Err(lost(&error)));
                    }
                }
            }
        }
    }

    /// The server has let us in.
    pub(crate) fn welcomed(&self, regulates: bool) {
        self.regulates.store(regulates, Ordering::Relaxed);
    }

    pub(crate) fn regulates(&self) -> bool {
        self.regulates.load(Ordering::Relaxed)
    }

    /// Nobody who asked waits any longer.
    pub(crate) fn end(&self) {
        self.wire.connection.close(code::DONE, b"");
        self.permits.iter().for_each(Semaphore::close);
    }

    /// The server need not keep what it will never hear of again.
    pub(crate) async fn told_of_end(&self) {
        self.endpoint.wait_idle().await;
    }

    /// Asks, and waits for the answer as long as the session lives.
    pub(crate) async fn ask(
        &self,
        class: Class,
        request: Request,
    ) -> Result<Response, Unreachable> {
        let _owing = self.owed.begin();
        let permits = &self.permits[crate::classes::place(class)];
        let _permit = permits.acquire().await.map_err(|_| Unreachable::Lost)?;
        let sealed = match frame::seal(class, &request, Squeeze::request(&request)) {
            Ok(sealed) => sealed,
            Err(error) => return Ok(Response::Refused(Refusal::Malformed(error.to_string()))),
        };
        let opened = self.wire.connection.open_bi().await;
        let (send, mut receive) = opened.map_err(|_| Unreachable::Lost)?;
        self.wire.counters.sent(class, sealed.message_bytes);
        let asked = self.clock.moment();
        match self.wire.send(Outgoing::new(send, class), class, sealed.frame).await {
            // A server that stops reading has said why in its answer.
            Ok(()) | Err(WriteError::Stopped(_)) => {}
            Err(_) => return Err(Unreachable::Lost),
        }
        let frame = match self.wire.receive(&mut receive).await {
            Ok(frame) => frame,
            Err(NotReceived::Lost) => return Err(Unreachable::Lost),
            Err(error) => return Ok(unreadable(&error)),
        };
        let (bytes, after) = (frame.len() as u64, self.clock.moment().since(asked));
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).answered(bytes, after);
        Ok(self.read_response(&frame).unwrap_or_else(|error| unreadable(&error)))
    }

    fn read_response(&self, frame: &[u8]) -> Result<Response, Error> {
        let (class, message) = frame::open(frame)?;
        self.wire.counters.received(class, message.len() as u64);
        frame::decode(&message)
    }

    pub(crate) fn quality(&self) -> LinkQuality {
        let rate_down = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).rate();
        let mut measuring = self.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.moment();
        quality::quality(&self.wire.connection, rate_down, &mut measuring, now)
    }

    /// Something may have changed about the network: look whether the link still bears.
    pub(crate) fn nudge(&self) {
        self.nudged.notify_one();
    }

    async fn check_when_nudged(&self) -> ! {
        loop {
            self.nudged.notified().await;
            self.follow_route();
            let _owing = self.owed.begin();
            let heard = || self.wire.connection.stats().udp_rx.datagrams;
            let before = heard();
            self.probe();
            // The watch ends the session if nothing is heard.
            while heard() == before {
                self.clock.sleep(self.limits.silence / 24).await;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn port(&self) -> std::io::Result<u16> {
        Ok(self.endpoint.local_addr()?.port())
    }

    #[cfg(test)]
    pub(crate) fn left_from(&self, address: IpAddr) {
        *self.source.lock().unwrap() = Some(address);
    }

    fn looked(&self, look: Look) {
        match look {
            Look::Begin | Look::Alive => {
                let bytes = self.wire.connection.stats().udp_rx.bytes;
                let now = self.clock.moment();
                let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                if look == Look::Begin {
                    arrivals.begin_again(bytes, now);
                } else {
                    arrivals.look(bytes, now, self.wire.connection.rtt());
                }
            }
            Look::Probe => {
                self.follow_route();
                self.probe();
            }
            Look::Dead => {}
        }
    }

    fn probe(&self) {
        // If so much waits to be said already, it is as good as a probe.
        let _ = self.upward.try_send(Upward::Probe);
    }

    /// If packets to the server leave from another address now, the connection moves there.
    fn follow_route(&self) {
        let peer = self.wire.connection.remote_address();
        let Ok(now) = route::source(peer) else { return };
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if source.replace(now) == Some(now) {
            return;
        }
        let moved = crate::transport::socket(route::unspecified(peer))
            .and_then(|socket| self.endpoint.rebind(socket));
        match moved {
            Ok(()) => tracing::info!(from = %now, "the connection moves to another address"),
            Err(error) => tracing::warn!(%error, "the connection cannot move to another address"),
        }
    }

    /// Hands on what the server says, until it says no more or says what it may not.
    async fn take_in(&self, mut hear: RecvStream, events: &mpsc::Sender<Event>) {
        loop {
            let frame = match self.wire.hear(&mut hear, FRAME_BYTES_MAX).await {
                Ok(Some(frame)) => frame,
                Ok(None) | Err(NotReceived::Lost) => return,
                Err(error) => return self.out_of_turn(&error),
            };
            let message = match frame::open(&frame).map(|(class, message)| {
                self.wire.counters.received(class, message.len() as u64);
                frame::decode(&message)
            }) {
                Ok(Ok(message)) => message,
                Ok(Err(error)) | Err(error) => return self.out_of_turn(&error),
            };
            match message {
                Downward::Notice { number, notice } => {
                    let (done, taken) = tokio::sync::oneshot::channel();
                    let upward = self.upward.clone();
                    // At most as many wait as the server may have on their way.
                    tokio::spawn(async move {
                        // Whoever drops it has no use for it: that is an answer too.
                        let _ = taken.await;
                        let _ = upward.send(Upward::Taken(vec![number])).await;
                    });
                    if events.send(Event::Notice(notice, done)).await.is_err() {
                        return;
                    }
                }
                Downward::Probe => {}
                _ => return self.out_of_turn(&"a second answer to the hello"),
            }
        }
    }

    fn out_of_turn(&self, what: &dyn std::fmt::Display) {
        tracing::warn!(%what, "the server does not keep to the protocol");
        self.wire.connection.close(code::OUT_OF_TURN, b"out of turn");
    }

    async fn say_all(&self, mut say: Outgoing, mut saying: Saying) {
        let mut then = None;
        loop {
            let next = match then.take() {
                Some(next) => Some(next),
                None => saying.recv().await,
            };
            let Some(mut message) = next else { return };
            // Whatever else has been taken in meanwhile goes with it.
            while let Upward::Taken(numbers) = &mut message {
                match saying.try_recv() {
                    Ok(Upward::Taken(more)) => numbers.extend(more),
                    // A frame of any kind serves as the probe.
                    Ok(Upward::Probe | Upward::Hello(_)) => {}
                    Ok(other) => {
                        then = Some(other);
                        break;
                    }
                    Err(_) => break,
                }
            }
            let sealed = frame::seal(Class::Interactive, &message, Squeeze::Try)
                .expect("so few numbers are short");
            self.wire.counters.sent(Class::Interactive, sealed.message_bytes);
            if self.wire.say(&mut say, &sealed.frame).await.is_err() {
                return;
            }
        }
    }
}

/// The answer came, and is of no use; the session goes on.
fn unreadable(error: &dyn std::fmt::Display) -> Response {
    Response::Refused(Refusal::Failed(format!("the answer cannot be read: {error}")))
}
