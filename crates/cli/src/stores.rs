//! What a mount keeps in its state directory, opened.
//! Holds: where another program has filled the disk to the last byte, what is kept aside makes the
//! room that opening takes; nothing is made in the place of what was lost.

use crate::reserve::is_full;
use crate::state::{Known, State};
use crate::tables;
use anyhow::Result;
use client::Stores;
use std::sync::Arc;
use store::Reserve as _;
use store::Tables as _;
use store::container::DirectoryContainers;
use store::journal::FileJournal;
use store::reserve::{FileReserve, Portion};

/// Room that is kept aside on the disk here: what it takes to write down that pending changes were
/// undone.
const RESERVE: Portion = Portion { bytes: 4 << 20, one_in: 2 };

/// Opens them, and with `work` what rests on them: once more with what is kept aside, if there was
/// no room.
pub fn open<T>(
    state: &State,
    known: &Known,
    work: impl Fn(Stores<DirectoryContainers>) -> Result<T>,
) -> Result<T> {
    state.tables_are_there(known)?;
    let reserve = Arc::new(FileReserve::at(&state.reserve(), RESERVE));
    let opened = || work(stores(state, reserve.clone())?);
    let mut outcome = opened();
    let lent = outcome.as_ref().is_err_and(is_full) && reserve.give_up();
    if lent {
        outcome = opened();
    }
    if lent || outcome.is_ok() {
        reserve.take_back();
    }
    outcome
}

fn stores(state: &State, reserve: Arc<FileReserve>) -> Result<Stores<DirectoryContainers>> {
    let tables = tables::open(&state.tables())?;
    let applied = client::applied(&*tables.read()?)?.unwrap_or(0);
    Ok(Stores {
        tables: Arc::new(tables),
        // Of a log that ends before what the tables have of it nothing may be cut off.
        journal: Arc::new(FileJournal::open_knowing(&state.log(), applied)?),
        containers: DirectoryContainers::open(&state.cache())?,
        reserve,
    })
}
