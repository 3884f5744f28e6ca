//! `farfs history`.

use crate::exit::{self, Exit};
use crate::past::{self, Asked};
use crate::{output, units};
use anyhow::Result;
use model::{Kind, ReplicaId};
use protocol::past::{Changed, Found, History as Told, Past, VERSIONS_TOLD_MAX, Version};
use serde::Serialize;
use std::path::PathBuf;

/// List the versions that are kept of a file, the newest first
///
/// A version is called v and a number, which `farfs restore` takes. What was removed is listed by
/// the path that it had; a file that others were put in the place of, as many programs save, has
/// one history; and of what was renamed the versions before are listed too. How long versions are
/// kept is set with `farfs volume set`; what a snapshot shows is kept as long as the snapshot.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs history ~/work/report.txt
     farfs history --json ~/work/report.txt
     farfs history --data /srv/farfs --volume main docs/report.txt    (at the server)",
    &[Exit::NotFound, Exit::Unreachable],
))]
pub struct History {
    /// A path in a mount, whether or not there is anything now; with --data, from the volume's root
    path: PathBuf,
    #[command(flatten)]
    server: Server,
    /// The most that are listed
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    max: u32,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// Where it is run on the server.
#[derive(clap::Args)]
pub struct Server {
    /// The server's data directory, where this is run on the server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The volume, with --data
    #[arg(long, value_name = "NAME", default_value = crate::data::MAIN_VOLUME, requires = "data")]
    volume: String,
}

impl Server {
    pub fn asked(&self, path: &std::path::Path) -> Result<Asked> {
        match &self.data {
            Some(data) => Ok(Asked::Server { data: data.clone(), volume: self.volume.clone() }),
            None => Asked::of(path, None),
        }
    }
}

impl History {
    pub fn run(self) -> Result<()> {
        let asked = self.server.asked(&self.path)?;
        let path = asked.names(&self.path)?;
        let mut versions: Vec<Version> = Vec::new();
        let by = asked.by();
        let mut more = true;
        while let Some(left) = self.max.checked_sub(versions.len() as u32).filter(|_| more)
            && left > 0
        {
            let before = versions.last().map(|version| version.since);
            let versions_max = left.min(VERSIONS_TOLD_MAX);
            let past = Past::History { path: path.clone(), before, versions_max, by: by.clone() };
            let told = match asked.ask(&past)? {
                Found::History(told) => told,
                Found::Not(why) => return Err(past::not(&why)),
                _ => return Err(past::unexpected()),
            };
            let Told { versions: next, more: goes_on } = told;
            more = goes_on && !next.is_empty();
            versions.extend(next);
        }
        if self.json {
            return output::json(&versions.iter().map(Shown::of).collect::<Vec<_>>());
        }
        let mut text: String = versions.iter().map(|version| line(version) + "\n").collect();
        if more {
            text.push_str("there are more (--max)\n");
        }
        output::text(&text)
    }
}

fn line(version: &Version) -> String {
    let Shown { version: name, changes, size, .. } = Shown::of(version);
    let at = units::show_time(version.at);
    let by = by(version);
    let size = size.map(|size| format!("  {}", units::show_size(size))).unwrap_or_default();
    let pruned = version.looks.as_ref().is_some_and(|looks| looks.pruned);
    let kept = if pruned { "  (contents not kept)" } else { "" };
    format!("{name}  {at}  {by}{size}  {}{kept}", changes.join(", "))
}

fn by(version: &Version) -> String {
    match &version.device {
        Some(device) => device.clone(),
        None if version.by == ReplicaId::ORIGIN => "the server".to_owned(),
        None => version.by.to_string(),
    }
}

#[derive(Serialize)]
struct Shown {
    version: String,
    /// Seconds after 1970, by the clock of who made it.
    at: i64,
    by: String,
    changes: Vec<String>,
    /// Of a file that there was.
    kind: Option<&'static str>,
    size: Option<u64>,
    mode: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
    modified_at: Option<i64>,
    /// Whether the contents can be had.
    contents_kept: bool,
}

impl Shown {
    fn of(version: &Version) -> Shown {
        let looks = version.looks.as_ref();
        let sized = looks.filter(|looks| looks.kind == Kind::File);
        Shown {
            version: format!("v{}", version.since.0),
            at: version.at.secs,
            by: by(version),
            changes: version.changes.iter().map(word).collect(),
            kind: looks.map(|looks| kind(looks.kind)),
            size: sized.map(|looks| looks.size),
            mode: looks.map(|looks| format!("{:04o}", looks.mode)),
            uid: looks.map(|looks| looks.uid),
            gid: looks.map(|looks| looks.gid),
            modified_at: looks.map(|looks| looks.mtime.secs),
            contents_kept: sized.is_some_and(|looks| !looks.pruned),
        }
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "pipe",
        Kind::Socket => "socket",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
    }
}

fn word(change: &Changed) -> String {
    match change {
        Changed::Made => "made".into(),
        Changed::Contents => "contents".into(),
        Changed::Mode => "mode".into(),
        Changed::Owner => "owner".into(),
        Changed::Times => "times".into(),
        Changed::Xattrs => "extended attributes".into(),
        Changed::Links => "names".into(),
        Changed::Moved(from) => {
            let names: Vec<_> = from.iter().map(ToString::to_string).collect();
            format!("renamed from {}", output::name(&names.join("/")))
        }
        Changed::Replaced => "put in place of another".into(),
        Changed::Removed => "removed".into(),
        Changed::Kept => "the oldest that is kept".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Name, Seq, Time};
    use protocol::past::Looks;

    #[test]
    fn a_version_is_told_in_one_line() {
        let at = Time { secs: 951_782_399, nanos: 0 };
        let looks = Looks {
            kind: Kind::File,
            size: 1536,
            mode: 0o644,
            uid: 1,
            gid: 2,
            mtime: at,
            pruned: false,
        };
        let name = Name::new(*b"old").unwrap();
        let version = Version {
            since: Seq(7),
            at,
            by: ReplicaId(3),
            device: Some("laptop".into()),
            changes: vec![Changed::Contents, Changed::Moved(vec![name])],
            looks: Some(looks),
        };
        let expected = "v7  2000-02-28 23:59:59 UTC  laptop  1.5 KiB  contents, renamed from old";
        assert_eq!(line(&version), expected);
        let gone = Version {
            device: None,
            by: ReplicaId::ORIGIN,
            changes: vec![Changed::Removed],
            looks: None,
            ..version
        };
        assert_eq!(line(&gone), "v7  2000-02-28 23:59:59 UTC  the server  removed");
    }
}
