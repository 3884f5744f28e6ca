//! SQLite, which trusts locks, fsync, shared memory and the order of writes.

use crate::{in_both_modes, shell};
use std::path::Path;

#[track_caller]
fn sqlite(database: &Path, commands: &str) -> String {
    let folder = database.parent().unwrap();
    let name = database.file_name().unwrap().to_str().unwrap();
    shell(folder, &format!("sqlite3 -bail -cmd '.timeout 20000' {name} <<'END'\n{commands}\nEND"))
}

/// Transactions of every size, a rollback, an index, and a vacuum.
fn works_with(mode: &str) {
    in_both_modes(|world, server, mount| {
        let database = mount.path("data.db");
        let settings = format!("pragma journal_mode={mode}; pragma synchronous=full;");
        let made = sqlite(
            &database,
            &format!("{settings} create table t(id integer primary key, word text, bytes blob);"),
        );
        assert_eq!(made.trim(), mode);
        for round in 0..12 {
            let rows: String = (0..25)
                .map(|row| format!("insert into t(word, bytes) values('w{row}', randomblob(900));"))
                .collect();
            sqlite(&database, &format!("{settings} begin; {rows} commit;"));
            sqlite(
                &database,
                &format!("begin; delete from t where id % 3 = {round} % 3; rollback;"),
            );
        }
        let counted = sqlite(
            &database,
            "create index i on t(word); vacuum; pragma integrity_check; select count(*) from t;",
        );
        assert_eq!(counted, "ok\n300\n");
        mount.wait();
        let other = world.mount(server, "other", "connected");
        let seen = sqlite(
            &other.path("data.db"),
            "pragma integrity_check; select count(*), count(distinct word) from t;",
        );
        assert_eq!(seen, "ok\n300|25\n");
    });
}

#[test]
fn a_database_with_a_rollback_journal_keeps_whole() {
    works_with("delete");
}

#[test]
fn a_database_with_a_write_ahead_log_keeps_whole() {
    works_with("wal");
}

#[test]
fn two_processes_write_one_database_and_no_row_is_lost() {
    in_both_modes(|_, _, mount| {
        let database = mount.path("data.db");
        sqlite(&database, "pragma journal_mode=wal; create table t(who, number);");
        let writer = |who: &str| {
            let insert = format!("insert into t select '{who}', count(*) from t;");
            (0..15).for_each(|_| drop(sqlite(&database, &insert)));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| writer("one"));
            scope.spawn(|| writer("two"));
        });
        let counted = sqlite(
            &database,
            "pragma integrity_check; select count(*), count(distinct number) from t;",
        );
        assert_eq!(counted, "ok\n30|30\n");
    });
}
