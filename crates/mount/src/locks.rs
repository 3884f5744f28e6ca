//! Locks of processes, as the kernel hands them on.
//!
//! The library does not say whether a lock is one of flock(2) or of fcntl(2), which do not know of
//! each other. Only a lock of the whole file can be one of flock; then /proc tells which call the
//! process is in. Where that may not be read, both are taken for locks of fcntl, as on NFS.
//! Never: lets a lock that is waited for hold up another request.

use crate::contents::OFFSET_MAX;
use crate::driver::{Call, Driver};
use crate::errno;
use crate::replies::{caller, file};
use client::{Client, Handle, LockCall, Owner, Tried};
use fuser::{FileHandle, INodeNo, LockOwner, ReplyEmpty, ReplyLock, Request};
use model::{FileId, Lock, LockKind};
use protocol::Upstream;
use store::Containers;

/// A lock as the kernel asks for it.
pub(crate) struct Asked<'a> {
    pub request: &'a Request,
    pub ino: INodeNo,
    pub fh: FileHandle,
    pub owner: LockOwner,
    pub start: u64,
    pub end: u64,
    pub typ: i32,
    pub pid: u32,
}

/// Which kinds of lock a request may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Record,
    Whole,
    /// A whole file, and the call cannot be seen.
    Either,
}

impl Means {
    /// What a lock is taken for.
    fn kind(self) -> LockKind {
        match self {
            Means::Whole => LockKind::Whole,
            Means::Record | Means::Either => LockKind::Record,
        }
    }

    /// What is given up.
    fn kinds(self) -> &'static [LockKind] {
        match self {
            Means::Whole => &[LockKind::Whole],
            Means::Record => &[LockKind::Record],
            Means::Either => &[LockKind::Record, LockKind::Whole],
        }
    }
}

/// Goes by what `/proc/TID/syscall` says of a thread: the number of the call it is in comes first.
fn meant(start: u64, end: u64, syscall: Option<&str>) -> Means {
    if start != 0 || end < OFFSET_MAX {
        return Means::Record;
    }
    let number = syscall.and_then(|line| line.split_whitespace().next()?.parse().ok());
    match number {
        Some(libc::SYS_flock) => Means::Whole,
        Some(libc::SYS_fcntl) => Means::Record,
        _ => Means::Either,
    }
}

impl Asked<'_> {
    fn means(&self) -> Means {
        let whole = self.start == 0 && self.end >= OFFSET_MAX;
        let path = whole.then(|| format!("/proc/{}/syscall", self.request.pid()));
        let line = path.and_then(|path| std::fs::read_to_string(path).ok());
        meant(self.start, self.end, line.as_deref())
    }

    fn lock_call(&self, means: Means) -> LockCall {
        LockCall {
            file: file(self.ino),
            handle: Handle(self.fh.0),
            owner: Owner(self.owner.0),
            lock: Lock {
                kind: means.kind(),
                exclusive: self.typ == libc::F_WRLCK,
                first: self.start,
                last: self.end,
            },
            process: self.pid,
        }
    }
}

pub(crate) fn set<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    asked: &Asked<'_>,
    waits: bool,
    reply: ReplyEmpty,
) {
    if asked.end < asked.start {
        return reply.error(errno::INVALID);
    }
    let means = asked.means();
    let lock = asked.lock_call(means);
    if asked.typ == libc::F_UNLCK {
        return unlock(driver, asked, lock, means, reply);
    }
    let call = Call::of("setlk", asked.request, asked.ino);
    match driver.client().try_lock(&lock) {
        Ok(Tried::Done) => return tell(driver, call, lock.file, reply),
        // Who asked flock for more may have given up what it had.
        Ok(Tried::InTheWay(_)) if !waits && !driver.client().has_locks_to_tell(lock.file) => {
            return reply.error(errno::LOCKED);
        }
        Ok(_) => {}
        Err(error) => return reply.error(call.refused(&error)),
    }
    let client = driver.client().clone();
    driver.wait_for_a_lock(call, async move { client.lock(&lock, waits).await }, move |outcome| {
        match outcome {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    });
}

/// Answers when others have been told of what was given up, if anybody has to be.
pub(crate) fn tell<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    call: Call,
    file: FileId,
    reply: ReplyEmpty,
) {
    let client = driver.client().clone();
    if !client.has_locks_to_tell(file) {
        return reply.ok();
    }
    driver.wait_for_a_lock(
        call,
        async move {
            client.tell_of_lock(file).await;
            Ok(())
        },
        // Who is interrupted has done what it wanted to do all the same.
        move |_| reply.ok(),
    );
}

fn unlock<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    asked: &Asked<'_>,
    lock: LockCall,
    means: Means,
    reply: ReplyEmpty,
) {
    let caller = caller(asked.request);
    let call = Call::of("unlock", asked.request, asked.ino);
    let (client, again) = (driver.client().clone(), driver.clone());
    driver.serve(
        call,
        move |client: &Client<U, C>| client.before_unlock(caller, &lock),
        move |stored| {
            // Who is interrupted asks again, or ends.
            if stored == Err(errno::INTERRUPTED) {
                return reply.error(errno::INTERRUPTED);
            }
            let unlocked = client.unlock(&lock, means.kinds());
            match stored.and(unlocked.map_err(|error| call.refused(&error))) {
                Ok(()) => tell(&again, call, lock.file, reply),
                Err(errno) => reply.error(errno),
            }
        },
    );
}

/// Tells what is in the way of a lock.
pub(crate) fn get<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    asked: &Asked<'_>,
    reply: ReplyLock,
) {
    if asked.end < asked.start {
        return reply.error(errno::INVALID);
    }
    // flock(2) has no such call.
    let lock = asked.lock_call(Means::Record);
    let call = Call::of("getlk", asked.request, asked.ino);
    let client = driver.client().clone();
    driver.wait_for_a_lock(call, async move { client.look_at_lock(&lock).await }, move |outcome| {
        match outcome {
            Ok(Some((lock, process))) => {
                let typ = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
                reply.locked(lock.first, lock.last, typ, process);
            }
            Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
            Err(errno) => reply.error(errno),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_of_flock_if_it_has_no_end_and_its_process_is_in_flock() {
        let flock = format!("{} 0x3 0x2 0x0 0x7ffd 0x7f\n", libc::SYS_flock);
        let fcntl = format!("{} 0x3 0x6 0x0 0x7ffd 0x7f\n", libc::SYS_fcntl);
        let whole = |line| meant(0, OFFSET_MAX, line);
        assert_eq!(whole(Some(&flock)), Means::Whole);
        assert_eq!(whole(Some(&fcntl)), Means::Record);
        assert_eq!(meant(0, 9, Some(&flock)), Means::Record);
        assert_eq!(meant(1, OFFSET_MAX, Some(&flock)), Means::Record);
    }

    #[test]
    fn where_it_cannot_be_seen_what_is_meant_a_lock_is_one_of_fcntl_and_either_is_given_up() {
        for line in [None, Some("running\n"), Some(""), Some("-1 0x7f 0x7f\n")] {
            let means = meant(0, OFFSET_MAX, line);
            assert_eq!(means.kind(), LockKind::Record);
            assert_eq!(means.kinds().len(), 2);
        }
    }
}
