//! The kernel's WireGuard, over netlink: made and deleted as a link, configured and read by the generic family `wireguard` (Linux,
//! include/uapi/linux/wireguard.h).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use ipnet::IpNet;

use crate::sys::genetlink::{Family, attribute, attributes};
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::tunnel::TunnelError;
use crate::tunnel::keys::{KEY_LEN, PublicKey};
use crate::tunnel::uapi::{GetDevice, GetPeer, LastHandshake, SetDevice};
use crate::units::Mtu;

mod encode;

/// The family, its version and its commands (`enum wg_cmd`).
const FAMILY: &str = "wireguard";
const VERSION: u8 = 1;
const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;

/// `enum wgdevice_attribute` and `enum wgdevice_flag`. The private key is not looked at when it is read.
mod device {
    pub(super) const IFNAME: u16 = 2;
    pub(super) const PRIVATE_KEY: u16 = 3;
    pub(super) const PUBLIC_KEY: u16 = 4;
    pub(super) const FLAGS: u16 = 5;
    pub(super) const LISTEN_PORT: u16 = 6;
    pub(super) const FWMARK: u16 = 7;
    pub(super) const PEERS: u16 = 8;
    pub(super) const REPLACE_PEERS: u32 = 1;
}

/// `enum wgpeer_attribute` and `enum wgpeer_flag`. The preshared key is not looked at when it is read.
mod peer {
    pub(super) const PUBLIC_KEY: u16 = 1;
    pub(super) const PRESHARED_KEY: u16 = 2;
    pub(super) const FLAGS: u16 = 3;
    pub(super) const REMOVE_ME: u32 = 1;
    pub(super) const REPLACE_ALLOWED_IPS: u32 = 2;
    pub(super) const UPDATE_ONLY: u32 = 4;
    pub(super) const ENDPOINT: u16 = 4;
    pub(super) const KEEPALIVE: u16 = 5;
    pub(super) const LAST_HANDSHAKE: u16 = 6;
    pub(super) const RX_BYTES: u16 = 7;
    pub(super) const TX_BYTES: u16 = 8;
    pub(super) const ALLOWED_IPS: u16 = 9;
}

/// `enum wgallowedip_attribute`.
mod allowed_ip {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const ADDRESS: u16 = 2;
    pub(super) const MASK: u16 = 3;
    /// Linux 6.16; older kernels refuse it.
    pub(super) const FLAGS: u16 = 4;
    pub(super) const REMOVE_ME: u32 = 1;
}

/// A device that was made here. Dropping it deletes it.
#[derive(Debug)]
pub(in crate::tunnel) struct Device {
    interface: String,
}

impl Device {
    /// Makes the device.
    pub(super) fn add(interface: &str, mtu: Mtu) -> Result<Self, TunnelError> {
        const REMEDY: &str = "load its module with `modprobe wireguard` on the host (Linux 5.6 or newer, CONFIG_WIREGUARD), or \
                              measure `embedded`";
        let system = |error: NetlinkError| match error.errno() {
            Some(libc::EOPNOTSUPP) => TunnelError::Unavailable {
                engine: "kernel".to_owned(),
                reason: "this kernel has no WireGuard".to_owned(),
                remedy: REMEDY.to_owned(),
            },
            errno => TunnelError::System {
                action: error.what,
                source: error.source,
                hint: match errno {
                    Some(libc::EEXIST) => {
                        "remove what has its name: `ip link delete` one that a killed agent has left behind"
                    }
                    Some(libc::EPERM) => "making a device needs CAP_NET_ADMIN: run as root",
                    _ => "",
                },
            },
        };
        Netlink::open().and_then(|netlink| netlink.add_wireguard(interface, mtu)).map_err(system)?;
        Ok(Self { interface: interface.to_owned() })
    }

    /// Configures it.
    pub(super) fn set(&self, request: &SetDevice) -> Result<(), TunnelError> {
        let failed = |source| TunnelError::Kernel { action: "configure", interface: self.interface.clone(), source };
        let mut family = Family::open(FAMILY).map_err(failed)?;
        for message in encode::set(&self.interface, request) {
            family.change(SET_DEVICE, VERSION, &message).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let Ok(netlink) = Netlink::open() else { return };
        if let Ok(Some(link)) = netlink.link(&self.interface) {
            // A device that is gone already was somebody else's to delete; nobody could be told.
            let _gone = netlink.delete_link(link.index, &self.interface);
        }
    }
}

/// Reads the device.
///
/// # Errors
/// The kernel has no WireGuard, no such device, or does not let this process read it.
pub(super) fn get(interface: &str) -> Result<GetDevice, TunnelError> {
    let failed = |source| TunnelError::Kernel { action: "read", interface: interface.to_owned(), source };
    let mut name = interface.as_bytes().to_vec();
    name.push(0);
    let mut family = Family::open(FAMILY).map_err(failed)?;
    let messages = family.dump(GET_DEVICE, VERSION, &attribute(device::IFNAME, &name)).map_err(failed)?;
    // They hold the private key.
    let messages: Vec<_> = messages.into_iter().map(zeroize::Zeroizing::new).collect();
    decode(messages.iter().map(|message| message.as_slice())).map_err(failed)
}

/// What to do about a refusal, if that is known.
pub(in crate::tunnel) fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "; this kernel has no WireGuard, or has not loaded it",
        Some(libc::ENODEV) => "; there is no such interface",
        Some(libc::EOPNOTSUPP) => "; the interface is none of WireGuard's",
        Some(libc::EPERM | libc::EACCES) => "; it needs CAP_NET_ADMIN: run as root",
        _ => "",
    }
}

/// Puts together what several messages tell. A peer whose prefixes do not fit into one is told again in the next.
fn decode<'a>(messages: impl Iterator<Item = &'a [u8]>) -> io::Result<GetDevice> {
    let mut read = GetDevice::default();
    for message in messages {
        for (kind, value) in attributes(message) {
            match kind {
                device::PUBLIC_KEY => read.own_public_key = key(value),
                device::LISTEN_PORT => read.listen_port = number(value).map(u16::from_ne_bytes),
                device::FWMARK => read.fwmark = number(value).map(u32::from_ne_bytes).filter(|mark| *mark != 0),
                device::PEERS => {
                    for (_, value) in attributes(value) {
                        let told = decode_peer(value)
                            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a peer without a key"))?;
                        match read.peers.last_mut().filter(|last| last.public_key == told.public_key) {
                            Some(last) => last.allowed_ips.extend(told.allowed_ips),
                            // The kernel tells all of them of every peer; a count that was not told is not zero.
                            None if !counts(value) => {
                                return Err(io::Error::new(io::ErrorKind::InvalidData, "a peer without its counters"));
                            }
                            None => read.peers.push(told),
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(read)
}

/// Whether a peer's counters and settings are told, as they are where it is told of first.
fn counts(bytes: &[u8]) -> bool {
    [peer::RX_BYTES, peer::TX_BYTES, peer::KEEPALIVE, peer::LAST_HANDSHAKE]
        .iter()
        .all(|wanted| attributes(bytes).any(|(kind, _)| kind == *wanted))
}

fn decode_peer(bytes: &[u8]) -> Option<GetPeer> {
    let value = |wanted: u16| attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let counter = |wanted: u16| value(wanted).and_then(number).map_or(0, u64::from_ne_bytes);
    let prefixes = value(peer::ALLOWED_IPS).into_iter().flat_map(attributes);
    Some(GetPeer {
        public_key: key(value(peer::PUBLIC_KEY)?)?,
        preshared_key: None,
        endpoint: value(peer::ENDPOINT).and_then(endpoint),
        last_handshake: value(peer::LAST_HANDSHAKE).and_then(handshake).unwrap_or(LastHandshake::Never),
        tx_bytes: counter(peer::TX_BYTES),
        rx_bytes: counter(peer::RX_BYTES),
        keepalive: value(peer::KEEPALIVE).and_then(number).map_or(0, u16::from_ne_bytes),
        allowed_ips: prefixes.filter_map(|(_, value)| prefix(value)).collect(),
    })
}

fn number<const LEN: usize>(value: &[u8]) -> Option<[u8; LEN]> {
    value.try_into().ok()
}

fn key(value: &[u8]) -> Option<PublicKey> {
    PublicKey::from_bytes(number::<KEY_LEN>(value)?).ok()
}

/// `struct __kernel_timespec`: seconds and nanoseconds since the epoch, 64 bits each.
fn handshake(value: &[u8]) -> Option<LastHandshake> {
    let seconds = u64::try_from(i64::from_ne_bytes(value.get(..8)?.try_into().ok()?)).ok()?;
    let nanos = u32::try_from(i64::from_ne_bytes(value.get(8..16)?.try_into().ok()?)).ok()?;
    let at = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos)));
    Some(if at.is_zero() { LastHandshake::Never } else { LastHandshake::At(at) })
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn endpoint(value: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(value.get(2..4)?.try_into().ok()?);
    match family {
        libc::AF_INET => {
            let address: [u8; 4] = value.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(address).into(), port))
        }
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(value.get(4..8)?.try_into().ok()?);
            let address: [u8; 16] = value.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(value.get(24..28)?.try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(address), port, flow, scope).into())
        }
        _ => None,
    }
}

fn prefix(value: &[u8]) -> Option<IpNet> {
    let part = |wanted: u16| attributes(value).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let bytes = part(allowed_ip::ADDRESS)?;
    let address = match number::<4>(bytes) {
        Some(address) => IpAddr::from(address),
        None => IpAddr::from(number::<16>(bytes)?),
    };
    IpNet::new(address, *part(allowed_ip::MASK)?.first()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
        attribute(kind | 0x8000, &parts.concat())
    }

    fn prefix_of(net: &str) -> Vec<u8> {
        let net: IpNet = net.parse().unwrap();
        let (family, address) = match net.addr() {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let family = u16::try_from(family).unwrap().to_ne_bytes();
        nested(0, &[attribute(1, &family), attribute(2, &address), attribute(3, &[net.prefix_len()])])
    }

    fn message() -> Vec<u8> {
        let v4 = [&2_u16.to_ne_bytes()[..], &51820_u16.to_be_bytes(), &[192, 0, 2, 1], &[0; 8]].concat();
        let v6 = [&10_u16.to_ne_bytes()[..], &7_u16.to_be_bytes(), &[0; 4], &[0x20; 16], &[0; 4]].concat();
        let time = [1_750_000_000_i64.to_ne_bytes(), 5_i64.to_ne_bytes()].concat();
        let first = [
            attribute(1, &[2; 32]),
            attribute(2, &[9; 32]),
            attribute(4, &v4),
            attribute(5, &25_u16.to_ne_bytes()),
            attribute(6, &time),
            attribute(7, &11_u64.to_ne_bytes()),
            attribute(8, &22_u64.to_ne_bytes()),
            nested(9, &[prefix_of("10.0.0.0/24"), prefix_of("fd00::/64")]),
            attribute(10, &1_u32.to_ne_bytes()),
        ];
        let second = [
            attribute(1, &[3; 32]),
            attribute(4, &v6),
            attribute(5, &0_u16.to_ne_bytes()),
            attribute(6, &[0; 16]),
            attribute(7, &0_u64.to_ne_bytes()),
            attribute(8, &0_u64.to_ne_bytes()),
            nested(9, &[prefix_of("10.9.0.0/16")]),
        ];
        [
            attribute(1, &4_u32.to_ne_bytes()),
            attribute(2, b"wg0\0"),
            attribute(3, &[8; 32]),
            attribute(4, &[1; 32]),
            attribute(6, &51820_u16.to_ne_bytes()),
            attribute(7, &0_u32.to_ne_bytes()),
            nested(8, &[nested(0, &first), nested(0, &second)]),
        ]
        .concat()
    }

    #[test]
    fn a_dump_is_read_and_a_peer_goes_on_in_the_next_message() {
        let more = nested(8, &[nested(0, &[attribute(1, &[3; 32]), nested(9, &[prefix_of("10.10.0.0/16")])])]);
        let more = [attribute(2, b"wg0\0"), more].concat();
        let first = message();
        let read = decode([first.as_slice(), more.as_slice()].into_iter()).unwrap();
        assert_eq!(read.public_key().map(|key| *key.as_bytes()), Some([1; 32]));
        assert!(read.private_key.is_none(), "not looked at");
        assert_eq!((read.listen_port, read.fwmark, read.peers.len()), (Some(51820), None, 2));
        let peer = &read.peers[0];
        assert_eq!(peer.endpoint, "192.0.2.1:51820".parse().ok());
        assert_eq!((peer.rx_bytes, peer.tx_bytes, peer.keepalive), (11, 22, 25));
        assert_eq!(peer.last_handshake, LastHandshake::At(Duration::new(1_750_000_000, 5)));
        assert!(peer.preshared_key.is_none());
        let nets = |peer: &GetPeer| peer.allowed_ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(nets(peer), ["10.0.0.0/24", "fd00::/64"]);
        let peer = &read.peers[1];
        assert_eq!(peer.endpoint.map(|at| at.port()), Some(7));
        assert_eq!(
            (peer.last_handshake, nets(peer)),
            (LastHandshake::Never, vec!["10.9.0.0/16".to_owned(), "10.10.0.0/16".to_owned()])
        );
    }

    #[test]
    fn cut_messages_are_read_or_refused() {
        let whole = message();
        for cut in 0..whole.len() {
            let _ = decode(std::iter::once(&whole[..cut]));
        }
        assert!(decode(std::iter::once(nested(8, &[nested(0, &[])]).as_slice())).is_err());
        let uncounted = nested(8, &[nested(0, &[attribute(1, &[3; 32])])]);
        assert!(decode(std::iter::once(uncounted.as_slice())).unwrap_err().to_string().contains("counters"));
    }
}
