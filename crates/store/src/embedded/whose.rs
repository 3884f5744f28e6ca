//! Whose database a file is: one of another part of farfs may have been moved or copied into its place.

use super::base::{Base, close_redb, open_redb};
use super::beneath::Beneath;
use super::errors::{damaged_file, guarded};
use super::panics::Blame;
use super::{CACHE_BYTES, log};
use crate::error::Result;
use crate::overlay::Writes;
use std::collections::BTreeSet;
use std::path::Path;

/// Whether a database in which these tables have rows is the one that belongs there.
pub type IsOurs = fn(&BTreeSet<String>) -> bool;

/// The mark says enough then.
const AGAIN: &str = "start farfs again, and it goes on without it";
const ANOTHERS: &str = "it is another database of farfs, and not the one that belongs there";

pub(super) fn check(path: &Path, base: &Base, is_ours: Option<IsOurs>) -> Result<()> {
    match is_ours {
        Some(is_ours) if !is_ours(&with_rows(path, base)?) => Err(damaged_file(path, ANOTHERS)),
        _ => Ok(()),
    }
}

/// The tables of a database that have rows. It is only read. `mark`: see `Settings`.
pub fn tables_in(path: &Path, mark: Option<&Path>) -> Result<BTreeSet<String>> {
    let over = Writes::Forgotten.above(path)?;
    Blame::new(path, AGAIN, mark).during(|| {
        let redb = open_redb(path, &Beneath::of(path, over.as_ref())?, CACHE_BYTES)?;
        let tables = guarded(path, || with_rows(path, &Base::of(path, &redb)?));
        close_redb(path, Some(redb));
        tables
    })
}

/// But for what it notes of its own log. One that cannot be looked into counts as one with rows.
fn with_rows(path: &Path, base: &Base) -> Result<BTreeSet<String>> {
    let mut names = base.table_names(path)?;
    names.retain(|name| name != log::TABLE && base.has_rows(path, name).unwrap_or(true));
    Ok(names.into_iter().collect())
}
