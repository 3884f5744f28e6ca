//! Mounts and servers that cannot be, and what is said of each.

use crate::says;
use e2e::world::{marked, program};
use e2e::{Server, World, run};
use std::fs;
use std::process::Command;

const UNREACHABLE: i32 = 3;
const TURNED_AWAY: i32 = 4;
const BUSY: i32 = 5;
/// A user who runs nothing else.
const USER: u32 = 64_123;

/// `farfs mount URL`, which is expected to say why not. A server that is there answers at once,
/// unless the machine is very slow.
fn mount(world: &World, url: &str, name: &str) -> Command {
    mount_within(world, url, name, "60s")
}

fn mount_within(world: &World, url: &str, name: &str, within: &str) -> Command {
    let (place, state) = (world.folder(name), world.path(&format!("{name}.state")));
    let mut command = world.farfs(&["mount", url, "--answer-within", within]);
    command.arg(place).arg("--state").arg(state);
    command
}

#[test]
fn an_invitation_lets_in_one_device_once() {
    let world = World::new();
    let server = world.server();
    let first = world.mount(&server, "first", "connected");
    says(run(&mut mount(&world, &first.url, "second")), TURNED_AWAY, &["invitation"]);
    let malformed = first.url.replace("invite=", "invite=x");
    says(run(&mut mount(&world, &malformed, "third")), 2, &["malformed", "farfs invite"]);
    let (without, _) = first.url.split_once("&invite").unwrap();
    let wrong = format!("{without}&invite={}", "0".repeat(40));
    says(run(&mut mount(&world, &wrong, "third")), TURNED_AWAY, &["invitation"]);
    let (without, _) = first.url.split_once("&invite").unwrap();
    says(run(&mut mount(&world, without, "fourth")), TURNED_AWAY, &["invitation"]);
    // An unknown volume looks like an unknown device: nothing is told to whom nobody invited.
    let other = server.invite().replace("/main?", "/other?");
    says(run(&mut mount(&world, &other, "fifth")), TURNED_AWAY, &["invitation"]);
}

#[test]
fn a_server_with_another_key_is_told_nothing_and_recognised_by_mounts_that_knew_it() {
    let world = World::new();
    let mut first = world.server();
    let mut mounted = world.mount(&first, "mount", "connected");
    fs::write(mounted.path("file"), "x").unwrap();
    mounted.unmount(&[]);
    first.stop();
    // Another server at the same address.
    let impostor_data = world.path("impostor");
    let listen = first.address.to_string();
    let data = impostor_data.display().to_string();
    let (impostor, _out) =
        world.process(world.farfs(&["serve", "--data", &data, "--listen", &listen]), "impostor");
    e2e::eventually(std::time::Duration::from_secs(20), "it serves", || {
        impostor.said().contains("serving")
    });
    let invited = first_url(&mounted.url, &listen);
    says(run(&mut mount(&world, &invited, "new")), TURNED_AWAY, &["key"]);
    let said = mounted.try_again().unwrap_err();
    assert!(said.contains("key") && said.contains(&first.key), "{said}");
    // What is here can still be had.
    mounted.mount_as("disconnected");
    mounted.again();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"x");
}

/// The same address without the relay, with an invitation that was never used.
fn first_url(url: &str, server: &str) -> String {
    let (_, rest) = url.split_once("/main").unwrap();
    format!("farfs://{server}/main{rest}")
}

#[test]
fn what_is_in_use_is_called_so() {
    let world = World::new();
    let server = world.server();
    let mounted = world.mount(&server, "mount", "connected");
    let again = |state: &str| {
        let mut command = world.farfs(&["mount", &mounted.url]);
        command.arg(&mounted.mountpoint).arg("--state").arg(world.path(state));
        run(&mut command)
    };
    says(again("new.state"), BUSY, &["mounted at"]);
    let elsewhere = world.folder("elsewhere");
    let mut command = world.farfs(&["mount", &mounted.url]);
    command.arg(&elsewhere).arg("--state").arg(&mounted.state);
    says(run(&mut command), BUSY, &["in use by another farfs process"]);
    let data = server.data.display().to_string();
    let second = world.farfs(&["serve", "--data", &data, "--listen", "127.0.0.1:0"]);
    says(run(&mut { second }), BUSY, &["in use by another farfs process"]);
    let listen = server.address.to_string();
    let other = world.path("other").display().to_string();
    let said = run(&mut world.farfs(&["serve", "--data", &other, "--listen", &listen]));
    assert!(said.code != Some(0) && said.err.contains(&listen), "{said:#?}");
    // All of it went on meanwhile.
    fs::write(mounted.path("file"), "x").unwrap();
}

#[test]
fn without_a_server_a_new_mount_fails_in_time() {
    let world = World::new();
    let mut server: Server = world.server();
    let url = server.invite();
    server.stop();
    let (ran, took) = e2e::timed(|| run(&mut mount_within(&world, &url, "mount", "5s")));
    says(ran, UNREACHABLE, &["cannot mount"]);
    assert!(took < std::time::Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_directory_that_may_not_be_used_is_named() {
    let world = World::new();
    let mut server = world.server();
    server.stop();
    let data = server.data.display().to_string();
    let program = e2e::world::program();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        run(command.arg(&program).args(arguments))
    };
    let served = as_nobody(&["serve", "--data", &data, "--listen", "127.0.0.1:0"]);
    says(served, 1, &[&data, "Permission denied"]);
    let invited = as_nobody(&["invite", "--data", &data]);
    assert!(invited.code != Some(0) && invited.err.contains(&data), "{invited:#?}");
    let file = world.path("file");
    fs::write(&file, "not a directory").unwrap();
    let text = file.display().to_string();
    let on_file = run(&mut world.farfs(&["serve", "--data", &text, "--listen", "127.0.0.1:0"]));
    says(on_file, 6, &[&text, "not a directory"]);
    let key = &server.key;
    let place = world.folder("mount").display().to_string();
    let url = format!("farfs://{}/main?key={key}", server.address);
    says(
        run(&mut world.farfs(&["mount", &url, &place, "--state", &text])),
        6,
        &[&text, "not a directory"],
    );
}

#[test]
fn without_as_many_threads_as_it_takes_nothing_is_begun_and_the_limit_is_named() {
    let world = World::new();
    let home = world.folder("home");
    std::os::unix::fs::chown(&home, Some(USER), Some(USER)).unwrap();
    let (data, mountpoint) = (home.join("data"), world.folder("mount"));
    let url = format!("farfs://127.0.0.1:9/main?key={}&invite={}", "a".repeat(32), "0".repeat(40));
    let (data, mountpoint) = (data.display().to_string(), mountpoint.display().to_string());
    let state = home.join("state").display().to_string();
    let serve = vec!["serve", "--data", &data, "--listen", "127.0.0.1:0"];
    let mount = vec!["mount", "--foreground", &url, &mountpoint, "--state", &state];
    for arguments in [serve, mount] {
        let mut command = Command::new("prlimit");
        marked(&mut command);
        // Root is not limited so.
        let ids = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()];
        command.arg("--nproc=4:4").arg("setpriv").args(ids).arg(program()).args(arguments);
        says(run(&mut command), 1, &["threads that a", "needs, but", "ulimit -u", "LimitNPROC="]);
    }
    assert!(fs::read_dir(&home).unwrap().next().is_none(), "nothing was made");
}
