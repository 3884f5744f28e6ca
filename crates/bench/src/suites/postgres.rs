//! PostgreSQL's own use: `pgbench` on a database in the mount, whose server is killed, and the
//! mount under it, again and again. What was committed must be there, and everything must fit.

use super::cases::{self, Case, Cases};
use super::{Place, Section, Stage};
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use bench::command::run;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 4;
const PORT: &str = "5497";
/// Some of its files come to more than the server keeps in memory.
const SCALE: &str = "3";
/// Small, so that much is written and little only kept in memory.
const OPTIONS: &str = "-c shared_buffers=4MB -c max_wal_size=32MB -c min_wal_size=32MB \
                       -c checkpoint_timeout=30s -c listen_addresses= ";
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A server that was killed takes its processes with it within this.
const ENDING_MAX: Duration = Duration::from_secs(60);

const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM \
    pgbench_history) AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM \
    pgbench_branches) AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM \
    pgbench_history)";

/// What is killed while transactions go on.
#[derive(Clone, Copy)]
enum Victim {
    Server,
    Mount,
}

pub fn postgres(stage: &Stage<'_>, rounds: u32, secs: u64) -> Result<Section> {
    ensure!(rustix::process::geteuid().is_root(), "it takes the part of postgres: run it as root");
    let user = user(&fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?)
        .context("there is no user postgres (useradd postgres)")?;
    let ran = stage.on_each(|place| {
        let start = Instant::now();
        let mut database = Database::new(stage, place, user)?;
        let cases = database.all(place, rounds, secs)?;
        Ok((cases, start.elapsed().as_secs_f64()))
    })?;
    let title = super::titled("postgres", &stage.suite);
    let mut section = cases::section(&title, &ran, &[])?;
    section.said.push(format!(
        "`initdb -k` and `pgbench -i -s {SCALE}`; then {rounds} times `pgbench` with {CLIENTS} \
         clients whose server, and as often, on a mount, `farfs` below it, is killed with SIGKILL \
         after {secs} s. Each time every transaction that `pgbench` was told of must be there, \
         sums must agree, and `pg_amcheck --heapallindexed` must find nothing; in the end neither \
         may `pg_checksums`."
    ));
    Ok(section)
}

/// As whom and where a server runs.
struct Database {
    programs: PathBuf,
    user: (u32, u32),
    data: PathBuf,
    beside: PathBuf,
    limit: Duration,
    /// Transactions that were there when it was looked last.
    there: u64,
}

impl Database {
    fn new(stage: &Stage<'_>, place: &Place, user: (u32, u32)) -> Result<Self> {
        let programs = stage.suite.parent().context("postgres lies nowhere")?.to_owned();
        let (data, beside) = (place.path.join("database"), place.beside.join("postgres"));
        for folder in [&data, &beside] {
            fs::create_dir(folder)
                .and_then(|()| std::os::unix::fs::chown(folder, Some(user.0), Some(user.1)))
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(Self { programs, user, data, beside, limit: stage.limit, there: 0 })
    }

    fn all(&mut self, place: &mut Place, rounds: u32, secs: u64) -> Result<Cases> {
        let mut cases = Cases::new();
        let mut add = |name: String, done: Result<()>| {
            let case = done.map_or_else(|e| Case::failed(format!("{e:#}")), |()| Case::passed());
            super::show(&name, &case);
            let passed = case == Case::passed();
            cases.insert(name, case);
            passed
        };
        // What comes after a failure would only repeat it.
        let mut good = add("made and filled".into(), self.fill());
        for round in 1..=rounds {
            for victim in [Victim::Server, Victim::Mount] {
                let name = match victim {
                    Victim::Server => format!("server killed, {round}"),
                    Victim::Mount if !place.is_mount() => continue,
                    Victim::Mount => format!("mount killed, {round}"),
                };
                good = good && add(name, self.round(place, victim, secs));
                bench::undo::hold_if_ending();
            }
        }
        if good {
            add("checksums".into(), self.close());
        } else {
            // Nothing of it may stay behind.
            let _ = self.kill_server();
        }
        Ok(cases)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.uid(self.user.0).gid(self.user.1).current_dir(&self.beside);
        command.env_remove("XDG_RUNTIME_DIR").env("HOME", &self.beside);
        command
    }

    /// One that talks to the server.
    fn asking(&self, program: &str) -> Command {
        let mut command = self.command(program);
        command.arg("-h").arg(&self.beside).args(["-p", PORT]);
        command
    }

    fn run(&self, command: &mut Command, log: &str) -> Result<()> {
        crate::process::run_within(command, &self.beside.join(log), self.limit)
    }

    fn ask(&self, sql: &str) -> Result<String> {
        Ok(run(self.asking("psql").args(["-At", "-c", sql, "postgres"]))?.trim().to_owned())
    }

    fn fill(&self) -> Result<()> {
        self.run(self.command("initdb").arg("-k").arg("-D").arg(&self.data), "initdb")?;
        self.start()?;
        self.run(self.asking("pgbench").args(["-i", "-s", SCALE, "postgres"]), "fill")?;
        self.ask("CREATE EXTENSION amcheck").map(drop)
    }

    fn start(&self) -> Result<()> {
        let mut command = self.command("pg_ctl");
        let options = format!("{OPTIONS} -p {PORT} -k {}", self.beside.display());
        command.arg("-D").arg(&self.data).arg("-l").arg(self.beside.join("server"));
        self.run(command.args(["-w", "-t", "600", "-o", &options, "start"]), "start")
    }

    fn round(&mut self, place: &mut Place, victim: Victim, secs: u64) -> Result<()> {
        let told = self.beside.join("told");
        let _ = fs::remove_dir_all(&told);
        fs::create_dir(&told).context("cannot make a directory")?;
        std::os::unix::fs::chown(&told, Some(self.user.0), Some(self.user.1))
            .context("cannot give a directory away")?;
        let mut command = self.asking("pgbench");
        command.args(["-n", "-l", "-c", &CLIENTS.to_string(), "-T", "1000000"]);
        command.arg(format!("--log-prefix={}", told.join("of").display())).arg("postgres");
        let pgbench = Process::start(&mut command, &self.beside.join("pgbench"))?;
        std::thread::sleep(Duration::from_secs(secs));
        // Where it stands is not asked of a mount that is gone.
        let server = self.server()?;
        if matches!(victim, Victim::Mount) {
            place.kill_mount()?;
        }
        self.end_server(server)?;
        // It ends by itself when it has nobody to talk to, and then has written down all.
        let open = PathBuf::from(format!("/proc/{}/fd/0", pgbench.pid()));
        gone(&[open])?;
        drop(pgbench);
        if matches!(victim, Victim::Mount) {
            place.mount_again()?;
        }
        self.start()?;
        self.look(lines(&told)?)
    }

    /// Whether all is there that somebody was told of, and how it fits together.
    fn look(&mut self, told: u64) -> Result<()> {
        let least = self.there + told;
        let count = self.ask("SELECT count(*) FROM pgbench_history")?;
        self.there = count.parse().with_context(|| format!("psql printed {count}"))?;
        judged(least, self.there)?;
        ensure!(self.ask(SUMS)? == "t", "sums do not agree");
        let mut command = self.asking("pg_amcheck");
        self.run(command.args(["-d", "postgres", "--heapallindexed"]), "amcheck")
    }

    fn close(&self) -> Result<()> {
        let mut command = self.command("pg_ctl");
        self.run(command.arg("-D").arg(&self.data).args(["-m", "fast", "stop"]), "stop")?;
        self.run(self.command("pg_checksums").arg("-c").arg("-D").arg(&self.data), "checksums")
    }

    fn server(&self) -> Result<i32> {
        let text = fs::read_to_string(self.data.join("postmaster.pid"))
            .context("cannot read who the server is")?;
        let pid = text.lines().next().and_then(|line| line.trim().parse().ok());
        pid.context("postmaster.pid names nobody")
    }

    fn kill_server(&self) -> Result<()> {
        self.end_server(self.server()?)
    }

    fn end_server(&self, server: i32) -> Result<()> {
        let path = format!("/proc/{server}/task/{server}/children");
        let children = fs::read_to_string(&path).unwrap_or_default();
        super::kill(server)?;
        // They end by themselves only when they next look whether their server is there.
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).for_each(|pid| {
            let _ = super::kill(pid);
        });
        // The next server takes one that has ended and was not waited for as one that runs.
        let of = |pid: &str| PathBuf::from(format!("/proc/{pid}"));
        let server = server.to_string();
        let all: Vec<_> = children.split_whitespace().chain([server.as_str()]).map(of).collect();
        gone(&all)
    }
}

/// Waits until there is none of these any more.
fn gone(paths: &[PathBuf]) -> Result<()> {
    let start = Instant::now();
    while let Some(path) = paths.iter().find(|path| path.exists()) {
        if start.elapsed() > ENDING_MAX {
            bail!("{} is there after {ENDING_MAX:?}", path.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// What clients were told of; beyond it each may have had one more committed.
fn judged(told: u64, there: u64) -> Result<()> {
    ensure!(there >= told, "{there} transactions are there of {told} that were acknowledged");
    ensure!(there <= told + CLIENTS, "{there} transactions are there, and {told} were made");
    Ok(())
}

/// How many lines all files of a directory have.
fn lines(directory: &Path) -> Result<u64> {
    let shown = || format!("cannot read {}", directory.display());
    let mut count = 0;
    for entry in fs::read_dir(directory).with_context(shown)? {
        let text = fs::read(entry.with_context(shown)?.path()).with_context(shown)?;
        count += text.iter().filter(|&&byte| byte == b'\n').count() as u64;
    }
    Ok(count)
}

/// The numbers of the user `postgres` and of its group.
fn user(passwd: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find_map(|line| line.strip_prefix("postgres:"))?;
    let mut fields = line.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_told_may_be_missing_nor_more_be_there_than_was_made() {
        assert!(judged(10, 10).is_ok() && judged(10, 10 + CLIENTS).is_ok());
        assert!(judged(10, 9).is_err() && judged(10, 11 + CLIENTS).is_err());
    }

    #[test]
    fn the_user_of_the_server_is_found() {
        let passwd = "root:x:0:0::/:\npostgres:x:101:104::/:\n";
        assert_eq!(user(passwd), Some((101, 104)));
        assert_eq!(user("root:x:0:0::/:\n"), None);
    }
}
