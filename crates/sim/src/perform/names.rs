//! Changes of names and attributes.

use super::deed::{Deed, Known, known_at};
use super::{CALLER, Programs, making, outcome, settle};
use crate::machine::SimClient;
use crate::operation::{Fault, Operation, Outcome, Path};
use client::{Making, RenameFlag, Setting};

impl Programs {
    pub(super) async fn change_names(
        &self,
        client: &SimClient,
        operation: &Operation,
    ) -> Result<Outcome, Fault> {
        use Operation as O;
        match operation {
            O::Make { path, kind, mode, target } => {
                let (parent, name) = self.place(client, path).await?;
                let making = Making { target: target.clone(), ..making(*kind, *mode) };
                let found =
                    settle(client, |client| client.make(CALLER, parent, &name, &making)).await?;
                Ok(outcome(&found))
            }
            O::Link { from, to } => {
                let file = self.find(client, from).await?.file;
                let (parent, name) = self.place(client, to).await?;
                self.noted.does(|| Some(Deed::Link { file }));
                let found =
                    settle(client, |client| client.link(CALLER, file, parent, &name)).await?;
                Ok(outcome(&found))
            }
            O::Bear { slot, to } => {
                let file = self.opened(*slot)?.file;
                let (parent, name) = self.place(client, to).await?;
                let found =
                    settle(client, |client| client.link(CALLER, file, parent, &name)).await?;
                Ok(outcome(&found))
            }
            O::Unlink { path } => self.unlink(client, path, false).await,
            O::RemoveDirectory { path } => self.unlink(client, path, true).await,
            O::Rename { from, to, flag } => {
                let (from, to) = (self.place(client, from).await?, self.place(client, to).await?);
                let renamed = settle(client, |client| {
                    self.noted.does(|| {
                        let over = known_at(client, &to).filter(|_| *flag != RenameFlag::NoReplace);
                        let file = known_at(client, &from)?.file;
                        let exchange = *flag == RenameFlag::Exchange;
                        Some(Deed::Move {
                            file,
                            from: from.clone(),
                            to: to.clone(),
                            over,
                            exchange,
                        })
                    });
                    client.rename(CALLER, from.0, &from.1, to.0, &to.1, *flag)
                });
                renamed.await?;
                Ok(Outcome::Done)
            }
            _ => Err(Fault::Other(format!("{operation} changes no names"))),
        }
    }

    async fn unlink(
        &self,
        client: &SimClient,
        path: &Path,
        directory: bool,
    ) -> Result<Outcome, Fault> {
        let place = self.place(client, path).await?;
        let removed = settle(client, |client| {
            self.noted.does(|| Some(Deed::Remove(known_at(client, &place)?)));
            client.unlink(CALLER, place.0, &place.1, directory)
        });
        removed.await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn set(
        &self,
        client: &SimClient,
        path: &Path,
        setting: Setting,
    ) -> Result<Outcome, Fault> {
        let file = self.find(client, path).await?.file;
        let set = settle(client, |client| {
            self.noted.does(|| {
                let before = Known::of(client, file)?;
                let Setting { mode, uid, gid, .. } = setting;
                Some(Deed::Set { before, mode, uid, gid })
            });
            client.set_attributes(CALLER, file, None, &setting)
        });
        Ok(outcome(&set.await?))
    }
}
