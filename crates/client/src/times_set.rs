//! Times of change that programs set on a file whose last writes are not stored yet.
//! Holds: what was set after the last write is the file's time once it is stored, also after a
//! crash; what was written after it was set has a time of its own.

use crate::client::{Client, Core, failed};
use crate::failures::log_failed;
use crate::files::{Grip, OpenFile};
use crate::part::opened_record;
use crate::presence::{Dirty, Presence};
use crate::types::Step;
use model::{Change, FileId, Time, Update};
use protocol::Upstream;
use store::{Containers, Durability, StoreError, Write};

/// The time that an update sets, and of which file.
fn time_set(update: &Update) -> Option<(FileId, Time)> {
    match &update.change {
        Change::SetAttributes { file, set, .. } => set.mtime.map(|mtime| (*file, mtime)),
        _ => None,
    }
}

/// Notes in the tables that a file's last writes are to be stored with the time that is set now.
pub(crate) fn note_time_set(write: &mut dyn Write, update: &Update) -> Result<(), StoreError> {
    let Some((file, mtime)) = time_set(update) else { return Ok(()) };
    let Some(mut row) = Presence::load(&*write, file)? else { return Ok(()) };
    let Some(dirty) = &mut row.dirty else { return Ok(()) };
    dirty.mtime = Some(mtime);
    row.save(write, file)
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The same of the open file. Whoever holds the tables must not call it: their lock comes after that of
    /// what is open.
    pub(crate) fn show_time_set(&self, _core: &mut Core, update: &Update) {
        if let Some((file, mtime)) = time_set(update)
            && let Some(open) = self.files().written_version(file)
            && let Some(dirty) = &mut open.presence.dirty
        {
            dirty.mtime = Some(mtime);
        }
    }

    /// It is written to again. The log first, so that a crash does not take the time that was set
    /// for that of the new bytes.
    pub(crate) fn forget_time_set(&self, grip: &Grip<C::Container>) -> Step<()> {
        let (file, generation) = (grip.file, grip.generation);
        let is_set = |open: &OpenFile<C::Container>| {
            open.presence.dirty.filter(|dirty| dirty.mtime.is_some())
        };
        if self.files().get(file, generation).and_then(is_set).is_none() {
            return Ok(());
        }
        let mut core = self.core();
        let mut files = self.files();
        let Some(open) = files.get_mut(file, generation) else { return Ok(()) };
        let Some(dirty) = is_set(open) else { return Ok(()) };
        let presence =
            Presence { dirty: Some(Dirty { mtime: None, ..dirty }), ..open.presence.clone() };
        if open.unlinked.is_none() {
            let noted = core.log.note(&opened_record(file, dirty, &presence));
            noted.map_err(log_failed)?;
            core.unsaved = true;
            let mut write = self.inner.tables.write().map_err(failed)?;
            presence.save_in_place(&mut *write, file).map_err(failed)?;
            write.commit(Durability::Later).map_err(failed)?;
        }
        open.presence = presence;
        Ok(())
    }
}
