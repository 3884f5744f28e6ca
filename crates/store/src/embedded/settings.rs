//! How a database is opened.

use super::{CACHE_BYTES, HELD_BYTES_MAX, IsOurs, Words, YOUNG_ROWS_MAX};
use crate::overlay::Overlay;
use std::path::Path;
use std::sync::Arc;

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// A directory of its own for the log, where many commits are durable now.
    pub log: Option<&'a Path>,
    /// Pages of redb that are kept in memory.
    pub cache_bytes: usize,
    /// Rows in memory alone, after which the next commit writes them to redb.
    pub young_rows_max: usize,
    /// Of one transaction, what is kept in memory until it is committed.
    pub held_bytes_max: u64,
    /// What people are told if it is damaged.
    pub words: Words,
    /// A file that is made when damage ends the process.
    pub mark: Option<&'a Path>,
    /// It is asked before anything is written.
    pub is_ours: Option<IsOurs>,
    /// Where everything is written instead, the log included: the files are only read.
    pub over: Option<Arc<Overlay>>,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Settings {
            log: None,
            cache_bytes: CACHE_BYTES,
            young_rows_max: YOUNG_ROWS_MAX,
            held_bytes_max: HELD_BYTES_MAX,
            words: Words::default(),
            mark: None,
            is_ours: None,
            over: None,
        }
    }
}
