//! What can go wrong with a link, as far as its users act on it differently.

use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this machine cannot emulate a link: {}", .0.join("; "))]
    Missing(Vec<String>),
    #[error("{command} failed: {said}")]
    Command { command: String, said: String },
    #[error("cannot start {command}: {source}; is it installed?")]
    Start { command: String, source: std::io::Error },
    #[error("{doing} {}: {source}", path.display())]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{doing}: {source}")]
    System { doing: &'static str, source: std::io::Error },
    #[error("there is no profile {0}; `bench link list` shows them")]
    Profile(String),
    #[error("a process has at most {0} links")]
    Full(u8),
}

impl Error {
    pub(crate) fn system(doing: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::System { doing, source: errno.into() }
    }

    pub(crate) fn file(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }
}
