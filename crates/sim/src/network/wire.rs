//! One session: what passes on it, and how it ends.

use super::passage::Direction;
use super::{LineId, Network};
use protocol::{Downstream, Event, Notice, Service};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use world::Moment;

/// A session as both ends have it.
pub(super) struct Connection<S: Service> {
    pub wire: Arc<Wire>,
    /// The origin drops it when it notices that the session is gone.
    session: Mutex<Option<Arc<S::Session>>>,
    /// Requests that the origin is at work on.
    handlers: Mutex<Vec<AbortHandle>>,
}

/// The part of a session that the origin holds while it makes one.
pub(super) struct Wire {
    pub line: LineId,
    passing: AtomicBool,
    below: Noticed,
    above: Noticed,
    outbox: mpsc::UnboundedSender<Parcel>,
    /// When the last notice arrives: none overtakes another.
    last_arrival: Mutex<Moment>,
}

/// A notice on its way.
struct Parcel {
    arrives: Moment,
    bytes: Vec<u8>,
    acknowledge: oneshot::Sender<()>,
}

/// Whether an end has noticed that the session is gone. Those who wait for it are woken in the
/// order in which they came.
#[derive(Default)]
struct Noticed {
    gone: AtomicBool,
    changed: Notify,
}

impl Noticed {
    fn notice(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    async fn wait(&self) {
        let changed = self.changed.notified();
        if !self.gone.load(Ordering::Relaxed) {
            changed.await;
        }
    }
}

impl Wire {
    pub fn passes(&self) -> bool {
        self.passing.load(Ordering::Relaxed)
    }

    /// Ready when the client's end has noticed that the session is gone.
    pub async fn noticed_below(&self) {
        self.below.wait().await;
    }

    async fn noticed_above(&self) {
        self.above.wait().await;
    }
}

impl<S: Service> Connection<S> {
    pub fn new(wire: Arc<Wire>, session: S::Session) -> Connection<S> {
        Connection {
            wire,
            session: Mutex::new(Some(Arc::new(session))),
            handlers: Mutex::new(Vec::new()),
        }
    }

    /// None: the origin has let go of it.
    pub fn session(&self) -> Option<Arc<S::Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request that the origin is at work on; it ends when the session ends, or with the
    /// origin's process.
    pub fn add_handler(&self, handler: AbortHandle) {
        let mut handlers = self.handlers();
        handlers.retain(|handler| !handler.is_finished());
        handlers.push(handler);
    }

    /// The origin's process dies: it works on nothing any more.
    pub fn abandon(&self) {
        for handler in self.handlers().drain(..) {
            handler.abort();
        }
    }

    /// Nothing passes from now on. The ends notice it after these times.
    pub fn sever(self: &Arc<Self>, network: &Network<S>, below: Duration, above: Duration) {
        if !self.wire.passing.swap(false, Ordering::Relaxed) {
            return;
        }
        let clock = network.inner.world.clock.clone();
        let wire = self.wire.clone();
        tokio::spawn(async move {
            clock.sleep(below).await;
            wire.below.notice();
        });
        let clock = network.inner.world.clock.clone();
        let entropy = network.inner.world.entropy.clone();
        let connection = self.clone();
        tokio::spawn(async move {
            clock.sleep(above).await;
            connection.wire.above.notice();
            connection.session.lock().unwrap_or_else(PoisonError::into_inner).take();
            // A server may finish what it has begun, or drop it where it stands.
            for handler in connection.handlers().drain(..) {
                if entropy.below(2) == 0 {
                    handler.abort();
                }
            }
        });
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Service> Network<S> {
    /// A wire for a new session of `line`, whose notices come out at `events`.
    pub(super) fn lay(&self, line: LineId, events: mpsc::UnboundedSender<Event>) -> Arc<Wire> {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let wire = Arc::new(Wire {
            line,
            passing: AtomicBool::new(true),
            below: Noticed::default(),
            above: Noticed::default(),
            outbox,
            last_arrival: Mutex::new(self.inner.world.clock.moment()),
        });
        tokio::spawn(self.clone().deliver_notices(wire.clone(), inbox, events));
        wire
    }

    async fn deliver_notices(
        self,
        wire: Arc<Wire>,
        mut inbox: mpsc::UnboundedReceiver<Parcel>,
        events: mpsc::UnboundedSender<Event>,
    ) {
        let clock = &self.inner.world.clock;
        loop {
            let parcel = tokio::select! {
                biased;
                () = wire.noticed_below() => return,
                parcel = inbox.recv() => parcel,
            };
            let Some(parcel) = parcel else { return };
            clock.sleep(parcel.arrives.since(clock.moment())).await;
            if !wire.passes() {
                continue;
            }
            let notice = match minicbor::decode::<Notice>(&parcel.bytes) {
                Ok(notice) => notice,
                Err(error) => return self.fault(format!("a notice cannot be decoded: {error}")),
            };
            let (done, taken) = oneshot::channel();
            if events.send(Event::Notice(notice, done)).is_err() {
                return;
            }
            let (network, wire) = (self.clone(), wire.clone());
            tokio::spawn(async move {
                // Whoever drops it has no use for it: that is an answer too.
                let _ = taken.await;
                let takes = network.travel(wire.line, Direction::Up, 8);
                network.inner.world.clock.sleep(takes).await;
                if wire.passes() {
                    // Nobody waits any more if the origin was too busy to.
                    let _ = parcel.acknowledge.send(());
                }
            });
        }
    }

    fn post(&self, wire: &Wire, notice: &Notice) -> oneshot::Receiver<()> {
        let (acknowledge, acknowledged) = oneshot::channel();
        let bytes = minicbor::to_vec(notice).expect("a vector takes every byte");
        self.inner.trace.note(
            &format!("origin>{}", wire.line),
            format_args!("notice {} ({} bytes)", super::describe::notice(notice), bytes.len()),
        );
        let takes = self.travel(wire.line, Direction::Down, bytes.len());
        let now = self.inner.world.clock.moment();
        let mut last = wire.last_arrival.lock().unwrap_or_else(PoisonError::into_inner);
        let arrives = (now + takes).max(*last);
        *last = arrives;
        // The pump is gone only if the session is.
        let _ = wire.outbox.send(Parcel { arrives, bytes, acknowledge });
        acknowledged
    }
}

/// A client, as the origin sees it.
pub struct SimDownstream<S: Service> {
    pub(super) network: Network<S>,
    pub(super) wire: Arc<Wire>,
}

impl<S: Service> Downstream for SimDownstream<S> {
    fn tell(&self, notice: Notice) -> impl Future<Output = bool> + Send {
        // Posted here and not when the future is first polled: the order of the calls counts.
        let acknowledged = self.network.post(&self.wire, &notice);
        let wire = self.wire.clone();
        async move {
            tokio::select! {
                biased;
                Ok(()) = acknowledged => true,
                () = wire.noticed_above() => false,
            }
        }
    }
}
