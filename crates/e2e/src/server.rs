//! A server: `farfs serve` on a data directory, listening on the loopback.
//! Holds: once started it keeps its port, so that it can be killed and started again.

use crate::process::{Process, run};
use crate::world::{Shared, farfs};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const READY_BOUND: Duration = Duration::from_secs(30);
const STOPPED_BOUND: Duration = Duration::from_secs(20);

pub struct Server {
    shared: Arc<Shared>,
    name: String,
    pub data: PathBuf,
    pub address: SocketAddr,
    pub key: String,
    /// More for `farfs serve`, from the next start on.
    pub options: Vec<String>,
    /// Not root, as whom it runs.
    pub user: Option<u32>,
    process: Option<Process>,
}

impl Server {
    pub(crate) fn start(shared: &Arc<Shared>, data: &Path, name: &str, options: &[&str]) -> Server {
        let mut server = Server {
            shared: shared.clone(),
            name: name.into(),
            data: data.into(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            key: String::new(),
            options: options.iter().map(|option| (*option).into()).collect(),
            user: None,
            process: None,
        };
        server.restart();
        server
    }

    /// Starts it again, on the same data and the same port.
    ///
    /// # Panics
    /// If it is not ready within a bound.
    pub fn restart(&mut self) {
        let line = self.try_restart().unwrap_or_else(|said| panic!("the server ended: {said}"));
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|word| word.parse().ok());
        let key = words.next().and_then(|word| word.strip_prefix("key="));
        let (Some(address), Some(key)) = (address, key) else {
            panic!("what the server said is not HOST:PORT key=...: {line:?}")
        };
        self.address = address;
        self.key = key.into();
    }

    /// The line that it prints when it is ready, or what it said when it ended instead.
    pub fn try_restart(&mut self) -> Result<String, String> {
        let listen = self.address.to_string();
        let data = self.data.display().to_string();
        let mut command = farfs(&["serve", "--data", &data, "--listen", &listen]);
        command.args(&self.options);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let (process, out) = self.shared.start(command, &self.name);
        match first_line(out).recv_timeout(READY_BOUND) {
            Ok(line) => {
                self.process = Some(process);
                Ok(line)
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                process.ends_within(STOPPED_BOUND);
                Err(process.said())
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("the server is not ready after {READY_BOUND:?}: {}", process.said())
            }
        }
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the test has not killed it, or has started it again")
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Asks it to end, and returns how it did.
    pub fn stop(&mut self) -> Option<i32> {
        let process = self.process.take()?;
        process.signal(Signal::TERM);
        process.ends_within(STOPPED_BOUND).code()
    }

    /// The address of a new invitation to a volume.
    pub fn invite_to(&self, volume: &str, more: &[&str]) -> String {
        let data = self.data.display().to_string();
        let arguments = ["invite", "--data", &data, "--volume", volume];
        run(&mut farfs(&[&arguments[..], more].concat())).succeeds().trim().to_owned()
    }

    pub fn invite(&self) -> String {
        self.invite_to("main", &[])
    }

    /// What `farfs conflicts` lists.
    pub fn conflicts(&self) -> Vec<String> {
        let data = self.data.display().to_string();
        let listed = run(&mut farfs(&["conflicts", "--data", &data])).succeeds();
        listed.lines().map(str::to_owned).collect()
    }

    pub fn said(&self) -> String {
        let log = self.shared.folder.join(format!("{}.stderr", self.name));
        String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(Signal::KILL);
        }
    }
}

/// The first line that a process prints; the rest is read and thrown away. It hangs up if the
/// process ends without a line.
fn first_line(out: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let Some(out) = out else { return };
        let mut out = BufReader::new(out);
        let mut line = String::new();
        let _ = out.read_line(&mut line);
        if !line.is_empty() {
            let _ = sender.send(line.trim().to_owned());
        }
        drop(sender);
        let _ = out.read_to_end(&mut Vec::new());
    });
    receiver
}
