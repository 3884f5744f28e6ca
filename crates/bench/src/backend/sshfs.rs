//! sshfs over its own sshd, which listens at the far end alone, with keys made for the occasion.

use super::Backend;
use crate::mounts;
use crate::process::{Process, tail};
use anyhow::{Context, Result, bail};
use bench::command::{exists, run};
use bench::undo::{self, Undo};
use bench::{End, Link};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 2222;
const SSHD: &str = "/usr/sbin/sshd";
/// The handshake of ssh is a few kilobytes, which a modem takes its time for.
const MOUNTING_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Sshfs {
    directory: PathBuf,
    root: PathBuf,
    near: End,
    far: End,
    // Dropped in this order: unmounted, then the client ended, then the server.
    mount: Option<(Undo, Process)>,
    _server: Process,
}

impl Sshfs {
    pub fn start(directory: &Path, link: &Link, compressed: bool) -> Result<Self> {
        for (found, package) in
            [(exists("sshfs"), "sshfs"), (Path::new(SSHD).exists(), "openssh-server")]
        {
            if !found {
                bail!("to compare with sshfs, install the package {package}");
            }
        }
        let root = directory.join("mnt");
        for name in ["export", "mnt"] {
            let path = directory.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        configure(directory, link, compressed)?;
        let server = serve(directory, link.far())?;
        let (near, far) = (link.near().clone(), link.far().clone());
        let directory = directory.to_owned();
        let mut sshfs = Self { directory, root, near, far, mount: None, _server: server };
        sshfs.mount()?;
        Ok(sshfs)
    }

    fn mount(&mut self) -> Result<()> {
        let log = self.directory.join("sshfs.log");
        let config = self.directory.join("client.conf");
        let export = self.directory.join("export");
        let mut command = self.near.command("sshfs");
        command
            .arg("-f")
            .args(["-o", &format!("ssh_command=ssh -F {}", config.display())])
            .arg(format!("root@{}:{}", self.far.address(), export.display()))
            .arg(&self.root);
        let process = Process::start(&mut command, &log)?;
        let root = self.root.clone();
        let undo = undo::later(move || mounts::unmount(&root));
        let start = Instant::now();
        while !mounts::is_mounted(&self.root) {
            if start.elapsed() > MOUNTING_MAX {
                bail!("sshfs did not mount: {}", tail(&log));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // The mount answers only once the connection is made.
        fs::metadata(&self.root)
            .with_context(|| format!("sshfs does not answer: {}", tail(&log)))?;
        self.mount = Some((undo, process));
        Ok(())
    }
}

impl Backend for Sshfs {
    fn root(&self) -> &Path {
        &self.root
    }

    fn settle(&mut self, _within: Duration) -> Result<()> {
        // The server has what was closed; what is left is what the kernel holds back.
        mounts::sync(&self.root)
    }

    fn make_cold(&mut self) -> Result<()> {
        self.mount = None;
        self.mount()
    }

    /// It makes them, and gives each name an inode number of its own, which git does not accept.
    fn has_hard_links(&self) -> bool {
        false
    }

    fn abort(&mut self) {
        // Without its process, a mount answers every call with an error.
        if let Some((undo, process)) = self.mount.take() {
            drop(process);
            drop(undo);
        }
    }
}

fn configure(directory: &Path, link: &Link, compressed: bool) -> Result<()> {
    for key in ["host", "user"] {
        let path = directory.join(key);
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path))?;
    }
    let shown = directory.display();
    let server = format!(
        "Port {PORT}\nListenAddress {address}\nHostKey {shown}/host\n\
         AuthorizedKeysFile {shown}/user.pub\nStrictModes no\nUsePAM no\nUseDNS no\n\
         PermitRootLogin prohibit-password\nPidFile none\nSubsystem sftp internal-sftp\n",
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

fn serve(directory: &Path, far: &End) -> Result<Process> {
    // Where sshd puts its unprivileged half; the package's own service makes it at its start.
    fs::create_dir_all("/run/sshd").context("cannot make /run/sshd")?;
    let log = directory.join("sshd.log");
    let mut command = far.command(SSHD);
    command.args(["-D", "-e", "-f"]).arg(directory.join("server.conf"));
    let server = Process::start(&mut command, &log)?;
    let start = Instant::now();
    while !tail(&log).contains("listening on") {
        if start.elapsed() > MOUNTING_MAX {
            bail!("sshd did not start: {}", tail(&log));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(server)
}
