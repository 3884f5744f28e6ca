//! What one can ask a running mount through its control socket.

use crate::control;
use crate::exit::{self, Exit, fail};
use crate::keeping::Keep;
use crate::limits::Limits;
use crate::mounts::{self, Entry};
use crate::past::Written;
use crate::wishes::ModeName;
use anyhow::Result;
use client::{
    Explanation, MissShown, PendingLog, PinsReport, PolicyReport, PolicyShown, ReadThrough,
};
use protocol::Status;
use protocol::past::{Conflicts, Found, Past};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the daemon may take; it answers from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// So long for an answer that has no time at all.
const ANSWER_WITHIN_LEAST: Duration = Duration::from_millis(100);
/// The same for what may have to be fetched.
const FETCHED_WITHIN: Duration = Duration::from_secs(40);
/// The same for what the server may have much work with.
const LOOKED_BACK_WITHIN: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    Status,
    Explain {
        file: u64,
        path: String,
    },
    Mode(ModeName),
    /// Who waited for a file, or for all, was told of the damage of it.
    Told {
        file: Option<u64>,
    },
    /// What is pending, of one file or of all, of at most so many files.
    Log {
        file: Option<u64>,
        files_max: usize,
    },
    /// How much of the link may be used.
    Limit(Limits),
    /// Holds back what nobody waits for, or goes on with it.
    Pause(bool),
    /// What is kept here, or was missed.
    Keep(Keep),
    /// Waits until all that was done is on this machine's disk.
    Logged,
    /// Waits until everybody who asked has been told of what the server has taken.
    Visible,
    /// Tries to connect now, and to send what the server had no room for.
    Hurry,
    /// The conflicts as they were last told.
    ConflictsTold,
    /// Something of earlier states.
    LookBack {
        asks: Written,
    },
    /// Reads through some of the cache, from a file and an offset on.
    ReadThrough {
        file: u64,
        offset: u64,
    },
    /// The mount is about to go: how long to go on sending then.
    Leave {
        patience: Duration,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Status(Box<Status>),
    Explanation(Box<Explanation>),
    Found(Written),
    /// The same, so many seconds ago.
    Told(Option<(u64, Written)>),
    Log(Box<PendingLog>),
    Pins(Box<PinsReport>),
    Left(Option<u64>),
    Misses(Vec<MissShown>),
    Policy(PolicyShown),
    Policies(Box<PolicyReport>),
    ReadThrough(Box<ReadThrough>),
    Done,
}

fn ask(mount: &Entry, question: &Question) -> Result<Reply> {
    let within = match question {
        Question::Explain { .. } => FETCHED_WITHIN,
        Question::Logged | Question::Visible | Question::Log { .. } => FETCHED_WITHIN,
        Question::Keep(_) => FETCHED_WITHIN,
        Question::LookBack { .. } | Question::ReadThrough { .. } => LOOKED_BACK_WITHIN,
        _ => ANSWER_WITHIN,
    };
    ask_within(mount, question, within)
}

fn ask_within(mount: &Entry, question: &Question, within: Duration) -> Result<Reply> {
    let answer = control::ask(&mount.state_directory, question, within);
    let answer = match answer {
        Err(error) if is_silence(&error) => return Err(silent(mount)),
        answer => answer?,
    };
    answer.ok_or_else(|| {
        fail(
            Exit::Failure,
            format!(
                "the farfs process {} of {} does not listen",
                mount.pid,
                mount.mountpoint.display()
            ),
        )
    })
}

/// Whether the process is there and says nothing.
pub fn is_silence(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<control::Silent>())
}

fn silent(mount: &Entry) -> anyhow::Error {
    let (pid, shown) = (mount.pid, mount.mountpoint.display());
    anyhow::Error::new(control::Silent).context(format!(
        "the farfs process {pid} of {shown} does not answer (`farfs umount --lazy {shown}` takes \
         the mount out of sight; `kill -CONT {pid}` wakes a process that was stopped)"
    ))
}

fn unexpected(mount: &Entry) -> anyhow::Error {
    fail(
        Exit::Failure,
        format!("the farfs process {} is of another version; mount again", mount.pid),
    )
}

pub fn status(mount: &Entry) -> Result<Status> {
    match ask(mount, &Question::Status)? {
        // It knows the mount point as that was when it was mounted.
        Reply::Status(status) => {
            Ok(Status { mountpoint: mount.mountpoint.display().to_string(), ..*status })
        }
        _ => Err(unexpected(mount)),
    }
}

pub fn explain(mount: &Entry, file: u64, path: String) -> Result<Explanation> {
    match ask(mount, &Question::Explain { file, path })? {
        Reply::Explanation(explanation) => Ok(*explanation),
        _ => Err(unexpected(mount)),
    }
}

/// What is pending, of one file or of all.
pub fn log(mount: &Entry, file: Option<u64>, files_max: usize) -> Result<PendingLog> {
    match ask(mount, &Question::Log { file, files_max })? {
        Reply::Log(log) => Ok(*log),
        _ => Err(unexpected(mount)),
    }
}

/// What is pinned, with so many files at most of which something is missing.
pub fn pins(mount: &Entry, lacking_max: usize) -> Result<PinsReport> {
    match ask(mount, &Question::Keep(Keep::Pins { lacking_max }))? {
        Reply::Pins(report) => Ok(*report),
        _ => Err(unexpected(mount)),
    }
}

/// The file at a path, or the one that was there and of which a pin or a policy is left.
pub fn file_or_left(mount: &Entry, path: &Path) -> Result<u64> {
    let file = mounts::inode(path);
    let is_gone = |error: &anyhow::Error| exit::code(error) == Exit::NotFound;
    let place = match &file {
        Err(error) if is_gone(error) => mounts::called(mount, path).ok().flatten(),
        _ => None,
    };
    let Some(place) = place else { return file };
    match ask(mount, &Question::Keep(Keep::Left { place: Written::of(&place) }))? {
        Reply::Left(Some(left)) => Ok(left),
        Reply::Left(None) => file,
        _ => Err(unexpected(mount)),
    }
}

/// What was missed, the last first.
pub fn misses(mount: &Entry) -> Result<Vec<MissShown>> {
    match ask(mount, &Question::Keep(Keep::Misses))? {
        Reply::Misses(misses) => Ok(misses),
        _ => Err(unexpected(mount)),
    }
}

/// What counts for a file.
pub fn policy(mount: &Entry, file: u64) -> Result<PolicyShown> {
    match ask(mount, &Question::Keep(Keep::Policy { file }))? {
        Reply::Policy(policy) => Ok(policy),
        _ => Err(unexpected(mount)),
    }
}

/// All policies, and what is not current.
pub fn policies(mount: &Entry) -> Result<PolicyReport> {
    match ask(mount, &Question::Keep(Keep::Policies))? {
        Reply::Policies(report) => Ok(*report),
        _ => Err(unexpected(mount)),
    }
}

/// Reads through some of the cache, and mends what is wrong in it.
pub fn read_through(mount: &Entry, (file, offset): (u64, u64)) -> Result<ReadThrough> {
    match ask(mount, &Question::ReadThrough { file, offset })? {
        Reply::ReadThrough(done) => Ok(*done),
        _ => Err(unexpected(mount)),
    }
}

/// Asks the server, through the mount, of earlier states.
pub fn look_back(mount: &Entry, past: &Past) -> Result<Found> {
    match ask(mount, &Question::look_back(past))? {
        Reply::Found(found) => found.read(),
        _ => Err(unexpected(mount)),
    }
}

/// The conflicts as they were last told, and how many seconds ago.
pub fn conflicts_told(mount: &Entry) -> Result<Option<(u64, Conflicts)>> {
    match ask(mount, &Question::ConflictsTold)? {
        Reply::Told(None) => Ok(None),
        Reply::Told(Some((ago, found))) => match found.read()? {
            Found::Conflicts(told) => Ok(Some((ago, told))),
            _ => Err(unexpected(mount)),
        },
        _ => Err(unexpected(mount)),
    }
}

/// As `tell`, for no longer than this. Gives whether it was done by then.
pub fn tell_by(mount: &Entry, question: &Question, until: Instant) -> Result<bool> {
    let left = until.saturating_duration_since(Instant::now()).max(ANSWER_WITHIN_LEAST);
    match ask_within(mount, question, left.min(FETCHED_WITHIN)) {
        Ok(Reply::Done) => Ok(true),
        Ok(_) => Err(unexpected(mount)),
        Err(error) if left < FETCHED_WITHIN && is_silence(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// For questions whose answer says no more than that it was done.
pub fn tell(mount: &Entry, question: &Question) -> Result<()> {
    match ask(mount, question)? {
        Reply::Done => Ok(()),
        _ => Err(unexpected(mount)),
    }
}
