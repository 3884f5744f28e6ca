//! Extended attributes as the system calls want them: sizes first, then values.

use crate::driver::{Call, Driver, at_once};
use crate::privileges::groups;
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
    let flag = match check_new(name, value).and_then(|()| flag_asked(name, flags)) {
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
    if !may_be_there(name) {
        return reply.error(errno::NOT_KEPT);
    }
    let kept = check_name(name);
    let name = name.as_bytes().to_vec();
    driver.serve(
        Call::of("getxattr", request, ino).that_asks(),
        move |client| match client::is_fact(&name) {
            true => client.fact(file(ino), &name).map(at_once),
            false => client.xattr(file(ino), &name).map(at_once),
        },
        move |outcome| answer(if_absent(outcome, kept), buffer_bytes, reply),
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
        Call::of("listxattr", request, ino).that_asks(),
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
    if !may_be_there(name) {
        return reply.error(errno::NOT_KEPT);
    }
    let kept = check_name(name);
    let (caller, name) = (caller(request), name.as_bytes().to_vec());
    let is_list = [ACL_ACCESS, ACL_DEFAULT].contains(&name.as_slice());
    driver.serve(
        Call::of("removexattr", request, ino),
        move |client| client.remove_xattr(caller, file(ino), &name),
        move |outcome| {
            let outcome = if is_list { outcome.or_else(errno::removed_list) } else { outcome };
            answer_empty(reply, if_absent(outcome, kept));
        },
    );
}

/// `ls -l` asks for it of every file, until it is told once that it is not kept here. On machines
/// with SELinux the kernel says so itself of file systems like this one.
const SELINUX: &[u8] = b"security.selinux";

/// Of whom an attribute may be. Those of the system have a meaning, which is kept here of access
/// control lists alone.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// What an attribute may be called that is made here: as ext4 has it, and with its errors.
fn check_name(name: &OsStr) -> Result<(), Errno> {
    let name = name.as_bytes();
    if [ACL_ACCESS, ACL_DEFAULT].contains(&name) {
        return Ok(());
    }
    let rest = NAMESPACES.iter().find_map(|space| name.strip_prefix(*space));
    match rest {
        Some(b"") => Err(errno::INVALID),
        Some(_) if name != SELINUX => Ok(()),
        _ => Err(errno::NOT_KEPT),
    }
}

/// Whether a file may have it: besides what is made here, names of any other kind, which an
/// earlier farfs took.
fn may_be_there(name: &OsStr) -> bool {
    let is_of_the_system =
        name.as_bytes().starts_with(b"system.") || name == OsStr::from_bytes(SELINUX);
    check_name(name).is_ok() || !is_of_the_system
}

/// Who asks for an attribute that cannot be made is told so, unless it is there.
fn if_absent<T>(outcome: Result<T, Errno>, kept: Result<(), Errno>) -> Result<T, Errno> {
    outcome.map_err(|errno| match kept {
        Err(refusal) if errno == errno::NO_ATTRIBUTE => refusal,
        _ => errno,
    })
}

/// What `setxattr` asks for. An access control list is set in any case, as on every Linux file system.
fn flag_asked(name: &OsStr, flags: i32) -> Result<XattrFlag, Errno> {
    match flags {
        _ if [ACL_ACCESS, ACL_DEFAULT].contains(&name.as_bytes()) => Ok(XattrFlag::Either),
        0 => Ok(XattrFlag::Either),
        libc::XATTR_CREATE => Ok(XattrFlag::Create),
        libc::XATTR_REPLACE => Ok(XattrFlag::Replace),
        _ => Err(errno::INVALID),
    }
}

fn check_new(name: &OsStr, value: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
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
        let asked = |flags| flag_asked(OsStr::new("user.a"), flags);
        assert_eq!(asked(0), Ok(XattrFlag::Either));
        assert_eq!(asked(libc::XATTR_CREATE), Ok(XattrFlag::Create));
        assert_eq!(asked(libc::XATTR_REPLACE), Ok(XattrFlag::Replace));
        assert_eq!(asked(libc::XATTR_CREATE | libc::XATTR_REPLACE), Err(Errno::EINVAL));
        let list = OsStr::from_bytes(ACL_ACCESS);
        assert_eq!(flag_asked(list, libc::XATTR_CREATE), Ok(XattrFlag::Either));
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
    fn an_attribute_is_of_the_user_trusted_or_security_and_has_a_name() {
        let said = |name: &str| check_new(OsStr::new(name), b"");
        for name in ["user.a", "trusted.a", "security.a", "user..", "user.a.b"] {
            assert_eq!(said(name), Ok(()), "{name}");
        }
        for name in ["foo.bar", "os2.x", "btrfs.x", "user", "a", "User.a", "system.", "users.a"] {
            assert_eq!(said(name), Err(Errno::EOPNOTSUPP), "{name}");
        }
        for name in ["user.", "trusted.", "security."] {
            assert_eq!(said(name), Err(Errno::EINVAL), "{name}");
        }
    }

    #[test]
    fn what_an_earlier_farfs_took_is_there_until_it_is_removed() {
        let names = ["user.a", "foo.bar", "user.", "system.posix_acl_access"];
        assert!(names.iter().all(|name| may_be_there(OsStr::new(name))));
        let never = ["system.", "system.nfs4_acl", "security.selinux"];
        assert!(!never.iter().any(|name| may_be_there(OsStr::new(name))));
        let refused = Err(Errno::EOPNOTSUPP);
        assert_eq!(if_absent(Ok(7), refused), Ok(7));
        assert_eq!(if_absent::<()>(Err(Errno::ENODATA), refused), refused);
        assert_eq!(if_absent::<()>(Err(Errno::EIO), refused), Err(Errno::EIO));
        assert_eq!(if_absent::<()>(Err(Errno::ENODATA), Ok(())), Err(Errno::ENODATA));
    }

    #[test]
    fn a_list_hides_the_superusers_names_from_others() {
        let names = [b"user.a".to_vec(), b"trusted.b".to_vec()];
        assert_eq!(listed(&names, false), b"user.a\0");
        assert_eq!(listed(&names, true), b"user.a\0trusted.b\0");
        assert_eq!(listed(&[], true), b"");
    }
}
