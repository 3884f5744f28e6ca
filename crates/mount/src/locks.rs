//! Locks of processes, as the kernel hands them on.
//!
//! Those of flock(2) and of fcntl(2) do not know of each other.
//! Never: lets a lock that is waited for hold up another request.

use crate::driver::{Call, Driver};
use crate::errno;
use crate::holders;
use crate::replies::{caller, file};
use client::{Caller, Client, Handle, LockCall, Owner, Taker, Tried};
use fuse::{INodeNo, LockAsked, ReplyEmpty, ReplyLock, Request};
use model::{FileId, Lock, LockKind};
use protocol::Upstream;
use store::Containers;

/// A lock as the kernel asks for it.
pub(crate) struct Asked<'a> {
    pub request: &'a Request,
    pub ino: INodeNo,
    pub lock: LockAsked,
}

impl Asked<'_> {
    fn is_empty(&self) -> bool {
        self.lock.end < self.lock.start
    }

    fn lock_call(&self) -> LockCall {
        let LockAsked { handle, owner, flock, start, end, kind, pid } = self.lock;
        LockCall {
            file: file(self.ino),
            handle: Handle(handle.0),
            owner: Owner(owner.0),
            lock: Lock {
                kind: if flock { LockKind::Whole } else { LockKind::Record },
                exclusive: kind == libc::F_WRLCK,
                first: start,
                last: end,
            },
            process: pid,
            taker: Taker::Told,
        }
    }
}

pub(crate) fn set<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    asked: &Asked<'_>,
    waits: bool,
    reply: ReplyEmpty,
) {
    if asked.is_empty() {
        return reply.error(errno::INVALID);
    }
    let lock = asked.lock_call();
    if asked.lock.kind == libc::F_UNLCK {
        return unlock(driver, asked, lock, reply);
    }
    let call = Call::of("setlk", asked.request, asked.ino);
    let caller = caller(asked.request);
    if asked.lock.flock || driver.client().tells_of_closes(lock.handle) {
        return lock_for(driver, (call, caller), lock, waits, reply);
    }
    let (thread, process, again) = (asked.request.pid(), asked.lock.pid, driver.clone());
    // Who has asked may have to be looked at more than once.
    driver.beside(move || {
        let lock = LockCall { taker: holders::taker(thread, process), ..lock };
        lock_for(&again, (call, caller), lock, waits, reply);
    });
}

fn lock_for<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    (call, caller): (Call, Caller),
    lock: LockCall,
    waits: bool,
    reply: ReplyEmpty,
) {
    if !driver.client().weakens_lock(&lock) {
        return lock_now(driver, call, lock, waits, reply);
    }
    let again = driver.clone();
    driver.serve(
        call,
        move |client: &Client<U, C>| client.before_unlock(caller, &lock),
        move |stored| match stored {
            Ok(()) => lock_now(&again, call, lock, waits, reply),
            // What was held stays held.
            Err(errno) => reply.error(errno),
        },
    );
}

fn lock_now<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    call: Call,
    lock: LockCall,
    waits: bool,
    reply: ReplyEmpty,
) {
    let client = driver.client();
    match client.try_lock(&lock) {
        Ok(Tried::Done) => return tell(driver, call, lock.file, reply),
        // Who asked flock for more may have given up what it had.
        Ok(Tried::InTheWay(owners))
            if !waits
                && !client.has_locks_to_tell(lock.file)
                && client.released_within(lock.file, &owners).is_zero() =>
        {
            return reply.error(errno::LOCKED);
        }
        Ok(_) => {}
        Err(error) => return reply.error(call.refused(&error)),
    }
    let client = client.clone();
    let work = async move { client.lock(&lock, waits).await };
    driver.wait_for_a_lock((call, waits), work, move |outcome| match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
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
        (call, true),
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
            let unlocked = client.unlock(&lock, &[lock.lock.kind]);
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
    if asked.is_empty() {
        return reply.error(errno::INVALID);
    }
    // flock(2) has no such call.
    let lock = asked.lock_call();
    let call = Call::of("getlk", asked.request, asked.ino);
    let client = driver.client().clone();
    let work = async move { client.look_at_lock(&lock).await };
    driver.wait_for_a_lock((call, false), work, move |outcome| match outcome {
        Ok(Some((lock, process))) => {
            let typ = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
            reply.locked(lock.first, lock.last, typ, process);
        }
        Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
        Err(errno) => reply.error(errno),
    });
}
