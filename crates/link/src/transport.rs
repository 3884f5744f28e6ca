//! How QUIC is set for links that may be slow, far away, and silent for days.
//! From: measurements at 9.6 kb/s to 1 Gb/s.

use crate::controller::DelayFactory;
use crate::keys::Identity;
use crate::limits::{REQUESTS_MAX, SESSION_SILENCE_MAX};
use quinn::congestion::CubicConfig;
use quinn::{EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Every path carries so much, and at 9.6 kb/s one such packet takes a second. Finding out
/// whether more would pass costs several longer ones.
const PACKET_BYTES: u16 = 1200;

/// Bytes of one stream, and of all, that may be on their way to us unread. Enough for 1 Gb/s at
/// 100 ms and more.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 24 << 20;
/// The same for somebody who has not been admitted.
const STRANGER_WINDOW: u32 = 64 << 10;

/// Before the first draw sets it.
const SEND_WINDOW: u64 = 64 << 10;

/// Room in the kernel for what arrives while both cores are busy.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

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

pub(crate) fn client(initial_rtt: Duration, congestion: Congestion) -> TransportConfig {
    let mut config = common();
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
        .initial_rtt(Duration::from_millis(500))
        .max_idle_timeout(Some(silence))
        // One stream for the hello; the rest after it.
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
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
        .mtu_discovery_config(None)
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

/// Keys that follow from the server's own: after a restart it can still tell old peers that
/// their connections are gone.
pub(crate) fn server_endpoint(identity: &Identity) -> EndpointConfig {
    let reset = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &derived(identity, b"reset"));
    let mut config = EndpointConfig::new(Arc::new(reset));
    let seed = derived(identity, b"connection ids");
    let seed = u64::from_be_bytes(*seed.first_chunk().expect("a digest has 32 bytes"));
    config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(seed)));
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
