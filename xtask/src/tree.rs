//! The files of the checkout: what git tracks, or would track once added.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// One file of the tree, named from the root with forward slashes.
#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// The tree as the rules see it: every path, and the text of those they read.
#[derive(Debug, Default)]
pub struct Tree {
    pub paths: Vec<String>,
    pub files: Vec<File>,
}

impl Tree {
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.paths.iter().any(|known| known == path || known.starts_with(&folder))
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Files whose names end so, for instance `.rs`.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| file.path.ends_with(end))
    }
}

/// The root of the checkout.
pub fn root() -> Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("no CARGO_MANIFEST_DIR: start this as `cargo xtask`")?;
    let root = Path::new(&here).parent().context("xtask has no folder above it")?;
    Ok(root.to_owned())
}

/// Reads the tree. A file that is gone from the disk but still in the index is left out, and so
/// is one that is not text.
pub fn read(root: &Path) -> Result<Tree> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git cannot be started: `make setup` installs it")?;
    if !listed.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let listed = String::from_utf8(listed.stdout).context("a file's name is not UTF-8")?;
    let mut tree = Tree::default();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let on_disk = root.join(path);
        if !on_disk.exists() {
            continue;
        }
        tree.paths.push(path.to_owned());
        if let Ok(text) = std::fs::read_to_string(&on_disk) {
            tree.files.push(File { path: path.to_owned(), text });
        }
    }
    tree.paths.sort();
    tree.paths.dedup();
    Ok(tree)
}
