//! The table of commands: parser, help, completions and man pages all come from it.

use crate::commands::{
    check, completions, conflicts, device, explain, gc, history, invite, limit, log, man, metrics,
    misses, mode, mount, mount_farfs, pause, pin, policy, restore, salvage, serve, snapshot,
    status, umount, volume, wait,
};
use crate::{background, exit, guard};
use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A file system for people who are far from their files.
///
/// Mount a volume and work at the speed of your own disk. What you write is sent as soon as the
/// link allows, in as few bytes as can be; when the link goes away you keep working.
#[derive(Parser)]
#[command(
    name = "farfs",
    version,
    propagate_version = true,
    after_help = exit::after(
        "farfs serve --data /srv/farfs
         farfs invite --data /srv/farfs
         farfs mount 'farfs://host:7440/main?key=...&invite=...' ~/work
         farfs status
         farfs umount ~/work",
        &exit::ALL,
    )
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mount(mount::Mount),
    #[command(visible_alias = "unmount")]
    Umount(umount::Umount),
    Status(status::Show),
    Wait(wait::Wait),
    Log(log::Log),
    Mode(mode::Mode),
    Limit(limit::Limit),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Pin(pin::Pin),
    Unpin(pin::Unpin),
    Pins(pin::Pins),
    Misses(misses::Misses),
    Policy(policy::Policy),
    Refresh(policy::Refresh),
    Explain(explain::Explain),
    Metrics(metrics::Metrics),
    Snapshot(snapshot::Snapshot),
    History(history::History),
    Restore(restore::Restore),
    Serve(serve::Serve),
    Invite(invite::Invite),
    Volume(volume::Volume),
    Device(device::Device),
    Conflicts(conflicts::Conflicts),
    Gc(gc::Gc),
    Check(check::Check),
    Salvage(salvage::Salvage),
    Completions(completions::Completions),
    Man(man::Man),
    /// What `farfs mount` starts.
    #[command(hide = true)]
    Daemon {
        /// For people who look at the list of processes.
        mountpoint: PathBuf,
    },
    #[command(hide = true, name = guard::COMMAND)]
    Guard(guard::Guard),
    #[command(hide = true, name = mount_farfs::NAME)]
    MountFarfs(mount_farfs::MountFarfs),
}

impl Arguments {
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Mount(command) => command.run(),
            Command::Umount(command) => command.run(),
            Command::Status(command) => command.run(),
            Command::Wait(command) => command.run(),
            Command::Log(command) => command.run(),
            Command::Mode(command) => command.run(),
            Command::Limit(command) => command.run(),
            Command::Pause(command) => command.run(),
            Command::Resume(command) => command.run(),
            Command::Pin(command) => command.run(),
            Command::Unpin(command) => command.run(),
            Command::Pins(command) => command.run(),
            Command::Misses(command) => command.run(),
            Command::Policy(command) => command.run(),
            Command::Refresh(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Metrics(command) => command.run(),
            Command::Snapshot(command) => command.run(),
            Command::History(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Invite(command) => command.run(),
            Command::Volume(command) => command.run(),
            Command::Device(command) => command.run(),
            Command::Conflicts(command) => command.run(),
            Command::Gc(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Salvage(command) => command.run(),
            Command::Completions(command) => command.run(table()),
            Command::Man(command) => command.run(table()),
            Command::Daemon { .. } => background::child(),
            Command::Guard(command) => command.run(),
            Command::MountFarfs(command) => command.run(),
        }
    }
}

pub fn table() -> clap::Command {
    Arguments::command()
}

/// Ends the program with a usage message if the command line is wrong.
pub fn parse() -> Arguments {
    Arguments::parse_from(as_helper(std::env::args_os().collect()))
}

/// Called as `mount.farfs`, the program is the helper of mount(8).
fn as_helper(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().and_then(|first| Path::new(first).file_name());
    if name.is_some_and(|name| name == mount_farfs::NAME) {
        arguments.insert(1, mount_farfs::NAME.into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        table().debug_assert();
    }

    #[test]
    fn the_name_of_the_program_may_be_the_command() {
        let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            as_helper(words(&["/sbin/mount.farfs", "url", "/mnt"])),
            words(&["/sbin/mount.farfs", "mount.farfs", "url", "/mnt"])
        );
        assert_eq!(as_helper(words(&["farfs", "status"])), words(&["farfs", "status"]));
    }
}
