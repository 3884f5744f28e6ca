//! What a result was measured on.

use bench::command::run;
use serde::{Deserialize, Serialize};
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    /// Of the directory in which everything ran.
    pub file_system: String,
}

impl Machine {
    pub fn this(work: &Path) -> Self {
        let file = |path| read_to_string(path).unwrap_or_default();
        let kernel = file("/proc/sys/kernel/osrelease").trim().to_owned();
        let memory = field(&file("/proc/meminfo"), "MemTotal");
        let kilobytes: u64 =
            memory.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        Self {
            kernel,
            cpu: field(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            memory_mb: kilobytes / 1024,
            file_system: file_system(work),
        }
    }

    pub fn words(&self) -> String {
        let Self { kernel, cpu, cores, memory_mb, file_system } = self;
        format!("Linux {kernel}, {cores} cores of {cpu}, {memory_mb} MiB, {file_system}")
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_once(':')).map_or("unknown", |(_, value)| value.trim()).into()
}

/// The type that df shows.
fn file_system(directory: &Path) -> String {
    let printed = run(Command::new("df").arg("--output=fstype").arg(directory));
    printed.ok().and_then(|text| Some(text.lines().nth(1)?.trim().to_owned())).unwrap_or_default()
}

/// `2026-11-21`, in UTC.
pub fn today() -> String {
    run(Command::new("date").args(["-u", "+%F"])).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: A Fast One\n";
        assert_eq!(field(text, "model name"), "A Fast One");
        assert_eq!(field(text, "no such"), "unknown");
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::this(Path::new("/"));
        assert!(machine.cores > 0 && machine.memory_mb > 0, "{machine:?}");
        assert!(!machine.file_system.is_empty());
        assert_eq!(today().len(), 10);
    }
}
