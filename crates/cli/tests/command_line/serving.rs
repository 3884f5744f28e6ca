//! A server and its data directory.

use crate::program::{Server, farfs};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use store::embedded::Database;
use store::packs::Packs;
use store::{Blobs, Durability, Tables};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn invite(data: &Path) -> String {
    farfs(&["invite", "--data", text(data)]).succeeds().trim().to_owned()
}

#[test]
fn a_server_is_made_from_nothing_and_stopped_cleanly_by_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("new");
    for signal in [Signal::TERM, Signal::INT] {
        let server = Server::start(&data);
        assert!(server.line.contains(" key="), "{}", server.line);
        assert_eq!(server.stop(signal), Some(0));
    }
    assert_eq!(data.metadata().unwrap().permissions().mode() & 0o077, 0);
}

/// Whoever made the directory, as one on a disk of its own, and let others look into it.
#[test]
fn what_a_server_keeps_is_nobody_elses_to_read() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("made");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(Server::start(&data).stop(Signal::TERM), Some(0));
    let mut left = vec![data.clone()];
    let mut looked_at = 0;
    while let Some(place) = left.pop() {
        for found in std::fs::read_dir(&place).unwrap().map(Result::unwrap) {
            let metadata = found.metadata().unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            assert_eq!(mode & 0o077, 0, "{} has the mode {mode:o}", found.path().display());
            looked_at += 1;
            if metadata.is_dir() {
                left.push(found.path());
            }
        }
    }
    assert!(looked_at > 4, "there are tables, a log, packs and a key");
}

#[test]
fn an_invitation_names_the_server_as_it_serves_also_while_it_does_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let server = Server::start(data);
    let (address, key) = server.line.split_once(' ').unwrap();
    let expected = format!("farfs://{address}/main?{key}&invite=");
    let first = invite(data);
    assert!(first.starts_with(&expected), "{first} does not begin with {expected}");
    let second = invite(data);
    assert_ne!(first, second, "each invitation lets in one device");
    let line = server.line.clone();
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let offline = invite(data);
    assert!(offline.starts_with(&expected), "{offline}");
    let again = Server::start(data);
    assert_eq!(
        again.line.split_once(' ').unwrap().1,
        line.split_once(' ').unwrap().1,
        "the key stays"
    );
}

#[test]
fn tables_that_are_gone_are_reported_and_not_replaced_by_those_of_an_empty_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    assert_eq!(Server::start(data).stop(Signal::TERM), Some(0));
    let serve = ["serve", "--data", text(data), "--listen", "127.0.0.1:0"];
    let tables = data.join("tables.redb");
    std::fs::write(&tables, b"").unwrap();
    assert!(farfs(&serve).fails_with(6).contains("tables.redb"));
    std::fs::remove_file(&tables).unwrap();
    assert!(farfs(&serve).fails_with(6).contains("tables.redb"));
    assert!(!tables.exists());
}

#[test]
fn volumes_are_made_listed_and_removed_while_the_server_runs_and_while_it_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let volume = |words: &[&str]| {
        let place = ["--data", text(data)];
        farfs(&[&["volume"][..], &words[..1], &place, &words[1..]].concat())
    };
    let names = || -> Vec<String> {
        let listed = volume(&["list"]).succeeds();
        listed.lines().filter_map(|line| line.split("  ").next()).map(str::to_owned).collect()
    };
    let server = Server::start(data);
    assert_eq!(names(), ["main"]);
    volume(&["create", "docs"]).succeeds();
    volume(&["create", "docs"]).fails_with(1);
    assert_eq!(names(), ["docs", "main"]);
    server.stop(Signal::TERM);
    volume(&["create", "--owner", "1000:1000", "--cutter", "rabin", "ann"]).succeeds();
    assert_eq!(names(), ["ann", "docs", "main"]);
    let listed = volume(&["list"]).succeeds();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].contains("cut by rabin  keeps versions for 30 days"), "{listed}");
    assert!(lines[2].contains("1 file, 0 bytes  cut by gear"), "{listed}");
    volume(&["create", "--cutter", "knife", "bob"]).fails_with(2);
    volume(&["remove", "docs"]).fails_with(2);
    // Nobody is asked to agree to what cannot be done.
    volume(&["remove", "none"]).fails_with(7);
    volume(&["remove", "--yes", "docs"]).succeeds();
    volume(&["remove", "--yes", "docs"]).fails_with(7);
    let _server = Server::start(data);
    assert_eq!(names(), ["ann", "main"]);
    volume(&["remove", "--yes", "ann"]).succeeds();
    farfs(&["invite", "--data", text(data), "--volume", "ann"]).fails_with(7);
    farfs(&["conflicts", "--data", text(data), "--volume", "ann"]).fails_with(7);
    assert_eq!(farfs(&["conflicts", "--data", text(data)]).succeeds(), "");
}

#[test]
fn a_device_that_nobody_invited_is_not_there_to_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let _server = Server::start(directory.path());
    let data = text(directory.path());
    assert_eq!(farfs(&["device", "list", "--data", data]).succeeds(), "");
    farfs(&["device", "remove", "--data", data, "abc"]).fails_with(7);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _server = Server::start(directory.path());
    let data = text(directory.path());
    let said = farfs(&["serve", "--data", data, "--listen", "127.0.0.1:0"]).fails_with(5);
    assert!(said.contains("in use") && said.contains("(process "), "{said}");
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (data, port) = (directory.path().join("data"), taken.local_addr().unwrap().to_string());
    let said = farfs(&["serve", "--data", text(&data), "--listen", &port]).fails_with(5);
    assert!(said.contains("--listen") && said.contains(&port), "{said}");
    assert!(!data.exists());
}

#[test]
fn a_first_start_that_fails_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let (data, tree) = (place.path().join("data"), place.path().join("tree"));
    let serve = |tree: &Path| {
        let listen = ["--listen", "127.0.0.1:0"];
        farfs(&[&["serve", "--data", text(&data), "--tree", text(tree)][..], &listen].concat())
    };
    serve(&tree).fails_with(1);
    assert!(!data.exists());
    // What somebody has put there stays.
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("farfs.toml"), "trash-size = '1G'").unwrap();
    serve(&data).fails_with(2);
    let left: Vec<_> =
        std::fs::read_dir(&data).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["farfs.toml"]);
    // And so does a server that has been here.
    assert_eq!(Server::start(&data).stop(Signal::TERM), Some(0));
    serve(&tree).fails_with(1);
    assert_eq!(Server::start(&data).stop(Signal::TERM), Some(0));
    assert!(farfs(&["volume", "list", "--data", text(&data)]).succeeds().contains("main"));
}

#[test]
fn how_a_directory_that_is_kept_in_step_is_can_be_seen() {
    let place = tempfile::tempdir().unwrap();
    let (data, tree) = (place.path().join("data"), place.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    let status = |more: &[&str]| farfs(&[&["status", "--data", text(&data)], more].concat());
    status(&[]).fails_with(7);
    let server = Server::start(&data);
    assert!(status(&[]).succeeds().contains("no volume is kept"));
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let server = Server::start_with(&data, &["--tree", text(&tree)]);
    let path = tree.canonicalize().unwrap();
    assert!(
        status(&[]).succeeds().starts_with(&format!("main: kept in step with {}\n", text(&path)))
    );
    let shown: serde_json::Value = serde_json::from_str(&status(&["--json"]).succeeds()).unwrap();
    assert_eq!((&shown[0]["volume"], &shown[0]["read_only"]), (&"main".into(), &false.into()));
    assert_eq!(shown[0]["kept"], true);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    assert!(status(&[]).succeeds().contains("no server runs here"));
}

#[test]
fn a_server_that_was_killed_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let url = invite(directory.path());
    server.stop(Signal::KILL);
    let again = Server::start(directory.path());
    assert!(url.contains(again.line.split_once("key=").unwrap().1));
    let listed = farfs(&["volume", "list", "--data", text(directory.path())]).succeeds();
    assert!(listed.starts_with("main  ") && listed.lines().count() == 1, "{listed}");
}

#[test]
fn a_directory_without_a_server_is_not_taken_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    for command in ["invite", "conflicts"] {
        let said = farfs(&[command, "--data", text(&missing)]).fails_with(7);
        assert!(said.contains("farfs serve"), "{said}");
    }
    assert!(!missing.exists());
}

#[test]
fn a_damaged_directory_is_reported_with_the_damaged_file() {
    for (name, wrong) in [("tables.redb", "tables.redb"), ("server.pem", "server.pem")] {
        let directory = tempfile::tempdir().unwrap();
        Server::start(directory.path()).stop(Signal::TERM);
        std::fs::write(directory.path().join(name), b"this is not what was written").unwrap();
        let data = text(directory.path());
        for said in [
            farfs(&["serve", "--data", data, "--listen", "127.0.0.1:0"]).fails_with(6),
            farfs(&["invite", "--data", data]).fails_with(6),
        ] {
            assert!(said.contains(wrong), "{said}");
        }
    }
}

#[test]
fn a_server_without_its_tables_is_not_taken_for_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = text(directory.path());
    Server::start(directory.path()).stop(Signal::TERM);
    std::fs::remove_file(directory.path().join("tables.redb")).unwrap();
    for command in [
        &["serve", "--data", data, "--listen", "127.0.0.1:0"][..],
        &["check", "--data", data],
        &["check", "--data", data, "--repair"],
        &["gc", "--data", data],
    ] {
        let said = farfs(command).fails_with(6);
        assert!(said.contains("tables.redb") && said.contains("from a backup"), "{said}");
    }
}

/// A server that has run, with a pack in which there is a record.
fn has_stored() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    Server::start(directory.path()).stop(Signal::TERM);
    let packs = Packs::open(&directory.path().join("chunks")).unwrap();
    packs.put(b"name", b"bytes").unwrap();
    packs.sync().unwrap();
    directory
}

#[test]
fn a_server_that_has_stored_something_is_not_made_anew_without_its_tables_and_its_address() {
    let is_refused = |directory: &Path, how: &str| {
        let data = text(directory);
        for command in [
            &["serve", "--data", data, "--listen", "127.0.0.1:0"][..],
            &["check", "--data", data],
            &["check", "--data", data, "--repair"],
            &["gc", "--data", data],
        ] {
            let said = farfs(command).fails_with(6);
            assert!(said.contains("tables.redb") && said.contains("backup"), "{how}: {said}");
        }
        let packs = Packs::open(&directory.join("chunks")).unwrap();
        assert_eq!(packs.get(b"name").unwrap().as_deref(), Some(&b"bytes"[..]), "{how}");
    };
    let directory = has_stored();
    let at = |name: &str| directory.path().join(name);
    std::fs::remove_file(at("address")).unwrap();
    std::fs::rename(at("tables.redb"), at("elsewhere")).unwrap();
    is_refused(directory.path(), "missing");
    assert!(!at("tables.redb").exists());
    drop(Database::open(&at("tables.redb")).unwrap());
    is_refused(directory.path(), "without a table");
    std::fs::copy(at("chunks/index.redb"), at("tables.redb")).unwrap();
    is_refused(directory.path(), "the index of the chunks");
    std::fs::remove_file(at("tables.redb")).unwrap();
    {
        let tables = Database::open(&at("tables.redb")).unwrap();
        let mut write = tables.write().unwrap();
        write.put("partial-nodes", b"of a mount", b"x").unwrap();
        write.commit(Durability::Now).unwrap();
    }
    is_refused(directory.path(), "the tables of a mount");
    std::fs::rename(at("elsewhere"), at("tables.redb")).unwrap();
    Server::start(directory.path()).stop(Signal::TERM);
}

/// As a kill leaves it, with a log that is needed.
fn killed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    invite(directory.path());
    server.stop(Signal::KILL);
    directory
}

/// The newest segment of its log ends with the last record.
fn flip_in_log(directory: &Path) {
    let entries = std::fs::read_dir(directory.join("tables.log")).unwrap();
    let segments = entries.map(|entry| entry.unwrap().path());
    let newest = segments.filter(|path| path.extension().is_some()).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(newest, bytes).unwrap();
}

#[test]
fn a_server_goes_on_without_a_log_that_is_damaged_or_gone_where_one_says_so_and_not_else() {
    type Damage = fn(&Path);
    let gone: Damage = |directory| {
        std::fs::remove_dir_all(directory.join("tables.log")).unwrap();
    };
    let given_up = ["tables.log.given-up-1", "1 change at least", "--accept-set-back"];
    let whole: Damage = |_| ();
    for (damage, words) in [
        (whole, None),
        (flip_in_log as Damage, Some(&given_up[..])),
        (gone, Some(&["is missing", "nobody knows how much", given_up[2]][..])),
    ] {
        let directory = killed();
        let data = text(directory.path());
        let without = ["check", "--data", data, "--repair", "--without-log"];
        damage(directory.path());
        if let Some(words) = words {
            for command in [
                &["serve", "--data", data, "--listen", "127.0.0.1:0"][..],
                &["check", "--data", data, "--repair"],
                &["check", "--data", data],
                &["gc", "--data", data],
            ] {
                let said = farfs(command).fails_with(6);
                let ways = ["tables.log", "from a backup", "--repair --without-log"];
                assert!(ways.iter().all(|way| said.contains(way)), "{said}");
                assert!(!said.contains("what is affected"), "{said}");
            }
            let said = farfs(&without).succeeds();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let said = farfs(&without).fails_with(2);
        assert!(said.contains("whole, or not needed"), "{said}");
        let server = Server::start(directory.path());
        let said = farfs(&without).fails_with(5);
        assert!(said.contains("stop that server"), "{said}");
        server.stop(Signal::TERM);
    }
    farfs(&["check", "--data", "/nonexistent", "--without-log"]).fails_with(2);
}

#[test]
fn tables_that_lie_where_the_index_of_the_chunks_was_are_put_aside() {
    let directory = has_stored();
    let at = |name: &str| directory.path().join(name);
    std::fs::remove_file(at("address")).unwrap();
    std::fs::rename(at("tables.redb"), at("chunks/index.redb")).unwrap();
    farfs(&["check", "--data", text(directory.path()), "--repair"]).fails_with(6);
    drop(Packs::open(&at("chunks")).unwrap());
    std::fs::rename(at("chunks/index.redb.aside-1"), at("tables.redb")).unwrap();
    Server::start(directory.path()).stop(Signal::TERM);
}

#[test]
fn a_server_whose_first_start_was_cut_off_or_whose_volumes_were_all_removed_starts() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let at = |name: &str| data.join(name);
    Server::start(data).stop(Signal::TERM);
    let first_steps = || {
        std::fs::remove_dir_all(at("tables.log")).unwrap();
        std::fs::remove_file(at("tables.redb")).unwrap();
        std::fs::remove_file(at("address")).unwrap();
    };
    first_steps();
    Server::start(data).stop(Signal::TERM);
    first_steps();
    drop(Database::open(&at("tables.redb")).unwrap());
    Server::start(data).stop(Signal::TERM);
    let directory = has_stored();
    let data = directory.path();
    farfs(&["volume", "remove", "main", "--data", text(data), "--yes"]).succeeds();
    std::fs::remove_file(data.join("address")).unwrap();
    Server::start(data).stop(Signal::TERM);
}

#[test]
fn what_stands_in_the_place_of_a_directory_of_a_server_is_named() {
    for (place, made) in [("data", false), ("data/chunks", true), ("data/tables.log", true)] {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        if made {
            std::fs::create_dir(&data).unwrap();
        }
        let path = directory.path().join(place);
        std::fs::write(&path, "mine").unwrap();
        let serve = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let said = farfs(&serve).fails_with(6);
        let what = format!("{}: it is an ordinary file and not a directory", path.display());
        assert!(said.contains(&what) && said.contains("move it away"), "{said}");
    }
}

#[test]
fn a_wrong_setting_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("farfs.toml"), "listen = '127.0.0.1:0'\nlisten-on = 1\n")
        .unwrap();
    let said = farfs(&["serve", "--data", text(directory.path())]).fails_with(2);
    assert!(said.contains("farfs.toml") && said.contains("listen-on"), "{said}");
    let data = text(directory.path());
    farfs(&["serve", "--data", data, "--listen", "nowhere"]).fails_with(2);
}

#[test]
fn a_store_is_tidied_and_checked_while_its_server_runs_and_while_it_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let both = || {
        let now = &["--empty-trash", "--forget-sent"][..];
        for arguments in [&["--dry-run"][..], &[], &["--empty-trash"], now] {
            let said = farfs(&[&["gc", "--data", text(data)], arguments].concat()).succeeds();
            assert!(said.contains("in the trash"), "{said}");
        }
        let said = farfs(&["check", "--data", text(data)]).succeeds();
        assert_eq!(said.trim(), "looked at 1 volume, 0 versions of files, 0 chunks");
    };
    let repair = ["check", "--data", text(data), "--repair"];
    let server = Server::start(data);
    let set = ["volume", "set", "--data", text(data), "--keep-versions"];
    farfs(&[&set[..], &["7d", "main"]].concat()).succeeds();
    farfs(&[&set[..], &["default", "main"]].concat()).succeeds();
    farfs(&[&set[..], &["7d", "other"]].concat()).fails_with(7);
    both();
    farfs(&repair).fails_with(5);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    both();
    farfs(&repair).succeeds();
    let pack = data.join("chunks/00000001.pack");
    let damage = || {
        let mut bytes = std::fs::read(&pack).unwrap();
        bytes.extend([0x5a; 100]);
        bytes[9] ^= 1;
        std::fs::write(&pack, bytes).unwrap();
    };
    damage();
    // There was no chunk in it that could be missing.
    let ran = farfs(&["check", "--data", text(data)]);
    let said = ran.out.clone();
    assert!(ran.fails_with(6).trim().ends_with("1 problem is left"));
    assert!(said.contains("00000001.pack") && said.contains("nothing"), "{said}");
    assert_eq!(said.lines().last(), Some("1 problem is left"));
    assert!(said.contains("--repair") && !said.contains("mended"), "{said}");
    // An empty pack that ends in the midst of something is made anew when the store is opened.
    farfs(&["gc", "--data", text(data)]).succeeds();
    damage();
    let said = farfs(&repair).succeeds();
    assert!(said.contains("00000001.pack") && said.contains("mended"), "{said}");
    for arguments in [&repair[..], &repair[..3]] {
        assert_eq!(farfs(arguments).succeeds().lines().count(), 1, "nothing is left of it");
    }
}

#[test]
fn a_damaged_row_of_a_volume_stops_the_server_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    assert_eq!(Server::start(data).stop(Signal::TERM), Some(0));
    {
        let tables = Database::open(&data.join("tables.redb")).unwrap();
        let mut write = tables.write().unwrap();
        write.put("origin-volumes", b"main", b"\x01no such row").unwrap();
        write.commit(Durability::Now).unwrap();
    }
    let serve = ["serve", "--data", text(data), "--listen", "127.0.0.1:0"];
    for command in [&serve[..], &["check", "--data", text(data)]] {
        let said = farfs(command).fails_with(6);
        assert!(said.contains("volume main") && said.contains("from a backup"), "{said}");
        assert!(command[0] != "check" || !said.contains("see with `farfs check"), "{said}");
    }
}
