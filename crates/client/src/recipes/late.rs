//! Recipes of pending stores that wait for the next checkpoint: a file that is stored again and again has
//! its recipe written once in a while, and one that is sent at once never.
//! Holds: who stored something is in the tables on the disk together with its recipe, which the checkpoint
//! writes that puts them there; whoever looks one up has those that wait written first.
//! Never: keeps more than a few MiB of them.

use super::unsent::{Row, is_left_over, remove_unsent, save};
use crate::client::{Client, Core};
use crate::presence::Presence;
use chunks::Tree;
use model::FileId;
use protocol::Upstream;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{Containers, Durability, StoreError, Write};

/// What does not fit is written at once.
const BYTES_MAX: usize = 4 << 20;

/// By file: the recipe of its last store.
#[derive(Default)]
pub(crate) struct Late(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    rows: BTreeMap<FileId, Row>,
    bytes: usize,
}

impl Waiting {
    fn remove(&mut self, file: FileId) {
        if let Some(row) = self.rows.remove(&file) {
            self.bytes -= row.bytes();
        }
    }
}

impl Late {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In place of that of an earlier store. Gives it back, if there is no room.
    fn put(&self, file: FileId, row: Row) -> Option<Row> {
        let mut waiting = self.lock();
        waiting.remove(file);
        if waiting.bytes + row.bytes() > BYTES_MAX {
            return Some(row);
        }
        waiting.bytes += row.bytes();
        waiting.rows.insert(file, row);
        None
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Keeps the recipe of the store of this number until that has been sent, in place of that of an
    /// earlier one. What is one chunk has that for its root, and needs none.
    pub(crate) fn keep_unsent(
        &self,
        write: &mut dyn Write,
        (file, number): (FileId, u64),
        tree: &Tree,
    ) -> Result<(), StoreError> {
        let Some(row) = Row::of(number, tree) else { return self.drop_unsent(write, file) };
        match self.inner.mended.late.put(file, row) {
            Some(row) => save(write, file, &row),
            None => Ok(()),
        }
    }

    /// An earlier store has been replaced by one whose recipe is not kept so.
    pub(crate) fn drop_unsent(
        &self,
        write: &mut dyn Write,
        file: FileId,
    ) -> Result<(), StoreError> {
        self.inner.mended.late.lock().remove(file);
        remove_unsent(write, file)
    }

    /// Those that wait, as far as their stores are pending. Once that is committed they wait no more.
    pub(crate) fn save_late(&self, core: &Core, write: &mut dyn Write) -> Result<(), StoreError> {
        for (file, row) in &self.inner.mended.late.lock().rows {
            let pending = core.log.pending_store(*file).filter(|number| *number == row.number);
            let presence = Presence::load(&*write, *file)?;
            if pending.is_some() && presence.is_some_and(|here| here.version.number == row.number) {
                save(write, *file, row)?;
            } else if is_left_over(&*write, *file, core.log.pending_store(*file))? {
                remove_unsent(write, *file)?;
            }
        }
        Ok(())
    }

    /// They are in the tables. Under the same lock of the core.
    pub(crate) fn late_saved(&self) {
        *self.inner.mended.late.lock() = Waiting::default();
    }

    /// Before somebody looks one up, or names what is pending anew.
    pub(crate) fn save_late_now(&self, core: &mut Core) -> Result<(), StoreError> {
        if self.inner.mended.late.lock().rows.is_empty() {
            return Ok(());
        }
        let mut write = self.inner.tables.write()?;
        self.save_late(core, &mut *write)?;
        write.commit(Durability::Later)?;
        core.unsaved = true;
        self.late_saved();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_file_waits_and_what_does_not_fit_is_given_back() {
        let row = |number, length| Row { number, chunks: vec![vec![7; length].into()] };
        let late = Late::default();
        let half = BYTES_MAX / 2;
        assert_eq!(late.put(FileId(5), row(1, half)), None);
        assert_eq!(late.put(FileId(5), row(2, half)), None, "it takes the place of the first");
        assert_eq!(late.put(FileId(6), row(3, half)), None);
        assert_eq!(late.put(FileId(7), row(4, 1)), Some(row(4, 1)));
        assert_eq!(late.put(FileId(6), row(5, half + 1)), Some(row(5, half + 1)));
        let mut waiting = late.lock();
        assert_eq!(
            waiting.rows.keys().collect::<Vec<_>>(),
            [&FileId(5)],
            "an older one of 6 is none"
        );
        waiting.remove(FileId(5));
        assert_eq!((waiting.rows.len(), waiting.bytes), (0, 0));
    }
}
