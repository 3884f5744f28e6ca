//! Work where everybody works: what is read must have been stored as a whole, and what was stored
//! must not get lost.

use super::actor::{Actor, Crashed};
use super::board::{Closed, Done, How, Reader, Ticket};
use super::own_part;
use super::stance::Stance;
use crate::contents::{describe, stretch};
use crate::machine::SimClient;
use crate::operation::{Fault, Operation, Outcome, Path};
use crate::perform::Programs;
use client::OpenFlags;
use model::{FileId, Stamp};
use protocol::Mode;
use std::time::Duration;

/// The slot of the file that is being edited; nothing else stays open here.
const SLOT: usize = 0;
const READ_BYTES: usize = 64 << 10;
/// Nobody waits longer to be told that something was closed.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// Why an edit did not come to its end.
enum Stopped {
    /// The program was told so, and went on with something else.
    Fault,
    Failed(String),
}

impl From<String> for Stopped {
    fn from(why: String) -> Stopped {
        Stopped::Failed(why)
    }
}

impl Actor {
    pub(super) async fn shared_step(&mut self) -> Result<(), String> {
        let client = self.client()?;
        let mut programs = std::mem::take(&mut self.shared);
        let what = "work in the shared part";
        let done = match self.chance.below(12) {
            10.. => {
                let reading = self.read_what_is_closed(&client, &mut programs);
                self.unless_crashed(&what, reading).await?
            }
            0..5 => {
                let edit = Edit::draw(self);
                let editing = edit.make(self, &client, &mut programs);
                self.unless_crashed(&what, editing).await?
            }
            5..8 => {
                let operation = match self.chance.below(6) {
                    0 => self.workload.attribute_change(),
                    _ => self.workload.name_change(),
                };
                let changing = self.change_shared_names(&client, &mut programs, &operation);
                self.unless_crashed(&what, changing).await?
            }
            _ => {
                let operation = self.workload.question();
                let asking = self.ask(&client, &mut programs, &operation, true);
                self.unless_crashed(&what, asking).await?
            }
        };
        if let Some(deed) = programs.deed() {
            // It was under way when the machine crashed.
            let how = match client.status().mode {
                Mode::Connected => How::Unknown,
                _ => How::MaybeLogged,
            };
            self.board.does(Done { who: self.name(), deed, how });
        }
        self.shared = programs;
        match done {
            Err(Crashed) => self.recover(None).await,
            Ok(Ok(())) | Ok(Err(Stopped::Fault)) => Ok(()),
            Ok(Err(Stopped::Failed(why))) => Err(why),
        }
    }

    /// Waits until another says that something is closed, and reads it at once.
    async fn read_what_is_closed(
        &self,
        client: &SimClient,
        programs: &mut Programs,
    ) -> Result<(), Stopped> {
        let told = self.room.clock.within(TOLD_WITHIN, self.board.next_closed()).await;
        match told.flatten() {
            Some(path) => self.ask(client, programs, &Operation::Fetch { path }, true).await,
            None => Ok(()),
        }
    }

    /// Looks at what another client does in its own part.
    pub(super) async fn visit(&mut self) -> Result<(), String> {
        let client = self.client()?;
        // What is being written here shows here before it is stored.
        let others = self.plan.clients as u64 - 1;
        let whom = (self.side + 1 + self.chance.below(others) as usize) % self.plan.clients;
        let mut programs = Programs::at(own_part(whom));
        let operation = match self.chance.below(2) {
            0 => Operation::Fetch { path: self.workload.path() },
            _ => self.workload.question(),
        };
        let asking = self.ask(&client, &mut programs, &operation, false);
        match self.unless_crashed(&operation, asking).await? {
            Err(Crashed) => self.recover(None).await,
            Ok(Ok(())) | Ok(Err(Stopped::Fault)) => Ok(()),
            Ok(Err(Stopped::Failed(why))) => Err(why),
        }
    }

    /// Performs an operation whose outcome nobody can foretell; a failure is the link's or an
    /// ordinary one.
    async fn try_out(
        &self,
        client: &SimClient,
        programs: &mut Programs,
        operation: &Operation,
    ) -> Result<Outcome, Stopped> {
        self.room.trace.note(&self.machine.name, format_args!("{operation} (shared)"));
        let outcome = programs.perform(client, operation).await;
        self.room.trace.note(&self.machine.name, format_args!("  = {outcome}"));
        match &outcome {
            // A machine that crashes meanwhile is looked after by the caller.
            Outcome::Failed(Fault::Other(why)) if !self.machine.has_crashed() => {
                Err(Stopped::Failed(format!("{}: {operation}: {why}", self.name())))
            }
            _ => Ok(outcome),
        }
    }

    async fn ask(
        &self,
        client: &SimClient,
        programs: &mut Programs,
        operation: &Operation,
        shared: bool,
    ) -> Result<(), Stopped> {
        let stance = Stance::of(self, client);
        let outcome = self.try_out(client, programs, operation).await?;
        if let (Operation::Fetch { path }, Outcome::Bytes(bytes)) = (operation, &outcome) {
            self.board.knows(&self.name(), &path.to_string(), bytes, shared)?;
            if let Some(file) = programs.fetched().filter(|_| shared) {
                self.has_read(client, &stance, file, bytes)?;
            }
        }
        Ok(())
    }

    async fn change_shared_names(
        &self,
        client: &SimClient,
        programs: &mut Programs,
        operation: &Operation,
    ) -> Result<(), Stopped> {
        let before = client.status().mode;
        let outcome = self.try_out(client, programs, operation).await?;
        if self.machine.has_crashed() {
            return Err(Stopped::Fault);
        }
        let Some(deed) = programs.deed() else { return Ok(()) };
        let waits = before == Mode::Connected || client.status().mode == Mode::Connected;
        let how = match outcome {
            Outcome::Failed(Fault::NoVerdict) => How::Unknown,
            Outcome::Failed(_) => return Ok(()),
            _ if waits => How::Connected,
            _ => How::Logged,
        };
        self.board.does(Done { who: self.name(), deed, how });
        Ok(())
    }

    /// What was read of a file that was opened in this stance.
    fn has_read(
        &self,
        client: &SimClient,
        stance: &Stance,
        file: FileId,
        bytes: &[u8],
    ) -> Result<(), Stopped> {
        let who = self.name();
        let (validated, strict) = (stance.validated(client), stance.is_strict(client, file));
        let reader = Reader { who: &who, file, validated, strict, closed: &stance.closed };
        if self.board.reads(&reader, bytes)? {
            let is_partial = stance.mode == Mode::Partial;
            self.room.tally.count(|tally| {
                tally.opens += 1;
                tally.opens_partial += u64::from(is_partial);
            });
        }
        Ok(())
    }
}

/// A program reads a file, and stores something else in its place or behind it.
struct Edit {
    path: Path,
    version: u64,
    length: usize,
    append: bool,
    sync: bool,
}

impl Edit {
    fn draw(actor: &mut Actor) -> Edit {
        Edit {
            path: actor.workload.path(),
            version: actor.workload.version(),
            length: actor.workload.length(),
            append: actor.chance.below(3) == 0,
            sync: actor.chance.below(6) == 0,
        }
    }

    async fn make(
        self,
        actor: &Actor,
        client: &SimClient,
        programs: &mut Programs,
    ) -> Result<(), Stopped> {
        let stance = Stance::of(actor, client);
        self.open(actor, client, programs).await?;
        let file = programs.file(SLOT).ok_or("an open file is in its slot".to_owned())?;
        let edited = self.edit(actor, client, programs, file, &stance).await;
        let before = client.status();
        let close = Operation::Close { slot: SLOT };
        let outcome = actor.try_out(client, programs, &close).await?;
        let (Some(edited), Outcome::Done) = (edited?, outcome) else { return Ok(()) };
        if actor.machine.has_crashed() {
            return Err(Stopped::Fault);
        }
        let modes = [before.mode, client.status().mode];
        let closed = match modes == [Mode::Connected; 2] && !edited.in_doubt {
            true => Closed::Connected,
            false => Closed::Logged,
        };
        let own =
            |stamp: &Stamp| before.replica == Some(stamp.replica.0) && Some(*stamp) != edited.seen;
        let stamp = programs.stored().filter(own).or(edited.synced.filter(own));
        actor.board.acknowledge(edited.ticket, closed, stamp);
        Ok(())
    }

    async fn open(
        &self,
        actor: &Actor,
        client: &SimClient,
        programs: &mut Programs,
    ) -> Result<(), Stopped> {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let open = Operation::Open { path: self.path.clone(), slot: SLOT, flags };
        match actor.try_out(client, programs, &open).await? {
            Outcome::Done => Ok(()),
            Outcome::Failed(Fault::NoEntry) => {
                let create = Operation::Create { path: self.path.clone(), mode: 0o644, slot: SLOT };
                match actor.try_out(client, programs, &create).await? {
                    Outcome::Shown(_) => Ok(()),
                    _ => Err(Stopped::Fault),
                }
            }
            _ => Err(Stopped::Fault),
        }
    }

    /// None: it was given up, and nothing was promised.
    async fn edit(
        &self,
        actor: &Actor,
        client: &SimClient,
        programs: &mut Programs,
        file: FileId,
        stance: &Stance,
    ) -> Result<Option<Edited>, Stopped> {
        let seen = programs.seen(SLOT);
        let mut base = Vec::new();
        loop {
            let offset = base.len() as u64;
            let read = Operation::Read { slot: SLOT, offset, length: READ_BYTES };
            let Outcome::Bytes(bytes) = actor.try_out(client, programs, &read).await? else {
                return Ok(None);
            };
            base.extend_from_slice(&bytes);
            if bytes.len() < READ_BYTES {
                break;
            }
        }
        let what = self.path.to_string();
        actor.board.knows(&actor.name(), &what, &base, true)?;
        actor.has_read(client, stance, file, &base)?;
        actor.board.has_stamp(&base, seen);
        let added = stretch(self.version, self.length);
        let offset = if self.append { base.len() as u64 } else { 0 };
        let saved = if self.append { [base.clone(), added].concat() } else { added };
        actor.room.trace.note(
            &actor.machine.name,
            format_args!("saves {} over {} in {file}", describe(&saved), describe(&base)),
        );
        let ticket = actor.board.saves(&actor.name(), (&self.path, file), &base, &saved);
        if !self.append {
            let truncate = Operation::Truncate { slot: SLOT, size: 0 };
            if actor.try_out(client, programs, &truncate).await? != Outcome::Done {
                return Ok(None);
            }
        }
        let (length, version) = (self.length, self.version);
        let write = Operation::Write { slot: SLOT, offset, length, version };
        if actor.try_out(client, programs, &write).await? != Outcome::Done {
            return Ok(None);
        }
        let mut edited = Edited { ticket, seen, synced: None, in_doubt: false };
        if self.sync {
            let sync = Operation::Sync { slot: SLOT };
            edited.in_doubt = actor.try_out(client, programs, &sync).await? != Outcome::Done;
            edited.synced = programs.stored();
        }
        Ok(Some(edited))
    }
}

/// What was written, and is to be closed.
struct Edited {
    ticket: Ticket,
    /// The contents that it was written over.
    seen: Option<Stamp>,
    synced: Option<Stamp>,
    /// It was synced, and the origin has not said that it has taken it.
    in_doubt: bool,
}
