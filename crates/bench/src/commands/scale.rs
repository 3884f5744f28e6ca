//! `bench scale`: volumes of a million files, and files of a hundred gigabytes; and `bench
//! throughput`, how fast new bytes go through everything.

use crate::program;
use crate::scale::{self, Bench, Kind};
use crate::workdir::WorkDir;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Measure what very many files, and very large ones, take of memory and time
#[derive(Subcommand)]
pub enum Scale {
    /// Files made through a mount, found by another, swept and checked at the origin
    Files {
        /// How many
        #[arg(long, default_value_t = 1_000_000)]
        files: u64,
        #[command(flatten)]
        common: Common,
    },
    /// The same files in a directory that the origin serves
    Tree {
        /// How many
        #[arg(long, default_value_t = 1_000_000)]
        files: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Files made without a link, and sent when there is one
    Pending {
        /// How many
        #[arg(long, default_value_t = 200_000)]
        files: u64,
        /// Files besides that two clients store
        #[arg(long, default_value_t = 0)]
        conflicts: u64,
        #[command(flatten)]
        common: Common,
    },
    /// One file that is nearly all holes
    Sparse {
        /// Its size in gigabytes
        #[arg(long, default_value_t = 100)]
        gigabytes: u64,
        #[command(flatten)]
        common: Common,
    },
    /// One file full of new bytes, in which one byte is changed
    Changed {
        /// Its size in gigabytes
        #[arg(long, default_value_t = 10)]
        gigabytes: u64,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
pub struct Common {
    /// The program to measure [default: the release build, else the one beside this program]
    #[arg(long, value_name = "PATH")]
    farfs: Option<PathBuf>,
    /// A directory on the disk to work on
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work: PathBuf,
    /// Where results are written
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
}

/// Measure how fast a large file of new bytes is written, sent and fetched
#[derive(Args)]
pub struct Throughput {
    /// Its size
    #[arg(long, default_value_t = 1000)]
    megabytes: u64,
    #[command(flatten)]
    common: Common,
}

impl Throughput {
    pub fn run(self) -> Result<()> {
        let megabytes = self.megabytes;
        let title = format!("a file of {megabytes} MB");
        self.common.measure(Kind::Throughput, &title, |bench| scale::large(bench, megabytes))
    }
}

impl Scale {
    pub fn run(self) -> Result<()> {
        match self {
            Self::Files { files, common } => {
                common.measure(Kind::Scale, &format!("{files} files"), |bench| {
                    scale::files(bench, files)
                })
            }
            Self::Tree { files, common } => {
                let title = format!("{files} files of a directory that is served");
                common.measure(Kind::Scale, &title, |bench| scale::tree(bench, files))
            }
            Self::Pending { files, conflicts, common } => {
                let title = match conflicts {
                    0 => format!("{files} files without a link"),
                    some => format!("{files} files without a link, and {some} conflicts"),
                };
                common.measure(Kind::Scale, &title, |bench| scale::pending(bench, files, conflicts))
            }
            Self::Changed { gigabytes, common } => {
                let title = format!("a byte of a file of {gigabytes} GB");
                common.measure(Kind::Scale, &title, |bench| scale::changed(bench, gigabytes))
            }
            Self::Sparse { gigabytes, common } => {
                let title = format!("a sparse file of {gigabytes} GB");
                common.measure(Kind::Scale, &title, |bench| scale::sparse(bench, gigabytes))
            }
        }
    }
}

impl Common {
    fn measure(
        &self,
        kind: Kind,
        title: &str,
        work: impl FnOnce(&mut Bench<'_>) -> Result<()>,
    ) -> Result<()> {
        let program = program::find(self.farfs.as_deref(), false)?;
        let directory = WorkDir::make(&self.work)?;
        let mut bench = Bench::new(&program, &directory.path);
        println!("{title}");
        let done = work(&mut bench);
        bench::undo::hold_if_ending();
        let report = bench.save(kind, title, &self.out)?;
        println!("written to {}", report.display());
        done
    }
}
