//! Carries out what the client wants the kernel to forget.
//!
//! The kernel takes a lock for it that a request of ours may hold while it waits for the link,
//! or waits for a page that such a request is filling. So threads of their own do it, and who
//! asks waits for them only so long.
//! Holds: whatever is asked is carried out, or it is logged that it was not; what concerns one
//! file is carried out in order, and holds up what concerns others only if many are held; and who asks
//! about many files then waits once, and not for each of them.
//! Never: runs on a thread that answers requests.

use crate::absent::Absent;
use crate::holders;
use crate::lending::Lending;
use client::{Client, Kernel, Lent, Process};
use fuse::{INodeNo, Idle, Notifier};
use model::{FileId, Name};
use protocol::Upstream;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::Containers;

/// How long who asks waits until it is carried out, while some request waits. After that it is
/// carried out later.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long if no request waits: then the machine is only slow. Others may wait for who asks.
const PATIENCE_MAX: Duration = Duration::from_secs(5);
/// How long at least, and for how many round trips, if a request waits that is about the same file: it
/// holds the lock of that, and may itself wait for who asks. Its answer may be on its way, too.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
const ROUND_TRIPS: u32 = 4;
/// How long if nobody takes the next request meanwhile: the kernel may wait for one that lies there, as
/// for a page that it is to fill, and who would take it may be who asks.
const PATIENCE_STARVED: Duration = Duration::from_millis(100);
/// For so long after it could not be told at once what a name in a directory leads to, the kernel asks
/// anew for each name there whenever it comes by.
const CONTENDED_FOR: Duration = Duration::from_secs(10);
/// What may be waiting to be carried out.
const QUEUE_MAX: usize = 65_536;
/// So many files can be held by requests that wait before the rest has to wait too.
const THREADS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forget {
    Attributes(FileId),
    Contents(FileId),
    /// And the contents from this byte on.
    End(FileId, u64),
    /// What is cached by all numbers but this one.
    Others(FileId, u64),
    Entry(FileId, Name),
    /// The name alone.
    Name(FileId, Name),
}

impl Forget {
    /// The file whose lock it takes.
    fn of(&self) -> FileId {
        match self {
            Forget::Attributes(file) | Forget::Contents(file) => *file,
            Forget::End(file, _) | Forget::Others(file, _) => *file,
            Forget::Entry(file, _) | Forget::Name(file, _) => *file,
        }
    }
}

impl fmt::Display for Forget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forget::Attributes(file) => write!(f, "the attributes of file {file}"),
            Forget::Contents(file) => write!(f, "the contents of file {file}"),
            Forget::End(file, from) => write!(f, "the contents of file {file} from {from} on"),
            Forget::Others(file, number) => {
                write!(f, "the contents of file {file} by another number than {number}")
            }
            Forget::Entry(directory, name) | Forget::Name(directory, name) => {
                write!(f, "{name} in directory {directory}")
            }
        }
    }
}

struct Job {
    forget: Forget,
    /// Learns whether it was carried out.
    done: SyncSender<bool>,
}

/// What is to be done to one file, in order, by one thread at a time.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    /// Since when a thread has been at the job before these.
    at_work: Option<Instant>,
}

#[derive(Default)]
struct Queue {
    lines: HashMap<FileId, Line>,
    /// Files with jobs that no thread is at.
    ready: VecDeque<FileId>,
    jobs: usize,
    /// Threads that are at a job, and since when all of them are.
    at_work: usize,
    all_at_work: Option<Instant>,
    /// The mount is gone: there is nothing left to forget.
    closed: bool,
}

/// How often the kernel has been told to forget something. An answer found before must not be
/// kept by the kernel after. And what it was told is not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    times: Arc<AtomicU64>,
    absent: Absent,
    contended: Arc<Mutex<HashMap<FileId, Instant>>>,
}

impl Told {
    pub(crate) fn count(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    pub(crate) fn absent(&self) -> &Absent {
        &self.absent
    }

    fn add(&self) {
        self.times.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the kernel is to keep nothing of the names in a directory, since it may not be told in
    /// time what others do with them.
    pub(crate) fn is_contended(&self, directory: FileId) -> bool {
        let contended = self.contended.lock().unwrap_or_else(PoisonError::into_inner);
        contended.get(&directory).is_some_and(|since| since.elapsed() < CONTENDED_FOR)
    }

    fn contend(&self, directory: FileId) {
        let mut contended = self.contended.lock().unwrap_or_else(PoisonError::into_inner);
        contended.retain(|_, since| since.elapsed() < CONTENDED_FOR);
        contended.insert(directory, Instant::now());
    }
}

/// The requests that wait for the link, by the files that they are about: each holds the kernel's lock
/// of those, or may.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits(Arc<Mutex<HashMap<FileId, Held>>>);

#[derive(Clone, Copy, Debug)]
struct Held {
    requests: usize,
    patience: Duration,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    waits: Waits,
    files: [Option<FileId>; 2],
}

impl Waits {
    /// `round_trip`: of the link that the request waits for.
    pub(crate) fn begin(&self, files: [Option<FileId>; 2], round_trip: Option<Duration>) -> Wait {
        let trips = round_trip.map_or(PATIENCE, |trip| trip * ROUND_TRIPS);
        let patience = trips.clamp(PATIENCE_MIN, PATIENCE);
        let mut held = self.held();
        for file in files.into_iter().flatten() {
            let held = held.entry(file).or_insert(Held { requests: 0, patience });
            held.requests += 1;
            held.patience = patience;
        }
        drop(held);
        Wait { waits: self.clone(), files }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<FileId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request waits that may hold the lock of this file.
    fn hold(&self, file: FileId) -> bool {
        self.held().contains_key(&file)
    }

    /// How long who wants something of this file forgotten waits for it.
    fn patience(&self, file: FileId) -> Duration {
        let held = self.held();
        match held.get(&file) {
            Some(held) => held.patience,
            None if held.is_empty() => PATIENCE_MAX,
            None => PATIENCE,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut held = self.waits.held();
        for file in self.files.into_iter().flatten() {
            let Some(of_file) = held.get_mut(&file) else { continue };
            of_file.requests -= 1;
            if of_file.requests == 0 {
                held.remove(&file);
            }
        }
    }
}

/// Who carries it out, one notice at a time.
pub(crate) trait Carry: Send + Sync + 'static {
    fn carry_out(&self, forget: &Forget) -> io::Result<()>;
}

pub(crate) struct Forgetter {
    shared: Arc<Shared>,
    told: Told,
    waits: Waits,
    lending: Lending,
    idle: Option<Idle>,
    takes_requests: fn() -> bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Forgetter {
    pub(crate) fn start(
        teller: impl Carry,
        told: Told,
        waits: Waits,
        (lending, idle): (Lending, Idle),
    ) -> io::Result<Forgetter> {
        let idle = Some(idle);
        Ok(Forgetter { lending, idle, ..Forgetter::carried_out_by(teller, told, waits)? })
    }

    fn carried_out_by(carrier: impl Carry, told: Told, waits: Waits) -> io::Result<Forgetter> {
        let shared = Arc::new(Shared::default());
        let carrier = Arc::new(carrier);
        for _ in 0..THREADS {
            let (carrier, shared) = (Arc::clone(&carrier), Arc::clone(&shared));
            std::thread::Builder::new()
                .name("farfs-forget".into())
                .spawn(move || shared.work_off(&*carrier))?;
        }
        let (lending, takes_requests) = (Lending::default(), fuse::takes_requests);
        Ok(Forgetter { shared, told, waits, lending, idle: None, takes_requests })
    }

    /// Takes no more, and lets the threads and the device go.
    pub(crate) fn close(&self) {
        let mut queue = self.shared.queue();
        *queue = Queue { closed: true, ..Queue::default() };
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Says whether it has been carried out; it will be, if not.
    fn ask(&self, forget: Forget) -> bool {
        self.told.add();
        let (done, carried_out) = sync_channel(1);
        let file = forget.of();
        let is_name = matches!(forget, Forget::Entry(..) | Forget::Name(..));
        if is_name && self.waits.hold(file) {
            self.told.contend(file);
        }
        let most = match forget {
            Forget::Others(..) => PATIENCE_MIN,
            _ => PATIENCE_MAX,
        };
        let mut queue = self.shared.queue();
        // Nothing is carried out of a line whose head is held, nor of any while all threads are, so there
        // is no sense in waiting. Who asks about one file after the other may be whom they wait for.
        let waited = queue.held_for(file);
        if !queue.add(Job { forget, done }) {
            return false;
        }
        drop(queue);
        self.shared.changed.notify_one();
        let begun = Instant::now();
        // Who takes no requests is not the one that is lacking.
        let others = !(self.takes_requests)();
        let mut starved = Duration::ZERO;
        while starved < PATIENCE_STARVED {
            let left = self.waits.patience(file).min(most).saturating_sub(waited + begun.elapsed());
            if left.is_zero() {
                break;
            }
            // Requests come and go meanwhile.
            match carried_out.recv_timeout(left.min(PATIENCE_MIN)) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_any = || self.idle.as_ref().is_none_or(Idle::is_any);
            starved = match others || is_any() {
                true => Duration::ZERO,
                false => starved + PATIENCE_MIN,
            };
        }
        if is_name {
            self.told.contend(file);
        }
        tracing::debug!("the kernel is busy; it is told later");
        false
    }
}

impl Queue {
    /// How long a thread has been at this file, or all of them at others.
    fn held_for(&self, file: FileId) -> Duration {
        let of_file = self.lines.get(&file).and_then(|line| line.at_work);
        let since = [of_file, self.all_at_work].into_iter().flatten().min();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// False if it will not be carried out.
    fn add(&mut self, job: Job) -> bool {
        if self.closed {
            return false;
        }
        if self.jobs >= QUEUE_MAX {
            let what = job.forget;
            tracing::warn!(%what, "too much to forget; the kernel may show this for a while");
            return false;
        }
        let file = job.forget.of();
        let line = self.lines.entry(file).or_default();
        if line.jobs.is_empty() && line.at_work.is_none() {
            self.ready.push_back(file);
        }
        line.jobs.push_back(job);
        self.jobs += 1;
        true
    }

    fn take(&mut self) -> Option<Job> {
        let file = self.ready.pop_front()?;
        let line = self.lines.get_mut(&file)?;
        let job = line.jobs.pop_front()?;
        let now = Instant::now();
        line.at_work = Some(now);
        self.jobs -= 1;
        self.at_work += 1;
        if self.at_work >= THREADS {
            self.all_at_work = Some(now);
        }
        Some(job)
    }

    /// The job that was taken of this file is done.
    fn finish(&mut self, file: FileId) {
        // After the mount there is none that was taken.
        self.at_work = self.at_work.saturating_sub(1);
        self.all_at_work = None;
        let Some(line) = self.lines.get_mut(&file) else { return };
        line.at_work = None;
        if line.jobs.is_empty() {
            self.lines.remove(&file);
        } else {
            self.ready.push_back(file);
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work_off(&self, carrier: &impl Carry) {
        let mut queue = self.queue();
        while !queue.closed {
            let Some(Job { forget, done }) = queue.take() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            let outcome = carrier.carry_out(&forget);
            match &outcome {
                Ok(()) => tracing::trace!(?forget, "forgotten"),
                // The mount is going away, and all that the kernel keeps with it.
                Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => (),
                Err(error) => {
                    tracing::warn!(what = %forget, %error, "the kernel did not forget");
                }
            }
            // Who asked may have gone on already.
            let _ = done.send(outcome.is_ok());
            queue = self.queue();
            queue.finish(forget.of());
        }
    }
}

impl Kernel for Forgetter {
    fn forget_node(&self, file: FileId, contents: bool) -> bool {
        self.ask(if contents { Forget::Contents(file) } else { Forget::Attributes(file) })
    }

    fn forget_from(&self, file: FileId, from: u64) -> bool {
        self.ask(Forget::End(file, from))
    }

    fn forget_others(&self, file: FileId, number: u64) -> bool {
        self.ask(Forget::Others(file, number))
    }

    fn forget_entry(&self, directory: FileId, name: &Name) {
        self.ask(Forget::Entry(directory, name.clone()));
    }

    fn forget_name(&self, directory: FileId, name: &Name) {
        self.ask(Forget::Name(directory, name.clone()));
    }

    fn forget_absent(&self) {
        for (directory, name) in self.told.absent().take() {
            self.forget_name(directory, &name);
        }
    }

    fn lend(&self, container: BorrowedFd<'_>) -> Option<Arc<dyn Lent>> {
        self.lending.lend(container)
    }

    fn takes_none(&self) -> Option<String> {
        self.lending.off()
    }

    fn has_ended(&self, process: Process) -> bool {
        holders::has_ended(process)
    }
}

/// Tells the kernel, by each number by which it may know a file.
pub(crate) struct Teller<U, C: Containers> {
    notifier: Notifier,
    client: Client<U, C>,
}

impl<U: Upstream, C: Containers> Teller<U, C> {
    pub(crate) fn new(notifier: Notifier, client: Client<U, C>) -> Teller<U, C> {
        Teller { notifier, client }
    }

    fn forget_file(&self, file: FileId, from: Option<u64>, but: Option<u64>) -> io::Result<()> {
        let numbers = self.client.numbers().all(file).into_iter();
        let outcomes = numbers.filter(|number| Some(*number) != but);
        let outcomes = outcomes.map(|number| {
            let number = INodeNo(number);
            self.notifier.forget_inode(number, from)
        });
        // What one of them holds up is no reason to leave out the others.
        outcomes.fold(Ok(()), Result::and)
    }

    fn forget_name(&self, directory: FileId, name: &Name) -> io::Result<()> {
        let name = OsStr::from_bytes(name.as_bytes());
        let directories = self.client.numbers().all(directory).into_iter();
        let outcomes = directories.map(|number| self.notifier.expire_entry(INodeNo(number), name));
        outcomes.fold(Ok(()), Result::and)
    }
}

impl<U: Upstream, C: Containers> Carry for Teller<U, C> {
    fn carry_out(&self, forget: &Forget) -> io::Result<()> {
        match forget {
            Forget::Attributes(file) => self.forget_file(*file, None, None),
            Forget::Contents(file) => self.forget_file(*file, Some(0), None),
            Forget::End(file, from) => self.forget_file(*file, Some(*from), None),
            Forget::Others(file, but) => self.forget_file(*file, Some(0), Some(*but)),
            Forget::Entry(directory, name) => {
                // The listing first: the kernel forgets it with a name only if it knows the name.
                self.notifier.forget_inode(INodeNo(directory.0), Some(0))?;
                self.forget_name(*directory, name)
            }
            Forget::Name(directory, name) => self.forget_name(*directory, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// Reports what is carried out; what concerns `stuck` waits until it is let go.
    struct Slow {
        stuck: FileId,
        held: Mutex<Option<Receiver<()>>>,
        seen: Mutex<Sender<Forget>>,
    }

    impl Carry for Slow {
        fn carry_out(&self, forget: &Forget) -> io::Result<()> {
            if matches!(forget, Forget::Entry(directory, _) if *directory == self.stuck)
                && let Some(held) = self.held.lock().unwrap().take()
            {
                let _ = held.recv();
            }
            self.seen.lock().unwrap().send(forget.clone()).map_err(io::Error::other)
        }
    }

    fn slow() -> (Forgetter, Sender<()>, Receiver<Forget>, Told) {
        let (let_go, held) = channel();
        let (seen, carried_out) = channel();
        let carrier =
            Slow { stuck: FileId(9), held: Mutex::new(Some(held)), seen: Mutex::new(seen) };
        let told = Told::default();
        let waits = Waits::default();
        let forgetter = Forgetter::carried_out_by(carrier, told.clone(), waits).unwrap();
        (forgetter, let_go, carried_out, told)
    }

    /// Whoever would take the request that the kernel waits for is waiting, too.
    #[test]
    fn who_asks_goes_on_soon_where_nobody_takes_the_next_request() {
        let (forgetter, let_go, carried_out, _) = slow();
        let idle = Some(Idle::default());
        let forgetter = Forgetter { idle, takes_requests: || true, ..forgetter };
        let begun = Instant::now();
        forgetter.forget_entry(FileId(9), &name("a"));
        assert!(begun.elapsed() < PATIENCE_MAX, "it is carried out later");
        let_go.send(()).unwrap();
        assert_eq!(carried_out.recv(), Ok(Forget::Entry(FileId(9), name("a"))));
    }

    #[test]
    fn who_asks_goes_on_when_it_is_done() {
        let (forgetter, _let_go, carried_out, told) = slow();
        assert!(forgetter.forget_node(FileId(5), false));
        assert_eq!(carried_out.try_recv(), Ok(Forget::Attributes(FileId(5))));
        forgetter.forget_node(FileId(5), true);
        assert_eq!(carried_out.try_recv(), Ok(Forget::Contents(FileId(5))));
        assert_eq!(told.count(), 2);
    }

    #[test]
    fn what_the_kernel_was_told_is_not_there_is_forgotten_name_by_name() {
        let (forgetter, _let_go, carried_out, told) = slow();
        let names = ["a", "b"].map(|text| (FileId(5), name(text)));
        for (directory, name) in &names {
            told.absent().add(*directory, name, PATIENCE_MAX, Instant::now());
        }
        forgetter.forget_absent();
        for (directory, name) in names {
            assert_eq!(carried_out.try_recv(), Ok(Forget::Name(directory, name)));
        }
        forgetter.forget_absent();
        assert!(carried_out.try_recv().is_err(), "of each it is told once");
    }

    #[test]
    fn a_directory_that_is_held_holds_nobody_else_and_is_forgotten_later() {
        let (forgetter, let_go, carried_out, _) = slow();
        let _request = forgetter.waits.begin([Some(FileId(7)), None], None);
        let start = Instant::now();
        forgetter.forget_entry(FileId(9), &name("a"));
        let waited = start.elapsed();
        assert!(waited >= PATIENCE && waited < 10 * PATIENCE, "{waited:?}");

        // More of the same waits for nothing, and leaves the other threads alone.
        let start = Instant::now();
        for number in 0..100 {
            forgetter.forget_entry(FileId(9), &name(&number.to_string()));
        }
        forgetter.forget_node(FileId(5), true);
        assert!(start.elapsed() < PATIENCE);
        assert_eq!(carried_out.try_recv(), Ok(Forget::Contents(FileId(5))));

        let_go.send(()).unwrap();
        let late: Vec<_> =
            (0..101).map(|_| carried_out.recv_timeout(10 * PATIENCE).unwrap()).collect();
        assert_eq!(late[0], Forget::Entry(FileId(9), name("a")));
        assert_eq!(late[100], Forget::Entry(FileId(9), name("99")));
    }

    /// As when a session begins anew while programs wait for it in as many files: until all is forgotten it
    /// has not begun, and nobody is answered.
    #[test]
    fn where_all_threads_are_held_who_asks_about_many_files_waits_once() {
        const MANY: u64 = 100;
        /// Waits with the first files until it is let go.
        struct Held(Mutex<Receiver<()>>, Mutex<Sender<Forget>>);
        impl Carry for Held {
            fn carry_out(&self, forget: &Forget) -> io::Result<()> {
                if forget.of().0 < THREADS as u64 {
                    let _ = self.0.lock().unwrap().recv();
                }
                self.1.lock().unwrap().send(forget.clone()).map_err(io::Error::other)
            }
        }
        let (let_go, held) = channel();
        let (seen, carried_out) = channel();
        let carrier = Held(Mutex::new(held), Mutex::new(seen));
        let (told, waits) = (Told::default(), Waits::default());
        let forgetter = Forgetter::carried_out_by(carrier, told, waits).unwrap();
        let _request = forgetter.waits.begin([Some(FileId(0)), None], None);
        let start = Instant::now();
        for file in 0..MANY {
            assert!(!forgetter.forget_node(FileId(file), true));
        }
        let waited = start.elapsed();
        assert!(waited < (THREADS as u32 + 2) * PATIENCE, "{waited:?}");
        drop(let_go);
        let late = (0..MANY).map(|_| carried_out.recv_timeout(10 * PATIENCE).unwrap());
        assert_eq!(late.count() as u64, MANY, "all are forgotten in the end");
        assert!(forgetter.forget_node(FileId(MANY), true), "it is waited for again");
    }

    #[test]
    fn a_kernel_that_is_only_slow_is_waited_for() {
        let (forgetter, let_go, carried_out, _) = slow();
        std::thread::spawn(move || {
            std::thread::sleep(2 * PATIENCE);
            let_go.send(())
        });
        // A request that is over holds nothing.
        drop(forgetter.waits.begin([Some(FileId(9)), None], None));
        forgetter.forget_entry(FileId(9), &name("a"));
        assert_eq!(carried_out.try_recv(), Ok(Forget::Entry(FileId(9), name("a"))));
    }

    #[test]
    fn a_directory_for_which_a_request_waits_is_waited_for_no_longer_than_its_answer_takes() {
        let waits = Waits::default();
        let patience = |file| waits.patience(FileId(file));
        assert_eq!(patience(9), PATIENCE_MAX);
        let both = [Some(FileId(9)), Some(FileId(8))];
        let near = waits.begin(both, Some(Duration::from_millis(1)));
        assert_eq!([9, 8, 7].map(patience), [PATIENCE_MIN, PATIENCE_MIN, PATIENCE]);
        let far = waits.begin([Some(FileId(9)), None], Some(Duration::from_millis(50)));
        assert_eq!(patience(9), Duration::from_millis(200));
        let unknown = waits.begin([Some(FileId(8)), None], None);
        assert_eq!(patience(8), PATIENCE);
        drop((near, unknown));
        assert_eq!([9, 8].map(patience), [Duration::from_millis(200), PATIENCE]);
        drop(far);
        assert_eq!(patience(9), PATIENCE_MAX);
    }

    #[test]
    fn who_asks_about_a_directory_for_which_a_request_waits_goes_on_soon() {
        let (forgetter, let_go, carried_out, _) = slow();
        let files = [Some(FileId(9)), None];
        let _request = forgetter.waits.begin(files, Some(Duration::from_millis(1)));
        let start = Instant::now();
        forgetter.forget_entry(FileId(9), &name("a"));
        assert!(start.elapsed() < PATIENCE);
        let_go.send(()).unwrap();
        let late = carried_out.recv_timeout(10 * PATIENCE).unwrap();
        assert_eq!(late, Forget::Entry(FileId(9), name("a")));
    }

    #[test]
    fn of_a_directory_that_others_change_while_a_request_waits_for_it_the_kernel_keeps_no_name() {
        let (forgetter, _let_go, _carried_out, told) = slow();
        let request = forgetter.waits.begin([Some(FileId(7)), None], None);
        forgetter.forget_entry(FileId(5), &name("a"));
        forgetter.forget_node(FileId(7), false);
        assert!(![5, 7].into_iter().any(|file| told.is_contended(FileId(file))));
        forgetter.forget_entry(FileId(7), &name("a"));
        drop(request);
        assert!(told.is_contended(FileId(7)), "others may do it again");
    }

    #[test]
    fn a_full_queue_takes_no_more_until_there_is_room() {
        let mut queue = Queue::default();
        let (done, _) = sync_channel(1);
        let add = |queue: &mut Queue, file| {
            queue.add(Job { forget: Forget::Attributes(FileId(file)), done: done.clone() })
        };
        for file in 0..QUEUE_MAX as u64 {
            assert!(add(&mut queue, file));
        }
        assert!(!add(&mut queue, 0));
        assert!(queue.take().is_some());
        assert!(add(&mut queue, 0));
    }

    #[test]
    fn after_the_mount_nothing_is_carried_out_and_nobody_waits() {
        let (forgetter, _let_go, carried_out, _) = slow();
        forgetter.close();
        let start = Instant::now();
        forgetter.forget_entry(FileId(9), &name("a"));
        assert!(start.elapsed() < PATIENCE);
        let silence = carried_out.recv_timeout(10 * PATIENCE);
        assert_eq!(silence, Err(RecvTimeoutError::Disconnected), "the threads are gone");
    }
}
