//! Socket addresses as the kernel writes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either family, in the kernel's layout.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(super) const SIZE: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// No address: family `AF_UNSPEC`.
    pub(super) fn empty() -> Self {
        Self {
            v6: libc::sockaddr_in6 {
                sin6_family: libc::AF_UNSPEC as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
                sin6_scope_id: 0,
            },
        }
    }

    /// The address and the length that belongs to its family.
    pub(super) fn new(address: SocketAddr) -> (Self, libc::socklen_t) {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (raw, Self::SIZE)
            }
        }
    }

    /// The address, an IPv4 one written as IPv4 even where an IPv6 socket maps it.
    pub(super) fn get(&self) -> Option<SocketAddr> {
        // SAFETY: every value of this union was initialised whole (`empty`), and the kernel writes the family of what it
        // stored; all fields start with it.
        let family = unsafe { self.family };
        match libc::c_int::from(family) {
            libc::AF_INET => {
                // SAFETY: the kernel says that it stored a `sockaddr_in`; any bytes make one.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: the kernel says that it stored a `sockaddr_in6`; any bytes make one.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(match ip.to_ipv4_mapped() {
                    Some(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
                    None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_mapped_ones_become_ipv4() {
        for text in ["192.0.2.1:51820", "[2001:db8::1]:7", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::new(address).0.get(), Some(address));
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:5".parse().unwrap();
        assert_eq!(RawAddress::new(mapped).0.get(), Some("192.0.2.1:5".parse().unwrap()));
        assert_eq!(RawAddress::empty().get(), None);
    }
}
