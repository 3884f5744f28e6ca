//! A real C program to copy, build and edit: LuaJIT, as the registry of cargo has it.
//! Holds: what is used is the package with the checksum below; nothing of it is in the repository.

use anyhow::{Context, Result, bail};
use bench::command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "luajit-src";
const VERSION: &str = "210.7.4";
const CHECKSUM: &str = "1db548b001f0b7da416daf0ffae963912bae6cad1799fa9f4eaba09da6dba837";

/// The word by which files of other processors' ports are known. Without them the tree is 2.5 MB.
const OTHER_PORTS: &[&str] = &["arm", "mips", "ppc", "s390", "x86.dasc", "build.bat"];

/// The file that workloads edit, and which is compiled again for that alone.
pub const EDITED: &str = "src/lj_api.c";

/// A source tree on the local disk, not to be changed.
#[derive(Clone, Debug)]
pub struct Source {
    pub tree: PathBuf,
    pub tar: PathBuf,
}

impl Source {
    /// Fetches it the first time, into `data`.
    pub fn get(data: &Path) -> Result<Self> {
        let home = data.join(format!("{PACKAGE}-{VERSION}"));
        let source = Self { tree: home.join("tree"), tar: home.join("tree.tar") };
        if source.tar.exists() {
            return Ok(source);
        }
        let unfinished = data.join(format!("{PACKAGE}-{}", std::process::id()));
        let made = make_ready(&unfinished).and_then(|()| {
            fs::rename(&unfinished, &home).context("cannot publish the source tree")
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        made.map(|()| source)
    }
}

/// The tree and its archive, in a directory that has another name until it is complete.
fn make_ready(unfinished: &Path) -> Result<()> {
    fetch(unfinished)?;
    let vendored = unfinished.join("vendor").join(PACKAGE);
    let tree = unfinished.join("tree");
    copy(&vendored.join("luajit2"), &tree)?;
    // The build asks git for the date of the release where this file is missing.
    fs::copy(vendored.join("luajit_relver.txt"), tree.join(".relver"))
        .context("the package has no date of its release")?;
    fs::remove_dir_all(unfinished.join("vendor")).context("cannot remove what is not needed")?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "-cf"]).arg(unfinished.join("tree.tar"));
    command::run(tar.arg("-C").arg(unfinished).arg("tree"))?;
    Ok(())
}

/// A package that needs only the one, and `cargo vendor`.
fn fetch(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory.join("src"))
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\n{PACKAGE} = \"={VERSION}\"\n[workspace]\n"
    );
    fs::write(directory.join("Cargo.toml"), manifest).context("cannot write a manifest")?;
    fs::write(directory.join("src/lib.rs"), "").context("cannot write a manifest")?;
    command::run(Command::new("cargo").args(["vendor", "--quiet"]).current_dir(directory))
        .context("cannot fetch the C program that the workloads build")?;
    let lock = fs::read_to_string(directory.join("Cargo.lock")).context("cargo made no lock")?;
    if !lock.contains(CHECKSUM) {
        bail!("{PACKAGE} {VERSION} is not the package that it was: its checksum differs");
    }
    Ok(())
}

/// Copies a tree without what belongs to other processors.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let to = to.join(&name);
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else if belongs(&name, cfg!(target_arch = "x86_64")) {
            fs::copy(entry.path(), &to).with_context(|| format!("cannot copy {}", to.display()))?;
        }
    }
    Ok(())
}

fn belongs(name: &str, only_x64: bool) -> bool {
    !only_x64 || !OTHER_PORTS.iter().any(|word| name.contains(word))
}

/// Builds the program; the output is thrown away.
pub fn make(tree: &Path) -> Result<()> {
    let mut make = Command::new("make");
    make.args(["-s", "CCOPT=-O1"]).current_dir(tree);
    // What an outer make was told is not meant for this one.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
        make.env_remove(name);
    }
    command::run(&mut make)?;
    Ok(())
}

/// Changes a line of the program as a programmer would, a different one for each `number`.
pub fn edit(tree: &Path, number: usize) -> Result<()> {
    let path = tree.join(EDITED);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let edited = format!("{text}\nint bench_edit_{number}(void) {{ return {number}; }}\n");
    fs::write(&path, edited).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_processors_are_left_out_where_they_are_not_needed() {
        assert!(!belongs("vm_arm64.dasc", true));
        assert!(belongs("vm_arm64.dasc", false));
        assert!(belongs("vm_x64.dasc", true));
    }
}
