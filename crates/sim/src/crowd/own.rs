//! Work in a client's own part, where every outcome is foretold.

use super::actor::{Actor, Crashed};
use crate::operation::{Operation, Outcome};
use client::Durability;

impl Actor {
    pub(super) async fn own_step(&mut self, operation: Operation) -> Result<(), String> {
        let client = self.client()?;
        let began = self.room.clock.moment();
        for contents in self.candidates.would_store(&operation) {
            self.board.enter(&contents);
        }
        self.room.trace.note(&self.machine.name, &operation);
        let mut own = std::mem::take(&mut self.own);
        let performed = self.unless_crashed(&operation, own.perform(&client, &operation)).await?;
        self.own = own;
        let found = match performed {
            Ok(found) => found,
            Err(Crashed) => return self.recover(Some(&operation)).await,
        };
        self.room.trace.note(&self.machine.name, format_args!("  = {found}"));
        if self.past.excuses(&operation, &found, self.room.clock.moment()) {
            return Ok(());
        }
        let told = self.candidates.perform(&operation, &found);
        told.map_err(|why| format!("{}: {why}", self.machine.name))?;
        self.past.note(self.candidates.past_slots(), began);
        if let (Operation::Sync { slot }, Outcome::Done) = (&operation, &found) {
            self.candidates.synced(*slot);
        }
        let on_disk =
            self.machine.durability == Durability::Sync && !matches!(found, Outcome::Failed(_));
        if on_disk || client.status().pending.updates == 0 {
            self.candidates.all_is_home();
        }
        Ok(())
    }
}
