//! The demonstration: a programmer far from the server, a colleague, and what the same would cost
//! by copying.

pub mod keep;
mod plain;
mod steps;

use crate::backend::FarfsOptions;
use crate::backend::farfs::{Mount, Server};
use crate::program;
use crate::source::{self, Source};
use crate::table::{Table, bytes, seconds};
use crate::workdir::WorkDir;
use crate::workload::tree;
use anyhow::{Context, Result, ensure};
use bench::{Link, Profile, command};
use plain::{Cost, Plain, Way};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use steps::{Snapshot, Step, Steps};

/// The longest that anything may take to get to the server.
const HOME_MAX: Duration = Duration::from_secs(1800);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub struct Plan {
    pub profile: Profile,
    pub farfs: FarfsOptions,
    pub keep: bool,
    pub work: PathBuf,
    pub data: PathBuf,
}

pub fn run(plan: &Plan) -> Result<()> {
    println!("FarFS: {}", plan.farfs.program.display());
    if program::is_debug(&plan.farfs.program) {
        println!("       a debug build, slower than what is installed");
    }
    println!("link:  {}, {}", plan.profile.name, plan.profile.words());
    let source = Source::get(&plan.data)?;
    let work = WorkDir::make(&plan.work)?;
    let directory = work.part("demo")?;
    let link = Link::start(&plan.profile)?;
    let server = Server::start(&plan.farfs.program, &directory, link.far())?;
    let mut plain = Plain::start(&plan.profile, &directory)?;
    let mut mine = None;
    let mut steps = Steps::new(&link);
    steps.first("mount the volume", || {
        mine = Some(Mount::new(&plan.farfs, &server, link.near(), &directory.join("you"))?);
        Ok(())
    })?;
    let mine = mine.context("it was mounted in the first step")?;
    let tree = mine.point.join("tree");

    let mut write = |what: &str, work: &(dyn Fn() -> Result<()> + Sync)| -> Result<()> {
        let before = Snapshot::of(&tree);
        steps.write(what, &mine, work)?;
        plain.copy(what, Way::Up, &tree, &before.changed(&tree)?)
    };
    write("unpack a program, 2.5 MB", &|| unpack(&source, &mine.point))?;
    write("build it", &|| source::make(&tree))?;
    write("edit a file, build again", &|| edit(&tree, 1))?;

    let second_link = link.join(&plan.profile)?;
    let theirs =
        Mount::new(&plan.farfs, &server, second_link.near(), &directory.join("colleague"))?;
    let their_tree = theirs.point.join("tree");
    const READ: &str = "a colleague reads it all";
    steps.read(READ, &second_link, || tree::read(&their_tree).map(drop))?;
    plain.copy(READ, Way::Down, &tree, &Snapshot::empty().changed(&tree)?)?;
    same(&tree, &their_tree)?;

    link.cut();
    steps.offline("the link is cut: edit, build", || edit(&tree, 2))?;
    link.restore();
    steps.write("the link is back", &mine, &|| Ok(()))?;
    let seen = until_seen(&tree, &their_tree)?;
    println!("the colleague has the new version {} later", seconds(seen.as_secs_f64()));

    let costs = plain.finish()?;
    println!("\n{}", table(&steps.done, &costs).to_terminal());
    println!(
        "Copying: every file that a step changed, sent whole over a link like it, as tar and as\n\
         tar.gz. All bytes are counted on the link, headers included."
    );
    if plan.keep {
        let program = &plan.farfs.program;
        return keep::hold(&[&link, &second_link], program, &mine.point, &theirs.point);
    }
    Ok(())
}

fn unpack(source: &Source, to: &Path) -> Result<()> {
    command::run(Command::new("tar").arg("-xf").arg(&source.tar).arg("-C").arg(to))?;
    Ok(())
}

fn edit(tree: &Path, number: usize) -> Result<()> {
    source::edit(tree, number)?;
    source::make(tree)
}

/// What is the point of a fast file system that returns something else.
fn same(one: &Path, other: &Path) -> Result<()> {
    command::run(Command::new("diff").arg("-r").arg(one).arg(other))
        .context("the colleague sees other contents")?;
    Ok(())
}

/// How long it takes until the colleague's view is the same.
fn until_seen(mine: &Path, theirs: &Path) -> Result<Duration> {
    let read = |tree: &Path| std::fs::read(tree.join(source::EDITED));
    let (start, new) = (Instant::now(), read(mine)?);
    while read(theirs)? != new {
        ensure!(start.elapsed() < HOME_MAX, "the colleague never got the new version");
        std::thread::sleep(LOOK_EVERY);
    }
    let took = start.elapsed();
    same(mine, theirs)?;
    Ok(took)
}

fn table(steps: &[Step], costs: &[Cost]) -> Table {
    let mut table = Table::new(
        1,
        &["", "you wait", "at the server", "over the link", "copying", "", "compressed", ""],
    );
    for step in steps {
        let Step { what, took, home, bytes: over } = step;
        let mut cells = vec![
            what.clone(),
            seconds(took.as_secs_f64()),
            home.map(|home| seconds(home.as_secs_f64())).unwrap_or_default(),
            bytes(*over),
        ];
        if let Some(cost) = costs.iter().find(|cost| cost.what == *what) {
            for sent in [cost.plain, cost.compressed] {
                cells.push(seconds(sent.took.as_secs_f64()));
                cells.push(bytes(sent.bytes));
            }
        }
        table.row(cells);
    }
    table
}
