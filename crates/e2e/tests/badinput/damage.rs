//! Directories in which single files have been damaged: truncated, overwritten, emptied, flipped.
//! Whatever still works shows what was stored, and nothing is forgotten in silence.

use e2e::contents::noise;
use e2e::world::farfs;
use e2e::{Mount, Server, World, run};
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Ways of damaging a file.
const WAYS: [&str; 7] =
    ["gone", "emptied", "cut in half", "a new beginning", "flipped bits", "riddled", "longer"];

fn damage(path: &Path, way: &str) {
    if way == "gone" {
        return fs::remove_file(path).unwrap();
    }
    let length = fs::metadata(path).unwrap().len();
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    match way {
        "emptied" => file.set_len(0).unwrap(),
        "cut in half" => file.set_len(length / 2).unwrap(),
        "a new beginning" => file.write_all_at(&noise(1, 600), 0).unwrap(),
        "riddled" => {
            for place in 0..500 {
                let at = 4096 + length.saturating_sub(4096) * place / 500 + place % 7;
                let mut byte = [0];
                if file.read_exact_at(&mut byte, at).is_ok() {
                    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
                }
            }
        }
        "longer" => file.write_all_at(&noise(2, 5_000), length).unwrap(),
        _ => {
            for place in 0..40 {
                let at = length * place / 40 + 61 + place % 7;
                let mut byte = [0];
                if file.read_exact_at(&mut byte, at).is_ok() {
                    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
                }
            }
        }
    }
}

/// Every ordinary file below a directory that holds data, by its path from there.
fn files(directory: &Path) -> Vec<PathBuf> {
    let tree = e2e::contents::tree(directory);
    let data = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let path = directory.join(path);
        path.is_file() && !["lock", "farfs.log", "control.sock"].contains(&name)
    };
    tree.into_keys().filter(data).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    run(Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to)).succeeds();
}

const NAMES: u64 = 8;

fn expected(number: u64) -> Vec<u8> {
    noise(number, 300 + 15_000 * number as usize)
}

fn fill(folder: &Path) {
    fs::create_dir(folder.join("folder")).unwrap();
    for number in 0..NAMES {
        fs::write(folder.join(format!("folder/{number}")), expected(number)).unwrap();
    }
}

/// What there is, is right; what is not right is an error. Returns how many files were whole.
fn right_or_refused(folder: &Path, case: &str) -> u64 {
    let mut whole = 0;
    for number in 0..NAMES {
        match fs::read(folder.join(format!("folder/{number}"))) {
            Ok(bytes) => {
                assert!(bytes == expected(number), "{case}: file {number} is something else");
                whole += 1;
            }
            Err(error) => println!("{case}: file {number}: {error}"),
        }
    }
    whole
}

#[test]
fn a_damaged_data_directory_is_reported_or_serves_what_is_right() {
    let world = World::alone(Duration::from_secs(240));
    let mut server = world.server();
    let mut mount = world.mount(&server, "mount", "connected");
    fill(&mount.mountpoint);
    mount.unmount(&[]);
    assert_eq!(server.stop(), Some(0));
    let pristine = world.path("pristine");
    copy(&server.data, &pristine);
    let damaged = files(&pristine);
    assert!(damaged.len() >= 4, "{damaged:?}");
    for name in &damaged {
        for way in WAYS {
            let case = format!("{} {way}", name.display());
            copy(&pristine, &server.data);
            damage(&server.data.join(name), way);
            serve_or_report(&world, &mut server, &case);
        }
    }
    // The pristine copy is as good as new.
    copy(&pristine, &server.data);
    server.restart();
    let other = world.mount(&server, "other", "connected");
    assert_eq!(right_or_refused(&other.mountpoint, "pristine"), NAMES);
}

fn serve_or_report(world: &World, server: &mut Server, case: &str) {
    let before = server.said().len();
    match server.try_restart() {
        Err(said) => {
            let last = said.lines().last().unwrap_or_default();
            println!("{case}: refused: {last}");
            assert!(!said.contains("panicked"), "{case}: {said}");
            let place = server.data.display().to_string();
            assert!(last.contains(&place), "{case}: the place is named: {last}");
        }
        Ok(_) => {
            if let Some(mount) = mounted(world, server, case) {
                let whole = right_or_refused(&mount.mountpoint, case);
                println!("{case}: serves {whole} of {NAMES} files");
                // An error is one where the row of a name is damaged; fewer names are never right.
                let listed = fs::read_dir(mount.path("folder"))
                    .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
                match listed {
                    Ok(listed) => assert_eq!(listed.len(), NAMES as usize, "{case}: no name less"),
                    Err(error) => println!("{case}: the names: {error}"),
                }
            }
            let said = server.said().split_off(before);
            assert!(!said.contains("panicked"), "{case}: {said}");
            assert!(!said.contains("to go on without it"), "{case}: it does go on: {said}");
            if [".pack gone", ".pack emptied", ".pack cut in half"]
                .iter()
                .any(|end| case.ends_with(end))
            {
                assert!(said.contains("contents are lost"), "{case}: {said}");
            }
            server.stop();
        }
    }
}

/// A new device of a server that may be damaged; none if that is not possible, and said.
fn mounted(world: &World, server: &Server, case: &str) -> Option<Mount> {
    let data = server.data.display().to_string();
    let invited = run(&mut farfs(&["invite", "--data", &data]));
    if invited.code != Some(0) {
        assert!(!invited.err.trim().is_empty(), "{case}: {invited:#?}");
        println!("{case}: no invitation: {}", invited.err.trim());
        return None;
    }
    // The damage may have been in the address that invitations show.
    if !invited.out.contains(&server.address.to_string()) || !invited.out.contains(&server.key) {
        println!("{case}: the invitation is {}", invited.out.trim());
        return None;
    }
    let name: String = case.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    Some(world.mount(server, &name, "connected"))
}

#[test]
fn a_damaged_state_directory_is_reported_or_shows_what_was_stored_and_forgets_nothing() {
    let world = World::alone(Duration::from_secs(240));
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    fill(&mount.mountpoint);
    mount.wait();
    mount.relay.cut();
    // Pending for ever: only this directory has them.
    fs::write(mount.path("folder/pending"), expected(3)).unwrap();
    fs::create_dir(mount.path("folder/new")).unwrap();
    mount.unmount(&["--wait", "0s"]);
    let pristine = world.path("pristine");
    copy(&mount.state, &pristine);
    mount.mount_as("disconnected");
    let damaged = files(&pristine);
    assert!(damaged.len() >= 4, "{damaged:?}");
    for name in &damaged {
        // Nothing is sent here, and the cache is not read through: flipped bits of it are shown as
        // they are until then, and those of what is pending are found when it is sent.
        let is_cached = name.starts_with("cache");
        for way in WAYS {
            if is_cached && ["a new beginning", "flipped bits", "riddled"].contains(&way) {
                continue;
            }
            let case = format!("{} {way}", name.display());
            copy(&pristine, &mount.state);
            damage(&mount.state.join(name), way);
            mount_or_report(&mut mount, &case);
        }
    }
    copy(&pristine, &mount.state);
    mount.relay.restore();
    mount.mount_as("partial");
    mount.again();
    mount.wait();
    assert_eq!(fs::read(mount.path("folder/pending")).unwrap(), expected(3));
    assert_eq!(right_or_refused(&mount.mountpoint, "pristine"), NAMES);
}

fn mount_or_report(mount: &mut Mount, case: &str) {
    let before = mount.said().len();
    let again = mount.try_again();
    let said = mount.said()[before..].to_owned();
    assert!(!said.contains("panicked"), "{case}: {said}");
    if again.is_err() {
        let last = said.lines().last().unwrap_or_default();
        println!("{case}: refused: {last}");
        let place = mount.state.display().to_string();
        assert!(last.contains(&place), "{case}: the place is named: {last}");
        return;
    }
    let (files, pending) = (mount.mountpoint.clone(), mount.path("folder/pending"));
    let shown = format!("{case}: what it shows");
    let seen = e2e::within(Duration::from_secs(100), &shown, {
        let case = case.to_owned();
        move || (right_or_refused(&files, &case), fs::read(pending))
    });
    let (whole, pending) = seen;
    println!("{case}: {whole} of {NAMES} files, {} pending", mount.pending());
    match pending {
        Ok(bytes) => {
            assert!(bytes == expected(3), "{case}: what was pending is something else");
            assert!(mount.pending() > 0, "{case}: what was pending has been forgotten");
        }
        Err(error) => {
            let told = ["damaged", "lost", "WARN", "ERROR"].iter().any(|word| said.contains(word));
            let kept = mount.pending() > 0;
            assert!(told || kept, "{case}: {error}, and nothing was said: {said}");
        }
    }
    mount.kill();
}

#[test]
fn damaged_rows_are_told_of_at_mount_and_in_the_status_with_what_to_do() {
    let world = World::alone(Duration::from_secs(120));
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("whole"), expected(1)).unwrap();
    // A link's row holds what it says.
    let target = "where-the-damaged-link-leads";
    std::os::unix::fs::symlink(target, mount.path("link")).unwrap();
    mount.wait();
    mount.unmount(&[]);
    let tables = mount.state.join("tables.redb");
    let bytes = fs::read(&tables).unwrap();
    let file = fs::File::options().write(true).open(&tables).unwrap();
    let found = bytes.windows(target.len()).enumerate();
    for (at, _) in found.filter(|(_, window)| *window == target.as_bytes()) {
        file.write_all_at(b"W", at as u64).unwrap();
    }
    let before = mount.said().len();
    mount.again();
    assert_eq!(fs::read(mount.path("whole")).unwrap(), expected(1));
    let status = run(&mut mount.farfs("status", &[])).succeeds();
    let said = mount.said()[before..].to_owned();
    for told in [&status, &said] {
        for part in ["tables.redb", "partial-nodes", "Nothing waits to be sent", "device.pem and"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("with a new invitation"), "{told}");
    }
    assert!(!status.contains("link      down"), "{status}");
    assert!(fs::read_link(mount.path("link")).is_err());
    mount.unmount(&[]);
    // What it is told to do.
    let aside = mount.state.with_extension("aside");
    fs::rename(&mount.state, &aside).unwrap();
    fs::create_dir(&mount.state).unwrap();
    for name in ["device.pem", "server.toml"] {
        fs::copy(aside.join(name), mount.state.join(name)).unwrap();
    }
    mount.again();
    assert_eq!(fs::read(mount.path("whole")).unwrap(), expected(1));
    assert_eq!(fs::read_link(mount.path("link")).unwrap(), Path::new(target));
}

/// Writes a file that nobody else has, and unmounts before it is sent; the container of it.
fn leave_pending(mount: &mut Mount, name: &str, bytes: &[u8]) -> PathBuf {
    mount.set_mode("fetch-only");
    fs::write(mount.path(name), bytes).unwrap();
    mount.unmount(&["--wait", "0s"]);
    let cache = mount.state.join("cache");
    let holds = |path: &PathBuf| fs::read(cache.join(path)).is_ok_and(|found| found == bytes);
    cache.join(files(&cache).into_iter().find(holds).expect("a container holds what was written"))
}

/// `farfs wait`, `status` and `explain` say that the file is damaged, and the first of them once.
fn said_of_damage(mount: &Mount, name: &str, what: &str) {
    let file = mount.path(name).display().to_string();
    let waited = run(&mut mount.farfs("wait", &["--timeout", "50s"])).fails_with(6);
    assert!(waited.contains(name) && waited.contains(what), "{waited}");
    mount.wait();
    assert_eq!(mount.status()["damage"][0]["path"], name, "{:#}", mount.status());
    let shown = run(&mut mount.farfs("status", &[])).succeeds();
    assert!(shown.contains("damaged") && shown.contains(what), "{shown}");
    let explained = run(&mut farfs(&["explain", &file])).succeeds();
    assert!(explained.contains(what), "{explained}");
    let said = mount.said();
    assert!(said.contains("ERROR") && said.contains(name), "{said}");
}

#[test]
fn of_a_pending_file_that_the_disk_has_not_kept_the_rest_is_sent_and_it_is_said() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let other = world.mount(&server, "other", "connected");
    let mut bytes = noise(7, 300_000);
    let container = leave_pending(&mut mount, "thesis", &bytes);
    bytes[150_000] ^= 1;
    let file = fs::File::options().write(true).open(&container).unwrap();
    file.write_all_at(&bytes[150_000..150_001], 150_000).unwrap();
    mount.mount_as("partial");
    mount.again();
    said_of_damage(&mount, "thesis", "did not hold what was written");
    assert!(fs::read(mount.path("thesis")).unwrap() == bytes);
    assert!(fs::read(other.path("thesis")).unwrap() == bytes, "what was there is at the server");
}

#[test]
fn a_pending_file_whose_container_is_gone_is_as_the_server_has_it_and_it_is_said() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("before"), "it").unwrap();
    mount.wait();
    let container = leave_pending(&mut mount, "thesis", &noise(8, 300_000));
    fs::remove_file(container).unwrap();
    mount.mount_as("partial");
    mount.again();
    said_of_damage(&mount, "thesis", "is gone");
    assert_eq!(fs::read(mount.path("thesis")).unwrap(), b"");
    fs::write(mount.path("after"), "goes on").unwrap();
    mount.wait();
}

/// What was done elsewhere is seen within this, and what was closed is not in use any more.
const SEEN: Duration = Duration::from_secs(30);

/// Flips a bit of what the cache holds of a file.
fn flip(mount: &Mount, contents: &[u8], at: usize) {
    let cache = mount.state.join("cache");
    let holds = |path: &PathBuf| fs::read(cache.join(path)).is_ok_and(|held| held == contents);
    let container = files(&cache).into_iter().find(holds).expect("it is in the cache");
    let file = fs::File::options().write(true).open(cache.join(container)).unwrap();
    file.write_all_at(&[contents[at] ^ 1], at as u64).unwrap();
}

#[test]
fn what_the_disk_has_lost_of_a_cached_file_is_fetched_anew_by_a_check() {
    let world = World::new();
    let server = world.server();
    let writer = world.mount(&server, "writer", "connected");
    let mount = world.mount(&server, "mount", "partial");
    let (small, large) = (noise(7, 300_000), noise(8, 20_000_000));
    fs::write(writer.path("small"), &small).unwrap();
    fs::write(writer.path("large"), &large).unwrap();
    let shows = |small: &[u8], large: &[u8]| {
        fs::read(mount.path("small")).unwrap() == small
            && fs::read(mount.path("large")).unwrap() == large
    };
    e2e::eventually(SEEN, "both are seen", || mount.path("large").exists());
    assert!(shows(&small, &large));
    let point = mount.mountpoint.display().to_string();
    let check = || run(&mut farfs(&["check", &point]));
    let sound = check();
    assert!(sound.code == Some(0) && sound.out.contains("nothing wrong"), "{sound:#?}");
    flip(&mount, &small, 150_000);
    flip(&mount, &large, 10_000_000);
    let found = check();
    assert_eq!(found.code, Some(0), "{found:#?}");
    for path in ["small: ", "large: "] {
        let line = found.out.lines().find(|line| line.starts_with(path));
        assert!(line.is_some_and(|line| line.ends_with("are mended")), "{found:#?}");
    }
    assert!(shows(&small, &large), "also what the kernel had is right");
    let status = run(&mut farfs(&["status", &point]));
    assert!(status.out.contains("  mended "), "{status:#?}");
    assert!(check().out.contains("nothing wrong"));
    // Also while the kernel reads it by itself, where it may.
    let mut open = fs::File::open(mount.path("large")).unwrap();
    open.read_exact(&mut [0; 4096]).unwrap();
    flip(&mount, &large, 10_000_000);
    let found = check();
    assert!(found.code == Some(0) && found.out.contains("are mended"), "{found:#?}");
    let mut seen = [0; 1];
    open.read_exact_at(&mut seen, 10_000_000).unwrap();
    assert_eq!(seen[0], large[10_000_000]);
    assert!(shows(&small, &large));
}

/// A check of a server's store, as the user runs it.
fn check(server: &Server, more: &[&str]) -> e2e::Ran {
    let data = server.data.display().to_string();
    run(&mut farfs(&[&["check", "--data", &data][..], more].concat()))
}

/// What a check that ends with what is left has found.
fn damaged(ran: e2e::Ran) -> String {
    let said = ran.out.clone();
    ran.fails_with(6);
    said
}

#[test]
fn what_the_disk_of_the_server_has_lost_comes_back_from_a_device_that_has_it() {
    let world = World::new();
    let mut server = world.server();
    let mut writer = world.mount(&server, "writer", "partial");
    let reader = world.mount(&server, "reader", "partial");
    fs::write(writer.path("thesis"), noise(7, 300_000)).unwrap();
    fs::write(writer.path("note"), noise(8, 500)).unwrap();
    writer.wait();
    // Nothing is sent back before it is seen that it is missing.
    writer.set_mode("fetch-only");
    assert_eq!(server.stop(), Some(0));
    assert_eq!(check(&server, &[]).succeeds().lines().count(), 1);
    let chunks = server.data.join("chunks");
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pack");
    let pack = files(&chunks).into_iter().find(is_pack).expect("the contents are in a pack");
    damage(&chunks.join(pack), "riddled");
    let said = damaged(check(&server, &["--repair"]));
    assert!(said.contains("/thesis (file") && said.contains("of its chunks are missing"), "{said}");
    assert!(said.contains("chunks are missing: devices that have them"), "{said}");
    server.restart();
    let error = fs::read(reader.path("thesis")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    let shown = run(&mut reader.farfs("status", &[])).succeeds();
    assert!(shown.contains("missing at the server"), "{shown}");
    assert!(damaged(check(&server, &[])).contains("/thesis"), "it is still missing");
    writer.set_mode("partial");
    e2e::eventually(Duration::from_secs(60), "everything is back", || {
        check(&server, &[]).code == Some(0)
    });
    assert!(fs::read(reader.path("thesis")).unwrap() == noise(7, 300_000));
    assert!(fs::read(reader.path("note")).unwrap() == noise(8, 500));
    e2e::eventually(Duration::from_secs(30), "the writer knows that all is back", || {
        let wanted = writer.status()["wanted"].clone();
        wanted["missing"] == 0 && wanted["given"].as_u64().is_some_and(|given| given > 0)
    });
    assert!(server.said().contains("chunks that were missing are back"), "{}", server.said());
}
