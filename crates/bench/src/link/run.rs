//! What the kernel hands to a device at once: a packet, or a run of packets that the device is to cut,
//! with a `struct virtio_net_hdr` before it.
//! From: VIRTIO 1.2, section 5.1.6 (device operation of network devices).

use super::shape::Run;

/// Bytes of `struct virtio_net_hdr`.
const BEFORE: usize = 10;
const GSO_TYPE_AT: usize = 1;
const GSO_SIZE_AT: usize = 4;
const GSO_TCPV4: u8 = 1;
const GSO_UDP_L4: u8 = 5;
/// Beside the type: explicit congestion notices are in use.
const GSO_ECN: u8 = 0x80;
const UDP_HEADER: usize = 8;
/// Where a TCP header says how long it is, in words in the upper half of the byte.
const TCP_LENGTH_AT: usize = 12;

/// How many packets this is on the wire, and their bytes. Whatever cannot be understood is one.
pub fn of(read: &[u8]) -> Run {
    let packet = read.get(BEFORE..).unwrap_or_default();
    cut(read, packet).unwrap_or(Run::one(packet.len()))
}

fn cut(read: &[u8], packet: &[u8]) -> Option<Run> {
    let ip_header = usize::from(packet.first()? & 0xf) * 4;
    let header = ip_header
        + match read.get(GSO_TYPE_AT)? & !GSO_ECN {
            GSO_TCPV4 => usize::from(packet.get(ip_header + TCP_LENGTH_AT)? >> 4) * 4,
            GSO_UDP_L4 => UDP_HEADER,
            _ => return None,
        };
    let each = read.get(GSO_SIZE_AT..)?.first_chunk().map(|size| u16::from_ne_bytes(*size))?;
    let payload = packet.len().checked_sub(header)?;
    let packets = payload.div_ceil(usize::from(each).max(1)).max(1);
    Some(Run { packets: packets as u64, bytes: payload + packets * header })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(gso_type: u8, gso_size: u16, packet: &[u8]) -> Vec<u8> {
        let mut read = vec![0, gso_type, 0, 0];
        read.extend(gso_size.to_ne_bytes());
        read.extend([0; 4]);
        read.extend(packet);
        read
    }

    fn udp(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 28 + payload];
        packet[0] = 0x45;
        packet
    }

    #[test]
    fn a_packet_is_itself_and_a_run_has_the_headers_of_each_packet() {
        assert_eq!(of(&with(0, 0, &udp(100))), Run::one(128));
        assert_eq!(of(&with(5, 1000, &udp(2500))), Run { packets: 3, bytes: 2500 + 3 * 28 });
        let mut tcp = vec![0; 20 + 32 + 3000];
        (tcp[0], tcp[32]) = (0x45, 0x80);
        assert_eq!(of(&with(0x81, 1448, &tcp)), Run { packets: 3, bytes: 3000 + 3 * 52 });
    }

    #[test]
    fn whatever_is_no_run_is_one_packet() {
        assert_eq!(of(&[]), Run::one(0));
        assert_eq!(of(&with(5, 0, &udp(0))), Run::one(28));
        assert_eq!(of(&with(5, 1000, &[0x4f, 0])), Run::one(2));
        assert_eq!(of(&with(9, 1000, &udp(9000))), Run::one(9028));
    }
}
