//! The replica above, over the network: one connection that is kept for days, and made again
//! when it is lost.
//!
//! ```text
//!            attempt            welcome              lost
//!   waiting ---------> greeting ---------> session ---------> waiting
//!      ^                  | |
//!      |     no answer    | | turned away, or another key
//!      +------------------+ +------------------------------> turned away --nudge--> greeting
//! ```
//!
//! Who was welcomed the last time takes it that it is again: `Up` comes when the hello has been said, and
//! what is asked then travels with it. Nothing is said before the handshake is over: of what travels
//! with its first packets (0-RTT) anybody could send a copy, and the server, who must do nothing for a
//! copy, would have to wait for the end of the handshake, which takes as long.
//!
//! Holds: `Up`, what happens in the session, and `Down` come in that order. Where nothing leads to the
//! server, `Down` says so once before the first session, too.

use crate::carry::Wire;
use crate::limits::NOTICES_SENT_MAX;
use crate::live::{Live, NoSession};
use crate::quality::Counters;
use crate::regulate::{Regulated, Regulation};
use crate::retry::Retry;
use crate::tls::{self, OtherKey, SERVER_NAME};
use crate::transport::{self, Congestion, Packets, code};
use crate::{Address, Error, Identity, Limits, route};
use protocol::{
    Class, Event, LinkQuality, Request, Response, Traffic, Unreachable, Upstream, Versions,
};
use quinn::TransportErrorCode;
use quinn::crypto::rustls::QuicClientConfig;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use world::World;

mod greeting;
mod keeping;

use greeting::Session;

/// Events that wait to be fetched: the notices of one session, and what is around them.
const EVENTS_WAITING_MAX: usize = NOTICES_SENT_MAX + 8;
/// A name server that takes longer is as good as none.
const RESOLVE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a farewell may take.
const FAREWELL_WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct RemoteConfig {
    pub address: Address,
    pub identity: Identity,
    /// The name that this device gives itself, for people to read.
    pub device_name: String,
    /// The token of an invitation, if the device is new.
    pub invitation: Option<String>,
    pub world: World,
    pub limits: Limits,
    /// The versions of the protocol to speak.
    pub versions: Versions,
    pub congestion: Congestion,
    pub packets: Packets,
    pub regulation: Regulation,
    /// This device has been let in by that server before.
    pub welcomed: bool,
}

impl RemoteConfig {
    pub fn new(address: Address, identity: Identity, device_name: String, world: World) -> Self {
        RemoteConfig {
            invitation: address.invitation.clone(),
            address,
            identity,
            device_name,
            world,
            limits: Limits::default(),
            versions: Versions::OURS,
            congestion: Congestion::ByDelay,
            packets: Packets::ByAddress,
            regulation: Regulation::default(),
            welcomed: false,
        }
    }
}

/// The replica above. Dropped, it ends its session.
pub struct Remote {
    shared: Arc<Shared>,
    events: tokio::sync::Mutex<mpsc::Receiver<Event>>,
}

struct Shared {
    config: RemoteConfig,
    tls: Arc<QuicClientConfig>,
    other_key: OtherKey,
    instance: u64,
    counters: Arc<Counters>,
    standing: Mutex<Standing>,
    regulated: Regulated,
    nudged: Notify,
    /// Somebody waits for a session: no rest before the next attempt.
    hurried: Notify,
    /// The server let us in the last time that it was asked.
    welcomed: AtomicBool,
    closed: watch::Sender<bool>,
}

/// How things stand with the session.
#[derive(Clone, Debug)]
enum Standing {
    Up(Arc<Live>),
    /// What whoever asks is told, and why, in words for the user.
    Down(Unreachable, Option<String>),
}

impl Remote {
    /// Begins to connect. Whether that works is told by events; without a network it goes on
    /// trying. Must be called within a tokio runtime.
    pub fn connect(config: RemoteConfig) -> Result<Remote, Error> {
        let other_key = OtherKey::default();
        let tls = tls::client(&config.identity, config.address.key, other_key.clone())?;
        let tls = QuicClientConfig::try_from(tls)
            .map_err(|error| Error::Tls(rustls::Error::General(error.to_string())))?;
        let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let regulation = config.regulation;
        let shared = Arc::new(Shared {
            instance: config.world.entropy.number(),
            welcomed: AtomicBool::new(config.welcomed),
            config,
            tls: Arc::new(tls),
            other_key,
            counters: Arc::default(),
            standing: Mutex::new(Standing::Down(Unreachable::NoLink, None)),
            regulated: Regulated::new(regulation),
            nudged: Notify::new(),
            hurried: Notify::new(),
            closed: watch::channel(false).0,
        });
        tokio::spawn(shared.clone().keep_on(sender));
        Ok(Remote { shared, events: tokio::sync::Mutex::new(receiver) })
    }

    /// The network, or the user, says that things may have changed: try now, even if the server
    /// has turned this device away; and if there is a session, look whether it still bears.
    pub fn nudge(&self) {
        match self.shared.standing() {
            Standing::Up(live) => live.nudge(),
            Standing::Down(..) => self.shared.nudged.notify_one(),
        }
    }

    /// How much may be sent and received from now on, and who goes first.
    pub fn regulate(&self, regulation: Regulation) {
        let before = self.shared.regulated.get();
        self.shared.regulated.set(regulation);
        if let Standing::Up(live) = self.shared.standing() {
            live.regulate(regulation, before);
        }
    }

    pub fn regulation(&self) -> Regulation {
        self.shared.regulated.get()
    }

    /// Why there is no session, in words for the user. None: there is one, or nothing has gone
    /// wrong yet.
    pub fn trouble(&self) -> Option<String> {
        match self.shared.standing() {
            Standing::Up(_) => None,
            Standing::Down(_, why) => why,
        }
    }

    /// Ends the session for good. Events that have come can still be fetched; after them, none.
    pub fn close(&self) {
        self.shared.closed.send_replace(true);
        if let Standing::Up(live) = self.shared.standing() {
            live.wire.connection.close(code::DONE, b"");
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
    }
}

impl Upstream for Remote {
    fn ask(
        &self,
        class: Class,
        request: Request,
    ) -> impl Future<Output = Result<Response, Unreachable>> + Send {
        let standing = self.shared.standing();
        async move {
            match standing {
                Standing::Up(live) => live.ask(class, request).await,
                Standing::Down(why, _) => Err(why),
            }
        }
    }

    async fn event(&self) -> Option<Event> {
        self.events.lock().await.recv().await
    }

    fn quality(&self) -> LinkQuality {
        match self.shared.standing() {
            Standing::Up(live) => {
                let Regulation { up, down, .. } = self.regulation();
                let quality = live.quality();
                let within = |rate: Option<u64>, limit: Option<u64>| {
                    rate.map(|rate| limit.map_or(rate, |limit| rate.min(limit)))
                };
                LinkQuality {
                    rate_up: within(quality.rate_up, up),
                    rate_down: within(quality.rate_down, down),
                    limit_up: up,
                    limit_down: down,
                    ..quality
                }
            }
            Standing::Down(..) => LinkQuality::default(),
        }
    }

    fn traffic(&self) -> Traffic {
        match self.shared.standing() {
            Standing::Up(live) => self.shared.counters.traffic(Some(&live.wire.connection)),
            Standing::Down(..) => self.shared.counters.traffic(None),
        }
    }

    fn look(&self) {
        match self.shared.standing() {
            Standing::Up(live) => live.nudge(),
            Standing::Down(..) => self.shared.hurried.notify_one(),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> Standing {
        self.lock().clone()
    }

    fn down(&self, why: Unreachable, trouble: Option<String>) {
        *self.lock() = Standing::Down(why, trouble);
    }

    /// Ends only when nobody fetches events any more.
    async fn keep_trying(&self, events: &mpsc::Sender<Event>) {
        let mut retry = Retry::new(&self.config.limits);
        let mut may_tell = true;
        loop {
            let attempt = tokio::select! {
                attempt = self.attempt(&retry) => attempt,
                // What was begun before the nudge may be on the wrong network.
                () = self.nudged.notified() => {
                    retry.nudged();
                    continue;
                }
            };
            let lived = match attempt {
                Ok(session) => {
                    may_tell = false;
                    self.live_through(session, &mut retry, events).await
                }
                Err(why) => Err(why),
            };
            let told = match lived {
                Ok(told) => told,
                Err(NoSession::Passing(why)) => {
                    tracing::debug!(%why, failures = retry.failures(), "no session");
                    self.down(Unreachable::NoLink, Some(why));
                    retry.failed();
                    true
                }
                Err(NoSession::Nowhere(why)) => {
                    tracing::debug!(%why, failures = retry.failures(), "nothing leads there");
                    self.down(Unreachable::NoLink, Some(why));
                    retry.failed();
                    let tells = std::mem::take(&mut may_tell);
                    !tells || events.send(Event::Down(Unreachable::NoWay)).await.is_ok()
                }
                Err(NoSession::Unanswered(why)) => {
                    tracing::debug!(%why, failures = retry.failures(), "no answer");
                    retry.failed();
                    continue;
                }
                Err(NoSession::Final(why)) => {
                    tracing::warn!(%why, "turned away");
                    self.welcomed.store(false, Ordering::Relaxed);
                    let unreachable = Unreachable::TurnedAway(why.clone());
                    self.down(unreachable.clone(), Some(why));
                    let told = events.send(Event::Down(unreachable)).await.is_ok();
                    self.nudged.notified().await;
                    retry.nudged();
                    // The next attempt follows the nudge at once.
                    self.down(Unreachable::NoLink, None);
                    if told {
                        continue;
                    }
                    false
                }
            };
            if !told {
                return;
            }
            self.rest(&mut retry).await;
        }
    }

    async fn rest(&self, retry: &mut Retry) {
        tokio::select! {
            () = self.pause(retry) => {}
            () = self.nudged.notified() => retry.nudged(),
        }
    }

    /// Between two attempts, the last of which has failed.
    async fn pause(&self, retry: &Retry) {
        let wait = retry.wait(self.config.world.entropy.number());
        tokio::select! {
            () = self.config.world.clock.sleep(wait) => {}
            () = self.hurried.notified() => {}
        }
    }

    /// False: nobody fetches events any more.
    async fn live_through(
        &self,
        session: Session,
        retry: &mut Retry,
        events: &mpsc::Sender<Event>,
    ) -> Result<bool, NoSession> {
        let Session { live, mut first, saying, welcomed } = session;
        let clock = &self.config.world.clock;
        let began = clock.moment();
        tracing::info!(server = %live.wire.connection.remote_address(), "session begun");
        *self.lock() = Standing::Up(live.clone());
        if events.send(Event::Up).await.is_err() {
            return Ok(false);
        }
        if !welcomed && let Err(why) = self.welcome(&live, &mut first).await {
            self.counters.ended(&live.wire.connection);
            live.end();
            self.down(Unreachable::NoLink, None);
            let passing = matches!(why, NoSession::Passing(_));
            if passing && events.send(Event::Down(Unreachable::Lost)).await.is_err() {
                return Ok(false);
            }
            let _ = self.within(FAREWELL_WAIT_MAX, live.told_of_end()).await;
            return Err(why);
        }
        self.welcomed.store(true, Ordering::Relaxed);
        live.regulate(self.regulated.get(), Regulation::default());
        let why = live.run(first, saying, events).await;
        let trouble = live.wire.connection.close_reason().map(|reason| lost(&reason));
        self.counters.ended(&live.wire.connection);
        self.down(Unreachable::NoLink, trouble);
        retry.lived(clock.moment().since(began), Some(live.wire.connection.rtt()));
        Ok(events.send(Event::Down(why)).await.is_ok())
    }

    /// One attempt to connect and be welcomed; with the rest after it, if nobody answers.
    async fn attempt(&self, retry: &Retry) -> Result<Session, NoSession> {
        let (peer, source) = self.resolve(retry).await?;
        let no_socket = |what| NoSession::Passing(format!("no socket could be opened: {what}"));
        let socket = transport::socket(route::unspecified(peer))
            .map_err(|error| no_socket(error.to_string()))?;
        let runtime =
            quinn::default_runtime().ok_or_else(|| no_socket("there is no runtime".to_owned()))?;
        let bytes_most = self.config.packets.bytes_most(peer.ip(), source);
        let endpoint = transport::client_endpoint(bytes_most);
        let endpoint = quinn::Endpoint::new(endpoint, None, socket, runtime)
            .map_err(|error| no_socket(error.to_string()))?;
        let mut config = quinn::ClientConfig::new(self.tls.clone());
        config.transport_config(Arc::new(transport::client(
            retry.round_trip(),
            self.config.congestion,
            bytes_most,
        )));

        let mut connecting = endpoint
            .connect_with(config, peer, SERVER_NAME)
            .map_err(|error| NoSession::Passing(error.to_string()))?;
        let connection = match self.within(retry.patience(), &mut connecting).await {
            Some(connection) => connection,
            None => {
                let why = self.unanswered(peer);
                self.down(Unreachable::NoLink, Some(why.clone()));
                let mut failed = retry.clone();
                failed.failed();
                // Over a link that is back, and longer than it was, the answer may be on its way.
                tokio::select! {
                    biased;
                    connection = &mut connecting => connection,
                    () = self.pause(&failed) => return Err(NoSession::Unanswered(why)),
                }
            }
        };
        let connection = connection.map_err(|error| self.not_connected(&error))?;
        let wire = Wire::new(connection, self.counters.clone(), &self.config.world);
        let clock = self.config.world.clock.clone();
        let (live, saying) = Live::new(wire, clock, self.config.limits, endpoint, Some(source));
        self.greeted(Arc::new(live), saying).await
    }

    /// The server's address to try next, and ours that leads there.
    async fn resolve(&self, retry: &Retry) -> Result<(SocketAddr, IpAddr), NoSession> {
        let Address { host, port, .. } = &self.config.address;
        let unknown =
            |why: &str| NoSession::Nowhere(format!("the address of {host} cannot be found: {why}"));
        let found = self.within(RESOLVE_WAIT_MAX, tokio::net::lookup_host((host.as_str(), *port)));
        let found: Vec<SocketAddr> = match found.await {
            Some(Ok(found)) => found.collect(),
            Some(Err(error)) => return Err(unknown(&error.to_string())),
            None => return Err(unknown("no name server answers")),
        };
        let routed: Vec<(SocketAddr, IpAddr)> = found
            .into_iter()
            .filter_map(|peer| route::source(peer).ok().map(|source| (peer, source)))
            .collect();
        if routed.is_empty() {
            let why = format!("there is no network that leads to {host}");
            return Err(NoSession::Nowhere(why));
        }
        // Each attempt takes the next.
        Ok(routed[retry.failures() as usize % routed.len()])
    }

    fn unanswered(&self, peer: SocketAddr) -> String {
        let Address { host, port, .. } = &self.config.address;
        let by_number = match host.parse::<IpAddr>() {
            Ok(_) => String::new(),
            Err(_) => format!(" ({peer})"),
        };
        format!("{host}:{port}{by_number} does not answer")
    }

    fn not_connected(&self, error: &quinn::ConnectionError) -> NoSession {
        let Some(seen) = self.other_key.take() else {
            return NoSession::Passing(lost(error));
        };
        let Address { host, port, key, .. } = &self.config.address;
        NoSession::Final(format!(
            "the server at {host}:{port} has the key {seen}, but the address says {key}. Either \
             the server has been set up anew with another key, or this is not the server that it \
             claims to be. Nothing was told to it. If whoever runs the server confirms the new \
             key, mount with the new address that it shows and --accept-new-key"
        ))
    }

    async fn within<F: Future>(&self, bound: Duration, future: F) -> Option<F::Output> {
        self.config.world.clock.within(bound, future).await
    }
}

/// Why there is no connection, for the user.
fn lost(error: &quinn::ConnectionError) -> String {
    use quinn::ConnectionError as E;
    match error {
        E::ApplicationClosed(close) if close.error_code == code::SHUTDOWN => {
            "the server has been stopped".to_owned()
        }
        E::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            "the server has too many callers".to_owned()
        }
        E::Reset => "the server has been restarted".to_owned(),
        E::LocallyClosed => "nothing was heard from the server".to_owned(),
        other => format!("the connection to the server was lost: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listener;
    use protocol::{Caller, Downstream, Service, Session, TurnedAway};
    use std::net::Ipv4Addr;

    struct Open;

    impl Service for Open {
        type Session = Open;

        async fn admit<D: Downstream>(&self, _: Caller, _: D) -> Result<Open, TurnedAway> {
            Ok(Open)
        }
    }

    impl Session for Open {
        async fn answer(&self, _: Request) -> Response {
            Response::Stored { useless: None, known: None }
        }
    }

    #[test]
    fn a_remote_can_be_shared_between_tasks() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<Remote>();
    }

    /// A server on loopback, and who may talk to it.
    fn served() -> (Arc<Listener<Open>>, RemoteConfig) {
        let (identity, world) = (Identity::generate().unwrap(), World::real());
        let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::bind(anywhere, &identity, Arc::new(Open), world.clone()).unwrap();
        let address = Address {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: listener.local_addr().unwrap().port(),
            volume: "notes".to_owned(),
            key: identity.fingerprint(),
            invitation: None,
        };
        let device = Identity::generate().unwrap();
        (Arc::new(listener), RemoteConfig::new(address, device, "laptop".to_owned(), world))
    }

    #[tokio::test]
    async fn a_session_moves_when_the_route_to_the_server_changes() {
        let (listener, config) = served();
        let serving = tokio::spawn({
            let listener = listener.clone();
            async move { listener.serve().await }
        });
        let remote = Remote::connect(config).unwrap();
        assert!(matches!(remote.event().await, Some(Event::Up)));
        let Standing::Up(live) = remote.shared.standing() else { panic!("it is up") };
        let port_before = live.port().unwrap();
        // As if packets had left from another address when the session began.
        live.left_from(Ipv4Addr::new(192, 0, 2, 1).into());
        remote.nudge();
        while live.port().unwrap() == port_before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let answer = remote.ask(Class::Interactive, Request::Measure).await;
        assert_eq!(
            answer,
            Ok(Response::Stored { useless: None, known: None }),
            "in the same session"
        );
        assert_eq!(listener.sessions(), 1);
        listener.close().await;
        serving.await.unwrap();
    }
}
