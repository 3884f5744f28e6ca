//! Which errno a program sees. The only place that knows.
//! Never: answers ENOSYS: the kernel would not ask again.

use client::Error;
use fuse::Errno;
use model::{BadName, Name};
use protocol::Objection;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A signal came for the process that waits.
pub(crate) const INTERRUPTED: Errno = Errno::EINTR;
/// Somebody else has locked it, and who asks does not want to wait.
pub(crate) const LOCKED: Errno = Errno::EAGAIN;
/// Flags, ranges or numbers that no file system takes.
pub(crate) const INVALID: Errno = Errno::EINVAL;
/// Attributes of a kind that is not kept here.
pub(crate) const NOT_KEPT: Errno = Errno::EOPNOTSUPP;
/// There is none of that name.
pub(crate) const NO_ATTRIBUTE: Errno = Errno::ENODATA;
/// It is made up when it is read.
pub(crate) const NOT_TO_BE_SET: Errno = Errno::EPERM;
/// There is neither data nor a hole after that offset.
pub(crate) const PAST_THE_END: Errno = Errno::ENXIO;
/// The buffer is too short for the attribute.
pub(crate) const BUFFER_TOO_SHORT: Errno = Errno::ERANGE;
/// The value is longer than any attribute.
pub(crate) const VALUE_TOO_LONG: Errno = Errno::E2BIG;
/// The range reaches beyond the largest file.
pub(crate) const FILE_TOO_LARGE: Errno = Errno::EFBIG;

/// How a request names its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// By a name in a directory.
    ByName,
    /// By its id, which the kernel remembers from an earlier answer.
    ById,
}

pub(crate) fn errno(error: &Error, named: Named) -> Errno {
    match error {
        // The kernel holds an id for a name that others have given to another file since. ESTALE
        // makes it look the name up again; ENOENT would reach the program.
        Error::Objection(Objection::NoEntry) if named == Named::ById => Errno::ESTALE,
        Error::Objection(objection) => objected(*objection),
        // Not EIO: scripts and people can tell "not here" from "broken".
        Error::Unreachable(_) | Error::Retry => Errno::EHOSTUNREACH,
        // For a program it is the same: it is not here, and will not be soon.
        Error::TakesLong { .. } => Errno::EHOSTUNREACH,
        Error::TimedOut(_) => Errno::ETIMEDOUT,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::TooLarge => FILE_TOO_LARGE,
        Error::BadHandle => Errno::EBADF,
        Error::NotSupported(_) => Errno::EOPNOTSUPP,
        Error::Stale => Errno::ESTALE,
        Error::AttributeTooLarge => Errno::ERANGE,
        Error::AttributeExists => Errno::EEXIST,
        Error::DiskFull => Errno::ENOSPC,
        // The calling process may have as many as ever: it is not EMFILE.
        Error::TooManyOpen => Errno::ENFILE,
        Error::Locked | Error::Changing => Errno::EAGAIN,
        Error::Deadlock => Errno::EDEADLK,
        Error::TooManyLocks => Errno::ENOLCK,
        Error::LentOut => Errno::ESTALE,
        Error::LentToReaders => Errno::ETXTBSY,
        Error::OlderLentOut | Error::WrittenUnseen => Errno::EBUSY,
        Error::LockLost | Error::Refused(_) | Error::Unreadable(_) | Error::Failed(_) => Errno::EIO,
    }
}

fn objected(objection: Objection) -> Errno {
    match objection {
        Objection::NoEntry => Errno::ENOENT,
        Objection::Exists => Errno::EEXIST,
        Objection::NotADirectory => Errno::ENOTDIR,
        Objection::IsADirectory => Errno::EISDIR,
        Objection::NotEmpty => Errno::ENOTEMPTY,
        Objection::Cycle | Objection::Invalid => Errno::EINVAL,
        Objection::TooManyLinks => Errno::EMLINK,
        Objection::Changed => Errno::ESTALE,
        Objection::NotPermitted => Errno::EACCES,
        Objection::ReadOnly => Errno::EROFS,
        Objection::NoSpace => Errno::ENOSPC,
        Objection::NoAttribute => NO_ATTRIBUTE,
        Objection::OverQuota => Errno::EDQUOT,
    }
}

/// The errno of a refused `open` with O_CREAT. The kernel asks to create what it believes absent;
/// if somebody made it meanwhile, ESTALE makes it look again and open what is there, with the
/// permission checks of an open. With O_EXCL the program wants to know.
pub(crate) fn refused_create(errno: Errno, exclusive: bool) -> Errno {
    if errno == Errno::EEXIST && !exclusive { Errno::ESTALE } else { errno }
}

/// Taking away an access control list that is not there is done already, as on ext4.
pub(crate) fn removed_list(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::ENODATA { Ok(()) } else { Err(errno) }
}

/// A name from the kernel.
pub(crate) fn name(bytes: &OsStr) -> Result<Name, Errno> {
    Name::new(bytes.as_bytes()).map_err(|bad| match bad {
        BadName::TooLong(_) => Errno::ENAMETOOLONG,
        BadName::Reserved | BadName::ForbiddenByte => INVALID,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_miss_without_a_link_and_a_late_answer_are_told_apart_from_a_broken_disk() {
        let seen = [
            Error::Unreachable("no link".into()),
            Error::TimedOut(Duration::from_secs(30)),
            Error::Failed("the disk".into()),
            Error::TooManyOpen,
        ]
        .map(|error| errno(&error, Named::ById).code());
        assert_eq!(seen, [libc::EHOSTUNREACH, libc::ETIMEDOUT, libc::EIO, libc::ENFILE]);
    }

    #[test]
    fn what_is_gone_is_stale_by_id_and_absent_by_name() {
        let gone = Error::Objection(Objection::NoEntry);
        assert_eq!(errno(&gone, Named::ById), Errno::ESTALE);
        assert_eq!(errno(&gone, Named::ByName), Errno::ENOENT);
    }

    #[test]
    fn every_objection_has_the_errno_that_a_local_file_system_gives() {
        let table = [
            (Objection::Exists, libc::EEXIST),
            (Objection::NotADirectory, libc::ENOTDIR),
            (Objection::IsADirectory, libc::EISDIR),
            (Objection::NotEmpty, libc::ENOTEMPTY),
            (Objection::Cycle, libc::EINVAL),
            (Objection::TooManyLinks, libc::EMLINK),
            (Objection::Changed, libc::ESTALE),
            (Objection::NotPermitted, libc::EACCES),
            (Objection::ReadOnly, libc::EROFS),
            (Objection::NoSpace, libc::ENOSPC),
            (Objection::NoAttribute, libc::ENODATA),
            (Objection::Invalid, libc::EINVAL),
            (Objection::OverQuota, libc::EDQUOT),
        ];
        for (objection, code) in table {
            let seen = errno(&Error::Objection(objection), Named::ByName).code();
            assert_eq!(seen, code, "{objection:?}");
        }
    }

    #[test]
    fn no_error_of_the_client_makes_the_kernel_stop_asking() {
        for error in [Error::NotSupported("it"), Error::BadHandle, Error::Failed(String::new())] {
            assert_ne!(errno(&error, Named::ById), Errno::ENOSYS);
        }
    }

    #[test]
    fn a_file_made_meanwhile_is_looked_up_again_unless_the_program_wants_to_be_the_first() {
        assert_eq!(refused_create(Errno::EEXIST, false), Errno::ESTALE);
        assert_eq!(refused_create(Errno::EEXIST, true), Errno::EEXIST);
        assert_eq!(refused_create(Errno::EROFS, false), Errno::EROFS);
    }

    #[test]
    fn names_that_are_too_long_or_not_names_are_refused_as_linux_does() {
        assert_eq!(name(OsStr::new(&"a".repeat(256))), Err(Errno::ENAMETOOLONG));
        assert_eq!(name(OsStr::new("..")), Err(Errno::EINVAL));
        assert_eq!(name(OsStr::new("a")).map(|name| name.as_bytes().to_vec()), Ok(b"a".to_vec()));
    }
}
