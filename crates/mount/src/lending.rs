//! Lends containers to the kernel, as long as it takes them.
//! Holds: what cannot be lent is read by way of the daemon, and no call fails for it; the kernel is
//! not asked again once it has said that it never will.

use crate::options::Passthrough;
use client::Lent;
use fuse::{Lender, LentFile, Privileged};
use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

const NOT_WANTED: &str = "it was mounted without";
const NOT_ALLOWED: &str = "only root may have it (CAP_SYS_ADMIN)";
const TOO_OLD: &str = "the kernel cannot (Linux 6.9 is the first that can)";
const TOO_DEEP: &str = "the cache lies on a file system that lies upon another one";
const HELPER_GONE: &str = "farfs-lend, which did it for this user, has ended";
const NO_DISK: &str = "the cache lies on a file system from which farfs-lend lends nothing";
/// The capability of a program's file.
const FILE_CAPABILITY: &str = "security.capability";
/// Bit of CapEff in /proc/PID/status.
const CAP_SYS_ADMIN: u32 = 21;
/// The program that may where an ordinary user may not; it lies beside ours.
const HELPER: &str = "farfs-lend";

/// By whose right files are lent.
#[derive(Debug)]
pub(crate) enum Right {
    Own,
    Of(Arc<Privileged>),
    /// By nobody's, and why.
    None(Cow<'static, str>),
}

impl Right {
    pub fn find(wanted: Passthrough) -> Right {
        match wanted {
            Passthrough::Off => Right::None(NOT_WANTED.into()),
            Passthrough::Auto if may_lend() => Right::Own,
            Passthrough::Auto => match helper_path() {
                Some(path) => Right::by(&path),
                None => Right::None(NOT_ALLOWED.into()),
            },
        }
    }

    fn by(helper: &Path) -> Right {
        match Privileged::start(helper) {
            Ok(helper) => Right::Of(Arc::new(helper)),
            Err(error) => Right::None(without(helper, &error).into()),
        }
    }

    pub fn is_there(&self) -> bool {
        !matches!(self, Right::None(_))
    }
}

fn helper_path() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(HELPER))
}

fn without(helper: &Path, error: &io::Error) -> String {
    let has_it = rustix::fs::getxattr(helper, FILE_CAPABILITY, &mut [0; 64][..]).is_ok();
    let helper = helper.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied if has_it => format!(
            "{NOT_ALLOWED}, and {helper} does not get its capability here: no_new_privs is set, or \
             the container lacks it, or the disk is mounted nosuid"
        ),
        io::ErrorKind::NotFound => format!("{NOT_ALLOWED}, as {helper} is not there"),
        io::ErrorKind::PermissionDenied => {
            format!("{NOT_ALLOWED}, and others when root has run: setcap cap_sys_admin+ep {helper}")
        }
        _ => format!("{NOT_ALLOWED}, as {helper} does not start: {error}"),
    }
}

#[derive(Debug, Default)]
pub(crate) struct Lending {
    lender: Option<Lender>,
    /// Why nothing is lent.
    off: OnceLock<Cow<'static, str>>,
}

impl Lending {
    /// `lender`: if the kernel has agreed to take what is lent.
    pub(crate) fn by(lender: Option<Lender>, right: Right) -> Lending {
        let (lender, off) = match (right, lender) {
            (Right::None(why), _) => (None, Some(why)),
            (_, None) => (None, Some(TOO_OLD.into())),
            (Right::Own, Some(lender)) => (Some(lender), None),
            (Right::Of(helper), Some(lender)) => (Some(lender.by(helper)), None),
        };
        Lending { lender, off: off.map_or_else(OnceLock::new, OnceLock::from) }
    }

    pub(crate) fn off(&self) -> Option<String> {
        self.off.get().map(|off| off.clone().into_owned())
    }

    pub(crate) fn lend(&self, container: BorrowedFd<'_>) -> Option<Arc<dyn Lent>> {
        if self.off.get().is_some() {
            return None;
        }
        match self.lender.as_ref()?.lend(container) {
            Ok(file) => Some(Arc::new(Taken(file))),
            Err(error) => {
                tracing::debug!(%error, "the kernel takes no file");
                if let Some(off) = for_good(&error)
                    && self.off.set(off.into()).is_ok()
                {
                    tracing::info!(off, "cached files are read by way of the daemon");
                }
                None
            }
        }
    }
}

/// Whether the kernel would say the same of every other file.
fn for_good(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error() {
        Some(libc::EPERM) => Some(NOT_ALLOWED),
        Some(libc::ELOOP) => Some(TOO_DEEP),
        Some(libc::EPIPE) => Some(HELPER_GONE),
        Some(libc::EXDEV) => Some(NO_DISK),
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Some(TOO_OLD),
        _ => None,
    }
}

/// Whether the kernel would take anything of this process.
fn may_lend() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has_capability(&status))
}

fn has_capability(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_some_and(|effective| effective >> CAP_SYS_ADMIN & 1 == 1)
}

#[derive(Debug)]
struct Taken(LentFile);

impl Lent for Taken {
    fn number(&self) -> i32 {
        self.0.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_lend_is_told_by_the_capability() {
        assert!(has_capability("Name:\tfarfs\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"));
        assert!(has_capability("CapEff:\t0000000000200000\n"));
        assert!(!has_capability("CapEff:\t00000000ffdfffff\n"));
        assert!(!has_capability("CapPrm:\t000001ffffffffff\n"));
    }

    #[test]
    fn what_the_kernel_says_of_one_file_it_need_not_say_of_the_next() {
        let of = |code| for_good(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::EPERM), Some(NOT_ALLOWED));
        assert_eq!(of(libc::ELOOP), Some(TOO_DEEP));
        assert_eq!(of(libc::ENOMEM), None);
    }

    #[test]
    fn without_a_kernel_that_takes_it_nothing_is_lent_and_it_is_said_why() {
        let off = |right| Lending::by(None, right).off();
        assert_eq!(off(Right::find(Passthrough::Off)), Some(NOT_WANTED.into()));
        assert_eq!(off(Right::Own), Some(TOO_OLD.into()));
    }

    #[test]
    fn who_may_not_lend_is_told_what_would_let_him() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str| match Right::by(&folder.path().join(name)) {
            Right::None(why) => why.into_owned(),
            right => panic!("{right:?} is no helper's"),
        };
        assert!(said("missing").ends_with("missing is not there"));
        assert!(said("").contains("setcap cap_sys_admin+ep"), "a directory may not be run");
        // A program that is none of ours.
        std::os::unix::fs::symlink("/bin/true", folder.path().join("true")).unwrap();
        assert!(said("true").contains("true does not start"));
    }
}
