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
use store::embedded::GivenUp;

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
/// attributes, versions, volumes, devices), a lost tables.redb or server.pem, the last changes where
/// tables.log is damaged or gone, and chunks that no device has. Keep a copy of the directory as it is,
/// and put all of a backup of one moment back. Who has none, and whose tables.log alone is the matter,
/// goes on without the last changes: --repair --without-log keeps those before the first damage of the
/// log, and puts it aside as tables.log.given-up-N.
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
     farfs check --data /srv/farfs --repair --without-log
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
    /// Where tables.log is damaged or gone and there is no backup: give up the changes from the first
    /// damage on. The server is set back by them, and devices that know of them say so
    #[arg(long, requires = "repair")]
    without_log: bool,
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
            if self.without_log {
                give_up_log(data)?;
            }
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

fn give_up_log(data: &Path) -> Result<()> {
    let given_up = data::give_up_log(data).map_err(|error| not_mended(data, error))?;
    let Some(given_up) = given_up else {
        return Err(fail(
            Exit::Usage,
            format!(
                "the log of the tables in {} is whole, or not needed, and nothing of it is given up: \
                 repair without --without-log",
                data.display()
            ),
        ));
    };
    output::line(&given_up_line(&given_up))
}

fn given_up_line(GivenUp { why, aside, kept, lost }: &GivenUp) -> String {
    let kept = match kept {
        0 => "nothing".to_owned(),
        kept => format!("{} from before that", units::count(*kept, "change")),
    };
    let lost = match lost {
        None => "nobody knows how much".to_owned(),
        Some(0) => "nothing that is known of".to_owned(),
        Some(lost) => format!("{} at least", units::count(*lost, "change")),
    };
    let aside = aside.as_ref().map_or(String::new(), |aside| {
        format!(" What there is of the log lies in {} now.", aside.display())
    });
    format!(
        "{why}: the tables go on without it (kept of it: {kept}; lost: {lost}).{aside} Devices that know \
         of what is lost say that the server was set back: once what they have of it is copied \
         elsewhere, mount them with --accept-set-back. Let those that wrote last come back first: with \
         as many changes again it does not show any more"
    )
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
    fn of_a_log_that_was_given_up_is_said_what_is_kept_and_what_is_lost() {
        let gone = GivenUp { why: "it is missing".into(), aside: None, kept: 0, lost: None };
        let said = given_up_line(&gone);
        assert!(said.contains("(kept of it: nothing; lost: nobody knows how much). Dev"), "{said}");
        let aside = Some(PathBuf::from("/aside"));
        let said = given_up_line(&GivenUp { aside, kept: 1, lost: Some(2), ..gone.clone() });
        let wanted = "(kept of it: 1 change from before that; lost: 2 changes at least). What";
        assert!(said.contains(wanted) && said.contains("in /aside now."), "{said}");
        let said = given_up_line(&GivenUp { kept: 2, lost: Some(0), ..gone });
        assert!(said.contains("lost: nothing that is known of)"), "{said}");
    }

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
