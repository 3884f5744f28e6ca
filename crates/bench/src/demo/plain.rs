//! What copying the same files would cost: sent whole as tar and as tar.gz, over links of their own
//! like the one that is shown, while the demonstration goes on.

use crate::show::Line;
use anyhow::{Context, Result, anyhow};
use bench::{Link, Profile, command};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 7002;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}

#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub took: Duration,
    pub bytes: u64,
}

/// What copying cost in place of one step.
pub struct Cost {
    pub what: String,
    pub plain: Sent,
    pub compressed: Sent,
}

/// What was sent in place of which step.
type Arrivals = Vec<(String, Sent)>;

struct Job {
    what: String,
    way: Way,
    archive: PathBuf,
}

pub struct Plain {
    directory: PathBuf,
    archives: usize,
    plain: Lanes,
    compressed: Lanes,
}

/// Up and down go on at the same time, so that less time is spent on waiting for them.
struct Lanes {
    up: Lane,
    down: Lane,
}

/// A link with a thread that sends one archive after the other.
struct Lane {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<Result<Arrivals>>>,
}

impl Plain {
    pub fn start(profile: &Profile, directory: &Path) -> Result<Self> {
        let (plain, compressed) = (Lanes::start(profile)?, Lanes::start(profile)?);
        Ok(Self { directory: directory.to_owned(), archives: 0, plain, compressed })
    }

    /// Begins to copy these files of a tree, as they are now.
    pub fn copy(&mut self, what: &str, way: Way, tree: &Path, files: &[PathBuf]) -> Result<()> {
        self.archives += 1;
        let list = self.directory.join(format!("{}.list", self.archives));
        let names: Vec<_> = files.iter().map(|file| file.as_os_str().as_bytes()).collect();
        fs::write(&list, names.join(&0)).context("cannot list what changed")?;
        for (flags, ending, lanes) in
            [("-cf", "tar", &self.plain), ("-czf", "tar.gz", &self.compressed)]
        {
            let archive = self.directory.join(format!("{}.{ending}", self.archives));
            let mut tar = Command::new("tar");
            tar.arg(flags).arg(&archive).arg("-C").arg(tree).args(["--null", "-T"]).arg(&list);
            command::run(&mut tar)?;
            lanes.of(way).send(Job { what: what.into(), way, archive })?;
        }
        Ok(())
    }

    /// Waits for the rest.
    pub fn finish(self) -> Result<Vec<Cost>> {
        let line = Line::new("copying the same files, to compare");
        let line_shown = || line.look(None);
        let (plain, compressed) =
            (self.plain.finish(&line_shown)?, self.compressed.finish(&line_shown)?);
        let pairs = plain.into_iter().zip(compressed);
        Ok(pairs.map(|((what, plain), (_, compressed))| Cost { what, plain, compressed }).collect())
    }
}

impl Lanes {
    fn start(profile: &Profile) -> Result<Self> {
        Ok(Self { up: Lane::start(profile)?, down: Lane::start(profile)? })
    }

    fn of(&self, way: Way) -> &Lane {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    fn finish(self, look: &dyn Fn()) -> Result<Arrivals> {
        let mut sent = self.up.finish(look)?;
        sent.append(&mut self.down.finish(look)?);
        Ok(sent)
    }
}

impl Lane {
    fn start(profile: &Profile) -> Result<Self> {
        let link = Link::start(profile)?;
        let (sender, jobs) = mpsc::channel::<Job>();
        let thread = std::thread::spawn(move || {
            jobs.iter().map(|job| Ok((job.what.clone(), transfer(&link, &job)?))).collect()
        });
        Ok(Self { jobs: Some(sender), thread: Some(thread) })
    }

    fn send(&self, job: Job) -> Result<()> {
        let sender = self.jobs.as_ref().context("it is not finished before it is dropped")?;
        sender.send(job).map_err(|_| anyhow!("copying stopped; nothing is compared"))
    }

    fn finish(mut self, look: &dyn Fn()) -> Result<Arrivals> {
        self.jobs = None;
        let thread = self.thread.take().context("it is finished once")?;
        while !thread.is_finished() {
            look();
            std::thread::sleep(super::LOOK_EVERY);
        }
        thread.join().map_err(|_| anyhow!("copying panicked"))?
    }
}

/// Sends a file over a TCP connection and waits until it is there.
fn transfer(link: &Link, job: &Job) -> Result<Sent> {
    let system = |doing| move |source| bench::Error::System { doing, source };
    let before = link.counters().bytes();
    let start = Instant::now();
    let address = (link.far().address(), PORT);
    let listener =
        link.far().inside(|| TcpListener::bind(address).map_err(system("cannot listen")))?;
    let near =
        link.near().inside(|| TcpStream::connect(address).map_err(system("cannot connect")))?;
    let (far, _) = listener.accept().context("cannot accept")?;
    let (mut from, mut to) = if job.way == Way::Up { (near, far) } else { (far, near) };
    let mut archive = File::open(&job.archive).context("cannot open what is to be copied")?;
    let received = std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = io::copy(&mut archive, &mut from).and_then(|_| from.flush());
            let _ = from.shutdown(Shutdown::Write);
        });
        io::copy(&mut to, &mut io::sink())
    });
    let took = start.elapsed();
    let expected = fs::metadata(&job.archive).context("the archive is there")?.len();
    anyhow::ensure!(received.ok() == Some(expected), "the copy of {} broke", job.what);
    Ok(Sent { took, bytes: link.counters().bytes() - before })
}
