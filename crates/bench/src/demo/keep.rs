//! A demonstration that stays mounted: a process in the background holds it, and this file is how
//! other commands find that process.
//! Holds: what the holder made ends with the holder; the file in `/run` goes with it.

use anyhow::{Context, Result, bail};
use bench::undo;
use bench::{Link, Profile};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const STATE: &str = "/run/farfs-demo.json";
/// What the link of a demonstration should be like from now on; the holder takes it away.
const WISH: &str = "/run/farfs-demo.link";
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Unmounting sends what is pending for a while before it gives up.
const STOPPING_MAX: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: i32,
    /// So that another process that got its number is not taken for it.
    started: String,
}

/// Runs this demonstration again in a process of its own, until that is ready to be left alone.
pub fn start_holder() -> Result<()> {
    if running().is_some() {
        bail!("a demonstration is still mounted; `bench demo --stop` ends it");
    }
    let own = std::env::current_exe().context("cannot find this program")?;
    // Not in the terminal's group: Ctrl-C comes here, and it is told to end from here.
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).arg("--holder").process_group(0);
    let mut child = command.spawn().context("cannot start the holder")?;
    let pid = child.id() as i32;
    let guard = undo::later(move || end(pid));
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the holder")? {
            std::mem::forget(guard);
            std::process::exit(status.code().unwrap_or(1));
        }
        if running() == Some(pid) {
            std::mem::forget(guard);
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Says how to play, and keeps everything until this process is told to end.
pub fn hold(links: &[&Link], program: &Path, mine: &Path, theirs: &Path) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let (own, farfs) = (own.display(), program.display());
    println!(
        "\nIt stays mounted:\n\
         \x20 {mine}    you\n\
         \x20 {theirs}    the colleague\n\
         \x20 {farfs} status {mine}    what is pending, and how the link is\n\
         \x20 {own} demo --link cut    and restore, modem, lan, ...\n\
         \x20 {own} demo --stop    ends it and removes everything",
        mine = mine.display(),
        theirs = theirs.display(),
    );
    let pid = std::process::id() as i32;
    let started = started(pid).context("this process has a beginning")?;
    let _undo = undo::later(|| {
        let _ = fs::remove_file(STATE);
        let _ = fs::remove_file(WISH);
    });
    let text = serde_json::to_string(&Holder { pid, started }).context("cannot write JSON")?;
    fs::write(STATE, text).with_context(|| format!("cannot write {STATE}"))?;
    leave_terminal();
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Ok(wish) = fs::read_to_string(WISH) else { continue };
        let _ = fs::remove_file(WISH);
        for link in links {
            match wish.as_str() {
                "cut" => link.cut(),
                "restore" => link.restore(),
                // It was checked when it was wished.
                name => Profile::named(name).into_iter().for_each(|p| link.set_profile(&p)),
            }
        }
    }
}

/// Whoever reads what this prints need not wait for its end.
fn leave_terminal() {
    if let Ok(nowhere) = fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nowhere);
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
}

/// Ends a demonstration that was kept.
pub fn stop() -> Result<()> {
    let Some(pid) = running() else { bail!("no demonstration is mounted") };
    end(pid);
    if running().is_some() {
        bail!("process {pid} has not ended after {STOPPING_MAX:?}");
    }
    println!("everything of it is gone");
    Ok(())
}

pub fn change_link(wish: &str) -> Result<()> {
    if running().is_none() {
        bail!("no demonstration is mounted; `bench demo --keep` leaves one");
    }
    if !["cut", "restore"].contains(&wish) {
        Profile::named(wish)?;
    }
    let unfinished = PathBuf::from(format!("{WISH}.new"));
    fs::write(&unfinished, wish)
        .and_then(|()| fs::rename(&unfinished, WISH))
        .with_context(|| format!("cannot write {WISH}"))
}

fn running() -> Option<i32> {
    let holder: Holder = serde_json::from_slice(&fs::read(STATE).ok()?).ok()?;
    (started(holder.pid)? == holder.started).then_some(holder.pid)
}

/// When a process started, as the kernel counts.
fn started(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The 22nd field; the second, a name in parentheses, may have spaces in it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Asks it to clean up and end, and waits until it has.
fn end(pid: i32) {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(number) = Pid::from_raw(pid) else { return };
    let _ = kill_process(number, Signal::TERM);
    let start = Instant::now();
    while alive(pid) && start.elapsed() < STOPPING_MAX {
        std::thread::sleep(LOOK_EVERY);
    }
}

fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let own = std::process::id() as i32;
        assert!(started(own).unwrap().parse::<u64>().unwrap() > 0);
        assert!(alive(own));
        assert_eq!(started(i32::MAX), None);
        assert!(!alive(i32::MAX));
    }
}
