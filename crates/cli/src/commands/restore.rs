//! `farfs restore`.

use super::history::Server;
use crate::exit::{self, Exit, fail};
use crate::past::{self, Asked};
use crate::units::{self, Patience};
use crate::{output, owner};
use anyhow::Result;
use model::{Seq, snapshot_name};
use protocol::past::{Found, NotFound, Past, Restored, Then};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bring back an earlier version of a file or directory
///
/// Contents and attributes become the newest version, or a new file if nothing is there; nothing
/// of the contents travels. What is there now stays among the versions. A directory is brought
/// back with all that was in it: what came into it since stays, what was changed or removed is as
/// it was.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs restore ~/work/report.txt@v1234             (a version that `farfs history` lists)
     farfs restore ~/work/report.txt@before-the-move   (as a snapshot shows it)
     farfs restore ~/work/project@2026-11-20T10:00     (as it was then, in UTC)
     farfs restore ~/work/report.txt@v1234 --to ~/work/report-old.txt
     farfs restore --data /srv/farfs --volume main docs@weekly    (at the server)",
    &[Exit::NotFound, Exit::Unreachable, Exit::Pending],
))]
pub struct Restore {
    /// What to bring back, and its version: PATH@vNUMBER, PATH@SNAPSHOT or PATH@TIME
    ///
    /// Where a snapshot is called as a time is written, it is the snapshot.
    #[arg(value_name = "PATH@VERSION")]
    what: OsString,
    /// Where it is to be, if not where it was
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// How long to go on sending what is not yet at the server
    #[arg(long, value_name = "TIME", default_value = "60s")]
    timeout: Patience,
}

impl Restore {
    pub fn run(self) -> Result<()> {
        let (path, version) = parted(&self.what)?;
        let asked = self.server.asked(path)?;
        let names = asked.names(path)?;
        let to = self.to.as_deref().map(|to| asked.names_as_they_are(to)).transpose()?;
        // What was changed here before is a version before this.
        asked.send_first(self.timeout.0)?;
        let owner = owner::Owner::caller();
        let mut last = None;
        for then in meant(&version)? {
            let (names, to) = (names.clone(), to.clone());
            let restore = protocol::past::Restore {
                path: names,
                then: then.clone(),
                to,
                uid: owner.uid,
                gid: owner.gid,
                groups: owner::Owner::groups_of_caller(),
                over_others: None,
            };
            match answered(&asked, restore)? {
                Ok(done) => return output::line(&told(&done)),
                Err(why @ NotFound::NoSnapshot(_)) => last = Some(why),
                Err(why) => return Err(not_found(&then, path, &why)),
            }
        }
        Err(last.map_or_else(past::unexpected, |why| no_snapshot(&version, &why)))
    }
}

/// A number that `farfs history` does not list is more likely a slip than a time at which the file
/// was not there.
fn not_found(then: &Then, path: &Path, why: &NotFound) -> anyhow::Error {
    let (Then::Version(version), NotFound::NotThen(_)) = (then, why) else { return past::not(why) };
    let path = path.display();
    let what = format!(
        "{path} has no version v{} that is kept; `farfs history {path}` lists those that there are",
        version.0
    );
    fail(Exit::NotFound, what)
}

/// What begins as a day does is more likely meant as a time than as a snapshot.
fn no_snapshot(version: &str, why: &NotFound) -> anyhow::Error {
    let is_year = |word: &str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    if !version.split_once('-').is_some_and(|(word, _)| is_year(word)) {
        return past::not(why);
    }
    fail(
        Exit::NotFound,
        format!(
            "there is no snapshot {version}, and no such time either: times are days from 1970 on, in UTC, \
             as 2026-11-20 or 2026-11-20T10:00"
        ),
    )
}

fn answered(asked: &Asked, restore: protocol::past::Restore) -> Result<Result<Restored, NotFound>> {
    match asked.ask(&Past::Restore(restore))? {
        Found::Restored(done) => Ok(Ok(done)),
        Found::Not(why) => Ok(Err(why)),
        _ => Err(past::unexpected()),
    }
}

/// The path before the last `@`, and what comes after it.
fn parted(what: &OsStr) -> Result<(&Path, String)> {
    let bytes = what.as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'@').filter(|at| at + 1 < bytes.len());
    let Some(at) = at else {
        return Err(fail(
            Exit::Usage,
            format!(
                "{} names no version: PATH@v1234, PATH@SNAPSHOT or PATH@2026-11-20T10:00 \
                 (`farfs history` and `farfs snapshot list` show them)",
                what.display()
            ),
        ));
    };
    let version = OsString::from_vec(bytes[at + 1..].to_vec());
    Ok((Path::new(OsStr::from_bytes(&bytes[..at])), version.to_string_lossy().into_owned()))
}

/// What a version may mean, the first that there is.
fn meant(version: &str) -> Result<Vec<Then>> {
    let number = version.strip_prefix('v').and_then(|number| number.parse().ok());
    if let Some(number) = number {
        return Ok(vec![Then::Version(Seq(number))]);
    }
    let mut meant = Vec::new();
    if snapshot_name(version).is_ok() {
        meant.push(Then::Snapshot(version.to_owned()));
    }
    meant.extend(units::time(version).map(Then::Time));
    if meant.is_empty() {
        return Err(fail(
            Exit::Usage,
            format!(
                "{version:?} is no version: say v and a number, a snapshot, or a time such as \
                 2026-11-20 or 2026-11-20T10:00"
            ),
        ));
    }
    Ok(meant)
}

fn told(done: &Restored) -> String {
    let mut parts = Vec::new();
    for (number, what) in [(done.made, "made"), (done.changed, "changed"), (done.same, "the same")]
    {
        if number > 0 {
            parts.push(format!("{} {what}", units::count(number, "file")));
        }
    }
    match done.directories {
        None | Some(0) => {}
        Some(1) => parts.push("1 directory made or changed".to_owned()),
        Some(number) => parts.push(format!("{number} directories made or changed")),
    }
    if parts.is_empty() {
        "nothing is in it, and it is as it was".to_owned()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Time;

    #[test]
    fn the_version_is_what_comes_after_the_last_at() {
        let (path, version) = parted(OsStr::new("a@b/c@v7")).unwrap();
        assert_eq!((path, version.as_str()), (Path::new("a@b/c"), "v7"));
        assert!(parted(OsStr::new("a")).is_err() && parted(OsStr::new("a@")).is_err());
    }

    #[test]
    fn a_version_is_a_number_a_snapshot_or_a_time() {
        assert_eq!(meant("v12").unwrap(), [Then::Version(Seq(12))]);
        assert_eq!(meant("weekly").unwrap(), [Then::Snapshot("weekly".into())]);
        let time = Then::Time(Time { secs: 951_782_400, nanos: 0 });
        assert_eq!(meant("2000-02-29").unwrap(), [Then::Snapshot("2000-02-29".into()), time]);
        assert!(meant(".x").is_err());
    }

    #[test]
    fn a_time_that_there_cannot_be_is_not_called_a_snapshot_alone() {
        let said = |version: &str| {
            assert_eq!(meant(version).unwrap().len(), 1, "it is no time");
            no_snapshot(version, &NotFound::NoSnapshot(version.into())).to_string()
        };
        for time in ["1960-01-01T00:00", "2026-13-01"] {
            assert!(said(time).contains("no such time"), "{}", said(time));
        }
        for name in ["weekly", "before-2026", "123-a"] {
            assert!(!said(name).contains("time"), "{}", said(name));
        }
    }

    #[test]
    fn what_was_done_is_told_in_one_line() {
        let with = |made, changed, same, directories| {
            told(&Restored { made, changed, same, directories: Some(directories) })
        };
        assert_eq!(with(1, 0, 2, 0), "1 file made, 2 files the same");
        assert_eq!(with(0, 1, 0, 1), "1 file changed, 1 directory made or changed");
        assert_eq!(with(0, 0, 0, 2), "2 directories made or changed");
        assert_eq!(with(0, 0, 0, 0), "nothing is in it, and it is as it was");
        assert_eq!(told(&Restored::default()), "nothing is in it, and it is as it was");
    }

    #[test]
    fn a_version_that_there_is_not_is_told_from_a_file_that_was_not_there() {
        let why = || NotFound::NotThen("/a".into());
        let number = not_found(&Then::Version(Seq(99)), Path::new("m/a"), &why()).to_string();
        assert!(number.starts_with("m/a has no version v99"), "{number}");
        assert!(number.contains("`farfs history m/a`"), "{number}");
        let time = Then::Time(Time { secs: 0, nanos: 0 });
        assert_eq!(not_found(&time, Path::new("m/a"), &why()).to_string(), why().to_string());
    }
}
