//! A network between a client and its server: it can be cut, lead to another server, be slow, and
//! lose what is long.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const DATAGRAM_BYTES_MAX: usize = 65_536;

pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    cut: AtomicBool,
    /// Longer datagrams are lost.
    bytes_most: AtomicUsize,
    /// The longest that passed.
    longest: AtomicUsize,
    /// How many passed.
    passed: AtomicUsize,
    /// Bytes a second in each direction; 0 is without bound.
    rate: u64,
    delay: Duration,
    /// Bytes that may wait to be sent in each direction; what does not fit is lost.
    queue_bytes_max: usize,
    front: UdpSocket,
}

impl Relay {
    pub async fn to(target: SocketAddr) -> Relay {
        Relay::slow(target, 0, Duration::ZERO).await
    }

    /// With so many bytes a second, and so much delay, each way.
    pub async fn slow(target: SocketAddr, rate: u64, delay: Duration) -> Relay {
        Relay::with_queue(target, rate, delay, usize::MAX).await
    }

    pub async fn with_queue(
        target: SocketAddr,
        rate: u64,
        delay: Duration,
        queue_bytes_max: usize,
    ) -> Relay {
        let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            cut: AtomicBool::new(false),
            bytes_most: AtomicUsize::new(DATAGRAM_BYTES_MAX),
            longest: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            rate,
            delay,
            queue_bytes_max,
            front,
        });
        let task = tokio::spawn(forward(shared.clone()));
        Relay { address, shared, task }
    }

    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }

    pub fn cut(&self, cut: bool) {
        self.shared.cut.store(cut, Ordering::SeqCst);
    }

    /// From now on no longer datagrams pass, in either direction.
    pub fn pass_at_most(&self, bytes: usize) {
        self.shared.bytes_most.store(bytes, Ordering::SeqCst);
        self.shared.longest.store(0, Ordering::SeqCst);
        self.shared.passed.store(0, Ordering::SeqCst);
    }

    /// How many datagrams passed since then.
    pub fn passed(&self) -> usize {
        self.shared.passed.load(Ordering::SeqCst)
    }

    /// The longest datagram that passed since then.
    pub fn longest(&self) -> usize {
        self.shared.longest.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn passes(&self, bytes: usize) -> bool {
        let passes =
            !self.cut.load(Ordering::SeqCst) && bytes <= self.bytes_most.load(Ordering::SeqCst);
        if passes {
            self.longest.fetch_max(bytes, Ordering::SeqCst);
            self.passed.fetch_add(1, Ordering::SeqCst);
        }
        passes
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One direction: the time at which the last byte that was taken has left.
struct Lane {
    free: Instant,
    rate: u64,
    delay: Duration,
    queue_bytes_max: usize,
}

impl Lane {
    fn new(shared: &Shared) -> Lane {
        Lane {
            free: Instant::now(),
            rate: shared.rate,
            delay: shared.delay,
            queue_bytes_max: shared.queue_bytes_max,
        }
    }

    /// None: there is no room in the queue.
    fn arrival(&mut self, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        if self.rate > 0 {
            let waiting = self.free.saturating_duration_since(now).as_secs_f64();
            if (waiting * self.rate as f64) as usize > self.queue_bytes_max {
                return None;
            }
            let takes = Duration::from_secs_f64((bytes + 28) as f64 / self.rate as f64);
            self.free = self.free.max(now) + takes;
        } else {
            self.free = now;
        }
        Some(self.free + self.delay)
    }
}

async fn forward(shared: Arc<Shared>) {
    let mut backs: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut lane = Lane::new(&shared);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    // A datagram waits in its lane's queue until its time has come.
    let (queue, mut waiting) =
        tokio::sync::mpsc::unbounded_channel::<(Instant, Arc<UdpSocket>, SocketAddr, Vec<u8>)>();
    let sender = tokio::spawn(async move {
        while let Some((at, socket, to, bytes)) = waiting.recv().await {
            tokio::time::sleep_until(at).await;
            let _ = socket.send_to(&bytes, to).await;
        }
    });
    let _sender = AbortOnDrop(sender);
    let mut returns = Vec::new();
    loop {
        let Ok((bytes, client)) = shared.front.recv_from(&mut buffer).await else { continue };
        let back = match backs.get(&client) {
            Some(back) => back.clone(),
            None => {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
                backs.insert(client, back.clone());
                let task = tokio::spawn(give_back(shared.clone(), back.clone(), client));
                returns.push(AbortOnDrop(task));
                back
            }
        };
        if !shared.passes(bytes) {
            continue;
        }
        let target = *shared.target.lock().unwrap();
        if let Some(at) = lane.arrival(bytes) {
            let _ = queue.send((at, back, target, buffer[..bytes].to_vec()));
        }
    }
}

async fn give_back(shared: Arc<Shared>, back: Arc<UdpSocket>, client: SocketAddr) {
    let mut lane = Lane::new(&shared);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (queue, mut waiting) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let front = shared.clone();
    let _sender = AbortOnDrop(tokio::spawn(async move {
        while let Some((at, bytes)) = waiting.recv().await {
            tokio::time::sleep_until(at).await;
            let _ = front.front.send_to(&bytes, client).await;
        }
    }));
    loop {
        let Ok((bytes, _)) = back.recv_from(&mut buffer).await else { continue };
        if !shared.passes(bytes) {
            continue;
        }
        if let Some(at) = lane.arrival(bytes) {
            let _ = queue.send((at, buffer[..bytes].to_vec()));
        }
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
