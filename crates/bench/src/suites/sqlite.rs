//! SQLite's own use: several processes that write one database, with each kind of journal.

use super::cases::{self, Case, Cases};
use super::{Place, Section, Stage};
use anyhow::{Context, Result, bail};
use bench::command::run;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::Instant;

const JOURNALS: [&str; 4] = ["wal", "delete", "truncate", "persist"];
/// Processes that write at once.
const WRITERS: u32 = 4;
const ACCOUNTS: u32 = 50;
const BALANCE: u32 = 1000;
/// A writer waits so long for another one.
const BUSY: &str = ".timeout 120000";
/// After so many transactions a writer packs the database, or empties the log of writes.
const TIDY_EVERY: u32 = 20;

pub fn sqlite(stage: &Stage<'_>, transactions: u32) -> Result<Section> {
    let ran = stage.on_each(|place| {
        let (start, mut cases) = (Instant::now(), Cases::new());
        for journal in JOURNALS {
            let case = with(stage, place, journal, transactions)
                .unwrap_or_else(|error| Case::failed(format!("{error:#}")));
            super::show(journal, &case);
            cases.insert(journal.into(), case);
        }
        Ok((cases, start.elapsed().as_secs_f64()))
    })?;
    let mut section = cases::section(&super::titled("sqlite3", &stage.suite), &ran, &[])?;
    section.said.push(format!(
        "{WRITERS} processes, each with {transactions} transactions between {ACCOUNTS} accounts and \
         in between `VACUUM` or a checkpoint; then the sum of all accounts, the number of \
         transactions and `PRAGMA integrity_check`."
    ));
    Ok(section)
}

fn with(stage: &Stage<'_>, place: &Place, journal: &str, transactions: u32) -> Result<Case> {
    let database = place.path.join(format!("{journal}.db"));
    let ask = |sql: &str| -> Result<String> {
        let mut command = Command::new(&stage.suite);
        Ok(run(command.args(["-bail", "-batch", "-cmd", BUSY]).arg(&database).arg(sql))?)
    };
    ask(&format!(
        "PRAGMA journal_mode={journal}; CREATE TABLE account(id INTEGER PRIMARY KEY, balance);\
         CREATE TABLE history(writer, number, text);\
         WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id+1 FROM n LIMIT {ACCOUNTS})\
         INSERT INTO account SELECT id, {BALANCE} FROM n;"
    ))?;
    let writers: Vec<Result<Case>> = std::thread::scope(|scope| {
        let (suite, database) = (&stage.suite, &database);
        let start = |writer| {
            scope.spawn(move || -> Result<Case> {
                let script = place.beside.join(format!("writer-{writer}.sql"));
                fs::write(&script, sql(journal, writer, transactions))
                    .context("cannot write the writer's script")?;
                let mut command = Command::new(suite);
                command.args(["-bail", "-batch", "-cmd", BUSY]).arg(database);
                command.arg(format!(".read {}", script.display()));
                Case::of(&mut command, &script.with_extension("log"), stage.limit)
            })
        };
        let started: Vec<_> = (0..WRITERS).map(start).collect();
        started.into_iter().map(joined).collect()
    });
    for writer in writers {
        let case = writer?;
        if case != Case::passed() {
            return Ok(case);
        }
    }
    let said = ask("SELECT sum(balance) FROM account; SELECT count(*) FROM history;\
                    PRAGMA integrity_check;")?;
    Ok(judged(&said, transactions))
}

fn joined(writer: std::thread::ScopedJoinHandle<'_, Result<Case>>) -> Result<Case> {
    match writer.join() {
        Ok(case) => case,
        Err(_) => bail!("a writer could not be watched"),
    }
}

fn judged(said: &str, transactions: u32) -> Case {
    let (sum, count) = (ACCOUNTS * BALANCE, WRITERS * transactions);
    match said.trim() == format!("{sum}\n{count}\nok") {
        true => Case::passed(),
        false => Case::failed(format!("{sum}, {count} and ok were to be there, and not {said}")),
    }
}

/// What a writer does.
fn sql(journal: &str, writer: u32, transactions: u32) -> String {
    let mut sql = format!("PRAGMA journal_mode={journal}; PRAGMA synchronous=FULL;\n");
    for number in 0..transactions {
        // Spread over the pages, and not the same for two writers.
        let from = (number * 7 + writer * 13) % ACCOUNTS;
        let to = (from + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS;
        let _ = writeln!(
            sql,
            "BEGIN IMMEDIATE; UPDATE account SET balance=balance-1 WHERE id={from}; \
             UPDATE account SET balance=balance+1 WHERE id={to}; \
             INSERT INTO history VALUES({writer}, {number}, randomblob({})); COMMIT;",
            number * 97 % 3000
        );
        if number % TIDY_EVERY == TIDY_EVERY - 1 {
            let tidy =
                if journal == "wal" { "PRAGMA wal_checkpoint(TRUNCATE);" } else { "VACUUM;" };
            let _ = writeln!(sql, "{tidy}");
        }
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_counts_as_whole_only_with_all_that_was_written() {
        assert_eq!(judged("50000\n40\nok\n", 10), Case::passed());
        for said in ["50000\n39\nok\n", "49999\n40\nok\n", "50000\n40\nrow 3 missing\n", ""] {
            assert!(judged(said, 10) != Case::passed(), "{said}");
        }
    }

    #[test]
    fn a_writer_moves_what_it_takes_to_another_account() {
        let sql = sql("delete", 1, 40);
        assert_eq!(sql.matches("COMMIT").count(), 40);
        assert_eq!(sql.matches("VACUUM").count(), 2);
        for line in sql.lines().filter(|line| line.starts_with("BEGIN")) {
            let ids: Vec<_> =
                line.split("id=").skip(1).map(|rest| rest.split(';').next()).collect();
            assert!(ids.len() == 2 && ids[0] != ids[1], "{line}");
        }
    }
}
