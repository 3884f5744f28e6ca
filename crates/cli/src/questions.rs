//! What one can ask a running mount through its control socket.

use crate::control;
use crate::exit::{Exit, fail};
use crate::mounts::Entry;
use crate::wishes::ModeName;
use anyhow::Result;
use client::Explanation;
use protocol::Status;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long the daemon may take; it answers from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

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
    /// Tries to connect now.
    Hurry,
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
    Done,
}

fn ask(mount: &Entry, question: &Question) -> Result<Reply> {
    control::ask(&mount.state_directory, question, ANSWER_WITHIN)?.ok_or_else(|| {
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

fn unexpected(mount: &Entry) -> anyhow::Error {
    fail(
        Exit::Failure,
        format!("the farfs process {} is of another version; mount again", mount.pid),
    )
}

pub fn status(mount: &Entry) -> Result<Status> {
    match ask(mount, &Question::Status)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(unexpected(mount)),
    }
}

pub fn explain(mount: &Entry, file: u64, path: String) -> Result<Explanation> {
    match ask(mount, &Question::Explain { file, path })? {
        Reply::Explanation(explanation) => Ok(*explanation),
        _ => Err(unexpected(mount)),
    }
}

/// For questions whose answer says no more than that it was done.
pub fn tell(mount: &Entry, question: &Question) -> Result<()> {
    match ask(mount, question)? {
        Reply::Done => Ok(()),
        _ => Err(unexpected(mount)),
    }
}
