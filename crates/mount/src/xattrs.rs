//! Extended attributes as the system calls want them: sizes first, then values.

use crate::driver::{Call, Driver, at_once};
use crate::replies::{answer_empty, caller, file};
use crate::{calls, errno};
use client::XattrFlag;
use fuse::{Errno, INodeNo, ReplyEmpty, ReplyXattr, Request};
use model::{ACL_ACCESS, ACL_DEFAULT};
use protocol::Upstream;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use store::Containers;

/// The longest value that Linux knows.
const VALUE_BYTES_MAX: usize = 65_536;

pub(crate) fn set<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    (name, value, flags): (&OsStr, &[u8], i32),
    reply: ReplyEmpty,
) {
    let flag = match check_new(name, value).and_then(|()| flag_asked(flags)) {
        Ok(flag) => flag,
        Err(errno) => return reply.error(errno),
    };
    let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
    let caller = caller(request);
    if name == ACL_ACCESS {
        let groups = groups(request.pid());
        return driver.serve(
            Call::of("setxattr", request, ino),
            move |client| {
                calls::set_access_list(client, (caller, &groups), file(ino), &value, flag)
            },
            move |outcome| answer_empty(reply, outcome),
        );
    }
    driver.serve(
        Call::of("setxattr", request, ino),
        move |client| client.set_xattr(caller, file(ino), &name, &value, flag),
        move |outcome| answer_empty(reply, outcome),
    );
}

pub(crate) fn get<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    name: &OsStr,
    buffer_bytes: u32,
    reply: ReplyXattr,
) {
    if !is_kept(name) {
        return reply.error(errno::NOT_KEPT);
    }
    let name = name.as_bytes().to_vec();
    driver.serve(
        Call::of("getxattr", request, ino),
        move |client| match client::is_fact(&name) {
            true => client.fact(file(ino), &name).map(at_once),
            false => client.xattr(file(ino), &name).map(at_once),
        },
        move |outcome| answer(outcome, buffer_bytes, reply),
    );
}

pub(crate) fn list<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    buffer_bytes: u32,
    reply: ReplyXattr,
) {
    let superuser = request.uid() == 0;
    driver.serve(
        Call::of("listxattr", request, ino),
        move |client| client.xattrs(file(ino)).map(at_once),
        move |outcome| {
            answer(outcome.map(|names| listed(&names, superuser)), buffer_bytes, reply);
        },
    );
}

pub(crate) fn remove<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    name: &OsStr,
    reply: ReplyEmpty,
) {
    if !is_kept(name) {
        return reply.error(errno::NOT_KEPT);
    }
    let (caller, name) = (caller(request), name.as_bytes().to_vec());
    let is_list = [ACL_ACCESS, ACL_DEFAULT].contains(&name.as_slice());
    driver.serve(
        Call::of("removexattr", request, ino),
        move |client| client.remove_xattr(caller, file(ino), &name),
        move |outcome| {
            let outcome = if is_list { outcome.or_else(errno::removed_list) } else { outcome };
            answer_empty(reply, outcome);
        },
    );
}

/// `ls -l` asks for it of every file, until it is told once that it is not kept here. On machines
/// with SELinux the kernel says so itself of file systems like this one.
const SELINUX: &[u8] = b"security.selinux";

/// Attributes of the system have a meaning, which is kept here of access control lists alone.
fn is_kept(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_list = [ACL_ACCESS, ACL_DEFAULT].contains(&name);
    is_list || (!name.starts_with(b"system.") && name != SELINUX)
}

/// The groups that a thread is in besides its own; of one that is gone, none.
fn groups(thread: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let ids = line.unwrap_or_default().split_whitespace();
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// What `setxattr` asks for.
fn flag_asked(flags: i32) -> Result<XattrFlag, Errno> {
    match flags {
        0 => Ok(XattrFlag::Either),
        libc::XATTR_CREATE => Ok(XattrFlag::Create),
        libc::XATTR_REPLACE => Ok(XattrFlag::Replace),
        _ => Err(errno::INVALID),
    }
}

fn check_new(name: &OsStr, value: &[u8]) -> Result<(), Errno> {
    if !is_kept(name) {
        return Err(errno::NOT_KEPT);
    }
    if client::is_fact(name.as_bytes()) {
        return Err(errno::NOT_TO_BE_SET);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(errno::VALUE_TOO_LONG);
    }
    Ok(())
}

/// Names one after another, each with a NUL. Those of the superuser show to the superuser alone.
fn listed(names: &[Vec<u8>], superuser: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names.iter().filter(|name| superuser || !name.starts_with(b"trusted.")) {
        list.extend(name);
        list.push(0);
    }
    list
}

/// With a buffer of 0 bytes the caller asks how large a buffer it needs.
fn answer(outcome: Result<Vec<u8>, Errno>, buffer_bytes: u32, reply: ReplyXattr) {
    let bytes = match outcome {
        Ok(bytes) => bytes,
        Err(errno) => return reply.error(errno),
    };
    match (buffer_bytes, u32::try_from(bytes.len())) {
        (0, Ok(length)) => reply.size(length),
        (_, Ok(length)) if length <= buffer_bytes => reply.data(&bytes),
        _ => reply.error(errno::BUFFER_TOO_SHORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_and_replace_exclude_each_other() {
        assert_eq!(flag_asked(0), Ok(XattrFlag::Either));
        assert_eq!(flag_asked(libc::XATTR_CREATE), Ok(XattrFlag::Create));
        assert_eq!(flag_asked(libc::XATTR_REPLACE), Ok(XattrFlag::Replace));
        assert_eq!(flag_asked(libc::XATTR_CREATE | libc::XATTR_REPLACE), Err(Errno::EINVAL));
    }

    #[test]
    fn the_groups_of_this_very_thread_can_be_read() {
        let ids = rustix::process::getgroups().unwrap();
        let own: Vec<u32> = ids.into_iter().map(|id| id.as_raw()).collect();
        assert_eq!(groups(std::process::id()), own);
        assert_eq!(groups(u32::MAX), []);
    }

    #[test]
    fn of_the_system_access_control_lists_alone_are_kept_and_values_have_a_limit() {
        let acl = OsStr::new("system.posix_acl_access");
        assert_eq!(check_new(acl, b""), Ok(()));
        assert_eq!(check_new(OsStr::new("system.nfs4_acl"), b""), Err(Errno::EOPNOTSUPP));
        let label = OsStr::new("security.selinux");
        assert_eq!(check_new(label, b""), Err(Errno::EOPNOTSUPP));
        let user = OsStr::new("user.comment");
        assert_eq!(check_new(OsStr::new("user.farfs.reach"), b"home"), Err(Errno::EPERM));
        assert_eq!(check_new(user, &[0; VALUE_BYTES_MAX]), Ok(()));
        assert_eq!(check_new(user, &[0; VALUE_BYTES_MAX + 1]), Err(Errno::E2BIG));
    }

    #[test]
    fn a_list_hides_the_superusers_names_from_others() {
        let names = [b"user.a".to_vec(), b"trusted.b".to_vec()];
        assert_eq!(listed(&names, false), b"user.a\0");
        assert_eq!(listed(&names, true), b"user.a\0trusted.b\0");
        assert_eq!(listed(&[], true), b"");
    }
}
