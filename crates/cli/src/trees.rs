//! The directories that a server keeps in step with its volumes.

use crate::data::Data;
use crate::exit::{Exit, fail};
use anyhow::{Context, Result};
use replica::Stopper;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Directories lie in directories, and are followed one call deeper each.
const STACK_BYTES: usize = 64 << 20;

/// Those that are kept, each by a thread of its own.
pub struct Trees(Vec<(Stopper, JoinHandle<()>)>);

impl Trees {
    /// Begins to keep those that are remembered, and the one that is asked for.
    pub fn keep(data: &Data, asked: Option<&Path>, volume: &str) -> Result<Trees> {
        let mut wanted: Vec<(String, PathBuf)> = Vec::new();
        for tree in data.origin.trees()? {
            if asked.is_none() || tree.volume != volume {
                wanted.push((tree.volume, tree.path));
            }
        }
        if let Some(asked) = asked {
            let path = asked
                .canonicalize()
                .with_context(|| format!("cannot use the directory {}", asked.display()))?;
            wanted.push((volume.to_owned(), path));
        }
        let mut trees = Trees(Vec::new());
        for (volume, path) in wanted {
            apart(&data.directory, &path)?;
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let keeper = data.origin.keep_tree(&volume, &path, &name)?;
            let stopper = keeper.stopper();
            let for_thread = stopper.clone();
            let thread = std::thread::Builder::new()
                .name(format!("tree of {volume}"))
                .stack_size(STACK_BYTES)
                .spawn(move || keeper.run(&for_thread))
                .context("cannot start a thread")?;
            trees.0.push((stopper, thread));
        }
        Ok(trees)
    }

    /// Waits until what they are at is done.
    pub fn stop(self) {
        for (stopper, _) in &self.0 {
            stopper.stop();
        }
        for (_, thread) in self.0 {
            if thread.join().is_err() {
                tracing::error!("a tree was given up by a bug in farfs");
            }
        }
    }
}

/// A server that serves its own data would serve what changes with every change.
fn apart(data: &Path, tree: &Path) -> Result<()> {
    let data = data.canonicalize().context("cannot find the data directory")?;
    if data.starts_with(tree) || tree.starts_with(&data) {
        let (data, tree) = (data.display(), tree.display());
        let what = format!("{tree} and the data directory {data} lie in one another");
        return Err(fail(Exit::Usage, what));
    }
    Ok(())
}
