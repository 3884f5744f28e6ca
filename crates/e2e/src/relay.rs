//! A link on the loopback: a UDP relay between a client and a server, with rate, delay, loss,
//! cuts and counters, as the emulator of `bench` has them; without network namespaces.
//! Holds: no datagram gets across but through a `Shape`; counters count UDP and IP headers too.

use bench::link::shape::{Run, Shape};
use bench::{Lane, Traffic};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const DATAGRAM_BYTES_MAX: usize = 65_536;
const HEADER_BYTES: usize = 28;
/// How many datagrams of one side may be taken in before those that are due go out.
const BATCH_MAX: usize = 64;
/// With nothing to do: how soon a change that was asked for is seen.
const IDLE: Duration = Duration::from_millis(20);
/// A burst of a fast sender must fit; a relay that drops what it should not measures itself.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The same datagrams are lost in every run.
const SEED: u64 = 0x6661_7266_7300;

/// As good as no link at all.
pub fn fast() -> Lane {
    Lane::new(1_000_000_000, Duration::ZERO)
}

/// Carries datagrams until it is dropped.
pub struct Relay {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    up: Mutex<Shape<Vec<u8>>>,
    down: Mutex<Shape<Vec<u8>>>,
    new_source: AtomicBool,
    stop: AtomicBool,
}

/// The sockets of a relay, and who is at their other ends.
struct Carrier {
    shared: Arc<Shared>,
    near: UdpSocket,
    far: UdpSocket,
    server: SocketAddr,
    /// Where the last datagram from the client came from.
    client: Option<SocketAddr>,
}

impl Relay {
    pub fn start(server: SocketAddr, up: Lane, down: Lane) -> Relay {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            up: Mutex::new(Shape::new(up, SEED)),
            down: Mutex::new(Shape::new(down, SEED + 1)),
            new_source: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let near = socket();
        let address = near.local_addr().expect("it has just been bound");
        let mut carrier =
            Carrier { shared: shared.clone(), near, far: socket(), server, client: None };
        let thread = std::thread::spawn(move || carrier.carry());
        Relay { shared, address, thread: Some(thread) }
    }

    /// Where clients send what is for the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses everything that is under way, and whatever comes, until `restore`.
    pub fn cut(&self) {
        self.shared.up().cut();
        self.shared.down().cut();
    }

    pub fn restore(&self) {
        let now = self.shared.start.elapsed();
        self.shared.up().restore(now);
        self.shared.down().restore(now);
    }

    /// From the next datagram on.
    pub fn shape(&self, up: Lane, down: Lane) {
        let now = self.shared.start.elapsed();
        self.shared.up().set_lane(now, up);
        self.shared.down().set_lane(now, down);
    }

    /// From now on the server sees the client at another port, as after a change of network.
    pub fn change_address(&self) {
        self.shared.new_source.store(true, Ordering::Release);
    }

    /// `up` is from the client to the server.
    pub fn traffic(&self) -> Traffic {
        Traffic { up: self.shared.up().counters(), down: self.shared.down().counters() }
    }

    /// What went over the link while something was done.
    pub fn traffic_of<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.traffic().bytes();
        let value = work();
        (value, self.traffic().bytes() - before)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn up(&self) -> MutexGuard<'_, Shape<Vec<u8>>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn down(&self) -> MutexGuard<'_, Shape<Vec<u8>>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).expect("the loopback has a free port");
    socket.set_nonblocking(true).expect("every socket can be made so");
    // Beyond the system's limit it is cut down to that, which is as good as can be had.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    socket
}

impl Carrier {
    fn carry(&mut self) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while !self.shared.stop.load(Ordering::Acquire) {
            if self.shared.new_source.swap(false, Ordering::AcqRel) {
                self.far = socket();
            }
            self.take_in(&mut buffer);
            let next = self.give_out();
            let wait =
                next.map_or(IDLE, |at| at.saturating_sub(self.shared.start.elapsed()).min(IDLE));
            if !wait.is_zero() {
                self.wait(wait);
            }
        }
    }

    fn take_in(&mut self, buffer: &mut [u8]) {
        for _ in 0..BATCH_MAX {
            let Ok((bytes, from)) = self.near.recv_from(buffer) else { break };
            self.client = Some(from);
            let now = self.shared.start.elapsed();
            let _ = self.shared.up().offer(
                now,
                Run::one(bytes + HEADER_BYTES),
                buffer[..bytes].to_vec(),
            );
        }
        for _ in 0..BATCH_MAX {
            // An error may be the server's port, closed while it is down: the same as nothing.
            let Ok((bytes, from)) = self.far.recv_from(buffer) else { break };
            if from == self.server {
                let now = self.shared.start.elapsed();
                let packet = buffer[..bytes].to_vec();
                let _ = self.shared.down().offer(now, Run::one(bytes + HEADER_BYTES), packet);
            }
        }
    }

    /// When there will be something to give out again.
    fn give_out(&self) -> Option<Duration> {
        let now = self.shared.start.elapsed();
        let due = |shape: &mut Shape<Vec<u8>>| {
            let due: Vec<_> = std::iter::from_fn(|| shape.due(now)).collect();
            (due, shape.next_at())
        };
        let (up, next_up) = due(&mut self.shared.up());
        let (down, next_down) = due(&mut self.shared.down());
        // A datagram that the system does not take is lost, as they are in life.
        for packet in up {
            let _ = self.far.send_to(&packet, self.server);
        }
        if let Some(client) = self.client {
            for packet in down {
                let _ = self.near.send_to(&packet, client);
            }
        }
        [next_up, next_down].into_iter().flatten().min()
    }

    fn wait(&self, wait: Duration) {
        let until =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut watched =
            [PollFd::new(&self.near, PollFlags::IN), PollFd::new(&self.far, PollFlags::IN)];
        // Interrupted or not, everything is looked at again.
        let _ = poll(&mut watched, Some(&until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (UdpSocket, UdpSocket, Relay) {
        let (client, server) = (socket(), socket());
        for socket in [&client, &server] {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        let relay = Relay::start(server.local_addr().unwrap(), fast(), fast());
        client.connect(relay.address()).unwrap();
        (client, server, relay)
    }

    #[test]
    fn datagrams_cross_both_ways_and_are_counted() {
        let (client, server, relay) = ends();
        let mut buffer = [0; 100];
        client.send(b"question").unwrap();
        let (bytes, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], b"question");
        server.send_to(b"answer", from).unwrap();
        let bytes = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], b"answer");
        let traffic = relay.traffic();
        assert_eq!((traffic.up.delivered.bytes, traffic.down.delivered.bytes), (36, 34));
    }

    #[test]
    fn a_cut_stops_everything_and_a_new_address_is_another() {
        let (client, server, relay) = ends();
        let mut buffer = [0; 100];
        client.send(b"first").unwrap();
        let (_, before) = server.recv_from(&mut buffer).unwrap();
        relay.cut();
        client.send(b"lost").unwrap();
        crate::eventually(Duration::from_secs(5), "the cut is counted", || {
            relay.traffic().up.cut.packets == 1
        });
        relay.restore();
        relay.change_address();
        crate::eventually(Duration::from_secs(5), "the address has changed", || {
            client.send(b"again").unwrap();
            server.recv_from(&mut buffer).unwrap().1 != before
        });
    }
}
