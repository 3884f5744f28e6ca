//! The log while the Andrew benchmark runs: how long it is, and how long updates stand in it.
//! From: partially connected operation, 6.3.

use super::andrew::{self, COLD};
use super::{Condition, Moment, PARTIAL_SLOW, Run};
use crate::loopback::{Asker, Replayed};
use crate::plot::{Lines, Point, Series};
use anyhow::{Result, ensure};
use bench::{Link, undo};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub const CONDITIONS: &[Condition] = &[COLD, PARTIAL_SLOW];
/// Table 3 in seconds: average and maximum, cold and hot.
pub const PAPER: [[u32; 2]; 2] = [[62, 207], [87, 249]];

const LOOK_EVERY: Duration = Duration::from_millis(500);

pub fn measure(run: &mut Run) -> Result<()> {
    CONDITIONS.iter().try_for_each(|condition| watch(run, condition))
}

struct Watched {
    moments: Vec<(f64, u64)>,
    ends: Vec<(String, f64)>,
    replayed: Replayed,
    emptied: f64,
}

fn watch(run: &mut Run, condition: &Condition) -> Result<()> {
    let on = condition.name;
    let watched = {
        let link = Link::start(&run.plan.slow)?;
        let mut stage = andrew::stage(run, condition, Some(&link))?;
        andrew::prepare(&mut stage, run, condition)?;
        let (program, point) = (run.bench.farfs.program.clone(), stage.backend.root().to_owned());
        observe(&program, &point, run.bench.limit, |start, ends| {
            andrew::phases(&mut stage, &mut |phase| {
                ends.push((phase.to_owned(), start.elapsed().as_secs_f64()));
                Ok(())
            })
        })?
    };
    undo::hold_if_ending();
    let mean = watched.replayed.waited_ms as f64 / watched.replayed.updates.max(1) as f64;
    run.add("updates", on, 0, watched.replayed.updates as f64);
    run.add("average", on, 0, mean / 1000.0);
    run.add("maximum", on, 0, watched.replayed.waited_most_ms as f64 / 1000.0);
    let longest = watched.moments.iter().map(|(_, pending)| *pending).max();
    run.add("longest", on, 0, longest.unwrap_or(0) as f64);
    run.add("emptied", on, 0, watched.emptied);
    for (phase, end) in watched.ends {
        run.add(format!("end of {phase}"), on, 0, end);
    }
    let moments = watched.moments.into_iter();
    let moments = moments.map(|(secs, pending)| Moment { on: on.into(), secs, pending });
    run.moments.extend(moments);
    Ok(())
}

/// Does the work and waits until the log is empty; looks at it all the time.
fn observe(
    program: &Path,
    point: &Path,
    within: Duration,
    work: impl FnOnce(Instant, &mut Vec<(String, f64)>) -> Result<()>,
) -> Result<Watched> {
    let asker = Asker { program: program.into(), point: point.into() };
    let before = asker.status()?.replayed;
    let (moments, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let start = Instant::now();
    let mut ends = Vec::new();
    let look = || -> Result<u64> {
        let status = asker.status()?;
        let secs = start.elapsed().as_secs_f64();
        let mut moments = moments.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        moments.push((secs, status.pending_updates));
        Ok(status.pending_updates)
    };
    thread::scope(|scope| -> Result<()> {
        let watching = scope.spawn(|| -> Result<()> {
            while !over.load(Ordering::Acquire) {
                look()?;
                thread::sleep(LOOK_EVERY);
            }
            while look()? > 0 {
                ensure!(start.elapsed() < within, "the log is not empty after {within:?}");
                thread::sleep(LOOK_EVERY);
            }
            Ok(())
        });
        let done = work(start, &mut ends);
        over.store(true, Ordering::Release);
        let watched = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.and(watched)
    })?;
    let after = asker.status()?.replayed;
    let replayed = Replayed {
        updates: after.updates - before.updates,
        waited_ms: after.waited_ms - before.waited_ms,
        // Before, all was quick.
        ..after
    };
    let emptied = start.elapsed().as_secs_f64();
    let moments = moments.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Watched { moments, ends, replayed, emptied })
}

/// Figure 1.
pub fn plot(moments: &[Moment]) -> Option<String> {
    let series = CONDITIONS.iter().filter_map(|condition| {
        let own = moments.iter().filter(|moment| moment.on == condition.name);
        let points: Vec<_> = own
            .map(|moment| Point { x: moment.secs, y: moment.pending as f64, more: false })
            .collect();
        (!points.is_empty()).then(|| Series { name: condition.name.into(), points })
    });
    let series: Vec<_> = series.collect();
    if series.is_empty() {
        return None;
    }
    let lines = Lines {
        title: "Updates in the log while the Andrew benchmark runs, and after it".into(),
        x: "time, s".into(),
        y: "updates".into(),
        series,
    };
    Some(lines.to_svg_over_time())
}
