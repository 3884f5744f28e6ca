//! The contents that pending stores need: found, and sent where they are missing above.
//! From: LBFS, "Update protocol": TMPWRITE of the chunks that were not found.

use crate::client::{Client, error_of};
use crate::files::has_length;
use crate::plan::{Plan, describe_container};
use crate::presence::Presence;
use crate::replay_log::{Setback, pack_all};
use crate::session::unexpected;
use crate::types::Error;
use model::{Change, ChunkName, Update};
use protocol::{Class, PAYLOAD_BYTES_MAX, Request, Response, Upstream};
use store::Containers;

/// How long one message with contents may take at the measured rate.
const PUT_SECS: u64 = 2;
const PUT_BYTES_MIN: u64 = 4 << 10;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A plan that was lost with an earlier life is made again from the container.
    pub(crate) fn plan_again(&self, update: &Update) -> Result<(), Error> {
        let Change::Store { file, contents, .. } = &update.change else { return Ok(()) };
        if self.core().plans.contains_key(&update.stamp.number) {
            return Ok(());
        }
        let (secret, cutter) = self.secret();
        for (key, _) in self.inner.containers.list().map_err(error_of)? {
            if key.file != file.0 {
                continue;
            }
            let container = self.inner.containers.open(key, false).map_err(error_of)?;
            let Some(container) = container else { continue };
            let row = {
                let read = self.inner.tables.read().map_err(error_of)?;
                Presence::load(&*read, *file).map_err(error_of)?
            };
            let is_this = |row: &Presence| {
                row.generation == key.generation
                    && row.version == update.stamp
                    && row.dirty.is_none()
            };
            if row.as_ref().is_some_and(is_this) {
                has_length(&container, contents.size).map_err(error_of)?;
            }
            let described = describe_container(&container, &secret, cutter)
                .map_err(|error| Error::Failed(error.to_string()))?;
            if described.tree.contents == *contents {
                let plan = Plan::new(*file, key.generation, &described);
                self.core().plans.insert(update.stamp.number, plan);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends the chunks that the replica above lacks for these updates, the first not judged.
    pub(crate) async fn put(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
        class: Class,
    ) -> Result<(), Setback> {
        let rate = self.inner.upstream.quality().rate_up.unwrap_or(PUT_BYTES_MIN);
        let most = (rate * PUT_SECS).clamp(PUT_BYTES_MIN, PAYLOAD_BYTES_MAX as u64);
        let mut found_any = false;
        let mut group: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        for name in missing {
            let Some(chunk) = self.find_pending_chunk(updates, name)? else { continue };
            found_any = true;
            if bytes + chunk.len() as u64 > most && !group.is_empty() {
                self.put_group(&group, class).await?;
                group.clear();
                bytes = 0;
            }
            bytes += chunk.len() as u64;
            group.push(chunk);
        }
        if !group.is_empty() {
            self.put_group(&group, class).await?;
        }
        if !found_any {
            self.look_again(updates)?;
        }
        Ok(())
    }

    /// Nothing that is missing was found. The first store lacks something, or the replica above
    /// would have taken it. It may have been overtaken meanwhile, which is well; or its plan is
    /// wrong, and is made again; or its contents are nowhere here any more, because the disk has
    /// lost them or somebody has changed the state directory. Then the rest must not wait for it.
    fn look_again(&self, updates: &[Update]) -> Result<(), Setback> {
        let is_store = |update: &&Update| matches!(update.change, Change::Store { .. });
        let Some(update) = updates.iter().find(is_store) else { return Ok(()) };
        let number = update.stamp.number;
        self.core().plans.remove(&number);
        self.plan_again(update)?;
        let mut core = self.core();
        if core.plans.contains_key(&number) || !core.log.is_pending(number) {
            return Ok(());
        }
        core.log.overtake(number).map_err(|error| Error::Failed(error.to_string()))?;
        tracing::error!(
            update = %update.stamp,
            change = ?update.change,
            "the contents of a pending store are not in the state directory any more: it is dropped"
        );
        self.rebuild(&mut core, std::slice::from_ref(update))?;
        Ok(())
    }

    pub(crate) async fn put_group(&self, group: &[Vec<u8>], class: Class) -> Result<(), Setback> {
        let Some(payload) = pack_all(group) else { return Ok(()) };
        match self.inner.upstream.ask(class, Request::Put { payload }).await {
            Ok(Response::Stored) => Ok(()),
            Ok(Response::Refused(refusal)) => Err(self.refused(refusal)),
            Ok(other) => Err(unexpected("put", &other).into()),
            Err(_) => Err(Setback::Link),
        }
    }

    pub(crate) fn find_pending_chunk(
        &self,
        updates: &[Update],
        name: &ChunkName,
    ) -> Result<Option<Vec<u8>>, Error> {
        let secret = self.secret().0;
        for update in updates {
            let number = update.stamp.number;
            let Some(plan) = self.core().plans.remove(&number) else { continue };
            let found = self.chunk_of(&plan, &secret, name);
            self.core().plans.insert(number, plan);
            if let Some(bytes) = found.map_err(error_of)? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}
