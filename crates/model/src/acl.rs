//! POSIX access control lists, as Linux writes them into extended attributes.
//! Holds: what is read here is a list that the kernel would take; its bytes come out as they went
//! in.
//! From: POSIX 1003.1e draft 17, 23.1; acl(5).

/// The attribute of the list by which access is decided.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the list that a directory hands down to what is made in it.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// In the place of an id, where there is none.
const NOBODY: u32 = u32::MAX;
const PERMISSIONS: u16 = 0o7;
const ALL: u16 = 0o777;

/// Whom an entry is about, in the order in which entries stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    /// The most that users, groups and the owning group may have.
    Mask,
    Others,
}

impl Who {
    fn of(tag: u16, id: u32) -> Option<Who> {
        match (tag, id) {
            (0x01, _) => Some(Who::Owner),
            (0x02, id) if id != NOBODY => Some(Who::User(id)),
            (0x04, _) => Some(Who::OwningGroup),
            (0x08, id) if id != NOBODY => Some(Who::Group(id)),
            (0x10, _) => Some(Who::Mask),
            (0x20, _) => Some(Who::Others),
            _ => None,
        }
    }

    fn written(self) -> (u16, u32) {
        match self {
            Who::Owner => (0x01, NOBODY),
            Who::User(id) => (0x02, id),
            Who::OwningGroup => (0x04, NOBODY),
            Who::Group(id) => (0x08, id),
            Who::Mask => (0x10, NOBODY),
            Who::Others => (0x20, NOBODY),
        }
    }

    /// Where entries of this kind stand.
    fn rank(self) -> u16 {
        self.written().0
    }
}

/// A list that is in order: who owns it, the owning group and all others each once; and a mask if
/// anybody else is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<(Who, u16)>,
}

impl Acl {
    /// None: bytes that are no such list.
    pub fn read(bytes: &[u8]) -> Option<Acl> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        if head != VERSION.to_le_bytes() || !rest.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let mut entries = Vec::with_capacity(rest.len() / ENTRY_BYTES);
        for entry in rest.chunks_exact(ENTRY_BYTES) {
            let tag = u16::from_le_bytes([entry[0], entry[1]]);
            let permissions = u16::from_le_bytes([entry[2], entry[3]]);
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            if permissions & !PERMISSIONS != 0 {
                return None;
            }
            entries.push((Who::of(tag, id)?, permissions));
        }
        let acl = Acl { entries };
        acl.is_in_order().then_some(acl)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (who, permissions) in &self.entries {
            let (tag, id) = who.written();
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// The nine permission bits of a file that has this list.
    pub fn mode(&self) -> u16 {
        let group = self.of(Who::Mask).or(self.of(Who::OwningGroup));
        let [owner, others] = [Who::Owner, Who::Others].map(|who| self.of(who).unwrap_or(0));
        owner << 6 | group.unwrap_or(0) << 3 | others
    }

    /// The list that says what permission bits do, and no more.
    pub fn of_mode(mode: u16) -> Acl {
        let classes = [(Who::Owner, mode >> 6), (Who::OwningGroup, mode >> 3), (Who::Others, mode)];
        Acl { entries: classes.map(|(who, bits)| (who, bits & PERMISSIONS)).to_vec() }
    }

    /// Bits, setuid and its like among them, that give nobody more than the list does where there
    /// is none: what one of those on it may not do, the class that they may then be in may not.
    pub fn mode_alone(&self) -> u16 {
        let mask = self.of(Who::Mask).unwrap_or(PERMISSIONS);
        let least = |among: fn(&Who) -> bool| {
            let found = self.entries.iter().filter(|(who, _)| among(who));
            found.fold(PERMISSIONS, |least, (_, permissions)| least & permissions)
        };
        let users = least(|who| matches!(who, Who::User(_)));
        let groups = least(|who| matches!(who, Who::Group(_)));
        let of = |who| self.of(who).unwrap_or(0);
        let group = of(Who::OwningGroup) & mask & users & groups;
        let others = of(Who::Others) & users & groups;
        !ALL | of(Who::Owner) << 6 | group << 3 | others
    }

    /// Whether it says no more than the permission bits do.
    pub fn is_mode_alone(&self) -> bool {
        self.entries.len() == 3
    }

    /// Whether a user gets all of `wanted` of a file by this list, as a kernel decides. `is_in` says
    /// of a group whether the user is in it; where it does not know, it counts what is less.
    pub fn gives(
        &self,
        wanted: u16,
        (owner, group): (u32, u32),
        uid: u32,
        is_in: impl Fn(u32) -> Option<bool>,
    ) -> bool {
        let mask = self.of(Who::Mask).unwrap_or(PERMISSIONS);
        let has_all = |permissions: u16| permissions & wanted == wanted;
        if uid == owner {
            return self.of(Who::Owner).is_some_and(has_all);
        }
        if let Some(permissions) = self.of(Who::User(uid)) {
            return has_all(permissions & mask);
        }
        let mut is_other = true;
        for (who, permissions) in &self.entries {
            let membership = match who {
                Who::OwningGroup => is_in(group),
                Who::Group(group) => is_in(*group),
                _ => Some(false),
            };
            match (membership, has_all(permissions & mask)) {
                (Some(true), true) => return true,
                (Some(true) | None, false) => is_other = false,
                (Some(false), _) | (None, true) => {}
            }
        }
        is_other && self.of(Who::Others).is_some_and(has_all)
    }

    /// The list with other permission bits: who has the file and all others get theirs; those of
    /// the group are the mask's, if there is one.
    pub fn with_mode(&self, mode: u16) -> Acl {
        let class = self.group_class();
        self.each(|who, permissions| match who {
            Who::Owner => mode >> 6 & PERMISSIONS,
            Who::Others => mode & PERMISSIONS,
            who if who == class => mode >> 3 & PERMISSIONS,
            _ => permissions,
        })
    }

    /// As a directory's default, what a file gets that is made with these permission bits: no more
    /// than either says. The low nine bits of the mode are the list's then.
    pub fn handed_down(&self, mode: u16) -> (Acl, u16) {
        let list = self.with_mode(self.mode() & mode);
        let bits = list.mode();
        (list, mode & !ALL | bits)
    }

    fn group_class(&self) -> Who {
        if self.of(Who::Mask).is_some() { Who::Mask } else { Who::OwningGroup }
    }

    fn of(&self, who: Who) -> Option<u16> {
        let found = self.entries.iter().find(|(other, _)| *other == who);
        found.map(|(_, permissions)| *permissions)
    }

    fn each(&self, permissions: impl Fn(Who, u16) -> u16) -> Acl {
        let entries = self.entries.iter().map(|(who, had)| (*who, permissions(*who, *had)));
        Acl { entries: entries.collect() }
    }

    /// The kernel takes users and groups in any order among themselves, and the same one twice.
    fn is_in_order(&self) -> bool {
        let ranks = self.entries.iter().map(|(who, _)| who.rank());
        let sorted = ranks.is_sorted();
        let count = |wanted| self.entries.iter().filter(|(who, _)| *who == wanted).count();
        let once = [Who::Owner, Who::OwningGroup, Who::Others].iter().all(|who| count(*who) == 1);
        let names = |who: &Who| matches!(who, Who::User(_) | Who::Group(_));
        let needs_mask = self.entries.iter().any(|(who, _)| names(who));
        let masks = count(Who::Mask);
        sorted && once && masks <= 1 && (masks == 1 || !needs_mask)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const OWNING_GROUP: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHERS: u16 = 0x20;

    /// A list as the kernel writes it, whether it is one or not.
    pub(crate) fn written(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// rwx for the owner, rw- for user 7, r-- for the group, `mask`, and nothing for others.
    pub(crate) fn shared(mask: u16) -> Vec<u8> {
        written(&[
            (OWNER, 7, NOBODY),
            (USER, 6, 7),
            (OWNING_GROUP, 4, NOBODY),
            (MASK, mask, NOBODY),
            (OTHERS, 0, NOBODY),
        ])
    }

    fn plain() -> Vec<u8> {
        written(&[(OWNER, 6, NOBODY), (OWNING_GROUP, 4, NOBODY), (OTHERS, 4, NOBODY)])
    }

    #[test]
    fn lists_come_out_as_they_went_in() {
        for bytes in [plain(), shared(6)] {
            assert_eq!(Acl::read(&bytes).unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn what_the_kernel_would_not_take_is_no_list() {
        let (owner, group, others) =
            ((OWNER, 7, NOBODY), (OWNING_GROUP, 5, NOBODY), (OTHERS, 5, NOBODY));
        let (user, mask) = ((USER, 6, 7), (MASK, 7, NOBODY));
        let wrong: [&[(u16, u16, u32)]; 9] = [
            &[],
            &[owner, group],
            &[owner, others, group],
            &[owner, owner, group, others],
            &[owner, user, group, others],
            &[owner, user, group, mask, mask, others],
            &[owner, (USER, 6, NOBODY), group, mask, others],
            &[owner, (3, 6, 7), group, mask, others],
            &[(OWNER, 8, NOBODY), group, others],
        ];
        for entries in wrong {
            assert_eq!(Acl::read(&written(entries)), None, "{entries:?}");
        }
        let mut other_version = plain();
        other_version[0] = 1;
        assert_eq!(Acl::read(&other_version), None);
        assert_eq!(Acl::read(&plain()[..10]), None);
        assert_eq!(Acl::read(&[2, 0]), None);
    }

    #[test]
    fn the_mask_stands_for_the_group_in_the_mode() {
        let list = |bytes: Vec<u8>| Acl::read(&bytes).unwrap();
        assert_eq!((list(plain()).mode(), list(plain()).is_mode_alone()), (0o644, true));
        assert_eq!((list(shared(6)).mode(), list(shared(6)).is_mode_alone()), (0o760, false));
        assert_eq!(
            list(shared(6)).with_mode(0o421).to_bytes(),
            written(&[
                (OWNER, 4, NOBODY),
                (USER, 6, 7),
                (OWNING_GROUP, 4, NOBODY),
                (MASK, 2, NOBODY),
                (OTHERS, 1, NOBODY),
            ])
        );
        assert_eq!(list(plain()).with_mode(0o421).mode(), 0o421);
    }

    #[test]
    fn bits_alone_give_nobody_more_than_the_list_did() {
        let bits = |bytes: Vec<u8>| Acl::read(&bytes).unwrap().mode_alone() & ALL;
        assert_eq!(bits(plain()), 0o644);
        assert_eq!(bits(shared(6)), 0o740, "the group, not what user 7 may");
        assert_eq!(bits(shared(2)), 0o700, "nobody but the owner reads");
        let barred = written(&[
            (OWNER, 6, NOBODY),
            (USER, 0, 7),
            (OWNING_GROUP, 4, NOBODY),
            (MASK, 4, NOBODY),
            (OTHERS, 4, NOBODY),
        ]);
        assert_eq!(bits(barred), 0o600, "user 7 is one of the others then");
        assert_eq!(Acl::of_mode(0o4751).to_bytes(), Acl::of_mode(0o751).to_bytes());
        assert!(Acl::of_mode(0o751).is_mode_alone() && Acl::of_mode(0o751).mode() == 0o751);
    }

    #[test]
    fn a_user_gets_what_the_first_entry_for_him_says_and_of_groups_what_any_gives() {
        let list = |entries: &[(u16, u16, u32)]| Acl::read(&written(entries)).unwrap();
        let gives = |list: &Acl, wanted, uid, groups: &[u32], knows: bool| {
            let is_in = |group| match groups.contains(&group) {
                true => Some(true),
                false => knows.then_some(false),
            };
            list.gives(wanted, (1, 10), uid, is_in)
        };
        let mode = Acl::of_mode(0o457);
        assert!(gives(&mode, 4, 1, &[10], true) && !gives(&mode, 2, 1, &[10], true));
        assert!(gives(&mode, 5, 2, &[10], true) && !gives(&mode, 7, 2, &[10], true));
        assert!(gives(&mode, 7, 2, &[11], true) && !gives(&mode, 7, 2, &[11], false));
        assert!(gives(&mode, 5, 2, &[11], false), "whether or not it is in the group");
        let barred = list(&[
            (OWNER, 7, NOBODY),
            (USER, 0, 7),
            (OWNING_GROUP, 7, NOBODY),
            (GROUP, 1, 11),
            (GROUP, 6, 12),
            (MASK, 5, NOBODY),
            (OTHERS, 7, NOBODY),
        ]);
        assert!(!gives(&barred, 1, 7, &[10], true), "the user's own entry");
        assert!(gives(&barred, 5, 2, &[10], true) && !gives(&barred, 2, 2, &[10], true), "mask");
        assert!(gives(&barred, 4, 2, &[11, 12], true), "one group of two");
        assert!(!gives(&barred, 5, 2, &[11, 12], true), "no group gives both");
        assert!(gives(&barred, 7, 2, &[], true) && !gives(&barred, 7, 2, &[], false));
        assert!(!gives(
            &list(&[(OWNER, 0, NOBODY), (OWNING_GROUP, 0, NOBODY), (OTHERS, 7, NOBODY)]),
            1,
            1,
            &[10],
            true
        ));
    }

    #[test]
    fn what_is_handed_down_is_no_more_than_was_asked_for() {
        let (list, mode) = Acl::read(&shared(7)).unwrap().handed_down(0o2644);
        assert_eq!((mode, list.mode()), (0o2640, 0o640));
        assert_eq!(list.of(Who::User(7)), Some(6), "the mask alone is less");
    }

    fn entry() -> impl Strategy<Value = (u16, u16, u32)> {
        let tag = prop_oneof![
            Just(OWNER),
            Just(USER),
            Just(OWNING_GROUP),
            Just(GROUP),
            Just(MASK),
            Just(OTHERS)
        ];
        (tag, 0_u16..8, prop_oneof![Just(NOBODY), 0_u32..3])
    }

    proptest! {
        #[test]
        fn prop_a_list_that_is_read_has_a_mode_that_it_keeps(
            mut entries in prop::collection::vec(entry(), 0..7), mode in 0_u16..0o10000,
        ) {
            entries.sort_unstable();
            if let Some(list) = Acl::read(&written(&entries)) {
                prop_assert_eq!(list.with_mode(mode).mode(), mode & ALL);
                prop_assert_eq!(list.with_mode(list.mode()), list.clone());
                prop_assert_eq!(list.mode_alone() & ALL & !list.mode(), 0);
                let (down, bits) = list.handed_down(mode);
                prop_assert_eq!(bits & !(list.mode() | !ALL), 0);
                prop_assert_eq!(bits & !mode, 0);
                // Whoever makes it anew with what came out gets the same.
                prop_assert_eq!(list.handed_down(bits), (down, bits));
            }
        }

        #[test]
        fn prop_no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(list) = Acl::read(&bytes) {
                let again = Acl::read(&list.to_bytes());
                prop_assert_eq!(again, Some(list));
            }
        }
    }
}
