//! Which `farfs` is measured: the one that was built beside this program, unless another is named.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The release build is preferred, as it is what people run; `newest` takes what was built last.
pub fn find(named: Option<&Path>, newest: bool) -> Result<PathBuf> {
    if let Some(path) = named {
        return path.canonicalize().with_context(|| format!("there is no {}", path.display()));
    }
    let own = std::env::current_exe().context("cannot find this program")?;
    let beside = own.parent().context("this program lies in a directory")?;
    let target = beside.parent().context("that directory lies in another")?;
    let mut candidates = [target.join("release/farfs"), beside.join("farfs")];
    let built = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if newest {
        candidates.sort_by_key(|path| std::cmp::Reverse(built(path)));
    }
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => {
            if candidates.iter().any(|other| built(other) > built(path)) {
                let shown = path.display();
                eprintln!("bench: {shown} is older than the debug build; build it again?");
            }
            Ok(path.clone())
        }
        None => bail!(
            "there is no {}: build it first (cargo build --release -p cli), or name one with --farfs",
            target.join("release/farfs").display()
        ),
    }
}

/// Whether the optimizer was left out, by where cargo puts such builds.
pub fn is_debug(program: &Path) -> bool {
    program.parent().is_some_and(|directory| directory.ends_with("debug"))
}
