//! Puts files where the volume has them.
//! Holds: a name leads to the old file or to the new one, and never to half of one; nothing is
//! replaced or removed that is not as it was agreed on, and what changes in that very moment is
//! kept beside; a file comes to a new name with the contents that it has then.

use super::commit::At;
use super::dirt::Since;
use super::keeper::Keeper;
use super::leave::REMOVALS_MAX;
use super::rows::{self, Known, STAGE};
use super::scan::is_stage;
use super::stage::{Ready, stage_name};
use crate::error::Result;
use model::{FileId, Kind, Name, Node, View};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::Rc;
use store::Write;
use store::tree::{Directory, How, Sort, Tree, TreeFile};
use volume::whole::Whole;

/// Names that have to be put out first are followed so far, for each takes of the stack; what is
/// deeper is put out by itself, later.
pub(super) const DEPTH_MAX: usize = 64;

/// What is at hand while names are put out.
pub(super) struct Hand {
    pub ready: BTreeMap<FileId, Ready>,
    pub opened: BTreeMap<FileId, Rc<Directory>>,
    /// What got other attributes where it is.
    pub dressed: Vec<Dressed>,
}

pub(super) struct Dressed {
    pub above: Rc<Directory>,
    pub name: Name,
    pub ino: u64,
    pub kind: Kind,
}

impl Hand {
    pub fn new(ready: BTreeMap<FileId, Ready>) -> Hand {
        Hand { ready, opened: BTreeMap::new(), dressed: Vec::new() }
    }

    /// What was done is safe from a power cut: names with the directories that were worked in, and
    /// attributes with what has them, of which the sync of a directory says nothing.
    pub fn sync(&self, tree: &Tree) -> Result<()> {
        for opened in self.opened.values() {
            opened.sync()?;
        }
        let mut files = Vec::with_capacity(self.dressed.len());
        for dressed in &self.dressed {
            match dressed.open() {
                Some(file) => files.push(file),
                None => return Ok(tree.sync()?),
            }
        }
        for synced in TreeFile::sync_each(&files) {
            synced?;
        }
        Ok(())
    }
}

impl Dressed {
    /// None: it cannot be opened, or not without doing something else, or it is elsewhere by now.
    fn open(&self) -> Option<TreeFile> {
        if !matches!(self.kind, Kind::File | Kind::Directory) {
            return None;
        }
        let file = self.above.open(self.name.as_bytes()).ok()?;
        let is_it = file.stat().is_ok_and(|stat| stat.ino == self.ino);
        is_it.then_some(file)
    }
}

impl Keeper {
    pub(super) fn opened(
        &self,
        write: &dyn Write,
        hand: &mut Hand,
        directory: FileId,
    ) -> Result<Option<Rc<Directory>>> {
        if let Some(opened) = hand.opened.get(&directory) {
            return Ok(Some(opened.clone()));
        }
        let Some(opened) = self.directory_in(write, directory)? else { return Ok(None) };
        let opened = Rc::new(opened);
        hand.opened.insert(directory, opened.clone());
        Ok(Some(opened))
    }

    /// A name is to be as the volume has it. False: not yet.
    pub(super) fn place_entry(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        at: &At,
        depth: usize,
    ) -> Result<bool> {
        let id = self.volume.id;
        if is_stage(at.0, &at.1) {
            self.say_once("a file that is called .farfs-tree", &"the name is FarFS's own there");
            return Ok(true);
        }
        let view = Whole::now(&*write, id);
        let wanted = view.entry(at.0, &at.1)?;
        let has = rows::named(&*write, id, at.0, &at.1)?;
        if wanted == has || depth > DEPTH_MAX {
            return Ok(wanted == has);
        }
        if rows::path(&*write, id, at.0)?.is_none() {
            let above = view.names(at.0, 1)?.into_iter().next();
            return match (wanted, above) {
                (Some(_), Some(above)) => Ok(self.place_entry(write, hand, &above, depth + 1)?
                    && self.place_entry(write, hand, at, depth + 1)?),
                // A directory that is gone on both sides has nothing in it.
                _ => Ok(wanted.is_none()),
            };
        }
        let Some(opened) = self.opened(write, hand, at.0)? else {
            self.note_where(write, at.0)?;
            return Ok(false);
        };
        let known = match has {
            Some(file) => rows::known(&*write, id, file)?.map(|known| (file, known)),
            None => None,
        };
        if !self.is_agreed(&opened, at, known.as_ref().map(|(_, known)| known))? {
            return Ok(false);
        }
        match (wanted, known) {
            (Some(file), known) => self.put(write, hand, at, file, known, depth),
            (None, Some((file, known))) => self.take_away(write, hand, at, file, &known, depth),
            (None, None) => Ok(true),
        }
    }

    /// What is known of the directory is not so any more.
    pub(super) fn note_where(&mut self, write: &dyn Write, directory: FileId) -> Result<()> {
        let known = rows::known(write, self.volume.id, directory)?;
        for at in known.into_iter().flat_map(|known| known.names) {
            self.note_soon(at, true);
        }
        Ok(())
    }

    /// Whether a name is as it was agreed on; if not, it is taken in first.
    pub(super) fn is_agreed(
        &mut self,
        opened: &Directory,
        at: &At,
        known: Option<&Known>,
    ) -> Result<bool> {
        let stat = opened.stat(at.1.as_bytes())?;
        let agreed = match (known, &stat) {
            (None, None) => true,
            (Some(known), Some(stat)) => known.is_as_was(stat),
            _ => false,
        };
        if agreed {
            return Ok(true);
        }
        if let Some(stat) = stat.filter(|stat| stat.sort == Sort::Directory)
            && stat.device != opened.own_stat()?.device
        {
            // Nothing comes of looking at it.
            let path = opened.shown(at.1.as_bytes());
            self.hinders(format!("another file system is mounted at {path}"));
            return Ok(false);
        }
        self.note_soon(at.clone(), false);
        Ok(false)
    }

    /// A name is to be looked at, or later if that did not help so far: what is done to it is told of.
    fn note_soon(&mut self, (directory, name): At, whole: bool) {
        let now = self.inner.world.clock.moment();
        if self.stuck < REMOVALS_MAX {
            self.dirt.note(directory, name, whole, now);
        } else {
            let since = Since { at: now, whole, due: now + self.retries().1 };
            self.dirt.wait(directory, name, since, since.due);
        }
    }

    /// The file comes to the name, which what is known bears now.
    fn put(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        at: &At,
        file: FileId,
        bearer: Option<(FileId, Known)>,
        depth: usize,
    ) -> Result<bool> {
        let id = self.volume.id;
        let Some(node) = Whole::now(&*write, id).node(file)? else { return Ok(true) };
        let mut bearer = bearer;
        if let Some((other, known)) = &bearer {
            let stays = Whole::now(&*write, id).node(*other)?.is_some();
            let apart = node.kind == Kind::Directory || known.kind == Kind::Directory;
            if stays || apart {
                let (other, known) = (*other, known.clone());
                if !self.take_away(write, hand, at, other, &known, depth)? {
                    return Ok(false);
                }
                // Making room may have put the file in its place.
                if rows::named(&*write, id, at.0, &at.1)? == Some(file) {
                    return Ok(true);
                }
                bearer = None;
            }
        }
        let Some(source) = self.source(write, hand, at, file, &node)? else { return Ok(false) };
        let Some(opened) = self.opened(write, hand, at.0)? else { return Ok(false) };
        let Some(stage) = self.opened(write, hand, STAGE)? else { return Ok(false) };
        let how = if bearer.is_some() { How::Exchange } else { How::New };
        if let Err(error) = opened.rename_from(at.1.as_bytes(), &stage, source.name.as_bytes(), how)
        {
            let now = self.inner.world.clock.moment();
            self.dirt.note(at.0, at.1.clone(), true, now);
            self.put_back(write, hand, file, &source)?;
            return if error.kind() == Some(ErrorKind::AlreadyExists) {
                Ok(false)
            } else {
                Err(error.into())
            };
        }
        if let Some((other, _)) = &bearer {
            rows::drop_name(write, id, *other, at)?;
        }
        let Some(stat) = opened.stat(at.1.as_bytes())? else { return Ok(false) };
        let mut known = source.known.moved(&stat, true);
        known.names.retain(|name| *name != source.at() && name != at);
        known.names.push(at.clone());
        rows::drop_staged(write, id, known.ino)?;
        rows::put_known(write, id, file, &known)?;
        self.is_placed(hand, file);
        if known.kind == Kind::Directory && source.from.is_none() {
            // From now on programs use it: it is watched.
            self.dirt.lists.insert(file);
        }
        if let Some((other, known)) = bearer {
            self.set_aside(write, &stage, &source.name, at, (other, &known))?;
        }
        Ok(true)
    }

    /// The file, in the stage: from a name that it is to lose, as one more link, or made.
    fn source(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        at: &At,
        file: FileId,
        node: &Node,
    ) -> Result<Option<Source>> {
        let id = self.volume.id;
        if !self.has_its_contents(write, hand, file, node)? {
            return Ok(None);
        }
        let Some(known) = rows::known(&*write, id, file)? else {
            let ready = hand.ready.get(&file).cloned();
            let ready = match node.kind {
                Kind::File => ready.filter(|ready| ready.stands_for(node)),
                _ => self.make_other(file, node)?,
            };
            return Ok(ready.map(|r| Source { name: r.name, known: r.known, from: None }));
        };
        let view = Whole::now(&*write, id);
        let mut spare = None;
        for name in &known.names {
            if view.entry(name.0, &name.1)? != Some(file) {
                spare = Some(name.clone());
            }
        }
        let from = match (&spare, known.names.first()) {
            (Some(from), _) => from.clone(),
            (None, Some(first)) if known.kind != Kind::Directory && first != at => first.clone(),
            _ => return Ok(None),
        };
        let Some(there) = self.opened(write, hand, from.0)? else {
            self.note_where(write, from.0)?;
            return Ok(None);
        };
        if !self.is_agreed(&there, &from, Some(&known))? {
            return Ok(None);
        }
        let Some(stage) = self.opened(write, hand, STAGE)? else { return Ok(None) };
        if from.0 == STAGE {
            return Ok(Some(Source { name: from.1.clone(), known, from: Some(from) }));
        }
        let name = stage_name("new-m", file.0);
        if spare.is_some() {
            self.make_way(write, &stage, &name)?;
            stage.rename_from(name.as_bytes(), &there, from.1.as_bytes(), How::New)?;
            // If it cannot go on now, it is known where it waits.
            let mut known = known;
            known.names.retain(|name| *name != from);
            known.names.push((STAGE, name.clone()));
            rows::put_known(write, id, file, &known)?;
            return Ok(Some(Source { name, known, from: Some(from) }));
        }
        self.make_way(write, &stage, &name)?;
        stage.link_from(name.as_bytes(), &there, from.1.as_bytes())?;
        Ok(Some(Source { name, known, from: None }))
    }

    /// It could not be put where it belongs: it goes back to where it was.
    fn put_back(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        file: FileId,
        source: &Source,
    ) -> Result<()> {
        let Some(stage) = self.opened(write, hand, STAGE)? else { return Ok(()) };
        match &source.from {
            Some(from) if from.0 != STAGE => {
                let Some(there) = self.opened(write, hand, from.0)? else { return Ok(()) };
                let name = source.name.as_bytes();
                // If it cannot go back either, it goes on from the stage.
                if there.rename_from(from.1.as_bytes(), &stage, name, How::New).is_ok() {
                    let mut known = source.known.clone();
                    known.names.retain(|name| *name != source.at());
                    known.names.push(from.clone());
                    rows::put_known(write, self.volume.id, file, &known)?;
                }
                let now = self.inner.world.clock.moment();
                self.dirt.note(from.0, from.1.clone(), true, now);
                Ok(())
            }
            Some(_) => Ok(()),
            // One more link, or something that is made again.
            None if source.known.kind == Kind::Directory => {
                Ok(stage.remove_directory(source.name.as_bytes())?)
            }
            None if source.known.names.is_empty() && source.known.kind == Kind::File => Ok(()),
            None => Ok(stage.unlink(source.name.as_bytes())?),
        }
    }

    /// What was made ready and is not needed any more.
    pub(super) fn drop_unplaced(&mut self, hand: &mut Hand) -> Result<()> {
        if hand.ready.is_empty() {
            self.outgoing.let_go();
            return Ok(());
        }
        let stage = self.stage()?;
        self.keep_unplaced(&stage, &mut hand.ready)?;
        for ready in std::mem::take(&mut hand.ready).into_values() {
            // What came out for it may lie under this name, if it could not be kept beside.
            let stat = stage.stat(ready.name.as_bytes())?;
            if !stat.is_some_and(|stat| ready.known.is(&stat)) {
                continue;
            }
            match stage.unlink(ready.name.as_bytes()) {
                Err(error) if error.kind() != Some(ErrorKind::NotFound) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A file in the stage that is to come to a name.
struct Source {
    name: Name,
    known: Known,
    /// The name that it has left.
    from: Option<At>,
}

impl Source {
    /// Where it is now.
    fn at(&self) -> At {
        (STAGE, self.name.clone())
    }
}
