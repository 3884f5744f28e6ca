//! Who is to own a directory: `UID:GID`, or the names that this machine has for them.

use protocol::past::{By, GROUPS_MAX};
use std::str::FromStr;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    pub fn caller() -> Owner {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Owner { uid: uid.as_raw(), gid: gid.as_raw() }
    }

    /// The groups of who calls. None: they are more than are told, or cannot be had.
    pub fn groups_of_caller() -> Option<Vec<u32>> {
        let groups = rustix::process::getgroups().ok()?;
        (groups.len() <= GROUPS_MAX).then(|| groups.into_iter().map(|gid| gid.as_raw()).collect())
    }
}

/// Who runs this, for what the server tells or does for a user.
pub fn who_asks() -> By {
    let Owner { uid, gid } = Owner::caller();
    By { uid, gid, groups: Owner::groups_of_caller() }
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Owner, String> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        named(text, || read(USERS), || read(GROUPS))
    }
}

/// What people call a user: a name, or `user 1000`.
pub fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string(USERS).unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':'));
    let name = fields.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    name.map_or_else(|| format!("user {uid}"), str::to_owned)
}

/// `users` and `groups` are lines as passwd and group have them.
fn named(
    text: &str,
    users: impl Fn() -> String,
    groups: impl Fn() -> String,
) -> Result<Owner, String> {
    let Some((user, group)) = text.split_once(':') else {
        let both = "write UID:GID, or USER:GROUP";
        // The group that a user has by himself.
        let found = line(&users(), text).map(|fields| (number(&fields, 2), number(&fields, 3)));
        return match found {
            Some((Some(uid), Some(gid))) => Ok(Owner { uid, gid }),
            _ => Err(both.into()),
        };
    };
    let uid = user
        .parse()
        .ok()
        .or_else(|| number(&line(&users(), user)?, 2))
        .ok_or_else(|| format!("this machine knows no user {user:?}; give the number"))?;
    let gid = group
        .parse()
        .ok()
        .or_else(|| number(&line(&groups(), group)?, 2))
        .ok_or_else(|| format!("this machine knows no group {group:?}; give the number"))?;
    Ok(Owner { uid, gid })
}

/// The fields of the line of that name.
fn line(lines: &str, name: &str) -> Option<Vec<String>> {
    let of = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    lines.lines().map(of).find(|fields| !name.is_empty() && fields[0] == name)
}

fn number(fields: &[String], place: usize) -> Option<u32> {
    fields.get(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_named_by_numbers_or_by_names() {
        let users = || "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1001::/home/ann:/bin/sh".into();
        let groups = || "root:x:0:\nstaff:x:50:ann".into();
        let owner = |text| named(text, users, groups);
        assert_eq!(owner("7:8"), Ok(Owner { uid: 7, gid: 8 }));
        assert_eq!(owner("ann:staff"), Ok(Owner { uid: 1000, gid: 50 }));
        assert_eq!(owner("ann:8"), Ok(Owner { uid: 1000, gid: 8 }));
        assert_eq!(owner("ann"), Ok(Owner { uid: 1000, gid: 1001 }));
        for (wrong, part) in [("bob:staff", "bob"), ("ann:wheel", "wheel"), ("", "UID:GID")] {
            assert!(owner(wrong).unwrap_err().contains(part), "{wrong}");
        }
        for wrong in [":", "1:", ":1", "bob"] {
            assert!(owner(wrong).is_err(), "{wrong}");
        }
    }
}
