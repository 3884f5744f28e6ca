//! The name of one entry of a directory: any bytes but `/` and NUL, 1 to 255 of them.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Decoder, Encode, Encoder};
use std::fmt;

/// The longest name, as Linux has it.
pub const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum BadName {
    #[error("a file name may not be empty, '.' or '..'")]
    Reserved,
    #[error("a file name of {0} bytes is longer than 255")]
    TooLong(usize),
    #[error("a file name may not contain '/' or a NUL byte")]
    ForbiddenByte,
}

impl Name {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Name, BadName> {
        let bytes = bytes.into();
        if bytes.is_empty() || bytes == b"." || bytes == b".." {
            return Err(BadName::Reserved);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err(BadName::TooLong(bytes.len()));
        }
        if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(BadName::ForbiddenByte);
        }
        Ok(Name(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl<C> Encode<C> for Name {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Name {
    fn decode(d: &mut Decoder<'b>, c: &mut C) -> Result<Self, minicbor::decode::Error> {
        let bytes = ByteVec::decode(d, c)?;
        Name::new(Vec::from(bytes)).map_err(minicbor::decode::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_forbids_is_no_name() {
        assert_eq!(Name::new(*b""), Err(BadName::Reserved));
        assert_eq!(Name::new(*b".."), Err(BadName::Reserved));
        assert_eq!(Name::new(*b"a/b"), Err(BadName::ForbiddenByte));
        assert_eq!(Name::new(vec![b'a'; 256]), Err(BadName::TooLong(256)));
        assert!(Name::new(vec![b'a'; 255]).is_ok());
        assert!(Name::new(vec![0xff, b'\n']).is_ok());
    }

    #[test]
    fn a_forbidden_name_from_a_peer_is_a_decoding_error() {
        let bytes = minicbor::to_vec(ByteVec::from(b"../x".to_vec())).expect("a Vec takes all");
        assert!(minicbor::decode::<Name>(&bytes).is_err());
    }
}
