//! What people do with files, in phases that are measured one by one.

mod andrew;
mod copy;
mod document;
mod edit;
mod git;
mod sequential;
mod small;
pub mod tree;
mod unpack;
mod walk;

use crate::source::Source;
use crate::stage::Stage;
use anyhow::Result;
use bench::Profile;

/// What a workload can draw on: the C program, and how much the link can be asked to carry.
pub struct Material<'a> {
    pub source: &'a Source,
    pub profile: &'a Profile,
}

pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&mut Stage, &Material) -> Result<()>,
}

#[rustfmt::skip]
pub const ALL: &[Workload] = &[
    Workload { name: "andrew", about: "make directories, copy, scan, read, build a C program", run: andrew::run },
    Workload { name: "edit", about: "change a file of a built program and build it again", run: edit::run },
    Workload { name: "document", about: "open a document of 1.4 MB, and save it after small changes", run: document::run },
    Workload { name: "git", about: "clone, status, commit, gc, fsck", run: git::run },
    Workload { name: "walk", about: "ls -lR and find over 5,000 files, cold and warm", run: walk::run },
    Workload { name: "unpack", about: "unpack a tar of 2.5 MB", run: unpack::run },
    Workload { name: "small", about: "create, stat, rename, unlink, one file at a time", run: small::run },
    Workload { name: "sequential", about: "write and read a large file that does not compress", run: sequential::run },
    Workload { name: "copy", about: "copy a tree of 2.5 MB within the volume", run: copy::copy },
    Workload { name: "reread", about: "read a tree of 2.5 MB twice", run: copy::reread },
];

pub fn named(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}
