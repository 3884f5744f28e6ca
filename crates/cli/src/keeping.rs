//! What one can ask a running mount of what it keeps in its cache, and of what was missed there.

use crate::past::Written;
use crate::questions::Reply;
use anyhow::Result;
use client::{Client, Consistency, Place, Settling};
use model::FileId;
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use store::Containers;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Keeps a file, or all below a directory, in the cache. `place`: the name that it is called by.
    Pin {
        file: u64,
        place: Option<Written>,
        priority: u32,
        recursive: bool,
    },
    Unpin {
        file: u64,
    },
    /// The file of this name that is gone, and of which a pin or a policy is left.
    Left {
        place: Written,
    },
    /// What is pinned, with so many files at most of which something is missing.
    Pins {
        lacking_max: usize,
    },
    /// What was missed.
    Misses,
    /// Forgets it, of one file or of all, fetches it, or lets who opens it wait.
    SettleMisses {
        file: Option<u64>,
        how: Settling,
    },
    /// Which version of a file, or of all below a directory, is good enough. None: as above.
    SetConsistency {
        file: u64,
        place: Option<Written>,
        consistency: Option<Consistency>,
    },
    /// From which time on contents are not fetched unasked.
    SetAskAbove {
        file: u64,
        place: Option<Written>,
        secs: AskAbove,
    },
    /// What counts for a file.
    Policy {
        file: u64,
    },
    /// All policies, and what is not current.
    Policies,
    /// Brings what is not current up to date.
    Refresh {
        file: u64,
        recursive: bool,
    },
}

/// From how many seconds on contents are not fetched unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskAbove {
    Inherit,
    None,
    Secs(u32),
}

impl AskAbove {
    fn secs(self) -> Option<u32> {
        match self {
            AskAbove::Inherit => None,
            AskAbove::None => Some(0),
            AskAbove::Secs(secs) => Some(secs),
        }
    }
}

impl std::str::FromStr for AskAbove {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AskAbove, String> {
        match text {
            "inherit" => Ok(AskAbove::Inherit),
            "none" => Ok(AskAbove::None),
            "0" => Err("say `none` if everything is to be fetched, or 1 if only what is here in a second is"
                .to_owned()),
            secs => {
                let secs = secs.parse().map_err(|_| "neither a number of seconds nor `none`")?;
                Ok(AskAbove::Secs(secs))
            }
        }
    }
}

fn read_place(written: Option<Written>) -> Result<Option<Place>> {
    written.map(|written| written.read()).transpose()
}

pub async fn answer<U, C>(volume: &Client<U, C>, wish: Keep) -> Result<Reply>
where
    U: Upstream + 'static,
    C: Containers + 'static,
{
    let volume = volume.clone();
    // It reads or writes the tables.
    let work = move || -> Result<Reply> {
        match wish {
            Keep::Pin { file, place, priority, recursive } => {
                volume.pin(FileId(file), read_place(place)?, priority, recursive)?;
                Ok(Reply::Done)
            }
            Keep::Unpin { file } => {
                volume.unpin(FileId(file))?;
                Ok(Reply::Done)
            }
            Keep::Left { place } => {
                let left = volume.left_at(&place.read()?)?;
                Ok(Reply::Left(left.map(|file| file.0)))
            }
            Keep::Pins { lacking_max } => {
                Ok(Reply::Pins(Box::new(volume.pins_report(lacking_max)?)))
            }
            Keep::Misses => Ok(Reply::Misses(volume.misses_report()?)),
            Keep::SettleMisses { file, how } => {
                volume.settle_misses(file.map(FileId), how);
                Ok(Reply::Done)
            }
            Keep::SetConsistency { file, place, consistency } => {
                volume.set_consistency(FileId(file), read_place(place)?, consistency)?;
                Ok(Reply::Done)
            }
            Keep::SetAskAbove { file, place, secs } => {
                volume.set_ask_above(FileId(file), read_place(place)?, secs.secs())?;
                Ok(Reply::Done)
            }
            Keep::Policy { file } => Ok(Reply::Policy(volume.policy_of(FileId(file))?)),
            Keep::Policies => Ok(Reply::Policies(Box::new(volume.policy_report()?))),
            Keep::Refresh { file, recursive } => {
                volume.refresh(FileId(file), recursive)?;
                Ok(Reply::Done)
            }
        }
    };
    tokio::task::spawn_blocking(work).await?
}
