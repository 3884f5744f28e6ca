//! The Andrew benchmark on a tree in the volume, its phases one after the other while what they did
//! is replayed.
//! From: partially connected operation, 6.2 and 6.4.

use super::{
    CONNECTED_FAST, CONNECTED_SLOW, Condition, EXT4, PARTIAL_FAST, PARTIAL_SLOW, Run, SSHFS_FAST,
    SSHFS_SLOW, Value,
};
use crate::source;
use crate::stage::{Stage, Unfinished};
use crate::workload::tree;
use anyhow::{Context, Result, ensure};
use bench::Link;
use std::path::Path;

pub const PHASES: &[&str] = &["MakeDir", "Copy", "ScanDir", "ReadAll", "Make"];

/// Table 2, with the paper's seconds over Ethernet, C-SLIP and P-SLIP.
pub const PAPER: &[[u32; 3]] =
    &[[4, 29, 2], [31, 191, 23], [18, 26, 45], [28, 30, 40], [117, 507, 116]];
pub const PAPER_TOTAL: [u32; 3] = [200, 783, 218];

/// Table 4, I to IV, and table 5: I', IV' and the local disk.
pub const PAPER_INTERFERENCE: &[[u32; 7]] = &[
    [3, 3, 2, 3, 2, 2, 3],
    [19, 26, 47, 23, 18, 23, 13],
    [14, 15, 48, 45, 14, 16, 13],
    [25, 25, 40, 40, 24, 42, 23],
    [94, 96, 106, 116, 93, 104, 88],
];
pub const PAPER_INTERFERENCE_TOTAL: [u32; 7] = [155, 165, 249, 218, 152, 197, 139];

pub const COLD: Condition = Condition { name: "partial, slow, cold", hot: false, ..PARTIAL_SLOW };
pub const HELD: Condition =
    Condition { name: "fetch-only, slow", then: Some("fetch-only"), ..PARTIAL_SLOW };
pub const HELD_COLD: Condition = Condition { name: "fetch-only, slow, cold", hot: false, ..HELD };
pub const ALONE: Condition =
    Condition { name: "disconnected", then: Some("disconnected"), ..PARTIAL_SLOW };

/// What is repeated, in turns.
pub const CONDITIONS: &[Condition] =
    &[EXT4, PARTIAL_FAST, PARTIAL_SLOW, HELD, COLD, HELD_COLD, ALONE, CONNECTED_FAST, SSHFS_FAST];
/// What is measured once.
pub const ONCE: &[Condition] = &[CONNECTED_SLOW, SSHFS_SLOW];

pub fn measure(run: &mut Run) -> Result<()> {
    for number in 0..run.plan.runs {
        let mut turn: Vec<_> = CONDITIONS.to_vec();
        if number % 2 == 1 {
            turn.reverse();
        }
        for condition in turn {
            once(run, &condition, number)?;
        }
    }
    Ok(())
}

pub fn measure_slow(run: &mut Run) -> Result<()> {
    ONCE.iter().try_for_each(|condition| once(run, condition, 0))
}

fn once(run: &mut Run, condition: &Condition, number: usize) -> Result<()> {
    let (values, why) = {
        let profile = condition.profile(&run.fast, &run.plan.slow);
        let link = condition.system.has_link().then(|| Link::start(profile)).transpose()?;
        let mut stage = stage(run, condition, link.as_ref())?;
        let done =
            prepare(&mut stage, run, condition).and_then(|()| phases(&mut stage, &mut |_| Ok(())));
        bench::undo::hold_if_ending();
        let values: Vec<(String, f64, bool)> = stage
            .samples
            .iter()
            .filter(|sample| PHASES.contains(&sample.phase.as_str()))
            .map(|sample| {
                let more = sample.unfinished == Some(Unfinished::Work);
                (sample.phase.clone(), sample.seconds, more)
            })
            .collect();
        (values, done.err())
    };
    let all: f64 = values.iter().map(|(_, secs, _)| secs).sum();
    let cut = why.is_some();
    println!("{}: {all:.2} s{}", condition.name, if cut { ", not finished" } else { "" });
    let total = ("Total".to_owned(), all, cut);
    for (what, value, more) in values.into_iter().chain([total]) {
        let (part, on) = (run.part, condition.name.into());
        run.values.push(Value { part, what, on, run: number, value, more });
    }
    match why {
        Some(error) if !error.is::<crate::process::TooLong>() => Err(error.context(condition.name)),
        _ => Ok(()),
    }
}

/// The condition's system, set up for one run of the benchmark.
pub fn stage<'a>(run: &'a Run, condition: &Condition, link: Option<&'a Link>) -> Result<Stage<'a>> {
    let directory = run.bench.work.part("andrew")?;
    // What is prepared is to get to the origin, whatever mode is measured then.
    let backend = condition
        .system
        .start(&directory, link, &condition.options(&run.bench.farfs))
        .with_context(|| format!("cannot set up {}", condition.name))?;
    Ok(Stage {
        backend,
        link,
        profile: condition.profile(&run.fast, &run.plan.slow),
        limit: run.bench.limit,
        workload: "andrew",
        system: condition.name,
        run: 0,
        samples: Vec::new(),
    })
}

/// The source tree in the volume, at the origin and in the cache, over the link that is measured.
pub fn prepare(stage: &mut Stage, run: &Run, condition: &Condition) -> Result<()> {
    let source = &run.material.source.tree;
    stage.prepare_warm(|root| {
        let to = root.join("source");
        tree::copy(source, &to)?;
        look(&to)
    })?;
    let root = stage.backend.root().to_owned();
    if let (Some(mode), false) = (condition.then, condition.hot) {
        stage.backend.set_mode(mode)?;
    }
    if condition.hot {
        look(&root.join("source"))?;
        // The compiler and the source are in the kernel's cache for everybody.
        look(source)?;
    }
    if let (Some(mode), true) = (condition.then, condition.hot) {
        stage.backend.set_mode(mode)?;
    }
    Ok(())
}

fn look(tree: &Path) -> Result<()> {
    ensure!(tree::scan(tree)? > 0, "there is no tree");
    tree::read(tree).map(drop)
}

/// Calls `after` with each phase that has ended.
pub fn phases(stage: &mut Stage, after: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let mut step = |name: &str, work: &(dyn Fn(&Path, &Path) -> Result<()> + Sync)| {
        stage.step(name, |root| work(&root.join("source"), &root.join("tree")))?;
        after(name)
    };
    step("MakeDir", &|from, to| tree::copy_directories(from, to))?;
    step("Copy", &|from, to| tree::copy_files(from, to))?;
    step("ScanDir", &|from, to| {
        ensure!(tree::scan(to)? == tree::scan(from)?, "files are missing");
        Ok(())
    })?;
    step("ReadAll", &|_, to| {
        ensure!(tree::read(to)? > 0, "contents are missing");
        Ok(())
    })?;
    step("Make", &|_, to| source::make(to))
}
