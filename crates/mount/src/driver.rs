//! Carries one request to its answer: at once if it can be, or by a task that waits.
//! Holds: the thread that brought the request never waits for the link; every wait is bounded
//! by the client and ends early when the waiting process is to end.

use crate::absent::Absent;
use crate::errno::{self, Named};
use crate::kernel::{Told, Waits};
use crate::listings::Listings;
use crate::signals::Ends;
use crate::watch::{Waiting, Watch};
use client::{Client, Done, Error, Growing, Step, Stop, complete};
use fuse::{Errno, INodeNo, Request};
use model::FileId;
use protocol::{Objection, Upstream};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Containers;
use tokio::runtime::Handle;

pub(crate) struct Driver<U, C: Containers> {
    client: Client<U, C>,
    runtime: Handle,
    watch: Arc<Watch>,
    told: Told,
    waits: Waits,
    listings: Listings,
    /// Reading moves times of access.
    notes_reads: bool,
    /// The last file of which something was lost that a program had written to a mapping.
    lost_of: Arc<AtomicU64>,
}

impl<U, C: Containers> Clone for Driver<U, C> {
    fn clone(&self) -> Self {
        Driver {
            client: self.client.clone(),
            runtime: self.runtime.clone(),
            watch: self.watch.clone(),
            told: self.told.clone(),
            waits: self.waits.clone(),
            listings: self.listings.clone(),
            notes_reads: self.notes_reads,
            lost_of: Arc::clone(&self.lost_of),
        }
    }
}

/// What must be known of a request to wait for it and to log it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    what: &'static str,
    file: FileId,
    /// Another directory that the call is about.
    to: Option<FileId>,
    /// The thread that waits for the answer.
    thread: u32,
    /// The kernel's number for the request.
    request: u64,
    named: Named,
    /// It changes nothing.
    asks: bool,
    /// How often it is decided anew, if somebody elsewhere was first.
    anew: u32,
}

/// Who has the origin say no so often in a row is told.
const ANEW_MAX: u32 = 32;

impl Call {
    /// A request about a file that the kernel knows by its id.
    pub(crate) fn of(what: &'static str, request: &Request, file: INodeNo) -> Call {
        let (thread, request) = (request.pid(), request.unique());
        let (file, named) = (FileId(file.0), Named::ById);
        Call { what, file, to: None, thread, request, named, asks: false, anew: 0 }
    }

    /// A request about a name in a directory.
    pub(crate) fn within(what: &'static str, request: &Request, directory: INodeNo) -> Call {
        Call { named: Named::ByName, ..Call::of(what, request, directory) }
    }

    /// It changes nothing: whoever makes it may be told that he was interrupted.
    pub(crate) fn that_asks(self) -> Call {
        Call { asks: true, ..self }
    }

    pub(crate) fn and_to(self, directory: INodeNo) -> Call {
        Call { to: Some(FileId(directory.0)), ..self }
    }

    /// The call is about whatever has the name, and not about what was there when it was made: where
    /// the origin finds something else there, it is decided anew.
    pub(crate) fn of_whatever_is_there(self) -> Call {
        Call { anew: ANEW_MAX, ..self }
    }

    pub(crate) fn refused(&self, error: &Error) -> Errno {
        let errno = errno::errno(error, self.named);
        tracing::debug!(what = self.what, file = %self.file, %error, "answered with an error");
        errno
    }

    fn seen<T>(&self, outcome: Result<T, Error>) -> Result<T, Errno> {
        outcome.map_err(|error| self.refused(&error))
    }
}

/// How often it is looked again whether something is there at all, and how long after.
const PAUSES_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// For calls that have nothing to wait for once they are done.
pub(crate) fn at_once<T>(value: T) -> Done<T> {
    Done { value, wait: None }
}

impl<U: Upstream, C: Containers> Driver<U, C> {
    pub(crate) fn new(
        client: Client<U, C>,
        runtime: Handle,
        watch: Watch,
        told: Told,
        waits: Waits,
    ) -> Self {
        let watch = Arc::new(watch);
        let listings = Listings::default();
        let lost_of = Arc::default();
        Driver { client, runtime, watch, told, waits, listings, notes_reads: false, lost_of }
    }

    /// What was written to a mapping was refused, which no call of the program's may tell. It comes
    /// page by page: of one file it is said once.
    pub(crate) fn mapped_was_lost(&self, file: FileId, errno: Errno) {
        if self.lost_of.swap(file.0, Ordering::AcqRel) != file.0 {
            let error = std::io::Error::from_raw_os_error(errno.code());
            tracing::warn!(
                %file, %error,
                "what a program wrote to a mapping could not be kept: only its fsync, msync or close \
                 is told"
            );
        }
    }

    /// What the kernel has of the contents of a file may be as it was before a write.
    pub(crate) fn is_read_anew(&self, file: FileId) {
        let client = self.client.clone();
        self.runtime.spawn_blocking(move || client.forget_what_is_cached(file, true));
    }

    /// Answers a write when the kernel has nothing of the end of the file that is as it was before.
    pub(crate) fn when_grown(
        &self,
        growing: Option<Growing<U, C>>,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let Some(growing) = growing.filter(Growing::may_be_cached) else { return answer() };
        self.runtime.spawn_blocking(move || {
            growing.is_read_anew();
            answer();
        });
    }

    /// Whether reading moves times of access from now on.
    pub(crate) fn noting_reads(self, notes_reads: bool) -> Self {
        Driver { notes_reads, ..self }
    }

    pub(crate) fn notes_reads(&self) -> bool {
        self.notes_reads
    }

    /// The kernel says that whoever waits for this request was sent a signal. Which one it was it
    /// does not say.
    pub(crate) fn interrupted(&self, request: u64) {
        tracing::debug!(target: "mount::asked", what = "interrupt", request);
        self.watch.look_now(request);
    }

    /// What the kernel has listed.
    pub(crate) fn absent(&self) -> &Absent {
        self.told.absent()
    }

    pub(crate) fn listings(&self) -> &Listings {
        &self.listings
    }

    pub(crate) fn client(&self) -> &Client<U, C> {
        &self.client
    }

    /// Tries, waits for what is missing and tries again, waits for the verdict, answers.
    pub(crate) fn serve<T, A, F>(&self, call: Call, mut attempt: A, answer: F)
    where
        T: Send + 'static,
        A: FnMut(&Client<U, C>) -> Step<Done<T>> + Send + 'static,
        F: FnOnce(Result<T, Errno>) + Send + 'static,
    {
        let first = attempt(&self.client);
        self.go_on(call, first, || attempt, answer);
    }

    /// On a thread that takes no requests.
    pub(crate) fn beside(&self, work: impl FnOnce() + Send + 'static) {
        self.runtime.spawn_blocking(work);
    }

    /// As `serve`, of what waits for the disk or works on a whole file: on a thread that takes no
    /// requests, where no other one takes the next meanwhile.
    pub(crate) fn serve_beside<T, A, F>(&self, call: Call, attempt: A, answer: F)
    where
        T: Send + 'static,
        A: FnMut(&Client<U, C>) -> Step<Done<T>> + Send + 'static,
        F: FnOnce(Result<T, Errno>) + Send + 'static,
    {
        if !fuse::holds_up_all() {
            return self.serve(call, attempt, answer);
        }
        let driver = self.clone();
        self.runtime.spawn_blocking(move || driver.serve(call, attempt, answer));
    }

    /// As `serve`; the answer also learns how long the kernel may keep what it is told.
    pub(crate) fn serve_kept<T, A, F>(&self, call: Call, mut attempt: A, answer: F)
    where
        T: Send + 'static,
        A: FnMut(&Client<U, C>) -> Step<Done<T>> + Send + 'static,
        F: FnOnce(Result<(T, Duration), Errno>) + Send + 'static,
    {
        let (told, told_then) = (self.told.clone(), self.told.clone());
        let client = self.client.clone();
        let attempt = move |client: &Client<U, C>| {
            let count = told_then.count();
            let Done { value, wait } = attempt(client)?;
            Ok(Done { value: (value, count), wait })
        };
        self.serve(call, attempt, move |outcome| {
            answer(outcome.map(|(value, count)| {
                // What was forgotten since may be what was found.
                let fresh = told.count() == count && !told.is_contended(call.file);
                (value, if fresh { client.cache_for() } else { Duration::ZERO })
            }));
        });
    }

    /// Who wanted what is not here is named with it.
    fn note_asker(&self, call: &Call, error: &Error) {
        if matches!(error, Error::Unreachable(_) | Error::TakesLong { .. })
            && let Some(program) = program(call.thread)
        {
            self.client.note_program(call.file, &program);
        }
    }

    /// As `serve`, from a first try that has been made. `again` makes what further tries need;
    /// a request that is answered at once never does.
    pub(crate) fn go_on<T, A, F>(
        &self,
        call: Call,
        first: Step<Done<T>>,
        again: impl FnOnce() -> A,
        answer: F,
    ) where
        T: Send + 'static,
        A: FnMut(&Client<U, C>) -> Step<Done<T>> + Send + 'static,
        F: FnOnce(Result<T, Errno>) + Send + 'static,
    {
        tracing::debug!(
            target: "mount::asked", what = call.what, file = %call.file, thread = call.thread
        );
        let (done, attempt) = match first {
            Ok(Done { value, wait: None }) => return answer(Ok(value)),
            Err(Stop::Error(error)) if call.anew == 0 || !is_overtaken(&error) => {
                self.note_asker(&call, &error);
                return answer(call.seen(Err(error)));
            }
            // It may be of two moments what is known: it is looked at again.
            Err(Stop::Error(_)) => (None, Some(again())),
            Ok(done) => (Some(done), (call.anew > 0).then(again)),
            Err(Stop::Need(need)) => {
                tracing::debug!(what = call.what, file = %call.file, ?need, "waits");
                (None, Some(again()))
            }
        };
        let (client, driver) = (self.client.clone(), self.clone());
        let ends = if call.asks { Ends::WhenToStop } else { Ends::WhenEnded };
        let waiting = self.watch.waiting(call.thread, call.request, ends);
        let wait = self.waits.begin([Some(call.file), call.to], client.round_trip());
        self.runtime.spawn(async move {
            let _until_it_is_answered = wait;
            let work = async {
                let done = match (done, attempt) {
                    (Some(done), attempt) => (done, attempt),
                    (None, Some(mut attempt)) => {
                        (tried(&client, &mut attempt, call.anew > 0).await?, Some(attempt))
                    }
                    (None, None) => unreachable!("without a value there is an attempt, above"),
                };
                settled_anew(&client, done, call.anew).await
            };
            let work = async { work.await.inspect_err(|error| driver.note_asker(&call, error)) };
            answer(unless_interrupted(call, work, waiting).await);
        });
    }
}

impl<U: Upstream, C: Containers> Driver<U, C> {
    /// Answers when the lock is there. Every signal ends a wait for it: programs bound it by an alarm. Who
    /// does not want to wait does so for the link alone, which no program expects to be interrupted.
    /// The kernel holds no lock of its own meanwhile.
    pub(crate) fn wait_for_a_lock<T: Send + 'static>(
        &self,
        (call, waits): (Call, bool),
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let ends = if waits { Ends::WithAnySignal } else { Ends::WhenToStop };
        let waiting = self.watch.waiting(call.thread, call.request, ends);
        self.runtime.spawn(async move {
            answer(unless_interrupted(call, work, waiting).await);
        });
    }
}

/// Waits for the verdict; where somebody elsewhere was faster, up to `anew` times, what is there now
/// is looked at and it is tried again.
async fn settled_anew<U: Upstream, C: Containers, T, A>(
    client: &Client<U, C>,
    (mut done, mut attempt): (Done<T>, Option<A>),
    anew: u32,
) -> Result<T, Error>
where
    A: FnMut(&Client<U, C>) -> Step<Done<T>>,
{
    let mut tries = anew;
    loop {
        let Some(number) = done.wait else { return Ok(done.value) };
        let settled = client.settled(number).await;
        let attempt = match (&settled, &mut attempt) {
            (Err(error), Some(attempt)) if tries > 0 && is_overtaken(error) => attempt,
            _ => return settled.map(|()| done.value),
        };
        tries -= 1;
        done = tried(client, attempt, true).await?;
    }
}

/// Completes a try. `again`: what is known of a name and of what bears it may be of two moments for
/// a while, and is looked at again.
async fn tried<U: Upstream, C: Containers, T>(
    client: &Client<U, C>,
    attempt: &mut impl FnMut(&Client<U, C>) -> Step<Done<T>>,
    again: bool,
) -> Result<Done<T>, Error> {
    let mut pauses = if again { PAUSES_MAX } else { 0 };
    loop {
        match complete(client, &mut *attempt).await {
            Err(error) if pauses > 0 && is_overtaken(&error) => {
                pauses -= 1;
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Something else has the name than was seen here, or nothing.
fn is_overtaken(error: &Error) -> bool {
    let by_name = [Objection::Exists, Objection::NoEntry, Objection::Changed];
    matches!(error, Error::Objection(objection) if by_name.contains(objection))
}

/// The name of the process that a thread belongs to, as the kernel has it.
fn program(thread: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim();
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

async fn unless_interrupted<T>(
    call: Call,
    work: impl Future<Output = Result<T, Error>>,
    mut waiting: Waiting,
) -> Result<T, Errno> {
    tokio::select! {
        biased;
        outcome = work => call.seen(outcome),
        () = waiting.interrupted() => {
            tracing::debug!(what = call.what, file = %call.file, "whoever waited is to end");
            Err(errno::INTERRUPTED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn call(thread: u32) -> Call {
        Call {
            what: "test",
            file: FileId::ROOT,
            to: None,
            thread,
            request: 7,
            named: Named::ById,
            asks: true,
            anew: 0,
        }
    }

    #[test]
    fn a_thread_is_known_by_its_process() {
        let ours = std::fs::read_to_string("/proc/self/comm").unwrap();
        let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_eq!(program(id).as_deref(), Some(ours.trim_end()));
        assert_eq!(program(0), None);
    }

    #[tokio::test]
    async fn a_wait_without_an_end_ends_with_the_process_that_waits() {
        let watch = Watch::start().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let never = std::future::pending::<Result<(), Error>>();
        let outcome = unless_interrupted(
            call(child.id()),
            never,
            watch.waiting(child.id(), 7, Ends::WhenToStop),
        )
        .await;
        assert_eq!(outcome, Err(Errno::EINTR));
    }

    #[tokio::test]
    async fn what_is_done_is_answered_even_if_the_process_is_to_end() {
        let watch = Watch::start().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let work = std::future::ready(Ok(7));
        let outcome = unless_interrupted(
            call(child.id()),
            work,
            watch.waiting(child.id(), 7, Ends::WhenToStop),
        )
        .await;
        assert_eq!(outcome, Ok(7));
    }
}
