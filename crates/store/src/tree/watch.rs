//! Being told of what other programs do to directories.
//! Holds: what was done before `events` is called is among what it gives, in the order in which
//! it was done, unless it says that something was lost.

use super::directory::Directory;
use super::handle::place;
use crate::error::{Result, StoreError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of events that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Something happened in a directory that is watched, or to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// To a name. `whole`: whoever wrote the file has closed it, or it came here as it is.
    Name { watch: i32, name: Vec<u8>, whole: bool },
    /// To the directory or the file itself.
    Itself { watch: i32, whole: bool },
    /// It is not watched any more: it is gone.
    Gone { watch: i32 },
    /// There was more than the kernel could keep: look at everything.
    Lost,
}

#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
    wake: Arc<OwnedFd>,
}

/// Ends a wait from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub fn wake(&self) {
        // A counter that is full wakes just as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Watch {
    pub fn new() -> Result<Watch> {
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(failed)?;
        Ok(Watch { inotify, wake: Arc::new(wake) })
    }

    pub fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    /// Watches a directory, under the number that comes back; a directory has one number however
    /// often it is added. None: the machine allows no more of them.
    pub fn add(&self, directory: &Directory) -> Result<Option<i32>> {
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        self.watches(place(directory.fd()).into_bytes(), wanted)
    }

    /// Watches one file for what is done to it under whatever name, one outside of the tree too.
    /// None: the machine allows no more of them, nothing bears the name, or it may not be read.
    pub fn add_file(&self, directory: &Directory, name: &[u8]) -> Result<Option<i32>> {
        let wanted = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::DONT_FOLLOW;
        let path = [place(directory.fd()).as_bytes(), b"/", name].concat();
        match self.watches(path, wanted) {
            Err(StoreError::Io { source, .. })
                if [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&source.kind()) =>
            {
                Ok(None)
            }
            watch => watch,
        }
    }

    fn watches(&self, path: Vec<u8>, wanted: WatchFlags) -> Result<Option<i32>> {
        match add_watch(&self.inotify, path, wanted) {
            Ok(watch) => Ok(Some(watch)),
            Err(Errno::NOSPC | Errno::NOMEM) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// What happened since the last call.
    pub fn events(&self) -> Result<Vec<Event>> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Ok(events),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            let (watch, what) = (event.wd(), event.events());
            let event = if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                Event::Lost
            } else if what.contains(ReadFlags::IGNORED) {
                Event::Gone { watch }
            } else {
                let whole = what.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO);
                match event.file_name() {
                    Some(name) => Event::Name { watch, name: name.to_bytes().to_vec(), whole },
                    None => Event::Itself { watch, whole },
                }
            };
            // A program that writes in small pieces says the same again and again.
            if events.last() != Some(&event) {
                events.push(event);
            }
        }
    }

    /// Until something happens, somebody wakes it, or the time is over.
    pub fn wait(&self, bound: Duration) -> Result<()> {
        let mut polled = [
            PollFd::from_borrowed_fd(self.inotify.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        let bound = Timespec {
            tv_sec: i64::try_from(bound.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: bound.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&bound)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let mut count = [0; 8];
        // Nobody woke it, if there is nothing to read.
        let _ = rustix::io::read(&*self.wake, &mut count);
        Ok(())
    }
}

fn failed(errno: Errno) -> StoreError {
    StoreError::Io { place: "the watch on a tree".into(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;

    #[test]
    fn what_is_done_is_told_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        let watch = Watch::new().unwrap();
        let number = watch.add(&tree.directory(b"").unwrap().unwrap()).unwrap().unwrap();
        assert_eq!(watch.events().unwrap(), []);
        std::fs::write(folder.path().join("a"), "x").unwrap();
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        let told = |name: &str, whole| Event::Name { watch: number, name: name.into(), whole };
        let events = watch.events().unwrap();
        let end = [told("a", true), told("a", false), told("b", true)];
        assert_eq!(events[events.len() - 3..], end, "{events:?}");
    }

    #[test]
    fn what_is_done_to_a_file_under_a_name_elsewhere_is_told() {
        let [inside, outside] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        std::fs::write(inside.path().join("a"), "x").unwrap();
        std::fs::hard_link(inside.path().join("a"), outside.path().join("b")).unwrap();
        let tree = Tree::open(inside.path()).unwrap();
        let root = tree.directory(b"").unwrap().unwrap();
        let watch = Watch::new().unwrap();
        let number = watch.add_file(&root, b"a").unwrap().unwrap();
        assert_eq!(watch.add_file(&root, b"a").unwrap(), Some(number), "it is one watch");
        assert_eq!(watch.add_file(&root, b"none").unwrap(), None);
        std::fs::write(outside.path().join("b"), "y").unwrap();
        let last = watch.events().unwrap().pop();
        assert_eq!(last, Some(Event::Itself { watch: number, whole: true }));
    }

    #[test]
    fn a_wait_ends_when_it_is_woken_and_does_not_outlast_its_bound() {
        let watch = Watch::new().unwrap();
        let waker = watch.waker();
        std::thread::spawn(move || waker.wake());
        watch.wait(Duration::from_secs(60)).unwrap();
        watch.wait(Duration::from_millis(1)).unwrap();
    }
}
