//! Mounts that are taken out of sight while programs use them.

use crate::{SECOND, is_mounted, text};
use e2e::world::marked;
use e2e::{Mount, Process, World, eventually, run};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// Longer than a daemon takes to see that its mount is in the table no more, and to look again.
const NOTICED: Duration = Duration::from_secs(7);
const ENDED: Duration = Duration::from_secs(30);

fn umount(arguments: &[&str], mount: &Mount) {
    run(Command::new("umount").args(arguments).arg(&mount.mountpoint)).succeeds();
}

/// `farfs mount` with the state directory of a mount that is out of sight.
fn mounted_again(world: &World, mount: &Mount) -> e2e::Ran {
    let mut command = world.farfs(&["mount", "--state"]);
    run(command.arg(&mount.state).arg(&mount.mountpoint))
}

#[test]
fn who_uses_what_was_taken_out_of_sight_goes_on_until_he_has_done() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    for lazily in ["farfs", "umount"] {
        let place = mount.path(lazily);
        fs::create_dir(&place).unwrap();
        let mut open = fs::File::create(place.join("file")).unwrap();
        writeln!(open, "before").unwrap();
        let mut stands = Command::new("sleep").arg("100").current_dir(&place).spawn().unwrap();
        match lazily {
            "farfs" => drop(run(&mut mount.farfs("umount", &["--lazy"])).succeeds()),
            _ => umount(&["-l"], &mount),
        }
        assert!(!is_mounted(&mount.mountpoint));
        std::thread::sleep(NOTICED);
        writeln!(open, "after").unwrap();
        open.sync_all().unwrap();
        // A new name, by way of who stands there.
        let there = format!("/proc/{}/cwd/made", stands.id());
        fs::write(there, "made").unwrap();

        let said = mounted_again(&world, &mount).fails_with(5);
        let daemon = mount.process().pid();
        for word in [
            "out of sight",
            &text(&mount.state),
            &format!("sleep ({})", stands.id()),
            &format!("({})", std::process::id()),
            &format!("`kill {daemon}`"),
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(!said.contains("already"), "{said}");
        drop(open);
        std::thread::sleep(NOTICED);
        assert!(mount.process().is_running(), "one of them is still there");
        stands.kill().unwrap();
        stands.wait().unwrap();
        mount.process().ends_within(ENDED);
        mount.kill();
        mount.again();
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "before\nafter\n");
        assert_eq!(fs::read_to_string(place.join("made")).unwrap(), "made");
    }
    mount.wait();
}

#[test]
fn what_was_mounted_in_the_place_of_a_mount_that_is_out_of_sight_stays_when_its_process_ends() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    let mut open = fs::File::create(mount.path("file")).unwrap();
    open.write_all(b"text").unwrap();
    run(&mut mount.farfs("umount", &["--lazy"])).succeeds();
    // Another device, at the same mount point.
    let mut command = world.farfs(&["mount", &server.invite(), "--state"]);
    run(command.arg(world.path("other.state")).arg(&mount.mountpoint)).succeeds();
    fs::write(mount.path("other"), "stays").unwrap();
    mount.process().signal(Signal::TERM);
    let ended = mount.process().ends_within(ENDED);
    assert!(ended.success(), "{ended}");
    assert_eq!(fs::read_to_string(mount.path("other")).unwrap(), "stays");
    // As with any daemon that was ended.
    assert_eq!(open.write_all(b"more").unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    run(&mut mount.farfs("umount", &[])).succeeds();
    assert!(!is_mounted(&mount.mountpoint));
    drop(open);
    mount.kill();
    mount.again();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "text");
}

/// A shell with a mount table of its own, in which the mount is until the shell ends.
fn with_a_copy(world: &World, script: &str) -> Process {
    let mut command = Command::new("unshare");
    marked(&mut command);
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]).current_dir("/");
    let (process, _out) = world.process(command, "copy");
    eventually(10 * SECOND, "it has begun", || process.said().contains("ready"));
    process
}

#[test]
fn a_copy_of_a_mount_that_nobody_uses_does_not_keep_its_process_and_a_used_one_does() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "partial");
    fs::write(mount.path("file"), "text\n").unwrap();
    let idle = with_a_copy(&world, "echo ready >&2; exec sleep 600");
    mount.unmount(&[]);
    idle.kill();

    mount.again();
    let go_on = text(&world.path("go-on"));
    let script = format!(
        "exec 3<{}; echo ready >&2
         until test -e {go_on}; do sleep 0.1; done
         cat <&3 >&2; exec 3<&-; echo done >&2; exec sleep 600",
        text(&mount.path("file"))
    );
    let user = with_a_copy(&world, &script);
    let said = run(&mut mount.farfs("umount", &[])).fails_with(5);
    assert!(said.contains(&format!("sh ({})", user.pid())), "{said}");
    assert!(!is_mounted(&mount.mountpoint));
    std::thread::sleep(NOTICED);
    fs::write(go_on, "").unwrap();
    eventually(10 * SECOND, "it has read the file", || user.said().contains("text\ndone"));
    mount.process().ends_within(ENDED);
    user.kill();
    mount.kill();
}
