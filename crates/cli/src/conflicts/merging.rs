//! Putting both sides together: by lines, or by a program.
//! Holds: a program gets copies in a directory that is its user's alone, and ends in time; what it
//! leaves undone changes nothing; nothing is fetched to be compared by lines that is too large for that.

use super::ways::Way;
use super::work::Work;
use super::{Place, TEXT_BYTES_MAX, attributes};
use crate::exit::{Exit, OrExit, fail};
use crate::units;
use anyhow::{Context, Result};
use protocol::past::ConflictInfo;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a program of the configuration file may take, if nothing else is said.
const TOOL_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Programs that merge, by the names of the files that they are for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Mergers(BTreeMap<String, Words>);

/// A command: in one string its words stand between blanks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Words {
    Line(String),
    List(Vec<String>),
}

impl Words {
    fn split(&self) -> Vec<String> {
        match self {
            Words::Line(line) => line.split_whitespace().map(str::to_owned).collect(),
            Words::List(words) => words.clone(),
        }
    }
}

impl Mergers {
    /// What is wrong with one of them, for who wrote it.
    pub fn fault(&self) -> Option<String> {
        self.0.iter().find_map(|(pattern, words)| {
            let words = words.split();
            let writes = words.iter().any(|word| word.contains("{merged}"));
            let fault = match words.first() {
                None => "names no program",
                Some(_) if !writes => "says nowhere what the program is to write: {merged}",
                Some(_) => return None,
            };
            Some(format!("[mergers] {pattern:?} {fault}"))
        })
    }

    /// Those of `other`, and of the rest these.
    pub fn over(self, other: Mergers) -> Mergers {
        Mergers(self.0.into_iter().chain(other.0).collect())
    }

    /// The words of the one for a path within the volume: of those that fit, the longest pattern's.
    /// One with a slash is for the path, and any other for the name.
    pub fn for_path(&self, path: &str) -> Option<Vec<String>> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let fits = |pattern: &str| match pattern.contains('/') {
            true => matches(pattern.trim_start_matches('/').as_bytes(), path.as_bytes()),
            false => matches(pattern.as_bytes(), name.as_bytes()),
        };
        let fitting = self.0.iter().filter(|(pattern, _)| fits(pattern));
        fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, words)| words.split())
    }
}

/// Whether a text is as a pattern says: `*` stands for any bytes, `?` for one.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where the last star was, and what of the text it stands for.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[from] => (at, from) = (at + 1, from + 1),
            _ => match &mut star {
                Some((begins, taken)) => {
                    *taken += 1;
                    (at, from) = (*begins + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// How both sides are put together.
#[derive(Clone, Debug, Default)]
pub struct Merging {
    /// A program for all files, in place of those of the configuration file.
    pub tool: Option<String>,
    /// How long a program may take.
    pub within: Option<Duration>,
    pub markers: bool,
    pub mergers: Mergers,
}

impl Merging {
    /// What this is of a conflict about a path within the volume: a program needs nothing that both
    /// began from.
    pub(super) fn way(&self, conflict: &ConflictInfo, path: &str) -> Way {
        let has_base = conflict.base_since.is_some();
        if self.program(path).is_some() && !has_base { Way::MergeByProgram } else { Way::Merge }
    }

    /// The words of a program that merges a path within the volume. None: it goes by lines.
    pub(super) fn program(&self, path: &str) -> Option<Vec<String>> {
        match &self.tool {
            Some(tool) => Some(Words::Line(tool.clone()).split()),
            None if self.markers => None,
            None => self.mergers.for_path(path),
        }
    }

    /// Both sides as one. `path`: within the volume.
    pub(super) fn merged(
        &self,
        place: &Place,
        conflict: &ConflictInfo,
        path: &str,
        (theirs, mine): (&Path, &Path),
    ) -> Result<Work> {
        let within = match &self.tool {
            Some(_) => self.within,
            None => Some(self.within.unwrap_or(TOOL_WITHIN)),
        };
        let Some(words) = self.program(path) else {
            let merged = self.by_lines(place, conflict, (theirs, mine))?;
            let work = Work::of(theirs)?;
            fs::write(work.merged(), merged)?;
            return Ok(work);
        };
        let work = Work::of(theirs)?;
        let mut base = fs::File::create(work.file("base"))?;
        if conflict.base_since.is_some() {
            place.base(conflict, &mut base, None)?;
        }
        fs::copy(theirs, work.file("theirs"))?;
        fs::copy(mine, work.file("mine"))?;
        by_tool(&words, within, &work)?;
        Ok(work)
    }

    fn by_lines(
        &self,
        place: &Place,
        conflict: &ConflictInfo,
        (theirs, mine): (&Path, &Path),
    ) -> Result<String> {
        for side in [theirs, mine] {
            is_text_sized(side)?;
        }
        let mut base = Vec::new();
        place.base(conflict, &mut base, Some(TEXT_BYTES_MAX))?;
        let base = as_text(base, "what both began from")?;
        let (mine, theirs) = (text(mine)?, text(theirs)?);
        let (markers, number) = (self.markers, conflict.number);
        let merge = move || by_lines(&base, &mine, &theirs, markers, number);
        compared(self.within.unwrap_or(TOOL_WITHIN), merge)?
    }
}

/// Runs a program, without a shell, on copies. One that may take any time is asked at the terminal,
/// if it wants to; any other has no terminal, and is killed with all that it has started.
fn by_tool(words: &[String], within: Option<Duration>, work: &Work) -> Result<()> {
    let names = [("base", "base"), ("mine", "mine"), ("theirs", "theirs")];
    let names = names.into_iter().chain([("out", "merged"), ("merged", "merged")]);
    let fill = |word: &String| {
        names.clone().fold(word.clone(), |word, (name, of)| {
            let path = work.file(of).display().to_string();
            word.replace(&format!("{{{name}}}"), &path).replace(&format!("%{name}"), &path)
        })
    };
    let mut words = words.iter().map(fill);
    let program = words.next().ok_or_else(|| fail(Exit::Usage, "no program is named"))?;
    let status = run(Command::new(&program).args(words), &program, within)?;
    if !status.success() {
        let what = format!("{program} ended with {status}: nothing was done");
        return Err(fail(Exit::Failure, what));
    }
    let what = format!("{program} has not written the merged file: nothing was done");
    match fs::metadata(work.merged()).or_exit(Exit::Failure, &what)?.is_file() {
        true => Ok(()),
        false => Err(fail(Exit::Failure, what)),
    }
}

fn run(command: &mut Command, program: &str, within: Option<Duration>) -> Result<ExitStatus> {
    let cannot = || format!("cannot run {program}");
    let Some(within) = within else { return command.status().or_exit(Exit::Usage, cannot()) };
    let command = command.process_group(0).stdin(Stdio::null());
    let mut child = command.spawn().or_exit(Exit::Usage, cannot())?;
    let group = Pid::from_child(&child);
    let until = Instant::now() + within;
    let ended = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Ok(ended) => break ended,
            Err(error) => return Err(error).with_context(cannot),
        }
    };
    // Nothing that it has started goes on either. That nothing is left is no error.
    let _ = kill_process_group(group, Signal::KILL);
    ended.ok_or_else(|| {
        let _ = child.wait();
        let within = units::show_secs(within.as_secs());
        let what = format!(
            "{program} took longer than {within} and was killed: nothing was done; \
             `--tool-timeout` gives it more"
        );
        fail(Exit::Failure, what)
    })
}

/// An error if it is too large to be compared by lines, or no file.
fn is_text_sized(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path).or_exit(Exit::NotFound, path.display().to_string())?;
    if !meta.is_file() {
        return Err(fail(Exit::Failure, format!("{} is no file", path.display())));
    }
    if meta.len() > TEXT_BYTES_MAX {
        let most = units::show_size(TEXT_BYTES_MAX);
        return Err(fail(
            Exit::Failure,
            format!("{} is larger than what is compared by lines, {most}", path.display()),
        ));
    }
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    is_text_sized(path)?;
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    as_text(bytes, &path.display().to_string())
}

fn as_text(bytes: Vec<u8>, what: &str) -> Result<String> {
    let binary = || {
        fail(
            Exit::Failure,
            format!(
                "{what} is no text: look at both with their own program, or give one that merges \
                 them with `farfs conflicts merge --tool`"
            ),
        )
    };
    if bytes.contains(&0) {
        return Err(binary());
    }
    String::from_utf8(bytes).map_err(|_| binary())
}

/// From what has the name to what lies beside it.
pub fn difference(place: &Place, conflict: &ConflictInfo) -> Result<String> {
    if let Some(settings) = &conflict.settings {
        return Ok(attributes::table(settings));
    }
    place.is_done(conflict, Way::Diff)?;
    let (theirs, mine) = place.sides(conflict)?;
    is_text_sized(&mine)?;
    let (from, to) = (text(&theirs)?, text(&mine)?);
    let shown = |path: &Path| path.display().to_string();
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(shown(&theirs)).set_modified_filename(shown(&mine));
    compared(TOOL_WITHIN, move || options.create_patch(&from, &to).to_string())
}

/// Comparing takes as long as lines times differences: of two large files with nothing in common, hours.
fn compared<T: Send + 'static>(
    within: Duration,
    compare: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (done, is_done) = mpsc::channel();
    // One that takes too long ends with this program.
    std::thread::spawn(move || done.send(compare()));
    is_done.recv_timeout(within).map_err(|_| {
        let within = units::show_secs(within.as_secs());
        let what = format!(
            "they differ in too many lines to be compared within {within}: nothing was done; look at \
             both with their own program, or give one that merges them with `farfs conflicts merge \
             --tool`"
        );
        fail(Exit::Failure, what)
    })
}

fn by_lines(base: &str, mine: &str, theirs: &str, markers: bool, number: u64) -> Result<String> {
    match diffy::merge(base, mine, theirs) {
        Ok(merged) => Ok(merged),
        Err(marked) if markers => Ok(marked),
        Err(_) => Err(fail(
            Exit::Failure,
            format!(
                "conflict {number}: both changed the same lines. Nothing was done; `farfs conflicts \
                 diff {number}` shows them, `merge {number} --markers` writes both between marks, \
                 and `merge {number} --tool` runs a program that merges"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_to_be_compared_is_given_up_and_said() {
        let lines = |from: u32| (from..from + 60_000).map(|line| format!("{line}\n")).collect();
        let (one, other): (String, String) = (lines(0), lines(100_000));
        let within = Duration::from_millis(50);
        let error = compared(within, move || by_lines("", &one, &other, true, 1)).unwrap_err();
        assert!(error.to_string().contains("too many lines"), "{error}");
        assert_eq!(compared(TOOL_WITHIN, || 7).unwrap(), 7);
    }

    #[test]
    fn lines_that_one_side_changed_are_merged_and_those_of_both_are_not() {
        let (base, mine, theirs) = ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n");
        assert_eq!(by_lines(base, mine, theirs, false, 1).unwrap(), "A\nb\nC\n");
        let error = by_lines(base, "x\nb\nc\n", "y\nb\nc\n", false, 7).unwrap_err();
        assert!(error.to_string().contains("merge 7 --markers"), "{error}");
        let marked = by_lines(base, "x\nb\nc\n", "y\nb\nc\n", true, 7).unwrap();
        assert!(marked.contains("x\n") && marked.contains("y\n"), "{marked}");
    }

    #[test]
    fn a_tool_merges_copies_and_one_that_fails_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (mine, theirs) = (directory.path().join("m.txt"), directory.path().join("t.txt"));
        fs::write(&mine, "mine").unwrap();
        fs::write(&theirs, "theirs").unwrap();
        let minute = Some(Duration::from_secs(60));
        let by_words = |words: &[String], within| -> Result<Vec<u8>> {
            let work = Work::of(&theirs)?;
            fs::write(work.file("base"), "base")?;
            fs::copy(&mine, work.file("mine"))?;
            by_tool(words, within, &work)?;
            Ok(fs::read(work.merged())?)
        };
        let by = |line: &str, within| by_words(&Words::Line(line.into()).split(), within);
        for within in [None, minute] {
            assert_eq!(by("cp %mine %out", within).unwrap(), b"mine");
            assert_eq!(by("cp {base} {merged}", within).unwrap(), b"base");
            for wrong in ["false", "true", "", "/does/not/exist {merged}"] {
                assert!(by(wrong, within).is_err(), "{wrong}");
            }
        }
        let named = ["sh", "-c", "echo $0 > {merged}", "{theirs}"].map(str::to_owned);
        let path = by_words(&named, minute).unwrap();
        assert!(path.ends_with(b"/theirs.txt\n"), "it keeps the end of its name");
    }

    #[test]
    fn a_tool_that_does_not_end_is_killed_with_what_it_has_started() {
        let directory = tempfile::tempdir().unwrap();
        let side = directory.path().join("side");
        fs::write(&side, "").unwrap();
        let note = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", note.display());
        let words = ["sh".into(), "-c".into(), script];
        let moment = Some(Duration::from_millis(300));
        let error = by_tool(&words, moment, &Work::of(&side).unwrap()).unwrap_err();
        assert!(error.to_string().contains("--tool-timeout"), "{error}");
        let pid = fs::read_to_string(&note).unwrap();
        let sleeps = || crate::processes::started(pid.trim().parse().unwrap()).is_some();
        let until = Instant::now() + Duration::from_secs(30);
        while sleeps() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        assert!(!sleeps(), "what it started is gone too");
    }

    #[test]
    fn the_longest_pattern_that_fits_says_what_merges() {
        let read = |text: &str| toml::from_str::<BTreeMap<String, Mergers>>(text);
        let text = "[mergers]\n\"*.po\" = \"msgcat {mine} {theirs} -o {merged}\"\n\
                    \"*\" = [\"any\", \"a b\", \"{merged}\"]\n\
                    \"docs/*.po\" = \"other {merged}\"\n";
        let mergers = read(text).unwrap().remove("mergers").unwrap();
        let first = |path: &str| mergers.for_path(path).map(|words| words[0].clone());
        assert_eq!(first("de.po").as_deref(), Some("msgcat"));
        assert_eq!(first("x/docs.po").as_deref(), Some("msgcat"));
        assert_eq!(first("docs/x/de.po").as_deref(), Some("other"));
        assert_eq!(mergers.for_path("plain").unwrap(), ["any", "a b", "{merged}"]);
        assert_eq!(Mergers::default().for_path("plain"), None);
        assert_eq!(mergers.fault(), None);
        for bad in ["''", "[]", "'cp {mine}'"] {
            let bad = read(&format!("[mergers]\n\"*\" = {bad}\n")).unwrap();
            assert!(bad["mergers"].fault().unwrap().contains("\"*\""));
        }
    }

    #[test]
    fn a_star_stands_for_any_bytes_and_a_question_mark_for_one() {
        for (pattern, text) in
            [("*.po", "de.po"), ("*", ""), ("a*b*c", "a-b-b-c"), ("?.c", "x.c"), ("**", "x")]
        {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("*.po", "de.pot"), ("?", ""), ("a*b", "a-b-c"), ("", "x")] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
