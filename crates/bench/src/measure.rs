//! One workload, once, on one system that is set up for it alone.

use crate::backend::{FarfsOptions, System};
use crate::program;
use crate::stage::{Sample, Stage};
use crate::workdir::WorkDir;
use crate::workload::{Material, Workload};
use anyhow::{Context, Result};
use bench::{Link, command};
use std::process::Command;
use std::time::Duration;

/// What is the same for everything that one run of the program measures.
pub struct Bench<'a> {
    pub farfs: FarfsOptions,
    /// The most that one phase may take.
    pub limit: Duration,
    pub work: &'a WorkDir,
}

impl Bench<'_> {
    /// What fails is a sample, too.
    pub fn measure(
        &self,
        workload: &Workload,
        system: System,
        run: usize,
        material: &Material,
    ) -> Result<Vec<Sample>> {
        let directory = self.work.part_to_measure("run")?;
        // Set up over the link that is measured, so that what is found out of it is true.
        let link = system.has_link().then(|| Link::start(material.profile)).transpose()?;
        let backend = system
            .start(&directory, link.as_ref(), &self.farfs)
            .with_context(|| format!("cannot set up {}", system.name()))?;
        let mut stage = Stage {
            backend,
            link: link.as_ref(),
            profile: material.profile,
            limit: self.limit,
            workload: workload.name,
            system: system.name(),
            run,
            samples: Vec::new(),
        };
        let ran = (workload.run)(&mut stage, material);
        bench::undo::hold_if_ending();
        if let Err(error) = ran {
            eprintln!("{} on {}: {error:#}", workload.name, system.name());
            stage.failed(&error);
        }
        Ok(stage.samples)
    }
}

/// A system's name with its version, as it says it itself.
pub fn version(system: System, farfs: &FarfsOptions) -> String {
    let said = |program: &mut Command, word: &str| {
        let printed = command::run(program.arg("--version")).unwrap_or_default();
        printed.lines().find(|line| line.contains(word)).unwrap_or(word).to_owned()
    };
    match system {
        System::Ext4 => "ext4: a directory on the local disk".into(),
        System::Bindfs => said(&mut Command::new("bindfs"), "bindfs"),
        System::Memory => "memory: files in memory through FUSE, by this program".into(),
        System::Sshfs => said(&mut Command::new("sshfs"), "SSHFS"),
        System::RsyncZ => {
            said(&mut Command::new("rsync"), "version") + ", pushed with -az over ssh"
        }
        System::SshfsC => {
            said(&mut Command::new("sshfs"), "SSHFS") + ", with the compression of ssh"
        }
        System::FarfsConnected => "farfs connected: the same, with --mode connected".into(),
        System::Farfs => {
            let build = if program::is_debug(&farfs.program) { ", a debug build" } else { "" };
            let mode = farfs.mode.as_ref().map(|mode| format!(", mode {mode}")).unwrap_or_default();
            said(&mut Command::new(&farfs.program), "farfs") + build + &mode
        }
    }
}
