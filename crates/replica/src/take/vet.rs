//! What no file system would do, whoever asks for it.
//! From: the limits of Linux: path_resolution(7), xattr(7), inode(7).

use model::{ACL_ACCESS, ACL_DEFAULT, Acl, Change, FileId, Kind, Time, Update};
use protocol::Objection;

const MODE_BITS: u16 = 0o7777;
/// The longest path, less its NUL.
const TARGET_BYTES_MAX: usize = 4095;
const XATTR_NAME_BYTES_MAX: usize = 255;
const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
const NANOS_PER_SEC: u32 = 1_000_000_000;

/// What is wrong with the update, whatever it finds.
pub(super) fn vet(update: &Update) -> Result<(), Objection> {
    check(is_time(update.at))?;
    // Nothing that a snapshot shows is changed.
    if update.touches().into_iter().any(FileId::is_past) {
        return Err(Objection::ReadOnly);
    }
    match &update.change {
        Change::Make { file, kind, mode, target, rdev, born, .. } => {
            check(*file != FileId::ROOT && is_mode(*mode) && born.is_none_or(is_time))?;
            let is_link = *kind == Kind::Symlink;
            let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
            check(target.is_some() == is_link && rdev.is_some() == is_device)?;
            let is_path = |target: &[u8]| {
                (1..=TARGET_BYTES_MAX).contains(&target.len()) && !target.contains(&0)
            };
            check(target.as_ref().is_none_or(|target| is_path(target)))
        }
        Change::Rename { exchange, whiteout, .. } => {
            let made = whiteout.map(|whiteout| whiteout.file);
            check(made.is_none() || !exchange && made != Some(FileId::ROOT))
        }
        Change::Store { mtime, .. } => check(is_time(*mtime)),
        Change::SetAttributes { set, .. } => {
            let times = set.atime.into_iter().chain(set.mtime);
            check(set.mode.is_none_or(is_mode) && times.into_iter().all(is_time))
        }
        Change::SetXattr { name, value, .. } => {
            check((1..=XATTR_NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0))?;
            check(value.len() <= XATTR_VALUE_BYTES_MAX)?;
            let is_list = [ACL_ACCESS, ACL_DEFAULT].contains(&name.as_slice());
            check(!is_list || Acl::read(value).is_some())
        }
        Change::Link { .. } | Change::Unlink { .. } | Change::RemoveXattr { .. } => Ok(()),
    }
}

fn check(holds: bool) -> Result<(), Objection> {
    if holds { Ok(()) } else { Err(Objection::Invalid) }
}

fn is_mode(mode: u16) -> bool {
    mode & !MODE_BITS == 0
}

fn is_time(time: Time) -> bool {
    time.nanos < NANOS_PER_SEC
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Stamp;

    fn set(name: &[u8], value: &[u8]) -> Result<(), Objection> {
        let (name, value) = (name.to_vec().into(), value.to_vec().into());
        let change = Change::SetXattr { file: FileId::ROOT, name, value, expects: None };
        vet(&Update { stamp: Stamp::default(), uid: 0, at: Time::default(), change })
    }

    #[test]
    fn an_access_list_that_is_none_is_refused() {
        // Read, write and execute for the owner, and nothing for others.
        let list = [
            &[2, 0, 0, 0][..],
            &[1, 0, 7, 0, 255, 255, 255, 255],
            &[4, 0, 0, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        for name in [ACL_ACCESS, ACL_DEFAULT] {
            assert_eq!(set(name, &list), Ok(()));
            assert_eq!(set(name, &list[..20]), Err(Objection::Invalid));
            assert_eq!(set(name, b"rwx"), Err(Objection::Invalid));
        }
        assert_eq!(set(b"user.list", b"rwx"), Ok(()));
    }
}
