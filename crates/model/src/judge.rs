//! What an update does to what it finds, or what stands in its way.
//! Holds: effects are whole values, so applying them twice is applying them once.
//! Never: changes anything; the caller writes the effects, in one transaction with the update.
//! From: DESIGN, "Updates": every update names what it expects to find.

use crate::{
    ACL_ACCESS, ACL_DEFAULT, Acl, AttributeChange, Change, Contents, FileId, Kind, Name, Node,
    Stamp, Update, Whiteout,
};
use minicbor::bytes::ByteVec;
use std::collections::BTreeMap;

/// The most names that one file may have, as ext4 has it.
const LINKS_MAX: u32 = 65_000;
/// The deepest a directory may lie below the root. Bounds the walk that looks for a cycle.
const DEPTH_MAX: usize = 4096;
/// Of a mode, what an access control list tells too.
const PERMISSION_BITS: u16 = 0o777;

type Xattrs = BTreeMap<ByteVec, ByteVec>;

/// What an update finds. A partial view answers an error where it does not know.
pub trait View {
    type Error;
    fn node(&self, file: FileId) -> Result<Option<Node>, Self::Error>;
    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Self::Error>;
    fn is_empty(&self, directory: FileId) -> Result<bool, Self::Error>;
}

/// The values that nodes and entries have after an update; none is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub nodes: BTreeMap<FileId, Option<Node>>,
    pub entries: BTreeMap<(FileId, Name), Option<FileId>>,
}

/// Why an update cannot be done as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("file {0} is not there any more")]
    NoFile(FileId),
    #[error("{0} is not a directory")]
    NotADirectory(FileId),
    #[error("{0} is a directory")]
    IsADirectory(FileId),
    #[error("the name {name} is taken by file {by}")]
    NameTaken { name: Name, by: FileId },
    #[error("the name {name} is not what it was: it is now {}", shown(*.now))]
    NameChanged { name: Name, now: Option<FileId> },
    #[error("directory {0} is not empty")]
    NotEmpty(FileId),
    #[error("file id {0} is used already")]
    IdTaken(FileId),
    #[error("directory {0} would come to lie in itself")]
    Cycle(FileId),
    #[error("file {0} has as many names as a file can have")]
    TooManyLinks(FileId),
    #[error("the contents of {file} were stored by {found} meanwhile")]
    ContentsChanged { file: FileId, found: Stamp },
    #[error("the attributes of {file} were set by {found} meanwhile")]
    AttributesChanged { file: FileId, found: Stamp },
    #[error("file {0} has no such extended attribute")]
    NoXattr(FileId),
    #[error("file {0} cannot hold contents")]
    NotAFile(FileId),
}

fn shown(file: Option<FileId>) -> String {
    file.map_or("free".into(), |file| format!("that of file {file}"))
}

/// Decides an update: the effects it has on what `view` shows, or the first problem it meets.
pub fn judge<V: View>(update: &Update, view: &V) -> Result<Result<Effects, Problem>, V::Error> {
    let mut case = Case { view, update, effects: Effects::default() };
    Ok(case.decide()?.map(|()| case.effects))
}

struct Case<'a, V> {
    view: &'a V,
    update: &'a Update,
    effects: Effects,
}

/// A step's outcome: the view may fail, the update may meet a problem.
type Step<T, E> = Result<Result<T, Problem>, E>;

macro_rules! go {
    ($step:expr) => {
        match $step? {
            Ok(value) => value,
            Err(problem) => return Ok(Err(problem)),
        }
    };
}

impl<V: View> Case<'_, V> {
    fn decide(&mut self) -> Step<(), V::Error> {
        match &self.update.change {
            Change::Make { .. } => self.make(),
            Change::Link { parent, name, file } => self.link(*parent, name, *file),
            Change::Unlink { parent, name, file, .. } => self.unlink(*parent, name, *file),
            Change::Rename { exchange: true, .. } => self.exchange(),
            Change::Rename { .. } => self.rename(),
            Change::Store { file, expects, contents, mtime } => {
                let mut node = go!(self.node(*file));
                if node.kind != Kind::File {
                    return Ok(Err(Problem::NotAFile(*file)));
                }
                if node.contents_stamp != *expects {
                    let found = node.contents_stamp;
                    return Ok(Err(Problem::ContentsChanged { file: *file, found }));
                }
                store(&mut node, self.update, *contents);
                node.mtime = *mtime;
                self.put(*file, node)
            }
            Change::SetAttributes { file, expects, set } => {
                let mut node = go!(self.node(*file));
                if node.attributes_stamp != *expects {
                    let found = node.attributes_stamp;
                    return Ok(Err(Problem::AttributesChanged { file: *file, found }));
                }
                set_attributes(&mut node, self.update, set);
                self.put(*file, node)
            }
            Change::SetXattr { file, name, value, .. } => {
                let mut node = go!(self.node(*file));
                set_xattr(&mut node, name, value);
                node.attributes_stamp = self.update.stamp;
                node.ctime = self.update.at;
                self.put(*file, node)
            }
            Change::RemoveXattr { file, name, .. } => self.remove_xattr(*file, name),
        }
    }

    fn make(&mut self) -> Step<(), V::Error> {
        let Change::Make { parent, name, file, kind, mode, uid, gid, target, rdev, born } =
            &self.update.change
        else {
            unreachable!("decide calls make for a Make alone")
        };
        let mut directory = go!(self.directory(*parent));
        go!(self.absent(*parent, name));
        go!(self.unused(*file));
        let at = self.update.at;
        let is_directory = *kind == Kind::Directory;
        let (mode, xattrs) = handed_down(&directory, *kind, *mode);
        let node = Node {
            kind: *kind,
            mode,
            uid: *uid,
            gid: *gid,
            links: if is_directory { 2 } else { 1 },
            atime: at,
            mtime: at,
            ctime: at,
            contents_stamp: self.update.stamp,
            attributes_stamp: self.update.stamp,
            contents: Contents::EMPTY,
            parent: is_directory.then_some(*parent),
            target: target.clone(),
            rdev: *rdev,
            xattrs,
            born: Some(born.unwrap_or(at)),
        };
        directory.links += u32::from(is_directory);
        self.touch(*parent, directory);
        self.effects.nodes.insert(*file, Some(node));
        self.effects.entries.insert((*parent, name.clone()), Some(*file));
        Ok(Ok(()))
    }

    fn link(&mut self, parent: FileId, name: &Name, file: FileId) -> Step<(), V::Error> {
        let directory = go!(self.directory(parent));
        go!(self.absent(parent, name));
        let mut node = go!(self.node(file));
        if node.kind == Kind::Directory {
            return Ok(Err(Problem::IsADirectory(file)));
        }
        if node.links >= LINKS_MAX {
            return Ok(Err(Problem::TooManyLinks(file)));
        }
        node.links += 1;
        node.ctime = self.update.at;
        self.touch(parent, directory);
        self.effects.nodes.insert(file, Some(node));
        self.effects.entries.insert((parent, name.clone()), Some(file));
        Ok(Ok(()))
    }

    fn unlink(&mut self, parent: FileId, name: &Name, file: FileId) -> Step<(), V::Error> {
        let mut directory = go!(self.directory(parent));
        go!(self.names(parent, name, file));
        let node = go!(self.node(file));
        directory.links = directory.links.saturating_sub(u32::from(node.kind == Kind::Directory));
        self.touch(parent, directory);
        self.effects.entries.insert((parent, name.clone()), None);
        self.drop_name(file, node)
    }

    fn rename(&mut self) -> Step<(), V::Error> {
        let Change::Rename { from, from_name, to, to_name, file, over, whiteout, .. } =
            &self.update.change
        else {
            unreachable!("decide calls rename for a Rename alone")
        };
        let directory = go!(self.directory(*from));
        go!(self.directory(*to));
        go!(self.names(*from, from_name, *file));
        match (over, self.view.entry(*to, to_name)?) {
            (None, Some(by)) => {
                return Ok(Err(Problem::NameTaken { name: to_name.clone(), by }));
            }
            (Some(over), now) if now != Some(*over) => {
                return Ok(Err(Problem::NameChanged { name: to_name.clone(), now }));
            }
            _ => {}
        }
        let moved = go!(self.node(*file));
        // Two names of one file: POSIX says that nothing is done.
        if *over == Some(*file) {
            return Ok(Ok(()));
        }
        if let Some(whiteout) = whiteout {
            go!(self.unused(whiteout.file));
        }
        let is_directory = moved.kind == Kind::Directory;
        if is_directory {
            go!(self.not_below(*to, *file));
        }
        if let Some(over) = over {
            let replaced = go!(self.node(*over));
            match (is_directory, replaced.kind == Kind::Directory) {
                (true, false) => return Ok(Err(Problem::NotADirectory(*over))),
                (false, true) => return Ok(Err(Problem::IsADirectory(*over))),
                _ => {}
            }
            go!(self.drop_name(*over, replaced));
            self.change_links(*to, if is_directory { -1 } else { 0 })?;
        }
        self.change_links(*from, if is_directory { -1 } else { 0 })?;
        self.change_links(*to, if is_directory { 1 } else { 0 })?;
        self.put_moved(*file, moved, *to);
        let left = whiteout.map(|whiteout| self.white_out(&directory, whiteout));
        self.effects.entries.insert((*from, from_name.clone()), left);
        self.effects.entries.insert((*to, to_name.clone()), Some(*file));
        Ok(Ok(()))
    }

    /// What stands where a file was moved away from this directory.
    fn white_out(&mut self, from: &Node, Whiteout { file, uid, gid }: Whiteout) -> FileId {
        let directory = Node::root_directory(uid, gid, self.update.at);
        let (mode, xattrs) = handed_down(from, Kind::CharDevice, 0);
        let node = Node {
            kind: Kind::CharDevice,
            mode,
            xattrs,
            links: 1,
            contents_stamp: self.update.stamp,
            attributes_stamp: self.update.stamp,
            parent: None,
            rdev: Some(0),
            ..directory
        };
        self.effects.nodes.insert(file, Some(node));
        file
    }

    fn exchange(&mut self) -> Step<(), V::Error> {
        let Change::Rename { from, from_name, to, to_name, file, over, .. } = &self.update.change
        else {
            unreachable!("decide calls exchange for a Rename alone")
        };
        go!(self.directory(*from));
        go!(self.directory(*to));
        go!(self.names(*from, from_name, *file));
        let Some(over) = over else {
            return Ok(Err(Problem::NameChanged { name: to_name.clone(), now: None }));
        };
        go!(self.names(*to, to_name, *over));
        let one = go!(self.node(*file));
        let other = go!(self.node(*over));
        let (one_is, other_is) = (one.kind == Kind::Directory, other.kind == Kind::Directory);
        if one_is {
            go!(self.not_below(*to, *file));
        }
        if other_is {
            go!(self.not_below(*from, *over));
        }
        self.change_links(*from, i32::from(other_is) - i32::from(one_is))?;
        self.change_links(*to, i32::from(one_is) - i32::from(other_is))?;
        self.put_moved(*file, one, *to);
        if file != over {
            self.put_moved(*over, other, *from);
        }
        self.effects.entries.insert((*from, from_name.clone()), Some(*over));
        self.effects.entries.insert((*to, to_name.clone()), Some(*file));
        Ok(Ok(()))
    }

    fn remove_xattr(&mut self, file: FileId, name: &ByteVec) -> Step<(), V::Error> {
        let mut node = go!(self.node(file));
        let removed = node.xattrs.as_mut().and_then(|xattrs| xattrs.remove(name));
        if removed.is_none() {
            return Ok(Err(Problem::NoXattr(file)));
        }
        node.xattrs = node.xattrs.filter(|xattrs| !xattrs.is_empty());
        node.attributes_stamp = self.update.stamp;
        node.ctime = self.update.at;
        self.put(file, node)
    }

    fn put_moved(&mut self, file: FileId, mut node: Node, to: FileId) {
        node.ctime = self.update.at;
        if node.kind == Kind::Directory {
            node.parent = Some(to);
        }
        // A file that is moved within the change keeps what the change did to it before.
        if let Some(Some(seen)) = self.effects.nodes.get(&file) {
            node.links = seen.links;
        }
        self.effects.nodes.insert(file, Some(node));
    }

    fn put(&mut self, file: FileId, node: Node) -> Step<(), V::Error> {
        self.effects.nodes.insert(file, Some(node));
        Ok(Ok(()))
    }

    /// A directory whose entries changed. An update that comes after a later one does not set its
    /// times back: whoever goes by them would take it to be as it was.
    fn touch(&mut self, directory: FileId, mut node: Node) {
        let at = if node.ctime > self.update.at { node.ctime.next() } else { self.update.at };
        node.mtime = at;
        node.ctime = at;
        self.effects.nodes.insert(directory, Some(node));
    }

    fn change_links(&mut self, directory: FileId, by: i32) -> Result<(), V::Error> {
        let seen = match self.effects.nodes.get(&directory) {
            Some(node) => node.clone(),
            None => self.view.node(directory)?,
        };
        if let Some(mut node) = seen {
            node.links = node.links.saturating_add_signed(by);
            self.touch(directory, node);
        }
        Ok(())
    }

    /// One name less: the node goes with its last name, a directory only if it is empty.
    fn drop_name(&mut self, file: FileId, mut node: Node) -> Step<(), V::Error> {
        if node.kind == Kind::Directory {
            if !self.view.is_empty(file)? {
                return Ok(Err(Problem::NotEmpty(file)));
            }
            self.effects.nodes.insert(file, None);
            return Ok(Ok(()));
        }
        node.links = node.links.saturating_sub(1);
        node.ctime = self.update.at;
        self.effects.nodes.insert(file, (node.links > 0).then_some(node));
        Ok(Ok(()))
    }

    fn node(&self, file: FileId) -> Step<Node, V::Error> {
        Ok(self.view.node(file)?.ok_or(Problem::NoFile(file)))
    }

    fn directory(&self, file: FileId) -> Step<Node, V::Error> {
        let node = go!(self.node(file));
        Ok(if node.kind == Kind::Directory { Ok(node) } else { Err(Problem::NotADirectory(file)) })
    }

    fn unused(&self, file: FileId) -> Step<(), V::Error> {
        Ok(match self.view.node(file)? {
            None => Ok(()),
            Some(_) => Err(Problem::IdTaken(file)),
        })
    }

    fn absent(&self, directory: FileId, name: &Name) -> Step<(), V::Error> {
        Ok(match self.view.entry(directory, name)? {
            None => Ok(()),
            Some(by) => Err(Problem::NameTaken { name: name.clone(), by }),
        })
    }

    fn names(&self, directory: FileId, name: &Name, file: FileId) -> Step<(), V::Error> {
        let now = self.view.entry(directory, name)?;
        Ok(if now == Some(file) {
            Ok(())
        } else {
            Err(Problem::NameChanged { name: name.clone(), now })
        })
    }

    /// A directory must not be moved into itself or below itself.
    fn not_below(&self, place: FileId, directory: FileId) -> Step<(), V::Error> {
        let mut above = place;
        for _ in 0..DEPTH_MAX {
            if above == directory {
                return Ok(Err(Problem::Cycle(directory)));
            }
            if above == FileId::ROOT {
                return Ok(Ok(()));
            }
            match go!(self.node(above)).parent {
                Some(parent) => above = parent,
                None => return Ok(Err(Problem::NotADirectory(above))),
            }
        }
        Ok(Err(Problem::Cycle(directory)))
    }
}

fn store(node: &mut Node, update: &Update, contents: Contents) {
    node.contents = contents;
    node.contents_stamp = update.stamp;
    node.ctime = update.at;
}

/// Mode and attributes of what is made in a directory that hands an access control list down.
fn handed_down(directory: &Node, kind: Kind, mode: u16) -> (u16, Option<Xattrs>) {
    let default = if kind == Kind::Symlink { None } else { directory.acl(ACL_DEFAULT) };
    let Some(default) = default else { return (mode, None) };
    let (list, mode) = default.handed_down(mode);
    let mut xattrs = Xattrs::new();
    let mut add = |name: &[u8], list: &Acl| {
        xattrs.insert(name.to_vec().into(), list.to_bytes().into());
    };
    if !list.is_mode_alone() {
        add(ACL_ACCESS, &list);
    }
    if kind == Kind::Directory {
        add(ACL_DEFAULT, &default);
    }
    (mode, (!xattrs.is_empty()).then_some(xattrs))
}

/// The permission bits follow the access control list, and stand for one that says no more.
fn set_xattr(node: &mut Node, name: &ByteVec, value: &ByteVec) {
    let is_access = name.as_slice() == ACL_ACCESS;
    let list = if is_access { Acl::read(value) } else { None };
    if let Some(list) = &list {
        node.mode = node.mode & !PERMISSION_BITS | list.mode();
    }
    let xattrs = node.xattrs.get_or_insert_with(BTreeMap::new);
    match list {
        Some(list) if list.is_mode_alone() => xattrs.remove(name),
        _ => xattrs.insert(name.clone(), value.clone()),
    };
    node.xattrs.take_if(|xattrs| xattrs.is_empty());
}

/// The access control list follows the permission bits.
fn set_mode(node: &mut Node, mode: u16) {
    node.mode = mode;
    if let (Some(list), Some(xattrs)) = (node.acl(ACL_ACCESS), &mut node.xattrs) {
        let list = list.with_mode(mode).to_bytes();
        xattrs.insert(ACL_ACCESS.to_vec().into(), list.into());
    }
}

fn set_attributes(node: &mut Node, update: &Update, set: &AttributeChange) {
    if let Some(mode) = set.mode {
        set_mode(node, mode);
    }
    node.uid = set.uid.unwrap_or(node.uid);
    node.gid = set.gid.unwrap_or(node.gid);
    node.atime = set.atime.unwrap_or(node.atime);
    node.mtime = set.mtime.unwrap_or(node.mtime);
    node.attributes_stamp = update.stamp;
    node.ctime = update.at;
}

#[cfg(test)]
mod tests;
