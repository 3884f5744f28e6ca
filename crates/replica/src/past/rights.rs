//! What a user may do, as far as it can be told here: by modes and access lists, as a kernel
//! decides.
//! Holds: in doubt it is no. What a user may do by a group that was not told of is not known here.

use super::history::{last_file, shown};
use crate::error::Result;
use model::{ACL_ACCESS, ACL_DEFAULT, Acl, CAPABILITY, FileId, Kind, Name, Node, SET_IDS, Seq};
use protocol::past::{By, GROUPS_MAX};
use volume::whole::Whole;

pub(super) const WRITE: u16 = 0o2;
pub(super) const SEARCH: u16 = 0o1;
const OF_OWNER: u16 = 0o700;
const SET_GROUP: u16 = 0o2000;
/// How names of attributes begin that who owns the file may set.
const OF_USERS: &[u8] = b"user.";

/// Whether a user has all of these permissions for a file.
pub(super) fn may(by: &By, node: &Node, wanted: u16) -> bool {
    let list = match node.xattr(ACL_ACCESS).map(Acl::read) {
        None => Acl::of_mode(node.mode),
        Some(Some(list)) => list.with_mode(node.mode),
        Some(None) => Acl::of_mode(node.mode & OF_OWNER),
    };
    by.uid == 0 || list.gives(wanted, (node.uid, node.gid), by.uid, |group| is_in(by, group))
}

fn is_in(by: &By, group: u32) -> Option<bool> {
    let groups = by.groups.as_ref().filter(|groups| groups.len() <= GROUPS_MAX);
    match group == by.gid || groups.is_some_and(|groups| groups.contains(&group)) {
        true => Some(true),
        false => groups.map(|_| false),
    }
}

/// The first directory on the way to a path that a user may not search: as it was before a position,
/// or where it was removed, as it was last.
pub(super) fn hidden(
    view: &Whole<'_>,
    by: &By,
    path: &[Name],
    before: Seq,
) -> Result<Option<String>> {
    if by.uid == 0 {
        return Ok(None);
    }
    let mut directory = FileId::ROOT;
    for (depth, name) in path.iter().enumerate() {
        if !searches(view, by, directory, before)? {
            return Ok(Some(shown(&path[..depth])));
        }
        match last_file(view, directory, name, before)? {
            Some(file) => directory = file,
            None => break,
        }
    }
    Ok(None)
}

/// Whether a user may search a directory as it is, or as it was last.
pub(super) fn may_search(view: &Whole<'_>, by: &By, directory: FileId) -> Result<bool> {
    searches(view, by, directory, Seq(u64::MAX))
}

fn searches(view: &Whole<'_>, by: &By, directory: FileId, before: Seq) -> Result<bool> {
    Ok(last_node(view, directory, before)?.is_some_and(|node| may(by, &node, SEARCH)))
}

fn last_node(view: &Whole<'_>, file: FileId, before: Seq) -> Result<Option<Node>> {
    let Some(last) = view.node_version_before(file, before)? else { return Ok(None) };
    match last.node {
        Some(node) => Ok(Some(node)),
        None => Ok(view.node_before(file, last.seq)?),
    }
}

/// The group and mode of then as a user could give them to his file: it keeps the group that it has
/// where he is not in that of then, and nobody runs it, or makes files in it, as another one.
pub(super) fn settable(by: &By, then: &Node, present_group: u32) -> (u32, u16) {
    let is_his = |group| by.uid == 0 || is_in(by, group) == Some(true);
    let group = if is_his(then.gid) { then.gid } else { present_group };
    let lost = match then.kind {
        _ if is_his(group) && group == then.gid => 0,
        Kind::Directory => SET_GROUP,
        _ => SET_IDS,
    };
    (group, then.mode & !lost)
}

/// The group that what a user makes in a directory gets.
pub(super) fn group_within(by: &By, directory: &Node) -> u32 {
    if directory.mode & SET_GROUP != 0 { directory.gid } else { by.gid }
}

/// Whether a user may set and remove an attribute of a file that is his own.
pub(super) fn may_set(by: &By, name: &[u8]) -> bool {
    by.uid == 0 || name.starts_with(OF_USERS) || [ACL_ACCESS, ACL_DEFAULT].contains(&name)
}

/// Whether an attribute goes when a user writes to the file.
pub(super) fn is_lost(by: &By, name: &[u8]) -> bool {
    by.uid != 0 && name == CAPABILITY
}
