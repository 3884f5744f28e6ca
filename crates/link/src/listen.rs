//! Where callers arrive, and their sessions on the server's side.
//! Holds: a caller that has not been admitted has two streams, of which one is read, few bytes and little time; a
//! session has bounded requests and notices under way; whoever sends nonsense loses its own
//! session and nothing else.
//! Never: says to an uninvited caller which volumes or devices there are.

use crate::callers::{Callers, Knock};
use crate::carry::{NotReceived, Outgoing, Wire};
use crate::entered::{Entered, Entry};
use crate::frame::{self, FRAME_BYTES_MAX, Sealed, Squeeze};
use crate::hello::{Downward, HELLO_BYTES_MAX, Hello, Upward};
use crate::limits::REQUESTS_MAX;
use crate::outbox::{Next, Outbox, Teller};
use crate::silence::{self, Look, Owed};
use crate::tls;
use crate::transport::{self, code};
use crate::{Error, Identity, Limits};
use protocol::{Caller, Class, Refusal, Request, Response, Service, Session, TurnedAway, Versions};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Incoming, RecvStream, SendStream};
use rustls::pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use world::World;

/// How long one who was turned away may take to hear of it.
const FAREWELL_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long closing waits for the peers to hear of it.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Takes in callers for a service.
#[derive(Debug)]
pub struct Listener<S: Service> {
    endpoint: quinn::Endpoint,
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    service: Arc<S>,
    world: World,
    limits: Limits,
    versions: Versions,
    callers: Callers,
    sessions: Arc<Entered>,
}

impl<S: Service> Listener<S> {
    /// Must be called within a tokio runtime. Callers are taken in by `serve`.
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        service: Arc<S>,
        world: World,
    ) -> Result<Listener<S>, Error> {
        Listener::bind_with(address, identity, service, world, Limits::default(), Versions::OURS)
    }

    /// The same with other bounds, and other versions of the protocol.
    pub fn bind_with(
        address: SocketAddr,
        identity: &Identity,
        service: Arc<S>,
        world: World,
        limits: Limits,
        versions: Versions,
    ) -> Result<Listener<S>, Error> {
        let tls = QuicServerConfig::try_from(tls::server(identity)?)
            .map_err(|error| Error::Tls(rustls::Error::General(error.to_string())))?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(transport::server())).max_incoming(limits.handshakes_max);
        let bind = |source| Error::Bind { address, source };
        let socket = transport::socket(address).map_err(bind)?;
        let runtime = quinn::default_runtime()
            .ok_or_else(|| bind(std::io::Error::other("there is no tokio runtime")))?;
        let endpoint = transport::server_endpoint(identity);
        let endpoint =
            quinn::Endpoint::new(endpoint, Some(config), socket, runtime).map_err(bind)?;
        let shared = Arc::new(Shared {
            service,
            world,
            limits,
            versions,
            callers: Callers::default(),
            sessions: Arc::default(),
        });
        Ok(Listener { endpoint, shared })
    }

    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        self.endpoint
            .local_addr()
            .map_err(|source| Error::Bind { address: SocketAddr::from(([0, 0, 0, 0], 0)), source })
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.count()
    }

    /// Takes in callers until the listener is closed.
    pub async fn serve(&self) {
        while let Some(incoming) = self.endpoint.accept().await {
            let address = incoming.remote_address().ip();
            let proved = incoming.remote_address_validated();
            match self.shared.callers.knock(address, proved, &self.shared.limits) {
                Knock::Greet => {
                    let guest = Greeting::begin(self.shared.clone(), address);
                    tokio::spawn(async move { guest.receive(incoming).await });
                }
                Knock::ProveAddress => {
                    // One who may not be asked again has proved its address.
                    let _ = incoming.retry();
                }
                Knock::Refuse => incoming.refuse(),
            }
        }
    }

    /// Ends all sessions, takes in no more callers, and waits a little for the peers to hear.
    pub async fn close(&self) {
        self.endpoint.close(code::SHUTDOWN, b"the server has been stopped");
        let clock = &self.shared.world.clock;
        let _ = clock.within(CLOSE_WAIT_MAX, self.endpoint.wait_idle()).await;
    }
}

/// A caller that is being greeted; counted until it has been admitted or turned away.
struct Greeting<S: Service> {
    shared: Arc<Shared<S>>,
    address: IpAddr,
}

impl<S: Service> Drop for Greeting<S> {
    fn drop(&mut self) {
        self.shared.callers.end(self.address);
    }
}

impl<S: Service> Greeting<S> {
    fn begin(shared: Arc<Shared<S>>, address: IpAddr) -> Greeting<S> {
        shared.callers.begin(address);
        Greeting { shared, address }
    }

    async fn receive(self, incoming: Incoming) {
        let shared = self.shared.clone();
        let clock = &shared.world.clock;
        let peer = incoming.remote_address();
        let connecting = match incoming.accept() {
            Ok(connecting) => connecting,
            Err(error) => return tracing::debug!(%peer, %error, "a caller could not be accepted"),
        };
        let connection = match clock.within(shared.limits.handshake, connecting).await {
            Some(Ok(connection)) => connection,
            Some(Err(error)) => return tracing::debug!(%peer, %error, "handshake failed"),
            None => return tracing::debug!(%peer, "handshake took too long"),
        };
        let wire = Arc::new(Wire::new(connection, Arc::default(), &shared.world));
        let heard = clock.within(shared.limits.handshake, hear_hello(&wire)).await;
        let (hello, say, hear) = match heard {
            Some(Ok(heard)) => heard,
            Some(Err(error)) => {
                tracing::debug!(%peer, %error, "no hello");
                return wire.connection.close(code::OUT_OF_TURN, b"no hello");
            }
            None => {
                tracing::debug!(%peer, "the hello took too long");
                return wire.connection.close(code::SILENT, b"no hello");
            }
        };
        self.admit(wire, hello, say, hear).await;
    }

    async fn admit(self, wire: Arc<Wire>, hello: Hello, mut say: Outgoing, hear: RecvStream) {
        let shared = &self.shared;
        let Some(device) = peer_key(&wire.connection) else {
            return wire.connection.close(code::TURNED_AWAY, b"no key");
        };
        let Some(version) = shared.versions.agree(hello.versions) else {
            return self.turn_away(&wire, say, Downward::WrongVersion(shared.versions)).await;
        };
        let caller = Caller {
            device: device.clone(),
            name: hello.name,
            volume: hello.volume,
            invitation: hello.invitation,
        };
        let name = caller.name.clone();
        let teller = Teller { outbox: Arc::default(), owed: Arc::default() };
        teller.outbox.over(wire.connection.clone());
        let below = Below { outbox: teller.outbox.clone(), owed: teller.owed.clone() };
        // Whoever has been told of no session is told of its end all the same.
        let closing = Closing(below.outbox.clone());
        let admitted = if shared.sessions.count() >= shared.limits.sessions_max {
            Err(TurnedAway::Busy("it has too many sessions".to_owned()))
        } else {
            shared.service.admit(caller, teller).await
        };
        let session = match admitted {
            Ok(session) => session,
            Err(TurnedAway::NotInvited) => {
                return self.turn_away(&wire, say, Downward::NotInvited).await;
            }
            Err(TurnedAway::Busy(why)) => {
                return self.turn_away(&wire, say, Downward::Busy(why)).await;
            }
        };
        transport::admit(&wire.connection);
        if say_downward(&wire, &mut say, &Downward::Welcome { version, regulates: Some(true) })
            .await
            .is_err()
        {
            return;
        }
        let connection = wire.connection.clone();
        let peer = connection.remote_address();
        let instance = hello.instance;
        let entry = Entry { device, instance, connection: connection.clone() };
        let place = shared.sessions.enter(entry, shared.limits.sessions_of_device_max);
        tracing::info!(%peer, device = %name, version, "session begun");
        let shared = self.shared.clone();
        // The greeting is over: others may be greeted.
        drop(self);
        below.run(&shared, &wire, Arc::new(session), say, hear).await;
        drop(closing);
        drop(place);
        let reason = connection.close_reason().map(|reason| reason.to_string());
        tracing::info!(%peer, device = %name, reason, "session ended");
    }

    async fn turn_away(&self, wire: &Wire, mut say: Outgoing, why: Downward) {
        let peer = wire.connection.remote_address();
        tracing::info!(%peer, why = why.why_not(), "a caller was turned away");
        if say_downward(wire, &mut say, &why).await.is_ok() {
            // It closes the connection when it has heard.
            let heard = wire.connection.closed();
            let _ = self.shared.world.clock.within(FAREWELL_WAIT_MAX, heard).await;
        }
        wire.connection.close(code::TURNED_AWAY, b"");
    }
}

/// The key that the peer has proved.
fn peer_key(connection: &Connection) -> Option<Vec<u8>> {
    let keys = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Some(keys.first()?.to_vec())
}

/// The hello came not, or was something else.
#[derive(Debug, thiserror::Error)]
enum NoHello {
    #[error(transparent)]
    Lost(#[from] quinn::ConnectionError),
    #[error(transparent)]
    NotReceived(#[from] NotReceived),
    #[error(transparent)]
    Unreadable(#[from] Error),
}

async fn hear_hello(wire: &Wire) -> Result<(Hello, Outgoing, RecvStream), NoHello> {
    let (say, mut hear) = wire.connection.accept_bi().await?;
    let say = Outgoing::new(say, Class::Interactive);
    let frame = wire.hear(&mut hear, HELLO_BYTES_MAX).await?.ok_or(NotReceived::BrokenOff)?;
    let message = frame::open(&frame)?.1;
    if message.len() > HELLO_BYTES_MAX {
        return Err(NotReceived::TooLong.into());
    }
    match frame::decode(&message)? {
        Upward::Hello(hello) => Ok((hello, say, hear)),
        _ => Err(Error::OutOfTurn("something before the hello").into()),
    }
}

async fn say_downward(wire: &Wire, say: &mut Outgoing, message: &Downward) -> Result<(), NotSaid> {
    let sealed = frame::seal(Class::Interactive, message, Squeeze::Try)?;
    wire.say(say, &sealed.frame).await?;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum NotSaid {
    #[error(transparent)]
    TooLong(#[from] Error),
    #[error(transparent)]
    Lost(#[from] quinn::WriteError),
}

/// Closes the outbox, however the session ends.
struct Closing(Arc<Outbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What the link keeps of the one below.
#[derive(Debug)]
struct Below {
    outbox: Arc<Outbox>,
    owed: Arc<Owed>,
}

impl Below {
    /// Until the connection ends. Answers under way are finished even then, since what they do
    /// may concern others; the session is dropped after the last.
    async fn run<S: Service>(
        &self,
        shared: &Shared<S>,
        wire: &Arc<Wire>,
        session: Arc<S::Session>,
        say: Outgoing,
        hear: RecvStream,
    ) {
        let probe = Notify::new();
        let looked = |look: Look| {
            if look == Look::Probe {
                probe.notify_one();
            }
        };
        let clock = &shared.world.clock;
        tokio::select! {
            () = answer_all(wire, session) => {}
            () = self.hear_all(wire, hear) => {}
            () = self.say_all(wire, say, &probe) => {}
            _ = silence::watch(&wire.connection, &self.owed, clock, &shared.limits, looked) => {}
            _ = wire.connection.closed() => {}
        }
        wire.connection.close(code::DONE, b"");
    }

    async fn hear_all(&self, wire: &Wire, mut hear: RecvStream) {
        loop {
            let frame = match wire.hear(&mut hear, HELLO_BYTES_MAX).await {
                Ok(Some(frame)) => frame,
                Ok(None) | Err(NotReceived::Lost) => return,
                Err(error) => return out_of_turn(wire, &error),
            };
            let message = frame::open(&frame).and_then(|(_, message)| frame::decode(&message));
            match message {
                Ok(Upward::Taken(numbers)) => {
                    if !numbers.into_iter().all(|number| self.outbox.taken(number)) {
                        return out_of_turn(wire, &"a notice that was never sent");
                    }
                }
                Ok(Upward::Probe) => {}
                Ok(Upward::Regulate(rule)) => wire.regulate(rule),
                Ok(Upward::Hello(_)) => return out_of_turn(wire, &"a second hello"),
                Err(error) => return out_of_turn(wire, &error),
            }
        }
    }

    async fn say_all(&self, wire: &Wire, mut say: Outgoing, probe: &Notify) {
        loop {
            let next = tokio::select! {
                next = self.outbox.next() => next,
                () = probe.notified() => {
                    if say_downward(wire, &mut say, &Downward::Probe).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            match next {
                Next::Send(number, notice) => {
                    let message = Downward::Notice { number, notice };
                    match say_downward(wire, &mut say, &message).await {
                        Ok(()) => {}
                        Err(NotSaid::Lost(_)) => return,
                        Err(NotSaid::TooLong(error)) => {
                            tracing::info!(%error, "a notice cannot be sent: attach anew");
                            return wire.connection.close(code::BEHIND, b"attach anew");
                        }
                    }
                }
                Next::Closed => return wire.connection.close(code::BEHIND, b"attach anew"),
            }
        }
    }
}

fn out_of_turn(wire: &Wire, what: &dyn std::fmt::Display) {
    let peer = wire.connection.remote_address();
    tracing::warn!(%peer, %what, "a caller does not keep to the protocol");
    wire.connection.close(code::OUT_OF_TURN, b"out of turn");
}

async fn answer_all<S: Session>(wire: &Arc<Wire>, session: Arc<S>) {
    // A peer may take back a request and make another at once; the work goes on meanwhile, so
    // what bounds it is not the number of streams.
    let free = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let Ok((send, receive)) = wire.connection.accept_bi().await else { return };
        let (wire, session) = (wire.clone(), session.clone());
        tokio::spawn(async move {
            answer(&wire, &*session, send, receive).await;
            drop(permit);
        });
    }
}

async fn answer<S: Session>(wire: &Wire, session: &S, send: SendStream, mut receive: RecvStream) {
    let (class, response) = match wire.receive(&mut receive).await {
        Ok(frame) => match read_request(&frame) {
            Ok((class, request)) => (class, session.answer(request).await),
            Err(error) => (Class::Interactive, malformed(&error)),
        },
        Err(NotReceived::TooLong) => {
            // It may have been stopped already, by its end.
            let _ = receive.stop(code::TOO_LONG);
            let error = Error::MessageTooLong {
                bytes: FRAME_BYTES_MAX as u64 + 1,
                bytes_max: frame::MESSAGE_BYTES_MAX,
            };
            (Class::Interactive, malformed(&error))
        }
        // Nobody waits for the answer.
        Err(NotReceived::BrokenOff | NotReceived::Lost) => return,
    };
    let sealed = seal_response(class, &response);
    // If it does not arrive, the one below finds out by itself.
    let _ = wire.send(Outgoing::new(send, class), class, sealed.frame).await;
}

fn read_request(frame: &[u8]) -> Result<(Class, Request), Error> {
    let (class, message) = frame::open(frame)?;
    Ok((class, frame::decode(&message)?))
}

fn malformed(error: &Error) -> Response {
    Response::Refused(Refusal::Malformed(error.to_string()))
}

fn seal_response(class: Class, response: &Response) -> Sealed {
    frame::seal(class, response, Squeeze::response(response)).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer cannot be sent");
        let refused = Response::Refused(Refusal::Failed(error.to_string()));
        frame::seal(class, &refused, Squeeze::No).expect("a refusal is short")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_becomes_a_refusal() {
        let payload = protocol::Payload {
            lengths: vec![],
            bytes: vec![0; frame::MESSAGE_BYTES_MAX].into(),
            plain: true,
        };
        let sealed = seal_response(Class::Demand, &Response::Bytes(payload));
        let (class, message) = frame::open(&sealed.frame).unwrap();
        assert_eq!(class, Class::Demand);
        let response: Response = frame::decode(&message).unwrap();
        assert!(matches!(response, Response::Refused(Refusal::Failed(_))));
    }
}
