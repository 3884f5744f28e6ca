//! `mount.farfs`, which mount(8) calls for `mount -t farfs` and for lines of fstab.

use crate::plan::Consent;
use crate::{background, config, output, plan, wishes};
use anyhow::Result;
use std::path::PathBuf;

pub const NAME: &str = "mount.farfs";

/// Helper of mount(8)
#[derive(clap::Args)]
#[command(disable_version_flag = true, override_usage = "mount.farfs [OPTIONS] <URL> <MOUNTPOINT>")]
pub struct MountFarfs {
    url: String,
    mountpoint: PathBuf,
    /// Mount options
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Pass over mount options that are not known
    #[arg(short = 's')]
    sloppy: bool,
    /// Check everything, mount nothing
    #[arg(short = 'f')]
    fake: bool,
    /// Keep out of /etc/mtab; there is none
    #[arg(short = 'n')]
    _no_mtab: bool,
    /// Say what is mounted
    #[arg(short = 'v')]
    verbose: bool,
    /// The file system's type
    #[arg(short = 't', value_name = "TYPE")]
    _kind: Option<String>,
}

impl MountFarfs {
    pub fn run(self) -> Result<()> {
        let wishes = wishes::from_options(&self.options, self.sloppy)?;
        // "none" stands in fstab for what the configuration says of the mount point.
        let url = (self.url != "none").then_some(self.url);
        let consent = Consent::default();
        let plan = plan::decide(&config::read()?, url, &self.mountpoint, wishes, consent)?;
        if !self.fake {
            background::start(&plan)?;
        }
        if self.verbose {
            let mountpoint = plan.mountpoint.display();
            output::line(&format!("{} mounted at {mountpoint}", plan.known.url))?;
        }
        Ok(())
    }
}
