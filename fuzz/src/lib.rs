//! What the targets share: a place for files that costs no disk, and the check of a message.
//! Never: is built with FarFS.

use minicbor::{Decode, Encode};
use std::fmt::Debug;
use std::path::Path;
use tempfile::TempDir;

/// A directory of its own for one input, in memory where there is such a place.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("there is room for small files")
}

/// What can be read can be written, and is then read as the same.
pub fn read_back<M: Debug + PartialEq + Encode<()> + for<'b> Decode<'b, ()>>(bytes: &[u8]) {
    if let Ok(message) = minicbor::decode::<M>(bytes) {
        let written = minicbor::to_vec(&message).expect("a vector takes every byte");
        assert_eq!(minicbor::decode::<M>(&written).expect("just encoded"), message);
    }
}
