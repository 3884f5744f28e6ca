//! Files and directories in memory, and what the calls of the kernel do to them.
//! Holds: a file is there while it has a name or the kernel knows it; a number is never used again;
//! whatever is asked for, there is an answer, and after an error everything is as it was.
//! Never: looks who may do what. The kernel does that before it asks.

use super::directory::{DOT, DOT_DOT};
use super::node::{Body, Moment, New, Node};
use fuse::{Errno, FileAttr, FileType, INodeNo, RenameFlags, SetAttributes};
use std::collections::HashMap;
use std::ffi::OsStr;

pub const NAME_BYTES_MAX: usize = 255;

/// A name in a directory.
pub type Place<'a> = (INodeNo, &'a OsStr);

#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<INodeNo, Node>,
    last: INodeNo,
    /// In all files, and the most that may be.
    bytes: u64,
    bytes_max: u64,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Where one goes on after it.
    pub position: u64,
    pub name: &'a OsStr,
    pub attr: &'a FileAttr,
    pub is_dot: bool,
}

impl Tree {
    pub fn new(root: &New<'_>, bytes_max: u64, at: Moment) -> Tree {
        let mut node = Node::new(INodeNo::ROOT, INodeNo::ROOT, root, at);
        node.attr.nlink = 2;
        let nodes = HashMap::from([(INodeNo::ROOT, node)]);
        Tree { nodes, last: INodeNo::ROOT, bytes: 0, bytes_max }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn files(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub fn attributes(&self, file: INodeNo) -> Result<FileAttr, Errno> {
        Ok(self.node(file)?.attr)
    }

    pub fn find(&self, (parent, name): Place<'_>) -> Result<FileAttr, Errno> {
        let file = self.node(parent)?.directory()?.find(name).ok_or(Errno::ENOENT)?;
        self.attributes(file)
    }

    /// The kernel is told of a file once more.
    pub fn meet(&mut self, file: INodeNo) {
        if let Some(node) = self.nodes.get_mut(&file) {
            node.known += 1;
        }
    }

    pub fn forget(&mut self, file: INodeNo, times: u64) {
        if let Some(node) = self.nodes.get_mut(&file) {
            node.known = node.known.saturating_sub(times);
        }
        self.drop_if_unused(file);
    }

    pub fn make(&mut self, place: Place<'_>, new: &New<'_>, at: Moment) -> Result<FileAttr, Errno> {
        self.is_free(place)?;
        let (parent, name) = place;
        let new = self.node(parent)?.inherited(new);
        let file = INodeNo(self.last.0 + 1);
        self.last = file;
        self.nodes.insert(file, Node::new(file, parent, &new, at));
        self.put(parent, name, file, at)?;
        let node = self.node_mut(file)?;
        node.attr.nlink = if new.kind == FileType::Directory { 2 } else { 1 };
        Ok(node.attr)
    }

    /// A name more.
    pub fn link(&mut self, file: INodeNo, place: Place<'_>, at: Moment) -> Result<FileAttr, Errno> {
        self.is_free(place)?;
        match self.attributes(file)? {
            attr if attr.kind == FileType::Directory => return Err(Errno::EPERM),
            // Its last name is gone, and the kernel knows it only because it is open.
            attr if attr.nlink == 0 => return Err(Errno::ENOENT),
            _ => {}
        }
        self.put(place.0, place.1, file, at)?;
        let node = self.node_mut(file)?;
        node.attr.nlink += 1;
        node.attr.ctime = at;
        Ok(node.attr)
    }

    pub fn unlink(&mut self, place: Place<'_>, at: Moment) -> Result<(), Errno> {
        if self.find(place)?.kind == FileType::Directory {
            return Err(Errno::EISDIR);
        }
        let file = self.take(place, at)?;
        self.lose_name(file, at)
    }

    pub fn remove_directory(&mut self, place: Place<'_>, at: Moment) -> Result<(), Errno> {
        let found = self.find(place)?;
        if !self.node(found.ino)?.directory()?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        let file = self.take(place, at)?;
        self.lose_name(file, at)
    }

    /// The kernel has looked that no directory goes below itself.
    pub fn rename(
        &mut self,
        from: Place<'_>,
        to: Place<'_>,
        how: RenameFlags,
        at: Moment,
    ) -> Result<(), Errno> {
        let (keeps, exchanges) = (RenameFlags::RENAME_NOREPLACE, RenameFlags::RENAME_EXCHANGE);
        let moved = self.find(from)?;
        match self.find(to) {
            _ if how != keeps && how != exchanges && !how.is_empty() => Err(Errno::EINVAL),
            Ok(_) if how == keeps => Err(Errno::EEXIST),
            Ok(there) if there.ino == moved.ino => Ok(()),
            Ok(there) if how == exchanges => self.exchange((from, moved.ino), (to, there.ino), at),
            Ok(there) => {
                self.can_replace(&there, &moved)?;
                self.take(to, at)?;
                self.lose_name(there.ino, at)?;
                self.move_to(from, to, at)
            }
            Err(Errno::ENOENT) if how != exchanges => {
                self.is_free(to)?;
                self.move_to(from, to, at)
            }
            Err(errno) => Err(errno),
        }
    }

    pub fn set(
        &mut self,
        file: INodeNo,
        set: &SetAttributes,
        at: Moment,
    ) -> Result<FileAttr, Errno> {
        if let Some(size) = set.size {
            self.truncate(file, size, at)?;
        }
        let node = self.node_mut(file)?;
        node.set(set, at);
        Ok(node.attr)
    }

    pub fn truncate(&mut self, file: INodeNo, size: u64, at: Moment) -> Result<(), Errno> {
        self.change(file, size, |node| {
            node.change(at, |contents| contents.cut(size))?;
            node.drop_privileges();
            Ok(())
        })
    }

    pub fn read(&self, file: INodeNo, offset: u64, size: u32) -> Result<&[u8], Errno> {
        Ok(self.node(file)?.contents()?.read(offset, size))
    }

    /// `as_other`: by somebody before whom the set-id bits go.
    pub fn write(
        &mut self,
        file: INodeNo,
        (offset, bytes): (u64, &[u8]),
        as_other: bool,
        at: Moment,
    ) -> Result<(), Errno> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        let size = end.max(self.node(file)?.attr.size);
        self.change(file, size, |node| {
            node.change(at, |contents| contents.write(offset, bytes))?;
            if as_other {
                node.drop_privileges();
            }
            Ok(())
        })
    }

    pub fn target(&self, file: INodeNo) -> Result<&OsStr, Errno> {
        match &self.node(file)?.body {
            Body::Symlink(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What comes after a position; 0: all.
    pub fn list(
        &self,
        directory: INodeNo,
        after: u64,
    ) -> Result<impl Iterator<Item = Listed<'_>>, Errno> {
        let node = self.node(directory)?;
        let names = node.directory()?;
        // A directory that was removed may have outlived the one it was in.
        let above = self.node(names.parent).unwrap_or(node);
        let dots = [(DOT, ".", &node.attr), (DOT_DOT, "..", &above.attr)].into_iter();
        let dots = dots.filter(move |(position, ..)| *position > after);
        let dots = dots.map(|(position, name, attr)| {
            let name = OsStr::new(name);
            Listed { position, name, attr, is_dot: true }
        });
        let rest = names.after(after.max(DOT_DOT)).filter_map(|(position, name, file)| {
            let attr = &self.nodes.get(&file)?.attr;
            Some(Listed { position, name, attr, is_dot: false })
        });
        Ok(dots.chain(rest))
    }

    fn node(&self, file: INodeNo) -> Result<&Node, Errno> {
        self.nodes.get(&file).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, file: INodeNo) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&file).ok_or(Errno::ENOENT)
    }

    fn is_free(&self, (parent, name): Place<'_>) -> Result<(), Errno> {
        let node = self.node(parent)?;
        match node.directory()?.find(name) {
            Some(_) => Err(Errno::EEXIST),
            None if node.attr.nlink == 0 => Err(Errno::ENOENT),
            None if name.len() > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
            None => Ok(()),
        }
    }

    fn can_replace(&self, there: &FileAttr, moved: &FileAttr) -> Result<(), Errno> {
        match (there.kind, moved.kind) {
            (FileType::Directory, FileType::Directory) => {
                let is_empty = self.node(there.ino)?.directory()?.is_empty();
                if is_empty { Ok(()) } else { Err(Errno::ENOTEMPTY) }
            }
            (FileType::Directory, _) => Err(Errno::EISDIR),
            (_, FileType::Directory) => Err(Errno::ENOTDIR),
            _ => Ok(()),
        }
    }

    fn move_to(&mut self, from: Place<'_>, to: Place<'_>, at: Moment) -> Result<(), Errno> {
        let file = self.take(from, at)?;
        self.put(to.0, to.1, file, at)?;
        self.node_mut(file)?.attr.ctime = at;
        Ok(())
    }

    fn exchange(
        &mut self,
        (one, first): (Place<'_>, INodeNo),
        (other, second): (Place<'_>, INodeNo),
        at: Moment,
    ) -> Result<(), Errno> {
        self.take(one, at)?;
        self.take(other, at)?;
        self.put(one.0, one.1, second, at)?;
        self.put(other.0, other.1, first, at)?;
        for file in [first, second] {
            self.node_mut(file)?.attr.ctime = at;
        }
        Ok(())
    }

    fn put(
        &mut self,
        parent: INodeNo,
        name: &OsStr,
        file: INodeNo,
        at: Moment,
    ) -> Result<(), Errno> {
        let node = self.node_mut(file)?;
        let is_directory = match &mut node.body {
            Body::Directory(directory) => {
                directory.parent = parent;
                true
            }
            _ => false,
        };
        let above = self.node_mut(parent)?;
        above.directory_mut()?.put(name, file);
        above.attr.nlink += u32::from(is_directory);
        (above.attr.mtime, above.attr.ctime) = (at, at);
        Ok(())
    }

    fn take(&mut self, place: Place<'_>, at: Moment) -> Result<INodeNo, Errno> {
        let is_directory = self.find(place)?.kind == FileType::Directory;
        let (parent, name) = place;
        let above = self.node_mut(parent)?;
        let file = above.directory_mut()?.take(name).ok_or(Errno::ENOENT)?;
        above.attr.nlink = above.attr.nlink.saturating_sub(u32::from(is_directory));
        (above.attr.mtime, above.attr.ctime) = (at, at);
        Ok(file)
    }

    fn lose_name(&mut self, file: INodeNo, at: Moment) -> Result<(), Errno> {
        let node = self.node_mut(file)?;
        let is_directory = node.attr.kind == FileType::Directory;
        node.attr.nlink = if is_directory { 0 } else { node.attr.nlink.saturating_sub(1) };
        node.attr.ctime = at;
        self.drop_if_unused(file);
        Ok(())
    }

    fn drop_if_unused(&mut self, file: INodeNo) {
        if let Some(node) = self.nodes.get(&file)
            && node.attr.nlink == 0
            && node.known == 0
        {
            if let Body::File(contents) = &node.body {
                self.bytes -= contents.bytes();
            }
            self.nodes.remove(&file);
        }
    }

    /// Does something that makes a file so long, if there is room for that.
    fn change(
        &mut self,
        file: INodeNo,
        size: u64,
        change: impl FnOnce(&mut Node) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (bytes, bytes_max) = (self.bytes, self.bytes_max);
        let node = self.node_mut(file)?;
        node.contents()?;
        let before = node.attr.size;
        if size > before && bytes.saturating_add(size - before) > bytes_max {
            return Err(Errno::ENOSPC);
        }
        change(node)?;
        let after = node.attr.size;
        self.bytes = bytes - before + after;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
