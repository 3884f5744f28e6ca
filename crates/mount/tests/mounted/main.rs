//! A client behind a real kernel: mounts, and what programs then see.
#![allow(clippy::disallowed_methods, reason = "the tests are the programs that use the mount")]
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod accesses;
mod attributes;
mod contents;
mod gone;
mod lifetime;
mod names;
mod others;
mod support;
mod tmpfile;
mod waits;
mod whiteouts;

/// Ends the test where nothing can be mounted, and says why.
macro_rules! needs_fuse {
    () => {
        if let Some(why) = crate::support::hindrance() {
            println!("not run: {why}");
            return;
        }
    };
}
pub(crate) use needs_fuse;
