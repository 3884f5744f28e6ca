//! What the layers below say of a failure, as the calls of programs take it.

use crate::types::{Error, Need, Stop};
use chunks::ChunksError;
use store::StoreError;
use update_log::LogError;
use volume::partial::Missing;

pub(crate) fn stop(missing: Missing) -> Stop {
    match missing {
        Missing::Node(file) => Stop::Need(Need::Node(file)),
        Missing::Entry(directory, name) => Stop::Need(Need::Entry(directory, name)),
        Missing::Directory(directory) => Stop::Need(Need::Directory(directory)),
        Missing::Store(error) => failed(error),
        Missing::Row(error) => {
            tracing::error!(%error, "the cache is damaged");
            Error::Failed(error.to_string()).into()
        }
    }
}

pub(crate) fn failed(error: StoreError) -> Stop {
    error_of(error).into()
}

pub(crate) fn error_of(error: StoreError) -> Error {
    match error {
        StoreError::Full(_) => Error::DiskFull,
        StoreError::TooLarge(_) => Error::TooLarge,
        error if error.is_short_of_descriptors() => {
            tracing::warn!(
                %error,
                "no descriptor was left for this, though some are kept for what is open: let this \
                 process have more (ulimit -Hn, LimitNOFILE=)"
            );
            Error::TooManyOpen
        }
        error => {
            tracing::error!(%error, "the client's store failed");
            match error.is_unreadable() {
                true => Error::Unreadable(error.to_string()),
                false => Error::Failed(error.to_string()),
            }
        }
    }
}

/// Where nobody can be asked for what is not known: that is a failure, too.
pub(crate) fn of_missing(missing: Missing) -> Error {
    match missing {
        Missing::Store(error) => error_of(error),
        missing => Error::Failed(missing.to_string()),
    }
}

/// Of cutting, naming and walking. A disk that is full stays one.
pub(crate) fn of_chunks(error: ChunksError) -> Error {
    match error {
        ChunksError::Store(error) => error_of(error),
        ChunksError::SizeChanged { .. } => Error::Changing,
        error => Error::Failed(error.to_string()),
    }
}

pub(crate) fn log_failed(error: LogError) -> Stop {
    of_log(error).into()
}

pub(crate) fn of_log(error: LogError) -> Error {
    match error {
        LogError::Store(error) => error_of(error),
        error => Error::Failed(error.to_string()),
    }
}
