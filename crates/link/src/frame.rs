//! How a message becomes the bytes of a stream, and back. A frame is one byte of flags, then the
//! message in CBOR, as it is or compressed. Layout: docs/PROTOCOL.md.
//! Holds: nothing longer than `MESSAGE_BYTES_MAX` is made, and nothing longer is taken in,
//! compressed or not; every byte string is read or refused, and none panics.

use crate::Error;
use crate::classes::place;
use minicbor::{Decode, Encode};
use protocol::{Class, Request, Response};
use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use zstd::bulk::{Compressor, Decompressor};

/// The most bytes of a message, before compression.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The most bytes of a frame: a message that did not compress, and the flags.
pub(crate) const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1;

/// Below this what a compressed frame begins with costs more than it saves.
const COMPRESS_FROM_BYTES: usize = 96;
/// Messages are compressed while somebody waits.
const COMPRESSION_LEVEL: i32 = 3;
/// To begin a compressor takes several times as long as to compress a message no longer than this, so
/// that each thread keeps one for them.
const SHORT_BYTES: usize = 1024;
const SHORT_COMPRESSION_LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

const CLASS_BITS: u8 = 0b0000_0011;
const COMPRESSED_BIT: u8 = 0b0000_0100;

/// Whether compressing may pay, as far as the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Squeeze {
    Try,
    /// The message is contents, which their sender has compressed already.
    No,
}

impl Squeeze {
    pub(crate) fn request(request: &Request) -> Squeeze {
        if matches!(request, Request::Put { .. }) { Squeeze::No } else { Squeeze::Try }
    }

    pub(crate) fn response(response: &Response) -> Squeeze {
        let contents =
            matches!(response, Response::Bytes(_) | Response::Delta(_) | Response::Gathered(_));
        if contents { Squeeze::No } else { Squeeze::Try }
    }
}

/// A message as it goes out, and how long it was before compression.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) frame: Vec<u8>,
    pub(crate) message_bytes: u64,
}

pub(crate) fn seal<M: Encode<()>>(
    class: Class,
    message: &M,
    squeeze: Squeeze,
) -> Result<Sealed, Error> {
    let mut frame = vec![flags(class)];
    minicbor::encode(message, &mut frame).expect("memory takes everything");
    let message = &frame[1..];
    let message_bytes = message.len() as u64;
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Error::MessageTooLong { bytes: message_bytes, bytes_max: MESSAGE_BYTES_MAX });
    }
    if squeeze == Squeeze::Try && message.len() > COMPRESS_FROM_BYTES {
        let small = compress(message).map_err(Error::FrameCompression)?;
        // Reading compressed bytes costs time: less than an eighth saved is not worth it.
        if small.len() < message.len() / 8 * 7 {
            frame.truncate(1);
            frame[0] |= COMPRESSED_BIT;
            frame.extend_from_slice(&small);
        }
    }
    Ok(Sealed { frame, message_bytes })
}

/// The class and the message's bytes.
pub(crate) fn open(frame: &[u8]) -> Result<(Class, Cow<'_, [u8]>), Error> {
    let (flags, body) = frame.split_first().ok_or(Error::FrameEmpty)?;
    if flags & !(CLASS_BITS | COMPRESSED_BIT) != 0 {
        return Err(Error::FrameFlags(*flags));
    }
    let class = Class::ALL[usize::from(flags & CLASS_BITS)];
    let message = if flags & COMPRESSED_BIT == 0 {
        Cow::Borrowed(body)
    } else {
        Cow::Owned(decompress(body)?)
    };
    if message.len() > MESSAGE_BYTES_MAX {
        let bytes = message.len() as u64;
        return Err(Error::MessageTooLong { bytes, bytes_max: MESSAGE_BYTES_MAX });
    }
    Ok((class, message))
}

/// Reads a message that is all of `bytes`.
pub(crate) fn decode<'b, M: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<M, Error> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let message = decoder.decode()?;
    if decoder.position() != bytes.len() {
        return Err(Error::OutOfTurn("bytes after the end of a message"));
    }
    Ok(message)
}

fn flags(class: Class) -> u8 {
    // Four classes: the place fits the two bits.
    place(class) as u8
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, Error> {
    let invalid = |what| Error::FrameCompression(io::Error::new(io::ErrorKind::InvalidData, what));
    // The length is in the frame, so no more is set aside than is needed, and never too much.
    let bytes = zstd::zstd_safe::get_frame_content_size(body)
        .map_err(|_| invalid("it does not begin like a Zstandard frame"))?
        .ok_or_else(|| invalid("it does not say how long it is"))?;
    let capacity = usize::try_from(bytes).ok().filter(|bytes| *bytes <= MESSAGE_BYTES_MAX);
    let Some(capacity) = capacity else {
        return Err(Error::MessageTooLong { bytes, bytes_max: MESSAGE_BYTES_MAX });
    };
    if capacity > SHORT_BYTES {
        return zstd::bulk::decompress(body, capacity).map_err(Error::FrameCompression);
    }
    let short = DECOMPRESSOR
        .with_borrow_mut(|kept| kept_or(kept, Decompressor::new)?.decompress(body, capacity));
    short.map_err(Error::FrameCompression)
}

fn compress(message: &[u8]) -> io::Result<Vec<u8>> {
    if message.len() > SHORT_BYTES {
        return zstd::bulk::compress(message, COMPRESSION_LEVEL);
    }
    COMPRESSOR.with_borrow_mut(|kept| {
        kept_or(kept, || Compressor::new(SHORT_COMPRESSION_LEVEL))?.compress(message)
    })
}

fn kept_or<T>(kept: &mut Option<T>, make: impl FnOnce() -> io::Result<T>) -> io::Result<&mut T> {
    match kept {
        Some(kept) => Ok(kept),
        None => Ok(kept.insert(make()?)),
    }
}

/// Reads `bytes` as every frame that a peer may send after the hello. For fuzzing.
pub fn fuzz_frame(bytes: &[u8]) {
    if let Ok((class, message)) = open(bytes) {
        if let Ok(request) = decode::<Request>(&message) {
            let sealed = seal(class, &request, Squeeze::Try).expect("it was short enough before");
            let (again, message) = open(&sealed.frame).expect("what is sealed can be opened");
            assert_eq!(again, class, "the class survives");
            decode::<Request>(&message).expect("what is sealed can be read");
        }
        let _ = decode::<Response>(&message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use protocol::Payload;

    fn put(bytes: Vec<u8>) -> Request {
        Request::Put {
            payload: Payload {
                lengths: vec![bytes.len() as u32],
                bytes: bytes.into(),
                plain: true,
            },
            deltas: None,
        }
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        world::Entropy::seeded(7).fill(&mut noise);
        noise
    }

    #[test]
    fn a_repetitive_message_is_compressed_and_a_very_short_or_noisy_one_is_not() {
        let is_compressed = |request: &Request| {
            let sealed = seal(Class::Demand, request, Squeeze::Try).unwrap();
            let (class, message) = open(&sealed.frame).unwrap();
            assert_eq!(class, Class::Demand);
            assert_eq!(message.len() as u64, sealed.message_bytes);
            assert_eq!(&decode::<Request>(&message).unwrap(), request);
            sealed.frame[0] & COMPRESSED_BIT != 0
        };
        assert!(is_compressed(&put(vec![7; 100_000])));
        // As states are, in which the same times come again and again.
        let times: Vec<u8> = (0..6).flat_map(|_| noise(10)).chain(noise(70)).collect();
        let sealed = seal(Class::Replay, &put(times.clone()), Squeeze::Try).unwrap();
        assert!(is_compressed(&put(times)));
        assert!(sealed.frame.len() as u64 + 30 < sealed.message_bytes, "{}", sealed.frame.len());
        assert!(!is_compressed(&put(vec![7; 60])));
        assert!(!is_compressed(&put(noise(500))));
        assert!(!is_compressed(&put(noise(100_000))));
        assert!(!is_compressed(&Request::Measure));
    }

    #[test]
    fn what_is_too_long_is_neither_made_nor_taken() {
        let long = put(vec![0; MESSAGE_BYTES_MAX]);
        let error = seal(Class::Replay, &long, Squeeze::Try).unwrap_err();
        assert!(matches!(error, Error::MessageTooLong { .. }), "{error}");

        let mut bomb = vec![COMPRESSED_BIT];
        bomb.extend(zstd::bulk::compress(&vec![0; MESSAGE_BYTES_MAX + 1], 3).unwrap());
        assert!(bomb.len() < 4_096);
        assert!(matches!(open(&bomb), Err(Error::MessageTooLong { .. })));

        let plain = vec![0; FRAME_BYTES_MAX + 1];
        assert!(matches!(open(&plain), Err(Error::MessageTooLong { .. })));
    }

    #[test]
    fn a_frame_that_lies_is_refused() {
        assert!(matches!(open(&[]), Err(Error::FrameEmpty)));
        assert!(matches!(open(&[0x80]), Err(Error::FrameFlags(0x80))));
        assert!(matches!(open(&[COMPRESSED_BIT, 1, 2]), Err(Error::FrameCompression(_))));
        let mut cut = vec![COMPRESSED_BIT];
        cut.extend(zstd::bulk::compress(&[1; 1_000], 3).unwrap());
        cut.pop();
        assert!(matches!(open(&cut), Err(Error::FrameCompression(_))));
        let mut longer = minicbor::to_vec(Request::Measure).unwrap();
        longer.push(0);
        assert!(matches!(decode::<Request>(&longer), Err(Error::OutOfTurn(_))));
    }

    proptest! {
        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>) {
            fuzz_frame(&bytes);
            let compressed = zstd::bulk::compress(&bytes, 1).unwrap();
            fuzz_frame(&[&[COMPRESSED_BIT], compressed.as_slice()].concat());
        }

        #[test]
        fn prop_a_damaged_frame_is_read_or_refused(at: prop::sample::Index, bit in 0_u8..8) {
            let mut frame = seal(Class::Interactive, &put(vec![9; 2_000]), Squeeze::Try).unwrap().frame;
            let at = at.index(frame.len());
            frame[at] ^= 1_u8 << bit;
            fuzz_frame(&frame);
        }

        #[test]
        fn prop_a_message_survives(bytes in prop::collection::vec(0_u8..4, 0..5_000), class in 0_usize..4) {
            let request = put(bytes);
            for squeeze in [Squeeze::Try, Squeeze::No] {
                let sealed = seal(Class::ALL[class], &request, squeeze).unwrap();
                let (seen, message) = open(&sealed.frame).unwrap();
                prop_assert_eq!(seen, Class::ALL[class]);
                prop_assert_eq!(decode::<Request>(&message).unwrap(), request.clone());
            }
        }
    }
}
