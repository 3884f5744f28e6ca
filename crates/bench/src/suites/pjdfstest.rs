//! `pjdfstest`: some four hundred tests of single calls, many of them as other users.

use super::cases::{self, Case, Cases, Outcome};
use super::{Place, Section, Stage};
use crate::process::end_within;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Instant;

/// What Linux has beyond POSIX, and ext4 too. The time to wait for a time stamp to change is that
/// of the suite's own configuration for ext4.
const CONFIGURATION: &str = "\
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
";

/// What does not pass here, or not always, and why.
const EXPLAINED: [(&str, &str); 2] = [
    (
        "open::etxtbsy",
        "Linux cuts a file that is opened with O_RDONLY and O_TRUNC in the same call in which a \
         FUSE file system opens it, before it looks whether it is a program that runs; the test \
         passes or not by what the program gets to first. With O_WRONLY and O_RDWR it is refused.",
    ),
    (
        "link::link_count_max",
        "the C library knows the limits of some file systems by their numbers, and none of FUSE's. \
         It is 65,000, as on ext4.",
    ),
];

pub fn run(stage: &Stage<'_>, tests: &[String]) -> Result<Section> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "pjdfstest takes the parts of several users: run it as root"
    );
    let configuration = format!("{CONFIGURATION}\n{}", users()?);
    let version = super::report::version(&stage.suite);
    let ran = stage.on_each(|place| on(stage, place, &configuration, tests))?;
    let mut section = cases::section(&version, &ran, &EXPLAINED)?;
    section.said.push(cases::by_outcome(&ran));
    section.said.push(format!("Configuration:\n\n```toml\n{CONFIGURATION}```"));
    Ok(section)
}

fn on(
    stage: &Stage<'_>,
    place: &Place,
    configuration: &str,
    tests: &[String],
) -> Result<(Cases, f64)> {
    let (file, log) = (place.beside.join("pjdfstest.toml"), place.beside.join("pjdfstest.log"));
    fs::write(&file, configuration).context("cannot write the configuration")?;
    let mut command = Command::new(&stage.suite);
    command.arg("-c").arg(&file).arg("-p").arg(&place.path).arg("-s").arg(&place.elsewhere);
    // A trace of the suite's own calls explains nothing.
    command.args(tests).env("RUST_BACKTRACE", "0");
    let start = Instant::now();
    end_within(&mut command, &log, stage.limit)?;
    let secs = start.elapsed().as_secs_f64();
    let printed = fs::read_to_string(&log).context("cannot read what pjdfstest printed")?;
    let cases = parse(&printed);
    ensure!(!cases.is_empty(), "pjdfstest ran no test: {}", printed.trim());
    for (name, case) in cases.iter().filter(|(_, case)| case.outcome == Outcome::Failed) {
        println!("  {name}: {}", case.said);
    }
    Ok((cases, secs))
}

/// A line for each test, `NAME OUTCOME`, and below it what it says.
fn parse(printed: &str) -> Cases {
    let mut cases = Cases::new();
    let mut last = None;
    for line in printed.lines() {
        if let Some((name, outcome)) = heading(line) {
            cases.insert(name.clone(), Case { outcome, said: String::new() });
            last = Some(name);
        } else if line.starts_with("Summary:") {
            break;
        } else if let Some(case) = last.as_ref().and_then(|name| cases.get_mut(name)) {
            let gap = if case.said.is_empty() || line.trim().is_empty() { "" } else { "; " };
            case.said += &format!("{gap}{}", line.trim());
        }
    }
    cases
}

fn heading(line: &str) -> Option<(String, Outcome)> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(word), None) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    let outcome = match word {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "skipped" => Outcome::Skipped,
        _ => return None,
    };
    name.contains("::").then(|| (name.into(), outcome))
}

/// Two users whose parts the suite takes: those that it would take by itself, if there are such.
fn users() -> Result<String> {
    let read = |path| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    match chosen(&read("/etc/passwd")?, &read("/etc/group")?) {
        Some([one, other]) => Ok(format!(
            "[dummy_auth]\nentries = [[\"{}\", \"{}\"], [\"{}\", \"{}\"]]\n",
            one.0, one.1, other.0, other.1
        )),
        None => bail!("this machine needs two users besides root (useradd --user-group tests)"),
    }
}

type User = (String, String);

/// Names of users and of their groups.
fn chosen(passwd: &str, group: &str) -> Option<[User; 2]> {
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let groups: BTreeMap<String, String> = group
        .lines()
        .map(fields)
        .filter_map(|line| Some((line.get(2)?.clone(), line.first()?.clone())))
        .collect();
    let mut users: Vec<User> = passwd
        .lines()
        .map(fields)
        .filter(|line| line.get(2).is_some_and(|uid| uid != "0"))
        .filter_map(|line| Some((line.first()?.clone(), groups.get(line.get(3)?)?.clone())))
        .collect();
    users.sort_by_key(|(name, _)| !matches!(name.as_str(), "nobody" | "tests"));
    let mut users = users.into_iter();
    Some([users.next()?, users.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
unlink::success::regular                          ok
open::erofs_named                                 skipped
\tRemounts are not allowed
chmod::sticky                                     FAILED
\tassertion `left == right` failed
  left: 1
 right: 2

Summary: 1 failed, 1 skipped, 1 passed, 3 total
Error: Some tests have failed
";

    #[test]
    fn what_the_suite_prints_is_read() {
        let cases = parse(PRINTED);
        assert_eq!(cases.len(), 3);
        assert_eq!(cases["unlink::success::regular"].outcome, Outcome::Passed);
        assert_eq!(cases["open::erofs_named"].said, "Remounts are not allowed");
        let said = "assertion `left == right` failed; left: 1; right: 2";
        assert_eq!(cases["chmod::sticky"], Case { outcome: Outcome::Failed, said: said.into() });
    }

    #[test]
    fn the_users_of_the_suite_are_preferred_and_root_is_none() {
        let passwd = "root:x:0:0::/:\nbin:x:2:2::/:\nodd:x:9:77::/:\nnobody:x:65534:65534::/:\n";
        let group = "root:x:0:\nbin:x:2:\nnogroup:x:65534:\n";
        let user = |name: &str, group: &str| (name.to_owned(), group.to_owned());
        assert_eq!(chosen(passwd, group), Some([user("nobody", "nogroup"), user("bin", "bin")]));
        assert_eq!(chosen("root:x:0:0::/:\n", group), None);
    }
}
