//! Suites that put a load on a file system and look at what comes of it: `stress-ng`, `fio`,
//! `dbench` and `fs_mark`.

use super::cases::{self, Case, Cases, Outcome};
use super::{Place, Section, Stage};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Those of the suite's class of file systems that work on files below a directory that is named.
const STRESSORS: &str = "access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany \
    dnotify dup fallocate fanotify fcntl fiemap file-ioctl filename flock fpunch fsize fstat \
    getdent handle hdd inode-flags inotify io iomix lease link locka lockf lockofd mknod open \
    rename symlink sync-file touch utime xattr";

/// Those of other classes that do so, with what keeps their files small.
const STRESSORS_BESIDE: [&str; 9] = [
    "aio",
    "aiol",
    "mmap --mmap-file --mmap-async --mmap-bytes 8m",
    "msync",
    "readahead --readahead-bytes 16m",
    "revio",
    "seek",
    "sendfile",
    "splice",
];

const STRESS_EXPLAINED: [(&str, &str); 1] = [(
    "fiemap",
    "FUSE has no message for it, and a file that is not all cached has no place on a disk.",
)];

/// Each with as many processes, and for as many seconds, as are named.
pub fn stress(stage: &Stage<'_>, processes: u32, secs: u64) -> Result<Section> {
    let each: Vec<_> = STRESSORS.split_whitespace().chain(STRESSORS_BESIDE).collect();
    let work = |place: &mut Place| {
        run_each(place, &each, |line, log| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let mut command = Command::new(&stage.suite);
            command.arg(format!("--{name}")).arg(processes.to_string()).args(words);
            command.args(["--timeout", &secs.to_string(), "--verify", "--temp-path"]);
            let case = Case::of(command.arg(&place.path), log, stage.limit)?;
            let printed = fs::read_to_string(log).context("cannot read what stress-ng printed")?;
            Ok((name.to_owned(), stressed(case, &printed)))
        })
    };
    let title = super::titled("stress-ng", &stage.suite);
    let mut section = cases::section(&title, &stage.on_each(work)?, &STRESS_EXPLAINED)?;
    section.said.push(format!("{processes} processes for {secs} s each, with `--verify`."));
    Ok(section)
}

/// A stressor that cannot do its work here says so, and ends well.
fn stressed(case: Case, printed: &str) -> Case {
    let line = printed.lines().find(|line| line.contains("skipping str"));
    match line.and_then(|line| line.split_once("] ")) {
        Some((_, said)) => Case { outcome: Outcome::Skipped, said: said.trim().into() },
        None => case,
    }
}

/// Jobs of fio, which reads back and checks all that it has written.
const FIO_JOBS: [(&str, &str); 8] = [
    ("random", "--rw=randwrite --bs=4k --ioengine=psync --fsync=32 --numjobs=3"),
    ("sequential", "--rw=write --bs=128k --ioengine=psync --end_fsync=1 --numjobs=2"),
    ("mmap", "--rw=randwrite --bs=4k --ioengine=mmap --numjobs=2"),
    (
        "unaligned",
        "--rw=randwrite --bsrange=512-70000 --bs_unaligned=1 --ioengine=psync --numjobs=2",
    ),
    ("libaio-direct", "--rw=randwrite --bs=4k --ioengine=libaio --iodepth=16 --direct=1"),
    ("uring-direct", "--rw=randrw --bs=16k --ioengine=io_uring --iodepth=16 --direct=1"),
    ("uring", "--rw=randwrite --bs=4k --ioengine=io_uring --iodepth=8 --fsync=64 --numjobs=2"),
    ("set-aside", "--rw=randwrite --bs=8k --ioengine=psync --fallocate=posix --numjobs=2"),
];

pub fn fio(stage: &Stage<'_>, size_mb: u64) -> Result<Section> {
    let work = |place: &mut Place| {
        run_each(place, &FIO_JOBS, |(name, line), log| {
            let mut command = Command::new(&stage.suite);
            command.arg(format!("--name={name}")).arg("--directory").arg(&place.path);
            command.arg(format!("--size={size_mb}m")).args(line.split_whitespace());
            command.args(["--verify=crc32c", "--verify_fatal=1", "--randseed=7"]);
            // Where it leaves the state of its checks.
            command.current_dir(&place.beside);
            Ok(((*name).to_owned(), Case::of(&mut command, log, stage.limit)?))
        })
    };
    let title = super::titled("fio", &stage.suite);
    let mut section = cases::section(&title, &stage.on_each(work)?, &[])?;
    let jobs = FIO_JOBS.map(|(name, line)| format!("{name}: {line}")).join("\n");
    section.said.push(format!("{size_mb} MiB for each process:\n\n```text\n{jobs}\n```"));
    Ok(section)
}

pub fn dbench(stage: &Stage<'_>, clients: u32, secs: u64) -> Result<Section> {
    let work = |place: &mut Place| {
        run_each(place, &[clients], |clients, log| {
            let mut command = Command::new(&stage.suite);
            command.args(["-t", &secs.to_string(), "-D"]).arg(&place.path);
            let case = Case::of(command.arg(clients.to_string()), log, stage.limit)?;
            Ok((format!("{clients} clients for {secs} s"), case))
        })
    };
    cases::section(&super::titled("dbench", &stage.suite), &stage.on_each(work)?, &[])
}

pub fn fsmark(stage: &Stage<'_>, files: u32) -> Result<Section> {
    /// For each way in which the suite syncs what it has written.
    const SYNCS: [&str; 4] = ["0", "1", "3", "6"];
    let work = |place: &mut Place| {
        run_each(place, &SYNCS, |sync, log| {
            let mut command = Command::new(&stage.suite);
            command.args(["-v", "-t", "4", "-s", "8192", "-S", sync, "-n", &files.to_string()]);
            command.arg("-l").arg(place.beside.join("fs_mark.log")).args(["-d", "."]);
            // It takes no name of a directory of 40 bytes or more.
            command.current_dir(&place.path);
            Ok((format!("-S {sync}"), Case::of(&mut command, log, stage.limit)?))
        })
    };
    cases::section(&super::titled("fs_mark", &stage.suite), &stage.on_each(work)?, &[])
}

fn run_each<T>(
    place: &Place,
    of: &[T],
    mut run: impl FnMut(&T, &Path) -> Result<(String, Case)>,
) -> Result<(Cases, f64)> {
    let (start, mut cases) = (Instant::now(), Cases::new());
    for one in of {
        let (name, case) = run(one, &place.beside.join("suite.log"))?;
        super::show(&name, &case);
        bench::undo::hold_if_ending();
        cases.insert(name, case);
    }
    Ok((cases, start.elapsed().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_here_is_skipped_and_not_passed() {
        let printed = "stress-ng: info:  [7] fiemap: not supported, skipping stressor\n";
        let case = stressed(Case::passed(), printed);
        assert_eq!(case.outcome, Outcome::Skipped);
        assert_eq!(case.said, "fiemap: not supported, skipping stressor");
        assert_eq!(stressed(Case::failed("no"), "stress-ng: all is done\n"), Case::failed("no"));
    }
}
