//! The contents that pending stores need: found, and sent where they are missing above.
//! From: LBFS, "Update protocol": TMPWRITE of the chunks that were not found.

mod puts;

pub(crate) use puts::under_way_most;

use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::files::has_length;
use crate::home::is_home;
use crate::parcel::{Parcel, coded_bytes};
use crate::plan::{Opened, Plan};
use crate::presence::Presence;
use crate::replay_log::Setback;
use crate::types::Error;
use chunks::delta::Codec;
use chunks::transfer::BATCH_MAX;
use model::{Change, ChunkName, FileId, Stamp, Update};
use protocol::{Delta, PAYLOAD_BYTES_MAX, Upstream};
use puts::Supply;
use std::collections::BTreeSet;
use store::container::Key;
use store::{Containers, StoreError};

/// How data chunks are sent: as deltas, each for some of them, or by themselves.
struct Coded {
    deltas: Vec<(Vec<ChunkName>, Delta)>,
    alone: Vec<ChunkName>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A plan that was lost with an earlier life is made again from the container; where that has been
    /// altered or cannot be read, by the recipe, if that is here: the replica above may lack nothing of it.
    pub(crate) fn plan_again(&self, update: &Update) -> Result<(), Error> {
        if self.core().plans.has(update.stamp.number) {
            return Ok(());
        }
        match self.plan_what_is_read(update) {
            Ok(false) | Err(Error::Unreadable(_)) => self.plan_as_logged(update),
            planned => planned.map(drop),
        }
    }

    /// Plans a store anew, if what it stored is here.
    pub(crate) fn plan_what_is_read(&self, update: &Update) -> Result<bool, Error> {
        let Change::Store { file, .. } = &update.change else { return Ok(false) };
        if let Some(plan) = self.plan_of_part(update)? {
            let is_planned = plan.is_some();
            if let Some(plan) = plan {
                self.core().plans.insert(update.stamp.number, plan);
            }
            return Ok(is_planned);
        }
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Presence::load(&*read, *file).map_err(error_of)?
        };
        let current = row.map(|row| (Key { file: file.0, generation: row.generation }, row));
        let mut unread = Ok(());
        // Where one cannot be read, another may have the same.
        let mut fits = |key, is_this| match self.plan_from(update, key, is_this) {
            Err(error @ Error::Unreadable(_)) => {
                unread = Err(error);
                Ok(false)
            }
            outcome => outcome,
        };
        if let Some((key, row)) = &current {
            let is_this = row.version == update.stamp && row.dirty.is_none();
            if fits(*key, is_this)? {
                return Ok(true);
            }
        }
        // Many may be pending, and looking at all that there is for each would take for ever.
        for key in self.inner.containers.list_of(file.0).map_err(error_of)? {
            let is_current = current.as_ref().is_some_and(|(current, _)| *current == key);
            if !is_current && fits(key, false)? {
                return Ok(true);
            }
        }
        unread.map(|()| false)
    }

    /// Plans a store from a container, if that has its contents. `is_this`: the container is said
    /// to be this version.
    fn plan_from(&self, update: &Update, key: Key, is_this: bool) -> Result<bool, Error> {
        let Change::Store { file, contents, .. } = &update.change else { return Ok(false) };
        let container = self.inner.containers.open(key, false).map_err(error_of)?;
        let Some(container) = container else { return Ok(false) };
        if is_this {
            self.cut_what_was_appended(update, key, &container, contents.size).map_err(error_of)?;
        }
        let described = self.describe_here(key, &container, None);
        let described = described.map_err(of_chunks)?;
        if described.tree.contents != *contents {
            return Ok(false);
        }
        let kin = self.guess_for(&described, *file, &container);
        let most = self.inner.settings.plan_chunks_max;
        let plan = Plan::new(*file, key.generation, &described, kin, most);
        self.core().plans.insert(update.stamp.number, plan);
        Ok(true)
    }

    /// What was appended to a container before the power went, and is not in the log, is cut off. Whoever
    /// has opened it has seen to that, and may be appending to it now, or have stored what he appended.
    fn cut_what_was_appended(
        &self,
        update: &Update,
        key: Key,
        container: &C::Container,
        size: u64,
    ) -> Result<(), StoreError> {
        let file = FileId(key.file);
        // Nobody opens it meanwhile.
        let files = self.files();
        if files.get(file, key.generation).is_some() {
            return Ok(());
        }
        let row = Presence::load(&*self.inner.tables.read()?, file)?;
        let is_it = |row: &Presence| {
            (row.generation, row.version) == (key.generation, update.stamp) && row.dirty.is_none()
        };
        match row.is_some_and(|row| is_it(&row)) {
            true => has_length(container, size).map(drop),
            false => Ok(()),
        }
    }

    /// What of a store goes along unasked: all chunks that the origin may lack, as a delta if that
    /// is good, if there is room for them; its recipe at least, if it is the first. False: the
    /// store has to wait for its turn.
    pub(crate) fn add_eager(
        &self,
        update: &Update,
        room: &mut u64,
        first: bool,
        sent: &mut BTreeSet<ChunkName>,
        eager: &mut Parcel,
    ) -> Result<bool, Error> {
        let number = update.stamp.number;
        self.plan_again(update)?;
        let Some(mut loan) = self.core().plans.lend(number) else { return Ok(true) };
        let outcome = self.add_planned(update, &mut loan.plan, (room, first), sent, eager);
        self.core().plans.give_back(loan);
        outcome
    }

    fn add_planned(
        &self,
        update: &Update,
        plan: &mut Plan,
        (room, first): (&mut u64, bool),
        sent: &mut BTreeSet<ChunkName>,
        eager: &mut Parcel,
    ) -> Result<bool, Error> {
        let secret = self.secret().0;
        let (recipe, data) = self.lacking_at_home(plan, sent)?;
        let (recipe_bytes, data_bytes) = (plan.bytes_of(&recipe), plan.bytes_of(&data));
        let Coded { deltas, alone } = match eager.has_room_for(data_bytes) {
            true => self.coded_apart(update, plan, &data, eager)?,
            false => Coded { deltas: Vec::new(), alone: data },
        };
        let coded: u64 = deltas.iter().map(|(_, delta)| delta.bytes.len() as u64).sum();
        let alone_bytes = plan.bytes_of(&alone);
        let bytes = recipe_bytes + coded + alone_bytes;
        let fits = bytes <= *room;
        if !(fits || first) {
            return Ok(false);
        }
        let mut budget = if fits { u64::MAX } else { PAYLOAD_BYTES_MAX as u64 / 2 };
        let by_themselves = recipe.iter().chain(alone.iter().filter(|_| fits));
        for name in by_themselves {
            let length = plan.length(name).unwrap_or(0);
            if length > budget {
                continue;
            }
            if let Some(found) = self.chunk_of(plan, &secret, name).map_err(error_of)? {
                budget -= length;
                sent.insert(*name);
                eager.add_chunk(update.stamp.number, *name, found);
            }
        }
        if fits && alone_bytes > 0 {
            self.note_plain(plan.file, update.stamp, true, alone_bytes);
        }
        for (names, delta) in deltas.into_iter().filter(|_| fits) {
            self.note_coded(plan.file, update.stamp, true, &delta);
            eager.add(update.stamp.number, plan.covered(&names, &delta), delta);
            sent.extend(names);
        }
        *room = room.saturating_sub(bytes);
        Ok(true)
    }

    /// Deltas for these chunks, one for each place of the file where there are some.
    fn coded_apart(
        &self,
        update: &Update,
        plan: &mut Plan,
        names: &[ChunkName],
        eager: &Parcel,
    ) -> Result<Coded, Error> {
        let mut coded = Coded { deltas: Vec::new(), alone: Vec::new() };
        let mut bytes = 0;
        for group in plan.groups(names) {
            let mut rest = group.to_vec();
            while !rest.is_empty() {
                let delta = self.coded(update, plan, &rest)?;
                let more = delta.as_ref().map_or(0, coded_bytes);
                let number = coded.deltas.len() + 1;
                let Some(delta) = delta.filter(|_| eager.has_room_for_all(number, bytes + more))
                else {
                    coded.alone.append(&mut rest);
                    break;
                };
                bytes += more;
                let covered: BTreeSet<ChunkName> =
                    plan.covered(&rest, &delta).into_iter().collect();
                let (group, left): (Vec<_>, Vec<_>) =
                    rest.iter().partition(|name| covered.contains(*name));
                if group.is_empty() {
                    coded.alone.append(&mut rest);
                    break;
                }
                coded.deltas.push((group, delta));
                rest = left;
            }
        }
        Ok(coded)
    }

    /// All chunks of a store that the origin may lack.
    pub(crate) fn lacking_of(&self, update: &Update) -> Result<Vec<ChunkName>, Error> {
        let number = update.stamp.number;
        let Some(loan) = self.core().plans.lend(number) else { return Ok(Vec::new()) };
        let lacking = self.lacking_at_home(&loan.plan, &BTreeSet::new());
        self.core().plans.give_back(loan);
        let (recipe, data) = lacking?;
        Ok(recipe.into_iter().chain(data).collect())
    }

    /// Recipe chunks and data chunks, these in their order in the file, that the origin may lack.
    fn lacking_at_home(
        &self,
        plan: &Plan,
        sent: &BTreeSet<ChunkName>,
    ) -> Result<(Vec<ChunkName>, Vec<ChunkName>), Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let lacking = |name: &ChunkName| -> Result<bool, Error> {
            let there = sent.contains(name) || plan.is_there(name);
            Ok(!there && !is_home(&*read, name).map_err(error_of)?)
        };
        let (mut recipe, mut data) = (Vec::new(), Vec::new());
        for name in plan.recipe.keys() {
            if lacking(name)? {
                recipe.push(*name);
            }
        }
        for name in plan.data.keys() {
            if lacking(name)? {
                data.push(*name);
            }
        }
        data.sort_unstable_by_key(|name| plan.data.get(name).map(|(offset, _)| *offset));
        Ok((recipe, data))
    }

    /// The delta for these chunks, if there is a good one. What is sent again, or asked for after
    /// it was to be sent unasked, has it already.
    fn coded(
        &self,
        update: &Update,
        plan: &mut Plan,
        names: &[ChunkName],
    ) -> Result<Option<Delta>, Error> {
        // Another replica may be above than when it was made.
        let assembles = self.connection().assembles;
        let useful = |delta: &Delta| {
            let (file, version) = (delta.base.file, delta.base.version);
            let understood = assembles || delta.codec != Codec::Assembled.number();
            understood && !self.kin().is_useless(file, version) && !plan.is_left_alone(names)
        };
        match &plan.coded {
            Some((coded, None)) if coded == names => return Ok(None),
            Some((coded, Some(delta)))
                if (coded == names || plan.is_whole(delta)) && useful(delta) =>
            {
                return Ok(Some(delta.clone()));
            }
            // It may have taken a while: whoever waits for the verdict sees that it went on.
            None => self.note_progress(),
            Some(_) => {}
        }
        let delta = match self.delta_for(update, plan, names) {
            // If it is the base that cannot be read, it goes without.
            Err(Error::Unreadable(_)) => None,
            delta => delta?,
        };
        plan.coded = Some((names.to_vec(), delta.clone()));
        Ok(delta)
    }

    /// What is to be sent next of the missing chunks, and how many of them that settles: one at
    /// least.
    fn next_parcel(
        &self,
        supply: &mut Supply,
        updates: &[Update],
        missing: &[ChunkName],
    ) -> Result<(Parcel, usize), Error> {
        let mut parcel = Parcel::default();
        let (mut at, mut bytes, mut opened) = (0, 0, None);
        while at < missing.len() && bytes < supply.most {
            let run = self.run_of(supply, updates, &missing[at..], &parcel);
            if let Some((update, names)) = run
                && let Some(delta) = self.delta_of_run(supply, update, names)?
            {
                let is_long = bytes + delta.bytes.len() as u64 > supply.most;
                if !parcel.is_empty() && (is_long || !parcel.has_room_for(coded_bytes(&delta))) {
                    break;
                }
                if let Change::Store { file, .. } = &update.change {
                    self.note_coded(*file, update.stamp, true, &delta);
                }
                bytes += delta.bytes.len() as u64;
                let number = update.stamp.number;
                let covered = match self.core().plans.get(number) {
                    Some(plan) => plan.covered(names, &delta),
                    None => Vec::new(),
                };
                at += run_in(&covered, &missing[at..]);
                parcel.add(number, covered, delta);
                continue;
            }
            let Some((stored, chunk)) =
                self.find_pending_chunk(updates, &missing[at], &mut opened)?
            else {
                at += 1;
                continue;
            };
            if !parcel.is_empty() && bytes + chunk.len() as u64 > supply.most {
                break;
            }
            let (file, version) = stored;
            self.note_plain(file, version, true, chunk.len() as u64);
            bytes += chunk.len() as u64;
            parcel.add_chunk(version.number, missing[at], chunk);
            at += 1;
        }
        Ok((parcel, at))
    }

    /// The store whose data the first of these chunks is, and how many of them, one after another,
    /// are data of it too and fit into one delta. None, too: no delta is worth while for it.
    fn run_of<'a>(
        &self,
        supply: &Supply,
        updates: &'a [Update],
        missing: &'a [ChunkName],
        parcel: &Parcel,
    ) -> Option<(&'a Update, &'a [ChunkName])> {
        let core = self.core();
        let first = missing.first()?;
        let (update, plan) = updates.iter().find_map(|update| {
            let plan = core.plans.get(update.stamp.number)?;
            plan.data.contains_key(first).then_some((update, plan))
        })?;
        if supply.hopeless.contains(&update.stamp.number) {
            return None;
        }
        let mut bytes = 0;
        let fits = |name: &&ChunkName| {
            let Some((_, length)) = plan.data.get(name) else { return false };
            bytes += u64::from(*length);
            let near = plan.is_near(first, name);
            near && bytes <= PAYLOAD_BYTES_MAX as u64 && parcel.has_room_for(bytes)
        };
        let count = missing.iter().take(BATCH_MAX).take_while(fits).count();
        (count > 0).then(|| (update, &missing[..count]))
    }

    /// These chunks, or as many of the first of them as do not take the link for too long, as a
    /// delta.
    fn delta_of_run(
        &self,
        supply: &mut Supply,
        update: &Update,
        mut names: &[ChunkName],
    ) -> Result<Option<Delta>, Error> {
        let number = update.stamp.number;
        let Some(mut loan) = self.core().plans.lend(number) else { return Ok(None) };
        let mut outcome = self.coded(update, &mut loan.plan, names);
        while let Ok(Some(delta)) = &outcome
            && delta.bytes.len() as u64 > 2 * supply.most
            && delta.lengths.len() <= names.len()
            && names.len() > 1
        {
            names = &names[..names.len() / 2];
            outcome = self.coded(update, &mut loan.plan, names);
        }
        self.core().plans.give_back(loan);
        if matches!(outcome, Ok(None)) {
            supply.hopeless.insert(number);
        }
        outcome
    }

    /// Nothing that is missing was found. The first store lacks something, or the replica above
    /// would have taken it. It may have been overtaken meanwhile, which is well; or its plan is
    /// wrong, and is made again; or its contents are nowhere here any more as they were written.
    fn look_again(&self, updates: &[Update]) -> Result<(), Setback> {
        let is_store = |update: &&Update| matches!(update.change, Change::Store { .. });
        let Some(update) = updates.iter().find(is_store) else { return Ok(()) };
        // What cannot be read may be readable in a while.
        if self.plan_what_is_read(update)? {
            return Ok(());
        }
        self.core().plans.remove(update.stamp.number);
        Ok(self.give_up_store(update, None)?)
    }

    /// A parcel was received, except what was coded against useless bases.
    pub(crate) fn note_arrived(&self, parcel: &Parcel, useless: Option<&Vec<(FileId, Stamp)>>) {
        let useful = |delta: &Delta| {
            let base = (delta.base.file, delta.base.version);
            !useless.is_some_and(|useless| useless.contains(&base))
        };
        let coded = parcel.deltas.iter().zip(&parcel.coded_of).filter(|(delta, _)| useful(delta));
        let coded = coded.map(|(_, (number, names))| (*number, names.as_slice()));
        let plain =
            parcel.chunks_of.iter().map(|(number, name)| (*number, std::slice::from_ref(name)));
        let mut more = false;
        {
            let mut core = self.core();
            for (number, names) in coded.chain(plain) {
                for name in names {
                    more |= core.plans.note_arrived(number, name);
                }
            }
        }
        if more {
            self.note_progress();
        }
    }

    /// A chunk, and of which version of which file it is.
    fn find_pending_chunk(
        &self,
        updates: &[Update],
        name: &ChunkName,
        opened: &mut Opened<C::Container>,
    ) -> Result<Option<PendingChunk>, Error> {
        let secret = self.secret().0;
        for update in updates {
            let number = update.stamp.number;
            let Some(loan) = self.core().plans.lend(number) else { continue };
            let found = self.chunk_in(&loan.plan, &secret, name, opened);
            let file = loan.plan.file;
            self.core().plans.give_back(loan);
            if let Some(bytes) = found.map_err(error_of)? {
                return Ok(Some(((file, update.stamp), bytes)));
            }
        }
        // What it lacks of a version that a store rests on may be here by another name.
        let store = updates.iter().find_map(|update| match update.change {
            Change::Store { file, .. } => Some((file, update.stamp)),
            _ => None,
        });
        let Some(stored) = store else { return Ok(None) };
        Ok(self.chunk_here(&secret, name)?.map(|bytes| (stored, bytes)))
    }
}

/// How many of the chunks that are missing, from the first on, a delta stands for: one at least.
fn run_in(covered: &[ChunkName], missing: &[ChunkName]) -> usize {
    let covered: BTreeSet<&ChunkName> = covered.iter().collect();
    missing.iter().take_while(|name| covered.contains(*name)).count().max(1)
}

/// A version of a file, and the bytes of one of its chunks.
type PendingChunk = ((FileId, Stamp), Vec<u8>);
