//! What waits in the sockets of this network namespace.

use crate::sys::proc::parse_udp_waiting;

/// Whether datagrams wait to be read from a UDP socket on one of `ports`. Where the kernel shows no sockets of a family, there are
/// none; a list in an unknown form says nothing, and neither does a port that the kernel chose (0).
pub fn wait_to_be_read(ports: &[u16]) -> bool {
    ["udp", "udp6"].into_iter().any(|list| {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{list}")).ok();
        let waiting = text.and_then(|text| parse_udp_waiting(&text)).unwrap_or_default();
        ports.iter().any(|port| waiting.contains_key(port))
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_datagram_waits_until_it_is_read() {
        let (reader, writer) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let ports = [reader.local_addr().unwrap().port()];
        assert!(!wait_to_be_read(&ports));
        writer.send_to(&[1, 2, 3], reader.local_addr().unwrap()).unwrap();
        assert!(wait_to_be_read(&ports));
        assert!(!wait_to_be_read(&[writer.local_addr().unwrap().port()]));
        assert_eq!(reader.recv(&mut [0; 8]).unwrap(), 3);
        assert!(!wait_to_be_read(&ports));
    }
}
