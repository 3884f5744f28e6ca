//! What is in the cache, and what needs no link: as quick as on a local disk, or how much slower.

use super::Material;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use bench::command;
use bench::random::Random;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

const DIRECTORIES: usize = 50;
const FILES_EACH: usize = 100;
const FILES: usize = DIRECTORIES * FILES_EACH;

const LOOKS: u32 = 5;

const LARGE_BYTES: u64 = 256 << 20;
const BLOCK: usize = 128 << 10;
const PAGE: usize = 4096;
const PAGES: usize = 20_000;

pub fn run(stage: &mut Stage, _material: &Material) -> Result<()> {
    stage.prepare_warm(|root| {
        make_many(root)?;
        write_large(root)?;
        make_kept(root)?;
        // What is measured next is what a program finds that does the same again.
        [find, du, list, status].iter().try_for_each(|look| look(root))?;
        read_large(root)?;
        read_kept(root)
    })?;
    stage.phase("find 5,000, warm", find)?;
    stage.phase("du 5,000, warm", du)?;
    stage.phase("ls -lR 5,000, warm", list)?;
    stage.phase("git status 5,000, warm", status)?;
    // Before, the volume was mounted anew: what the kernel itself keeps comes back with the first.
    stage.phase("find again, 5 times", |root| times(find, root))?;
    stage.phase("du again, 5 times", |root| times(du, root))?;
    stage.phase("ls -lR again, 5 times", |root| times(list, root))?;
    stage.phase("git status again, 5 times", |root| times(status, root))?;
    stage.phase("read 256 MiB, warm", read_large)?;
    stage.phase("read 20,000 pages by chance, warm", read_pages)?;
    stage.phase("read 256 MiB again", read_large)?;
    stage.phase("read 20,000 pages by chance, again", read_pages)?;
    // Which the kernel may read by itself, where the file system lets it.
    stage.phase("read 256 MiB that nobody may write to, warm", read_kept)?;
    stage.phase("read 20,000 pages of it by chance, warm", pages_of_kept)?;
    stage.phase("overwrite 256 MiB", write_large)?;
    stage.phase("overwrite 20,000 pages by chance", write_pages)?;
    stage.phase("unpack 5,000", unpack)
}

/// One look takes 10 to 40 ms, of which much is by chance.
fn times(look: fn(&Path) -> Result<()>, root: &Path) -> Result<()> {
    (0..LOOKS).try_for_each(|_| look(root))
}

/// A work tree of git.
fn make_many(root: &Path) -> Result<()> {
    let tree = root.join("many");
    for directory in 0..DIRECTORIES {
        let directory = tree.join(directory.to_string());
        fs::create_dir_all(&directory).context("cannot make directories")?;
        for file in 0..FILES_EACH {
            let path = directory.join(format!("note-{file}.txt"));
            let text = format!("note {file}\n").repeat(100);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    git(&tree, &["init", "--quiet"])?;
    git(&tree, &["add", "."])?;
    git(&tree, &["-c", "user.name=n", "-c", "user.email=n@n", "commit", "--quiet", "-m", "all"])?;
    command::run(Command::new("tar").arg("-cf").arg(root.join("many.tar")).args([
        "--exclude=.git",
        "-C",
        &root.to_string_lossy(),
        "many",
    ]))?;
    Ok(())
}

fn git(tree: &Path, arguments: &[&str]) -> Result<String> {
    Ok(command::run(Command::new("git").arg("-C").arg(tree).args(arguments))?)
}

fn find(root: &Path) -> Result<()> {
    let mut find = Command::new("find");
    let tests = ["-name", "note-*", "-type", "f", "-newermt", "2000-01-01"];
    let printed = command::run(find.arg(root.join("many")).args(tests))?;
    complete(printed.lines().count())
}

fn du(root: &Path) -> Result<()> {
    let printed =
        command::run(Command::new("du").args(["-a", "--exclude=.git"]).arg(root.join("many")))?;
    complete(printed.lines().filter(|line| line.contains("note-")).count())
}

fn list(root: &Path) -> Result<()> {
    let printed = command::run(Command::new("ls").arg("-lR").arg(root.join("many")))?;
    complete(printed.lines().filter(|line| line.contains("note-")).count())
}

fn status(root: &Path) -> Result<()> {
    let printed = git(&root.join("many"), &["status", "--short"])?;
    ensure!(printed.trim().is_empty(), "git finds changes: {printed}");
    Ok(())
}

fn complete(found: usize) -> Result<()> {
    ensure!(found == FILES, "{found} files were found");
    Ok(())
}

fn write_large(root: &Path) -> Result<()> {
    write_blocks(&root.join("large"))
}

fn write_blocks(path: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.context("cannot open the file")?;
    let (mut random, mut block) = (Random::new(LARGE_BYTES), vec![0; BLOCK]);
    random.fill(&mut block);
    for offset in (0..LARGE_BYTES).step_by(BLOCK) {
        // Each block is another one, without a generator to wait for.
        block[..8].copy_from_slice(&offset.to_le_bytes());
        file.write_all_at(&block, offset).context("cannot write")?;
    }
    Ok(())
}

/// A file that nobody may write to.
fn make_kept(root: &Path) -> Result<()> {
    let path = root.join("kept");
    write_blocks(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).context("cannot set a mode")
}

fn read_kept(root: &Path) -> Result<()> {
    read_blocks(&root.join("kept"))
}

fn pages_of_kept(root: &Path) -> Result<()> {
    let file = File::open(root.join("kept")).context("cannot open the file")?;
    some_pages(&file, read_page)
}

fn read_large(root: &Path) -> Result<()> {
    read_blocks(&root.join("large"))
}

fn read_blocks(path: &Path) -> Result<()> {
    let file = File::open(path).context("cannot open the file")?;
    let mut block = vec![0; BLOCK];
    for offset in (0..LARGE_BYTES).step_by(BLOCK) {
        file.read_exact_at(&mut block, offset).context("cannot read")?;
        ensure!(block[..8] == offset.to_le_bytes(), "other bytes at {offset}");
    }
    Ok(())
}

fn read_pages(root: &Path) -> Result<()> {
    let file = File::open(root.join("large")).context("cannot open the file")?;
    some_pages(&file, read_page)
}

fn write_pages(root: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(root.join("large"));
    some_pages(&file.context("cannot open the file")?, write_page)
}

fn some_pages(file: &File, each: fn(&File, u64) -> Result<()>) -> Result<()> {
    let mut random = Random::new(7);
    (0..PAGES).try_for_each(|_| each(file, random.below(LARGE_BYTES / PAGE as u64) * PAGE as u64))
}

fn read_page(file: &File, offset: u64) -> Result<()> {
    file.read_exact_at(&mut [0; PAGE], offset).context("cannot read")
}

fn write_page(file: &File, offset: u64) -> Result<()> {
    file.write_all_at(&[7; PAGE], offset).context("cannot write")
}

fn unpack(root: &Path) -> Result<()> {
    let into = root.join("unpacked");
    fs::create_dir(&into).context("cannot make a directory")?;
    command::run(Command::new("tar").arg("-xf").arg(root.join("many.tar")).arg("-C").arg(into))?;
    Ok(())
}
