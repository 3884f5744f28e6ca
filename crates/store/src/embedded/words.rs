//! What people are told of a damaged file. The store does not know what its rows mean, nor where
//! else they are; who opens it does.

use crate::error::StoreError;
use std::fmt::Write;
use std::path::Path;

/// Bytes of a key that are shown.
const KEY_BYTES_MAX: usize = 48;

#[derive(Clone, Debug)]
pub struct Words {
    /// What to do about it.
    pub advice: String,
    /// What to do if it cannot be opened. None: the same.
    pub unopened: Option<String>,
    /// What to do if its log is why. None: the same.
    pub log: Option<String>,
    /// What to do if the log is not there.
    pub missing: String,
    /// What a row is about, by its table and its key.
    pub describe: fn(&str, &[u8]) -> Option<String>,
}

impl Default for Words {
    fn default() -> Words {
        Words {
            advice: "check the disk that holds it".to_string(),
            unopened: None,
            log: None,
            missing: "put it back from where it was moved to".to_string(),
            describe: |_, _| None,
        }
    }
}

impl Words {
    /// The advice goes with damage alone.
    pub(super) fn advise(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Damaged { place, what } => {
                StoreError::Damaged { place, what: format!("{what}; {}", self.advice) }
            }
            StoreError::Missing { place, what } => {
                StoreError::Missing { place, what: format!("{what}; {}", self.missing) }
            }
            other => other,
        }
    }

    pub(super) fn unopened(&self) -> &str {
        self.unopened.as_ref().unwrap_or(&self.advice)
    }

    /// Of one that cannot be opened.
    pub(super) fn advise_opening(&self, error: StoreError, log: Option<&Path>) -> StoreError {
        let is_in_log = |place: &str| {
            let log = log.map(|log| log.display().to_string());
            log.is_some_and(|log| place.starts_with(&log))
        };
        let unopened = self.unopened();
        let of_the_log = self.log.as_deref().unwrap_or(unopened);
        let is_unreadable = error.is_unreadable();
        match error {
            StoreError::Damaged { place, what } => {
                let advice = if is_in_log(&place) { of_the_log } else { unopened };
                StoreError::Damaged { place, what: format!("{what}; {advice}") }
            }
            StoreError::Io { place, source } if is_unreadable && is_in_log(&place) => {
                StoreError::Damaged { place, what: format!("{source}; {of_the_log}") }
            }
            error => self.advise(error),
        }
    }

    pub(super) fn damaged_row(&self, table: &str, key: &[u8]) -> String {
        let mut shown = String::new();
        for byte in key.iter().take(KEY_BYTES_MAX) {
            // Writing into a string cannot fail.
            let _ = write!(shown, "{byte:02x}");
        }
        let more = if key.len() > KEY_BYTES_MAX { "…" } else { "" };
        let about =
            (self.describe)(table, key).map_or(String::new(), |about| format!(" ({about})"));
        format!("row {shown}{more} of table {table}{about} is not what was written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_table_its_key_and_what_it_is_about() {
        let words = Words::default();
        assert_eq!(
            words.damaged_row("t", &[1, 0xab]),
            "row 01ab of table t is not what was written"
        );
        let long = words.damaged_row("t", &[0; 300]);
        assert!(long.len() < 200 && long.contains('…'), "{long}");
        let words = Words { describe: |_, key| Some(format!("file {}", key[0])), ..words };
        let said = words.damaged_row("t", &[7]);
        assert_eq!(said, "row 07 of table t (file 7) is not what was written");
    }
}
