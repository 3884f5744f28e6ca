//! `bench run`: workloads over a profile, on FarFS and on what it is compared with.

use crate::backend::{FarfsOptions, System};
use crate::machine::{self, Machine};
use crate::program;
use crate::report::Report;
use crate::source::Source;
use crate::stage::{Sample, Stage};
use crate::workdir::WorkDir;
use crate::workload::{self, Material, Workload};
use anyhow::{Context, Result, bail};
use bench::{Link, Profile, command};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;
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
        let material = Material { source: &source, profile: &profile };
        println!("{}: {}", profile.name, profile.words());
        let mut samples = Vec::new();
        for workload in workloads {
            for run in 0..self.runs {
                for &system in &systems {
                    samples.extend(self.measure(workload, system, run, &work, &material, &farfs)?);
                }
            }
        }
        let report = Report {
            date: machine::today(),
            profile: profile.name.clone(),
            link: profile.words(),
            machine: Machine::this(&work.path),
            systems: systems.iter().map(|&system| version(system, &farfs)).collect(),
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
        let others = self.against.iter().copied().filter(|&system| system != System::Farfs);
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

    /// One workload, once, on one system that is set up for it alone. What fails is a sample, too.
    fn measure(
        &self,
        workload: &Workload,
        system: System,
        run: usize,
        work: &WorkDir,
        material: &Material,
        farfs: &FarfsOptions,
    ) -> Result<Vec<Sample>> {
        let directory = work.part("run")?;
        // Set up over the link that is measured, so that what is found out of it is true.
        let link = system.has_link().then(|| Link::start(material.profile)).transpose()?;
        let backend = system
            .start(&directory, link.as_ref(), farfs)
            .with_context(|| format!("cannot set up {}", system.name()))?;
        let mut stage = Stage {
            backend,
            link: link.as_ref(),
            profile: material.profile,
            limit: Duration::from_secs(self.limit),
            workload: workload.name,
            system: system.name(),
            run,
            samples: Vec::new(),
        };
        let ran = (workload.run)(&mut stage, material);
        bench::undo::hold_if_ending();
        if let Err(error) = ran {
            eprintln!("{} on {}: {error:#}", workload.name, system.name());
            stage.failed(&error);
        }
        Ok(stage.samples)
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

/// A system's name with its version, as it says it itself.
fn version(system: System, farfs: &FarfsOptions) -> String {
    let said = |program: &mut Command, word: &str| {
        let printed = command::run(program.arg("--version")).unwrap_or_default();
        printed.lines().find(|line| line.contains(word)).unwrap_or(word).to_owned()
    };
    match system {
        System::Ext4 => "ext4: a directory on the local disk".into(),
        System::Sshfs => said(&mut Command::new("sshfs"), "SSHFS"),
        System::SshfsZ => {
            said(&mut Command::new("sshfs"), "SSHFS") + ", with the compression of ssh"
        }
        System::Farfs => {
            let build = if program::is_debug(&farfs.program) { ", a debug build" } else { "" };
            let mode = farfs.mode.as_ref().map(|mode| format!(", mode {mode}")).unwrap_or_default();
            said(&mut Command::new(&farfs.program), "farfs") + build + &mode
        }
    }
}
