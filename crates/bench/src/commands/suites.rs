//! `bench suites`: published test suites on a mount, and on the disk in the same run.

use crate::program;
use crate::suites::{self, Stage, fsx, languages, loads, pjdfstest, postgres, sqlite};
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
    /// Calls on files by many programs at once, each checked (apt-get install stress-ng)
    Stress(Stress),
    /// Writes in many ways, all read back and checked (apt-get install fio)
    Fio(Fio),
    /// What the clients of a file server do (apt-get install dbench)
    Dbench(Dbench),
    /// Many small files, each synced (apt-get install fsmark)
    Fsmark(Fsmark),
    /// Processes that write one database, with each kind of journal (apt-get install sqlite3)
    Sqlite(Sqlite),
    /// A database whose server and whose mount are killed (apt-get install postgresql)
    Postgres(Postgres),
    /// What CPython tests of its library for files (apt-get install libpython3.11-testsuite)
    Python(Language),
    /// What Go tests of its library for files (apt-get install golang-go)
    Go(Language),
}

#[derive(Args)]
pub struct Language {
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct Stress {
    #[command(flatten)]
    common: Common,
    /// How many processes do the same
    #[arg(long, default_value_t = 2)]
    processes: u32,
    /// For how many seconds, each of them
    #[arg(long, default_value_t = 3)]
    secs: u64,
}

#[derive(Args)]
pub struct Fio {
    #[command(flatten)]
    common: Common,
    /// MiB that each process writes
    #[arg(long, default_value_t = 24)]
    size: u64,
}

#[derive(Args)]
pub struct Dbench {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 10)]
    clients: u32,
    #[arg(long, default_value_t = 20)]
    secs: u64,
}

#[derive(Args)]
pub struct Fsmark {
    #[command(flatten)]
    common: Common,
    /// Files of each of four threads
    #[arg(long, default_value_t = 200)]
    files: u32,
}

#[derive(Args)]
pub struct Sqlite {
    #[command(flatten)]
    common: Common,
    /// Of each process
    #[arg(long, default_value_t = 40)]
    transactions: u32,
}

#[derive(Args)]
pub struct Postgres {
    #[command(flatten)]
    common: Common,
    /// How often each is killed
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// After so many seconds
    #[arg(long, default_value_t = 5)]
    secs: u64,
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
    /// Stop the server of a mount for so many seconds, again and again: from about ten on the mount
    /// gives up its link
    #[arg(long, value_name = "SECS")]
    cut: Option<u64>,
    /// Let it run for so many in between
    #[arg(long, value_name = "SECS", default_value_t = 10, requires = "cut")]
    between: u64,
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
            Self::Pjdfstest(Pjdfstest { common, tests }) => {
                common.run("pjdfstest", CARGO, |stage| {
                    let found = pjdfstest::run(stage, &tests)?;
                    Ok(tests.is_empty().then_some(found))
                })
            }
            Self::Fsx(Fsx { common, operations, seed, cut, between }) => {
                let heard = Duration::from_secs(between);
                let cut =
                    cut.map(|secs| suites::Turns { silent: Duration::from_secs(secs), heard });
                let calls = fsx::Calls { operations, seed, cut };
                common.run("fsx", CARGO, |stage| fsx::run(stage, calls).map(Some))
            }
            Self::Stress(Stress { common, processes, secs }) => {
                common
                    .run("stress-ng", APT, |stage| loads::stress(stage, processes, secs).map(Some))
            }
            Self::Fio(Fio { common, size }) => {
                common.run("fio", APT, |stage| loads::fio(stage, size).map(Some))
            }
            Self::Dbench(Dbench { common, clients, secs }) => {
                common.run("dbench", APT, |stage| loads::dbench(stage, clients, secs).map(Some))
            }
            Self::Fsmark(Fsmark { common, files }) => {
                // The package is not named as its program is.
                common.run("fs_mark", "apt-get install fsmark, for", |stage| {
                    loads::fsmark(stage, files).map(Some)
                })
            }
            Self::Sqlite(Sqlite { common, transactions }) => {
                common.run("sqlite3", APT, |stage| sqlite::sqlite(stage, transactions).map(Some))
            }
            Self::Postgres(Postgres { common, rounds, secs }) => {
                common.run("postgres", "apt-get install postgresql, for", |stage| {
                    postgres::postgres(stage, rounds, secs).map(Some)
                })
            }
            Self::Python(Language { common }) => {
                common.run("python3", APT, |stage| languages::python(stage).map(Some))
            }
            Self::Go(Language { common }) => {
                common.run("go", "apt-get install golang-go, for", |stage| {
                    languages::go(stage).map(Some)
                })
            }
        }
    }
}

/// How a suite is got that is not there.
const CARGO: &str = "cargo install";
const APT: &str = "apt-get install";

impl Common {
    fn run(
        &self,
        name: &str,
        how: &str,
        work: impl FnOnce(&Stage<'_>) -> Result<Option<suites::Section>>,
    ) -> Result<()> {
        let suite = suites::find(name, self.suite.as_deref(), how)?;
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
