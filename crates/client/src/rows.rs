//! Whether what the rows say is here is what the containers hold.
//! Never: changes anything.

use crate::client::Client;
use crate::plan::describe_container;
use crate::presence::Presence;
use chunks::Growing;
use model::FileId;
use protocol::Upstream;
use store::container::Key;
use store::{Container, Containers, StoreError};

/// Rows that are read at once.
const PAGE_FILES: usize = 1024;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The files of which all is said to be here as it was stored, and whose container holds
    /// something else. For tests: it reads every container.
    pub fn files_that_are_not_as_stored(&self) -> Result<Vec<FileId>, StoreError> {
        let (secret, cutter) = self.secret();
        let read = self.inner.tables.read()?;
        let (mut wrong, mut after) = (Vec::new(), None);
        loop {
            let page = Presence::page(&*read, after, PAGE_FILES)?;
            let Some((last, _)) = page.last() else { return Ok(wrong) };
            after = Some(*last);
            for (file, row) in page {
                let is_stored = row.dirty.is_none() && row.ground.is_none();
                if !is_stored || row.contents.root.is_none() || !row.is_whole() {
                    continue;
                }
                let key = Key { file: file.0, generation: row.generation };
                let Some(container) = self.inner.containers.open(key, false)? else { continue };
                let (growing, size) = (Growing::new(&secret, cutter), container.length()?);
                let described = describe_container(&container, growing, size, 0, |_| Ok(()));
                if described.is_ok_and(|described| described.tree.contents != row.contents) {
                    wrong.push(file);
                }
            }
        }
    }
}
