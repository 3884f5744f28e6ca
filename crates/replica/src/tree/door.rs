//! Where those who serve clients reach the keeper of a tree.
//! Holds: whoever asks is answered when the keeper has looked, when it stops, or not at all and
//! goes on after a bound.

use crate::volumes::locked;
use model::{FileId, Name};
use protocol::Request;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use store::tree::{Tree, Waker};
use tokio::sync::oneshot;
use world::Clock;

/// How long a client's request waits for the keeper to look.
const LOOK_WITHIN: Duration = Duration::from_millis(500);
/// Requests that wait to be looked after; the others are answered from what is known.
const ASKED_MAX: usize = 1024;

/// What a client asks about.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    pub files: Vec<FileId>,
    /// Directories that are listed.
    pub lists: Vec<FileId>,
    pub names: Vec<(FileId, Name)>,
}

impl Ask {
    /// What a request is about, if it shows how something is now.
    pub fn of(request: &Request) -> Option<Ask> {
        match request {
            Request::List { directory, .. } => {
                Some(Ask { lists: vec![*directory], ..Ask::default() })
            }
            Request::Inspect { nodes, entries } => {
                Some(Ask { files: nodes.clone(), names: entries.clone(), ..Ask::default() })
            }
            Request::Recipe { file, version: None, .. } => {
                Some(Ask { files: vec![*file], ..Ask::default() })
            }
            _ => None,
        }
    }
}

/// How a tree is being kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeState {
    /// Another is in its place, or none, and nothing is carried over.
    pub away: bool,
    /// Nothing can be changed in it: what devices do waits.
    pub read_only: bool,
    /// Its disk has no room: what devices do waits.
    pub full: bool,
    /// Names and files that devices have changed and that are not in it yet.
    pub waiting: u64,
    /// Directories that the server may not look into, by their paths below the root: they are as
    /// they were seen last.
    pub barred: Vec<String>,
    /// Why something that devices did is not in it yet, though it was tried several times.
    pub hindered: Vec<String>,
    /// Why nothing could be carried over lately.
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Door(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// None: nobody keeps a tree.
    waker: Option<Waker>,
    /// Where the tree is.
    root: Option<PathBuf>,
    /// The keeper has looked at everything once, and answers.
    ready: bool,
    asked: Vec<(Ask, oneshot::Sender<()>)>,
    /// None: nobody keeps a tree.
    state: Option<TreeState>,
}

impl Door {
    /// Something was committed.
    pub fn wake(&self) {
        if let Some(waker) = &locked(&self.0).waker {
            waker.wake();
        }
    }

    /// Waits until the keeper has looked at what is asked about.
    pub async fn look(&self, ask: Ask, clock: &Clock) {
        let looked = {
            let mut inside = locked(&self.0);
            if !inside.ready || inside.asked.len() >= ASKED_MAX {
                return;
            }
            let Some(waker) = inside.waker.clone() else { return };
            let (sender, looked) = oneshot::channel();
            inside.asked.push((ask, sender));
            waker.wake();
            looked
        };
        // A keeper that is gone or busy holds nobody up, and one that is busy only once.
        if clock.within(LOOK_WITHIN, looked).await.is_none() {
            locked(&self.0).ready = false;
        }
    }

    /// Bytes that the disk of the tree has free. None: there is no tree, or it is away, and what
    /// is stored waits for it.
    pub fn room(&self) -> Option<u64> {
        let root = locked(&self.0).root.clone()?;
        Tree::open(&root).and_then(|tree| tree.room()).ok()
    }

    pub(super) fn open(&self, waker: Waker, root: PathBuf) {
        let mut inside = locked(&self.0);
        (inside.waker, inside.root) = (Some(waker), Some(root));
    }

    /// None: nobody keeps a tree.
    pub fn state(&self) -> Option<TreeState> {
        locked(&self.0).state.clone()
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut TreeState)) {
        change(locked(&self.0).state.get_or_insert_default());
    }

    pub(super) fn ready(&self) {
        locked(&self.0).ready = true;
    }

    /// Nobody is answered any more.
    pub(super) fn close(&self) {
        *locked(&self.0) = Inside::default();
    }

    pub(super) fn asked(&self) -> Vec<(Ask, oneshot::Sender<()>)> {
        std::mem::take(&mut locked(&self.0).asked)
    }
}
