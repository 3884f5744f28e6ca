//! What is said on the first stream of a session: the hello and its answer, then notices in one
//! direction and their acknowledgements in the other.
//! Holds: the hello and its answers keep their numbers in every version of the protocol, since
//! they are read before a version has been agreed upon.

use crate::frame;
use crate::regulate::Rule;
use minicbor::{Decode, Encode};
use protocol::{Notice, Version, Versions};

/// The most bytes of a hello: three names and a token.
pub(crate) const HELLO_BYTES_MAX: usize = 4096;

/// From the one below.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Upward {
    /// The first, and once.
    #[n(0)]
    Hello(#[n(0)] Hello),
    /// These notices have been taken in.
    #[n(1)]
    Taken(#[n(0)] Vec<u64>),
    /// Wants nothing but QUIC's own acknowledgement, to know that the link is alive.
    #[n(2)]
    Probe,
    /// The server is to keep to this from now on. Only where the welcome says that it can.
    #[n(3)]
    Regulate(#[n(0)] Rule),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Hello {
    #[n(0)]
    pub(crate) versions: Versions,
    /// The name that the device gives itself.
    #[n(1)]
    pub(crate) name: String,
    #[n(2)]
    pub(crate) volume: String,
    #[n(3)]
    pub(crate) invitation: Option<String>,
    /// Which of the device's mounts this is, by chance. A new session of the same mount takes
    /// the place of the old one, which the server may not know to be dead.
    #[n(4)]
    pub(crate) instance: u64,
}

/// From the one above.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Downward {
    /// The session has begun.
    #[n(0)]
    Welcome {
        #[n(0)]
        version: Version,
        /// `Regulate` is understood. None: it is not known.
        #[n(1)]
        regulates: Option<bool>,
    },
    /// No version is spoken by both sides; these are the ones spoken here.
    #[n(1)]
    WrongVersion(#[n(0)] Versions),
    #[n(2)]
    NotInvited,
    #[n(3)]
    Busy(#[n(0)] String),
    #[n(4)]
    Notice {
        #[n(0)]
        number: u64,
        #[n(1)]
        notice: Notice,
    },
    #[n(5)]
    Probe,
}

impl Downward {
    /// Why whoever hears this instead of a welcome was turned away, for the server's log.
    pub fn why_not(&self) -> &str {
        match self {
            Downward::WrongVersion(_) => "no version of the protocol is spoken by both sides",
            Downward::NotInvited => {
                "the device is not known for that volume, and its invitation is not, or was used"
            }
            Downward::Busy(why) => why,
            Downward::Welcome { .. } | Downward::Notice { .. } | Downward::Probe => {
                "it did not begin as it should"
            }
        }
    }
}

/// What the user is told when the versions do not meet.
pub(crate) fn wrong_version(ours: Versions, theirs: Versions) -> String {
    let update = if theirs.max < ours.min {
        "update farfs on the server"
    } else if ours.max < theirs.min {
        "update farfs here"
    } else {
        "update the older of the two"
    };
    format!(
        "the server speaks versions {}..{} of the protocol, this farfs speaks {}..{}: {update}",
        theirs.min, theirs.max, ours.min, ours.max
    )
}

/// Reads `bytes` as what a peer may send on the first stream. For fuzzing.
pub fn fuzz_hello(bytes: &[u8]) {
    if let Ok((_, message)) = frame::open(bytes) {
        let _ = frame::decode::<Upward>(&message);
        let _ = frame::decode::<Downward>(&message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whoever_is_older_is_told_to_be_updated() {
        let (old, new) = (Versions { min: 1, max: 1 }, Versions { min: 2, max: 3 });
        assert_eq!(
            wrong_version(new, old),
            "the server speaks versions 1..1 of the protocol, this farfs speaks 2..3: update \
             farfs on the server"
        );
        assert!(wrong_version(old, new).ends_with("update farfs here"));
    }

    #[test]
    fn the_hello_is_written_as_it_was_in_the_first_version() {
        let hello = Upward::Hello(Hello {
            versions: Versions { min: 1, max: 2 },
            name: "a".into(),
            volume: "b".into(),
            invitation: None,
            instance: 3,
        });
        let bytes = minicbor::to_vec(&hello).unwrap();
        let first = [0x82, 0, 0x81, 0x85, 0x82, 1, 2, 0x61, b'a', 0x61, b'b', 0xf6, 3];
        assert_eq!(bytes, first);
        let answers = [Downward::WrongVersion(Versions { min: 1, max: 2 }), Downward::NotInvited];
        let first: [&[u8]; 2] = [&[0x82, 1, 0x81, 0x82, 1, 2], &[0x82, 2, 0x80]];
        for (answer, first) in answers.into_iter().zip(first) {
            assert_eq!(minicbor::to_vec(answer).unwrap(), first);
        }
    }

    proptest! {
        #[test]
        fn prop_every_byte_string_is_read_or_refused(bytes: Vec<u8>) {
            fuzz_hello(&bytes);
        }

        #[test]
        fn prop_a_damaged_hello_is_read_or_refused(at: prop::sample::Index, bit in 0_u8..8) {
            let hello = Upward::Hello(Hello {
                versions: Versions::OURS,
                name: "laptop".into(),
                volume: "notes".into(),
                invitation: Some("token".into()),
                instance: u64::MAX,
            });
            let sealed = frame::seal(protocol::Class::Interactive, &hello, frame::Squeeze::Try);
            let mut frame = sealed.unwrap().frame;
            let at = at.index(frame.len());
            frame[at] ^= 1_u8 << bit;
            fuzz_hello(&frame);
        }
    }
}
