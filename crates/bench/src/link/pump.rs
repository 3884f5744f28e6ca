//! The thread that carries the packets of one direction, as its `Shape` decides.

use super::run;
use super::shape::Shape;
use crate::error::Error;
use crate::{Result, profile::Lane};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest run of the devices, with what stands before it.
const PACKET_BYTES_MAX: usize = 1 << 17;
/// How many packets may be taken in before those that are due go out.
const BATCH_MAX: usize = 32;
/// Nothing to do: look again after this long.
const IDLE: Duration = Duration::from_secs(1);

pub struct Pump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    shape: Mutex<Shape<Vec<u8>>>,
    wake: OwnedFd,
    stop: AtomicBool,
}

impl Pump {
    /// Carries what can be read from one device to the other.
    pub fn start(lane: Lane, seed: u64, from: File, to: File) -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(Error::system("cannot make an eventfd"))?;
        let shared = Arc::new(Shared {
            start: Instant::now(),
            shape: Mutex::new(Shape::new(lane, seed)),
            wake,
            stop: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new()
            .name("link".into())
            .spawn({
                let shared = shared.clone();
                move || shared.carry(&from, &to)
            })
            .map_err(|source| Error::System { doing: "cannot start a thread", source })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Looks at the shape, or changes it, and lets the thread see the change.
    pub fn with<T>(&self, work: impl FnOnce(&mut Shape<Vec<u8>>, Duration) -> T) -> T {
        let result = work(&mut self.shared.shape(), self.shared.start.elapsed());
        self.shared.wake();
        result
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn shape(&self) -> MutexGuard<'_, Shape<Vec<u8>>> {
        self.shape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only when it is full of wakings that were not seen yet.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn carry(&self, from: &File, to: &File) {
        // By default the kernel may round waits up by 50 us: at 1 Gb/s, four packets' time.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        while !self.stop.load(Ordering::Acquire) {
            let next = self.step(&mut buffer, from, to);
            let now = self.start.elapsed();
            let wait = next.map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
            if !wait.is_zero() {
                self.wait(from, wait);
            }
        }
    }

    /// Takes in, gives out, and says when there will be something to give out again.
    fn step(&self, buffer: &mut [u8], mut from: &File, mut to: &File) -> Option<Duration> {
        for _ in 0..BATCH_MAX {
            // An error other than "nothing there" is a device that somebody took down: the
            // packets that it would have had are lost, as they are in life.
            let Ok(bytes) = from.read(buffer) else { break };
            // Whether it got in is counted there.
            let read = &buffer[..bytes];
            let _ = self.shape().offer(self.start.elapsed(), run::of(read), read.to_vec());
        }
        let mut shape = self.shape();
        let now = self.start.elapsed();
        let due: Vec<_> = std::iter::from_fn(|| shape.due(now)).collect();
        let next = shape.next_at();
        drop(shape);
        for packet in due {
            let _ = to.write(&packet);
        }
        next
    }

    fn wait(&self, from: &File, wait: Duration) {
        let until =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut watched =
            [PollFd::new(from, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        // Interrupted or not, the caller looks at everything again.
        let _ = poll(&mut watched, Some(&until));
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
    }
}
