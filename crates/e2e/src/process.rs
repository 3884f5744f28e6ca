//! Processes: commands that run to their end within a bound, and daemons that run until killed.
//! Holds: a command that takes too long is ended with all that it started.

use crate::wait::eventually;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

/// How long a command may take if the test does not say.
const COMMAND_BOUND: Duration = Duration::from_secs(60);
/// How long the pipes of an ended command may stay open in what it left running.
const PIPES_BOUND: Duration = Duration::from_secs(5);
/// A process that was sent SIGKILL and waits for no disk ends at once.
const KILLED_BOUND: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a finished command left.
#[derive(Debug)]
pub struct Ran {
    pub command: String,
    /// None: a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Its standard output.
    #[track_caller]
    pub fn succeeds(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    /// Its standard error, which says why in whole words.
    #[track_caller]
    pub fn fails_with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.err.trim().is_empty() && !self.err.contains("panicked"), "{self:#?}");
        self.err
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ran {
    run_within(COMMAND_BOUND, command)
}

/// # Panics
/// If it cannot be started, or takes longer than `bound`.
#[track_caller]
pub fn run_within(bound: Duration, command: &mut Command) -> Ran {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{shown}: cannot be started: {error}"));
    let out = all(child.stdout.take());
    let err = all(child.stderr.take());
    let Some(status) = ended_within(bound, || child.try_wait()) else {
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        let said = [out, err].map(|pipe| pipe.recv_timeout(PIPES_BOUND).unwrap_or_default());
        panic!("{shown}: has not ended after {bound:?}; it said {said:#?}");
    };
    let said = |pipe: mpsc::Receiver<String>| {
        pipe.recv_timeout(PIPES_BOUND)
            .unwrap_or_else(|_| panic!("{shown}: ended, but what it left running holds its output"))
    };
    let (out, err) = (said(out), said(err));
    Ran { code: status.code(), signal: status.signal(), out, err, command: shown }
}

pub fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

fn all(from: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn ended_within(
    bound: Duration,
    mut look: impl FnMut() -> std::io::Result<Option<ExitStatus>>,
) -> Option<ExitStatus> {
    let until = Instant::now() + bound;
    loop {
        if let Some(status) = look().expect("it is our child, so we may wait for it") {
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A process that runs until somebody ends it; its end is looked at before its id is used, so
/// that no other process is ever meant.
#[derive(Clone, Debug)]
pub struct Process {
    child: Arc<Mutex<Child>>,
    pub log: PathBuf,
    name: String,
}

/// To end a process that may be gone.
pub(crate) type Handle = Weak<Mutex<Child>>;

pub(crate) fn kill_now(handle: &Handle) {
    if let Some(child) = handle.upgrade() {
        let _ = child.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

const STOPPED: char = 'T';
const WAITS_FOR_A_DISK: char = 'D';

/// As `/proc` says; none if it is gone.
fn thread_states(pid: u32) -> Vec<char> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name before it may contain anything.
        stat.rsplit_once(") ")?.1.chars().next()
    };
    threads.flatten().filter_map(state).collect()
}

/// How still a stopped process has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Still {
    /// None of its threads is in a call of the kernel.
    OutsideCalls,
    /// A thread may wait for a disk; it does not come back from that before it is continued.
    OrInACall,
}

impl Process {
    /// What it writes to standard error is appended to `log`. Standard output is the caller's.
    pub(crate) fn start(mut command: Command, log: &Path) -> (Process, Option<impl Read + use<>>) {
        let name = shown(&command);
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", log.display()));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: cannot be started: {error}"));
        let out = child.stdout.take();
        (Process { child: Arc::new(Mutex::new(child)), log: log.to_owned(), name }, out)
    }

    pub(crate) fn handle(&self) -> Handle {
        Arc::downgrade(&self.child)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    pub fn is_running(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    /// Nothing happens if it has ended.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.child();
        if let Ok(None) = child.try_wait() {
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }

    /// Stops it, until it is sent SIGCONT.
    ///
    /// # Panics
    /// If a thread goes on and on.
    #[track_caller]
    pub fn stands_still(&self, how: Still) {
        self.signal(Signal::STOP);
        let is_still = || {
            let states = thread_states(self.pid());
            // With the first that has stopped, all have been told to.
            let begun = states.is_empty() || states.contains(&STOPPED);
            let may_be = |state: &char| {
                *state == STOPPED || (how == Still::OrInACall && *state == WAITS_FOR_A_DISK)
            };
            begun && states.iter().all(may_be)
        };
        eventually(KILLED_BOUND, "every thread has stopped", is_still);
    }

    /// SIGKILL, and waits for its end.
    #[track_caller]
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        self.ends_within(KILLED_BOUND);
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ends_within(&self, bound: Duration) -> ExitStatus {
        ended_within(bound, || self.child().try_wait())
            .unwrap_or_else(|| panic!("{}: has not ended after {bound:?}", self.name))
    }

    /// What it has said on standard error, and those before it with the same log.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}
