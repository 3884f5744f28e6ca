//! A server with a volume and a directory that is kept in step with it, on a machine that can fail,
//! and what was stored there by whom.
#![allow(clippy::disallowed_methods, reason = "the test sees what the server's programs would see")]

use crate::party::{Device, EPOCH_SECS, Party, VOLUME};
use crate::tree::SERVER;
use protocol::{Access, Cutter};
use replica::{Keeper, Limits};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::faulty::Disk;
use tempfile::TempDir;
use world::World;

/// Rounds after which both sides agree, and the time that passes from one to the next.
pub const ROUNDS_MAX: usize = 200;
pub const ROUND: Duration = Duration::from_millis(50);

pub struct Ground {
    pub party: Party,
    pub disk: Disk,
    /// The directory's own disk, where it is another one.
    pub tree_disk: Disk,
    place: Place,
    pub folder: TempDir,
    pub keeper: Keeper,
    pub ada: Device,
}

/// Where the directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the disk of the stores.
    Beside,
    /// On a disk of its own, which does not crash.
    Apart,
}

impl Ground {
    pub async fn new(limits: Limits, place: Place) -> Ground {
        let disk = Disk::new(1);
        let tree_disk = if place == Place::Apart { Disk::new(2) } else { disk.clone() };
        let party = on(&disk, World::simulated(EPOCH_SECS, 1), limits);
        party.origin.create_volume(VOLUME, 1000, 1000, Cutter::Gear).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let tree = tree_disk.tree(folder.path()).unwrap();
        let keeper = party.origin.keep_opened(VOLUME, tree, SERVER).unwrap();
        let ada = party.join_as("ada", Access::ReadWrite).await;
        Ground { party, disk, tree_disk, place, folder, keeper, ada }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The server's process dies, if it has not, and is started again on the same directory. A disk
    /// of its own that the directory has is as it was, full if it was.
    pub async fn restarted(self) -> Ground {
        let Ground { party, disk, tree_disk, place, folder, keeper, ada } = self;
        drop(keeper);
        let disk = disk.restart();
        let party = on(&disk, party.world, party.limits);
        let tree_disk = if place == Place::Apart { tree_disk } else { disk.clone() };
        let tree = tree_disk.tree(folder.path()).unwrap();
        let keeper = party.origin.keep_opened(VOLUME, tree, SERVER).unwrap();
        let ada = party.rejoin(&ada).await;
        Ground { party, disk, tree_disk, place, folder, keeper, ada }
    }
}

fn on(disk: &Disk, world: World, limits: Limits) -> Party {
    Party::on(Arc::new(disk.tables("t")), Arc::new(disk.blobs("b")), world, limits)
}

/// Until both sides agree. False: the process died before.
pub async fn settles(ground: &mut Ground) -> bool {
    for _ in 0..ROUNDS_MAX {
        if ground.keeper.round().is_err() {
            assert!(ground.disk.has_crashed(), "nothing else went wrong");
            return false;
        }
        if ground.keeper.is_settled() && !ground.disk.has_crashed() {
            return true;
        }
        tokio::time::advance(ROUND).await;
    }
    assert!(ground.disk.has_crashed(), "there is always more to do");
    false
}

/// What was stored, and what was replaced or removed by somebody who had it before him.
#[derive(Default)]
pub struct Stories {
    pub told: usize,
    pub stored: BTreeSet<String>,
    pub excused: BTreeSet<String>,
}

impl Stories {
    /// A text that was never stored before.
    pub fn next(&mut self, by: &str) -> String {
        self.told += 1;
        format!("{by} {}", self.told)
    }

    /// All that nobody took away can be seen.
    pub fn all_there(&self, tree: &str) {
        let is_there =
            |text: &&String| tree.lines().any(|line| line.ends_with(&format!(": {text}")));
        let wanted = self.stored.difference(&self.excused);
        let lost: Vec<&String> = wanted.filter(|text| !is_there(text)).collect();
        assert!(lost.is_empty(), "{lost:?} is nowhere:\n{tree}");
    }
}

/// The last name of a path.
pub fn last(path: &str) -> &str {
    path.rsplit('/').next().expect("a path has a last name")
}

/// Plays on a clock that goes on only when nothing is left to do.
pub fn paused(play: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(play);
}

/// Each works on a real directory; `PROPTEST_CASES` asks for more.
pub fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12)
}
