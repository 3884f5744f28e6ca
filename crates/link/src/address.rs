//! Where a volume is: `farfs://HOST:PORT/VOLUME?key=FINGERPRINT[&invite=TOKEN]`.
//! Holds: what is printed is read back as the same; the server's key is always in it.

use crate::keys::Fingerprint;
use crate::{AddressMistake, Error};
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

const SCHEME: &str = "farfs://";
const VOLUME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
    pub volume: String,
    /// The server's key.
    pub key: Fingerprint,
    /// The token of an invitation, used once.
    pub invitation: Option<String>,
}

impl Address {
    /// The same volume without the invitation: what may be kept, shown and logged.
    pub fn without_invitation(&self) -> Address {
        Address { invitation: None, ..self.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if self.host.parse::<Ipv6Addr>().is_ok() {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        write!(f, ":{}/{}?key={}", self.port, Escaped(&self.volume), self.key)?;
        match &self.invitation {
            Some(token) => write!(f, "&invite={}", Escaped(token)),
            None => Ok(()),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        read(text.trim())
            .map_err(|mistake| Error::Address { address: text.trim().to_owned(), mistake })
    }
}

fn read(text: &str) -> Result<Address, AddressMistake> {
    let rest = text.strip_prefix(SCHEME).ok_or(AddressMistake::Scheme)?;
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, query),
        None => (rest, ""),
    };
    let (authority, volume) = match place.split_once('/') {
        Some((authority, volume)) => (authority, volume),
        None => (place, ""),
    };
    let (host, port) = read_authority(authority)?;
    let volume = unescape(volume)?;
    match volume.as_str() {
        "" => return Err(AddressMistake::NoVolume),
        volume if volume.contains('/') => return Err(AddressMistake::SlashInVolume),
        volume if volume.len() > VOLUME_BYTES_MAX => {
            return Err(AddressMistake::LongVolume(VOLUME_BYTES_MAX));
        }
        _ => {}
    }
    let (key, invitation) = read_query(query)?;
    Ok(Address { host, port, volume, key, invitation })
}

fn read_authority(authority: &str) -> Result<(String, u16), AddressMistake> {
    let bad = || AddressMistake::BadHost(authority.to_owned());
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        host.parse::<Ipv6Addr>().map_err(|_| bad())?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port,
            None if rest.is_empty() => return Err(AddressMistake::NoPort),
            None => return Err(bad()),
        };
        (host, port)
    } else {
        if authority.parse::<Ipv6Addr>().is_ok() {
            return Err(bad());
        }
        let Some((host, port)) = authority.rsplit_once(':') else {
            return Err(match authority {
                "" => AddressMistake::NoHost,
                _ => AddressMistake::NoPort,
            });
        };
        if host.is_empty() {
            return Err(AddressMistake::NoHost);
        }
        if !is_name(host) {
            return Err(bad());
        }
        (host, port)
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number > 0 => Ok((host.to_owned(), number)),
        _ if port.is_empty() => Err(AddressMistake::NoPort),
        _ => Err(AddressMistake::BadPort(port.to_owned())),
    }
}

fn is_name(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
        || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn read_query(query: &str) -> Result<(Fingerprint, Option<String>), AddressMistake> {
    let (mut key, mut invitation) = (None, None);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = unescape(value)?;
        let twice = match name {
            "key" if value.is_empty() => return Err(AddressMistake::NoKey),
            "key" => {
                let read = value.parse().map_err(|_| AddressMistake::BadKey(value))?;
                key.replace(read).is_some()
            }
            "invite" if value.is_empty() => return Err(AddressMistake::NoInvitation),
            "invite" => invitation.replace(value).is_some(),
            _ => return Err(AddressMistake::UnknownParameter(name.to_owned())),
        };
        if twice {
            return Err(AddressMistake::Twice(name.to_owned()));
        }
    }
    Ok((key.ok_or(AddressMistake::NoKey)?, invitation))
}

/// Text with every byte escaped that means something in an address.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn unescape(text: &str) -> Result<String, AddressMistake> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(AddressMistake::BadEscape);
        };
        // Two hexadecimal digits are at most 255.
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| AddressMistake::BadEscape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "abcdefghijklmnopqrstuvwxyz234567";

    fn mistake(text: &str) -> AddressMistake {
        match text.parse::<Address>() {
            Err(Error::Address { mistake, .. }) => mistake,
            other => panic!("{text} was read as {other:?}"),
        }
    }

    #[test]
    fn an_address_is_read() {
        let address: Address =
            format!("farfs://example.org:4433/notes?key={KEY}&invite=abc").parse().unwrap();
        assert_eq!(address.host, "example.org");
        assert_eq!(address.port, 4433);
        assert_eq!(address.volume, "notes");
        assert_eq!(address.key.to_string(), KEY);
        assert_eq!(address.invitation.as_deref(), Some("abc"));
        assert_eq!(
            address.without_invitation().to_string(),
            format!("farfs://example.org:4433/notes?key={KEY}")
        );
        let address: Address = format!("farfs://[::1]:1/a%20b?key={KEY}").parse().unwrap();
        assert_eq!((address.host.as_str(), address.volume.as_str()), ("::1", "a b"));
    }

    #[test]
    fn each_mistake_is_called_by_its_name() {
        use AddressMistake as M;
        let with_key = |place: &str| mistake(&format!("farfs://{place}?key={KEY}"));
        assert_eq!(mistake("http://h:1/v"), M::Scheme);
        assert_eq!(mistake(""), M::Scheme);
        assert_eq!(with_key(":1/v"), M::NoHost);
        assert_eq!(with_key("/v"), M::NoHost);
        assert_eq!(with_key("h/v"), M::NoPort);
        assert_eq!(with_key("h:/v"), M::NoPort);
        assert_eq!(with_key("[::1]/v"), M::NoPort);
        assert_eq!(with_key("h:0/v"), M::BadPort("0".into()));
        assert_eq!(with_key("h:+1/v"), M::BadPort("+1".into()));
        assert_eq!(with_key("h:70000/v"), M::BadPort("70000".into()));
        assert_eq!(with_key("::1/v"), M::BadHost("::1".into()));
        assert_eq!(with_key("[::1/v"), M::BadHost("[::1".into()));
        assert_eq!(with_key("[::1]x:1/v"), M::BadHost("[::1]x:1".into()));
        assert_eq!(with_key("a b:1/v"), M::BadHost("a b:1".into()));
        assert_eq!(with_key("h:1"), M::NoVolume);
        assert_eq!(with_key("h:1/"), M::NoVolume);
        assert_eq!(with_key("h:1/a/b"), M::SlashInVolume);
        assert_eq!(with_key("h:1/a%2Fb"), M::SlashInVolume);
        assert_eq!(with_key(&format!("h:1/{}", "v".repeat(256))), M::LongVolume(255));
        assert_eq!(with_key("h:1/a%2"), M::BadEscape);
        assert_eq!(with_key("h:1/%ff"), M::BadEscape);
        assert_eq!(mistake("farfs://h:1/v"), M::NoKey);
        assert_eq!(mistake("farfs://h:1/v?key="), M::NoKey);
        assert_eq!(mistake("farfs://h:1/v?key=abc"), M::BadKey("abc".into()));
        assert_eq!(mistake(&format!("farfs://h:1/v?key={KEY}&invite=")), M::NoInvitation);
        assert_eq!(mistake(&format!("farfs://h:1/v?key={KEY}&key={KEY}")), M::Twice("key".into()));
        assert_eq!(
            mistake(&format!("farfs://h:1/v?key={KEY}&foo=1")),
            M::UnknownParameter("foo".into())
        );
    }

    fn hosts() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-zA-Z0-9][a-zA-Z0-9._-]{0,20}",
            any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
            any::<Ipv6Addr>().prop_map(|ip| ip.to_string()),
        ]
    }

    proptest! {
        #[test]
        fn prop_what_is_printed_is_read_back(
            host in hosts(),
            port in 1..=u16::MAX,
            volume in "[^/]{1,60}",
            key: [u8; 32],
            invitation in proptest::option::of(".{1,40}"),
        ) {
            let key = Fingerprint::of(&key);
            let address = Address { host, port, volume, key, invitation };
            let read: Address = address.to_string().parse().unwrap();
            prop_assert_eq!(read, address);
        }

        #[test]
        fn prop_no_text_is_too_much(text: String) {
            for text in [text.clone(), format!("farfs://{text}"), format!("farfs://h:1/{text}")] {
                if let Ok(address) = text.parse::<Address>() {
                    prop_assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
                }
            }
        }
    }
}
