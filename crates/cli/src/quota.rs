//! Quotas, as the command line says and shows them.

use crate::owner::{Owner, user_name};
use crate::units::{self, BadUnit, Size};
use model::Quota;
use replica::VolumeInfo;
use serde::{Deserialize, Serialize};

/// How much, or as much as there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    None,
    At(u64),
}

impl Bound {
    fn limit(self) -> Option<u64> {
        match self {
            Bound::None => None,
            Bound::At(limit) => Some(limit),
        }
    }
}

/// Of a quota what is to be another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    pub bytes: Option<Bound>,
    pub files: Option<Bound>,
    pub users: Vec<(u32, Bound)>,
}

impl Wish {
    pub fn is_none(&self) -> bool {
        *self == Wish::default()
    }

    pub fn change(&self, quota: &mut Quota) {
        quota.bytes = self.bytes.map_or(quota.bytes, Bound::limit);
        quota.files = self.files.map_or(quota.files, Bound::limit);
        for (uid, bound) in &self.users {
            quota.set_user(*uid, bound.limit());
        }
    }
}

const NONE: &str = "none";

/// Such as `10G`, or `none`.
pub fn bytes(text: &str) -> Result<Bound, String> {
    if text == NONE {
        return Ok(Bound::None);
    }
    let Size(bytes) = text.parse().map_err(|error: BadUnit| error.to_string())?;
    Ok(Bound::At(bytes))
}

/// A number, or `none`.
pub fn files(text: &str) -> Result<Bound, String> {
    match (text, text.parse()) {
        (NONE, _) => Ok(Bound::None),
        (_, Ok(files)) => Ok(Bound::At(files)),
        _ => Err("write how many files, such as 1000000, or `none`".into()),
    }
}

/// Such as `1000=5G`, or `ann=none`.
pub fn user(text: &str) -> Result<(u32, Bound), String> {
    let (who, how_much) = text.split_once('=').ok_or("write USER=SIZE, such as 1000=5G")?;
    let uid = match who.parse() {
        Ok(uid) => uid,
        Err(_) => {
            let unknown = || format!("this machine knows no user {who:?}; give the number");
            who.parse::<Owner>().map_err(|_| unknown())?.uid
        }
    };
    Ok((uid, bytes(how_much)?))
}

/// What a volume has, and of how much.
pub fn shown(volume: &VolumeInfo) -> String {
    let VolumeInfo { quota, used, users, .. } = volume;
    let of = |now: String, max: Option<String>| match max {
        Some(max) => format!("{now} of {max}"),
        None => now,
    };
    let size = units::show_size;
    let files = units::count(used.files, "file");
    let mut parts = vec![
        of(files, quota.files.map(|max| max.to_string())),
        of(size(used.bytes), quota.bytes.map(size)),
    ];
    for (user, used) in quota.users().iter().zip(users) {
        let has = of(size(*used), Some(size(user.bytes)));
        parts.push(format!("{} {has}", user_name(user.uid)));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_said_in_sizes_numbers_and_users() {
        assert_eq!(bytes("10G"), Ok(Bound::At(10 << 30)));
        assert_eq!(bytes("none"), Ok(Bound::None));
        assert_eq!(files("1000000"), Ok(Bound::At(1_000_000)));
        assert_eq!(user("1000=5M"), Ok((1000, Bound::At(5 << 20))));
        assert_eq!(user("0=none"), Ok((0, Bound::None)));
        assert!(bytes("much").is_err() && files("1k").is_err() && user("1000").is_err());
        assert!(user("nobody-has-this-name=1G").is_err());
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let mut quota = Quota { bytes: Some(7), files: Some(8), users: None };
        let wish = Wish { files: Some(Bound::None), users: vec![(5, Bound::At(6))], bytes: None };
        wish.change(&mut quota);
        assert_eq!((quota.bytes, quota.files, quota.users().len()), (Some(7), None, 1));
        assert!(!wish.is_none() && Wish::default().is_none());
    }
}
