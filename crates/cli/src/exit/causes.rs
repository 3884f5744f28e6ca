//! Which way of ending each library's error means. A library's error that only passes another on
//! hides it from the chain of causes, so each is looked into here.

use super::Exit;
use client::ClientError;
use mount::MountError;
use replica::ReplicaError;
use std::io::ErrorKind;
use store::StoreError;
use store::ordinary::Strange;
use update_log::LogError;
use volume::partial::Missing;
use volume::whole;

pub fn exit(error: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if let Some(error) = error.downcast_ref() {
        return of_store(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_replica(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_client(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_mount(error);
    }
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return Strange::of(error).map(|_| Exit::Damaged);
    }
    match error.downcast_ref::<link::Error>()? {
        link::Error::KeyDamaged { .. } => Some(Exit::Damaged),
        link::Error::Address { .. } => Some(Exit::Usage),
        link::Error::Bind { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            Some(Exit::Busy)
        }
        _ => None,
    }
}

fn of_store(error: &StoreError) -> Option<Exit> {
    match error {
        StoreError::Busy(_) => Some(Exit::Busy),
        StoreError::Damaged { .. } | StoreError::Missing { .. } | StoreError::Strange { .. } => {
            Some(Exit::Damaged)
        }
        error if error.is_unreadable() => Some(Exit::Damaged),
        _ => None,
    }
}

fn of_replica(error: &ReplicaError) -> Option<Exit> {
    match error {
        ReplicaError::Store(error) | ReplicaError::Tree(whole::Error::Store(error)) => {
            of_store(error)
        }
        ReplicaError::Tree(whole::Error::Damaged { .. } | whole::Error::TooNew { .. }) => {
            Some(Exit::Damaged)
        }
        ReplicaError::Lost(..) => Some(Exit::Damaged),
        ReplicaError::NoVolume(_) | ReplicaError::NoDevice(_) => Some(Exit::NotFound),
        ReplicaError::BadVolumeName(_) | ReplicaError::AmbiguousDevice(..) => Some(Exit::Usage),
        _ => None,
    }
}

fn of_client(error: &ClientError) -> Option<Exit> {
    match error {
        ClientError::Store(error)
        | ClientError::Log(LogError::Store(error))
        | ClientError::Tree(Missing::Store(error)) => of_store(error),
        // A newer farfs can use what is there.
        ClientError::Log(LogError::Newer { .. }) => Some(Exit::Failure),
        ClientError::Log(_)
        | ClientError::Tree(_)
        | ClientError::Contents(_)
        | ClientError::TablesEmpty
        | ClientError::Rebuild(_) => Some(Exit::Damaged),
    }
}

fn of_mount(error: &MountError) -> Option<Exit> {
    match error {
        MountError::NoMountpoint(_) => Some(Exit::NotFound),
        MountError::NotADirectory(_) => Some(Exit::Usage),
        MountError::AlreadyMounted(_) | MountError::DeadMount(_) | MountError::InUse(_) => {
            Some(Exit::Busy)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found_however_deep_it_was_met() {
        let damaged = || StoreError::Damaged { place: "x".into(), what: "y".into() };
        assert_eq!(exit(&damaged()), Some(Exit::Damaged));
        assert_eq!(exit(&ReplicaError::Store(damaged())), Some(Exit::Damaged));
        assert_eq!(exit(&ReplicaError::Tree(damaged().into())), Some(Exit::Damaged));
        assert_eq!(exit(&ClientError::Store(damaged())), Some(Exit::Damaged));
        assert_eq!(exit(&ClientError::Store(StoreError::Busy("x".into()))), Some(Exit::Busy));
        let newer = LogError::Newer { position: 1, format: 3 };
        assert_eq!(exit(&ClientError::Log(newer)), Some(Exit::Failure));
        assert_eq!(exit(&MountError::InUse("/mnt".into())), Some(Exit::Busy));
        assert_eq!(exit(&std::fmt::Error), None);
    }
}
