//! What can go wrong at an origin, and what a client is told of it.

use model::ChunkName;
use protocol::Refusal;
use store::StoreError;
use tracing::{debug, error};
use volume::whole::{self, VolumeId};

#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tree(#[from] whole::Error),
    #[error(transparent)]
    Chunks(#[from] chunks::ChunksError),
    #[error("there is a volume {0} already")]
    VolumeExists(String),
    #[error("there is no volume {0}; `farfs volume list` shows those that there are")]
    NoVolume(String),
    #[error("{0:?} is no name for a volume: 1 to 64 letters, digits, '-', '_' and '.'")]
    BadVolumeName(String),
    #[error("no device is known by {0:?}; `farfs device list` shows those that are")]
    NoDevice(String),
    /// It was here when the update that names it was taken.
    #[error("chunk {1} of {0} is damaged or missing")]
    Lost(VolumeId, ChunkName),
    /// Why is in the log, if it is the server's trouble.
    #[error("{0}")]
    Refused(Refusal),
    /// Batches that were to be taken together are taken one after the other then.
    #[error("others have stored what a store is merged with meanwhile")]
    Unprepared,
    #[error("the server is going down")]
    GoingDown,
    #[error("the directory {0} cannot be kept in step: {1}")]
    BadTree(String, String),
    #[error("{0:?} may mean {1} devices; give more of the id")]
    AmbiguousDevice(String, usize),
    #[error("a volume has quotas for at most {0} users")]
    TooManyQuotas(usize),
}

pub(crate) type Result<T, E = ReplicaError> = std::result::Result<T, E>;

impl ReplicaError {
    /// The disk has no room for what was to be written.
    pub fn is_full(&self) -> bool {
        let is_told = matches!(self, ReplicaError::Refused(Refusal::NoSpace));
        is_told || matches!(self.of_the_store(), Some(StoreError::Full(_)))
    }

    /// There is no descriptor left for another open file.
    pub fn is_short_of_descriptors(&self) -> bool {
        self.of_the_store().is_some_and(StoreError::is_short_of_descriptors)
    }

    /// What the store has said, by whichever way it came here.
    fn of_the_store(&self) -> Option<&StoreError> {
        match self {
            ReplicaError::Store(error)
            | ReplicaError::Tree(whole::Error::Store(error))
            | ReplicaError::Chunks(chunks::ChunksError::Store(error)) => Some(error),
            _ => None,
        }
    }

    /// What the asker is told. The cause is the server's own affair and goes to its log, once; of
    /// a full disk by `Inner::refuse`.
    pub(crate) fn refuse(&self, volume: &str, doing: &'static str) -> Refusal {
        match self {
            _ if self.is_full() => Refusal::NoSpace,
            ReplicaError::Tree(whole::Error::NoVolume) | ReplicaError::NoVolume(_) => {
                Refusal::NoVolume
            }
            // It was said in the log when it was noted.
            ReplicaError::Lost(..) => {
                debug!(volume, doing, error = %self, "a request needs what is missing");
                Refusal::Failed(
                    "some of its contents are damaged or missing at the server, which asks other \
                     devices for them: try again later"
                        .into(),
                )
            }
            _ => {
                error!(volume, doing, error = %self, "a request failed");
                ReplicaError::store_failed()
            }
        }
    }

    pub(crate) fn store_failed() -> Refusal {
        Refusal::Failed("its store failed; the server's log says how".into())
    }
}
