//! A process that may have few descriptors. It is one of its own: a limit is for all of it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
#![allow(clippy::disallowed_methods, reason = "opens files to see whether it can")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Blobs;
use store::packs::Packs;

const FEW: u64 = 64;
const PACK_BYTES: u64 = 1000;
const SOME: u64 = FEW / 2;

#[test]
fn packs_that_are_kept_open_leave_descriptors_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let packs = Packs::open_with_packs(directory.path(), PACK_BYTES).unwrap();
    let blob = vec![7; PACK_BYTES as usize];
    (0..2 * FEW).for_each(|number| packs.put(&number.to_be_bytes(), &blob).unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), maximum }).unwrap();
    let read = |number: u64| packs.get(&number.to_be_bytes()).unwrap();
    assert!((0..2 * FEW).all(|number| read(number).as_ref() == Some(&blob)));
    let others = (0..SOME).map(|_| std::fs::File::open(directory.path()));
    assert!(others.collect::<Result<Vec<_>, _>>().is_ok());
}
