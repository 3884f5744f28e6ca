//! What programs do to the contents of what they have open.

use super::{CALLER, Opened, Programs, settle};
use crate::fault::fault;
use crate::machine::SimClient;
use crate::operation::{Fault, Operation, Outcome};
use client::{Setting, complete};

impl Programs {
    pub(super) async fn alter(
        &self,
        client: &SimClient,
        operation: &Operation,
    ) -> Result<Outcome, Fault> {
        use Operation as O;
        match operation {
            O::Write { slot, offset, length, version } => {
                let opened = self.writable(*slot)?;
                let bytes = crate::contents::stretch(*version, *length);
                // The kernel sends what is appended to the end, whatever offset a program names.
                let place = (!opened.flags.append).then_some(*offset);
                write(client, opened, place, &bytes).await?;
            }
            O::Append { slot, length, version } => {
                let opened = self.writable(*slot)?;
                let bytes = crate::contents::stretch(*version, *length);
                write(client, opened, None, &bytes).await?;
            }
            O::Truncate { slot, size } => {
                let opened = self.writable(*slot)?;
                let setting = Setting { size: Some(*size), ..Setting::default() };
                settle(client, |client| {
                    client.set_attributes(CALLER, opened.file, Some(opened.handle), &setting)
                })
                .await?;
            }
            O::Allocate { slot, offset, length, how } => {
                let handle = self.writable(*slot)?.handle;
                complete(client, |client| client.allocate(handle, *offset, *length, *how))
                    .await
                    .map_err(fault)?;
            }
            O::Copy { from, from_offset, to, to_offset, length } => {
                let source = self.opened(*from)?;
                let target = self.writable(*to)?;
                if !source.flags.read {
                    return Err(Fault::BadHandle);
                }
                if source.file == target.file {
                    return Err(Fault::Invalid);
                }
                if target.flags.append {
                    return Err(Fault::BadHandle);
                }
                let copied = complete(client, |client| {
                    client.copy(source.handle, *from_offset, target.handle, *to_offset, *length)
                });
                return copied.await.map(Outcome::Copied).map_err(fault);
            }
            _ => return Err(Fault::Other(format!("{operation} writes nothing"))),
        }
        Ok(Outcome::Done)
    }
}

/// Writes at a place, or at the end as the kernel knows it.
async fn write(
    client: &SimClient,
    opened: Opened,
    place: Option<u64>,
    bytes: &[u8],
) -> Result<(), Fault> {
    let offset = match place {
        Some(offset) => offset,
        None => {
            let found = complete(client, |client| client.attributes(opened.file)).await;
            found.map_err(fault)?.node.size()
        }
    };
    complete(client, |client| client.write(opened.handle, offset, bytes)).await.map_err(fault)
}
