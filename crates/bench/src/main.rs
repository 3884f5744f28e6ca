//! Measures FarFS against what people use instead, over links of every kind, and shows it at work.
//! Holds: mounts, processes and networks that it made are gone when it ends, however it ends.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures starts processes, reads the clock and touches the disk"
)]

mod backend;
mod commands;
mod demo;
mod loopback;
mod machine;
mod measure;
mod memory;
mod mounts;
mod papers;
mod plot;
mod process;
mod program;
mod report;
mod scale;
mod show;
mod source;
mod stage;
mod suites;
mod table;
mod workdir;
mod workload;
mod zip;

use anyhow::Result;
use clap::{Parser, Subcommand};
use commands::{
    demo as show_off, link, memory as in_memory, papers as of_papers, run, scale as at_scale,
    suites as published,
};
use std::process::ExitCode;

/// Links as slow, far and lossy as one likes; what FarFS does over them, and what others do.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(subcommand)]
    Link(link::Link),
    Run(run::Run),
    #[command(subcommand)]
    Papers(of_papers::Papers),
    #[command(subcommand)]
    Scale(at_scale::Scale),
    Throughput(at_scale::Throughput),
    #[command(subcommand)]
    Suites(published::Suites),
    Demo(show_off::Demo),
    #[command(hide = true)]
    Memory(in_memory::Memory),
}

fn main() -> ExitCode {
    bench::undo::on_signals();
    let done: Result<()> = match Arguments::parse().command {
        Command::Link(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Papers(command) => command.run(),
        Command::Scale(command) => command.run(),
        Command::Throughput(command) => command.run(),
        Command::Suites(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Memory(command) => command.run(),
    };
    bench::undo::hold_if_ending();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
