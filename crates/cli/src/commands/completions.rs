//! `farfs completions`.

use crate::{exit, output};
use anyhow::Result;
use clap_complete::Shell;

/// Print completions for a shell
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs completions bash > /usr/share/bash-completion/completions/farfs
     farfs completions fish > ~/.config/fish/completions/farfs.fish",
    &[],
))]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn run(self, mut table: clap::Command) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut table, "farfs", &mut script);
        output::text(&String::from_utf8(script)?)
    }
}
