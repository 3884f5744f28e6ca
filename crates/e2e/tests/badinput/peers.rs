//! Peers that are not farfs, or another farfs.

use crate::says;
use e2e::contents::noise;
use e2e::{World, eventually, run};
use link::{Address, Identity, Remote, RemoteConfig};
use protocol::{Event, Unreachable, Upstream, Versions};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn garbage_of_every_size_does_not_disturb_a_server() {
    let world = World::new();
    let mut server = world.server();
    let mount = world.mount(&server, "mount", "connected");
    fs::write(mount.path("before"), "x").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..3_000_u64 {
        let length = [0, 1, 7, 40, 200, 1_199, 1_200, 1_472, 9_000, 65_507][number as usize % 10];
        let mut bytes = noise(number, length);
        if let Some(first) = bytes.first_mut() {
            // Half of them look like the beginning of a handshake, a quarter like version 1's.
            match number % 4 {
                0 => *first |= 0xc0,
                1 if length > 6 => bytes[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]),
                _ => {}
            }
        }
        let _ = socket.send_to(&bytes, server.address);
        if number % 500 == 0 {
            fs::write(mount.path(format!("during-{number}")), "x").unwrap();
        }
    }
    let other = world.mount(&server, "other", "connected");
    assert_eq!(fs::read_dir(&other.mountpoint).unwrap().count(), 7);
    assert_eq!(server.stop(), Some(0), "it ran, and ends as it should");
}

#[test]
fn a_server_that_answers_garbage_is_given_up_in_time() {
    let world = World::new();
    let nonsense = UdpSocket::bind("127.0.0.1:0").unwrap();
    nonsense.set_read_timeout(Some(SECOND / 5)).unwrap();
    let address = nonsense.local_addr().unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 2_000];
        let mut number = 0;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let Ok((bytes, from)) = nonsense.recv_from(&mut buffer) else { continue };
            number += 1;
            for answer in [noise(number, 1_200), buffer[..bytes].to_vec(), noise(number, 50)] {
                let _ = nonsense.send_to(&answer, from);
            }
        }
    });
    let key = Identity::generate().unwrap().fingerprint();
    let url = format!("farfs://{address}/main?key={key}");
    let (place, state) = (world.folder("mount"), world.path("state"));
    let mut mount = world.farfs(&["mount", &url, "--answer-within", "4s"]);
    mount.arg(place).arg("--state").arg(state);
    let (ran, took) = e2e::timed(|| run(&mut mount));
    drop(stop);
    answering.join().unwrap();
    says(ran, 3, &["cannot mount"]);
    assert!(took < 15 * SECOND, "{took:?}");
}

/// What a client of these versions is told by a server.
fn told(url: &str, versions: Versions) -> String {
    let address: Address = url.parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let identity = Identity::generate().unwrap();
        let mut config = RemoteConfig::new(address, identity, "other".into(), world::World::real());
        config.versions = versions;
        let remote = Remote::connect(config).unwrap();
        match tokio::time::timeout(10 * SECOND, remote.event()).await {
            Ok(Some(Event::Down(Unreachable::TurnedAway(told)))) => told,
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn an_older_or_newer_farfs_is_told_which_of_the_two_to_update() {
    let world = World::new();
    let server = world.server();
    let newer = Versions { min: Versions::OURS.max + 1, max: Versions::OURS.max + 3 };
    assert!(told(&server.invite(), newer).contains("update farfs on the server"));
    let older = Versions { min: 0, max: 0 };
    assert!(told(&server.invite(), older).contains("update farfs here"));
}

#[test]
fn a_device_that_was_not_invited_learns_nothing_else() {
    let world = World::new();
    let server = world.server();
    let invited = server.invite();
    let (without, _) = invited.split_once("&invite").unwrap();
    let nobody = told(without, Versions::OURS);
    let elsewhere = told(&without.replace("/main?", "/other?"), Versions::OURS);
    assert_eq!(nobody, elsewhere, "a volume that is not there looks like one that is");
    assert!(nobody.contains("invitation"), "{nobody}");
}

#[test]
fn a_device_that_was_removed_is_turned_away_and_keeps_what_it_has() {
    let world = World::new();
    let server = world.server();
    let mut mount = world.mount(&server, "mount", "auto");
    fs::write(mount.path("file"), "x").unwrap();
    mount.wait();
    let data = server.data.display().to_string();
    let listed = run(&mut world.farfs(&["device", "list", "--data", &data])).succeeds();
    let id = listed.split_whitespace().next().unwrap();
    run(&mut world.farfs(&["device", "remove", "--data", &data, id])).succeeds();
    // While it is mounted, work goes on here.
    eventually(30 * SECOND, "changes are kept here", || fs::write(mount.path("more"), "y").is_ok());
    assert!(mount.pending() > 0);
    mount.unmount(&["--wait", "0s"]);
    let said = mount.try_again().unwrap_err();
    assert!(said.contains("invitation"), "{said}");
    // What is here can still be had.
    mount.mount_as("disconnected");
    mount.again();
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"x");
    assert_eq!(fs::read(mount.path("more")).unwrap(), b"y");
}

/// As if somebody had put a program that is no server at the address.
#[test]
fn a_port_where_nobody_listens_is_given_up_in_time() {
    let world = World::new();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let key = Identity::generate().unwrap().fingerprint();
    let url = format!("farfs://{free}/main?key={key}");
    let mut command = Command::new(e2e::world::program());
    command.args(["mount", &url, "--answer-within", "3s"]);
    command.arg(world.folder("mount")).arg("--state").arg(world.path("state"));
    let (ran, took) = e2e::timed(|| run(&mut command));
    says(ran, 3, &["cannot mount"]);
    assert!(took < 10 * SECOND, "{took:?}");
}

/// What a process has in the machine's memory, and has had at most.
fn memory_peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Each asks for far more than a session may have on its way, and none reads what comes.
#[test]
fn devices_that_stop_reading_cost_a_server_bounded_memory_and_nobody_else_anything() {
    const FILES: u64 = 4;
    const FILE_BYTES: usize = 16 << 20;
    const DEVICES: usize = 4;
    /// A quarter of what all of them have asked for.
    const BYTES_MAX: u64 = DEVICES as u64 * FILES * FILE_BYTES as u64 / 4;
    let world = World::alone(180 * SECOND);
    let server = world.server();
    let writer = world.mount(&server, "writer", "partial");
    for file in 0..FILES {
        fs::write(writer.path(format!("{file}")), noise(file, FILE_BYTES)).unwrap();
    }
    writer.wait();
    let before = memory_peak(server.process().pid());
    let devices: Vec<_> = (0..DEVICES)
        .map(|device| world.mount(&server, &format!("device{device}"), "partial"))
        .collect();
    let mut readers = Vec::new();
    for device in &devices {
        for file in 0..FILES {
            let mut reader = Command::new("cat");
            reader.arg(device.path(format!("{file}"))).stdout(std::process::Stdio::null());
            readers.push(reader.spawn().unwrap());
        }
    }
    std::thread::sleep(SECOND / 5);
    for device in &devices {
        device.process().stands_still(e2e::process::Still::OrInACall);
    }
    // Longer than it takes to send what may be on its way.
    for turn in 0..10 {
        let (name, text) = (writer.path(format!("meanwhile{turn}")), format!("{turn}"));
        let (_, took) = e2e::timed(|| fs::write(&name, &text).unwrap());
        writer.wait();
        assert!(took < 10 * SECOND, "the others go on: {took:?}");
        std::thread::sleep(SECOND / 2);
    }
    let peak = memory_peak(server.process().pid());
    println!("before {before}, at most {peak}");
    assert!(peak < before + BYTES_MAX, "{before}, then {peak}");
    for device in &devices {
        device.process().signal(rustix::process::Signal::CONT);
    }
    for mut reader in readers {
        assert!(reader.wait().unwrap().success());
    }
}
