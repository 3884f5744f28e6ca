//! `bench suites`: published test suites on a mount, and on the disk in the same run.

use crate::program;
use crate::suites::{self, Stage, fsx, pjdfstest};
use crate::workdir::WorkDir;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Run published test suites on FarFS, and on the disk below it, and list what differs
#[derive(Subcommand)]
pub enum Suites {
    /// The rules of POSIX, call by call (cargo install pjdfstest)
    Pjdfstest(Pjdfstest),
    /// Random calls on one file, each outcome checked (cargo install fsx)
    Fsx(Fsx),
}

#[derive(Args)]
pub struct Pjdfstest {
    #[command(flatten)]
    common: Common,
    /// Only the tests whose names have one of these in them; the report is not written then
    tests: Vec<String>,
}

#[derive(Args)]
pub struct Fsx {
    #[command(flatten)]
    common: Common,
    /// How many calls, on each file system
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// From which they are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Common {
    /// Modes of the mount to run in, one after another
    #[arg(long, value_delimiter = ',', default_values = ["connected", "auto"])]
    modes: Vec<String>,
    /// The suite's program [default: the one of its name in PATH or in ~/.cargo/bin]
    #[arg(long, value_name = "PATH")]
    suite: Option<PathBuf>,
    /// The most seconds that a suite may take on one file system
    #[arg(long, value_name = "SECS", default_value_t = 3600)]
    limit: u64,
    /// The program to test [default: the release build, else the one beside this program]
    #[arg(long, value_name = "PATH")]
    farfs: Option<PathBuf>,
    /// A directory on the disk to compare with and to work on
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work: PathBuf,
    /// Where results are written
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
}

impl Suites {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Pjdfstest(Pjdfstest { common, tests }) => common.run("pjdfstest", |stage| {
                let found = pjdfstest::run(stage, &tests)?;
                Ok(tests.is_empty().then_some(found))
            }),
            Self::Fsx(Fsx { common, operations, seed }) => {
                common.run("fsx", |stage| fsx::run(stage, operations, seed).map(Some))
            }
        }
    }
}

impl Common {
    fn run(
        &self,
        name: &str,
        work: impl FnOnce(&Stage<'_>) -> Result<Option<suites::Section>>,
    ) -> Result<()> {
        let suite = suites::find(name, self.suite.as_deref())?;
        let farfs = program::find(self.farfs.as_deref(), false)?;
        let directory = WorkDir::make(&self.work)?;
        let limit = Duration::from_secs(self.limit);
        let stage = Stage { suite, farfs, directory: &directory, modes: &self.modes, limit };
        let Some(section) = work(&stage)? else { return Ok(()) };
        let worse = section.worse.len();
        let report = suites::Report::new(&directory.path, section).save(&self.out)?;
        println!("written to {}", report.display());
        anyhow::ensure!(worse == 0, "{worse} of the disk's passes are failures here");
        Ok(())
    }
}
