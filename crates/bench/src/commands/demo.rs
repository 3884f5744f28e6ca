//! `bench demo`: FarFS at work over a slow link, on this machine.

use crate::demo::{self, keep};
use crate::{backend, program};
use anyhow::{Result, bail};
use bench::{Profile, command};
use clap::Args;
use std::path::{Path, PathBuf};

/// Show FarFS at work over a slow link
#[derive(Args)]
pub struct Demo {
    #[arg(long, default_value = "adsl")]
    profile: String,
    /// The program to show [default: the one that was built last]
    #[arg(long, value_name = "PATH")]
    farfs: Option<PathBuf>,
    /// Leave everything mounted at the end, to play with; KEEP=1 in the environment does the same
    #[arg(long)]
    keep: bool,
    /// End a demonstration that was left mounted
    #[arg(long, conflicts_with_all = ["keep", "link"])]
    stop: bool,
    /// Of a demonstration that was left mounted: `cut` or `restore` the link, or give it a profile
    #[arg(long, value_name = "WHAT", conflicts_with = "keep")]
    link: Option<String>,
    /// The process that keeps everything mounted.
    #[arg(long, hide = true)]
    holder: bool,
    /// A directory on the disk to work on
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work: PathBuf,
    /// Where what is fetched is kept
    #[arg(long, value_name = "DIR", default_value = "target/bench-data")]
    data: PathBuf,
}

impl Demo {
    pub fn run(self) -> Result<()> {
        if self.stop {
            return keep::stop();
        }
        if let Some(what) = &self.link {
            return keep::change_link(what);
        }
        let profile = Profile::named(&self.profile)?;
        let wanted = std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty());
        let keep = self.keep || self.holder || wanted;
        if keep && !self.holder {
            return keep::start_holder();
        }
        check()?;
        let program = program::find(self.farfs.as_deref(), true)?;
        let farfs = backend::FarfsOptions { program, mode: None };
        demo::run(&demo::Plan { profile, farfs, keep, work: self.work, data: self.data })
    }
}

/// Everything that is missing at once, so that nobody has to come back for the next thing.
fn check() -> Result<()> {
    let mut missing = bench::link::missing();
    if !Path::new("/dev/fuse").exists() {
        missing.push("there is no /dev/fuse (modprobe fuse)".into());
    }
    for (program, package) in [("gcc", "gcc"), ("make", "make"), ("tar", "tar"), ("gzip", "gzip")] {
        if !command::exists(program) {
            missing.push(format!("there is no {program} (package {package})"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("this machine cannot run the demonstration:\n- {}", missing.join("\n- "));
}
