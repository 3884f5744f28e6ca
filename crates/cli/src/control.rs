//! The control socket of a running server or mount: one question and one answer per connection,
//! each a line of JSON.
//! Holds: only the owner of the directory can connect; a question is bounded in length and time, and so is
//! the wait for its answer, whoever listens there.
//! Never: knows what is asked.

use crate::exit::{self, Exit, OrExit, fail};
use anyhow::{Context, Error, Result};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

const NAME: &str = "control.sock";
const QUESTION_BYTES_MAX: u64 = 64 << 10;
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What is read of an answer at once.
const PART_BYTES: usize = 16 << 10;
/// Connections served at once.
const ASKERS_MAX: usize = 16;
/// How long an asker may take to say its line, and to take the answer.
const ASKER_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer<A> {
    Done(A),
    Failed { message: String, exit: u8 },
}

/// A socket's path may have 107 bytes, a directory's more: so the directory is opened, and the
/// socket reached through it. What stands in the place of a directory is not waited for.
fn through(directory: &Path) -> Result<(File, PathBuf)> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK);
    let opened =
        options.open(directory).with_context(|| format!("cannot open {}", directory.display()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", opened.as_raw_fd()));
    Ok((opened, path))
}

/// Who listens and takes nobody in, as a process that was stopped, lets no more than so many wait: the
/// next one is not kept waiting for good.
fn connect(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(within))?;
    retry_on_intr(|| rustix::net::connect(&socket, &SocketAddrUnix::new(path)?))?;
    Ok(socket.into())
}

/// The line that is said until then, however little of it comes at a time.
fn hear(stream: &mut UnixStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut line, mut part) = (Vec::new(), vec![0; PART_BYTES]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut part) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        let end = part[..count].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(count)]);
        if count == 0 || end.is_some() || line.len() > ANSWER_BYTES_MAX {
            return Ok(line);
        }
    }
}

/// Nothing came in time.
#[derive(Debug, thiserror::Error)]
#[error("it may be stopped or busy")]
pub struct Silent;

/// Asks whoever serves the directory. None: nobody does.
pub fn ask<Q: Serialize, A: DeserializeOwned>(
    directory: &Path,
    question: &Q,
    within: Duration,
) -> Result<Option<A>> {
    let until = Instant::now() + within;
    let silent = || format!("the farfs process of {} does not answer", directory.display());
    let no_answer = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::new(Silent),
        _ => Error::new(error),
    };
    let (_opened, path) = through(directory)?;
    let mut stream = match connect(&path, within) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(fail(
                Exit::Failure,
                format!("{} belongs to another user; ask as that user", directory.display()),
            ));
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Err(no_answer(error)).or_exit(Exit::Failure, silent());
        }
        Err(_) => return Ok(None),
    };
    stream.set_write_timeout(Some(within))?;
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(no_answer).or_exit(Exit::Failure, silent())?;
    let answer = hear(&mut stream, until).map_err(no_answer).or_exit(Exit::Failure, silent())?;
    match serde_json::from_slice(&answer).or_exit(Exit::Failure, silent())? {
        Answer::Done(answer) => Ok(Some(answer)),
        Answer::Failed { message, exit } => Err(fail(Exit::from_code(exit), message)),
    }
}

/// Served while it lives.
pub struct Served {
    task: tokio::task::JoinHandle<()>,
    path: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers questions with `answer`. The caller holds the directory's lock, so a socket that is
/// there already is a dead process's.
pub fn serve<Q, A, F, W>(directory: &Path, answer: F) -> Result<Served>
where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
    F: Fn(Q) -> W + Send + Sync + 'static,
    W: Future<Output = Result<A>> + Send + 'static,
{
    let (opened, path) = through(directory)?;
    let shown = directory.join(NAME);
    if std::fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir()) {
        let _ = store::ordinary::put_aside(&shown);
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let what = format!("cannot remove {}, of an earlier process", shown.display());
            return Err(error).context(what);
        }
        _ => {}
    }
    let listener = tokio::net::UnixListener::bind(&path)
        .with_context(|| format!("cannot make {}", shown.display()))?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let answer = Arc::new(answer);
    let places = Arc::new(Semaphore::new(ASKERS_MAX));
    let task = tokio::spawn(async move {
        // The path through which others came lives as long as the descriptor.
        let _opened = opened;
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a control connection could not be taken");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let _place = place;
                if let Err(error) = one(stream, &*answer).await {
                    tracing::debug!(%error, "a control connection ended early");
                }
            });
        }
    });
    Ok(Served { task, path: shown })
}

async fn one<Q, A, F, W>(stream: tokio::net::UnixStream, answer: &F) -> Result<()>
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Fn(Q) -> W,
    W: Future<Output = Result<A>>,
{
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut read = tokio::io::BufReader::new(read.take(QUESTION_BYTES_MAX));
    tokio::time::timeout(ASKER_PATIENCE, read.read_line(&mut line)).await??;
    let outcome = match serde_json::from_str(&line) {
        Ok(question) => answer(question).await,
        Err(error) => Err(fail(
            Exit::Usage,
            format!("this farfs process does not know the question ({error}); is it older?"),
        )),
    };
    let outcome = match outcome {
        Ok(answer) => Answer::Done(answer),
        Err(error) => {
            Answer::Failed { message: exit::words(&error), exit: exit::code(&error) as u8 }
        }
    };
    let mut bytes = serde_json::to_vec(&outcome)?;
    bytes.push(b'\n');
    tokio::time::timeout(ASKER_PATIENCE, write.write_all(&bytes)).await??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    async fn double(number: u32) -> Result<u32> {
        number.checked_mul(2).ok_or_else(|| fail(Exit::NotFound, "too large"))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_question_gets_its_answer_or_its_error_with_the_code() {
        let long = tempfile::tempdir().unwrap();
        let directory = long.path().join("d".repeat(150));
        std::fs::create_dir(&directory).unwrap();
        let served = serve(&directory, double).unwrap();
        let here = directory.clone();
        let (fine, failed, foreign) = tokio::task::spawn_blocking(move || {
            (
                ask::<_, u32>(&here, &21_u32, SOON),
                ask::<_, u32>(&here, &u32::MAX, SOON),
                ask::<_, u32>(&here, &"word", SOON),
            )
        })
        .await
        .unwrap();
        assert_eq!(fine.unwrap(), Some(42));
        assert_eq!(exit::code(&failed.unwrap_err()), Exit::NotFound);
        assert_eq!(exit::code(&foreign.unwrap_err()), Exit::Usage);
        drop(served);
        assert_eq!(ask::<_, u32>(&directory, &1_u32, SOON).unwrap(), None);
    }

    /// What comes of asking there for 300 ms, if that ends at all.
    #[track_caller]
    fn asked(directory: &Path) -> Result<Option<u32>> {
        let (sender, asked) = std::sync::mpsc::channel();
        let directory = directory.to_path_buf();
        let within = Duration::from_millis(300);
        std::thread::spawn(move || sender.send(ask::<_, u32>(&directory, &1_u32, within)));
        asked.recv_timeout(SOON).expect("nobody is waited for without an end")
    }

    fn is_silence(asked: &Result<Option<u32>>) -> bool {
        asked.as_ref().is_err_and(|error| error.chain().any(|cause| cause.is::<Silent>()))
    }

    #[test]
    fn who_listens_and_takes_nobody_in_is_not_waited_for_however_many_wait_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (family, sort) = (AddressFamily::UNIX, SocketType::STREAM);
        let flags = SocketFlags::CLOEXEC;
        let listens = rustix::net::socket_with(family, sort, flags, None).unwrap();
        rustix::net::bind(&listens, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listens, 2).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = connect(&path, Duration::from_millis(10)) {
            waiting.push(stream);
        }
        assert!(waiting.len() > 1);
        let asked = asked(directory.path());
        assert!(is_silence(&asked), "{asked:?}");
    }

    #[test]
    fn who_answers_byte_by_byte_is_not_waited_for_for_longer() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(directory.path().join(NAME)).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let asked = asked(directory.path());
        assert!(is_silence(&asked), "{asked:?}");
    }

    #[test]
    fn a_pipe_in_the_place_of_a_directory_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(asked(&pipe).is_err());
    }
}
