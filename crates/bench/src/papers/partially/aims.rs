//! What coming back, a single update, and work without a link cost.

use super::Run;
use super::live::Rig;
use crate::backend::farfs::Mount;
use crate::loopback::Asker;
use crate::source;
use crate::workload::{git, tree};
use anyhow::{Context, Result, ensure};
use bench::{Lane, Profile, Traffic};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Of IPv4 and UDP, before what QUIC makes of it.
const HEADER_BYTES: u64 = 20 + 8;
/// Acknowledgements that are held back come within this, and nothing else does.
const TRAILING: Duration = Duration::from_secs(3);
/// Until a mount that does nothing is silent.
const SILENT: Duration = Duration::from_secs(20);

/// Columns of `mkdir`.
pub const SOON: &str = "soon after another";
pub const AFTER_SILENCE: &str = "after 20 s of silence";

/// One directory is made, on a link on which nothing else happens.
pub fn mkdir(run: &mut Run) -> Result<()> {
    let rig = Rig::start(run, &run.plan.slow, "partial")?;
    for number in 0..run.plan.runs {
        thread::sleep(SILENT);
        for (on, name) in [(AFTER_SILENCE, "a"), (SOON, "b")] {
            let before = rig.link.counters();
            fs::create_dir(rig.root().join(format!("{name}{number}")))
                .context("cannot make a directory")?;
            rig.mount.settle(run.bench.limit)?;
            thread::sleep(TRAILING);
            let wire = between(before, rig.link.counters());
            for (what, value) in wire.rows() {
                run.add(what, on, number, value as f64);
            }
        }
    }
    Ok(())
}

struct Wire {
    packets: u64,
    ip_bytes: u64,
}

fn between(before: Traffic, after: Traffic) -> Wire {
    let packets = |traffic: Traffic| traffic.up.carried.packets + traffic.down.carried.packets;
    Wire { packets: packets(after) - packets(before), ip_bytes: after.bytes() - before.bytes() }
}

impl Wire {
    fn rows(&self) -> [(&'static str, u64); 3] {
        [
            ("packets", self.packets),
            ("bytes of IP packets", self.ip_bytes),
            ("bytes in UDP datagrams", self.ip_bytes - self.packets * HEADER_BYTES),
        ]
    }
}

const CHANGED: u64 = 10;
const FILES_EACH: u64 = 1_000;
/// Each way: so long that round trips can be counted by the clock.
const FAR: Duration = Duration::from_millis(500);
/// Longer than any lease; after that a day is no different.
const AWAY: Duration = Duration::from_secs(150);

const SEEN_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Columns of `reconnect`: the mount has been there all the time, or is made anew.
pub const COMING: &str = "link back, until a changed file is seen";
pub const REMOUNTED: &str = "mounted anew, until a changed file is seen";

/// A device with many cached files comes back after others have changed a few.
pub fn reconnect(run: &mut Run) -> Result<()> {
    let mut rig = Rig::start(run, &run.fast, "partial")?;
    let files = run.plan.files;
    let other_link = rig.link.join(&run.fast)?;
    let directory = run.bench.work.part("other")?;
    let mut options = run.bench.farfs.clone();
    options.mode = Some("partial".into());
    let other = Mount::new(&options, &rig.server, other_link.near(), &directory)?;
    make_many(&other.point, files)?;
    other.settle(run.bench.limit)?;
    let seen = read_all(rig.root(), files)?;
    ensure!(seen > 0, "nothing was read");
    let far = Profile::symmetric("far", Lane::new(run.fast.up.bits_per_sec, FAR));
    for number in 0..run.plan.runs {
        for on in [COMING, REMOUNTED] {
            rig.mount.settle(run.bench.limit)?;
            if on == REMOUNTED {
                rig.mount.unmount();
            }
            rig.link.cut();
            let text = format!("changed {number}, {on}\n");
            for changed in 0..CHANGED {
                let path = file(&other.point, changed * files / CHANGED);
                fs::write(&path, &text)
                    .with_context(|| format!("cannot change {}", path.display()))?;
            }
            other.settle(run.bench.limit)?;
            thread::sleep(AWAY);
            rig.link.set_profile(&far);
            rig.link.restore();
            let before = rig.link.counters();
            let since = Instant::now();
            if on == REMOUNTED {
                rig.mount.again()?;
            }
            let tried = seen_within(&rig, before, &file(rig.root(), 0), text.len() as u64)?;
            // Until it tries again, somebody who was away waits for nobody.
            let took = if on == REMOUNTED { since } else { tried }.elapsed().as_secs_f64();
            thread::sleep(TRAILING);
            let wire = between(before, rig.link.counters());
            run.add("round trips", on, number, took / (2.0 * FAR.as_secs_f64()));
            for (what, value) in wire.rows() {
                run.add(what, on, number, value as f64);
            }
            rig.link.set_profile(&run.fast);
        }
    }
    Ok(())
}

/// Waits until a file has its new size. Returns when the first packet had left.
fn seen_within(rig: &Rig, before: Traffic, changed: &Path, size: u64) -> Result<Instant> {
    let start = Instant::now();
    let mut tried = None;
    loop {
        if rig.link.counters().up.carried.packets > before.up.carried.packets {
            tried.get_or_insert_with(Instant::now);
        }
        let now = fs::metadata(changed).context("cannot look at a file")?.len();
        if let (Some(tried), true) = (tried, now == size) {
            return Ok(tried);
        }
        ensure!(start.elapsed() < SEEN_MAX, "what was changed is not seen: {now} bytes");
        thread::sleep(LOOK_EVERY);
    }
}

fn file(root: &Path, number: u64) -> PathBuf {
    root.join(format!("many/{}/{number}", number / FILES_EACH))
}

fn make_many(root: &Path, files: u64) -> Result<()> {
    for number in 0..files {
        let path = file(root, number);
        if number % FILES_EACH == 0 {
            let directory = path.parent().context("a file is in a directory")?;
            fs::create_dir_all(directory).context("cannot make a directory")?;
        }
        fs::write(&path, format!("note {number}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn read_all(root: &Path, files: u64) -> Result<u64> {
    let mut bytes = 0;
    for number in 0..files {
        let path = file(root, number);
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        bytes += text.len() as u64;
    }
    Ok(bytes)
}

const EDITS: usize = 20;

type Work = fn(&Path) -> Result<()>;

/// The same work twice: where each update is sent at once, and without a link until its end.
pub fn cancelled(run: &mut Run) -> Result<()> {
    let built = run.material.built()?;
    for (name, work) in [("edit and compile", edit_and_compile as Work), ("git", git_work)] {
        for on in ["connected", "disconnected, then replayed"] {
            let rig = Rig::start(run, &run.fast, "connected")?;
            let root = rig.root().to_owned();
            tree::copy_built(&built, &root.join("tree"))?;
            if name == "git" {
                git::begin(&root.join("tree"))?;
            }
            rig.mount.settle(run.bench.limit)?;
            let asker = rig.mount.asker();
            let (before, link) = (asker.status()?.replayed.updates, rig.link.counters());
            if on != "connected" {
                rig.mount.set_mode("disconnected")?;
            }
            work(&root.join("tree"))?;
            if on != "connected" {
                run.add("pending updates", format!("{name}, {on}"), 0, pending(&asker)?);
                rig.mount.set_mode("partial")?;
            }
            rig.mount.settle(run.bench.limit)?;
            let updates = asker.status()?.replayed.updates - before;
            let bytes = rig.link.counters().up.carried.bytes - link.up.carried.bytes;
            run.add("updates", format!("{name}, {on}"), 0, updates as f64);
            run.add("bytes up", format!("{name}, {on}"), 0, bytes as f64);
        }
    }
    Ok(())
}

fn pending(asker: &Asker) -> Result<f64> {
    Ok(asker.status()?.pending_updates as f64)
}

fn edit_and_compile(tree: &Path) -> Result<()> {
    (0..EDITS).try_for_each(|number| {
        source::edit_middle(tree, number)?;
        source::make(tree)
    })
}

fn git_work(tree: &Path) -> Result<()> {
    (0..EDITS).try_for_each(|number| git::change(tree, number))
}
