//! Real sockets over an emulated link.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the network opens sockets, and fails where it cannot"
)]

use bench::{Error, Lane, Link, Profile};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 7000;
const MS: Duration = Duration::from_millis(1);

fn profile(bits_per_sec: u64, delay: Duration) -> Profile {
    Profile::symmetric("test", Lane::new(bits_per_sec, delay))
}

fn system(source: std::io::Error) -> Error {
    Error::System { doing: "socket", source }
}

/// A TCP connection over the link: the near end's side and the far end's.
fn connection(link: &Link) -> (TcpStream, TcpStream) {
    let address = (link.far().address(), PORT);
    let listener = link.far().inside(|| TcpListener::bind(address).map_err(system)).unwrap();
    let near = link.near().inside(|| TcpStream::connect(address).map_err(system)).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// Sends so many bytes and returns how long it took until all had arrived.
fn send(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; bytes]).unwrap());
        to.read_exact(&mut vec![0; bytes]).unwrap();
    });
    start.elapsed()
}

#[test]
fn tcp_gets_the_rate_of_the_link() {
    let link = Link::start(&profile(2_000_000, 5 * MS)).unwrap();
    let (mut near, mut far) = connection(&link);
    link.reset_counters();
    let took = send(&mut near, &mut far, 500_000);
    // Two seconds for the contents, a bit more for headers and the beginning.
    assert!((1900 * MS..3000 * MS).contains(&took), "{took:?}");
    let traffic = link.counters();
    assert!((500_000..560_000).contains(&traffic.up.carried.bytes), "{traffic:?}");
    assert!(traffic.down.carried.bytes < 40_000, "acknowledgements only: {traffic:?}");
    let took = send(&mut far, &mut near, 250_000);
    assert!((900 * MS..2000 * MS).contains(&took), "{took:?}");
}

#[test]
fn a_packet_takes_the_delay_and_its_time_to_be_sent() {
    let link = Link::start(&profile(9_600, 100 * MS)).unwrap();
    let bind = |end: &bench::End| {
        end.inside(|| UdpSocket::bind((end.address(), PORT)).map_err(system)).unwrap()
    };
    let (near, far) = (bind(link.near()), bind(link.far()));
    far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let start = Instant::now();
    // 572 bytes and 28 of headers are 4800 bits: half a second.
    near.send_to(&[1; 572], (link.far().address(), PORT)).unwrap();
    assert_eq!(far.recv(&mut [0; 2000]).unwrap(), 572);
    let took = start.elapsed();
    assert!((600 * MS..700 * MS).contains(&took), "{took:?}");
    assert_eq!(link.counters().up.delivered.bytes, 600);
    assert_eq!(link.counters().up.delivered.packets, 1);
}

#[test]
fn a_fast_link_is_not_slowed_down_by_being_emulated() {
    let link = Link::start(&Profile::lan()).unwrap();
    let (mut near, mut far) = connection(&link);
    let took = send(&mut near, &mut far, 20_000_000);
    // At 1 Gb/s it is a sixth of a second. A machine that has other work to do may take longer.
    assert!((160 * MS..2000 * MS).contains(&took), "{took:?}");
}

#[test]
fn a_cut_stops_everything_and_a_restore_lets_it_go_on() {
    let link = Link::start(&profile(10_000_000, 5 * MS)).unwrap();
    let (mut near, mut far) = connection(&link);
    send(&mut near, &mut far, 10_000);
    link.cut();
    assert!(link.is_cut());
    near.write_all(&[1; 100]).unwrap();
    far.set_read_timeout(Some(500 * MS)).unwrap();
    assert!(far.read(&mut [0; 100]).is_err(), "nothing comes over a link that is cut");
    let delivered = link.counters().up.delivered;
    std::thread::sleep(300 * MS);
    assert_eq!(link.counters().up.delivered, delivered);
    assert!(link.counters().up.cut.packets > 0);
    link.restore();
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    far.read_exact(&mut [0; 100]).unwrap();
    assert!(link.counters().up.delivered.packets > delivered.packets);
}

#[test]
fn another_profile_holds_at_once() {
    let link = Link::start(&profile(500_000, MS)).unwrap();
    let (mut near, mut far) = connection(&link);
    let slow = send(&mut near, &mut far, 60_000);
    link.set_profile(&profile(50_000_000, MS));
    let fast = send(&mut near, &mut far, 60_000);
    assert!(slow > 800 * MS && fast < slow / 2, "{slow:?} {fast:?}");
}

#[test]
fn a_second_client_reaches_the_same_far_end() {
    let first = Link::start(&Profile::lan()).unwrap();
    let second = first.join(&profile(1_000_000, 20 * MS)).unwrap();
    assert_eq!(first.far().name(), second.far().name());
    let (mut near, mut far) = connection(&second);
    send(&mut near, &mut far, 1000);
    assert_eq!(first.counters().up.carried.packets, 0);
    assert!(second.counters().up.carried.bytes > 1000);
}

#[test]
fn an_end_runs_commands_and_leaves_nothing() {
    let link = Link::start(&Profile::lan()).unwrap();
    let output = link.command_near("ip").args(["-4", "-o", "addr"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&link.near().address().to_string()), "{text}");
    let mut left_behind = link.command_far("sleep").arg("600").spawn().unwrap();
    let names = [link.near().name().to_owned(), link.far().name().to_owned()];
    drop(link);
    assert!(!left_behind.wait().unwrap().success(), "its network is gone, and so is it");
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(names.iter().all(|name| !listed.contains(name.as_str())), "{listed}");
}
