//! What can go wrong with keys, addresses, sockets and frames.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the key file {}: {source}", path.display())]
    KeyUnreadable { path: PathBuf, source: io::Error },
    #[error("cannot write the key file {}: {source}", path.display())]
    KeyUnwritable { path: PathBuf, source: io::Error },
    /// Never mended by making a new key: the old one may be known to servers.
    #[error(
        "the key file {} is damaged ({what}); restore it from a backup",
        path.display()
    )]
    KeyDamaged { path: PathBuf, what: String },
    #[error("no key could be made: {0}")]
    KeyNotMade(#[source] rcgen::Error),
    #[error("{address:?} is not an address of a volume: {mistake}")]
    Address { address: String, mistake: AddressMistake },
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the message has {bytes} bytes, more than the {bytes_max} allowed")]
    MessageTooLong { bytes: u64, bytes_max: usize },
    #[error("the frame is empty")]
    FrameEmpty,
    #[error("the frame's first byte, {0:#04x}, has flags that nobody has defined")]
    FrameFlags(u8),
    #[error("the frame cannot be decompressed: {0}")]
    FrameCompression(#[source] io::Error),
    #[error("the message cannot be read: {0}")]
    MessageUnreadable(#[from] minicbor::decode::Error),
    #[error("the peer said something out of turn: {0}")]
    OutOfTurn(&'static str),
    #[error(
        "{0:?} are no tickets: write three numbers from 1 to 1000, of interactive, demand and replay \
         traffic, as 8:3:1, or with prefetch as 8:3:1:1"
    )]
    Tickets(String),
}

/// What is wrong with an address. The form is
/// `farfs://HOST:PORT/VOLUME?key=FINGERPRINT[&invite=TOKEN]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressMistake {
    #[error("it must begin with farfs://")]
    Scheme,
    #[error("there is no host before the volume")]
    NoHost,
    #[error("the host {0:?} is neither a name nor an IP address (IPv6 goes in brackets)")]
    BadHost(String),
    #[error("there is no port; write HOST:PORT")]
    NoPort,
    #[error("the port {0:?} is not a number from 1 to 65535")]
    BadPort(String),
    #[error("there is no volume; write farfs://HOST:PORT/VOLUME?key=…")]
    NoVolume,
    #[error("the volume's name may not contain a slash")]
    SlashInVolume,
    #[error("the volume's name is longer than {0} bytes")]
    LongVolume(usize),
    #[error("there is no key; copy the whole address that the server showed, with ?key=…")]
    NoKey,
    #[error("the key {0:?} is not a fingerprint: 32 letters a to z and digits 2 to 7")]
    BadKey(String),
    #[error("the invitation is empty")]
    NoInvitation,
    #[error("the parameter {0:?} is unknown; there are key and invite")]
    UnknownParameter(String),
    #[error("the parameter {0:?} is there twice")]
    Twice(String),
    #[error("there is a % that is not followed by two hexadecimal digits, or not UTF-8")]
    BadEscape,
}
