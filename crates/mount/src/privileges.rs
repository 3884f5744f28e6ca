//! What the directory gives to what is made in it, and what a write, a change of owner or an
//! access control list takes from a program's setuid and setgid bits and capabilities. The kernel
//! leaves both to us: it would ask for `security.capability` before every write otherwise.

use crate::replies::caller;
use client::{Caller, Client, Done, Handle, Setting, Step};
use fuse::Request;
use model::{ACL_DEFAULT, CAPABILITY, FileId, Kind, Node};
use protocol::Upstream;
use store::Containers;

const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// Mode and group of what is made in `directory`: a setgid directory hands its group down, and
/// to directories the bit as well.
pub(crate) fn inherited(directory: &Node, kind: Kind, mode: u16, gid: u32) -> (u16, u32) {
    if directory.mode & SETGID == 0 {
        return (mode, gid);
    }
    let bit = if kind == Kind::Directory { SETGID } else { 0 };
    (mode | bit, directory.gid)
}

/// The mode without what the user's mask takes away. Where the directory hands an access control
/// list down, that says instead what is not given to others.
pub(crate) fn masked(directory: &Node, kind: Kind, mode: u16, umask: u16) -> u16 {
    match directory.acl(ACL_DEFAULT) {
        Some(list) if kind != Kind::Symlink => list.handed_down(mode).1,
        _ => mode & !umask,
    }
}

/// The mode without setgid, which who is not of the file's group may not keep when setting an
/// access control list. None: nothing to take.
pub(crate) fn without_setgid(node: &Node, caller: Caller, groups: &[u32]) -> Option<u16> {
    let is_member = caller.gid == node.gid || groups.contains(&node.gid);
    let keeps = caller.uid == 0 || is_member || node.mode & SETGID == 0;
    (!keeps).then_some(node.mode & !SETGID)
}

/// Who changes contents or owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changer {
    pub(crate) caller: Caller,
    thread: u32,
}

impl Changer {
    pub(crate) fn of(request: &Request) -> Changer {
        Changer { caller: caller(request), thread: request.pid() }
    }

    /// Whether a change of contents takes privileges away. Only the superuser has the capability
    /// that keeps them, as far as a request tells.
    pub(crate) fn takes(self) -> Option<Changer> {
        (self.caller.uid != 0).then_some(self)
    }

    /// Whether setgid of a file of this group is his to leave.
    fn is_of(self, group: u32) -> bool {
        self.caller.uid == 0 || self.caller.gid == group || groups(self.thread).contains(&group)
    }
}

/// The groups that a thread is in besides its own; of one that is gone, none.
pub(crate) fn groups(thread: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let ids = line.unwrap_or_default().split_whitespace();
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// The mode without what a write or a change of owner takes away. None: nothing to take. Setgid
/// without execution by the group goes only with who is not of that group, and on a directory
/// neither bit is a privilege. Of pipes, sockets and devices a change of owner takes them as of
/// files; a write never comes here.
pub(crate) fn without_privileges(node: &Node, by: Changer) -> Option<u16> {
    if node.kind == Kind::Directory {
        return None;
    }
    let mut mode = node.mode & !SETUID;
    if mode & SETGID != 0 && (mode & GROUP_EXECUTE != 0 || !by.is_of(node.gid)) {
        mode &= !SETGID;
    }
    (mode != node.mode).then_some(mode)
}

/// Takes the privileges from a file that is about to be written to. The wait is of the last
/// update that this made, if it made one.
pub(crate) fn drop_privileges<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    by: Changer,
    file: FileId,
    handle: Option<Handle>,
) -> Step<Option<u64>> {
    let node = client.attributes(file)?.node;
    // It happens on behalf of the system, whoever writes: only the owner may change a mode.
    let owner = Caller { uid: node.uid, gid: node.gid };
    let mut wait = None;
    if let Some(mode) = without_privileges(&node, by) {
        let setting = Setting { mode: Some(mode), ..Setting::default() };
        wait = client.set_attributes(owner, file, handle, &setting)?.wait;
        // Of a write the kernel takes size and times to have changed, and would run the program
        // with the mode that it has cached.
        client.forget_what_is_cached(file, false);
    }
    Ok(take_capability(client, &node, file)?.or(wait))
}

/// The same of the capability alone: a write takes it away whoever writes.
pub(crate) fn drop_capability<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    file: FileId,
) -> Step<Option<u64>> {
    // Nearly none has one, and what was written so far waited for no link.
    match client.has_capability(file)? {
        true => take_capability(client, &client.attributes(file)?.node, file),
        false => Ok(None),
    }
}

fn take_capability<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    node: &Node,
    file: FileId,
) -> Step<Option<u64>> {
    if !node.has_capability() {
        return Ok(None);
    }
    let owner = Caller { uid: node.uid, gid: node.gid };
    let Done { wait, .. } = client.remove_xattr(owner, file, CAPABILITY)?;
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Time;

    fn node(kind: Kind, mode: u16) -> Node {
        Node { kind, mode, ..Node::root_directory(7, 70, Time::default()) }
    }

    #[test]
    fn a_plain_directory_leaves_mode_and_group_to_the_caller() {
        let plain = node(Kind::Directory, 0o1777);
        assert_eq!(inherited(&plain, Kind::File, 0o640, 100), (0o640, 100));
    }

    #[test]
    fn a_setgid_directory_hands_its_group_down_and_to_directories_the_bit() {
        let shared = node(Kind::Directory, 0o2775);
        assert_eq!(inherited(&shared, Kind::File, 0o640, 100), (0o640, 70));
        assert_eq!(inherited(&shared, Kind::Symlink, 0o777, 100), (0o777, 70));
        assert_eq!(inherited(&shared, Kind::Directory, 0o755, 100), (0o2755, 70));
    }

    #[test]
    fn the_mask_counts_unless_the_directory_hands_a_list_down() {
        let mut folder = node(Kind::Directory, 0o755);
        assert_eq!(masked(&folder, Kind::File, 0o4666, 0o027), 0o4640);
        assert_eq!(masked(&folder, Kind::Symlink, 0o777, 0), 0o777);
        // rwx for the owner, rw- for user 7, r-x for the group, rwx as the most, none for others.
        let entries =
            [(1, 7, u32::MAX), (2, 6, 7), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
        let mut list = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            list.extend([tag, 0, permissions, 0]);
            list.extend(u32::to_le_bytes(id));
        }
        folder.xattrs = Some([(ACL_DEFAULT.to_vec().into(), list.into())].into());
        assert_eq!(masked(&folder, Kind::File, 0o666, 0o077), 0o660);
        assert_eq!(masked(&folder, Kind::Symlink, 0o777, 0), 0o777);
    }

    #[test]
    fn who_is_not_of_the_group_does_not_keep_setgid() {
        let program = node(Kind::File, 0o2755);
        let caller = |uid, gid| Caller { uid, gid };
        assert_eq!(without_setgid(&program, caller(7, 1), &[2]), Some(0o755));
        assert_eq!(without_setgid(&program, caller(7, 70), &[]), None);
        assert_eq!(without_setgid(&program, caller(7, 1), &[2, 70]), None);
        assert_eq!(without_setgid(&program, caller(0, 0), &[]), None);
        assert_eq!(without_setgid(&node(Kind::File, 0o4755), caller(7, 1), &[]), None);
    }

    fn by(uid: u32, gid: u32) -> Changer {
        // A thread that is not there is in no more groups.
        Changer { caller: Caller { uid, gid }, thread: u32::MAX }
    }

    #[test]
    fn a_write_takes_setuid_and_the_setgid_of_programs() {
        let left = [0o4755, 0o2755, 0o6711, 0o2644, 0o755, 0o4644]
            .map(|mode| without_privileges(&node(Kind::File, mode), by(0, 0)));
        assert_eq!(left, [Some(0o755), Some(0o755), Some(0o711), None, None, Some(0o644)]);
    }

    #[test]
    fn who_is_not_of_the_group_takes_setgid_without_execution_too() {
        let left = |mode, by| without_privileges(&node(Kind::File, mode), by);
        assert_eq!(left(0o2644, by(7, 1)), Some(0o644));
        assert_eq!(left(0o2644, by(7, 70)), None);
        assert_eq!(left(0o2644, by(0, 1)), None);
        assert_eq!(left(0o2755, by(7, 70)), Some(0o755));
        assert_eq!(left(0o644, by(7, 1)), None);
        assert_eq!(without_privileges(&node(Kind::Directory, 0o2755), by(7, 1)), None);
    }

    #[test]
    fn the_groups_of_this_very_thread_can_be_read() {
        let ids = rustix::process::getgroups().unwrap();
        let own: Vec<u32> = ids.into_iter().map(|id| id.as_raw()).collect();
        assert_eq!(groups(std::process::id()), own);
        assert_eq!(groups(u32::MAX), []);
    }

    #[test]
    fn directories_keep_their_bits_and_nothing_else_does() {
        assert_eq!(without_privileges(&node(Kind::Directory, 0o6755), by(0, 0)), None);
        for kind in [Kind::File, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice] {
            let left = without_privileges(&node(kind, 0o6755), by(0, 0));
            assert_eq!(left, Some(0o755), "{kind:?}");
        }
    }
}
