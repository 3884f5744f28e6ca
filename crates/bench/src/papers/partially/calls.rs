//! Single calls that change something, each on a file of its own.
//! From: partially connected operation, 6.1.

use super::{
    CONNECTED_FAST, CONNECTED_SLOW, Condition, EXT4, PARTIAL_FAST, PARTIAL_SLOW, Run, SSHFS_FAST,
    SSHFS_SLOW, Speed, middle,
};
use crate::backend::Backend;
use anyhow::{Context, Result};
use bench::Link;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The rows of table 1, with the paper's times in ms over Ethernet, C-SLIP and P-SLIP.
pub const CALLS: &[(&str, [u32; 3])] = &[
    ("setattr", [21, 516, 33]),
    ("write", [255, 3_517, 123]),
    ("create", [218, 2_036, 99]),
    ("remove", [62, 629, 41]),
    ("rename", [23, 294, 41]),
    ("link", [36, 319, 40]),
    ("symlink", [125, 383, 47]),
    ("mkdir", [129, 635, 73]),
    ("rmdir", [132, 351, 40]),
];

pub const CONDITIONS: &[Condition] =
    &[EXT4, PARTIAL_FAST, PARTIAL_SLOW, CONNECTED_FAST, SSHFS_FAST, CONNECTED_SLOW, SSHFS_SLOW];

const CALLS_EACH: usize = 40;
/// Where every call waits for the slow link.
const CALLS_EACH_SLOW: usize = 2;
const ROUNDS_SLOW: usize = 2;
const WRITE_BYTES: usize = 4 << 10;
/// Turns that are taken for each run that was asked for.
const ROUNDS: usize = 4;
const SETTLE: Duration = Duration::from_secs(60);

/// A system that is set up; dropped in this order.
struct Placed {
    condition: Condition,
    backend: Box<dyn Backend>,
    _link: Option<Link>,
}

impl Placed {
    fn waits_for_the_slow_link(&self) -> bool {
        let Condition { speed, mode, .. } = self.condition;
        speed == Speed::Slow && mode != Some("partial")
    }
}

pub fn measure(run: &mut Run) -> Result<()> {
    let mut placed = place(run)?;
    let rounds = run.plan.runs * ROUNDS;
    for round in 0..rounds {
        // Whoever comes first in one round comes last in the next.
        placed.reverse();
        for one in &mut placed {
            let slow = one.waits_for_the_slow_link();
            if slow && round >= ROUNDS_SLOW {
                continue;
            }
            let calls = if slow { CALLS_EACH_SLOW } else { CALLS_EACH };
            let times = all(&one.backend.root().join(format!("round-{round}")), calls)
                .with_context(|| one.condition.name.to_owned())?;
            for (call, times) in times {
                let median = middle(times).context("a call was made")?;
                run.add(call, one.condition.name, round, median);
            }
            // What it leaves to be sent is not to meet the next one. A slow link's is seldom felt.
            if one.condition.speed == Speed::Fast {
                one.backend.settle(SETTLE)?;
            }
        }
    }
    Ok(())
}

fn place(run: &Run) -> Result<Vec<Placed>> {
    let mut placed = Vec::new();
    let work = run.bench.work.part("calls")?;
    for (number, &condition) in CONDITIONS.iter().enumerate() {
        let directory = work.join(number.to_string());
        fs::create_dir(&directory).context("cannot make a directory")?;
        let profile = condition.profile(&run.fast, &run.plan.slow);
        let link = condition.system.has_link().then(|| Link::start(profile)).transpose()?;
        let options = condition.options(&run.bench.farfs);
        let backend = condition
            .system
            .start(&directory, link.as_ref(), &options)
            .with_context(|| format!("cannot set up {}", condition.name))?;
        placed.push(Placed { condition, backend, _link: link });
    }
    Ok(placed)
}

type Times = BTreeMap<&'static str, Vec<f64>>;

/// Each call so many times, in a new directory.
fn all(directory: &Path, calls: usize) -> Result<Times> {
    let mut times = Times::new();
    fs::create_dir(directory).context("cannot make a directory")?;
    let at = |name: &str, number: usize| directory.join(format!("{name}-{number}"));
    let mut each = |call: &'static str, work: &mut dyn FnMut(usize) -> Result<Duration>| {
        let took = (0..calls).map(|number| work(number).map(|took| took.as_secs_f64()));
        let took = took.collect::<Result<Vec<_>>>().with_context(|| call.to_owned())?;
        times.insert(call, took);
        Ok::<_, anyhow::Error>(())
    };
    let mut made = Vec::new();
    each("create", &mut |n| {
        timed(|| {
            made.push(File::create_new(at("made", n))?);
            Ok(())
        })
    })?;
    drop(made);
    each("write", &mut |n| write(&at("made", n)))?;
    each("setattr", &mut |n| {
        timed(|| fs::set_permissions(at("made", n), Permissions::from_mode(0o600)))
    })?;
    each("rename", &mut |n| timed(|| fs::rename(at("made", n), at("named", n))))?;
    each("link", &mut |n| timed(|| fs::hard_link(at("named", n), at("linked", n))))?;
    each("symlink", &mut |n| timed(|| symlink("target", at("symbolic", n))))?;
    each("mkdir", &mut |n| timed(|| fs::create_dir(at("directory", n))))?;
    each("rmdir", &mut |n| timed(|| fs::remove_dir(at("directory", n))))?;
    each("remove", &mut |n| {
        fs::remove_file(at("linked", n))?;
        timed(|| fs::remove_file(at("named", n)))
    })?;
    Ok(times)
}

fn timed(call: impl FnOnce() -> std::io::Result<()>) -> Result<Duration> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed())
}

/// A file that is open is written and closed: with the close it becomes an update.
fn write(path: &PathBuf) -> Result<Duration> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let bytes = [b'x'; WRITE_BYTES];
    timed(move || {
        file.write_all(&bytes)?;
        drop(file);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_table_is_made_and_leaves_what_it_should() {
        let directory = std::env::temp_dir().join(format!("bench-calls-{}", std::process::id()));
        let times = all(&directory, 3).unwrap();
        for (call, _) in CALLS {
            assert_eq!(times[call].len(), 3, "{call}");
        }
        assert_eq!(times.len(), CALLS.len());
        // All that is left are the symbolic links.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_dir_all(directory).unwrap();
    }
}
