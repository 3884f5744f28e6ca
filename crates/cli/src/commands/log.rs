//! `farfs log`.

use crate::exit::{self, Exit};
use crate::pending::Part;
use crate::{mounts, output, paths, questions, show};
use anyhow::Result;
use std::path::PathBuf;

/// Show what is not yet at the server, by file: how much, since when, and what it waits for
///
/// The file that has waited longest comes first. Of a file or directory: what is pending of that. `behind`
/// names what has to leave before; what is small and has nothing to do with that does not wait for it. The
/// time that it may take follows from what the link carried lately.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs log
     farfs log ~/work/report.txt
     farfs log ~/work --json | jq '.files[].path'",
    &[Exit::NotFound],
))]
pub struct Log {
    /// A mount point, or a path in a mount [default: the one around the working directory, or the only one]
    path: Option<PathBuf>,
    /// At most so many files
    #[arg(long, value_name = "FILES", default_value_t = 1000)]
    most: usize,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Log {
    pub fn run(self) -> Result<()> {
        let path = self.path.as_deref().map(paths::opened).transpose()?;
        let mount = mounts::meant(path.as_deref())?;
        // A process that does not answer would hold up whoever looks at the file, too.
        questions::status(&mount)?;
        let log = Part::of(&mount, path.as_deref())?.log(&mount, self.most)?;
        if self.json { output::json(&log) } else { output::text(&show::log(&log)) }
    }
}
