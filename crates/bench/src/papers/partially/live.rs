//! What others feel while a large file is replayed: a foreground that hits the cache, another
//! program's stream on the same link, a file that is fetched.
//! From: partially connected operation, 5.1 and 6.4.

use super::Run;
use crate::backend::farfs::{Mount, Server};
use crate::workload::tree;
use anyhow::{Context, Result, ensure};
use bench::random::Random;
use bench::{Link, Profile};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub const ON: &str = "while replay is busy";
pub const OFF: &str = "without";

/// A server and a mount at the two ends of a link; dropped in this order.
pub struct Rig {
    pub mount: Mount,
    pub server: Server,
    pub link: Link,
}

impl Rig {
    pub fn start(run: &Run, profile: &Profile, mode: &str) -> Result<Self> {
        let directory = run.bench.work.part("rig")?;
        let mut options = run.bench.farfs.clone();
        options.mode = Some(mode.to_owned());
        let link = Link::start(profile)?;
        let server = Server::start(&options.program, &directory, link.far())?;
        let mount = Mount::new(&options, &server, link.near(), &directory.join("0"))?;
        Ok(Self { mount, server, link })
    }

    pub fn root(&self) -> &Path {
        &self.mount.point
    }

    /// As the same device, over the link as it is now.
    pub fn over(&mut self, profile: &Profile) -> Result<()> {
        self.link.set_profile(profile);
        self.mount.again()
    }
}

/// Takes longer over the slow link than anything that is measured meanwhile.
const LARGE_BYTES: usize = 6 << 20;
/// Until what decides how much is under way has found its measure.
const SETTLING: Duration = Duration::from_secs(30);
/// Until replay is under way, and until the last of it has been acknowledged.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes that do not compress.
fn noise(path: &Path, bytes: usize, seed: u64) -> Result<()> {
    let mut contents = vec![0; bytes];
    Random::new(seed).fill(&mut contents);
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// Turns that are taken for each run that was asked for.
const FOREGROUND_TURNS: usize = 4;
/// The tree is looked at and read so many times for one value.
const FOREGROUND_TIMES: usize = 50;
/// Takes longer than one value, and not much: then there is nothing left to be replayed.
const SMALL_BYTES: usize = 64 << 10;

/// A tree is looked at and read, again and again.
pub fn foreground(run: &mut Run) -> Result<()> {
    let mut rig = Rig::start(run, &run.fast, "partial")?;
    let root = rig.root().to_owned();
    let source = root.join("source");
    tree::copy(&run.material.source.tree, &source)?;
    rig.mount.settle(run.bench.limit)?;
    rig.over(&run.plan.slow)?;
    look(&source)?;
    for turn in 0..run.plan.runs * FOREGROUND_TURNS {
        noise(&root.join("file"), SMALL_BYTES, turn as u64)?;
        for on in [ON, OFF] {
            if on == OFF {
                rig.mount.settle(run.bench.limit)?;
            }
            thread::sleep(PAUSE);
            look(&source)?;
            let (before, start) = (rig.link.counters().up.carried.bytes, Instant::now());
            (0..FOREGROUND_TIMES).try_for_each(|_| look(&source))?;
            let took = start.elapsed().as_secs_f64();
            let sent = (rig.link.counters().up.carried.bytes - before) as f64 * 8.0 / took;
            ensure!((rig.mount.pending()? > 0) == (on == ON), "replay is not as it should be");
            run.add("scan and read, s", on, turn, took / FOREGROUND_TIMES as f64);
            let share = sent / run.plan.slow.up.bits_per_sec as f64;
            run.add("sent meanwhile, of the link's rate", on, turn, share);
        }
    }
    Ok(())
}

fn look(source: &Path) -> Result<()> {
    ensure!(tree::scan(source)? > 0 && tree::read(source)? > 0, "there is no tree");
    Ok(())
}

const ECHO_PORT: u16 = 7022;
/// What ssh sends for a key that was pressed: a packet of this size, and gets one back.
const KEY_BYTES: usize = 36;
const KEYS_IDLE: usize = 60;
const KEYS_BUSY: usize = 150;
/// A quick typist's.
const KEY_EVERY: Duration = Duration::from_millis(250);

/// Another program's TCP stream: a key is sent, and its echo comes back.
pub fn stream(run: &mut Run) -> Result<()> {
    let rig = Rig::start(run, &run.plan.slow, "partial")?;
    let mut keyboard = Keyboard::start(&rig.link)?;
    let idle = keyboard.press(KEYS_IDLE)?;
    noise(&rig.root().join("large"), LARGE_BYTES, 2)?;
    thread::sleep(SETTLING);
    let (before, start) = (rig.link.counters().up.carried.bytes, Instant::now());
    let busy = keyboard.press(KEYS_BUSY)?;
    let rate = (rig.link.counters().up.carried.bytes - before) as f64 * 8.0
        / start.elapsed().as_secs_f64();
    ensure!(rig.mount.pending()? > 0, "the large file was sent before the end");
    for (on, trips) in [(OFF, idle), (ON, busy)] {
        for (number, trip) in trips.into_iter().enumerate() {
            run.add("round trip, s", on, number, trip);
        }
    }
    run.add("sent of the link's rate", ON, 0, rate / run.plan.slow.up.bits_per_sec as f64);
    Ok(())
}

struct Keyboard {
    stream: TcpStream,
    random: Random,
}

impl Keyboard {
    fn start(link: &Link) -> Result<Self> {
        let address = (link.far().address(), ECHO_PORT);
        let system = |doing| move |source| bench::Error::System { doing, source };
        let listener =
            link.far().inside(|| TcpListener::bind(address).map_err(system("cannot listen")))?;
        // Ends when the other end is closed.
        thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let mut key = [0; KEY_BYTES];
            loop {
                stream.read_exact(&mut key)?;
                stream.write_all(&key)?;
            }
            #[expect(unreachable_code, reason = "it names the type of the errors")]
            Ok::<(), std::io::Error>(())
        });
        let stream =
            link.near().inside(|| TcpStream::connect(address).map_err(system("cannot connect")))?;
        stream.set_nodelay(true).context("cannot set up the stream")?;
        Ok(Self { stream, random: Random::new(3) })
    }

    /// How long each echo takes to come, in seconds.
    fn press(&mut self, keys: usize) -> Result<Vec<f64>> {
        let mut key = [7; KEY_BYTES];
        let mut trips = Vec::new();
        for _ in 0..keys {
            let start = Instant::now();
            self.stream.write_all(&key).context("cannot send a key")?;
            self.stream.read_exact(&mut key).context("no echo came")?;
            trips.push(start.elapsed().as_secs_f64());
            // So that it does not keep step with the packets of the file.
            let odd = Duration::from_micros(self.random.below(KEY_EVERY.as_micros() as u64));
            thread::sleep(KEY_EVERY / 2 + odd);
        }
        Ok(trips)
    }
}

/// Of the file that is fetched, too small to be fetched in parts.
const FETCHED_BYTES: usize = 100 << 10;
const FETCHES: usize = 3;

/// Files that this device has never seen, one by one: alone, and while replay is busy.
pub fn demand(run: &mut Run) -> Result<()> {
    let mut rig = Rig::start(run, &run.fast, "partial")?;
    let name = |number: usize| format!("fetched-{number}");
    for number in 0..2 * FETCHES {
        noise(&rig.root().join(name(number)), FETCHED_BYTES, 10 + number as u64)?;
    }
    rig.mount.settle(run.bench.limit)?;
    rig.mount.unmount();
    rig.link.set_profile(&run.plan.slow);
    let directory = run.bench.work.part("second")?;
    let mut options = run.bench.farfs.clone();
    options.mode = Some("partial".into());
    rig.mount = Mount::new(&options, &rig.server, rig.link.near(), &directory)?;
    let fetch = |run: &mut Run, rig: &Rig, on: &str, number: usize| -> Result<()> {
        let (before, start) = (rig.link.counters(), Instant::now());
        let file = fs::read(rig.root().join(name(number))).context("cannot fetch a file")?;
        let took = start.elapsed().as_secs_f64();
        ensure!(file.len() == FETCHED_BYTES, "a file is short");
        let after = rig.link.counters();
        let rate =
            |before: u64, after: u64, lane: u64| (after - before) as f64 * 8.0 / took / lane as f64;
        let lanes = &run.plan.slow;
        let down =
            rate(before.down.carried.bytes, after.down.carried.bytes, lanes.down.bits_per_sec);
        let up = rate(before.up.carried.bytes, after.up.carried.bytes, lanes.up.bits_per_sec);
        run.add("a file of 100 KiB, s", on, number, took);
        run.add("of the link down", on, number, down);
        run.add("of the link up", on, number, up);
        Ok(())
    };
    for number in 0..FETCHES {
        fetch(run, &rig, OFF, number)?;
    }
    noise(&rig.root().join("large"), LARGE_BYTES, 4)?;
    thread::sleep(SETTLING);
    for number in FETCHES..2 * FETCHES {
        fetch(run, &rig, ON, number)?;
    }
    ensure!(rig.mount.pending()? > 0, "the large file was sent before the end");
    Ok(())
}
