//! What people do with files, in phases that are measured one by one.

mod andrew;
mod archive;
mod colleague;
mod copy;
mod document;
mod docx;
mod edit;
pub mod git;
pub mod insert;
mod recompile;
mod release;
mod sequential;
mod small;
mod speed;
pub mod tree;
mod unpack;
mod walk;

use crate::source::{self, Source};
use crate::stage::Stage;
use anyhow::Result;
use bench::Profile;
use insert::Insert;
use std::path::{Path, PathBuf};

/// What a workload can draw on: the C program, and how much the link can be asked to carry.
#[derive(Clone, Copy)]
pub struct Material<'a> {
    pub source: &'a Source,
    pub profile: &'a Profile,
    /// Where what is fetched is kept.
    pub data: &'a Path,
    pub insert: Insert,
}

impl Material<'_> {
    /// The release before that of `source`.
    pub fn before(&self) -> Result<Source> {
        Source::before(self.data)
    }

    /// The program, built.
    pub fn built(&self) -> Result<PathBuf> {
        source::built(self.data)
    }
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
    Workload { name: "docx", about: "open a docx of 1.4 MB, and save it after small changes, packed anew", run: docx::run },
    Workload { name: "recompile", about: "put a function into a file of a built program that is in the cache, and make", run: recompile::run },
    Workload { name: "archive", about: "make a library of objects, twice, and again after one was compiled", run: archive::run },
    Workload { name: "release", about: "unpack the next release of a program over the one before", run: release::run },
    Workload { name: "insert", about: "put a byte at the start of a large file", run: insert::run },
    Workload { name: "git", about: "clone, status, commit, gc, fsck", run: git::run },
    Workload { name: "walk", about: "ls -lR and find over 5,000 files, cold and warm", run: walk::run },
    Workload { name: "unpack", about: "unpack a tar of 2.5 MB", run: unpack::run },
    Workload { name: "small", about: "create, stat, rename, unlink, one file at a time", run: small::run },
    Workload { name: "sequential", about: "write and read a large file that does not compress", run: sequential::run },
    Workload { name: "speed", about: "what is in the cache, and 5,000 files unpacked, as on a local disk", run: speed::run },
    Workload { name: "copy", about: "copy a tree of 2.5 MB within the volume", run: copy::copy },
    Workload { name: "colleague", about: "read somebody else's tree for the first time, before and after it was built", run: colleague::run },
    Workload { name: "reread", about: "read a tree of 2.5 MB twice", run: copy::reread },
];

/// What LBFS's results are made of: saving once, with the document in the cache.
pub const SAVE_TEXT: Workload =
    Workload { name: "save text", about: "save a document", run: document::run_save };
pub const SAVE_DOCX: Workload =
    Workload { name: "save docx", about: "save a docx", run: docx::run_save };

pub fn named(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}
