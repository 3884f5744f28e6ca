//! What a server or a mount keeps is for its user alone: it holds what other users of the machine may not
//! read by the modes of the files in the volume.
//! Holds: what is made in a data or state directory from then on is its user's alone, whoever made the
//! directory and whatever it lets others do.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const OF_OTHERS: u32 = 0o077;
const TO_ENTER: u32 = 0o011;

/// To be called before anything is made there.
pub fn keep() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OF_OTHERS));
}

/// Says so if others may read what earlier versions have made. `tables` were made like all the rest.
pub fn look(directory: &Path, tables: &Path) {
    if may_be_read(directory, tables) {
        let path = directory.display();
        tracing::warn!(
            %path,
            "other users of this machine may read what is kept here, whatever the modes of the files in \
             the volume say: take the leave from them with `chmod -R go=`, of what farfs has made in it"
        );
    }
}

fn may_be_read(directory: &Path, tables: &Path) -> bool {
    let lets = |path: &Path, what: u32| {
        std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & what != 0)
    };
    lets(directory, TO_ENTER) && lets(tables, OF_OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};

    #[test]
    fn what_others_may_enter_and_read_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let tables = directory.path().join("tables.redb");
        std::fs::write(&tables, "").unwrap();
        for (of_directory, of_tables, may) in [
            (0o755, 0o644, true),
            (0o700, 0o644, false),
            (0o755, 0o600, false),
            (0o710, 0o640, true),
        ] {
            set_permissions(directory.path(), Permissions::from_mode(of_directory)).unwrap();
            set_permissions(&tables, Permissions::from_mode(of_tables)).unwrap();
            assert_eq!(may_be_read(directory.path(), &tables), may, "{of_directory:o}");
        }
    }
}
