//! What programming languages test of their own libraries that has to do with files: thousands of
//! small uses, with files where `TMPDIR` says.

use super::cases::{self, Case, Cases, Explained, Outcome};
use super::{Place, Section, Stage};
use crate::process::{TooLong, end_within};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Of CPython's tests, those whose files are where they are told to be.
const PYTHON: [&str; 37] = [
    "test_bz2",
    "test_cmd_line_script",
    "test_compileall",
    "test_dbm",
    "test_dbm_dumb",
    "test_fcntl",
    "test_file",
    "test_filecmp",
    "test_fileinput",
    "test_fileio",
    "test_genericpath",
    "test_glob",
    "test_gzip",
    "test_import",
    "test_io",
    "test_largefile",
    "test_linecache",
    "test_lzma",
    "test_mailbox",
    "test_mimetypes",
    "test_mmap",
    "test_netrc",
    "test_os",
    "test_pathlib",
    "test_pkgutil",
    "test_posix",
    "test_posixpath",
    "test_py_compile",
    "test_runpy",
    "test_shelve",
    "test_shutil",
    "test_stat",
    "test_tarfile",
    "test_tempfile",
    "test_unicode_file_functions",
    "test_zipfile",
    "test_zipimport",
];

/// Of Go's packages, those likewise.
const GO: [&str; 8] = [
    "archive/tar",
    "archive/zip",
    "debug/elf",
    "io/fs",
    "io/ioutil",
    "os",
    "path/filepath",
    "syscall",
];

const SMALL_HOLES: &str = "holes of less than 64 KiB are zeros once a file is stored, and what is \
                           read by way of the recipe has none.";
/// What does not pass here, and why.
const EXPLAINED_PYTHON: &Explained = &[
    ("test_tarfile.GNUReadTest.test_sparse_file_00", SMALL_HOLES),
    ("test_tarfile.GNUReadTest.test_sparse_file_01", SMALL_HOLES),
    ("test_tarfile.GNUReadTest.test_sparse_file_10", SMALL_HOLES),
    ("test_tarfile.GNUReadTest.test_sparse_file_old", SMALL_HOLES),
    // Now and then: mostly the file has left before it is removed.
    (
        "test_mailbox.TestMaildir.test_reread",
        "of a file that came and went before it was sent nothing tells, the time of its directory neither.",
    ),
];
const EXPLAINED_GO: &Explained = &[(
    "os TestNonpollableDeadline",
    "the kernel's FUSE lets ordinary files be polled, as always ready; the test takes for granted \
     that they cannot be.",
)];

/// One part of a library's tests on one place.
struct Part<'a> {
    name: &'a str,
    command: Command,
    parse: fn(&str, &str) -> Cases,
}

pub fn python(stage: &Stage<'_>) -> Result<Section> {
    let ran = stage.on_each(|place| {
        let part = |name| {
            let mut command = Command::new(&stage.suite);
            command.args(["-m", "test", "-v", "-u", "largefile", "--tempdir"]).arg(&place.path);
            command.arg(name).current_dir(&place.path);
            Part { name, command, parse: parse_python }
        };
        all(stage, place, PYTHON.map(part))
    })?;
    let mut section =
        cases::section(&super::titled("CPython's tests", &stage.suite), &ran, EXPLAINED_PYTHON)?;
    section.said.push(format!("Of {}.", PYTHON.join(", ")));
    Ok(section)
}

pub fn go(stage: &Stage<'_>) -> Result<Section> {
    let built = stage.directory.part("built")?;
    let root = go_root(&stage.suite)?;
    let mut programs = BTreeMap::new();
    for package in GO {
        let program = built.join(package.replace('/', "_"));
        let mut command = Command::new(&stage.suite);
        command.args(["test", "-c", "-o"]).arg(&program).arg(package).env("GOPROXY", "off");
        command.env("GOCACHE", built.join("cache"));
        let log = built.join("log");
        crate::process::run_within(&mut command, &log, stage.limit)
            .with_context(|| format!("the tests of {package} are not to be built"))?;
        programs.insert(package, program);
    }
    let ran = stage.on_each(|place| {
        let part = |name| {
            let mut command = Command::new(&programs[name]);
            // As `go test` runs them: some read files that lie there.
            command.arg("-test.v").current_dir(root.join("src").join(name));
            Part { name, command, parse: parse_go }
        };
        all(stage, place, GO.map(part))
    })?;
    let title = match go_version(&stage.suite) {
        Some(version) => format!("Go's tests {version}"),
        None => "Go's tests".into(),
    };
    let mut section = cases::section(&title, &ran, EXPLAINED_GO)?;
    section.said.push(format!("Of {}.", GO.join(", ")));
    Ok(section)
}

fn go_root(go: &Path) -> Result<PathBuf> {
    let said = bench::command::run(Command::new(go).args(["env", "GOROOT"]))?;
    let root = PathBuf::from(said.trim());
    ensure!(root.join("src/os").is_dir(), "{} has no sources of Go", root.display());
    Ok(root)
}

fn go_version(go: &Path) -> Option<String> {
    let said = bench::command::run(Command::new(go).arg("version")).ok()?;
    said.split_whitespace().find_map(|word| word.strip_prefix("go1")).map(|rest| format!("1{rest}"))
}

fn all<const N: usize>(
    stage: &Stage<'_>,
    place: &Place,
    parts: [Part<'_>; N],
) -> Result<(Cases, f64)> {
    let (start, mut cases) = (Instant::now(), Cases::new());
    for part in parts {
        cases.extend(run(stage, place, part)?);
    }
    Ok((cases, start.elapsed().as_secs_f64()))
}

fn run(stage: &Stage<'_>, place: &Place, part: Part<'_>) -> Result<Cases> {
    let Part { name, mut command, parse } = part;
    let log = place.beside.join("part.log");
    command.env("TMPDIR", &place.path);
    let ended = end_within(&mut command, &log, stage.limit);
    let printed = fs::read(&log).context("cannot read what the tests printed")?;
    let mut cases = parse(name, &String::from_utf8_lossy(&printed));
    let failed = |case: &Case| case.outcome == Outcome::Failed;
    let whole = match ended {
        Ok(status) if status.success() || cases.values().any(failed) => None,
        Ok(status) => Some(format!("{status}: {}", crate::process::tail(&log))),
        Err(error) if error.is::<TooLong>() => Some(error.to_string()),
        Err(error) => return Err(error),
    };
    if let Some(said) = whole {
        cases.insert(name.into(), Case::failed(said));
    }
    for (test, case) in cases.iter().filter(|(_, case)| failed(case)) {
        super::show(test, case);
    }
    Ok(cases)
}

/// A line for each test, `NAME (ID) ... OUTCOME`, of which a test may print the middle; and one for
/// each that fails, `FAIL: NAME (ID)`.
fn parse_python(_: &str, printed: &str) -> Cases {
    let mut cases = Cases::new();
    let mut last = None;
    for line in printed.lines() {
        let failed = line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: "));
        if let Some(id) = failed.and_then(python_id) {
            cases.insert(id, Case::failed("it fails"));
            continue;
        }
        last = python_id(line).or(last);
        let outcome = match line.rsplit(" ... ").next().map(str::trim) {
            Some("ok") => Outcome::Passed,
            Some(word) if word.starts_with("skipped ") => Outcome::Skipped,
            _ => continue,
        };
        if let Some(id) = last.take() {
            cases.entry(id).or_insert(Case { outcome, said: "it is skipped".into() });
        }
    }
    cases
}

/// Of `test_x (test.test_os.Files.test_x) ...`, what is in the brackets.
fn python_id(line: &str) -> Option<String> {
    let (name, rest) = line.split_once(" (test.")?;
    let id = rest.split_once(')')?.0;
    let is_one = !name.contains(' ') && !id.contains(' ') && id.ends_with(name);
    is_one.then(|| id.into())
}

/// A line for each test, `--- OUTCOME: NAME (TIME)`.
fn parse_go(package: &str, printed: &str) -> Cases {
    let case = |line: &str| {
        let (word, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
        let outcome = match word {
            "PASS" => Outcome::Passed,
            "FAIL" => Outcome::Failed,
            "SKIP" => Outcome::Skipped,
            _ => return None,
        };
        let test = rest.rsplit_once(" (")?.0;
        let said = if outcome == Outcome::Failed { "it fails" } else { "it is skipped" };
        Some((format!("{package} {test}"), Case { outcome, said: said.into() }))
    };
    printed.lines().filter_map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(cases: &Cases) -> Vec<(&str, Outcome)> {
        cases.iter().map(|(name, case)| (name.as_str(), case.outcome)).collect()
    }

    #[test]
    fn each_test_of_python_has_its_outcome_whatever_it_prints() {
        let printed = "\
test_a (test.test_os.Files.test_a) ... ok
test_b (test.test_os.Files.test_b) ... printed by it
ok
test_c (test.test_os.Files.test_c)
What it is about. ... ok
test_d (test.test_os.Files.test_d) ... skipped 'Windows alone'
test_e (test.test_os.Files.test_e) ... FAIL
======
FAIL: test_e (test.test_os.Files.test_e)
ERROR: test_f (test.test_os.Files.test_f) (number=1)
";
        use Outcome::*;
        let found = parse_python("test_os", printed);
        let wanted = [("a", Passed), ("b", Passed), ("c", Passed), ("d", Skipped), ("e", Failed)];
        let named = |(letter, outcome)| (format!("test_os.Files.test_{letter}"), outcome);
        let wanted: Vec<_> = wanted.into_iter().chain([("f", Failed)]).map(named).collect();
        let wanted: Vec<_> =
            wanted.iter().map(|(name, outcome)| (name.as_str(), *outcome)).collect();
        assert_eq!(outcomes(&found), wanted);
    }

    #[test]
    fn each_test_of_go_has_its_outcome() {
        let printed = "\
=== RUN   TestA
--- PASS: TestA (0.00s)
    --- FAIL: TestB/of_two (1.00s)
--- FAIL: TestB (1.00s)
--- SKIP: TestC (0.00s)
ok
";
        use Outcome::*;
        let wanted = [
            ("os TestA", Passed),
            ("os TestB", Failed),
            ("os TestB/of_two", Failed),
            ("os TestC", Skipped),
        ];
        assert_eq!(outcomes(&parse_go("os", printed)), wanted);
    }
}
