//! The daemon behind `farfs mount`: a new process of this program, started before any thread.
//! It gets its plan through its standard input and says on its standard output whether the mount
//! is usable; before that, as long as it looks through what a kill has left, that it goes on.
//! Holds: a daemon has nothing open that its command was started with; a daemon whose command has ended before the mount was usable ends too; the command returns when the mount is usable, or with the daemon's own error.
//! A daemon that has headway is not ended, however long it takes: the next one would begin anew.

use crate::commands::umount;
use crate::exit::{self, Exit, OrExit, fail};
use crate::plan::Plan;
use crate::recovery::{WITHOUT_HEADWAY, WORDS};
use crate::wishes::ModeName;
use crate::{daemon, last_words, logging, mounts, output, processes, state, threads};
use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Who waits for longer is told for what.
const IN_SILENCE: Duration = Duration::from_secs(2);
const PLAN_BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Report {
    /// Often, before one of the others.
    GoesOn,
    Usable {
        damage: Vec<String>,
    },
    Failed {
        message: String,
        exit: u8,
    },
}

/// Starts the daemon and waits until it can be used.
pub fn start(plan: &Plan) -> Result<()> {
    processes::keep_what_is_open();
    let program = std::env::current_exe().context("cannot find this program")?;
    let before = mounts::farfs_at(&plan.mountpoint);
    let mut child = Command::new(program)
        .arg("daemon")
        .arg(&plan.mountpoint)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| threads::refused("the farfs daemon", 1, &error))?;
    let sent = child.stdin.take().context("the daemon has a standard input")?;
    // A daemon that died at once tells more by its end than by the broken pipe.
    let _ = serde_json::to_writer(sent, plan);
    let report = child.stdout.take().context("the daemon has a standard output")?;
    let failed = match heard(report, plan) {
        Ok(Some(Report::Usable { damage })) => {
            damage.iter().for_each(output::tell);
            return Ok(());
        }
        Ok(Some(Report::Failed { message, exit })) => {
            let _ = child.wait();
            fail(Exit::from_code(exit), message)
        }
        Ok(Some(Report::GoesOn) | None) => silent(child, plan),
        Err(error) => {
            end(&mut child);
            error
        }
    };
    // It may have ended between its mounting and its word: nobody is to find a dead mount point.
    if mounts::farfs_at(&plan.mountpoint) > before && mounts::is_dead(&plan.mountpoint) {
        umount::unmount(&plan.mountpoint, true)?;
    }
    Err(failed)
}

fn heard(report: ChildStdout, plan: &Plan) -> Result<Option<Report>> {
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(report).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    reader.map_err(|error| threads::refused("a thread", 1, &error))?;
    let waits = || {
        if let Ok(address) = plan.known.url.parse::<link::Address>() {
            let bound = bound(plan);
            let (host, port) = (address.host, address.port);
            output::tell(format_args!("waiting for {host}:{port} ({bound}) ..."));
        }
    };
    let goes_on = || output::tell(WORDS);
    let bounds = (IN_SILENCE, plan.answer_within.saturating_add(WITHOUT_HEADWAY));
    Ok(said(&receiver, bounds, waits, goes_on))
}

/// What it says at last. What it is waited for is told once each: after the first bound without a word, and
/// when it says that it goes on, from when on the second bound begins anew.
fn said(
    receiver: &mpsc::Receiver<String>,
    (told_after, given_up_after): (Duration, Duration),
    waits: impl FnOnce(),
    goes_on: impl FnOnce(),
) -> Option<Report> {
    let (mut waits, mut goes_on) = (Some(waits), Some(goes_on));
    loop {
        let bound = if waits.is_some() { told_after } else { given_up_after };
        let line = match (receiver.recv_timeout(bound), waits.take()) {
            (Err(mpsc::RecvTimeoutError::Timeout), Some(waits)) => {
                waits();
                continue;
            }
            (said, untold) => {
                waits = untold;
                said.ok()?
            }
        };
        match serde_json::from_str(&line).ok()? {
            Report::GoesOn => {
                if let Some(goes_on) = goes_on.take() {
                    goes_on();
                }
            }
            report => return Some(report),
        }
    }
}

/// How long the daemon waits for the server.
fn bound(plan: &Plan) -> String {
    let known = state::known(&plan.state).ok().flatten();
    match known.is_some_and(|known| !known.unattached) && plan.mode != ModeName::Connected {
        true => {
            let grace = client::LINK_GRACE.as_secs();
            format!("{grace} s if it does not answer: then what is cached is there without it")
        }
        false => format!("up to {} s", plan.answer_within.max(daemon::SETTLING).as_secs()),
    }
}

fn silent(mut child: Child, plan: &Plan) -> anyhow::Error {
    let ended = match child.try_wait() {
        Ok(Some(status)) => format!("ended with {status}"),
        _ => {
            end(&mut child);
            "did not become ready".into()
        }
    };
    let state = plan.state.display();
    fail(
        Exit::Failure,
        format!("the farfs daemon {ended}; the journal or {state}/farfs.log may say why"),
    )
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The daemon's own beginning, before any thread.
pub fn child() -> Result<()> {
    // Whoever stops the command while it waits stops the mount that is not there yet.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // Fails if it leads a session already, which is as good.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let mut said = Vec::new();
    std::io::stdin().take(PLAN_BYTES_MAX).read_to_end(&mut said)?;
    let plan: Plan = serde_json::from_slice(&said)
        .or_exit(Exit::Usage, "this command is farfs's own; use `farfs mount`")?;
    last_words::are_told_by(|words, exit| {
        tracing::error!(error = words, "the mount ended");
        // Nobody waits any more if the mount was usable.
        drop(say(&Report::Failed { message: words.to_owned(), exit: exit as u8 }));
    });
    let mut told = false;
    // Who waits has gone: it is ended for that.
    let goes_on = || drop(say(&Report::GoesOn));
    let result = daemon::run(&plan, logging::to_journal_or_file, goes_on, |damage| {
        told = true;
        set_parent_process_death_signal(None)?;
        say(&Report::Usable { damage })
    });
    match &result {
        Ok(()) => {}
        Err(error) if told => {
            tracing::error!(error = exit::words(error), "the mount ended");
        }
        Err(error) => {
            let exit = exit::code(error) as u8;
            say(&Report::Failed { message: exit::words(error), exit })?;
        }
    }
    result
}

fn say(report: &Report) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout();
    out.write_all(&line)?;
    out.flush().context("the command that started the daemon is gone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const WAITS: Duration = Duration::from_millis(200);

    /// Each line comes so long after the one before it. Gives whether a mount was told of, and how often
    /// somebody was told what it waits for: for the server, and for what a kill has left.
    fn heard_of(lines: &'static [(&'static str, Duration)], bounds: Duration) -> (bool, u32, u32) {
        let (sender, receiver) = mpsc::channel();
        let daemon = std::thread::spawn(move || {
            for (line, after) in lines {
                std::thread::sleep(*after);
                // Nobody may wait for it any more.
                let _ = sender.send((*line).to_owned());
            }
            // One that hangs is silent, and has not ended.
            sender
        });
        let (waits, goes_on) = (Cell::new(0), Cell::new(0));
        let report = said(
            &receiver,
            (Duration::from_millis(1), bounds),
            || waits.set(waits.get() + 1),
            || goes_on.set(goes_on.get() + 1),
        );
        drop(daemon.join().unwrap());
        (matches!(report, Some(Report::Usable { .. })), waits.get(), goes_on.get())
    }

    const GOES_ON: (&str, Duration) = (r#""goes-on""#, WAITS);
    const USABLE: (&str, Duration) = (r#"{"usable":{"damage":[]}}"#, WAITS);

    #[test]
    fn a_daemon_that_has_headway_is_waited_for_and_one_that_hangs_is_not() {
        assert_eq!(heard_of(&[USABLE], WAITS * 4), (true, 1, 0));
        let goes_on = &[GOES_ON, GOES_ON, GOES_ON, GOES_ON, GOES_ON, USABLE];
        assert_eq!(heard_of(goes_on, WAITS * 4), (true, 1, 1), "longer than the bound in all");
        assert_eq!(heard_of(&[GOES_ON, GOES_ON], WAITS * 4), (false, 1, 1), "it hangs");
    }
}
