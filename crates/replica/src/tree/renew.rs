//! Gives files of the tree the contents and attributes that the volume has.
//! Holds: under each of its names a file has the old contents or the new ones.

use super::barred::Way;
use super::commit::At;
use super::keeper::Keeper;
use super::outlet::LINKS_MAX;
use super::place::{Dressed, Hand};
use super::rows::{self, Known, STAGE};
use super::stage::stage_name;
use crate::error::Result;
use model::{FileId, Kind, Node, View};
use store::Write;
use store::tree::{Directory, How, Stat};
use volume::whole::Whole;

impl Keeper {
    /// A file's contents and attributes are to be as the volume has them. False: not yet.
    pub(super) fn place_node(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        file: FileId,
    ) -> Result<bool> {
        let id = self.volume.id;
        let view = Whole::now(&*write, id);
        let Some(node) = view.node(file)? else { return Ok(true) };
        let Some(known) = rows::known(&*write, id, file)? else {
            let mut all = true;
            for at in view.names(file, LINKS_MAX)? {
                all &= self.place_entry(write, hand, &at, 0)?;
            }
            return Ok(all);
        };
        if node.kind == Kind::File && known.contents_stamp != node.contents_stamp {
            return self.replace(write, hand, file, &node, &known);
        }
        if known.attributes_stamp == node.attributes_stamp && known.xattrs == node.xattrs {
            return Ok(true);
        }
        let (opened, at) = if file == FileId::ROOT {
            (self.opened(write, hand, FileId::ROOT)?, None)
        } else {
            let Some(at) = known.names.first().cloned() else { return Ok(true) };
            (self.opened(write, hand, at.0)?, Some(at))
        };
        let Some(opened) = opened else { return Ok(false) };
        let dressed = match &at {
            Some(at) if !self.is_agreed(&opened, at, Some(&known))? => return Ok(false),
            Some((_, name)) => {
                let dressed = self.dress(&opened, name, &node, Some(&known));
                // A link has no attributes to be set but its owner, and cannot be synced by itself.
                let is_as_before = known.kind == Kind::Symlink
                    && dressed
                        .as_ref()
                        .is_ok_and(|now| now.ctime.is_some() && now.ctime == known.ctime);
                if !is_as_before {
                    let (above, kind) = (opened.clone(), known.kind);
                    hand.dressed.push(Dressed { above, name: name.clone(), ino: known.ino, kind });
                }
                dressed
            }
            None => self.dress_root(&opened, &node),
        };
        let mut now = match dressed {
            Ok(now) => now,
            Err(error) => {
                self.note_half_dressed(write, &opened, at.as_ref(), (file, &known, &node))?;
                return Err(error);
            }
        };
        now.contents = known.contents;
        now.contents_stamp = known.contents_stamp;
        now.names = known.names;
        // What cannot be had in the tree is not tried again and again.
        now.xattrs = node.xattrs.clone();
        rows::put_known(write, id, file, &now)?;
        if let Some(at) = at.filter(|_| now.ctime.is_none()) {
            self.dirt.note(at.0, at.1, true, self.inner.world.clock.moment());
        }
        Ok(true)
    }

    /// What was ready is in the tree. One that was overtaken is written again.
    pub(super) fn is_placed(&mut self, hand: &mut Hand, file: FileId) {
        if hand.ready.remove(&file).is_some_and(|ready| ready.overtaken) {
            self.outgoing.wait_node(file);
        }
    }

    /// A file of the tree has the contents that it is to have, now if not before; one that is not
    /// there yet needs none. False: not yet.
    pub(super) fn has_its_contents(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        file: FileId,
        node: &Node,
    ) -> Result<bool> {
        match rows::known(&*write, self.volume.id, file)? {
            Some(known)
                if node.kind == Kind::File && known.contents_stamp != node.contents_stamp =>
            {
                self.replace(write, hand, file, node, &known)
            }
            _ => Ok(true),
        }
    }

    fn dress_root(&mut self, root: &Directory, node: &Node) -> Result<Known> {
        self.can_be_set("the root's attributes", root.set_own(node.uid, node.gid, node.mode))?;
        let attributes_stamp = node.attributes_stamp;
        Ok(Known { attributes_stamp, ..Known::seen(&root.own_stat()?) })
    }

    /// New contents under every name that the file has.
    fn replace(
        &mut self,
        write: &mut dyn Write,
        hand: &mut Hand,
        file: FileId,
        node: &Node,
        known: &Known,
    ) -> Result<bool> {
        let id = self.volume.id;
        let ready = hand.ready.get(&file).cloned();
        let Some(ready) = ready.filter(|ready| ready.stands_for(node)) else { return Ok(false) };
        let Some(stage) = self.opened(write, hand, STAGE)? else { return Ok(false) };
        let mut places = Vec::new();
        for at in &known.names {
            let Some(opened) = self.opened(write, hand, at.0)? else {
                self.note_where(write, at.0)?;
                return Ok(false);
            };
            if !self.is_agreed(&opened, at, Some(known))? {
                return Ok(false);
            }
            places.push((at.clone(), opened));
        }
        let Some((last, others)) = places.split_last() else { return Ok(true) };
        let link = stage_name("new-l", file.0);
        let mut left = None;
        for (at, opened) in others {
            self.make_way(write, &stage, &link)?;
            stage.link_from(link.as_bytes(), &stage, ready.name.as_bytes())?;
            opened.rename_from(at.1.as_bytes(), &stage, link.as_bytes(), How::Exchange)?;
            // The others get it all the same, and then what could not go now is tried again.
            left = left.or(self.displaced(write, &stage, &link, at, known).err().map(|_| at));
        }
        let (at, opened) = last;
        opened.rename_from(at.1.as_bytes(), &stage, ready.name.as_bytes(), How::Exchange)?;
        self.is_placed(hand, file);
        let Some(stat) = opened.stat(at.1.as_bytes())? else { return Ok(false) };
        let mut now = ready.known.moved(&stat, true);
        now.names.clone_from(&known.names);
        rows::drop_staged(write, id, now.ino)?;
        rows::put_known(write, id, file, &now)?;
        self.set_aside(write, &stage, &ready.name, at, (file, known))?;
        if let Some(at) = left {
            self.set_aside(write, &stage, &link, at, (file, known))?;
        }
        Ok(true)
    }

    /// A crash came while a file was put under its names one by one, and `at` has it: the others
    /// get it too, unless a program has changed what is there. Gives back how it looks then.
    pub(super) fn link_rest(
        &mut self,
        at: &At,
        ready: &Known,
        before: Option<&Known>,
    ) -> Result<Option<Stat>> {
        let is_put = |before: &&Known| before.ino != ready.ino && before.names.contains(at);
        let Some(before) = before.filter(is_put) else { return Ok(None) };
        let Way::Open(from) = self.way(at.0)? else { return Ok(None) };
        let stage = self.stage()?;
        let link = stage_name("new-l", ready.ino);
        for other in before.names.iter().filter(|name| *name != at) {
            let Way::Open(opened) = self.way(other.0)? else { continue };
            let there = opened.stat(other.1.as_bytes())?;
            if !there.is_some_and(|stat| before.holds_the_same(&stat)) {
                continue;
            }
            let inner = self.inner.clone();
            let read = inner.tables.read()?;
            self.make_way(&*read, &stage, &link)?;
            stage.link_from(link.as_bytes(), &from, at.1.as_bytes())?;
            opened.rename_from(other.1.as_bytes(), &stage, link.as_bytes(), How::Exchange)?;
            self.displaced(&*read, &stage, &link, other, before)?;
        }
        Ok(from.stat(at.1.as_bytes())?)
    }
}
