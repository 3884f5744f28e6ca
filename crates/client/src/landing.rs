//! Writes that programs are told of as done in the kernel's cache, and that have not come to the
//! container yet.
//! Holds: what fills the kernel's cache from a container has in it the writes that were taken before:
//! if the kernel drops a page whose write is on its way, it does not read it as it was before.
//! Never: has who reads wait for a write that waits for the link. The page that he reads is locked, and
//! what the write waits for may be that the kernel drops this very page.

use crate::client::Client;
use crate::files::Grip;
use crate::ranks::{self, Rank};
use crate::types::Handle;
use model::FileId;
use protocol::Upstream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use store::{Container, Containers};

/// Few files share a lock: one that is written to while it is stored holds up who reads the other.
const LOCKS: usize = 4096;

pub(crate) struct Landing {
    stripes: Box<[Stripe]>,
    /// What waits for something, in the order in which it was taken.
    late: RwLock<Vec<LateWrite>>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Stripe {
    writes: RwLock<()>,
    /// The highest number by which the kernel has asked for contents.
    latest_read: AtomicU64,
}

struct LateWrite {
    number: usize,
    file: FileId,
    handle: Handle,
    offset: u64,
    bytes: Arc<[u8]>,
}

impl Default for Landing {
    fn default() -> Landing {
        let stripes = (0..LOCKS).map(|_| Stripe::default()).collect();
        Landing { stripes, late: RwLock::default(), count: AtomicUsize::default() }
    }
}

impl Landing {
    fn of(&self, file: FileId) -> &Stripe {
        &self.stripes[(file.0 % LOCKS as u64) as usize]
    }

    /// A write was taken, and has landed when this is dropped.
    fn write(&self, file: FileId, request: u64) -> Taken<'_> {
        let stripe = self.of(file);
        let until_it_has_landed = ranks::read(Rank::Landing, &stripe.writes);
        let overtaken = stripe.latest_read.load(Ordering::Acquire) > request;
        Taken { overtaken, _until_it_has_landed: until_it_has_landed }
    }

    fn read(&self, file: FileId, request: u64) {
        self.of(file).latest_read.fetch_max(request, Ordering::AcqRel);
    }

    /// Waits until the writes have landed that were taken before, but for those that wait themselves.
    fn have_landed(&self, file: FileId) {
        drop(ranks::write(Rank::Landing, &self.of(file).writes));
    }
}

/// A write that was taken from the kernel: who reads the file waits until this is dropped.
pub struct Taken<'a> {
    /// What the kernel asked for after it, another thread was faster to read.
    pub overtaken: bool,
    _until_it_has_landed: ranks::Reading<'a, ()>,
}

/// Who reads the file sees what is to be written, from now until this is dropped.
pub struct Late<U: Upstream, C: Containers> {
    client: Client<U, C>,
    number: usize,
}

impl<U: Upstream, C: Containers> Drop for Late<U, C> {
    fn drop(&mut self) {
        let landing = &self.client.inner.kernel.landing;
        let mut late = ranks::write(Rank::Late, &landing.late);
        late.retain(|write| write.number != self.number);
        landing.count.store(late.len(), Ordering::Release);
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A write of the file was taken from the kernel, which counts its requests. When this is dropped
    /// it has been done, has failed, or `lands_late`.
    pub fn takes_write(&self, file: FileId, request: u64) -> Taken<'_> {
        self.inner.kernel.landing.write(file, request)
    }

    /// What the kernel asks for by this number is going to be read.
    pub fn takes_read(&self, file: FileId, request: u64) {
        self.inner.kernel.landing.read(file, request);
    }

    /// The write cannot be done yet. None: where it will go is not known, and the kernel has not got it
    /// in its cache.
    pub fn lands_late(
        &self,
        (file, handle): (FileId, Handle),
        offset: u64,
        bytes: &Arc<[u8]>,
    ) -> Option<Late<U, C>> {
        if self.files().appends_directly(handle) {
            return None;
        }
        let landing = &self.inner.kernel.landing;
        let mut late = ranks::write(Rank::Late, &landing.late);
        let number = late.last().map_or(0, |last| last.number + 1);
        late.push(LateWrite { number, file, handle, offset, bytes: Arc::clone(bytes) });
        landing.count.store(late.len(), Ordering::Release);
        Some(Late { client: self.clone(), number })
    }

    /// What a container holds, and is to hold by the writes that were taken.
    pub(crate) fn read_landed(
        &self,
        grip: &Grip<C::Container>,
        offset: u64,
        length: usize,
    ) -> store::Result<Vec<u8>> {
        let landing = &self.inner.kernel.landing;
        landing.have_landed(grip.file);
        if landing.count.load(Ordering::Acquire) == 0 {
            return grip.container.read(offset, length);
        }
        // Held while it is read: what has landed must not be put over what was written after it.
        let late = ranks::read(Rank::Late, &landing.late);
        let mut bytes = grip.container.read(offset, length)?;
        for write in late.iter().filter(|write| write.file == grip.file) {
            let same = |(other, _): (Grip<C::Container>, _)| other.generation == grip.generation;
            if self.files().grip(write.handle).is_ok_and(same) {
                lay_over(&mut bytes, (offset, length), write);
            }
        }
        Ok(bytes)
    }
}

/// Puts what is written into what was read, which ends where the file did.
fn lay_over(read: &mut Vec<u8>, (offset, length): (u64, usize), write: &LateWrite) {
    let (start, end) = (write.offset, write.offset + write.bytes.len() as u64);
    let (from, to) = (start.max(offset), end.min(offset + length as u64));
    if from >= to {
        return;
    }
    let within = (from - offset) as usize..(to - offset) as usize;
    if read.len() < within.end {
        read.resize(within.end, 0);
    }
    read[within].copy_from_slice(&write.bytes[(from - start) as usize..(to - start) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    #[test]
    fn who_reads_waits_for_the_writes_of_that_file_that_came_before() {
        let (landing, (sender, read)) = (Landing::default(), channel());
        std::thread::scope(|scope| {
            let (begun, has_begun) = channel();
            // It has landed when what this gives is dropped.
            let write = |request| {
                let (lands, has_landed) = channel::<()>();
                let (begun, landing) = (begun.clone(), &landing);
                scope.spawn(move || {
                    let _taken = landing.write(FileId(5), request);
                    begun.send(()).unwrap();
                    has_landed.recv().unwrap_err();
                });
                has_begun.recv().unwrap();
                lands
            };
            let (one, other) = (write(2), write(4));
            landing.have_landed(FileId(6));
            scope.spawn(|| {
                landing.have_landed(FileId(5));
                sender.send(()).unwrap();
            });
            drop(one);
            let soon = Duration::from_millis(50);
            assert_eq!(read.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
            drop(other);
            read.recv().unwrap();
        });
    }

    #[test]
    fn a_write_that_another_thread_overtook_with_what_was_asked_for_later_knows() {
        let landing = Landing::default();
        landing.read(FileId(5), 6);
        landing.read(FileId(5), 2);
        let overtaken = |file, request| landing.write(FileId(file), request).overtaken;
        assert_eq!([overtaken(5, 4), overtaken(5, 8), overtaken(6, 4)], [true, false, false]);
    }

    #[test]
    fn what_is_to_be_written_lies_over_what_was_read_and_goes_on_behind_its_end() {
        let check = |read: &str, offset: u64, length: usize, at: u64, written: &str| {
            let bytes = Arc::from(written.as_bytes());
            let (number, file, handle) = (0, FileId(5), Handle(1));
            let write = LateWrite { number, file, handle, offset: at, bytes };
            let mut read = read.as_bytes().to_vec();
            lay_over(&mut read, (offset, length), &write);
            String::from_utf8(read).unwrap().replace('\0', "-")
        };
        assert_eq!(check("abcdef", 10, 6, 12, "XY"), "abXYef");
        assert_eq!(check("abcdef", 10, 6, 8, "WXYZ"), "YZcdef");
        assert_eq!(check("abcdef", 10, 6, 14, "WXYZ"), "abcdWX");
        assert_eq!(check("abcdef", 10, 6, 8, "0123456789"), "234567");
        assert_eq!(check("abcdef", 10, 6, 16, "X"), "abcdef");
        assert_eq!(check("abcdef", 10, 6, 9, "X"), "abcdef");
        assert_eq!(check("ab", 10, 6, 14, "XYZ"), "ab--XY");
    }
}
