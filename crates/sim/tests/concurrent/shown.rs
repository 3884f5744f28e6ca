//! A case's tree and its conflicts in one line, as docs/SEMANTICS.md writes them.

use model::{ACL_ACCESS, Kind, Name};
use protocol::past::ConflictInfo;
use sim::contents::stretch;
use sim::tree::{Leaf, Tree};
use std::collections::BTreeMap;

/// Of all contents but those of nothing.
pub const LENGTH: usize = 100;
pub const TAG: &[u8] = b"user.tag";
/// Who has what is made, by user and group.
const UID: u32 = 1000;
pub const GID: u32 = 1000;
/// Times that were set come long before those that were not.
const SET_SECS_MAX: i64 = 1_000_000;

/// Rights for the owner, one more user, and the group.
pub fn list_of(user: u32) -> Vec<u8> {
    let nobody = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, nobody), (2, 6, user), (4, 4, nobody), (16, 6, nobody), (32, 0, nobody)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// By the directory that a case is in.
pub fn all_shown(tree: &Tree, conflicts: &[ConflictInfo]) -> BTreeMap<String, String> {
    let mut cases: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (path, leaf) in &tree.0 {
        if let [case, names @ ..] = &path.0[..]
            && !names.is_empty()
        {
            cases.entry(case.to_string()).or_default().0.push(shown(names, leaf));
        }
    }
    for conflict in conflicts {
        let path = conflict.path.as_ref().or(conflict.aside.as_ref());
        let [case, names @ ..] = &path.unwrap()[..] else { panic!("{conflict:?}") };
        let told = listed(names, conflict);
        cases.entry(case.to_string()).or_default().1.push(told);
    }
    cases.into_iter().map(|(case, (leaves, conflicts))| (case, line(&leaves, &conflicts))).collect()
}

fn line(leaves: &[String], conflicts: &[String]) -> String {
    let tree = if leaves.is_empty() { "nothing".to_owned() } else { leaves.join(" ") };
    if conflicts.is_empty() { tree } else { format!("{tree} ({})", conflicts.join(", ")) }
}

fn listed(names: &[Name], conflict: &ConflictInfo) -> String {
    let clash = format!("{:?}", conflict.clash).to_lowercase();
    format!("{clash} {} by {}", path(names), number_of(&conflict.device))
}

/// The machines are `client0` and `client1`, and the two are 1 and 2.
fn number_of(device: &str) -> u32 {
    device.strip_prefix("client").unwrap().parse::<u32>().unwrap() + 1
}

/// `a (conflict of client1 2026-11-21 12.00.05)` is `a~2`.
fn path(names: &[Name]) -> String {
    let short = |name: &Name| {
        let name = name.to_string();
        let Some((stem, rest)) = name.split_once(" (conflict of ") else { return name };
        let device = rest.split(' ').next().unwrap();
        format!("{stem}~{}", number_of(device))
    };
    names.iter().map(short).collect::<Vec<_>>().join("/")
}

fn shown(names: &[Name], leaf: &Leaf) -> String {
    let (path, node) = (path(names), &leaf.shown);
    let (what, usual) = match node.kind {
        Kind::Directory => (format!("{path}/"), 0o755),
        Kind::Symlink => {
            let target = leaf.target.clone().unwrap();
            (format!("{path}->{}", String::from_utf8(target).unwrap()), node.mode)
        }
        _ => (format!("{path}={}", contents(leaf)), 0o644),
    };
    let mut marks = String::new();
    if node.mode != usual {
        marks.push_str(&format!(":{:o}", node.mode));
    }
    if node.uid != UID {
        marks.push_str(&format!(":u{}", node.uid));
    }
    if let Some(tag) = leaf.xattrs.get(TAG) {
        marks.push_str(&format!("#{}", String::from_utf8_lossy(tag)));
    }
    if let Some(list) = leaf.xattrs.get(ACL_ACCESS) {
        // Whose the second entry is, who has a list from here.
        let user = [7_u32, 8].into_iter().find(|user| list[16..20] == user.to_le_bytes());
        marks.push_str(&format!("+acl{}", user.unwrap()));
    }
    if let Some(mtime) = node.mtime.filter(|mtime| mtime.secs < SET_SECS_MAX) {
        marks.push_str(&format!("@{}", mtime.secs));
    }
    if node.kind != Kind::Directory && node.links > 1 {
        marks.push_str(&format!("x{}", node.links));
    }
    what + &marks
}

/// Whose they are, 0 for what was there before; or none.
fn contents(leaf: &Leaf) -> String {
    let bytes = leaf.contents.as_ref().unwrap();
    if bytes.is_empty() {
        return "-".into();
    }
    let whose = (0..=2).find(|who| stretch(*who, LENGTH) == **bytes);
    whose.map_or("?".into(), |who| who.to_string())
}
