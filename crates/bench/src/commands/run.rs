//! `bench run`: workloads over a profile, on FarFS and on what it is compared with.

use crate::backend::{FarfsOptions, System};
use crate::machine::{self, Machine};
use crate::measure::{self, Bench};
use crate::program;
use crate::report::Report;
use crate::source::Source;
use crate::workdir::WorkDir;
use crate::workload::insert::{Content, Insert};
use crate::workload::{self, Material, Workload};
use anyhow::{Context, Result, bail};
use bench::Profile;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Measure workloads
#[derive(Args)]
pub struct Run {
    /// Names of workloads, or `all`, or `list`
    #[arg(required = true)]
    workloads: Vec<String>,
    #[arg(long, default_value = "adsl")]
    profile: String,
    /// What to compare FarFS with
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["ext4", "sshfs"])]
    against: Vec<System>,
    /// Measure only the others
    #[arg(long)]
    without_farfs: bool,
    /// The program to measure [default: the release build, else the one beside this program]
    #[arg(long, value_name = "PATH")]
    farfs: Option<PathBuf>,
    /// The mode in which FarFS is mounted [default: its own choice]
    #[arg(long)]
    mode: Option<String>,
    /// How often to repeat everything; tables show medians
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// The most seconds that one phase may take
    #[arg(long, value_name = "SECS", default_value_t = 1800)]
    limit: u64,
    /// The file of `insert`, in MB [default: 1000 over lan, else 64]
    #[arg(long, value_name = "MB")]
    insert_mb: Option<u64>,
    /// What that file holds
    #[arg(long, value_enum, default_value = "random")]
    insert_content: Content,
    /// A directory on the disk to work on
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work: PathBuf,
    /// Where what is fetched is kept
    #[arg(long, value_name = "DIR", default_value = "target/bench-data")]
    data: PathBuf,
    /// Where results are written
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
    /// Only show results
    #[arg(long)]
    no_save: bool,
}

impl Run {
    pub fn run(self) -> Result<()> {
        if self.workloads == ["list"] {
            workload::ALL.iter().for_each(|w| println!("{:12} {}", w.name, w.about));
            return Ok(());
        }
        let workloads = chosen(&self.workloads)?;
        let profile = Profile::named(&self.profile)?;
        let (systems, farfs) = self.systems()?;
        let source = Source::get(&self.data)?;
        let work = WorkDir::make(&self.work)?;
        let material = Material {
            source: &source,
            profile: &profile,
            data: &self.data,
            insert: Insert::over(&profile, self.insert_mb, self.insert_content),
        };
        let bench = Bench { farfs, limit: Duration::from_secs(self.limit), work: &work };
        println!("{}: {}", profile.name, profile.words());
        let mut samples = Vec::new();
        for workload in workloads {
            for run in 0..self.runs {
                for &system in &systems {
                    samples.extend(bench.measure(workload, system, run, &material)?);
                }
            }
        }
        let report = Report {
            date: machine::today(),
            profile: profile.name.clone(),
            link: profile.words(),
            machine: Machine::this(&work.path),
            systems: systems.iter().map(|&system| measure::version(system, &bench.farfs)).collect(),
            samples,
        };
        for (name, table) in report.tables() {
            println!("\n{name}\n{}", table.to_terminal());
        }
        for failure in report.failures() {
            println!("not finished: {failure}");
        }
        if !self.no_save {
            println!("written to {}", report.save(&self.out)?.display());
        }
        Ok(())
    }

    /// What is measured, FarFS first.
    fn systems(&self) -> Result<(Vec<System>, FarfsOptions)> {
        let others = self.against.iter().copied().filter(|&system| {
            system != System::Farfs && !(system.is_farfs() && self.without_farfs)
        });
        let own = (!self.without_farfs).then_some(System::Farfs);
        let systems: Vec<_> = own.into_iter().chain(others).collect();
        if systems.is_empty() {
            bail!("there is nothing to measure");
        }
        let program = match own {
            Some(_) => program::find(self.farfs.as_deref(), false)?,
            None => PathBuf::new(),
        };
        if program::is_debug(&program) {
            println!("{} is a debug build: it is slower than it should be", program.display());
        }
        Ok((systems, FarfsOptions { program, mode: self.mode.clone() }))
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Workload>> {
    if names == ["all"] {
        return Ok(workload::ALL.iter().collect());
    }
    let found = names.iter().map(|name| {
        workload::named(name)
            .with_context(|| format!("there is no workload {name}; `bench run list` shows them"))
    });
    found.collect()
}
