//! `bench papers`: what the papers show in their figures, on today's systems.

use crate::backend::FarfsOptions;
use crate::measure::Bench;
use crate::papers::{lbfs, partially};
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
    /// Single calls, the Andrew benchmark, the log and its replay, by link, cache and mode
    PartiallyConnected(PartiallyConnected),
}

#[derive(Args)]
pub struct PartiallyConnected {
    /// What to measure; the rest stays as it was measured today
    #[arg(long, value_enum, value_delimiter = ',', default_values = [
        "calls", "andrew", "andrew-slow", "log", "foreground", "stream", "demand", "reconnect",
        "mkdir", "cancelled",
    ])]
    parts: Vec<partially::Part>,
    /// The slow link; the fast one is `lan`
    #[arg(long, value_name = "NAME", default_value = "modem")]
    profile: String,
    /// How often to repeat what is compared; tables show medians
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Cached files of the device that comes back
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// The most seconds that one phase may take
    #[arg(long, value_name = "SECS", default_value_t = 600)]
    limit: u64,
    #[command(flatten)]
    places: Places,
}

#[derive(Args)]
struct Places {
    /// The program to measure [default: the release build, else the one beside this program]
    #[arg(long, value_name = "PATH")]
    farfs: Option<PathBuf>,
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
    /// The most seconds that one phase may take
    #[arg(long, value_name = "SECS", default_value_t = 300)]
    limit: u64,
    #[command(flatten)]
    places: Places,
}

impl Papers {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Lbfs(lbfs) => lbfs.run(),
            Self::PartiallyConnected(partially) => partially.run(),
        }
    }
}

/// Gives the work what every paper needs.
fn with_bench(
    places: &Places,
    limit: u64,
    profile: &Profile,
    work: impl FnOnce(&Bench, &Material) -> Result<PathBuf>,
) -> Result<()> {
    let program = program::find(places.farfs.as_deref(), false)?;
    let source = Source::get(&places.data)?;
    let directory = WorkDir::make(&places.work)?;
    let material = Material {
        source: &source,
        profile,
        data: &places.data,
        insert: Insert::over(profile, None, Content::Random),
    };
    let bench = Bench {
        farfs: FarfsOptions { program, mode: None },
        limit: Duration::from_secs(limit),
        work: &directory,
    };
    println!("written to {}", work(&bench, &material)?.display());
    Ok(())
}

impl Lbfs {
    fn run(self) -> Result<()> {
        let plan = lbfs::Plan {
            figures: self.figures,
            rates_kbits: self.rates,
            round_trips_ms: self.round_trips,
        };
        let out = &self.places.out;
        with_bench(&self.places, self.limit, &Profile::named("adsl")?, |bench, material| {
            lbfs::run(bench, material, &plan, out)
        })
    }
}

impl PartiallyConnected {
    fn run(self) -> Result<()> {
        let slow = Profile::named(&self.profile)?;
        let (parts, runs, files) = (self.parts, self.runs, self.files);
        let plan = partially::Plan { parts, runs, slow: slow.clone(), files };
        let out = &self.places.out;
        with_bench(&self.places, self.limit, &slow, |bench, material| {
            partially::run(bench, material, &plan, out)
        })
    }
}
