//! What one can ask a running mount of what it keeps in its cache, and of what was missed there.

use crate::questions::Reply;
use anyhow::Result;
use client::Client;
use model::FileId;
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use store::Containers;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Keeps a file, or all below a directory, in the cache.
    Pin {
        file: u64,
        priority: u32,
        recursive: bool,
    },
    Unpin {
        file: u64,
    },
    /// What is pinned, with so many files at most of which something is missing.
    Pins {
        lacking_max: usize,
    },
    /// What was missed without a link.
    Misses,
    /// Forgets it, of one file or of all, or fetches it.
    SettleMisses {
        file: Option<u64>,
        fetch: bool,
    },
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
            Keep::Pin { file, priority, recursive } => {
                volume.pin(FileId(file), priority, recursive)?;
                Ok(Reply::Done)
            }
            Keep::Unpin { file } => {
                volume.unpin(FileId(file))?;
                Ok(Reply::Done)
            }
            Keep::Pins { lacking_max } => {
                Ok(Reply::Pins(Box::new(volume.pins_report(lacking_max)?)))
            }
            Keep::Misses => Ok(Reply::Misses(volume.misses_report()?)),
            Keep::SettleMisses { file, fetch } => {
                volume.settle_misses(file.map(FileId), fetch);
                Ok(Reply::Done)
            }
        }
    };
    tokio::task::spawn_blocking(work).await?
}
