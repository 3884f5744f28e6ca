//! What may differ, and why.

use crate::looking::{AT, TIMES};
use crate::steps::{Call, Step};
use libc::{RENAME_WHITEOUT, RWF_NOWAIT, SEEK_DATA, SEEK_HOLE};
use std::collections::BTreeMap;

/// The largest file of ext4, about.
const FILE_MAX: i64 = (1 << 44) - (1 << 20);

/// What becomes of a case whose call did not do the same on both sides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Same,
    Differs,
    /// It may differ, and from here on the two sides are not comparable.
    Ends,
}

/// Whether what a call said on the local disk and here are the same for a program.
pub fn call(step: &Step, local: &str, here: &str) -> Verdict {
    if local == here {
        return Verdict::Same;
    }
    match step.call {
        // What is a hole is the file system's affair, as long as it reads as zeros.
        Call::Seek { whence: SEEK_DATA | SEEK_HOLE, .. } => {
            let found = |told: &str| told == "errno 6" || told.parse::<u64>().is_ok();
            if found(local) && found(here) { Verdict::Same } else { Verdict::Differs }
        }
        // To nobody else, and by who may not change the file's mode, it says nothing here.
        Call::Chown { uid: u32::MAX, gid: u32::MAX, .. } if [local, here] == ["EPERM", "0"] => {
            Verdict::Same
        }
        // The kernel lets no FUSE file system say that it has all that is asked for.
        Call::ReadAt { flags: RWF_NOWAIT, .. } | Call::WriteAt { flags: RWF_NOWAIT, .. }
            if here == "EOPNOTSUPP" =>
        {
            Verdict::Ends
        }
        // Nothing is copied beyond the largest file, which the kernel does not know of here.
        Call::CopyRange { to, .. } if to >= FILE_MAX => Verdict::Ends,
        // While the kernel reads a file by itself, nobody may map it to write.
        Call::Open { .. } | Call::Reopen { .. } | Call::ByHandle { .. } if here == "errno 26" => {
            Verdict::Ends
        }
        _ => Verdict::Differs,
    }
}

/// The first thing that differs in two trees.
pub fn tree(
    (mapped, partial): (bool, bool),
    since: &[Step],
    local: BTreeMap<String, String>,
    here: BTreeMap<String, String>,
) -> Option<(String, String)> {
    let names: std::collections::BTreeSet<_> = local.keys().chain(here.keys()).collect();
    let times = !since.iter().any(|step| match step.call {
        // On ext4 a rename with a whiteout changes times also if it fails.
        Call::Rename { flags, .. } => flags & RENAME_WHITEOUT != 0,
        // ext4 changes no time for a value that was there already.
        Call::SetAttribute { .. } => true,
        // What changes no owner changes no time here.
        Call::Chown { uid: u32::MAX, gid: u32::MAX, .. } => true,
        _ => false,
    });
    // What is written to a pipe changes no time here: the kernel keeps those of pipes for itself.
    let piped = since.iter().any(|step| {
        matches!(step.call, Call::Write { .. } | Call::Splice { .. } | Call::SendFile { .. })
    });
    names.into_iter().find_map(|name| {
        let line = |tree: &BTreeMap<String, String>| {
            tree.get(name).map_or_else(|| format!("{name}: none"), |line| format!("{name}: {line}"))
        };
        let (local, here) = (line(&local), line(&here));
        let [one, other] = [&local, &here].map(|line| line.split(TIMES).next().unwrap_or_default());
        // Only ext4 gives the number of a file that is gone to the next. What is written to a
        // mapping changes times here when the kernel hands it on. Where what came and went within
        // a directory is not sent, its times go back to what they were.
        let times = times && timed(one) == timed(other);
        let times = times && !(mapped && one.contains(": 10")) && !(partial && one.contains(": 4"));
        let times = times
            && !(piped
                && [": 1", ": 2"].iter().any(|kind| one.contains(kind))
                && !one.contains(": 10"));
        let same = if times { one == other } else { untimed(one) == untimed(other) };
        (!same).then(|| (local.clone(), here.clone()))
    })
}

/// Which words of two lines differ, by their place.
pub fn parts(local: &str, here: &str) -> String {
    let (local, here) = (local.split(' ').skip(1), here.split(' ').skip(1));
    let differ = local.zip(here).enumerate().filter(|(_, (local, here))| local != here);
    differ.map(|(place, _)| format!("{place}")).collect::<Vec<_>>().join(",")
}

const CHANGES: [&str; 4] = ["--", "m-", "-c", "mc"];

fn timed(line: &str) -> bool {
    line.split(' ').any(|word| CHANGES.contains(&word))
}

fn untimed(line: &str) -> Vec<&str> {
    let (line, time) = line.split_once(AT).unwrap_or((line, ""));
    line.split(' ').chain(time.split(' ').skip(1)).filter(|word| !CHANGES.contains(word)).collect()
}
