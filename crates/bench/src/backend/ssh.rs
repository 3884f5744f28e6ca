//! An sshd that listens at the far end alone, with keys made for the occasion, and how to reach it.

use crate::process::{Process, tail};
use anyhow::{Context, Result, bail};
use bench::command::{exists, run};
use bench::{End, Link};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 2222;
const SSHD: &str = "/usr/sbin/sshd";
const STARTING_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether the programs that `system` needs are there, each named as its package is; the error
/// names all that are not.
pub fn check(system: &str, programs: &[&str]) -> Result<()> {
    let mut missing: Vec<_> = programs.iter().copied().filter(|program| !exists(program)).collect();
    if !Path::new(SSHD).exists() {
        missing.push("openssh-server");
    }
    if !exists("ssh") {
        missing.push("openssh-client");
    }
    if !missing.is_empty() {
        bail!("to compare with {system}, install {}", missing.join(", "));
    }
    Ok(())
}

/// Starts it, with its files in `directory`.
pub fn serve(directory: &Path, link: &Link, compressed: bool) -> Result<Process> {
    configure(directory, link, compressed)?;
    start(directory, link.far())
}

/// The words by which a client in `directory` reaches it.
pub fn command(directory: &Path) -> String {
    format!("ssh -F {}", directory.join("client.conf").display())
}

fn configure(directory: &Path, link: &Link, compressed: bool) -> Result<()> {
    for key in ["host", "user"] {
        let path = directory.join(key);
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path))?;
    }
    let shown = directory.display();
    // Without a home of their own, shells read what the user has set up, and take their time.
    let server = format!(
        "Port {PORT}\nListenAddress {address}\nHostKey {shown}/host\n\
         AuthorizedKeysFile {shown}/user.pub\nStrictModes no\nUsePAM no\nUseDNS no\n\
         PermitRootLogin prohibit-password\nPidFile none\nSubsystem sftp internal-sftp\n\
         SetEnv HOME={shown}\n",
        address = link.far().address(),
    );
    let client = format!(
        "Host *\nPort {PORT}\nIdentityFile {shown}/user\nIdentitiesOnly yes\n\
         StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n\
         Compression {compressed}\n",
        compressed = if compressed { "yes" } else { "no" },
    );
    for (name, text) in [("server.conf", server), ("client.conf", client)] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn start(directory: &Path, far: &End) -> Result<Process> {
    // Where sshd puts its unprivileged half; the package's own service makes it at its start.
    fs::create_dir_all("/run/sshd").context("cannot make /run/sshd")?;
    let log = directory.join("sshd.log");
    let mut command = far.command(SSHD);
    command.args(["-D", "-e", "-f"]).arg(directory.join("server.conf"));
    let server = Process::start(&mut command, &log)?;
    let start = Instant::now();
    while !tail(&log).contains("listening on") {
        if start.elapsed() > STARTING_MAX {
            bail!("sshd did not start: {}", tail(&log));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(server)
}
