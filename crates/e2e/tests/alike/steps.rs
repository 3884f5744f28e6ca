//! The calls that are tried, and how they are drawn.

use crate::chance::Chance;
use libc::*;

/// What is in the large file, about.
pub const LARGE_BYTES: usize = 17 << 20;
pub const SLOTS: usize = 4;
/// Who calls: user, group and supplementary groups. The first is root.
pub const USERS: [(u32, u32, &[u32]); 4] =
    [(0, 0, &[]), (1001, 1001, &[2001]), (1002, 1002, &[2001, 2002]), (1003, 2001, &[])];

#[derive(Clone, Debug)]
pub struct Step {
    pub user: usize,
    pub call: Call,
}

/// A file by its name or by an open descriptor.
#[derive(Clone, Debug)]
pub enum Which {
    Name(String, bool),
    Slot(usize),
}

#[derive(Clone, Debug)]
pub enum Call {
    Open { slot: usize, at: Option<usize>, path: String, flags: i32, mode: u32, resolve: u64 },
    Reopen { from: usize, slot: usize, flags: i32 },
    ByHandle { slot: usize, path: String, flags: i32 },
    Close { slot: usize },
    Read { slot: usize, bytes: usize },
    ReadAt { slot: usize, at: i64, bytes: usize, flags: i32 },
    Write { slot: usize, bytes: usize, fill: u8 },
    WriteAt { slot: usize, at: i64, bytes: usize, fill: u8, flags: i32 },
    Seek { slot: usize, at: i64, whence: i32 },
    Cut { which: Which, length: i64 },
    Allocate { slot: usize, mode: i32, at: i64, length: i64 },
    CopyRange { from: usize, at: i64, slot: usize, to: i64, bytes: usize },
    SendFile { from: usize, slot: usize, bytes: usize },
    Splice { from: usize, slot: usize, at: i64, bytes: usize },
    MapWhole { slot: usize, at: usize, bytes: usize, fill: u8, shared: bool, sync: bool },
    Map { slot: usize },
    Poke { at: usize, bytes: usize, fill: u8 },
    Peek { at: usize, bytes: usize },
    SyncMap,
    Unmap,
    Rename { from: String, to: String, flags: u32 },
    Link { from: String, to: String, flags: i32 },
    LinkOpen { slot: usize, to: String, by_proc: bool },
    Symlink { target: String, path: String },
    Unlink { path: String, flags: i32 },
    Mkdir { path: String, mode: u32 },
    Mknod { path: String, mode: u32, device: u64 },
    Chmod { which: Which, mode: u32 },
    Chown { which: Which, uid: u32, gid: u32 },
    Times { which: Which, read: (i64, i64), changed: (i64, i64) },
    SetAttribute { which: Which, name: String, value: Vec<u8>, flags: i32 },
    Attribute { which: Which, name: String, room: usize },
    Attributes { which: Which, room: usize },
    RemoveAttribute { which: Which, name: String },
    Stat { which: Which, mask: u32 },
    Access { path: String, mode: i32, flags: i32 },
    ReadLink { path: String, room: usize },
    List { slot: usize },
    Sync { slot: usize, how: usize },
    Flock { slot: usize, how: i32 },
    Record { slot: usize, kind: i32, at: i64, bytes: i64, command: i32 },
    Advise { slot: usize, how: i32, at: i64, bytes: i64 },
    Seals { slot: usize },
    Lease { slot: usize, kind: i32 },
    Flags { slot: usize, flags: i32 },
    Umask { mask: u32 },
    Look { deep: bool },
}

/// What one seed does.
pub fn drawn(mut chance: Chance, steps: usize) -> Vec<Step> {
    let root_only = chance.percent(40);
    let mut drawn = Vec::new();
    for _ in 0..steps {
        let user = if root_only || chance.percent(40) { 0 } else { chance.below(USERS.len()) };
        let call = call(&mut chance);
        // Beyond the largest file a write takes privileges here before it fails.
        let is_far = matches!(call, Call::WriteAt { at, .. } if at > 1 << 43);
        drawn.push(Step { user: if is_far { 0 } else { user }, call });
        if chance.percent(40) {
            drawn.push(Step { user: 0, call: Call::Look { deep: chance.percent(25) } });
        }
    }
    drawn
}

fn call(chance: &mut Chance) -> Call {
    match chance.below(100) {
        0..=19 => opening(chance),
        20..=39 => contents(chance),
        40..=51 => ranges(chance),
        52..=57 => mapping(chance),
        58..=75 => names(chance),
        76..=93 => attributes(chance),
        _ => rest(chance),
    }
}

fn slot(chance: &mut Chance) -> usize {
    chance.below(SLOTS)
}

fn path(chance: &mut Chance) -> String {
    let top = chance.of(&["a", "b", "c", "d", "e", "d", "e"]);
    if chance.large && chance.percent(60) {
        return chance.of(&["big", "big", "big", "ro"]).to_owned();
    }
    let mut path = match chance.below(20) {
        0..=10 => top.to_owned(),
        11..=17 => format!("{top}/{}", chance.of(&["a", "b", "c"])),
        18 => format!("{top}/{}/{}", chance.of(&["a", "b", "c"]), chance.of(&["a", "b"])),
        _ => format!("./{top}/../{}", chance.of(&["a", "b", "d"])),
    };
    if chance.percent(8) {
        path += chance.of(&["/", "/.", "/..", "//", "/./a", "/../a"]);
    }
    match chance.below(150) {
        0 => "n".repeat(255),
        1 => "n".repeat(256),
        2 => String::new(),
        3 => ".".into(),
        4 => "..".into(),
        5 => "nowhere/a".into(),
        _ => path,
    }
}

fn which(chance: &mut Chance) -> Which {
    if chance.percent(35) {
        Which::Slot(slot(chance))
    } else {
        Which::Name(path(chance), chance.percent(70))
    }
}

fn offset(chance: &mut Chance) -> i64 {
    if chance.large && chance.percent(50) {
        return chance.below(LARGE_BYTES + 100_000) as i64;
    }
    match chance.below(20) {
        0..=5 => 0,
        6..=10 => chance.of(&[1, 511, 512, 4095, 4096, 4097, 8192]),
        11..=16 => chance.below(70_000) as i64,
        17 => chance.below(200_000) as i64,
        18 => chance.of(&[1 << 20, 1 << 31, 1 << 40]),
        _ => chance.of(&[-1, i64::MAX - 200_000, (1 << 44) - 400_000]),
    }
}

fn bytes(chance: &mut Chance) -> usize {
    match chance.below(10) {
        0 => 0,
        1..=3 => chance.of(&[1, 10, 512, 4096, 8192]),
        4..=8 => chance.below(20_000),
        _ => chance.below(150_000),
    }
}

fn fill(chance: &mut Chance) -> u8 {
    if chance.percent(10) { 0 } else { chance.below(255) as u8 + 1 }
}

fn opening(chance: &mut Chance) -> Call {
    let slot = slot(chance);
    match chance.below(20) {
        0..=3 => Call::Close { slot },
        4 => Call::Reopen { from: chance.below(SLOTS), slot, flags: open_flags(chance) },
        5 => Call::ByHandle { slot, path: path(chance), flags: chance.of(&[O_RDONLY, O_RDWR]) },
        6 => {
            let flags = O_TMPFILE | chance.of(&[O_RDWR, O_WRONLY, O_RDWR | O_EXCL, O_RDONLY]);
            let path = chance.of(&[".", "d", "e"]).to_owned();
            Call::Open { slot, at: None, path, flags, mode: mode(chance), resolve: 0 }
        }
        7..=9 => {
            let flags = chance.of(&[O_RDONLY, O_RDONLY | O_DIRECTORY, O_PATH, O_PATH | O_NOFOLLOW]);
            let path = chance.of(&["d", "e", ".", "c"]).to_owned();
            Call::Open { slot, at: None, path, flags, mode: 0, resolve: 0 }
        }
        _ => {
            let at = chance.percent(10).then(|| chance.below(SLOTS));
            let resolve = if chance.percent(8) {
                // RESOLVE_NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT
                chance.of(&[1, 2, 4, 8, 16, 12])
            } else {
                0
            };
            let (path, flags) = (path(chance), open_flags(chance));
            Call::Open { slot, at, path, flags, mode: mode(chance), resolve }
        }
    }
}

fn open_flags(chance: &mut Chance) -> i32 {
    let mut flags = chance.of(&[O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR]);
    for (flag, percent) in [
        (O_CREAT, 50),
        (O_EXCL, 12),
        (O_TRUNC, 15),
        (O_APPEND, 15),
        (O_NOFOLLOW, 8),
        (O_DIRECTORY, 3),
        (O_PATH, 4),
        (O_SYNC, 3),
        (O_NOATIME, 3),
    ] {
        if chance.percent(percent) {
            flags |= flag;
        }
    }
    flags
}

fn mode(chance: &mut Chance) -> u32 {
    chance
        .of(&[0o644, 0o666, 0o600, 0o777, 0o755, 0o4755, 0o2755, 0o6777, 0o1777, 0o2777, 0, 0o2644])
}

fn contents(chance: &mut Chance) -> Call {
    let (slot, at) = (slot(chance), offset(chance));
    let (bytes, fill) = (bytes(chance), fill(chance));
    match chance.below(20) {
        0..=1 => Call::Read { slot, bytes },
        // RWF_HIPRI, DSYNC, SYNC, NOWAIT, APPEND, NOAPPEND, and one that nobody knows.
        2..=5 => Call::ReadAt { slot, at, bytes, flags: flagged(chance, &[1, 2, 8, 16, 1 << 20]) },
        6..=9 => Call::Write { slot, bytes, fill },
        10..=14 => {
            let flags = flagged(chance, &[2, 4, 8, 16, 32, 1 << 20]);
            Call::WriteAt { slot, at, bytes, fill, flags }
        }
        15..=16 => {
            let at = if at > 1 << 41 { -at } else { at };
            Call::Seek { slot, at, whence: chance.of(&[0, 1, 2, 3, 4, 5]) }
        }
        _ => Call::Cut { which: which(chance), length: at },
    }
}

fn flagged(chance: &mut Chance, flags: &[i32]) -> i32 {
    if chance.percent(15) { chance.of(flags) } else { 0 }
}

fn ranges(chance: &mut Chance) -> Call {
    let (slot, from) = (slot(chance), slot(chance));
    let bytes = bytes(chance);
    match chance.below(10) {
        0..=3 => {
            let mode = chance.of(&[0, 1, 2, 3, 3, 16, 17, 0, 1, 4, 19]);
            // Beyond what ext4 has in one file, what changes nothing may be done to a FUSE file.
            let at = offset(chance).min(1 << 41);
            Call::Allocate { slot, mode, at, length: bytes as i64 }
        }
        4..=6 => {
            let (at, to) = (offset(chance), offset(chance));
            Call::CopyRange { from, at, slot, to, bytes }
        }
        7 => Call::SendFile { from, slot, bytes },
        8 => Call::Splice { from, slot, at: offset(chance), bytes: bytes.min(60_000) },
        _ => Call::Advise {
            slot,
            how: chance.of(&[0, 1, 2, 3, 4, 5, 9]),
            at: offset(chance),
            bytes: chance.of(&[0, 1, 4096, -1]),
        },
    }
}

fn mapping(chance: &mut Chance) -> Call {
    let (at, bytes, fill) = (chance.below(70_000), chance.below(5_000) + 1, fill(chance));
    match chance.below(12) {
        0..=4 => {
            let (shared, sync) = (chance.percent(75), chance.percent(40));
            Call::MapWhole { slot: slot(chance), at, bytes, fill, shared, sync }
        }
        5..=6 => Call::Map { slot: slot(chance) },
        7..=8 => Call::Poke { at, bytes, fill },
        9 => Call::Peek { at, bytes },
        10 => Call::SyncMap,
        _ => Call::Unmap,
    }
}

fn names(chance: &mut Chance) -> Call {
    let (from, to) = (path(chance), path(chance));
    match chance.below(20) {
        0..=4 => {
            let flags = chance.of(&[0, 0, 0, 1, 2, 4, 5, 3, 6, 8]);
            Call::Rename { from, to, flags }
        }
        5..=7 => Call::Link { from, to, flags: chance.of(&[0, 0, AT_SYMLINK_FOLLOW, 1]) },
        8 => Call::LinkOpen { slot: slot(chance), to, by_proc: chance.percent(50) },
        9..=11 => {
            let target = if chance.percent(20) {
                chance.of(&["../a", "d/../b", "e", "c"]).into()
            } else {
                from
            };
            Call::Symlink { target, path: to }
        }
        12..=14 => Call::Unlink { path: to, flags: 0 },
        15 => Call::Unlink { path: to, flags: chance.of(&[AT_REMOVEDIR, AT_REMOVEDIR, 1]) },
        16..=18 => Call::Mkdir { path: to, mode: mode(chance) },
        _ => {
            let kind =
                chance.of(&[S_IFREG, 0, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFDIR, S_IFLNK]);
            let device = chance.of(&[0, makedev(1, 3)]);
            Call::Mknod { path: to, mode: kind | mode(chance), device }
        }
    }
}

fn moment(chance: &mut Chance) -> (i64, i64) {
    let seconds = chance.of(&[0, 1, -1, -100_000, 1_000_000_000, 4_102_444_800]);
    let nanos = [0, 1, 999_999_999, UTIME_NOW, UTIME_OMIT, UTIME_NOW, UTIME_OMIT, 1_000_000_000];
    (seconds, chance.of(&nanos))
}

fn attributes(chance: &mut Chance) -> Call {
    let which = which(chance);
    let id = |chance: &mut Chance| chance.of(&[u32::MAX, u32::MAX, 0, 1001, 1002, 2001, 2002]);
    match chance.below(26) {
        0..=3 => Call::Chmod { which, mode: mode(chance) },
        4..=6 => Call::Chown { which, uid: id(chance), gid: id(chance) },
        7..=8 => Call::Times { which, read: moment(chance), changed: moment(chance) },
        9..=11 => {
            let value = vec![chance.below(256) as u8; chance.of(&[0, 1, 5, 40, 300])];
            let flags = chance.of(&[0, 0, XATTR_CREATE, XATTR_REPLACE, 4]);
            Call::SetAttribute { which, name: attribute(chance), value, flags }
        }
        12..=14 => {
            let name = if chance.percent(60) {
                "system.posix_acl_access"
            } else {
                "system.posix_acl_default"
            };
            let flags = flagged(chance, &[XATTR_CREATE, XATTR_REPLACE]);
            Call::SetAttribute { which, name: name.into(), value: list(chance), flags }
        }
        15 => {
            Call::Attribute { which, name: attribute(chance), room: chance.of(&[0, 1, 5, 65_536]) }
        }
        16 => Call::Attributes { which, room: chance.of(&[0, 0, 5, 65_536]) },
        17 => Call::RemoveAttribute { which, name: attribute(chance) },
        18..=21 => {
            let mode = chance.of(&[0, 1, 2, 4, 6, 7, 8]);
            let flags = chance.of(&[0, 0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, 0x10]);
            Call::Access { path: path(chance), mode, flags }
        }
        22..=23 => Call::Stat { which, mask: chance.of(&[0x7ff, 0x7ff, 0x200, 0x8000_0000]) },
        _ => Call::ReadLink { path: path(chance), room: chance.of(&[0, 1, 5, 4096]) },
    }
}

fn attribute(chance: &mut Chance) -> String {
    let known = [
        "user.a",
        "user.b",
        "trusted.t",
        "security.x",
        "user.",
        "nothing",
        "system.posix_acl_access",
    ];
    if chance.percent(4) {
        return format!("user.{}", "n".repeat(chance.of(&[250, 251])));
    }
    chance.of(&known).into()
}

/// An access list, now and then one that is none.
fn list(chance: &mut Chance) -> Vec<u8> {
    let some = |chance: &mut Chance| chance.below(8) as u16;
    let mut entries = vec![(1, some(chance), u32::MAX)];
    let named = chance.percent(60);
    if named {
        entries.push((2, some(chance), chance.of(&[1001, 1002])));
    }
    entries.push((4, some(chance), u32::MAX));
    if named && chance.percent(50) {
        entries.push((8, some(chance), 2001));
    }
    if named != chance.percent(5) {
        entries.push((16, some(chance), u32::MAX));
    }
    entries.push((32, some(chance), u32::MAX));
    let mut list = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(permissions.to_le_bytes());
        list.extend(u32::to_le_bytes(id));
    }
    if chance.percent(6) {
        list.truncate(chance.below(list.len()));
    }
    list
}

fn rest(chance: &mut Chance) -> Call {
    let slot = slot(chance);
    match chance.below(12) {
        0..=2 => Call::List { slot },
        3..=4 => Call::Sync { slot, how: chance.below(4) },
        5 => Call::Flock { slot, how: chance.of(&[LOCK_SH, LOCK_EX, LOCK_UN]) | LOCK_NB },
        6..=7 => Call::Record {
            slot,
            kind: chance.of(&[F_RDLCK, F_WRLCK, F_UNLCK]),
            at: offset(chance),
            bytes: chance.of(&[0, 1, 100, 5000, -1]),
            command: chance.of(&[F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK]),
        },
        8 => Call::Seals { slot },
        9 => Call::Lease { slot, kind: chance.of(&[F_RDLCK, F_WRLCK]) },
        10 => Call::Flags { slot, flags: chance.of(&[0, O_APPEND, O_NOATIME]) },
        _ => Call::Umask { mask: chance.of(&[0, 0o22, 0o77, 0o27]) },
    }
}
