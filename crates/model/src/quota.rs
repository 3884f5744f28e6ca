//! What files count for, and how much of that a volume and its users may have.
//! Holds: what frees is never over a quota, however much is over it already.

use crate::{Kind, Node, Seq};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// Users of one volume that have quotas of their own, at most: all of them are told with each
/// answer that says how much is left.
pub const USER_QUOTAS_MAX: usize = 64;

/// What files count for: bytes of contents that are no holes, and one for each file of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct Usage {
    #[n(0)]
    pub bytes: u64,
    #[n(1)]
    pub files: u64,
}

impl Usage {
    pub fn of(node: &Node) -> Usage {
        let bytes = if node.kind == Kind::File { node.contents.data() } else { 0 };
        Usage { bytes, files: 1 }
    }

    /// None: it would be less than nothing, or more than is counted.
    pub fn with(self, growth: Growth) -> Option<Usage> {
        let add = |now: u64, by: i128| u64::try_from(i128::from(now).checked_add(by)?).ok();
        Some(Usage { bytes: add(self.bytes, growth.bytes)?, files: add(self.files, growth.files)? })
    }
}

/// By how much usage grows, or shrinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    pub bytes: i128,
    pub files: i128,
}

impl Growth {
    fn add(&mut self, usage: Usage, sign: i128) {
        self.bytes += sign * i128::from(usage.bytes);
        self.files += sign * i128::from(usage.files);
    }

    fn join(&mut self, other: Growth, sign: i128) {
        self.bytes += sign * other.bytes;
        self.files += sign * other.files;
    }
}

/// By how much the usage of each user grows or shrinks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Growths(BTreeMap<u32, Growth>);

impl Growths {
    /// What a file counts for after a change and did not before it.
    pub fn between(before: Option<&Node>, after: Option<&Node>) -> Growths {
        let mut growths = Growths::default();
        growths.note(before, after);
        growths
    }

    /// The same, beside what is here already.
    pub fn note(&mut self, before: Option<&Node>, after: Option<&Node>) {
        for (node, sign) in [(before, -1), (after, 1)] {
            if let Some(node) = node {
                self.0.entry(node.uid).or_default().add(Usage::of(node), sign);
            }
        }
        self.0.retain(|_, growth| *growth != Growth::default());
    }

    pub fn add_bytes(&mut self, uid: u32, bytes: u64) {
        self.0.entry(uid).or_default().bytes += i128::from(bytes);
    }

    pub fn join(&mut self, other: &Growths) {
        self.join_with(other, 1);
    }

    pub fn take_away(&mut self, other: &Growths) {
        self.join_with(other, -1);
    }

    fn join_with(&mut self, other: &Growths, sign: i128) {
        for (uid, growth) in &other.0 {
            self.0.entry(*uid).or_default().join(*growth, sign);
        }
        self.0.retain(|_, growth| *growth != Growth::default());
    }

    /// That of all users together.
    pub fn total(&self) -> Growth {
        let mut total = Growth::default();
        self.0.values().for_each(|growth| total.join(*growth, 1));
        total
    }

    pub fn of(&self, uid: u32) -> Growth {
        self.0.get(&uid).copied().unwrap_or_default()
    }

    /// Every user whose usage changes.
    pub fn users(&self) -> impl Iterator<Item = (u32, Growth)> {
        self.0.iter().map(|(uid, growth)| (*uid, *growth))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether somebody has more than before.
    pub fn grows(&self) -> bool {
        self.0.values().any(|growth| growth.bytes > 0 || growth.files > 0)
    }
}

/// What a volume may have. None: as much as there is room for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct Quota {
    #[n(0)]
    pub bytes: Option<u64>,
    #[n(1)]
    pub files: Option<u64>,
    /// At most `USER_QUOTAS_MAX`, each user once.
    #[n(2)]
    pub users: Option<Vec<UserQuota>>,
}

/// What the files of one user may have in a volume, by the number of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct UserQuota {
    #[n(0)]
    pub uid: u32,
    #[n(1)]
    pub bytes: u64,
}

impl Quota {
    pub fn is_none(&self) -> bool {
        *self == Quota::default()
    }

    pub fn users(&self) -> &[UserQuota] {
        self.users.as_deref().unwrap_or_default()
    }

    /// None takes away the user's quota.
    pub fn set_user(&mut self, uid: u32, bytes: Option<u64>) {
        let mut users = self.users.take().unwrap_or_default();
        users.retain(|user| user.uid != uid);
        users.extend(bytes.map(|bytes| UserQuota { uid, bytes }));
        users.sort_unstable_by_key(|user| user.uid);
        self.users = (!users.is_empty()).then_some(users);
    }
}

/// A quota, and what there is of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct Allowance {
    #[n(0)]
    pub quota: Quota,
    #[n(1)]
    pub used: Usage,
    /// Bytes that the users of the quota have, in its order.
    #[n(2)]
    pub users: Option<Vec<u64>>,
    /// The position that all of it is as of.
    #[n(3)]
    pub upto: Seq,
    /// It counts the asker's own updates up to this number.
    #[n(4)]
    pub taken: u64,
}

impl Allowance {
    /// Whether `more` is too much where `pending` comes before it. Who has more of nothing has
    /// never too much.
    pub fn is_exceeded_by(&self, pending: &Growths, more: &Growths) -> bool {
        let over = |used: u64, max: Option<u64>, before: i128, by: i128| {
            by > 0 && max.is_some_and(|max| i128::from(used) + before + by > i128::from(max))
        };
        let (before, by) = (pending.total(), more.total());
        let Quota { bytes, files, .. } = self.quota;
        over(self.used.bytes, bytes, before.bytes, by.bytes)
            || over(self.used.files, files, before.files, by.files)
            || self.of_users().any(|(user, used)| {
                let (before, by) = (pending.of(user.uid), more.of(user.uid));
                over(used, Some(user.bytes), before.bytes, by.bytes)
            })
    }

    /// The users that have quotas, with the bytes that each has.
    pub fn of_users(&self) -> impl Iterator<Item = (UserQuota, u64)> {
        let used = self.users.as_deref().unwrap_or_default();
        let used = used.iter().copied().chain(std::iter::repeat(0));
        self.quota.users().iter().copied().zip(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Contents, Time};

    fn file(uid: u32, size: u64, holes: u64) -> Node {
        let contents = Contents { size, root: None, holes: Some(holes) };
        let node = Node::root_directory(uid, uid, Time::default());
        Node { kind: Kind::File, contents, ..node }
    }

    fn allowance(bytes: u64, files: u64) -> Allowance {
        let quota = Quota {
            bytes: Some(100),
            files: Some(10),
            users: Some(vec![UserQuota { uid: 7, bytes: 50 }]),
        };
        Allowance {
            quota,
            used: Usage { bytes, files },
            users: Some(vec![40]),
            ..Allowance::default()
        }
    }

    fn more(uid: u32, bytes: u64) -> Growths {
        let mut growths = Growths::default();
        growths.add_bytes(uid, bytes);
        growths
    }

    #[test]
    fn holes_and_what_is_no_file_count_no_bytes() {
        assert_eq!(Usage::of(&file(1, 100, 70)), Usage { bytes: 30, files: 1 });
        let directory = Node::root_directory(1, 1, Time::default());
        assert_eq!(Usage::of(&directory), Usage { bytes: 0, files: 1 });
    }

    #[test]
    fn an_owner_that_changes_takes_along_what_the_file_counts_for() {
        let growths = Growths::between(Some(&file(1, 30, 0)), Some(&file(2, 40, 0)));
        assert_eq!(growths.of(1), Growth { bytes: -30, files: -1 });
        assert_eq!(growths.of(2), Growth { bytes: 40, files: 1 });
        assert_eq!(growths.total(), Growth { bytes: 10, files: 0 });
        assert!(Growths::between(Some(&file(1, 30, 0)), Some(&file(1, 30, 0))).is_empty());
    }

    #[test]
    fn a_quota_holds_to_the_last_byte_and_counts_what_is_pending() {
        let (none, allowed) = (Growths::default(), allowance(90, 3));
        assert!(!allowed.is_exceeded_by(&none, &more(1, 10)));
        assert!(allowed.is_exceeded_by(&none, &more(1, 11)));
        assert!(allowed.is_exceeded_by(&more(2, 1), &more(1, 10)));
        let made = Growths::between(None, Some(&file(1, 0, 0)));
        assert!(allowance(0, 10).is_exceeded_by(&none, &made));
        assert!(!allowance(0, 9).is_exceeded_by(&none, &made));
    }

    #[test]
    fn a_user_has_a_quota_beside_that_of_the_volume() {
        let (none, allowed) = (Growths::default(), allowance(0, 0));
        assert!(!allowed.is_exceeded_by(&none, &more(7, 10)));
        assert!(allowed.is_exceeded_by(&none, &more(7, 11)));
        assert!(!allowed.is_exceeded_by(&none, &more(8, 11)));
        let given = Growths::between(Some(&file(8, 20, 0)), Some(&file(7, 20, 0)));
        assert!(allowed.is_exceeded_by(&none, &given), "of a file that is given away");
    }

    #[test]
    fn what_frees_is_never_too_much() {
        let over = allowance(1000, 1000);
        let (none, kept) = (Growths::default(), file(7, 30, 0));
        assert!(!over.is_exceeded_by(&none, &Growths::between(Some(&kept), None)));
        let cut = Growths::between(Some(&kept), Some(&file(7, 10, 0)));
        assert!(!over.is_exceeded_by(&none, &cut));
        assert!(!over.is_exceeded_by(&none, &Growths::default()));
    }

    #[test]
    fn a_users_quota_is_set_changed_and_taken_away() {
        let mut quota = Quota::default();
        quota.set_user(9, Some(1));
        quota.set_user(3, Some(2));
        quota.set_user(9, Some(4));
        let users = quota.users().iter().map(|user| (user.uid, user.bytes)).collect::<Vec<_>>();
        assert_eq!(users, [(3, 2), (9, 4)]);
        quota.set_user(3, None);
        quota.set_user(9, None);
        assert!(quota.is_none());
    }

    #[test]
    fn usage_that_does_not_add_up_is_seen() {
        let usage = Usage { bytes: 5, files: 1 };
        assert_eq!(usage.with(Growth { bytes: -6, files: 0 }), None);
        let less = usage.with(Growth { bytes: -5, files: -1 });
        assert_eq!(less, Some(Usage::default()));
    }
}
