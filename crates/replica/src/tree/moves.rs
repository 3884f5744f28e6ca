//! Files that came to a name or left one: where each has gone.
//! Holds: a file that is still in the tree stays the same file of the volume; one that is not is
//! removed, unless another came in its place.

use super::barred::Way;
use super::commit::{Agree, At, Step};
use super::dirt::Since;
use super::intake::{has_xattrs_of, own_xattrs};
use super::keeper::Keeper;
use super::outlet::LINKS_MAX;
use super::rows::{self, Known};
use super::scan::{Look, STEPS_MAX};
use crate::error::{ReplicaError, Result};
use model::{Change, FileId, Kind, View};
use std::collections::{BTreeMap, BTreeSet};
use store::tree::{Directory, Stat};
use volume::whole::Whole;

/// Directories in directories that are followed in one removal.
const DEPTH_MAX: usize = 4096;
/// Files that wait for each other; beyond, they change places.
const WAITING_MAX: usize = 64;
/// Names that are read from the tables at once.
const NAMES_MAX: usize = 1000;

/// Names at which a file was seen.
type Seen = Vec<(At, Since)>;

/// How a file looks at one of its new names.
struct Sighting {
    stat: Stat,
    /// Its extended attributes are those that are known.
    plain: bool,
}

/// Files that were seen at new names.
#[derive(Default)]
struct Arrivals {
    left: BTreeMap<FileId, Seen>,
    /// They wait for others, which stand in their way.
    begun: BTreeSet<FileId>,
    /// Names more that are not committed yet.
    links: Vec<Step>,
}

impl Arrivals {
    fn has(&self, file: FileId) -> bool {
        self.left.contains_key(&file) || self.begun.contains(&file)
    }
}

impl Keeper {
    /// Files that are known are taken to the names at which they were seen.
    pub(super) fn settle_arrivals(&mut self, looks: &[Look]) -> Result<()> {
        let mut arrivals = Arrivals::default();
        for look in looks {
            let Some(stat) = &look.stat else { continue };
            let read = self.inner.tables.read()?;
            if let Some((file, _)) = rows::numbered(&*read, self.volume.id, stat)? {
                arrivals.left.entry(file).or_default().push((look.at.clone(), look.since));
            }
        }
        while let Some((file, seen)) = arrivals.left.pop_first() {
            self.settle_one(file, seen, &mut arrivals)?;
            if arrivals.links.len() >= STEPS_MAX {
                self.flush(&mut arrivals.links)?;
            }
        }
        self.flush(&mut arrivals.links)
    }

    /// A file that is in the tree under new names.
    fn settle_one(&mut self, file: FileId, seen: Seen, arrivals: &mut Arrivals) -> Result<()> {
        arrivals.begun.insert(file);
        let settled = self.settle_begun(file, seen, arrivals);
        arrivals.begun.remove(&file);
        settled
    }

    fn settle_begun(&mut self, file: FileId, seen: Seen, arrivals: &mut Arrivals) -> Result<()> {
        for (to, _) in &seen {
            self.settle_way(to.0, arrivals)?;
            let read = self.inner.tables.read()?;
            let bearer = rows::named(&*read, self.volume.id, to.0, &to.1)?;
            drop(read);
            self.settle_first(bearer.filter(|bearer| *bearer != file), arrivals)?;
            self.settle_what_left(to, file, arrivals)?;
        }
        let read = self.inner.tables.read()?;
        let Some(known) = rows::known(&*read, self.volume.id, file)? else { return Ok(()) };
        drop(read);
        let mut there = Vec::new();
        for (to, since) in seen {
            let Some(opened) = self.opened_or_later(&to, since)? else { continue };
            // It may have gone on since it was seen.
            let stat = opened.stat(to.1.as_bytes()).map_err(ReplicaError::from);
            let Some(stat) = self.unless_barred(to.0, stat)? else { continue };
            if let Some(stat) = stat.filter(|stat| known.is(stat)) {
                let own = own_xattrs(&opened, to.1.as_bytes(), &stat)?;
                let plain =
                    !self.has_xattrs || own.is_none_or(|own| has_xattrs_of(&known, own.as_ref()));
                there.push((to, since, Sighting { stat, plain }));
            }
        }
        let mut left = Vec::new();
        for at in &known.names {
            if there.iter().any(|(there, ..)| there == at) {
                continue;
            }
            self.settle_way(at.0, arrivals)?;
            match self.way(at.0)? {
                Way::Open(opened) => {
                    let stat = opened.stat(at.1.as_bytes()).map_err(ReplicaError::from);
                    let Some(stat) = self.unless_barred(at.0, stat)? else { continue };
                    if !stat.is_some_and(|stat| known.is(&stat)) {
                        left.push(at.clone());
                    }
                }
                // It may still be there, unless it can be in one place only.
                Way::Barred if known.kind != Kind::Directory => {}
                // Of several names one may be where nobody can look now.
                Way::Astray if known.names.len() > 1 && self.note_way(at.0)? => {
                    for (to, since, _) in there {
                        self.dirt.wait(to.0, to.1, since, since.due);
                    }
                    return Ok(());
                }
                Way::Astray | Way::Barred => left.push(at.clone()),
            }
        }
        for (to, _, sighting) in there {
            if known.names.contains(&to) {
                continue;
            }
            match left.pop() {
                Some(from) => {
                    self.flush(&mut arrivals.links)?;
                    self.moved(file, &known, from, (to, sighting), arrivals)?;
                }
                None if known.kind == Kind::Directory => {}
                None => self.linked(file, &known, (to, sighting), arrivals)?,
            }
        }
        Ok(())
    }

    /// A directory that is to go leaves behind only what is nowhere else.
    fn settle_what_left(&mut self, at: &At, file: FileId, arrivals: &mut Arrivals) -> Result<()> {
        let read = self.inner.tables.read()?;
        let bearer = rows::named(&*read, self.volume.id, at.0, &at.1)?;
        let Some(bearer) = bearer.filter(|bearer| *bearer != file && !arrivals.has(*bearer)) else {
            return Ok(());
        };
        let known = rows::known(&*read, self.volume.id, bearer)?;
        drop(read);
        if known.is_none_or(|known| known.kind != Kind::Directory) {
            return Ok(());
        }
        while let Some(first) = arrivals.left.keys().next().copied() {
            if arrivals.begun.len() >= WAITING_MAX {
                break;
            }
            self.settle_first(Some(first), arrivals)?;
        }
        Ok(())
    }

    /// The directories on the way to one are taken to where they were seen.
    fn settle_way(&mut self, directory: FileId, arrivals: &mut Arrivals) -> Result<()> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == FileId::ROOT || arrivals.begun.contains(&at) {
                break;
            }
            self.settle_first(Some(at), arrivals)?;
            let read = self.inner.tables.read()?;
            let known = rows::known(&*read, self.volume.id, at)?;
            let Some((above, _)) = known.and_then(|known| known.names.into_iter().next()) else {
                break;
            };
            at = above;
        }
        Ok(())
    }

    /// A file on which another waits.
    fn settle_first(&mut self, file: Option<FileId>, arrivals: &mut Arrivals) -> Result<()> {
        let Some(file) = file.filter(|_| arrivals.begun.len() < WAITING_MAX) else { return Ok(()) };
        let Some(seen) = arrivals.left.remove(&file) else { return Ok(()) };
        self.settle_one(file, seen, arrivals)?;
        self.flush(&mut arrivals.links)
    }

    /// The directory of a name, which is looked at again when that is found.
    fn opened_or_later(&mut self, at: &At, since: Since) -> Result<Option<Directory>> {
        match self.way(at.0)? {
            Way::Open(opened) => return Ok(Some(opened)),
            Way::Astray if self.note_way(at.0)? => {
                self.dirt.wait(at.0, at.1.clone(), since, since.due);
            }
            Way::Astray | Way::Barred => {}
        }
        Ok(None)
    }

    fn moved(
        &mut self,
        file: FileId,
        known: &Known,
        from: At,
        (to, Sighting { stat, plain }): (At, Sighting),
        arrivals: &mut Arrivals,
    ) -> Result<()> {
        let read = self.inner.tables.read()?;
        let view = Whole::now(&*read, self.volume.id);
        let seen = view.position()?;
        let there = view.entry(to.0, &to.1)?;
        let is_told = there == Some(file) && view.entry(from.0, &from.1)? != Some(file);
        let bearer = self.bearer(&*read, &to)?;
        let bearer_stays = match &bearer {
            Some((bearer, _)) => self.recovers && is_told && view.node(*bearer)?.is_some(),
            None => false,
        };
        drop(read);
        if self.recovers && !is_told {
            return Ok(());
        }
        let uid = known.uid;
        let step = |over: Option<FileId>, exchange: bool, agree: Agree| {
            let change = Change::Rename {
                from: from.0,
                from_name: from.1.clone(),
                to: to.0,
                to_name: to.1.clone(),
                file,
                over,
                exchange,
                whiteout: None,
                expects: None,
            };
            // The volume has it so: a device did it, and a crash came before that was written down.
            if is_told { Step::agree(agree) } else { Step::new(change, uid, agree) }
        };
        self.note_both(&from, &to);
        if known.kind == Kind::Directory {
            // What was told of it while it was not where it had been.
            self.dirt.lists.insert(file);
            self.doubts();
        }
        let goes_on = |bearer| bearer != file && (bearer_stays || arrivals.has(bearer));
        if let Some(with) = bearer.as_ref().map(|(bearer, _)| *bearer).filter(|b| goes_on(*b)) {
            // It is elsewhere in the tree, or may be: from the old place it is moved on.
            let (one, other) = (from.clone(), to.clone());
            let agree = Agree::Exchanged { one, file, other, with };
            return self.commit(vec![step(Some(with), true, agree)], seen);
        }
        let mut steps = Vec::new();
        let mut over = None;
        if let Some((bearer, bearer_known)) = bearer {
            let both = known.kind == Kind::Directory || bearer_known.kind == Kind::Directory;
            let stale = there != Some(bearer) || self.is_unseen(bearer, &bearer_known)?;
            if both || stale {
                let mut gone = Vec::new();
                self.unlink(to.clone(), bearer, &mut gone)?;
                steps.append(&mut gone);
            } else {
                over = Some(bearer);
            }
        }
        let (from, to) = (from.clone(), to.clone());
        let agree = Agree::Moved { from, to, file, stat: Box::new(stat), plain };
        steps.push(step(over, false, agree));
        self.commit(steps, seen)
    }

    /// The file that is known under a name.
    fn bearer(&self, read: &dyn store::Read, at: &At) -> Result<Option<(FileId, Known)>> {
        let id = self.volume.id;
        let Some(file) = rows::named(read, id, at.0, &at.1)? else { return Ok(None) };
        Ok(rows::known(read, id, file)?.map(|known| (file, known)))
    }

    /// A move changes times: the file is looked at anew.
    fn note_both(&mut self, from: &At, to: &At) {
        let now = self.inner.world.clock.moment();
        self.dirt.note(from.0, from.1.clone(), true, now);
        self.dirt.note(to.0, to.1.clone(), true, now);
    }

    fn linked(
        &mut self,
        file: FileId,
        known: &Known,
        (to, Sighting { stat, plain }): (At, Sighting),
        arrivals: &mut Arrivals,
    ) -> Result<()> {
        let read = self.inner.tables.read()?;
        let bearer = rows::named(&*read, self.volume.id, to.0, &to.1)?;
        let there = Whole::now(&*read, self.volume.id).entry(to.0, &to.1)?;
        drop(read);
        if self.recovers && there != Some(file) {
            return Ok(());
        }
        if let Some(bearer) = bearer.filter(|bearer| *bearer != file) {
            self.unlink(to.clone(), bearer, &mut arrivals.links)?;
        }
        let change = Change::Link { parent: to.0, name: to.1.clone(), file };
        let now = known.moved(&stat, plain);
        if now.ctime.is_none() {
            self.note_file(file)?;
        }
        let agree = Agree::Is { at: to, file, known: Box::new(now) };
        arrivals.links.push(match there == Some(file) {
            true => Step::agree(agree),
            false => Step::new(change, known.uid, agree),
        });
        Ok(())
    }

    /// Names that no known file bears any more. What came in the place of another is first: it may
    /// be a directory into which something was moved that is missing elsewhere.
    pub(super) fn settle_rest(&mut self, looks: Vec<Look>) -> Result<()> {
        if looks.is_empty() {
            return Ok(());
        }
        let seen = self.position()?;
        let mut missing = Vec::new();
        let lists = std::mem::take(&mut self.dirt.lists);
        for look in looks {
            let read = self.inner.tables.read()?;
            // What bears the name may have changed above.
            let known = self.bearer(&*read, &look.at)?;
            drop(read);
            let Some(opened) = self.opened_or_later(&look.at, look.since)? else { continue };
            let stat = opened.stat(look.at.1.as_bytes()).map_err(ReplicaError::from);
            let Some(stat) = self.unless_barred(look.at.0, stat)? else { continue };
            let look = Look { known, stat, ..look };
            let mut steps = Vec::new();
            match (&look.known, &look.stat) {
                (Some((_, known)), Some(stat)) if known.is(stat) => {}
                (Some(_), Some(_)) => self.replaced(look, &mut steps)?,
                (Some(_), None) => missing.push(look),
                (None, Some(_)) => self.fresh_if_unknown(&opened, &look, &mut steps)?,
                (None, None) => {}
            }
            self.flush(&mut steps)?;
        }
        // A directory that was made just now.
        let is_new = !self.dirt.lists.is_empty();
        self.dirt.lists.extend(lists);
        if self.recovers {
            return Ok(());
        }
        if is_new {
            for Look { at, since, .. } in missing {
                self.dirt.wait(at.0, at.1, since, since.due);
            }
            return Ok(());
        }
        let mut steps = Vec::new();
        for Look { at, known, .. } in missing {
            if let Some((file, _)) = known {
                self.unlink(at, file, &mut steps)?;
            }
        }
        self.commit(steps, seen)
    }

    fn fresh_if_unknown(
        &mut self,
        opened: &Directory,
        look: &Look,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let Some(stat) = &look.stat else { return Ok(()) };
        let read = self.inner.tables.read()?;
        let known = rows::numbered(&*read, self.volume.id, stat)?.is_some();
        drop(read);
        if known {
            // It came there while this went on.
            let now = self.inner.world.clock.moment();
            self.dirt.note(look.at.0, look.at.1.clone(), look.since.whole, now);
            return Ok(());
        }
        self.fresh(opened, look, steps)
    }

    /// Another file came in the place of one that is gone: programs save files so. For the volume
    /// it is the same file with new contents.
    fn replaced(&mut self, look: Look, steps: &mut Vec<Step>) -> Result<()> {
        let (Some((file, known)), Some(stat)) = (look.known.clone(), look.stat) else {
            return Ok(());
        };
        let Way::Open(opened) = self.way(look.at.0)? else { return Ok(()) };
        let read = self.inner.tables.read()?;
        let elsewhere = rows::numbered(&*read, self.volume.id, &stat)?.is_some();
        let view = Whole::now(&*read, self.volume.id);
        let there = view.entry(look.at.0, &look.at.1)?;
        let is_gone = view.node(file)?.is_none();
        drop(read);
        let still = there == Some(file) || is_gone;
        // By a device, and it may be in what came in its place.
        let has_moved = there.is_some() && !still;
        let is_save = known.kind == Kind::File
            && rows::kind(stat.sort) == Kind::File
            && known.names.len() == 1
            && still;
        if self.recovers && !has_moved {
            return Ok(());
        }
        if elsewhere {
            let now = self.inner.world.clock.moment();
            self.dirt.note(look.at.0, look.at.1.clone(), look.since.whole, now);
            return Ok(());
        }
        if is_save {
            let Some(held) = self.hold(&opened, &look.at, stat, look.since)? else { return Ok(()) };
            let xattrs = self.xattrs_now(&opened, &look.at.1, &known, &held.stat)?;
            return self.differs(&look, file, &known, &held, xattrs, steps);
        }
        if !has_moved || (known.kind == Kind::Directory && !self.recovers) {
            self.unlink(look.at.clone(), file, steps)?;
        }
        let look = Look { known: None, ..look };
        self.fresh(&opened, &look, steps)
    }

    /// Whether the volume has contents that the tree never had.
    fn is_unseen(&self, file: FileId, known: &Known) -> Result<bool> {
        let read = self.inner.tables.read()?;
        let node = Whole::now(&*read, self.volume.id).node(file)?;
        Ok(node.is_some_and(|node| {
            node.kind == Kind::File && node.contents_stamp != known.contents_stamp
        }))
    }

    /// The steps that remove a name, and of a directory first all that was in it.
    fn unlink(&mut self, at: At, file: FileId, steps: &mut Vec<Step>) -> Result<()> {
        let mut going = vec![(at, file)];
        let (mut next, mut directories) = (0, BTreeSet::new());
        while let Some((_, file)) = going.get(next) {
            if directories.insert(*file) {
                self.names_of(*file, &mut going)?;
            }
            next += 1;
        }
        // What is in a directory stands behind it.
        for (at, file) in going.into_iter().rev() {
            self.unlink_one(at, file, steps)?;
        }
        Ok(())
    }

    /// The names that a directory has in the tree; of another file none.
    fn names_of(&self, directory: FileId, names: &mut Vec<(At, FileId)>) -> Result<()> {
        let mut after = None;
        loop {
            let read = self.inner.tables.read()?;
            let id = self.volume.id;
            let page = rows::names(&*read, id, directory, after.as_ref(), NAMES_MAX)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            names.extend(page.into_iter().map(|(name, file)| ((directory, name), file)));
        }
    }

    fn unlink_one(&mut self, at: At, file: FileId, steps: &mut Vec<Step>) -> Result<()> {
        let read = self.inner.tables.read()?;
        let known = rows::known(&*read, self.volume.id, file)?;
        drop(read);
        let Some(known) = known else { return Ok(()) };
        if self.is_gone_in_volume(&at, file, &known)? {
            // Whatever bears the name there is still to come.
            self.behind.entry(at.clone());
            steps.push(Step::agree(Agree::Gone { at, file }));
            return Ok(());
        }
        let unseen = self.is_unseen(file, &known)?;
        let change = Change::Unlink { parent: at.0, name: at.1.clone(), file, expects: None };
        let agree = Agree::Gone { at, file };
        steps.push(Step { unseen, ..Step::new(change, known.uid, agree) });
        Ok(())
    }

    /// Whether a device took the same name from the file: with it, or while it has others. One that
    /// it has moved is another matter.
    fn is_gone_in_volume(&self, at: &At, file: FileId, known: &Known) -> Result<bool> {
        let read = self.inner.tables.read()?;
        let view = Whole::now(&*read, self.volume.id);
        if view.entry(at.0, &at.1)? == Some(file) {
            return Ok(false);
        }
        if view.node(file)?.is_none() || self.in_transit.contains(&file) {
            return Ok(true);
        }
        let names = view.names(file, LINKS_MAX)?;
        Ok(known.names.len() > 1 && names.iter().all(|name| known.names.contains(name)))
    }
}
