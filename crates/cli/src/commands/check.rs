//! `farfs check`.

use crate::data;
use crate::exit::{self, Exit, fail};
use crate::mounts::{self, Entry};
use crate::orders::{self, Order};
use crate::progress::Progress;
use crate::upkeep::Findings;
use crate::{output, questions, show, units};
use anyhow::{Error, Result};
use client::{ReadThrough, Wrong};
use std::path::{Path, PathBuf};

/// Check a server's store, or the cache of a mount, whole
///
/// Reads everything there is, and says of everything that is wrong which file it is about and what
/// to do: a line each on standard output, and a summary at the end.
///
/// Of a server (--data): tables, names, links, versions, chunks. With --repair, which needs the server
/// stopped, these are mended: the index of the chunks, rows that follow from other rows (references,
/// counts), and damaged packs, of which what is sound is written anew. Chunks that are damaged count
/// as missing: devices that have them in their caches are asked for them when they attach or renew
/// their leases, within seconds where they are in use and the server runs. Check again then to see
/// what is left.
///
/// Only a backup brings back the rest: damaged rows of tables.redb that nothing else says (names,
/// attributes, versions, volumes, devices), a lost tables.redb or server.pem, and chunks that no
/// device has. Keep a copy of the directory as it is, and put all of a backup of one moment back.
///
/// Where the directory cannot be written to (a disk that the kernel has made read-only, a snapshot, a
/// backup; or this user may only read it), it is looked at as it is, and nothing in it changes: what opening
/// it would mend is seen as if it were mended, what is missing is not noted, and a line says so. What would
/// be written takes up to 128 MiB of memory then, and beyond that room in TMPDIR.
///
/// Of a mount: what the cache holds of the server's versions is compared with what they should be, and
/// what differs is mended, from the server where the cache has it nowhere else. What is pending is
/// compared with what was written, and what was altered or is lost of it is said. What is being written is
/// not compared. A mount does so by itself every week. Damage of the state's tables is said, too.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs check --data /srv/farfs
     farfs check --data /srv/farfs --repair
     farfs check ~/work",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Check {
    /// A mount point, or a path in the mount
    #[arg(required_unless_present = "data", conflicts_with_all = ["data", "repair"])]
    mountpoint: Option<PathBuf>,
    /// The server's data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Mend what can be mended
    #[arg(long, requires = "data")]
    repair: bool,
}

impl Check {
    pub fn run(self) -> Result<()> {
        match (&self.mountpoint, &self.data) {
            (Some(mountpoint), _) => cache(&mounts::holding(mountpoint)?),
            (None, Some(data)) => self.store(data),
            (None, None) => Ok(()),
        }
    }

    fn store(&self, data: &Path) -> Result<()> {
        if self.repair {
            data::exists(data)?;
            data::rebuild_index(data).map_err(|error| not_mended(data, error))?;
        }
        let answer = orders::give(data, &Order::Check { repair: self.repair })?;
        let Some(findings) = read(&answer) else { return orders::print(&answer) };
        orders::print(&findings.lines)?;
        match findings.left {
            Some(left) => Err(fail(Exit::Damaged, format!("{}: {left}", data.display()))),
            None => Ok(()),
        }
    }
}

fn not_mended(data: &Path, error: Error) -> Error {
    if !exit::is_read_only(&error) {
        return error;
    }
    error.context(format!(
        "{} lies on a file system that is mounted read-only, and nothing in it can be mended: without \
         --repair it is looked at as it is",
        data.display()
    ))
}

/// Has a mount read through its cache, and says what it has found.
fn cache(mount: &Entry) -> Result<()> {
    let mut progress = Progress::new("checking", true);
    let (mut all, mut next, mut outcome) = (ReadThrough::default(), Some((0, 0)), Ok(()));
    while let Some(at) = next {
        let turn = match questions::read_through(mount, at) {
            Ok(turn) => turn,
            // What is damaged of the tables may be why.
            Err(error) => {
                outcome = Err(error);
                break;
            }
        };
        progress.end();
        for wrong in &turn.wrong {
            output::line(&wrong_line(wrong))?;
        }
        all.files += turn.files;
        all.bytes += turn.bytes;
        all.unknown += turn.unknown;
        all.wrong.extend(turn.wrong);
        progress.tell(&read_so_far(&all));
        next = turn.next;
    }
    progress.end();
    let status = questions::status(mount)?;
    show::state_damage(&status).iter().try_for_each(|what| output::line(what))?;
    let places = status.state_damage.len() as u64;
    if outcome.is_ok() {
        output::line(&summary(&all, places))?;
    }
    match left_wrong(&all, places) {
        Some(left) => {
            let mountpoint = mount.mountpoint.display();
            Err(fail(Exit::Damaged, format!("{mountpoint}: {left}")))
        }
        None => outcome,
    }
}

/// What is wrong still, in the cache or in so many places of the state. None: nothing.
fn left_wrong(all: &ReadThrough, state: u64) -> Option<String> {
    let left = all.wrong.iter().filter(|wrong| wrong.left.is_some()).count() as u64;
    let places = (left + state > 0).then(|| units::count(left + state, "place"))?;
    Some(format!("{places} could not be mended"))
}

fn wrong_line(wrong: &Wrong) -> String {
    let (path, bytes) = (&wrong.path, units::show_size(wrong.bytes));
    match &wrong.left {
        None => format!("{path}: {bytes} were not as the server has them, and are mended"),
        Some(left) if wrong.unsent => {
            format!("{path}: {bytes} of what was written here and not sent are {left}")
        }
        Some(left) if wrong.bytes == 0 => format!("{path}: cannot be looked at: {left}"),
        Some(left) => format!("{path}: {bytes} are not as the server has them: {left}"),
    }
}

fn read_so_far(all: &ReadThrough) -> String {
    format!("{}, {}", units::count(all.files, "file"), units::show_size(all.bytes))
}

fn summary(all: &ReadThrough, state: u64) -> String {
    let mut said = format!("{} of the cache read", read_so_far(all));
    match all.wrong.len() as u64 + state {
        0 => said.push_str(", nothing wrong"),
        wrong => said.push_str(&format!(", wrong in {}", units::count(wrong, "place"))),
    }
    if all.unknown > 0 {
        let files = units::count(all.unknown, "file");
        said.push_str(&format!("; of {files} it is not known here what they should be"));
    }
    said
}

/// None: a server that has been running since before findings were told apart answers in lines.
fn read(answer: &[String]) -> Option<Findings> {
    match answer {
        [line] => serde_json::from_str(line).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_state_is_wrong_whatever_the_cache_holds() {
        let mut all = ReadThrough::default();
        assert_eq!(left_wrong(&all, 0), None);
        assert!(summary(&all, 0).ends_with("nothing wrong"));
        assert_eq!(left_wrong(&all, 1).as_deref(), Some("1 place could not be mended"));
        assert!(summary(&all, 1).ends_with("wrong in 1 place"));
        let wrong = Wrong { path: "a".into(), bytes: 5, left: None, unsent: false };
        all.wrong.push(wrong.clone());
        assert_eq!(left_wrong(&all, 0), None, "it was mended");
        let lost = Wrong { left: Some("lost: why".into()), unsent: true, ..wrong };
        assert!(wrong_line(&lost).ends_with("written here and not sent are lost: why"));
        all.wrong.push(lost);
        assert_eq!(left_wrong(&all, 1).as_deref(), Some("2 places could not be mended"));
    }
}
