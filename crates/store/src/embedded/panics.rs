//! Panics of redb, whose pages are damaged then, as the program's panic hook meets them.
//! Holds: a panic that is caught is told of as damage by whoever asked; of one that nobody can catch, the
//! hook is the last that runs, and has the words for it.
//!
//! ```text
//!   panic ---> caught ---> StoreError::Damaged
//!      \---a destructor panics meanwhile---> the hook ends the process, else it aborts
//! ```

use super::Words;
use super::errors::{SENSELESS, damaged_file};
use crate::error::StoreError;
use crate::ordinary;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What Rust says of a panic after which it aborts.
const UNCATCHABLE: [&str; 2] =
    ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];

/// What a mark says.
const MARKED: &str = "what is damaged has ended the process\n";

thread_local! {
    /// Calls of this thread whose panics are caught here.
    static GUARDED: Cell<u32> = const { Cell::new(0) };
    /// What they work on.
    static BLAMED: RefCell<Option<Arc<Blame>>> = const { RefCell::new(None) };
}

/// What the program's panic hook does about a panic.
#[derive(Debug)]
pub enum Panicked {
    /// It is no affair of the store.
    Elsewhere,
    /// Nothing: the store catches it, and tells of it as damage.
    Caught,
    /// It says this and ends the process, which would be aborted without a word.
    Ends(StoreError),
}

impl Panicked {
    /// To be asked by the hook, in the thread that panics.
    pub fn of(panic: &PanicHookInfo<'_>) -> Panicked {
        match is_guarded() {
            false => Panicked::Elsewhere,
            true if !UNCATCHABLE.contains(&text_of(panic.payload())) => Panicked::Caught,
            true => {
                let blamed = BLAMED.try_with(|blamed| blamed.borrow().clone());
                let blamed = blamed.ok().flatten();
                blamed.map_or(Panicked::Elsewhere, |blame| Panicked::Ends(blame.ends()))
            }
        }
    }
}

/// Whether this mark was made, and not by hand or for other damage.
pub fn has_ended(mark: &Path) -> bool {
    ordinary::read(mark).is_ok_and(|said| said == MARKED.as_bytes())
}

fn is_guarded() -> bool {
    GUARDED.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

/// Gives None if it panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    GUARDED.set(GUARDED.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(GUARDED.get() - 1);
    match outcome {
        Ok(value) => Some(value),
        Err(panic) => {
            tracing::debug!(said = text_of(&*panic), "the database panicked");
            None
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

/// The file that is damaged if there is a panic.
#[derive(Debug)]
pub struct Blame {
    path: PathBuf,
    advice: String,
    mark: Option<PathBuf>,
}

impl Blame {
    pub fn new(path: &Path, advice: &str, mark: Option<&Path>) -> Arc<Blame> {
        let (path, advice) = (path.to_path_buf(), advice.to_owned());
        Arc::new(Blame { path, advice, mark: mark.map(Path::to_path_buf) })
    }

    /// What a caller has blamed, who knows what is to be done about it.
    pub fn of(path: &Path) -> Arc<Blame> {
        let blamed = BLAMED.with_borrow(Clone::clone);
        blamed.unwrap_or_else(|| Blame::new(path, &Words::default().advice, None))
    }

    pub fn during<T>(self: Arc<Blame>, work: impl FnOnce() -> T) -> T {
        let _restored = Restored(BLAMED.replace(Some(self)));
        work()
    }

    fn ends(&self) -> StoreError {
        if let Some(mark) = &self.mark
            && let Err(error) = ordinary::write(mark, MARKED.as_bytes())
        {
            tracing::warn!(%error, "a damaged file could not be marked so");
        }
        damaged_file(&self.path, &format!("{SENSELESS}; {}", self.advice))
    }
}

/// What was blamed before.
struct Restored(Option<Arc<Blame>>);

impl Drop for Restored {
    fn drop(&mut self) {
        BLAMED.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use std::process::Command;

    /// Says where, to a process that is to end so.
    const DIRECTORY: &str = "FARFS_TEST_ENDS";
    const ENDED: i32 = 6;
    const TEST: &str = "embedded::panics::tests::a_panic_that_nobody_can_catch_is_told_and_marked";

    /// redb has such.
    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("once more");
        }
    }

    fn end_in(directory: &Path) {
        std::panic::set_hook(Box::new(|panic| {
            if let Panicked::Ends(damage) = Panicked::of(panic) {
                eprintln!("told: {damage}");
                std::process::exit(ENDED);
            }
        }));
        let (path, mark) = (directory.join("tables"), directory.join("mark"));
        let outcome = crate::embedded::guarded(&path, || -> Result<()> { panic!("once") });
        assert!(outcome.is_err() && !mark.exists());
        let _: Result<()> = Blame::new(&path, "ask Ada", Some(&mark)).during(|| {
            crate::embedded::guarded(&path, || {
                let _panics = PanicsWhenDropped;
                panic!("once");
            })
        });
    }

    #[test]
    fn a_panic_that_nobody_can_catch_is_told_and_marked() {
        if let Some(directory) = std::env::var_os(DIRECTORY) {
            return end_in(Path::new(&directory));
        }
        let directory = tempfile::tempdir().unwrap();
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", TEST, "--nocapture"]).env(DIRECTORY, directory.path());
        let ran = again.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(ENDED), "{said}");
        let path = directory.path().join("tables");
        let wanted = format!("told: {} is damaged: {SENSELESS}; ask Ada", path.display());
        assert!(said.contains(&wanted), "{said}");
        assert!(has_ended(&directory.path().join("mark")));
    }
}
