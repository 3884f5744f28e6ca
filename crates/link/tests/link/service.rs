//! A service in memory, and a server and a client around it.

use link::{Address, Identity, Limits, Listener, Remote, RemoteConfig};
use model::Seq;
use protocol::{
    Caller, Downstream, Event, Notice, Payload, Refusal, Request, Response, Service, Session, Tail,
    Totals, TurnedAway, Upstream, Versions,
};
use std::collections::HashSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use world::World;

/// Longer than anything here should take, even on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

pub const VOLUME: &str = "notes";
pub const INVITATION: &str = "welcome-1";

type Tell = Box<dyn Fn(Notice) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

#[derive(Default)]
pub struct Memory {
    pub known: Mutex<HashSet<Vec<u8>>>,
    pub invitations: Mutex<HashSet<String>>,
    pub callers: Mutex<Vec<Caller>>,
    pub busy: Mutex<Option<String>>,
    /// Nobody is let in before this says so, if it is there.
    pub admits: Mutex<Option<Arc<Notify>>>,
    tellers: Mutex<Vec<Tell>>,
    /// Sessions that live, and the most requests that were under way at once.
    pub sessions: Arc<AtomicUsize>,
    pub answering: Arc<AtomicUsize>,
    pub answering_most: Arc<AtomicUsize>,
}

impl Memory {
    pub fn inviting() -> Arc<Memory> {
        let memory = Memory::default();
        memory.invitations.lock().unwrap().insert(INVITATION.to_owned());
        Arc::new(memory)
    }

    /// Tells the session that began last.
    pub fn tell(&self, upto: u64) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let tellers = self.tellers.lock().unwrap();
        tellers.last().expect("there is a session")(Notice { upto: Seq(upto), ..Notice::default() })
    }
}

impl Service for Memory {
    type Session = MemorySession;

    async fn admit<D: Downstream>(
        &self,
        caller: Caller,
        downstream: D,
    ) -> Result<MemorySession, TurnedAway> {
        let admits = self.admits.lock().unwrap().clone();
        if let Some(admits) = admits {
            admits.notified().await;
        }
        if let Some(why) = self.busy.lock().unwrap().clone() {
            return Err(TurnedAway::Busy(why));
        }
        if caller.volume != VOLUME {
            return Err(TurnedAway::NotInvited);
        }
        let mut known = self.known.lock().unwrap();
        if !known.contains(&caller.device) {
            let token = caller.invitation.as_ref();
            let mut invitations = self.invitations.lock().unwrap();
            if !token.is_some_and(|token| invitations.remove(token)) {
                return Err(TurnedAway::NotInvited);
            }
            known.insert(caller.device.clone());
        }
        self.callers.lock().unwrap().push(caller);
        let downstream = Arc::new(downstream);
        self.tellers.lock().unwrap().push(Box::new(move |notice| {
            let told = downstream.clone();
            // The order is that of the calls.
            let (sender, receiver) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let _ = sender.send(told.tell(notice).await);
            });
            Box::pin(async move { receiver.await.unwrap_or(false) })
        }));
        self.sessions.fetch_add(1, Ordering::SeqCst);
        Ok(MemorySession {
            sessions: self.sessions.clone(),
            answering: self.answering.clone(),
            answering_most: self.answering_most.clone(),
        })
    }
}

pub struct MemorySession {
    sessions: Arc<AtomicUsize>,
    answering: Arc<AtomicUsize>,
    answering_most: Arc<AtomicUsize>,
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session for MemorySession {
    async fn answer(&self, request: Request) -> Response {
        let now = self.answering.fetch_add(1, Ordering::SeqCst) + 1;
        self.answering_most.fetch_max(now, Ordering::SeqCst);
        let response = match request {
            Request::Measure => Response::Measured(Totals { files: 7, ..Totals::default() }),
            Request::Put { payload, .. } => Response::Measured(Totals {
                bytes: payload.bytes.len() as u64,
                files: sum(&payload.bytes),
                ..Totals::default()
            }),
            Request::Read { ranges, .. } => {
                let bytes = ranges.iter().map(|range| range.length).sum::<u64>();
                let bytes = pattern(usize::try_from(bytes).unwrap());
                let lengths = vec![bytes.len() as u32];
                Response::Bytes(Payload { lengths, bytes: bytes.into(), plain: true })
            }
            // Takes as many milliseconds as it says.
            Request::Renew { seen } => {
                tokio::time::sleep(Duration::from_millis(seen.0)).await;
                Response::Renewed {
                    tail: Tail::TooFar(seen),
                    wanted: None,
                    allowance: None,
                    conflicts: None,
                }
            }
            _ => Response::Refused(Refusal::NotAttached),
        };
        self.answering.fetch_sub(1, Ordering::SeqCst);
        response
    }
}

/// Bytes that no compressor makes smaller, the same every time.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let mut pattern = vec![0; bytes];
    world::Entropy::seeded(bytes as u64).fill(&mut pattern);
    pattern
}

pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

pub struct Server {
    pub listener: Arc<Listener<Memory>>,
    pub identity: Identity,
    serving: JoinHandle<()>,
}

impl Server {
    pub fn start(memory: &Arc<Memory>) -> Server {
        let identity = Identity::generate().unwrap();
        Server::start_at(memory, identity, ([127, 0, 0, 1], 0).into(), Versions::OURS)
    }

    pub fn start_at(
        memory: &Arc<Memory>,
        identity: Identity,
        address: SocketAddr,
        versions: Versions,
    ) -> Server {
        let (limits, world) = (limits(), World::real());
        let listener =
            Listener::bind_with(address, &identity, memory.clone(), world, limits, versions);
        let listener = Arc::new(listener.unwrap());
        let serving = tokio::spawn({
            let listener = listener.clone();
            async move { listener.serve().await }
        });
        Server { listener, identity, serving }
    }

    pub fn socket(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub fn address(&self) -> Address {
        Address {
            host: self.socket().ip().to_string(),
            port: self.socket().port(),
            volume: VOLUME.to_owned(),
            key: self.identity.fingerprint(),
            invitation: Some(INVITATION.to_owned()),
        }
    }

    /// A remote of a new device, with the invitation.
    pub fn connect(&self) -> Remote {
        Remote::connect(self.config(Identity::generate().unwrap())).unwrap()
    }

    pub fn config(&self, device: Identity) -> RemoteConfig {
        let mut config =
            RemoteConfig::new(self.address(), device, "laptop".to_owned(), World::real());
        config.limits = limits();
        config
    }

    pub async fn stop(self) {
        self.listener.close().await;
        within(self.serving).await.unwrap();
    }
}

pub fn limits() -> Limits {
    Limits { retry_first: Duration::from_millis(20), ..Limits::default() }
}

pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("it should not take so long")
}

pub async fn event(remote: &Remote) -> Event {
    within(remote.event()).await.expect("the remote has not been closed")
}

pub async fn up(remote: &Remote) {
    let event = event(remote).await;
    assert!(matches!(event, Event::Up), "{event:?}");
}

pub async fn ask(remote: &Remote, request: Request) -> Response {
    within(remote.ask(protocol::Class::Interactive, request)).await.unwrap()
}

/// Waits until `holds`.
pub async fn until(holds: impl Fn() -> bool) {
    within(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
