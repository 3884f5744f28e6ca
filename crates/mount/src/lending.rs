//! Lends containers to the kernel, as long as it takes them.
//! Holds: what cannot be lent is read by way of the daemon, and no call fails for it; the kernel is
//! not asked again once it has said that it never will.

use crate::options::Passthrough;
use client::Lent;
use fuse::{Lender, LentFile};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

const NOT_WANTED: &str = "it was mounted without";
const NOT_ALLOWED: &str = "only root may have it (CAP_SYS_ADMIN)";
const TOO_OLD: &str = "the kernel cannot (Linux 6.9 is the first that can)";
const TOO_DEEP: &str = "the cache lies on a file system that lies upon another one";
/// Bit of CapEff in /proc/PID/status.
const CAP_SYS_ADMIN: u32 = 21;

#[derive(Debug, Default)]
pub(crate) struct Lending {
    lender: Option<Lender>,
    /// Why nothing is lent.
    off: OnceLock<&'static str>,
}

impl Lending {
    /// `lender`: if the kernel has agreed to take what is lent.
    pub(crate) fn by(lender: Option<Lender>, wanted: Passthrough) -> Lending {
        let off = match (wanted, &lender) {
            (Passthrough::Off, _) => Some(NOT_WANTED),
            (Passthrough::Auto, _) if !may_lend() => Some(NOT_ALLOWED),
            (Passthrough::Auto, None) => Some(TOO_OLD),
            (Passthrough::Auto, Some(_)) => None,
        };
        let lending = Lending { lender, off: OnceLock::new() };
        off.map(|off| lending.off.set(off));
        lending
    }

    pub(crate) fn off(&self) -> Option<String> {
        self.off.get().map(|off| (*off).into())
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
                    && self.off.set(off).is_ok()
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
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Some(TOO_OLD),
        _ => None,
    }
}

/// Whether the kernel would take anything of this process.
pub(crate) fn may_lend() -> bool {
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
        assert_eq!(Lending::by(None, Passthrough::Off).off(), Some(NOT_WANTED.into()));
        let said = Lending::by(None, Passthrough::Auto).off();
        assert_eq!(said, Some(if may_lend() { TOO_OLD } else { NOT_ALLOWED }.into()));
    }
}
