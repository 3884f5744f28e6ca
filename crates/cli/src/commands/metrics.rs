//! `farfs metrics`.

use crate::exit::{self, Exit, fail};
use crate::{metrics, mounts, output, questions};
use anyhow::Result;
use std::path::PathBuf;

/// Print what can be measured of mounts, in the form that Prometheus reads
///
/// For a collector of text files, for instance. `farfs mount --metrics ADDR:PORT` answers Prometheus
/// itself, over HTTP under /metrics.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs metrics
     farfs metrics ~/work > /var/lib/prometheus/node-exporter/farfs.prom
     farfs mount --metrics 127.0.0.1:9740 ~/work",
    &[Exit::NotFound],
))]
pub struct Metrics {
    /// A mount point, or a path in the mount [default: all mounts]
    mountpoint: Option<PathBuf>,
}

impl Metrics {
    pub fn run(self) -> Result<()> {
        let entries = match &self.mountpoint {
            Some(path) => vec![mounts::holding(path)?],
            None => mounts::live(),
        };
        if entries.is_empty() {
            return Err(fail(Exit::NotFound, "no farfs volume is mounted"));
        }
        let statuses: Result<Vec<_>> = entries.iter().map(questions::status).collect();
        output::text(&metrics::text(&statuses?)?)
    }
}
