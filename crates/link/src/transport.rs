//! How QUIC is set for links that may be slow, far away, and silent for days.
//! From: measurements at 9.6 kb/s to 1 Gb/s.

use crate::controller::DelayFactory;
use crate::keys::Identity;
use crate::limits::{REQUESTS_MAX, SESSION_SILENCE_MAX};
use quinn::congestion::CubicConfig;
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use quinn_proto::RandomConnectionIdGenerator;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Every path carries so much, and at 9.6 kb/s one such packet takes a second. Finding out
/// whether more would pass costs several longer ones.
pub(crate) const PACKET_BYTES: u16 = 1200;
/// What a machine carries to itself: as many as the library hands to the kernel at once have
/// 64 KiB together, which is what the kernel takes.
const PACKET_BYTES_WITHIN: u16 = 6_500;
/// What passes does not change while a session lasts. If it does, the loss of all that is longer
/// shows it.
const LOOK_AGAIN_AFTER: Duration = SESSION_SILENCE_MAX;

/// Bytes of one stream, and of all, that may be on their way to us unread. Enough for 1 Gb/s at
/// 100 ms and more.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 24 << 20;
/// The same for somebody who has not been admitted.
const STRANGER_WINDOW: u32 = 64 << 10;
const STRANGER_STREAMS: u32 = 2;

/// Before the first draw sets it.
const SEND_WINDOW: u64 = 64 << 10;

/// Room in the kernel for what arrives while both cores are busy.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// By which a server tells its connections apart; every packet to it has one. Of so many bytes more are
/// drawn by chance than it ever has connections.
const CONNECTION_ID_BYTES: usize = 4;

/// Codes with which connections and streams are closed.
pub(crate) mod code {
    use quinn::VarInt;

    pub(crate) const DONE: VarInt = VarInt::from_u32(0);
    pub(crate) const SHUTDOWN: VarInt = VarInt::from_u32(1);
    pub(crate) const REPLACED: VarInt = VarInt::from_u32(2);
    pub(crate) const SILENT: VarInt = VarInt::from_u32(3);
    pub(crate) const OUT_OF_TURN: VarInt = VarInt::from_u32(4);
    pub(crate) const TURNED_AWAY: VarInt = VarInt::from_u32(5);
    pub(crate) const TOO_LONG: VarInt = VarInt::from_u32(6);
    pub(crate) const BEHIND: VarInt = VarInt::from_u32(7);
}

/// What decides how much of ours may be under way at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    #[default]
    ByDelay,
    /// What the library of QUIC takes by itself, which goes by losses alone: to compare with.
    ByLoss,
}

/// How long packets may become. The client decides it for both directions: nobody sends longer
/// ones than the other says that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packets {
    /// Long ones to a server on the same machine, if they pass; else those that every path carries.
    #[default]
    ByAddress,
    /// Those that every path carries: what answers on this machine only leads elsewhere.
    Least,
}

impl Packets {
    /// The most bytes of a packet to a server, from an address of ours.
    pub(crate) fn bytes_most(self, server: IpAddr, ours: IpAddr) -> u16 {
        let within = server.is_loopback() || server == ours;
        if self == Packets::ByAddress && within { PACKET_BYTES_WITHIN } else { PACKET_BYTES }
    }
}

/// One question whether the longest pass; none, if they are no longer than the least.
fn search(bytes_most: u16) -> Option<MtuDiscoveryConfig> {
    let mut search = MtuDiscoveryConfig::default();
    search
        .upper_bound(bytes_most)
        // What lies between is not tried.
        .minimum_change(PACKET_BYTES_WITHIN - PACKET_BYTES)
        .interval(LOOK_AGAIN_AFTER);
    (bytes_most > PACKET_BYTES).then_some(search)
}

pub(crate) fn client(
    initial_rtt: Duration,
    congestion: Congestion,
    bytes_most: u16,
) -> TransportConfig {
    let mut config = common();
    config.mtu_discovery_config(search(bytes_most));
    if congestion == Congestion::ByLoss {
        config.congestion_controller_factory(Arc::new(CubicConfig::default()));
    }
    config
        .initial_rtt(initial_rtt)
        .max_idle_timeout(None)
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW));
    config
}

pub(crate) fn server() -> TransportConfig {
    let mut config = common();
    let silence = IdleTimeout::try_from(SESSION_SILENCE_MAX).expect("three days fit");
    config
        // To a client that takes no longer ones nothing is tried.
        .mtu_discovery_config(search(PACKET_BYTES_WITHIN))
        .initial_rtt(Duration::from_millis(500))
        .max_idle_timeout(Some(silence))
        // One stream for the hello, and one for what is asked with it; the rest after it.
        .max_concurrent_bidi_streams(VarInt::from_u32(STRANGER_STREAMS))
        .receive_window(VarInt::from_u32(STRANGER_WINDOW));
    config
}

/// A stranger's connection becomes a session's.
pub(crate) fn admit(connection: &quinn::Connection) {
    let requests = u32::try_from(REQUESTS_MAX).expect("a small constant");
    connection.set_receive_window(VarInt::from_u32(CONNECTION_WINDOW));
    // The hello's stream stays open beside them.
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(requests + 1));
}

fn common() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .initial_mtu(PACKET_BYTES)
        .min_mtu(PACKET_BYTES)
        // A silent link costs nothing.
        .keep_alive_interval(None)
        // Without fairness an unfinished stream goes ahead of all that is more urgent.
        .send_fairness(true)
        .send_window(SEND_WINDOW)
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(DelayFactory));
    config
}

pub(crate) fn client_endpoint(bytes_most: u16) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    take_packets(&mut config, bytes_most);
    // An endpoint has one connection, so what comes to its port needs no name.
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
    config
}

fn take_packets(config: &mut EndpointConfig, bytes_most: u16) {
    config.max_udp_payload_size(bytes_most).expect("QUIC allows every bound from 1200 bytes on");
}

/// A key that follows from the server's own: after a restart it can still tell old peers that their
/// connections are gone.
pub(crate) fn server_endpoint(identity: &Identity) -> EndpointConfig {
    let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &derived(identity, b"reset"));
    let mut config = EndpointConfig::new(Arc::new(reset));
    take_packets(&mut config, PACKET_BYTES_WITHIN);
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(CONNECTION_ID_BYTES)));
    config
}

fn derived(identity: &Identity, purpose: &[u8]) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, identity.private_key());
    let tag = ring::hmac::sign(&key, purpose);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

/// A socket with large buffers, as far as the kernel grants them.
pub(crate) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    // Less is slower, not wrong.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_longer_only_to_a_server_on_the_same_machine() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let (ours, other) = (at("192.168.1.5"), at("192.168.1.9"));
        let to = |server| Packets::ByAddress.bytes_most(server, ours);
        assert_eq!(to(other), PACKET_BYTES);
        assert_eq!(to(ours), PACKET_BYTES_WITHIN);
        assert_eq!(to(at("127.0.0.3")), PACKET_BYTES_WITHIN);
        assert_eq!(to(at("::1")), PACKET_BYTES_WITHIN);
        assert_eq!(Packets::Least.bytes_most(ours, ours), PACKET_BYTES);
        assert!(search(PACKET_BYTES).is_none() && search(PACKET_BYTES_WITHIN).is_some());
    }

    #[test]
    fn what_is_handed_to_the_kernel_at_once_is_no_longer_than_it_takes() {
        // The library hands down ten packets at once; with its headers a datagram has 64 KiB.
        assert!(usize::from(PACKET_BYTES_WITHIN) * 10 + 48 < 64 << 10);
    }
}
