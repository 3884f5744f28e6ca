//! `bench papers`: what the papers show in their figures, on today's systems.

use crate::backend::FarfsOptions;
use crate::measure::Bench;
use crate::papers::lbfs;
use crate::program;
use crate::source::Source;
use crate::workdir::WorkDir;
use crate::workload::Material;
use crate::workload::insert::{Content, Insert};
use anyhow::Result;
use bench::Profile;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Measure what the papers measured, and plot it
#[derive(Subcommand)]
pub enum Papers {
    /// Bandwidth and time of saving and recompiling, by system, bandwidth and delay
    Lbfs(Lbfs),
}

#[derive(Args)]
pub struct Lbfs {
    /// Which figures to measure; the others stay as they were measured today
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["systems", "rates", "delays-document", "delays-recompile"])]
    figures: Vec<lbfs::Figure>,
    /// Rates each way to recompile over, in kb/s
    #[arg(long, value_name = "KBITS", value_delimiter = ',', default_values_t = [128, 512, 2048, 8192])]
    rates: Vec<u64>,
    /// Round trips to save and recompile over, in ms
    #[arg(long, value_name = "MS", value_delimiter = ',', default_values_t = [2, 20, 60, 160])]
    round_trips: Vec<u64>,
    /// The program to measure [default: the release build, else the one beside this program]
    #[arg(long, value_name = "PATH")]
    farfs: Option<PathBuf>,
    /// The most seconds that one phase may take
    #[arg(long, value_name = "SECS", default_value_t = 300)]
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
}

impl Papers {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Lbfs(lbfs) => lbfs.run(),
        }
    }
}

impl Lbfs {
    fn run(self) -> Result<()> {
        let program = program::find(self.farfs.as_deref(), false)?;
        let source = Source::get(&self.data)?;
        let work = WorkDir::make(&self.work)?;
        let profile = Profile::named("adsl")?;
        let material = Material {
            source: &source,
            profile: &profile,
            data: &self.data,
            insert: Insert::over(&profile, None, Content::Random),
        };
        let bench = Bench {
            farfs: FarfsOptions { program, mode: None },
            limit: Duration::from_secs(self.limit),
            work: &work,
        };
        let plan = lbfs::Plan {
            figures: self.figures,
            rates_kbits: self.rates,
            round_trips_ms: self.round_trips,
        };
        let report = lbfs::run(&bench, &material, &plan, &self.out)?;
        println!("written to {}", report.display());
        Ok(())
    }
}
