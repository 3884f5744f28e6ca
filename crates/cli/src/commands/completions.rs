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
    pub fn run(self, table: clap::Command) -> Result<()> {
        let mut table = shown(&table);
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut table, "farfs", &mut script);
        output::text(&String::from_utf8(script)?)
    }
}

/// The table without what is farfs's own.
fn shown(table: &clap::Command) -> clap::Command {
    let commands = table.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("farfs")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(table.get_arguments().cloned())
        .subcommands(commands)
}
