//! One test's world: a folder, and everything that runs and is mounted for the test.
//! Holds: a world that takes longer than its bound has its programs killed, so that no call hangs
//! for ever, and fails.

use crate::mount::{Mount, Wanted};
use crate::process::{Handle, Process, kill_now};
use crate::server::Server;
use crate::sweep;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc,
};
use std::time::Duration;

pub(crate) const FOLDER: &str = "farfs-e2e-";
/// In the environment of every process that a run starts: the process id of the run.
pub(crate) const MARK: &str = "FARFS_E2E";
const PROGRAM: &str = "FARFS_BIN";

/// How long a test may take if it does not say.
const BOUND: Duration = Duration::from_secs(120);
/// Of a log, what a failed test shows.
const LOG_LINES_SHOWN: usize = 40;
/// What a program says when it meets a bug of its own.
const PANICS: [&str; 2] = ["panicked", "farfs has a bug"];

static MACHINE: RwLock<()> = RwLock::new(());

/// Held while a test has the machine, for itself or with others.
enum Turn {
    Shared { _turn: RwLockReadGuard<'static, ()> },
    Alone { _turn: RwLockWriteGuard<'static, ()> },
}

/// What the parts of a world share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    processes: Mutex<Vec<Handle>>,
    logs: Mutex<Vec<PathBuf>>,
    overdue: AtomicBool,
}

pub struct World {
    shared: Arc<Shared>,
    bound: Duration,
    // Dropped, it ends the watch.
    _watched: mpsc::Sender<()>,
    _turn: Turn,
}

impl World {
    /// Beside other tests.
    #[expect(clippy::new_without_default, reason = "it takes a turn on the machine")]
    pub fn new() -> World {
        World::bounded(BOUND)
    }

    /// Beside other tests, with another bound.
    pub fn bounded(bound: Duration) -> World {
        let turn = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        World::made(bound, Turn::Shared { _turn: turn })
    }

    /// With no other test beside it: for what is measured in seconds.
    pub fn alone(bound: Duration) -> World {
        let turn = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        World::made(bound, Turn::Alone { _turn: turn })
    }

    fn made(bound: Duration, turn: Turn) -> World {
        static SWEPT: Once = Once::new();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        must_be_possible();
        SWEPT.call_once(sweep::after_dead_runs);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{FOLDER}{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(0o755)))
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        let shared = Arc::new(Shared {
            folder,
            processes: Mutex::default(),
            logs: Mutex::default(),
            overdue: AtomicBool::new(false),
        });
        let (watched, watch) = mpsc::channel::<()>();
        let watcher = shared.clone();
        std::thread::spawn(move || {
            if watch.recv_timeout(bound) == Err(mpsc::RecvTimeoutError::Timeout) {
                watcher.overdue.store(true, Ordering::Relaxed);
                watcher.kill_all();
            }
        });
        World { shared, bound, _watched: watched, _turn: turn }
    }

    /// A path in the world's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.shared.folder.join(name)
    }

    /// A new folder in the world's.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        path
    }

    /// A server with a new data directory.
    pub fn server(&self) -> Server {
        Server::start(&self.shared, &self.path("origin"), "origin", &[])
    }

    /// A server with a new data directory that keeps a directory in step.
    pub fn server_of(&self, tree: &Path) -> Server {
        let tree = tree.display().to_string();
        Server::start(&self.shared, &self.path("origin"), "origin", &["--tree", &tree])
    }

    /// Another server with a new data directory, and more for `farfs serve`.
    pub fn server_with(&self, name: &str, options: &[&str]) -> Server {
        Server::start(&self.shared, &self.path(name), name, options)
    }

    /// A server on a directory of the caller's.
    pub fn server_at(&self, data: &Path, name: &str) -> Server {
        Server::start(&self.shared, data, name, &[])
    }

    /// A new device with the volume `main` of a server mounted, through a relay of its own.
    pub fn mount(&self, server: &Server, name: &str, mode: &str) -> Mount {
        self.mount_with(server, name, Wanted { mode, ..Wanted::default() })
    }

    pub fn mount_with(&self, server: &Server, name: &str, wanted: Wanted) -> Mount {
        Mount::start(&self.shared, server, name, &wanted)
    }

    /// A command of the program, as the tests run it.
    pub fn farfs(&self, arguments: &[&str]) -> Command {
        farfs(arguments)
    }

    /// A process that ends with the world at the latest; what it says goes to a log of that name.
    pub fn process(&self, command: Command, name: &str) -> (Process, Option<impl Read + use<>>) {
        self.shared.start(command, name)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.kill_all();
        let overdue = self.shared.overdue.load(Ordering::Relaxed);
        let logs = std::mem::take(&mut *self.shared.logs());
        let bugs: Vec<String> = logs.iter().filter_map(|log| bug_in(log)).collect();
        if std::thread::panicking() || overdue || !bugs.is_empty() {
            logs.iter().for_each(|log| show(log));
        }
        sweep::clear(&self.shared.folder);
        if !std::thread::panicking() {
            assert!(!overdue, "the test took longer than {:?}", self.bound);
            assert!(bugs.is_empty(), "a program panicked: {bugs:#?}");
        }
    }
}

impl Shared {
    fn logs(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its log is looked through at the end.
    pub(crate) fn watch_log(&self, log: &Path) {
        let mut logs = self.logs();
        if !logs.iter().any(|known| known == log) {
            logs.push(log.to_owned());
        }
    }

    pub(crate) fn start(
        &self,
        command: Command,
        name: &str,
    ) -> (Process, Option<impl Read + use<>>) {
        let log = self.folder.join(format!("{name}.stderr"));
        let (process, out) = Process::start(command, &log);
        self.watch_log(&log);
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).push(process.handle());
        (process, out)
    }

    fn kill_all(&self) {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.iter().for_each(kill_now);
    }
}

/// The lines in which a program complains of itself.
fn bug_in(log: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let line = text.lines().find(|line| PANICS.iter().any(|word| line.contains(word)))?;
    Some(format!("{}: {line}", log.display()))
}

fn show(log: &Path) {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES_SHOWN);
    println!("-- the end of {}\n{}", log.display(), lines[from..].join("\n"));
}

/// The program under test: `FARFS_BIN`, or what `cargo build -p cli` made.
pub fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return program.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("debug/farfs")
}

/// Without the user's own configuration.
pub fn farfs(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments);
    marked(&mut command);
    command
}

/// Whatever is started so can be told apart from other processes of the machine.
pub fn marked(command: &mut Command) {
    command
        .env(MARK, std::process::id().to_string())
        .env("FARFS_CONFIG", OsStr::new("/nonexistent/farfs.toml"))
        .env_remove("NOTIFY_SOCKET");
}

/// # Panics
/// Where nothing can be mounted. A test that is passed over in silence shows nothing.
fn must_be_possible() {
    assert!(rustix::process::geteuid().is_root(), "these tests mount: run them as root");
    assert!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse: try modprobe fuse");
    let program = program();
    assert!(
        program.exists(),
        "{} is not there: cargo build -p cli, or set {PROGRAM}",
        program.display()
    );
}
