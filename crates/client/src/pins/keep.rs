//! Keeping what is pinned: walks, has fetched what is lacking, and follows what changes.

use super::bring::Bringing;
use super::{
    Mark, PINNED, PINS, PINS_MAX, Pin, Pins, TRIED_EVERY, WALKED_EVERY, both, decode, file_of,
    mark_of, save_mark, save_pin, seconds,
};
use crate::client::{Client, error_of};
use crate::following::{Followed, Place};
use crate::mode;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::renumber::Anew;
use crate::types::{Error, Need, Stop};
use model::{FileId, Kind, Node, Update, View};
use protocol::{Class, Upstream};
use std::time::Duration;
use store::{Containers, Durability, Read, StoreError, Write};
use volume::partial::{Changed, Missing};

/// How often it is looked whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Rows that are written, or looked at, in one transaction.
const PAGE_ROWS: usize = 1_024;
/// Nodes that are asked for at once.
const NODES_AT_ONCE: usize = 64;
/// Needs of one look; more than any has.
const TRIES_MAX: usize = 64;

/// A walk that goes on. Of a tree it has the directories that are to come, and of one directory
/// what is in it.
struct Walk {
    pin: FileId,
    mark: Mark,
    directories: Vec<FileId>,
    /// Something could not be fetched.
    lacks: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn pins(&self) -> Ranked<'_, Pins> {
        ranks::lock(Rank::Pins, &self.inner.keeping.pins)
    }

    /// Pins a file, or a directory with all that is below it: it is fetched in the background, and
    /// stays here. Of a file that is pinned the pin is set anew. That it is so is on the disk when
    /// this returns. `place`: the name that the user calls it by; None: any that it has.
    pub fn pin(
        &self,
        file: FileId,
        place: Option<Place>,
        priority: u32,
        recursive: bool,
    ) -> Result<(), Error> {
        self.follow_names()?;
        let since = seconds(self.inner.world.clock.time());
        let pin = {
            let pins = self.pins();
            let before = pins.pins.get(&file).cloned();
            if before.is_none() && pins.pins.len() >= PINS_MAX {
                return Err(Error::Failed(format!("there are {PINS_MAX} pins already")));
            }
            let new = Pin { priority, recursive, since, begun: 0, ended: 0, place: None };
            let before = before.unwrap_or(new);
            Pin { priority, recursive, place: place.or(before.place), ..before }
        };
        let mut write = self.inner.tables.write().map_err(error_of)?;
        save_pin(&mut *write, file, &pin).map_err(error_of)?;
        write.commit(Durability::Now).map_err(error_of)?;
        {
            let mut pins = self.pins();
            pins.pins.insert(file, pin);
            pins.due.insert(file, None);
            pins.full = false;
        }
        self.follow_anew();
        self.inner.keeping.look_at_pins();
        Ok(())
    }

    /// Takes a pin away. False: there was none. What was fetched stays until there is need of room.
    pub fn unpin(&self, file: FileId) -> Result<bool, Error> {
        self.follow_names()?;
        let mut write = self.inner.tables.write().map_err(error_of)?;
        write.delete(PINS, &file.0.to_be_bytes()).map_err(error_of)?;
        write.commit(Durability::Now).map_err(error_of)?;
        let was_there = {
            let mut pins = self.pins();
            let was_there = pins.pins.remove(&file).is_some();
            // What another pin holds besides bears the mark of one of the two.
            pins.walk_all();
            pins.full = false;
            was_there
        };
        self.follow_anew();
        self.inner.keeping.look_at_pins();
        Ok(was_there)
    }

    /// Another file has the name that a pin goes by. None: nothing will have it again.
    pub(crate) fn move_pin(
        &self,
        write: &mut dyn Write,
        row: &Followed,
        to: Option<FileId>,
    ) -> Result<(), StoreError> {
        let mut pins = self.pins();
        let Some(pin) = pins.pins.get(&row.file).filter(|pin| pin.place == row.place).cloned()
        else {
            return Ok(());
        };
        write.delete(PINS, &row.file.0.to_be_bytes())?;
        pins.pins.remove(&row.file);
        pins.due.remove(&row.file);
        let Some(to) = to else { return Ok(()) };
        let pin = pins.pins.get(&to).map_or_else(|| pin.clone(), |other| both(&pin, other));
        save_pin(write, to, &pin)?;
        pins.pins.insert(to, pin);
        pins.due.insert(to, None);
        pins.full = false;
        Ok(())
    }

    /// Notes the name that a pin goes by from now on.
    pub(crate) fn name_pin(
        &self,
        write: &mut dyn Write,
        row: &Followed,
        place: Place,
    ) -> Result<(), StoreError> {
        let mut pins = self.pins();
        match pins.pins.get_mut(&row.file) {
            Some(pin) if pin.place == row.place => {
                pin.place = Some(place);
                save_pin(write, row.file, pin)
            }
            _ => Ok(()),
        }
    }

    /// Files that were pinned before they had their ids from the replica above.
    pub(crate) fn renumber_pins(&self, anew: &Anew) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let mut pins = self.pins();
        for (old, mut pin) in std::mem::take(&mut pins.pins) {
            let new = anew.id(old).unwrap_or(old);
            let named_anew = pin.place.as_mut().is_some_and(|place| place.renumber(anew));
            if new != old || named_anew {
                write.delete(PINS, &old.0.to_be_bytes()).map_err(error_of)?;
                save_pin(&mut *write, new, &pin).map_err(error_of)?;
            }
            pins.pins.insert(new, pin);
        }
        pins.walk_all();
        drop(pins);
        write.commit(Durability::Now).map_err(error_of)
    }

    /// Whether a file has to stay in the cache.
    pub(crate) fn is_pinned(&self, read: &dyn Read, file: FileId) -> Result<bool, Error> {
        if self.pins().is_empty() {
            return Ok(false);
        }
        let mark = mark_of(read, file).map_err(error_of)?;
        let pins = self.pins();
        Ok(pins.pins.contains_key(&file) || mark.is_some_and(|mark| pins.counts(mark)))
    }

    pub(crate) fn is_pinned_now(&self, file: FileId) -> Result<bool, Error> {
        self.is_pinned(&*self.inner.tables.read().map_err(error_of)?, file)
    }

    /// Others have changed these.
    pub(crate) fn pins_see(&self, changed: &[Changed]) {
        self.following_sees(changed);
        let mut pins = self.pins();
        let now = self.inner.world.clock.moment();
        for change in changed {
            match change {
                Changed::Node { file, .. } => pins.note_changed(*file, now),
                Changed::Entry(directory, _) => pins.note_changed(*directory, now),
            }
        }
    }

    /// The same of what was changed here.
    pub(crate) fn pins_see_update(&self, update: &Update) {
        self.following_sees_in(&update.touches());
        let mut pins = self.pins();
        if !pins.is_empty() {
            let now = self.inner.world.clock.moment();
            update.touches().into_iter().for_each(|file| pins.note_changed(file, now));
        }
    }

    /// What is cached may have changed unseen: all that is pinned is looked at.
    pub(crate) fn pins_begin_anew(&self) {
        self.follow_anew();
        self.pins().walk_all();
        self.inner.keeping.wanted.notify_one();
    }

    pub(crate) fn may_keep_pins(&self) -> bool {
        let connection = self.connection();
        connection.attached && connection.fetches_ahead() && mode::fetches(connection.mode)
    }

    /// Keeps what is pinned, until `shut_down`.
    pub(crate) async fn run_pins(&self) {
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.inner.keeping.wanted.notified() => {}
                () = self.inner.world.clock.sleep(LOOK_EVERY) => {}
                () = self.until_stopping() => break,
            }
            let idle = {
                let pins = self.pins();
                pins.is_empty() && pins.once.is_empty()
            };
            if idle || !self.may_keep_pins() {
                continue;
            }
            self.bring_those_once().await;
            let outcome = match self.follow_changed().await {
                Ok(()) => self.walk_next().await,
                failed => failed,
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "what is pinned could not be kept up");
                self.pins_begin_anew_later();
            }
        }
    }

    fn pins_begin_anew_later(&self) {
        let later = self.inner.world.clock.moment() + TRIED_EVERY;
        let mut pins = self.pins();
        let all: Vec<FileId> = pins.pins.keys().copied().collect();
        for pin in all {
            pins.due.entry(pin).and_modify(|at| *at = Some(at.map_or(later, |at| at.min(later))));
        }
    }

    /// Looks at what was changed and has rested.
    async fn follow_changed(&self) -> Result<(), Error> {
        let rested = self.pins().rested(self.inner.world.clock.moment());
        for file in rested {
            let mark = {
                let read = self.inner.tables.read().map_err(error_of)?;
                mark_of(&*read, file).map_err(error_of)?
            };
            let Some(mark) = mark.filter(|mark| self.pins().counts(*mark)) else { continue };
            let pin = FileId(mark.pin);
            let Some(row) = self.pins().pins.get(&pin).cloned() else { continue };
            let Some(node) = self.found_pinned(file).await? else { continue };
            if node.kind != Kind::Directory {
                self.bring_pinned(file).await?;
            } else if row.recursive {
                let mark = Mark { walk: row.begun, ..mark };
                self.go_on(Walk { pin, mark, directories: vec![file], lacks: false }, false)
                    .await?;
            }
        }
        Ok(())
    }

    async fn walk_next(&self) -> Result<(), Error> {
        let now = self.inner.world.clock.moment();
        let Some(file) = self.pins().next(now) else { return Ok(()) };
        let Some(mut pin) = self.pins().pins.get(&file).cloned() else { return Ok(()) };
        pin.begun = pin.begun.max(pin.ended).wrapping_add(1);
        let mark = Mark { pin: file.0, walk: pin.begun };
        self.note_walk(file, pin.begun, None, mark)?;
        let mut walk = Walk { pin: file, mark, directories: Vec::new(), lacks: false };
        match self.found_pinned(file).await? {
            None => {}
            Some(node) if node.kind == Kind::Directory => {
                self.get_listed(file).await?;
                if pin.recursive {
                    walk.directories.push(file);
                }
            }
            Some(_) => walk.lacks = !self.bring_pinned(file).await?,
        }
        let Some(lacks) = self.go_on(walk, true).await? else { return Ok(()) };
        let every = if lacks { TRIED_EVERY } else { WALKED_EVERY };
        let again = self.inner.world.clock.moment() + every;
        self.note_walk(file, pin.begun, Some(pin.begun), mark)?;
        self.pins().due.entry(file).and_modify(|due| *due = Some(again));
        let client = self.clone();
        self.off_the_runtime(move || Ok(client.forget_marks())).await.map_err(error_of).flatten()
    }

    /// Notes that a walk has begun, or that it has ended.
    fn note_walk(
        &self,
        file: FileId,
        begun: u32,
        ended: Option<u32>,
        mark: Mark,
    ) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let mut pins = self.pins();
        let Some(pin) = pins.pins.get_mut(&file) else { return Ok(()) };
        pin.begun = begun;
        pin.ended = ended.unwrap_or(pin.ended);
        save_pin(&mut *write, file, pin).map_err(error_of)?;
        drop(pins);
        save_mark(&mut *write, file, mark).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }

    /// Walks on to the end. None: it was broken off. Otherwise whether something lacks.
    async fn go_on(&self, mut walk: Walk, yields: bool) -> Result<Option<bool>, Error> {
        let mut bringing = Bringing::default();
        while let Some(directory) = walk.directories.pop() {
            for page in self.get_listed(directory).await?.chunks(PAGE_ROWS) {
                self.mark_all(page, walk.mark)?;
                self.learn_nodes(page).await?;
                for file in page {
                    let now = self.inner.world.clock.moment();
                    let overtaken = yields && self.pins().is_overtaken(walk.pin, now);
                    let there = self.pins().pins.contains_key(&walk.pin);
                    if overtaken || !there || self.is_stopping() || !self.may_keep_pins() {
                        return Ok(None);
                    }
                    match self.found_pinned(*file).await? {
                        Some(node) if node.kind == Kind::Directory => walk.directories.push(*file),
                        Some(node) => self.bring_in_turn(&mut bringing, *file, node).await?,
                        None => {}
                    }
                }
            }
        }
        Ok(Some(walk.lacks | self.bring_rest(bringing).await))
    }

    /// Asks for the nodes of these that are not known, several at once.
    async fn learn_nodes(&self, files: &[FileId]) -> Result<(), Error> {
        let unknown = self
            .look_at_pinned(|client| {
                client.view(|tree| {
                    let is_unknown =
                        |file: &&FileId| matches!(tree.node(**file), Err(Missing::Node(_)));
                    Ok(files.iter().filter(is_unknown).copied().collect::<Vec<_>>())
                })
            })
            .await?;
        for some in unknown.chunks(NODES_AT_ONCE) {
            self.inspect_as(Class::Prefetch, some.to_vec(), Vec::new()).await?;
        }
        Ok(())
    }

    fn mark_all(&self, files: &[FileId], mark: Mark) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for file in files {
            save_mark(&mut *write, *file, mark).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)
    }

    /// Removes the marks that do not count any more.
    fn forget_marks(&self) -> Result<(), Error> {
        let mut from = Vec::new();
        loop {
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let to = u64::MAX.to_be_bytes();
            let page = write.scan(PINNED, &from, &to, PAGE_ROWS).map_err(error_of)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            from.clone_from(last);
            from.push(0);
            for (key, value) in &page {
                let (file, mark) = (file_of(key).map_err(error_of)?, decode(value));
                let pins = self.pins();
                let counts = mark.is_ok_and(|mark| pins.counts(mark));
                if !counts && !pins.pins.contains_key(&file) {
                    write.delete(PINNED, key).map_err(error_of)?;
                }
            }
            write.commit(Durability::Later).map_err(error_of)?;
        }
    }

    /// The node of a file, fetched if it is not known. None: it is gone.
    pub(super) async fn found_pinned(&self, file: FileId) -> Result<Option<Node>, Error> {
        self.look_at_pinned(|client| client.view(|tree| tree.node(file))).await
    }

    /// What is in a directory, which is listed if that is not known.
    async fn get_listed(&self, directory: FileId) -> Result<Vec<FileId>, Error> {
        let listed = self
            .look_at_pinned(|client| {
                client.view(|tree| {
                    let mut found = Vec::new();
                    if tree.node(directory)?.is_some() {
                        tree.each_entry(directory, |_, file| {
                            found.push(file);
                            Ok(())
                        })?;
                    }
                    Ok(found)
                })
            })
            .await;
        match listed {
            // It has gone meanwhile.
            Err(Error::Objection(_)) => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn look_at_pinned<T>(&self, look: impl Fn(&Self) -> Result<T, Stop>) -> Result<T, Error> {
        for _ in 0..TRIES_MAX {
            match look(self) {
                Ok(found) => return Ok(found),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Need(need)) => self.satisfy_pinned(need).await?,
            }
        }
        Err(Error::Retry)
    }

    /// Names that nobody waits for yield to all else.
    async fn satisfy_pinned(&self, need: Need) -> Result<(), Error> {
        match need {
            Need::Directory(directory) => {
                self.get_directory(directory, None, Class::Prefetch).await
            }
            need => self.satisfy(need).await,
        }
    }
}

/// Bytes of a file, as it is now, that are not here.
pub(crate) fn lacks(node: &Node, row: Option<&Presence>) -> u64 {
    if node.kind != Kind::File {
        return 0;
    }
    let size = node.contents.size;
    match row {
        Some(row) if row.dirty.is_some() || row.ground.is_some() => 0,
        Some(row) if row.version == node.contents_stamp => {
            row.absent(0, size).iter().map(|(from, to)| to - from).sum()
        }
        // Of a file that is nothing but holes that has to be learnt.
        _ => node.contents.data().max(u64::from(size > 0)),
    }
}
