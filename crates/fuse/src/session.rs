//! A mount, from the first request to the last.
//! Holds: ends when the mount is gone, and never because of one request, nor does any of its threads.

use crate::answer::Reply;
use crate::asked::{Asked, Bad, HEAD_BYTES, read};
use crate::device::Device;
use crate::dispatch::{Filesystem, dispatch};
use crate::lending::Lender;
use crate::mounting::{self, How};
use crate::notice::Notifier;
use crate::opening::{Agreed, Opening, Wanted, open};
use crate::words::{Errno, InitFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::cell::RefCell;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a request has besides the bytes that it writes.
const BESIDES_BYTES: usize = 4096;
/// Requests before the first that tells what the kernel is.
const OPENINGS_MAX: u32 = 4;
/// So long a thread looks again and again for the next request before it sleeps. Waking it up takes
/// about as long on most machines, and programs that wait for one call after the other make the next
/// one within it.
const LOOKS_FOR: Duration = Duration::from_micros(20);
/// Looks before the clock is read again.
const LOOKS: u32 = 8;

/// How a file system is mounted, and what it asks of the kernel.
#[derive(Clone, Debug)]
pub struct Settings {
    pub how: How,
    pub flags: InitFlags,
    /// Bytes of one request to read or write, at most.
    pub bytes_max: u32,
    /// Requests for nobody in particular, at once.
    pub background_max: u16,
    /// With so many of them it counts as busy.
    pub busy_from: u16,
    /// Threads that read requests; at least one.
    pub threads: usize,
    /// Whether threads look for the next request for a moment before they sleep: not where there is
    /// one processor, which the program that asks needs.
    pub looks: bool,
}

/// A mount that is there. Requests wait until it runs.
#[derive(Debug)]
pub struct Session<F> {
    fs: F,
    device: Arc<Device>,
    settings: Settings,
    agreed: Agreed,
    idle: Idle,
}

/// The threads that wait for the next request of a mount.
#[derive(Clone, Debug, Default)]
pub struct Idle(Arc<AtomicUsize>);

impl Idle {
    /// Whether there is one: else nobody takes the next request before one of them has answered.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// What the threads of a mount share.
struct Shared<F> {
    fs: F,
    bytes_max: usize,
    looks: bool,
    /// One of them looks for requests without sleeping.
    looking: AtomicBool,
    idle: Idle,
}

impl<F: Filesystem> Session<F> {
    /// Mounts, and agrees with the kernel on what each side does. Errors: as mount(2) has them, or
    /// what fusermount3 said.
    pub fn mount(fs: F, mountpoint: &Path, settings: Settings) -> io::Result<Session<F>> {
        let device = Arc::new(mounting::make(mountpoint, &settings.how)?);
        let agreed = agree(&device, &settings)?;
        Ok(Session { fs, device, settings, agreed, idle: Idle::default() })
    }

    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// None: the kernel does not read files of others in the place of ours.
    pub fn lender(&self) -> Option<Lender> {
        let can = self.agreed.flags.contains(InitFlags::PASSTHROUGH);
        can.then(|| Lender::of(&self.device))
    }

    pub fn idle(&self) -> Idle {
        self.idle.clone()
    }

    pub fn notifier(&self) -> Notifier {
        Notifier::of(&self.device)
    }

    /// Answers requests until the mount is gone.
    pub fn run(self) -> io::Result<()> {
        let Session { fs, device, settings, idle, .. } = self;
        let bytes_max = usize::try_from(settings.bytes_max).unwrap_or(usize::MAX / 2);
        let looks = settings.looks;
        let looking = AtomicBool::new(false);
        let shared = Arc::new(Shared { fs, bytes_max, looks, looking, idle });
        let mut threads = Vec::new();
        for number in 1..settings.threads.max(1) {
            // Without a descriptor of its own a thread shares ours: an ordinary user may not be
            // allowed to open the device.
            let device = device.beside().map_or_else(|_| Arc::clone(&device), Arc::new);
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("fuse-{number}"));
            threads.push(thread.spawn(move || shared.serve(&device))?);
        }
        let mut outcome = shared.serve(&device);
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| {
                Err(io::Error::other("a thread that answers requests broke down"))
            });
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl<F> AsFd for Session<F> {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        let descriptor: &OwnedFd = self.device.descriptor();
        descriptor.as_fd()
    }
}

/// The first requests of a mount are about what each side does.
fn agree(device: &Arc<Device>, settings: &Settings) -> io::Result<Agreed> {
    let Settings { flags, bytes_max, background_max, busy_from, .. } = *settings;
    let wanted = Wanted { flags, bytes_max, background_max, busy_from };
    // As long as the kernel wants a buffer to be.
    let mut buffer = vec![0; BESIDES_BYTES * 4];
    for _ in 0..OPENINGS_MAX {
        let Some(count) = device.read(&mut buffer)? else { continue };
        let (request, offered) = match read(&buffer[..count]) {
            Ok((request, Asked::Init(offered))) => (request, offered),
            Ok((request, _)) | Err(Bad::Short(request)) => {
                Reply::to(device, request.unique).error(Errno::EIO);
                continue;
            }
            Err(Bad::NoHead) => continue,
        };
        let reply = Reply::to(device, request.unique);
        let (opening, answer) = open(&offered, &wanted);
        match opening {
            Opening::Agreed(agreed) => {
                reply.ok(&answer);
                return Ok(agreed);
            }
            Opening::Again => reply.ok(&answer),
            Opening::TooOld => {
                reply.error(Errno::EPERM);
                let (major, minor) = (offered.major, offered.minor);
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("the kernel speaks FUSE {major}.{minor}; Linux 5.4 or later is needed"),
                ));
            }
        }
    }
    Err(io::Error::other("the kernel does not say what it is"))
}

thread_local! {
    /// Those of the mount of which this thread takes requests.
    static ANSWERS: RefCell<Option<Idle>> = const { RefCell::new(None) };
}

/// Whether this thread takes requests: while it waits for something there is one fewer.
pub fn takes_requests() -> bool {
    ANSWERS.with_borrow(Option::is_some)
}

/// Whether this thread takes requests and no other one waits for the next: all programs in the mount
/// wait for what this one does.
pub fn holds_up_all() -> bool {
    ANSWERS.with_borrow(|idle| idle.as_ref().is_some_and(|idle| !idle.is_any()))
}

impl<F: Filesystem> Shared<F> {
    fn serve(&self, device: &Arc<Device>) -> io::Result<()> {
        ANSWERS.set(Some(self.idle.clone()));
        // Two descriptors: a thread that looks must not wait, and of threads that wait the kernel
        // wakes one only if they wait in a read.
        let looks = match self.looks {
            true => device.beside().and_then(Device::never_waiting).map(Arc::new).ok(),
            false => None,
        };
        let mut buffer = vec![0; self.bytes_max + BESIDES_BYTES];
        loop {
            self.idle.0.fetch_add(1, Ordering::AcqRel);
            let next = self.next(device, looks.as_ref(), &mut buffer);
            self.idle.0.fetch_sub(1, Ordering::AcqRel);
            let (device, count) = match next {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // The mount is gone.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(error) => return Err(error),
            };
            match read(&buffer[..count]) {
                Ok((request, asked)) => {
                    going_on(|| dispatch(&self.fs, device, &request, asked));
                }
                Err(Bad::Short(request)) => {
                    let opcode = request.opcode;
                    tracing::warn!(opcode, count, "the kernel's request cannot be read");
                    Reply::to(device, request.unique).error(Errno::EIO);
                }
                Err(Bad::NoHead) => {
                    tracing::warn!(count, least = HEAD_BYTES, "this is no request of the kernel's");
                }
            }
        }
    }

    /// The next request, and where it is to be answered. One thread looks for it a moment before it
    /// sleeps. None: look again.
    fn next<'a>(
        &self,
        device: &'a Arc<Device>,
        looks: Option<&'a Arc<Device>>,
        buffer: &mut [u8],
    ) -> io::Result<Option<(&'a Arc<Device>, usize)>> {
        if let Some(looks) = looks
            && !self.looking.swap(true, Ordering::AcqRel)
        {
            let found = look(looks, buffer);
            self.looking.store(false, Ordering::Release);
            if let Some(count) = found? {
                return Ok(Some((looks, count)));
            }
        }
        Ok(device.read(buffer)?.map(|count| (device, count)))
    }
}

/// Does what one request asks for. If that breaks down, this thread goes on with the next one: there are few,
/// and without any all programs in the mount would wait for good.
fn going_on(work: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("a request broke down: it was answered with EIO, and others go on");
    }
}

fn look(device: &Device, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let begun = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if let Some(count) = device.read(buffer)? {
                return Ok(Some(count));
            }
            std::hint::spin_loop();
        }
        if begun.elapsed() > LOOKS_FOR {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_request_that_breaks_down_is_answered_and_its_thread_goes_on_with_the_next() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let device = Arc::new(Device::of(ours));
        let thread = std::thread::spawn(move || {
            going_on(|| {
                let _reply = Reply::to(&device, 7);
                panic!("as a bug would");
            });
            going_on(|| Reply::to(&device, 8).ok(&[]));
        });
        assert!(thread.join().is_ok());
        for (unique, error) in [(7_u64, -libc::EIO), (8, 0)] {
            let mut answer = [0; 16];
            assert_eq!(rustix::io::read(&theirs, &mut answer).unwrap(), 16);
            assert_eq!(answer[4..8], error.to_ne_bytes());
            assert_eq!(answer[8..16], unique.to_ne_bytes());
        }
    }
}
