//! Files that never had a name (O_TMPFILE): this machine's alone until one is given to them.
//! Holds: of a file without a name nothing is in the log or in the tables, so that a crash leaves
//! nothing of it; with its name it gets its contents, in updates that leave and are taken together.
//! From: Linux, open(2), O_TMPFILE; linkat(2), AT_EMPTY_PATH.

use super::{Files, OpenFile, sized};
use crate::client::{Client, failed};
use crate::effects::objection;
use crate::presence::Presence;
use crate::types::{Caller, Error, Found, Making, Need, OpenFlags, Opened, Step, Stop};
use model::{Change, FileId, Kind, Name, Node, Stamp, Update, View, judge};
use protocol::{Access, Objection, Upstream};
use store::container::Key;
use store::{Container, Containers};
use volume::partial::{Missing, Tree};

impl<K: Container> Files<K> {
    pub fn is_unborn(&self, file: FileId) -> bool {
        self.generations(file).any(|open| open.unborn)
    }

    pub(super) fn unborn(&mut self, file: FileId) -> Option<&mut OpenFile<K>> {
        let versions = self.open.range_mut((file, 0)..=(file, u32::MAX));
        versions.map(|(_, open)| open).find(|open| open.unborn)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A new ordinary file without a name, open.
    pub fn create_unborn(
        &self,
        caller: Caller,
        directory: FileId,
        making: &Making,
        flags: OpenFlags,
    ) -> Step<(Found, Opened)> {
        self.with_room(|| self.create_unborn_here(caller, directory, making, flags))
    }

    fn create_unborn_here(
        &self,
        caller: Caller,
        directory: FileId,
        making: &Making,
        flags: OpenFlags,
    ) -> Step<(Found, Opened)> {
        self.has_room()?;
        self.has_place()?;
        let mut core = self.core();
        let Some(replica) = core.meta.replica else { return Err(Stop::Need(Need::Volume)) };
        if core.meta.access == Access::ReadOnly || directory.is_past() {
            return Err(Objection::ReadOnly.into());
        }
        let counter = core.meta.counter;
        let file =
            FileId::new(replica, counter).map_err(|error| Error::Failed(error.to_string()))?;
        // The directory has its say as if a name were given.
        let make = Change::Make {
            parent: directory,
            name: Name::new("unborn").map_err(|error| Error::Failed(error.to_string()))?,
            file,
            kind: Kind::File,
            mode: making.mode & 0o7777,
            uid: making.uid,
            gid: making.gid,
            target: None,
            rdev: None,
            born: None,
        };
        let make = self.update_of(Stamp::default(), caller.uid, make);
        let node = self
            .view(|tree| judge(&make, &WithoutNames { tree, unborn: file }))?
            .map_err(|problem| Error::Objection(objection(&problem)))?
            .nodes
            .remove(&file)
            .flatten();
        let node = node.ok_or(Error::Objection(Objection::NoEntry))?;
        let node = Node { links: 0, ..node };
        let read = self.inner.tables.read().map_err(failed)?;
        let row = Presence::load(&*read, file).map_err(failed)?;
        drop(read);
        let last = row.map(|row| row.generation);
        let generation = self.free_generation(file, last).map_err(failed)?;
        let container =
            self.fresh_container(Key { file: file.0, generation }, 0).map_err(failed)?;
        core.meta.counter = counter + 1;
        core.unsaved = true;
        let used = self.inner.world.clock.time().secs;
        let presence = Presence::new(generation, Stamp::default(), node.contents, used);
        let mut files = self.files();
        let open = OpenFile {
            unlinked: Some(node.clone()),
            unborn: true,
            ..OpenFile::new(container, presence)
        };
        files.open.insert((file, generation), open);
        drop(files);
        drop(core);
        let found = Found { file, node };
        let opened = self.open_new(&found, flags, None)?;
        Ok((found, opened))
    }

    fn update_of(&self, stamp: Stamp, uid: u32, change: Change) -> Update {
        Update { stamp, uid, at: self.inner.world.clock.time(), change }
    }

    /// The kernel has it from now on, until it is `forgotten`, and may open it again till then.
    pub fn tell_unborn(&self, found: &Found) {
        self.known().tell_unborn(found.file, found.node.clone());
    }

    /// The node of a file that is open or in the volume.
    pub(crate) fn node_or_unborn(
        &self,
        files: &Files<C::Container>,
        file: FileId,
    ) -> Step<Option<Node>> {
        if files.is_unborn(file) {
            return Ok(None);
        }
        self.view(|tree| tree.node(file))
    }

    /// A change of attributes of a file that has no name yet. False: it has one, or had.
    pub(crate) fn change_unborn(&self, uid: u32, file: FileId, change: &Change) -> Step<bool> {
        let mut files = self.files();
        let Some(open) = files.unborn(file) else { return Ok(false) };
        let Some(node) = &mut open.unlinked else { return Ok(false) };
        *node = self.changed_alone(uid, file, node, change)?;
        if let Change::SetAttributes { set, .. } = change {
            open.mtime = set.mtime.or(open.mtime);
        }
        self.known().set_unborn(file, node.clone());
        Ok(true)
    }

    /// A node that the volume does not have, after a change of its attributes.
    pub(crate) fn changed_alone(
        &self,
        uid: u32,
        file: FileId,
        node: &Node,
        change: &Change,
    ) -> Step<Node> {
        let mut change = change.clone();
        if let Change::SetAttributes { expects, .. } = &mut change {
            *expects = node.attributes_stamp;
        }
        let update = self.update_of(node.attributes_stamp, uid, change);
        let Ok(outcome) = judge(&update, &Alone { file, node });
        let mut effects = outcome.map_err(|problem| Error::Objection(objection(&problem)))?;
        let changed = effects.nodes.remove(&file).flatten();
        Ok(changed.ok_or(Error::Objection(Objection::NoEntry))?)
    }

    /// What was written to a file without a name goes nowhere. False: it has one, or had.
    pub(crate) fn keep_unborn(&self, file: FileId) -> Step<bool> {
        let mut files = self.files();
        let Some(open) = files.unborn(file) else { return Ok(false) };
        let contents = sized(open.container.length().map_err(failed)?);
        let Presence { generation, version, used, .. } = open.presence;
        open.presence = Presence::new(generation, version, contents, used);
        open.presence.add_all();
        Ok(true)
    }

    /// Nobody has it open any more, nor does the kernel know it.
    pub(crate) fn remove_unborn(&self, file: FileId, generation: u32) {
        self.remove_prepared(Some(Key { file: file.0, generation }));
    }

    /// The kernel has forgotten a file; if nobody has it open any more, it goes.
    pub(crate) fn forget_unborn(&self, file: FileId) {
        let gone = {
            let mut files = self.files();
            let idle = files.unborn(file).filter(|open| open.handles == 0);
            let generation = idle.map(|open| open.presence.generation);
            generation.inspect(|generation| drop(files.open.remove(&(file, *generation))))
        };
        if let Some(generation) = gone {
            self.remove_unborn(file, generation);
        }
    }
}

/// A tree in which no name is taken, and one id has never been used.
struct WithoutNames<'a> {
    tree: &'a Tree<'a>,
    unborn: FileId,
}

impl View for WithoutNames<'_> {
    type Error = Missing;

    fn node(&self, file: FileId) -> Result<Option<Node>, Missing> {
        if file == self.unborn { Ok(None) } else { self.tree.node(file) }
    }

    fn entry(&self, _: FileId, _: &Name) -> Result<Option<FileId>, Missing> {
        Ok(None)
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Missing> {
        self.tree.is_empty(directory)
    }
}

/// One file and nothing else.
struct Alone<'a> {
    file: FileId,
    node: &'a Node,
}

impl View for Alone<'_> {
    type Error = std::convert::Infallible;

    fn node(&self, file: FileId) -> Result<Option<Node>, Self::Error> {
        Ok((file == self.file).then(|| self.node.clone()))
    }

    fn entry(&self, _: FileId, _: &Name) -> Result<Option<FileId>, Self::Error> {
        Ok(None)
    }

    fn is_empty(&self, _: FileId) -> Result<bool, Self::Error> {
        Ok(true)
    }
}
