//! Errors as a program in the simulation is told of them.

use crate::operation::Fault;
use protocol::Objection;

/// What a program is told of an error.
pub fn fault(error: client::Error) -> Fault {
    use client::Error as E;
    match error {
        E::Objection(objection) => of_objection(objection),
        E::Unreachable(_) => Fault::Unreachable,
        E::TimedOut(_) => Fault::TimedOut,
        E::Retry => Fault::Retry,
        E::NameTooLong | E::TooLarge | E::NotSupported(_) => Fault::Invalid,
        E::BadHandle => Fault::BadHandle,
        E::Stale => Fault::Stale,
        E::AttributeTooLarge => Fault::Invalid,
        E::AttributeExists => Fault::AttributeExists,
        E::DiskFull => Fault::DiskFull,
        other => Fault::Other(other.to_string()),
    }
}

fn of_objection(objection: Objection) -> Fault {
    match objection {
        Objection::NoEntry => Fault::NoEntry,
        Objection::Exists => Fault::Exists,
        Objection::NotADirectory => Fault::NotADirectory,
        Objection::IsADirectory => Fault::IsADirectory,
        Objection::NotEmpty => Fault::NotEmpty,
        Objection::Cycle => Fault::Cycle,
        Objection::TooManyLinks => Fault::TooManyLinks,
        Objection::Changed => Fault::Changed,
        Objection::NotPermitted => Fault::NotPermitted,
        Objection::ReadOnly => Fault::ReadOnly,
        Objection::NoSpace => Fault::NoSpace,
        Objection::NoAttribute => Fault::NoAttribute,
        Objection::OverQuota => Fault::OverQuota,
        Objection::Invalid => Fault::Invalid,
    }
}
