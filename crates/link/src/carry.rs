//! Carries frames over the streams of one connection: out through the turnstile piece by piece,
//! in with a bound on what is being put together.
//! Holds: little more is handed down than the link takes at once, so that the lottery decides
//! what goes next; a message that is given up is reset, never ended as if it were whole.
//! From: partially connected operation, 5.1.

use crate::classes::place;
use crate::controller;
use crate::frame::FRAME_BYTES_MAX;
use crate::limits::ASSEMBLY_BYTES_MAX;
use crate::quality::Counters;
use crate::regulate::Rule;
use crate::transport::{PACKET_BYTES, code};
use crate::turnstile::Turnstile;
use bytes::Bytes;
use protocol::{Class, PAYLOAD_BYTES_MAX};
use quinn::{Connection, ReadError, RecvStream, SendStream, WriteError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use world::{Clock, World};

/// A piece is about what fits one packet, or on a fast link an eighth of what is under way: so
/// much is the longest that the more urgent waits for the less urgent.
const PIECE_BYTES_LEAST: u64 = 1_100;
const PIECE_BYTES_MOST: u64 = 64 << 10;
const PIECES_UNDER_WAY: u64 = 8;

/// On a slow link a packet that nobody waits for is so short that it takes about so long, as
/// whatever comes to the link meanwhile, from other programs too, waits for it.
const PATIENT_PACKET: Duration = Duration::from_millis(60);
/// Shorter ones would be headers for the most part.
const PATIENT_BYTES_LEAST: u64 = 400;
/// With more under way the link is not slow, and nothing else need be asked of it.
const SLOW_UNDER_WAY_MOST: u64 = 16 << 10;
/// What is measured of a link may be far too low.
const REST_MOST: Duration = Duration::from_millis(500);
/// What a packet has beside what it carries.
const PACKET_HEAD_BYTES: u64 = 30;
/// Of the time that the link takes for a short piece, the next one comes behind it after so much: a
/// little early, so that the link is not idle for that.
const REST_SHARE: f64 = 0.9;

/// How much is taken from the first stream at once.
const READ_BYTES: usize = 64 << 10;
/// Of other streams: what came in so many packets.
const READ_PACKETS: usize = 32;

/// Messages without contents are seldom longer.
const SHORT_BYTES: usize = 64 << 10;

/// Bytes of the length before a frame of the first stream.
const LENGTH_BYTES: usize = 4;

#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) connection: Connection,
    pub(crate) counters: Arc<Counters>,
    turnstile: Arc<Turnstile>,
    clock: Clock,
    /// As last set, so that it is set only when it changes much.
    send_window: AtomicU64,
    assembling: AtomicUsize,
}

/// Why a message did not come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReceived {
    #[error("the message is longer than allowed")]
    TooLong,
    #[error("the message broke off")]
    BrokenOff,
    #[error("the connection was lost")]
    Lost,
}

impl From<ReadError> for NotReceived {
    fn from(error: ReadError) -> NotReceived {
        match error {
            ReadError::ConnectionLost(_) => NotReceived::Lost,
            _ => NotReceived::BrokenOff,
        }
    }
}

/// A stream that is reset unless it is finished. Left to itself it would end in good order, and
/// the peer would take half a message for a whole one.
#[derive(Debug)]
pub(crate) struct Outgoing {
    stream: SendStream,
    finished: bool,
}

impl Outgoing {
    pub(crate) fn new(stream: SendStream, class: Class) -> Outgoing {
        // What somebody waits for goes ahead of the little that is buffered below.
        let urgent = matches!(class, Class::Interactive);
        // A stream that the peer has closed already shows it at the first write.
        let _ = stream.set_priority(i32::from(urgent));
        Outgoing { stream, finished: false }
    }

    pub(crate) fn finish(mut self) {
        self.finished = true;
        // It fails only if the peer wants no more of it.
        let _ = self.stream.finish();
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.finished {
            // It fails only if the peer wants no more of it.
            let _ = self.stream.reset(code::DONE);
        }
    }
}

impl Wire {
    pub(crate) fn new(connection: Connection, counters: Arc<Counters>, world: &World) -> Wire {
        Wire {
            connection,
            counters,
            turnstile: Turnstile::new(world.entropy.clone()),
            clock: world.clock.clone(),
            send_window: AtomicU64::new(0),
            assembling: AtomicUsize::new(0),
        }
    }

    /// Sends a frame, and ends the stream with it.
    pub(crate) async fn send(
        &self,
        mut stream: Outgoing,
        class: Class,
        frame: Vec<u8>,
    ) -> Result<(), WriteError> {
        self.pass(&mut stream, class, frame.into()).await?;
        stream.finish();
        Ok(())
    }

    /// Sends a frame of the first stream, which goes on after it.
    pub(crate) async fn say(&self, stream: &mut Outgoing, frame: &[u8]) -> Result<(), WriteError> {
        let length = u32::try_from(frame.len()).expect("a frame is far below 4 GiB");
        let bytes = [&length.to_be_bytes(), frame].concat();
        self.pass(stream, Class::Interactive, bytes.into()).await
    }

    async fn pass(
        &self,
        stream: &mut Outgoing,
        class: Class,
        mut bytes: Bytes,
    ) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let _turn = self.turnstile.turn(class, bytes.len()).await;
            let rule = self.turnstile.rule();
            let under_way = self.connection.stats().path.cwnd;
            let short = self.short_piece(class, under_way);
            let piece = short.map_or_else(|| piece_bytes(under_way), |short| short.bytes);
            let piece = piece.min(rule.piece_bytes_max());
            self.bound_send_window(match short {
                Some(_) => tight_window(under_way, piece),
                None => send_window(under_way, piece),
            });
            let now = bytes.split_to(bytes.len().min(piece as usize));
            // Handed down as it is: written as a slice it would be copied.
            let rest = rule.rest_after(now.len() as u64);
            stream.stream.write_chunk(now).await?;
            let short_rest = short.filter(|_| !bytes.is_empty()).map(|short| short.rest);
            // A turn that rests is kept: whose is next is drawn when the next piece may go. With the
            // next one behind it at once a short packet would become a long one with it, or both
            // would be in the link's queue together.
            if let Some(rest) = rest.max(short_rest) {
                self.clock.sleep(rest).await;
            }
        }
        Ok(())
    }

    /// Keeps to this from the next piece on.
    pub(crate) fn regulate(&self, rule: Rule) {
        self.turnstile.regulate(rule);
    }

    /// On a slow link, and if nobody waits for it. What is fetched on demand has long packets itself,
    /// and shares by their number.
    fn short_piece(&self, class: Class, under_way: u64) -> Option<Short> {
        let patient = matches!(class, Class::Replay | Class::Prefetch);
        let beside_long = self.turnstile.waits(Class::Demand);
        if !patient || beside_long || under_way > SLOW_UNDER_WAY_MOST {
            return None;
        }
        short_piece(controller::measured(&self.connection).steady_rate?)
    }

    fn bound_send_window(&self, window: u64) {
        let set = self.send_window.load(Ordering::Relaxed);
        if window.abs_diff(set) > set / 8 {
            self.send_window.store(window, Ordering::Relaxed);
            self.connection.set_send_window(window);
        }
    }

    /// The frame that is all of a stream.
    pub(crate) async fn receive(&self, stream: &mut RecvStream) -> Result<Vec<u8>, NotReceived> {
        let mut assembly = Assembly::new(self);
        let mut packets = [const { Bytes::new() }; READ_PACKETS];
        while let Some(count) = stream.read_chunks(&mut packets).await? {
            for bytes in &mut packets[..count] {
                assembly.add(&std::mem::take(bytes), FRAME_BYTES_MAX)?;
            }
        }
        Ok(assembly.finish())
    }

    /// The next frame of the first stream. None: the stream has ended.
    pub(crate) async fn hear(
        &self,
        stream: &mut RecvStream,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, NotReceived> {
        let mut length = [0; LENGTH_BYTES];
        match stream.read_exact(&mut length).await {
            Ok(()) => {}
            Err(quinn::ReadExactError::FinishedEarly(0)) => return Ok(None),
            Err(quinn::ReadExactError::FinishedEarly(_)) => return Err(NotReceived::BrokenOff),
            Err(quinn::ReadExactError::ReadError(error)) => return Err(error.into()),
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(NotReceived::TooLong);
        }
        let mut assembly = Assembly::new(self);
        while assembly.bytes.len() < length {
            let want = READ_BYTES.min(length - assembly.bytes.len());
            let chunk = stream.read_chunk(want, true).await?.ok_or(NotReceived::BrokenOff)?;
            assembly.add(&chunk.bytes, length)?;
        }
        Ok(Some(assembly.finish()))
    }
}

/// A message that is being put together, and counts against the bound of its session.
struct Assembly<'a> {
    wire: &'a Wire,
    bytes: Vec<u8>,
}

impl Assembly<'_> {
    fn new(wire: &Wire) -> Assembly<'_> {
        Assembly { wire, bytes: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8], bytes_max: usize) -> Result<(), NotReceived> {
        if self.bytes.len() + bytes.len() > bytes_max {
            return Err(NotReceived::TooLong);
        }
        let before = self.wire.assembling.fetch_add(bytes.len(), Ordering::Relaxed);
        if self.bytes.len() > SHORT_BYTES && self.bytes.capacity() < PAYLOAD_BYTES_MAX {
            // It is likely to have contents: room for all of them, and it need not move again.
            self.bytes.reserve(PAYLOAD_BYTES_MAX + SHORT_BYTES);
        }
        self.bytes.extend_from_slice(bytes);
        // A peer that keeps the agreed bounds on its requests does not come here.
        if before + bytes.len() > ASSEMBLY_BYTES_MAX {
            return Err(NotReceived::TooLong);
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        self.wire.assembling.fetch_sub(bytes.len(), Ordering::Relaxed);
        bytes
    }
}

impl Drop for Assembly<'_> {
    fn drop(&mut self) {
        self.wire.assembling.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Bytes to hand down at once, if the link takes `under_way` bytes at once.
fn piece_bytes(under_way: u64) -> u64 {
    (under_way / PIECES_UNDER_WAY).clamp(PIECE_BYTES_LEAST, PIECE_BYTES_MOST)
}

/// Bytes handed down and not acknowledged: what is under way, and a little that waits so that
/// the link is never idle.
fn send_window(under_way: u64, piece: u64) -> u64 {
    under_way + (under_way / 4).max(2 * piece)
}

/// A piece that is short for what else is on the link, and the time before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short {
    bytes: u64,
    rest: Duration,
}

/// At so many bytes a second; none: any piece may be as long as they get.
fn short_piece(rate: u64) -> Option<Short> {
    let rate = rate.max(1) as f64;
    let bytes = (rate * PATIENT_PACKET.as_secs_f64()) as u64;
    if bytes >= PIECE_BYTES_LEAST {
        return None;
    }
    let bytes = bytes.max(PATIENT_BYTES_LEAST);
    let rest = (bytes + PACKET_HEAD_BYTES) as f64 / rate * REST_SHARE;
    Some(Short { bytes, rest: Duration::from_secs_f64(rest).min(REST_MOST) })
}

/// As many pieces as may be under way, and none beside: what waited below would leave in one packet
/// with what comes after it. QUIC asks for room for the longest packet before each.
fn tight_window(under_way: u64, piece: u64) -> u64 {
    let room = under_way.saturating_sub(u64::from(PACKET_BYTES));
    (room / (piece + PACKET_HEAD_BYTES) + 1) * piece
}

/// Where a class stands in the arrays of `limits`.
pub(crate) fn permits_of(class: Class) -> usize {
    crate::limits::REQUESTS_BY_CLASS_MAX[place(class)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_leaves_a_slow_link_in_short_packets() {
        // 9.6 kb/s, 57.6 kb/s, and what is fast enough.
        let short = |rate| short_piece(rate).map(|short| (short.bytes, short.rest.as_millis()));
        assert_eq!(short(1_200), Some((PATIENT_BYTES_LEAST, 322)));
        assert_eq!(short(7_200), Some((432, 57)));
        assert_eq!(short(32_000), None);
        // Whatever was measured, it goes on.
        assert_eq!(short(0), Some((PATIENT_BYTES_LEAST, 500)));
        // The room is never more than what may be under way, nor less than a packet.
        for under_way in (2_400..16_000).step_by(100) {
            let window = tight_window(under_way, 432);
            assert!(
                window.is_multiple_of(432) && window > 0 && window < under_way,
                "{under_way}: {window}"
            );
            assert!(
                window + u64::from(PACKET_BYTES) + 2 * 432 > under_way * 432 / 462,
                "{under_way}"
            );
        }
    }

    #[test]
    fn a_slow_link_is_handed_single_packets_and_little_waits_below() {
        let slow = 2_400;
        assert_eq!(piece_bytes(slow), PIECE_BYTES_LEAST);
        assert!(send_window(slow, piece_bytes(slow)) <= 2 * slow);
        let fast = 1 << 20;
        assert_eq!(piece_bytes(fast), PIECE_BYTES_MOST);
        assert_eq!(send_window(fast, piece_bytes(fast)), fast + fast / 4);
    }
}
