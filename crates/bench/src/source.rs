//! A real C program to copy, build and edit: LuaJIT, as the registry of cargo has it.
//! Holds: what is used is the package with the checksum below; nothing of it is in the repository.

use crate::workload::tree;
use anyhow::{Context, Result, bail};
use bench::command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "luajit-src";

struct Release {
    version: &'static str,
    checksum: &'static str,
}

const NEWEST: Release = Release {
    version: "210.7.4",
    checksum: "1db548b001f0b7da416daf0ffae963912bae6cad1799fa9f4eaba09da6dba837",
};
/// The newest one before it that differs in more than a line or two.
const BEFORE: Release = Release {
    version: "210.7.2",
    checksum: "920cf654b23d217c550ceea57c32cd2a413ea27b6d47ed77b5ee0cf655adefa6",
};

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
        Self::release(data, &NEWEST)
    }

    /// The release that `get` follows upon.
    pub fn before(data: &Path) -> Result<Self> {
        Self::release(data, &BEFORE)
    }

    fn release(data: &Path, release: &Release) -> Result<Self> {
        let home = home(data, release);
        let source = Self { tree: home.join("tree"), tar: home.join("tree.tar") };
        if source.tar.exists() {
            return Ok(source);
        }
        let unfinished = data.join(format!("{PACKAGE}-{}", std::process::id()));
        let made = make_ready(&unfinished, release).and_then(|()| {
            fs::rename(&unfinished, &home).context("cannot publish the source tree")
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&unfinished);
        }
        made.map(|()| source)
    }
}

fn home(data: &Path, release: &Release) -> PathBuf {
    data.join(format!("{PACKAGE}-{}", release.version))
}

/// The newest release, built by this machine's compiler the first time that somebody wants it. Not
/// to be changed.
pub fn built(data: &Path) -> Result<PathBuf> {
    let source = Source::get(data)?;
    let compiler = command::run_line("cc -dumpfullversion").context("there is no C compiler")?;
    let home = home(data, &NEWEST).join(format!("built-{}", compiler.trim()));
    if home.exists() {
        return Ok(home);
    }
    let unfinished = home.with_extension(std::process::id().to_string());
    let made = tree::copy(&source.tree, &unfinished)
        .and_then(|()| make(&unfinished))
        .context("cannot build the program");
    // Where another process was faster, its tree is as good.
    let published = made.and_then(|()| match fs::rename(&unfinished, &home) {
        Err(_) if home.exists() => fs::remove_dir_all(&unfinished).context("cannot tidy up"),
        renamed => renamed.context("cannot publish what was built"),
    });
    if published.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    published.map(|()| home)
}

/// The tree and its archive, in a directory that has another name until it is complete.
fn make_ready(unfinished: &Path, release: &Release) -> Result<()> {
    fetch(unfinished, release)?;
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
fn fetch(directory: &Path, release: &Release) -> Result<()> {
    let Release { version, checksum } = release;
    fs::create_dir_all(directory.join("src"))
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\n{PACKAGE} = \"={version}\"\n[workspace]\n"
    );
    fs::write(directory.join("Cargo.toml"), manifest).context("cannot write a manifest")?;
    fs::write(directory.join("src/lib.rs"), "").context("cannot write a manifest")?;
    command::run(Command::new("cargo").args(["vendor", "--quiet"]).current_dir(directory))
        .context("cannot fetch the C program that the workloads build")?;
    let lock = fs::read_to_string(directory.join("Cargo.lock")).context("cargo made no lock")?;
    if !lock.contains(checksum) {
        bail!("{PACKAGE} {version} is not the package that it was: its checksum differs");
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
    run_make(Command::new("make").current_dir(tree))
}

/// Compiles the edited file alone.
pub fn compile(tree: &Path) -> Result<()> {
    let object = Path::new(EDITED).with_extension("o");
    let target = object.file_name().context("a file has a name")?;
    run_make(Command::new("make").current_dir(tree.join("src")).arg(target))
}

fn run_make(make: &mut Command) -> Result<()> {
    make.args(["-s", "CCOPT=-O1"]);
    // What an outer make was told is not meant for this one.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
        make.env_remove(name);
    }
    command::run(make)?;
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

/// Puts a function into the middle of the file: what follows it in the object moves.
pub fn edit_middle(tree: &Path, number: usize) -> Result<()> {
    let path = tree.join(EDITED);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let edited = with_function(&text, number)
        .with_context(|| format!("{} has no function in its middle", path.display()))?;
    fs::write(&path, edited).with_context(|| format!("cannot write {}", path.display()))
}

/// Before the first function of the interface that begins in the second half.
fn with_function(text: &str, number: usize) -> Option<String> {
    let half = (text.len() / 2..text.len()).find(|&at| text.is_char_boundary(at))?;
    let at = half + text[half..].find("\nLUA_API ")?;
    let (before, after) = text.split_at(at);
    let function = format!(
        "\nint bench_middle_{number}(int n)\n{{\n  while (n % {divisor}) n += {number};\n  \
         return n;\n}}\n",
        divisor = number + 7,
    );
    Some(format!("{before}{function}{after}"))
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

    #[test]
    fn an_edit_in_the_middle_stands_before_a_function_and_changes_nothing_else() {
        let text = "first line\n\nLUA_API int a(void)\n{\n}\n\nLUA_API int b(void)\n{\n}\n";
        let edited = with_function(text, 3).unwrap();
        let at = edited.find("\nint bench_middle_3").unwrap();
        assert_eq!(&edited[..at], "first line\n\nLUA_API int a(void)\n{\n}\n");
        assert!(edited.ends_with("\nLUA_API int b(void)\n{\n}\n"), "{edited}");
        assert_eq!(with_function("nothing to stand before", 1), None);
    }
}
