//! What very many files, and very large ones, take of time and memory, phase by phase.
//! Holds: the peak of a phase is that of the phase; nothing of a phase is still pending when the
//! next one begins, unless its name says so.

mod contents;
mod report;
mod waits;

use crate::loopback::{Client, Memory, Origin, Status, processor_secs};
use anyhow::{Context, Result, ensure};
use contents::Counted;
pub use report::Kind;
use report::{Phase, Report};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most that it may take until everything is at the origin.
const SETTLING_MAX: Duration = Duration::from_secs(3 * 60 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is measured, and what was.
pub struct Bench<'a> {
    program: &'a Path,
    directory: &'a Path,
    /// Bytes of contents that the phases move, where that is what they are about.
    bytes: Option<u64>,
    phases: Vec<Phase>,
}

/// Who takes part in a phase.
#[derive(Clone, Copy, Default)]
struct Parts<'a> {
    origin: Option<&'a Origin>,
    client: Option<&'a Client>,
}

impl<'a> Bench<'a> {
    pub fn new(program: &'a Path, directory: &'a Path) -> Self {
        Self { program, directory, bytes: None, phases: Vec::new() }
    }

    pub fn save(self, kind: Kind, title: &str, out: &Path) -> Result<PathBuf> {
        Report::new(kind, title, self.program, self.directory, self.phases).save(out)
    }

    fn origin(&self, tree: Option<&Path>) -> Result<Origin> {
        Origin::start(self.program, &self.directory.join("origin"), tree)
    }

    fn client(&self, origin: &Origin, name: &str, mode: &str) -> Result<Client> {
        Client::new(origin, &self.directory.join(name), mode)
    }

    /// Does something, and notes how long it took and what those who take part had in memory.
    fn phase<T>(
        &mut self,
        name: &str,
        parts: Parts<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = parts.client.map(Client::status).transpose()?;
        let pids = [before.as_ref().map(|status| status.pid), origin_pid(parts)];
        pids.into_iter().flatten().try_for_each(Memory::begin_peak)?;
        let worked = worked(pids)?;
        let start = Instant::now();
        let done = work().with_context(|| name.to_owned())?;
        let seconds = start.elapsed().as_secs_f64();
        self.note(name, seconds, parts, (before.as_ref(), worked))?;
        Ok(done)
    }

    fn note(
        &mut self,
        name: &str,
        seconds: f64,
        parts: Parts<'_>,
        (before, worked_before): (Option<&Status>, [f64; 2]),
    ) -> Result<()> {
        // First, as asking may take memory and time.
        let after = worked([before.map(|status| status.pid), origin_pid(parts)])?;
        let spent = |part: usize| after[part] - worked_before[part];
        let origin = parts.origin.map(|origin| Memory::of(origin.pid)).transpose()?;
        let client = before.map(|before| Memory::of(before.pid)).transpose()?;
        let after = parts.client.map(Client::status).transpose()?;
        let moved = |of: fn(&Status) -> u64| {
            let (after, before) = (after.as_ref()?, before?);
            Some(of(after).saturating_sub(of(before)))
        };
        let phase = Phase {
            name: name.into(),
            seconds,
            bytes: self.bytes,
            client,
            origin,
            client_seconds: client.map(|_| spent(0)),
            origin_seconds: origin.map(|_| spent(1)),
            up_bytes: moved(|status| status.wire_bytes_sent),
            down_bytes: moved(|status| status.wire_bytes_received),
            pending: after.map_or(0, |status| status.pending_updates),
        };
        println!("{}", phase.line());
        self.phases.push(phase);
        Ok(())
    }

    /// Mounts, as the phase of this name.
    fn mounting(&mut self, name: &str, origin: &Origin, client: &mut Client) -> Result<()> {
        let at_first = worked([None, Some(origin.pid)])?;
        let start = Instant::now();
        client.mount().with_context(|| name.to_owned())?;
        let seconds = start.elapsed().as_secs_f64();
        let status = client.status()?;
        let parts = Parts { origin: Some(origin), client: Some(client) };
        self.note(name, seconds, parts, (Some(&status), at_first))
    }
}

/// Of client and origin.
fn worked(pids: [Option<u32>; 2]) -> Result<[f64; 2]> {
    let mut worked = [0.0; 2];
    for (part, pid) in pids.into_iter().enumerate() {
        worked[part] = pid.map(processor_secs).transpose()?.unwrap_or(0.0);
    }
    Ok(worked)
}

fn origin_pid(parts: Parts<'_>) -> Option<u32> {
    parts.origin.map(|origin| origin.pid)
}

pub fn files(bench: &mut Bench<'_>, files: u64) -> Result<()> {
    let origin = bench.origin(None)?;
    let mut first = bench.client(&origin, "first", "partial")?;
    let tree = first.point.join("tree");
    {
        let parts = Parts { origin: Some(&origin), client: Some(&first) };
        bench.phase("make them", parts, || contents::make(&tree, files))?;
        bench.phase("until all is at the origin", parts, || first.settle(SETTLING_MAX))?;
    }
    first.unmount()?;
    bench.mounting("mount the client again", &origin, &mut first)?;
    {
        let parts = Parts { origin: Some(&origin), client: Some(&first) };
        look_at_all(bench, "find all, cached", parts, &tree, files)?;
        bench.phase("read a thousand of them, cached", parts, || contents::read(&tree, files))?;
    }
    first.unmount()?;
    {
        let second = bench.client(&origin, "second", "partial")?;
        let tree = second.point.join("tree");
        let parts = Parts { origin: Some(&origin), client: Some(&second) };
        look_at_all(bench, "find all, another client", parts, &tree, files)?;
        look_at_all(bench, "find all, again", parts, &tree, files)?;
        bench.phase("read a thousand of them", parts, || contents::read(&tree, files))?;
    }
    at_the_origin(bench, origin)
}

/// What the origin does by itself or is told to, with all files in it.
fn at_the_origin(bench: &mut Bench<'_>, origin: Origin) -> Result<()> {
    let parts = Parts { origin: Some(&origin), client: None };
    bench.phase("farfs gc", parts, || origin.order("gc"))?;
    bench.phase("farfs check", parts, || origin.order("check"))?;
    drop(origin);
    let start = Instant::now();
    let origin = bench.origin(None)?;
    let seconds = start.elapsed().as_secs_f64();
    let parts = Parts { origin: Some(&origin), client: None };
    bench.note("start the origin again", seconds, parts, (None, [0.0; 2]))
}

fn look_at_all(
    bench: &mut Bench<'_>,
    name: &str,
    parts: Parts<'_>,
    tree: &Path,
    files: u64,
) -> Result<()> {
    let found = bench.phase(name, parts, || contents::count(tree))?;
    ensure!(found.files == files, "{name}: {} files were found of {files}", found.files);
    Ok(())
}

pub fn tree(bench: &mut Bench<'_>, files: u64) -> Result<()> {
    let served = bench.directory.join("served");
    contents::make(&served.join("tree"), files)?;
    let origin = bench.origin(Some(&served))?;
    let client = bench.client(&origin, "client", "partial")?;
    let parts = Parts { origin: Some(&origin), client: Some(&client) };
    let tree = client.point.join("tree");
    // A client sees files as they are taken in; the last directory comes last, or near it.
    bench.phase("until a client finds all", parts, || {
        let start = Instant::now();
        loop {
            let found = contents::count(&tree).unwrap_or_default();
            if found.files == files {
                return Ok(());
            }
            let passed = start.elapsed();
            ensure!(passed < SETTLING_MAX, "{} were found of {files}", found.files);
            // Looking is work for both, so it is done the less often the longer it takes.
            std::thread::sleep(LOOK_EVERY.max(passed / 8));
        }
    })?;
    bench.phase("read a thousand of them", parts, || contents::read(&tree, files))?;
    let made = served.join("tree").join("one more");
    bench.phase("until a client finds one more", parts, || {
        fs::write(&made, "more").context("cannot make a file")?;
        let start = Instant::now();
        while !tree.join("one more").exists() {
            ensure!(start.elapsed() < SETTLING_MAX, "it was not found");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    })?;
    drop(client);
    at_the_origin(bench, origin)
}

/// `conflicts`: so many files are stored by two clients, by the one without a link.
pub fn pending(bench: &mut Bench<'_>, files: u64, conflicts: u64) -> Result<()> {
    let origin = bench.origin(None)?;
    let mut client = bench.client(&origin, "client", "partial")?;
    let tree = client.point.join("tree");
    contents::store_shared(&client.point, conflicts, "first")?;
    client.settle(SETTLING_MAX)?;
    {
        let parts = Parts { origin: Some(&origin), client: Some(&client) };
        // Without a link only that can be changed which is known.
        contents::count(&client.point)?;
        client.set_mode("disconnected")?;
        bench.phase("make them, disconnected", parts, || {
            // What meets a conflict leaves while nearly all is still pending.
            contents::store_shared(&client.point, conflicts, "without a link")?;
            contents::make(&tree, files)
        })?;
    }
    if conflicts > 0 {
        let other = bench.client(&origin, "other", "partial")?;
        contents::store_shared(&other.point, conflicts, "by somebody else")?;
        other.settle(SETTLING_MAX)?;
    }
    client.unmount()?;
    client.mode = "disconnected".into();
    bench.mounting("mount the client again", &origin, &mut client)?;
    let parts = Parts { origin: Some(&origin), client: Some(&client) };
    let waits = bench.phase("until all is at the origin", parts, || {
        let settling = || {
            client.set_mode("partial")?;
            client.settle(SETTLING_MAX)
        };
        waits::meanwhile(&client, (&tree, files), settling).map(|((), waits)| waits)
    })?;
    for (name, longest) in waits {
        bench.note(name, longest.as_secs_f64(), Parts::default(), (None, [0.0; 2]))?;
    }
    let found = bench.phase("find all", parts, || contents::count(&tree))?;
    ensure!(found == Counted { files, ..found }, "{} files were found of {files}", found.files);
    Ok(())
}

/// One file of new bytes, through everything.
pub fn large(bench: &mut Bench<'_>, megabytes: u64) -> Result<()> {
    let bytes = megabytes.checked_mul(1_000_000).context("no file is as large")?;
    let beside = bench.directory.join("beside");
    bench.bytes = Some(bytes);
    let nobody = Parts::default();
    bench.phase("write it to the disk", nobody, || contents::make_large(&beside, bytes))?;
    bench.phase("read it from there", nobody, || contents::read_large(&beside, bytes))?;
    fs::remove_file(&beside).context("cannot remove what was written")?;
    let origin = bench.origin(None)?;
    let first = bench.client(&origin, "first", "partial")?;
    let parts = Parts { origin: Some(&origin), client: Some(&first) };
    let path = first.point.join("large");
    bench.phase("write it through a mount, and close it", parts, || {
        contents::make_large(&path, bytes)
    })?;
    bench.phase("then until it is at the origin", parts, || first.settle(SETTLING_MAX))?;
    bench.phase("read it there", parts, || contents::read_large(&path, bytes))?;
    drop(first);
    let second = bench.client(&origin, "second", "partial")?;
    let parts = Parts { origin: Some(&origin), client: Some(&second) };
    let path = second.point.join("large");
    bench.phase("read it by another client", parts, || contents::read_large(&path, bytes))?;
    bench.phase("read it there again", parts, || contents::read_large(&path, bytes))?;
    drop(second);
    let third = bench.client(&origin, "third", "connected")?;
    let parts = Parts { origin: Some(&origin), client: Some(&third) };
    let path = third.point.join("another");
    bench.phase("write another, connected", parts, || contents::make_other(&path, bytes))
}

/// A byte of a file full of new bytes: in its middle, and then one more at its end.
pub fn changed(bench: &mut Bench<'_>, gigabytes: u64) -> Result<()> {
    let bytes = gigabytes.checked_mul(1_000_000_000).context("no file is as large")?;
    let origin = bench.origin(None)?;
    let mut first = bench.client(&origin, "first", "partial")?;
    let path = first.point.join("large");
    {
        let parts = Parts { origin: Some(&origin), client: Some(&first) };
        bench.phase("write it", parts, || contents::make_large(&path, bytes))?;
        bench.phase("until it is at the origin", parts, || first.settle(SETTLING_MAX))?;
        bench.phase("change a byte in the middle", parts, || contents::change(&path, bytes / 2))?;
        bench.phase("until that is at the origin", parts, || first.settle(SETTLING_MAX))?;
    }
    first.unmount()?;
    bench.mounting("mount the client again", &origin, &mut first)?;
    let parts = Parts { origin: Some(&origin), client: Some(&first) };
    bench.phase("change a byte near the end", parts, || contents::change(&path, bytes - 1000))?;
    bench.phase("until that is at the origin", parts, || first.settle(SETTLING_MAX))?;
    bench.phase("add a byte", parts, || contents::change(&path, bytes))?;
    bench.phase("until that is at the origin", parts, || first.settle(SETTLING_MAX))
}

pub fn sparse(bench: &mut Bench<'_>, gigabytes: u64) -> Result<()> {
    let bytes = gigabytes.checked_mul(1_000_000_000).context("no file is as large")?;
    let origin = bench.origin(None)?;
    let first = bench.client(&origin, "first", "partial")?;
    let second = bench.client(&origin, "second", "partial")?;
    let (here, there) = (first.point.join("image"), second.point.join("image"));
    let (writes, reads) = (
        Parts { origin: Some(&origin), client: Some(&first) },
        Parts { origin: Some(&origin), client: Some(&second) },
    );
    bench.phase("write 64 places of 64 KiB", writes, || contents::make_sparse(&here, bytes))?;
    bench.phase("until it is at the origin", writes, || first.settle(SETTLING_MAX))?;
    bench.phase("read the places, another client", reads, || {
        contents::read_sparse(&there, bytes, None)
    })?;
    bench.phase("read the places again", reads, || contents::read_sparse(&there, bytes, None))?;
    bench.phase("change a byte", writes, || contents::change_sparse(&here, bytes))?;
    bench.phase("until that is at the origin", writes, || first.settle(SETTLING_MAX))?;
    bench.phase("read the places, changed", reads, || {
        contents::read_sparse(&there, bytes, Some(contents::CHANGED))
    })?;
    drop((first, second));
    at_the_origin(bench, origin)
}
