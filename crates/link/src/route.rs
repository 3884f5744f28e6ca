//! Which of this machine's addresses leads to the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Any address of the family of `peer`.
pub(crate) fn unspecified(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// The address that packets to `peer` would leave from now. Sends nothing.
pub(crate) fn source(peer: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(unspecified(peer))?;
    // Connecting a UDP socket only asks the kernel for a route.
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_this_machine() {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        assert_eq!(source(peer).unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
}
