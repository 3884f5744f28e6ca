//! `farfs-lend`: lends files to the kernel for the daemon of an ordinary user. It has the capability
//! that the kernel wants of who lends (CAP_SYS_ADMIN), from the file that it is, and does nothing else.
//! Holds: it ends with the daemon that started it, and keeps nothing open that was sent to it, so that
//! a mount ends with its daemon.

use crate::lendable::{
    ANSWER_BYTES, Asked, QUESTION_BYTES, answer_of, is_device, is_lendable, outcome_of,
};
use crate::lending::{lend, take_back};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send,
    sendmsg, socketpair,
};
use rustix::process::{getgid, getuid};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// It does nothing that takes longer than a moment.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Files that are lent at once, for one mount: they count for no limit of the user's.
const LENT_MAX: usize = 4096;
/// Somebody may end it, or keep it from answering: so often it is started again.
const STARTS_AGAIN: u32 = 3;

/// The helper, as the daemon has it.
#[derive(Debug)]
pub struct Privileged {
    program: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once it did not answer as it should.
    process: Option<Process>,
    starts_left: u32,
}

#[derive(Debug)]
struct Process {
    socket: OwnedFd,
    child: Option<Child>,
}

impl Privileged {
    /// Errors: EPERM if it has no capability, ENOENT if it is not there.
    pub fn start(program: &Path) -> io::Result<Privileged> {
        let process = Process::start(program)?;
        let answer = exchange(&process.socket, Asked::MayYou, &[])?;
        outcome_of(answer)?;
        let state = State { process: Some(process), starts_left: STARTS_AGAIN };
        Ok(Privileged { program: program.into(), state: Mutex::new(state) })
    }

    pub(crate) fn lend(&self, device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<i32> {
        self.ask(Asked::Lend, &[device, file])
    }

    pub(crate) fn take_back(&self, device: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        self.ask(Asked::TakeBack(number), &[device]).map(|_| ())
    }

    /// Errors: EPIPE if it is gone for good.
    fn ask(&self, asked: Asked, descriptors: &[BorrowedFd<'_>]) -> io::Result<i32> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(process) = state.process.as_ref() else { return Err(Errno::PIPE.into()) };
            let error = match exchange(&process.socket, asked, descriptors) {
                Ok(answer) => return Ok(outcome_of(answer)?),
                Err(error) => error,
            };
            // An answer that comes later would be taken for that of the next question.
            state.process = None;
            let starts_left = state.starts_left;
            tracing::warn!(
                %error, starts_left, "the program that lends files to the kernel does not answer"
            );
            state.starts_left = starts_left.saturating_sub(1);
            if starts_left > 0 {
                state.process = Process::start(&self.program).ok();
            }
        }
    }
}

impl Process {
    fn start(program: &Path) -> io::Result<Process> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWERS_WITHIN))?;
        set_socket_timeout(&socket, Timeout::Send, Some(ANSWERS_WITHIN))?;
        // A signal to the terminal's programs is not for it: it ends with the daemon.
        let child = Command::new(program)
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Process { socket, child: Some(child) })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It would end by itself, but for one that somebody has stopped.
        if let Err(error) = child.kill() {
            tracing::debug!(%error, "the program that lends files cannot be ended");
        }
        // Nobody waits for what the kernel may keep from ending.
        let reaper = std::thread::Builder::new().name("farfs-lend".into());
        if let Err(error) = reaper.spawn(move || child.wait()) {
            tracing::debug!(%error, "the program that lends files is left to be waited for");
        }
    }
}

fn exchange(
    socket: &OwnedFd,
    asked: Asked,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<[u8; ANSWER_BYTES]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE.into());
    }
    let question = asked.bytes();
    // A signal is no reason to give it up.
    retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(&question)], &mut control, SendFlags::NOSIGNAL)
    })?;
    let mut answer = [0; ANSWER_BYTES];
    let (_, length) = retry_on_intr(|| rustix::net::recv(socket, &mut answer, RecvFlags::empty()))?;
    if length == ANSWER_BYTES { Ok(answer) } else { Err(Errno::PIPE.into()) }
}

/// The helper itself: answers on its standard input until that is closed. Errors: it was not started
/// by a daemon, or has rights of another user.
pub fn serve() -> io::Result<()> {
    let socket = io::stdin();
    let (uid, gid) = (getuid(), getgid());
    if uid != rustix::process::geteuid() || gid != rustix::process::getegid() {
        return Err(io::Error::other(
            "it must not be set-user-id: it takes the capability, `setcap cap_sys_admin+ep`",
        ));
    }
    let may =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let mut lent = 0;
    while let Some((asked, descriptors)) = receive(socket.as_fd())? {
        let outcome = if may {
            serve_one(asked, &descriptors, uid.as_raw(), &mut lent)
        } else {
            Err(Errno::PERM)
        };
        drop(descriptors);
        let answer = answer_of(outcome);
        retry_on_intr(|| send(socket.as_fd(), &answer, SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

fn serve_one(
    asked: Option<Asked>,
    descriptors: &[OwnedFd],
    uid: u32,
    lent: &mut usize,
) -> rustix::io::Result<i32> {
    let asked = asked.filter(|asked| asked.descriptors() == descriptors.len());
    match (asked.ok_or(Errno::INVAL)?, descriptors) {
        (Asked::Lend, [device, file]) => {
            is_device(device)?;
            is_lendable(file, uid)?;
            if *lent >= LENT_MAX {
                return Err(Errno::MFILE);
            }
            let number = lend(device.as_fd(), file.as_fd())?;
            *lent += 1;
            Ok(number)
        }
        (Asked::TakeBack(number), [device]) => {
            is_device(device)?;
            take_back(device.as_fd(), number)?;
            *lent = lent.saturating_sub(1);
            Ok(0)
        }
        _ => Ok(0),
    }
}

type Question = (Option<Asked>, Vec<OwnedFd>);

/// The next question. None: whoever asked is gone.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Question>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; QUESTION_BYTES + 1];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received =
        retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let whole = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Some((Asked::of(&bytes[..received.bytes]).filter(|_| whole), descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_question_comes_with_its_descriptors_and_is_answered() {
        let (ours, theirs) = pair();
        let asker = std::thread::spawn(move || {
            let null = File::open("/dev/null").unwrap();
            exchange(&ours, Asked::TakeBack(7), &[null.as_fd()]).unwrap()
        });
        let (asked, descriptors) = receive(theirs.as_fd()).unwrap().unwrap();
        assert_eq!((asked, descriptors.len()), (Some(Asked::TakeBack(7)), 1));
        let outcome = serve_one(asked, &descriptors, 0, &mut 0);
        assert_eq!(outcome, Err(Errno::NOTTY), "it is no mount's device");
        send(theirs.as_fd(), &answer_of(outcome), SendFlags::NOSIGNAL).unwrap();
        assert_eq!(outcome_of(asker.join().unwrap()), outcome);
        assert!(receive(theirs.as_fd()).unwrap().is_none(), "who asked is gone");
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let (ours, theirs) = pair();
        for bytes in [&[9_u8, 0, 0, 0, 0][..], &[1], &[1; 40]] {
            send(ours.as_fd(), bytes, SendFlags::NOSIGNAL).unwrap();
            let (asked, descriptors) = receive(theirs.as_fd()).unwrap().unwrap();
            assert_eq!(serve_one(asked, &descriptors, 0, &mut 0), Err(Errno::INVAL), "{bytes:?}");
        }
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        for (asked, descriptors) in [
            (Asked::Lend, vec![null()]),
            (Asked::TakeBack(1), vec![]),
            (Asked::MayYou, vec![null()]),
        ] {
            assert_eq!(serve_one(Some(asked), &descriptors, 0, &mut 0), Err(Errno::INVAL));
        }
    }

    #[test]
    fn a_file_that_its_owner_may_only_read_is_never_lent() {
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let uid = rustix::fs::stat(&path).unwrap().st_uid;
        let lend = |file: File, lent: &mut usize| {
            let device = OwnedFd::from(device.try_clone().unwrap());
            serve_one(Some(Asked::Lend), &[device, file.into()], uid, lent)
        };
        let to_read = File::open(&path).unwrap();
        assert_eq!(lend(to_read, &mut 0), Err(Errno::BADF));
        let to_write = || File::options().read(true).write(true).open(&path).unwrap();
        let others = crate::lendable::is_lendable(to_write(), uid);
        assert!(matches!(others, Ok(()) | Err(Errno::XDEV)), "by the file system alone");
        if others == Err(Errno::XDEV) {
            return;
        }
        assert_eq!(lend(to_write(), &mut LENT_MAX.clone()), Err(Errno::MFILE));
        // This end is no mount's: it is the kernel that says so.
        let outcome = lend(to_write(), &mut 0);
        assert!(matches!(outcome, Err(errno) if errno != Errno::BADF), "{outcome:?}");
    }

    #[test]
    fn what_does_not_answer_is_started_again_and_then_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("mute");
        std::os::unix::fs::symlink("/bin/true", &program).unwrap();
        assert!(Privileged::start(&program).is_err());
        let process = Process::start(&program).ok();
        let state = Mutex::new(State { process, starts_left: STARTS_AGAIN });
        let mute = Privileged { program, state };
        let null = File::open("/dev/null").unwrap();
        for _ in 0..2 {
            let error = mute.take_back(null.as_fd(), 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPIPE), "{error}");
        }
        assert_eq!(mute.state.lock().unwrap().starts_left, 0);
    }
}
