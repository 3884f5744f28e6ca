//! Seeing to conflicts, through a mount: claimed at the server, then done by ordinary changes, and then
//! the word that it is done.
//! Holds: who has no claim changes nothing; a claim that nothing came of is given back, or ends by
//! itself; what is replaced or removed stays among the versions.
//! From: DESIGN, "Conflicts".
//!
//! Killed before its last word, the conflict is listed still, whatever was done of it: the same device
//! may do the same again at once, and somebody else see to it some minutes later.

mod attributes;
mod listed;
mod merging;
mod settling;
mod storing;
mod undoing;
mod ways;
mod work;

pub use listed::{Listed, line, shown};
pub use merging::{Mergers, Merging, difference};
pub use settling::{Outcome, keep_both, keep_mine, keep_theirs, merge, not_merged};
pub use undoing::{Which, undo};

use crate::commands::wait;
use crate::exit::{Exit, fail};
use crate::mounts::{self, Entry};
use crate::owner;
use crate::past::{self, Asked};
use crate::questions;
use crate::units;
use anyhow::{Context, Result};
use model::{Name, ReplicaId, Stamp};
use protocol::past::{
    By, CLAIM_SECS, CONFLICTS_TOLD_MAX, Claim, ConflictInfo, Conflicts, Found, HiddenConflict,
    NotFound, Past,
};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use ways::{There, Way};

/// How long what was changed may take to the server before a conflict counts as seen to.
const SENT_WITHIN: Duration = Duration::from_secs(60);
/// How long another command at the same mount is waited for.
const TURN_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long this mount may take to show what the server has.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// Contents that are merged.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The only mount, or the one that a path is in.
pub fn mount(path: Option<&Path>) -> Result<Entry> {
    let path = path.map(mounts::absolute).transpose()?;
    mounts::meant(path.as_deref())
}

/// All conflicts of which who asks may know, the oldest first, and where the others lie.
pub fn all(asked: &Asked) -> Result<Conflicts> {
    let (mut all, mut after) = (Conflicts::default(), 0);
    loop {
        let (conflicts_max, by) = (CONFLICTS_TOLD_MAX, asked.by());
        match asked.ask(&Past::Conflicts { after, conflicts_max, by })? {
            Found::Conflicts(told) => {
                let hidden = told.hidden.unwrap_or_default();
                let last = last(told.conflicts.last().map(|one| one.number), &hidden);
                all.conflicts.extend(told.conflicts);
                all.hidden.get_or_insert_default().extend(hidden);
                match last.filter(|_| told.more) {
                    Some(last) => after = last,
                    None => return Ok(all),
                }
            }
            Found::Not(why) => return Err(past::not(&why)),
            _ => return Err(past::unexpected()),
        }
    }
}

/// The number up to which an answer goes.
fn last(told: Option<u64>, hidden: &[HiddenConflict]) -> Option<u64> {
    told.max(hidden.last().map(|one| one.number))
}

/// How many are not shown.
pub fn not_shown(hidden: Option<&[HiddenConflict]>) -> Option<String> {
    let count = hidden.map_or(0, <[_]>::len);
    let why = "in directories that you may not search";
    (count > 0).then(|| format!("not shown, as they are {why}: {count}"))
}

fn hidden(number: u64, directory: &str) -> anyhow::Error {
    let why = NotFound::Hidden(directory.to_owned());
    fail(Exit::Failure, format!("conflict {number}: {why}"))
}

/// Whether nothing bears a name. What cannot be looked at is not taken for gone.
fn is_gone(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
    }
}

/// A mount in which conflicts are seen to.
pub struct Place {
    mount: Entry,
    asked: Asked,
}

fn not_there(conflict: &ConflictInfo, what: &str) -> anyhow::Error {
    let number = conflict.number;
    let text = format!(
        "conflict {number}: {what}; `farfs conflicts keep-both {number}` takes it off the list"
    );
    fail(Exit::NotFound, text)
}

impl Place {
    pub fn of(path: Option<&Path>) -> Result<Place> {
        let asked = Asked::Mount(mount(path)?);
        Ok(Place { mount: mount(path)?, asked })
    }

    pub fn all(&self) -> Result<Conflicts> {
        all(&self.asked)
    }

    /// An error if it lies where who asks may not search: an older server says nothing of that.
    fn may_look(&self, conflict: &ConflictInfo) -> Result<()> {
        for names in [&conflict.path, &conflict.aside].into_iter().flatten() {
            let looked = fs::symlink_metadata(self.path(names));
            if looked.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
                let above = names.split_last().map_or(&[][..], |(_, above)| above);
                return Err(hidden(conflict.number, &format!("/{}", path_of(above))));
            }
        }
        Ok(())
    }

    /// One that is to be seen to, as it is when all that was done here is at the server.
    pub fn find_sent(&self, number: u64) -> Result<ConflictInfo> {
        // First, as without a link nothing is waited for.
        self.find(number)?;
        wait::until_sent(&self.mount, SENT_WITHIN)?;
        self.find(number)
    }

    pub fn all_sent(&self) -> Result<Conflicts> {
        self.all()?;
        wait::until_sent(&self.mount, SENT_WITHIN)?;
        self.all()
    }

    pub fn find(&self, number: u64) -> Result<ConflictInfo> {
        let after = number.saturating_sub(1);
        let by = self.asked.by();
        match self.asked.ask(&Past::Conflicts { after, conflicts_max: 1, by })? {
            Found::Conflicts(told) => {
                let is_it = |one: &&HiddenConflict| one.number == number;
                if let Some(one) = told.hidden.iter().flatten().find(is_it) {
                    return Err(hidden(number, &one.directory));
                }
                let found = told.conflicts.into_iter().find(|one| one.number == number);
                let found = found.ok_or_else(|| past::not(&NotFound::NoConflict(number)))?;
                self.may_look(&found)?;
                Ok(found)
            }
            Found::Not(why) => Err(past::not(&why)),
            _ => Err(past::unexpected()),
        }
    }

    /// Does `work` while nobody else sees to the conflict, and once all that was changed here is at
    /// the server it is listed no more. `seen`: the version of what has the name that `work` goes by;
    /// where that is another one by now, nothing is done.
    fn settled_by(
        &self,
        conflict: &ConflictInfo,
        seen: Option<Stamp>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Outcome> {
        let number = conflict.number;
        self.may_look(conflict)?;
        let _turn = self.turn()?;
        wait::until_sent(&self.mount, SENT_WITHIN)?;
        self.claim(number, true, seen)?;
        if let Err(error) = storing::tidy(self, conflict).and_then(|()| work()) {
            // If this does not arrive, it ends by itself.
            let _ = self.claim(number, false, seen);
            return Err(error);
        }
        wait::until_sent(&self.mount, SENT_WITHIN)
            .with_context(|| is_listed_still(number, "is not yet at the server"))?;
        let token = Some(self.token(number)?);
        let by = self.asked.by();
        let settled = self.asked.ask(&Past::Settle { number, token, by });
        match settled.with_context(|| is_listed_still(number, "is at the server"))? {
            Found::Settled(_) => Ok(Outcome::Done),
            Found::Not(why) => Err(past::not(&why)),
            _ => Err(past::unexpected()),
        }
    }

    /// From now on it is this device that sees to it, or not.
    fn claim(&self, number: u64, holds: bool, seen: Option<Stamp>) -> Result<()> {
        let (token, by) = (self.token(number)?, self.asked.by());
        match self.asked.ask(&Past::Claim(Claim { number, token, holds, seen, by }))? {
            Found::Claimed(_) => Ok(()),
            Found::Not(why) => Err(past::not(&why)),
            _ => Err(past::unexpected()),
        }
    }

    /// Whoever is at this mount claims as one, so that the same can be done again; so of those one at
    /// a time does anything.
    fn turn(&self) -> Result<File> {
        let directory = &self.mount.state_directory;
        let cannot = || format!("cannot lock {}", directory.display());
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK);
        let opened = options.open(directory).with_context(cannot)?;
        let until = Instant::now() + TURN_WITHIN;
        loop {
            match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(opened),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOOK_EVERY),
                Err(Errno::WOULDBLOCK) => {
                    let what = "another farfs command is seeing to a conflict of this mount; try \
                                again when it has ended";
                    return Err(fail(Exit::Busy, what));
                }
                Err(error) => return Err(error).with_context(cannot),
            }
        }
    }

    /// Another one for each device, and of one always the same: what it has claimed it may claim
    /// again, when its last word was lost.
    fn token(&self, number: u64) -> Result<u64> {
        let replica = questions::status(&self.mount)?.replica;
        let replica = replica.ok_or_else(|| fail(Exit::Unreachable, "no server was met yet"))?;
        Ok(token(replica, number))
    }

    fn path(&self, names: &[Name]) -> PathBuf {
        let names = names.iter().map(|name| OsStr::from_bytes(name.as_bytes()));
        names.fold(self.mount.mountpoint.clone(), |path, name| path.join(name))
    }

    /// What has the name, and what lies beside it; both are there.
    fn sides(&self, conflict: &ConflictInfo) -> Result<(PathBuf, PathBuf)> {
        let (theirs, mine) = self.sides_or_free(conflict)?;
        if is_gone(&theirs)? {
            let (path, number) = (theirs.display(), conflict.number);
            return Err(fail(
                Exit::NotFound,
                format!(
                    "conflict {number}: {path} is not there any more; `farfs conflicts keep-mine \
                     {number}` gives its name to the version beside"
                ),
            ));
        }
        Ok((theirs, mine))
    }

    /// The name, whether or not anything has it, and what lies beside it.
    fn sides_or_free(&self, conflict: &ConflictInfo) -> Result<(PathBuf, PathBuf)> {
        let gone = |what: &str| not_there(conflict, what);
        let theirs = self.bearer(conflict)?;
        let mine = conflict.aside.as_deref().map(|names| self.path(names));
        let mine = mine.ok_or_else(|| gone("nothing lies beside the name, or not any more"))?;
        if is_gone(&mine)? {
            return Err(gone(&format!("{} is not there any more", mine.display())));
        }
        Ok((theirs, mine))
    }

    /// What has the name, and what lies beside it.
    fn there(&self, conflict: &ConflictInfo) -> (There, There) {
        let looked = |names: &Option<Vec<Name>>| match names {
            None => Err(ErrorKind::NotFound.into()),
            Some(names) => fs::symlink_metadata(self.path(names)),
        };
        let (theirs, mine) = (looked(&conflict.path), looked(&conflict.aside));
        let there = |looked: &io::Result<Metadata>| match looked {
            Err(error) if error.kind() == ErrorKind::NotFound => There::Nothing,
            Ok(meta) if meta.is_file() => There::File,
            Ok(meta) if meta.is_dir() => There::Directory,
            // Nor may what cannot be looked at be taken for gone.
            _ => There::Other,
        };
        let mine = match (&theirs, &mine) {
            (Ok(one), Ok(other)) if is_one(one, other) => There::TheSame,
            _ => there(&mine),
        };
        match (mine, &conflict.aside) {
            (There::Nothing, Some(aside)) => {
                let (path, before, by) = (aside.clone(), None, self.asked.by());
                let history = Past::History { path, before, versions_max: 1, by };
                let told = self.asked.ask(&history).ok();
                (there(&theirs), ways::by_history(told.as_ref()))
            }
            _ => (there(&theirs), mine),
        }
    }

    /// The same, when this mount has had a moment to be told of what lies beside.
    fn there_soon(&self, conflict: &ConflictInfo) -> (There, There) {
        let now = self.there(conflict);
        let (There::Unseen, Some(aside)) = (now.1, &conflict.aside) else { return now };
        let (aside, until) = (self.path(aside), Instant::now() + SEEN_WITHIN);
        while fs::symlink_metadata(&aside).is_err() && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
        self.there(conflict)
    }

    /// An error if it cannot be seen to in this way; and why nothing is left to do, if that is so.
    fn is_done(&self, conflict: &ConflictInfo, way: Way) -> Result<Option<String>> {
        self.may_look(conflict)?;
        let (theirs, mine) = self.there_soon(conflict);
        match ways::refusal(way, conflict, theirs, mine) {
            Some(why) => Err(fail(Exit::Failure, why)),
            None => Ok(ways::is_done(way, conflict, theirs, mine)),
        }
    }

    /// Whether one of two files has the name, and the other lies beside it.
    fn are_two_files(&self, conflict: &ConflictInfo) -> Result<bool> {
        self.may_look(conflict)?;
        Ok(ways::kind(conflict) == ways::Kind::Beside
            && self.there_soon(conflict) == (There::File, There::File))
    }

    /// The name that it is about.
    fn bearer(&self, conflict: &ConflictInfo) -> Result<PathBuf> {
        let path = conflict.path.as_deref().map(|names| self.path(names));
        path.ok_or_else(|| not_there(conflict, "the directory of the name is gone"))
    }

    /// Writes what both began from.
    fn base(
        &self,
        conflict: &ConflictInfo,
        to: &mut dyn Write,
        bytes_max: Option<u64>,
    ) -> Result<()> {
        let number = conflict.number;
        let fits = |bytes: u64| match bytes_max {
            Some(most) if bytes > most => {
                let most = units::show_size(most);
                let what = format!("conflict {number}: what is merged by lines is at most {most}");
                Err(fail(Exit::Failure, what))
            }
            _ => Ok(()),
        };
        if conflict.base_since.is_none() {
            let what = format!("conflict {number}: what both began from is not kept");
            return Err(fail(Exit::NotFound, what));
        }
        fits(conflict.base_looks.as_ref().map_or(0, |looks| looks.size))?;
        let By { uid, gid, groups } = owner::who_asks();
        let mut offset = 0;
        loop {
            let groups = groups.clone();
            match self.asked.ask(&Past::Base { number, offset, uid, gid, groups })? {
                Found::Base(bytes) if bytes.is_empty() => return Ok(()),
                Found::Base(bytes) => {
                    to.write_all(&bytes)?;
                    offset += bytes.len() as u64;
                    fits(offset)?;
                }
                Found::Not(why) => return Err(past::not(&why)),
                _ => return Err(past::unexpected()),
            }
        }
    }
}

/// Whether two names lead to one file.
fn is_one(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn path_of(names: &[Name]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

fn token(replica: u32, number: u64) -> u64 {
    u64::from(replica) << 32 | number & u64::from(u32::MAX)
}

/// What was done is `so`, and the last word was not said.
fn is_listed_still(number: u64, so: &str) -> String {
    let minutes = CLAIM_SECS / 60;
    format!(
        "what was done about conflict {number} {so}, and it is still listed: do the same again when \
         there is a link; nobody else sees to it for the next {minutes} min"
    )
}

/// The version of what has the name: as the mount says it, or else, where the kernel asks for none, the
/// server.
fn version_there(path: &Path, conflict: &ConflictInfo) -> Option<Stamp> {
    version_of(path).or(conflict.now)
}

/// The version of the contents that a file has, as the mount says it. The kernel asks for none of a
/// link, nor of what else is neither a file nor a directory.
fn version_of(path: &Path) -> Option<Stamp> {
    let mut value = [0; 64];
    let length = rustix::fs::lgetxattr(path, "user.farfs.version", &mut value[..]).ok()?;
    read_stamp(str::from_utf8(value.get(..length)?).ok()?)
}

fn read_stamp(text: &str) -> Option<Stamp> {
    let (replica, number) = text.strip_prefix('r')?.split_once('.')?;
    Some(Stamp::new(ReplicaId(replica.parse().ok()?), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_device_claims_a_conflict_always_by_the_same_token_and_no_other_does() {
        let tokens = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(device, number)| token(device, number));
        assert_eq!(token(1, 2), tokens[1]);
        assert_eq!(BTreeSet::from(tokens).len(), tokens.len());
    }

    #[test]
    fn a_version_reads_as_what_is_shown_of_it() {
        let stamp = Stamp::new(ReplicaId(3), 70);
        assert_eq!(read_stamp(&stamp.to_string()), Some(stamp));
        for other in ["", "r", "3.7", "r3", "r3.", "rx.7"] {
            assert_eq!(read_stamp(other), None, "{other}");
        }
    }
}
