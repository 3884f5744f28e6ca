//! The built program, run with a bound on its time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// No command of these tests may take longer.
const LIMIT: Duration = Duration::from_secs(60);

/// What a finished run left.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Its standard output.
    pub fn succeeds(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    /// Its standard error, which says why in whole words.
    pub fn fails_with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.err.trim().is_empty() && !self.err.contains("panicked"), "{self:#?}");
        self.err
    }
}

/// Without the user's own configuration, state and mounts.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farfs"));
    command
        .args(arguments)
        .env("FARFS_CONFIG", "/nonexistent/farfs.toml")
        .env_remove("FARFS_LOG")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn farfs(arguments: &[&str]) -> Ran {
    finished(command(arguments))
}

/// With a configuration file.
pub fn farfs_configured(config: &Path, arguments: &[&str]) -> Ran {
    let mut command = command(arguments);
    command.env("FARFS_CONFIG", config);
    finished(command)
}

/// With a standard output that nobody reads.
pub fn farfs_unread(arguments: &[&str]) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command(arguments).stdout(writer).spawn().unwrap();
    let err = all(child.stderr.take().unwrap());
    Ran { code: ended(&mut child), out: String::new(), err: err.recv().unwrap() }
}

/// With a standard error that takes nothing.
pub fn farfs_unheard(arguments: &[&str]) -> Option<i32> {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    ended(&mut command(arguments).stderr(full).spawn().unwrap())
}

/// Called by another name, as mount(8) does.
pub fn farfs_called(name: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_farfs"), &link).unwrap();
    let mut command = Command::new(&link);
    command
        .args(arguments)
        .env("FARFS_CONFIG", "/nonexistent/farfs.toml")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    finished(command)
}

fn finished(mut command: Command) -> Ran {
    let mut child = command.spawn().unwrap();
    let (out, err) = (all(child.stdout.take().unwrap()), all(child.stderr.take().unwrap()));
    let code = ended(&mut child);
    Ran { code, out: out.recv().unwrap(), err: err.recv().unwrap() }
}

fn all(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Its exit code; a run that takes too long is killed, and has none.
fn ended(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() >= until {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// The line that it printed when it was ready.
    pub line: String,
}

impl Server {
    /// Listens on the loopback alone, on a port of the kernel's choice.
    pub fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    pub fn start_with(data: &Path, more: &[&str]) -> Server {
        let mut child =
            command(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"])
                .args(more)
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = out.read_line(&mut line);
            let _ = sender.send(line);
            // Read on, so that the server's output stays open.
            let _ = out.read_to_end(&mut Vec::new());
        });
        let line = receiver.recv_timeout(LIMIT).unwrap_or_default().trim().to_owned();
        let server = Server { child, line };
        assert!(server.line.starts_with("127.0.0.1:"), "it is not ready: {:?}", server.line);
        server
    }

    /// Its exit code after a signal.
    pub fn stop(mut self, signal: rustix::process::Signal) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        ended(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
