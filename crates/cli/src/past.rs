//! Asking for earlier states: through a mount, or at the server itself.
//! Holds: what is asked and answered is written as over the link, so that there is one form of it.

use crate::commands::wait;
use crate::exit::{Exit, OrExit, fail};
use crate::mounts::{self, Entry};
use crate::orders::{self, Order};
use crate::owner;
use crate::paths;
use crate::questions::{self, Question, Reply};
use anyhow::Result;
use minicbor::{Decode, Encode};
use model::{Name, control_name, snapshots_name};
use protocol::past::{By, Found, NotFound, Past};
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// A message of the protocol's, in hexadecimal digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written(String);

impl Written {
    pub fn of(message: &impl Encode<()>) -> Written {
        let bytes = minicbor::to_vec(message).expect("a vector takes every byte");
        Written(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn read<T: for<'b> Decode<'b, ()>>(&self) -> Result<T> {
        let digits = self.0.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        let read = bytes.and_then(|bytes| minicbor::decode(&bytes).ok());
        read.ok_or_else(|| fail(Exit::Failure, "the other farfs process is of another version"))
    }

    pub fn line(self) -> String {
        self.0
    }

    pub fn from_line(line: &str) -> Written {
        Written(line.to_owned())
    }
}

/// Whom to ask.
pub enum Asked {
    Mount(Entry),
    Server { data: PathBuf, volume: String },
}

impl Asked {
    /// The mount that a path lies in, or a server's volume.
    pub fn of(place: &Path, data: Option<&Path>) -> Result<Asked> {
        match data {
            None => Ok(Asked::Mount(mounts::holding(&paths::named(place)?)?)),
            Some(data) => {
                let volume = place.to_string_lossy().into_owned();
                Ok(Asked::Server { data: data.into(), volume })
            }
        }
    }

    /// Everything that was done here before is at the server when this returns.
    pub fn send_first(&self, within: Duration) -> Result<()> {
        let Asked::Mount(mount) = self else { return Ok(()) };
        let status = questions::status(mount)?;
        if status.pending.updates > 0 && !status.link.connected {
            let pending = crate::show::pending(&status.pending);
            return Err(fail(
                Exit::Unreachable,
                format!("there is no link, and this is not yet at the server: {pending}"),
            ));
        }
        wait::until_sent(mount, within)
    }

    pub fn ask(&self, past: &Past) -> Result<Found> {
        match self {
            Asked::Mount(mount) => questions::look_back(mount, past),
            Asked::Server { data, volume } => {
                let frees = matches!(past, Past::Forget { .. });
                let asks = Written::of(past);
                let order = Order::LookBack { volume: volume.clone(), asks, frees };
                let answer = orders::give(data, &order)?;
                Written::from_line(&answer.concat()).read()
            }
        }
    }

    /// Who asks. None: who has the server's directory may know of everything.
    pub fn by(&self) -> Option<By> {
        matches!(self, Asked::Mount(_)).then(owner::who_asks)
    }

    /// The names of a path from the root of the volume; of one in a snapshot, as it is without.
    pub fn names(&self, path: &Path) -> Result<Vec<Name>> {
        Ok(without_snapshot(self.names_as_they_are(path)?))
    }

    /// The names of a path from the root of the volume, of one in a snapshot too.
    pub fn names_as_they_are(&self, path: &Path) -> Result<Vec<Name>> {
        let below = match self {
            Asked::Mount(mount) => {
                let path = paths::named(path)?;
                let Ok(below) = path.strip_prefix(&mount.mountpoint) else {
                    let mountpoint = mount.mountpoint.display();
                    let outside = format!("{} is not in {mountpoint}", path.display());
                    return Err(fail(Exit::NotFound, outside));
                };
                below.to_path_buf()
            }
            Asked::Server { .. } => path.to_path_buf(),
        };
        names_of(&below)
    }
}

fn names_of(path: &Path) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                let name = Name::new(name.as_bytes());
                names.push(name.or_exit(Exit::Usage, path.display().to_string())?);
            }
            Component::ParentDir | Component::Prefix(_) => {
                let shown = path.display();
                return Err(fail(Exit::Usage, format!("{shown}: say the path without `..`")));
            }
        }
    }
    Ok(names)
}

fn without_snapshot(mut names: Vec<Name>) -> Vec<Name> {
    let in_snapshot =
        names.first() == Some(&control_name()) && names.get(1) == Some(&snapshots_name());
    if in_snapshot { names.split_off(names.len().min(3)) } else { names }
}

/// What was not done, as the error that it is.
pub fn not(why: &NotFound) -> anyhow::Error {
    let exit = match why {
        NotFound::NoSnapshot(_)
        | NotFound::NoPath(_)
        | NotFound::NotThen(_)
        | NotFound::Removed(_)
        | NotFound::Pruned(_)
        | NotFound::NoDirectory(_)
        | NotFound::NoConflict(_)
        | NotFound::TooEarly => Exit::NotFound,
        NotFound::BadName(..) => Exit::Usage,
        _ => Exit::Failure,
    };
    fail(exit, why.to_string())
}

pub fn unexpected() -> anyhow::Error {
    fail(Exit::Failure, "the answer is not one to what was asked; is the other process older?")
}

/// The reply of a mount.
pub fn reply(found: &Found) -> Reply {
    Reply::Found(Written::of(found))
}

impl Question {
    pub fn look_back(past: &Past) -> Question {
        Question::LookBack { asks: Written::of(past) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same() {
        let past = Past::Forget { name: "a".into(), uid: 3 };
        let written = Written::of(&past);
        assert_eq!(written.read::<Past>().unwrap(), past);
        for bad in ["", "8", "zz", "ff", "é"] {
            assert!(Written::from_line(bad).read::<Past>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_in_a_snapshot_is_the_path_without_it() {
        let names = |path: &str| {
            let names = without_snapshot(names_of(Path::new(path)).unwrap());
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
        };
        assert_eq!(names("/a//b/./c"), "a/b/c");
        assert_eq!(names(".farfs/snapshots/x/a"), "a");
        assert_eq!(names(".farfs/snapshots/x"), "");
        assert_eq!(names(".farfs/other"), ".farfs/other");
        assert_eq!(names(""), "");
        assert!(names_of(Path::new("a/../b")).is_err());
    }
    #[test]
    fn where_something_is_to_be_is_not_taken_out_of_a_snapshot() {
        let asked = Asked::Server { data: "d".into(), volume: "v".into() };
        let path = Path::new(".farfs/snapshots/x/a");
        assert_eq!(asked.names(path).unwrap().len(), 1);
        assert_eq!(asked.names_as_they_are(path).unwrap().len(), 4);
    }
}
