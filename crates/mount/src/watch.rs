//! One thread that looks after all requests that wait, for signals to those who sent them: at once
//! when the kernel says that one was sent, and every now and then for what it does not say. It tells
//! of the first signal alone, and of none to whoever waits for what was read ahead. Where the thread
//! cannot be seen, what the kernel says is all there is: it says so only of a signal that is felt.
//! Holds: it sleeps while nothing waits; a wait that is over is not looked at again.

use crate::signals::{Ends, Look, read_status};
use rustix::process::{Pid, test_kill_process};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often it looks: short for whoever pressed Ctrl-C, long against what a look costs.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// Of so many signals it is remembered that the kernel told of them when nobody was waiting: another thread
/// may be about to wait for that request.
const EARLY_MAX: usize = 256;

/// Stands for a thread that cannot be seen from here: of the kernel, or of another container.
const UNSEEN: u32 = 0;

/// The watcher. Its thread ends when this is dropped.
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

/// One request that waits. Dropped, it is not looked after any more.
pub(crate) struct Waiting {
    shared: Arc<Shared>,
    key: Option<u64>,
    signal: Option<oneshot::Receiver<()>>,
}

struct Shared {
    list: Mutex<List>,
    changed: Condvar,
}

/// As many as the kernel has requests under way: each holds a thread of some program.
#[derive(Default)]
struct List {
    next: u64,
    waiting: HashMap<u64, Asker>,
    /// The kernel has told of a signal to somebody who waits.
    now: bool,
    /// Requests that the kernel has told of before they waited.
    early: VecDeque<u64>,
    closed: bool,
}

struct Asker {
    thread: u32,
    request: u64,
    ends: Ends,
    since: Instant,
    sender: oneshot::Sender<()>,
}

impl List {
    fn is_early(&mut self, request: u64) {
        if self.early.len() >= EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back(request);
    }

    /// Whether there is anybody to look at.
    fn is_seen(&self) -> bool {
        self.waiting.values().any(|asker| asker.thread != UNSEEN)
    }
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    pub(crate) fn start() -> io::Result<Watch> {
        Watch::looking_every(LOOK_EVERY)
    }

    fn looking_every(every: Duration) -> io::Result<Watch> {
        let shared =
            Arc::new(Shared { list: Mutex::new(List::default()), changed: Condvar::new() });
        let watched = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("farfs-signals".into())
            .spawn(move || look_after(&watched, every))?;
        Ok(Watch { shared })
    }

    /// Looks after this request of that thread from now on. Of one that is not seen it cannot be told
    /// whether a signal is one that ends it: only what ends with any signal does.
    pub(crate) fn waiting(&self, thread: u32, request: u64, ends: Ends) -> Waiting {
        let shared = Arc::clone(&self.shared);
        if thread == UNSEEN && ends != Ends::WithAnySignal {
            return Waiting { shared, key: None, signal: None };
        }
        let (sender, receiver) = oneshot::channel();
        let mut list = shared.list();
        if thread == UNSEEN && list.early.contains(&request) {
            drop(list);
            // Who is to hear of it has not begun to wait.
            let _ = sender.send(());
            return Waiting { shared, key: None, signal: Some(receiver) };
        }
        let key = list.next;
        list.next += 1;
        list.waiting.insert(key, Asker { thread, request, ends, since: Instant::now(), sender });
        drop(list);
        shared.changed.notify_one();
        Waiting { shared, key: Some(key), signal: Some(receiver) }
    }

    /// Whoever waits for this request was sent a signal.
    pub(crate) fn look_now(&self, request: u64) {
        let mut list = self.shared.list();
        let waits = |asker: &Asker| asker.request == request;
        if !list.waiting.values().any(waits) {
            return list.is_early(request);
        }
        let over = |_: &u64, asker: &mut Asker| asker.thread == UNSEEN && waits(asker);
        for (_, asker) in list.waiting.extract_if(over) {
            // Who does not listen any more has been answered already.
            let _ = asker.sender.send(());
        }
        if list.is_seen() {
            list.now = true;
            drop(list);
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.list().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Waiting {
    /// Ready when whoever waits is to stop waiting; otherwise never.
    pub(crate) async fn interrupted(&mut self) {
        if let Some(signal) = self.signal.take()
            && signal.await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.list().waiting.remove(&key);
        }
    }
}

fn look_after(shared: &Shared, every: Duration) {
    let mut list = shared.list();
    while !list.closed {
        if !list.is_seen() {
            list = shared.changed.wait(list).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        // First the pause: most waits are over by then, and nobody has looked at /proc.
        let rests = |list: &mut List| !list.closed && !list.now;
        let paused = shared.changed.wait_timeout_while(list, every, rests);
        list = paused.unwrap_or_else(PoisonError::into_inner).0;
        list.now = false;
        let threads = list.waiting.values().map(|asker| asker.thread);
        let threads: HashSet<u32> = threads.filter(|thread| *thread != UNSEEN).collect();
        drop(list);
        let seen: HashMap<u32, Look> =
            threads.into_iter().filter_map(|thread| Some((thread, look(thread)?))).collect();
        list = shared.list();
        let over = |_: &u64, asker: &mut Asker| {
            seen.get(&asker.thread).is_some_and(|look| asker.ends.by(*look, asker.since.elapsed()))
        };
        for (_, asker) in list.waiting.extract_if(over) {
            // Who does not listen any more has been answered already.
            let _ = asker.sender.send(());
        }
    }
}

/// None: it cannot be told.
fn look(thread: u32) -> Option<Look> {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => read_status(&status),
        // /proc may hide the processes of others, so it alone does not prove that one is gone.
        Err(_) => {
            let pid = Pid::from_raw(i32::try_from(thread).ok()?)?;
            (test_kill_process(pid) == Err(rustix::io::Errno::SRCH)).then_some(Look::Gone)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_wait_ends_when_the_process_is_gone() {
        let watch = Watch::start().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut waiting = watch.waiting(child.id(), 1, Ends::WhenToStop);
        let early = tokio::time::timeout(3 * LOOK_EVERY, waiting.interrupted()).await;
        assert!(early.is_err(), "nothing has happened to the process yet");

        let mut waiting = watch.waiting(child.id(), 1, Ends::WhenToStop);
        child.kill().unwrap();
        child.wait().unwrap();
        tokio::time::timeout(SOON, waiting.interrupted()).await.unwrap();
    }

    #[tokio::test]
    async fn waits_of_one_process_do_not_end_those_of_another() {
        let watch = Watch::start().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut gone = watch.waiting(child.id(), 1, Ends::WhenToStop);
        let mut mine = watch.waiting(std::process::id(), 2, Ends::WhenToStop);
        let mut unseen = watch.waiting(0, 3, Ends::WithAnySignal);
        child.kill().unwrap();
        child.wait().unwrap();
        tokio::time::timeout(SOON, gone.interrupted()).await.unwrap();
        assert!(tokio::time::timeout(2 * LOOK_EVERY, mine.interrupted()).await.is_err());
        assert!(tokio::time::timeout(LOOK_EVERY, unseen.interrupted()).await.is_err());
    }

    #[tokio::test]
    async fn what_the_kernel_tells_of_is_looked_at_at_once() {
        const NEVER: Duration = Duration::from_secs(3600);
        let watch = Watch::looking_every(NEVER).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let mut waiting = watch.waiting(child.id(), 4, Ends::WhenToStop);
        // Of a request that nobody waits for.
        watch.look_now(5);
        let early = tokio::time::timeout(2 * LOOK_EVERY, waiting.interrupted()).await;
        assert!(early.is_err());
        let mut waiting = watch.waiting(child.id(), 4, Ends::WhenToStop);
        watch.look_now(4);
        tokio::time::timeout(SOON, waiting.interrupted()).await.unwrap();
    }

    #[tokio::test]
    async fn of_who_cannot_be_seen_the_kernels_word_ends_what_ends_with_any_signal() {
        let watch = Watch::start().unwrap();
        let ends = async |request, ends| {
            let mut waiting = watch.waiting(UNSEEN, request, ends);
            watch.look_now(request + 100);
            let early = tokio::time::timeout(LOOK_EVERY, waiting.interrupted()).await;
            assert!(early.is_err(), "nothing was said of this request");
            drop(waiting);
            let mut waiting = watch.waiting(UNSEEN, request, ends);
            watch.look_now(request);
            tokio::time::timeout(2 * LOOK_EVERY, waiting.interrupted()).await.is_ok()
        };
        assert!(ends(1, Ends::WithAnySignal).await);
        assert!(!ends(2, Ends::WhenToStop).await, "it may be one that ends nothing");
        assert!(!ends(3, Ends::WhenEnded).await);
        // What was said before it waits counts, too.
        watch.look_now(4);
        let mut waiting = watch.waiting(UNSEEN, 4, Ends::WithAnySignal);
        tokio::time::timeout(SOON, waiting.interrupted()).await.unwrap();
    }

    #[tokio::test]
    async fn what_was_told_before_anybody_waited_is_remembered_for_so_long() {
        let watch = Watch::start().unwrap();
        for request in 0..2 * EARLY_MAX as u64 {
            watch.look_now(request);
        }
        assert_eq!(watch.shared.list().early.len(), EARLY_MAX);
    }

    #[tokio::test]
    async fn a_wait_that_is_over_is_forgotten() {
        let watch = Watch::start().unwrap();
        drop(watch.waiting(std::process::id(), 2, Ends::WhenToStop));
        assert!(watch.shared.list().waiting.is_empty());
    }
}
