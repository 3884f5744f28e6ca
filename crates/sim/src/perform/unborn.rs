//! Files that are made without a name.

use super::{CALLER, Opened, Programs, making, outcome};
use crate::fault::fault;
use crate::machine::SimClient;
use crate::operation::{Fault, Outcome, Path};
use client::{OpenFlags, complete};
use model::Kind;

impl Programs {
    pub(super) async fn create_unborn(
        &mut self,
        client: &SimClient,
        directory: &Path,
        mode: u16,
        slot: usize,
    ) -> Result<Outcome, Fault> {
        self.free(slot)?;
        let directory = self.directory(client, directory).await?;
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let making = making(Kind::File, mode);
        let created =
            complete(client, |client| client.create_unborn(CALLER, directory, &making, flags));
        let (found, opened) = created.await.map_err(fault)?;
        self.slots[slot] =
            Some(Opened { handle: opened.handle, file: found.file, flags, seen: None });
        Ok(outcome(&found))
    }
}
