//! What redb says, as what a caller does about it.

use super::panics::{Blame, caught};
use crate::error::{Result, StoreError};
use crate::files;
use std::path::Path;

pub const SENSELESS: &str = "a page makes no sense";

/// redb trusts pages that it has not checked, and a damaged one can make it panic.
pub fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    Blame::of(path).during(|| caught(work)).unwrap_or_else(|| Err(senseless(path)))
}

pub fn senseless(path: &Path) -> StoreError {
    damaged_file(path, SENSELESS)
}

pub fn open_error(path: &Path, error: redb::DatabaseError) -> StoreError {
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::Busy(path.to_path_buf()),
        redb::DatabaseError::UpgradeRequired(_) => StoreError::Database {
            place: path.display().to_string(),
            what: "it was written by another version of farfs; use that version".to_string(),
        },
        redb::DatabaseError::RepairAborted => damaged_file(path, "it could not be mended"),
        redb::DatabaseError::Storage(error) => storage(path, error),
        error => other(path, &error),
    }
}

pub fn transaction_error(path: &Path, error: redb::TransactionError) -> StoreError {
    match error {
        redb::TransactionError::Storage(error) => storage(path, error),
        error => other(path, &error),
    }
}

pub fn table_error(path: &Path, error: redb::TableError) -> StoreError {
    match error {
        redb::TableError::Storage(error) => storage(path, error),
        error @ (redb::TableError::TableTypeMismatch { .. }
        | redb::TableError::TypeDefinitionChanged { .. }
        | redb::TableError::TableIsMultimap(_)) => damaged_file(path, &error.to_string()),
        error => other(path, &error),
    }
}

pub fn storage(path: &Path, error: redb::StorageError) -> StoreError {
    match error {
        redb::StorageError::Corrupted(what) => damaged_file(path, &what),
        redb::StorageError::Io(source)
            if matches!(
                source.kind(),
                std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData
            ) =>
        {
            damaged_file(path, &source.to_string())
        }
        // What a sync has met that redb knows nothing of.
        redb::StorageError::Io(source) => {
            source.downcast().unwrap_or_else(|source| files::failed(path, source))
        }
        error => other(path, &error),
    }
}

pub fn damaged_file(path: &Path, what: &str) -> StoreError {
    StoreError::Damaged { place: path.display().to_string(), what: what.to_string() }
}

pub fn other(path: &Path, error: &dyn std::error::Error) -> StoreError {
    StoreError::Database { place: path.display().to_string(), what: error.to_string() }
}
