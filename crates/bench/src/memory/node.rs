//! One file of any kind, in memory: what stat(2) shows of it, and what is in it.
//! Holds: the size that is shown is that of what is in it.

use super::contents::Contents;
use super::directory::Directory;
use fuse::{Errno, FileAttr, FileType, INodeNo, SetAttributes, SetTime};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Since 1970: seconds, and nanoseconds beyond them.
pub type Moment = (i64, u32);

/// What programs are told to read and write at a time: as much as FarFS tells them.
const IO_BYTES: u32 = 128 << 10;
/// Of a block as `stat` counts them.
const BLOCK_BYTES: u64 = 512;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_RUNS: u16 = 0o010;

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    pub kind: FileType,
    pub perm: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a device.
    pub rdev: u32,
    /// Of a symbolic link.
    pub target: &'a OsStr,
}

#[derive(Debug)]
pub struct Node {
    pub attr: FileAttr,
    /// So many times the kernel was told of it, and has not forgotten it.
    pub known: u64,
    pub body: Body,
}

#[derive(Debug)]
pub enum Body {
    File(Contents),
    Directory(Directory),
    Symlink(OsString),
    /// A pipe, a socket or a device: the kernel does the rest.
    Special,
}

impl Node {
    /// Without a name: `parent` has none for it yet.
    pub fn new(file: INodeNo, parent: INodeNo, new: &New<'_>, at: Moment) -> Node {
        let body = match new.kind {
            FileType::RegularFile => Body::File(Contents::default()),
            FileType::Directory => Body::Directory(Directory::new(parent)),
            FileType::Symlink => Body::Symlink(new.target.to_owned()),
            _ => Body::Special,
        };
        let attr = FileAttr {
            ino: file,
            number: file,
            size: new.target.as_bytes().len() as u64,
            blocks: 0,
            atime: at,
            mtime: at,
            ctime: at,
            born: Some(at),
            kind: new.kind,
            perm: permissions(new.perm),
            nlink: 0,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            blksize: IO_BYTES,
        };
        Node { attr, known: 0, body }
    }

    pub fn directory(&self) -> Result<&Directory, Errno> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub fn directory_mut(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub fn contents(&self) -> Result<&Contents, Errno> {
        match &self.body {
            Body::File(contents) => Ok(contents),
            _ => Err(no_contents(&self.attr)),
        }
    }

    pub fn change(
        &mut self,
        at: Moment,
        change: impl FnOnce(&mut Contents) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Body::File(contents) = &mut self.body else { return Err(no_contents(&self.attr)) };
        change(contents)?;
        self.attr.size = contents.bytes();
        self.attr.blocks = self.attr.size.div_ceil(BLOCK_BYTES);
        (self.attr.mtime, self.attr.ctime) = (at, at);
        Ok(())
    }

    /// All but the size.
    pub fn set(&mut self, set: &SetAttributes, at: Moment) {
        let time = |set: SetTime| match set {
            SetTime::Now => at,
            SetTime::At(moment) => moment,
        };
        if set.uid.is_some() || set.gid.is_some() {
            self.drop_privileges();
        }
        let attr = &mut self.attr;
        attr.perm = set.mode.map_or(attr.perm, permissions);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = at;
    }

    /// The kernel leaves it to the file system that the set-id bits go when others write.
    pub fn drop_privileges(&mut self) {
        if self.attr.kind == FileType::Directory {
            return;
        }
        self.attr.perm &= !SET_USER_ID;
        if self.attr.perm & GROUP_RUNS != 0 {
            self.attr.perm &= !SET_GROUP_ID;
        }
    }

    /// As what is made in this directory is made.
    pub fn inherited<'a>(&self, new: &New<'a>) -> New<'a> {
        if self.attr.perm & SET_GROUP_ID == 0 {
            return *new;
        }
        let bit = if new.kind == FileType::Directory { u32::from(SET_GROUP_ID) } else { 0 };
        New { gid: self.attr.gid, perm: new.perm | bit, ..*new }
    }
}

fn no_contents(attr: &FileAttr) -> Errno {
    if attr.kind == FileType::Directory { Errno::EISDIR } else { Errno::EINVAL }
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}
