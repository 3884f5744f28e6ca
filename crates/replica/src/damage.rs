//! Damaged rows of the tables that requests met.
//! Holds: each is told of once in the log for as long as the origin is open.

use crate::error::ReplicaError;
use crate::volumes::locked;
use std::collections::BTreeSet;
use std::sync::Mutex;
use store::StoreError;
use volume::whole;

/// Rows that are remembered. Of more the log says nothing: `farfs check` finds them all.
const ROWS_MAX: usize = 1024;

/// What was said of each, in words.
#[derive(Default)]
pub(crate) struct Damage(Mutex<BTreeSet<String>>);

impl Damage {
    /// Tells of a row that is left out of an answer.
    pub fn left_out(&self, volume: &str, error: &whole::Error) {
        if self.is_news(&error.to_string()) {
            tracing::error!(
                volume, %error,
                "a row of the tables cannot be read, and devices are shown the rest: `farfs check` tells what \
                 is affected"
            );
        }
    }

    /// Whether it was not told of yet.
    pub fn is_news(&self, what: &str) -> bool {
        let mut told = locked(&self.0);
        told.len() < ROWS_MAX && told.insert(what.to_owned())
    }
}

/// One row cannot be read, or the pages around it: others may be as they were written.
pub(crate) fn is_of_a_row(error: &whole::Error) -> bool {
    match error {
        whole::Error::Damaged { .. }
        | whole::Error::TooNew { .. }
        | whole::Error::Store(StoreError::Damaged { .. }) => true,
        whole::Error::Store(error) => error.is_unreadable(),
        _ => false,
    }
}

impl ReplicaError {
    /// It is damage of the tables.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            ReplicaError::Tree(error) => is_of_a_row(error),
            ReplicaError::Store(error) => matches!(error, StoreError::Damaged { .. }),
            _ => false,
        }
    }
}
